//! Partitions of CPUs for containers that own theirs (cgroup v2). In: which containers ask for one, what the machine offers. Out: settings, and what
//! each container is given.
//!
//! A partition is a scheduling domain of its own: no other tasks run there, whatever their own CPU sets say. `root` keeps balancing load among its
//! CPUs; in an `isolated` one every thread stays where it was put, the kernel's own work queues and timers of others keep away, and the program
//! places its threads itself. Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files": a group deep in the tree can be a partition since
//! Linux 6.7 ("remote partition") if its CPUs are in `cpuset.cpus.exclusive` of every group on the way, and in no neighbour's. Of a process that
//! makes one the kernel asks for CAP_SYS_ADMIN (kernel/cgroup/cpuset.c, `remote_partition_enable`); without it the write succeeds, and the file says
//! that it is not permitted.

use std::collections::BTreeMap;

use bayplan_types::CpuSet;

use crate::cgroup::dirs_above;
use crate::setting::{Form, Setting, Settings, Slot};

/// The file with the CPUs that a group may make a partition of.
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";

/// How far a container's CPUs are kept from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartitionKind {
    /// A scheduling domain of its own, with load balancing.
    Root,
    /// And without load balancing.
    Isolated,
}

impl PartitionKind {
    /// The kernel's word.
    pub fn name(self) -> &'static str {
        match self {
            PartitionKind::Root => "root",
            PartitionKind::Isolated => "isolated",
        }
    }
}

/// A container that asks for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionWants {
    /// The container's full name.
    pub unit: String,
    /// Its group, below the root.
    pub dir: String,
    /// Its CPUs, if all of them are its own; otherwise none.
    pub cpus: CpuSet,
    /// Of this kind.
    pub kind: PartitionKind,
}

/// What a machine has for that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionOffer {
    /// Whether groups have the file `cpuset.cpus.exclusive`.
    pub has_remote_partitions: bool,
    /// Whether we have the right to make one.
    pub is_permitted: bool,
    /// CPUs that are isolated since the machine was booted (`isolcpus`).
    pub isolated_at_boot: CpuSet,
}

/// What a container that asks is given: the best that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionGiven {
    /// What it asks for.
    Partition(PartitionKind),
    /// CPUs that are isolated since the machine was booted.
    Boot,
    /// CPUs on which only processes outside of all containers may run, too.
    Exclusive,
    /// The same, where a partition could be had with more rights.
    Forbidden,
    /// Nothing: it shares CPUs.
    Shared,
}

/// The settings of all containers that ask, what each is given, in their order, and what cannot be had.
pub fn settings_for_partitions(
    wants: &[PartitionWants],
    offer: &PartitionOffer,
) -> (Settings, Vec<PartitionGiven>, Vec<String>) {
    let mut settings = Settings::new();
    let mut sums: BTreeMap<&str, CpuSet> = BTreeMap::new();
    let (mut given, mut problems) = (Vec::new(), Vec::new());
    for it in wants {
        let PartitionWants { unit, dir, cpus, kind } = it;
        let gets = offer.best_for(it);
        given.push(gets);
        problems.extend(gets.problem(unit));
        if !matches!(gets, PartitionGiven::Partition(_)) {
            continue;
        }
        let file = format!("{dir}/{EXCLUSIVE}");
        let form = Form::Partition { cpus: file.clone() };
        let reason = format!("a partition of its exclusive CPUs ({})", kind.name());
        let setting =
            |form, value| Setting { form, value, unit: unit.clone(), reason: reason.clone() };
        settings.insert(Slot::file(file), setting(Form::OwnCpus, cpus.to_string()));
        settings.insert(partition_slot(dir), setting(form, kind.name().to_owned()));
        for above in dirs_above(dir) {
            sums.entry(above).or_default().union_with(cpus);
        }
    }
    for (dir, cpus) in sums {
        let setting = Setting {
            form: Form::OwnCpus,
            value: cpus.to_string(),
            unit: dir.rsplit('/').next().unwrap_or(dir).to_owned(),
            reason: "for partitions below".to_owned(),
        };
        settings.insert(Slot::file(format!("{dir}/{EXCLUSIVE}")), setting);
    }
    (settings, given, problems)
}

/// The file of a group that says what kind of partition it is.
pub fn partition_slot(dir: &str) -> Slot {
    Slot::file(format!("{dir}/cpuset.cpus.partition"))
}

impl PartitionOffer {
    fn best_for(&self, wants: &PartitionWants) -> PartitionGiven {
        match wants {
            PartitionWants { cpus, .. } if cpus.is_empty() => PartitionGiven::Shared,
            // The kernel takes these into no partition that balances, and there is nothing to add to them.
            PartitionWants { cpus, .. } if cpus.intersects(&self.isolated_at_boot) => {
                let is_all = cpus.is_subset(&self.isolated_at_boot);
                if is_all { PartitionGiven::Boot } else { PartitionGiven::Exclusive }
            }
            PartitionWants { kind, .. } if self.has_remote_partitions => match self.is_permitted {
                true => PartitionGiven::Partition(*kind),
                false => PartitionGiven::Forbidden,
            },
            _ => PartitionGiven::Exclusive,
        }
    }
}

impl PartitionGiven {
    fn problem(self, unit: &str) -> Option<String> {
        match self {
            PartitionGiven::Partition(_) | PartitionGiven::Boot => None,
            PartitionGiven::Exclusive => Some(format!(
                "{unit} asks for a partition and has exclusive CPUs only: that needs cgroup v2, Linux 6.7, and no CPU that is isolated at boot"
            )),
            PartitionGiven::Forbidden => Some(format!(
                "{unit} asks for a partition and has exclusive CPUs only: the daemon lacks CAP_SYS_ADMIN; `systemctl edit bayplan.service`, add \
                 `[Service]` and `CapabilityBoundingSet=CAP_SYS_ADMIN`, and restart it"
            )),
            PartitionGiven::Shared => Some(format!(
                "{unit} asks for a partition and shares CPUs: that needs a Guaranteed pod and whole CPUs"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(
        (has_remote_partitions, is_permitted): (bool, bool),
        wants: &[(&str, &str, PartitionKind)],
        expected: Expect,
    ) {
        let wants = wants.iter().map(|(name, cpus, kind)| PartitionWants {
            unit: (*name).to_owned(),
            dir: format!("sys/fs/cgroup/kubepods/pod-{name}/{name}"),
            cpus: cpus.parse().unwrap(),
            kind: *kind,
        });
        let isolated_at_boot = "12-15".parse().unwrap();
        let offer = PartitionOffer { has_remote_partitions, is_permitted, isolated_at_boot };
        let wants: Vec<PartitionWants> = wants.collect();
        let (settings, given, problems) = settings_for_partitions(&wants, &offer);
        let lines =
            settings.iter().map(|(slot, it)| format!("{slot} = {}  ({})\n", it.value, it.unit));
        let given = wants.iter().zip(given).map(|(it, given)| format!("{}: {given:?}\n", it.unit));
        let problems = problems.iter().map(|it| format!("! {it}\n"));
        expected.assert_eq(&lines.chain(given).chain(problems).collect::<String>());
    }

    #[test]
    fn each_container_gets_the_best_that_there_is() {
        use PartitionKind::{Isolated, Root};
        let wants = [
            ("a", "2-3", Isolated),
            ("b", "4", Root),
            ("boot", "12-13", Isolated),
            ("mixed", "11-12", Root),
            ("sharer", "", Isolated),
        ];
        check(
            (true, true),
            &wants,
            expect![[r#"
            /sys/fs/cgroup/kubepods/cpuset.cpus.exclusive = 2-4  (kubepods)
            /sys/fs/cgroup/kubepods/pod-a/a/cpuset.cpus.exclusive = 2-3  (a)
            /sys/fs/cgroup/kubepods/pod-a/a/cpuset.cpus.partition = isolated  (a)
            /sys/fs/cgroup/kubepods/pod-a/cpuset.cpus.exclusive = 2-3  (pod-a)
            /sys/fs/cgroup/kubepods/pod-b/b/cpuset.cpus.exclusive = 4  (b)
            /sys/fs/cgroup/kubepods/pod-b/b/cpuset.cpus.partition = root  (b)
            /sys/fs/cgroup/kubepods/pod-b/cpuset.cpus.exclusive = 4  (pod-b)
            a: Partition(Isolated)
            b: Partition(Root)
            boot: Boot
            mixed: Exclusive
            sharer: Shared
            ! mixed asks for a partition and has exclusive CPUs only: that needs cgroup v2, Linux 6.7, and no CPU that is isolated at boot
            ! sharer asks for a partition and shares CPUs: that needs a Guaranteed pod and whole CPUs
        "#]],
        );
        check(
            (false, true),
            &wants[..1],
            expect![[r#"
            a: Exclusive
            ! a asks for a partition and has exclusive CPUs only: that needs cgroup v2, Linux 6.7, and no CPU that is isolated at boot
        "#]],
        );
        check(
            (false, true),
            &wants[2..3],
            expect![[r#"
            boot: Boot
        "#]],
        );
        check(
            (true, false),
            &wants[..1],
            expect![[r#"
            a: Forbidden
            ! a asks for a partition and has exclusive CPUs only: the daemon lacks CAP_SYS_ADMIN; `systemctl edit bayplan.service`, add `[Service]` and `CapabilityBoundingSet=CAP_SYS_ADMIN`, and restart it
        "#]],
        );
    }
}
