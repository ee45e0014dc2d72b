//! Kubelet's sockets against a stand-in.

use std::time::Duration;

use bayplan_types::{Bytes, MilliCpu};
use bayplan_workload::{ContainerFacts, ExactRequests, PodAbout, ResizeState};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use super::fake::{FakeContainer, FakeKubelet, FakePod, Manner, encode};
use super::*;
use crate::test_support::soon;

fn map(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn web() -> FakePod {
    let app = FakeContainer {
        name: "app".to_owned(),
        requests: map(&[("cpu", "1500m"), ("memory", "1Gi"), ("power.intel.com/performance", "2")]),
        running: map(&[("cpu", "1"), ("memory", "512Mi")]),
        devices: vec![("intel.com/nic".to_owned(), vec!["0000:3b:02.0".to_owned()], vec![1])],
    };
    let init = FakeContainer {
        name: "init".to_owned(),
        requests: map(&[("hugepages-2Mi", "2Mi"), ("kubernetes.io/batch-cpu", "1")]),
        ..FakeContainer::default()
    };
    FakePod {
        uid: "uid-web".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        annotations: map(&[("bayplan.dev/rdtclass", "gold"), ("example.com/other", "kept out")]),
        owner: Some(("ReplicaSet".to_owned(), "web-5d".to_owned())),
        priority: Some(("high".to_owned(), 1000)),
        condition: Some(("PodResizePending".into(), "True".into(), "Deferred".into())),
        init_containers: vec![init],
        containers: vec![app],
        ..FakePod::default()
    }
}

#[test]
fn what_is_read_of_a_pod() {
    let facts = parse_pod(&encode(&web())).unwrap();
    let requests = |cpu: Option<u64>, memory: Option<u64>| ExactRequests {
        cpu: cpu.map(MilliCpu),
        memory: memory.map(Bytes),
    };
    let app = ContainerFacts {
        requests: requests(Some(1500), Some(1 << 30)),
        running: requests(Some(1000), Some(512 << 20)),
        is_init: false,
        extended: [("power.intel.com/performance".to_owned(), 2)].into(),
    };
    let init = ContainerFacts {
        requests: requests(None, Some(0)),
        is_init: true,
        ..ContainerFacts::default()
    };
    let expected = PodFacts {
        uid: "uid-web".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        annotations: map(&[("bayplan.dev/rdtclass", "gold")]),
        about: PodAbout {
            owner: Some("ReplicaSet/web-5d".to_owned()),
            priority_class: Some("high".to_owned()),
            priority: Some(1000),
            requests: ExactRequests::default(),
            resize: Some(ResizeState::Deferred),
        },
        containers: [("app".to_owned(), app), ("init".to_owned(), init)].into(),
    };
    assert_eq!(facts, expected);
}

proptest! {
    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(facts) = parse_pod(&bytes) {
            prop_assert!(!facts.uid.is_empty());
        }
    }

    #[test]
    fn a_pod_that_is_cut_is_a_pod_or_an_error(at in 0usize..400) {
        let bytes = encode(&web());
        // It must not panic.
        drop(parse_pod(&bytes[..at.min(bytes.len())]));
    }
}

fn resources(name: &str, devices: Vec<resources::ContainerDevices>) -> resources::PodResources {
    let app = resources::ContainerResources { name: "app".to_owned(), devices };
    resources::PodResources {
        name: name.to_owned(),
        namespace: "shop".to_owned(),
        containers: vec![app],
    }
}

fn devices_on(ids: Vec<String>, nodes: &[i64]) -> resources::ContainerDevices {
    let nodes = nodes.iter().map(|id| resources::NumaNode { id: *id }).collect();
    resources::ContainerDevices {
        resource_name: "a/b".to_owned(),
        device_ids: ids,
        topology: Some(resources::TopologyInfo { nodes }),
    }
}

#[test]
fn nodes_that_cannot_be_are_left_out() {
    let pod = resources("web", vec![devices_on(vec![], &[-1, 1, 65_536, 4_294_967_295, i64::MAX])]);
    assert_eq!(devices_of(pod, "app")[0].nodes, [NodeId(1)].into_iter().collect());
}

#[test]
fn names_of_devices_are_bounded() {
    let ids = |count: usize| (0..count).map(|id| format!("id{id}")).collect::<Vec<_>>();
    let long = vec!["x".repeat(256), "y".repeat(255)];
    let pod = resources(
        "web",
        vec![devices_on(long, &[]), devices_on(ids(100), &[]), devices_on(ids(100), &[])],
    );
    let kept = devices_of(pod, "app").iter().map(|it| it.ids.len()).collect::<Vec<_>>();
    assert_eq!(kept, [1, 100, 27]);
}

#[test]
fn two_pods_of_one_name_have_no_devices() {
    let named = |names: &[&str]| {
        let pods = names.iter().map(|name| resources(name, vec![devices_on(vec![], &[1])]));
        devices_named(pods.collect(), "shop", "web", "app").len()
    };
    assert_eq!(named(&["web", "other"]), 1);
    assert_eq!(named(&["web", "web"]), 0);
    assert_eq!(named(&["other"]), 0);
}

#[tokio::test]
async fn a_list_that_is_too_long_is_told_from_a_kubelet_that_is_away() {
    let (dir, kubelet) = (TempDir::new().unwrap(), FakeKubelet::default());
    kubelet.set_pods(vec![web()]);
    let pods = KubeletPods::new(dir.path().join("kubelet.sock"));
    let kind = async |len_max| soon(pods.list_within(len_max)).await.map_err(|it| it.kind());
    assert_eq!(kind(10).await.unwrap_err(), ErrorKind::Away);
    let _stop = serve(&kubelet, &dir);
    assert_eq!(kind(10).await.unwrap_err(), ErrorKind::TooLong);
    assert_eq!(kind(LIST_LEN_MAX).await.unwrap().len(), 1);
    kubelet.set_manner(Manner::Refuses);
    assert_eq!(kind(LIST_LEN_MAX).await.unwrap_err(), ErrorKind::Busy);
    kubelet.set_manner(Manner::Nonsense);
    assert_eq!(kind(LIST_LEN_MAX).await.unwrap_err(), ErrorKind::Refused);
}

/// Kubelet at a socket of its own; ends with the token.
fn serve(kubelet: &FakeKubelet, dir: &TempDir) -> CancellationToken {
    let path = dir.path().join("kubelet.sock");
    drop(std::fs::remove_file(&path));
    let listener = UnixListener::bind(path).unwrap();
    let (stop, kubelet) = (CancellationToken::new(), kubelet.clone());
    let ended = stop.clone().cancelled_owned();
    tokio::spawn(async move { kubelet.serve(listener, ended).await });
    stop
}

#[tokio::test]
async fn pods_are_got_listed_and_watched() {
    let (dir, kubelet) = (TempDir::new().unwrap(), FakeKubelet::default());
    kubelet.set_pods(vec![web()]);
    let _stop = serve(&kubelet, &dir);
    let pods = KubeletPods::new(dir.path().join("kubelet.sock"));
    let expected = parse_pod(&encode(&web())).unwrap();
    assert_eq!(soon(pods.get("uid-web")).await.unwrap(), Some(expected.clone()));
    assert_eq!(soon(pods.get("uid-none")).await.unwrap(), None);
    assert_eq!(soon(pods.list()).await.unwrap(), std::slice::from_ref(&expected));
    let mut watched = Box::pin(pods.watch());
    assert_eq!(soon(watched.next()).await.unwrap().unwrap(), expected);
}

#[tokio::test]
async fn devices_are_told_with_their_nodes() {
    let (dir, kubelet) = (TempDir::new().unwrap(), FakeKubelet::default());
    kubelet.set_pods(vec![web()]);
    let _stop = serve(&kubelet, &dir);
    let resources = PodResources::new(dir.path().join("kubelet.sock"));
    let nic = AssignedDevices {
        resource: "intel.com/nic".to_owned(),
        ids: vec!["0000:3b:02.0".to_owned()],
        nodes: [NodeId(1)].into_iter().collect(),
    };
    for (pod, container, expected) in
        [("web", "app", vec![nic.clone()]), ("web", "init", vec![]), ("other", "app", vec![])]
    {
        let found = soon(resources.of("shop", pod, container)).await.unwrap();
        assert_eq!(found, expected, "{pod} {container}");
        let listed = soon(resources.of_listed("shop", pod, container)).await.unwrap();
        assert_eq!(listed, expected, "{pod} {container}");
    }
    let inventory = soon(resources.inventory()).await.unwrap();
    assert_eq!((inventory.allocatable, inventory.given), (vec![nic.clone()], vec![nic]));
}

/// Each manner of a kubelet that does not answer well, and that it is heard again afterwards.
#[tokio::test]
async fn a_kubelet_that_is_away_stuck_or_odd_is_an_error_until_it_is_well() {
    let (dir, kubelet) = (TempDir::new().unwrap(), FakeKubelet::default());
    kubelet.set_pods(vec![web()]);
    let pods = KubeletPods::new(dir.path().join("kubelet.sock"));
    let away = soon(pods.get("uid-web")).await.unwrap_err().to_string();
    assert!(away.contains("kubelet.sock has not told of pods: Unavailable"), "{away}");
    let stop = serve(&kubelet, &dir);
    for (manner, expected) in [
        (Manner::Nonsense, "the bytes of a pod are none"),
        (Manner::Refuses, "ResourceExhausted"),
        (Manner::Never, "no answer"),
        (Manner::Well, "uid-web"),
    ] {
        kubelet.set_manner(manner);
        let asked = pods.get("uid-web");
        let told = match manner {
            Manner::Never => match tokio::time::timeout(Duration::from_millis(20), asked).await {
                Ok(told) => format!("{told:?}"),
                Err(_) => "no answer".to_owned(),
            },
            _ => format!("{:?}", soon(asked).await),
        };
        assert!(told.contains(expected), "{manner:?}: {told}");
    }
    // A restart.
    stop.cancel();
    let _stop = serve(&kubelet, &dir);
    let mut tries = 0;
    while soon(pods.get("uid-web")).await.is_err() {
        tries += 1;
        assert!(tries < 1000, "not heard again after a restart");
        tokio::task::yield_now().await;
    }
}
