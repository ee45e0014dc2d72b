//! What kubelet knows of pods: the daemon asks a stand-in for kubelet's sockets, which is well, stuck, away or odd.

use std::collections::BTreeMap;
use std::fs;

use bayplan_cri::kubelet_api::fake::{FakeContainer, FakeKubelet, FakePod, Manner};
use bayplan_daemon::config::Config;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::time::{Duration, sleep};

use crate::node::{MACHINE, Node, set, soon};
use crate::observing::{metrics, sum};
use crate::power;

/// Kubelet's sockets; they are gone when it is dropped.
pub(crate) struct Sockets {
    _stop: oneshot::Sender<()>,
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A pod of the node's client, with a container of its name.
pub(crate) fn pod(name: &str, requests: &[(&str, &str)], annotations: &[(&str, &str)]) -> FakePod {
    let container = FakeContainer {
        name: name.to_owned(),
        requests: map(requests),
        ..FakeContainer::default()
    };
    FakePod {
        uid: format!("default-{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        annotations: map(annotations),
        owner: Some(("ReplicaSet".to_owned(), "web-5d".to_owned())),
        priority: Some(("high".to_owned(), 1000)),
        containers: vec![container],
        ..FakePod::default()
    }
}

pub(crate) fn serve(kubelet: &FakeKubelet, node: &Node) -> Sockets {
    let (stop, stopped) = oneshot::channel();
    let path = node.path("pods.sock");
    drop(fs::remove_file(&path));
    let (listener, kubelet) = (UnixListener::bind(path).unwrap(), kubelet.clone());
    tokio::spawn(async move {
        let stopped = async {
            let _dropped = stopped.await;
        };
        kubelet.serve(listener, stopped).await;
    });
    Sockets { _stop: stop }
}

async fn known_from(node: &Node, name: &str) -> String {
    let explained = node.explain(name).await;
    explained[0].known.as_ref().map(|it| it.requests_from.clone()).unwrap_or_default()
}

fn quick(config: &mut Config) {
    config.sweep_interval = Duration::from_millis(100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_profile_is_the_class_of_its_cpus_and_follows_an_annotation() {
    let mut node = Node::without_daemon(MACHINE);
    power::write_driver(&node);
    let kubelet = FakeKubelet::default();
    let requests = [("cpu", "2"), ("memory", "1Gi"), ("power.intel.com/performance", "2")];
    kubelet.set_pods(vec![pod("fast", &requests, &[])]);
    let _sockets = serve(&kubelet, &node);
    node.adjust = quick;
    node.start_daemon().await;
    let (_, id) = node.guaranteed("fast", 2000).await;
    let own = node.cpus(&id);
    assert_eq!(own.len(), 2);
    power::wait_for(&node, &[(&own, "powersave performance 3400000 3600000 0")]).await;
    let known = node.explain("fast").await[0].known.clone().unwrap();
    assert_eq!(known.requests_from, "kubelet's PodsAPI");
    let facts = known.facts.unwrap();
    assert_eq!(facts.owner.as_deref(), Some("ReplicaSet/web-5d"));
    assert_eq!(facts.priority_class.as_deref(), Some("high"));

    // An annotation on the pod that runs counts at once.
    let annotated = [("bayplan.dev/cpu-class", "power")];
    kubelet.set_pods(vec![pod("fast", &requests, &annotated)]);
    power::wait_for(&node, &[(&own, "powersave power 1300000 1500000 0")]).await;
    assert_eq!(node.cpus(&id), own);
    let known = node.explain("fast").await[0].known.clone().unwrap();
    assert_eq!(known.changes, "bayplan.dev/cpu-class is power");
    node.stop_daemon().await;
}

/// Whatever kubelet does, containers are placed, and no creation waits for it for long.
#[tokio::test(flavor = "multi_thread")]
async fn creations_go_on_while_kubelet_is_stuck_odd_or_away() {
    let mut node = Node::start().await;
    let kubelet = FakeKubelet::default();
    let names = ["a", "b", "c", "d", "e"];
    let pods = names.map(|name| pod(name, &[("cpu", "1"), ("memory", "1Gi")], &[]));
    kubelet.set_pods(pods.to_vec());
    // Away: nothing listens.
    node.burstable("a", 1000).await;
    assert_eq!(known_from(&node, "a").await, "");

    kubelet.set_manner(Manner::Never);
    let _sockets = serve(&kubelet, &node);
    let late =
        async || sum(&metrics(&node).await, "bayplan_failures_total", &["kind=\"late_pod\""]);
    assert!(late().await < 1.0);
    for name in ["b", "c"] {
        node.burstable(name, 1000).await;
        assert_eq!(known_from(&node, name).await, "");
    }
    kubelet.set_manner(Manner::Nonsense);
    node.burstable("d", 1000).await;
    assert_eq!(known_from(&node, "d").await, "");
    node.check_in_line().await;
    node.stop_daemon().await;

    // One that starts while kubelet answers learns all of them.
    kubelet.set_manner(Manner::Well);
    node.start_daemon().await;
    let learnt = async {
        for name in ["a", "b", "c", "d"] {
            while known_from(&node, name).await != "kubelet's PodsAPI" {
                sleep(Duration::from_millis(10)).await;
            }
        }
    };
    soon(learnt).await;
    let (_, id) = node.burstable("e", 1000).await;
    assert_eq!(known_from(&node, "e").await, "kubelet's PodsAPI");
    assert!(!node.cpus(&id).is_empty() && !node.cpus(&id).intersects(&set("0,8")));
    node.stop_daemon().await;
}
