//! Every write of an agent that starts is interrupted: the agent is killed before the API server has it, the agent is killed before it has the answer, the daemon is killed and started anew
//! meanwhile. In: a node of which nothing is published, and a configuration that the daemon does not have yet. Out: a node on which nothing has changed, and after the agent's next start the same
//! objects as without an interruption.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio::time::{sleep, timeout};

use crate::publishing::{FEATURES, OWN, TOPOLOGY};
use crate::world::{CONFIGS, NODES, World};
use crate::write_relay::{Moment, WriteRelay};

/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);
/// Longer than the agent pauses between two rounds of writes.
const CALM: Duration = Duration::from_secs(12);
/// What is another after each start, or each change of the configuration.
const PASSING: [&str; 10] = [
    "configGeneration",
    "configHash",
    "creationTimestamp",
    "generation",
    "lastHeartbeatTime",
    "lastSync",
    "lastTransitionTime",
    "observedGeneration",
    "resourceVersion",
    "uid",
];

#[derive(Clone, Copy, Debug)]
enum Interruption {
    /// `kill -9` of the agent.
    Agent(Moment),
    /// `kill -9` of the daemon, and its start; the agent lives on.
    Daemon,
}

/// One start without an interruption shows which writes there are.
pub(crate) async fn interrupted_writes_change_nothing_and_are_made_up_for(world: &mut World) {
    world.kill_agent();
    world.remove(TOPOLOGY).await;
    let mut relay = WriteRelay::start(world.client_as_agent().await).await;
    withdraw(world, 0).await;
    world.restart_agent_by(&relay.address).await;
    let expected = calm(world).await;
    let writes = relay.take_writes();
    println!("writes of an agent that starts: {writes:#?}");
    // An event, the BayplanNode and its status, the Node's labels and taints, features, extended resources and condition, the NodeResourceTopology.
    assert!(writes.len() >= 8, "{writes:#?}");
    let before = placed(world).await;
    for (number, write) in writes.iter().enumerate() {
        for (way, interruption) in [
            Interruption::Agent(Moment::Sent),
            Interruption::Agent(Moment::Answered),
            Interruption::Daemon,
        ]
        .into_iter()
        .enumerate()
        {
            let begun = Instant::now();
            withdraw(world, 1 + 3 * number + way).await;
            interrupt(world, &mut relay, write, interruption).await;
            assert_eq!(placed(world).await, before, "{write} {interruption:?}");
            converge(world, &expected, &format!("{write} {interruption:?}")).await;
            assert_eq!(placed(world).await, before, "{write} {interruption:?}");
            println!("{write} {interruption:?}: as before after {:?}", begun.elapsed());
        }
    }
    world.restart_agent().await;
}

/// Takes back whatever agents have written, and makes a change of the configuration for the next one.
async fn withdraw(world: &mut World, number: usize) {
    world.kill_agent();
    world.withdraw();
    let own = format!("{NODES}/n1");
    if world.as_admin("GET", &own, &Json::Null).await.0 == 200 {
        world.remove(&own).await;
    }
    let taint = |key: &str| json!({ "key": key, "value": "x", "effect": "NoSchedule" });
    let taints = json!([taint("bayplan.dev/not-ready"), taint("foreign")]);
    world.merge_into(OWN, json!({ "spec": { "taints": taints } })).await;
    // It moves nothing.
    let config =
        json!({ "reservedCpus": "3,11", "sweepInterval": format!("{}s", 30 + number % 2) });
    world.configure("default", json!({ "config": config, "maxMoves": 9 })).await;
}

/// Starts an agent, and interrupts this write; an agent that was killed is started again.
async fn interrupt(
    world: &mut World,
    relay: &mut WriteRelay,
    write: &str,
    interruption: Interruption,
) {
    let moment = match interruption {
        Interruption::Agent(moment) => moment,
        Interruption::Daemon => Moment::Sent,
    };
    relay.hold(write, moment);
    world.restart_agent_by(&relay.address).await;
    let held = timeout(STUCK, relay.held()).await;
    let held =
        held.unwrap_or_else(|_| panic!("it did not write {write}; {:#?}", relay.take_writes()));
    match interruption {
        Interruption::Agent(_) => {
            world.kill_agent();
            drop(held);
            world.node.wait_until_in_line().await;
            world.restart_agent_by(&relay.address).await;
        }
        Interruption::Daemon => {
            world.node.kill_daemon();
            world.node.spawn_daemon("").await;
            world.node.wait_until_in_line().await;
            drop(held);
        }
    }
}

/// Places, as the daemon and as the runtime has them.
async fn placed(world: &World) -> String {
    let cpus = world.node.status().await.cpus;
    format!("{:#?} {cpus:#?} {:#?}", world.places().await, world.node.live())
}

/// The objects of the node, without what passes, and whether they are about the configuration as it is now.
async fn objects(world: &World) -> (Json, bool) {
    let own = world.read(&format!("{NODES}/n1")).await;
    let config = world.read(&format!("{CONFIGS}/default")).await;
    let is_of_now = own["status"]["configGeneration"] == config["metadata"]["generation"];
    let mut objects = json!({
        "own": own,
        "node": world.read(OWN).await,
        "topology": world.read(TOPOLOGY).await,
        "features": world.read(FEATURES).await,
    });
    strip(&mut objects);
    (objects, is_of_now)
}

fn strip(json: &mut Json) {
    match json {
        Json::Object(fields) => {
            fields.retain(|key, _| key != "managedFields" && !PASSING.contains(&key.as_str()));
            fields.values_mut().for_each(strip);
        }
        Json::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Waits until nothing changes any more.
async fn calm(world: &World) -> Json {
    let (begun, mut since, mut last) = (Instant::now(), Instant::now(), Json::Null);
    loop {
        let (now, is_of_now) = objects(world).await;
        if now != last || !is_of_now {
            (since, last) = (Instant::now(), now);
        }
        if since.elapsed() > CALM {
            return last;
        }
        assert!(begun.elapsed() < STUCK, "{last:#}");
        sleep(POLL).await;
    }
}

async fn converge(world: &World, expected: &Json, after: &str) {
    let begun = Instant::now();
    loop {
        let (now, is_of_now) = objects(world).await;
        if is_of_now && now == *expected {
            return;
        }
        assert!(begun.elapsed() < STUCK, "{after}: {now:#}\nexpected {expected:#}");
        sleep(POLL).await;
    }
}
