//! Which containers run where, made once for all tasks that ask. In: events, for the state. Out: the state's steps; the question where containers run gets the last answer until something
//! has happened.

use std::sync::Arc;

use bayplan_node::event::{Answer, Event, Step};
use bayplan_node::occupancy::Occupancy;
use bayplan_node::state::NodeState;
use jiff::Timestamp;

/// The last answer; `None` once something has happened.
#[derive(Debug, Default)]
pub(crate) struct KnownOccupancy(Option<Arc<Occupancy>>);

impl KnownOccupancy {
    /// The state's step, unless its answer is known.
    pub(crate) fn step(&mut self, state: &mut NodeState, event: Event, now: Timestamp) -> Step {
        if let (Event::Occupancy, Some(known)) = (&event, &self.0) {
            return Step::new(Answer::Occupancy(Arc::clone(known)));
        }
        let is_question = event.is_question();
        let step = state.step(event, now);
        // What was due may have been done after the answer was made.
        let is_as_it_was = is_question && step.records.is_empty() && step.plan.is_empty();
        match &step.answer {
            _ if !is_as_it_was => self.0 = None,
            Answer::Occupancy(answered) => self.0 = Some(Arc::clone(answered)),
            _ => {}
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use bayplan_workload::{CreateOutcome, Ticket};

    use super::*;
    use crate::test_support::{new_container, state};

    /// Asked for twice.
    fn asked(known: &mut KnownOccupancy, state: &mut NodeState) -> [Arc<Occupancy>; 2] {
        [(); 2].map(|()| {
            let step = known.step(state, Event::Occupancy, Timestamp::UNIX_EPOCH);
            let Answer::Occupancy(answered) = step.answer else { panic!("{:?}", step.answer) };
            answered
        })
    }

    #[test]
    fn what_is_answered_is_made_once_and_never_old() {
        let mut state = state("pack:1 numa:1 core:4 pu:1 mem:1");
        let mut known = KnownOccupancy::default();
        let made = CreateOutcome::Created { id: "a".to_owned(), pinned: true };
        let id = || "a".to_owned();
        let events = [
            (Event::TryAdmit(Ticket(1), Box::new(new_container("p", "c", 0, 1))), true),
            (Event::Ping, false),
            (Event::CreateEnded(Ticket(1), made), true),
            (Event::ExclusiveCpus(id()), false),
            (Event::Started(id()), true),
            (Event::Status, false),
            (Event::SyncStarted, false),
            (Event::PauseRebalance(true), true),
            (Event::Ended(id()), true),
        ];
        let mut last = Arc::clone(&asked(&mut known, &mut state)[0]);
        for (event, is_news) in events {
            let what = format!("{event:?}");
            let _step = known.step(&mut state, event, Timestamp::UNIX_EPOCH);
            let [first, second] = asked(&mut known, &mut state);
            assert!(Arc::ptr_eq(&first, &second), "{what}");
            assert_eq!(Arc::ptr_eq(&first, &last), !is_news, "{what}");
            assert_eq!(*first, Occupancy { step: first.step, ..state.occupancy() }, "{what}");
            last = first;
        }
    }
}
