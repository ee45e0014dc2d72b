//! CPU sets on their way to the runtime. In: plans as they are made, and how each write ends. Out: containers made to leave CPUs by the kernel at once;
//! which updates the daemon itself has caused.
//!
//! Problem: within an NRI event the runtime takes no update, and for a call of the CRI proxy updates take too long, but the CPUs that the answer gives
//! away must be free. Approach: the set of each container with an update that is not confirmed is narrowed in its cgroup's file, which only takes CPUs
//! away; the runtime is told the same by the answer to an event, or by the pinning task afterwards. Growing is left to the pinning task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bayplan_enforcement::Write;
use bayplan_host::kernel::Kernel;
use bayplan_host::{CgroupError, find_cpuset_group};
use bayplan_nri::front_end::{LetGo, Origin};
use bayplan_types::{CpuSet, Pinning};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::lookups::Lookups;

/// Updates of one answer beyond those that the kernel could not be told: the runtime makes them one after the other, some 10 ms each, and nothing else meanwhile.
const LISTED_MAX: usize = 16;

/// How long an update waits for events that are answered: one after the other they could hold it up for good.
const YIELD_MAX: Duration = Duration::from_millis(200);

/// Clones share everything. The default is for calls that can wait for the runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unconfirmed {
    shared: Arc<Shared>,
    for_events: bool,
}

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    /// Events that are making containers leave CPUs.
    narrowing: watch::Sender<usize>,
    /// Changes whenever the runtime was told something.
    ended: watch::Sender<()>,
    /// Held from the reading of a file to its writing: two threads narrow containers.
    files: Mutex<()>,
}

/// An event makes containers leave CPUs until this is dropped.
#[derive(Debug)]
pub(crate) struct Narrowing(Arc<Shared>);

impl Drop for Narrowing {
    fn drop(&mut self) {
        self.0.narrowing.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[derive(Debug)]
struct Table {
    /// By the runtime's id.
    sets: BTreeMap<String, Wanted>,
    /// What the runtime is being told, or was without an answer, by its id.
    told: BTreeMap<String, Vec<Pinning>>,
    /// How many updates of a container the runtime is at now, without those that have taken too long.
    under_way: BTreeMap<String, usize>,
    /// How many changes of a container's resources by kubelet are on their way through the proxy.
    forwarded: BTreeMap<String, usize>,
    /// Containers that the last answer has told the runtime of. Whether it has arrived is known when another event comes.
    listed: Vec<String>,
    /// All that were planned and have not ended, by the runtime's id.
    known: BTreeMap<String, Known>,
    /// Those of them without a cgroup: a runtime may have none for all of its containers.
    lookups: Lookups<Instant, ()>,
    /// The last plan.
    plan: PlanNumber,
}

/// Plans are written in the order in which they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlanNumber(u64);

#[derive(Debug)]
struct Known {
    /// Its last plan.
    plan: PlanNumber,
    /// Its pod's cgroup as kubelet names it.
    parent: String,
    /// Its cgroup, once it was found; it stays there as long as it lives.
    dir: Option<String>,
}

/// What the runtime is to be told of a write now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// This, and [`Unconfirmed::end`] must follow.
    Tell,
    /// Nothing: it knows where the container is to be in the end.
    Known,
    /// Nothing before a later plan's write.
    Overtaken,
}

/// What [`Unconfirmed::take_away`] leaves to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// No process of these runs: the runtime has to hear of it before one starts.
    pub(crate) absent: Vec<(String, PlanNumber, Pinning)>,
    /// These are, or may soon be, on CPUs that they have to leave.
    pub(crate) stuck: Vec<String>,
    /// These were planned anew while they were narrowed: they may have too few CPUs.
    pub(crate) raced: Vec<String>,
}

/// Where a container is to be in the end.
#[derive(Clone, Debug)]
struct Wanted {
    new: Pinning,
    plan: PlanNumber,
    /// It runs there, and an answer that has been given tells the runtime.
    is_carried: bool,
}

/// What came of narrowing containers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    /// For the answer.
    pub(crate) let_go: LetGo,
    /// Those of its updates that the kernel has carried out.
    carried: Vec<(String, Pinning)>,
    /// As [`Remaining::raced`].
    pub(crate) raced: Vec<String>,
}

/// What became of one container.
#[derive(Debug, PartialEq, Eq)]
enum Narrowed {
    /// It was on none of the CPUs that it has to leave.
    NotNeeded,
    /// It runs there now.
    Done(Box<Pinning>),
    /// It has no cgroup: no process of it runs.
    Absent,
    /// It is on none of the CPUs that it could keep, and stays there.
    Elsewhere,
    /// It runs where it did.
    Failed(String),
}

impl Unconfirmed {
    /// For events of the runtime.
    pub(crate) fn for_events() -> Unconfirmed {
        Unconfirmed { shared: Arc::default(), for_events: true }
    }

    /// Whether calls of the front end are events, which must not wait for the runtime.
    pub(crate) fn is_for_events(&self) -> bool {
        self.for_events
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime waits for the answer to an event, and what it does for updates, a process for each, is in the way of that.
    pub(crate) fn narrowing(&self) -> Narrowing {
        self.shared.narrowing.send_modify(|count| *count += 1);
        Narrowing(Arc::clone(&self.shared))
    }

    /// Until no event makes containers leave CPUs, but not for ever.
    pub(crate) async fn yield_to_events(&self) {
        let mut narrowing = self.shared.narrowing.subscribe();
        let _elapsed = timeout(YIELD_MAX, narrowing.wait_for(|count| *count == 0)).await;
    }

    /// These are about to be written; the last one of a container says where it is to be in the end.
    pub(crate) fn plan(&self, writes: &[Write], parent: impl Fn(&str) -> String) -> PlanNumber {
        let mut table = self.table();
        table.plan.0 += 1;
        let plan = table.plan;
        for Write { container, new, .. } in writes {
            let known = || Known { plan, parent: parent(container), dir: None };
            table.known.entry(container.clone()).or_insert_with(known).plan = plan;
            let wanted = Wanted { new: new.clone(), plan, is_carried: false };
            table.sets.insert(container.clone(), wanted);
        }
        plan
    }

    /// These are gone.
    pub(crate) fn forget(&self, containers: &[String]) {
        let mut table = self.table();
        for container in containers {
            table.sets.remove(container);
            table.told.remove(container);
            table.known.remove(container);
            table.lookups.forget(container);
            table.forwarded.remove(container);
        }
    }

    /// It has been started, so it has a cgroup.
    pub(crate) fn look_again(&self, container: &str) {
        self.table().lookups.forget(container);
    }

    /// A change of its resources by kubelet is on its way, with CPUs as they are or were until now; [`Self::forwarded`] follows.
    pub(crate) fn forward(&self, container: &str) {
        *self.table().forwarded.entry(container.to_owned()).or_default() += 1;
    }

    /// It has arrived, or was refused.
    pub(crate) fn forwarded(&self, container: &str) {
        take_one(&mut self.table().forwarded, container);
    }

    /// What the runtime is to be told of a write of this plan, as it is now.
    pub(crate) fn stand(&self, write: &Write, plan: PlanNumber) -> Begin {
        self.table().stand(&write.container, plan)
    }

    /// Takes the CPUs away from a container that it has to leave by this write, in the kernel, without a word to the runtime. True: it has left them. An overtaken write gives no CPUs:
    /// since then they may have been given to another container. Reads and writes files, so it is for a thread that may block.
    pub(crate) fn leave(&self, kernel: &mut dyn Kernel, write: &Write) -> bool {
        let narrowed = self.narrow(kernel, &write.container, &write.new, keep);
        matches!(narrowed, Narrowed::NotNeeded | Narrowed::Done(_))
    }

    /// The runtime is about to be told of a write of this plan; `None`: whatever later plans say.
    pub(crate) fn begin(&self, write: &Write, plan: Option<PlanNumber>) -> Begin {
        let mut table = self.table();
        let container = &write.container;
        let wanted = table.sets.get(container);
        if wanted.is_some_and(|it| it.is_carried && it.new == write.new) {
            table.sets.remove(container);
            return Begin::Known;
        }
        let stands = plan.map_or(Begin::Tell, |plan| table.stand(container, plan));
        if stands != Begin::Tell {
            return stands;
        }
        let told = table.told.entry(container.clone()).or_default();
        // A runtime that hangs is told the same again and again.
        if !told.contains(&write.new) {
            told.push(write.new.clone());
        }
        *table.under_way.entry(container.clone()).or_default() += 1;
        Begin::Tell
    }

    /// What became of a write; `None`: the runtime may still be at it. A failed one stays unconfirmed until it is planned anew or its container has ended.
    pub(crate) fn end(&self, write: &Write, is_done: Option<bool>) {
        let mut table = self.table();
        take_one(&mut table.under_way, &write.container);
        if is_done.is_some() {
            table.told.remove(&write.container);
        }
        let wanted = table.sets.get(&write.container);
        if is_done == Some(true) && wanted.is_some_and(|it| it.new == write.new) {
            table.sets.remove(&write.container);
        }
        drop(table);
        self.shared.ended.send_replace(());
    }

    /// Waits until the runtime is at no update of this container, or for so long.
    pub(crate) async fn until_told(&self, container: &str, limit: Duration) {
        let mut ended = self.shared.ended.subscribe();
        let is_told = |(): &()| !self.table().under_way.contains_key(container);
        let _elapsed = timeout(limit, ended.wait_for(is_told)).await;
    }

    /// Waits until the runtime is at no update that gives a container CPUs which it has to leave, or for so long.
    pub(crate) async fn until_none_is_given_more(&self, limit: Duration) {
        let mut ended = self.shared.ended.subscribe();
        let is_over = |(): &()| {
            let table = self.table();
            !table.under_way.keys().any(|id| table.is_told_more(id))
        };
        let _elapsed = timeout(limit, ended.wait_for(is_over)).await;
    }

    /// Where the update comes from that moves this container there.
    pub(crate) fn origin(&self, container: &str, asked: &Pinning) -> Origin {
        let table = self.table();
        let is_own = table.told.get(container).is_some_and(|told| told.contains(asked));
        match table.sets.get(container) {
            _ if !is_own => Origin::Other,
            Some(wanted) if !asked.cpus.is_subset(&wanted.new.cpus) => {
                let cpus = narrow(&asked.cpus, &wanted.new.cpus);
                Origin::Overtaken(Box::new(Pinning { cpus, mems: wanted.new.mems.clone() }))
            }
            _ => Origin::Own,
        }
    }

    /// The runtime knows where each container is to be.
    pub(crate) fn is_empty(&self) -> bool {
        self.table().sets.is_empty()
    }

    /// Takes CPUs that containers should have left away from them, all but `except`, in the kernel. Reads and writes files, so it is for a thread that may block.
    pub(crate) fn let_go(&self, kernel: &mut dyn Kernel, except: &str) -> Freed {
        let sets = self.table().sets.clone();
        let (mut listed, mut stuck, mut carried) = (Vec::new(), Vec::new(), Vec::new());
        let mut raced = Vec::new();
        for (container, wanted) in sets.iter().filter(|(id, _)| *id != except) {
            match self.narrow(kernel, container, &wanted.new, |there, new| Some(narrow(there, new)))
            {
                Narrowed::NotNeeded | Narrowed::Elsewhere => {}
                Narrowed::Absent => listed.push((container.clone(), wanted.new.clone())),
                Narrowed::Failed(why) => {
                    tracing::warn!(container, why, "the kernel does not take CPUs away from it");
                    stuck.push(container.clone());
                    listed.push((container.clone(), wanted.new.clone()));
                }
                Narrowed::Done(there) => {
                    raced.extend(self.planned_since(container, wanted));
                    carried.push((container.clone(), *there));
                }
            }
        }
        carried.truncate(LISTED_MAX.saturating_sub(listed.len()));
        listed.extend(carried.iter().cloned());
        Freed { let_go: LetGo { updates: listed, stuck }, carried, raced }
    }

    /// As [`Self::let_go`] for a call that can wait for what the kernel cannot do: a container that would keep none of its CPUs stays where it is, since the others may still be another
    /// container's.
    pub(crate) fn take_away(&self, kernel: &mut dyn Kernel) -> Remaining {
        let sets = self.table().sets.clone();
        let mut remaining = Remaining::default();
        for (container, wanted) in &sets {
            let may_be_given_more = self.table().may_be_given_more(container);
            match self.narrow(kernel, container, &wanted.new, keep) {
                // It has left, but may not stay there.
                _ if may_be_given_more => remaining.stuck.push(container.clone()),
                Narrowed::NotNeeded => {}
                Narrowed::Done(_) => remaining.raced.extend(self.planned_since(container, wanted)),
                Narrowed::Absent => {
                    remaining.absent.push((container.clone(), wanted.plan, wanted.new.clone()));
                }
                Narrowed::Elsewhere => remaining.stuck.push(container.clone()),
                Narrowed::Failed(why) => {
                    tracing::warn!(container, why, "the kernel does not take CPUs away from it");
                    remaining.stuck.push(container.clone());
                }
            }
        }
        remaining
    }

    /// The container, if it was planned anew after this.
    fn planned_since(&self, container: &str, wanted: &Wanted) -> Option<String> {
        self.table().is_overtaken(container, wanted.plan).then(|| container.to_owned())
    }

    /// Where the container's cgroup is, if it has one.
    fn dir_of(&self, kernel: &mut dyn Kernel, id: &str) -> Result<Option<String>, CgroupError> {
        let now = Instant::now();
        let parent = {
            let table = self.table();
            match table.known.get(id) {
                None => return Ok(None),
                Some(known) if known.dir.is_some() => return Ok(known.dir.clone()),
                Some(_) if table.lookups.is_early(id, &(), now) => return Ok(None),
                Some(known) => known.parent.clone(),
            }
        };
        let found = find_cpuset_group(kernel, &parent, id)?;
        let mut table = self.table();
        match &found {
            None => table.lookups.miss(id, (), now),
            Some(dir) => {
                table.lookups.forget(id);
                if let Some(known) = table.known.get_mut(id) {
                    known.dir = Some(dir.clone());
                }
            }
        }
        Ok(found)
    }

    /// Sets the CPUs of a container in the kernel to what `choose` makes of those that it has and those of `new`; `None`: they stay.
    fn narrow(
        &self,
        kernel: &mut dyn Kernel,
        id: &str,
        new: &Pinning,
        choose: fn(&CpuSet, &CpuSet) -> Option<CpuSet>,
    ) -> Narrowed {
        if new.cpus.is_empty() {
            return Narrowed::NotNeeded;
        }
        let dir = match self.dir_of(kernel, id) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Narrowed::Absent,
            Err(why) => return Narrowed::Failed(why.to_string()),
        };
        let _files = self.shared.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = format!("{dir}/cpuset.cpus");
        let Some(there) = read_cpus(kernel, &dir) else {
            return match kernel.is_there(&file) {
                true => Narrowed::Failed(format!("{file} cannot be read")),
                false => Narrowed::Absent,
            };
        };
        // Empty: it may run wherever the group around it may.
        if !there.is_empty() && there.is_subset(&new.cpus) {
            return Narrowed::NotNeeded;
        }
        let Some(cpus) = choose(&there, &new.cpus) else { return Narrowed::Elsewhere };
        if let Err(errno) = kernel.write(&file, &cpus.to_string()) {
            return Narrowed::Failed(format!("{file} to {cpus}: {errno}"));
        }
        match read_cpus(kernel, &dir) {
            Some(read) if read == cpus => {
                Narrowed::Done(Box::new(Pinning { cpus, mems: new.mems.clone() }))
            }
            read => {
                let read = read.map_or("no list".to_owned(), |it| it.to_string());
                Narrowed::Failed(format!("{file} is {read} after {cpus} was written"))
            }
        }
    }

    /// An answer with these updates is given. Those that the kernel has carried out are not told again; the runtime may fail to make the others, and does not say so.
    pub(crate) fn note_answer(&self, Freed { let_go, carried, .. }: &Freed) {
        let mut table = self.table();
        table.listed = let_go.updates.iter().map(|(container, _)| container.clone()).collect();
        for (container, there) in carried {
            if let Some(wanted) = table.sets.get_mut(container) {
                wanted.is_carried = wanted.new == *there;
            }
        }
    }

    /// The last answer may not have arrived: the containers that it has told of are told again, unless their writes are still to come.
    pub(crate) fn doubt_answer(&self) -> Vec<String> {
        let mut table = self.table();
        let mut listed = std::mem::take(&mut table.listed);
        listed.retain(|container| {
            let wanted = table.sets.get_mut(container);
            let is_to_come = wanted.is_some();
            wanted.into_iter().for_each(|it| it.is_carried = false);
            !is_to_come
        });
        listed
    }

    /// Containers that run on CPUs of this place although they should not; as after [`Self::let_go`].
    pub(crate) fn overlapping(
        &self,
        kernel: &mut dyn Kernel,
        stuck: &[String],
        place: &CpuSet,
    ) -> Vec<String> {
        let sets = self.table().sets.clone();
        let mut found = Vec::new();
        for id in stuck {
            let dir = self.dir_of(kernel, id).ok().flatten();
            let there = dir.and_then(|dir| read_cpus(kernel, &dir));
            let new = sets.get(id).map(|it| it.new.cpus.clone()).unwrap_or_default();
            // CPUs that it may keep are no reason. Where it is not known where it runs, or everywhere, it may run there.
            let is_there =
                |cpus: CpuSet| cpus.is_empty() || cpus.difference(&new).intersects(place);
            if there.is_none_or(is_there) {
                found.push(id.clone());
            }
        }
        found
    }
}

impl Default for Table {
    fn default() -> Table {
        Table {
            sets: BTreeMap::new(),
            told: BTreeMap::new(),
            under_way: BTreeMap::new(),
            forwarded: BTreeMap::new(),
            listed: Vec::new(),
            known: BTreeMap::new(),
            lookups: Lookups::of_sets(),
            plan: PlanNumber::default(),
        }
    }
}

impl Table {
    /// A later plan than this one says where the container is to be in the end.
    fn is_overtaken(&self, container: &str, plan: PlanNumber) -> bool {
        self.known.get(container).is_some_and(|known| known.plan > plan)
    }

    fn stand(&self, container: &str, plan: PlanNumber) -> Begin {
        // What it was told of the last plan is what it is told of all before.
        match (self.sets.contains_key(container), self.is_overtaken(container, plan)) {
            (false, _) => Begin::Known,
            (true, true) => Begin::Overtaken,
            (true, false) => Begin::Tell,
        }
    }

    /// The runtime may still come to an update that gives the container CPUs which it has to leave.
    fn is_told_more(&self, container: &str) -> bool {
        let (Some(wanted), Some(told)) = (self.sets.get(container), self.told.get(container))
        else {
            return false;
        };
        let may_have = &wanted.new.cpus;
        !may_have.is_empty() && told.iter().any(|told| !told.cpus.is_subset(may_have))
    }

    /// The same, or kubelet's update may be such a one.
    fn may_be_given_more(&self, container: &str) -> bool {
        let is_forwarded =
            self.forwarded.contains_key(container) && self.sets.contains_key(container);
        is_forwarded || self.is_told_more(container)
    }
}

fn take_one(counts: &mut BTreeMap<String, usize>, container: &str) {
    if let Some(count) = counts.get_mut(container) {
        *count -= 1;
        if *count == 0 {
            counts.remove(container);
        }
    }
}

/// What is left of `there` in `new`, if that is anything.
fn keep(there: &CpuSet, new: &CpuSet) -> Option<CpuSet> {
    Some(there.intersection(new)).filter(|kept| !kept.is_empty())
}

/// What is left of `there` in `new`; all of `new` where that is nothing.
fn narrow(there: &CpuSet, new: &CpuSet) -> CpuSet {
    let kept = there.intersection(new);
    if kept.is_empty() { new.clone() } else { kept }
}

/// `None`: the file cannot be read, or is no list.
fn read_cpus(kernel: &mut dyn Kernel, dir: &str) -> Option<CpuSet> {
    kernel.read(&format!("{dir}/cpuset.cpus")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
