//! Pods of the storm, what becomes of each, and what is counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec};
use bayplan_types::{Bytes, QosClass};
use futures::{StreamExt as _, stream};
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::world::call;

pub(crate) const POD_PATH: &str = "/api/v1/namespaces/default/pods";
/// Whole CPUs of one pod after the other: halves of a NUMA node, and much that leaves holes.
const SIZES: [u64; 8] = [1, 6, 2, 10, 3, 4, 8, 5];
/// One in so many has a share of the rest instead.
const BURSTABLE_EVERY: usize = 7;
/// How long a pod runs, by its number.
const LIVES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_millis(1500), Duration::from_millis(3000)];
/// Between attempts to create a container that was refused.
const RETRY: Duration = Duration::from_millis(500);
/// Pods that are made at a time.
const AT_ONCE: usize = 16;
const POLL: Duration = Duration::from_millis(100);
/// Without a pod that ends for so long, the rest is stuck.
const STUCK: Duration = Duration::from_secs(120);

/// What became of the pods.
pub(super) struct Tally {
    all: usize,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the node said first, by pod.
    refusals: BTreeMap<String, String>,
    /// From the storm's beginning until a container ran.
    waits: Vec<Duration>,
    ended: usize,
}

impl Tally {
    pub(super) fn new(all: usize) -> Tally {
        Tally { all, begun: Instant::now(), state: Mutex::default() }
    }

    pub(super) fn refused(&self) -> usize {
        self.state.lock().unwrap().refusals.len()
    }

    pub(super) fn refusals(&self) -> BTreeMap<String, String> {
        self.state.lock().unwrap().refusals.clone()
    }

    fn edit(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Waits until every pod has ended.
    pub(super) async fn is_over(&self, words: impl Fn() -> String) {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let ended = self.state.lock().unwrap().ended;
            if ended == self.all {
                return;
            }
            if ended > last {
                (last, since) = (ended, Instant::now());
            }
            assert!(
                since.elapsed() < STUCK,
                "{ended} of {} have ended\n{self}\n{}",
                self.all,
                words()
            );
            sleep(POLL).await;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap();
        let mut waits = state.waits.clone();
        waits.sort_unstable();
        let at = |part: usize| {
            let index = (waits.len() * part / 100).min(waits.len().saturating_sub(1));
            waits.get(index).map_or(0.0, Duration::as_secs_f64)
        };
        let refused = state.refusals.len();
        write!(
            f,
            "{refused} refused, {} ended; half ran after {:.1} s, 99 of 100 after {:.1} s",
            state.ended,
            at(50),
            at(99)
        )
    }
}

/// Makes all pods, as fast as the API server takes them.
pub(super) async fn make(admin: &Client, tally: &Tally) {
    let made = (0..tally.all).map(async |number| {
        let (status, told) = call(admin, "POST", POD_PATH, &object(number)).await;
        assert_eq!(status, 200, "{told}");
    });
    stream::iter(made).buffer_unordered(AT_ONCE).collect::<()>().await;
}

fn is_burstable(number: usize) -> bool {
    number % BURSTABLE_EVERY == BURSTABLE_EVERY - 1
}

fn cpus(number: usize) -> u64 {
    SIZES[number % SIZES.len()]
}

fn object(number: usize) -> Json {
    let amounts = match is_burstable(number) {
        true => json!({ "requests": { "cpu": "500m" } }),
        false => {
            let amounts = json!({ "cpu": cpus(number).to_string(), "memory": "64Mi" });
            json!({ "requests": amounts, "limits": amounts })
        }
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("storm-{number}"), "labels": { "storm": "x" } },
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "i", "resources": amounts }],
        },
    })
}

/// What kubelet does with a pod: its sandbox, its container, again where that is refused, its phase; after its time it ends and is deleted.
pub(super) async fn live(
    admin: Client,
    mut kubelet: Kubelet,
    pod: DynamicObject,
    tally: std::sync::Arc<Tally>,
) {
    let name = pod.name_any();
    let number: usize = name.trim_start_matches("storm-").parse().unwrap();
    let (qos, container) = match is_burstable(number) {
        true => (QosClass::Burstable, ContainerSpec::burstable("c", 500)),
        false => {
            let own = ContainerSpec::guaranteed("c", cpus(number) * 1000, Bytes(64 << 20));
            (QosClass::Guaranteed, own)
        }
    };
    let sandbox = kubelet.run_pod(&PodSpec::new(&name, qos)).await.unwrap();
    let mut attempt = 0;
    let id = loop {
        match kubelet.create(&sandbox, &container, attempt).await {
            Ok(id) => break id,
            Err(refusal) => tally.edit(|state| {
                state.refusals.entry(name.clone()).or_insert_with(|| refusal.message().to_owned());
            }),
        }
        attempt += 1;
        sleep(RETRY).await;
    };
    kubelet.start(&id).await.unwrap();
    tally.edit(|state| state.waits.push(tally.begun.elapsed()));
    let path = format!("{POD_PATH}/{name}");
    set_phase(&admin, &path, "Running").await;
    sleep(LIVES[number % LIVES.len()]).await;
    kubelet.end_pod(&sandbox).await.unwrap();
    set_phase(&admin, &path, "Succeeded").await;
    let deleted = call(&admin, "DELETE", &format!("{path}?gracePeriodSeconds=0"), &json!({})).await;
    assert_eq!(deleted.0, 200, "{name}: {}", deleted.1);
    tally.edit(|state| state.ended += 1);
}

async fn set_phase(admin: &Client, path: &str, phase: &str) {
    let merged = format!("{path}/status?fieldManager=kubelet");
    let (status, told) =
        call(admin, "PATCH", &merged, &json!({ "status": { "phase": phase } })).await;
    assert_eq!(status, 200, "{path}: {told}");
}
