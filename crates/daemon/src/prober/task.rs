//! The task that keeps the probes in line with which container runs where, and reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_host::{find_cgroup_paths, find_container_cgroup_id};
use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_probes::{
    CgroupId, CounterChoice, Drain, Identity, Probe, ProbeError, ProbeState, Probes,
};
use bayplan_topology::Topology;
use bayplan_types::CpuSet;
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::sightings::{Paths, Seen, Sightings};
use crate::config::{Config, LiveConfig, counter_choice};
use crate::hotplug::Ground;
use crate::inbox::Inbox;
use crate::lookups::Lookups;
use crate::tasks::blocking;

/// How often the probes are read while they are not asked.
const PERIOD: Duration = Duration::from_secs(5);
/// They are read anyway when they were not asked for so long.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// What the task works with.
pub(crate) struct ProberTask {
    pub(crate) inbox: Inbox,
    pub(crate) config: LiveConfig,
    pub(crate) ground: Arc<Mutex<Ground>>,
    pub(crate) sightings: Sightings,
}

/// Counts until `stop`, as long as the configuration wants it.
pub(crate) async fn run_prober(mut task: ProberTask, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let (wanted, root) = {
            let config = task.config.borrow_and_update();
            (wanted(&config), config.host_root.clone())
        };
        let prober = match wanted {
            Some(counters) => task.attach(root, counters).await,
            None => None,
        };
        let counts = async {
            if let Some(prober) = prober {
                task.count(prober, wanted).await;
            }
            // Until the configuration says something else.
            while self::wanted(&task.config.borrow()) == wanted {
                if task.config.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = counts => {}
        }
        task.sightings.clear(Vec::new());
    }
}

/// Which counters beside all else; `None` without probes.
fn wanted(config: &Config) -> Option<CounterChoice> {
    config.has_probes.then(|| counter_choice(config.counters))
}

impl ProberTask {
    /// Loading takes a tenth of a second, so it is done on a thread for blocking work.
    async fn attach(&self, root: PathBuf, counters: CounterChoice) -> Option<Prober> {
        let topology = self.ground.lock().await.topology.clone();
        let loaded = blocking(move || {
            Probes::attach(&topology, counters).map(|probes| Prober {
                told: warn_of(probes.table(), Vec::new()),
                probes,
                topology,
                root,
                cgroups: BTreeMap::new(),
                others: BTreeMap::new(),
                lookups: Lookups::default(),
            })
        });
        match loaded.await? {
            Ok(prober) => Some(prober),
            Err(refusal) => {
                tracing::warn!("probes: {refusal}; `probes: off` in the configuration hides this");
                self.sightings.clear(Probes::table_of_refused(&refusal, counters));
                None
            }
        }
    }

    /// Reads again and again until the configuration wants others or none, or the probes do not answer any more.
    async fn count(&mut self, mut prober: Prober, wanted: Option<CounterChoice>) {
        let mut wait = Duration::ZERO;
        let mut told = None;
        while self::wanted(&self.config.borrow()) == wanted {
            // They are read only for callers that ask regularly, and for containers that come.
            wait = tokio::select! {
                () = self.sightings.asked() => ASKED_WITHIN,
                () = self.sightings.changed() => PERIOD,
                () = tokio::time::sleep(wait) => PERIOD,
            };
            let Some(Answer::Occupancy(occupancy)) = self.inbox.ask(Event::Occupancy).await else {
                return;
            };
            let ground = self.ground.lock().await.topology.clone();
            let read = blocking(move || {
                let read = prober.read(&ground, &occupancy);
                (prober, read)
            });
            let Some((same, read)) = read.await else { return };
            prober = same;
            // Some are attached only when a container owns CPUs.
            prober.told = warn_of(prober.probes.table(), prober.told);
            match read {
                Ok((seen, drain)) => {
                    told = None;
                    let seen = (seen, prober.paths());
                    self.sightings.tell(prober.probes.table(), seen, drain, Timestamp::now());
                }
                Err(error) => {
                    let error = format!("{:#}", anyhow::Error::from(error));
                    if told.as_ref() != Some(&error) {
                        tracing::warn!("probes: {error}");
                    }
                    told = Some(error);
                    // Numbers that stand still would be taken for a quiet node.
                    self.sightings.clear(prober.probes.table());
                }
            }
        }
    }
}

/// Tells of each probe that does not count, with the reason and what would mend it, unless it was `told` before. Gives what was told by now.
fn warn_of(table: Vec<Probe>, mut told: Vec<Probe>) -> Vec<Probe> {
    for row in table {
        let Probe { name, counts, state } = &row;
        match state {
            ProbeState::Attached | ProbeState::Waiting => continue,
            _ if told.iter().any(|it| it.name == *name) => continue,
            // As most virtual machines are.
            ProbeState::Unsupported(refusal) => {
                tracing::info!("probe {name} ({counts}): {refusal}");
            }
            ProbeState::Refused(refusal) => {
                tracing::warn!("probe {name} ({counts}): {refusal}");
            }
        }
        told.push(row);
    }
    told
}

/// Of several attempts of one container the newest: its names stand for one only.
fn newest(mut seen: Vec<Seen>) -> Vec<Seen> {
    fn names(seen: &Seen) -> (&str, &str, &str) {
        (&seen.namespace, &seen.pod, &seen.name)
    }
    // The kernel counts cgroups upwards.
    seen.sort_by(|a, b| names(a).cmp(&names(b)).then(b.cgroup.cmp(&a.cgroup)));
    seen.dedup_by(|later, kept| names(later) == names(kept));
    seen
}

/// Probes, and what they were told.
struct Prober {
    probes: Probes,
    /// Those that do not count, as they were told of.
    told: Vec<Probe>,
    topology: Topology,
    root: PathBuf,
    /// Cgroups of containers by the runtime's id. It never gives an id to another container.
    cgroups: BTreeMap<String, CgroupId>,
    /// Cgroups of processes that are in no container; `None`: it was gone when it was looked for.
    others: BTreeMap<CgroupId, Option<String>>,
    lookups: Lookups,
}

impl Prober {
    fn read(
        &mut self,
        topology: &Topology,
        occupancy: &Occupancy,
    ) -> Result<(Vec<Seen>, Drain), ProbeError> {
        if *topology != self.topology {
            self.probes.place(topology)?;
            self.topology = topology.clone();
        }
        self.find_cgroups(occupancy, Instant::now());
        let occupants = occupancy.occupants.iter();
        let seen: Vec<Seen> = occupants.filter_map(|it| self.seen(it, occupancy)).collect();
        let watched = seen.iter().map(|seen| (seen.cgroup, seen.owned.clone())).collect();
        self.probes.watch(&watched)?;
        let drain = self.probes.drain(Instant::now())?;
        self.find_others(&drain);
        Ok((newest(seen), drain))
    }

    /// A task that is named for the first time is looked for now, because it may be gone soon.
    fn find_others(&mut self, drain: &Drain) {
        let intruders = drain.intrusions.values().flat_map(BTreeMap::keys);
        let cgroup = |identity| if let Identity::Process(id) = identity { Some(id) } else { None };
        let named: BTreeSet<CgroupId> = intruders.filter_map(|it| cgroup(it.identity)).collect();
        self.others.retain(|id, _| named.contains(id));
        let is_new = |id: &&CgroupId| !self.others.contains_key(*id);
        let new: BTreeSet<u64> = named.iter().filter(is_new).map(|id| id.0).collect();
        if new.is_empty() {
            return;
        }
        let mut found = find_cgroup_paths(&self.root, &new);
        self.others.extend(new.into_iter().map(|id| (CgroupId(id), found.remove(&id))));
    }

    fn paths(&self) -> Paths {
        let there = self.others.iter();
        there.filter_map(|(id, path)| Some((*id, path.clone()?))).collect()
    }

    /// A cgroup that is not there yet, or cannot be looked for, is looked for again later.
    fn find_cgroups(&mut self, occupancy: &Occupancy, now: Instant) {
        let mut known = std::mem::take(&mut self.cgroups);
        let ids: BTreeSet<&str> =
            occupancy.occupants.iter().map(|it| it.runtime_id.as_str()).collect();
        self.lookups.retain(|id| ids.contains(id));
        for occupant in &occupancy.occupants {
            let Occupant { runtime_id, spec, .. } = occupant;
            let find = || {
                let parent = &spec.pod.cgroup_parent;
                let found = find_container_cgroup_id(&self.root, parent, runtime_id);
                found.map(|it| it.map(CgroupId))
            };
            let found = known.remove(runtime_id).or_else(|| self.lookups.look(occupant, now, find));
            self.cgroups.extend(found.map(|found| (runtime_id.clone(), found)));
        }
    }

    fn seen(&self, occupant: &Occupant, occupancy: &Occupancy) -> Option<Seen> {
        Some(Seen {
            cgroup: *self.cgroups.get(&occupant.runtime_id)?,
            namespace: occupant.spec.pod.namespace.clone(),
            pod: occupant.spec.pod.name.clone(),
            name: occupant.spec.name.clone(),
            owned: owned_now(occupant, occupancy),
        })
    }
}

/// CPUs on which no other container is to run. While everything is restored, nothing is promised; where containers of a pod have CPUs together, each runs among the others; and on lent CPUs borrowers
/// are no intruders.
pub(super) fn owned_now(occupant: &Occupant, occupancy: &Occupancy) -> CpuSet {
    match occupancy.is_restored || occupant.is_together {
        true => CpuSet::new(),
        false => occupant.exclusive.difference(&occupancy.lent),
    }
}
