//! Reads what the kernel counts about containers and the node. In: which containers are there, the time. Out: counters for scrapes.
//!
//! Files stay open from one reading to the next. A container that is gone disappears with the next reading; what a kernel or a machine does not count
//! is absent.

mod metric;
mod shown;
mod table;
mod used;
mod vectors;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bayplan_host::counters::{
    GroupCounters, GroupFiles, MonitorCounters, Monitored, Monitors, NodeCounters, NodeFiles,
};
use bayplan_host::kernel::{DiskKernel, Kernel as _};
use bayplan_host::{VectorUse, read_holding};
use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_rebalance::Mode;
use bayplan_types::{Bytes, CpuClass, CpuId, NodeSet};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, LiveConfig};
use crate::inbox::Inbox;
use crate::lookups::Lookups;

pub(crate) use shown::Shown;
use vectors::{VectorFiles, used_much};

/// One reading of everything.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// When it was made; `None` before the first.
    at: Option<Instant>,
    containers: Vec<ContainerReading>,
    node: NodeCounters,
    /// By class of the configuration's `resctrl`.
    caches: BTreeMap<String, MonitorCounters>,
    /// Since the daemon started, in microjoules.
    energy_uj: BTreeMap<String, u64>,
    /// Since the daemon started, in hundredths of a second, by what the CPUs were used for at the time.
    idle_ticks: BTreeMap<CpuClass, u64>,
}

/// One container.
#[derive(Debug)]
struct ContainerReading {
    runtime_id: String,
    name: ContainerLabels,
    /// CPUs of its own, and the others that it may run on, which are reserved ones or shared.
    cpus: [(CpuClass, usize); 2],
    /// CPUs on which the kernel lets it run.
    effective_cpus: Option<usize>,
    counters: GroupCounters,
    /// Memory on the nodes that it is to use, and elsewhere.
    placed: Option<Placed>,
    /// The same of the nodes that its memory belongs on.
    at_home: Option<Placed>,
    /// By its monitor group, if it has one.
    caches: MonitorCounters,
    /// Of some of its threads since the last reading.
    vectors: Option<VectorUse>,
}

/// What a container's memory is near to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) near: Bytes,
    pub(crate) far: Bytes,
}

/// The last reading of every container, for code that compares it with the one before.
#[derive(Clone, Debug)]
pub(crate) struct GroupsRead {
    pub(crate) at: Instant,
    /// By the runtime's id; with what of its memory is where it belongs.
    pub(crate) groups: BTreeMap<String, (GroupCounters, Option<Placed>)>,
    /// Of containers that have a monitor group, by the runtime's id.
    pub(crate) caches: BTreeMap<String, MonitorCounters>,
    /// As [`NodeCounters::idle_ticks`].
    pub(crate) idle_ticks: BTreeMap<CpuId, u64>,
    /// As [`NodeCounters::frequencies_khz`].
    pub(crate) frequencies_khz: BTreeMap<CpuId, u64>,
}

impl Reading {
    /// `None` before the first.
    fn groups(&self) -> Option<GroupsRead> {
        let of_each = self.containers.iter();
        let groups =
            of_each.map(|it| (it.runtime_id.clone(), (it.counters.clone(), it.at_home))).collect();
        let of_each = self.containers.iter();
        let caches = of_each.map(|it| (it.runtime_id.clone(), it.caches)).collect();
        let idle_ticks = self.node.idle_ticks.clone();
        let frequencies_khz = self.node.frequencies_khz.clone();
        Some(GroupsRead { at: self.at?, groups, caches, idle_ticks, frequencies_khz })
    }

    /// Use of wide vectors by container, by the runtime's ids.
    fn vectors(&self) -> impl Iterator<Item = (&str, Option<VectorUse>)> {
        self.containers.iter().map(|it| (it.runtime_id.as_str(), it.vectors))
    }

    /// CPU time of containers, by the runtime's ids.
    fn cpu_usec(&self) -> BTreeMap<&str, u64> {
        let containers = self.containers.iter();
        containers.filter_map(|it| Some((it.runtime_id.as_str(), it.counters.cpu_usec?))).collect()
    }
}

impl Shown {
    /// The last reading; `None` before the first.
    pub(crate) fn groups(&self) -> Option<GroupsRead> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).groups()
    }

    /// The reading before the last; `None` before the second.
    pub(crate) fn groups_before(&self) -> Option<GroupsRead> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).groups()
    }

    /// What threads of a container of this name did with AVX-512; `None` where that is not told.
    pub(crate) fn vectors_of(&self, name: &str) -> Option<VectorUse> {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = reading.containers.iter();
        let found = all.find(|it| {
            let ContainerLabels { namespace, pod, container } = &it.name;
            name == format!("{namespace}/{pod}/{container}")
        });
        found?.vectors
    }

    /// Comes back when there is a reading that it has not come back for; `false` when there will be none any more.
    pub(crate) async fn fresh(&self) -> bool {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => false,
            () = self.fresh.notified() => true,
        }
    }

    /// For when a bug has ended the reading. Numbers that stand still would be taken for a quiet node.
    pub(crate) async fn lose(self) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Reading::default();
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Reading::default();
        self.lost.cancel();
    }

    /// As if there were one.
    #[cfg(test)]
    pub(crate) fn note_fresh(&self) {
        self.fresh.notify_one();
    }
}

/// Which container it is. A name belongs to one container at a time: of several attempts, the latest.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prometheus_client::encoding::EncodeLabelSet,
)]
pub(crate) struct ContainerLabels {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

impl ContainerLabels {
    pub(crate) fn of(occupant: &Occupant) -> ContainerLabels {
        ContainerLabels {
            namespace: occupant.spec.pod.namespace.clone(),
            pod: occupant.spec.pod.name.clone(),
            container: occupant.spec.name.clone(),
        }
    }
}

/// The open files.
struct Reader {
    config: LiveConfig,
    kernel: Option<DiskKernel>,
    groups: BTreeMap<String, GroupFiles>,
    lookups: Lookups,
    vectors: VectorFiles,
    monitors: Monitors,
    node: Option<NodeFiles>,
    /// The CPUs that were online when these were opened, in the kernel's words.
    online: Option<String>,
    buffer: Vec<u8>,
    last_uj: BTreeMap<String, u64>,
    energy_uj: BTreeMap<String, u64>,
    last_idle: BTreeMap<CpuId, u64>,
    idle_ticks: BTreeMap<CpuClass, u64>,
}

/// Reads every `observeInterval`, or as often as the rebalancer looks, for ever.
pub(crate) async fn observe(inbox: Inbox, config: LiveConfig, shown: Shown) {
    let mut reader = Reader::new(config.clone());
    loop {
        let mut ticks = tokio::time::interval(interval_of(&config.borrow()));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let Some(Answer::Occupancy(occupancy)) = inbox.ask(Event::Occupancy).await else { return };
        let read = tokio::task::spawn_blocking(move || {
            let reading = reader.read(&occupancy, Instant::now());
            (reader, reading)
        });
        let reading = match read.await {
            Ok((back, reading)) => {
                reader = back;
                reading
            }
            Err(error) => {
                tracing::error!(%error, "counters of containers and the node begin anew");
                reader = Reader::new(config.clone());
                Reading::default()
            }
        };
        let follows = config.borrow().groups.iter().any(|it| it.follows.is_some());
        let wide = config.borrow().wide_vectors;
        let counts_vectors = wide.is_on() && wide.is_measured;
        let (used, vectors) = {
            let mut shown_reading = shown.reading.lock().unwrap_or_else(PoisonError::into_inner);
            let last = std::mem::replace(&mut *shown_reading, reading);
            let span = last.at.zip(shown_reading.at).map(|(then, now)| now.duration_since(then));
            let used = match follows || counts_vectors {
                true => used::used(span, &last.cpu_usec(), &shown_reading.cpu_usec()),
                false => BTreeMap::new(),
            };
            let vectors = counts_vectors.then(|| used_much(shown_reading.vectors(), &used));
            *shown.before.lock().unwrap_or_else(PoisonError::into_inner) = last;
            (used, vectors.unwrap_or_default())
        };
        shown.fresh.notify_one();
        if !vectors.is_empty() {
            inbox.ask(Event::VectorsSeen(vectors)).await;
        }
        if follows && !used.is_empty() {
            inbox.ask(Event::Used(used)).await;
        }
        ticks.tick().await;
    }
}

/// One reading serves all callers.
fn interval_of(config: &Config) -> Duration {
    match config.rebalance.mode {
        Mode::Off => config.observe_interval,
        Mode::Observe | Mode::Act => config.observe_interval.min(config.rebalance.interval),
    }
}

impl Reader {
    fn new(config: LiveConfig) -> Reader {
        let root = config.borrow().host_root.clone();
        let kernel = DiskKernel::open(&root).ok();
        Reader {
            config,
            kernel,
            groups: BTreeMap::new(),
            lookups: Lookups::default(),
            vectors: VectorFiles::default(),
            monitors: Monitors::default(),
            node: None,
            online: None,
            buffer: Vec::new(),
            last_uj: BTreeMap::new(),
            energy_uj: BTreeMap::new(),
            last_idle: BTreeMap::new(),
            idle_ticks: BTreeMap::new(),
        }
    }

    fn read(&mut self, occupancy: &Occupancy, now: Instant) -> Reading {
        let mut latest: BTreeMap<ContainerLabels, &Occupant> = BTreeMap::new();
        for occupant in &occupancy.occupants {
            let slot = latest.entry(ContainerLabels::of(occupant)).or_insert(occupant);
            if slot.spec.attempt < occupant.spec.attempt {
                *slot = occupant;
            }
        }
        let ids: BTreeSet<&str> = latest.values().map(|it| it.runtime_id.as_str()).collect();
        self.groups.retain(|id, _| ids.contains(id.as_str()));
        self.lookups.retain(|id| ids.contains(id));
        self.open_node();
        if let Some(kernel) = &mut self.kernel {
            self.vectors.begin(kernel, &ids, now);
        }
        let mut monitored = self.monitored();
        let containers: Vec<ContainerReading> = latest
            .into_iter()
            .filter_map(|(name, occupant)| {
                let counters = self.read_group(occupant, now)?;
                Some(ContainerReading {
                    runtime_id: occupant.runtime_id.clone(),
                    name,
                    cpus: cpus_of(occupant),
                    effective_cpus: self.effective_cpus(occupant),
                    vectors: self.kernel.as_mut().and_then(|it| self.vectors.read(it, occupant)),
                    placed: placed(&counters, &occupant.mems),
                    at_home: placed(&counters, occupant.home.as_ref().unwrap_or(&occupant.mems)),
                    counters,
                    caches: monitored.containers.remove(&occupant.runtime_id).unwrap_or_default(),
                })
            })
            .collect();
        let node = self.node.as_mut().map(|node| node.read(&mut self.buffer)).unwrap_or_default();
        self.add_energy(&node);
        self.add_idle(&node, occupancy);
        let (energy_uj, idle_ticks) = (self.energy_uj.clone(), self.idle_ticks.clone());
        let at = Some(Instant::now());
        Reading { at, containers, node, caches: monitored.classes, energy_uj, idle_ticks }
    }

    /// What resctrl counts of our groups.
    fn monitored(&mut self) -> Monitored {
        let Some(kernel) = &mut self.kernel else { return Monitored::default() };
        let root = &self.config.borrow().host_root;
        let tell = |oddity: &str| tracing::warn!("{oddity}");
        self.monitors.read(root, kernel, &mut self.buffer, tell)
    }

    /// The files of a CPU that comes back are others.
    fn open_node(&mut self) {
        let Some(kernel) = &mut self.kernel else { return };
        let online = kernel.read("sys/devices/system/cpu/online").ok();
        if self.node.is_none() || online != self.online {
            self.online = online;
            // A cache that comes back has other files, and without it sums are too small.
            self.monitors = Monitors::default();
            self.node = Some(NodeFiles::open(&self.config.borrow().host_root, kernel));
        }
    }

    /// `None`: its group does not exist, yet or any more.
    fn read_group(&mut self, occupant: &Occupant, now: Instant) -> Option<GroupCounters> {
        if !self.groups.contains_key(&occupant.runtime_id) {
            let parent = &occupant.spec.pod.cgroup_parent;
            let kernel = self.kernel.as_mut()?;
            let root = &self.config.borrow().host_root;
            let files = self.lookups.look(occupant, now, || {
                // What is wrong with the groups of the node is for `bayplan check` to tell.
                GroupFiles::find(root, kernel, parent, &occupant.runtime_id)
            })?;
            self.groups.insert(occupant.runtime_id.clone(), files);
        }
        let files = self.groups.get_mut(&occupant.runtime_id)?;
        let was_odd = files.oddities().count();
        let counters = files.read(&mut self.buffer);
        for oddity in files.oddities().skip(was_odd) {
            tracing::warn!("{oddity}");
        }
        (counters != GroupCounters::default()).then_some(counters)
    }

    fn effective_cpus(&mut self, occupant: &Occupant) -> Option<usize> {
        let kernel = self.kernel.as_mut()?;
        let root = &self.config.borrow().host_root;
        let parent = &occupant.spec.pod.cgroup_parent;
        let holding = read_holding(root, kernel, parent, &occupant.runtime_id)?;
        Some(holding.affinity.unwrap_or(holding.cpus).len())
    }

    fn add_energy(&mut self, node: &NodeCounters) {
        for zone in self.node.iter().flat_map(NodeFiles::zones) {
            let Some(now) = node.energy_uj.get(&zone.name).copied() else { continue };
            let last = self.last_uj.insert(zone.name.clone(), now);
            let used = last.and_then(|last| zone.used(last, now)).unwrap_or(0);
            *self.energy_uj.entry(zone.name.clone()).or_default() += used;
        }
    }

    /// CPUs go from one class to another, so what has come since the last reading counts for the class that they are in now.
    fn add_idle(&mut self, node: &NodeCounters, occupancy: &Occupancy) {
        let Occupancy { reserved, shared, occupants, .. } = occupancy;
        let class_of = |cpu: CpuId| match () {
            () if reserved.contains(cpu) => Some(CpuClass::Reserved),
            () if shared.contains(cpu) => Some(CpuClass::Shared),
            () if occupants.iter().any(|it| it.exclusive.contains(cpu)) => {
                Some(CpuClass::Exclusive)
            }
            () => None,
        };
        for (cpu, now) in &node.idle_ticks {
            let last = self.last_idle.insert(*cpu, *now);
            let idle = last.and_then(|last| now.checked_sub(last)).unwrap_or(0);
            if let Some(class) = class_of(*cpu) {
                *self.idle_ticks.entry(class).or_default() += idle;
            }
        }
    }
}

fn cpus_of(occupant: &Occupant) -> [(CpuClass, usize); 2] {
    let others = match occupant.class {
        CpuClass::Reserved => CpuClass::Reserved,
        _ => CpuClass::Shared,
    };
    let shared = occupant.cpus.difference(&occupant.exclusive);
    [(CpuClass::Exclusive, occupant.exclusive.len()), (others, shared.len())]
}

/// `None`: the kernel does not say, or its nodes are not chosen by Bayplan.
fn placed(counters: &GroupCounters, nodes: &NodeSet) -> Option<Placed> {
    let by_node = &counters.memory.by_node;
    if by_node.is_empty() || nodes.is_empty() {
        return None;
    }
    let mut placed = Placed { near: Bytes::ZERO, far: Bytes::ZERO };
    for (node, bytes) in by_node {
        match nodes.contains(*node) {
            true => placed.near += *bytes,
            false => placed.far += *bytes,
        }
    }
    Some(placed)
}

/// Where readings are kept for scrapes.
pub(crate) fn shown() -> Shown {
    Shown {
        reading: Arc::default(),
        before: Arc::default(),
        fresh: Arc::<Notify>::default(),
        lost: CancellationToken::new(),
        is_of_containers: false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
