//! The same change with the status of all nodes in one object, as nri-plugins has it: each node's agent watches the object of its own name and the one named default, and after each change of the
//! specification merges its own entry into `status.nodes`, which every other agent gets an event for. Tokens are the administrator's, so nothing holds requests off.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::json;
use tokio::time::sleep;

use crate::agents::client;
use crate::figures::Figures;
use crate::nodes::name;
use crate::servers::{ADMIN, Servers};
use crate::world::call;

const POLICIES: &str = "/apis/config.nri/v1alpha1/namespaces/kube-system/topologyawarepolicies";
const RESOURCE: &str = "topologyawarepolicies";
/// Before an agent watches again, always the same.
const REOPEN: Duration = Duration::from_secs(5);
/// A change that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(900);

/// No event for so long: the last one has come.
const QUIET: Duration = Duration::from_secs(2);

/// What all watches have got.
#[derive(Clone, Copy)]
struct Received {
    bytes: u64,
    /// When the last event came.
    last: Instant,
}

struct Node {
    client: Client,
    name: String,
    /// Generation of the specification that it has got an event of.
    seen: AtomicI64,
    /// The one that its entry tells.
    told: AtomicI64,
    /// Of all nodes.
    received: Arc<Mutex<Received>>,
}

impl Node {
    /// An event of this size.
    fn count(&self, bytes: u64) {
        let mut received = self.received.lock().unwrap();
        *received = Received { bytes: received.bytes + bytes, last: Instant::now() };
    }
}

/// One change, with a map that has an entry of every node already. Out: a line of figures.
pub(crate) async fn measure(servers: &Servers, admin: &Client, count: usize) -> String {
    configure(admin, 1).await;
    let received = Arc::new(Mutex::new(Received { bytes: 0, last: Instant::now() }));
    let node = |number: usize| {
        let client = client(&servers.address(), ADMIN.to_owned());
        Arc::new(Node {
            client,
            name: name(number),
            seen: AtomicI64::new(0),
            told: AtomicI64::new(0),
            received: Arc::clone(&received),
        })
    };
    let nodes: Vec<Arc<Node>> = (0..count).map(node).collect();
    let mut tasks = Vec::new();
    for node in &nodes {
        tasks.push(tokio::spawn(watch(Arc::clone(node), format!("node.{}", node.name))));
        tasks.push(tokio::spawn(watch(Arc::clone(node), "default".to_owned())));
    }
    all_tell(&nodes, 1).await;
    sleep(REOPEN).await;
    let before = Figures::read_soon(servers, admin).await;
    let received_before = received.lock().unwrap().bytes;
    let begun = Instant::now();
    configure(admin, 2).await;
    let is_told = all_tell(&nodes, 2).await;
    let told = begun.elapsed().as_secs_f64();
    let all = await_last(&received).await;
    let now = Figures::read_soon(servers, admin).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    let object = call(admin, "GET", &format!("{POLICIES}/default"), &json!(null)).await.1;
    let [events, sent] = {
        let (now, before) = (now.sent_of(RESOURCE), before.sent_of(RESOURCE));
        [now[0] - before[0], now[1] - before[1]]
    };
    let [api, etcd, own] = now.cpu_since(&before);
    let deleted = call(admin, "DELETE", &format!("{POLICIES}/default"), &json!({})).await;
    assert_eq!(deleted.0, 200, "{}", deleted.1);
    let size = object.to_string().len();
    let missing = if is_told { "" } else { " (not all)" };
    format!(
        "{count} nodes: object {:.1} KiB; after one change all entries told in {told:.1} s{missing}; {events:.0} events of {:.1} MiB (received {:.1} MiB); {:.1} s until the last; CPU s of API server {api:.1}, etcd {etcd:.1}, readers {own:.1}",
        kib(size as u64),
        sent / 1_048_576.0,
        kib(all.bytes - received_before) / 1024.0,
        (all.last - begun).as_secs_f64(),
    )
}

/// Comes back when no further event is on its way.
async fn await_last(received: &Mutex<Received>) -> Received {
    loop {
        let seen = *received.lock().unwrap();
        if seen.last.elapsed() >= QUIET {
            return seen;
        }
        sleep(QUIET.saturating_sub(seen.last.elapsed())).await;
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

async fn configure(admin: &Client, number: u32) {
    let object = json!({
        "apiVersion": "config.nri/v1alpha1", "kind": "TopologyAwarePolicy",
        "metadata": { "name": "default", "namespace": "kube-system" },
        "spec": { "pinCPU": true, "pinMemory": true, "reservedResources": { "cpu": format!("{number}00m") } },
    });
    let (status, told) = call(admin, "PATCH", &format!("{POLICIES}/default"), &object).await;
    assert_eq!(status, 200, "{told}");
}

/// Waits until the entries of all nodes are written; whether that came to pass.
async fn all_tell(nodes: &[Arc<Node>], generation: i64) -> bool {
    let begun = Instant::now();
    while !nodes.iter().all(|it| it.told.load(Ordering::Relaxed) == generation) {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        sleep(Duration::from_millis(100)).await;
    }
    true
}

/// Watches one object for ever.
async fn watch(node: Arc<Node>, object: String) {
    loop {
        // What ends a watch is not told from what refuses it.
        let _ended = watch_once(&node, &object).await;
        sleep(REOPEN).await;
    }
}

async fn watch_once(node: &Arc<Node>, object: &str) -> anyhow::Result<()> {
    let path = format!("{POLICIES}?watch=true&fieldSelector=metadata.name={object}");
    let request = http::Request::get(path).body(Vec::new())?;
    let mut lines = std::pin::pin!(node.client.request_stream(request).await?.lines());
    while let Some(line) = lines.try_next().await? {
        node.count(u64::try_from(line.len())?);
        // Of the metadata, which come before the map.
        let Some((_, rest)) = line.split_once("\"generation\":") else { continue };
        let digits = rest.split(|it: char| !it.is_ascii_digit()).next().unwrap_or_default();
        let generation = digits.parse()?;
        if node.seen.fetch_max(generation, Ordering::Relaxed) < generation {
            tell(node, generation).await;
            node.told.store(generation, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Merges the node's entry into the map.
async fn tell(node: &Node, generation: i64) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let entry = json!({ "status": "Success", "generation": generation, "timestamp": now });
    let path = format!("{POLICIES}/default/status?fieldManager=nri-{}", node.name);
    let patch = json!({ "status": { "nodes": { &node.name: entry } } });
    let (status, told) = call(&node.client, "PATCH", &path, &patch).await;
    assert_eq!(status, 200, "{told}");
}
