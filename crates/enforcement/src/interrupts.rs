//! Interrupts and the kernel's work queues, kept away from CPUs. In: the CPUs, what every interrupt is allowed now and was before. Out: settings.
//!
//! Documentation/core-api/irq/irq-affinity.rst (`smp_affinity_list`, `default_smp_affinity` for interrupts that come later) and
//! Documentation/core-api/workqueue.rst, "Affinity Scopes" (`cpumask` of unbound queues). Interrupts of a single CPU and those that the kernel manages itself (several
//! queues of a disk or network card) refuse with EIO, or EACCES where root may not do everything: they are left out from then on. irqbalance is told to leave the
//! CPUs alone beside those that it leaves alone anyway (irqbalance(1), "API").

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::CpuSet;

use crate::setting::{Form, Original, Setting, Settings, Slot};

/// What interrupts and work queues are allowed now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// CPUs that can take them.
    pub online: CpuSet,
    /// Each interrupt's CPUs by its number.
    pub affinity: BTreeMap<u32, CpuSet>,
    /// CPUs of interrupts that come later.
    pub default: Option<CpuSet>,
    /// CPUs of work queues that belong to no CPU.
    pub workqueue: Option<CpuSet>,
    /// The sockets of irqbalance, which moves interrupts about, as files below the root: which CPUs it leaves alone; `None` where it does not say. Where an
    /// interrupt is allowed by both it is right.
    pub balancers: BTreeMap<String, Option<CpuSet>>,
}

/// Files with a value that the kernel refuses to change.
pub type Unmovable = BTreeSet<Slot>;

impl Interrupts {
    /// The file of one interrupt.
    pub fn slot(irq: u32) -> Slot {
        Slot::file(format!("proc/irq/{irq}/smp_affinity_list"))
    }
}

/// The settings that keep everything off `away`, and what is wrong with that. Nothing is kept from the last CPUs that it can run on.
pub fn settings_for_interrupts(
    away: &CpuSet,
    now: &Interrupts,
    originals: &BTreeMap<Slot, Original>,
    unmovable: &Unmovable,
) -> (Settings, Vec<String>) {
    let mut settings = Settings::new();
    if away.is_empty() {
        return (settings, Vec::new());
    }
    let elsewhere = now.online.difference(away);
    if elsewhere.is_empty() {
        let problem = format!("interrupts stay on CPUs {away}: no other CPU is online");
        return (settings, vec![problem]);
    }
    let mut want = |unit: String, slot: Slot, form: Form, has: &CpuSet| {
        let before = originals.get(&slot).and_then(|it| parse(&it.form, &it.value));
        let before = before.as_ref().unwrap_or(has);
        // What was never there is not held fast.
        if unmovable.contains(&slot) || (before.is_disjoint(away) && has.is_disjoint(away)) {
            return;
        }
        let may_stay = !now.balancers.is_empty() && form == Form::Cpus;
        let cpus = match before.intersection(&elsewhere) {
            _ if may_stay && !has.is_empty() && has.is_disjoint(away) => has.clone(),
            kept if kept.is_empty() => elsewhere.clone(),
            kept => kept,
        };
        let value = if form == Form::CpuMask { cpus.render_mask() } else { cpus.to_string() };
        let reason = format!("away from CPUs {away}");
        settings.insert(slot, Setting { form, value, unit, reason });
    };
    for (irq, has) in &now.affinity {
        want(format!("irq {irq}"), Interrupts::slot(*irq), Form::Cpus, has);
    }
    for (unit, path, has) in [
        ("new interrupts", "proc/irq/default_smp_affinity", &now.default),
        ("work queues", "sys/devices/virtual/workqueue/cpumask", &now.workqueue),
    ] {
        if let Some(has) = has {
            want(unit.to_owned(), Slot::file(path), Form::CpuMask, has);
        }
    }
    let mut problems = Vec::new();
    for (socket, banned) in &now.balancers {
        let slot = Slot::file(socket.as_str());
        let before = originals.get(&slot).and_then(|it| parse(&it.form, &it.value));
        let Some(before) = before.or_else(|| banned.clone()) else {
            problems.push(format!(
                "irqbalance runs, cannot be told, and may put interrupts back on CPUs {away}: IRQBALANCE_BANNED_CPULIST={away} in its configuration \
                 keeps it from that"
            ));
            continue;
        };
        let (unit, reason) = ("irqbalance".to_owned(), format!("away from CPUs {away}"));
        let value = before.union(away).to_string();
        settings.insert(slot, Setting { form: Form::Cpus, value, unit, reason });
    }
    (settings, problems)
}

fn parse(form: &Form, text: &str) -> Option<CpuSet> {
    if *form == Form::CpuMask { CpuSet::parse_mask(text).ok() } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::file_plan::plan_files;
    use crate::setting::Observed;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn machine(affinity: &[(u32, &str)]) -> Interrupts {
        Interrupts {
            online: set("0-7"),
            affinity: affinity.iter().map(|(irq, cpus)| (*irq, set(cpus))).collect(),
            default: Some(set("0-7")),
            workqueue: Some(set("0-7")),
            balancers: BTreeMap::new(),
        }
    }

    fn check(
        away: &str,
        now: &Interrupts,
        originals: &[(u32, &str)],
        unmovable: &[u32],
        expected: Expect,
    ) {
        let original = |(irq, cpus): &(u32, &str)| {
            (Interrupts::slot(*irq), Original { form: Form::Cpus, value: (*cpus).to_owned() })
        };
        let originals = originals.iter().map(original).collect();
        let unmovable = unmovable.iter().map(|irq| Interrupts::slot(*irq)).collect();
        let (settings, problems) = settings_for_interrupts(&set(away), now, &originals, &unmovable);
        let lines =
            settings.iter().map(|(slot, it)| format!("{slot} = {}  ({})\n", it.value, it.unit));
        let problems = problems.iter().map(|it| format!("! {it}\n"));
        expected.assert_eq(&lines.chain(problems).collect::<String>());
    }

    #[test]
    fn everything_goes_elsewhere_as_far_as_it_can() {
        let now = machine(&[(0, "0-7"), (9, "2-3"), (24, "0-1"), (25, "3"), (30, "0-7")]);
        check(
            "2-3",
            &now,
            &[],
            &[30],
            expect![[r#"
                /proc/irq/0/smp_affinity_list = 0-1,4-7  (irq 0)
                /proc/irq/25/smp_affinity_list = 0-1,4-7  (irq 25)
                /proc/irq/9/smp_affinity_list = 0-1,4-7  (irq 9)
                /proc/irq/default_smp_affinity = 000000f3  (new interrupts)
                /sys/devices/virtual/workqueue/cpumask = 000000f3  (work queues)
            "#]],
        );
        check("", &now, &[(9, "2-3")], &[], expect![[r#""#]]);
        check(
            "0-7",
            &now,
            &[],
            &[],
            expect![[r#"
            ! interrupts stay on CPUs 0-7: no other CPU is online
        "#]],
        );
    }

    #[test]
    fn what_was_moved_is_measured_by_where_it_was() {
        let now = machine(&[(0, "0-1,4-7"), (9, "4"), (10, "5")]);
        let before = [(0, "0-7"), (9, "2-3"), (10, "5")];
        check(
            "2",
            &now,
            &before,
            &[],
            expect![[r#"
                /proc/irq/0/smp_affinity_list = 0-1,3-7  (irq 0)
                /proc/irq/9/smp_affinity_list = 3  (irq 9)
                /proc/irq/default_smp_affinity = 000000fb  (new interrupts)
                /sys/devices/virtual/workqueue/cpumask = 000000fb  (work queues)
            "#]],
        );
        let balancers = |banned: &[(&str, Option<&str>)]| {
            let banned = banned.iter();
            banned.map(|(name, cpus)| (format!("run/{name}.sock"), cpus.map(set))).collect()
        };
        let balanced = Interrupts { balancers: balancers(&[("a", Some("7")), ("b", None)]), ..now };
        check(
            "2",
            &balanced,
            &before,
            &[],
            expect![[r#"
                /proc/irq/0/smp_affinity_list = 0-1,4-7  (irq 0)
                /proc/irq/9/smp_affinity_list = 4  (irq 9)
                /proc/irq/default_smp_affinity = 000000fb  (new interrupts)
                /run/a.sock = 2,7  (irqbalance)
                /sys/devices/virtual/workqueue/cpumask = 000000fb  (work queues)
                ! irqbalance runs, cannot be told, and may put interrupts back on CPUs 2: IRQBALANCE_BANNED_CPULIST=2 in its configuration keeps it from that
            "#]],
        );
    }

    proptest! {
        /// Whatever comes and goes: nothing is where it should not be, a second look finds nothing to do, and at the end all is as before.
        #[test]
        fn interrupts_move_and_come_back(
            first in prop::collection::vec(1u32..256, 1..6),
            aways in prop::collection::vec(0u32..255, 1..5),
            is_balanced: bool,
        ) {
            let socket = || ("run/irqbalance/irqbalance7.sock".to_owned(), Some(set("7")));
            let balancers: BTreeMap<String, Option<CpuSet>> = is_balanced.then(socket).into_iter().collect();
            let cpus = |bits: u32| CpuSet::parse_mask(&format!("{bits:x}")).unwrap();
            let slots: Vec<Slot> = (0..).take(first.len()).map(Interrupts::slot).collect();
            let texts = slots.iter().zip(&first);
            let banned = balancers.keys().map(|path| (path.clone(), Ok("7".to_owned())));
            let first: Observed = texts
                .map(|(slot, bits)| (slot.path.clone(), Ok(cpus(*bits).to_string())))
                .chain(banned)
                .collect();
            let (mut files, mut originals) = (first.clone(), BTreeMap::new());
            for away in aways.into_iter().chain([0]).map(cpus) {
                for is_again in [false, true] {
                    let has = |slot: &Slot| set(files[&slot.path].as_ref().unwrap());
                    let affinity = (0..).zip(slots.iter().map(has)).collect();
                    let now = Interrupts { online: set("0-7"), affinity, balancers: balancers.clone(), ..Interrupts::default() };
                    let (settings, _) = settings_for_interrupts(&away, &now, &originals, &Unmovable::new());
                    let plan = plan_files(&settings, &files, &originals);
                    prop_assert!(!is_again || plan.is_empty(), "{plan:?}");
                    originals.extend(plan.remember.clone());
                    for write in &plan.writes {
                        files.insert(write.slot.path.clone(), Ok(write.new.clone()));
                    }
                    for slot in &plan.forget {
                        originals.remove(slot);
                    }
                }
                for path in balancers.keys() {
                    prop_assert_eq!(set(files[path].as_ref().unwrap()), away.union(&set("7")));
                }
                for slot in &slots {
                    prop_assert!(set(files[&slot.path].as_ref().unwrap()).is_disjoint(&away));
                }
            }
            prop_assert_eq!(files, first);
            prop_assert!(originals.is_empty());
        }
    }
}
