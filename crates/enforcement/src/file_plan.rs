//! Wanted and observed kernel files to an ordered plan. In: settings, what was read, and what the files said before the first write. Out: writes that
//! leave no choice, and what must be remembered before the first of them.
//!
//! A file that is not to be changed any more gets back its original. Sets of CPUs shrink before others grow; parents grow first, children shrink
//! first. Partitions of CPUs are members while their CPUs change. Of a range, the end that moves away from the other is written first, because
//! drivers refuse or clamp a lower end above the upper one. Guarantees: the plan for files that are already right is empty; after a plan with writes
//! that all succeed, the next one is empty, or, where modes were changed, the one after that; an original is in `remember` before its file is in
//! `writes`, and only a file that is as it was, or gone, is in `forget`.
//!
//! What the order is owed to: Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files" (exclusive CPUs are a subset of those above, and not
//! among those of groups beside), and Documentation/admin-guide/pm/cpufreq.rst, "Policy Interface in sysfs" (the ends of a range).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bayplan_types::CpuSet;

use crate::setting::{
    DISKS, Form, GONE, ONLINE, Observed, Original, Setting, Settings, Slot, cpus, is_same, number,
    text_of, unwritten, value_in,
};

/// Which pass a write belongs to. Each follows the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilePass {
    /// Partitions become members.
    Leave,
    /// CPUs are taken away only.
    Shrink,
    /// Anything else is changed.
    Set,
    /// CPUs are given.
    Grow,
    /// Members become partitions.
    Enter,
}

impl fmt::Display for FilePass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FilePass::Leave => "leave",
            FilePass::Shrink => "shrink",
            FilePass::Set => "set",
            FilePass::Grow => "grow",
            FilePass::Enter => "enter",
        })
    }
}

/// One write to one kernel file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The pass.
    pub pass: FilePass,
    /// Where.
    pub slot: Slot,
    /// How it is compared and written.
    pub form: Form,
    /// What the slot has.
    pub old: String,
    /// What it gets.
    pub new: String,
    /// The container or other unit that it is for.
    pub unit: String,
    /// Why.
    pub reason: String,
    /// A later write of the plan gives the slot another value: this one only leads there.
    pub is_step: bool,
    /// It is the original.
    pub gives_back: bool,
}

impl FileWrite {
    /// The text for the file.
    pub fn text(&self) -> String {
        text_of(&self.new, &self.slot, &self.form)
    }

    /// Whether the file, read back, says what was written. Of a range that is given back drivers keep what it was and say what of it is possible now,
    /// with turbo switched off again (`cpufreq.c`, `cpufreq_set_policy`).
    pub fn is_done(&self, text: &str) -> bool {
        if self.gives_back && matches!(self.form, Form::Lowest { .. } | Form::Highest) {
            return true;
        }
        let found = value_in(text, &self.slot, &self.form);
        found.is_some_and(|found| is_same(&self.form, &self.new, found))
    }
}

/// A setting that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// Where.
    pub slot: Slot,
    /// The container or other unit that it is for.
    pub unit: String,
    /// What the kernel says of the file, or that it lacks the line.
    pub why: String,
}

/// Writes in the order in which they must be made, and what belongs to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePlan {
    /// Must be on disk before the first write.
    pub remember: BTreeMap<Slot, Original>,
    /// In order.
    pub writes: Vec<FileWrite>,
    /// Originals that the files have again, or with files that are gone.
    pub forget: Vec<Slot>,
    /// Settings with files that cannot be read.
    pub impossible: Vec<Impossible>,
}

impl FilePlan {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether other files may say something else after it than was observed.
    pub fn changes_modes(&self) -> bool {
        self.writes.iter().any(|write| write.form == Form::Mode)
    }
}

/// Which files have to be read for a plan.
pub fn files_to_read<'a>(
    settings: &'a Settings,
    originals: &'a BTreeMap<Slot, Original>,
) -> impl Iterator<Item = &'a str> {
    let mut last = "";
    let mut slots: Vec<&str> =
        settings.keys().chain(originals.keys()).map(|slot| slot.path.as_str()).collect();
    let forms = settings.values().map(|it| &it.form).chain(originals.values().map(|it| &it.form));
    slots.extend(forms.filter_map(|form| match form {
        Form::Preference { governor } => Some(governor.as_str()),
        Form::Lowest { highest } => Some(highest.as_str()),
        _ => None,
    }));
    let mut returned = originals.keys().filter(|slot| !settings.contains_key(slot));
    slots.extend(returned.any(Slot::is_of_interrupts).then_some(ONLINE));
    // Settings and originals are in order already, which this finds.
    slots.sort();
    slots.into_iter().filter(move |path| std::mem::replace(&mut last, path) != *path)
}

/// Which files, besides, tell whether the disks are still there on which something is to be given back. Without them, all are.
pub fn disks_to_look_for(
    settings: &Settings,
    originals: &BTreeMap<Slot, Original>,
) -> BTreeSet<String> {
    let lines = originals.keys().filter(|slot| slot.key.is_some());
    let returned = lines.filter(|slot| !settings.contains_key(slot));
    let files: BTreeSet<String> = returned.filter_map(Slot::disk_file).collect();
    let above = (!files.is_empty()).then(|| DISKS.to_owned());
    files.into_iter().chain(above).collect()
}

/// From what was observed to what is wanted, and back to the original where nothing is wanted.
pub fn plan_files(
    settings: &Settings,
    observed: &Observed,
    originals: &BTreeMap<Slot, Original>,
) -> FilePlan {
    let mut plan = FilePlan::default();
    for (slot, setting) in settings {
        match found(observed, slot, &setting.form) {
            Ok(old) if matches!(setting.form, Form::Follows { .. }) => {
                if !originals.contains_key(slot) {
                    plan.remember.insert(slot.clone(), original_of(setting, old));
                }
            }
            Ok(old) if is_right(settings, observed, setting, old) => {}
            Ok(old) => {
                if !originals.contains_key(slot) || is_lifted_limit(setting) {
                    let original = original_of(setting, old);
                    plan.remember.insert(slot.clone(), original);
                }
                plan.writes.extend(writes_for(slot, setting, old));
            }
            Err(why) => {
                let unit = setting.unit.clone();
                plan.impossible.push(Impossible { slot: slot.clone(), unit, why });
            }
        }
    }
    // What follows a file that is not changed need not be remembered.
    let FilePlan { remember, writes, .. } = &mut plan;
    remember.retain(|slot, original| is_needed(slot, &original.form, writes));
    let mut returned = Vec::new();
    for (slot, original) in originals.iter().filter(|(slot, _)| !settings.contains_key(slot)) {
        match found(observed, slot, &original.form) {
            _ if has_lost_disk(observed, slot) => plan.forget.push(slot.clone()),
            Ok(now) if is_runtimes_limit(original, now) => plan.forget.push(slot.clone()),
            Ok(_) if has_offline_cpus_only(observed, slot, original) => {
                plan.forget.push(slot.clone());
            }
            Ok(old) if !is_same(&original.form, &original.value, old) => {
                let setting = Setting {
                    form: original.form.clone(),
                    value: original.value.clone(),
                    unit: "restore".to_owned(),
                    reason: "as it was before".to_owned(),
                };
                let writes = writes_for(slot, &setting, old).into_iter();
                plan.writes.extend(writes.map(|write| FileWrite { gives_back: true, ..write }));
            }
            Ok(_) => returned.push(slot.clone()),
            Err(why) if why == GONE || why == NO_LINE => plan.forget.push(slot.clone()),
            // It is there, and will say something again.
            Err(_) => {}
        }
    }
    // What is as it was may not be any more when something has changed on which it depends.
    if !plan.changes_modes() {
        plan.forget.append(&mut returned);
    }
    leave_to_governors(&mut plan, observed);
    order(&mut plan.writes, observed);
    plan
}

/// Whether one of these writes changes the file, or that which it follows.
pub fn is_needed(slot: &Slot, form: &Form, writes: &[FileWrite]) -> bool {
    writes.iter().any(|write| match form {
        Form::Follows { file } => write.slot.path == *file,
        _ => write.slot == *slot,
    })
}

/// A preference that was before a governor `performance` is not written: with the governor it is back.
fn leave_to_governors(plan: &mut FilePlan, observed: &Observed) {
    let governors: BTreeMap<String, String> = plan
        .writes
        .iter()
        .filter(|write| write.form == Form::Mode)
        .map(|write| (write.slot.path.clone(), write.new.clone()))
        .collect();
    let forget = &mut plan.forget;
    plan.writes.retain(|write| {
        let Form::Preference { governor } = &write.form else { return true };
        let now = observed.get(governor).and_then(|it| it.as_ref().ok());
        let then = governors.get(governor).or(now).map(|it| it.trim());
        let is_left = write.gives_back && then == Some("performance");
        if is_left {
            forget.push(write.slot.clone());
        }
        !is_left
    });
}

fn found<'a>(observed: &'a Observed, slot: &Slot, form: &Form) -> Result<&'a str, String> {
    match observed.get(&slot.path) {
        Some(Ok(text)) => value_in(text, slot, form).ok_or_else(|| NO_LINE.to_owned()),
        Some(Err(why)) => Err(why.clone()),
        None => Err("not read".to_owned()),
    }
}

/// The kernel has forgotten the line with the disk, and takes none for it any more. A root in which no disk can be looked up tells nothing of any.
fn has_lost_disk(observed: &Observed, slot: &Slot) -> bool {
    let is_gone = |file: &str| matches!(observed.get(file), Some(Err(why)) if why == GONE);
    slot.disk_file().is_some_and(|file| is_gone(&file)) && !is_gone(DISKS)
}

/// A limit of the runtime's that is wanted away.
fn is_lifted_limit(setting: &Setting) -> bool {
    setting.form == Form::CpuMax && setting.value == "max"
}

/// Whether the runtime has written another limit since its own was lifted. A limit where there was none before is not the runtime's.
fn is_runtimes_limit(original: &Original, now: &str) -> bool {
    let is_limit = |text: &str| !text.starts_with("max");
    original.form == Form::CpuMax && is_limit(&original.value) && is_limit(now)
}

/// The kernel refuses a mask of interrupts without an online CPU (`kernel/irq/proc.c`, `write_irq_affinity`). Of a mask with some it keeps the others, too.
fn has_offline_cpus_only(observed: &Observed, slot: &Slot, original: &Original) -> bool {
    let online = observed.get(ONLINE).and_then(|text| cpus(text.as_ref().ok()?.trim()));
    let before = match original.form {
        Form::CpuMask => CpuSet::parse_mask(&original.value).ok(),
        _ => cpus(&original.value),
    };
    let both = online.filter(|it| !it.is_empty()).zip(before).filter(|_| slot.is_of_interrupts());
    both.is_some_and(|(online, before)| before.is_disjoint(&online))
}

/// Limits that the line does not name are unlimited, and are to be so again.
fn original_of(setting: &Setting, old: &str) -> Original {
    let value = match setting.form {
        Form::Limits => {
            let names = setting.value.split(' ').filter_map(|it| it.split_once('='));
            let had = |name| old.split(' ').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            let limits =
                names.map(|(name, _)| format!("{name}={}", had(name).unwrap_or(unwritten(name))));
            limits.collect::<Vec<_>>().join(" ")
        }
        // Why it is invalid stands behind the type.
        Form::Partition { .. } => old.split(' ').next().unwrap_or_default().to_owned(),
        _ => old.to_owned(),
    };
    Original { form: setting.form.clone(), value }
}

/// A partition with CPUs that are not right yet is not right either.
fn is_right(settings: &Settings, observed: &Observed, setting: &Setting, old: &str) -> bool {
    let has_right_cpus = match &setting.form {
        Form::Partition { cpus } => {
            let slot = Slot::file(cpus);
            let wanted = settings.get(&slot).zip(found(observed, &slot, &Form::OwnCpus).ok());
            wanted.is_none_or(|(it, found)| is_same(&it.form, &it.value, found))
        }
        _ => true,
    };
    has_right_cpus && is_same(&setting.form, &setting.value, old)
}

/// One write, or two where there is something to let go of first.
fn writes_for(slot: &Slot, setting: &Setting, old: &str) -> Vec<FileWrite> {
    let write = |pass, old: &str, new: &str, is_step| FileWrite {
        pass,
        slot: slot.clone(),
        form: setting.form.clone(),
        old: old.to_owned(),
        new: new.to_owned(),
        unit: setting.unit.clone(),
        reason: setting.reason.clone(),
        is_step,
        gives_back: false,
    };
    let new = setting.value.as_str();
    let one = |pass| vec![write(pass, old, new, false)];
    match &setting.form {
        Form::Cpus => one(cpus_pass(old, new)),
        Form::OwnCpus => match cpus(old).zip(cpus(new)) {
            Some((has, gets)) if !has.is_subset(&gets) && !gets.is_subset(&has) => {
                let kept = has.intersection(&gets).to_string();
                let first = write(FilePass::Shrink, old, &kept, true);
                vec![first, write(FilePass::Grow, &kept, new, false)]
            }
            _ => one(cpus_pass(old, new)),
        },
        Form::Partition { .. } => match (old, new) {
            (_, MEMBER) => one(FilePass::Leave),
            (MEMBER, _) => one(FilePass::Enter),
            _ => {
                let first = write(FilePass::Leave, old, MEMBER, true);
                vec![first, write(FilePass::Enter, MEMBER, new, false)]
            }
        },
        _ => one(FilePass::Set),
    }
}

/// What stands for the value of a line that is not there.
const NO_LINE: &str = "no such line";

/// A group that is no partition.
const MEMBER: &str = "member";

fn cpus_pass(old: &str, new: &str) -> FilePass {
    match cpus(old).zip(cpus(new)) {
        Some((old, new)) if new.is_subset(&old) => FilePass::Shrink,
        _ => FilePass::Grow,
    }
}

/// Stable: otherwise by path.
fn order(writes: &mut [FileWrite], observed: &Observed) {
    writes.sort_by_cached_key(|write| {
        let depth = i64::try_from(write.slot.path.matches('/').count()).unwrap_or(i64::MAX);
        let rank = match (write.pass, &write.form) {
            (FilePass::Leave | FilePass::Shrink, _) => -depth,
            (FilePass::Grow | FilePass::Enter, _) => depth,
            (FilePass::Set, Form::Mode) => -1,
            (FilePass::Set, Form::Gate) => 3,
            (FilePass::Set, Form::Lowest { highest }) => {
                let highest = observed.get(highest).and_then(|text| text.as_ref().ok());
                let highest = highest.and_then(|text| number(text.trim()));
                let is_above = number(&write.new).zip(highest).is_some_and(|(new, it)| new > it);
                if is_above { 2 } else { 0 }
            }
            (FilePass::Set, _) => 1,
        };
        (write.pass, rank)
    });
}

/// The plan as text, one write per line: what `--dry-run`, logs and tests show.
pub fn render_file_plan(plan: &FilePlan) -> String {
    let mut text = String::new();
    for write in &plan.writes {
        let FileWrite { pass, slot, old, new, unit, reason, .. } = write;
        let old = if old.is_empty() { "(none)" } else { old };
        let new = if new.is_empty() { "(none)" } else { new };
        text.push_str(&format!("{pass:<6} {slot} {old} -> {new}  ({unit}: {reason})\n"));
    }
    for Impossible { slot, unit, why } in &plan.impossible {
        text.push_str(&format!("cannot {slot}: {why}  ({unit})\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn setting(form: Form, value: &str) -> Setting {
        let (unit, reason) = ("u".to_owned(), "r".to_owned());
        Setting { form, value: value.to_owned(), unit, reason }
    }

    fn range(low: &str, high: &str) -> Settings {
        let lowest = Form::Lowest { highest: "c/max".to_owned() };
        [
            (Slot::file("c/min"), setting(lowest, low)),
            (Slot::file("c/max"), setting(Form::Highest, high)),
        ]
        .into()
    }

    fn observed(rows: &[(&str, &str)]) -> Observed {
        rows.iter().map(|(path, text)| ((*path).to_owned(), Ok((*text).to_owned()))).collect()
    }

    fn check(settings: &Settings, has: &Observed, expected: Expect) -> FilePlan {
        let plan = plan_files(settings, has, &BTreeMap::new());
        expected.assert_eq(&render_file_plan(&plan));
        plan
    }

    #[test]
    fn a_range_moves_its_leading_end_first() {
        let has = observed(&[("c/min", "800\n"), ("c/max", "2000\n")]);
        check(
            &range("2500", "3000"),
            &has,
            expect![[r#"
                set    /c/max 2000 -> 3000  (u: r)
                set    /c/min 800 -> 2500  (u: r)
            "#]],
        );
        check(
            &range("400", "600"),
            &has,
            expect![[r#"
                set    /c/min 800 -> 400  (u: r)
                set    /c/max 2000 -> 600  (u: r)
            "#]],
        );
        check(&range("800", "2000"), &has, expect![[""]]);
    }

    #[test]
    fn what_others_depend_on_is_written_first() {
        let settings = [
            (Slot::file("a/preference"), setting(Form::Text, "power")),
            (Slot::file("b/governor"), setting(Form::Mode, "powersave")),
            (Slot::file("c/max"), setting(Form::Highest, "1000")),
        ];
        let has = [("a/preference", "0"), ("b/governor", "performance"), ("c/max", "2000")];
        check(
            &settings.into(),
            &observed(&has),
            expect![[r#"
                set    /b/governor performance -> powersave  (u: r)
                set    /a/preference 0 -> power  (u: r)
                set    /c/max 2000 -> 1000  (u: r)
            "#]],
        );
    }

    /// By name alone it came before a lowest frequency above what was the highest.
    #[test]
    fn what_gives_others_their_effect_is_written_last() {
        let lowest = |highest: &str| Form::Lowest { highest: highest.to_owned() };
        let settings = [
            (Slot::file("0.0/clos0/max_mhz"), setting(Form::Highest, "3000")),
            (Slot::file("0.0/clos0/min_mhz"), setting(lowest("0.0/clos0/max_mhz"), "2400")),
            (Slot::file("0.0/core1/clos"), setting(Form::Text, "3")),
            (Slot::file("0.0/core_power"), setting(Form::Gate, "ordered")),
            (Slot::file("0.1/core0/clos"), setting(Form::Text, "3")),
        ];
        let has = [
            ("0.0/clos0/max_mhz", "2000"),
            ("0.0/clos0/min_mhz", "800"),
            ("0.0/core1/clos", "0"),
            ("0.0/core_power", "off"),
            ("0.1/core0/clos", "0"),
        ];
        check(
            &settings.into(),
            &observed(&has),
            expect![[r#"
            set    /0.0/clos0/max_mhz 2000 -> 3000  (u: r)
            set    /0.0/core1/clos 0 -> 3  (u: r)
            set    /0.1/core0/clos 0 -> 3  (u: r)
            set    /0.0/clos0/min_mhz 800 -> 2400  (u: r)
            set    /0.0/core_power off -> ordered  (u: r)
        "#]],
        );
    }

    #[test]
    fn a_preference_comes_back_with_its_governor() {
        let preference = || Form::Preference { governor: "governor".to_owned() };
        let original = |form, value: &str| Original { form, value: value.to_owned() };
        let back = |governor: &str, expected: Expect| {
            let originals = BTreeMap::from([
                (Slot::file("governor"), original(Form::Mode, governor)),
                (Slot::file("preference"), original(preference(), "balance_power")),
            ]);
            let has = observed(&[("governor", "schedutil"), ("preference", "power")]);
            let plan = plan_files(&Settings::new(), &has, &originals);
            expected.assert_eq(&render_file_plan(&plan));
            plan.forget.len()
        };
        let forgotten = back(
            "powersave",
            expect![[r#"
                set    /governor schedutil -> powersave  (restore: as it was before)
                set    /preference power -> balance_power  (restore: as it was before)
            "#]],
        );
        assert_eq!(forgotten, 0);
        let forgotten = back(
            "performance",
            expect![[r#"
                set    /governor schedutil -> performance  (restore: as it was before)
            "#]],
        );
        assert_eq!(forgotten, 1);
    }

    #[test]
    fn a_range_that_is_given_back_may_be_seen_in_part() {
        let originals = BTreeMap::from([(
            Slot::file("max"),
            Original { form: Form::Highest, value: "3600".to_owned() },
        )]);
        let plan = plan_files(&Settings::new(), &observed(&[("max", "1000")]), &originals);
        assert!(plan.writes.iter().all(|write| write.gives_back && write.is_done("2000")));
        let plan = plan_files(
            &range("800", "3600"),
            &observed(&[("c/min", "1"), ("c/max", "1")]),
            &originals,
        );
        assert!(plan.writes.iter().filter(|write| write.is_done("2000")).count() == 0);
    }

    #[test]
    fn sets_shrink_from_below_and_grow_from_above() {
        let rows = [("a", "0-3"), ("a/b", "0-3"), ("d", "0-7"), ("d/e", "0-3")];
        let settings = rows.map(|(path, cpus)| (Slot::file(path), setting(Form::Cpus, cpus)));
        check(
            &settings.into(),
            &observed(&[("a", "0-7"), ("a/b", "0-7"), ("d", "0-3"), ("d/e", "0-1")]),
            expect![[r#"
                shrink /a/b 0-7 -> 0-3  (u: r)
                shrink /a 0-7 -> 0-3  (u: r)
                grow   /d 0-3 -> 0-7  (u: r)
                grow   /d/e 0-1 -> 0-3  (u: r)
            "#]],
        );
    }

    #[test]
    fn partitions_are_left_while_their_cpus_change() {
        let partition = |group: &str, kind: &str, cpus: &str| {
            let file = format!("{group}/cpus");
            let form = Form::Partition { cpus: file.clone() };
            [
                (Slot::file(format!("{group}/partition")), setting(form, kind)),
                (Slot::file(file), setting(Form::OwnCpus, cpus)),
            ]
        };
        let has = observed(&[
            ("p/cpus", "0-7"),
            ("p/moves/cpus", "0-1"),
            ("p/moves/partition", "isolated"),
            ("p/new/cpus", ""),
            ("p/new/partition", "member"),
            ("p/broken/cpus", "4"),
            ("p/broken/partition", "isolated invalid (CPUs not available)"),
            ("p/stays/cpus", "6-7"),
            ("p/stays/partition", "root"),
        ]);
        let mut settings: Settings = [
            partition("p/moves", "isolated", "2-3"),
            partition("p/new", "isolated", "0-1"),
            partition("p/broken", "isolated", "4"),
            partition("p/stays", "root", "6,7"),
        ]
        .concat()
        .into_iter()
        .collect();
        settings.insert(Slot::file("p/cpus"), setting(Form::OwnCpus, "0-4,6-7"));
        let plan = check(
            &settings,
            &has,
            expect![[r#"
            leave  /p/broken/partition isolated invalid (CPUs not available) -> member  (u: r)
            leave  /p/moves/partition isolated -> member  (u: r)
            shrink /p/moves/cpus 0-1 -> (none)  (u: r)
            shrink /p/cpus 0-7 -> 0-4,6-7  (u: r)
            grow   /p/moves/cpus (none) -> 2-3  (u: r)
            grow   /p/new/cpus (none) -> 0-1  (u: r)
            enter  /p/broken/partition member -> isolated  (u: r)
            enter  /p/moves/partition member -> isolated  (u: r)
            enter  /p/new/partition member -> isolated  (u: r)
        "#]],
        );
        let after = observed(&[
            ("p/cpus", "0-4,6-7"),
            ("p/moves/cpus", "2-3"),
            ("p/moves/partition", "isolated"),
            ("p/new/cpus", "0-1"),
            ("p/new/partition", "isolated"),
            ("p/broken/cpus", "4"),
            ("p/broken/partition", "isolated"),
        ]);
        let back = plan_files(&Settings::new(), &after, &plan.remember);
        expect![[r#"
            leave  /p/new/partition isolated -> member  (restore: as it was before)
            shrink /p/moves/cpus 2-3 -> (none)  (restore: as it was before)
            shrink /p/new/cpus 0-1 -> (none)  (restore: as it was before)
            grow   /p/cpus 0-4,6-7 -> 0-7  (restore: as it was before)
            grow   /p/moves/cpus (none) -> 0-1  (restore: as it was before)
        "#]]
        .assert_eq(&render_file_plan(&back));
    }

    #[test]
    fn what_cannot_be_read_is_told_and_stops_nothing_else() {
        let settings: Settings = [
            (Slot::file("gone"), setting(Form::Text, "1")),
            (Slot::file("here"), setting(Form::Text, "1")),
            (Slot::line("schemata", "L2"), setting(Form::Schemata, "0=f")),
            (Slot::file("unread"), setting(Form::Text, "1")),
        ]
        .into();
        let mut has = observed(&[("here", "0"), ("schemata", "L3:0=f\n")]);
        has.insert("gone".to_owned(), Err(GONE.to_owned()));
        let plan = check(
            &settings,
            &has,
            expect![[r#"
                set    /here 0 -> 1  (u: r)
                cannot /gone: no such file  (u)
                cannot /schemata [L2]: no such line  (u)
                cannot /unread: not read  (u)
            "#]],
        );
        assert_eq!(plan.remember.keys().collect::<Vec<_>>(), [&Slot::file("here")]);
    }

    #[test]
    fn a_limit_that_was_not_there_is_given_back_as_none() {
        let limits = |value| [(Slot::line("io.max", "8:16"), setting(Form::Limits, value))].into();
        let has = observed(&[("io.max", "8:0 rbps=5\n")]);
        let plan = check(
            &limits("rbps=100 wiops=7"),
            &has,
            expect![[r#"
                set    /io.max [8:16] (none) -> rbps=100 wiops=7  (u: r)
            "#]],
        );
        let has = observed(&[("io.max", "8:16 rbps=100 wbps=max riops=max wiops=7\n")]);
        let back = plan_files(&Settings::new(), &has, &plan.remember);
        expect![[r#"
            set    /io.max [8:16] rbps=100 wbps=max riops=max wiops=7 -> rbps=max wiops=max  (restore: as it was before)
        "#]]
        .assert_eq(&render_file_plan(&back));
    }

    #[test]
    fn a_limit_that_the_runtime_has_changed_is_given_back_as_it_is_now() {
        let settings: Settings = [(Slot::file("cpu.max"), setting(Form::CpuMax, "max"))].into();
        let mut originals = BTreeMap::new();
        for written in ["200000 100000", "300000 100000"] {
            let plan = plan_files(&settings, &observed(&[("cpu.max", written)]), &originals);
            originals.extend(plan.remember);
        }
        let right = observed(&[("cpu.max", "max 100000")]);
        assert_eq!(plan_files(&settings, &right, &originals), FilePlan::default());
        let back = plan_files(&Settings::new(), &right, &originals);
        expect![[r#"
            set    /cpu.max max 100000 -> 300000 100000  (restore: as it was before)
        "#]]
        .assert_eq(&render_file_plan(&back));
    }

    #[test]
    fn a_limit_that_the_runtime_has_written_anew_is_not_overwritten() {
        let value = "200000 100000".to_owned();
        let originals =
            BTreeMap::from([(Slot::file("cpu.max"), Original { form: Form::CpuMax, value })]);
        let has = observed(&[("cpu.max", "250000 100000\n")]);
        let plan = plan_files(&Settings::new(), &has, &originals);
        assert_eq!((plan.writes.len(), plan.forget), (0, vec![Slot::file("cpu.max")]));
    }

    /// It was taken for the runtime's, and its original was deleted.
    #[test]
    fn a_limit_where_the_runtime_has_none_is_given_back() {
        let file = || Slot::file("cpu.max");
        let (mut has, mut originals) = (observed(&[("cpu.max", "max 100000\n")]), BTreeMap::new());
        for limit in ["50000 100000", "60000 100000"] {
            let settings: Settings = [(file(), setting(Form::CpuMax, limit))].into();
            carry_out(&plan_files(&settings, &has, &originals), &mut has, &mut originals);
            assert_eq!(originals[&file()].value, "max 100000");
        }
        let back = plan_files(&Settings::new(), &has, &originals);
        expect![[r#"
            set    /cpu.max 60000 100000 -> max 100000  (restore: as it was before)
        "#]]
        .assert_eq(&render_file_plan(&back));
        carry_out(&back, &mut has, &mut originals);
        carry_out(&plan_files(&Settings::new(), &has, &originals), &mut has, &mut originals);
        assert!(originals.is_empty());
    }

    /// The kernel refuses them, which kept `restore` from its end.
    #[test]
    fn interrupts_are_not_given_back_to_offline_cpus_only() {
        let look = |path: &str, form: Form, [before, now, online]: [&str; 3]| {
            let value = before.to_owned();
            let originals = BTreeMap::from([(Slot::file(path), Original { form, value })]);
            assert!(files_to_read(&Settings::new(), &originals).any(|it| it == ONLINE));
            let has = observed(&[(path, now), (ONLINE, online)]);
            let FilePlan { writes, forget, .. } = plan_files(&Settings::new(), &has, &originals);
            (writes.iter().map(FileWrite::text).collect::<String>(), forget.len())
        };
        let irq = "proc/irq/9/smp_affinity_list";
        assert_eq!(look(irq, Form::Cpus, ["2-3", "0", "0-1"]), (String::new(), 1));
        assert_eq!(look(irq, Form::Cpus, ["1-3", "0", "0-1"]), ("1-3".to_owned(), 0));
        assert_eq!(look(irq, Form::Cpus, ["2-3", "0", ""]), ("2-3".to_owned(), 0));
        let default = "proc/irq/default_smp_affinity";
        assert_eq!(look(default, Form::CpuMask, ["c", "3", "0-1\n"]), (String::new(), 1));
        assert_eq!(look(default, Form::CpuMask, ["e", "1", "0-1\n"]), ("e".to_owned(), 0));
        // Where the kernel does not say which are online, and of what is no interrupt.
        let original = Original { form: Form::Cpus, value: "2-3".to_owned() };
        let originals = BTreeMap::from([(Slot::file(irq), original.clone())]);
        assert_eq!(plan_files(&Settings::new(), &observed(&[(irq, "0")]), &originals).forget, []);
        assert!(!has_offline_cpus_only(&observed(&[(ONLINE, "0")]), &Slot::file("c"), &original));
    }

    #[test]
    fn a_line_is_given_back_as_long_as_its_disk_is_there() {
        let (form, value) = (Form::Limits, "wbps=5".to_owned());
        let originals = BTreeMap::from([(Slot::line("io.max", "8:16"), Original { form, value })]);
        let disks = disks_to_look_for(&Settings::new(), &originals);
        let disk = "sys/dev/block/8:16/dev";
        assert_eq!(disks, [DISKS.to_owned(), disk.to_owned()].into());
        let mut has = observed(&[("io.max", ""), (disk, "8:16\n")]);
        let mut look = |rows: &[(&str, &str)]| {
            has.extend(rows.iter().map(|(it, why)| ((*it).to_owned(), Err((*why).to_owned()))));
            let plan = plan_files(&Settings::new(), &has, &originals);
            (plan.writes.len(), plan.forget.len())
        };
        assert_eq!(look(&[(DISKS, "Is a directory")]), (1, 0));
        assert_eq!(look(&[(disk, GONE)]), (0, 1));
        // Not the disk is gone, but the directory of all.
        assert_eq!(look(&[(DISKS, GONE)]), (1, 0));
    }

    #[test]
    fn originals_of_files_that_cannot_be_read_for_a_moment_are_kept() {
        let original = Original { form: Form::Text, value: "1".to_owned() };
        let originals = BTreeMap::from([(Slot::file("busy"), original)]);
        let has = [("busy".to_owned(), Err("Device or resource busy".to_owned()))].into();
        assert_eq!(plan_files(&Settings::new(), &has, &originals), FilePlan::default());
    }

    #[test]
    fn originals_of_files_that_are_gone_or_as_they_were_are_forgotten() {
        let original = |value: &str| Original { form: Form::Text, value: value.to_owned() };
        let originals = BTreeMap::from([
            (Slot::file("gone"), original("1")),
            (Slot::file("right"), original("1")),
            (Slot::file("wrong"), original("1")),
        ]);
        let mut has = observed(&[("right", "1"), ("wrong", "2")]);
        has.insert("gone".to_owned(), Err(GONE.to_owned()));
        let plan = plan_files(&Settings::new(), &has, &originals);
        assert_eq!(plan.forget, [Slot::file("gone"), Slot::file("right")]);
        assert_eq!(plan.writes.len(), 1);
    }

    /// Carries a plan out on texts that are whole files.
    fn carry_out(plan: &FilePlan, has: &mut Observed, originals: &mut BTreeMap<Slot, Original>) {
        originals.extend(plan.remember.clone());
        for write in &plan.writes {
            has.insert(write.slot.path.clone(), Ok(write.text()));
        }
        for slot in &plan.forget {
            originals.remove(slot);
        }
    }

    proptest! {
        #[test]
        fn a_plan_is_enough_and_leads_back(
            before in prop::collection::vec(0u32..4, 6),
            wishes in prop::collection::vec(prop::collection::vec(prop::option::of(0u32..4), 6), 1..5),
        ) {
            let path = |i: usize| format!("f{i}");
            let texts = before.iter().enumerate().map(|(i, it)| (path(i), Ok(it.to_string())));
            let first: Observed = texts.collect();
            let (mut has, mut originals) = (first.clone(), BTreeMap::new());
            for wish in wishes.iter().chain([&vec![None; 6]]) {
                let settings: Settings = wish.iter().enumerate().filter_map(|(i, it)| {
                    let value = (*it)?.to_string();
                    let form = if i % 2 == 0 { Form::Text } else { Form::Cpus };
                    Some((Slot::file(path(i)), setting(form, &value)))
                }).collect();
                let plan = plan_files(&settings, &has, &originals);
                carry_out(&plan, &mut has, &mut originals);
                let again = plan_files(&settings, &has, &originals);
                prop_assert!(again.is_empty() && again.remember.is_empty());
                carry_out(&again, &mut has, &mut originals);
                for slot in originals.keys() {
                    prop_assert!(settings.contains_key(slot));
                }
            }
            prop_assert_eq!(has, first);
        }
    }
}
