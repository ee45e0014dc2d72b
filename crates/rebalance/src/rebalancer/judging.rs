//! Verdicts on what stands. In: conditions of a round. Out: what is kept, and what is taken back and why.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_types::QosClass;

use super::{Rebalancer, pair, wants};
use crate::detect::{self, Condition};
use crate::knob::Knob;
use crate::ladder;
use crate::proposal::{Decision, Proposal, Verdict};
use crate::scene::{Mode, Resident, Scene};
use crate::standing::{Pair, Stage, Standing, lasting};
use crate::verdict::{self, Look, Relief, SEVERITY_MAX};

/// The code that carries proposals out has so long to say how that went.
const WORD_WITHIN: Duration = Duration::from_secs(60);
/// What was carried out has to be judged so soon, however long unrest lasts; then it is undone.
const JUDGED_WITHIN: Duration = Duration::from_secs(600);

/// A culprit that wants less than this share of what it did is another one now.
const CALM: f64 = 0.5;

/// So many times as long as otherwise all have to be well before it is tried to do without although the culprit is as it was.
const WISH_TO_KNOW: u32 = 6;

impl Rebalancer {
    /// Verdicts on what stands, the newest first, so that steps are taken back in the order in which they can be.
    pub(super) fn judge(
        &mut self,
        scene: &Scene,
        conditions: &BTreeMap<ContainerId, Condition>,
        now: Duration,
    ) -> Vec<Decision> {
        let mut decisions = self.withdraw_disallowed(scene);
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

    /// Takes back what is not allowed any more, the newest first. None of it waits for the budget, which is for the rebalancer's own judgement, and nothing is learned from it.
    fn withdraw_disallowed(&mut self, scene: &Scene) -> Vec<Decision> {
        let is_allowed = |it: &Proposal| {
            !self.settings.forbidden.contains(&it.knob)
                && !scene.disallowed.contains(&it.number)
                && acts(scene, it.evidence.victim)
                && acts(scene, it.target)
        };
        let disallowed = self.standing().filter(|it| !is_allowed(it)).map(|it| it.number);
        let mut numbers: Vec<u64> = disallowed.collect();
        numbers.reverse();
        let withdrawn = numbers.into_iter().map(|number| {
            self.remove(number);
            Decision::Judge { number, verdict: Verdict::Withdrawn }
        });
        withdrawn.collect()
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
            Stage::Kept
                if let Some(Relief { seen: relief, worse, .. }) =
                    self.regret(standing, scene, now) =>
            {
                Some(Verdict::Useless { relief, worse })
            }
            Stage::Kept if let Some(other) = self.is_paid_for(standing, scene, conditions, now) => {
                Some(Verdict::Harmful { other })
            }
            Stage::Kept => self.is_over(number, scene, conditions, now).then_some(Verdict::Over),
        }
    }

    /// A container that has fled and is no better off by now than where it came from goes back: the place that had room then is not the same any
    /// more. So does one that was gathered and has to wait there since.
    fn regret(&self, standing: &Standing, scene: &Scene, now: Duration) -> Option<Relief> {
        let Proposal { knob, target, evidence, .. } = &standing.proposal;
        let fled = self.settings.parts.verdict && ladder::flees(*knob, *target, evidence.victim);
        let victim = scene.residents.get(target).filter(|_| fled)?;
        let eyes = self.eyes(&scene.topology, now);
        eyes.relief_lately(standing, victim).filter(|it| it.seen <= 0.0)
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
        let Proposal { evidence, target, at, .. } = &standing.proposal;
        let is_there = |id| scene.residents.contains_key(id);
        let is_gone = !is_there(&evidence.victim) || !is_there(target);
        let is_contested =
            [target, &evidence.victim].iter().any(|it| scene.contested.contains(*it));
        match standing.stage {
            Stage::Proposed => (now > *at + WORD_WITHIN).then_some(Verdict::Unknown),
            Stage::Settling { .. } if is_gone => Some(Verdict::Unknown),
            Stage::Kept if is_gone => Some(Verdict::Over),
            _ if is_contested => Some(Verdict::Over),
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
        let look = self.eyes(&scene.topology, now).look(standing, victim, since)?;
        let (relief, verdict) = match look {
            Look::Decided(it @ (Verdict::Kept { relief } | Verdict::Useless { relief, .. })) => {
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
}

/// A container is to be acted on but for a fight for its files, or is gone.
fn acts(scene: &Scene, id: ContainerId) -> bool {
    scene.contested.contains(&id)
        || scene.residents.get(&id).is_none_or(|it: &Resident| it.mode == Mode::Act)
}
