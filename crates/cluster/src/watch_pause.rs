//! Pauses of a watch that fails. In: the node, what is watched, and the time within which agents begin. Out: the time until the next attempt.
//!
//! | Attempt | After |
//! |---|---|
//! | first | 0.8 to 1.6 s: a watch may fail alone |
//! | second | some part of the time within which agents begin: the API server is away, and all agents wait for it |
//! | further ones | half of that time, and some part of it |
//!
//! So the return of all agents costs the API server what their start did. A pause differs by node, watch and attempt, and is the same in each run.

use std::time::{Duration, Instant};

use kube::runtime::utils::Backoff;

use crate::watching::spread;

/// The shortest pause, and the time over which first ones are spread.
const SOON: Duration = Duration::from_millis(800);
/// Further pauses are spread over this time at least, also where agents begin at once.
const SPREAD_MIN: Duration = Duration::from_secs(30);
/// A watch that fails so long after its last pause has gone well meanwhile, although nothing came of it.
const WELL_AFTER: Duration = Duration::from_secs(120);

/// Of one watch.
#[derive(Debug)]
pub(crate) struct WatchPause {
    key: String,
    within: Duration,
    /// Attempts that have failed since the watch went well.
    failed: u32,
    /// When the last one has failed.
    last: Option<Instant>,
}

impl WatchPause {
    /// Of a watch of a node's agent, where agents begin within this time.
    pub(crate) fn new(node: &str, watched: &str, start_within: Duration) -> WatchPause {
        let within = start_within.max(SPREAD_MIN);
        WatchPause { key: format!("{node} {watched}"), within, failed: 0, last: None }
    }

    /// After an attempt that has failed now.
    fn after(&mut self, now: Instant) -> Duration {
        let longest = self.within / 2 + self.within;
        let since = self.last.map(|last| now.saturating_duration_since(last));
        if since.is_some_and(|it| it > longest + WELL_AFTER) {
            self.failed = 0;
        }
        (self.failed, self.last) = (self.failed.saturating_add(1), Some(now));
        let (least, all) = match self.failed {
            1 => (SOON, SOON),
            2 => (SOON, self.within),
            _ => (self.within / 2, self.within),
        };
        least + spread(&format!("{} {}", self.key, self.failed), all)
    }
}

impl Iterator for WatchPause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.after(Instant::now()))
    }
}

impl Backoff for WatchPause {
    fn reset(&mut self) {
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(node: &str, watched: &str, start_within: u64, count: usize) -> Vec<Duration> {
        WatchPause::new(node, watched, Duration::from_secs(start_within)).take(count).collect()
    }

    /// The pauses of 5,000 agents before this attempt: none is shorter than `least`, and each tenth of the time `all` after that has its part of them.
    fn check_spread(start_within: u64, attempt: usize, least: Duration, all: Duration) {
        let mut tenths = [0; 10];
        for node in 0..5000 {
            let pause = pauses(&format!("n{node}"), "nodes", start_within, attempt)[attempt - 1];
            let tenth = pause.checked_sub(least).unwrap().as_nanos() * 10 / all.as_nanos();
            // The end of the last one belongs to it.
            tenths[usize::try_from(tenth).unwrap().min(9)] += 1;
        }
        let is_even = tenths.iter().all(|it| (400..600).contains(it));
        assert!(is_even, "{start_within} {attempt}: {tenths:?}");
    }

    #[test]
    fn the_first_pause_is_short_and_the_others_are_spread_as_starts_are() {
        for (start_within, seconds) in [(0, 30), (30, 30), (150, 150)] {
            let all = Duration::from_secs(seconds);
            check_spread(start_within, 1, SOON, SOON);
            check_spread(start_within, 2, SOON, all);
            check_spread(start_within, 3, all / 2, all);
            check_spread(start_within, 8, all / 2, all);
        }
    }

    #[test]
    fn watches_and_attempts_of_an_agent_differ() {
        let (nodes, configs) = (pauses("n1", "nodes", 30, 4), pauses("n1", "configs", 30, 4));
        assert!(nodes.iter().zip(&configs).all(|(one, other)| one != other), "{nodes:?}");
        assert!(nodes.windows(2).all(|it| it[0] != it[1]), "{nodes:?}");
        assert_eq!(nodes, pauses("n1", "nodes", 30, 4));
    }

    #[test]
    fn a_watch_that_has_gone_well_begins_anew() {
        let mut pause = WatchPause::new("n1", "nodes", Duration::from_secs(60));
        let begun = Instant::now();
        let mut after = |second: u64| pause.after(begun + Duration::from_secs(second));
        let [first, second] = [after(0), after(2)];
        assert!(first < second, "{first:?} {second:?}");
        // As late as the longest pause ends.
        assert!(after(92) >= Duration::from_secs(30));
        assert_eq!(after(92 + 211), first, "nothing has failed for long");
        after(304);
        pause.reset();
        assert_eq!(pause.after(begun + Duration::from_secs(305)), first, "something has come");
    }
}
