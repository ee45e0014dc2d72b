//! One node of the storm with Bayplan: a runtime without processes, a daemon, and an agent.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kube::Client;
use serde_json::json;

use super::pods::POD_PATH;
use super::side::{BayplanSide, Side};
use crate::node::{DAEMON, Node, kubelet};
use crate::servers::Servers;
use crate::world::{call, kubeconfig, token_on, until};

/// Labels of its own for what these flags stand for together.
const PROFILES: &str = "kind: NodeFeatureRule\nspec: {rules: [{name: r, labels: {profile.node.kubernetes.io/vector: 'true'}, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AESNI: {op: Exists}, AVX512BW: {op: Exists}, VMX: {op: Exists}}}, {feature: cpu.pstate, matchExpressions: {turbo: {op: IsTrue}}}, {feature: kernel.config, matchExpressions: {NO_HZ: {op: Exists}}}]}]}\n";

/// What a node is.
pub(crate) struct Setup {
    pub(crate) machine: &'static str,
    /// What pods can have of its CPUs.
    pub(crate) cpus: &'static str,
    /// The daemon's configuration.
    pub(crate) config: &'static str,
    /// Of the agent.
    pub(crate) publish: &'static str,
    pub(crate) has_features: bool,
    /// ConfigMaps of CRI Resource Manager configure it.
    pub(crate) accepts_cri_resmgr: bool,
    /// Writes files of its kernel below this root.
    pub(crate) files: fn(&Path),
}

pub(crate) struct StormNode {
    name: String,
    setup: &'static Setup,
    pub(crate) node: Node,
    /// Its process.
    pub(crate) agent: Child,
}

impl Drop for StormNode {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.agent.kill();
        let _status = self.agent.wait();
    }
}

impl StormNode {
    pub(crate) async fn start(
        servers: &Servers,
        admin: &Client,
        name: &str,
        setup: &'static Setup,
    ) -> StormNode {
        let path = format!("/api/v1/nodes/{name}");
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
        let (status, told) = call(admin, "PATCH", &path, &object).await;
        assert_eq!(status, 200, "{told}");
        let amounts = json!({ "cpu": setup.cpus, "memory": "128Gi", "pods": "200" });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let state = json!({ "status": { "capacity": amounts, "allocatable": amounts, "conditions": ready } });
        let merged = format!("{path}/status?fieldManager=kubelet");
        assert_eq!(call(admin, "PATCH", &merged, &state).await.0, 200);
        // New Nodes are tainted until a controller has seen them.
        let untainted = json!({ "spec": { "taints": null } });
        let merged = format!("{path}?fieldManager=controller");
        assert_eq!(call(admin, "PATCH", &merged, &untainted).await.0, 200);
        make_daemon_pod(admin, name).await;
        let mut node = Node::without_daemon(setup.machine);
        (setup.files)(&node.host_root());
        node.spawn_daemon(setup.config).await;
        let token = token_on(admin, name).await;
        let file = servers.path(&format!("agent.{name}.kubeconfig"));
        fs::write(&file, kubeconfig(&servers.address(), &token)).unwrap();
        let agent = spawn_agent(servers, name, setup, &node);
        StormNode { name: name.to_owned(), setup, node, agent }
    }

    /// Another agent, with the token of the one that has ended.
    pub(crate) fn restart_agent(&mut self, servers: &Servers) {
        self.agent = spawn_agent(servers, &self.name, self.setup, &self.node);
    }

    /// Waits for its NodeResourceTopology.
    pub(super) async fn is_published(&self, admin: &Client) {
        let name = &self.name;
        let path = format!("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{name}");
        until("a NodeResourceTopology", async || {
            call(admin, "GET", &path, &json!(null)).await.1["zones"].is_array()
        })
        .await;
    }

    /// Starts and ends its pods.
    pub(super) fn side(&self) -> Side {
        let kubelet = kubelet(self.node.path("bayplan.sock"));
        let (runtime, topology) = (self.node.runtime.clone(), self.node.topology().clone());
        let side = BayplanSide { kubelet, runtime, topology, sandbox: None, attempts: 0 };
        Side::Bayplan(Box::new(side))
    }
}

fn spawn_agent(servers: &Servers, name: &str, setup: &Setup, node: &Node) -> Child {
    let mut command = Command::new(DAEMON);
    command.args(["agent", "--node", name, "--publish", setup.publish]);
    command.args(["--start-within", "0s", "--control"]).arg(node.control_socket());
    if setup.accepts_cri_resmgr {
        command.args(["--accept", "cri-resmgr"]);
    }
    if setup.has_features {
        let profiles = servers.path("profiles.yaml");
        fs::write(&profiles, PROFILES).unwrap();
        command.arg("--feature-labels").arg("--profiles").arg(profiles);
        let features = servers.path(&format!("features.{name}"));
        fs::create_dir_all(&features).unwrap();
        command.arg("--features-dir").arg(features);
    }
    let file = servers.path(&format!("agent.{name}.kubeconfig"));
    command.env("KUBECONFIG", file).stdin(Stdio::null()).stdout(Stdio::null());
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(servers.path(&format!("agent.{name}.log")))
        .unwrap();
    command.stderr(log).spawn().unwrap()
}

/// As every node has one; the plugin looks at no node without pods.
async fn make_daemon_pod(admin: &Client, node: &str) {
    let name = format!("daemon-{node}");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    });
    assert_eq!(call(admin, "POST", POD_PATH, &pod).await.0, 200);
    let running = json!({ "status": { "phase": "Running" } });
    let path = format!("{POD_PATH}/{name}/status?fieldManager=kubelet");
    assert_eq!(call(admin, "PATCH", &path, &running).await.0, 200);
}
