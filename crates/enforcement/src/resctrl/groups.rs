//! Which groups are made and removed. In: classes and containers that want groups, and the groups that are there. Out: directories in order, and what
//! goes without (`Documentation/filesystems/resctrl.rst`, "Resource alloc and monitor groups").
//!
//! A *control group* is a class; a *monitor group* in it is one container. Both are known by the prefix of their names, so nothing has to be remembered to take
//! them away again, and groups of others are never touched. They cost what the processor has few of: a control group a CLOSID and an
//! RMID, a monitor group an RMID. So what goes is removed before what comes is made; classes come before containers.

use std::collections::{BTreeMap, BTreeSet};

use crate::setting::{Form, Setting, Settings, Slot};

use super::budget::{GroupBudget, fit_groups};
use super::config::ClassName;
use super::info::ResctrlInfo;
use super::resolve::ResolvedClass;

/// Where resctrl is mounted, below the root.
pub const RESCTRL: &str = "sys/fs/resctrl";

/// What names of our groups begin with.
const PREFIX: &str = "bayplan.";

/// The groups that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedGroups {
    /// Names of control groups without the root, each with those of the monitor groups in it.
    pub controls: BTreeMap<String, BTreeSet<String>>,
    /// Names of the monitor groups in the root.
    pub root: BTreeSet<String>,
}

/// The groups that should be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedGroups {
    /// Classes, the first to get a CLOSID first.
    pub classes: Vec<ClassName>,
    /// Containers, the first to get an RMID first.
    pub monitored: Vec<MonitoredContainer>,
}

/// A container that should have a monitor group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitoredContainer {
    /// Its id, which names the group.
    pub id: String,
    /// Its full name, for reasons.
    pub unit: String,
    /// Its class: the monitor group is in the group of that, or in the root's where that has none.
    pub class: ClassName,
}

/// One directory that is made or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupChange {
    /// Below the root: `sys/fs/resctrl/bayplan.web`.
    pub path: String,
    /// Made, or else removed.
    pub is_made: bool,
    /// Why.
    pub reason: String,
}

/// What has to be done about groups, and what goes without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPlan {
    /// In order.
    pub changes: Vec<GroupChange>,
    /// Classes with and without a control group.
    pub budget: GroupBudget,
    /// Directories of monitor groups that there should be, by the ids of their containers.
    pub monitors: BTreeMap<String, String>,
    /// Full names of containers for which no RMID is left.
    pub unmonitored: Vec<String>,
}

/// The directory of a class's group.
pub fn control_dir(class: &ClassName) -> String {
    match class.is_root() {
        true => RESCTRL.to_owned(),
        false => format!("{RESCTRL}/{PREFIX}{class}"),
    }
}

/// The directory in which a container of a class is monitored.
pub fn monitor_dir(class: &ClassName, container: &str) -> String {
    format!("{}/mon_groups/{PREFIX}{container}", control_dir(class))
}

/// What the group of this name is for: a class, or among monitor groups a container; `None`: Bayplan has not made it.
pub fn owner_of_group(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

/// Whether the group of this name was made by Bayplan.
pub fn is_own_group(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// From the groups that are there to those that should be.
pub fn plan_groups(
    wanted: &WantedGroups,
    observed: &ObservedGroups,
    info: &ResctrlInfo,
) -> GroupPlan {
    let foreign = observed.controls.keys().filter(|name| !is_own_group(name)).count();
    let mut plan = GroupPlan {
        budget: fit_groups(&wanted.classes, info.closids, foreign),
        ..GroupPlan::default()
    };
    let kept: BTreeSet<String> = plan.budget.with_group.iter().map(control_dir).collect();
    plan.choose_monitors(wanted, observed, info);
    for (name, inner) in &observed.controls {
        let dir = format!("{RESCTRL}/{name}");
        if is_own_group(name) && !kept.contains(&dir) {
            plan.changes.push(removed(dir, "no class has this name"));
        } else {
            plan.remove_monitors(&dir, inner);
        }
    }
    plan.remove_monitors(RESCTRL, &observed.root);
    for class in plan.budget.with_group.clone() {
        let dir = control_dir(&class);
        let is_there = |name: &String| dir == format!("{RESCTRL}/{name}");
        if !class.is_root() && !observed.controls.keys().any(is_there) {
            plan.changes.push(made(dir, format!("class \"{class}\"")));
        }
    }
    let there = monitors_of(observed);
    for container in &wanted.monitored {
        let dir = plan.monitors.get(&container.id).filter(|dir| !there.contains(*dir));
        plan.changes.extend(dir.map(|dir| made(dir.clone(), container.unit.clone())));
    }
    plan
}

/// Groups of others that have threads of a container in this class, as far as they know: in the root's group these are control groups of others, and
/// everywhere monitor groups of others in the same control group. Directories.
pub fn groups_of_others(observed: &ObservedGroups, class: &ClassName) -> Vec<String> {
    let control = control_dir(class);
    let inner = match class.is_root() {
        true => Some(&observed.root),
        false => control.rsplit('/').next().and_then(|name| observed.controls.get(name)),
    };
    let monitors = inner.into_iter().flatten().filter(|name| !is_own_group(name));
    let monitors = monitors.map(|name| format!("{control}/mon_groups/{name}"));
    let controls = observed.controls.keys().filter(|name| class.is_root() && !is_own_group(name));
    controls.map(|name| format!("{RESCTRL}/{name}")).chain(monitors).collect()
}

impl GroupPlan {
    fn remove_monitors(&mut self, dir: &str, names: &BTreeSet<String>) {
        for name in names.iter().filter(|name| is_own_group(name)) {
            let path = format!("{dir}/mon_groups/{name}");
            let kept = owner_of_group(name).and_then(|container| self.monitors.get(container));
            if kept != Some(&path) {
                self.changes.push(removed(path, "no container is monitored here"));
            }
        }
    }

    /// As far as there are RMIDs.
    fn choose_monitors(
        &mut self,
        wanted: &WantedGroups,
        observed: &ObservedGroups,
        info: &ResctrlInfo,
    ) {
        let mut left = self.rmids_left(observed, info);
        for MonitoredContainer { id, unit, class } in &wanted.monitored {
            let has_group = class.is_root() || self.budget.with_group.contains(class);
            let class = if has_group { class.clone() } else { ClassName::root() };
            if left == 0 {
                self.unmonitored.push(unit.clone());
            } else if self.monitors.insert(id.clone(), monitor_dir(&class, id)).is_none() {
                left -= 1;
            }
        }
    }

    /// RMIDs that no control group has or may come to need, and no other group.
    fn rmids_left(&self, observed: &ObservedGroups, info: &ResctrlInfo) -> usize {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let rmids = info.monitor.as_ref().map_or(0, |monitor| count(monitor.rmids));
        let (own, foreign): (Vec<_>, Vec<_>) =
            observed.controls.iter().partition(|(name, _)| is_own_group(name));
        let classes = self.budget.with_group.iter().filter(|class| !class.is_root()).count();
        // Each has an RMID, the root, too.
        let controls = (1 + classes + foreign.len()).max(count(info.closids));
        // In our groups and in the root's, others may have made monitor groups.
        let ours = own.into_iter().flat_map(|(_, monitors)| monitors).chain(&observed.root);
        let ours = ours.filter(|name| !is_own_group(name)).count();
        let theirs: usize = foreign.into_iter().map(|(_, monitors)| monitors.len()).sum();
        rmids.saturating_sub(controls + ours + theirs)
    }
}

fn made(path: String, reason: String) -> GroupChange {
    GroupChange { path, is_made: true, reason }
}

fn removed(path: String, reason: &str) -> GroupChange {
    GroupChange { path, is_made: false, reason: reason.to_owned() }
}

/// Directories of all monitor groups that are there.
fn monitors_of(observed: &ObservedGroups) -> BTreeSet<String> {
    let root = observed.root.iter().map(|name| format!("{RESCTRL}/mon_groups/{name}"));
    let inner = observed.controls.iter().flat_map(|(control, names)| {
        names.iter().map(move |name| format!("{RESCTRL}/{control}/mon_groups/{name}"))
    });
    root.chain(inner).collect()
}

/// What the `schemata` of every class's group should say.
pub fn schemata_settings(classes: &[ResolvedClass], budget: &GroupBudget) -> Settings {
    let with_group = classes.iter().filter(|it| budget.with_group.contains(&it.name));
    let settings = with_group.flat_map(|class| {
        class.schemata.iter().map(|(line, value)| {
            let slot = Slot::line(format!("{}/schemata", control_dir(&class.name)), *line);
            let (form, value) = (Form::Schemata, value.to_string());
            let unit = format!("class \"{}\"", class.name);
            let reason = "resctrl.partitions".to_owned();
            (slot, Setting { form, value, unit, reason })
        })
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::super::info::MonitorInfo;
    use super::*;

    fn info(closids: u32, rmids: u32) -> ResctrlInfo {
        let monitor = Some(MonitorInfo { rmids, features: Vec::new() });
        ResctrlInfo { closids, monitor, ..ResctrlInfo::default() }
    }

    fn container(id: &str, class: &ClassName) -> MonitoredContainer {
        let (unit, id) = (format!("ns/{id}"), id.to_owned());
        MonitoredContainer { id, unit, class: class.clone() }
    }

    /// `web/c1 batch`: classes, and containers in them.
    fn wanted(text: &str) -> WantedGroups {
        let mut wanted = WantedGroups::default();
        for word in text.split_whitespace() {
            let mut parts = word.split('/');
            let class: ClassName = parts.next().unwrap().parse().unwrap();
            wanted.monitored.extend(parts.map(|id| container(id, &class)));
            wanted.classes.push(class);
        }
        wanted
    }

    /// `bayplan.web/bayplan.c1 other`: groups, and monitor groups in them; `.` is the root.
    fn observed(text: &str) -> ObservedGroups {
        let mut observed = ObservedGroups::default();
        for word in text.split_whitespace() {
            let mut parts = word.split('/');
            let control = parts.next().unwrap();
            let monitors = parts.map(str::to_owned);
            match control {
                "." => observed.root.extend(monitors),
                _ => observed.controls.entry(control.to_owned()).or_default().extend(monitors),
            }
        }
        observed
    }

    fn render(plan: &GroupPlan) -> String {
        let changes = plan.changes.iter().map(|it| {
            let verb = if it.is_made { "make" } else { "remove" };
            format!("{verb} {} ({})\n", it.path.trim_start_matches("sys/fs/resctrl/"), it.reason)
        });
        let left = plan.budget.without_group.iter().map(|it| format!("no group for {it}\n"));
        let unseen = plan.unmonitored.iter().map(|it| format!("no monitoring of {it}\n"));
        changes.chain(left).chain(unseen).collect()
    }

    fn check(want: &str, has: &str, info: &ResctrlInfo, expected: Expect) {
        expected.assert_eq(&render(&plan_groups(&wanted(want), &observed(has), info)));
    }

    #[test]
    fn what_goes_is_removed_before_what_comes_is_made() {
        check(
            "web/c1/c2 batch DEFAULT/c3",
            "bayplan.old/bayplan.c9 bayplan.web/bayplan.c1/bayplan.c3/theirs other/x ./y/bayplan.c8",
            &info(16, 64),
            expect![[r#"
                remove bayplan.old (no class has this name)
                remove bayplan.web/mon_groups/bayplan.c3 (no container is monitored here)
                remove mon_groups/bayplan.c8 (no container is monitored here)
                make bayplan.batch (class "batch")
                make bayplan.web/mon_groups/bayplan.c2 (ns/c2)
                make mon_groups/bayplan.c3 (ns/c3)
            "#]],
        );
        check("web/c1", "bayplan.web/bayplan.c1", &info(16, 64), expect![[r#""#]]);
        check(
            "",
            "bayplan.web/bayplan.c1 other/x",
            &info(16, 64),
            expect![[r#"
                remove bayplan.web (no class has this name)
            "#]],
        );
    }

    #[test]
    fn a_group_that_finds_no_id_left_goes_without() {
        check(
            "a/c1 b/c2 c/c3",
            "other",
            &info(4, 8),
            expect![[r#"
                make bayplan.a (class "a")
                make bayplan.b (class "b")
                make bayplan.a/mon_groups/bayplan.c1 (ns/c1)
                make bayplan.b/mon_groups/bayplan.c2 (ns/c2)
                make mon_groups/bayplan.c3 (ns/c3)
                no group for c
            "#]],
        );
        check(
            "a/c1 b/c2 DEFAULT/c3",
            "other/x",
            &info(4, 6),
            expect![[r#"
                make bayplan.a (class "a")
                make bayplan.b (class "b")
                make bayplan.a/mon_groups/bayplan.c1 (ns/c1)
                no monitoring of ns/c2
                no monitoring of ns/c3
            "#]],
        );
        check(
            "a/c1",
            "",
            &ResctrlInfo::default(),
            expect![[r#"
                no group for a
                no monitoring of ns/c1
            "#]],
        );
    }

    #[test]
    fn every_control_group_that_can_still_be_made_finds_an_id() {
        check(
            "a/c1 DEFAULT/c2/c3",
            "other ./theirs",
            &info(4, 7),
            expect![[r#"
                make bayplan.a (class "a")
                make bayplan.a/mon_groups/bayplan.c1 (ns/c1)
                make mon_groups/bayplan.c2 (ns/c2)
                no monitoring of ns/c3
            "#]],
        );
    }

    #[test]
    fn groups_of_others_are_those_that_may_have_threads_of_the_class() {
        let observed = observed("bayplan.a/bayplan.c1/x other/y ./z/bayplan.c2");
        let of = |class: &str| groups_of_others(&observed, &class.parse().unwrap()).join(" ");
        assert_eq!(of("a"), "sys/fs/resctrl/bayplan.a/mon_groups/x");
        assert_eq!(of("b"), "");
        assert_eq!(of(""), "sys/fs/resctrl/other sys/fs/resctrl/mon_groups/z");
    }

    /// Carries a plan out as the kernel would.
    fn carry_out(plan: &GroupPlan, has: &mut ObservedGroups) {
        for change in &plan.changes {
            let path = change.path.strip_prefix("sys/fs/resctrl/").unwrap();
            let (control, monitor) = match path.split_once("mon_groups/") {
                Some((control, monitor)) => (control.trim_end_matches('/'), Some(monitor)),
                None => (path, None),
            };
            match (control, monitor, change.is_made) {
                (_, None, true) => drop(has.controls.insert(control.to_owned(), BTreeSet::new())),
                (_, None, false) => drop(has.controls.remove(control).unwrap()),
                (_, Some(monitor), is_made) => {
                    let names = match control {
                        "" => &mut has.root,
                        _ => has.controls.get_mut(control).unwrap(),
                    };
                    let is_changed = match is_made {
                        true => names.insert(monitor.to_owned()),
                        false => names.remove(monitor),
                    };
                    assert!(is_changed);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_plan_is_enough_and_touches_no_other_group(
            steps in prop::collection::vec(prop::collection::vec((0_u8..4, prop::collection::vec(0_u8..6, 0..3)), 0..4), 1..4),
            closids in 0_u32..6,
            rmids in 0_u32..10,
        ) {
            let foreign = observed("other/x/y pqos ./z");
            let mut has = foreign.clone();
            for step in steps.iter().chain([&Vec::new()]) {
                let mut wanted = WantedGroups::default();
                for (class, containers) in step {
                    let class: ClassName = ["", "a", "b", "c"][usize::from(*class)].parse().unwrap();
                    if !wanted.classes.contains(&class) {
                        wanted.classes.push(class.clone());
                    }
                    for container in containers {
                        let container = self::container(&container.to_string(), &class);
                        if !wanted.monitored.iter().any(|it| it.id == container.id) {
                            wanted.monitored.push(container);
                        }
                    }
                }
                let info = info(closids, rmids);
                let before = has.clone();
                let plan = plan_groups(&wanted, &has, &info);
                carry_out(&plan, &mut has);
                prop_assert!(plan_groups(&wanted, &has, &info).changes.is_empty());
                let made = plan.changes.iter().any(|it| it.is_made && !it.path.contains("mon_groups"));
                prop_assert!(!made || has.controls.len() < closids as usize);
                let ids = |it: &ObservedGroups| 1 + it.root.len() + it.controls.values().map(|it| 1 + it.len()).sum::<usize>();
                let made = plan.changes.iter().any(|it| it.is_made && it.path.contains("mon_groups"));
                prop_assert!(!made || ids(&has) <= rmids as usize, "{before:?}");
            }
            prop_assert_eq!(has, foreign);
        }
    }
}
