//! The machine as it is by itself. In: the files of a host, CPUs that are claimed of another component, what bayplan has changed. Out: a topology,
//! and the text of what was read.
//!
//! Energy preferences make priorities of CPUs (`topology`), and those that classes of CPUs set are no fact of the machine. A daemon may set or give back some while they
//! are read, and has originals on disk before it writes and until after it has given back; so originals are looked up before and after that, and all of them count. The same holds for the classes of
//! service of Speed Select.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bayplan_enforcement::{Original, Slot};
use bayplan_host::kernel_files::{Entry, KernelFiles};
use bayplan_host::{
    Depth, ReadError, capture, read_claimed_cpus, read_snapshot, render_machine, write_speed_select,
};
use bayplan_topology::{Snapshot, Topology, derive};
use bayplan_types::{CORE_POWER, CpuSet, SPEED_SELECT_DEVICE, SpeedSelect};

use crate::enforcer::read_originals;
use crate::node_kernel::{Asked, ask_speed_select};

/// One for each frequency policy (Documentation/admin-guide/pm/cpufreq.rst, "Policy Interface in sysfs").
const POLICIES: &str = "sys/devices/system/cpu/cpufreq/policy";
const PREFERENCE: &str = "energy_performance_preference";

/// What was read of a machine, as it would be if no daemon had changed anything.
#[derive(Clone, Debug)]
pub struct AsItWas<T> {
    /// That.
    pub read: T,
    /// Why energy preferences are left out of it: what they were is not known. `None`: none is.
    pub unknown: Option<String>,
}

/// The topology of the machine below a root on which nothing was changed.
///
/// # Errors
/// There is no CPU directory, or no CPU; or what is claimed of the DRA CPU driver cannot be read.
pub fn derive_machine(root: &Path) -> anyhow::Result<Topology> {
    let claimed = read_claimed_cpus(root)?;
    Ok(derive_claimed(read_machine(root, Depth::Placement)?, &claimed)?.0)
}

/// The facts of the machine below a root as they are now, what Speed Select says among them.
///
/// # Errors
/// There is no CPU directory.
pub fn read_machine(root: &Path, depth: Depth) -> Result<Snapshot, ReadError> {
    let mut snapshot = read_snapshot(root, depth)?;
    add_speed_select(root, &mut snapshot);
    Ok(snapshot)
}

/// Every file that is read of such a machine, and what stands for the device of Speed Select.
///
/// # Errors
/// There is no CPU directory.
pub fn capture_machine(root: &Path) -> Result<KernelFiles, ReadError> {
    let (mut files, facts) = capture_all(root)?;
    record(&mut files, facts.as_ref());
    Ok(files)
}

fn capture_all(root: &Path) -> Result<(KernelFiles, Asked), ReadError> {
    let files = capture(root)?;
    Ok((files, ask_speed_select(root)))
}

fn record(files: &mut KernelFiles, facts: Option<&Result<SpeedSelect, String>>) {
    if let Some(Ok(facts)) = facts {
        let all = write_speed_select(facts).into_iter();
        all.for_each(|(path, text)| files.insert(path, Entry::Text(text)));
    }
}

/// Adds what the device says, where it is one: files in its place are read with all others.
fn add_speed_select(root: &Path, snapshot: &mut Snapshot) {
    if snapshot.kernel.speed_select.is_none() {
        snapshot.kernel.speed_select = ask_speed_select(root);
    }
}

/// The facts of the machine below a root on which a daemon with this state directory may have changed something.
///
/// # Errors
/// There is no CPU directory.
pub fn read_own_snapshot(
    root: &Path,
    state_dir: &Path,
    depth: Depth,
) -> Result<AsItWas<Snapshot>, ReadError> {
    let (mut read, before) = Before::around(root, state_dir, || read_machine(root, depth))?;
    let mut is_left_out = false;
    for policy in &mut read.policies {
        is_left_out |= before.undo(policy.id, &mut policy.preference);
    }
    is_left_out |= before.undo_classes(&mut read.kernel.speed_select);
    let unknown = before.unread.filter(|_| is_left_out);
    Ok(AsItWas { read, unknown })
}

/// Every file that is read of such a machine.
///
/// # Errors
/// There is no CPU directory.
pub fn capture_own(root: &Path, state_dir: &Path) -> Result<AsItWas<KernelFiles>, ReadError> {
    let ((files, mut facts), before) = Before::around(root, state_dir, || capture_all(root))?;
    let mut is_left_out = false;
    let mut read = KernelFiles::default();
    for (path, entry) in files.iter() {
        let policy = path.strip_prefix(POLICIES).and_then(|rest| rest.split_once('/'));
        let policy = policy.filter(|(_, file)| *file == PREFERENCE);
        let Some((Ok(policy), Entry::Text(now))) = policy.map(|(it, _)| (it.parse(), entry)) else {
            read.insert(path, entry.clone());
            continue;
        };
        let mut preference = Some(now.clone());
        is_left_out |= before.undo(policy, &mut preference);
        preference.into_iter().for_each(|it| read.insert(path, Entry::Text(it)));
    }
    is_left_out |= before.undo_classes(&mut facts);
    record(&mut read, facts.as_ref());
    let unknown = before.unread.filter(|_| is_left_out);
    Ok(AsItWas { read, unknown })
}

/// A topology, and the text of what placement depends on in it, in the form of `bayplan snapshot`.
pub(crate) fn read_own_machine(
    root: &Path,
    state_dir: &Path,
    claimed: &CpuSet,
) -> anyhow::Result<AsItWas<(Topology, Arc<str>)>> {
    let AsItWas { read, unknown } = read_own_snapshot(root, state_dir, Depth::Placement)?;
    Ok(AsItWas { read: derive_claimed(read, claimed)?, unknown })
}

/// CPUs that are claimed of another component are taken out here, as those of an isolated partition.
fn derive_claimed(
    mut snapshot: Snapshot,
    claimed: &CpuSet,
) -> anyhow::Result<(Topology, Arc<str>)> {
    if !claimed.is_empty() {
        snapshot.partitioned.get_or_insert_default().union_with(claimed);
    }
    Ok((derive(&snapshot)?, render_machine(&snapshot).into()))
}

/// What files said before a daemon changed them.
#[derive(Debug)]
struct Before {
    originals: BTreeMap<Slot, Original>,
    /// Why that is not known.
    unread: Option<String>,
}

impl Before {
    /// What was read, and what of it had been, or was meanwhile, changed.
    fn around<T, E>(
        root: &Path,
        state_dir: &Path,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Before), E> {
        let first = read_originals(root, state_dir);
        let read = read()?;
        let mut before = Before { originals: BTreeMap::new(), unread: None };
        for originals in [first, read_originals(root, state_dir)] {
            match originals {
                Ok(originals) => before.originals.extend(originals),
                Err(why) => before.unread = Some(why),
            }
        }
        Ok((read, before))
    }

    /// Puts back a policy's preference. Whether it is left out because it is not known whether it was changed.
    ///
    /// Drivers set it along with a governor, too (Documentation/admin-guide/pm/intel_pstate.rst, "Energy vs Performance Hints"): what it was before
    /// that was not noted, but for the governor `performance`, which has one preference only. One that was noted after the governor had changed would
    /// be the driver's.
    fn undo(&self, policy: u32, preference: &mut Option<String>) -> bool {
        let original = |file: &str| {
            let original = self.originals.get(&Slot::file(format!("{POLICIES}{policy}/{file}")));
            original.map(|original| original.value.clone())
        };
        let governor = original("scaling_governor");
        let was = original(PREFERENCE);
        match governor.as_deref() {
            Some("performance") if preference.is_some() => {
                *preference = Some("performance".to_owned());
            }
            Some(_) => *preference = was,
            None if was.is_some() => *preference = was,
            None if self.unread.is_some() => return preference.take().is_some(),
            None => {}
        }
        false
    }

    /// Puts back what tells priorities of Speed Select: whether core power divides, the weights of classes, and the class of each core. Whether these are left out because it is not known
    /// whether they were changed.
    fn undo_classes(&self, asked: &mut Asked) -> bool {
        let Some(Ok(facts)) = asked else { return false };
        let mut is_left_out = false;
        for domain in &mut facts.domains {
            if self.unread.is_some() {
                is_left_out |= domain.cores.iter().any(|core| core.clos.is_some());
                domain.cores.iter_mut().for_each(|core| core.clos = None);
                continue;
            }
            let dir = format!("{SPEED_SELECT_DEVICE}/{}", domain.name);
            if let Some(was) = self.original(&format!("{dir}/{CORE_POWER}")) {
                domain.core_power = was.parse().ok();
            }
            for (number, clos) in domain.clos.iter_mut().enumerate() {
                let was = self.original(&format!("{dir}/clos{number}/weight"));
                clos.weight = was.and_then(|it| it.parse().ok()).unwrap_or(clos.weight);
            }
            for core in &mut domain.cores {
                let was = self.original(&format!("{dir}/core{}/clos", core.number));
                core.clos = was.map_or(core.clos, |it| it.parse().ok());
            }
        }
        is_left_out
    }

    fn original(&self, path: &str) -> Option<&str> {
        self.originals.get(&Slot::file(path)).map(|original| original.value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bayplan_enforcement::Form;
    use bayplan_host::disk::SoundDisk;
    use bayplan_host::read_files;
    use bayplan_types::CpuPriority;

    use super::*;
    use crate::enforcer::{BOOT_ID, Originals};

    /// Four CPUs, each with an energy preference of its own.
    struct Scene {
        root: tempfile::TempDir,
        originals: Originals,
    }

    impl Scene {
        /// What was remembered since the kernel's first start, and its start now.
        fn new(now: [&str; 4], before: &[(&str, &str)], boots: [&str; 2]) -> Scene {
            let root = tempfile::tempdir().unwrap();
            let cpus = root.path().join("sys/devices/system/cpu");
            let write = |path: &Path, text: &str| {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            };
            write(&cpus.join("online"), "0-3");
            write(&root.path().join(BOOT_ID), boots[1]);
            for (cpu, preference) in now.iter().enumerate() {
                write(&cpus.join(format!("cpu{cpu}/topology/core_cpus_list")), &cpu.to_string());
                let policy = cpus.join(format!("cpufreq/policy{cpu}"));
                write(&policy.join(PREFERENCE), preference);
                write(&policy.join("related_cpus"), &cpu.to_string());
            }
            let (state, boot) = (root.path().join("state"), Some(boots[0].to_owned()));
            let originals = Originals::open(Arc::new(SoundDisk), &state, boot).unwrap().0;
            let mut scene = Scene { root, originals };
            scene.remember(before);
            scene
        }

        fn remember(&mut self, before: &[(&str, &str)]) {
            let original = |value: &str| Original { form: Form::Text, value: value.to_owned() };
            let slot = |(policy, file): (&str, &str)| format!("{POLICIES}{policy}/{file}");
            let slot = |file: &str| Slot::file(slot(file.split_once('/').unwrap()));
            let before = before.iter().map(|(file, value)| (slot(file), original(value)));
            self.originals.remember(&before.collect()).unwrap();
        }

        fn state(&self) -> std::path::PathBuf {
            self.root.path().join("state")
        }

        /// CPUs of high and of low priority, and why preferences are left out. Also as a snapshot tells it, and as the history does.
        fn priorities(&self) -> ([String; 2], Option<String>) {
            let of = |topology: &Topology| {
                [CpuPriority::High, CpuPriority::Low]
                    .map(|it| topology.cpus_of_priority(it).to_string())
            };
            let (root, state) = (self.root.path(), self.state());
            let AsItWas { read, unknown } = read_own_machine(root, &state, &CpuSet::new()).unwrap();
            let (topology, text) = read;
            let recorded = bayplan_host::parse_recorded_machine(&text).unwrap();
            assert_eq!(of(&recorded), of(&topology), "{text}");
            let captured = capture_own(root, &state).unwrap();
            assert_eq!(captured.unknown, unknown);
            let files = captured.read.render();
            let captured = read_files(captured.read, Depth::Cpus).unwrap();
            assert_eq!(of(&derive(&captured).unwrap()), of(&topology), "{files}");
            (of(&topology), unknown)
        }
    }

    #[track_caller]
    fn check(now: [&str; 4], before: &[(&str, &str)], boots: [&str; 2], expected: [&str; 2]) {
        let found = Scene::new(now, before, boots).priorities();
        assert_eq!(found, (expected.map(str::to_owned), None));
    }

    const NOW: [&str; 4] = ["power", "power", "performance", "performance"];

    /// After a restart the CPUs of owners had become those of high priority, because their class had said so.
    #[test]
    fn what_classes_of_cpus_set_is_no_priority_of_the_machine() {
        let own = [
            ("0/energy_performance_preference", "balance_performance"),
            ("1/energy_performance_preference", "balance_performance"),
            ("2/energy_performance_preference", "balance_performance"),
            ("3/energy_performance_preference", "balance_performance"),
        ];
        let one = ("0/energy_performance_preference", "performance");
        check(NOW, &[], ["a", "a"], ["2-3", "0-1"]);
        check(NOW, &own, ["a", "a"], ["", ""]);
        check(NOW, &[one], ["a", "a"], ["0,2-3", "1"]);
        let governors = [("2/scaling_governor", "powersave"), ("3/scaling_governor", "powersave")];
        check(NOW, &governors, ["a", "a"], ["", ""]);
        // The first policy is the one at which a reader sees which files there are.
        check(NOW, &[("0/scaling_governor", "powersave")], ["a", "a"], ["2-3", "1"]);
        // Since another start of the kernel files say what they say by themselves.
        check(NOW, &own, ["a", "b"], ["2-3", "0-1"]);
    }

    /// A class with another governor had changed the preference with it, and what was remembered then was the driver's.
    #[test]
    fn a_preference_that_was_remembered_after_its_governor_had_changed_is_not_the_machines() {
        let before = [
            ("3/energy_performance_preference", "balance_power"),
            ("3/scaling_governor", "performance"),
        ];
        let now = ["balance_power", "performance", "performance", "balance_power"];
        check(now, &before, ["a", "a"], ["1-3", "0"]);
    }

    /// Originals were read before the machine, so that a preference that was set between was taken for the machine's.
    #[test]
    fn what_is_set_or_given_back_while_the_machine_is_read_is_no_priority() {
        let own = ("2/energy_performance_preference", "power");
        let slot = Slot::file(format!("{POLICIES}2/{PREFERENCE}"));
        for is_set in [true, false] {
            let earlier = if is_set { vec![] } else { vec![own] };
            let mut scene = Scene::new(NOW, &earlier, ["a", "a"]);
            let (root, state) = (scene.root.path().to_owned(), scene.state());
            let change = || -> Result<(), ()> {
                match is_set {
                    true => scene.remember(&[own]),
                    false => scene.originals.forget(std::slice::from_ref(&slot)),
                }
                Ok(())
            };
            let ((), before) = Before::around(&root, &state, change).unwrap();
            let mut preference = Some("performance".to_owned());
            assert!(!before.undo(2, &mut preference));
            assert_eq!(preference.as_deref(), Some("power"), "set: {is_set}");
        }
    }

    /// That nothing could be read was taken for that nothing was changed.
    #[test]
    fn where_originals_cannot_be_read_no_preference_is_the_machines() {
        let scene = Scene::new(NOW, &[("0/scaling_governor", "powersave")], ["a", "a"]);
        let file = scene.state().join("originals/journal");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let (found, unknown) = scene.priorities();
        assert_eq!(found, ["", ""]);
        assert!(unknown.is_some_and(|why| why.starts_with("cannot read ")), "no reason");
    }

    /// Classes of service: what holds, what is noted as original, and which CPUs are high and low then.
    #[test]
    fn classes_of_service_that_were_set_are_no_priority_of_the_machine() {
        let check = |now: [(&str, &str); 5], before: &[(&str, &str)], expected: [&str; 2]| {
            let mut scene = Scene::new(["power"; 4], &[], ["a", "a"]);
            for cpu in 0..4 {
                let package =
                    format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
                fs::write(scene.root.path().join(package), "0\n").unwrap();
                let core = format!("{SPEED_SELECT_DEVICE}/cpu{cpu}@0/core");
                let core = scene.root.path().join(core);
                fs::create_dir_all(core.parent().unwrap()).unwrap();
                fs::write(core, format!("0.0/core{cpu}\n")).unwrap();
            }
            for (name, text) in now {
                let path = scene.root.path().join(format!("{SPEED_SELECT_DEVICE}/0.0/{name}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            let original = |value: &str| Original { form: Form::Text, value: value.to_owned() };
            let slot = |name: &str| Slot::file(format!("{SPEED_SELECT_DEVICE}/0.0/{name}"));
            let before = before.iter().map(|(name, value)| (slot(name), original(value)));
            scene.originals.remember(&before.collect()).unwrap();
            assert_eq!(scene.priorities(), (expected.map(str::to_owned), None));
        };
        let now = [
            ("core_power", "ordered"),
            ("core0/clos", "0"),
            ("core1/clos", "0"),
            ("core2/clos", "3"),
            ("core3/clos", "3"),
        ];
        check(now, &[], ["0-1", "2-3"]);
        check(now, &[("core0/clos", "3"), ("core1/clos", "3")], ["", ""]);
        check(now, &[("core1/clos", "3")], ["0", "1-3"]);
        check(now, &[("core_power", "off")], ["", ""]);
    }
}
