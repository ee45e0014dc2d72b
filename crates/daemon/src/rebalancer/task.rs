//! The task that looks. In: a notice that counters were read. Out: decisions, which are carried out and told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_rebalance::{Decision, Mode, Rebalancer, Round, Scene, Settings, Unrest};
use tokio::sync::Mutex;

use super::reach::{FilesSeen, Reach};
use super::sampler::Sampler;
use super::scene::{Bounds, Stays, scene_of};
use super::view::Told;
use crate::config::{Config, LiveConfig, RebalanceConfig};
use crate::enforcer::Enforcement;
use crate::event::{Answer, Event};
use crate::hotplug::Ground;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::observer::Shown;
use crate::occupancy::Occupancy;
use crate::prober::Sightings;
use crate::turned::Turned;

/// Who came or moved is not judged for so many looks.
const WARM_UP: u32 = 6;

/// What the task works with.
pub(crate) struct RebalancerTask {
    pub(crate) inbox: Inbox,
    pub(crate) config: LiveConfig,
    pub(crate) ground: Arc<Mutex<Ground>>,
    pub(crate) shown: Shown,
    pub(crate) sightings: Sightings,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) enforcement: Enforcement,
    /// No kernel file is written, whatever the configuration says.
    pub(crate) is_dry_run: bool,
    pub(crate) told: Told,
}

/// What is known from one look to the next.
pub(super) struct Looker {
    pub(super) rebalancer: Rebalancer,
    /// What the state was told that is turned.
    pub(super) turned: Turned,
    /// The clock of the rounds.
    pub(super) started: Instant,
    sampler: Sampler,
    stays: Stays,
    files: FilesSeen,
    /// When the last look was.
    last: Option<Duration>,
}

impl Looker {
    fn new(config: &RebalanceConfig) -> Looker {
        Looker {
            rebalancer: Rebalancer::new(settings(config)),
            turned: Turned::default(),
            started: Instant::now(),
            sampler: Sampler::default(),
            stays: Stays::default(),
            files: FilesSeen::default(),
            last: None,
        }
    }

    /// A pause or a restore takes back what was turned, and so does a configuration with which it cannot be turned any more. It is not turned again for that.
    fn is_taken_back(&self, occupancy: &Occupancy, reach: &Reach) -> bool {
        occupancy.is_restored
            || occupancy.is_rebalance_paused
            || !occupancy.turned.has_all_of(&self.turned, occupancy)
            || self.turned.iter().any(|(_, turn)| !reach.knobs.contains(&turn.knob))
    }
}

fn settings(config: &RebalanceConfig) -> Settings {
    let (forbidden, warm_up) = (config.forbidden.clone(), config.interval * WARM_UP);
    let changes_per_minute = u32::try_from(config.changes_per_minute).unwrap_or(u32::MAX);
    Settings { forbidden, warm_up, changes_per_minute, ..Settings::default() }
}

/// Looks whenever counters were read, for ever. What was learned ends with the mode `off`, and so does all that is turned.
pub(crate) async fn run_rebalancer(task: RebalancerTask) {
    let mut looker: Option<Looker> = None;
    loop {
        task.shown.fresh().await;
        let config = Arc::clone(&task.config.borrow());
        if config.rebalance.mode == Mode::Off {
            if looker.take().is_some_and(|it| it.turned != Turned::default())
                && task.inbox.ask(Event::Turn(Turned::default())).await.is_none()
            {
                return;
            }
            task.told.looked(0, None);
            task.told.withdrawn();
            task.metrics.rebalancing.looked(0, 0);
            continue;
        }
        let looker = looker.get_or_insert_with(|| Looker::new(&config.rebalance));
        looker.rebalancer.reconfigure(settings(&config.rebalance));
        if task.look(looker, &config).await.is_none() {
            return;
        }
    }
}

impl RebalancerTask {
    /// `None` when the daemon is stopping.
    async fn look(&self, looker: &mut Looker, config: &Config) -> Option<()> {
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
        let reach = looker.files.reach(config, self.is_dry_run);
        if looker.is_taken_back(&occupancy, &reach) {
            looker.rebalancer.withdraw();
            self.told.withdrawn();
            if std::mem::take(&mut looker.turned) != Turned::default() {
                self.inbox.ask(Event::Turn(Turned::default())).await?;
            }
        }
        let topology = Arc::new(self.ground.lock().await.topology.clone());
        looker.stays.note(&occupancy, now);
        let bounds = Bounds { config: &config.rebalance, reach: &reach };
        let is_late = period > interval * 2;
        let scene = scene_of(&occupancy, topology, &looker.stays, bounds, is_late);
        let (files, probes) = (self.shown.groups(), self.sightings.latest());
        let samples = looker.sampler.sample(&occupancy, files, probes);
        self.told.looked(samples.len(), self.hindrance(&scene, &reach, config));
        let round = Round { at: now, period, samples };
        let decisions = looker.rebalancer.look(&scene, &round);
        self.follow(looker, &scene, decisions).await
    }

    /// Why nothing is done, whatever is seen.
    fn hindrance(&self, scene: &Scene, reach: &Reach, config: &Config) -> Option<String> {
        let unrest = scene.unrest.map(unrest_text);
        let lacking = reach.lacking.filter(|_| config.rebalance.mode == Mode::Act);
        let lacking = lacking.map(|why| format!("no kernel files can be turned: {why}"));
        unrest.map(str::to_owned).or(lacking)
    }

    /// Everything that was concluded from one look, first what is taken back.
    async fn follow(
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
        let in_force = looker.rebalancer.standing().count();
        self.metrics.rebalancing.looked(in_force, looker.rebalancer.victims());
        Some(())
    }
}

fn unrest_text(unrest: Unrest) -> &'static str {
    match unrest {
        Unrest::Paused => "it is paused",
        Unrest::Restored => "everything is restored",
        Unrest::Creating => "containers are being created or changed",
        Unrest::Drift => "the kernel does not have what was written",
        Unrest::Overload => "the daemon is late",
    }
}
