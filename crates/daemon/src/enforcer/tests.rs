use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bayplan_enforcement::{Form, Setting, Slot};
use bayplan_host::disk::{Disk, Operation, SoundDisk};
use bayplan_host::fake_kernel::FakeKernel;
use nix::errno::Errno;
use tempfile::TempDir;

use super::*;

/// A fake that the test can reach, too.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<FakeKernel>>);

impl Shared {
    fn with(files: &[(&str, &str)]) -> Shared {
        Shared(Arc::new(Mutex::new(FakeKernel::new(files))))
    }

    fn text(&self, path: &str) -> String {
        self.0.lock().unwrap().files[path].clone()
    }

    fn set(&self, path: &str, text: &str) {
        self.0.lock().unwrap().files.insert(path.to_owned(), text.to_owned());
    }

    fn writes(&self) -> usize {
        self.0.lock().unwrap().written.len()
    }
}

fn enforcer(kernel: &Shared, dir: &Path) -> Enforcer {
    let (originals, told) = Originals::open(Arc::new(SoundDisk), dir, None).unwrap();
    assert_eq!(told, [""; 0]);
    Enforcer::new(Box::new(Arc::clone(&kernel.0)), originals)
}

fn wanted(rows: &[(&str, &str)]) -> Gathered {
    let setting = |value: &str| Setting {
        form: Form::Text,
        value: value.to_owned(),
        unit: "u".to_owned(),
        reason: "r".to_owned(),
    };
    let settings = rows.iter().map(|(path, value)| (Slot::file(*path), setting(value)));
    Gathered { settings: settings.collect(), ..Gathered::default() }
}

const fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn what_is_right_is_not_written_again() {
    let (kernel, dir) = (Shared::with(&[("a", "0")]), tempfile::tempdir().unwrap());
    let mut enforcer = enforcer(&kernel, dir.path());
    let done = enforcer.carry_out(wanted(&[("a", "1")]), second(0));
    assert_eq!((done.plan.writes.len(), done.changed), (1, 1));
    for now in 1..4 {
        let done = enforcer.carry_out(wanted(&[("a", "1")]), second(now));
        assert!(done.plan.is_empty());
    }
    assert_eq!(kernel.writes(), 1);
}

#[test]
fn what_no_family_wants_any_more_is_as_it_was() {
    let (kernel, dir) = (Shared::with(&[("a", "0"), ("b", "0")]), tempfile::tempdir().unwrap());
    let mut enforcer = enforcer(&kernel, dir.path());
    enforcer.carry_out(wanted(&[("a", "1"), ("b", "1")]), second(0));
    enforcer.carry_out(wanted(&[("b", "2")]), second(1));
    assert_eq!((kernel.text("a"), kernel.text("b")), ("0".to_owned(), "2".to_owned()));
    enforcer.carry_out(wanted(&[]), second(2));
    let done = enforcer.carry_out(wanted(&[]), second(3));
    assert_eq!((kernel.text("b"), done.changed), ("0".to_owned(), 0));
}

#[test]
fn a_daemon_that_was_killed_leaves_the_way_back_to_the_next_one() {
    let (kernel, dir) = (Shared::with(&[("a", "0"), ("b", "0")]), tempfile::tempdir().unwrap());
    let mut first = enforcer(&kernel, dir.path());
    first.carry_out(wanted(&[("a", "1"), ("b", "1")]), second(0));
    drop(first);
    let mut next = enforcer(&kernel, dir.path());
    next.carry_out(wanted(&[("b", "2")]), second(0));
    assert_eq!((kernel.text("a"), kernel.text("b")), ("0".to_owned(), "2".to_owned()));
    drop(next);
    enforcer(&kernel, dir.path()).carry_out(wanted(&[]), second(0));
    assert_eq!(kernel.text("b"), "0");
}

#[test]
fn what_cannot_be_remembered_is_not_changed() {
    let (kernel, dir) = (Shared::with(&[("a", "0"), ("b", "0")]), tempfile::tempdir().unwrap());
    let mut enforcer = enforcer(&kernel, dir.path());
    enforcer.carry_out(wanted(&[("a", "1")]), second(0));
    // Nothing can be made in a directory that is a file.
    fs::remove_dir_all(dir.path().join("originals")).unwrap();
    fs::write(dir.path().join("originals"), "").unwrap();
    enforcer.originals.is_behind_for_tests();
    kernel.set("a", "7");
    let done = enforcer.carry_out(wanted(&[("a", "1"), ("b", "1")]), second(1));
    assert!(done.unkept.is_some());
    assert_eq!((kernel.text("a"), kernel.text("b")), ("1".to_owned(), "0".to_owned()));
}

/// A disk that refuses one operation, or that and all after it, half of a write being done.
#[derive(Debug)]
struct Refusing {
    at: usize,
    is_lasting: bool,
    errno: Errno,
    done: AtomicUsize,
}

impl Disk for Refusing {
    fn before(&self, operation: Operation, bytes: usize) -> std::io::Result<usize> {
        let index = self.done.fetch_add(1, Ordering::Relaxed);
        if index == self.at || self.is_lasting && index > self.at {
            return Err(self.errno.into());
        }
        Ok(if operation == Operation::Write { bytes.div_ceil(2) } else { bytes })
    }
}

/// Whatever the disk refuses, and whenever the daemon is killed then: nothing is written of which the original is not on disk, and the next
/// one, with a sound disk, gives everything back that was changed.
fn check_refusing(is_lasting: bool, errno: Errno) {
    for at in 0.. {
        let kernel = Shared::with(&[("a", "0"), ("b", "0"), ("c", "0")]);
        let dir = tempfile::tempdir().unwrap();
        enforcer(&kernel, dir.path()).carry_out(wanted(&[("a", "1")]), second(0));
        let disk = Arc::new(Refusing { at, is_lasting, errno, done: AtomicUsize::new(0) });
        let mut refused = opened(Arc::<Refusing>::clone(&disk), &kernel, &dir);
        let mut unkept = 0;
        let rounds = [&[("a", "1"), ("b", "1")][..], &[("a", "1"), ("b", "1"), ("c", "1")]];
        for (now, wants) in (0..).zip(rounds) {
            let before = ["b", "c"].map(|name| kernel.text(name));
            let told = refused.carry_out(wanted(wants), second(now)).unkept;
            let after = ["b", "c"].map(|name| kernel.text(name));
            assert!(told.is_none() || after == before, "{errno} at {at}: {told:?}, and written");
            unkept += usize::from(told.is_some());
        }
        drop(refused);
        let mut next = opened(Arc::new(SoundDisk), &kernel, &dir);
        next.carry_out(wanted(&[]), second(9));
        let left = ["a", "b", "c"].map(|name| kernel.text(name));
        assert_eq!(left, ["0"; 3], "{errno} at operation {at}, lasting: {is_lasting}");
        if disk.done.load(Ordering::Relaxed) <= at {
            assert!(at > 10 && unkept == 0, "{at} operations");
            return;
        }
    }
}

fn opened(disk: Arc<dyn Disk>, kernel: &Shared, dir: &TempDir) -> Enforcer {
    let (originals, _) = Originals::open(disk, dir.path(), None).unwrap();
    Enforcer::new(Box::new(Arc::clone(&kernel.0)), originals)
}

/// It was set aside, what files said then was taken for what they had always said, and nothing was given back any more.
#[test]
fn originals_that_cannot_be_read_at_a_start_are_read_later() {
    let kernel = Shared::with(&[("a", "0"), ("b", "0")]);
    let dir = tempfile::tempdir().unwrap();
    enforcer(&kernel, dir.path()).carry_out(wanted(&[("a", "1")]), second(0));
    let journal = dir.path().join("originals/journal");
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(&journal, &elsewhere).unwrap();
    // A directory opens, and cannot be read.
    fs::create_dir(&journal).unwrap();

    let mut next = enforcer(&kernel, dir.path());
    assert_eq!(next.next_try(), Some(second(5)));
    let told = next.carry_out(wanted(&[("a", "2"), ("b", "1")]), second(0)).unkept.unwrap();
    assert!(told.contains("cannot read ") && told.contains("/originals/journal"), "{told}");
    assert_eq!((kernel.text("a"), kernel.text("b")), ("1".to_owned(), "0".to_owned()));
    // Giving it back in vain is not told as done.
    let restored = next.give_back();
    assert_eq!((restored.given_back, restored.failures.len()), (0, 1));
    next.read_originals(second(5));
    assert!(next.has_unread_originals());

    fs::remove_dir(&journal).unwrap();
    fs::rename(&elsewhere, &journal).unwrap();
    next.read_originals(second(9));
    assert_eq!((next.has_unread_originals(), next.next_try()), (true, Some(second(10))));
    next.read_originals(second(10));
    assert_eq!((next.has_unread_originals(), next.next_try()), (false, None));
    let done = next.carry_out(wanted(&[("a", "2"), ("b", "1")]), second(11));
    assert_eq!((done.unkept, done.changed), (None, 2));
    assert_eq!((kernel.text("a"), kernel.text("b")), ("2".to_owned(), "1".to_owned()));
    drop(next);
    enforcer(&kernel, dir.path()).carry_out(wanted(&[]), second(0));
    assert_eq!((kernel.text("a"), kernel.text("b")), ("0".to_owned(), "0".to_owned()));
}

#[test]
fn a_disk_that_refuses_costs_no_way_back() {
    for errno in [Errno::ENOSPC, Errno::EIO, Errno::EROFS] {
        check_refusing(false, errno);
        check_refusing(true, errno);
    }
}

#[test]
fn a_failure_is_told_once_and_tried_again() {
    let (kernel, dir) = (Shared::with(&[("a", "0"), ("b", "0")]), tempfile::tempdir().unwrap());
    let mut enforcer = enforcer(&kernel, dir.path());
    for _ in 0..3 {
        kernel.0.lock().unwrap().fail_next("a", Errno::EBUSY);
    }
    let mut told = Vec::new();
    for now in [0, 1, 2, 3, 10] {
        let done = enforcer.carry_out(wanted(&[("a", "1"), ("b", "1")]), second(now));
        told.extend(done.failures);
        assert_eq!(kernel.text("b"), "1");
    }
    assert_eq!(told, ["/a to 1 (u): EBUSY: Device or resource busy"]);
    assert_eq!((kernel.text("a"), enforcer.next_try()), ("1".to_owned(), None));
}

#[test]
fn others_are_seen_and_after_a_while_left_alone() {
    let (kernel, dir) = (Shared::with(&[("a", "0")]), tempfile::tempdir().unwrap());
    let mut enforcer = enforcer(&kernel, dir.path());
    enforcer.carry_out(wanted(&[("a", "1")]), second(0));
    let mut seen = Vec::new();
    for now in 1..=7 {
        kernel.set("a", "theirs");
        let done = enforcer.carry_out(wanted(&[("a", "1")]), second(now));
        seen.push((done.notices.len(), kernel.text("a") == "1", done.contested));
    }
    let repaired = (1, true, 0);
    let expected = [[repaired; 5].as_slice(), &[(1, false, 1), (0, false, 1)]].concat();
    assert_eq!(seen, expected);
}

/// Eight times is more than what is taken for a fight.
#[test]
fn what_the_runtime_writes_for_us_is_no_fight() {
    let path = "sys/fs/cgroup/kubepods/pod1/abc/memory.high";
    let (kernel, dir) = (Shared::with(&[(path, "max")]), tempfile::tempdir().unwrap());
    let calls = RuntimeCalls::default();
    let mut enforcer = enforcer(&kernel, dir.path()).with_calls(calls.clone());
    enforcer.carry_out(wanted(&[(path, "1")]), second(0));
    let mut seen = Vec::new();
    for now in 1..=8 {
        calls.begin("abc");
        kernel.set(path, "theirs");
        calls.end("abc", Instant::now());
        let done = enforcer.carry_out(wanted(&[(path, "1")]), second(now));
        let by = done.notices.iter().map(|it| match it {
            Notice::Drifted { by, .. } => by.name(),
            Notice::Contested { .. } => "contested",
        });
        seen.extend(by);
        assert_eq!((kernel.text(path).as_str(), done.contested), ("1", 0));
    }
    assert_eq!(seen, ["runtime"; 8]);
}

/// EIO and EPERM are the kernel's; EACCES is what the unit meets, which is root without root's right to open everything.
#[test]
fn an_interrupt_that_cannot_be_moved_is_not_fought_for() {
    let path = "proc/irq/9/smp_affinity_list";
    for errno in [Errno::EIO, Errno::EPERM, Errno::EACCES] {
        let (kernel, dir) = (Shared::with(&[(path, "0-3")]), tempfile::tempdir().unwrap());
        let mut enforcer = enforcer(&kernel, dir.path());
        kernel.0.lock().unwrap().fail_next(path, errno);
        let done = enforcer.carry_out(wanted(&[(path, "0-1")]), second(0));
        assert_eq!((done.failures.len(), done.failing.len()), (0, 0), "{errno}");
        assert_eq!(enforcer.unmovable, Unmovable::from([Slot::file(path)]));
        // From now on it is not wanted, and it was never changed.
        let done = enforcer.carry_out(wanted(&[]), second(1));
        assert_eq!((kernel.writes(), done.changed), (1, 0));
    }
}
