//! What open pages cost the daemon: 250 containers, an event a second. In: a node. Out: a table of CPU time and memory, without a page, with one, with
//! twenty, and with one of twenty that never reads; and bounds that hold on every machine. Calls by kubelet and the pages' ends are in the same process, so
//! the row without a page is to be taken off.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};

use crate::node::Node;

const MACHINE: &str = "pack:2 numa:2 l3:4 core:8 pu:2 mem:256";
const CONTAINERS: usize = 250;
/// One event each.
const SECONDS: u64 = 10;
/// Maps that may be made in a second, for all pages together.
const MAPS_A_SECOND: f64 = 4.0;
/// Of a map, for each container.
const MAP_BYTES: usize = 400;
/// Of the events that a page is told after a change. There are two changes a second, and shared containers that are moved for them.
const NEWS_BYTES: usize = 16 << 10;
/// What twenty pages may add, one of which never reads.
const ADDED_MIB: f64 = 48.0;
/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(60);

/// What pages were told.
#[derive(Default)]
struct Told {
    bytes: usize,
    /// When maps were made, by the daemon's clock.
    maps: BTreeSet<String>,
    map_bytes_max: usize,
    news_bytes_max: usize,
    /// Pages that have the container which is looked for.
    have_it: usize,
}

type Shared = Arc<Mutex<Told>>;

/// CPU time of this process, in seconds, and the memory that it has, in MiB (proc_pid_stat(5), proc_pid_status(5)).
fn used() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: f64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    (ticks / 100.0, kib / 1024.0)
}

async fn send(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// A page that never reads.
async fn open_deaf(address: SocketAddr) {
    let _stream = send(address, "/api/v1/map/events").await;
    std::future::pending::<()>().await;
}

/// A page that does what the real one does: it reads maps, and after a change, at most once a second, asks for the events that it does not have.
async fn open(address: SocketAddr, told: Shared) {
    let mut lines = BufReader::new(send(address, "/api/v1/map/events").await).lines();
    let (mut is_map, mut last, mut asked) = (false, None, Instant::now());
    let mut has_it = false;
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(name) = line.strip_prefix("event: ") {
            is_map = name == "map";
        }
        let Some(map) = line.strip_prefix("data: ").filter(|_| is_map) else { continue };
        note_map(&told, map, &mut has_it);
        if last.is_none() || asked.elapsed() >= Duration::from_secs(1) {
            asked = Instant::now();
            last = read_news(address, last, &told).await;
        }
    }
}

/// Without making values of all of it: that would be counted as the daemon's work.
fn note_map(told: &Shared, map: &str, has_it: &mut bool) {
    let at = map.split("\"at\":\"").nth(1).unwrap().split('"').next().unwrap();
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    told.bytes += map.len();
    told.maps.insert(at.to_owned());
    told.map_bytes_max = told.map_bytes_max.max(map.len());
    if !*has_it && map.contains("default/the-last/app") {
        *has_it = true;
        told.have_it += 1;
    }
}

/// The id of the last event.
async fn read_news(address: SocketAddr, last: Option<String>, told: &Shared) -> Option<String> {
    let after = last.as_ref().map(|id| format!("&after={id}")).unwrap_or_default();
    let mut answer = String::new();
    let mut stream = send(address, &format!("/api/v1/history?count=200{after}")).await;
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let list: Value = serde_json::from_str(body).unwrap();
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    told.bytes += body.len();
    if last.is_some() {
        told.news_bytes_max = told.news_bytes_max.max(body.len());
    }
    let id = list["entries"].as_array().unwrap().last().map(|it| it["id"].as_str().unwrap());
    id.map(str::to_owned).or(last)
}

/// An event a second; gives how long the longest call took.
async fn events(node: &mut Node, begun: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    for second in 1..=SECONDS {
        let asked = Instant::now();
        let pod = node.launch_shared(&format!("late-{second}"), 10).await;
        longest = longest.max(asked.elapsed());
        sleep_until((begun + Duration::from_millis(second * 1000 - 500)).into()).await;
        node.end(&pod).await;
        sleep_until((begun + Duration::from_secs(second)).into()).await;
    }
    longest
}

/// The last change comes to every page that reads.
async fn all_have_the_last(node: &mut Node, told: &Shared, reading: usize) {
    let pod = node.launch_shared("the-last", 10).await;
    let have = || told.lock().unwrap_or_else(PoisonError::into_inner).have_it;
    let all = async {
        while have() < reading {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(STUCK, all).await.is_ok(), "{} of {reading} pages", have());
    node.end(&pod).await;
}

/// What holds however fast the machine is.
fn check(name: &str, told: &Told, seconds: f64, added_mib: f64) {
    #[allow(clippy::cast_precision_loss, reason = "a count of some dozens")]
    let maps = told.maps.len() as f64;
    assert!(maps <= MAPS_A_SECOND * seconds + 2.0, "{name}: {maps} maps in {seconds} s");
    assert!(told.map_bytes_max <= MAP_BYTES * CONTAINERS, "{name}: {} bytes", told.map_bytes_max);
    assert!(told.news_bytes_max <= NEWS_BYTES, "{name}: {} bytes of news", told.news_bytes_max);
    assert!(added_mib <= ADDED_MIB, "{name}: {added_mib} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_open_pages_cost() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    for at in 0..CONTAINERS {
        match at % 5 {
            0 => node.launch(&format!("own-{at}"), 1).await,
            _ => node.launch_shared(&format!("shared-{at}"), 50).await,
        };
    }
    let mut rows = vec![
        "pages                 CPU s/s     MiB   KB/s to each   maps   KB of a map, of news   longest call ms".to_owned(),
    ];
    let (_, at_first) = used();
    for (name, reading, deaf) in
        [("none", 0, 0), ("one", 1, 0), ("twenty", 20, 0), ("nineteen, one deaf", 19, 1)]
    {
        let told = Shared::default();
        let mut pages: Vec<JoinHandle<()>> = Vec::new();
        pages.extend((0..reading).map(|_| tokio::spawn(open(node.address(), Arc::clone(&told)))));
        pages.extend((0..deaf).map(|_| tokio::spawn(open_deaf(node.address()))));
        let ((before, _), begun) = (used(), Instant::now());
        let longest = events(&mut node, begun).await.as_secs_f64() * 1e3;
        let ((after, resident), seconds) = (used(), begun.elapsed().as_secs_f64());
        let cpu = (after - before) / seconds;
        all_have_the_last(&mut node, &told, reading).await;
        assert!(pages.iter().all(|it| !it.is_finished()), "{name}: a page has failed");
        pages.iter().for_each(JoinHandle::abort);
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        #[allow(clippy::cast_precision_loss, reason = "figures in a table")]
        let [each, map, news] =
            [told.bytes / reading.max(1), told.map_bytes_max, told.news_bytes_max]
                .map(|bytes| bytes as f64 / 1e3);
        rows.push(format!(
            "{name:<20}   {cpu:>6.4}   {resident:>5.1}   {:>12.1}   {:>4}   {map:>11.1}, {news:>7.1}   {longest:>15.1}",
            each / seconds,
            told.maps.len(),
        ));
        println!("{}", rows.last().unwrap());
        check(name, &told, begun.elapsed().as_secs_f64(), resident - at_first);
    }
    println!("{}", rows.join("\n"));
    node.stop().await;
}
