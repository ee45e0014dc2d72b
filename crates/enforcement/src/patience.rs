//! How long to insist. In: plans, what became of their writes, and the time. Out: the writes to make now, and what an operator should know.
//!
//! A write that fails is tried again after 1, 2, 4 ... 300 seconds. A file that was right and is not any more was changed by another program (drift):
//! it is repaired, up to [`REPAIRS_MAX`] times in [`REPAIRS_WITHIN`]; then it is left to the other for [`TRUCE`] and reported as contested. A program
//! that writes it along with something else ([`Author`]) is no opponent, and is repaired as often as it happens. What is wanted anew is always tried
//! at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::author::Author;
use crate::file_plan::{FilePlan, FileWrite};
use crate::setting::{Form, Settings, Slot};

/// Repairs of one file before it is left to the program that changes it.
pub const REPAIRS_MAX: usize = 5;
/// The time in which that many repairs are a fight.
pub const REPAIRS_WITHIN: Duration = Duration::from_secs(600);
/// How long a contested file is left alone.
pub const TRUCE: Duration = Duration::from_secs(1800);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// What is known of each file that is, or was, to be changed.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    slots: BTreeMap<Slot, Seen>,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// What was wanted of it when it was last looked at.
    wanted: String,
    /// It had that.
    was_right: bool,
    failures: u32,
    not_before: Duration,
    repairs: Vec<Duration>,
    truce_until: Option<Duration>,
}

/// Something that has changed for one file, to be told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another program has changed it; it is repaired.
    Drifted {
        /// The repair.
        write: FileWrite,
        /// The program, as far as that can be told.
        by: Author,
    },
    /// Another program changes it again and again; it is left alone for [`TRUCE`].
    Contested {
        /// The repair that is not made.
        write: FileWrite,
    },
}

impl Patience {
    /// Takes out of the plan what is not to be written now. `author` says what has made a write necessary; `now` only ever grows, from any beginning.
    pub fn sift(
        &mut self,
        settings: &Settings,
        plan: FilePlan,
        author: impl Fn(&FileWrite) -> Author,
        now: Duration,
    ) -> (FilePlan, Vec<Notice>) {
        let mut notices = Vec::new();
        let wrong: BTreeSet<&Slot> = plan.writes.iter().map(|write| &write.slot).collect();
        let unread: BTreeSet<&Slot> = plan.impossible.iter().map(|it| &it.slot).collect();
        for (slot, setting) in settings.iter().filter(|(slot, _)| !wrong.contains(slot)) {
            let was_right = !unread.contains(slot);
            // Copies nothing of what it knows already: this is done for every file at every look.
            match self.slots.get_mut(slot) {
                // What was not read says nothing.
                Some(seen) if seen.wanted == setting.value && !was_right => {}
                Some(seen) if seen.wanted == setting.value => {
                    (seen.was_right, seen.failures) = (true, 0);
                }
                _ => {
                    let wanted = setting.value.clone();
                    self.slots.insert(slot.clone(), Seen { wanted, was_right, ..Seen::default() });
                }
            }
        }
        // All that is wanted is there, so as many are the same.
        if !wrong.is_empty() || self.slots.len() != settings.len() {
            self.slots.retain(|slot, _| settings.contains_key(slot) || wrong.contains(slot));
        }
        let FilePlan { remember, writes, forget, impossible } = plan;
        // A step is made with what it leads to, or not at all.
        let last = writes.iter().filter(|write| !write.is_step);
        let may = last.filter(|write| self.may_write(write, &author, now, &mut notices));
        let may: BTreeSet<Slot> = may.map(|write| write.slot.clone()).collect();
        let keep = |write: &FileWrite| may.contains(&write.slot);
        let writes: Vec<FileWrite> = writes.into_iter().filter(keep).collect();
        (FilePlan { remember, writes, forget, impossible }, notices)
    }

    fn entry(&mut self, slot: &Slot, wanted: &str) -> &mut Seen {
        let seen = self.slots.entry(slot.clone()).or_default();
        if seen.wanted != wanted {
            *seen = Seen { wanted: wanted.to_owned(), ..Seen::default() };
        }
        seen
    }

    /// All files that are, or were, to be changed, in the order of their paths.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.keys()
    }

    fn may_write(
        &mut self,
        write: &FileWrite,
        author: impl Fn(&FileWrite) -> Author,
        now: Duration,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let seen = self.entry(&write.slot, &write.new);
        if seen.truce_until.is_some_and(|until| now < until) || now < seen.not_before {
            return false;
        }
        seen.truce_until = None;
        if !std::mem::take(&mut seen.was_right) {
            return true;
        }
        // The runtime writes it with every update that it is told of, by bayplan too.
        if write.form == Form::CpuMax {
            return true;
        }
        let by = author(write);
        if by != Author::Others {
            notices.push(Notice::Drifted { write: write.clone(), by });
            return true;
        }
        seen.repairs.retain(|at| now.saturating_sub(*at) < REPAIRS_WITHIN);
        if seen.repairs.len() >= REPAIRS_MAX {
            seen.repairs.clear();
            seen.truce_until = Some(now + TRUCE);
            notices.push(Notice::Contested { write: write.clone() });
            return false;
        }
        seen.repairs.push(now);
        notices.push(Notice::Drifted { write: write.clone(), by });
        true
    }

    /// A write has succeeded or failed. Whether it is the first of several failures, which is the one to tell.
    pub fn note(&mut self, write: &FileWrite, has_failed: bool, now: Duration) -> bool {
        if write.is_step {
            return false;
        }
        let seen = self.entry(&write.slot, &write.new);
        if !has_failed {
            (seen.failures, seen.was_right) = (0, true);
            return false;
        }
        let wait = Duration::from_secs(1 << seen.failures.min(16)).min(RETRY_MAX);
        seen.not_before = now + wait;
        seen.failures += 1;
        seen.failures == 1
    }

    /// Modes were changed: what is wrong at the next look need not be the work of another program.
    pub fn unsettle(&mut self) {
        for seen in self.slots.values_mut() {
            seen.was_right = false;
        }
    }

    /// Whatever has failed or is contested is tried at once.
    pub fn insist(&mut self) {
        for seen in self.slots.values_mut() {
            (seen.not_before, seen.truce_until) = (Duration::ZERO, None);
        }
    }

    /// When the first of the failed writes is due again.
    pub fn next_try(&self) -> Option<Duration> {
        let failing = self.slots.values().filter(|seen| seen.failures > 0);
        failing.map(|seen| seen.not_before).min()
    }

    /// Files that are left to another program.
    pub fn contested(&self) -> impl Iterator<Item = &Slot> {
        let contested = self.slots.iter().filter(|(_, seen)| seen.truce_until.is_some());
        contested.map(|(slot, _)| slot)
    }

    /// Files with a last write that failed.
    pub fn failing(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|(_, seen)| seen.failures > 0).map(|(slot, _)| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_plan::plan_files;
    use crate::setting::{Observed, Setting};

    fn settings(form: Form, value: &str) -> Settings {
        let (unit, reason) = ("u".to_owned(), "r".to_owned());
        let setting = Setting { form, value: value.to_owned(), unit, reason };
        [(Slot::file("f"), setting)].into()
    }

    struct Story {
        form: Form,
        patience: Patience,
        by: Author,
        lines: Vec<String>,
    }

    impl Story {
        /// The file says `found` at this second; a write then succeeds or not.
        fn look(&mut self, second: u64, wanted: &str, found: &str, succeeds: bool) {
            let now = Duration::from_secs(second);
            let observed: Observed = [("f".to_owned(), Ok(found.to_owned()))].into();
            let settings = settings(self.form.clone(), wanted);
            let plan = plan_files(&settings, &observed, &BTreeMap::new());
            let (plan, notices) = self.patience.sift(&settings, plan, |_| self.by, now);
            let mut line = format!("{second}:");
            for notice in notices {
                line += match notice {
                    Notice::Drifted { .. } => " drifted",
                    Notice::Contested { .. } => " contested",
                };
            }
            for write in &plan.writes {
                let is_first = self.patience.note(write, !succeeds, now);
                line += if succeeds { " written" } else { " failed" };
                line += if is_first { ", told" } else { "" };
            }
            self.lines.push(line);
        }
    }

    fn story() -> Story {
        let patience = Patience::default();
        Story { form: Form::Text, patience, by: Author::Others, lines: Vec::new() }
    }

    #[test]
    fn steps_wait_with_what_they_lead_to() {
        let (unit, reason) = ("u".to_owned(), "r".to_owned());
        let setting = Setting { form: Form::OwnCpus, value: "2-3".to_owned(), unit, reason };
        let settings: Settings = [(Slot::file("f"), setting)].into();
        let observed: Observed = [("f".to_owned(), Ok("0-2".to_owned()))].into();
        let mut patience = Patience::default();
        let mut lines = Vec::new();
        for second in [0, 0, 1, 1, 2, 3] {
            let now = Duration::from_secs(second);
            let plan = plan_files(&settings, &observed, &BTreeMap::new());
            let (plan, _) = patience.sift(&settings, plan, |_| Author::Others, now);
            let firsts = plan.writes.iter().map(|write| patience.note(write, true, now));
            lines.push(format!("{second}: {:?}", firsts.collect::<Vec<_>>()));
        }
        let due = ["0: [false, true]", "0: []", "1: [false, false]", "1: []", "2: []"];
        assert_eq!(lines, [&due[..], &["3: [false, false]"]].concat());
    }

    #[test]
    fn a_failed_write_waits_longer_each_time() {
        let mut story = story();
        for second in [0, 1, 2, 3, 6, 7, 100] {
            story.look(second, "1", "0", false);
        }
        assert_eq!(story.patience.next_try(), Some(Duration::from_secs(116)));
        story.look(101, "2", "0", true);
        story.look(102, "2", "2", true);
        let expected = [
            "0: failed, told",
            "1: failed",
            "2:",
            "3: failed",
            "6:",
            "7: failed",
            "100: failed",
            "101: written",
            "102:",
        ];
        assert_eq!(story.lines, expected);
        assert_eq!(story.patience.next_try(), None);
    }

    #[test]
    fn drift_is_repaired_but_not_fought_over() {
        let mut story = story();
        story.look(0, "1", "0", true);
        for second in 1..=7 {
            story.look(second, "1", "0", true);
        }
        assert_eq!(story.patience.contested().count(), 1);
        story.look(1806, "1", "0", true);
        story.look(1807, "1", "0", true);
        let expected = [
            "0: written",
            "1: drifted written",
            "2: drifted written",
            "3: drifted written",
            "4: drifted written",
            "5: drifted written",
            "6: contested",
            "7:",
            "1806: written",
            "1807: drifted written",
        ];
        assert_eq!(story.lines, expected);
    }

    #[test]
    fn a_limit_that_the_runtime_writes_again_and_again_is_no_fight() {
        let mut story = Story { form: Form::CpuMax, ..story() };
        for second in 0..20 {
            story.look(second, "max", "200000 100000", true);
        }
        assert!(story.lines.iter().all(|line| line.ends_with(": written")), "{:?}", story.lines);
    }

    #[test]
    fn what_is_written_along_is_repaired_for_ever() {
        for by in [Author::Runtime, Author::Systemd] {
            let mut story = Story { by, ..story() };
            for second in 0..30 {
                story.look(second, "1", "0", true);
            }
            assert!(story.lines.iter().skip(1).all(|line| line.ends_with(": drifted written")));
            // It was no beginning of a fight, either.
            story.by = Author::Others;
            for second in 30..=35 {
                story.look(second, "1", "0", true);
            }
            assert_eq!(story.lines.last().unwrap(), "35: contested", "{by:?}");
        }
    }

    #[test]
    fn what_is_wanted_anew_is_no_drift() {
        let mut story = story();
        story.look(0, "1", "0", true);
        story.look(1, "2", "1", true);
        story.look(2, "2", "2", true);
        assert_eq!(story.lines, ["0: written", "1: written", "2:"]);
    }
}
