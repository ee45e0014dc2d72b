//! Looks at where the kernel has containers, all the time, so that one that goes away and comes back is seen as well.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use anyhow::Context as _;
use bayplan_tests::node::{Placed, allowed_by_kernel};
use bayplan_types::CpuSet;

const LOOK: Duration = Duration::from_millis(2);

/// CPU sets by container, one after the other.
type Seen = BTreeMap<&'static str, Vec<CpuSet>>;

pub(crate) struct Sight {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    looking: Option<JoinHandle<()>>,
}

impl Sight {
    /// Looks until it is dropped.
    pub(crate) fn begin(watched: &[(&'static str, Placed)]) -> anyhow::Result<Sight> {
        let mut first = Seen::new();
        let pids: Vec<_> = watched.iter().map(|(name, placed)| (*name, placed.pid)).collect();
        for (name, pid) in &pids {
            first.insert(name, vec![allowed_by_kernel(*pid)?.context("it runs")?]);
        }
        let (seen, stop) = (Arc::new(Mutex::new(first)), Arc::new(AtomicBool::new(false)));
        let looking = {
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for (name, pid) in &pids {
                        // One that has ended is told by the test.
                        let Ok(Some(now)) = allowed_by_kernel(*pid) else { continue };
                        let mut seen = seen.lock().unwrap();
                        let sets = seen.entry(*name).or_default();
                        if sets.last() != Some(&now) {
                            sets.push(now);
                        }
                    }
                    sleep(LOOK);
                }
            })
        };
        Ok(Sight { seen, stop, looking: Some(looking) })
    }

    /// The first set of a container, and all of them.
    pub(crate) fn of(&self, name: &str) -> (CpuSet, Vec<CpuSet>) {
        let sets = self.seen.lock().unwrap()[name].clone();
        (sets[0].clone(), sets)
    }

    /// For people.
    pub(crate) fn said(&self) -> String {
        let seen = self.seen.lock().unwrap();
        let one = |(name, sets): (&&str, &Vec<CpuSet>)| {
            let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
            format!("{name} on {}", sets.join(", then "))
        };
        seen.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

impl Drop for Sight {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(looking) = self.looking.take() {
            looking.join().unwrap();
        }
    }
}
