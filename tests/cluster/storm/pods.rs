//! Pods of the storm: what each asks for, and its life on the node that the scheduler has chosen.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::side::Side;
use super::tally::Tally;
use crate::world::call;

pub(crate) const POD_PATH: &str = "/api/v1/namespaces/default/pods";
/// Whole CPUs of one pod after the other: halves of a NUMA node, and much that leaves holes.
const SIZES: [u32; 8] = [1, 6, 2, 10, 3, 4, 8, 5];
/// One in so many has a share of the rest instead.
const BURSTABLE_EVERY: usize = 7;
/// Of that, in thousandths of a CPU.
const SHARE: u32 = 500;
/// How long a pod runs, by its number.
const LIVES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_millis(1500), Duration::from_millis(3000)];
/// Between attempts to create a container that was refused, and before another pod is made for one that has failed.
const RETRY: Duration = Duration::from_millis(500);
/// Pods that are made at a time.
const AT_ONCE: usize = 16;

/// What a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Whole CPUs, Guaranteed.
    Cpus(u32),
    /// Thousandths of a CPU, Burstable.
    Share(u32),
}

/// Makes all pods, as fast as the API server takes them.
pub(super) async fn make(admin: &Client, count: usize) {
    let made = (0..count).map(async |number| {
        let name = format!("storm-{number}");
        let (status, told) = call(admin, "POST", POD_PATH, &object(&name, ask(number))).await;
        assert_eq!(status, 200, "{told}");
    });
    stream::iter(made).buffer_unordered(AT_ONCE).collect::<()>().await;
}

fn ask(number: usize) -> Ask {
    match number % BURSTABLE_EVERY == BURSTABLE_EVERY - 1 {
        true => Ask::Share(SHARE),
        false => Ask::Cpus(SIZES[number % SIZES.len()]),
    }
}

fn object(name: &str, ask: Ask) -> Json {
    let amounts = match ask {
        Ask::Share(milli) => json!({ "requests": { "cpu": format!("{milli}m") } }),
        Ask::Cpus(cpus) => {
            let amounts = json!({ "cpu": cpus.to_string(), "memory": "64Mi" });
            json!({ "requests": amounts, "limits": amounts })
        }
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "storm": "x" } },
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "i", "resources": amounts }],
        },
    })
}

/// The number of a pod: `storm-NUMBER`, or `storm-NUMBER-ATTEMPT` for one that stands in for a pod that has failed.
fn number_and_attempt(name: &str) -> (usize, usize) {
    let mut parts = name.split('-').skip(1).map(|it| it.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap_or(0))
}

/// Starts what is bound to the node until it is dropped.
pub(super) async fn serve(admin: Client, node: String, side: Side, tally: Arc<Tally>) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &kind);
    let config = watcher::Config::default();
    let config = config.fields(&format!("spec.nodeName={node}")).labels("storm");
    let mut events = watcher(api, config).default_backoff().boxed();
    let (mut begun, mut lives) = (BTreeSet::new(), JoinSet::new());
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event
            && begun.insert(pod.name_any())
        {
            lives.spawn(live(admin.clone(), side.clone(), pod, Arc::clone(&tally)));
        }
    }
}

/// What a node does with a pod: it starts, again where its container was refused; after its time it ends and is deleted. A pod that has failed at admission is deleted, and another
/// one made, as a controller does.
async fn live(admin: Client, mut side: Side, pod: DynamicObject, tally: Arc<Tally>) {
    let name = pod.name_any();
    let (number, attempt) = number_and_attempt(&name);
    let ask = ask(number);
    let path = format!("{POD_PATH}/{name}");
    tally.is_scheduled();
    let mut started = side.begin(&name, ask).await;
    while let Err(refusal) = &started {
        tally.is_refused(&name, refusal);
        if side.refuses_for_good() {
            set_phase(&admin, &path, "Failed").await;
            sleep(RETRY).await;
            delete(&admin, &path).await;
            let next = object(&format!("storm-{number}-{}", attempt + 1), ask);
            let (status, told) = call(&admin, "POST", POD_PATH, &next).await;
            assert_eq!(status, 200, "{told}");
            return;
        }
        sleep(RETRY).await;
        started = side.begin(&name, ask).await;
    }
    tally.runs(started.unwrap());
    set_phase(&admin, &path, "Running").await;
    sleep(LIVES[number % LIVES.len()]).await;
    side.end(&name, ask).await;
    set_phase(&admin, &path, "Succeeded").await;
    delete(&admin, &path).await;
    tally.has_ended();
}

async fn delete(admin: &Client, path: &str) {
    let at_once = format!("{path}?gracePeriodSeconds=0");
    let (status, told) = call(admin, "DELETE", &at_once, &json!({})).await;
    assert_eq!(status, 200, "{path}: {told}");
}

async fn set_phase(admin: &Client, path: &str, phase: &str) {
    let merged = format!("{path}/status?fieldManager=kubelet");
    let (status, told) =
        call(admin, "PATCH", &merged, &json!({ "status": { "phase": phase } })).await;
    assert_eq!(status, 200, "{path}: {told}");
}
