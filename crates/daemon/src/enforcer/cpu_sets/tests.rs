use std::sync::Arc;

use bayplan_allocator::{ContainerId, NoHome};
use bayplan_host::fake_kernel::FakeKernel;
use bayplan_types::{CpuClass, CpuSet};
use bayplan_workload::{NewContainer, Pod};
use expect_test::{Expect, expect};
use nix::errno::Errno;

use super::*;

const GROUP: &str = "sys/fs/cgroup/kubepods/pod1/id";

/// A container that is to run on 0-1 with the memory of node 0.
fn occupant() -> Occupant {
    let pod = Pod { cgroup_parent: "/kubepods/pod1".to_owned(), ..Pod::default() };
    Occupant {
        id: ContainerId(0),
        name: "n/p/c".to_owned(),
        runtime_id: "id".to_owned(),
        scheduling_class: None,
        spec: Arc::new(NewContainer { pod, ..NewContainer::default() }),
        tuning: Arc::default(),
        class: CpuClass::Shared,
        cpus: "0-1".parse().unwrap(),
        exclusive: CpuSet::new(),
        mems: "0".parse().unwrap(),
        home: Err(NoHome::AtHome),
        is_left_alone: false,
        is_immovable: false,
        is_claimed: false,
        may_share_elsewhere: false,
        is_together: false,
        is_running: true,
    }
}

fn kernel(group: &str) -> FakeKernel {
    let files = [("cgroup.type", "domain\n"), (CPUS, "0-1\n"), (MEMS, "0\n")];
    let files = files.map(|(file, text)| (format!("{group}/{file}"), text));
    FakeKernel::new(&files.each_ref().map(|(path, text)| (path.as_str(), *text)))
}

/// What a container's CPUs and memory nodes are, whether its CPUs are left alone and claimed, and which sets are looked after.
#[test]
fn sets_are_looked_after_as_far_as_the_runtime_is_told_of_them() {
    for (cpus, mems, is_left_alone, is_claimed, expected) in [
        ("0-1", "0", false, false, "cpuset.cpus=0-1 cpuset.mems=0"),
        // `memory.preserve`: its memory nodes are not written.
        ("0-1", "", false, false, "cpuset.cpus=0-1"),
        ("0-1", "0", true, false, "cpuset.mems=0"),
        ("0-1", "", true, false, ""),
        ("0-1", "0", true, true, "cpuset.cpus=0-1 cpuset.mems=0"),
        ("0-1", "", true, true, "cpuset.cpus=0-1"),
        ("", "", false, false, ""),
    ] {
        let it = Occupant {
            cpus: cpus.parse().unwrap(),
            mems: mems.parse().unwrap(),
            is_left_alone,
            is_claimed,
            ..occupant()
        };
        let mut sets: Vec<String> = settings_of(&it, "d")
            .map(|(slot, setting)| format!("{}={}", &slot.path["d/".len()..], setting.value))
            .collect();
        sets.sort();
        let what = format!("{cpus} {mems} {is_left_alone} {is_claimed}");
        assert_eq!(sets.join(" "), expected, "{what}");
        assert_eq!(has_sets(&it), !expected.is_empty(), "{what}");
    }
}

struct Story {
    kernel: FakeKernel,
    sets: CpuSets,
    occupancy: Occupancy,
    calls: RuntimeCalls,
    now: Duration,
    lines: String,
}

impl Story {
    fn new() -> Story {
        Story {
            kernel: kernel(GROUP),
            sets: CpuSets { may_write: true, ..CpuSets::default() },
            occupancy: Occupancy { occupants: vec![occupant()], ..Occupancy::default() },
            calls: RuntimeCalls::default(),
            now: Duration::ZERO,
            lines: String::new(),
        }
    }

    fn set(&mut self, file: &str, text: &str) {
        self.kernel.files.insert(format!("{GROUP}/{file}"), text.to_owned());
    }

    /// A second later.
    fn look(&mut self, what: &str) {
        self.now += Duration::from_secs(1);
        let before = self.kernel.written.len();
        self.sets.find(&mut self.kernel, &self.occupancy, self.now);
        let done = self.sets.look(&mut self.kernel, &self.occupancy, &self.calls, self.now);
        self.lines += &format!("{what}:");
        for (id, Pinning { cpus, mems }) in done.found {
            self.lines += &format!(" tell the runtime of {id}, which has {cpus} and {mems};");
        }
        for (path, text) in &self.kernel.written[before..] {
            self.lines += &format!(" write {text} to {};", path.rsplit('/').next().unwrap());
        }
        for notice in done.notices {
            self.lines += match notice {
                Notice::Drifted { .. } => " counted",
                Notice::Contested { .. } => " contested",
            };
        }
        self.lines += &done.failures.concat();
        self.lines += "\n";
    }

    fn check(&self, expected: Expect) {
        expected.assert_eq(&self.lines);
    }
}

/// A program that changes it before the first look is repaired, and not counted: so the first look is soon.
#[test]
fn a_group_that_was_found_is_to_be_looked_at() {
    let mut story = Story::new();
    story.sets.find(&mut story.kernel, &story.occupancy, story.now);
    assert!(story.sets.has_unseen());
    story.look("at first");
    assert!(!story.sets.has_unseen());
    story.sets.find(&mut story.kernel, &story.occupancy, story.now);
    assert!(!story.sets.has_unseen());
}

#[test]
fn a_changed_set_goes_through_the_runtime_and_then_into_the_file() {
    let mut story = Story::new();
    story.look("at first");
    story.set(CPUS, "0-7");
    story.look("a foreign write changes it");
    story.look("the runtime did nothing");
    story.look("it is right");
    story.set(MEMS, "0-1");
    story.look("a foreign write changes the nodes");
    story.set(MEMS, "0");
    story.look("the runtime has written");
    story.set(CPUS, "");
    story.look("a foreign write empties it");
    story.kernel.fail_next(&format!("{GROUP}/{CPUS}"), Errno::EACCES);
    story.look("neither helps");
    story.check(expect![[r#"
        at first:
        a foreign write changes it: tell the runtime of id, which has 0-7 and 0; counted
        the runtime did nothing: write 0-1 to cpuset.cpus;
        it is right:
        a foreign write changes the nodes: tell the runtime of id, which has 0-1 and 0-1; counted
        the runtime has written:
        a foreign write empties it: tell the runtime of id, which has  and 0; counted
        neither helps: write 0-1 to cpuset.cpus;/sys/fs/cgroup/kubepods/pod1/id/cpuset.cpus to 0-1 (n/p/c): EACCES: Permission denied
    "#]]);
}

#[test]
fn what_the_runtime_is_about_to_write_is_its_own() {
    let mut story = Story::new();
    story.set(CPUS, "0-7");
    story.look("it was never right");
    story.look("nor a second later");
    story.set(CPUS, "0-1");
    story.look("it is right");
    story.occupancy.occupants[0].cpus = "0-3".parse().unwrap();
    story.look("it is to be larger");
    story.set(CPUS, "0-3");
    story.look("and is");
    story.calls.begin("id");
    story.set(CPUS, "7");
    story.look("changed during a call");
    story.look("which takes long");
    story.set(CPUS, "0-3");
    story.look("right again");
    story.check(expect![[r#"
        it was never right: tell the runtime of id, which has 0-7 and 0;
        nor a second later: tell the runtime of id, which has 0-7 and 0;/sys/fs/cgroup/kubepods/pod1/id/cpuset.cpus to 0-1 (n/p/c): the runtime was told in vain
        it is right:
        it is to be larger: tell the runtime of id, which has 0-1 and 0;
        and is:
        changed during a call:
        which takes long:
        right again:
    "#]]);
}

#[test]
fn a_writer_that_changes_it_again_and_again_has_it() {
    let mut story = Story::new();
    story.look("at first");
    for _ in 0..7 {
        story.set(CPUS, "7");
        story.look("changed");
        if story.sets.contested() == 0 {
            story.set(CPUS, "0-1");
            story.look("repaired");
        }
    }
    story.check(expect![[r#"
        at first:
        changed: tell the runtime of id, which has 7 and 0; counted
        repaired:
        changed: tell the runtime of id, which has 7 and 0; counted
        repaired:
        changed: tell the runtime of id, which has 7 and 0; counted
        repaired:
        changed: tell the runtime of id, which has 7 and 0; counted
        repaired:
        changed: tell the runtime of id, which has 7 and 0; counted
        repaired:
        changed: contested
        changed:
    "#]]);
    assert_eq!(story.sets.contested(), 1);
}

/// A program that changes it while the runtime is still being told, as it is after each repair.
#[test]
fn a_writer_that_changes_it_right_after_each_repair_has_it_in_the_end() {
    let mut story = Story::new();
    story.look("at first");
    for _ in 0..7 {
        story.set(CPUS, "7");
        story.look("changed");
        story.calls.begin("id");
        story.set(CPUS, "0-1");
        story.look("repaired");
        story.set(CPUS, "7");
        story.look("changed while the runtime is told");
        story.calls = RuntimeCalls::default();
    }
    assert_eq!(story.sets.contested(), 1);
}

#[test]
fn a_container_that_is_left_alone_is_not_looked_at() {
    let mut story = Story::new();
    story.look("at first");
    for text in ["7", "0-1"] {
        story.set(CPUS, text);
        story.set(MEMS, "1");
        story.occupancy.occupants[0].is_left_alone = true;
        story.look("only its memory");
        story.occupancy.occupants[0].mems = "".parse().unwrap();
        story.look("nothing of it");
        assert_eq!(story.sets.directories().count(), 0);
        story.occupancy =
            Occupancy { is_restored: true, occupants: vec![occupant()], ..story.occupancy };
        story.look("nobody");
    }
    story.check(expect![[r#"
        at first:
        only its memory: tell the runtime of id, which has  and 1; counted
        nothing of it:
        nobody:
        only its memory:
        nothing of it:
        nobody:
    "#]]);
}

#[test]
fn groups_of_version_1_are_looked_at_too() {
    let mut story =
        Story { kernel: kernel("sys/fs/cgroup/cpuset/kubepods/pod1/id"), ..Story::new() };
    story.look("at first");
    let path = format!("sys/fs/cgroup/cpuset/kubepods/pod1/id/{CPUS}");
    story.kernel.files.insert(path, "0-7\n".to_owned());
    story.look("changed");
    story.kernel.files.clear();
    story.look("gone");
    story.check(expect![[r#"
        at first:
        changed: tell the runtime of id, which has 0-7 and 0; counted
        gone:
    "#]]);
}

/// The seconds in which a group that comes then is found, of a container that is started then.
fn check_found(comes: u64, starts: u64, expected: u64) {
    let mut story = Story { kernel: FakeKernel::new(&[]), ..Story::new() };
    let found = (0..120).find(|second| {
        if *second == comes {
            story.kernel = kernel(GROUP);
        }
        story.occupancy.occupants[0].is_running = *second >= starts;
        story.sets.find(&mut story.kernel, &story.occupancy, Duration::from_secs(*second));
        story.sets.directories().next().is_some()
    });
    assert_eq!(found, Some(expected), "comes {comes}, starts {starts}");
}

#[test]
fn a_missing_group_is_looked_for_when_the_container_starts_and_else_less_and_less_often() {
    for (comes, starts, expected) in [
        // It runs from the first look on: looks of its own after 0.25, 0.5, 1, 2 ... seconds, as far as there is a look.
        (0, 0, 0),
        (1, 0, 1),
        (3, 0, 3),
        (4, 0, 5),
        (6, 0, 9),
        (10, 0, 17),
        (18, 0, 33),
        (34, 0, 65),
        (66, 0, 97),
        // As soon as it runs, and from then on as often as at first.
        (20, 20, 20),
        (20, 30, 30),
        (31, 30, 31),
        (34, 30, 35),
    ] {
        check_found(comes, starts, expected);
    }
}

#[test]
fn a_missing_group_is_looked_for_when_an_operator_insists() {
    let mut story = Story { kernel: FakeKernel::new(&[]), ..Story::new() };
    story.look("it is missing");
    story.kernel = kernel(GROUP);
    for expected in [0, 1] {
        story.sets.find(&mut story.kernel, &story.occupancy, story.now);
        assert_eq!(story.sets.directories().count(), expected);
        story.sets.insist();
    }
}
