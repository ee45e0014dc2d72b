//! The task that looks. In: a notice that counters were read. Out: decisions, which are carried out and told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_allocator::ContainerId;
use bayplan_host::disk::Disk;
use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::Occupancy;
use bayplan_node::turned::Turned;
use bayplan_rebalance::{
    Decision, Mode, Outside, Reason, Rebalancer, Round, Sample, Scene, Settings, Unhelped, Unrest,
};
use bayplan_types::NodeSet;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::baselines::BaselineFile;
use super::reach::{FilesSeen, Reach, Writing};
use super::sampler::{Sampler, forget_migrations_without_caches};
use super::scene::{Bounds, Stays, note_drift, scene_of};
use super::view::{OutsideView, Told, UnhelpedView};
use crate::config::{Config, LiveConfig, RebalanceConfig};
use crate::enforcer::Enforcement;
use crate::hotplug::Ground;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::observer::Shown;
use crate::prober::Sightings;
use crate::tasks::blocking;

/// What a crash loses is so much learning at most.
const SAVE_EVERY: Duration = Duration::from_secs(600);
/// A container that came or moved is not judged for so many looks.
const WARM_UP: u32 = 6;

/// Why nothing is looked at.
const UNSEEING: &str = "a bug has ended what reads counters, until a restart";

/// What the task works with.
pub(crate) struct RebalancerTask {
    pub(crate) inbox: Inbox,
    pub(crate) config: LiveConfig,
    pub(crate) ground: Arc<Mutex<Ground>>,
    pub(crate) shown: Shown,
    pub(crate) sightings: Sightings,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) enforcement: Enforcement,
    /// Under what is usual.
    pub(crate) disk: Arc<dyn Disk>,
    /// No kernel file is written, whatever the configuration says.
    pub(crate) is_dry_run: bool,
    pub(crate) told: Told,
}

/// What is known from one look to the next.
pub(super) struct Looker {
    pub(super) rebalancer: Rebalancer,
    /// What the state was told that is turned.
    pub(super) turned: Turned,
    /// Where memory was sent that was to come home, by the numbers of the proposals.
    pub(super) homes: BTreeMap<u64, NodeSet>,
    /// The clock of the rounds.
    pub(super) started: Instant,
    sampler: Sampler,
    stays: Stays,
    files: FilesSeen,
    /// When the last look was.
    last: Option<Duration>,
    /// Where what is usual is kept; `None` where it cannot be.
    file: Option<BaselineFile>,
    /// When that was written last.
    saved: Duration,
}

impl Looker {
    pub(super) fn new(config: &RebalanceConfig) -> Looker {
        Looker {
            rebalancer: Rebalancer::new(settings(config)),
            turned: Turned::default(),
            homes: BTreeMap::new(),
            started: Instant::now(),
            sampler: Sampler::default(),
            stays: Stays::default(),
            files: FilesSeen::default(),
            last: None,
            file: None,
            saved: Duration::ZERO,
        }
    }

    /// With what is known from before.
    fn remembering(config: &Config, disk: Arc<dyn Disk>) -> Looker {
        let mut looker = Looker::new(&config.rebalance);
        match BaselineFile::open(disk, &config.state_dir) {
            Ok((file, baselines, told)) => {
                if !told.is_empty() {
                    tracing::warn!(
                        "of what is usual for workloads was left out: {}",
                        told.join("; ")
                    );
                }
                looker.rebalancer.learn(baselines);
                looker.file = Some(file);
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                tracing::warn!(
                    "what is usual for workloads is learned anew at every start: {error:#}"
                );
            }
        }
        looker
    }

    /// A pause or a restore takes back what was turned, and so does a configuration with which it cannot be turned any more. It is not turned again for that.
    fn is_taken_back(&self, occupancy: &Occupancy, reach: &Reach) -> bool {
        occupancy.is_restored
            || occupancy.is_rebalance_paused
            || !occupancy.has_turned(&self.turned)
            || self.turned.iter().any(|(_, turn)| !reach.knobs.contains(&turn.knob))
    }
}

fn settings(config: &RebalanceConfig) -> Settings {
    let (forbidden, warm_up) = (config.forbidden.clone(), config.interval * WARM_UP);
    let changes_per_minute = u32::try_from(config.changes_per_minute).unwrap_or(u32::MAX);
    Settings { forbidden, warm_up, changes_per_minute, ..Settings::default() }
}

/// Looks whenever counters were read, until `stop`. With the mode `off` everything that is turned is taken back.
pub(crate) async fn run_rebalancer(task: RebalancerTask, stop: CancellationToken) {
    let mut looker: Option<Looker> = None;
    let looking = async {
        loop {
            if !task.shown.fresh().await {
                let _stopping = task.give_up(&mut looker).await;
                return;
            }
            let config = Arc::clone(&task.config.borrow());
            if task.turn_to(&mut looker, &config).await.is_none() {
                return;
            }
        }
    };
    tokio::select! {
        // What it works with ends with the same stop, and that is not to be told as something else.
        biased;
        () = stop.cancelled() => {}
        () = looking => {}
    }
    if let Some(looker) = &mut looker {
        task.save(looker).await;
    }
}

impl RebalancerTask {
    /// A look, or none in the mode `off`. `None` when the daemon is stopping.
    pub(super) async fn turn_to(
        &self,
        looker: &mut Option<Looker>,
        config: &Arc<Config>,
    ) -> Option<()> {
        self.told.in_line_with(self.enforcement.last_step());
        if self.enforcement.is_lost() {
            self.tell_stuck().await?;
        }
        if config.rebalance.mode != Mode::Off {
            if looker.is_none() {
                // The disk may be slow.
                let (config, disk) = (Arc::clone(config), Arc::clone(&self.disk));
                *looker = Some(blocking(move || Looker::remembering(&config, disk)).await?);
            }
            let looker = looker.as_mut()?;
            looker.rebalancer.reconfigure(settings(&config.rebalance));
            self.look(looker, config).await?;
            if looker.started.elapsed() >= looker.saved + SAVE_EVERY {
                self.save(looker).await;
            }
            return Some(());
        }
        if let Some(mut looker) = looker.take() {
            self.save(&mut looker).await;
            self.withdraw(&mut looker).await?;
        }
        self.told.looked(0, None);
        self.metrics.rebalancing.looked(self.told.in_force(), 0);
        Some(())
    }

    /// Counters are not read any more, so what is turned would not be judged. `None` when the daemon is stopping.
    pub(super) async fn give_up(&self, looker: &mut Option<Looker>) -> Option<()> {
        if let Some(looker) = looker {
            self.withdraw(looker).await?;
        }
        self.told.looked(0, Some(UNSEEING.to_owned()));
        self.metrics.rebalancing.looked(self.told.in_force(), 0);
        Some(())
    }

    /// What is usual goes to the disk.
    async fn save(&self, looker: &mut Looker) {
        looker.saved = looker.started.elapsed();
        let Some(mut file) = looker.file.take() else { return };
        let baselines = looker.rebalancer.baselines();
        let saving = tokio::task::spawn_blocking(move || {
            let saved = file.save(&baselines);
            (file, saved)
        });
        let failure = match saving.await {
            Ok((file, saved)) => {
                looker.file = Some(file);
                saved.err().map(anyhow::Error::new)
            }
            Err(error) => Some(anyhow::Error::new(error)),
        };
        if let Some(error) = failure {
            self.metrics.failed("baselines");
            tracing::warn!("what is usual for workloads could not be kept: {error:#}");
        }
    }

    /// `None` when the daemon is stopping.
    async fn look(&self, looker: &mut Looker, config: &Arc<Config>) -> Option<()> {
        let interval = config.rebalance.interval;
        let now = looker.started.elapsed();
        let period = looker.last.map_or(interval, |last| now.saturating_sub(last));
        // Counters may be read more often than this looks.
        if period < interval / 2 {
            return Some(());
        }
        looker.last = Some(now);
        let Answer::Occupancy(occupancy) = self.inbox.ask(Event::Occupancy).await? else {
            return Some(());
        };
        let reach = self.reach(looker, config).await?;
        if looker.is_taken_back(&occupancy, &reach) {
            self.withdraw(looker).await?;
        }
        let occupancy = self.end_moves(looker, occupancy).await?;
        let topology = Arc::new(self.ground.lock().await.topology.clone());
        looker.stays.note(&occupancy, now);
        let bounds = Bounds { config: &config.rebalance, reach: &reach };
        let is_late = period > interval * 2;
        let mut scene = scene_of(&occupancy, topology, &looker.stays, bounds, is_late);
        let (files, probes) = (self.shown.groups(), self.sightings.renewed().await);
        let mut samples = looker.sampler.sample(&occupancy, files, probes);
        forget_migrations_without_caches(&scene.topology, &mut samples);
        // Since the last look.
        let since = looker.started + now.saturating_sub(period);
        note_drift(&mut scene, &self.enforcement.drift(since));
        scene.idle = looker.sampler.idle().clone();
        scene.intruders = looker.sampler.intruders(&occupancy);
        scene.touched = self.told.touched_for_good();
        tell_samples(&scene, &samples);
        self.told.looked(samples.len(), self.hindrance(&scene, &reach, config));
        let round = Round { at: now, period, samples };
        let decisions = looker.rebalancer.look(&scene, &round);
        self.told.unhelped(unhelped(looker.rebalancer.unhelped(&scene, now), &scene));
        self.follow(looker, &scene, decisions).await
    }

    /// What can be turned, on a thread for blocking work. `None` when the daemon is stopping.
    async fn reach(&self, looker: &mut Looker, config: &Arc<Config>) -> Option<Reach> {
        let (config, is_dry_run) = (Arc::clone(config), self.is_dry_run);
        let (is_lost, regrouped) = (self.enforcement.is_lost(), self.enforcement.regrouped());
        let mut files = std::mem::take(&mut looker.files);
        let read = blocking(move || {
            let reach = files.reach(&config, is_dry_run, Writing { is_lost, regrouped });
            (files, reach)
        });
        let (files, reach) = read.await?;
        looker.files = files;
        Some(reach)
    }

    /// Why nothing is done, whatever is seen.
    fn hindrance(&self, scene: &Scene, reach: &Reach, config: &Config) -> Option<String> {
        let unrest = scene.unrest.map(unrest_text);
        let lacking = reach.lacking.filter(|_| config.rebalance.mode == Mode::Act);
        let lacking = lacking.map(|why| format!("not every knob can be turned: {why}"));
        unrest.map(str::to_owned).or(lacking)
    }

    /// Everything that was concluded from one look, first what is taken back.
    pub(super) async fn follow(
        &self,
        looker: &mut Looker,
        scene: &Scene,
        decisions: Vec<Decision>,
    ) -> Option<()> {
        let mut proposed = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Propose(proposal) => {
                    self.tell_proposal(&proposal, scene).await?;
                    proposed.extend((proposal.mode == Mode::Act).then_some(proposal.number));
                }
                Decision::Judge { number, verdict } => {
                    self.tell_verdict(number, &verdict, scene).await?;
                }
            }
        }
        self.carry_out(looker, proposed).await?;
        self.metrics.rebalancing.looked(self.told.in_force(), looker.rebalancer.victims());
        Some(())
    }
}

/// What everything is concluded from, for finding out why nothing is.
fn tell_samples(scene: &Scene, samples: &BTreeMap<ContainerId, Sample>) {
    tracing::debug!(idle = ?scene.idle.values().collect::<Vec<_>>(), "rebalance: CPUs");
    for (id, sample) in samples {
        let container = scene.residents.get(id).map_or("", |it| it.name.as_str());
        tracing::debug!(container, ?sample, "rebalance: seen");
    }
}

fn unhelped(found: Vec<Unhelped>, scene: &Scene) -> Vec<UnhelpedView> {
    let view = |it: Unhelped| {
        let container = scene.residents.get(&it.container)?.name.clone();
        Some(UnhelpedView { container, why: it.render(), outside: outside_view(&it.reason) })
    };
    found.into_iter().filter_map(view).collect()
}

fn outside_view(reason: &Reason) -> Option<OutsideView> {
    let Reason::Outside(Outside { percent, largest }) = reason else { return None };
    let (largest, largest_percent) = largest.clone().unzip();
    Some(OutsideView { percent: *percent, largest, largest_percent })
}

fn unrest_text(unrest: Unrest) -> &'static str {
    match unrest {
        Unrest::Paused => "it is paused",
        Unrest::Restored => "everything is restored",
        Unrest::Creating => "containers are being created or changed",
        Unrest::Drift => "another program has changed kernel files of containers",
        Unrest::Overload => "the daemon is late",
    }
}
