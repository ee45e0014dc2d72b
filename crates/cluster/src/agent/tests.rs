use std::sync::atomic::{AtomicU32, Ordering};

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

/// 5,000 agents wrote in the same moment that they wait.
#[tokio::test]
async fn that_a_node_waits_is_told_later_on_one_node_than_on_the_next() {
    let mut told = Vec::new();
    for node in ["n1", "n2", "n3", "n4"] {
        let options = options(node);
        let (cluster, daemon) = (Cluster::unreachable(node), Changing::default());
        let world = watch::channel(World::default()).1;
        let mut agent = Agent::new(&options, &cluster, &daemon, world);
        let key = ("default".to_owned(), 2);
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
