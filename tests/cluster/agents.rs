//! Many agents against one API server. In: their number (`BAYPLAN_AGENTS`, else a few). Out: each node has its BayplanNode under the configuration, with daemons that
//! only say what they were told, and figures of the API server at rest, during a change, and after its restart.
//!
//! Each agent is the product's own, as a task, with a connection and a token of its own; its node exists in the API server alone.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bayplan_cluster::{AgentOptions, Answer, Converted, Daemon, FeatureOptions, Method, run_with};
use futures::{StreamExt as _, stream};
use kube::Client;
use serde_json::{Value as Json, json};
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::world::{CONFIGS, World, client, until_within};

/// Without a wish for more, so that the test takes seconds.
const FEW: usize = 20;
/// How long figures are taken at rest.
const REST_MANY: Duration = Duration::from_secs(120);
const REST_FEW: Duration = Duration::from_secs(2);
/// Nodes that are made, or asked about, at a time.
const AT_A_TIME: usize = 16;
const NODES: &str = "/apis/bayplan.dev/v1alpha1/bayplannodes";

/// A daemon that takes every configuration.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Option<(String, i64)>>>);

impl Daemon for Told {
    async fn ask(&self, method: Method, path: &str, _: String) -> Result<Answer, String> {
        let good = |body: Json| Ok(Answer { status: 200, body: body.to_string().into_bytes() });
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let value = |key: &str| {
            query
                .split('&')
                .find_map(|it| Some(it.split_once('=').filter(|it| it.0 == key)?.1.to_owned()))
        };
        match (method, path) {
            (Method::Get, "/api/v1/status") => {
                let held = self.0.lock().unwrap().clone();
                let cluster = held
                    .map(|(name, generation)| json!({ "name": name, "generation": generation }));
                good(json!({
                    "version": "0", "mode": "placing", "containers": [], "config": { "cluster": cluster },
                    "cpus": { "exclusive": "", "shared": "0-63", "reserved": "", "isolated": "" },
                }))
            }
            (Method::Get, "/api/v1/events") => {
                sleep(Duration::from_secs(30)).await;
                good(json!({ "run": "r", "next": 0, "missed": 0, "events": [] }))
            }
            (Method::Post, "/api/v1/config/cluster") => {
                let generation = value("generation").and_then(|it| it.parse().ok());
                *self.0.lock().unwrap() = value("name").zip(generation);
                good(json!({ "changes": [], "moves": [] }))
            }
            (_, "/api/v1/config/cluster/diff") => {
                good(json!({ "changes": [{ "key": "k", "needs_restart": false }], "moves": [] }))
            }
            _ => good(json!({})),
        }
    }
}

/// Of the API server, since it was started.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    requests: f64,
    watch_events: f64,
    cpu_seconds: f64,
    resident_mib: f64,
    watches: f64,
}

impl Figures {
    /// From its own metrics, in Prometheus' text form.
    async fn read(admin: &Client) -> Figures {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = admin.request_text(request).await.unwrap();
        let sum = |name: &str, is_counted: &dyn Fn(&str) -> bool| -> f64 {
            let lines = text.lines().filter(|line| {
                line.strip_prefix(name).is_some_and(|it| it.starts_with(['{', ' ']))
                    && is_counted(line)
            });
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        let all = |_: &str| true;
        // What the agents ask for, without the API server's calls of itself.
        let is_agents = |line: &str| {
            ["bayplannodes", "bayplanconfigs", "nodes", "events"]
                .iter()
                .any(|it| line.contains(&format!("resource=\"{it}\"")))
        };
        Figures {
            requests: sum("apiserver_request_total", &is_agents),
            watch_events: sum("apiserver_watch_events_total", &all),
            cpu_seconds: sum("process_cpu_seconds_total", &all),
            resident_mib: sum("process_resident_memory_bytes", &all) / f64::from(1 << 20),
            watches: sum("apiserver_longrunning_requests", &is_agents),
        }
    }

    fn say(self, what: &str, since: Figures, took: Duration) {
        let per_second = |now: f64, before: f64| (now - before) / took.as_secs_f64();
        println!(
            "{what}: {:.0} s; {:.1} requests/s, {:.1} watch events/s, {:.2} CPUs, {:.0} MiB, {:.0} watches",
            took.as_secs_f64(),
            per_second(self.requests, since.requests),
            per_second(self.watch_events, since.watch_events),
            per_second(self.cpu_seconds, since.cpu_seconds),
            self.resident_mib,
            self.watches,
        );
    }
}

fn node_name(index: usize) -> String {
    format!("many-{index}")
}

/// How many nodes have a BayplanNode under this generation.
async fn under(world: &World, generation: i64) -> usize {
    let list = world
        .read(&format!("{NODES}?fieldSelector=status.configName%3DBayplanConfig%2Fdefault"))
        .await;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let is_many =
        |it: &&Json| it["metadata"]["name"].as_str().is_some_and(|it| it.starts_with("many-"));
    let of_many = items.iter().filter(is_many);
    of_many.filter(|it| it["status"]["configGeneration"] == generation).count()
}

async fn configure(world: &World, cpus: &str, rollout_seconds: u64) -> i64 {
    let spec = json!({ "config": { "reservedCpus": cpus }, "maxMoves": 9, "rolloutSeconds": rollout_seconds });
    world.configure("default", spec).await;
    world.read(&format!("{CONFIGS}/default")).await["metadata"]["generation"].as_i64().unwrap()
}

/// Nodes with tokens of agents that run there.
async fn make_nodes(world: &World, count: usize) -> Vec<(String, String)> {
    let made = stream::iter(0..count).map(|it| world.make_node(node_name(it)));
    made.buffer_unordered(AT_A_TIME).collect().await
}

/// How much is done: of agents, and of time.
struct Plan {
    agents: usize,
    rest: Duration,
    rollout_seconds: u64,
    start_within: Duration,
}

impl Plan {
    fn new() -> Plan {
        match std::env::var("BAYPLAN_AGENTS") {
            Ok(wanted) => Plan {
                agents: wanted.parse().unwrap(),
                rest: REST_MANY,
                rollout_seconds: 60,
                start_within: Duration::from_secs(60),
            },
            Err(_) => Plan {
                agents: FEW,
                rest: REST_FEW,
                rollout_seconds: 0,
                start_within: Duration::ZERO,
            },
        }
    }
}

/// Begins and ends with the BayplanConfig `default`.
pub(crate) async fn many_agents_are_few_requests(world: &mut World) {
    let plan = Plan::new();
    let nodes = make_nodes(world, plan.agents).await;
    let mut clients = Vec::new();
    for (node, token) in nodes {
        clients.push((node, client(&world.servers.address(), &token).await));
    }
    // One thread for all of them: they wait nearly always.
    let agents = LocalSet::new();
    agents.run_until(play(world, &plan, clients)).await;
}

async fn play(world: &mut World, plan: &Plan, clients: Vec<(String, Client)>) {
    let (admin, count) = (world.client(), plan.agents);
    let generation = configure(world, "0,8", plan.rollout_seconds).await;
    let (begun, before) = (Instant::now(), Figures::read(&admin).await);
    for (node, client) in clients {
        let options = AgentOptions {
            node,
            start_within: plan.start_within,
            parts: Default::default(),
            features: FeatureOptions::default(),
            accepted: Vec::new(),
            convert: |_| Ok(Converted::default()),
        };
        tokio::task::spawn_local(run_with(client, options, Told::default()));
    }
    are_under(world, generation, count).await;
    Figures::read(&admin).await.say(&format!("{count} agents start"), before, begun.elapsed());

    let (begun, before) = (Instant::now(), Figures::read(&admin).await);
    sleep(plan.rest).await;
    Figures::read(&admin).await.say("at rest", before, begun.elapsed());

    let (begun, before) = (Instant::now(), Figures::read(&admin).await);
    let generation = configure(world, "1,9", plan.rollout_seconds).await;
    are_under(world, generation, count).await;
    Figures::read(&admin).await.say("a change", before, begun.elapsed());

    world.servers.stop_api();
    world.servers.start_api().await;
    let begun = Instant::now();
    let generation = configure(world, "0,8", 0).await;
    are_under(world, generation, count).await;
    Figures::read(&admin).await.say("after a restart", Figures::default(), begun.elapsed());
}

async fn are_under(world: &World, generation: i64, count: usize) {
    let limit = Duration::from_secs(600);
    until_within("every node is under the configuration", limit, async || {
        under(world, generation).await == count
    })
    .await;
}
