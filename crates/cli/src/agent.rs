//! `bayplan agent`, and the custom resources that it reads and writes.

use std::path::PathBuf;

use bayplan_cluster::{
    AgentOptions, Answer, Daemon, DaemonStream, FeatureOptions, Method, MetricsOptions,
    serve_metrics,
};
use bayplan_config::shared_schema;
use bayplan_daemon::{ask_control, open_control, serve_scrapes};
use tokio::runtime::Builder;
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

/// Runs until the process ends.
pub(crate) fn run(config: &NodeConfig, options: &args::AgentOptions) -> anyhow::Result<()> {
    log_to_stderr()?;
    if options.withdraw {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(bayplan_cluster::withdraw(&options.node));
    }
    let socket = control_socket(config, &options.control)?;
    let metrics = options.metrics.map(|listen| MetricsOptions {
        listen,
        node: options.node.clone(),
        certificate: options.metrics_certificate.clone(),
        has_map: options.map,
    });
    let options = AgentOptions {
        node: options.node.clone(),
        start_within: options.start_within,
        parts: options.publish.iter().copied().collect(),
        features: FeatureOptions {
            has_labels: options.feature_labels,
            profiles: options.profiles.clone(),
            directory: options.features_dir.clone(),
        },
        feeds_pods: options.pods,
        accepted: options.accept.clone(),
        convert: crate::foreign::convert,
    };
    // It waits nearly always.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let agent = bayplan_cluster::run(options, Socket(socket.clone()));
        let serve = async {
            if let Some(metrics) = metrics {
                serve_metrics(metrics, Socket(socket), serve_scrapes).await;
            }
            Ok(())
        };
        tokio::try_join!(agent, serve).map(drop)
    })
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
