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
mod tests;
