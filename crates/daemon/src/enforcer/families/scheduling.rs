//! Classes of scheduling of the containers that run. In: classes of the configuration, which container runs where. Out: settings.

use std::collections::BTreeSet;

use bayplan_enforcement::{NamedScheduling, ScheduledMember, Settings, settings_for_scheduling};
use bayplan_host::kernel::Kernel;
use bayplan_host::{find_container_cgroup, read_cgroup_files};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_workload::annotations::matches_glob;

/// What is wanted of the groups of containers with a class.
#[derive(Debug, Default)]
pub(super) struct Scheduled {
    pub(super) settings: Settings,
    pub(super) problems: Vec<String>,
    /// A container has no group yet.
    pub(super) lacks_groups: bool,
}

/// Looks for the groups of those containers that have a class.
pub(super) fn scheduled(
    kernel: &mut dyn Kernel,
    classes: &[NamedScheduling],
    occupancy: &Occupancy,
) -> Scheduled {
    let mut found = Scheduled::default();
    if classes.is_empty() || occupancy.is_restored {
        return found;
    }
    let wanting = occupancy.occupants.iter().map(|it| (it, class_of(classes, it)));
    let wanting: Vec<(&Occupant, Option<&NamedScheduling>)> = wanting.collect();
    // Pods with a container that is in no idle class.
    let is_busy =
        |it: &&(&Occupant, Option<&NamedScheduling>)| it.1.is_none_or(|class| !class.class.is_idle);
    let busy: BTreeSet<&str> =
        wanting.iter().filter(is_busy).map(|(it, _)| it.spec.pod.id.as_str()).collect();
    let mut members = Vec::new();
    for (occupant, class) in &wanting {
        let Some(class) = class else { continue };
        let parent = &occupant.spec.pod.cgroup_parent;
        match find_container_cgroup(kernel, parent, &occupant.runtime_id, None) {
            Ok(Some(group)) => {
                let Some(dir) = group.dirs.first().cloned() else { continue };
                members.push(ScheduledMember {
                    unit: occupant.name.clone(),
                    dir,
                    idle_pod: group.pod.filter(|_| !busy.contains(occupant.spec.pod.id.as_str())),
                    name: class.name.clone(),
                    class: class.class.clone(),
                });
            }
            Ok(None) => found.lacks_groups = true,
            Err(error) => {
                let why = anyhow::Error::new(error);
                found.problems.push(format!("the cgroup of {}: {why:#}", occupant.name));
            }
        }
    }
    if !members.is_empty() {
        let (settings, problems) = settings_for_scheduling(&members, &read_cgroup_files(kernel));
        found.settings = settings;
        found.problems.extend(problems);
    }
    found
}

/// The class that a container's pod names, or that of its group, its namespace, or its QoS class. A name that is not defined is none; a warning says so.
fn class_of<'a>(
    classes: &'a [NamedScheduling],
    occupant: &Occupant,
) -> Option<&'a NamedScheduling> {
    let own = occupant.tuning.scheduling_class.as_ref();
    if let Some(name) = own.or(occupant.scheduling_class.as_ref()) {
        return classes.iter().find(|it| it.name == *name);
    }
    let pod = &occupant.spec.pod;
    let is_of_namespace = |it: &&NamedScheduling| {
        it.namespaces.iter().any(|pattern| matches_glob(pattern, &pod.namespace))
    };
    let is_of_qos = |it: &&NamedScheduling| pod.qos.is_some_and(|qos| it.qos.contains(&qos));
    classes.iter().find(is_of_namespace).or_else(|| classes.iter().find(is_of_qos))
}
