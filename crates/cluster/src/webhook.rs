//! `bayplan webhook`: copies the requests of new pods into an annotation, for clusters without MutatingAdmissionPolicy, and by choice what Koordinator's
//! ClusterColocationProfiles say. In: reviews of the API server over TLS. Out: a patch, and never a refusal.
//!
//! Its certificate is its own: a CA and a leaf in a Secret that all replicas share, the leaf renewed by whichever comes first, the CA in the webhook's configuration
//! (`caBundle`). Or it is another program's: files, as cert-manager mounts them, which are read again when they change.

mod certificate;
mod colocation;
mod follow;
mod review;
mod server;
mod store;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use self::colocation::Known;
use self::follow::follow_profiles;
use self::server::{Certificate, TlsListener};
use self::store::Store;

/// The API server bounds objects at 3 MiB in JSON.
const REVIEW_MAX: usize = 4 << 20;
/// How often the certificate is looked at: where it is stored, and whether the configuration still trusts it.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// After a look that failed.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// What it is told on the command line.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Host names and addresses by which the API server calls it.
    pub names: Vec<String>,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of the MutatingWebhookConfiguration with the `caBundle` that it keeps.
    pub configuration: String,
    /// A directory with `tls.crt` and `tls.key` that another program renews; `None`: it makes its own certificate.
    pub certificate: Option<PathBuf>,
    /// ClusterColocationProfiles count.
    pub has_profiles: bool,
}

/// Serves until the process ends.
///
/// # Errors
/// It cannot listen, or there is no certificate in the named directory.
pub async fn run_webhook(options: WebhookOptions) -> anyhow::Result<()> {
    let certificate = Certificate::default();
    match options.certificate.clone() {
        Some(dir) => {
            read_files(&dir, &certificate)?;
            tokio::spawn(follow_files(dir, certificate.clone()));
        }
        None => {
            let WebhookOptions { namespace, secret, configuration, names, .. } = &options;
            let store = Store::new(client().await?, namespace, [secret, configuration], names);
            look_until_there(&store, &certificate).await;
            tokio::spawn(follow_store(store, certificate.clone()));
        }
    }
    let (known, profiles) = watch::channel(Known::default());
    if options.has_profiles {
        let client = client().await?;
        tokio::spawn(async move { follow_profiles(client, &known).await });
    }
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?;
    tracing::info!(address = %options.listen, "serving reviews of pods");
    let listener = TlsListener::new(listener, certificate)?;
    axum::serve(listener, routes(profiles)).await.context("serving reviews")
}

async fn client() -> anyhow::Result<Client> {
    Client::try_default().await.context(
        "cannot find the API server; expected a pod with a service account, or a file that KUBECONFIG names",
    )
}

fn routes(known: watch::Receiver<Known>) -> Router {
    let review = async move |body: Bytes| review::answer(&body, &known.borrow());
    Router::new()
        .route("/pods", post(review))
        .route("/healthz", get(async || "ok\n"))
        .layer(DefaultBodyLimit::max(REVIEW_MAX))
}

/// The API server may come up later than this.
async fn look_until_there(store: &Store, certificate: &Certificate) {
    while !look(store, certificate).await {
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

async fn follow_store(store: Store, certificate: Certificate) {
    let changed = Notify::new();
    tokio::join!(store.watch(&changed), look_at_changes(&store, &certificate, &changed));
}

async fn look_at_changes(store: &Store, certificate: &Certificate, changed: &Notify) {
    loop {
        let _by_time = timeout(LOOK_EVERY, changed.notified()).await;
        look(store, certificate).await;
    }
}

/// Whether there is a certificate.
async fn look(store: &Store, certificate: &Certificate) -> bool {
    let kept = store.keep(Timestamp::now()).await;
    match kept.and_then(|kept| certificate.set(&kept.leaf, &kept.leaf_key)) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!("the certificate could not be looked at: {error:#}");
            false
        }
    }
}

fn read_files(dir: &Path, certificate: &Certificate) -> anyhow::Result<()> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    certificate.set(&read("tls.crt")?, &read("tls.key")?)
}

/// Files are small and local, so they are read whether they have changed or not.
async fn follow_files(dir: PathBuf, certificate: Certificate) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(error) = read_files(&dir, &certificate) {
            tracing::warn!("the certificate stays as it was: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests;
