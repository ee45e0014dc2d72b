//! A storm of pods: kube-scheduler, with and without the plugin NodeResourceTopologyMatch, and eight nodes that keep a pod's own CPUs within one NUMA node, or do not. In: pods, more than
//! there is room for at once. Out: how many a node refused although the scheduler had sent them, how many never ran, and how many have CPUs of several NUMA nodes.
//!
//! | Nodes | | NodeResourceTopology |
//! |---|---|---|
//! | Bayplan | a daemon with `topologyManagerPolicy: single-numa-node` and a runtime without processes | by its agent |
//! | kubelet's static policy | a model ([`kubelet_static`]) | as NFD's topology-updater writes it |
//! | nri-plugins, topology-aware | a model ([`topology_aware`]) | as its agent writes it |
//!
//! etcd, kube-apiserver and kube-scheduler are real. `BAYPLAN_STORM_PODS` says how many pods there are.

mod kubelet_static;
mod model;
mod node;
mod pods;
mod scheduler;
mod side;
mod tally;
mod topology_aware;

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::join_all;
use kube::Client;
use serde_json::json;
use tokio::task::JoinHandle;

use self::kubelet_static::KubeletStatic;
use self::model::{ModelNode, NODE_TOPOLOGIES, NodeModel};
pub(crate) use self::node::{Setup, StormNode};
pub(crate) use self::pods::POD_PATH;
pub(crate) use self::scheduler::{Scheduler, find_scheduler};
use self::side::Side;
use self::tally::Tally;
use self::topology_aware::TopologyAware;
use crate::servers::{ADMIN, Servers};
use crate::world::{self, call, until};

const NODES: usize = 8;
const RESERVED: &str = "0,16";
/// Two NUMA nodes with eight cores of two threads each.
const SETUP: Setup = Setup {
    machine: "pack:2 numa:1 core:8 pu:2 mem:64",
    cpus: "30",
    config: "reservedCpus: \"0,16\"\nrequests:\n  topologyManagerPolicy: single-numa-node\n",
    publish: "node-topology",
    has_features: false,
    accepts_cri_resmgr: false,
    files: |_| {},
};
/// Of that machine, CPUs that are not reserved by NUMA node.
const CPUS: [u32; 2] = [14, 16];
/// Unless the environment says another number.
const PODS: usize = 250;

/// What the nodes run, and with it the storm's outcome.
struct Row {
    nodes: &'static str,
    has_zones: bool,
    tally: Arc<Tally>,
    /// The end of the scheduler's log.
    words: String,
}

/// One cluster, and one storm after the other.
struct Storms {
    servers: Servers,
    admin: Client,
    scheduler: PathBuf,
    pods: usize,
    rows: Vec<Row>,
}

/// The same pods in each storm.
#[tokio::test(flavor = "multi_thread")]
async fn bayplans_nodes_refuse_no_pod_where_the_scheduler_knows_zones() {
    let Some(scheduler) = find_scheduler() else { return };
    let Some(servers) = Servers::start().await else { return };
    let pods = std::env::var("BAYPLAN_STORM_PODS").map_or(PODS, |it| it.parse().unwrap());
    let admin = world::client(&servers.address(), ADMIN).await;
    world::apply_manifests(&admin).await;
    let mut storms = Storms { servers, admin, scheduler, pods, rows: Vec::new() };
    storms.with_bayplan().await;
    let kubelet_static = |name: &str| -> Box<dyn NodeModel> {
        Box::new(KubeletStatic::new(CPUS, &format!("daemon-{name}")))
    };
    storms.with_model("kubelet's static policy", kubelet_static).await;
    let topology_aware =
        |_: &str| -> Box<dyn NodeModel> { Box::new(TopologyAware::new(RESERVED.parse().unwrap())) };
    storms.with_model("nri-plugins, topology-aware", topology_aware).await;
    println!("{pods} pods, {NODES} nodes\n{}", table(&storms.rows));
    let row = |has_zones: bool| storms.rows.iter().find(|it| it.has_zones == has_zones).unwrap();
    let (blind, seeing) = (row(false), row(true));
    assert!(!blind.tally.refusals().is_empty(), "the storm is too weak to show anything");
    let tally = &seeing.tally;
    assert_eq!((tally.stuck(), tally.spanning()), (0, 0), "{}", seeing.words);
    assert!(tally.refusals().is_empty(), "{:#?}\n{}", tally.refusals(), seeing.words);
}

fn table(rows: &[Row]) -> String {
    let mut text = "| Nodes | Scheduler | Pods | Scheduled | Refused | Stuck | Spanning | Half | 99 % |\n|---|---|---|---|---|---|---|---|---|\n".to_owned();
    for Row { nodes, has_zones, tally, .. } in rows {
        let scheduler = if *has_zones { "with the plugin" } else { "alone" };
        text.push_str(&format!("| {nodes} | {scheduler} | {} |\n", tally.cells()));
    }
    text
}

impl Storms {
    async fn with_bayplan(&mut self) {
        let mut nodes = Vec::new();
        for name in names() {
            nodes.push(StormNode::start(&self.servers, &self.admin, &name, &SETUP).await);
        }
        for node in &nodes {
            node.is_published(&self.admin).await;
        }
        let sides: Vec<Side> = nodes.iter().map(StormNode::side).collect();
        self.both("Bayplan", &sides).await;
        drop(nodes);
        self.forget_zones().await;
    }

    /// Each node is a model of its own; agents of Bayplan have ended.
    async fn with_model(&mut self, nodes: &'static str, make: impl Fn(&str) -> Box<dyn NodeModel>) {
        let models: Vec<_> = names().map(|name| ModelNode::new(&name, make(&name))).collect();
        join_all(models.iter().map(|it| it.write(&self.admin))).await;
        let publish = |it: &ModelNode| tokio::spawn(it.clone().publish(self.admin.clone()));
        let publishers: Vec<_> = models.iter().map(publish).collect();
        let sides: Vec<Side> = models.into_iter().map(Side::Model).collect();
        self.both(nodes, &sides).await;
        publishers.iter().for_each(JoinHandle::abort);
        self.forget_zones().await;
    }

    /// A storm without the plugin, and one with it.
    async fn both(&mut self, nodes: &'static str, sides: &[Side]) {
        for has_zones in [false, true] {
            let scheduler = Scheduler::start(&self.servers, &self.scheduler, has_zones);
            let tally = self.storm(sides).await;
            let words = scheduler.words(&self.servers);
            drop(scheduler);
            self.empty().await;
            self.rows.push(Row { nodes, has_zones, tally, words });
        }
    }

    /// Every pod runs once and is gone, or is stuck.
    async fn storm(&self, sides: &[Side]) -> Arc<Tally> {
        let tally = Arc::new(Tally::new(self.pods));
        let serve = |(name, side): (String, &Side)| {
            tokio::spawn(pods::serve(self.admin.clone(), name, side.clone(), Arc::clone(&tally)))
        };
        let kubelets: Vec<_> = names().zip(sides).map(serve).collect();
        pods::make(&self.admin, self.pods).await;
        tally.is_over().await;
        kubelets.iter().for_each(JoinHandle::abort);
        tally
    }

    /// No pod of the storm is left.
    async fn empty(&self) {
        let all = format!("{POD_PATH}?labelSelector=storm");
        let at_once = json!({ "gracePeriodSeconds": 0 });
        let deleted = call(&self.admin, "DELETE", &all, &at_once).await;
        assert_eq!(deleted.0, 200, "{}", deleted.1);
        until("all pods are gone", async || {
            let left = call(&self.admin, "GET", &all, &json!(null)).await;
            left.1["items"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
    }

    /// The next publisher makes objects of its own.
    async fn forget_zones(&self) {
        for name in names() {
            let path = format!("{NODE_TOPOLOGIES}/{name}");
            let (status, told) = call(&self.admin, "DELETE", &path, &json!({})).await;
            assert_eq!(status, 200, "{told}");
        }
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..NODES).map(|number| format!("n{number}"))
}
