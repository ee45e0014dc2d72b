//! What is wanted of resctrl. In: classes of the configuration, who is where and which class he asks for, what the machine offers. Out: groups with
//! their schemata, and which container's threads belong into which.
//!
//! Who names no class is in the one that is named like his QoS class, and if there is none in no class of ours: then he leaves our groups, and
//! stays where somebody else has put him. Classes that somebody is in are the first to get a group.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_cri::annotations::read_annotations;
use bayplan_cri::translate::RequestRules;
use bayplan_enforcement::resctrl::{
    ClassName, GroupPlan, RESCTRL, ResctrlClass, ResctrlConfig, WantedGroups, control_dir,
    is_own_group, plan_groups, resolve, schemata_settings,
};
use bayplan_host::kernel::Kernel;
use bayplan_host::{
    Assignment, ContainerCgroup, Resctrl, ResctrlState, find_container_cgroup, read_resctrl,
};

use super::Gathered;
use crate::config::Config;
use crate::occupancy::{Occupancy, Occupant};

/// Groups, schemata and threads of all classes; where there is no class, our groups go.
pub(super) fn gather_resctrl(
    kernel: &mut dyn Kernel,
    config: &Config,
    occupancy: &Occupancy,
    gathered: &mut Gathered,
) {
    if config.resctrl.partitions.is_empty() {
        gathered.groups.plan = without_groups(kernel);
        return;
    }
    let Some(resctrl) = mounted(kernel, gathered) else { return };
    let resolved = match resolve(&config.resctrl, &resctrl.info) {
        Ok(resolved) => resolved,
        // What is there stays as it is: to take everything away would hurt more than a class that is not quite right.
        Err(problems) => {
            gathered.problems.extend(problems.iter().map(|it| format!("resctrl: {it}")));
            return;
        }
    };
    let classes: BTreeMap<&str, &ResctrlClass> =
        config.resctrl.classes().map(|(_, class)| (class.name.as_str(), class)).collect();
    let members: Vec<(&Occupant, ClassName)> = occupancy
        .occupants
        .iter()
        .map(|it| (it, class_of(it, &classes, &mut gathered.problems)))
        .collect();
    let plan = plan_groups(&wanted(&config.resctrl, &members), &resctrl.groups, &resctrl.info);
    let foreign = resctrl.groups.controls.keys().filter(|name| !is_own_group(name)).count();
    for class in &plan.budget.without_group {
        gathered.problems.push(format!(
            "resctrl: class `{class}` gets no group, because the processor has {} CLOSIDs, of which the root has one and others have {foreign}; \
             its containers stay in the root's group",
            resctrl.info.closids
        ));
    }
    gathered.settings.extend(schemata_settings(&resolved.classes, &plan.budget));
    gathered.groups.assignments = assignments(kernel, &members, &plan, &mut gathered.problems);
    gathered.groups.plan = plan;
}

/// All of our groups go.
pub(super) fn without_groups(kernel: &mut dyn Kernel) -> GroupPlan {
    let names = kernel.list(RESCTRL).unwrap_or_default();
    if !names.iter().any(|name| is_own_group(name)) {
        return GroupPlan::default();
    }
    match read_resctrl(kernel) {
        Ok(ResctrlState::Mounted(resctrl)) => {
            plan_groups(&WantedGroups::default(), &resctrl.groups, &resctrl.info)
        }
        _ => GroupPlan::default(),
    }
}

fn mounted(kernel: &mut dyn Kernel, gathered: &mut Gathered) -> Option<Resctrl> {
    let problem = match read_resctrl(kernel) {
        Ok(ResctrlState::Mounted(resctrl)) => {
            gathered.problems.extend(resctrl.odd.iter().cloned());
            return Some(*resctrl);
        }
        Ok(ResctrlState::NotMounted) => {
            "resctrl: it is not mounted; mount -t resctrl resctrl /sys/fs/resctrl".to_owned()
        }
        Ok(ResctrlState::Absent) => {
            "resctrl: this processor or kernel has none; classes do nothing".to_owned()
        }
        Err(errno) => format!("resctrl: /{RESCTRL} cannot be read: {}", errno.desc()),
    };
    gathered.problems.push(problem);
    None
}

/// The class that a container is in; that of the root where there is none.
fn class_of(
    occupant: &Occupant,
    classes: &BTreeMap<&str, &ResctrlClass>,
    problems: &mut Vec<String>,
) -> ClassName {
    let asked = match occupant.spec.pod.annotations.is_empty() {
        true => None,
        false => read_annotations(&occupant.spec, &RequestRules::default()).0.tuning.resctrl_class,
    };
    if let Some(name) = asked {
        let parsed: Option<ClassName> = name.parse().ok();
        match parsed.as_ref().and_then(|it| classes.get(it.as_str())) {
            Some(class) if !class.refuses.pod_annotations => return class.name.clone(),
            Some(_) => problems.push(format!(
                "resctrl: {} asks for class `{name}`, which pods cannot ask for (kubernetes.denyPodAnnotation)",
                occupant.name
            )),
            // Everybody may be in the root's.
            None if parsed.as_ref().is_some_and(ClassName::is_root) => return ClassName::root(),
            None => {
                let known: Vec<&str> = classes.keys().copied().collect();
                problems.push(format!(
                    "resctrl: {} asks for class `{name}`, which the configuration lacks; it has {}",
                    occupant.name,
                    known.join(", ")
                ));
            }
        }
    }
    let qos = occupant.spec.pod.qos.map(|qos| qos.to_string());
    let named = qos.and_then(|qos| {
        classes.get(qos.as_str()).or_else(|| {
            classes.iter().find(|(name, _)| name.eq_ignore_ascii_case(&qos)).map(|(_, class)| class)
        })
    });
    named.map_or_else(ClassName::root, |class| class.name.clone())
}

/// All classes; those that somebody is in come first.
fn wanted(config: &ResctrlConfig, members: &[(&Occupant, ClassName)]) -> WantedGroups {
    let used: BTreeSet<&ClassName> = members.iter().map(|(_, class)| class).collect();
    let mut classes: Vec<ClassName> =
        config.classes().map(|(_, class)| class.name.clone()).collect();
    classes.sort_by(|a, b| used.contains(b).cmp(&used.contains(a)).then(a.cmp(b)));
    WantedGroups { classes, monitored: Vec::new() }
}

fn assignments(
    kernel: &mut dyn Kernel,
    members: &[(&Occupant, ClassName)],
    plan: &GroupPlan,
    problems: &mut Vec<String>,
) -> Vec<Assignment> {
    if kernel.read("sys/fs/cgroup/cgroup.controllers").is_err() {
        problems.push(
            "resctrl: cgroups are of version 1, in which threads of containers are not looked for"
                .to_owned(),
        );
        return Vec::new();
    }
    let groups = plan.budget.with_group.iter().filter(|class| !class.is_root());
    let ours: Vec<String> = groups.map(control_dir).collect();
    let mut assignments = Vec::new();
    for (occupant, class) in members {
        let Occupant { name, runtime_id, spec, .. } = *occupant;
        let has_group = !class.is_root() && plan.budget.with_group.contains(class);
        if !has_group && ours.is_empty() {
            continue;
        }
        match find_container_cgroup(kernel, &spec.pod.cgroup_parent, runtime_id, None) {
            Ok(Some(ContainerCgroup { dirs, .. })) => {
                let control = if has_group { control_dir(class) } else { RESCTRL.to_owned() };
                let out_of = (!has_group).then(|| ours.clone());
                let own = dirs.into_iter().next();
                assignments.extend(own.map(|cgroup| {
                    let unit = name.clone();
                    Assignment { unit, cgroup, control, monitor: None, out_of }
                }));
            }
            // Before the start there is none, with some runtimes; the start wakes the enforcer.
            Ok(None) => {}
            Err(error) => {
                problems.push(format!("the cgroup of {name}: {:#}", anyhow::Error::new(error)));
            }
        }
    }
    assignments
}

#[cfg(test)]
mod tests;
