//! The Kubernetes API. The agent carries the node's configuration from the API server to the daemon, and the node's state and events back.
//!
//! Pure, values in and values out: which object configures the node ([`choose`]), whether what it would change goes too far ([`decide`]), what is
//! shown of the node ([`NodeReport`]), what is told of pods ([`EventSink`]), and the custom resources ([`crds`]). The edge is [`run`]: it watches,
//! asks the daemon through [`Daemon`], and writes objects of its own node only. It decides nothing about containers.
//! Beside it, [`run_webhook`] answers the API server about new pods: it copies their requests into an annotation.

mod agent;
mod amplification;
mod api;
mod brakes;
mod chosen;
mod conditions;
mod crd;
mod daemon;
mod event;
mod exclusive_pods;
mod feature_file;
mod feature_publisher;
mod feature_rules;
mod feature_set;
mod foreign;
mod foreign_watch;
mod koordinator;
mod metrics;
mod mistake;
mod node_condition;
mod node_feature;
mod node_pods;
mod node_publisher;
mod node_topology;
mod node_wishes;
mod node_writes;
mod object;
mod part;
mod pod_feed;
mod precedence;
mod quantity;
mod removal;
mod report;
mod said;
#[cfg(test)]
mod telemetry;
mod topology_publisher;
mod wanted;
mod watch_pause;
mod watching;
mod webhook;
mod withdrawal;

pub use agent::{AgentOptions, run, run_by};
pub use brakes::{Decision, Refusal, decide};
pub use conditions::{Applied, Condition};
pub use crd::crds;
pub use daemon::{Answer, Daemon, Diff, Method};
pub use event::{EventSink, PodEvent};
pub use feature_file::remove_features;
pub use feature_publisher::FeatureOptions;
pub use foreign::{Accepted, Convert, Converted, Question, System};
pub use metrics::{DaemonAnswer, DaemonStream, MetricsOptions, serve_metrics};
pub use mistake::locate;
pub use object::{ConfigObject, NodeCondition, NodeObject, OwnedKeys};
pub use part::Part;
pub use precedence::{Choice, GROUP_LABEL, choose};
pub use report::NodeReport;
pub use webhook::{TlsListener, WebhookOptions, run_webhook};
pub use withdrawal::{leave, withdraw, withdraw_all};

/// The group of the custom resources.
pub const GROUP: &str = "bayplan.dev";
/// Their version.
pub const VERSION: &str = "v1alpha1";

/// An object as a document of YAML.
///
/// # Errors
/// A value that YAML has no form for, which JSON does not have.
pub fn render_yaml(object: &serde_json::Value) -> anyhow::Result<String> {
    Ok(serde_yaml::to_string(object)?)
}
