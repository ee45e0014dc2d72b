//! Arguments of the programs beside the daemon that talk to the API server: `bayplan agent` and `bayplan webhook`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use jiff::SignedDuration;

use super::shared::ControlOptions;

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentOptions {
    /// The name of this node's Node object
    #[arg(
        long,
        value_name = "NAME",
        env = "NODE_NAME",
        required_unless_present = "all_nodes",
        conflicts_with = "all_nodes"
    )]
    pub(crate) node: Option<String>,
    /// Make the first call within this time, later on one node than on the next, and come back within it (30s at least) after the API server was away; 0s: begin at once
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_start_within)]
    pub(crate) start_within: Duration,
    /// Publish this beside the BayplanNode: node-topology, koordinator (with node-topology), taints, cmk, power-classes, groups, condition, node-feature; may be given several times
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub(crate) publish: Vec<bayplan_cluster::Part>,
    /// Let objects of this system in NAMESPACE (kube-system) configure the node where no BayplanConfig does: nri-plugins, cri-resmgr; may be given several times
    #[arg(
        long,
        value_name = "SYSTEM[=NAMESPACE]",
        value_delimiter = ',',
        conflicts_with = "withdraw"
    )]
    pub(crate) accept: Vec<bayplan_cluster::Accepted>,
    /// Label the Node with its features, by the names of Node Feature Discovery, where that does not run
    #[arg(long)]
    pub(crate) feature_labels: bool,
    /// Label the Node by the rules of this file: NodeFeatureRules of Node Feature Discovery
    #[arg(long, value_name = "FILE")]
    pub(crate) profiles: Option<PathBuf>,
    /// Write Bayplan's features for the worker of Node Feature Discovery into this directory: its features.d
    #[arg(long, value_name = "DIR")]
    pub(crate) features_dir: Option<PathBuf>,
    /// Tell the daemon of the node's pods, for a kubelet without PodsAPI (before 1.37); needs the right to read pods
    #[arg(long)]
    pub(crate) pods: bool,
    /// Serve the daemon's metrics over TLS, to bearer tokens that the API server lets `get` the path /metrics; needs the right to ask it about tokens
    #[arg(long, value_name = "IP:PORT", conflicts_with = "withdraw")]
    pub(crate) metrics: Option<SocketAddr>,
    /// A directory with tls.crt and tls.key for that, which another program renews; otherwise the agent makes a certificate that is signed by itself
    #[arg(long, value_name = "DIR", requires = "metrics")]
    pub(crate) metrics_certificate: Option<PathBuf>,
    /// Serve the daemon's live map beside them, to tokens that the API server lets `get` the path /map; a browser is asked for one
    #[arg(long, requires = "metrics")]
    pub(crate) map: bool,
    /// Take back what was published of this node, and end; needs no daemon, but the rights of an administrator. With --features-dir also its file there
    #[arg(long, conflicts_with = "publish")]
    pub(crate) withdraw: bool,
    /// The same of every node, also of nodes that are gone; agents must have ended, or have lost their rights
    #[arg(long, requires = "withdraw", conflicts_with = "features_dir")]
    pub(crate) all_nodes: bool,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WebhookOptions {
    /// Where it listens
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:9443")]
    pub(crate) listen: SocketAddr,
    /// A host name or address by which the API server calls it; may be given several times
    #[arg(
        long = "name",
        value_name = "NAME",
        default_value = "bayplan-webhook.bayplan-system.svc"
    )]
    pub(crate) names: Vec<String>,
    /// The namespace of the Secret
    #[arg(long, value_name = "NAMESPACE", default_value = "bayplan-system")]
    pub(crate) namespace: String,
    /// The Secret with its certificates, made if it is missing
    #[arg(long, value_name = "NAME", default_value = "bayplan-webhook")]
    pub(crate) secret: String,
    /// The MutatingWebhookConfiguration that is to trust them
    #[arg(long, value_name = "NAME", default_value = "bayplan-requests")]
    pub(crate) configuration: String,
    /// A directory with tls.crt and tls.key that another program renews, as cert-manager does; then no Secret and no configuration is written
    #[arg(long, value_name = "DIR")]
    pub(crate) certificate: Option<PathBuf>,
    /// Write into new pods what Koordinator's ClusterColocationProfiles say: labels, annotations, priority, scheduler
    #[arg(long)]
    pub(crate) colocation_profiles: bool,
}

fn parse_start_within(text: &str) -> Result<Duration, String> {
    let span: SignedDuration =
        text.parse().map_err(|error| format!("{error}; expected a time such as 30s or 2m"))?;
    Duration::try_from(span).map_err(|_| "expected a time that is not negative".to_owned())
}
