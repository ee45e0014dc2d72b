//! The isolation audit's books. In: the kernel's entries, read again and again, and who owned which CPU meanwhile. Out: for every owner
//! who ran on his CPUs, and how much. No kernel in here.
//!
//! The kernel's map is bounded, and its keys have names in them that never come back. So an entry that has not changed for
//! some readings is taken out there; here it goes on to count.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::CpuId;

use crate::records::{IntruderRecord, IntrusionRecord, parse_intruder};
use crate::{CgroupId, Intruder, Intrusion, Who};

/// Readings without a change after which an entry is taken out of the kernel's map.
const IDLE_READINGS_MAX: u32 = 3;
/// Intruders that are told apart per owner; all further ones are [`Who::Others`].
const INTRUDERS_MAX: usize = 512;

/// Who ran on whose CPUs.
pub type Intrusions = BTreeMap<CgroupId, BTreeMap<Intruder, Intrusion>>;

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    entries: BTreeMap<IntruderRecord, Entry>,
    intrusions: Intrusions,
    /// The most that was shown of each: counters must not go down.
    shown: Intrusions,
}

/// An entry of the kernel's map.
#[derive(Debug)]
struct Entry {
    last: IntrusionRecord,
    idle_readings: u32,
}

impl Audit {
    /// Takes a reading of the whole map and charges what was added since the last one to those who owned the CPUs. Returns the entries to
    /// take out of the map. What was on a CPU without an owner is nobody's business.
    pub(crate) fn absorb(
        &mut self,
        reading: &[(IntruderRecord, IntrusionRecord)],
        owners: &BTreeMap<CpuId, CgroupId>,
    ) -> Vec<IntruderRecord> {
        let present: BTreeSet<&IntruderRecord> = reading.iter().map(|(key, _)| key).collect();
        self.entries.retain(|key, _| present.contains(key));
        let mut idle = Vec::new();
        for (key, now) in reading {
            let entry =
                self.entries.entry(*key).or_insert(Entry { last: [0; 2], idle_readings: 0 });
            if entry.last == *now {
                entry.idle_readings += 1;
                if entry.idle_readings >= IDLE_READINGS_MAX {
                    idle.push(*key);
                }
                continue;
            }
            let added = std::array::from_fn(|word| now[word].wrapping_sub(entry.last[word]));
            *entry = Entry { last: *now, idle_readings: 0 };
            if let Some(intruder) = parse_intruder(key) {
                self.charge(intruder, Intrusion::from(&added), owners);
            }
        }
        for key in &idle {
            self.entries.remove(key);
        }
        idle
    }

    /// Forgets everything about owners who are not watched any more.
    pub(crate) fn retain(&mut self, is_watched: impl Fn(CgroupId) -> bool) {
        self.intrusions.retain(|owner, _| is_watched(*owner));
        self.shown.retain(|owner, _| is_watched(*owner));
    }

    /// Everything since each owner is watched. A sum that is smaller for the moment, or negative, stands still.
    pub(crate) fn intrusions(&mut self) -> Intrusions {
        let floor = |sum: u64| if sum.cast_signed() < 0 { 0 } else { sum };
        for (owner, list) in &self.intrusions {
            let shown = self.shown.entry(*owner).or_default();
            for (intruder, sum) in list {
                let most = shown.entry(intruder.clone()).or_default();
                most.ns = most.ns.max(floor(sum.ns));
                most.times = most.times.max(floor(sum.times));
            }
        }
        self.shown.clone()
    }

    fn charge(&mut self, intruder: Intruder, added: Intrusion, owners: &BTreeMap<CpuId, CgroupId>) {
        let Some(owner) = owners.get(&intruder.cpu) else { return };
        let list = self.intrusions.entry(*owner).or_default();
        let is_known = list.contains_key(&intruder) || list.len() < INTRUDERS_MAX;
        let key = match is_known {
            true => intruder,
            false => Intruder { cpu: intruder.cpu, who: Who::Others, name: String::new() },
        };
        list.entry(key).or_default().add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: CgroupId = CgroupId(70);

    /// An intruder of kind interrupt on CPU 1.
    fn record(number: u64) -> IntruderRecord {
        let place = [1_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat();
        [u64::from_ne_bytes(place.try_into().unwrap()), number, 0, 0]
    }

    fn owners() -> BTreeMap<CpuId, CgroupId> {
        BTreeMap::from([(CpuId(1), OWNER)])
    }

    fn sums(audit: &mut Audit) -> Vec<(Who, u64, u64)> {
        let all = audit.intrusions();
        let list = all.get(&OWNER).into_iter().flatten();
        list.map(|(intruder, sum)| (intruder.who, sum.ns, sum.times)).collect()
    }

    #[test]
    fn what_was_added_goes_to_the_owner_of_that_time() {
        let mut audit = Audit::default();
        audit.absorb(&[(record(5), [100, 1])], &BTreeMap::new());
        assert_eq!(sums(&mut audit), []);
        audit.absorb(&[(record(5), [130, 3])], &owners());
        assert_eq!(sums(&mut audit), [(Who::Interrupt(5), 30, 2)]);
        audit.retain(|_| false);
        assert_eq!(sums(&mut audit), []);
    }

    #[test]
    fn an_entry_that_rests_is_taken_out_and_counts_on_when_it_comes_again() {
        let mut audit = Audit::default();
        let reading = [(record(5), [100, 1])];
        for _ in 0..IDLE_READINGS_MAX {
            assert_eq!(audit.absorb(&reading, &owners()), Vec::<IntruderRecord>::new());
        }
        assert_eq!(audit.absorb(&reading, &owners()), [record(5)]);
        audit.absorb(&[], &owners());
        audit.absorb(&[(record(5), [7, 1])], &owners());
        assert_eq!(sums(&mut audit), [(Who::Interrupt(5), 107, 2)]);
    }

    #[test]
    fn an_entry_that_the_kernel_could_not_be_rid_of_is_not_counted_twice() {
        let mut audit = Audit::default();
        audit.absorb(&[(record(5), [100, 1])], &owners());
        audit.absorb(&[], &owners());
        audit.absorb(&[(record(5), [20, 1])], &owners());
        assert_eq!(sums(&mut audit), [(Who::Interrupt(5), 120, 2)]);
    }

    #[test]
    fn names_without_end_become_others() {
        let mut audit = Audit::default();
        let reading: Vec<_> = (0..600).map(|number| (record(number), [1, 1])).collect();
        audit.absorb(&reading, &owners());
        let sums = sums(&mut audit);
        assert_eq!(sums.len(), INTRUDERS_MAX + 1);
        assert!(sums.contains(&(Who::Others, 88, 88)), "{:?}", sums.last());
    }

    #[test]
    fn what_is_negative_for_the_moment_is_shown_as_nothing() {
        let mut audit = Audit::default();
        audit.absorb(&[(record(5), [u64::MAX, 0])], &owners());
        assert_eq!(sums(&mut audit), [(Who::Interrupt(5), 0, 0)]);
        audit.absorb(&[(record(5), [4, 1])], &owners());
        assert_eq!(sums(&mut audit), [(Who::Interrupt(5), 4, 1)]);
    }
}
