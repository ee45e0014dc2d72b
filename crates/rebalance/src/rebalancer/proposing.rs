//! What to change next. In: victims of a round and what the ladder offers for each. Out: proposals, which stand from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_types::QosClass;

use super::{Rebalancer, pair, pair_of, victims, wants};
use crate::detect::Condition;
use crate::knob::Knob;
use crate::ladder::{self, Candidate};
use crate::path::{Path, path};
use crate::proposal::{Decision, Evidence, Proposal};
use crate::sample::Signal;
use crate::scene::{Mode, Scene};
use crate::standing::{Stage, Standing};

/// For a victim that is helped already, or because of a culprit that is held already, so little above the limits that a knob is for is no reason to
/// do more.
const GOOD_ENOUGH: f64 = 1.1;

impl Rebalancer {
    /// At most one proposal for each victim, the most important victim first; none for one that suffers from a container that goes back now.
    pub(super) fn propose(
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
        let before = eyes.lately_shown(evidence.victim);
        let chosen = candidates.into_iter().find_map(|it| self.choose(it, &evidence, now));
        let (candidate, step) = chosen?;
        let ill_before = conditions.iter().map(|(id, it)| (*id, it.worst)).collect();
        self.stand(candidate, step, evidence, ill_before, before, now)
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
        before: BTreeMap<Signal, f64>,
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
                before,
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
