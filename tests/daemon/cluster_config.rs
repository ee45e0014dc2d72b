//! A configuration of the cluster: given over the control socket as the agent gives it, and kept for starts without the agent.

use std::fs;

use bayplan_daemon::{ConfigDiff, EventsView, ask_control};
use bayplan_node::status::Status;

use crate::node::{MACHINE, Node};
use crate::reload::{RELOAD, rename_over};

pub(crate) const HERE: &str = "/api/v1/config/cluster";

async fn ask(node: &Node, method: &str, path: &str, body: &str) -> (u16, String) {
    let asked = ask_control(&node.control_socket(), method, path, body.to_owned()).await;
    let (status, body) = asked.unwrap();
    (status, String::from_utf8(body).unwrap())
}

/// Gives a configuration, or asks what it would change.
pub(crate) async fn give(node: &Node, path: &str, generation: i64, text: &str) -> (u16, String) {
    let path = format!("{path}?name=BayplanConfig/default&generation={generation}");
    ask(node, "POST", &path, text).await
}

fn diff(answer: (u16, String)) -> ConfigDiff {
    assert_eq!(answer.0, 200, "{}", answer.1);
    serde_json::from_str(&answer.1).unwrap()
}

pub(crate) fn held(status: &Status) -> Option<(String, i64)> {
    let cluster = status.config.as_ref()?.cluster.as_ref()?;
    Some((cluster.name.clone()?, cluster.generation?))
}

async fn start(more: &str) -> Node {
    let mut node = Node::without_daemon(MACHINE);
    node.spawn_daemon(more).await;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_says_counts_instead_of_the_file_and_outlives_the_daemon() {
    let mut node = start("reservedCpus: \"0,8\"\npolicy: one-shared-pool\n").await;
    node.guaranteed("owner", 2000).await;
    assert_eq!(ask(&node, "GET", HERE, "").await.0, 404);
    let text = "reservedCpus: \"0-1,8-9\"\n";
    let told = diff(give(&node, &format!("{HERE}/diff"), 4, text).await);
    // Of the file, neither policy nor interval count any more.
    let keys: Vec<&str> = told.changes.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["policy", "reservedCpus", "resyncInterval"]);
    assert!(told.moves.iter().any(|it| it.container == "default/owner/owner"), "{told:?}");
    assert_eq!(
        (held(&node.status().await), node.status().await.cpus.reserved.as_str()),
        (None, "0,8")
    );

    assert_eq!(diff(give(&node, HERE, 4, text).await), told);
    let status = node.wait_until_in_line().await;
    let expected = Some(("BayplanConfig/default".to_owned(), 4));
    assert_eq!((held(&status), status.cpus.reserved.as_str()), (expected.clone(), "0-1,8-9"));
    assert!(ask(&node, "GET", HERE, "").await.1.contains("0-1,8-9"));
    // Given again, it changes nothing but the number.
    assert_eq!(diff(give(&node, HERE, 5, text).await).changes, []);
    let moved = async |node: &Node| {
        let (_, events) = ask(node, "GET", "/api/v1/events", "").await;
        let events: EventsView = serde_json::from_str(&events).unwrap();
        events.events.iter().filter(|it| it.kind == "moved" && it.pod == "owner").count()
    };
    assert_eq!(moved(&node).await, 1);

    node.kill_daemon();
    node.spawn_daemon("reservedCpus: \"0,8\"\npolicy: one-shared-pool\n").await;
    let status = node.wait_until_in_line().await;
    assert_eq!(held(&status), expected.map(|(name, _)| (name, 5)));
    assert_eq!(status.cpus.reserved, "0-1,8-9");
    assert_eq!(moved(&node).await, 0);

    let back = diff(ask(&node, "GET", &format!("{HERE}/diff"), "").await);
    assert_eq!(diff(ask(&node, "DELETE", HERE, "").await), back);
    assert_eq!(
        (held(&node.status().await), node.status().await.cpus.reserved.as_str()),
        (None, "0,8")
    );
    node.kill_daemon();
    node.spawn_daemon("reservedCpus: \"0,8\"\n").await;
    assert_eq!(held(&node.status().await), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_of_the_cluster_changes_nothing_and_says_where() {
    let mut node = start("").await;
    diff(give(&node, HERE, 1, "reservedCpus: \"0,8\"\n").await);
    node.guaranteed("owner", 2000).await;
    let before = node.wait_until_in_line().await;
    for (text, problem) in [
        ("onFailure: ajar\n", "BayplanConfig/default:1:12: `onFailure` is `ajar`"),
        ("\nsocket: /x\n", "BayplanConfig/default:2:9: `socket` is the node's own"),
        (
            "reservedCpus: \"64\"\n",
            "BayplanConfig/default:1:15: `reservedCpus`: reserved CPUs 64 are not online",
        ),
    ] {
        for path in [format!("{HERE}/diff"), HERE.to_owned()] {
            let (status, said) = give(&node, &path, 2, text).await;
            assert!(status == 422 && said.starts_with(problem), "{status} {said}");
        }
        let status = node.check_in_line().await;
        assert_eq!((held(&status), &status.containers), (held(&before), &before.containers));
        let cluster = status.config.unwrap().cluster.unwrap();
        assert!(cluster.problem.unwrap().starts_with(problem));
    }

    // What an older version has kept and this one refuses does not keep the node from starting.
    node.kill_daemon();
    let kept = node.state_dir().join("cluster-config.json");
    let text = fs::read_to_string(&kept).unwrap();
    fs::write(&kept, text.replace("reservedCpus", "reservedCpuz")).unwrap();
    node.spawn_daemon("reservedCpus: \"1,9\"\n").await;
    let status = node.status().await;
    let problem = status.config.clone().unwrap().cluster.unwrap().problem.unwrap();
    assert!(problem.contains("reservedCpuz"), "{problem}");
    assert_eq!((held(&status), status.cpus.reserved.as_str()), (None, "1,9"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_the_file_hold_again_when_the_cluster_has_nothing_more() {
    let node = start("").await;
    diff(give(&node, HERE, 1, "reservedCpus: \"0,8\"\n").await);
    let file = node.path("bayplan.yaml");
    let text = fs::read_to_string(&file).unwrap();
    rename_over(&node, &format!("{text}reservedCpus: \"1,9\"\n"));
    assert_eq!(diff(ask(&node, "POST", RELOAD, "").await).changes, []);
    assert_eq!(node.status().await.cpus.reserved, "0,8");
    diff(ask(&node, "DELETE", HERE, "").await);
    assert_eq!(node.status().await.cpus.reserved, "1,9");
}

fn amplification(status: &Status) -> Option<(usize, bool)> {
    let cluster = status.config.as_ref()?.cluster.as_ref()?;
    cluster.amplification.map(|it| (it.percent, it.holds))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_amplification_holds_where_the_configuration_says_none_and_outlives_the_daemon() {
    const KEY: &str = "requests.amplificationPercent";
    const SAYS: &str = "requests:\n  amplificationPercent: 120\n";
    let keys = |diff: ConfigDiff| -> Vec<String> {
        assert_eq!(diff.moves, []);
        diff.changes.into_iter().map(|it| it.key).collect()
    };
    let of_node = |path: &str, percent: usize| format!("{path}?amplification_percent={percent}");
    let with_object = |percent: usize| {
        format!("{HERE}?name=BayplanConfig/default&generation=1&amplification_percent={percent}")
    };
    let mut node = start("").await;
    node.guaranteed("owner", 2000).await;
    let before = node.wait_until_in_line().await;
    for nothing in [of_node(HERE, 99), of_node(HERE, 1001), HERE.to_owned()] {
        let (status, said) = ask(&node, "POST", &nothing, "").await;
        assert!(status == 400 && said.starts_with(char::is_alphabetic), "{status} {said}");
    }
    let path = of_node(&format!("{HERE}/diff"), 150);
    assert_eq!(keys(diff(ask(&node, "POST", &path, "").await)), [KEY]);
    assert_eq!(amplification(&node.status().await), None);
    assert_eq!(keys(diff(ask(&node, "POST", &of_node(HERE, 150), "").await)), [KEY]);
    let status = node.check_in_line().await;
    assert_eq!((held(&status), amplification(&status)), (None, Some((150, true))));
    assert_eq!(status.containers, before.containers);

    // Kept without an object, and the file of the next start says it itself.
    node.kill_daemon();
    node.spawn_daemon("").await;
    assert_eq!(amplification(&node.wait_until_in_line().await), Some((150, true)));
    node.kill_daemon();
    node.spawn_daemon(SAYS).await;
    assert_eq!(amplification(&node.wait_until_in_line().await), Some((150, false)));
    assert_eq!(keys(diff(ask(&node, "POST", &of_node(HERE, 200), "").await)), [""; 0]);

    // The file's key is none of the node's own, so under an object it counts no more.
    let text = "resyncInterval: 1s\n";
    let told = keys(diff(ask(&node, "POST", &with_object(200), text).await));
    assert!(told.iter().any(|it| it == KEY), "{told:?}");
    assert_eq!(amplification(&node.status().await), Some((200, true)));
    let says = format!("{text}{SAYS}");
    assert_eq!(keys(diff(ask(&node, "POST", &with_object(200), &says).await)), [KEY]);
    let status = node.status().await;
    assert_eq!((amplification(&status), held(&status).is_some()), (Some((200, false)), true));
    assert_eq!(diff(ask(&node, "POST", &with_object(300), &says).await).changes, []);

    // What the file says decides which of the two counts.
    diff(ask(&node, "POST", &of_node(HERE, 150), "").await);
    assert_eq!(amplification(&node.status().await), Some((150, false)));
    let file = node.path("bayplan.yaml");
    rename_over(&node, &fs::read_to_string(&file).unwrap().replace(SAYS, ""));
    assert_eq!(keys(diff(ask(&node, "POST", RELOAD, "").await)), [KEY]);
    assert_eq!(amplification(&node.status().await), Some((150, true)));
    assert_eq!(keys(diff(ask(&node, "DELETE", HERE, "").await)), [KEY]);
    assert_eq!(amplification(&node.status().await), None);
    assert_eq!(ask(&node, "GET", HERE, "").await.0, 404);
    assert_eq!(node.check_in_line().await.containers, before.containers);
}
