//! What BestEffort containers get of CPUs that others need or own. In: what CPUs and containers did in the last second. Out: a budget of CPU time and lent CPUs, as a part of the state, from which
//! files and CPU sets follow.
//!
//! Where neither is configured, nothing is read. A look costs `/proc/stat`, two files of the group of all BestEffort pods, and two of each container that lends.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bayplan_enforcement::{NodeUse, next_budget};
use bayplan_host::counters::{GroupCounters, GroupFiles, TICKS_PER_SECOND, read_idle_ticks};
use bayplan_host::find_container_cgroup;
use bayplan_host::kernel::DiskKernel;
use bayplan_node::colocation::Colocation;
use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_rebalance::{HeldCore, Holder, Lending, Sample};
use bayplan_topology::Topology;
use bayplan_types::{CpuId, CpuSet, MilliCpu, QosClass};
use bayplan_workload::annotations::CpuPartition;
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

use crate::config::{Config, EnforcementMode, LiveConfig};
use crate::enforcer::{Enforcement, class_group};
use crate::hotplug::Ground;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::rebalancer::sample_of;
use crate::tasks::blocking;

/// As often as Koordinator looks.
const EVERY: Duration = Duration::from_secs(1);
/// Files are written within milliseconds; longer a stop does not wait for them.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

/// What the task works with.
pub(crate) struct ColocationTask {
    pub(crate) inbox: Inbox,
    pub(crate) config: LiveConfig,
    pub(crate) ground: Arc<Mutex<Ground>>,
    pub(crate) metrics: Arc<Metrics>,
    /// No kernel file is written, whatever the configuration says.
    pub(crate) is_dry_run: bool,
}

/// Looks every second as long as something is configured, until it is dropped; `None` when the daemon is stopping.
pub(crate) async fn run_colocation(task: ColocationTask) -> Option<()> {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut eyes, mut held) = (Eyes::default(), Colocation::default());
    loop {
        ticks.tick().await;
        let config = Arc::clone(&task.config.borrow());
        let next = match task.is_wanted(&config) {
            true => {
                let seen;
                (eyes, seen) = task.look(eyes, &config).await?;
                seen
            }
            false => {
                eyes = Eyes::default();
                task.metrics.rebalancing.show_best_effort(None, 0);
                Colocation::default()
            }
        };
        if next != held {
            task.inbox.ask(Event::Colocate(next.clone())).await?;
            held = next;
        }
    }
}

/// BestEffort containers get nothing beside their place any more: nothing follows the load from here on.
pub(crate) async fn share_no_more(inbox: &Inbox, enforcement: &Enforcement) {
    let ended = async {
        let answer = inbox.ask(Event::Colocate(Colocation::default())).await;
        if let Some(Answer::Since(Some(step))) = answer {
            enforcement.is_in_line_with(step).await;
        }
    };
    if tokio::time::timeout(ENDED_WITHIN, ended).await.is_err() {
        tracing::warn!(
            "the limit of BestEffort pods is taken back at the next start only, and CPUs that are lent come back with it"
        );
    }
}

impl ColocationTask {
    fn is_wanted(&self, config: &Config) -> bool {
        let of = &config.best_effort;
        let is_written = config.enforcement == EnforcementMode::On && !self.is_dry_run;
        is_written && (of.node_percent > 0 || of.borrows)
    }

    async fn look(&self, mut eyes: Eyes, config: &Arc<Config>) -> Option<(Eyes, Colocation)> {
        let Answer::Occupancy(occupancy) = self.inbox.ask(Event::Occupancy).await? else {
            return Some((eyes, Colocation::default()));
        };
        // What holds, and not what was asked for: a loan may have ended since.
        self.metrics.rebalancing.show_best_effort(occupancy.budget, occupancy.lent.len());
        let topology = self.ground.lock().await.topology.clone();
        let config = Arc::clone(config);
        blocking(move || {
            let seen = eyes.look(&config, &occupancy, &topology, Instant::now());
            (eyes, seen)
        })
        .await
    }
}

/// What is known from one look to the next.
#[derive(Default)]
struct Eyes {
    root: PathBuf,
    kernel: Option<DiskKernel>,
    last: Option<(Instant, Seen)>,
    /// By the runtime's ids; the class of all BestEffort pods by its directory.
    files: BTreeMap<String, GroupFiles>,
    budget: Option<MilliCpu>,
    lending: Lending,
    started: Option<Instant>,
    buffer: Vec<u8>,
}

/// Counters at one moment.
#[derive(Default)]
struct Seen {
    idle_ticks: BTreeMap<CpuId, u64>,
    groups: BTreeMap<String, GroupCounters>,
}

impl Eyes {
    fn look(
        &mut self,
        config: &Config,
        occupancy: &Occupancy,
        topology: &Topology,
        now: Instant,
    ) -> Colocation {
        // What was asked for does not hold then, and afterwards all begins anew.
        if occupancy.is_rebalance_paused || occupancy.is_restored {
            *self = Eyes::default();
            return Colocation::default();
        }
        if self.kernel.is_none() || self.root != config.host_root {
            self.root.clone_from(&config.host_root);
            self.kernel = DiskKernel::open(&self.root).ok();
        }
        let started = *self.started.get_or_insert(now);
        let lenders: Vec<&Occupant> = match config.best_effort.borrows {
            true => occupancy.occupants.iter().filter(|it| may_lend(config, it)).collect(),
            false => Vec::new(),
        };
        let (class, seen) = self.read(occupancy, &lenders);
        let before = self.last.replace((now, seen));
        let (Some((then, before)), Some((_, seen))) = (before, &self.last) else {
            return Colocation::default();
        };
        let span = Span { seconds: (now - then).as_secs_f64(), before: &before, after: seen };
        self.budget = class.and_then(|class| {
            next_budget(&config.best_effort.policy(), &span.node_use(&class)?, self.budget)
        });
        let holders: Vec<Holder> =
            lenders.iter().filter_map(|it| span.holder(it, topology)).collect();
        let may_lend = lenders.iter().map(|it| it.id).collect();
        let lent = self.lending.step(&holders, &may_lend, now - started);
        Colocation { budget: self.budget, lent }
    }

    /// Counters now, and the group of all BestEffort pods, if there are any.
    fn read(&mut self, occupancy: &Occupancy, lenders: &[&Occupant]) -> (Option<String>, Seen) {
        let Eyes { root, kernel, files, buffer, .. } = self;
        let Some(kernel) = kernel else { return (None, Seen::default()) };
        let mut all = occupancy.occupants.iter();
        let class = all.find_map(|it| {
            let is_lowest = it.spec.pod.qos == Some(QosClass::BestEffort);
            let parent = is_lowest.then_some(&it.spec.pod.cgroup_parent)?;
            let group = find_container_cgroup(kernel, parent, &it.runtime_id, None).ok()??;
            class_group(&group).map(str::to_owned)
        });
        let wanted: Vec<&str> = class
            .iter()
            .map(String::as_str)
            .chain(lenders.iter().map(|it| &*it.runtime_id))
            .collect();
        files.retain(|name, _| wanted.contains(&name.as_str()));
        if let Some(class) = class.as_ref().filter(|it| !files.contains_key(*it)) {
            files.insert(class.clone(), GroupFiles::open(root, class));
        }
        for it in lenders {
            if files.contains_key(&it.runtime_id) {
                continue;
            }
            let parent = &it.spec.pod.cgroup_parent;
            if let Ok(Some(found)) = GroupFiles::find(root, kernel, parent, &it.runtime_id) {
                files.insert(it.runtime_id.clone(), found);
            }
        }
        let groups = files.iter_mut().map(|(name, it)| (name.clone(), it.read(buffer))).collect();
        let idle_ticks = read_idle_ticks(kernel).unwrap_or_default();
        (class, Seen { idle_ticks, groups })
    }
}

/// A container that owns CPUs by itself, agrees, and is not kept from all others by the kernel. Where containers of a pod have CPUs together, what one does not use is the others'.
fn may_lend(config: &Config, it: &Occupant) -> bool {
    let is_isolated =
        it.tuning.partition.unwrap_or(config.partition) != CpuPartition::None || it.is_left_alone;
    let is_owner = !it.exclusive.is_empty() && !it.is_together;
    it.tuning.lends == Some(true) && is_owner && !is_isolated
}

/// Two looks.
struct Span<'a> {
    seconds: f64,
    before: &'a Seen,
    after: &'a Seen,
}

impl Span<'_> {
    /// `None` where the kernel does not tell how long CPUs were idle, or what BestEffort pods used.
    fn node_use(&self, class: &str) -> Option<NodeUse> {
        let busy: Vec<f64> =
            self.after.idle_ticks.keys().filter_map(|cpu| self.busy(*cpu)).collect();
        let used = self.sample(class)?.cpus;
        let others = (busy.iter().sum::<f64>() - used).max(0.0);
        let capacity = MilliCpu::from_cpus(busy.len());
        (!busy.is_empty()).then(|| NodeUse { capacity, others: milli(others) })
    }

    fn holder(&self, it: &Occupant, topology: &Topology) -> Option<Holder> {
        let Sample { cpus: used, cpu_pressure: stalled, .. } = self.sample(&it.runtime_id)?;
        let cores = topology.cores().iter().filter(|core| core.is_subset(&it.exclusive));
        let held = |core: &CpuSet| {
            // What is not told may be busy.
            let busy = core.iter().map(|cpu| self.busy(cpu).unwrap_or(1.0)).fold(0.0, f64::max);
            HeldCore { cpus: core.clone(), busy }
        };
        // Of cores that were idle for as long, those with high numbers are lent first.
        let cores = cores.rev().map(held).collect();
        Some(Holder { id: it.id, cores, used, stalled })
    }

    /// Share of the time in which a CPU had something to do; `None` where the kernel does not tell.
    fn busy(&self, cpu: CpuId) -> Option<f64> {
        let [before, after] = [self.before, self.after].map(|seen| seen.idle_ticks.get(&cpu));
        let ticks = after?.saturating_sub(*before?);
        Some(1.0 - (ticks as f64 / TICKS_PER_SECOND / self.seconds).min(1.0))
    }

    /// What a group did.
    fn sample(&self, group: &str) -> Option<Sample> {
        let [before, after] = [self.before, self.after].map(|seen| seen.groups.get(group));
        sample_of(before?, after?, None, Duration::from_secs_f64(self.seconds))
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "thousandths of the CPUs of a machine, never negative"
)]
fn milli(cpus: f64) -> MilliCpu {
    MilliCpu((cpus.max(0.0) * 1000.0) as u64)
}

#[cfg(test)]
mod tests;
