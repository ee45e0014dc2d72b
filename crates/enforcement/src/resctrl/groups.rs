//! Which groups are made and removed. In: classes and containers that want groups, and the groups that are there. Out: directories in order, and who
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
    /// Classes, who should get a CLOSID first comes first.
    pub classes: Vec<ClassName>,
    /// Ids of containers and their classes, who should get an RMID first comes first.
    pub monitored: Vec<(String, ClassName)>,
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

/// What has to be done about groups, and who goes without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPlan {
    /// In order.
    pub changes: Vec<GroupChange>,
    /// Classes with and without a control group.
    pub budget: GroupBudget,
    /// Containers for which no RMID is left.
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

/// The class that the control group of this name is for; `None`: Bayplan has not made it.
pub fn class_of_group(name: &str) -> Option<&str> {
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
    let monitors = monitors_within(wanted, observed, info, &mut plan);
    for (name, inner) in &observed.controls {
        let dir = format!("{RESCTRL}/{name}");
        if is_own_group(name) && !kept.contains(&dir) {
            plan.changes.push(removed(dir, "no class has this name"));
        } else {
            plan.remove_monitors(&dir, inner, &monitors);
        }
    }
    plan.remove_monitors(RESCTRL, &observed.root, &monitors);
    for class in plan.budget.with_group.clone() {
        let dir = control_dir(&class);
        let is_there = |name: &String| dir == format!("{RESCTRL}/{name}");
        if !class.is_root() && !observed.controls.keys().any(is_there) {
            plan.changes.push(made(dir, format!("class \"{class}\"")));
        }
    }
    let there = monitors_of(observed);
    for (dir, container) in &monitors {
        if !there.contains(dir) {
            plan.changes.push(made(dir.clone(), format!("container {container}")));
        }
    }
    plan
}

impl GroupPlan {
    fn remove_monitors(
        &mut self,
        dir: &str,
        names: &BTreeSet<String>,
        kept: &BTreeMap<String, String>,
    ) {
        let dirs = names.iter().filter(|name| is_own_group(name));
        let dirs = dirs.map(|name| format!("{dir}/mon_groups/{name}"));
        let gone = dirs.filter(|dir| !kept.contains_key(dir));
        self.changes.extend(gone.map(|dir| removed(dir, "its container is not in this class")));
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

/// Directories of the monitor groups that are wanted, with their containers, as far as there are RMIDs.
fn monitors_within(
    wanted: &WantedGroups,
    observed: &ObservedGroups,
    info: &ResctrlInfo,
    plan: &mut GroupPlan,
) -> BTreeMap<String, String> {
    let rmids = info.monitor.as_ref().map_or(0, |monitor| monitor.rmids);
    let foreign_controls = observed.controls.iter().filter(|(name, _)| !is_own_group(name));
    // A foreign control group has an RMID with each of its monitor groups; in ours, others may have made monitor groups.
    let mut used: usize = foreign_controls.map(|(_, monitors)| 1 + monitors.len()).sum();
    let own = observed.controls.iter().filter(|(name, _)| is_own_group(name));
    let inner = own.flat_map(|(_, monitors)| monitors).chain(&observed.root);
    used += inner.filter(|name| !is_own_group(name)).count();
    used += plan.budget.with_group.iter().filter(|class| !class.is_root()).count() + 1;
    let mut left = usize::try_from(rmids).unwrap_or(usize::MAX).saturating_sub(used);
    let mut monitors = BTreeMap::new();
    for (container, class) in &wanted.monitored {
        let has_group = class.is_root() || plan.budget.with_group.contains(class);
        let class = if has_group { class.clone() } else { ClassName::root() };
        if left == 0 {
            plan.unmonitored.push(container.clone());
        } else if monitors.insert(monitor_dir(&class, container), container.clone()).is_none() {
            left -= 1;
        }
    }
    monitors
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

    /// `web/c1 batch`: classes, and containers in them.
    fn wanted(text: &str) -> WantedGroups {
        let mut wanted = WantedGroups::default();
        for word in text.split_whitespace() {
            let mut parts = word.split('/');
            let class: ClassName = parts.next().unwrap().parse().unwrap();
            wanted.monitored.extend(parts.map(|it| (it.to_owned(), class.clone())));
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
                remove bayplan.web/mon_groups/bayplan.c3 (its container is not in this class)
                remove mon_groups/bayplan.c8 (its container is not in this class)
                make bayplan.batch (class "batch")
                make bayplan.web/mon_groups/bayplan.c2 (container c2)
                make mon_groups/bayplan.c3 (container c3)
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
    fn who_finds_no_id_left_goes_without() {
        check(
            "a/c1 b/c2 c/c3",
            "other",
            &info(4, 8),
            expect![[r#"
                make bayplan.a (class "a")
                make bayplan.b (class "b")
                make bayplan.a/mon_groups/bayplan.c1 (container c1)
                make bayplan.b/mon_groups/bayplan.c2 (container c2)
                make mon_groups/bayplan.c3 (container c3)
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
                make bayplan.a/mon_groups/bayplan.c1 (container c1)
                no monitoring of c2
                no monitoring of c3
            "#]],
        );
        check(
            "a/c1",
            "",
            &ResctrlInfo::default(),
            expect![[r#"
                no group for a
                no monitoring of c1
            "#]],
        );
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
        fn a_plan_is_enough_and_touches_nobody_else(
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
                        if !wanted.monitored.iter().any(|(it, _)| *it == container.to_string()) {
                            wanted.monitored.push((container.to_string(), class.clone()));
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
