//! A cluster of one node: servers, the manifests of `deploy/cluster`, a daemon that serves a runtime without processes, and its agent as a process.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize as _;
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::node::{DAEMON, MACHINE, Node};
use crate::servers::{ADMIN, Servers};

const MANIFESTS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/bayplan.yaml"));
/// Rights for what is published and accepted by choice.
const BY_CHOICE: [&str; 4] = [
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/publishing.yaml")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/accept-nri-plugins.yaml")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/accept-cri-resmgr.yaml")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/pods.yaml")),
];
/// Kinds of it that Kubernetes does not bring.
const KINDS: [&str; 3] = [
    include_str!("node-topology-definition.yaml"),
    include_str!("node-feature-definition.yaml"),
    include_str!("nri-definitions.yaml"),
];
const PUBLISHED: &str =
    "node-topology,koordinator,taints,cmk,power-classes,groups,condition,node-feature";
/// A label of what the machine of the test has.
const PROFILES: &str = "kind: NodeFeatureRule\nspec: {rules: [{name: r, labels: {profile.node.kubernetes.io/wide: 'true'}, matchFeatures: [{feature: local.feature, matchExpressions: {bayplan.dev/numa-nodes: {op: Gt, value: ['1']}}}]}]}\n";
/// Names another program for the agent than that of the tests.
pub(crate) const AGENT_PROGRAM: &str = "BAYPLAN_AGENT_PROGRAM";
/// The agent's service account.
const AGENT: &str = "bayplan-agent";
pub(crate) const CONFIGS: &str = "/apis/bayplan.dev/v1alpha1/bayplanconfigs";
pub(crate) const NODES: &str = "/apis/bayplan.dev/v1alpha1/bayplannodes";
/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

pub(crate) struct World {
    pub(crate) servers: Servers,
    pub(crate) node: Node,
    admin: Client,
    /// Tokens of the agent: bound to the node n1, and to nothing.
    tokens: [String; 2],
    agent: Option<Child>,
    /// Where the agent serves metrics.
    pub(crate) metrics: SocketAddr,
}

/// What a client of this token reads.
pub(crate) fn kubeconfig(address: &str, token: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": address, "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "u", "user": { "token": token } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u", "namespace": "bayplan-system" } }],
    })
    .to_string()
}

pub(crate) async fn client(address: &str, token: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig(address, token)).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Status and object, or status and message. What is patched is applied by the server.
pub(crate) async fn call(client: &Client, method: &str, path: &str, body: &Json) -> (u16, Json) {
    let (path, form) = match method {
        "PATCH" if path.contains('?') => (path.to_owned(), "application/merge-patch+json"),
        "PATCH" => (format!("{path}?fieldManager=test&force=true"), "application/apply-patch+yaml"),
        _ => (path.to_owned(), "application/json"),
    };
    let body = if method == "GET" { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", form).body(body).unwrap();
    match client.request::<Json>(request).await {
        Ok(object) => (200, object),
        Err(kube::Error::Api(status)) => (status.code, json!(status.message)),
        Err(error) => (0, json!(error.to_string())),
    }
}

/// Where an object is, for the kinds of the manifests.
pub(crate) fn path_of(object: &Json) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let group =
        if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let plural = match kind {
        "PriorityClass" => "priorityclasses".to_owned(),
        "MutatingAdmissionPolicy" => "mutatingadmissionpolicies".to_owned(),
        "BalloonsPolicy" => "balloonspolicies".to_owned(),
        "TopologyAwarePolicy" => "topologyawarepolicies".to_owned(),
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
        _ => format!("{}s", kind.to_lowercase()),
    };
    match text("/metadata/namespace") {
        "" => format!("{group}/{plural}/{name}"),
        namespace => format!("{group}/namespaces/{namespace}/{plural}/{name}"),
    }
}

/// Everything of `deploy/cluster` that an agent needs, and what it publishes by choice.
pub(crate) async fn apply_manifests(admin: &Client) {
    until("the API server answers", async || {
        call(admin, "GET", "/api/v1/namespaces/default", &Json::Null).await.0 == 200
    })
    .await;
    let texts = [MANIFESTS].into_iter().chain(BY_CHOICE).chain(KINDS);
    apply(admin, texts).await;
}

/// Kinds that other systems bring.
pub(crate) async fn apply_kinds(admin: &Client) {
    apply(admin, KINDS.into_iter()).await;
}

async fn apply(admin: &Client, texts: impl Iterator<Item = &str>) {
    let documents: Vec<Json> =
        texts.flat_map(|it| serde_yaml::from_multiple::<Json>(it).unwrap()).collect();
    for object in documents.iter().filter(|it| it.is_object()) {
        let path = path_of(object);
        // Objects of a new kind, or in a new namespace, are taken a moment later.
        let mut last = (0, Json::Null);
        let begun = Instant::now();
        while last.0 != 200 {
            assert!(begun.elapsed() < STUCK, "{path}: {last:?}");
            last = call(admin, "PATCH", &path, object).await;
        }
    }
}

impl World {
    pub(crate) async fn start(servers: Servers) -> World {
        let admin = client(&servers.address(), ADMIN).await;
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
        until("the API server takes a Node", async || {
            call(&admin, "PATCH", "/api/v1/nodes/n1", &node).await.0 == 200
        })
        .await;
        apply_manifests(&admin).await;
        let tokens = [token_on(&admin, "n1").await, token(&admin, AGENT, None).await];
        let mut node = Node::without_daemon(MACHINE);
        node.spawn_daemon("").await;
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut world = World { servers, node, admin, tokens, agent: None, metrics };
        world.policy_holds().await;
        world.restart_agent().await;
        world
    }

    /// A new policy holds some moments after it was made.
    async fn policy_holds(&self) {
        let node = json!({ "apiVersion": "bayplan.dev/v1alpha1", "kind": "BayplanNode", "metadata": { "name": "n1" } });
        until("the policy holds", async || {
            self.as_unbound("PATCH", &format!("{NODES}/n1"), node.clone()).await.0 == 422
        })
        .await;
    }

    pub(crate) fn agent_pid(&self) -> u32 {
        self.agent.as_ref().expect("the agent runs").id()
    }

    pub(crate) fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    pub(crate) async fn restart_agent(&mut self) {
        self.restart_agent_by(&self.servers.address()).await;
    }

    /// The same with another address of the API server.
    pub(crate) async fn restart_agent_by(&mut self, address: &str) {
        self.kill_agent();
        let (profiles, features) =
            (self.servers.path("profiles.yaml"), self.servers.path("features.d"));
        fs::write(&profiles, PROFILES).unwrap();
        fs::create_dir_all(&features).unwrap();
        let mut command = self.agent_command(address);
        command.args(["--publish", PUBLISHED, "--accept", "nri-plugins,cri-resmgr", "--pods"]);
        command.arg("--feature-labels").arg("--profiles").arg(profiles);
        command.arg("--features-dir").arg(features);
        command.arg("--metrics").arg(self.metrics.to_string()).arg("--map");
        command.env("BAYPLAN_LOG", "debug,hyper_util=info");
        self.agent = Some(command.spawn().unwrap());
    }

    /// With the options of the manifests, but at once.
    pub(crate) async fn restart_plain_agent(&mut self) {
        self.kill_agent();
        self.agent = Some(self.agent_command(&self.servers.address()).spawn().unwrap());
    }

    fn agent_command(&self, address: &str) -> Command {
        let file = self.servers.path("agent.kubeconfig");
        fs::write(&file, kubeconfig(address, &self.tokens[0])).unwrap();
        let log =
            fs::File::options().create(true).append(true).open(self.servers.path("agent.log"));
        let program = std::env::var_os(AGENT_PROGRAM).unwrap_or_else(|| DAEMON.into());
        let mut command = Command::new(program);
        command.args(["agent", "--node", "n1", "--start-within", "0s", "--control"]);
        command.arg(self.node.control_socket()).env("KUBECONFIG", file).env_remove("BAYPLAN_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap());
        command
    }

    /// Own and all CPUs by container.
    pub(crate) async fn places(&self) -> BTreeMap<String, [String; 2]> {
        let containers = self.node.status().await.containers;
        containers
            .iter()
            .map(|it| (it.full_name(), [it.exclusive.clone(), it.cpus.clone()]))
            .collect()
    }

    /// Status and message.
    pub(crate) async fn apply_config(&self, name: &str, spec: Json) -> (u16, String) {
        let object = json!({
            "apiVersion": "bayplan.dev/v1alpha1", "kind": "BayplanConfig",
            "metadata": { "name": name }, "spec": spec,
        });
        let (status, told) =
            call(&self.admin, "PATCH", &format!("{CONFIGS}/{name}"), &object).await;
        (status, told.to_string())
    }

    pub(crate) async fn configure(&self, name: &str, spec: Json) {
        let begun = Instant::now();
        loop {
            let (status, told) = self.apply_config(name, spec.clone()).await;
            if status == 200 {
                return;
            }
            // An API server that has just started takes nothing yet.
            assert!(begun.elapsed() < STUCK && status != 422, "{name}: {status} {told}");
            sleep(POLL).await;
        }
    }

    pub(crate) async fn delete_config(&self, name: &str) {
        self.remove(&format!("{CONFIGS}/{name}")).await;
    }

    /// Deletes an object.
    pub(crate) async fn remove(&self, path: &str) {
        let (status, told) = call(&self.admin, "DELETE", path, &json!({})).await;
        assert_eq!(status, 200, "{path}: {told}");
    }

    async fn merge(&self, path: &str, metadata: Json) {
        let path = format!("{path}?fieldManager=merge");
        let (status, told) =
            call(&self.admin, "PATCH", &path, &json!({ "metadata": metadata })).await;
        assert_eq!(status, 200, "{path}: {told}");
    }

    pub(crate) async fn annotate(&self, name: &str, annotations: Json) {
        self.merge(&format!("{CONFIGS}/{name}"), json!({ "annotations": annotations })).await;
    }

    pub(crate) async fn label(&self, labels: Json) {
        self.merge("/api/v1/nodes/n1", json!({ "labels": labels })).await;
    }

    async fn own(&self) -> Json {
        call(&self.admin, "GET", &format!("{NODES}/n1"), &Json::Null).await.1
    }

    /// The condition ConfigApplied, once it is about the object as it is now and has this reason.
    pub(crate) async fn applied(&self, reason: &str) -> Json {
        self.applied_saying(reason, "").await
    }

    /// The same, once its message has these words.
    pub(crate) async fn applied_saying(&self, reason: &str, words: &str) -> Json {
        let begun = Instant::now();
        loop {
            let own = self.own().await;
            let conditions = own.pointer("/status/conditions").and_then(Json::as_array);
            let applied = conditions.into_iter().flatten().find(|it| it["type"] == "ConfigApplied");
            let generation =
                match reason {
                    "GroupMissing" => None,
                    _ => call(&self.admin, "GET", &format!("{CONFIGS}/default"), &Json::Null)
                        .await
                        .1["metadata"]["generation"]
                        .as_i64(),
                };
            if let Some(applied) = applied
                && applied["reason"] == reason
                && applied["message"].as_str().is_some_and(|it| it.contains(words))
                && generation.is_none_or(|it| applied["observedGeneration"].as_i64() == Some(it))
            {
                return applied.clone();
            }
            assert!(begun.elapsed() < STUCK, "{reason}: {own:#}\n{}", self.words());
            sleep(POLL).await;
        }
    }

    /// Waits until the daemon reserves these CPUs, and the BayplanNode says that it is because of this BayplanConfig.
    pub(crate) async fn holds(&self, name: &str, reserved: &str) {
        self.holds_object(&format!("BayplanConfig/{name}"), reserved).await;
    }

    /// The same of an object of any kind; an empty name is that of none.
    pub(crate) async fn holds_object(&self, name: &str, reserved: &str) {
        let begun = Instant::now();
        loop {
            let (own, status) = (self.own().await, self.node.status().await);
            if own["status"]["configName"] == name && status.cpus.reserved == reserved {
                assert_eq!(own["metadata"]["ownerReferences"][0]["name"], "n1", "{own:#}");
                return;
            }
            assert!(begun.elapsed() < STUCK, "{name}: {own:#} {:?}\n{}", status.cpus, self.words());
            sleep(POLL).await;
        }
    }

    /// Waits for an event on a pod.
    pub(crate) async fn event(&self, reason: &str, pod: &str) {
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        until(reason, async || {
            let list = call(&self.admin, "GET", path, &Json::Null).await.1;
            let events = list["items"].as_array().cloned().unwrap_or_default();
            events.iter().any(|it| it["reason"] == reason && it["regarding"]["name"] == pod)
        })
        .await;
    }

    pub(crate) fn admin(&self) -> &Client {
        &self.admin
    }

    /// Status, and the object or a message.
    pub(crate) async fn as_admin(&self, method: &str, path: &str, body: &Json) -> (u16, Json) {
        call(&self.admin, method, path, body).await
    }

    /// Applies an object of any kind.
    pub(crate) async fn put(&self, object: &Json) {
        let (status, told) = call(&self.admin, "PATCH", &path_of(object), object).await;
        assert_eq!(status, 200, "{told}");
    }

    /// A Guaranteed pod of the node that runs; the API server has it and no runtime.
    pub(crate) async fn make_pod(&self, name: &str, cpus: &str) {
        let amounts = json!({ "cpu": cpus, "memory": "64Mi" });
        let container = json!({ "name": "c", "image": "i", "resources": { "requests": amounts, "limits": amounts } });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "nodeName": "n1", "containers": [container] },
        });
        let path = "/api/v1/namespaces/default/pods";
        let (status, told) = call(&self.admin, "POST", path, &pod).await;
        assert_eq!(status, 200, "{told}");
        self.merge_into(
            &format!("{path}/{name}/status"),
            json!({ "status": { "phase": "Running" } }),
        )
        .await;
    }

    /// A merge patch by another program than the agent.
    pub(crate) async fn merge_into(&self, path: &str, patch: Json) {
        self.merge_as("other", path, patch).await;
    }

    /// The same by kubelet.
    pub(crate) async fn as_kubelet(&self, path: &str, patch: Json) {
        self.merge_as("kubelet", path, patch).await;
    }

    async fn merge_as(&self, manager: &str, path: &str, patch: Json) {
        let path = format!("{path}?fieldManager={manager}");
        let (status, told) = call(&self.admin, "PATCH", &path, &patch).await;
        assert_eq!(status, 200, "{path}: {told}");
    }

    pub(crate) async fn read(&self, path: &str) -> Json {
        call(&self.admin, "GET", path, &Json::Null).await.1
    }

    /// Waits until an object is so, and gives it.
    pub(crate) async fn until(
        &self,
        what: &str,
        path: &str,
        is_so: impl Fn(&Json) -> bool,
    ) -> Json {
        self.read_until(what, async || self.read(path).await, is_so).await
    }

    /// Waits until the table that the API server makes of these objects is so, and gives it.
    pub(crate) async fn table_until(
        &self,
        what: &str,
        path: &str,
        is_so: impl Fn(&Json) -> bool,
    ) -> Json {
        let read = async || {
            let form = "application/json;as=Table;v=v1;g=meta.k8s.io";
            let request = http::Request::get(path).header("Accept", form).body(Vec::new());
            self.admin.request::<Json>(request.unwrap()).await.unwrap()
        };
        self.read_until(what, read, is_so).await
    }

    async fn read_until(
        &self,
        what: &str,
        mut read: impl AsyncFnMut() -> Json,
        is_so: impl Fn(&Json) -> bool,
    ) -> Json {
        let begun = Instant::now();
        loop {
            let found = read().await;
            if is_so(&found) {
                return found;
            }
            assert!(begun.elapsed() < STUCK, "waited for: {what}: {found:#}\n{}", self.words());
            sleep(POLL).await;
        }
    }

    /// Waits for words of the agent.
    pub(crate) async fn agent_says(&self, words: &str) {
        until(words, async || self.words().contains(words)).await;
    }

    /// The daemon's zones.
    pub(crate) async fn zones(&self) -> Json {
        let socket = self.node.control_socket();
        let done = bayplan_daemon::ask_control(&socket, "GET", "/api/v1/zones", String::new());
        serde_json::from_slice(&done.await.unwrap().1).unwrap()
    }

    pub(crate) async fn change_mode(&self, mode: &str) {
        let path = format!("/api/v1/mode?to={mode}");
        let socket = self.node.control_socket();
        let done = bayplan_daemon::ask_control(&socket, "POST", &path, String::new()).await;
        assert_eq!(done.unwrap().0, 200, "{path}");
    }

    /// Takes back what was published, as the administrator.
    pub(crate) fn withdraw(&self) {
        let file = self.servers.path("admin.kubeconfig");
        fs::write(&file, kubeconfig(&self.servers.address(), ADMIN)).unwrap();
        let mut command = Command::new(DAEMON);
        command.args(["agent", "--node", "n1", "--withdraw"]).env("KUBECONFIG", file);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Of a service account, bound to nothing.
    pub(crate) async fn token_of(&self, account: &str) -> String {
        token(&self.admin, account, None).await
    }

    /// The path of what clients of this service account read.
    pub(crate) async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        let token = self.token_of(account).await;
        let file = self.servers.path(&format!("{account}.kubeconfig"));
        fs::write(&file, kubeconfig(&self.servers.address(), &token)).unwrap();
        file
    }

    /// A client with the agent's rights.
    pub(crate) async fn client_as_agent(&self) -> Client {
        client(&self.servers.address(), &self.tokens[0]).await
    }

    pub(crate) async fn as_agent(&self, method: &str, path: &str, body: Json) -> (u16, String) {
        self.by(&self.tokens[0], method, path, &body).await
    }

    pub(crate) async fn as_unbound(&self, method: &str, path: &str, body: Json) -> (u16, String) {
        self.by(&self.tokens[1], method, path, &body).await
    }

    async fn by(&self, token: &str, method: &str, path: &str, body: &Json) -> (u16, String) {
        let client = client(&self.servers.address(), token).await;
        let (status, told) = call(&client, method, path, body).await;
        (status, told.to_string())
    }

    /// Of the agent, for messages.
    fn words(&self) -> String {
        fs::read_to_string(self.servers.path("agent.log")).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill_agent();
    }
}

/// The agent's on this Node, which has to be there: bound to it.
pub(crate) async fn token_on(admin: &Client, node: &str) -> String {
    let (status, told) = call(admin, "GET", &format!("/api/v1/nodes/{node}"), &Json::Null).await;
    assert_eq!(status, 200, "{told}");
    let uid = &told["metadata"]["uid"];
    let bound = json!({ "kind": "Node", "apiVersion": "v1", "name": node, "uid": uid });
    token(admin, AGENT, Some(bound)).await
}

/// Of a service account, bound to an object or to nothing.
pub(crate) async fn token(admin: &Client, account: &str, bound: Option<Json>) -> String {
    let path = &format!("/api/v1/namespaces/bayplan-system/serviceaccounts/{account}/token");
    let mut spec = json!({ "expirationSeconds": 3600 });
    if let Some(bound) = bound {
        spec["boundObjectRef"] = bound;
    }
    let body =
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
    let (status, told) = call(admin, "POST", path, &body).await;
    assert_eq!(status, 200, "{told}");
    String::deserialize(&told["status"]["token"]).unwrap()
}

/// Waits for what must happen.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < STUCK, "waited for: {what}");
        sleep(POLL).await;
    }
}
