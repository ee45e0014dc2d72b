//! The task that looks. In: a notice that counters were read. Out: proposals, told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_allocator::ContainerId;
use bayplan_rebalance::{
    Decision, Proposal, Rebalancer, Round, Sample, Scene, Settings, Unrest, render_evidence,
    render_proposal,
};
use jiff::Timestamp;
use tokio::sync::Mutex;

use super::sampler::Sampler;
use super::scene::{Stays, scene_of};
use super::view::{ProposalView, Told};
use crate::config::{LiveConfig, RebalanceConfig, RebalanceMode};
use crate::event::{Answer, Event};
use crate::hotplug::Ground;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::observer::Shown;
use crate::prober::Sightings;

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
    pub(crate) told: Told,
}

/// What is known from one look to the next.
struct Looker {
    rebalancer: Rebalancer,
    sampler: Sampler,
    stays: Stays,
    /// When the last look was.
    last: Option<Duration>,
}

impl Looker {
    fn new(config: &RebalanceConfig) -> Looker {
        Looker {
            rebalancer: Rebalancer::new(settings(config)),
            sampler: Sampler::default(),
            stays: Stays::default(),
            last: None,
        }
    }
}

fn settings(config: &RebalanceConfig) -> Settings {
    let (forbidden, warm_up) = (config.forbidden.clone(), config.interval * WARM_UP);
    Settings { forbidden, warm_up, ..Settings::default() }
}

/// Looks whenever counters were read, for ever. What was learned ends with the mode `off`.
pub(crate) async fn run_rebalancer(task: RebalancerTask) {
    let started = Instant::now();
    let mut looker = None;
    loop {
        task.shown.fresh().await;
        let config = task.config.borrow().rebalance.clone();
        if config.mode == RebalanceMode::Off {
            looker = None;
            task.told.looked(0, None);
            continue;
        }
        let looker = looker.get_or_insert_with(|| Looker::new(&config));
        looker.rebalancer.reconfigure(settings(&config));
        if task.look(looker, &config, started).await.is_none() {
            return;
        }
    }
}

impl RebalancerTask {
    /// `None` when the daemon is stopping.
    async fn look(
        &self,
        looker: &mut Looker,
        config: &RebalanceConfig,
        started: Instant,
    ) -> Option<()> {
        let now = started.elapsed();
        let period = looker.last.map_or(config.interval, |last| now.saturating_sub(last));
        // Counters may be read more often than this looks.
        if period < config.interval / 2 {
            return Some(());
        }
        looker.last = Some(now);
        let Answer::Occupancy(occupancy) = self.inbox.ask(Event::Occupancy).await? else {
            return Some(());
        };
        let topology = Arc::new(self.ground.lock().await.topology.clone());
        looker.stays.note(&occupancy, now);
        let mut scene = scene_of(&occupancy, topology, &looker.stays, period > config.interval * 2);
        let (files, probes) = (self.shown.groups(), self.sightings.latest());
        let samples = looker.sampler.sample(&occupancy, files, probes);
        scene.idle = looker.sampler.idle().clone();
        tell_samples(&scene, &samples);
        self.told.looked(samples.len(), scene.unrest.map(|it| unrest_text(it).to_owned()));
        let round = Round { at: now, period, samples };
        for decision in looker.rebalancer.look(&scene, &round) {
            // Nothing is in force, so nothing is judged.
            if let Decision::Propose(proposal) = decision {
                self.tell(&proposal, &scene).await?;
            }
        }
        Some(())
    }

    /// To the log, the metric, the history and whoever asks.
    async fn tell(&self, proposal: &Proposal, scene: &Scene) -> Option<()> {
        let names: BTreeMap<ContainerId, &str> =
            scene.residents.iter().map(|(id, it)| (*id, it.name.as_str())).collect();
        let name_of = |id: ContainerId| {
            names.get(&id).map_or_else(|| id.to_string(), |name| (*name).to_owned())
        };
        let text = render_proposal(proposal, &name_of);
        let evidence = render_evidence(&proposal.evidence, &name_of);
        tracing::info!(number = proposal.number, "rebalance: would turn {text}\n{evidence}");
        self.metrics.proposed(proposal.knob.name(), proposal.mode.name());
        self.told.proposed(ProposalView {
            at: Timestamp::now(),
            knob: proposal.knob.name().to_owned(),
            target: name_of(proposal.target),
            victim: name_of(proposal.evidence.victim),
            text: text.clone(),
            evidence,
        });
        let why = format!("would turn {text}");
        self.inbox.ask(Event::Proposed(proposal.target, why)).await.map(drop)
    }
}

/// What everything is concluded from, for whoever wants to know why nothing is.
fn tell_samples(scene: &Scene, samples: &BTreeMap<ContainerId, Sample>) {
    tracing::debug!(idle = ?scene.idle.values().collect::<Vec<_>>(), "rebalance: CPUs");
    for (id, sample) in samples {
        let container = scene.residents.get(id).map_or("", |it| it.name.as_str());
        tracing::debug!(container, ?sample, "rebalance: seen");
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
