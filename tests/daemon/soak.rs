//! Twenty pods come and twenty go, every second, for as long as is asked. The daemon is a process; its memory, files, threads and the
//! time that a creation takes must be at the end what they were soon after the beginning.
//!
//! `BAYPLAN_SOAK_MINUTES` asks for so many minutes, with a line for each. Without it some seconds show that the test works, and that the
//! daemon serves at this rate at all; nothing can be said of memory and time then.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_types::{Bytes, QosClass};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::node::{Node, soon};

const MACHINE: &str = "pack:2 numa:2 core:14 pu:2 mem:128";
/// Between two starts.
const TICK: Duration = Duration::from_millis(50);
/// Pods that live at a time; they ask for a third of the machine.
const PODS: usize = 40;
/// With those that come and go just now; more wait, so that none is refused where the machine is slow.
const PODS_MAX: usize = 60;
/// Of the windows of a long run, the first so many in a hundred are warming up: caches fill, the journal and the history grow to their size.
const WARMING_PERCENT: usize = 20;

/// What was seen in one window.
#[derive(Clone, Debug, Default)]
struct Seen {
    seconds: u64,
    pods: usize,
    rss_kib: u64,
    files: u64,
    threads: u64,
    /// Microseconds that a creation took.
    p50: u64,
    p99: u64,
    journal: u64,
    history: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { seconds, pods, rss_kib, files, threads, p50, p99, journal, history } = self;
        write!(
            f,
            "{seconds:>6} s {pods:>7} pods, {rss_kib:>6} KiB resident, {files:>3} files, {threads:>3} threads, \
             create p50 {p50:>6} us p99 {p99:>7} us, journal {journal:>8} bytes, history {history:>9} bytes"
        )
    }
}

/// A pod of its kind; every third owns CPUs.
async fn start(mut kubelet: Kubelet, number: usize) -> (RunningPod, Duration) {
    let name = format!("soak{number}");
    let (qos, spec) = match number % 3 {
        0 => (QosClass::Guaranteed, ContainerSpec::guaranteed(&name, 2000, Bytes::gib(1))),
        1 => (QosClass::Guaranteed, ContainerSpec::guaranteed(&name, 1500, Bytes::gib(1))),
        _ => (QosClass::Burstable, ContainerSpec::burstable(&name, 500)),
    };
    let pod = soon(kubelet.run_pod(&PodSpec::new(&name, qos))).await.unwrap();
    let begun = Instant::now();
    let id = soon(kubelet.create(&pod, &spec, 0)).await.unwrap();
    let took = begun.elapsed();
    soon(kubelet.start(&id)).await.unwrap();
    (pod, took)
}

fn size(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else {
        return fs::metadata(path).map_or(0, |it| it.len());
    };
    entries.map(|entry| size(&entry.unwrap().path())).sum()
}

/// A number of `/proc/PID/status`.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

fn look(node: &Node, begun: Instant, pods: usize, took: &mut Vec<Duration>) -> Seen {
    let proc = Path::new("/proc").join(node.daemon_pid().to_string());
    let status = fs::read_to_string(proc.join("status")).unwrap();
    took.sort();
    let at = |percent: usize| {
        took.get(took.len() * percent / 100).map_or(0, |it| it.as_micros().try_into().unwrap())
    };
    let seen = Seen {
        seconds: begun.elapsed().as_secs(),
        pods,
        rss_kib: field(&status, "VmRSS:"),
        files: fs::read_dir(proc.join("fd")).unwrap().count() as u64,
        threads: field(&status, "Threads:"),
        p50: at(50),
        p99: at(99),
        journal: size(&node.journal()),
        history: size(&node.history()),
    };
    took.clear();
    seen
}

/// Lives until `end`, and gives what was seen window by window.
async fn soak(node: &Node, window: Duration, windows: usize) -> Vec<Seen> {
    let begun = Instant::now();
    let (mut live, mut starting, mut ending) = (VecDeque::new(), JoinSet::new(), JoinSet::new());
    let (mut seen, mut took, mut number) = (Vec::new(), Vec::new(), 0);
    let mut ticks = interval(TICK);
    // What was missed is caught up with, so that it is twenty a second.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while seen.len() < windows {
        tokio::select! {
            _ = ticks.tick(), if starting.len() + live.len() + ending.len() < PODS_MAX => {
                starting.spawn(start(node.kubelet.clone(), number));
                number += 1;
            }
            Some(started) = starting.join_next() => {
                let (pod, time) = started.unwrap();
                took.push(time);
                live.push_back(pod);
                if live.len() > PODS {
                    let (pod, mut kubelet) = (live.pop_front().unwrap(), node.kubelet.clone());
                    ending.spawn(async move { soon(kubelet.end_pod(&pod)).await.unwrap() });
                }
            }
            Some(ended) = ending.join_next() => ended.unwrap(),
        }
        if begun.elapsed() >= window * u32::try_from(seen.len() + 1).unwrap() {
            let next = look(node, begun, number, &mut took);
            eprintln!("{next}");
            seen.push(next);
        }
    }
    while let Some(started) = starting.join_next().await {
        live.push_back(started.unwrap().0);
    }
    ending.join_all().await;
    for pod in live {
        soon(node.kubelet.clone().end_pod(&pod)).await.unwrap();
    }
    seen
}

fn median(windows: &[Seen], of: fn(&Seen) -> u64) -> u64 {
    let mut values: Vec<u64> = windows.iter().map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// The last third of what was seen after warming up is no more than the first third, but for what the machine's other load explains.
fn check_flat(seen: &[Seen]) {
    let warm = &seen[seen.len() * WARMING_PERCENT / 100..];
    let third = warm.len() / 3;
    let (first, last) = (&warm[..third], &warm[warm.len() - third..]);
    for (what, of, grows_percent, grows_by) in [
        ("KiB resident", (|it: &Seen| it.rss_kib) as fn(&Seen) -> u64, 5, 1024),
        ("open files", |it| it.files, 0, 2),
        ("threads", |it| it.threads, 0, 2),
        ("us for half of the creations", |it| it.p50, 50, 2000),
        ("us for 99 % of the creations", |it| it.p99, 200, 20_000),
        ("bytes of journal", |it| it.journal, 100, 1 << 20),
    ] {
        let (before, after) = (median(first, of), median(last, of));
        let most = before + before * grows_percent / 100 + grows_by;
        eprintln!("{what}: {before}, at the end {after}; at most {most}");
        assert!(after <= most, "{what} grow from {before} to {after}");
    }
    // `historySize` and the segment that is written.
    assert!(seen.iter().all(|it| it.history < 20 << 20), "the history grows");
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_pods_a_second_come_and_go_and_nothing_grows() {
    let minutes: Option<usize> =
        std::env::var("BAYPLAN_SOAK_MINUTES").ok().map(|text| text.parse().unwrap());
    let (window, windows) = match minutes {
        Some(minutes) => (Duration::from_secs(60), minutes),
        None => (Duration::from_secs(1), 3),
    };
    let mut node = Node::without_daemon(MACHINE);
    node.spawn_daemon("log: warn\n").await;
    let empty = node.status().await;
    let seen = soak(&node, window, windows).await;
    let all = seen.last().unwrap();
    if minutes.is_some_and(|minutes| minutes >= 10) {
        check_flat(&seen);
        let expected = u128::from(all.seconds) * 1000 / TICK.as_millis();
        let pods = all.pods;
        assert!(pods as u128 >= expected * 9 / 10, "too slow a machine: {pods} pods of {expected}");
    }
    // With those of the probes, which are about thirty.
    assert!(all.files < 80, "{all}");
    let after = node.wait_until("all are gone", |status| status.containers.is_empty()).await;
    assert_eq!((after.cpus, after.pools), (empty.cpus, empty.pools));
}
