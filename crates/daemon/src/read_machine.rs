//! The machine as it is by itself. In: the files of a host, CPUs that are claimed of somebody else, what bayplan has changed. Out: a topology, and the text of what was read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bayplan_enforcement::{Original, Slot};
use bayplan_host::{Depth, read_claimed_cpus, read_snapshot};
use bayplan_topology::{PolicyFacts, Topology, derive};
use bayplan_types::CpuSet;

use crate::enforcer::read_originals;
use crate::recorded_machine::render_machine;

/// The topology of the machine below a root on which nothing was changed.
///
/// # Errors
/// There is no CPU directory, or no CPU; or what is claimed of the DRA CPU driver cannot be read.
pub fn derive_machine(root: &Path) -> anyhow::Result<Topology> {
    let claimed = read_claimed_cpus(root)?;
    Ok(read_machine(root, &BTreeMap::new(), &claimed)?.0)
}

/// The same below a root on which a daemon with this state directory may have changed something.
pub(crate) fn read_own_machine(
    root: &Path,
    state_dir: &Path,
    claimed: &CpuSet,
) -> anyhow::Result<(Topology, Arc<str>)> {
    read_machine(root, &read_originals(root, state_dir), claimed)
}

/// What placement depends on is in the text, in the form of `bayplan snapshot`. CPUs that are claimed of somebody else are nobody's here, as those of an isolated
/// partition.
fn read_machine(
    root: &Path,
    originals: &BTreeMap<Slot, Original>,
    claimed: &CpuSet,
) -> anyhow::Result<(Topology, Arc<str>)> {
    let mut snapshot = read_snapshot(root, Depth::Placement)?;
    if !claimed.is_empty() {
        snapshot.partitioned.get_or_insert_default().union_with(claimed);
    }
    for policy in &mut snapshot.policies {
        undo_preference(policy, originals);
    }
    Ok((derive(&snapshot)?, render_machine(&snapshot).into()))
}

/// Preferences make priorities of CPUs (`topology`), and those that classes of CPUs set are no fact of the machine. Drivers set them along with a governor, too
/// (Documentation/admin-guide/pm/intel_pstate.rst, "Energy vs Performance Hints"); what they were before that nobody has noted.
fn undo_preference(policy: &mut PolicyFacts, originals: &BTreeMap<Slot, Original>) {
    let original = |file: &str| {
        let dir = format!("sys/devices/system/cpu/cpufreq/policy{}", policy.id);
        originals.get(&Slot::file(format!("{dir}/{file}")))
    };
    if let Some(original) = original("energy_performance_preference") {
        policy.preference = Some(original.value.clone());
    } else if original("scaling_governor").is_some() {
        policy.preference = None;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bayplan_enforcement::Form;
    use bayplan_host::disk::SoundDisk;
    use bayplan_types::CpuPriority;

    use super::*;
    use crate::enforcer::{BOOT_ID, Originals};

    /// Four CPUs with these preferences now, and these files as they were before. CPUs of high and of low priority.
    #[track_caller]
    fn check(now: [&str; 4], before: &[(&str, &str)], boots: [&str; 2], expected: [&str; 2]) {
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
            write(&policy.join("energy_performance_preference"), preference);
            write(&policy.join("related_cpus"), &cpu.to_string());
        }
        let boot = Some(boots[0].to_owned());
        let state = root.path().join("state");
        let mut originals = Originals::open(Arc::new(SoundDisk), &state, boot).unwrap().0;
        let slot = |file: &str| Slot::file(format!("sys/devices/system/cpu/cpufreq/{file}"));
        let original = |value: &str| Original { form: Form::Text, value: value.to_owned() };
        let before = before.iter().map(|(file, value)| (slot(file), original(value)));
        originals.remember(&before.collect()).unwrap();
        let (topology, text) = read_own_machine(root.path(), &state, &CpuSet::new()).unwrap();
        let of = |priority| topology.cpus_of_priority(priority).to_string();
        assert_eq!([of(CpuPriority::High), of(CpuPriority::Low)], expected, "{text}");
    }

    /// After a restart the CPUs of owners had become those of high priority, because their class had said so.
    #[test]
    fn what_classes_of_cpus_set_is_no_priority_of_the_machine() {
        let now = ["power", "power", "performance", "performance"];
        let all = |was: &'static str| {
            let files = [0, 1, 2, 3].map(|it| format!("policy{it}/energy_performance_preference"));
            files.map(|file| (file, was))
        };
        let own = all("balance_performance");
        let own: Vec<(&str, &str)> = own.iter().map(|(file, was)| (&**file, *was)).collect();
        let one = ("policy0/energy_performance_preference", "performance");
        let governor = |policy| (policy, "powersave");
        check(now, &[], ["a", "a"], ["2-3", "0-1"]);
        check(now, &own, ["a", "a"], ["", ""]);
        check(now, &[one], ["a", "a"], ["0,2-3", "1"]);
        let governors = ["policy2/scaling_governor", "policy3/scaling_governor"].map(governor);
        check(now, &governors, ["a", "a"], ["", ""]);
        // Since another start of the kernel files say what they say by themselves.
        check(now, &own, ["a", "b"], ["2-3", "0-1"]);
    }
}
