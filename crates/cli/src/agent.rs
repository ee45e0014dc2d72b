//! `bayplan agent`, and the custom resources that it reads and writes.

use std::path::{Path, PathBuf};

use anyhow::bail;
use bayplan_cluster::{
    AgentOptions, Answer, Daemon, DaemonStream, FeatureOptions, Method, MetricsOptions,
    serve_metrics,
};
use bayplan_config::shared_schema;
use bayplan_daemon::{REMOVED, ask_control, open_control, serve_scrapes};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::args;
use crate::control::control_socket;
use crate::node_config::NodeConfig;
use crate::visible::LogLines;

/// Levels of log lines unless `BAYPLAN_LOG` says others.
const LOG: &str = "info,kube=warn";

/// The daemon behind a control socket.
struct Socket(PathBuf);

impl Daemon for Socket {
    async fn ask(&self, method: Method, path: &str, body: String) -> Result<Answer, String> {
        let method = match method {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        };
        match ask_control(&self.0, method, path, body).await {
            Ok((status, body)) => Ok(Answer { status, body }),
            Err(error) => Err(format!("{:#}", anyhow::Error::new(error))),
        }
    }
}

impl DaemonStream for Socket {
    async fn open(&self, path: &str) -> Result<bayplan_cluster::DaemonAnswer, String> {
        let opened = open_control(&self.0, path).await;
        opened.map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }
}

/// Log lines of what runs in the cluster, at the levels of `BAYPLAN_LOG`.
pub(crate) fn log_to_stderr() -> anyhow::Result<()> {
    let filter = std::env::var("BAYPLAN_LOG").unwrap_or_else(|_| LOG.to_owned());
    let filter = EnvFilter::try_new(filter)?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| LogLines).init();
    Ok(())
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(config: &NodeConfig, options: &args::AgentOptions) -> anyhow::Result<()> {
    log_to_stderr()?;
    // It waits nearly always.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    if options.withdraw {
        let directory = options.features_dir.as_deref();
        return runtime.block_on(withdraw(options.node.as_deref(), directory));
    }
    let Some(node) = options.node.clone() else { bail!("no --node NAME, and no NODE_NAME") };
    let socket = control_socket(config, &options.control)?;
    let metrics = options.metrics.map(|listen| MetricsOptions {
        listen,
        node: node.clone(),
        certificate: options.metrics_certificate.clone(),
        has_map: options.map,
    });
    let features = options.features_dir.clone();
    let options = AgentOptions {
        node: node.clone(),
        start_within: options.start_within,
        parts: options.publish.iter().copied().collect(),
        features: FeatureOptions {
            has_labels: options.feature_labels,
            profiles: options.profiles.clone(),
            directory: options.features_dir.clone(),
        },
        removed: Some(socket.with_file_name(REMOVED)),
        feeds_pods: options.pods,
        accepted: options.accept.clone(),
        convert: crate::foreign::convert,
    };
    runtime.block_on(async {
        let [mut terminate, mut interrupt] =
            [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        let agent = bayplan_cluster::run(options, Socket(socket.clone()));
        let serve = async {
            if let Some(metrics) = metrics {
                serve_metrics(metrics, Socket(socket), serve_scrapes).await;
            }
            Ok(())
        };
        tokio::select! {
            ended = async { tokio::try_join!(agent, serve).map(drop) } => return ended,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if let Some(directory) = features
            && bayplan_cluster::leave(&node, &directory).await?
        {
            tracing::info!("the agent is being removed, and with it the node's features.d/bayplan");
        }
        Ok(())
    })
}

/// Of one node, or of all.
async fn withdraw(node: Option<&str>, directory: Option<&Path>) -> anyhow::Result<()> {
    if let Some(directory) = directory {
        bayplan_cluster::remove_features(directory)?;
    }
    match node {
        Some(node) => bayplan_cluster::withdraw(node).await,
        None => bayplan_cluster::withdraw_all().await,
    }
}

/// Definitions of the custom resources in YAML.
pub(crate) fn crds() -> anyhow::Result<String> {
    let mut text = String::new();
    for crd in bayplan_cluster::crds(&shared_schema()) {
        text.push_str(&format!("---\n{}", bayplan_cluster::render_yaml(&crd)?));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    #[test]
    fn the_definitions_in_deploy_are_these() {
        expect_file!["../../../deploy/crds/bayplan.yaml"].assert_eq(&super::crds().unwrap());
    }
}
