//! Rounds of an agent without API server.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::json;

use super::*;
use crate::foreign::{Converted, ForeignKind, Question, candidates};

/// Tells of this machine, but not of 0.
#[derive(Default)]
struct Changing(AtomicU32);

impl Daemon for Changing {
    async fn ask(&self, _: Method, _: &str, _: String) -> Result<Answer, String> {
        let number = self.0.load(Ordering::Relaxed);
        let status = if number == 0 { 503 } else { 200 };
        Ok(Answer { status, body: format!("machine {number}").into_bytes() })
    }
}

/// Keeps what it is given, as a daemon does.
#[derive(Default)]
struct Keeping {
    held: Mutex<(Json, Json, Json)>,
    asked: Mutex<Vec<String>>,
    /// What it is given would move an exclusive container.
    moves: AtomicBool,
}

impl Daemon for Keeping {
    async fn ask(&self, method: Method, path: &str, _: String) -> Result<Answer, String> {
        let (place, query) = path.split_once('?').unwrap_or((path, ""));
        let value = |key: &str| {
            let mut values = query.split('&').filter_map(|it| it.split_once('='));
            values.find(|it| it.0 == key).map(|it| it.1)
        };
        if let Some(rest) = place.strip_prefix("/api/v1/config/cluster") {
            self.asked.lock().unwrap().push(format!("{method:?}{rest} {query}"));
        }
        let mut held = self.held.lock().unwrap();
        let number = |key| value(key).map_or(Json::Null, |it| it.parse::<i64>().unwrap().into());
        let told = match (method, place) {
            (_, "/api/v1/config/cluster/diff") => {
                let shift =
                    json!({ "container": "n/p/c", "exclusive_from": "1", "exclusive_to": "2" });
                let moves = self.moves.load(Ordering::Relaxed).then_some(shift);
                let moves: Vec<Json> = moves.into_iter().collect();
                json!({ "changes": [{ "key": "log" }], "moves": moves })
            }
            (_, "/api/v1/config/cluster") => {
                *held =
                    (json!(value("name")), number("generation"), number("amplification_percent"));
                Json::Null
            }
            _ => {
                let (name, generation, percent) = held.clone();
                let amplification = json!({ "percent": percent, "holds": true });
                let amplification = if percent.is_null() { Json::Null } else { amplification };
                let cluster = json!({ "name": name, "generation": generation, "amplification": amplification });
                json!({ "config": { "cluster": cluster } })
            }
        };
        Ok(Answer { status: 200, body: told.to_string().into_bytes() })
    }
}

/// A ratio of the Node, generation and `rolloutSeconds` of an object, and whether it would move something; what the daemon is asked then, one after the other.
type Round = (&'static str, Option<(i64, u32)>, bool, &'static [&'static str]);

const DAY: u32 = 86_400;
const ROUNDS: &[Round] = &[
    ("", None, false, &[]),
    (
        r#"{"cpu":1.5}"#,
        None,
        false,
        &["Post/diff amplification_percent=150", "Post amplification_percent=150"],
    ),
    (r#"{"cpu":1.5}"#, None, false, &[]),
    // What cannot be understood changes nothing.
    ("1.2", None, false, &[]),
    (r#"{"memory":2}"#, None, false, &["Get/diff ", "Delete "]),
    ("", Some((1, 0)), false, &["Post/diff OBJECT=1", "Post OBJECT=1"]),
    (
        r#"{"cpu":1.2}"#,
        Some((1, 0)),
        false,
        &[
            "Post/diff OBJECT=1&amplification_percent=120",
            "Post OBJECT=1&amplification_percent=120",
        ],
    ),
    (r#"{"cpu":0.5}"#, Some((1, 0)), false, &[]),
    (
        r#"{"cpu":0.5}"#,
        Some((2, 0)),
        false,
        &[
            "Post/diff OBJECT=2&amplification_percent=120",
            "Post OBJECT=2&amplification_percent=120",
        ],
    ),
    // Both brakes.
    (r#"{"cpu":1.3}"#, Some((2, 0)), true, &["Post/diff OBJECT=2&amplification_percent=130"]),
    (r#"{"cpu":1.4}"#, Some((2, DAY)), false, &["Post/diff OBJECT=2&amplification_percent=140"]),
    (
        r#"{"cpu":1.2}"#,
        None,
        false,
        &["Post/diff amplification_percent=120", "Post amplification_percent=120"],
    ),
];

fn amplified(ratio: &str, object: Option<(i64, u32)>) -> World {
    let key = "node.koordinator.sh/resource-amplification-ratio".to_owned();
    let annotations = Some(ratio).filter(|it| !it.is_empty()).map(|it| (key, it.to_owned()));
    let node = NodeObject {
        name: "n1".to_owned(),
        annotations: annotations.into_iter().collect(),
        ..NodeObject::default()
    };
    let config = object.map(|(generation, rollout_seconds)| ConfigObject {
        rollout_seconds,
        ..ConfigObject::empty("default", generation)
    });
    let configs = config.into_iter().map(|it| (it.name.clone(), it)).collect();
    World { node: Some(node), configs: Some(configs), ..World::default() }
}

#[tokio::test]
async fn the_nodes_amplification_comes_with_the_object_or_alone() {
    let mut options = options("n1");
    options.accepted.clear();
    let (cluster, daemon) = (Cluster::unreachable("n1"), Keeping::default());
    let mut agent = Agent::new(&options, &cluster, &daemon, watch::channel(World::default()).1);
    for (ratio, object, moves, expected) in ROUNDS {
        daemon.moves.store(*moves, Ordering::Relaxed);
        agent.round(&amplified(ratio, *object)).await;
        let asked = std::mem::take(&mut *daemon.asked.lock().unwrap());
        let of_object = |it: &&str| it.replace("OBJECT", "name=BayplanConfig/default&generation");
        let expected: Vec<String> = expected.iter().map(of_object).collect();
        assert_eq!(asked, expected, "{ratio} {object:?}");
    }
}

/// Issue 34: an older daemon takes the query and leaves the ratio out; the one that replaced it was never told.
#[tokio::test]
async fn a_daemon_without_the_nodes_amplification_is_told_again() {
    let mut options = options("n1");
    options.accepted.clear();
    let (cluster, daemon) = (Cluster::unreachable("n1"), Keeping::default());
    let mut agent = Agent::new(&options, &cluster, &daemon, watch::channel(World::default()).1);
    let world = amplified(r#"{"cpu":1.5}"#, Some((1, 0)));
    for forgets in [false, true, false] {
        if forgets {
            daemon.held.lock().unwrap().2 = Json::Null;
        }
        daemon.asked.lock().unwrap().clear();
        agent.round(&world).await;
        assert_eq!(daemon.held.lock().unwrap().2, 150);
    }
    assert!(daemon.asked.lock().unwrap().is_empty());
}

/// 5,000 agents wrote in the same moment that they wait.
#[tokio::test]
async fn that_a_node_waits_is_told_later_on_one_node_than_on_the_next() {
    let mut told = Vec::new();
    for node in ["n1", "n2", "n3", "n4"] {
        let options = options(node);
        let (cluster, daemon) = (Cluster::unreachable(node), Changing::default());
        let world = watch::channel(World::default()).1;
        let mut agent = Agent::new(&options, &cluster, &daemon, world);
        let key = (Some(("default".to_owned(), 2)), None);
        agent.seen = Some((key.clone(), Instant::now()));
        assert_eq!(agent.too_early_to_tell(&Applied::Holds), None);
        let left = agent.too_early_to_tell(&Applied::Waiting(60)).unwrap();
        assert!(left < WAITING_TOLD_WITHIN, "{left:?}");
        told.push(left);
        agent.seen = Some((key, Instant::now() - WAITING_TOLD_WITHIN));
        assert_eq!(agent.too_early_to_tell(&Applied::Waiting(60)), None);
    }
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 4, "{told:?}");
}

fn options(node: &str) -> AgentOptions {
    AgentOptions {
        node: node.to_owned(),
        start_within: Duration::ZERO,
        parts: BTreeSet::new(),
        features: FeatureOptions::default(),
        removed: None,
        feeds_pods: false,
        accepted: vec!["nri-plugins".parse().unwrap()],
        convert,
    }
}

fn convert(question: &Question<'_>) -> Result<Converted, String> {
    let text = format!("{:?} {:?}", question.group, question.machine);
    Ok(Converted { text, lost: Vec::new() })
}

#[tokio::test]
async fn an_object_is_converted_with_the_machine_and_anew_for_another_one_or_another_group() {
    let options = options("n");
    let (cluster, daemon) = (Cluster::unreachable("n"), Changing::default());
    let mut agent = Agent::new(&options, &cluster, &daemon, watch::channel(World::default()).1);
    let node = |group: &str| {
        let labels = BTreeMap::from([("config.nri/group".to_owned(), group.to_owned())]);
        NodeObject { name: "n".to_owned(), labels, ..NodeObject::default() }
    };
    let name = candidates(&options.accepted, &node("a")).remove(0);
    let object = json!({ "metadata": { "name": "node.n" }, "spec": {} });
    let object = ForeignObject::read(&object, ForeignKind::Balloons);
    for (group, machine, expected) in [
        ("a", 0, Err("machine 0")),
        ("a", 1, Ok("Some(\"a\") Some(\"machine 1\")")),
        ("a", 1, Ok("Some(\"a\") Some(\"machine 1\")")),
        // Issue 34: after hot-plug it was as for the machine of before.
        ("a", 2, Ok("Some(\"a\") Some(\"machine 2\")")),
        ("a", 0, Ok("Some(\"a\") Some(\"machine 2\")")),
        ("b", 0, Err("machine 0")),
        ("b", 2, Ok("Some(\"b\") Some(\"machine 2\")")),
    ] {
        daemon.0.store(machine, Ordering::Relaxed);
        let found = agent.converted(&node(group), &name, &object).await;
        let found = found.as_ref().map(|it| it.text.as_str()).map_err(String::as_str);
        assert_eq!(found, expected, "{group}");
    }
}
