//! Memory that containers leave idle is reclaimed a little at a time, before another lacks it. In: which container is in which class, how long it has
//! stalled for lack of memory. Out: what is reclaimed of which container and how often, and whether that is to be done now.
//!
//! `memory.reclaim` (Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files"; Linux 5.19, with `swappiness=` 6.9) takes the pages that the
//! kernel's lists have as idle the longest. Where there is slower memory, and `demotion_enabled` says so
//! (Documentation/ABI/testing/sysfs-kernel-mm-numa), they are moved there; elsewhere files are dropped, and anonymous pages swapped. How idle a page
//! is cannot be asked, so what tells that too much was taken is that the container waits for pages (Documentation/accounting/psi.rst,
//! `memory.pressure`).
//!
//! In the group that is written to, the kernel takes protected memory, too (include/linux/memcontrol.h, `mem_cgroup_unprotected`), so what
//! `memory.min` and `memory.low` say is left out here. A write that is under way cannot be called back, and holds up a process that removes the
//! group; hence slices.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_types::Bytes;

use crate::block_io::CgroupFiles;
use crate::setting::{Form, Setting, Slot};

const RECLAIM: &str = "memory.reclaim";
const PRESSURE: &str = "memory.pressure";
/// The most that one write asks for.
const SLICE: Bytes = Bytes(4 << 20);
/// And the least, but for the last of a turn: a page at a time would never end where a group grows as fast.
const SLICE_MIN: Bytes = Bytes(256 << 10);
/// Where `swappiness=` is understood.
const TAKES_SWAPPINESS: (u32, u32) = (6, 9);
/// Whether the kernel moves pages to slower memory that it would take away otherwise; for the whole machine.
const DEMOTION: &str = "sys/kernel/mm/numa/demotion_enabled";

/// In place of the name of a class: none.
pub const NO_RECLAIM_CLASS: &str = "none";

/// How containers are reclaimed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimClass {
    /// Time between two turns.
    pub every: Duration,
    /// What one turn asks for, in slices; the kernel may take a little more.
    pub bytes: Bytes,
    /// Of the time since the last turn, in percent: a container that has stalled for lack of memory for longer is skipped.
    pub stalled_percent_max: u8,
    /// How much sooner anonymous pages go than files (0 to 200); `None` is what the machine has (`vm.swappiness`).
    pub swappiness: Option<u8>,
}

/// A container that is in a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimMember {
    /// The container's full name.
    pub unit: String,
    /// Its group, below the root.
    pub dir: String,
    /// The name of its class.
    pub class: String,
}

/// What is reclaimed of one container again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// From which container, and by which class.
    pub member: ReclaimMember,
    /// How.
    pub class: ReclaimClass,
}

impl Reclaim {
    /// The file that is written, below the root.
    pub fn path(&self) -> String {
        self.file(RECLAIM)
    }

    /// A file of the container's group, below the root.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.member.dir)
    }

    /// The file that tells what the container has stalled for lack of memory.
    pub fn pressure_path(&self) -> String {
        self.file(PRESSURE)
    }

    /// How often, and what for, in a few words.
    pub fn reason(&self) -> String {
        let ReclaimClass { every, stalled_percent_max, .. } = self.class;
        format!(
            "every {every:?}, unless it has stalled for more than {stalled_percent_max} % of that: class \"{}\"",
            self.member.class
        )
    }

    /// What asks for so much.
    pub fn text(&self, bytes: Bytes) -> String {
        let bytes = bytes.0;
        match self.class.swappiness {
            Some(swappiness) => format!("{bytes} swappiness={swappiness}"),
            None => bytes.to_string(),
        }
    }
}

/// What the next write asks for, when so much of a turn is left, the group has `current` and `protected` is the larger of `memory.min` and `memory.low`. `None`: nothing.
pub fn next_slice(left: Bytes, current: Bytes, protected: Bytes) -> Option<Bytes> {
    // The kernel may take more than it is asked for.
    let kept = match protected {
        Bytes::ZERO => 0,
        Bytes(protected) => protected.saturating_add(SLICE.0),
    };
    let room = Bytes(current.0.saturating_sub(kept));
    Some(left.min(SLICE).min(room)).filter(|it| *it >= left.min(SLICE_MIN) && *it > Bytes::ZERO)
}

/// What each member's class says, and what cannot be had. `files` are those that groups have here, `linux` the kernel's version, where it is known.
pub fn plan_reclaims(
    classes: &BTreeMap<String, ReclaimClass>,
    members: Vec<ReclaimMember>,
    files: &CgroupFiles,
    linux: Option<(u32, u32)>,
) -> (Vec<Reclaim>, Vec<String>) {
    let (mut reclaims, mut problems) = (Vec::new(), Vec::new());
    let takes_swappiness = linux.is_none_or(|it| it >= TAKES_SWAPPINESS);
    let lacks = [
        (RECLAIM, "Linux 5.19 and the controller `memory`"),
        (PRESSURE, "a kernel that counts pressure (psi=1)"),
    ];
    let lacking = lacks.into_iter().find(|(file, _)| !files.contains(*file));
    for member in members {
        let ReclaimMember { unit, class, .. } = &member;
        match (classes.get(class), lacking) {
            (None, _) => {
                problems.push(format!("{unit}: there is no class `{class}` in memory.reclaim"));
            }
            (Some(_), Some((file, needs))) => {
                problems.push(format!(
                    "{unit}: {file} is not there, which needs {needs}: nothing is reclaimed"
                ));
            }
            (Some(it), None) if it.swappiness.is_some() && !takes_swappiness => {
                problems.push(format!(
                    "{unit}: swappiness of the class `{class}` needs Linux 6.9: its memory is reclaimed without"
                ));
                let class = ReclaimClass { swappiness: None, ..*it };
                reclaims.push(Reclaim { member, class });
            }
            (Some(class), None) => reclaims.push(Reclaim { class: *class, member }),
        }
    }
    (reclaims, problems)
}

/// Pages that are taken go to slower memory, where the machine has any.
pub fn demotion_setting() -> (Slot, Setting) {
    let setting = Setting {
        form: Form::Switch,
        value: "true".to_owned(),
        unit: "machine".to_owned(),
        reason: "what is reclaimed goes to slower memory".to_owned(),
    };
    (Slot::file(DEMOTION), setting)
}

/// What a container had stalled for lack of memory at a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallSeen {
    /// When, since any moment.
    pub at: Duration,
    /// Since its group was made: some of its tasks, or all (`some`).
    pub stalled: Duration,
}

/// What a turn does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimTurn {
    /// Nothing: it is not known yet whether it lacks memory.
    First,
    /// It writes.
    Reclaim,
    /// Nothing: the container needs what it has.
    Stalled,
}

impl ReclaimClass {
    /// What to do `now`, after what was seen at the last turn.
    pub fn turn(&self, last: Option<StallSeen>, now: StallSeen) -> ReclaimTurn {
        let Some(last) = last else { return ReclaimTurn::First };
        // After a long pause there is no more to spend than in an ordinary one.
        let elapsed = now.at.saturating_sub(last.at).min(self.every);
        let stalled = now.stalled.saturating_sub(last.stalled);
        match stalled * 100 > elapsed * u32::from(self.stalled_percent_max) {
            true => ReclaimTurn::Stalled,
            false => ReclaimTurn::Reclaim,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: ReclaimClass = ReclaimClass {
        every: Duration::from_secs(60),
        bytes: Bytes(64 << 20),
        stalled_percent_max: 1,
        swappiness: None,
    };

    fn plan(files: &[&str], class: ReclaimClass, member: &str, linux: (u32, u32)) -> String {
        let classes = [("idle".to_owned(), class)].into();
        let member = ReclaimMember {
            unit: "n/p/c".to_owned(),
            dir: "sys/fs/cgroup/p/c".to_owned(),
            class: member.to_owned(),
        };
        let files = files.iter().map(|it| (*it).to_owned()).collect();
        let (reclaims, problems) = plan_reclaims(&classes, vec![member], &files, Some(linux));
        let lines =
            reclaims.iter().map(|it| format!("{} > {}", it.text(it.class.bytes), it.path()));
        lines.chain(problems).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_class_says_what_is_written_and_what_it_needs() {
        let all = ["memory.pressure", "memory.reclaim"];
        let swapping = ReclaimClass { swappiness: Some(200), ..CLASS };
        let rows = [
            (&all[..], CLASS, "idle", "67108864 > sys/fs/cgroup/p/c/memory.reclaim"),
            (
                &all[..],
                swapping,
                "idle",
                "67108864 swappiness=200 > sys/fs/cgroup/p/c/memory.reclaim",
            ),
            (&all[..], CLASS, "none", "n/p/c: there is no class `none` in memory.reclaim"),
            (
                &all[..1],
                CLASS,
                "idle",
                "n/p/c: memory.reclaim is not there, which needs Linux 5.19 and the controller `memory`: nothing is reclaimed",
            ),
            (
                &all[1..],
                CLASS,
                "idle",
                "n/p/c: memory.pressure is not there, which needs a kernel that counts pressure (psi=1): nothing is reclaimed",
            ),
        ];
        for (files, class, member, expected) in rows {
            assert_eq!(plan(files, class, member, (6, 9)), expected);
        }
    }

    #[test]
    fn before_linux_6_9_memory_is_reclaimed_without_swappiness_and_that_is_told() {
        let class = ReclaimClass { swappiness: Some(0), ..CLASS };
        assert_eq!(
            plan(&["memory.pressure", "memory.reclaim"], class, "idle", (6, 8)),
            "67108864 > sys/fs/cgroup/p/c/memory.reclaim\n\
             n/p/c: swappiness of the class `idle` needs Linux 6.9: its memory is reclaimed without"
        );
    }

    #[test]
    fn nothing_is_asked_for_that_is_protected_or_not_there() {
        let mib = |it: u64| Bytes(it << 20);
        let rows = [
            (mib(64), mib(100), Bytes::ZERO, Some(mib(4))),
            (mib(3), mib(100), Bytes::ZERO, Some(mib(3))),
            (mib(64), mib(1), Bytes::ZERO, Some(mib(1))),
            (mib(64), Bytes::ZERO, Bytes::ZERO, None),
            (mib(64), mib(100), mib(50), Some(mib(4))),
            (mib(64), mib(100), mib(94), Some(mib(2))),
            (mib(64), mib(100), mib(96), None),
            (mib(64), mib(100), mib(200), None),
            (mib(64), mib(100), Bytes(u64::MAX), None),
        ];
        for (left, current, protected, expected) in rows {
            assert_eq!(next_slice(left, current, protected), expected, "{left:?} {current:?}");
        }
    }

    #[test]
    fn a_container_that_waits_for_memory_keeps_what_it_has() {
        let seen = |secs, millis| StallSeen {
            at: Duration::from_secs(secs),
            stalled: Duration::from_millis(millis),
        };
        let never = ReclaimClass { stalled_percent_max: 0, ..CLASS };
        let rows = [
            (CLASS, None, seen(60, 0), ReclaimTurn::First),
            (CLASS, Some(seen(0, 0)), seen(60, 0), ReclaimTurn::Reclaim),
            (CLASS, Some(seen(0, 5000)), seen(60, 5600), ReclaimTurn::Reclaim),
            (CLASS, Some(seen(0, 5000)), seen(60, 5601), ReclaimTurn::Stalled),
            (never, Some(seen(0, 0)), seen(60, 0), ReclaimTurn::Reclaim),
            (never, Some(seen(0, 0)), seen(60, 1), ReclaimTurn::Stalled),
            (CLASS, Some(seen(0, 0)), seen(3600, 600), ReclaimTurn::Reclaim),
            (CLASS, Some(seen(0, 0)), seen(3600, 601), ReclaimTurn::Stalled),
            // A group that was made anew counts from nothing.
            (CLASS, Some(seen(0, 5000)), seen(60, 0), ReclaimTurn::Reclaim),
        ];
        for (class, last, now, expected) in rows {
            assert_eq!(class.turn(last, now), expected, "{last:?} {now:?}");
        }
    }
}
