//! The isolation audit's books. In: the kernel's entries, read again and again, and which container owned which CPU meanwhile. Out: for every owner
//! its intruders, and how much each ran on its CPUs. No kernel in here.
//!
//! The kernel's map is bounded, and its keys have names in them that never come back. So an entry that has not changed for
//! some readings is taken out there; here it goes on to count. The books are bounded, too: where a new intruder finds no room, the one that was seen
//! least recently, and has rested for some readings, loses its name and is counted in [`crate::Identity::Others`] from then on, of its CPU and kind.
//! Intruders that the kernel could not name are there from the beginning, so what an owner's list sums up to is all the time that was taken from it.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::CpuId;

use crate::records::{IntruderRecord, IntrusionRecord, UnnamedRecord, parse_intruder};
use crate::{CgroupId, Intruder, Intrusion, Kind};

/// Readings without a change after which an entry is taken out of the kernel's map.
const IDLE_READINGS_MAX: u32 = 3;
/// Intruders that are told apart per owner.
const INTRUDERS_MAX: usize = 512;
/// Readings without a change after which an intruder may lose its name to another; a minute where they are read every five seconds.
const RESTING_READINGS: u64 = 12;

/// By owner, the intruders on its CPUs.
pub type Intrusions = BTreeMap<CgroupId, BTreeMap<Intruder, Intrusion>>;

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    entries: BTreeMap<IntruderRecord, Entry>,
    /// How many there were.
    readings: u64,
    owners: BTreeMap<CgroupId, Taken>,
    /// By CPU, the last reading of the intruders that the kernel could not name.
    unnamed: BTreeMap<CpuId, UnnamedRecord>,
    /// All of them together, as it was told.
    unnamed_told: Intrusion,
}

/// An entry of the kernel's map.
#[derive(Debug)]
struct Entry {
    last: IntrusionRecord,
    idle_readings: u32,
}

/// What was taken of one owner.
#[derive(Debug, Default)]
struct Taken {
    /// At most [`INTRUDERS_MAX`].
    named: BTreeMap<Intruder, Sum>,
    /// Of each kind and CPU, the intruders without a name.
    others: BTreeMap<Intruder, Sum>,
}

/// By one intruder.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    taken: Intrusion,
    /// The most that was told: counters must not go down.
    told: Intrusion,
    /// The last reading that found it there.
    seen: u64,
}

impl Audit {
    /// Takes a reading of the whole map and charges what was added since the last one to the owners of the CPUs. Returns the entries to take out of
    /// the map. What was on a CPU without an owner is not charged.
    pub(crate) fn absorb(
        &mut self,
        reading: &[(IntruderRecord, IntrusionRecord)],
        owners: &BTreeMap<CpuId, CgroupId>,
    ) -> Vec<IntruderRecord> {
        self.readings += 1;
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
            if let Some(intruder) = parse_intruder(key)
                && let Some(owner) = owners.get(&intruder.cpu)
            {
                let taken = self.owners.entry(*owner).or_default();
                taken.charge(intruder, Intrusion::from(&added), self.readings);
            }
        }
        for key in &idle {
            self.entries.remove(key);
        }
        idle
    }

    /// Takes a reading of the intruders on a CPU that the kernel could not name, and charges what was added since the last one to its owner.
    pub(crate) fn absorb_unnamed(
        &mut self,
        cpu: CpuId,
        now: UnnamedRecord,
        owner: Option<CgroupId>,
    ) {
        let last = self.unnamed.insert(cpu, now).unwrap_or_default();
        let Some(owner) = owner.filter(|_| last != now) else { return };
        let taken = self.owners.entry(owner).or_default();
        let records = now.as_chunks::<2>().0.iter().zip(last.as_chunks::<2>().0);
        for (kind, (now, last)) in Kind::ALL.into_iter().zip(records) {
            let added = std::array::from_fn(|word| now[word].wrapping_sub(last[word]));
            if added != [0; 2] {
                taken.charge_others(&Intruder::others(cpu, kind), Intrusion::from(&added));
            }
        }
    }

    /// All intruders that the kernel could not name, on any CPU and of any owner.
    pub(crate) fn unnamed(&mut self) -> Intrusion {
        let mut sum = Intrusion::default();
        let records = self.unnamed.values().flat_map(|of_cpu| of_cpu.as_chunks::<2>().0);
        records.for_each(|record| sum.add(Intrusion::from(record)));
        self.unnamed_told.rise_to(sum);
        self.unnamed_told
    }

    /// Forgets everything about owners that are not watched any more.
    pub(crate) fn retain(&mut self, is_watched: impl Fn(CgroupId) -> bool) {
        self.owners.retain(|owner, _| is_watched(*owner));
    }

    /// Everything since each owner is watched. A sum that is smaller for the moment, or negative, stands still.
    pub(crate) fn intrusions(&mut self) -> Intrusions {
        self.owners.iter_mut().map(|(owner, taken)| (*owner, taken.tell())).collect()
    }
}

impl Taken {
    fn charge(&mut self, intruder: Intruder, added: Intrusion, reading: u64) {
        let is_full = self.named.len() >= INTRUDERS_MAX && !self.named.contains_key(&intruder);
        let sum = match is_full && !self.make_room(reading) {
            true => self.others.entry(intruder.among_others()).or_default(),
            false => self.named.entry(intruder).or_default(),
        };
        sum.taken.add(added);
        sum.seen = reading;
    }

    fn charge_others(&mut self, others: &Intruder, added: Intrusion) {
        self.others.entry(others.clone()).or_default().taken.add(added);
    }

    /// Drops the name of an intruder that rests; false where none does.
    fn make_room(&mut self, reading: u64) -> bool {
        let resting = self.named.iter().filter(|(_, it)| it.seen + RESTING_READINGS <= reading);
        let longest = resting.min_by_key(|(_, it)| (it.seen, it.told.ns));
        let Some(intruder) = longest.map(|(intruder, _)| intruder.clone()) else { return false };
        if let Some(gone) = self.named.remove(&intruder) {
            let sum = self.others.entry(intruder.among_others()).or_default();
            sum.taken.add(gone.taken);
            sum.told.add(gone.told);
        }
        true
    }

    fn tell(&mut self) -> BTreeMap<Intruder, Intrusion> {
        let all = self.named.iter_mut().chain(&mut self.others);
        let tell = |(intruder, Sum { taken, told, .. }): (&Intruder, &mut Sum)| {
            told.rise_to(*taken);
            (intruder.clone(), *told)
        };
        all.map(tell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, Kind};

    const OWNER: CgroupId = CgroupId(70);

    /// An intruder of kind interrupt on CPU 1.
    fn record(number: u64) -> IntruderRecord {
        let place = [1_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat();
        [u64::from_ne_bytes(place.try_into().unwrap()), number, 0, 0]
    }

    fn owners() -> BTreeMap<CpuId, CgroupId> {
        BTreeMap::from([(CpuId(1), OWNER)])
    }

    fn sums(audit: &mut Audit) -> Vec<(Identity, u64, u64)> {
        let all = audit.intrusions();
        let list = all.get(&OWNER).into_iter().flatten();
        list.map(|(intruder, sum)| (intruder.identity, sum.ns, sum.times)).collect()
    }

    #[test]
    fn what_was_added_goes_to_the_owner_of_that_time() {
        let mut audit = Audit::default();
        audit.absorb(&[(record(5), [100, 1])], &BTreeMap::new());
        assert_eq!(sums(&mut audit), []);
        audit.absorb(&[(record(5), [130, 3])], &owners());
        assert_eq!(sums(&mut audit), [(Identity::Interrupt(5), 30, 2)]);
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
        assert_eq!(sums(&mut audit), [(Identity::Interrupt(5), 107, 2)]);
    }

    #[test]
    fn an_entry_that_the_kernel_could_not_be_rid_of_is_not_counted_twice() {
        let mut audit = Audit::default();
        audit.absorb(&[(record(5), [100, 1])], &owners());
        audit.absorb(&[], &owners());
        audit.absorb(&[(record(5), [20, 1])], &owners());
        assert_eq!(sums(&mut audit), [(Identity::Interrupt(5), 120, 2)]);
    }

    /// So many intruders that were not seen before.
    fn crowd(audit: &mut Audit, numbers: std::ops::Range<u64>) {
        let reading: Vec<_> = numbers.map(|number| (record(number), [1, 1])).collect();
        audit.absorb(&reading, &owners());
    }

    const OTHERS: Identity = Identity::Others(Kind::Interrupt);

    #[test]
    fn names_without_end_become_others() {
        let mut audit = Audit::default();
        crowd(&mut audit, 0..600);
        let sums = sums(&mut audit);
        assert_eq!(sums.len(), INTRUDERS_MAX + 1);
        assert!(sums.contains(&(OTHERS, 88, 88)), "{:?}", sums.last());
    }

    #[test]
    fn the_first_names_are_not_kept_for_good() {
        let mut audit = Audit::default();
        crowd(&mut audit, 0..600);
        // All but one rest.
        for round in 2..2 + RESTING_READINGS {
            audit.absorb(&[(record(7), [round, round])], &owners());
        }
        crowd(&mut audit, 1000..1003);
        let sums = sums(&mut audit);
        assert_eq!(sums.len(), INTRUDERS_MAX + 1);
        for number in 1000..1003 {
            assert!(sums.contains(&(Identity::Interrupt(number), 1, 1)), "{number}: {sums:?}");
        }
        assert!(sums.contains(&(Identity::Interrupt(7), 13, 13)), "{sums:?}");
        assert!(sums.contains(&(OTHERS, 91, 91)), "{sums:?}");
    }

    #[test]
    fn a_process_that_loses_its_name_stays_in_the_sum() {
        let mut audit = Audit::default();
        let total = |audit: &mut Audit| sums(audit).iter().map(|(_, ns, _)| ns).sum::<u64>();
        // The last told of one is more than what is charged to it now.
        audit.absorb(&[(record(5), [100, 1])], &owners());
        assert_eq!(total(&mut audit), 100);
        audit.absorb(&[(record(5), [60, 1])], &owners());
        assert_eq!(total(&mut audit), 100);
        for round in 0..10 {
            crowd(&mut audit, 1000 * (round + 1)..1000 * (round + 1) + 400);
            (0..RESTING_READINGS).for_each(|_| _ = audit.absorb(&[], &owners()));
            assert_eq!(total(&mut audit), 100 + 400 * (round + 1));
        }
    }

    #[test]
    fn a_process_without_a_name_in_the_kernel_is_in_its_owners_sum() {
        let mut audit = Audit::default();
        // The third kind are processes, the fourth interrupts.
        let reading = |process: u64, interrupt: u64| {
            let mut record = [0; 12];
            [record[4], record[5], record[6], record[7]] = [process, 1, interrupt, 2];
            record
        };
        // Before the CPU has an owner, intrusions there concern no container.
        audit.absorb_unnamed(CpuId(1), reading(10, 20), None);
        assert_eq!(sums(&mut audit), []);
        audit.absorb(&[(record(5), [100, 1])], &owners());
        audit.absorb_unnamed(CpuId(1), reading(15, 20), Some(OWNER));
        let process = (Identity::Others(Kind::Process), 5, 0);
        assert_eq!(sums(&mut audit), [(Identity::Interrupt(5), 100, 1), process]);
        assert_eq!(audit.unnamed(), Intrusion { ns: 35, times: 3 });
        // With the intruders that have lost their names here.
        crowd(&mut audit, 1000..1600);
        audit.absorb_unnamed(CpuId(1), reading(15, 27), Some(OWNER));
        let sums = sums(&mut audit);
        let others = sums.iter().find(|(identity, ..)| *identity == OTHERS);
        assert_eq!(others.map(|(_, ns, _)| *ns), Some(89 + 7), "{sums:?}");
        audit.retain(|_| false);
        assert_eq!(audit.unnamed(), Intrusion { ns: 42, times: 3 });
    }

    #[test]
    fn what_is_negative_for_the_moment_is_shown_as_nothing() {
        let mut audit = Audit::default();
        audit.absorb(&[(record(5), [u64::MAX, 0])], &owners());
        assert_eq!(sums(&mut audit), [(Identity::Interrupt(5), 0, 0)]);
        audit.absorb(&[(record(5), [4, 1])], &owners());
        assert_eq!(sums(&mut audit), [(Identity::Interrupt(5), 4, 1)]);
    }
}
