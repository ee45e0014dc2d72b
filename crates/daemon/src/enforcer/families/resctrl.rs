//! What is wanted of resctrl. In: classes of the configuration, which container is where and which class it asks for, what the machine offers. Out:
//! groups with their schemata, and which container's threads belong into which.
//!
//! Where the processor monitors, each container has a monitor group in the group that it is in, whether there are classes or not. None is promised,
//! so what keeps a machine without classes from having them is not told, but for too few RMIDs.
//!
//! A container that names no class is in the one that is named like its QoS class, and if there is none in no class of ours: then it leaves our
//! groups, and stays where another program has put it. Classes that containers are in are the first to get a group.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bayplan_enforcement::resctrl::{
    ClassName, ClassesHere, GroupPlan, MonitorInfo, MonitoredContainer, ObservedGroups, RESCTRL,
    ResctrlClass, ResctrlConfig, ResctrlInfo, ResolvedClasses, Scarce, WantedGroups, control_dir,
    groups_of_others, is_own_group, plan_groups, resolve, schemata_settings,
};
use bayplan_host::kernel::Kernel;
use bayplan_host::{
    Assignment, ContainerCgroup, Resctrl, ResctrlState, find_container_cgroup, has_cgroup_v2,
    read_resctrl,
};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_node::turned::{Turn, Turned};
use bayplan_rebalance::Knob;

use super::family::{Context, Family};
use super::gathered::{Gathered, TurnedSlots};
use crate::config::Config;

/// Groups, schemata and threads of all classes, and which containers are monitored; where neither is wanted, our groups go.
#[derive(Debug)]
pub(super) struct ResctrlClasses;

impl Family for ResctrlClasses {
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered) {
        let Context { kernel, config, occupancy, .. } = context;
        gather_resctrl(&mut **kernel, config, occupancy, gathered);
    }
}

fn gather_resctrl(
    kernel: &mut dyn Kernel,
    config: &Config,
    occupancy: &Occupancy,
    gathered: &mut Gathered,
) {
    let has_classes = !config.resctrl.partitions.is_empty();
    // Until there is a class.
    for (number, _) in turned_classes(&occupancy.turned) {
        gathered.turned.insert(number, Err("no class of resctrl can be used here".to_owned()));
    }
    if !has_classes && !config.monitors_caches {
        gathered.groups.plan = without_groups(kernel);
        return;
    }
    let resctrl = match mounted(kernel) {
        Ok(resctrl) => resctrl,
        Err(problem) => {
            gathered.problems.extend(has_classes.then_some(problem));
            gathered.kept_below.extend(has_classes.then_some(RESCTRL));
            return;
        }
    };
    gathered.problems.extend(resctrl.odd.iter().cloned());
    let resolved = match resolve(&config.resctrl, &resctrl.info) {
        Ok(resolved) => resolved,
        // What is there stays as it is: to take everything away would hurt more than a class that is not quite right.
        Err(problems) => {
            gathered.problems.extend(problems.iter().map(|it| format!("resctrl: {it}")));
            gathered.kept_below.extend(has_classes.then_some(RESCTRL));
            return;
        }
    };
    gathered.problems.extend(resolved.notes.iter().map(|it| format!("resctrl: {it}")));
    let classes: BTreeMap<&str, &ResctrlClass> =
        config.resctrl.classes().map(|(_, class)| (class.name.as_str(), class)).collect();
    let members = occupancy.occupants.iter();
    let mut members: Vec<Member<'_>> =
        members.map(|it| (it, class_of(it, &classes, &mut gathered.problems))).collect();
    let here = ClassesHere { config: &config.resctrl, resolved: &resolved, info: &resctrl.info };
    turn_classes(&here, &occupancy.turned, &mut members, &mut gathered.turned);
    let finds_threads = has_cgroup_v2(kernel);
    if has_classes && !finds_threads {
        gathered.problems.push(
            "resctrl: cgroups are of version 1, in which threads of containers are not looked for"
                .to_owned(),
        );
    }
    let mut wanted = wanted(&config.resctrl, &members);
    if let Some(monitor) = &resctrl.info.monitor
        && config.monitors_caches
        && finds_threads
    {
        wanted.monitored = monitored(&members);
        let most = affordable(kernel, monitor);
        if wanted.monitored.len() > most {
            wanted.monitored.truncate(most);
            gathered.problems.push(format!(
                "resctrl: {most} containers are monitored and no more, because each cache has to be asked for each, and {READS_MAX} values are the most at a look; \
                 exclusive containers come first (resctrl.monitor)"
            ));
        }
    }
    let plan = plan_groups(&wanted, &resctrl.groups, &resctrl.info);
    gathered.problems.extend(lacks(&plan, &resctrl));
    gathered.settings.extend(schemata_settings(&resolved.classes, &plan.budget));
    if finds_threads {
        gathered.groups.assignments =
            assignments(kernel, &members, &plan, &resctrl.groups, gathered);
    }
    settle_turned(&occupancy.turned, &members, &plan, gathered);
    gathered.groups.plan = plan;
    gathered.groups.sweep_interval = config.sweep_interval;
}

/// So many values of containers are read at a look at most. For each of them the kernel lets a CPU of that cache work for some microseconds, and that
/// may be one with an owner.
const READS_MAX: usize = 1500;

/// How many containers can be monitored without more reads.
fn affordable(kernel: &mut dyn Kernel, monitor: &MonitorInfo) -> usize {
    let dirs = kernel.list(&format!("{RESCTRL}/mon_data")).unwrap_or_default();
    let caches = dirs.iter().filter(|it| it.starts_with("mon_L3_")).count();
    READS_MAX / (caches * monitor.features.len()).max(1)
}

/// Knobs that are a class, and what the culprit has less of in it.
pub(crate) const SCARCE: [(Knob, Scarce); 2] =
    [(Knob::Cache, Scarce::Cache), (Knob::Bandwidth, Scarce::Bandwidth)];

/// A container and its class.
type Member<'a> = (&'a Occupant, ClassName);

/// The first to get an RMID comes first: exclusive containers, then by QoS class, then the oldest, so that none loses its RMID to one of its kind.
fn monitored(members: &[Member<'_>]) -> Vec<MonitoredContainer> {
    let mut members: Vec<&Member<'_>> = members.iter().collect();
    members.sort_by_key(|(it, _)| (it.exclusive.is_empty(), Reverse(it.spec.pod.qos), it.id));
    let monitored = members.into_iter().map(|(it, class)| MonitoredContainer {
        id: it.runtime_id.clone(),
        unit: it.name.clone(),
        class: class.clone(),
    });
    monitored.collect()
}

/// So many of the containers that lack something are named.
const NAMES_MAX: usize = 4;

/// Classes for which the processor has too few numbers, a sentence each, and one for all containers.
fn lacks(plan: &GroupPlan, resctrl: &Resctrl) -> Vec<String> {
    let foreign = resctrl.groups.controls.keys().filter(|name| !is_own_group(name)).count();
    let classes = plan.budget.without_group.iter().map(|class| format!(
        "resctrl: class `{class}` gets no group, because the processor has {} CLOSIDs, of which the root has one and others have {foreign}; \
         its containers stay in the root's group",
        resctrl.info.closids
    ));
    let rmids = resctrl.info.monitor.as_ref().map_or(0, |it| it.rmids);
    let names: Vec<&str> = plan.unmonitored.iter().take(NAMES_MAX).map(String::as_str).collect();
    let more = match plan.unmonitored.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let containers = (!names.is_empty()).then(|| format!(
        "resctrl: not monitored, because the processor has {rmids} RMIDs, which classes, others and more important containers have: {}{more}",
        names.join(", ")
    ));
    classes.chain(containers).collect()
}

/// Of what the rebalancer has turned, what is a class.
fn turned_classes(turned: &Turned) -> impl Iterator<Item = (u64, &Turn)> {
    turned.iter().filter(|(_, it)| it.is_class())
}

/// Puts culprits into narrower classes: after one step into the next, and so on. Threads are in one class only, so of two knobs the one that was turned first counts:
/// the class of the other would not be narrower than that, but instead of it.
fn turn_classes(
    here: &ClassesHere<'_>,
    turned: &Turned,
    members: &mut [Member<'_>],
    slots: &mut TurnedSlots,
) {
    for (occupant, class) in members {
        let mine = || turned_classes(turned).filter(|(_, it)| it.target == occupant.id);
        let first = mine().next().map(|(_, it)| it.knob);
        let Some((knob, scarce)) = SCARCE.into_iter().find(|(knob, _)| Some(*knob) == first) else {
            continue;
        };
        let step = usize::try_from(turned.step(knob, occupant.id)).unwrap_or(usize::MAX);
        let classes = here.narrower(class, occupant.spec.pod.qos, scarce);
        let found = classes.get(step.saturating_sub(1)).or(classes.last());
        let end = found.map(|_| Vec::new());
        let end = end.ok_or_else(|| format!("no class of resctrl has less than `{class}`"));
        slots.extend(mine().map(|(number, it)| match it.knob == knob {
            true => (number, end.clone()),
            false => (number, Err(format!("it is in another class by {} already", knob.name()))),
        }));
        if let Some(found) = found {
            *class = (*found).clone();
        }
    }
}

/// A class is there for a container once its group has the schemata and is to have its threads. A container of a class that has got no group is where
/// it was.
fn settle_turned(
    turned: &Turned,
    members: &[Member<'_>],
    plan: &GroupPlan,
    gathered: &mut Gathered,
) {
    for (number, turn) in turned_classes(turned) {
        let Some((it, class)) = members.iter().find(|(it, _)| it.id == turn.target) else {
            continue;
        };
        gathered.turned_threads.insert(number, it.name.clone());
        if !gathered.turned.get(&number).is_some_and(Result::is_ok) {
            continue;
        }
        let schemata = format!("{}/schemata", control_dir(class));
        let slots = gathered.settings.keys().filter(|slot| slot.path == schemata);
        let end = if plan.budget.without_group.contains(class) {
            Err(format!("class `{class}` of resctrl has no group"))
        } else if !gathered.groups.assignments.iter().any(|assigned| assigned.unit == it.name) {
            Err("its cgroup was not found, so its threads are where they were".to_owned())
        } else {
            Ok(slots.cloned().collect())
        };
        gathered.turned.insert(number, end);
    }
}

/// All of our groups go.
pub(super) fn without_groups(kernel: &mut dyn Kernel) -> GroupPlan {
    let dirs = [RESCTRL.to_owned(), format!("{RESCTRL}/mon_groups")];
    let mut names = dirs.iter().flat_map(|dir| kernel.list(dir).unwrap_or_default());
    if !names.any(|name| is_own_group(&name)) {
        return GroupPlan::default();
    }
    match read_resctrl(kernel) {
        Ok(ResctrlState::Mounted(resctrl)) => {
            plan_groups(&WantedGroups::default(), &resctrl.groups, &resctrl.info)
        }
        _ => GroupPlan::default(),
    }
}

/// Or why it cannot be used.
fn mounted(kernel: &mut dyn Kernel) -> Result<Resctrl, String> {
    match read_resctrl(kernel) {
        Ok(ResctrlState::Mounted(resctrl)) => Ok(*resctrl),
        Ok(ResctrlState::NotMounted) => {
            Err("resctrl: it is not mounted; mount -t resctrl resctrl /sys/fs/resctrl".to_owned())
        }
        Ok(ResctrlState::Absent) => {
            Err("resctrl: this processor or kernel has none; classes do nothing".to_owned())
        }
        Err(errno) => Err(format!("resctrl: /{RESCTRL} cannot be read: {}", errno.desc())),
    }
}

/// What of the classes of a configuration does nothing on this machine, or keeps all of them from being used.
pub(crate) fn check_classes(kernel: &mut dyn Kernel, config: &ResctrlConfig) -> Vec<String> {
    if config.partitions.is_empty() {
        return Vec::new();
    }
    let problems = match mounted(kernel) {
        Ok(resctrl) => match resolve(config, &resctrl.info) {
            Ok(resolved) => resolved.notes,
            Err(problems) => problems,
        },
        Err(problem) => return vec![problem],
    };
    problems.iter().map(|it| format!("resctrl: {it}")).collect()
}

/// Classes of a configuration on this machine; `None` where there are none or they cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassesKnown {
    config: ResctrlConfig,
    resolved: ResolvedClasses,
    info: ResctrlInfo,
}

impl ClassesKnown {
    /// Reads what the machine offers.
    pub(crate) fn read(kernel: &mut dyn Kernel, config: &ResctrlConfig) -> Option<ClassesKnown> {
        if config.partitions.is_empty() || !has_cgroup_v2(kernel) {
            return None;
        }
        let info = mounted(kernel).ok()?.info;
        let resolved = resolve(config, &info).ok()?;
        Some(ClassesKnown { config: config.clone(), resolved, info })
    }

    /// Whether they are those of this configuration.
    pub(crate) fn are_of(&self, config: &ResctrlConfig) -> bool {
        self.config == *config
    }

    /// How many classes have less for a container than its own.
    pub(crate) fn narrower(&self, occupant: &Occupant, scarce: Scarce) -> usize {
        let ClassesKnown { config, resolved, info } = self;
        let classes = config.classes().map(|(_, class)| (class.name.as_str(), class)).collect();
        let class = class_of(occupant, &classes, &mut Vec::new());
        let here = ClassesHere { config, resolved, info };
        here.narrower(&class, occupant.spec.pod.qos, scarce).len()
    }
}

/// The class that a container is in; that of the root where there is none.
fn class_of(
    occupant: &Occupant,
    classes: &BTreeMap<&str, &ResctrlClass>,
    problems: &mut Vec<String>,
) -> ClassName {
    if classes.is_empty() {
        return ClassName::root();
    }
    if let Some(name) = &occupant.tuning.resctrl_class {
        let parsed: Option<ClassName> = name.parse().ok();
        match parsed.as_ref().and_then(|it| classes.get(it.as_str())) {
            Some(class) if !class.refuses.pod_annotations => return class.name.clone(),
            Some(_) => problems.push(format!(
                "resctrl: {} asks for class `{name}`, which pods cannot ask for (kubernetes.denyPodAnnotation)",
                occupant.name
            )),
            // Any container may be in the root's.
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

/// All classes; those that containers are in come first.
fn wanted(config: &ResctrlConfig, members: &[Member<'_>]) -> WantedGroups {
    let used: BTreeSet<&ClassName> = members.iter().map(|(_, class)| class).collect();
    let mut classes: Vec<ClassName> =
        config.classes().map(|(_, class)| class.name.clone()).collect();
    classes.sort_by(|a, b| used.contains(b).cmp(&used.contains(a)).then(a.cmp(b)));
    WantedGroups { classes, monitored: Vec::new() }
}

fn assignments(
    kernel: &mut dyn Kernel,
    members: &[Member<'_>],
    plan: &GroupPlan,
    observed: &ObservedGroups,
    gathered: &mut Gathered,
) -> Vec<Assignment> {
    let groups = plan.budget.with_group.iter().filter(|class| !class.is_root());
    let ours: Vec<String> = groups.map(control_dir).collect();
    let mut assignments = Vec::new();
    for (occupant, class) in members {
        let Occupant { spec, name, runtime_id, .. } = *occupant;
        let has_group = !class.is_root() && plan.budget.with_group.contains(class);
        let monitor = plan.monitors.get(runtime_id).cloned();
        if !has_group && ours.is_empty() && monitor.is_none() {
            continue;
        }
        let found = match gathered.cgroups.get(runtime_id) {
            Some(group) => Ok(Some(group.clone())),
            None if has_group => gathered.arrivals.find_group(kernel, occupant),
            // A container that is only monitored, or is to leave, is not promised anything before the start.
            None => find_container_cgroup(kernel, &spec.pod.cgroup_parent, runtime_id, None),
        };
        match found {
            Ok(Some(ContainerCgroup { dirs, .. })) => {
                let class = if has_group { class.clone() } else { ClassName::root() };
                let others = match monitor {
                    Some(_) => groups_of_others(observed, &class),
                    None => Vec::new(),
                };
                let (unit, control) = (name.clone(), control_dir(&class));
                let out_of = (!has_group).then(|| ours.clone());
                assignments.extend(dirs.into_iter().next().map(|cgroup| Assignment {
                    unit,
                    cgroup,
                    control,
                    monitor,
                    out_of,
                    others,
                }));
            }
            // Before the start there is none, with some runtimes; that it comes wakes the enforcer.
            Ok(None) => {}
            Err(error) => {
                let error = anyhow::Error::new(error);
                gathered.problems.push(format!("the cgroup of {name}: {error:#}"));
            }
        }
    }
    assignments
}

#[cfg(test)]
mod tests;
