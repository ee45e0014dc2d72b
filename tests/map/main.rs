//! The live map over HTTP: the page and its headers, the map now and in the past, changes as they come, and clients that take too much.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod host;
mod node;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bayplan_daemon::config::parse_config;
use bayplan_types::CpuSet;
use futures::StreamExt as _;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use node::Node;

const MACHINE: &str = "pack:1 numa:2 l3:1 core:4 pu:2 mem:16";
/// Far beyond anything a test waits for; it turns a test that hangs into one that fails.
const STUCK: Duration = Duration::from_secs(60);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(STUCK, future).await.expect("nothing happened")
}

/// Head and body of an answer.
async fn ask_as(address: SocketAddr, method: &str, path: &str, host: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

async fn ask(address: SocketAddr, path: &str) -> (String, String) {
    ask_as(address, "GET", path, "localhost").await
}

async fn json(address: SocketAddr, path: &str) -> Value {
    let (head, body) = ask(address, path).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}\n{body}");
    serde_json::from_str(&body).unwrap()
}

/// The stream of an open page.
struct Page(BufReader<TcpStream>);

impl Page {
    async fn open(address: SocketAddr) -> Page {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "GET /api/v1/map/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        Page(BufReader::new(stream))
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = soon(self.0.read_line(&mut line)).await.unwrap();
        assert!(read > 0, "the stream has ended");
        line
    }

    /// The next map for which this holds.
    async fn map_that(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        self.value_that("map", holds).await
    }

    /// The next value of a kind for which this holds.
    async fn value_that(&mut self, kind: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut is_wanted = false;
        loop {
            let line = self.line().await;
            if let Some(name) = line.strip_prefix("event: ") {
                is_wanted = name.trim() == kind;
            }
            if let Some(data) = line.strip_prefix("data: ").filter(|_| is_wanted) {
                let value: Value = serde_json::from_str(data).unwrap();
                if holds(&value) {
                    return value;
                }
            }
        }
    }
}

fn container<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    map["containers"].as_array().unwrap().iter().find(|it| it["name"] == name)
}

const WEB: &str = "default/web/app";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_comes_with_a_policy_that_allows_nothing_from_elsewhere() {
    let node = Node::start(MACHINE, |_| {}).await;
    for path in ["/map", "/map/app.js", "/map/style.css", "/map/icon.svg"] {
        let (head, body) = ask(node.address(), path).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && !body.is_empty(), "{path}: {head}");
        let policy = head.lines().find(|it| it.starts_with("content-security-policy: ")).unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    }
    let (head, _) = ask(node.address(), "/map/../Cargo.toml").await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_told_to_other_names_and_nothing_can_be_changed() {
    let node = Node::start(MACHINE, |_| {}).await;
    let address = node.address();
    for path in ["/map", "/api/v1/map", "/api/v1/map/events", "/api/v1/history"] {
        let (head, _) = ask_as(address, "GET", path, "evil.example").await;
        assert!(head.starts_with("HTTP/1.1 421 "), "{path}: {head}");
        let (head, _) = ask_as(address, "POST", path, "localhost").await;
        assert!(head.starts_with("HTTP/1.1 405 "), "{path}: {head}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_there_is_no_map() {
    let node = Node::start(MACHINE, |config| config.has_map = false).await;
    for path in ["/map", "/map/app.js", "/api/v1/map", "/api/v1/map/events", "/api/v1/history"] {
        let (head, _) = ask(node.address(), path).await;
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
    }
    json(node.address(), "/api/v1/status").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_is_told_when_containers_come_and_go() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    let mut page = Page::open(node.address()).await;
    page.map_that(|map| container(map, WEB).is_none()).await;
    let pod = node.launch("web", 2).await;
    let map =
        page.map_that(|map| container(map, WEB).is_some_and(|it| it["phase"] == "running")).await;
    let web = container(&map, WEB).unwrap();
    assert_eq!((&web["class"], &web["own"]), (&"exclusive".into(), &web["cpus"]));
    assert_eq!(map["reserved"], "0");
    node.end(&pod).await;
    page.map_that(|map| container(map, WEB).is_none()).await;
    node.stop().await;
}

/// A group with a member that owns two of its CPUs, as the map and `status` have it.
#[tokio::test(flavor = "multi_thread")]
async fn groups_and_their_members_are_on_the_map() {
    let types = "groups: [{name: team, size: {fixed: 4}, inside: guaranteed-exclusive}]\n";
    let types = parse_config(Path::new("f"), types).unwrap().groups;
    let mut node = Node::start(MACHINE, |config| config.groups = types).await;
    let mut page = Page::open(node.address()).await;
    let pod = node.launch_with("web", 2, &[("bayplan.dev/group", "team")]).await;
    let map =
        page.map_that(|map| container(map, WEB).is_some_and(|it| it["phase"] == "running")).await;
    let set = |text: &Value| text.as_str().unwrap().parse::<CpuSet>().unwrap();
    let (group, web) = (&map["groups"][0], container(&map, WEB).unwrap());
    assert_eq!((&group["name"], &web["group"]), (&"team[0]".into(), &"team[0]".into()));
    let (all, own) = (set(&group["cpus"]), set(&web["own"]));
    assert_eq!((all.len(), own.len(), set(&web["cpus"])), (4, 2, own.clone()));
    assert_eq!(set(&group["shared"]), all.difference(&own));
    let status = json(node.address(), "/api/v1/status").await;
    assert_eq!(status["groups"][0]["cpus"], group["cpus"]);
    node.end(&pod).await;
    page.map_that(|map| map.get("groups").is_none()).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_never_read_hold_up_nothing_and_the_last_too_many_is_turned_away() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    let mut deaf = Vec::new();
    for _ in 0..19 {
        let mut page = Page::open(node.address()).await;
        assert!(page.line().await.starts_with("HTTP/1.1 200 "));
        deaf.push(page);
    }
    let mut page = Page::open(node.address()).await;
    assert!(page.line().await.starts_with("HTTP/1.1 200 "));
    let mut late = Page::open(node.address()).await;
    assert!(late.line().await.starts_with("HTTP/1.1 503 "));
    for round in 0..5 {
        let pod = node.launch(&format!("web{round}"), 1).await;
        let name = format!("default/web{round}/app");
        page.map_that(|map| container(map, &name).is_some()).await;
        node.end(&pod).await;
    }
    drop(deaf);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_moment_of_the_past_can_be_seen_again() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    let first = node.launch("web", 2).await;
    node.launch_shared("log", 500).await;
    node.end(&first).await;
    let address = node.address();
    // The history is written by a task of its own.
    let list = soon(async {
        loop {
            let list = json(address, "/api/v1/history").await;
            let entries = list["entries"].as_array().unwrap().clone();
            if entries.iter().any(|it| it["kind"] == "ended") {
                return entries;
            }
            tokio::task::yield_now().await;
        }
    });
    let entries = list.await;
    let id_of = |kind: &str, name: &str| {
        let found = entries.iter().find(|it| it["kind"] == kind && it["name"] == name);
        found.unwrap()["id"].as_str().unwrap().to_owned()
    };
    for (kind, name, expected) in [
        ("started", "", ""),
        ("placed", WEB, "default/web/app"),
        ("placed", "default/log/app", "default/log/app default/web/app"),
        ("ended", WEB, "default/log/app"),
    ] {
        let map = json(address, &format!("/api/v1/map?at={}", id_of(kind, name))).await;
        let names: Vec<&str> = map["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        assert_eq!(names.join(" "), expected, "after {kind} {name}");
        assert_eq!(map["reserved"], "0");
    }
    let log = json(address, &format!("/api/v1/map?at={}", id_of("ended", WEB))).await;
    let now = json(address, "/api/v1/map").await;
    let cpus = |map: &Value| container(map, "default/log/app").unwrap()["cpus"].clone();
    assert_eq!(cpus(&log), cpus(&now));
    // A page asks for what came after the last entry that it has.
    for (after, count, expected) in [
        (&entries[0]["id"], 200, entries.len() - 1),
        (&entries[0]["id"], 1, 1),
        (&entries[entries.len() - 1]["id"], 200, 0),
    ] {
        let path = format!("/api/v1/history?count={count}&after={}", after.as_str().unwrap());
        let found = json(address, &path).await;
        let found = (found["entries"].as_array().unwrap().len(), &found["has_more"]);
        assert_eq!(found, (expected, &Value::Bool(count == 1)), "{path}");
    }
    let (head, _) = ask(address, "/api/v1/history?after=nonsense").await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    for (at, status) in [("9.9", 404), ("nonsense", 400)] {
        let (head, _) = ask(address, &format!("/api/v1/map?at={at}")).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{at}: {head}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_kernel_counts_is_told_and_what_is_missing() {
    let mut node = Node::start(MACHINE, |config| {
        config.has_probes = false;
        config.observe_interval = Duration::from_millis(500);
    })
    .await;
    node.launch_with("web", 2, &[("bayplan.dev/siblings", "idle")]).await;
    let status = json(node.address(), "/api/v1/status").await;
    let counting = host::count(&node.host_root(), &status, "web");
    let mut page = Page::open(node.address()).await;
    let rates = page.value_that("rates", |rates| {
        let (web, cpus) = (&rates["containers"][WEB], &rates["cpus"]);
        let is_about = |value: &Value, expected: f64| {
            value.as_f64().is_some_and(|it| (it / expected - 1.0).abs() < 0.2)
        };
        is_about(&web["throttled"], 0.5)
            && is_about(&web["traffic_mbps"], 3000.0)
            && (&cpus["0"]["busy"], &cpus["1"]["busy"]) == (&1.0.into(), &0.0.into())
            && (&cpus["0"]["deep"], &cpus["1"]["deep"]) == (&1.0.into(), &0.0.into())
    });
    let rates = rates.await;
    let web = &rates["containers"][WEB];
    assert_eq!((&web["far"], &web["cache_mib"]), (&0.25.into(), &12.0.into()));
    assert_eq!(rates["cpus"]["0"]["mhz"], 2400.0);
    assert_eq!(rates["cpus"]["1"]["idle"], serde_json::json!([["C1", 1.0], ["C6", 0.0]]));
    let off = serde_json::json!(["probes are off, or the daemon has just been started"]);
    let absent = serde_json::json!({"delay_ms": off, "intruded": off, "migrations": off});
    assert_eq!(rates["absent_of"], absent);
    drop(counting);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_and_the_reasons_are_told() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    node.launch("web", 2).await;
    let machine = json(node.address(), "/api/v1/map/machine").await;
    assert_eq!(machine["machine"]["boxes"][0]["name"], "Package 0");
    let now = json(node.address(), "/api/v1/map").await;
    assert_eq!(machine["fingerprint"], now["fingerprint"]);
    let why = json(node.address(), "/api/v1/map/about?name=default/web/app").await;
    let outcome = why[0]["decision"]["outcome"].as_str().unwrap();
    assert!(outcome.starts_with("placed in "), "{outcome}");
    assert_eq!(json(node.address(), "/api/v1/map/about?name=nothing").await, Value::Array(vec![]));
    for path in ["/api/v1/map/about?name=", "/api/v1/map/why?name="] {
        let (head, _) = ask(node.address(), path).await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{path}: {head}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_socket_has_it_too() {
    let node = Node::start(MACHINE, |config| config.metrics_address = None).await;
    let mut stream = UnixStream::connect(node.control_socket()).await.unwrap();
    let request = "GET /api/v1/map HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    node.stop().await;
}

/// Status and body of an answer below the part of the socket that is for clients that show it to others.
async fn opened(node: &Node, path: &str) -> (u16, String) {
    let opened = bayplan_daemon::open_control(&node.control_socket(), path).await.unwrap();
    let (head, body) = opened.into_parts();
    let chunks = soon(body.into_data_stream().map(Result::unwrap).collect::<Vec<_>>()).await;
    (head.status.as_u16(), String::from_utf8(chunks.concat()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_socket_has_what_is_on_loopback_apart() {
    let mut node = Node::start(MACHINE, |config| config.metrics_address = None).await;
    node.launch("web", 2).await;
    for (path, expected) in [
        ("/loopback/map", 200),
        ("/loopback/map/app.js", 200),
        ("/loopback/map/..%2F..%2Fapi%2Fv1%2Fexplain", 404),
        ("/loopback/api/v1/map/about?name=default/web/app", 200),
        ("/loopback/api/v1/explain?name=default/web/app", 404),
        ("/loopback/api/v1/../../../api/v1/explain?name=default/web/app", 404),
        ("/loopback/api/v1/config/cluster", 404),
        ("/api/v1/explain?name=default/web/app", 200),
    ] {
        let (status, body) = opened(&node, path).await;
        assert_eq!(status, expected, "{path}: {body}");
    }
    for path in ["/loopback/api/v1/map/what-if?name=x", "/loopback/api/v1/mode?to=draining"] {
        let socket = node.control_socket();
        let posted = bayplan_daemon::ask_control(&socket, "POST", path, String::new()).await;
        assert!(matches!(posted.unwrap().0, 404 | 405), "{path}");
    }
    // A stream comes as it is made, and ends with what reads it.
    let path = "/loopback/api/v1/map/events";
    let opened = bayplan_daemon::open_control(&node.control_socket(), path).await.unwrap();
    let mut chunks = opened.into_body().into_data_stream();
    let first = soon(chunks.next()).await.unwrap().unwrap();
    assert!(first.starts_with(b"event: map\n"), "{first:?}");
    drop(chunks);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_under_another_configuration_is_kept_for_pages() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    node.launch("web", 2).await;
    let path = "/api/v1/map/what-if";
    let (head, _) = ask(node.address(), path).await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let mut page = Page::open(node.address()).await;
    let socket = node.control_socket();
    let post = |text: &str| {
        let (socket, text) = (socket.clone(), text.to_owned());
        async move {
            let path = "/api/v1/map/what-if?name=/etc/other.yaml";
            bayplan_daemon::post_control::<Value>(&socket, path, text).await
        }
    };
    let found = post("reservedCpus: 0-3").await.unwrap();
    assert_eq!(found["status"]["cpus"]["reserved"], "0-3");
    let changes = found["diff"]["changes"].as_array().unwrap();
    assert!(changes.iter().any(|it| it["key"] == "reservedCpus"), "{changes:?}");
    // Nothing has changed, and pages are told that there is something to compare with.
    let now = page.map_that(|map| map["what_if"] == "other.yaml").await;
    assert_eq!(now["reserved"], "0");
    let kept = json(node.address(), path).await;
    assert_eq!((&kept["reserved"], &kept["what_if"]), (&"0-3".into(), &"other.yaml".into()));
    let own = container(&kept, WEB).unwrap()["own"].as_str().unwrap();
    let own: CpuSet = own.parse().unwrap();
    assert!(!own.is_empty() && !own.intersects(&"0-3".parse().unwrap()), "{own}");
    let error = post("reservedCpus: 99").await.unwrap_err().to_string();
    assert!(error.contains("reservedCpus"), "{error}");
    let forget = bayplan_daemon::ask_control(&socket, "DELETE", path, String::new()).await;
    assert_eq!(forget.unwrap().0, 204);
    page.map_that(|map| map["what_if"] == Value::Null).await;
    // On loopback nothing is made or removed.
    for method in ["POST", "DELETE"] {
        let (head, _) = ask_as(node.address(), method, path, "localhost").await;
        assert!(head.starts_with("HTTP/1.1 405 "), "{method}: {head}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_slows_a_container_down_is_told_and_how_it_ended() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    let pod = node.launch("web", 2).await;
    let path = "/api/v1/map/why?name=default/web/app";
    let why = json(node.address(), path).await;
    assert_eq!((&why[0]["format"], &why[0]["container"]), (&"bayplan-why/1".into(), &WEB.into()));
    assert_eq!(why[0]["now"]["phase"], "running");
    let socket = node.control_socket();
    let mode: Value =
        bayplan_daemon::post_control(&socket, "/api/v1/mode?to=restored", String::new())
            .await
            .unwrap();
    assert_eq!(mode["format"], "bayplan-mode/1");
    let why = json(node.address(), path).await;
    assert_eq!(why[0]["causes"][0]["kind"], "restored");
    assert_eq!(why[0]["causes"][0]["command"], "bayplan resume");
    node.end(&pod).await;
    let why = json(node.address(), path).await;
    assert_eq!((&why[0]["now"], &why[0]["causes"][0]["kind"]), (&Value::Null, &"ended".into()));
    let all: Value =
        bayplan_daemon::query_control(&socket, "/api/v1/why?name=nothing").await.unwrap();
    assert_eq!(all, Value::Array(vec![]));
    node.stop().await;
}
