//! Questions to a stand-in for kubelet's sockets.

use std::path::Path;

use bayplan_cri::kubelet_api::fake::{FakeContainer, FakeKubelet, FakePod, Manner};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;

fn pod() -> FakePod {
    let app = FakeContainer {
        name: "app".to_owned(),
        devices: vec![("a/b".to_owned(), vec!["0".to_owned()], vec![1])],
        ..FakeContainer::default()
    };
    FakePod {
        uid: "uid-web".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        containers: vec![app],
        ..FakePod::default()
    }
}

/// Kubelet at this socket until the guard is dropped.
fn serve(kubelet: &FakeKubelet, path: &Path) -> DropGuard {
    let (listener, kubelet) = (UnixListener::bind(path).unwrap(), kubelet.clone());
    let stop = CancellationToken::new();
    let ended = stop.clone().cancelled_owned();
    tokio::spawn(async move { kubelet.serve(listener, ended).await });
    stop.drop_guard()
}

fn lookup(path: &Path) -> PodLookup {
    PodLookup {
        pods: Some(Line::new(KubeletPods::new(path.to_owned()))),
        resources: Some(Line::new(PodResources::new(path.to_owned()))),
        told: Arc::default(),
        inventory: Arc::default(),
        metrics: Arc::new(Metrics::default()),
    }
}

/// Whether kubelet has told of the pod and of its devices. An answer may be late on a busy machine, which counts as silence once or twice.
async fn is_known(lookup: &PodLookup) -> (bool, bool) {
    let known = lookup.look_up("uid-web", ["shop", "web", "app"]).await;
    (known.pod.is_some(), !known.devices.is_empty())
}

#[tokio::test]
async fn a_kubelet_that_refuses_is_asked_again_and_never_left_alone() {
    let (dir, kubelet) = (TempDir::new().unwrap(), FakeKubelet::default());
    let path = dir.path().join("kubelet.sock");
    kubelet.set_pods(vec![pod()]);
    let _serving = serve(&kubelet, &path);
    let line = Line::new(KubeletPods::new(path));
    for manner in [Manner::Refuses, Manner::Nonsense, Manner::Refuses, Manner::Nonsense] {
        kubelet.set_manner(manner);
        let before = kubelet.asked();
        let asked = line.ask(|| line.client.get("uid-web")).await;
        // A late answer is one of two kinds of silence, and this machine may be slow.
        if matches!(asked, Asked::Failed) {
            let times = if manner == Manner::Refuses { 2 } else { 1 };
            assert_eq!(kubelet.asked() - before, times, "{manner:?}");
        }
    }
    assert!(line.may_ask());
}

#[tokio::test]
async fn lists_that_fail_keep_no_creation_from_asking() {
    let (dir, kubelet) = (TempDir::new().unwrap(), FakeKubelet::default());
    let path = dir.path().join("kubelet.sock");
    kubelet.set_pods(vec![pod()]);
    let lookup = lookup(&path);
    let line = lookup.pods.clone().unwrap();
    for _ in 0..5 {
        assert!(line.all(&Seen::default()).await.is_err_and(|it| it.is_usual));
    }
    assert!(line.may_ask());
    let _serving = serve(&kubelet, &path);
    kubelet.set_manner(Manner::Refuses);
    for _ in 0..5 {
        assert!(line.all(&Seen::default()).await.is_err_and(|it| !it.is_usual));
    }
    assert!(line.may_ask());
    kubelet.set_manner(Manner::Well);
    let listed = line.all(&Seen::default()).await;
    assert_eq!(listed.ok().unwrap().0.len(), 1);
    let mut tries = 0;
    while is_known(&lookup).await != (true, true) {
        tries += 1;
        assert!(tries < 3, "not asked");
    }
}

/// What a list that is too long leads to.
#[tokio::test]
async fn pods_that_are_known_are_asked_for_one_by_one() {
    let (dir, kubelet) = (TempDir::new().unwrap(), FakeKubelet::default());
    let path = dir.path().join("kubelet.sock");
    let line = Line::new(KubeletPods::new(path.clone()));
    let _serving = serve(&kubelet, &path);
    kubelet.set_pods(vec![pod()]);
    let gone = PodFacts { uid: "uid-gone".to_owned(), ..PodFacts::default() };
    let known = PodFacts { uid: "uid-web".to_owned(), ..PodFacts::default() };
    let found = line.each(&Seen::of(&[gone, known])).await;
    assert!(found.iter().any(|it| it.uid == "uid-web"), "{found:?}");
    assert!(found.len() <= 2);
}

#[test]
fn only_pods_that_are_others_are_news() {
    let mut seen = Seen::default();
    let pod = PodFacts { uid: "a".to_owned(), ..PodFacts::default() };
    let other = PodFacts { name: "b".to_owned(), ..pod.clone() };
    for (pod, expected) in [(&pod, true), (&pod, false), (&other, true), (&pod, true)] {
        assert_eq!(seen.is_news(pod), expected, "{pod:?}");
    }
}

#[tokio::test]
async fn an_inventory_that_cannot_be_read_is_not_empty() {
    let (dir, kubelet) = (TempDir::new().unwrap(), FakeKubelet::default());
    let path = dir.path().join("kubelet.sock");
    kubelet.set_pods(vec![pod()]);
    let lookup = lookup(&path);
    assert_eq!(lookup.inventory().await, Inventory::default());
    let serving = serve(&kubelet, &path);
    let mut told = lookup.inventory().await;
    while told == Inventory::default() {
        tokio::task::yield_now().await;
        told = lookup.inventory().await;
    }
    assert_eq!(told.allocatable.len(), 1);
    for manner in [Manner::Refuses, Manner::Nonsense] {
        kubelet.set_manner(manner);
        assert_eq!(lookup.inventory().await, told, "{manner:?}");
    }
    drop(serving);
    assert_eq!(lookup.inventory().await, told);
}
