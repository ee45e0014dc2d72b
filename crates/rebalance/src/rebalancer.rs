//! The loop from evidence to a judged change. In: scene and round. Out: decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::Topology;
use bayplan_types::QosClass;

use crate::baseline::{Baseline, Baselines};
use crate::detect::{self, Condition, Judge};
use crate::knob::Knob;
use crate::ladder::{self, Candidate};
use crate::path::{Path, path};
use crate::proposal::{Decision, Evidence, Outcome, Proposal, Verdict};
use crate::sample::{Round, Sample, Signal};
use crate::scene::{Mode, Resident, Scene};
use crate::settings::Settings;
use crate::standing::{Budget, Pair, Stage, Standing, Tried, lasting};
use crate::unhelped::Unhelped;
use crate::verdict::{self, Look, SEVERITY_MAX};
use crate::windows::Windows;

/// The code that carries proposals out has so long to say how that went.
const WORD_WITHIN: Duration = Duration::from_secs(60);
/// What was carried out has to be judged so soon, however long unrest lasts; then it is undone.
const JUDGED_WITHIN: Duration = Duration::from_secs(600);

/// For a victim that is helped already, or because of a culprit that is held already, so little above the limits that a knob is for is no reason to
/// do more.
const GOOD_ENOUGH: f64 = 1.1;
/// A culprit that wants less than this share of what it did is another one now.
const CALM: f64 = 0.5;
/// So many times as long as otherwise all have to be well before it is tried to do without although the culprit is as it was.
const WISH_TO_KNOW: u32 = 6;

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

    /// Goes on with other settings. What stands and is forbidden now is undone in the next round.
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
    /// not allowed any more, has lost its victim or target, or was carried out ten minutes ago and could not be judged since, is undone all the same.
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

    /// Learns what is usual from containers that are at ease and on or for which nothing is turned.
    fn study(
        &mut self,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        now: Duration,
    ) {
        let changed: BTreeSet<ContainerId> = self
            .passing()
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

    /// Verdicts on what stands, the newest first, so that steps are taken back in the order in which they can be.
    fn judge(
        &mut self,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        now: Duration,
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let numbers: Vec<u64> = self.standing.keys().rev().copied().collect();
        for number in numbers {
            let Some(verdict) = self.verdict(number, scene, conditions, now) else { continue };
            let is_kept = matches!(verdict, Verdict::Kept { .. });
            let per_minute = self.settings.changes_per_minute.max(1);
            // Without budget it is judged again in the next round: `standing_max` undos take some minutes at most, and nothing is proposed before
            // them.
            if !is_kept && !self.budget.take(now, per_minute) {
                break;
            }
            if let Some(standing) = self.standing.get_mut(&number) {
                let pair = pair(&standing.proposal);
                standing.stage = Stage::Kept;
                match verdict {
                    Verdict::Kept { .. } => self.tried.helped(pair.0),
                    Verdict::Over => self.tried.released(pair, now),
                    Verdict::Covered => self.tried.covered(pair, now),
                    // It was not seen that it does not help.
                    Verdict::Unknown => self.tried.refused(pair, now, self.settings.forget),
                    _ => self.failed(pair, now),
                }
            }
            if !is_kept {
                self.remove(number);
            }
            decisions.push(Decision::Judge { number, verdict });
        }
        decisions
    }

    fn failed(&mut self, pair: Pair, now: Duration) {
        if self.settings.parts.memory {
            self.tried.failed(pair, now, self.settings.forget);
        }
    }

    /// What is to be said of one that stands; `None` for nothing now.
    fn verdict(
        &mut self,
        number: u64,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        now: Duration,
    ) -> Option<Verdict> {
        let standing = self.standing.get(&number)?;
        let unmeasured = self.unmeasured(standing, scene, now);
        if unmeasured.is_some() || scene.unrest.is_some() {
            return unmeasured;
        }
        match standing.stage {
            Stage::Proposed => None,
            Stage::Settling { since, .. } => self.worth(standing, since, scene, conditions, now),
            Stage::Kept if standing.is_for_good() => None,
            Stage::Kept if self.is_covered(standing, now) => Some(Verdict::Covered),
            Stage::Kept if let Some(relief) = self.regret(standing, scene, now) => {
                Some(Verdict::Useless { relief })
            }
            Stage::Kept if let Some(other) = self.is_paid_for(standing, scene, conditions, now) => {
                Some(Verdict::Harmful { other })
            }
            Stage::Kept => self.is_over(number, scene, conditions, now).then_some(Verdict::Over),
        }
    }

    /// A container that has fled and is no better off by now than where it came from goes back: the place that had room then is not the same any
    /// more. So does one that was gathered and has to wait there since.
    fn regret(&self, standing: &Standing, scene: &Scene, now: Duration) -> Option<f64> {
        let Proposal { knob, target, evidence, .. } = &standing.proposal;
        let fled = self.settings.parts.verdict && ladder::flees(*knob, *target, evidence.victim);
        let victim = scene.residents.get(target).filter(|_| fled)?;
        let eyes = self.eyes(&scene.topology, now);
        eyes.lately_closed(&standing.proposal, victim).filter(|relief| *relief <= 0.0)
    }

    /// A container that was sent elsewhere, is no less important than the one for which it went, and suffers from others there by now: what was right when it went is not any more.
    fn is_paid_for(
        &self,
        standing: &Standing,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        now: Duration,
    ) -> Option<ContainerId> {
        let Proposal { target, evidence, leave, .. } = &standing.proposal;
        let was_sent = *target != evidence.victim && !leave.is_empty();
        let (goer, victim) = (scene.residents.get(target)?, scene.residents.get(&evidence.victim)?);
        let is_equal = goer.qos != Some(QosClass::BestEffort) && goer.qos >= victim.qos;
        if !was_sent || !is_equal || !self.settings.parts.verdict {
            return None;
        }
        let condition = conditions.get(target).filter(|it| it.severity() > 1.0)?;
        let culprits =
            self.eyes(&scene.topology, now).culprits(scene, *target, &condition.findings);
        (!culprits.is_empty()).then_some(*target)
    }

    /// It was judged together with a change that helps and leaves it nothing to do. Whether that is so shows when it is taken back: at once, and later each time
    /// that it was not so.
    fn is_covered(&self, standing: &Standing, now: Duration) -> bool {
        let by = standing.covered_by.and_then(|number| self.standing.get(&number));
        let wait = match self.settings.parts.memory {
            true => self.tried.trial(&pair(&standing.proposal), self.settings.quiet),
            false => Duration::ZERO,
        };
        let is_due = now >= standing.proposal.at + wait;
        self.settings.parts.verdict && is_due && by.is_some_and(|it| it.stage == Stage::Kept)
    }

    /// A verdict for which nothing has to be measured, and which unrest does not keep waiting.
    fn unmeasured(&self, standing: &Standing, scene: &Scene, now: Duration) -> Option<Verdict> {
        let Proposal { evidence, target, knob, at, .. } = &standing.proposal;
        let is_there = |id| scene.residents.contains_key(id);
        let is_gone = !is_there(&evidence.victim) || !is_there(target);
        match standing.stage {
            Stage::Proposed => (now > *at + WORD_WITHIN).then_some(Verdict::Unknown),
            Stage::Settling { .. } if is_gone => Some(Verdict::Unknown),
            Stage::Kept if is_gone => Some(Verdict::Over),
            _ if self.settings.forbidden.contains(knob) => Some(Verdict::Over),
            _ if !is_allowed(scene, &standing.proposal) => Some(Verdict::Over),
            Stage::Settling { begun, .. } => {
                let is_late = now > begun + JUDGED_WITHIN;
                // Looks may be far apart.
                let looks = self.windows.count_since(begun);
                (is_late && looks >= 2 * self.settings.settle).then_some(Verdict::Unknown)
            }
            Stage::Kept => None,
        }
    }

    /// What the rounds after `since` say of it.
    fn worth(
        &self,
        standing: &Standing,
        since: Duration,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        now: Duration,
    ) -> Option<Verdict> {
        let victim = scene.residents.get(&standing.proposal.evidence.victim)?;
        let look = self.eyes(&scene.topology, now).look(&standing.proposal, victim, since)?;
        let (relief, verdict) = match look {
            Look::Decided(it @ (Verdict::Kept { relief } | Verdict::Useless { relief })) => {
                (relief, Some(it))
            }
            Look::Decided(other) => return Some(other),
            // Containers that it harms more than that need not wait for the next look.
            Look::Undecided { seen } => (seen, None),
        };
        let before = detect::severity(&standing.proposal.evidence.findings);
        let gain = relief * (before.min(SEVERITY_MAX) - 1.0);
        match verdict::worst_off(&verdict::losses(scene, standing, conditions), gain) {
            Some(other) if self.settings.parts.verdict => Some(Verdict::Harmful { other }),
            _ => verdict,
        }
    }

    /// All that could feel it are well, and have been for long enough.
    fn is_over(
        &mut self,
        number: u64,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        now: Duration,
    ) -> bool {
        let Some(standing) = self.standing.get(&number) else { return false };
        let near =
            scene.residents.iter().filter(|(_, it)| it.cpus.intersects(&standing.domain.cpus));
        let is_gather = standing.proposal.knob == Knob::Gather;
        let is_well = |it: &Condition| it.is_well && (it.is_gathered || !is_gather);
        let all_well = near
            .filter(|(id, _)| **id != standing.proposal.target)
            .all(|(id, _)| conditions.get(id).is_none_or(is_well));
        let quiet = match self.settings.parts.memory {
            true => self.tried.quiet(&pair(&standing.proposal), self.settings.quiet),
            false => self.settings.quiet,
        };
        let is_calm = standing.culprit.is_some_and(|(id, wanted)| match scene.residents.get(&id) {
            Some(_) => self.windows.last(id).is_some_and(|it| wants(it) < CALM * wanted),
            None => true,
        });
        let Some(standing) = self.standing.get_mut(&number) else { return false };
        if standing.proposal.knob == Knob::Clock {
            let place = scene.clocks.get(&standing.proposal.target);
            let is_needed = place.is_some_and(|it| it.is_better_away);
            return lasting(&mut standing.calm_since, !is_needed, now) >= quiet && !is_needed;
        }
        let well_for = lasting(&mut standing.well_since, all_well, now);
        let calm_for = lasting(&mut standing.calm_since, is_calm, now);
        // As long as the culprit is as it was, nothing speaks for doing without but the wish to know.
        all_well && (well_for.min(calm_for) >= quiet || well_for >= WISH_TO_KNOW * quiet)
    }

    /// Containers that have left CPUs, with the numbers of the proposals.
    fn away(&self) -> impl Iterator<Item = (u64, ContainerId)> {
        let all = self.standing.values().map(|it| &it.proposal);
        all.filter(|it| !it.leave.is_empty()).map(|it| (it.number, it.target))
    }

    /// At most one proposal for each victim, the most important victim first; none for one that suffers from a container that goes back now.
    fn propose(
        &mut self,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        back: &BTreeSet<ContainerId>,
        now: Duration,
    ) -> Vec<Decision> {
        let mut victims: Vec<(Option<QosClass>, f64, ContainerId)> =
            victims(scene, conditions).map(|(qos, id, it)| (qos, it.severity(), id)).collect();
        victims.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        self.blameless.retain(|id, _| victims.iter().any(|(_, _, victim)| victim == id));
        let mut decisions = Vec::new();
        for (_, _, victim) in victims {
            let Some(condition) = conditions.get(&victim) else { continue };
            let findings = condition.findings.clone();
            let culprits = self.eyes(&scene.topology, now).culprits(scene, victim, &findings);
            if culprits.is_empty() {
                self.blameless.entry(victim).or_insert(now);
            } else {
                self.blameless.remove(&victim);
            }
            if culprits.iter().any(|it| back.contains(&it.container)) {
                continue;
            }
            let evidence = Evidence { victim, findings, culprits };
            decisions.extend(self.propose_for(scene, conditions, evidence, now));
        }
        // What no container suffers from comes last.
        let badly_clocked = self.eyes(&scene.topology, now).badly_clocked(scene);
        for evidence in badly_clocked {
            decisions.extend(self.propose_for(scene, conditions, evidence, now));
        }
        decisions
    }

    /// The first of what could be done that can be proposed now.
    fn propose_for(
        &mut self,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        evidence: Evidence,
        now: Duration,
    ) -> Option<Decision> {
        let eyes = self.eyes(&scene.topology, now);
        let candidates = ladder::candidates(&eyes, scene, &evidence);
        let chosen = candidates.into_iter().find_map(|it| self.choose(it, &evidence, now));
        let (candidate, step) = chosen?;
        let ill_before = conditions.iter().map(|(id, it)| (*id, it.worst)).collect();
        self.stand(candidate, step, evidence, ill_before, now)
    }

    /// What is not for good.
    fn passing(&self) -> impl Iterator<Item = &Standing> {
        self.standing.values().filter(|it| !it.is_for_good())
    }

    /// Others would have to do with less for the sake of a container that has fled to them, and need not: none leaves its place for a guest, and what
    /// slows its cycles down there may be the way to its memory.
    fn is_for_guest(&self, candidate: &Candidate, evidence: &Evidence) -> bool {
        let (victim, signals) = (evidence.victim, ladder::signals(candidate.knob));
        let mut found = evidence.findings.iter().filter(|it| signals.contains(&it.signal));
        let mut moves =
            self.standing.values().map(|it| &it.proposal).filter(|it| it.knob == Knob::Move);
        candidate.target != victim
            && moves.any(|it| it.target == victim && it.evidence.victim == victim)
            && (candidate.knob == Knob::Move || found.all(|it| path(it.signal) == Path::Hardware))
    }

    /// Something stands against a signal already, for a victim's sake or with a target.
    fn is_begun(&self, victim: ContainerId, target: ContainerId, signal: Signal) -> bool {
        let mut all = self.passing().map(|it| &it.proposal);
        all.any(|it| {
            let is_same = it.evidence.victim == victim || it.target == target;
            is_same && ladder::signals(it.knob).contains(&signal)
        })
    }

    /// Whether a knob is for nothing but what something stands against already, and that is hardly too high any more.
    fn is_little(&self, knob: Knob, target: ContainerId, evidence: &Evidence) -> bool {
        let signals = ladder::signals(knob);
        let mut found = evidence.findings.iter().filter(|it| signals.contains(&it.signal));
        found.all(|it| {
            it.short < GOOD_ENOUGH * it.limit && self.is_begun(evidence.victim, target, it.signal)
        })
    }

    /// Whether a candidate can be proposed now, and its step.
    fn choose(
        &self,
        candidate: Candidate,
        evidence: &Evidence,
        now: Duration,
    ) -> Option<(Candidate, u32)> {
        let Candidate { knob, target, .. } = candidate;
        let victim = evidence.victim;
        let is_busy = self.standing.values().any(|it| {
            let is_felt =
                it.domain.overlaps(&candidate.domain) || ladder::covers(&it.proposal, knob);
            it.stage != Stage::Kept && is_felt
        });
        let step = self.next_step(&candidate)?;
        let was_told = candidate.mode == Mode::Observe && self.told.contains_key(&victim);
        let may = !self.is_for_guest(&candidate, evidence)
            && !self.is_little(knob, target, evidence)
            && !self.settings.forbidden.contains(&knob)
            && self.tried.allows(&pair_of(victim, target, knob), now)
            && self.passing().count() < self.settings.standing_max;
        (may && !is_busy && !was_told).then_some((candidate, step))
    }

    /// How far the knob is to be turned; `None` where that would change nothing.
    fn next_step(&self, candidate: &Candidate) -> Option<u32> {
        let Candidate { knob, target, leave, .. } = candidate;
        let proposals = || self.standing.values().map(|it| &it.proposal);
        // What all BestEffort containers have together goes down by one step, whichever is named.
        let turned = proposals()
            .filter(|it| it.knob == *knob && (it.target == *target || *knob == Knob::Suppress));
        if !leave.is_empty() {
            let has_left = turned.clone().any(|it| leave.is_subset(&it.leave));
            return (!has_left).then_some(1);
        }
        let steps = ladder::steps(*knob);
        match turned.map(|it| it.step).max() {
            None => Some(candidate.step_min.min(steps)),
            // Where some were not enough, all of them are made.
            Some(step) => (step < steps).then_some(steps),
        }
    }

    fn stand(
        &mut self,
        candidate: Candidate,
        step: u32,
        evidence: Evidence,
        ill_before: BTreeMap<ContainerId, f64>,
        now: Duration,
    ) -> Option<Decision> {
        let Candidate { knob, target, leave, domain, mode, .. } = candidate;
        if mode == Mode::Act && !self.budget.take(now, self.settings.changes_per_minute) {
            return None;
        }
        self.last += 1;
        let number = self.last;
        let victim = evidence.victim;
        let proposal = Proposal { number, at: now, mode, knob, target, step, leave, evidence };
        if mode == Mode::Act {
            self.tried.proposed(pair(&proposal), now, self.settings.quiet);
            let stage = Stage::Proposed;
            let proposal = proposal.clone();
            let culprit = self.culprit(&proposal);
            let (well_since, calm_since) = (None, None);
            let covered = self.standing.values_mut().filter(|it| {
                it.stage != Stage::Kept && ladder::covers(&proposal, it.proposal.knob)
            });
            covered.for_each(|it| it.covered_by = Some(number));
            let covered_by = None;
            let standing = Standing {
                proposal,
                domain,
                stage,
                ill_before,
                culprit,
                covered_by,
                well_since,
                calm_since,
            };
            self.standing.insert(number, standing);
        } else {
            self.told.insert(victim, now + self.settings.forget);
        }
        Some(Decision::Propose(Box::new(proposal)))
    }

    /// From which container the victim suffers, and the CPUs that this one wants.
    fn culprit(&self, proposal: &Proposal) -> Option<(ContainerId, f64)> {
        let Proposal { evidence, target, .. } = proposal;
        let first = || evidence.culprits.first().map(|it| it.container);
        let id = (*target != evidence.victim).then_some(*target).or_else(first)?;
        Some((id, wants(self.windows.last(id)?)))
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

/// Victim and target still allow that something is done.
fn is_allowed(scene: &Scene, proposal: &Proposal) -> bool {
    let acts = |id| scene.residents.get(&id).is_some_and(|it: &Resident| it.mode == Mode::Act);
    acts(proposal.evidence.victim) && acts(proposal.target)
}
