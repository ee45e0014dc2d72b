//! What this node can turn. In: the configuration, the names of cgroups' files. Out: knobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_enforcement::CgroupFiles;
use bayplan_host::kernel::DiskKernel;
use bayplan_host::{has_cpu_cgroups, read_cgroup_files};
use bayplan_rebalance::Knob;

use crate::config::{Config, EnforcementMode};
use crate::enforcer::{ClassesKnown, SCARCE};

/// Knobs that need a kernel file, and the file. Each exists since another kernel: `cpu.idle` 5.15, `cpu.max.burst` 5.14. Pages follow `cpuset.mems`
/// of cgroup v2 since 5.15; that of version 1 leaves them where they are unless told otherwise.
const FILES: [(Knob, &str); 4] = [
    (Knob::Idle, "cpu.idle"),
    (Knob::Suppress, "cpu.max"),
    (Knob::Burst, "cpu.max.burst"),
    (Knob::Memory, "cpuset.mems"),
];

/// Knobs that are the CPU set of a container, which the runtime writes.
const CPU_SETS: [Knob; 5] =
    [Knob::Siblings, Knob::Gather, Knob::Move, Knob::Clock, Knob::MoveOwner];

/// Whether a knob is in a pinning, which the runtime writes, and not in a file that the enforcer writes.
pub(super) fn is_pinning(knob: Knob) -> bool {
    CPU_SETS.contains(&knob) || knob == Knob::Memory
}

/// What can be turned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) knobs: BTreeSet<Knob>,
    /// Why not every knob can be.
    pub(super) lacking: Option<&'static str>,
    /// Classes of resctrl that culprits can be put into.
    pub(super) classes: Option<Arc<ClassesKnown>>,
}

/// What is known of the task that writes files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// It does not write any more.
    pub(super) is_lost: bool,
    /// How often groups of resctrl were made or removed.
    pub(super) regrouped: u64,
}

/// What is known of the files, once they are there.
#[derive(Debug, Default)]
pub(super) struct FilesSeen {
    files: Option<CgroupFiles>,
    /// Time is limited by a hierarchy of version 1.
    is_v1: bool,
    classes: Option<Arc<ClassesKnown>>,
    /// How often groups had been made or removed when classes were read.
    regrouped: u64,
    /// It was told that there are no classes.
    is_told: bool,
}

impl FilesSeen {
    /// What can be turned under this configuration. Reads files, which may be slow; `is_dry_run`: whatever the configuration says, nothing is written.
    pub(super) fn reach(
        &mut self,
        config: &Config,
        is_dry_run: bool,
        Writing { is_lost, regrouped }: Writing,
    ) -> Reach {
        let no_files = |why| Reach { knobs: CPU_SETS.into(), lacking: Some(why), classes: None };
        match config.enforcement {
            _ if is_dry_run => {
                let lacking = Some("the daemon runs with --dry-run");
                return Reach { lacking, ..Reach::default() };
            }
            _ if is_lost => return no_files("a bug has ended what writes them, until a restart"),
            EnforcementMode::Off => return no_files("`enforcement` is off"),
            EnforcementMode::DryRun => return no_files("`enforcement` is dry-run"),
            EnforcementMode::On => {}
        }
        if self.files.is_none() {
            let mut kernel = DiskKernel::open(&config.host_root).ok();
            let files = kernel.as_mut().map(|it| read_cgroup_files(it)).unwrap_or_default();
            // Before the first pod there may be no group that has them.
            self.files = files.contains("cpu.max").then_some(files);
            self.is_v1 = kernel.is_some_and(|mut it| has_cpu_cgroups(&mut it));
        }
        let Some(files) = &self.files else {
            let mut reach = no_files("there are no cgroups of version 2 with the controller cpu");
            reach.knobs.extend(self.is_v1.then_some(Knob::Suppress));
            return reach;
        };
        let is_there = |file: &str| files.contains(file);
        let knobs = FILES.iter().filter(|(_, file)| is_there(file)).map(|(knob, _)| *knob);
        let mut knobs: BTreeSet<Knob> = knobs.chain(CPU_SETS).collect();
        let classes = self.classes(config, regrouped);
        if classes.is_some() {
            knobs.extend(SCARCE.map(|(knob, _)| knob));
        }
        Reach { knobs, lacking: None, classes }
    }

    /// Classes of resctrl, read again when another configuration holds or groups have come or gone; that there are none is told once.
    fn classes(&mut self, config: &Config, regrouped: u64) -> Option<Arc<ClassesKnown>> {
        let is_new = std::mem::replace(&mut self.regrouped, regrouped) != regrouped;
        if is_new || !self.classes.as_ref().is_some_and(|it| it.are_of(&config.resctrl)) {
            let kernel = DiskKernel::open(&config.host_root).ok();
            let read = kernel.and_then(|mut it| ClassesKnown::read(&mut it, &config.resctrl));
            self.classes = read.map(Arc::new);
        }
        if self.classes.is_none() && !self.is_told {
            tracing::info!(
                "rebalance: cache and bandwidth cannot be turned: resctrl has no classes here (resctrl.partitions)"
            );
        }
        self.is_told = self.classes.is_none();
        self.classes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KNOBS;

    #[test]
    fn only_what_a_node_has_can_be_forbidden_and_all_of_it() {
        let files = FILES.iter().map(|(knob, _)| *knob);
        let classes = SCARCE.iter().map(|(knob, _)| *knob);
        let all: BTreeSet<Knob> =
            files.chain(CPU_SETS).chain(classes).chain([Knob::Evict]).collect();
        assert_eq!(all, KNOBS.into());
    }
}
