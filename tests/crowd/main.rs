//! Agents of many nodes against one API server: what they ask of it at rest, while a configuration changes, and after it was away. Etcd and kube-apiserver are real, and so is the agent's
//! code (`bayplan_cluster::run_by`), each agent with a client and a token of its own; daemons are imagined, and all agents are one process. By hand, on a machine that is quiet otherwise:
//!
//! ```sh
//! BAYPLAN_CROWD=5000 cargo test --release -p bayplan-tests --test crowd -- --nocapture
//! ```
//!
//! | Variable | Says | Unless it is set |
//! |---|---|---|
//! | `BAYPLAN_CROWD` | agents | 100 |
//! | `BAYPLAN_CROWD_REST` | seconds of rest that are measured | 60 |
//! | `BAYPLAN_CROWD_ROLLOUT` | `rolloutSeconds` of the change | 60 |
//! | `BAYPLAN_CROWD_AWAY` | seconds without API server | 30 |
//! | `BAYPLAN_AGENT_PROGRAM` | the program of the one agent, as `target/package/bayplan`: then all of its resident memory counts | that of the tests |
//! | `BAYPLAN_CROWD_MAPS` | nodes in a status map as nri-plugins has it, one size after the other | `50,100` |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking, and tell what they have measured"
)]

mod agents;
#[allow(dead_code, reason = "the daemon's tests use more of it")]
#[path = "../daemon/engine.rs"]
mod engine;
mod figures;
mod imagined;
#[allow(dead_code, reason = "the daemon's tests use more of it")]
#[path = "../daemon/node.rs"]
mod node;
mod nodes;
mod one;
#[path = "../cluster/servers.rs"]
mod servers;
mod status_map;
#[allow(dead_code, reason = "the cluster's tests use more of it")]
#[path = "../cluster/world.rs"]
mod world;

use std::time::{Duration, Instant};

use kube::Client;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::agents::Crowd;
use crate::figures::{Figures, Phase};
use crate::servers::{ADMIN, Servers};
use crate::world::{CONFIGS, call};

/// Between two looks at the API server's figures while something happens.
const LOOK: Duration = Duration::from_secs(2);
/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(1800);
/// Agents make their first calls within this time for each hundred of them.
const START_PER_HUNDRED: Duration = Duration::from_secs(3);

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |it| it.parse().unwrap())
}

fn seconds(name: &str, otherwise: u64) -> Duration {
    Duration::from_secs(setting(name, otherwise))
}

/// Held by the test that measures.
static MACHINE: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn one_agent_needs_little() {
    let _machine = MACHINE.lock().await;
    let Some(servers) = Servers::start().await else { return };
    one::measure(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_agents_share_one_api_server() {
    let _machine = MACHINE.lock().await;
    let Some(mut servers) = Servers::start().await else { return };
    let count = usize::try_from(setting("BAYPLAN_CROWD", 100)).unwrap();
    let admin = world::client(&servers.address(), ADMIN).await;
    world::apply_manifests(&admin).await;
    configure(&admin, 0).await;
    nodes::make(&admin, count).await;
    let beats = tokio::spawn(nodes::beat(admin.clone(), count));
    let mut rows = Vec::new();
    let within = START_PER_HUNDRED * u32::try_from(count.div_ceil(100)).unwrap();
    let crowd = Crowd::start(&servers.address(), &admin, count, within).await;
    let name = format!("start, within {} s", within.as_secs());
    rows.push(phase(&name, &servers, &admin, async |_| crowd.all_hold(1)).await);
    // What follows a start at once: repairs of what was written too early.
    sleep(Duration::from_secs(20)).await;
    rows.push(rest("rest", &servers, &admin).await);
    let rollout = setting("BAYPLAN_CROWD_ROLLOUT", 60);
    let before = Figures::read_soon(&servers, &admin).await;
    configure(&admin, rollout).await;
    let name = format!("change, rolloutSeconds {rollout}");
    rows.push(phase_from(before, &name, &servers, &admin, async |_| crowd.all_hold(2)).await);
    crowd.is_shown(&admin, 2).await;
    rows.push(rest("rest after it", &servers, &admin).await);
    servers.stop_api();
    sleep(seconds("BAYPLAN_CROWD_AWAY", 30)).await;
    servers.start_api().await;
    let whole = u64::try_from(count).unwrap();
    let all_watch = async |now: &Figures| now.watches.iter().all(|it| *it >= whole);
    let (name, before) = ("API server started again", Figures::none(&servers));
    rows.push(phase_from(before, name, &servers, &admin, all_watch).await);
    rows.push(rest("rest after that", &servers, &admin).await);
    crowd.end();
    beats.abort();
    println!("{count} agents\n{}", figures::render(&rows));
    for size in std::env::var("BAYPLAN_CROWD_MAPS").as_deref().unwrap_or("50,100").split(',') {
        let row = status_map::measure(&servers, &admin, size.parse().unwrap()).await;
        println!("status map: {row}");
    }
}

/// One configuration for all nodes; its generation is one more each time.
async fn configure(admin: &Client, rollout: u64) {
    let level = if rollout == 0 { "info" } else { "debug" };
    let config = json!({
        "log": level,
        "reservedCpus": "0,56",
        "requests": { "topologyManagerPolicy": "single-numa-node" },
        "cpuClasses": { "classes": { "fast": { "minFreq": "3.4GHz", "maxFreq": "3.6GHz" } } },
    });
    let spec = json!({ "config": config, "rolloutSeconds": rollout });
    let object = json!({
        "apiVersion": "bayplan.dev/v1alpha1", "kind": "BayplanConfig", "metadata": { "name": "default" }, "spec": spec,
    });
    let (status, told) = call(admin, "PATCH", &format!("{CONFIGS}/default"), &object).await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(told["metadata"]["generation"], if rollout == 0 { 1 } else { 2 }, "{told}");
}

async fn rest(name: &str, servers: &Servers, admin: &Client) -> Phase {
    let (begun, wanted) = (Instant::now(), seconds("BAYPLAN_CROWD_REST", 60));
    phase(name, servers, admin, async |_| begun.elapsed() >= wanted).await
}

async fn phase(
    name: &str,
    servers: &Servers,
    admin: &Client,
    is_over: impl AsyncFn(&Figures) -> bool,
) -> Phase {
    let before = Figures::read_soon(servers, admin).await;
    phase_from(before, name, servers, admin, is_over).await
}

/// What was asked for until `is_over`.
async fn phase_from(
    before: Figures,
    name: &str,
    servers: &Servers,
    admin: &Client,
    is_over: impl AsyncFn(&Figures) -> bool,
) -> Phase {
    let begun = Instant::now();
    let (mut last, mut peak) = (before.clone(), 0.0_f64);
    loop {
        sleep(LOOK).await;
        let now = Figures::read_soon(servers, admin).await;
        peak = peak.max(now.rate_since(&last));
        let is_over = is_over(&now).await;
        if is_over {
            let phase = Phase::between(name, &before, &now, peak);
            println!("{}\n{}", phase.all(), phase.row());
            return phase;
        }
        assert!(begun.elapsed() < STUCK, "{name}: {now:?}");
        last = now;
    }
}
