//! What is counted of a storm, and when it is over.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::time::sleep;

const POLL: Duration = Duration::from_millis(100);
/// Without a pod that ends for so long, the rest is stuck: every node is empty by then, or keeps a pod waiting. Publishers that write every minute have written twice.
const STUCK: Duration = Duration::from_secs(130);

/// What became of the pods.
pub(super) struct Tally {
    asked: usize,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Pods that were bound to a node.
    scheduled: usize,
    /// What the node said first, by pod.
    refusals: BTreeMap<String, String>,
    /// Pods with own CPUs of several NUMA nodes.
    spanning: usize,
    /// From the storm's beginning until a container ran.
    waits: Vec<Duration>,
    ended: usize,
}

impl Tally {
    pub(super) fn new(asked: usize) -> Tally {
        Tally { asked, begun: Instant::now(), state: Mutex::default() }
    }

    fn edit(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub(super) fn is_scheduled(&self) {
        self.edit(|state| state.scheduled += 1);
    }

    pub(super) fn is_refused(&self, pod: &str, message: &str) {
        self.edit(|state| {
            state.refusals.entry(pod.to_owned()).or_insert_with(|| message.to_owned());
        });
    }

    /// A pod has begun to run, with CPUs of its own of so many NUMA nodes.
    pub(super) fn runs(&self, numa_nodes: usize) {
        let waited = self.begun.elapsed();
        self.edit(|state| {
            state.waits.push(waited);
            state.spanning += usize::from(numa_nodes > 1);
        });
    }

    pub(super) fn has_ended(&self) {
        self.edit(|state| state.ended += 1);
    }

    pub(super) fn refusals(&self) -> BTreeMap<String, String> {
        self.state.lock().unwrap().refusals.clone()
    }

    /// Pods that asked and have not run to their end.
    pub(super) fn stuck(&self) -> usize {
        self.asked - self.state.lock().unwrap().ended
    }

    pub(super) fn spanning(&self) -> usize {
        self.state.lock().unwrap().spanning
    }

    /// Waits until every pod has ended, or none has for long.
    pub(super) async fn is_over(&self) {
        let (mut last, mut since) = (self.asked, Instant::now());
        while last > 0 && since.elapsed() < STUCK {
            sleep(POLL).await;
            let left = self.stuck();
            if left < last {
                (last, since) = (left, Instant::now());
            }
        }
    }

    /// Its cells of the table: pods asked, scheduled, refused, stuck, spanning, and seconds until half and 99 of 100 ran.
    pub(super) fn cells(&self) -> String {
        let state = self.state.lock().unwrap();
        let mut waits = state.waits.clone();
        waits.sort_unstable();
        let at = |part: usize| {
            let index = (waits.len() * part / 100).min(waits.len().saturating_sub(1));
            waits.get(index).map_or(0.0, Duration::as_secs_f64)
        };
        let State { scheduled, refusals, spanning, ended, .. } = &*state;
        let (asked, refused, stuck) = (self.asked, refusals.len(), self.asked - ended);
        let [half, most] = [at(50), at(99)];
        format!("{asked} | {scheduled} | {refused} | {stuck} | {spanning} | {half:.1} | {most:.1}")
    }
}
