//! A node goes over from nri-plugins to Bayplan with its custom resource still in the API server. Real are etcd, kube-apiserver, containerd 2, the plugin, and containers. What is shown: no container
//! is moved that need not be, and none is restarted.
//!
//! `BAYPLAN_NRI_PLUGIN` names the topology-aware plugin of nri-plugins, as its repository builds it (`make build-plugins`; seen with 0.10.1). Without it nothing is tested, which is said, and a failure with
//! `BAYPLAN_CLUSTER=required`. By its name:
//!
//! ```sh
//! BAYPLAN_NRI_PLUGIN=/path/to/nri-resource-policy-topology-aware cargo test -p bayplan-tests --test switch -- --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking, and tell what they do"
)]

#[allow(dead_code, reason = "the daemon's tests use more of it")]
#[path = "../daemon/engine.rs"]
mod engine;
#[allow(dead_code, reason = "the daemon's tests use more of it")]
#[path = "../daemon/node.rs"]
mod node;
#[allow(dead_code, reason = "the cluster's tests use more of it")]
#[path = "../cluster/servers.rs"]
mod servers;
mod sight;
#[allow(dead_code, reason = "the cluster's tests use more of it")]
#[path = "../cluster/world.rs"]
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::containerd::Programs;
use bayplan_tests::node::{LIMIT, Node, Placed, SLEEP, Way, allowed_by_kernel};
use bayplan_tests::process::{Process, wait_for};
use bayplan_tests::topology_aware::{self, Launch, Policy, State};
use bayplan_types::{Bytes, QosClass};
use kube::Client;
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use self::sight::Sight;
use crate::node::DAEMON;
use crate::servers::{ADMIN, Servers, is_not_tested};
use crate::world::{apply_manifests, call, kubeconfig, token_on};

/// Of the Kubernetes Node, and of the plugin's entry in the status map.
const NODE: &str = "n1";
const POLICIES: &str = "/apis/config.nri/v1alpha1/namespaces/kube-system/topologyawarepolicies";
/// After which what follows a configuration has happened.
const SETTLED: Duration = Duration::from_secs(3);
const SHOWN: &str = "/apis/bayplan.dev/v1alpha1/bayplannodes/n1";

#[test]
fn a_node_goes_over_from_nri_plugins_and_no_container_moves_that_need_not() {
    let Some(program) = std::env::var_os("BAYPLAN_NRI_PLUGIN").map(PathBuf::from) else {
        return is_not_tested("BAYPLAN_NRI_PLUGIN names no plugin of nri-plugins");
    };
    let tokio = Runtime::new().unwrap();
    let Some(servers) = tokio.block_on(Servers::start()) else { return };
    let cluster = Cluster::start(tokio, servers);
    for case in [
        Case {
            name: "shared and reserved CPUs, the object imported into the file",
            has_owner: false,
            is_imported: true,
        },
        Case {
            name: "a CPU of its own, the object imported into the file",
            has_owner: true,
            is_imported: true,
        },
        Case {
            name: "a CPU of its own, the file as it is installed",
            has_owner: true,
            is_imported: false,
        },
    ] {
        println!("\n{}", case.name);
        let programs = Programs::built().unwrap();
        let (way, driver) = (Way::Plugin, CgroupDriver::Cgroupfs);
        let mut node = Node::start_with(Path::new(DAEMON), &SLEEP, driver, way, programs).unwrap();
        let played = play(&cluster, &mut node, &program, &case);
        node.end(played).unwrap();
        cluster.remove(&format!("{POLICIES}/default"));
        cluster.remove(SHOWN);
    }
}

/// What runs on the node, and how it goes over.
struct Case {
    name: &'static str,
    /// A container has a CPU that the plugin takes for isolated, which is the only way for it to own one of two; else containers share that CPU.
    has_owner: bool,
    /// The node's file is made from the object, as `docs/migrating.md` tells.
    is_imported: bool,
}

/// The API server with one Node and the policy that its plugin is configured by.
struct Cluster {
    tokio: Runtime,
    servers: Servers,
    admin: Client,
    /// Bound to the Node.
    token: String,
}

impl Cluster {
    fn start(tokio: Runtime, servers: Servers) -> Cluster {
        let (admin, token) = tokio.block_on(async {
            let admin = world::client(&servers.address(), ADMIN).await;
            apply_manifests(&admin).await;
            let path = format!("/api/v1/nodes/{NODE}");
            let object =
                json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
            let (status, told) = call(&admin, "PATCH", &path, &object).await;
            assert_eq!(status, 200, "{told}");
            let token = token_on(&admin, NODE).await;
            (admin, token)
        });
        Cluster { tokio, servers, admin, token }
    }

    fn read(&self, path: &str) -> Json {
        self.tokio.block_on(call(&self.admin, "GET", path, &Json::Null)).1
    }

    fn put_policy(&self, has_isolated: bool) -> Json {
        let object = json!({
            "apiVersion": "config.nri/v1alpha1", "kind": "TopologyAwarePolicy",
            "metadata": { "name": "default", "namespace": "kube-system" },
            "spec": { "pinCPU": true, "pinMemory": true, "preferIsolatedCPUs": has_isolated, "reservedResources": { "cpu": "cpuset:0" } },
        });
        let path = format!("{POLICIES}/default");
        let (status, told) = self.tokio.block_on(call(&self.admin, "PATCH", &path, &object));
        assert_eq!(status, 200, "{told}");
        told
    }

    fn remove(&self, path: &str) {
        let (status, told) = self.tokio.block_on(call(&self.admin, "DELETE", path, &json!({})));
        assert_eq!(status, 200, "{told}");
    }

    /// What the agent of the node reads.
    fn access(&self, token: &str, name: &str) -> anyhow::Result<PathBuf> {
        let file = self.servers.path(name);
        fs::write(&file, kubeconfig(&self.servers.address(), token))?;
        Ok(file)
    }
}

/// The agent of the node; ends with this value.
fn start_agent(cluster: &Cluster, node: &Node) -> anyhow::Result<Process> {
    let file = cluster.access(&cluster.token, "agent.kubeconfig")?;
    let mut command = Command::new(DAEMON);
    command.args(["agent", "--node", NODE, "--accept", "nri-plugins", "--start-within", "0s"]);
    command.arg("--control").arg(node.control()).env("KUBECONFIG", file);
    Process::start(&mut command, &cluster.servers.path("agent.log"))
}

/// The node's file as `bayplan import` makes it from the object.
fn import(object: &Json, dir: &Path) -> anyhow::Result<String> {
    let (from, to) = (dir.join("policy.json"), dir.join("imported.yaml"));
    fs::write(&from, object.to_string())?;
    let mut command = Command::new(DAEMON);
    command.args(["import", "--node", NODE]).arg(&from).arg("-o").arg(&to);
    let done = command.output()?;
    ensure!(done.status.success(), "import: {}", String::from_utf8_lossy(&done.stderr));
    Ok(fs::read_to_string(to)?)
}

fn launch(node: &mut Node, namespace: &str, name: &str, owns: bool) -> anyhow::Result<Placed> {
    let (qos, container) = match owns {
        true => (QosClass::Guaranteed, ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20))),
        false => (QosClass::Burstable, ContainerSpec::burstable("app", 100)),
    };
    let mut pod = PodSpec::new(&format!("scenario-{name}"), qos);
    namespace.clone_into(&mut pod.namespace);
    let pod = node.run_pod(&pod)?;
    let id = node.answer(node.ask_to_create(&pod, &container, 0))??;
    node.answer(node.ask_to_start(&id))??;
    wait_for("the container to run", LIMIT, || node.seen(&id))
}

fn play(cluster: &Cluster, node: &mut Node, program: &Path, case: &Case) -> anyhow::Result<()> {
    node.kill()?;
    println!("the node is the plugin's, by the custom resource");
    let object = cluster.put_policy(case.has_owner);
    let access = cluster.access(ADMIN, "plugin.kubeconfig")?;
    let state = State::mount(node.dir().join("plugin-state"))?;
    let mut plugin = topology_aware::start(&Launch {
        program,
        state: &state,
        dir: node.dir(),
        nri_socket: &node.nri_socket(),
        node: NODE,
        policy: Policy::Cluster(&access),
        has_isolated: case.has_owner,
    })?;
    wait_for("the plugin's entry in the status map", LIMIT, || {
        let object = cluster.read(&format!("{POLICIES}/default"));
        Ok((object["status"]["nodes"][NODE]["status"] == "Success").then_some(()))
    })
    .with_context(|| plugin.last_words())?;
    let pods = match case.has_owner {
        true => vec![("kube-system", "system", false), ("default", "owner", true)],
        false => vec![
            ("kube-system", "system", false),
            ("default", "one", false),
            ("default", "other", false),
        ],
    };
    let mut watched = Vec::new();
    for (namespace, name, owns) in pods {
        let placed = launch(node, namespace, name, owns).with_context(|| plugin.last_words())?;
        watched.push((name, placed));
    }
    let sight = Sight::begin(&watched)?;
    println!("under the plugin: {}", sight.said());
    println!("its DaemonSet is deleted, and the object stays");
    plugin.end()?;
    let config = if case.is_imported { import(&object, node.dir())? } else { String::new() };
    node.write_config(&config)?;
    node.start_again()?;
    let _agent = start_agent(cluster, node)?;
    wait_for("the object to hold", LIMIT, || {
        let status = &cluster.read(SHOWN)["status"];
        let holds = status["configName"] == "TopologyAwarePolicy/kube-system/default"
            && status["conditions"][0]["status"] == "True";
        Ok(holds.then_some(()))
    })
    .with_context(|| cluster.read(SHOWN).to_string())?;
    sleep(SETTLED);
    println!("until Bayplan holds the object: {}", sight.said());
    for (name, placed) in &watched {
        let (first, seen) = sight.of(name);
        let now = allowed_by_kernel(placed.pid)?.context("it runs")?;
        ensure!(now == first, "{name} was on {first} and is on {now}");
        let owns = *name == "owner";
        if owns {
            ensure!(node.exclusive_of(&placed.id)? == first, "{:?}", node.status()?);
        }
        if owns || case.is_imported {
            ensure!(seen == [first], "{name} was on {seen:?}");
        }
    }
    println!("and a new pod is placed by Bayplan");
    let next = launch(node, "kube-system", "next", false)?;
    ensure!(allowed_by_kernel(next.pid)?.context("it runs")? == sight.of("system").0);
    let map = &cluster.read(&format!("{POLICIES}/default"))["status"]["nodes"];
    ensure!(map[NODE]["status"] == "Success", "the map of the plugin is left alone: {map}");
    Ok(())
}
