//! When a container's cgroup is looked for again. In: which containers are there, and the time. Out: which ones are looked for, and what was found.
//!
//! Problem: a cgroup that is not there yet is there a moment later; one that never is (a runtime without cgroups, or one that names them as no other
//! does) would be looked for in vain at every reading, for ever. Approach: each look in vain doubles the wait for the next; one that failed does not.
//! A container that is made anew has another id, and one that was started or updated, or turns out to be in another place, is looked for at once.

use std::collections::BTreeMap;
use std::ops::Add;
use std::time::{Duration, Instant};

use bayplan_workload::Resources;

use bayplan_node::occupancy::Occupant;

/// Shorter than between two readings, so that the second look comes with the next.
const WAIT_FIRST: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(300);
const SETS_WAIT_FIRST: Duration = Duration::from_millis(250);
const SETS_WAIT_MAX: Duration = Duration::from_secs(32);

/// Containers that were looked for in vain, by the runtime's id. `T` is the time, `S` what a container was like then: one that has changed is looked for at once.
#[derive(Debug)]
pub(crate) struct Lookups<T = Instant, S = Shape> {
    wait_first: Duration,
    wait_max: Duration,
    missed: BTreeMap<String, Missed<T, S>>,
}

#[derive(Debug)]
struct Missed<T, S> {
    shape: S,
    next: T,
    wait: Duration,
}

/// What a container's cgroup depends on.
#[derive(Debug, PartialEq)]
pub(crate) struct Shape {
    /// An update changes it.
    resources: Resources,
    cgroup_parent: String,
    /// Some runtimes make the cgroup only with the start.
    is_running: bool,
}

impl Shape {
    fn of(occupant: &Occupant) -> Shape {
        let Occupant { spec, is_running, .. } = occupant;
        let (resources, cgroup_parent) = (spec.resources, spec.pod.cgroup_parent.clone());
        Shape { resources, cgroup_parent, is_running: *is_running }
    }
}

impl Default for Lookups {
    fn default() -> Lookups {
        Lookups::new(WAIT_FIRST, WAIT_MAX)
    }
}

impl<T: Copy + PartialOrd + Add<Duration, Output = T>, S: PartialEq> Lookups<T, S> {
    /// With these waits after the first look in vain, and at most.
    fn new(wait_first: Duration, wait_max: Duration) -> Lookups<T, S> {
        Lookups { wait_first, wait_max, missed: BTreeMap::new() }
    }

    /// For CPU sets, which cannot be repaired, or taken away, before they are found.
    pub(crate) fn of_sets() -> Lookups<T, S> {
        Lookups::new(SETS_WAIT_FIRST, SETS_WAIT_MAX)
    }

    /// Whether it is too early to look for this one.
    pub(crate) fn is_early(&self, id: &str, shape: &S, now: T) -> bool {
        self.missed.get(id).is_some_and(|it| it.shape == *shape && now < it.next)
    }

    /// It was looked for in vain.
    pub(crate) fn miss(&mut self, id: &str, shape: S, now: T) {
        let before = self.missed.get(id).filter(|it| it.shape == shape);
        let wait = before.map_or(self.wait_first, |it| (it.wait * 2).min(self.wait_max));
        self.missed.insert(id.to_owned(), Missed { shape, next: now + wait, wait });
    }

    /// It was found, is gone, or is to be looked for at once.
    pub(crate) fn forget(&mut self, id: &str) {
        self.missed.remove(id);
    }

    /// Forgets all others.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.missed.retain(|id, _| is_there(id));
    }
}

impl<T: Copy + PartialOrd + Add<Duration, Output = T>> Lookups<T> {
    /// Looks for this one, unless it is too early for that. `None`: nothing was found, or not looked for, or the look failed.
    pub(crate) fn look<F, E>(
        &mut self,
        occupant: &Occupant,
        now: T,
        find: impl FnOnce() -> Result<Option<F>, E>,
    ) -> Option<F> {
        let (id, shape) = (&occupant.runtime_id, Shape::of(occupant));
        if self.is_early(id, &shape, now) {
            return None;
        }
        let found = find().ok()?;
        match found {
            Some(_) => self.forget(id),
            None => self.miss(id, shape, now),
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observer::tests::occupant;

    /// Readings every five seconds; the seconds at which this one was looked for.
    fn looks(seconds: std::ops::Range<u64>, lookups: &mut Lookups, it: &Occupant) -> Vec<u64> {
        let start = Instant::now();
        let mut looks = Vec::new();
        for second in seconds.step_by(5) {
            let now = start + Duration::from_secs(second);
            let found = lookups.look::<(), ()>(it, now, || {
                looks.push(second);
                Ok(None)
            });
            assert_eq!(found, None);
        }
        looks
    }

    #[test]
    fn what_is_never_found_is_looked_for_less_and_less() {
        let mut lookups = Lookups::default();
        let seconds = looks(0..3600, &mut lookups, &occupant("server", 0, "abc"));
        let (first, rest) = seconds.split_at(8);
        assert_eq!(first, [0, 5, 10, 20, 40, 75, 140, 270]);
        let waits: Vec<u64> = rest.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits.iter().all(|wait| *wait == 300), "{waits:?}");
    }

    /// Looks at one moment; what each finds, and `None` where it was not looked.
    #[test]
    fn what_is_started_updated_or_made_anew_or_could_not_be_looked_for_is_looked_for_at_once() {
        let (mut lookups, now) = (Lookups::default(), Instant::now());
        let mut look = |it: &Occupant, finds: Result<Option<()>, ()>| {
            let mut seen = None;
            let found = lookups.look(it, now, || {
                seen = Some(finds);
                finds
            });
            assert_eq!(found, seen.and_then(Result::ok).flatten());
            seen
        };
        let (there, absent, failed) = (Ok(Some(())), Ok(None), Err(()));
        let mut it = occupant("server", 0, "abc");
        assert_eq!(
            [failed, failed, absent].map(|finds| look(&it, finds)),
            [failed, failed, absent].map(Some)
        );
        assert_eq!(look(&it, there), None);
        Arc::make_mut(&mut it.spec).resources.cpu_shares = 512;
        // Should it be lost, it is looked for at once.
        assert_eq!([there, absent].map(|finds| look(&it, finds)), [there, absent].map(Some));
        assert_eq!(look(&it, there), None);
        Arc::make_mut(&mut it.spec).pod.cgroup_parent.push_str("/elsewhere");
        assert_eq!(look(&it, absent), Some(absent));
        it.is_running = false;
        assert_eq!([absent, there].map(|finds| look(&it, finds)), [Some(absent), None]);
        it.is_running = true;
        assert_eq!(look(&it, absent), Some(absent));
        assert_eq!(look(&occupant("server", 1, "def"), there), Some(there));
        lookups.retain(|id| id != "abc");
        assert_eq!(lookups.look(&it, now, || Ok::<_, ()>(Some(()))), Some(()));
    }
}
