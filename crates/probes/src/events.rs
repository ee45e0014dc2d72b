//! What processors and the kernel count while a container runs. In: readings of counters that may have counted a part of the time only. Out: counts
//! as of all the time.

use std::collections::BTreeMap;

use crate::records::EventsRecord;

/// Which counters are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CounterChoice {
    /// The processor's, where Linux can have them.
    #[default]
    Auto,
    /// The kernel's own, which every machine has.
    Software,
    /// None.
    Off,
}

/// Something that is counted (`perf_event_open(2)`; those of caches as `last_level.rs` says).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Cycles of the processor while it was not idle.
    Cycles,
    /// Instructions that were carried out.
    Instructions,
    /// Cycles at a fixed frequency.
    ReferenceCycles,
    /// Accesses to the last-level cache; where a core does not count them, to a nearer one: L2 on AMD's processors before Zen 3, L1 on some of Arm.
    CacheReferences,
    /// Those that found nothing there.
    CacheMisses,
    /// Page faults.
    PageFaults,
    /// Times that the CPU went from one task to another.
    ContextSwitches,
    /// Time in ns.
    CpuClock,
}

impl Event {
    /// The name as it stands in files and labels.
    pub fn name(self) -> &'static str {
        match self {
            Event::Cycles => "cycles",
            Event::Instructions => "instructions",
            Event::ReferenceCycles => "reference-cycles",
            Event::CacheReferences => "cache-references",
            Event::CacheMisses => "cache-misses",
            Event::PageFaults => "page-faults",
            Event::ContextSwitches => "context-switches",
            Event::CpuClock => "cpu-clock",
        }
    }
}

impl CounterChoice {
    /// What is counted where the machine can; at most as many as the kernel side has maps for.
    pub fn events(self) -> &'static [Event] {
        match self {
            CounterChoice::Auto => &[
                Event::Cycles,
                Event::Instructions,
                Event::ReferenceCycles,
                Event::CacheReferences,
                Event::CacheMisses,
            ],
            CounterChoice::Software => {
                &[Event::PageFaults, Event::ContextSwitches, Event::CpuClock]
            }
            CounterChoice::Off => &[],
        }
    }

    /// The same for people.
    pub(crate) fn counts(self) -> &'static str {
        match self {
            CounterChoice::Auto => "cycles, instructions and cache misses of the processor",
            CounterChoice::Software => "page faults, context switches and time, by the kernel",
            CounterChoice::Off => "nothing",
        }
    }
}

/// What was counted while one container's tasks ran, since it is first watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// By event; none before something was counted. Where counters were shared with others and so counted a part of the time, what they would have counted in all of it.
    pub counts: BTreeMap<Event, u64>,
    /// Time in ns that it ran and was to be counted.
    pub enabled_ns: u64,
    /// Time of that, in ns, in which events were counted for it.
    pub running_ns: u64,
    /// Time of that, in ns, in which they were not, because its CPUs changed hands too often to read them each time.
    pub unread_ns: u64,
}

/// A source of counts: readings of the kernel's record of one container, one after the other. Those of this machine and recorded ones go through the same.
#[derive(Clone, Debug)]
pub struct CounterStream {
    events: Vec<Event>,
    last: EventsRecord,
    counts: EventCounts,
}

impl CounterStream {
    /// Nothing was counted yet of these events, in their order in the record.
    pub fn new(events: &[Event]) -> CounterStream {
        CounterStream { events: events.to_vec(), last: [0; 8], counts: EventCounts::default() }
    }

    /// Takes the next reading: time to be counted, time counted, time not read, all in ns, and then counts (`struct event_counts` of `bpf/records.h`).
    pub fn take(&mut self, record: [u64; 8]) -> &EventCounts {
        self.counts.absorb(&self.events, &self.last, &record);
        self.last = record;
        &self.counts
    }

    /// What was counted up to the last reading.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }
}

impl EventCounts {
    /// Adds what has come between two readings of the kernel's record. Time in which nothing was counted adds no counts: they are not known.
    fn absorb(&mut self, events: &[Event], before: &EventsRecord, now: &EventsRecord) {
        let [enabled, running, unread, counts @ ..] =
            std::array::from_fn(|word| since(now, before, word)) as EventsRecord;
        self.enabled_ns = self.enabled_ns.saturating_add(enabled);
        self.running_ns = self.running_ns.saturating_add(running);
        self.unread_ns = self.unread_ns.saturating_add(unread);
        if running == 0 {
            return;
        }
        for (event, count) in events.iter().zip(counts) {
            let sum = self.counts.entry(*event).or_default();
            *sum = sum.saturating_add(as_of_all_time(count, enabled, running));
        }
    }

    /// What was added since `before`.
    pub fn since(&self, before: &EventCounts) -> EventCounts {
        let added = |(event, count): (&Event, &u64)| {
            let then = before.counts.get(event).copied().unwrap_or_default();
            (*event, count.saturating_sub(then))
        };
        EventCounts {
            counts: self.counts.iter().map(added).collect(),
            enabled_ns: self.enabled_ns.saturating_sub(before.enabled_ns),
            running_ns: self.running_ns.saturating_sub(before.running_ns),
            unread_ns: self.unread_ns.saturating_sub(before.unread_ns),
        }
    }

    /// Time in ns in which others had taken the processor's counters: another tool's events, or the kernel's own watchdog.
    pub fn taken_ns(&self) -> u64 {
        self.enabled_ns.saturating_sub(self.running_ns).saturating_sub(self.unread_ns)
    }

    /// How much of the time was counted, 0 to 1; `None` when there was none.
    pub fn counted_share(&self) -> Option<f64> {
        let share = self.running_ns as f64 / self.enabled_ns as f64;
        (self.enabled_ns > 0).then(|| share.min(1.0))
    }
}

fn since(now: &EventsRecord, before: &EventsRecord, word: usize) -> u64 {
    let at = |record: &EventsRecord| record.get(word).copied().unwrap_or_default();
    at(now).saturating_sub(at(before))
}

/// A count of a part of the time, extended to all of it.
fn as_of_all_time(count: u64, enabled: u64, running: u64) -> u64 {
    if running >= enabled {
        return count;
    }
    let all = u128::from(count) * u128::from(enabled) / u128::from(running.max(1));
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENTS: &[Event] = &[Event::Cycles, Event::Instructions];

    #[track_caller]
    fn check(before: EventsRecord, now: EventsRecord, expected: [u64; 4]) {
        let mut counts = EventCounts::default();
        counts.absorb(EVENTS, &before, &now);
        let [cycles, instructions] =
            [0, 1].map(|at| counts.counts.get(&EVENTS[at]).copied().unwrap_or_default());
        assert_eq!(counts.counts.is_empty(), counts.running_ns == 0);
        assert_eq!([counts.enabled_ns, counts.running_ns, cycles, instructions], expected);
    }

    #[test]
    fn what_was_counted_all_the_time_is_as_it_is() {
        check([0; 8], [100, 100, 0, 300, 200, 9, 9, 9], [100, 100, 300, 200]);
        check([100, 100, 0, 300, 200, 0, 0, 0], [150, 150, 0, 310, 220, 0, 0, 0], [50, 50, 10, 20]);
    }

    #[test]
    fn what_was_counted_a_part_of_the_time_is_extended() {
        check([0; 8], [100, 25, 0, 300, 200, 0, 0, 0], [100, 25, 1200, 800]);
        check(
            [u64::MAX / 2, 0, 0, 0, 0, 0, 0, 0],
            [u64::MAX, 1, 0, u64::MAX, 1, 0, 0, 0],
            [u64::MAX / 2 + 1, 1, u64::MAX, u64::MAX / 2 + 1],
        );
    }

    #[test]
    fn time_in_which_nothing_was_counted_is_told_and_adds_nothing() {
        check([50, 10, 0, 7, 7, 0, 0, 0], [100, 10, 50, 7, 7, 0, 0, 0], [50, 0, 0, 0]);
        let counts = EventCounts { enabled_ns: 50, ..EventCounts::default() };
        assert_eq!(counts.counted_share(), Some(0.0));
        assert_eq!(EventCounts::default().counted_share(), None);
    }

    #[track_caller]
    fn check_lost(record: EventsRecord, unread_ns: u64, taken_ns: u64) {
        let mut counts = EventCounts::default();
        counts.absorb(EVENTS, &[0; 8], &record);
        assert_eq!((counts.unread_ns, counts.taken_ns()), (unread_ns, taken_ns));
    }

    #[test]
    fn what_others_took_is_told_from_what_was_not_read() {
        check_lost([100, 100, 0, 1, 1, 0, 0, 0], 0, 0);
        check_lost([100, 60, 40, 1, 1, 0, 0, 0], 40, 0);
        check_lost([100, 60, 0, 1, 1, 0, 0, 0], 0, 40);
        check_lost([100, 60, 10, 1, 1, 0, 0, 0], 10, 30);
        // Readings on several CPUs are not of one moment.
        check_lost([100, 60, 50, 1, 1, 0, 0, 0], 50, 0);
    }

    #[test]
    fn the_kernel_side_has_a_map_for_each() {
        for choice in [CounterChoice::Auto, CounterChoice::Software, CounterChoice::Off] {
            assert!(choice.events().len() + 3 <= size_of::<EventsRecord>() / 8, "{choice:?}");
        }
    }

    proptest! {
        #[test]
        fn readings_in_between_change_nothing_where_all_the_time_was_counted(
            steps in proptest::collection::vec((1_u64..1 << 30, 0_u64..1 << 40), 1..20)
        ) {
            let mut at: EventsRecord = [0; 8];
            let mut counts = EventCounts::default();
            for (time, count) in steps {
                let before = at;
                at = [at[0] + time, at[1] + time, 0, at[3] + count, at[4] + count / 2, 0, 0, 0];
                counts.absorb(EVENTS, &before, &at);
            }
            let mut at_once = EventCounts::default();
            at_once.absorb(EVENTS, &[0; 8], &at);
            prop_assert_eq!(counts, at_once);
        }
    }
}
