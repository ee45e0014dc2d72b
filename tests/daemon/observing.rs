//! What people and Prometheus are told.

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_node::decision::Verdict;
use bayplan_node::status::Status;
use bayplan_types::{Bytes, QosClass};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::node::{Node, set, soon};

/// Every family with its type, as users have them in their rules and dashboards.
const FAMILIES: [&str; 13] = [
    "bayplan_build info",
    "bayplan_decisions counter",
    "bayplan_decision_duration_seconds histogram",
    "bayplan_failures counter",
    "bayplan_proxy_calls counter",
    "bayplan_container_updates counter",
    "bayplan_machine_changes counter",
    "bayplan_config_reloads counter",
    "bayplan_config_is_good gauge",
    "bayplan_containers gauge",
    "bayplan_cpus gauge",
    "bayplan_mode gauge",
    "bayplan_journal_size_bytes gauge",
];

/// Head and body of the answer to a request such as `GET /metrics`.
pub(crate) async fn get(node: &Node, request: &str) -> (String, String) {
    let mut stream = soon(TcpStream::connect(node.metrics_address())).await.unwrap();
    let accept = "application/openmetrics-text;version=1.0.0,*/*;q=0.1";
    let request = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    soon(stream.write_all(request.as_bytes())).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

pub(crate) async fn metrics(node: &Node) -> String {
    let (head, body) = get(node, "GET /metrics").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("application/openmetrics-text"), "{head}");
    body
}

/// The sum over all lines of a sample that have all these labels.
pub(crate) fn sum(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = metrics.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    });
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn count(status: &Status, class: &str) -> f64 {
    let held = status.containers.iter().filter(|held| held.class == class);
    f64::from(u32::try_from(held.count()).unwrap())
}

fn len(cpus: &str) -> f64 {
    f64::from(u32::try_from(set(cpus).len()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_agree_with_the_status() {
    let mut node = Node::start().await;
    node.guaranteed("owner", 2000).await;
    node.guaranteed("mixed", 1500).await;
    node.burstable("shared", 100).await;
    let (_, gone) = node.burstable("gone", 100).await;
    soon(node.kubelet.stop(&gone)).await.unwrap();
    let pod = PodSpec::new("big", QosClass::Guaranteed);
    let big = ContainerSpec::guaranteed("big", 99_000, Bytes::gib(1));
    soon(node.kubelet.launch(&pod, &big)).await.unwrap_err();

    let status = node.check_in_line().await;
    let text = metrics(&node).await;
    for family in FAMILIES {
        assert!(text.contains(&format!("# TYPE {family}\n")), "{family}\n{text}");
    }
    for (class, cpus) in [
        ("exclusive", &status.cpus.exclusive),
        ("shared", &status.cpus.shared),
        ("reserved", &status.cpus.reserved),
        ("isolated", &status.cpus.isolated),
    ] {
        let label = format!("class=\"{class}\"");
        assert_eq!(sum(&text, "bayplan_cpus", &[&label]), len(cpus), "{class}\n{text}");
        let held = sum(&text, "bayplan_containers", &[&label]);
        assert_eq!(held, count(&status, class), "{class}\n{text}");
    }
    let decisions =
        |outcome: &str| sum(&text, "bayplan_decisions_total", &[&format!("\"{outcome}\"")]);
    assert_eq!((decisions("placed"), decisions("refused"), decisions("released")), (4.0, 1.0, 1.0));
    assert_eq!(sum(&text, "bayplan_decision_duration_seconds_count", &[]), 5.0);
    let created = |code| sum(&text, "bayplan_proxy_calls_total", &["\"CreateContainer\"", code]);
    assert_eq!((created("code=\"0\""), created("code=\"8\"")), (4.0, 1.0));
    // A busy machine may be late with files of a start, which is counted.
    let late = sum(&text, "bayplan_failures_total", &["\"late_files\""]);
    assert_eq!(sum(&text, "bayplan_failures_total", &[]), late, "{text}");
    let journal = std::fs::metadata(node.journal()).unwrap().len();
    assert_eq!(sum(&text, "bayplan_journal_size_bytes", &[]).to_string(), journal.to_string());
    let updates = node.runtime.calls("UpdateContainerResources");
    let written = sum(&text, "bayplan_container_updates_total", &["\"ok\""]);
    assert_eq!(written.to_string(), updates.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_hold_no_names_that_users_choose() {
    let mut node = Node::start().await;
    node.guaranteed("secret-name", 2000).await;
    assert!(!metrics(&node).await.contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_tells_of_every_pool_and_finds_by_any_name() {
    let mut node = Node::start().await;
    let (_, id) = node.guaranteed("owner", 2000).await;
    for name in ["owner", "default/owner", "owner/owner", "default/owner/owner", &id, &id[..12]] {
        let found = node.explain(name).await;
        assert_eq!(found.len(), 1, "{name}");
        let held = found[0].now.as_ref().unwrap();
        assert_eq!(set(&held.cpus), node.cpus(&id));
        let decision = &found[0].decision;
        assert!(decision.asked.starts_with("2 exclusive"), "{}", decision.asked);
        assert_eq!(decision.pools.len(), node.status().await.pools.len());
        let won = decision.pools.iter().filter(|pool| pool.verdict == Verdict::Won);
        assert_eq!(won.map(|pool| &pool.pool).collect::<Vec<_>>(), [&held.pool]);
    }
    assert_eq!(node.explain("nobody").await, []);
    soon(node.kubelet.stop(&id)).await.unwrap();
    let gone = node.explain("owner").await;
    assert_eq!((gone.len(), gone[0].now.is_none()), (1, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cpu_is_in_exactly_one_class() {
    let mut node = Node::start().await;
    node.guaranteed("owner", 3000).await;
    let cpus = node.status().await.cpus;
    let classes = [&cpus.exclusive, &cpus.shared, &cpus.reserved, &cpus.isolated].map(|it| set(it));
    let total: usize = classes.iter().map(|class| class.len()).sum();
    let all = classes.iter().fold(set(""), |all, class| all.union(class));
    assert_eq!((total, all), (16, set("0-15")));
}
