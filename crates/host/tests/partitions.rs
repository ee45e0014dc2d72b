//! Plans for partitions, carried out on a kernel that refuses what Linux refuses: whichever containers come, move and go, no CPUs overlap at any
//! moment, and in the end there is nothing left of it.

use std::collections::BTreeMap;

use bayplan_enforcement::{
    Original, PartitionKind, PartitionOffer, PartitionWants, Settings, Slot, files_to_read,
    plan_files, settings_for_partitions,
};
use bayplan_host::fake_kernel::FakeKernel;
use bayplan_host::kernel::{apply, observe};
use bayplan_types::{CpuId, CpuSet};
use nix::errno::Errno;
use proptest::prelude::*;

type Files = BTreeMap<String, String>;

const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const PARTITION: &str = "cpuset.cpus.partition";

fn cpus(files: &Files, group: &str) -> CpuSet {
    let text = files.get(&format!("{group}/{EXCLUSIVE}"));
    text.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

fn parent(group: &str) -> &str {
    group.rsplit_once('/').map_or("", |(above, _)| above)
}

/// Neighbours' sets must not overlap (`cpuset_cpumask_can_shrink`, `cpus_excl_conflict` of the kernel). A change of a partition's CPUs under it is a
/// bug of the plan here, although Linux allows some of that.
fn write_exclusive(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let group = parent(path);
    let wanted: CpuSet = text.trim().parse().map_err(|_| Errno::EINVAL)?;
    let neighbours = files.keys().filter_map(|it| it.strip_suffix(&format!("/{EXCLUSIVE}")));
    let mut neighbours =
        neighbours.filter(|other| *other != group && parent(other) == parent(group));
    if neighbours.any(|other| cpus(files, other).intersects(&wanted)) {
        return Err(Errno::EINVAL);
    }
    let below = |it: &&String| it.starts_with(&format!("{group}/")) && it.ends_with(PARTITION);
    let is_left =
        |it: &String| files[it].trim() == "member" || cpus(files, parent(it)).is_subset(&wanted);
    let its = format!("{group}/{PARTITION}");
    let is_partition = files.get(&its).is_some_and(|it| it.trim() != "member");
    if is_partition || !files.keys().filter(below).all(is_left) {
        return Err(Errno::EBUSY);
    }
    files.insert(path.to_owned(), format!("{wanted}\n"));
    Ok(())
}

/// A partition has its CPUs only if every group on the way has them, too.
fn write_partition(files: &mut Files, path: &str, text: &str) -> Result<(), Errno> {
    let group = parent(path);
    let own = cpus(files, group);
    let above = std::iter::successors(Some(parent(group)), |it| Some(parent(it)));
    let mut above = above.take_while(|it| *it != "sys/fs/cgroup");
    let has_all = !own.is_empty() && above.all(|it| own.is_subset(&cpus(files, it)));
    let kind = match text.trim() {
        "member" => "member".to_owned(),
        kind @ ("root" | "isolated") if has_all => kind.to_owned(),
        kind @ ("root" | "isolated") => format!("{kind} invalid (CPUs not available)"),
        _ => return Err(Errno::EINVAL),
    };
    files.insert(path.to_owned(), format!("{kind}\n"));
    Ok(())
}

fn dir(container: usize) -> String {
    let class = if container.is_multiple_of(2) { "" } else { "burstable/" };
    format!("sys/fs/cgroup/kubepods/{class}pod{}/c{container}", container / 3)
}

fn kernel() -> FakeKernel {
    let mut kernel = FakeKernel::default()
        .with_rule(EXCLUSIVE, write_exclusive)
        .with_rule(PARTITION, write_partition);
    for dir in (0..6).map(dir) {
        let groups = std::iter::successors(Some(dir.as_str()), |it| Some(parent(it)));
        for group in groups.take_while(|it| *it != "sys/fs/cgroup") {
            kernel.files.insert(format!("{group}/{EXCLUSIVE}"), "\n".to_owned());
            kernel.files.insert(format!("{group}/{PARTITION}"), "member\n".to_owned());
        }
    }
    kernel
}

/// `owners[cpu]` is the container that owns it, if it is one of six.
fn wanted(owners: &[usize], kinds: &[bool]) -> Vec<PartitionWants> {
    let owner = |container: usize| {
        let owned = (0..).zip(owners).filter(|(_, it)| **it == container);
        owned.map(|(cpu, _)| CpuId(cpu)).collect::<CpuSet>()
    };
    let kind = |container: usize| match kinds[container] {
        true => PartitionKind::Isolated,
        false => PartitionKind::Root,
    };
    (0..6)
        .map(|it| PartitionWants {
            unit: format!("c{it}"),
            dir: dir(it),
            cpus: owner(it),
            kind: kind(it),
        })
        .filter(|it| !it.cpus.is_empty())
        .collect()
}

fn enforce(
    kernel: &mut FakeKernel,
    settings: &Settings,
    originals: &mut BTreeMap<Slot, Original>,
) -> Vec<String> {
    let observed = observe(kernel, files_to_read(settings, originals));
    let plan = plan_files(settings, &observed, originals);
    originals.extend(plan.remember.clone());
    let report = apply(kernel, &plan);
    for slot in &plan.forget {
        originals.remove(slot);
    }
    report.failures().map(|(write, why)| format!("{} = {}: {why}", write.slot, write.new)).collect()
}

proptest! {
    #[test]
    fn partitions_come_move_and_go(
        steps in prop::collection::vec(
            (prop::collection::vec(0usize..9, 8), prop::collection::vec(any::<bool>(), 6)),
            1..6,
        ),
    ) {
        let offer =
            PartitionOffer { has_remote_partitions: true, is_permitted: true, isolated_at_boot: CpuSet::new() };
        let (mut kernel, mut originals) = (kernel(), BTreeMap::new());
        let before = kernel.files.clone();
        for (owners, kinds) in &steps {
            let wants = wanted(owners, kinds);
            let (settings, ..) = settings_for_partitions(&wants, &offer);
            prop_assert_eq!(enforce(&mut kernel, &settings, &mut originals), [""; 0]);
            for it in &wants {
                let kind = &kernel.files[&format!("{}/{PARTITION}", it.dir)];
                prop_assert_eq!(kind.trim(), it.kind.name());
                prop_assert_eq!(cpus(&kernel.files, &it.dir), it.cpus.clone());
            }
            let written = kernel.written.len();
            enforce(&mut kernel, &settings, &mut originals);
            prop_assert_eq!(kernel.written.len(), written);
        }
        enforce(&mut kernel, &Settings::new(), &mut originals);
        prop_assert_eq!(kernel.files, before);
    }

    /// Where one write fails, the next look mends it.
    #[test]
    fn a_write_that_fails_is_made_up_for(
        first in prop::collection::vec(0usize..9, 8),
        second in prop::collection::vec(0usize..9, 8),
        failing: prop::sample::Index,
    ) {
        let offer =
            PartitionOffer { has_remote_partitions: true, is_permitted: true, isolated_at_boot: CpuSet::new() };
        let (mut kernel, mut originals) = (kernel(), BTreeMap::new());
        let kinds = [true; 6];
        let (settings, ..) = settings_for_partitions(&wanted(&first, &kinds), &offer);
        enforce(&mut kernel, &settings, &mut originals);
        let wants = wanted(&second, &kinds);
        let (settings, ..) = settings_for_partitions(&wants, &offer);
        let paths: Vec<&String> = kernel.files.keys().collect();
        let path = paths[failing.index(paths.len())].clone();
        kernel.fail_next(&path, Errno::EBUSY);
        for _ in 0..3 {
            enforce(&mut kernel, &settings, &mut originals);
        }
        // A fault that no write has met is still there; then everything else is right, too.
        for it in &wants {
            let kind = &kernel.files[&format!("{}/{PARTITION}", it.dir)];
            prop_assert_eq!(kind.trim(), "isolated", "{} {:?}", path, kernel.written);
        }
    }
}
