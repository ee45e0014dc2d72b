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
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

use self::colocation::Known;
use self::follow::follow_profiles;
pub(crate) use self::server::Certificate;
pub use self::server::TlsListener;
use self::store::{Kept, Store};
use crate::said::Said;

/// The API server bounds objects at 3 MiB in JSON.
const REVIEW_MAX: usize = 4 << 20;
/// A usual pod is smaller. Bodies up to this size are bounded by the server's connections, of which each has one; larger ones are read one at a time.
const SMALL_MAX: usize = 32 << 10;
/// How often the certificate is looked at: where it is stored, and whether the configuration still trusts it.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// After a look that failed.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// The API server waits no longer for an answer.
const REVIEW_TIME_MAX: Duration = Duration::from_secs(2);
/// Profiles that are not listed after this time are not waited for: their kind may not be installed.
const PROFILES_WAIT: Duration = Duration::from_secs(30);

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

/// Runs until the process ends. `serve` answers HTTP on a listener by these routes, within limits for connections.
///
/// # Errors
/// It cannot listen, or there is no certificate in the named directory.
pub async fn run_webhook<F: Future<Output = ()>>(
    options: WebhookOptions,
    serve: impl FnOnce(TlsListener, Router) -> F,
) -> anyhow::Result<()> {
    let certificate = Certificate::default();
    match options.certificate.clone() {
        Some(dir) => {
            read_files(&dir, &certificate)?;
            tokio::spawn(follow_files(dir, certificate.clone()));
        }
        None => {
            let WebhookOptions { namespace, secret, configuration, names, .. } = &options;
            let store = Store::new(client().await?, namespace, [secret, configuration], names);
            let mut looker = Looker::new(store, certificate.clone());
            looker.look_until_there().await;
            tokio::spawn(looker.follow());
        }
    }
    let (known, mut profiles) = watch::channel(Known::default());
    if options.has_profiles {
        let client = client().await?;
        tokio::spawn(async move { follow_profiles(client, &known).await });
        await_profiles(&mut profiles, PROFILES_WAIT).await;
    }
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?;
    tracing::info!(address = %options.listen, "serving reviews of pods");
    let listener = TlsListener::new(listener, certificate)?;
    serve(listener, routes(profiles)).await;
    Ok(())
}

/// A pod that is reviewed earlier would be created without what they say.
async fn await_profiles(known: &mut watch::Receiver<Known>, wait: Duration) {
    if timeout(wait, known.wait_for(Known::is_whole)).await.is_err() {
        tracing::warn!(
            "ClusterColocationProfiles, namespaces or PriorityClasses are not listed after {wait:?}; pods are reviewed without them until they are"
        );
    }
}

/// By `KUBECONFIG`, or as a pod.
pub(crate) async fn client() -> anyhow::Result<Client> {
    Client::try_default().await.context(
        "cannot find the API server; expected a pod with a service account, or a file that KUBECONFIG names",
    )
}

fn routes(known: watch::Receiver<Known>) -> Router {
    let review = async move |body: Bytes| review::answer(&body, &known.borrow());
    Router::new()
        .route("/pods", post(review).layer(from_fn_with_state(Room::default(), bound)))
        .route("/healthz", get(async || "ok\n"))
        .layer(DefaultBodyLimit::max(REVIEW_MAX))
}

/// What bodies that have come and are not answered may take: a small one always finds its place, a large one waits for those before it. Clones share it.
#[derive(Clone, Debug)]
struct Room {
    large: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Room {
        Room { large: Arc::new(Semaphore::new(1)) }
    }
}

impl Room {
    /// The body, and the place of a large one. What has not come takes none, however long it says that it will be.
    async fn read(&self, body: Body) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), StatusCode> {
        let (mut read, mut place) = (Vec::new(), None);
        let mut parts = body.into_data_stream();
        while let Some(part) = parts.try_next().await.map_err(|_| StatusCode::BAD_REQUEST)? {
            let size = read.len() + part.len();
            if size > REVIEW_MAX {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            if size > SMALL_MAX && place.is_none() {
                let free = self.large.acquire().await;
                place = Some(free.map_err(|_closed| StatusCode::SERVICE_UNAVAILABLE)?);
            }
            read.extend_from_slice(&part);
        }
        Ok((read, place))
    }
}

/// Answers when there is room for the body, and in time.
async fn bound(State(room): State<Room>, request: Request, next: Next) -> Response {
    let answered = timeout(REVIEW_TIME_MAX, async {
        let (head, body) = request.into_parts();
        match room.read(body).await {
            Ok((body, _place)) => next.run(Request::from_parts(head, Body::from(body))).await,
            Err(status) => status.into_response(),
        }
    });
    answered.await.unwrap_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())
}

/// Looks at what is stored, and makes it the server's certificate.
struct Looker {
    store: Store,
    certificate: Certificate,
    /// The CA that the API server was last made to trust.
    trusted: Option<String>,
    said: Said,
}

impl Looker {
    fn new(store: Store, certificate: Certificate) -> Looker {
        Looker { store, certificate, trusted: None, said: Said::default() }
    }

    /// The API server may come up later than this.
    async fn look_until_there(&mut self) {
        while !self.look().await && !self.certificate.is_there() {
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }

    async fn follow(mut self) {
        let changed = Notify::new();
        let Looker { store, .. } = &self;
        let (store, mut pause) = (store.clone(), TRY_AGAIN);
        let look = async {
            loop {
                let _by_time = timeout(pause, changed.notified()).await;
                pause = if self.look().await { LOOK_EVERY } else { TRY_AGAIN };
            }
        };
        tokio::join!(store.watch(&changed), look);
    }

    /// Whether all is as it should be.
    async fn look(&mut self) -> bool {
        let done = match self.store.keep(Timestamp::now()).await {
            Ok(kept) => self.take(kept),
            Err(error) => Err(error),
        };
        match &done {
            Ok(()) => self.said.is_over("look"),
            Err(error) => {
                let text = format!("the certificate could not be looked at: {error:#}");
                if self.said.is_news("look", &text) {
                    tracing::warn!("{text}");
                }
            }
        }
        done.is_ok()
    }

    /// A leaf of a CA that is trusted is used also where the configuration could not be read or written.
    fn take(&mut self, kept: Kept) -> anyhow::Result<()> {
        let Kept { stored, trust } = kept;
        let is_known_ca = self.trusted.as_ref().is_none_or(|it| *it == stored.ca);
        if trust.is_ok() || is_known_ca {
            self.certificate.set(&stored.leaf, &stored.leaf_key)?;
        }
        trust?;
        self.trusted = Some(stored.ca);
        Ok(())
    }
}

/// `tls.crt` and `tls.key` of a directory.
pub(crate) fn read_files(dir: &Path, certificate: &Certificate) -> anyhow::Result<()> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    certificate.set(&read("tls.crt")?, &read("tls.key")?)
}

/// Files are small and local, so they are read whether they have changed or not.
pub(crate) async fn follow_files(dir: PathBuf, certificate: Certificate) {
    let mut said = Said::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match read_files(&dir, &certificate) {
            Ok(()) => said.is_over("files"),
            Err(error) => {
                let text = format!("the certificate stays as it was: {error:#}");
                if said.is_news("files", &text) {
                    tracing::warn!("{text}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
