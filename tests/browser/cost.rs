//! What open pages cost the daemon: 250 containers, an event a second. In: a node. Out: a table of CPU time and memory, without a page, with one, with
//! twenty, and with one of twenty that never reads. Calls by kubelet and the pages' ends are in the same process, so the row without a page is to be taken off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::node::Node;

const MACHINE: &str = "pack:2 numa:2 l3:4 core:8 pu:2 mem:256";
const CONTAINERS: usize = 250;
/// One event each.
const SECONDS: u64 = 10;

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

/// A page that reads, and counts bytes, or one that does not.
async fn open(address: SocketAddr, is_deaf: bool, bytes: Arc<AtomicU64>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /api/v1/map/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    if is_deaf {
        std::future::pending::<()>().await;
    }
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
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
    let mut rows =
        vec!["pages                  CPU s/s   MiB     KB/s to each   longest call ms".to_owned()];
    for (name, reading, deaf) in
        [("none", 0, 0), ("one", 1, 0), ("twenty", 20, 0), ("nineteen, one deaf", 19, 1)]
    {
        let bytes = Arc::<AtomicU64>::default();
        let pages = (0..reading + deaf)
            .map(|at| tokio::spawn(open(node.address(), at >= reading, Arc::clone(&bytes))));
        let pages: Vec<_> = pages.collect();
        let (before, _) = used();
        let (begun, mut longest) = (Instant::now(), Duration::ZERO);
        for second in 1..=SECONDS {
            let asked = Instant::now();
            let pod = node.launch_shared(&format!("late-{second}"), 10).await;
            longest = longest.max(asked.elapsed());
            tokio::time::sleep_until((begun + Duration::from_millis(second * 1000 - 500)).into())
                .await;
            node.end(&pod).await;
            tokio::time::sleep_until((begun + Duration::from_secs(second)).into()).await;
        }
        let (after, resident) = used();
        let seconds = begun.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a figure in a table")]
        let each = bytes.load(Ordering::Relaxed) as f64 / seconds / 1e3 / f64::from(reading.max(1));
        let longest = longest.as_secs_f64() * 1e3;
        let cpu = (after - before) / seconds;
        rows.push(format!(
            "{name:<20}   {cpu:>7.4}   {resident:>5.1}   {each:>12.1}   {longest:>15.1}"
        ));
        pages.iter().for_each(tokio::task::JoinHandle::abort);
    }
    println!("{}", rows.join("\n"));
    node.stop().await;
}
