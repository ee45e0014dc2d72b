//! CPU sets that another program changes past the runtime. In: which container runs where, and what the files of the containers' groups say. Out:
//! containers that the runtime is to be told of again.
//!
//! `cpuset.cpus` and `cpuset.mems` are the runtime's to write: it keeps what it was told, and writes that with every update. So a set that is not right is
//! repaired through the runtime, and in the file itself only where the runtime was told in vain and the set was right before: what was never right may
//! have to wait for others to let go (`writer.rs`). Patience is that of all files (`patience.rs`): others are not fought for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bayplan_enforcement::{
    Author, FilePlan, FileWrite, Form, Impossible, Notice, Observed, Patience, Setting, Settings,
    Slot, files_to_read, plan_files,
};
use bayplan_host::find_cpuset_group;
use bayplan_host::kernel::{Kernel, Report, apply, observe};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_types::Pinning;
use tokio::time::Instant;

use crate::enforcer::calls::RuntimeCalls;
use crate::lookups::Lookups;

const CPUS: &str = "cpuset.cpus";
const MEMS: &str = "cpuset.mems";

/// What came of looking once.
#[derive(Debug, Default)]
pub(super) struct SetsOutcome {
    /// What the files say of containers that the runtime is to be told of again, by its ids.
    pub(super) found: BTreeMap<String, Pinning>,
    /// A container's sets are not right while the runtime is told of it; what that means is seen soon.
    pub(super) is_unsure: bool,
    /// What others did.
    pub(super) notices: Vec<Notice>,
    /// What was written into the files themselves.
    pub(super) report: Report,
    /// Failures that an operator has not been told yet.
    pub(super) failures: Vec<String>,
}

/// What is kept from one look to the next.
#[derive(Debug)]
pub(super) struct CpuSets {
    patience: Patience,
    /// Each container's group, by the runtime's id.
    dirs: BTreeMap<String, String>,
    /// Containers without one.
    lookups: Lookups<Duration>,
    /// A group was found with sets that were not looked at yet.
    has_unseen: bool,
    /// Files may be written where the runtime is told in vain.
    pub(super) may_write: bool,
    /// What the runtime was told again.
    asked: BTreeMap<Slot, Asked>,
}

/// Something that the runtime was told again.
#[derive(Debug)]
struct Asked {
    /// What is to be seen of it.
    wanted: String,
    /// That was to be seen before.
    was_right: bool,
}

impl Default for CpuSets {
    fn default() -> CpuSets {
        CpuSets {
            patience: Patience::default(),
            dirs: BTreeMap::new(),
            lookups: Lookups::of_sets(),
            has_unseen: false,
            may_write: false,
            asked: BTreeMap::new(),
        }
    }
}

impl CpuSets {
    /// Compares the sets of every container that was found with what they are to be. `now` only ever grows.
    pub(super) fn look(
        &mut self,
        kernel: &mut dyn Kernel,
        occupancy: &Occupancy,
        calls: &RuntimeCalls,
        now: Duration,
    ) -> SetsOutcome {
        self.has_unseen = false;
        let mut settings = Settings::new();
        let mut of_dir = BTreeMap::new();
        for occupant in &occupancy.occupants {
            let Some(dir) = self.dirs.get(&occupant.runtime_id) else { continue };
            settings.extend(settings_of(occupant, dir));
            of_dir.insert(dir.clone(), occupant.runtime_id.clone());
        }
        let originals = BTreeMap::new();
        let observed = observe(kernel, files_to_read(&settings, &originals));
        let mut plan = plan_files(&settings, &observed, &originals);
        let owner =
            |slot: &Slot| of_dir.get(directory(slot)).map(String::as_str).unwrap_or_default();
        // After reading: what was read may be from before a call that has ended since.
        let is_unsure = leave_to_runtime(&mut plan, &calls.recent(Instant::now()), owner);
        self.asked.retain(|slot, it| is_wrong(&plan, slot, &it.wanted));
        let (sifted, notices) = self.patience.sift(&settings, plan, |_| Author::Others, now);
        let mut outcome = SetsOutcome { notices, is_unsure, ..SetsOutcome::default() };
        for write in self.repair(kernel, sifted, now, &mut outcome) {
            let dir = directory(&write.slot);
            outcome.found.insert(owner(&write.slot).to_owned(), found_in(&observed, dir));
        }
        outcome
    }

    /// Whether a container's sets were never looked at: until then no change of them can be told.
    pub(super) fn has_unseen(&self) -> bool {
        self.has_unseen
    }

    /// Directories in which changes of others matter.
    pub(super) fn directories(&self) -> impl Iterator<Item = &String> {
        self.dirs.values()
    }

    /// All that is left to other programs is repaired with the next look, and all groups are looked for.
    pub(super) fn insist(&mut self) {
        self.patience.insist();
        self.lookups.retain(|_| false);
    }

    /// Sets that are left to another program.
    pub(super) fn contested(&self) -> usize {
        self.patience.contested().count()
    }

    /// Finds containers with sets that can be looked at. A container's group stays where it is as long as the container lives. `now` only ever grows.
    pub(super) fn find(&mut self, kernel: &mut dyn Kernel, occupancy: &Occupancy, now: Duration) {
        let watched = |it: &&Occupant| !occupancy.is_restored && has_sets(it);
        let occupants: Vec<&Occupant> = occupancy.occupants.iter().filter(watched).collect();
        let ids: BTreeSet<&str> = occupants.iter().map(|it| it.runtime_id.as_str()).collect();
        self.dirs.retain(|id, _| ids.contains(id.as_str()));
        self.lookups.retain(|id| ids.contains(id));
        for occupant in occupants {
            let Occupant { runtime_id, spec, .. } = occupant;
            if self.dirs.contains_key(runtime_id) {
                continue;
            }
            let parent = &spec.pod.cgroup_parent;
            let found = self.lookups.look(occupant, now, || {
                // Where it cannot be looked for, it is looked for again.
                find_cpuset_group(kernel, parent, runtime_id)
            });
            self.has_unseen |= found.is_some();
            self.dirs.extend(found.map(|dir| (runtime_id.clone(), dir)));
        }
    }

    /// Writes where the runtime was told in vain, and gives what it is to be told.
    fn repair(
        &mut self,
        kernel: &mut dyn Kernel,
        sifted: FilePlan,
        now: Duration,
        outcome: &mut SetsOutcome,
    ) -> Vec<FileWrite> {
        let is_in_vain = |write: &FileWrite| {
            self.may_write && self.asked.get(&write.slot).is_some_and(|it| it.was_right)
        };
        let (writes, told) = sifted.writes.into_iter().partition(is_in_vain);
        let told: Vec<FileWrite> = told;
        for write in &told {
            let drifted = |it: &Notice| matches!(it, Notice::Drifted { write: it, .. } if it.slot == write.slot);
            let was_right = outcome.notices.iter().any(drifted);
            let asked = Asked { wanted: write.new.clone(), was_right };
            let is_again = self.asked.insert(write.slot.clone(), asked).is_some();
            if is_again && self.patience.note(write, true, now) {
                outcome.failures.push(failure(write, "the runtime was told in vain"));
            }
        }
        outcome.report = apply(kernel, &FilePlan { writes, ..FilePlan::default() });
        for (write, end) in &outcome.report.outcomes {
            let why = end.as_ref().err().filter(|it| !it.is_gone());
            let is_new = self.patience.note(write, why.is_some(), now);
            outcome.failures.extend(why.filter(|_| is_new).map(|why| failure(write, why)));
        }
        told
    }
}

fn failure(FileWrite { slot, new, unit, .. }: &FileWrite, why: impl fmt::Display) -> String {
    format!("{slot} to {new} ({unit}): {why}")
}

/// Whether there are settings of it.
fn has_sets(occupant: &Occupant) -> bool {
    !occupant.mems.is_empty() || occupant.has_told_cpus()
}

/// What is left alone is not wanted to be anything.
fn settings_of(occupant: &Occupant, dir: &str) -> impl Iterator<Item = (Slot, Setting)> {
    let Occupant { name, cpus, mems, .. } = occupant;
    let cpus = occupant.has_told_cpus().then(|| cpus.to_string());
    let files = [(CPUS, cpus.unwrap_or_default()), (MEMS, mems.to_string())];
    let wanted = files.into_iter().filter(|(_, value)| !value.is_empty());
    let setting = |(file, value)| {
        let (unit, reason) = (name.clone(), "its place".to_owned());
        (Slot::file(format!("{dir}/{file}")), Setting { form: Form::Cpus, value, unit, reason })
    };
    wanted.map(setting).collect::<Vec<_>>().into_iter()
}

fn directory(slot: &Slot) -> &str {
    slot.path.rsplit_once('/').map(|(dir, _)| dir).unwrap_or_default()
}

/// Files of containers that the runtime is just told of are as good as unread. Whether there are some.
fn leave_to_runtime<'a>(
    plan: &mut FilePlan,
    recent: &BTreeSet<String>,
    owner: impl Fn(&Slot) -> &'a str,
) -> bool {
    let is_left = |write: &FileWrite| recent.contains(owner(&write.slot));
    let (left, writes): (Vec<_>, Vec<_>) =
        std::mem::take(&mut plan.writes).into_iter().partition(is_left);
    plan.writes = writes;
    let is_any = !left.is_empty();
    plan.impossible.extend(left.into_iter().map(|FileWrite { slot, unit, .. }| Impossible {
        slot,
        unit,
        why: "the runtime is being told of it".to_owned(),
    }));
    is_any
}

/// Not known to be right.
fn is_wrong(plan: &FilePlan, slot: &Slot, wanted: &str) -> bool {
    plan.writes.iter().any(|write| write.slot == *slot && write.new == wanted)
        || plan.impossible.iter().any(|it| it.slot == *slot)
}

/// What is no set is as if nothing were said.
fn found_in(observed: &Observed, dir: &str) -> Pinning {
    let text = |file| observed.get(&format!("{dir}/{file}"))?.as_ref().ok();
    let [cpus, mems] = [CPUS, MEMS].map(text);
    Pinning {
        cpus: cpus.and_then(|it| it.trim().parse().ok()).unwrap_or_default(),
        mems: mems.and_then(|it| it.trim().parse().ok()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
