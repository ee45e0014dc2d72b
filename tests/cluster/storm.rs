//! A storm of pods: kube-scheduler with the plugin NodeResourceTopologyMatch, and several nodes, each with a daemon that keeps a container within one NUMA node or refuses it, an
//! agent that publishes its NodeResourceTopology, and a stand-in for kubelet. In: pods, more than there is room for at once. Out: how many a node refused although the scheduler had
//! sent them, with the plugin and without, and how long they waited.
//!
//! `BAYPLAN_STORM_PODS` says how many there are.

mod node;
mod pods;
mod scheduler;

use std::sync::Arc;

use kube::Client;
use serde_json::json;

pub(crate) use self::node::{Setup, StormNode};
pub(crate) use self::pods::POD_PATH;
use self::pods::Tally;
pub(crate) use self::scheduler::{Scheduler, find_scheduler};
use crate::servers::{ADMIN, Servers};
use crate::world::{self, call, until};

const NODES: usize = 8;
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
/// Unless the environment says another number.
const PODS: usize = 250;

/// The same pods twice.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_refuse_fewer_pods_where_the_scheduler_knows_zones() {
    let Some(program) = find_scheduler() else { return };
    let Some(servers) = Servers::start().await else { return };
    let pods = std::env::var("BAYPLAN_STORM_PODS").map_or(PODS, |it| it.parse().unwrap());
    let admin = world::client(&servers.address(), ADMIN).await;
    world::apply_manifests(&admin).await;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(StormNode::start(&servers, &admin, &format!("n{number}"), &SETUP).await);
    }
    for node in &nodes {
        node.is_published(&admin).await;
    }
    let blind = storm(&servers, &admin, &nodes, Scheduler::start(&servers, &program, false), pods);
    let blind = blind.await;
    let seeing = storm(&servers, &admin, &nodes, Scheduler::start(&servers, &program, true), pods);
    let seeing = seeing.await;
    println!("{pods} pods, {NODES} nodes\nwithout zones: {blind}\nwith zones:    {seeing}");
    assert!(blind.refused() > 0, "the storm is too weak to show anything");
    // A pod that is bound in the moment of a resync can still be forgotten by the plugin.
    assert!(seeing.refused() < blind.refused(), "{:#?}", seeing.refusals());
}

/// Every pod runs once and is gone.
async fn storm(
    servers: &Servers,
    admin: &Client,
    nodes: &[StormNode],
    scheduler: Scheduler,
    pods: usize,
) -> Arc<Tally> {
    let tally = Arc::new(Tally::new(pods));
    let kubelets = nodes.iter().map(|it| it.serve(admin.clone(), Arc::clone(&tally)));
    let kubelets: Vec<_> = kubelets.map(tokio::spawn).collect();
    pods::make(admin, &tally).await;
    tally.is_over(|| scheduler.words(servers)).await;
    kubelets.iter().for_each(tokio::task::JoinHandle::abort);
    drop(scheduler);
    until("all pods are gone", async || {
        let left =
            call(admin, "GET", &format!("{POD_PATH}?labelSelector=storm"), &json!(null)).await;
        left.1["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
    tally
}
