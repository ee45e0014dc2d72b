//! Where the webhook's own certificates are kept: a Secret, and the CA of it in the webhook's configuration. In: the time. Out: certificates that hold.
//!
//! Replicas may look at the same time: the Secret is written only as it was read, and the one that comes second reads again.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use serde_json::json;
use tokio::sync::Notify;

use super::certificate::{Stored, renew};
use crate::watching::follow;

/// A look gives up after so many others were quicker.
const TRIES_MAX: usize = 5;
/// Watches end before the API server ends them.
const WATCH_SECONDS: u32 = 290;

/// What is stored, and whether the configuration trusts it.
pub(super) struct Kept {
    pub(super) stored: Stored,
    pub(super) trust: anyhow::Result<()>,
}

/// The Secret and the configuration.
#[derive(Clone)]
pub(super) struct Store {
    secrets: Api<Secret>,
    configurations: Api<MutatingWebhookConfiguration>,
    secret: String,
    configuration: String,
    names: Vec<String>,
}

impl Store {
    /// `names`: of the certificate.
    pub(super) fn new(
        client: Client,
        namespace: &str,
        [secret, configuration]: [&str; 2],
        names: &[String],
    ) -> Store {
        Store {
            secrets: Api::namespaced(client.clone(), namespace),
            configurations: Api::all(client),
            secret: secret.to_owned(),
            configuration: configuration.to_owned(),
            names: names.to_vec(),
        }
    }

    /// Tells of every change of Secret and configuration, so that what one replica renews the others have at once.
    pub(super) async fn watch(&self, changed: &Notify) {
        let config = |name: &str| {
            let name = format!("metadata.name={name}");
            watcher::Config::default().fields(&name).timeout(WATCH_SECONDS)
        };
        let secrets = watcher(self.secrets.clone(), config(&self.secret)).default_backoff();
        let configurations = watcher(self.configurations.clone(), config(&self.configuration));
        tokio::join!(
            follow("the Secret", secrets, |_| changed.notify_one()),
            follow("the webhook's configuration", configurations.default_backoff(), |_| changed
                .notify_one()),
        );
    }

    /// Renews what is stored if it is time, and makes the configuration trust it.
    ///
    /// # Errors
    /// The API server does not answer about the Secret, or refuses it.
    pub(super) async fn keep(&self, now: Timestamp) -> anyhow::Result<Kept> {
        let stored = self.renewed(now).await?;
        let trust = self.assert_trust(&stored.ca).await;
        Ok(Kept { stored, trust })
    }

    async fn renewed(&self, now: Timestamp) -> anyhow::Result<Stored> {
        for _ in 0..TRIES_MAX {
            let found = self.secrets.get_opt(&self.secret).await.context("reading the Secret")?;
            // What is not whole is made anew.
            let stored = found.as_ref().and_then(parse);
            let Some(renewed) = renew(stored.as_ref(), &self.names, now)? else {
                return stored.context("a certificate that holds is stored");
            };
            let version = found.as_ref().and_then(|it| it.metadata.resource_version.clone());
            let secret = form(&self.secret, version, &renewed);
            let params = PostParams::default();
            let written = match found {
                Some(_) => self.secrets.replace(&self.secret, &params, &secret).await,
                None => self.secrets.create(&params, &secret).await,
            };
            match written {
                Ok(_) => {
                    tracing::info!(secret = self.secret, "the certificate is renewed");
                    return Ok(renewed);
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error).context("writing the Secret"),
            }
        }
        bail!("the Secret {} was written by others {TRIES_MAX} times", self.secret)
    }

    /// Also after others have taken the CA out of it, as an upgrade of the chart does.
    async fn assert_trust(&self, ca: &str) -> anyhow::Result<()> {
        let name = &self.configuration;
        let found = self.configurations.get(name).await;
        let found =
            found.with_context(|| format!("reading MutatingWebhookConfiguration {name}"))?;
        let wanted = ByteString(ca.as_bytes().to_vec());
        let webhooks = found.webhooks.iter().flatten().enumerate();
        let off = webhooks.filter(|(_, it)| it.client_config.ca_bundle.as_ref() != Some(&wanted));
        let bundle = BASE64_STANDARD.encode(ca);
        let writes = off.map(|(at, _)| {
            let path = format!("/webhooks/{at}/clientConfig/caBundle");
            json!({ "op": "add", "path": path, "value": bundle })
        });
        let writes: Vec<_> = writes.collect();
        if writes.is_empty() {
            return Ok(());
        }
        let patch = serde_json::from_value(json!(writes))?;
        let params = PatchParams::default();
        let written = self.configurations.patch(name, &params, &Patch::Json::<()>(patch)).await;
        written.with_context(|| format!("writing MutatingWebhookConfiguration {name}"))?;
        tracing::info!(configuration = name, "the API server trusts the certificate from now on");
        Ok(())
    }
}

fn parse(secret: &Secret) -> Option<Stored> {
    let data = secret.data.as_ref()?;
    let text = |name: &str| String::from_utf8(data.get(name)?.0.clone()).ok();
    Some(Stored {
        ca: text("ca.crt")?,
        ca_key: text("ca.key")?,
        ca_renewed_at: text("ca-renewed-at")?.parse().ok()?,
        leaf: text("tls.crt")?,
        leaf_key: text("tls.key")?,
        leaf_renewed_at: text("renewed-at")?.parse().ok()?,
        names: text("names")?.lines().map(str::to_owned).collect(),
    })
}

fn form(name: &str, resource_version: Option<String>, stored: &Stored) -> Secret {
    let rows = [
        ("ca.crt", stored.ca.clone()),
        ("ca.key", stored.ca_key.clone()),
        ("ca-renewed-at", stored.ca_renewed_at.to_string()),
        ("tls.crt", stored.leaf.clone()),
        ("tls.key", stored.leaf_key.clone()),
        ("renewed-at", stored.leaf_renewed_at.to_string()),
        ("names", stored.names.join("\n")),
    ];
    let data: BTreeMap<String, ByteString> = rows
        .into_iter()
        .map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())))
        .collect();
    let name = Some(name.to_owned());
    Secret {
        metadata: ObjectMeta { name, resource_version, ..ObjectMeta::default() },
        data: Some(data),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_back() {
        let names = ["a.b.svc".to_owned(), "127.0.0.1".to_owned()];
        let stored = renew(None, &names, Timestamp::UNIX_EPOCH).unwrap().unwrap();
        let mut secret = form("s", None, &stored);
        assert!(parse(&secret) == Some(stored));
        secret.data.as_mut().unwrap().remove("ca.key");
        assert!(parse(&secret).is_none());
    }
}
