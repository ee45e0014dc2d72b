//! Makes kernel files say what the placement needs, and gives them back. In: which container runs where, the configuration, the kernel's files. Out:
//! files that are as wanted, and a report.
//!
//! Everything that is wanted is gathered anew each time (`families.rs`), so there is no state to go wrong but the originals (`originals.rs`), which
//! are on disk before the first write, the patience with files that others change, and between sweeps what files said that were not written since
//! (`heard_kernel.rs`). The task around it is `task.rs`.

mod calls;
mod cpu_sets;
mod drift;
mod families;
mod groups;
mod heard_kernel;
mod held;
mod originals;
mod task;
mod view;
mod watcher;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_enforcement::{
    FilePlan, FileWrite, Notice, Patience, Reclaim, Settings, Slot, Told, Unmovable, author_of,
    disks_to_look_for, files_to_read, is_needed, plan_files,
};
use bayplan_host::kernel::{Kernel, Report, apply, observe};
use bayplan_types::Pinning;

use bayplan_node::occupancy::{Occupancy, Occupant};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub(crate) use calls::RuntimeCalls;
pub(crate) use drift::Drift;
pub(crate) use originals::{BOOT_ID, Originals, read_originals};
pub(crate) use task::{Enforcement, EnforcerTask, LOST, Questions, run_enforcer};
pub use view::{FilePlanView, render_file_plan_view};

use crate::config::{Config, EnforcementMode};
use crate::enforcer::cpu_sets::CpuSets;
pub(crate) use crate::enforcer::families::class_group;
pub(crate) use crate::enforcer::families::{
    ClassesKnown, SCARCE, asks_for_isolation, check_classes, has_isolcpus_only, patterns_of,
};
use crate::enforcer::families::{Context, Families, Gathered, TurnedSlots, gather_nothing};
use crate::enforcer::groups::{GroupOutcome, GroupWork, Settled};
use crate::enforcer::heard_kernel::HeardKernel;
use crate::enforcer::held::Held;

/// What came of looking once.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Everything that was to be written, before patience had its word.
    pub(crate) plan: FilePlan,
    /// What was written.
    pub(crate) report: Report,
    /// Groups of resctrl, and the threads in them.
    pub(crate) groups: GroupOutcome,
    /// Failures that an operator has not been told yet: what and why.
    pub(crate) failures: Vec<String>,
    /// What others did.
    pub(crate) notices: Vec<Notice>,
    /// What cannot be had here, in words.
    pub(crate) problems: Vec<String>,
    /// Why originals could not be read or kept; what needs them was not written.
    pub(crate) unkept: Option<String>,
    /// Files that are left to another program.
    pub(crate) contested: usize,
    /// Files with a last write that failed, and groups of resctrl that could not be made, removed or filled, each with the reason.
    pub(crate) failing: Vec<String>,
    /// Values that bayplan has changed.
    pub(crate) changed: usize,
    /// What became of each proposal of the rebalancer that is in files.
    pub(crate) turned: TurnedFiles,
    /// Containers from which idle memory is reclaimed.
    pub(crate) reclaims: Vec<Reclaim>,
    /// What the files say of containers with sets that were changed past the runtime, and of which the runtime is to be told again; by its ids.
    pub(crate) elsewhere: BTreeMap<String, Pinning>,
    /// CPU sets are to be looked at again soon.
    pub(crate) is_unsure: bool,
    /// What each container holds by its files.
    pub(crate) held: Held,
}

/// Of each proposal, by its number, whether its files say what it asks for; if not, why.
pub(crate) type TurnedFiles = BTreeMap<u64, Result<(), String>>;

impl Outcome {
    /// 1 where groups of resctrl were made or removed, otherwise 0.
    fn regroupings(&self) -> u64 {
        u64::from(!self.groups.changes.is_empty())
    }

    /// Of two looks, one right after the other.
    fn then(mut self, next: Outcome) -> Outcome {
        self.plan.writes.extend(next.plan.writes);
        self.report.outcomes.extend(next.report.outcomes);
        self.failures.extend(next.failures);
        self.notices.extend(next.notices);
        let mut turned = next.turned;
        for (number, end) in &mut turned {
            // What has failed is not tried a second time so soon, and the first one says why.
            if end.is_err()
                && let Some(first @ Err(_)) = self.turned.get(number)
            {
                *end = first.clone();
            }
        }
        Outcome {
            turned,
            held: next.held.after(&self.held),
            plan: FilePlan { writes: self.plan.writes, ..next.plan },
            report: self.report,
            groups: self.groups.then(next.groups),
            failures: self.failures,
            notices: self.notices,
            unkept: self.unkept.or(next.unkept),
            ..next
        }
    }
}

/// What came of giving everything back; format `bayplan-restored-files/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredFiles {
    /// Values that are as they were before.
    pub given_back: usize,
    /// Those that are not, and why.
    pub failures: Vec<String>,
}

/// What is kept from one look to the next.
pub(crate) struct Enforcer {
    kernel: HeardKernel,
    /// Of the next look.
    is_calm: bool,
    originals: Originals,
    patience: Patience,
    /// Containers that the runtime is told of, so that it may write their files.
    calls: RuntimeCalls,
    sets: CpuSets,
    /// The name of each container's pod's group, by the runtime's id.
    pods: BTreeMap<String, String>,
    /// What the kernel does not let any program change.
    unmovable: Unmovable,
    /// What went wrong with groups at the last look.
    group_failures: BTreeSet<String>,
    /// The last failure of each value that could not be written.
    refusals: BTreeMap<Slot, String>,
    /// Containers with threads that are in their groups of resctrl.
    settled: Settled,
    /// What is wanted of kernel files.
    families: Families,
    /// Something is wanted here, or was and cannot be had yet.
    has_work: bool,
    /// Where groups come that files are wanted of.
    awaited: BTreeSet<String>,
    /// Containers of which files are wanted, as of the last look, by the runtime's ids.
    with_files: Arc<BTreeSet<String>>,
}

impl std::fmt::Debug for Enforcer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enforcer").field("originals", &self.originals).finish_non_exhaustive()
    }
}

impl Enforcer {
    pub(crate) fn new(kernel: Box<dyn Kernel + Send>, originals: Originals) -> Enforcer {
        Enforcer {
            kernel: HeardKernel::new(kernel),
            is_calm: false,
            originals,
            patience: Patience::default(),
            calls: RuntimeCalls::default(),
            sets: CpuSets::default(),
            pods: BTreeMap::new(),
            unmovable: Unmovable::new(),
            group_failures: BTreeSet::new(),
            refusals: BTreeMap::new(),
            settled: Settled::default(),
            families: Families::default(),
            has_work: false,
            awaited: BTreeSet::new(),
            with_files: Arc::default(),
        }
    }

    /// What the runtime writes when it is called is not the work of another program.
    pub(crate) fn with_calls(self, calls: RuntimeCalls) -> Enforcer {
        Enforcer { calls, ..self }
    }

    /// Whether the next look is a sweep, and since the one before nothing was written by others and everything was listened to.
    pub(crate) fn set_calm(&mut self, is_calm: bool) {
        self.is_calm = is_calm;
    }

    /// What would be written now. `now` only ever grows.
    pub(crate) fn preview(
        &mut self,
        config: &Config,
        occupancy: &Occupancy,
        now: Duration,
    ) -> Outcome {
        self.begin_look(now);
        let gathered = self.wanted(config, occupancy, now);
        let Gathered { settings, kept_below, problems, groups: work, isolations, reclaims, .. } =
            gathered;
        let plan = self.plan(&settings, &kept_below, &work);
        let held = Held::new(settings, isolations, &reclaims, &plan, &Report::default());
        let held = held.without_reclaims();
        let groups = work.preview(&mut self.kernel);
        // What was read may not be listened to yet.
        self.kernel.forget();
        let contested = self.contested();
        let (failing, changed) = (self.failing(), self.originals.count());
        let unkept = self.originals.unread().map(str::to_owned);
        Outcome {
            plan,
            groups,
            problems,
            unkept,
            contested,
            failing,
            changed,
            reclaims,
            held,
            ..Outcome::default()
        }
    }

    /// Writes what is to be written. `now` only ever grows.
    pub(crate) fn enforce(
        &mut self,
        config: &Config,
        occupancy: &Occupancy,
        now: Duration,
    ) -> Outcome {
        let group = |it: &Occupant| (it.runtime_id.clone(), it.pod_group().to_owned());
        self.pods = occupancy.occupants.iter().map(group).collect();
        self.begin_look(now);
        self.look(now, |enforcer| enforcer.wanted(config, occupancy, now))
    }

    /// Adds what was changed past the runtime. `may_write`: where the runtime is told in vain, the files themselves are written.
    pub(crate) fn look_at_sets(
        &mut self,
        occupancy: &Occupancy,
        may_write: bool,
        now: Duration,
        outcome: &mut Outcome,
    ) {
        self.sets.may_write = may_write;
        let found = self.sets.look(&mut self.kernel, occupancy, &self.calls, now);
        (outcome.elsewhere, outcome.is_unsure) = (found.found, found.is_unsure);
        outcome.notices.extend(found.notices);
        outcome.failures.extend(found.failures);
        outcome.report.outcomes.extend(found.report.outcomes);
        outcome.contested = self.contested();
    }

    /// Whether there are CPU sets that [`Self::look_at_sets`] has not looked at yet.
    pub(crate) fn has_unseen_sets(&self) -> bool {
        self.sets.has_unseen()
    }

    /// Twice, where a governor or a switch has changed what other files say and take.
    fn look(&mut self, now: Duration, gather: impl Fn(&mut Enforcer) -> Gathered) -> Outcome {
        let gathered = gather(self);
        let first = self.carry_out(gathered, now);
        if !first.plan.changes_modes() {
            return first;
        }
        self.patience.unsettle();
        self.families.forget();
        let gathered = gather(self);
        first.then(self.carry_out(gathered, now))
    }

    fn carry_out(&mut self, gathered: Gathered, now: Duration) -> Outcome {
        let Gathered {
            settings,
            kept_below,
            mut problems,
            groups: mut work,
            turned,
            turned_threads,
            isolations,
            reclaims,
            cgroups: _,
            lacks_groups: _,
            arrivals: _,
        } = gathered;
        let mut groups = GroupOutcome::default();
        work.change(&mut self.kernel, &mut groups);
        problems.append(&mut groups.short);
        let plan = self.plan(&settings, &kept_below, &GroupWork::default());
        // After the files were read: a call that began since cannot have written what was found.
        let told = self.told();
        let author = |write: &FileWrite| author_of(write, self.originals.all(), &told);
        let (mut sifted, notices) = self.patience.sift(&settings, plan.clone(), author, now);
        let unkept = self.remember(&mut sifted).err();
        let unkept = unkept.or_else(|| self.originals.unread().map(str::to_owned));
        let report = apply(&mut self.kernel, &sifted);
        let mut failures = self.note_ends(&report, now);
        let mut returned = sifted.forget;
        returned.extend(report.given_back().cloned());
        self.originals.forget(&returned);
        work.assign(&mut self.kernel, &mut self.settled, now, &mut groups);
        failures.extend(self.news_of(&groups));
        let mut turned = turned_files(turned, &plan, &report);
        turned.extend(not_moved(turned_threads, &groups));
        let held = Held::new(settings, isolations, &reclaims, &plan, &report);
        let contested = self.contested();
        let (failing, changed) = (self.failing(), self.originals.count());
        Outcome {
            turned,
            reclaims,
            plan,
            report,
            groups,
            failures,
            notices,
            problems,
            unkept,
            contested,
            failing,
            changed,
            elsewhere: BTreeMap::new(),
            is_unsure: false,
            held,
        }
    }

    /// Gives what has failed and had not failed before.
    fn note_ends(&mut self, report: &Report, now: Duration) -> Vec<String> {
        let mut news = Vec::new();
        for (write, end) in &report.outcomes {
            let failure = end.as_ref().err().filter(|it| !it.is_gone());
            if failure.is_some_and(|it| it.is_for_good(&write.slot)) {
                self.unmovable.insert(write.slot.clone());
                continue;
            }
            let is_new = self.patience.note(write, failure.is_some(), now);
            if let Some(failure) = failure {
                let text = format!("{} to {} ({}): {failure}", write.slot, write.new, write.unit);
                news.extend(is_new.then(|| text.clone()));
                self.refusals.insert(write.slot.clone(), text);
            }
        }
        let failing: BTreeSet<&Slot> = self.patience.failing().collect();
        self.refusals.retain(|slot, _| failing.contains(slot));
        news
    }

    /// Containers with files that the runtime may have written.
    fn told(&self) -> Told {
        let ids = self.calls.recent(Instant::now());
        let pods = ids.iter().filter_map(|id| self.pods.get(id)).filter(|pod| !pod.is_empty());
        Told { pods: pods.cloned().collect(), ids }
    }

    /// What of it has not gone wrong at the look before, too.
    fn news_of(&mut self, groups: &GroupOutcome) -> Vec<String> {
        let failures: BTreeSet<String> = groups.failures.iter().cloned().collect();
        let known = std::mem::replace(&mut self.group_failures, failures);
        let news = groups.failures.iter().filter(|failure| !known.contains(*failure));
        news.cloned().collect()
    }

    /// Gives everything back.
    pub(crate) fn give_back(&mut self) -> RestoredFiles {
        let nothing = |enforcer: &mut Enforcer| gather_nothing(&mut enforcer.kernel);
        let Outcome { report, groups, unkept, .. } = self.look(Duration::ZERO, nothing);
        let failures = report.failures().filter(|(_, why)| !why.is_gone());
        let failures =
            failures.map(|(write, why)| format!("{} to {}: {why}", write.slot, write.new));
        let mut failures: Vec<String> = failures.collect();
        let given_back = report.outcomes.len() - failures.len();
        failures.extend(self.unread_files(&report));
        failures.extend(groups.failures);
        failures.extend(unkept);
        RestoredFiles { given_back, failures }
    }

    /// Originals that are still remembered although nothing was written: their files cannot be read, so it is not known whether they have them again.
    fn unread_files(&mut self, report: &Report) -> Vec<String> {
        let written: BTreeSet<&Slot> = report.failures().map(|(write, _)| &write.slot).collect();
        let left = self.originals.all().iter().filter(|(slot, _)| !written.contains(slot));
        let left = left.map(|(slot, original)| {
            let why = match self.kernel.read(&slot.path) {
                Ok(found) => format!("it says {:?}", found.trim()),
                Err(errno) => format!("it cannot be read: {errno:?}: {}", errno.desc()),
            };
            format!("{slot} to {}: {why}", original.value)
        });
        left.collect()
    }

    /// Values that could not be written, and groups and threads in them that are not as they should be, each with the reason.
    fn failing(&self) -> Vec<String> {
        let why =
            |slot: &Slot| self.refusals.get(slot).cloned().unwrap_or_else(|| slot.to_string());
        let values = self.patience.failing().map(why);
        values.chain(self.group_failures.iter().cloned()).collect()
    }

    /// Files that are left to another program.
    fn contested(&self) -> usize {
        self.patience.contested().count() + self.sets.contested()
    }

    /// Whatever has failed is tried again with the next look, and the threads of all containers are looked at.
    pub(crate) fn insist(&mut self) {
        self.patience.insist();
        self.sets.insist();
        self.settled.insist();
    }

    /// When a failed write, or reading what files said before, is due again.
    pub(crate) fn next_try(&self) -> Option<Duration> {
        self.patience.next_try().into_iter().chain(self.originals.next_try()).min()
    }

    /// It is not known what files said before earlier runs changed them.
    pub(crate) fn has_unread_originals(&self) -> bool {
        self.originals.unread().is_some()
    }

    fn begin_look(&mut self, now: Duration) {
        self.kernel.begin_look(std::mem::take(&mut self.is_calm));
        self.read_originals(now);
    }

    fn read_originals(&mut self, now: Duration) {
        tell_lost(&self.originals.read_again(now));
    }

    /// Directories in which changes of others matter.
    pub(crate) fn directories(&self) -> BTreeSet<String> {
        let dirs = self.patience.slots().filter_map(|slot| Some(slot.path.rsplit_once('/')?.0));
        let mut last = "";
        // Files of one directory follow each other.
        let dirs = dirs.filter(|dir| std::mem::replace(&mut last, dir) != *dir).map(str::to_owned);
        dirs.chain(self.sets.directories().cloned()).collect()
    }

    /// Directories in which a write, or a new group, is of a container that is being started: before its first instruction there is little time.
    pub(crate) fn awaited(&self) -> &BTreeSet<String> {
        &self.awaited
    }

    /// Containers of which files are wanted, as of the last look, by the runtime's ids.
    pub(crate) fn with_files(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.with_files)
    }

    fn wanted(&mut self, config: &Config, occupancy: &Occupancy, now: Duration) -> Gathered {
        self.sets.find(&mut self.kernel, occupancy, now);
        let is_off = occupancy.is_restored || config.enforcement == EnforcementMode::Off;
        let (kernel, originals) = (&mut self.kernel, self.originals.all());
        let gathered = if is_off {
            gather_nothing(kernel)
        } else {
            let starting = self.calls.starting(Instant::now());
            let time = config.cpu_classes.time_of_day(jiff::Timestamp::now());
            let unmovable = &self.unmovable;
            let mut context = Context { kernel, config, occupancy, originals, unmovable, time };
            self.families.gather(&mut context, starting)
        };
        self.awaited.clone_from(gathered.arrivals.awaited());
        self.with_files = Arc::new(gathered.arrivals.wanted().clone());
        let Gathered { settings, problems, groups, reclaims, .. } = &gathered;
        let is_scheduled = !is_off && !config.cpu_classes.schedule.is_empty();
        self.has_work = !settings.is_empty()
            || !problems.is_empty()
            || !groups.is_empty()
            || !reclaims.is_empty()
            || gathered.lacks_groups
            || self.originals.count() > 0
            || self.originals.unread().is_some()
            || is_scheduled
            || self.sets.directories().next().is_some();
        gathered
    }

    /// Otherwise nothing has to be looked at until the state changes.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work
    }

    /// With the groups that are still to be made. What is below `kept_below` and not wanted is not given back.
    fn plan(&mut self, settings: &Settings, kept_below: &[&str], groups: &GroupWork) -> FilePlan {
        let is_kept = |slot: &Slot| kept_below.iter().any(|dir| slot.path.starts_with(*dir));
        let mut originals = Cow::Borrowed(self.originals.all());
        if !kept_below.is_empty() {
            originals.to_mut().retain(|slot, _| settings.contains_key(slot) || !is_kept(slot));
        }
        let originals = &*originals;
        let mut observed = observe(&mut self.kernel, files_to_read(settings, originals));
        let disks = disks_to_look_for(settings, originals);
        observed.extend(observe(&mut self.kernel, disks.iter().map(String::as_str)));
        groups.foresee(&mut observed);
        plan_files(settings, &observed, originals)
    }

    /// What cannot be given back is not changed.
    fn remember(&mut self, plan: &mut FilePlan) -> Result<(), String> {
        let FilePlan { remember, writes, .. } = plan;
        remember.retain(|slot, original| is_needed(slot, &original.form, writes));
        let kept = self.originals.remember(remember);
        if kept.is_err() {
            writes.retain(|write| !remember.contains_key(&write.slot));
        }
        kept
    }
}

/// What is lost of the originals.
pub(crate) fn tell_lost(told: &[String]) {
    for line in told {
        tracing::warn!("of what kernel files said before: {line}");
    }
}

/// Whether files say what proposals ask for. `plan` is what was to be written, `report` what was.
fn turned_files(turned: TurnedSlots, plan: &FilePlan, report: &Report) -> TurnedFiles {
    let check = |slot: &Slot| {
        if let Some(it) = plan.impossible.iter().find(|it| it.slot == *slot) {
            return Err(format!("{slot}: {}", it.why));
        }
        let mut written = report.outcomes.iter().filter(|(write, _)| write.slot == *slot);
        match written.next_back() {
            Some((_, Ok(()))) => Ok(()),
            Some((_, Err(why))) => Err(format!("{slot}: {why}")),
            None if plan.writes.iter().any(|write| write.slot == *slot) => {
                Err(format!("{slot} is not written now"))
            }
            None => Ok(()),
        }
    };
    let check_all = |slots: Vec<Slot>| slots.iter().try_for_each(check);
    turned.into_iter().map(|(number, slots)| (number, slots.and_then(check_all))).collect()
}

/// Of proposals that are a class for a container's threads, those with threads that are not there.
fn not_moved(threads: BTreeMap<u64, String>, groups: &GroupOutcome) -> TurnedFiles {
    let why = |unit: &String| Some(Err(format!("its threads: {}", groups.outside.get(unit)?)));
    threads.iter().filter_map(|(number, unit)| Some((*number, why(unit)?))).collect()
}

#[cfg(test)]
mod tests;
