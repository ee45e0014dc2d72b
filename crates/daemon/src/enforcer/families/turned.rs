//! What the rebalancer has turned. In: turned knobs, which containers they are turned on, what others want. Out: settings, and which of them belong
//! to which proposal.
//!
//! How far a container may burst is wanted by `cgroups.rs`, with what all others want of that file.

use bayplan_enforcement::{
    CgroupVersion, CpuQuota, Setting, Slot, TurnedGroup, burst_slot, suppressed,
};
use bayplan_host::kernel::Kernel;
use bayplan_host::{ContainerCgroup, find_container_cgroup, find_cpu_cgroup};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_node::turned::Turn;
use bayplan_rebalance::Knob;
use bayplan_types::QosClass;

use super::family::{Context, Family};
use super::gathered::Gathered;
use crate::config::Config;

/// Files of what the rebalancer has turned; after the families that made the settings which it looks at.
#[derive(Debug)]
pub(super) struct TurnedKnobs;

impl Family for TurnedKnobs {
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered) {
        let Context { kernel, config, occupancy, .. } = context;
        gather_turned(&mut **kernel, config, occupancy, gathered);
    }
}

fn gather_turned(
    kernel: &mut dyn Kernel,
    config: &Config,
    occupancy: &Occupancy,
    gathered: &mut Gathered,
) {
    // Of all that suppress, the one that goes furthest counts.
    let mut furthest = 0;
    let in_files = occupancy.turned.iter().filter(|(_, it)| it.is_in_files());
    for (number, turn) in in_files {
        let Some(occupant) = occupancy.occupants.iter().find(|it| it.id == turn.target) else {
            continue;
        };
        let found = group_of(kernel, occupant, turn.knob);
        let slots = found.and_then(|group| {
            settings_of(number, turn, occupant, &group, occupancy, &mut furthest, gathered)
        });
        gathered.turned.insert(number, slots);
    }
    gather_best_effort(kernel, config, occupancy, gathered);
}

/// What all BestEffort pods have, whether a container suffers from them or not: a budget, and an idle group each. Of a budget and what the rebalancer has suppressed to, the smaller counts.
fn gather_best_effort(
    kernel: &mut dyn Kernel,
    config: &Config,
    occupancy: &Occupancy,
    gathered: &mut Gathered,
) {
    let is_configured = config.best_effort.is_idle && !occupancy.is_rebalance_paused;
    let is_idle = is_configured || !occupancy.lent.is_empty();
    let wanted = is_idle || occupancy.budget.is_some();
    if !wanted || occupancy.is_restored {
        return;
    }
    let lowest = occupancy.occupants.iter();
    for occupant in lowest.filter(|it| it.spec.pod.qos == Some(QosClass::BestEffort)) {
        let parent = &occupant.spec.pod.cgroup_parent;
        let Ok(Some(group)) = find_container_cgroup(kernel, parent, &occupant.runtime_id, None)
        else {
            continue;
        };
        if let (Some(budget), Some(class)) = (occupancy.budget, class_group(&group)) {
            let class = TurnedGroup::named_by_dir(class, "budget of BestEffort pods".to_owned());
            let slot = class.limit_slot(CgroupVersion::V2);
            let quota = CpuQuota::of(budget);
            let is_tighter =
                |it: &Setting| quota_of(&it.value).is_none_or(|it| quota.quota_us < it);
            if gathered.settings.get(&slot).is_none_or(is_tighter) {
                gathered.settings.extend(class.limited(quota, CgroupVersion::V2));
            }
        }
        if let Some(pod) = group.pod.as_deref().filter(|_| is_idle) {
            let reason = "BestEffort pods are idle".to_owned();
            let idle_pod = TurnedGroup::named_by_dir(pod, reason);
            for (slot, setting) in idle_pod.idle() {
                gathered.settings.entry(slot).or_insert(setting);
            }
        }
    }
}

/// The quota of `QUOTA PERIOD`, in microseconds.
fn quota_of(value: &str) -> Option<u64> {
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// Its groups, and which files they have. Of version 1 are only the limits of time.
fn group_of(
    kernel: &mut dyn Kernel,
    occupant: &Occupant,
    knob: Knob,
) -> Result<(ContainerCgroup, CgroupVersion), String> {
    let Occupant { spec, runtime_id, .. } = occupant;
    let parent = &spec.pod.cgroup_parent;
    let failed = |error| format!("its cgroup: {:#}", anyhow::Error::new(error));
    if let Some(group) = find_container_cgroup(kernel, parent, runtime_id, None).map_err(failed)? {
        return Ok((group, CgroupVersion::V2));
    }
    let limited = match knob {
        Knob::Suppress => find_cpu_cgroup(kernel, parent, runtime_id).map_err(failed)?,
        _ => None,
    };
    let group = limited.ok_or_else(|| "it has no cgroup (version 2)".to_owned())?;
    Ok((group, CgroupVersion::V1))
}

fn settings_of(
    number: u64,
    turn: &Turn,
    occupant: &Occupant,
    (group, version): &(ContainerCgroup, CgroupVersion),
    occupancy: &Occupancy,
    furthest: &mut u32,
    gathered: &mut Gathered,
) -> Result<Vec<Slot>, String> {
    let turned = |dir: &str| TurnedGroup {
        dir: dir.to_owned(),
        unit: occupant.name.clone(),
        reason: format!("rebalance {number}: {}", turn.knob.name()),
    };
    match turn.knob {
        Knob::Idle => {
            let pod = turned(group.pod.as_deref().ok_or("its pod has no cgroup")?);
            gathered.settings.extend(pod.idle());
            Ok(vec![pod.idle_slot()])
        }
        Knob::Suppress => {
            let class = class_group(group).ok_or("BestEffort pods have no cgroup of their own")?;
            let class = turned(class);
            if turn.step > *furthest {
                *furthest = turn.step;
                // Half of a node with CPUs that are mostly owned would be no limit to them.
                let quota = suppressed(occupancy.best_effort_cpus().len(), turn.step);
                gathered.settings.extend(class.limited(quota, *version));
            }
            Ok(vec![class.limit_slot(*version)])
        }
        Knob::Burst => {
            let slots: Vec<Slot> = group.dirs.iter().map(|dir| burst_slot(dir)).collect();
            let is_wanted = slots.iter().all(|slot| gathered.settings.contains_key(slot));
            is_wanted.then_some(slots).ok_or_else(|| "it has no limit to save up of".to_owned())
        }
        other => Err(format!("{} is nothing in kernel files", other.name())),
    }
}

/// The group of all BestEffort pods, as kubelet names it with either driver.
pub(crate) fn class_group(group: &ContainerCgroup) -> Option<&str> {
    let (class, _) = group.pod.as_deref()?.rsplit_once('/')?;
    let name = class.rsplit('/').next()?;
    let name = name.strip_suffix(".slice").unwrap_or(name);
    (name.rsplit('-').next()? == "besteffort").then_some(class)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bayplan_allocator::{ContainerId, NoHome};
    use bayplan_host::fake_kernel::FakeKernel;
    use bayplan_types::{CpuClass, CpuSet, NodeSet, QosClass};
    use bayplan_workload::{NewContainer, Pod};
    use expect_test::{Expect, expect};

    use super::*;
    use crate::enforcer::families::tests::gathered;
    use bayplan_node::turned::Turned;

    fn occupant(id: u64, name: &str, parent: &str, quota: i64) -> Occupant {
        let pod = Pod {
            id: name.to_owned(),
            cgroup_parent: parent.to_owned(),
            qos: Some(QosClass::BestEffort),
            ..Pod::default()
        };
        let mut spec = NewContainer { pod, name: "c".to_owned(), ..NewContainer::default() };
        (spec.resources.cpu_quota, spec.resources.cpu_period) = (quota, 100_000);
        Occupant {
            id: ContainerId(id),
            name: format!("n/{name}/c"),
            runtime_id: format!("id-{name}"),
            scheduling_class: None,
            spec: Arc::new(spec),
            tuning: Arc::default(),
            class: CpuClass::Shared,
            cpus: "0-3".parse().unwrap(),
            exclusive: CpuSet::new(),
            mems: NodeSet::new(),
            home: Err(NoHome::AtHome),
            is_left_alone: false,
            is_immovable: false,
            is_claimed: false,
            may_share_elsewhere: false,
            is_together: false,
            is_running: true,
        }
    }

    /// What is wanted of BestEffort pods with this budget in thousandths of a CPU, whether they are idle by configuration, and while these CPUs are lent; with what is turned.
    fn check_best_effort(
        budget: Option<u64>,
        (is_idle, lent): (bool, &str),
        turns: &[(u64, Knob, u64, u32)],
        expected: Expect,
    ) {
        let mut config = Config::default();
        config.best_effort.is_idle = is_idle;
        let mut occupancy = occupancy_of(turns);
        occupancy.budget = budget.map(bayplan_types::MilliCpu);
        occupancy.lent = lent.parse().unwrap();
        expected.assert_eq(&gathered_text(CgroupVersion::V2, &config, &occupancy));
    }

    #[test]
    fn a_budget_is_the_limit_of_the_class_unless_it_is_suppressed_further() {
        check_best_effort(
            Some(1500),
            (false, ""),
            &[],
            expect![[r#"
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.max = 150000 100000 (budget of BestEffort pods)
            /sys/fs/cgroup/kubepods/besteffort/cpu.max = 150000 100000 (budget of BestEffort pods)
        "#]],
        );
        check_best_effort(
            Some(500),
            (false, ""),
            &[(1, Knob::Suppress, 1, 2)],
            expect![[r#"
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.max = 50000 100000 (budget of BestEffort pods)
            /sys/fs/cgroup/kubepods/besteffort/cpu.max = 50000 100000 (budget of BestEffort pods)
            1: Ok(["/sys/fs/cgroup/kubepods/besteffort/cpu.max"])
        "#]],
        );
        check_best_effort(
            Some(1500),
            (false, ""),
            &[(1, Knob::Suppress, 1, 2)],
            expect![[r#"
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.max = 150000 100000 (budget of BestEffort pods)
            /sys/fs/cgroup/kubepods/besteffort/cpu.max = 100000 100000 (rebalance 1: suppress)
            1: Ok(["/sys/fs/cgroup/kubepods/besteffort/cpu.max"])
        "#]],
        );
    }

    #[test]
    fn best_effort_pods_are_idle_by_configuration_and_while_they_borrow() {
        check_best_effort(
            None,
            (true, ""),
            &[],
            expect![[r#"
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_b.slice/cpu.idle = 1 (BestEffort pods are idle)
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_b.slice/cpu.weight =  (BestEffort pods are idle)
            /sys/fs/cgroup/kubepods/besteffort/pod-a/cpu.idle = 1 (BestEffort pods are idle)
            /sys/fs/cgroup/kubepods/besteffort/pod-a/cpu.weight =  (BestEffort pods are idle)
        "#]],
        );
        check_best_effort(
            None,
            (false, "5"),
            &[(1, Knob::Idle, 1, 1)],
            expect![[r#"
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_b.slice/cpu.idle = 1 (BestEffort pods are idle)
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_b.slice/cpu.weight =  (BestEffort pods are idle)
            /sys/fs/cgroup/kubepods/besteffort/pod-a/cpu.idle = 1 (rebalance 1: idle)
            /sys/fs/cgroup/kubepods/besteffort/pod-a/cpu.weight =  (rebalance 1: idle)
            1: Ok(["/sys/fs/cgroup/kubepods/besteffort/pod-a/cpu.idle"])
        "#]],
        );
    }

    #[test]
    fn a_pause_of_the_rebalancer_ends_idle_pods() {
        let mut config = Config::default();
        config.best_effort.is_idle = true;
        let occupancy = Occupancy { is_rebalance_paused: true, ..occupancy_of(&[]) };
        assert_eq!(gathered_text(CgroupVersion::V2, &config, &occupancy), "");
    }

    /// What is wanted of files, and which of them belong to which proposal.
    fn check(turns: &[(u64, Knob, u64, u32)], expected: Expect) {
        check_on(CgroupVersion::V2, turns, expected);
    }

    fn check_on(version: CgroupVersion, turns: &[(u64, Knob, u64, u32)], expected: Expect) {
        expected.assert_eq(&gathered_text(version, &Config::default(), &occupancy_of(turns)));
    }

    fn occupancy_of(turns: &[(u64, Knob, u64, u32)]) -> Occupancy {
        let mut limited = occupant(3, "c", "/kubepods/burstable/pod-c", 200_000);
        Arc::make_mut(&mut limited.spec).pod.qos = Some(QosClass::Burstable);
        let turn = |(number, knob, target, step): &(u64, Knob, u64, u32)| {
            let (knob, target, step, leave) = (*knob, ContainerId(*target), *step, CpuSet::new());
            (*number, Turn { knob, target, step, leave, mems: NodeSet::new() })
        };
        Occupancy {
            occupants: vec![
                occupant(1, "a", "/kubepods/besteffort/pod-a", 0),
                occupant(2, "b", "kubepods-besteffort-pod_b.slice", 0),
                limited,
                occupant(4, "gone", "/kubepods/besteffort/pod-gone", 0),
            ],
            // Of other pools, too, where they may not run.
            shared: "0-7".parse().unwrap(),
            turned: Turned::from_turns(turns.iter().map(turn)),
            ..Occupancy::default()
        }
    }

    fn kernel_with(version: CgroupVersion) -> FakeKernel {
        let systemd = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_b.slice";
        let groups = [
            "kubepods/besteffort/pod-a/id-a".to_owned(),
            format!("{systemd}/cri-containerd-id-b.scope"),
            "kubepods/burstable/pod-c/id-c".to_owned(),
        ];
        let (known, mount, file) = match version {
            CgroupVersion::V1 => ("cpu/cpu.cfs_quota_us", "cpu/", "cpu.cfs_quota_us"),
            CgroupVersion::V2 => ("cgroup.controllers", "", "cgroup.type"),
        };
        let mut kernel = FakeKernel::new(&[(&format!("sys/fs/cgroup/{known}"), "\n")]);
        for group in groups {
            let file = format!("sys/fs/cgroup/{mount}{group}/{file}");
            kernel.files.insert(file, String::new());
        }
        if version == CgroupVersion::V2 {
            kernel.files.insert("sys/fs/cgroup/kubepods/cpu.max".to_owned(), String::new());
        }
        kernel
    }

    fn gathered_text(version: CgroupVersion, config: &Config, occupancy: &Occupancy) -> String {
        let gathered = gathered(&mut kernel_with(version), config, occupancy);
        let settings = gathered.settings.iter();
        let mut text: String =
            settings.map(|(slot, it)| format!("{slot} = {} ({})\n", it.value, it.reason)).collect();
        for (number, slots) in gathered.turned {
            let slots = slots.map(|it| it.iter().map(Slot::to_string).collect::<Vec<_>>());
            text.push_str(&format!("{number}: {slots:?}\n"));
        }
        text
    }

    #[test]
    fn an_idle_container_is_an_idle_pod_with_either_driver() {
        check(
            &[(1, Knob::Idle, 1, 1), (2, Knob::Idle, 2, 1)],
            expect![[r#"
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_b.slice/cpu.idle = 1 (rebalance 2: idle)
            /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_b.slice/cpu.weight =  (rebalance 2: idle)
            /sys/fs/cgroup/kubepods/besteffort/pod-a/cpu.idle = 1 (rebalance 1: idle)
            /sys/fs/cgroup/kubepods/besteffort/pod-a/cpu.weight =  (rebalance 1: idle)
            1: Ok(["/sys/fs/cgroup/kubepods/besteffort/pod-a/cpu.idle"])
            2: Ok(["/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod_b.slice/cpu.idle"])
        "#]],
        );
    }

    #[test]
    fn of_several_suppressions_the_furthest_counts_of_the_cpus_that_the_class_may_use() {
        check(
            &[(1, Knob::Suppress, 1, 1), (2, Knob::Suppress, 1, 2)],
            expect![[r#"
            /sys/fs/cgroup/kubepods/besteffort/cpu.max = 100000 100000 (rebalance 2: suppress)
            1: Ok(["/sys/fs/cgroup/kubepods/besteffort/cpu.max"])
            2: Ok(["/sys/fs/cgroup/kubepods/besteffort/cpu.max"])
        "#]],
        );
    }

    #[test]
    fn of_version_1_only_the_limit_of_all_best_effort_pods_is_turned() {
        check_on(
            CgroupVersion::V1,
            &[(1, Knob::Suppress, 1, 2), (2, Knob::Idle, 1, 1), (3, Knob::Suppress, 3, 3)],
            expect![[r#"
                /sys/fs/cgroup/cpu/kubepods/besteffort/cpu.cfs_period_us = 100000 (rebalance 1: suppress)
                /sys/fs/cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us = 100000 (rebalance 1: suppress)
                1: Ok(["/sys/fs/cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us"])
                2: Err("it has no cgroup (version 2)")
                3: Err("BestEffort pods have no cgroup of their own")
            "#]],
        );
    }

    #[test]
    fn a_burst_needs_a_limit() {
        check(
            &[(1, Knob::Burst, 3, 1), (2, Knob::Burst, 1, 1)],
            expect![[r#"
            /sys/fs/cgroup/kubepods/burstable/pod-c/id-c/cpu.max.burst = 100000 (CPU burst)
            1: Ok(["/sys/fs/cgroup/kubepods/burstable/pod-c/id-c/cpu.max.burst"])
            2: Err("it has no limit to save up of")
        "#]],
        );
        check(
            &[(1, Knob::Burst, 3, 2)],
            expect![[r#"
            /sys/fs/cgroup/kubepods/burstable/pod-c/id-c/cpu.max.burst = 200000 (CPU burst)
            1: Ok(["/sys/fs/cgroup/kubepods/burstable/pod-c/id-c/cpu.max.burst"])
        "#]],
        );
    }

    #[test]
    fn what_cannot_be_turned_says_why() {
        check(
            &[
                (1, Knob::Idle, 4, 1),
                (2, Knob::Suppress, 3, 1),
                (3, Knob::Evict, 1, 1),
                (4, Knob::Idle, 9, 1),
            ],
            expect![[r#"
                1: Err("it has no cgroup (version 2)")
                2: Err("BestEffort pods have no cgroup of their own")
                3: Err("evict is nothing in kernel files")
            "#]],
        );
    }
}
