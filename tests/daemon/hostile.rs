//! What a neighbour process on the node may do to the ports and files of the daemon, while kubelet's calls go on.

use std::net::SocketAddr;
use std::time::Duration;
use std::{fs, io};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::node::{Node, soon};
use crate::observing::{get, sum};

/// As many file descriptors as this process may have: here the daemon and the attackers are one.
fn raise_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

/// What one connection of its own is answered.
async fn ask_once(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Asks again and again, until it is aborted.
async fn ask_for_ever(address: SocketAddr, path: &'static str) {
    loop {
        // Whatever becomes of it.
        let _cut = ask_once(address, path).await;
        tokio::task::yield_now().await;
    }
}

/// As a client does with a connection that had to make room.
async fn ask_until_answered(address: SocketAddr, path: &str) -> String {
    loop {
        if let Ok(answer) = ask_once(address, path).await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// `RESOURCE_EXHAUSTED`, because they shared the queue of decisions: each creation succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_connections_refuse_no_creation() {
    raise_descriptors();
    let mut node = Node::start().await;
    let address = node.metrics_address();
    let mut attackers = JoinSet::new();
    for at in 0..2000 {
        let paths = ["/api/v1/status", "/healthz", "/metrics", "/readyz"];
        attackers.spawn(ask_for_ever(address, paths[at % paths.len()]));
    }
    for at in 0..6 {
        node.burstable(&format!("shared-{at}"), 100).await;
        node.guaranteed(&format!("own-{at}"), 1000).await;
    }
    attackers.shutdown().await;
    assert_eq!(node.status().await.containers.len(), 12);
    // What the attackers left in the backlog still makes others' connections end.
    let text = soon(ask_until_answered(address, "/metrics")).await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(sum(&text, "bayplan_failures_total", &["kind=\"crowded\""]) < 1.0);
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// File descriptors ran out, and with them kubelet's socket and the control socket.
#[tokio::test(flavor = "multi_thread")]
async fn idle_and_half_sent_connections_take_few_descriptors() {
    raise_descriptors();
    let mut node = Node::without_daemon(crate::node::MACHINE);
    node.spawn_daemon("probes: 'off'\n").await;
    node.burstable("before", 100).await;
    let before = descriptors(node.daemon_pid());
    let mut held = Vec::new();
    for at in 0..500 {
        let mut stream = soon(TcpStream::connect(node.metrics_address())).await.unwrap();
        let head: &[u8] = if at % 2 == 0 { b"" } else { b"GET /metrics HTTP/1.1\r\nHo" };
        // A connection that had to make room is closed.
        let _closed = stream.write_all(head).await;
        held.push(stream);
    }
    let (head, _) = get(&node, "GET /healthz").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let taken = descriptors(node.daemon_pid()).saturating_sub(before);
    assert!(taken < 100, "{taken} descriptors for {} connections", held.len());
    node.guaranteed("after", 1000).await;
    assert_eq!(node.status().await.containers.len(), 2);
    // All of them end without a word from the client.
    for mut stream in held {
        let mut rest = Vec::new();
        let _reset = soon(stream.read_to_end(&mut rest)).await;
    }
}

/// A page of a browser with a name that points to 127.0.0.1 now.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_this_hosts_is_refused() {
    let node = Node::start().await;
    let mut stream = soon(TcpStream::connect(node.metrics_address())).await.unwrap();
    let request =
        "GET /api/v1/status HTTP/1.1\r\nHost: evil.example:9478\r\nConnection: close\r\n\r\n";
    soon(stream.write_all(request.as_bytes())).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}
