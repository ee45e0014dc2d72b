//! Classes of scheduling of the containers that run. In: classes of the configuration, which container runs where. Out: settings.

use std::collections::BTreeSet;

use bayplan_enforcement::{NamedScheduling, ScheduledMember, settings_for_scheduling};
use bayplan_host::{find_container_cgroup, read_cgroup_files};
use bayplan_node::occupancy::Occupant;

use super::family::{Context, Family};
use super::gathered::Gathered;
use crate::config::FrontEnd;
use crate::scheduling_class::{class_of, lacks_realtime, without_front_end, without_realtime};

/// What groups can say of containers that have a class.
#[derive(Debug, Default)]
pub(super) struct Scheduling {
    /// That of the first look: another one holds after a start.
    front_end: Option<FrontEnd>,
}

impl Family for Scheduling {
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered) {
        let front_end = *self.front_end.get_or_insert(context.config.front_end);
        let members = members(context, front_end, gathered);
        if members.is_empty() {
            return;
        }
        let files = read_cgroup_files(&mut *context.kernel);
        let (settings, problems) = settings_for_scheduling(&members, &files);
        // What the rebalancer has turned goes before.
        for (slot, setting) in settings {
            gathered.settings.entry(slot).or_insert(setting);
        }
        gathered.problems.extend(problems);
    }
}

/// Containers with a class that groups can say something of, as far as their groups are there.
fn members(
    context: &mut Context<'_>,
    front_end: FrontEnd,
    gathered: &mut Gathered,
) -> Vec<ScheduledMember> {
    let Context { kernel, config, occupancy, .. } = context;
    let (classes, mut members) = (&config.scheduling_classes, Vec::new());
    if classes.is_empty() || occupancy.is_restored {
        return members;
    }
    let wanting = occupancy.occupants.iter().map(|it| {
        let named = it.scheduling_class.as_deref();
        (it, class_of(classes, named, &it.spec.pod))
    });
    let wanting: Vec<(&Occupant, Option<&NamedScheduling>)> = wanting.collect();
    // Pods with a container that is in no idle class.
    let is_busy =
        |it: &&(&Occupant, Option<&NamedScheduling>)| it.1.is_none_or(|class| !class.class.is_idle);
    let busy: BTreeSet<&str> =
        wanting.iter().filter(is_busy).map(|(it, _)| it.spec.pod.id.as_str()).collect();
    for (occupant, class) in &wanting {
        let Some(class) = class else { continue };
        if front_end == FrontEnd::Cri && !class.class.threads.is_empty() {
            gathered.problems.push(without_front_end(&occupant.name, &class.name));
        } else if lacks_realtime(&class.class, &mut **kernel) {
            gathered.problems.push(without_realtime(&occupant.name, &class.name));
        }
        if !class.class.wants_files() {
            continue;
        }
        let parent = &occupant.spec.pod.cgroup_parent;
        match find_container_cgroup(&mut **kernel, parent, &occupant.runtime_id, None) {
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
            Ok(None) => gathered.lacks_groups = true,
            Err(error) => {
                let why = anyhow::Error::new(error);
                gathered.problems.push(format!("the cgroup of {}: {why:#}", occupant.name));
            }
        }
    }
    members
}
