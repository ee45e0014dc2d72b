//! Where groups of containers come that files are wanted of. In: which containers are there, and which are being started. Out: groups that can be
//! written, and directories in which something is about to happen.
//!
//! Problem: what a container is promised is to hold before its first instruction, and containerd makes its cgroup only while it starts it: there is
//! no moment between two calls at which the files could be written. Approach: a runtime makes the group (mkdir(2)), puts a process of its own into
//! it, writes the limits that it was told, and only then lets that process become the container (the OCI runtime specification, "Lifecycle", has
//! `create` and `start` as two steps). So a group that is awaited is listened for, and written as soon as the runtime has written its own: earlier
//! its writes would come on top of ours, and what was there before would be remembered as nothing.

use std::collections::BTreeSet;

use bayplan_host::kernel::Kernel;
use bayplan_host::{CgroupError, ContainerCgroup, find_container_cgroup, pod_cgroup};

use bayplan_node::occupancy::Occupant;

/// Containers with groups that come, and where.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Containers that are being started, by the runtime's ids.
    starting: BTreeSet<String>,
    awaited: BTreeSet<String>,
    /// Containers of which files are wanted, or may be, by the runtime's ids.
    wanted: BTreeSet<String>,
}

impl Arrivals {
    /// Of containers that are being started.
    pub(super) fn of(starting: BTreeSet<String>) -> Arrivals {
        Arrivals { starting, ..Arrivals::default() }
    }

    /// Containers of which files are wanted, or may be: before the start of any other there is nothing to wait for.
    pub(crate) fn wanted(&self) -> &BTreeSet<String> {
        &self.wanted
    }

    /// Files may be wanted of this container.
    pub(super) fn note_wanted(&mut self, occupant: &Occupant) {
        self.wanted.insert(occupant.runtime_id.clone());
    }

    /// Directories of pods in which a container's is missing, and of containers that are being started.
    pub(crate) fn awaited(&self) -> &BTreeSet<String> {
        &self.awaited
    }

    /// The group of a container of which files are wanted. `None`: there is none, or the runtime has not written its own limits there yet.
    ///
    /// # Errors
    /// [`CgroupError`] when it cannot be looked for.
    pub(super) fn find_group(
        &mut self,
        kernel: &mut dyn Kernel,
        occupant: &Occupant,
    ) -> Result<Option<ContainerCgroup>, CgroupError> {
        self.note_wanted(occupant);
        let Occupant { spec, runtime_id, .. } = occupant;
        let parent = &spec.pod.cgroup_parent;
        let Some(group) = find_container_cgroup(kernel, parent, runtime_id, None)? else {
            self.awaited.extend(pod_cgroup(parent));
            return Ok(None);
        };
        if !self.starting.contains(runtime_id) {
            return Ok(Some(group));
        }
        self.awaited.extend(group.dirs.first().cloned());
        Ok(Some(group).filter(|it| !is_bare(kernel, it, occupant)))
    }
}

/// The runtime was told of CPUs, and there are none yet (Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files": empty in a new group).
fn is_bare(kernel: &mut dyn Kernel, group: &ContainerCgroup, occupant: &Occupant) -> bool {
    let mut is_empty = |dir: &String| {
        kernel.read(&format!("{dir}/cpuset.cpus")).is_ok_and(|text| text.trim().is_empty())
    };
    occupant.has_told_cpus() && group.dirs.first().is_some_and(&mut is_empty)
}

#[cfg(test)]
mod tests {
    use bayplan_host::fake_kernel::FakeKernel;

    use super::*;
    use crate::enforcer::families::cgroups::tests::occupant;

    const POD: &str = "sys/fs/cgroup/kubepods/pod-c";

    #[test]
    fn a_container_that_is_being_started_is_written_once_the_runtime_has_written() {
        // Its CPUs, if there is a group; whether it is being started; where something is awaited, and whether its files can be written.
        let own = format!("{POD}/id-c");
        let (none, bare, filled) = (None, Some("\n"), Some("2-3\n"));
        for (cpus, is_starting, awaited, is_found) in [
            (none, false, Some(POD), false),
            (none, true, Some(POD), false),
            (bare, false, None, true),
            (bare, true, Some(own.as_str()), false),
            (filled, false, None, true),
            (filled, true, Some(own.as_str()), true),
        ] {
            let mut kernel = FakeKernel::new(&[]);
            if let Some(cpus) = cpus {
                kernel.files.insert(format!("{own}/cgroup.type"), "domain\n".to_owned());
                kernel.files.insert(format!("{own}/cpuset.cpus"), cpus.to_owned());
            }
            let starting = is_starting.then(|| "id-c".to_owned());
            let mut arrivals = Arrivals::of(starting.into_iter().collect());
            let found = arrivals.find_group(&mut kernel, &occupant("c", "2-3", "", &[])).unwrap();
            let what = format!("{cpus:?} {is_starting}");
            assert_eq!(found.is_some(), is_found, "{what}");
            assert_eq!(arrivals.awaited().iter().next().map(String::as_str), awaited, "{what}");
            assert!(arrivals.wanted().contains("id-c"), "{what}");
        }
    }
}
