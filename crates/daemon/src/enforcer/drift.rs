//! Containers with kernel files that another program changes, for the rebalancer: what was measured of them meanwhile is not what was decided for
//! them. In: what the enforcer noticed, and when. Out: containers, by their full names.
//!
//! What the runtime or systemd writes along with something else is repaired at once and is no drift: systemd does so every minute.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bayplan_enforcement::{Author, Notice, TRUCE};

/// What was noticed, with when it is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Drifts {
    changed: BTreeMap<String, Instant>,
    contested: BTreeMap<String, Instant>,
}

/// Containers with files that another program changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drift {
    /// They were changed, and repaired.
    pub(crate) changed: BTreeSet<String>,
    /// They are changed again and again, and left to the other for a while.
    pub(crate) contested: BTreeSet<String>,
}

impl Drifts {
    /// `are_contested`: files are left to another program at all.
    pub(super) fn note(&mut self, notices: &[Notice], are_contested: bool, now: Instant) {
        self.contested.retain(|_, until| are_contested && *until > now);
        // Changes longer ago than this are not asked for.
        self.changed.retain(|_, at| now.saturating_duration_since(*at) < TRUCE);
        for notice in notices {
            match notice {
                Notice::Drifted { write, by: Author::Others } => {
                    self.changed.insert(write.unit.clone(), now);
                }
                Notice::Drifted { .. } => {}
                Notice::Contested { write } => {
                    self.contested.insert(write.unit.clone(), now + TRUCE);
                }
            }
        }
    }

    /// What was noticed at `since` or later, and what is contested.
    pub(super) fn since(&self, since: Instant) -> Drift {
        let changed = self.changed.iter().filter(|(_, at)| **at >= since);
        Drift {
            changed: changed.map(|(unit, _)| unit.clone()).collect(),
            contested: self.contested.keys().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bayplan_enforcement::{FilePass, FileWrite, Form, Slot};

    use super::*;

    fn write(unit: &str) -> FileWrite {
        FileWrite {
            pass: FilePass::Set,
            slot: Slot::file(format!("sys/fs/cgroup/{unit}/cpu.weight")),
            form: Form::Text,
            old: "1".to_owned(),
            new: "100".to_owned(),
            unit: unit.to_owned(),
            reason: "a test".to_owned(),
            is_step: false,
            gives_back: false,
        }
    }

    /// Which containers had changes since the second and which are contested, in one line.
    fn shown(drifts: &Drifts, begun: Instant, second: u64) -> String {
        let Drift { changed, contested } = drifts.since(begun + Duration::from_secs(second));
        let names = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(",");
        format!("{} / {}", names(changed), names(contested))
    }

    #[test]
    fn what_others_write_is_drift_and_a_fight_lasts_as_long_as_its_truce() {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let by = |unit, by| Notice::Drifted { write: write(unit), by };
        let mut drifts = Drifts::default();
        let own = [by("a", Author::Runtime), by("a", Author::Systemd)];
        drifts.note(&own, false, at(1));
        assert_eq!(shown(&drifts, begun, 0), " / ");
        drifts.note(&[by("b", Author::Others)], false, at(5));
        drifts.note(&[Notice::Contested { write: write("c") }], true, at(6));
        assert_eq!(shown(&drifts, begun, 5), "b / c");
        drifts.note(&[], true, at(7));
        assert_eq!(shown(&drifts, begun, 6), " / c");
        // An operator had everything written again, or the time is over.
        let mut insisted = drifts.clone();
        insisted.note(&[], false, at(8));
        drifts.note(&[], true, at(6) + TRUCE);
        assert_eq!([shown(&drifts, begun, 6), shown(&insisted, begun, 6)], [" / ", " / "]);
    }
}
