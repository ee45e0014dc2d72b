//! From decisions to what is turned. In: the proposals that stand. Out: a state that has them, and how that ended, by what the files say afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_node::turned::Turned;
use bayplan_rebalance::{Knob, Outcome, Proposal};

use super::task::{Looker, RebalancerTask};
use crate::enforcer::{Enforcement, LOST};
use crate::inbox::Inbox;

/// Files are written within milliseconds; after a longer wait it is not known whether they are.
pub(super) const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// Before the daemon stops, or when no more is looked at: what is turned would not be judged any more.
pub(crate) async fn take_back(inbox: &Inbox, enforcement: &Enforcement) {
    let taken_back = async {
        let answer = inbox.ask(Event::Turn(Turned::default())).await;
        if let Some(Answer::Since(Some(step))) = answer {
            enforcement.is_in_line_with(step).await;
        }
        if enforcement.is_lost() {
            tracing::warn!("{LOST}");
        }
    };
    if tokio::time::timeout(WRITTEN_WITHIN, taken_back).await.is_err() {
        tracing::warn!("what the rebalancer has turned is taken back at the next start only");
    }
}

impl RebalancerTask {
    /// Makes the state say what stands, and finds out what became of `proposed`. What could not be done is taken back at once.
    pub(super) async fn carry_out(&self, looker: &mut Looker, proposed: Vec<u64>) -> Option<()> {
        // Of new ones there is no home yet: memory goes when everything else was told.
        let standing: BTreeSet<u64> = looker.rebalancer.standing().map(|it| it.number).collect();
        looker.homes.retain(|number, _| standing.contains(number));
        let Some(step) = self.hand_over(looker).await? else { return Some(()) };
        let mut is_refused = false;
        for number in proposed {
            let found = looker.rebalancer.standing().find(|it| it.number == number).cloned();
            let outcome = match found {
                Some(it) if it.knob == Knob::Memory => {
                    self.bring_home(looker, number, it.target).await?
                }
                Some(it) if !it.leave.is_empty() => self.has_left(&it).await?,
                _ => self.outcome(number, step).await,
            };
            is_refused |= outcome != Outcome::Done;
            looker.rebalancer.carried_out(number, &outcome, looker.started.elapsed());
            self.tell_outcome(number, &outcome).await?;
        }
        if is_refused {
            self.hand_over(looker).await?;
        }
        Some(())
    }

    /// A container that was made to leave CPUs runs there again where too few others would be left for what it asks for now, together with those that
    /// have come there since, or where it owns CPUs now: then that has ended, and is told so. It does not come back by itself. Of several moves of
    /// one container the newest ends first, and the others only if it still runs on CPUs that they are about. So it is with memory that belongs
    /// elsewhere now, or for which there is no room at home any more. Gives where all containers are then.
    pub(super) async fn end_moves(
        &self,
        looker: &mut Looker,
        occupancy: Arc<Occupancy>,
    ) -> Option<Arc<Occupancy>> {
        let mut occupancy = occupancy;
        loop {
            let ended = ended_moves(&looker.turned, &occupancy);
            if ended.is_empty() {
                return Some(occupancy);
            }
            for (number, why) in ended {
                looker.rebalancer.ended(number, looker.started.elapsed());
                self.tell_ended(number, &why).await?;
            }
            self.hand_over(looker).await?;
            let Answer::Occupancy(now) = self.inbox.ask(Event::Occupancy).await? else {
                return Some(occupancy);
            };
            occupancy = now;
        }
    }

    /// Takes back all that stands, and nothing is concluded from it.
    pub(super) async fn withdraw(&self, looker: &mut Looker) -> Option<()> {
        looker.rebalancer.withdraw();
        self.told.withdrawn();
        self.hand_over(looker).await.map(drop)
    }

    /// The step of the state that has it; nothing where it has it already.
    pub(super) async fn hand_over(&self, looker: &mut Looker) -> Option<Option<u64>> {
        let turned = Turned::of(looker.rebalancer.standing(), &looker.homes);
        if turned == looker.turned {
            return Some(None);
        }
        let answer = self.inbox.ask(Event::Turn(turned.clone())).await?;
        looker.turned = turned;
        let Answer::Since(Some(step)) = answer else { return Some(None) };
        self.told.taken_back(step);
        Some(Some(step))
    }

    /// Whether a container is told to run where it is not to leave. A runtime that refuses is asked again by the next sync, and a container that is
    /// still where it was is judged as such.
    async fn has_left(&self, proposal: &Proposal) -> Option<Outcome> {
        let Proposal { knob, target, leave, .. } = proposal;
        let Answer::Occupancy(occupancy) = self.inbox.ask(Event::Occupancy).await? else {
            return Some(Outcome::Refused("it is not known where it runs".to_owned()));
        };
        let found = occupancy.occupants.iter().find(|it| it.id == *target);
        Some(match found {
            Some(it) if it.cpus.is_disjoint(leave) => Outcome::Done,
            Some(it) => Outcome::Refused(why_there(*knob, it).to_owned()),
            None => Outcome::Refused("it is gone".to_owned()),
        })
    }

    async fn outcome(&self, number: u64, step: u64) -> Outcome {
        let turned = self.enforcement.turned(number, step);
        match tokio::time::timeout(WRITTEN_WITHIN, turned).await {
            Ok(Some(Ok(()))) => Outcome::Done,
            Ok(Some(Err(why))) => Outcome::Refused(why),
            Ok(None) => Outcome::Refused("no file was written for it".to_owned()),
            Err(_) => Outcome::Refused(format!(
                "its files were not written within {} s",
                WRITTEN_WITHIN.as_secs()
            )),
        }
    }
}

/// The newest proposal of each container that runs on CPUs that it was to leave, those of memory that does not belong elsewhere any more, and why that is so.
pub(super) fn ended_moves(turned: &Turned, occupancy: &Occupancy) -> BTreeMap<u64, String> {
    let newest = |it: &Occupant| {
        let turns = turned.iter().filter(|(_, turn)| turn.target == it.id);
        let there = turns.filter(|(_, turn)| !it.cpus.is_disjoint(&turn.leave));
        let why = |knob| match knob {
            Knob::MoveOwner if !it.exclusive.is_empty() => "it was given CPUs there since",
            _ => why_there(knob, it),
        };
        there.map(|(number, turn)| (number, why(turn.knob).to_owned())).max()
    };
    let occupants = occupancy.occupants.iter();
    let moves = occupants.filter_map(newest);
    let homes = turned.iter().filter(|(_, turn)| turn.knob == Knob::Memory);
    let homes = homes.filter_map(|(number, turn)| {
        let it = occupancy.occupants.iter().find(|it| it.id == turn.target)?;
        let why = match &it.home {
            Ok(home) if *home == turn.mems => return None,
            Ok(home) => format!("its memory belongs on nodes {home} now"),
            Err(why) => why.to_string(),
        };
        Some((number, why))
    });
    moves.chain(homes).collect()
}

/// Why a container is where it is not to be.
fn why_there(knob: Knob, it: &Occupant) -> &'static str {
    match it {
        _ if it.is_left_alone => "its CPUs are not Bayplan's to say",
        _ if it.exclusive.is_empty() => "too few other CPUs would be left for it",
        _ if knob == Knob::MoveOwner => {
            "no other CPUs of its NUMA nodes that are as good can be exclusive to it, or it may not be moved now"
        }
        _ => "it has exclusive CPUs",
    }
}
