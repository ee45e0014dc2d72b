//! The agent with a real etcd and kube-apiserver: the manifests as they are in `deploy/cluster`, an agent with its own token, a daemon with containers.
//!
//! Programs are built by `tests/cluster/build`, or named by `BAYPLAN_ETCD`, `BAYPLAN_KUBE_APISERVER`, `BAYPLAN_SCHEDULER` and `BAYPLAN_HELM`. What needs one that is
//! not there is not tested, which is said; with
//! `BAYPLAN_CLUSTER=required`, as in `cargo xtask nightly cluster`, that is a failure.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking, and tell what they have done"
)]

mod accepted;
#[allow(dead_code, reason = "the daemon's tests use more of it")]
#[path = "../daemon/engine.rs"]
mod engine;
mod examples;
mod helm;
mod interrupted;
mod metrics;
#[allow(dead_code, reason = "the daemon's tests use more of it")]
#[path = "../daemon/node.rs"]
mod node;
mod policies;
mod publishing;
#[allow(dead_code, reason = "the crowd's tests use more of it")]
mod servers;
mod shown;
mod stand_in;
mod storm;
mod webhook;
#[allow(dead_code, reason = "the crowd's tests use more of it")]
mod world;
mod write_relay;

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::node::set;
use crate::servers::Servers;
use crate::world::World;

/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(120);
/// Seconds without API server, unless `BAYPLAN_API_AWAY` says others.
const AWAY: u64 = 5;

/// One after the other with the same servers: they take longer to start than all of this.
#[tokio::test(flavor = "multi_thread")]
async fn the_agent_configures_its_node_and_no_other() {
    let Some(servers) = Servers::start().await else { return };
    helm::the_chart_is_installed_changed_and_removed(&servers).await;
    let mut world = World::start(servers).await;
    bad_objects_are_conditions(&mut world).await;
    nearer_objects_count(&mut world).await;
    accepted::objects_of_other_systems_count(&mut world).await;
    brakes_hold(&mut world).await;
    shown::a_row_says_how_the_node_is(&world).await;
    shown::pods_hear_of_refusals_and_neighbours(&mut world).await;
    foreign_writes_are_refused(&world).await;
    pods_of_the_node_are_told(&mut world).await;
    webhook::a_webhook_writes_into_pods(&world).await;
    policies::policies_write_into_pods(&world).await;
    publishing::the_node_is_published_and_withdrawn(&mut world).await;
    metrics::scrapers_have_what_the_cluster_lets_them(&mut world).await;
    nothing_changes_without_api_server_or_agent(&mut world).await;
    interrupted::interrupted_writes_change_nothing_and_are_made_up_for(&mut world).await;
}

async fn bad_objects_are_conditions(world: &mut World) {
    let (status, message) = world.apply_config("foo", json!({ "config": {} })).await;
    assert!(status == 422 && message.contains("is named default"), "{status} {message}");
    let (status, message) =
        world.apply_config("default", json!({ "config": { "reservedCpus": [] } })).await;
    assert!(status == 422 && message.contains("reservedCpus"), "{status} {message}");
    let before = world.places().await;
    for (config, reason, expected) in [
        (
            json!({ "onFailre": "open" }),
            "Invalid",
            "spec.config line 1, column 1 (onFailre: open): unknown key `onFailre`; did you mean `onFailure`?",
        ),
        (
            json!({ "log": "debug", "stateDir": "/tmp" }),
            "Invalid",
            "spec.config line 2, column 11 (stateDir: /tmp): `stateDir` is the node's own",
        ),
        (
            json!({ "reservedCpus": "99" }),
            "Invalid",
            "`reservedCpus`: reserved CPUs 99 are not online",
        ),
    ] {
        world.configure("default", json!({ "config": config })).await;
        let condition = world.applied(reason).await;
        let message = condition["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        assert_eq!(world.places().await, before);
    }
}

async fn nearer_objects_count(world: &mut World) {
    let reserves = |cpus: &str| json!({ "config": { "reservedCpus": cpus }, "maxMoves": 9 });
    let selects = |cpus: &str| json!({ "config": { "reservedCpus": cpus }, "maxMoves": 9, "nodeSelector": { "pool": "x" } });
    world.configure("default", reserves("0,8")).await;
    world.holds("default", "0,8").await;
    world.configure("group.a", reserves("1,9")).await;
    world.label(json!({ "bayplan.dev/group": "a" })).await;
    world.holds("group.a", "1,9").await;
    world.configure("selecting", selects("2,10")).await;
    world.label(json!({ "pool": "x" })).await;
    world.holds("selecting", "2,10").await;
    world.configure("node.n1", reserves("3,11")).await;
    world.holds("node.n1", "3,11").await;
    world.configure("node.n2", reserves("4,12")).await;
    world.delete_config("node.n1").await;
    world.holds("selecting", "2,10").await;
    // A group without an object keeps what holds.
    world.label(json!({ "pool": null, "bayplan.dev/group": "b" })).await;
    world.applied("GroupMissing").await;
    assert_eq!(world.node.status().await.cpus.reserved, "2,10");
    world.label(json!({ "bayplan.dev/group": null })).await;
    world.holds("default", "0,8").await;
}

async fn brakes_hold(world: &mut World) {
    world.node.guaranteed("owner", 2000).await;
    let before = world.places().await;
    let [own, _] = &before["default/owner/owner"];
    world.configure("default", json!({ "config": { "reservedCpus": own } })).await;
    let condition = world.applied("TooManyMoves").await;
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.contains("default/owner/owner") && message.contains("maxMoves is 0"),
        "{message}"
    );
    assert_eq!(world.places().await, before);
    world.annotate("default", json!({ "bayplan.dev/allow-moves": "1" })).await;
    world.holds("default", own).await;
    world.event("ExclusiveCpusMoved", "owner").await;
}

async fn foreign_writes_are_refused(world: &World) {
    let node = |name: &str| {
        let kind = json!({ "apiVersion": "bayplan.dev/v1alpha1", "kind": "BayplanNode", "metadata": { "name": name } });
        (format!("/apis/bayplan.dev/v1alpha1/bayplannodes/{name}"), kind)
    };
    let (own, object) = node("n1");
    assert_eq!(world.as_agent("PATCH", &own, object.clone()).await.0, 200);
    let (foreign, of_foreign) = node("n2");
    let (status, message) = world.as_agent("PATCH", &foreign, of_foreign).await;
    assert!(status == 422 && message.contains("of its own node only"), "{status} {message}");
    // Bound to no node.
    let (status, message) = world.as_unbound("PATCH", &own, object).await;
    assert!(status == 422 && message.contains("is bound to no node"), "{status} {message}");
    for (method, path) in [
        ("PATCH", "/apis/bayplan.dev/v1alpha1/bayplanconfigs/default"),
        ("GET", "/api/v1/secrets"),
        ("DELETE", "/api/v1/nodes/n1"),
        ("PATCH", "/api/v1/namespaces/default/pods/p"),
        ("DELETE", "/apis/bayplan.dev/v1alpha1/bayplannodes/n1"),
    ] {
        let (status, message) =
            world.as_agent(method, path, json!({ "metadata": { "name": "n1" } })).await;
        assert_eq!(status, 403, "{method} {path}: {message}");
    }
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e", "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reason": "r", "type": "Normal", "note": "n",
        "reportingController": "bayplan.dev/agent", "reportingInstance": "n2",
        "regarding": { "kind": "Pod", "namespace": "default", "name": "p" },
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let (status, message) = world.as_agent("POST", path, event).await;
    assert!(status == 422 && message.contains("events of its own node"), "{status} {message}");
}

/// No kubelet tells the daemon of its pods, so the agent does. The runtime's pod is as a static one: its uid is in the annotation of the API server's object.
async fn pods_of_the_node_are_told(world: &mut World) {
    let begun = Instant::now();
    for number in 0.. {
        let name = format!("told{number}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "annotations": { "kubernetes.io/config.mirror": format!("default-{name}") } },
            "spec": { "nodeName": "n1", "containers": [{ "name": name, "image": "i", "resources": { "requests": { "cpu": "200m" } } }] },
        });
        let path = "/api/v1/namespaces/default/pods";
        let (status, told) = world.as_admin("POST", path, &pod).await;
        assert_eq!(status, 200, "{told}");
        // The agent hears of it meanwhile.
        sleep(Duration::from_millis(500)).await;
        let (_, id) = world.node.burstable(&name, 200).await;
        let explained = world.node.explain(&name).await;
        world.node.kubelet.stop(&id).await.unwrap();
        world.node.kubelet.remove(&id).await.unwrap();
        let at_once = json!({ "gracePeriodSeconds": 0 });
        let (status, told) = world.as_admin("DELETE", &format!("{path}/{name}"), &at_once).await;
        assert_eq!(status, 200, "{told}");
        let known = explained[0].known.as_ref();
        if known.is_some_and(|it| it.facts.is_some()) {
            return;
        }
        assert!(begun.elapsed() < STUCK, "{:?}", explained[0]);
    }
}

async fn nothing_changes_without_api_server_or_agent(world: &mut World) {
    let before = (world.places().await, world.node.status().await.cpus);
    world.servers.stop_api();
    world.restart_agent().await;
    world.node.kill_daemon();
    world.node.spawn_daemon("").await;
    world.node.wait_until_in_line().await;
    assert_eq!((world.places().await, world.node.status().await.cpus), before);
    let away = std::env::var("BAYPLAN_API_AWAY").map_or(AWAY, |it| it.parse().unwrap());
    sleep(Duration::from_secs(away)).await;
    // The node goes on to place.
    let (pod, _) = world.node.guaranteed("meanwhile", 2000).await;
    assert_eq!(set(&world.places().await["default/meanwhile/meanwhile"][0]).len(), 2);
    world.node.kubelet.end_pod(&pod).await.unwrap();
    world.node.wait_until_in_line().await;
    assert_eq!((world.places().await, world.node.status().await.cpus), before);
    world.servers.start_api().await;
    world
        .configure("default", json!({ "config": { "reservedCpus": "2,10" }, "maxMoves": 9 }))
        .await;
    world.holds("default", "2,10").await;

    // Changed while the agent is away, and found by the next one.
    world.kill_agent();
    world
        .configure("default", json!({ "config": { "reservedCpus": "3,11" }, "maxMoves": 9 }))
        .await;
    assert_eq!(world.node.status().await.cpus.reserved, "2,10");
    world.restart_agent().await;
    world.holds("default", "3,11").await;
}
