//! Classes of scheduling of the containers that run. In: the configuration, which container runs where. Out: settings.

use std::collections::BTreeSet;

use bayplan_enforcement::{ScheduledMember, settings_for_scheduling};
use bayplan_host::kernel::Kernel;
use bayplan_host::{find_container_cgroup, read_cgroup_files};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_workload::annotations::matches_glob;

use super::Gathered;
use crate::config::{Config, NamedScheduling};

/// After what the rebalancer has turned, which goes before.
pub(super) fn gather_scheduling(
    kernel: &mut dyn Kernel,
    config: &Config,
    occupancy: &Occupancy,
    gathered: &mut Gathered,
) {
    if config.scheduling_classes.is_empty() || occupancy.is_restored {
        return;
    }
    // Pods with a container that is in no idle class.
    let mut busy = BTreeSet::new();
    let mut wanting = Vec::new();
    for occupant in &occupancy.occupants {
        let class = class_of(config, occupant).and_then(|name| {
            let class = config.scheduling_classes.iter().find(|it| it.name == name)?;
            Some((name, class.class.clone()))
        });
        if class.as_ref().is_none_or(|(_, class)| !class.is_idle) {
            busy.insert(occupant.spec.pod.id.as_str());
        }
        wanting.extend(class.map(|(name, class)| (occupant, name, class)));
    }
    let mut members = Vec::new();
    for (occupant, name, class) in wanting {
        let parent = &occupant.spec.pod.cgroup_parent;
        match find_container_cgroup(kernel, parent, &occupant.runtime_id, None) {
            Ok(Some(group)) => {
                let is_busy = busy.contains(occupant.spec.pod.id.as_str());
                let Some(dir) = group.dirs.first().cloned() else { continue };
                members.push(ScheduledMember {
                    unit: occupant.name.clone(),
                    dir,
                    idle_pod: group.pod.filter(|_| !is_busy),
                    name,
                    class,
                });
            }
            Ok(None) => gathered.lacks_groups = true,
            Err(error) => {
                let why = anyhow::Error::new(error);
                gathered.problems.push(format!("the cgroup of {}: {why:#}", occupant.name));
            }
        }
    }
    if members.is_empty() {
        return;
    }
    let (settings, problems) = settings_for_scheduling(&members, &read_cgroup_files(kernel));
    for (slot, setting) in settings {
        gathered.settings.entry(slot).or_insert(setting);
    }
    gathered.problems.extend(problems);
}

/// The name of its class: its own word, its group's, its namespace's, its QoS class's.
fn class_of(config: &Config, occupant: &Occupant) -> Option<String> {
    let own = occupant.tuning.scheduling_class.clone();
    let named = own.or_else(|| occupant.scheduling_class.clone());
    let pod = &occupant.spec.pod;
    named.or_else(|| {
        let of_namespace = config
            .scheduling_classes
            .iter()
            .find(|it| it.namespaces.iter().any(|pattern| matches_glob(pattern, &pod.namespace)));
        let has_qos = |it: &&NamedScheduling| pod.qos.is_some_and(|qos| it.qos.contains(&qos));
        let of_qos = || config.scheduling_classes.iter().find(has_qos);
        of_namespace.or_else(of_qos).map(|it| it.name.clone())
    })
}
