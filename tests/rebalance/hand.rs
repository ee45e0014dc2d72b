//! What turns knobs: nothing, the rebalancer, or an oracle that knew it before.

use bayplan_plant::Plant;
use bayplan_rebalance::{Decision, Mode, Outcome, Proposal, Rebalancer, Round, Verdict};

/// What turns knobs.
pub(crate) enum Hand<'a> {
    Absent,
    Rebalancer(Box<Rebalancer>),
    /// These, from the onset on.
    Oracle(&'a [Proposal]),
}

/// A change that was made, or taken back.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Made(Box<Proposal>),
    Kept(u64, Verdict),
    Undone(u64, Verdict),
    Refused(Box<Proposal>, String),
}

impl Hand<'_> {
    /// Looks at a round and turns knobs of the plant. Returns what was changed, and what was only said or refused.
    pub(crate) fn act(&mut self, plant: &mut Plant, round: &Round, is_on: bool) -> Vec<Change> {
        match self {
            Hand::Absent => Vec::new(),
            Hand::Rebalancer(rebalancer) => follow(rebalancer, plant, round),
            Hand::Oracle(proposals) => {
                if is_on && plant.in_force().next().is_none() {
                    proposals.iter().for_each(|proposal| drop(plant.carry_out(proposal)));
                }
                Vec::new()
            }
        }
    }
}

fn follow(rebalancer: &mut Rebalancer, plant: &mut Plant, round: &Round) -> Vec<Change> {
    let mut changes = Vec::new();
    for decision in rebalancer.look(&plant.scene(), round) {
        match decision {
            Decision::Propose(proposal) if proposal.mode == Mode::Act => {
                let outcome = plant.carry_out(&proposal);
                rebalancer.carried_out(proposal.number, &outcome, plant.now());
                changes.push(match outcome {
                    Outcome::Done => Change::Made(proposal),
                    Outcome::Refused(why) => Change::Refused(proposal, why),
                });
            }
            Decision::Propose(_) => {}
            Decision::Judge { number, verdict } => {
                if matches!(verdict, Verdict::Kept { .. }) {
                    changes.push(Change::Kept(number, verdict));
                } else {
                    plant.undo(number);
                    changes.push(Change::Undone(number, verdict));
                }
            }
        }
    }
    changes
}
