//! The loop from evidence to a judged change. In: scene and round. Out: decisions.

mod judging;
mod proposing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::Topology;
use bayplan_types::QosClass;

use crate::baseline::{Baseline, Baselines};
use crate::detect::{self, Condition, Judge};
use crate::knob::Knob;
use crate::proposal::{Decision, Outcome, Proposal};
use crate::sample::{Round, Sample, Signal};
use crate::scene::{Mode, Scene};
use crate::settings::Settings;
use crate::standing::{Budget, Pair, Stage, Standing, Tried};
use crate::unhelped::Unhelped;
use crate::windows::Windows;

/// Looks at every round and says what to change.
#[derive(Clone, Debug)]
pub struct Rebalancer {
    settings: Settings,
    windows: Windows,
    baselines: Baselines,
    standing: BTreeMap<u64, Standing>,
    tried: Tried,
    budget: Budget,
    /// Since when a container suffers and none is to blame.
    blameless: BTreeMap<ContainerId, Duration>,
    /// Until when nothing more is only said for a victim's sake.
    told: BTreeMap<ContainerId, Duration>,
    /// How many suffered from others in the last round.
    victims: usize,
    last: u64,
}

impl Rebalancer {
    /// One that has seen nothing.
    pub fn new(settings: Settings) -> Rebalancer {
        Rebalancer {
            settings,
            windows: Windows::default(),
            baselines: Baselines::default(),
            standing: BTreeMap::new(),
            tried: Tried::default(),
            budget: Budget::default(),
            blameless: BTreeMap::new(),
            told: BTreeMap::new(),
            victims: 0,
            last: 0,
        }
    }

    /// Goes on with other settings. What stands and is forbidden now is withdrawn in the next round.
    pub fn reconfigure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Takes over what was known about workloads before; what is known already stays, what cannot be a baseline is left out.
    pub fn learn(&mut self, baselines: impl IntoIterator<Item = Baseline>) {
        self.baselines.restore(baselines);
    }

    /// All that is known about workloads.
    pub fn baselines(&self) -> Vec<Baseline> {
        self.baselines.rows()
    }

    /// The proposals that are to be in force or are being carried out, in their order.
    pub fn standing(&self) -> impl Iterator<Item = &Proposal> {
        self.standing.values().map(|it| &it.proposal)
    }

    /// How many suffer from others, as far as the last round shows, without those that nothing is changed for.
    pub fn victims(&self) -> usize {
        self.victims
    }

    /// Containers that showed a sign of suffering in the last round and for which nothing stands or was proposed lately, each with the reason. None in
    /// unrest, and where nothing was measured: that is the reason for all.
    pub fn unhelped(&self, scene: &Scene, now: Duration) -> Vec<Unhelped> {
        if scene.unrest.is_some() || self.windows.is_blind() {
            return Vec::new();
        }
        let is_helped = |id: &ContainerId| {
            self.told.contains_key(id) || self.standing().any(|it| it.evidence.victim == *id)
        };
        let mut found = self.eyes(&scene.topology, now).unhelped(scene);
        found.retain(|it| !is_helped(&it.container));
        found
    }

    /// Something else has taken back all that stood. It is forgotten, and nothing is learned from it.
    pub fn withdraw(&mut self) {
        self.standing.clear();
    }

    /// Says how the carrying out of a proposal ended. Of one that is not known, or was said already, nothing is taken.
    pub fn carried_out(&mut self, number: u64, outcome: &Outcome, at: Duration) {
        let Some(standing) = self.standing.get_mut(&number) else { return };
        if standing.stage != Stage::Proposed {
            return;
        }
        match outcome {
            Outcome::Done => standing.stage = Stage::Settling { begun: at, since: at },
            Outcome::Refused(_) => {
                let pair = pair(&standing.proposal);
                self.standing.remove(&number);
                self.tried.refused(pair, at, self.settings.forget);
            }
        }
    }

    /// Says that one that stood is not in force any more, by what came later. It is not tried again for this pair for a while.
    pub fn ended(&mut self, number: u64, at: Duration) {
        if let Some(gone) = self.remove(number) {
            self.tried.refused(pair(&gone.proposal), at, self.settings.forget);
        }
    }

    /// It does not stand any more. The others in its domain stay until it has shown how it is without this one.
    fn remove(&mut self, number: u64) -> Option<Standing> {
        let gone = self.standing.remove(&number)?;
        let near =
            self.standing.values_mut().filter(|it| it.domain.cpus.intersects(&gone.domain.cpus));
        near.for_each(Standing::restart);
        Some(gone)
    }

    /// Looks at a round. A round that does not end after the one before it is left out. In unrest nothing is proposed and nothing measured is judged; what is
    /// not allowed any more, has lost its victim or target, or was carried out ten minutes ago and could not be judged since, is undone all the same. What is not allowed any more
    /// is undone in this round, all of it.
    pub fn look(&mut self, scene: &Scene, round: &Round) -> Vec<Decision> {
        // When the oldest one began is not known.
        let depth = self.settings.history.max(self.settings.long).max(2 * self.settings.settle + 1);
        if !self.windows.take(scene, round, depth) {
            return Vec::new();
        }
        let now = round.at;
        self.tried.retain(|id| scene.residents.contains_key(&id));
        self.told.retain(|id, until| *until > now && scene.residents.contains_key(id));
        let conditions = self.conditions(scene, now);
        let blames = |(_, id, it): &(_, _, &Condition)| {
            !self.eyes(&scene.topology, now).culprits(scene, *id, &it.findings).is_empty()
        };
        self.victims = victims(scene, &conditions).filter(blames).count();
        if scene.unrest.is_some() {
            self.standing.values_mut().for_each(|it| it.wait(now));
            return self.judge(scene, &conditions, now);
        }
        self.study(scene, &conditions, now);
        let away: Vec<(u64, ContainerId)> = self.away().collect();
        let mut decisions = self.judge(scene, &conditions, now);
        if !self.windows.is_blind() {
            let gone = |(number, _): &(u64, _)| !self.standing.contains_key(number);
            let back = away.into_iter().filter(gone).map(|(_, target)| target).collect();
            decisions.extend(self.propose(scene, &conditions, &back, now));
        }
        decisions
    }

    fn eyes<'a>(&'a self, topology: &'a Arc<Topology>, now: Duration) -> Judge<'a> {
        let Rebalancer { settings, windows, baselines, .. } = self;
        Judge { settings, windows, baselines, topology, now }
    }

    fn conditions(&self, scene: &Scene, now: Duration) -> BTreeMap<ContainerId, Condition> {
        let eyes = self.eyes(&scene.topology, now);
        let watched = scene.residents.iter().filter(|(_, it)| it.mode != Mode::Off);
        watched.filter_map(|(id, it)| Some((*id, eyes.condition(*id, it)?))).collect()
    }

    /// Learns what is usual from containers that are at ease and on or for which nothing is turned but where they run.
    fn study(
        &mut self,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        now: Duration,
    ) {
        // A container that only runs elsewhere is as it is there, and what is usual for it has to be known before others come.
        let is_of_place = |it: &Standing| it.stage == Stage::Kept && !it.proposal.leave.is_empty();
        let changed: BTreeSet<ContainerId> = self
            .passing()
            .filter(|it| !is_of_place(it))
            .flat_map(|it| [it.proposal.target, it.proposal.evidence.victim])
            .chain(scene.touched.iter().copied())
            .collect();
        for (id, condition) in conditions {
            let Some(resident) = scene.residents.get(id) else { continue };
            // Trouble for which no container is to blame in all that time is how it is now.
            let long = self.blameless.get(id).is_some_and(|it| now >= *it + self.settings.forget);
            if (condition.is_uneasy && !long) || changed.contains(id) {
                continue;
            }
            let is_usual = |signal| signal != Signal::Migrations || !condition.is_hopping || long;
            let eyes = self.eyes(&scene.topology, now);
            let lessons = eyes.lessons(*id).filter(|(signal, ..)| is_usual(*signal));
            let lessons: Vec<_> = lessons.collect();
            let key = detect::key(&scene.topology, resident);
            self.baselines.learn(&key, lessons.into_iter(), now);
        }
    }

    /// Containers that have left CPUs, with the numbers of the proposals.
    fn away(&self) -> impl Iterator<Item = (u64, ContainerId)> {
        let all = self.standing.values().map(|it| &it.proposal);
        all.filter(|it| !it.leave.is_empty()).map(|it| (it.number, it.target))
    }

    /// What is not for good.
    fn passing(&self) -> impl Iterator<Item = &Standing> {
        self.standing.values().filter(|it| !it.is_for_good())
    }
}

/// The victims. A container that asked for nothing has what is left, and nothing is changed for its sake.
fn victims<'a>(
    scene: &'a Scene,
    conditions: &'a BTreeMap<ContainerId, Condition>,
) -> impl Iterator<Item = (Option<QosClass>, ContainerId, &'a Condition)> {
    let ill = conditions.iter().filter(|(_, it)| !it.findings.is_empty());
    let known = ill.filter_map(|(id, it)| Some((scene.residents.get(id)?.qos, *id, it)));
    known.filter(|(qos, ..)| *qos != Some(QosClass::BestEffort))
}

/// CPUs that a container would keep busy if it had them.
fn wants(sample: &Sample) -> f64 {
    let stopped = 1.0 - sample.throttled.unwrap_or(0.0).min(0.99);
    sample.wanted() / stopped
}

fn pair(proposal: &Proposal) -> Pair {
    pair_of(proposal.evidence.victim, proposal.target, proposal.knob)
}

/// Under which it is remembered how a knob did. All BestEffort containers are suppressed, whichever of them is named.
fn pair_of(victim: ContainerId, target: ContainerId, knob: Knob) -> Pair {
    let target = if knob == Knob::Suppress { victim } else { target };
    (victim, target, knob)
}
