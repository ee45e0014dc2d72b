//! `bayplan simulate POD.yaml`: pods of files through the daemon's own decisions on a machine. In: containers in the order in which kubelet creates
//! them, the state of an empty node. Out: what `bayplan explain` says of each.

use bayplan_node::NodeState;
use bayplan_node::event::{Answer, Event};
use bayplan_node::status::Explanation;
use bayplan_workload::{Admission, CreateOutcome, Ticket};
use jiff::Timestamp;

use crate::simulate::pods::Arrival;

/// What became of the containers.
#[derive(Debug)]
pub(crate) struct PlacedPods {
    /// Of each, in the order of the files.
    pub(crate) explanations: Vec<Explanation>,
    /// Names of those that have no place.
    pub(crate) refused: Vec<String>,
}

/// Creates them one after the other; an init container ends before the next one comes.
pub(crate) fn place_pods(mut state: NodeState, arrivals: Vec<Arrival>) -> PlacedPods {
    let now = Timestamp::UNIX_EPOCH;
    let (mut names, mut refused) = (Vec::new(), Vec::new());
    for (number, Arrival { container, ends }) in (0..).zip(arrivals) {
        let pod = &container.pod;
        let name = format!("{}/{}/{}", pod.namespace, pod.name, container.name);
        let (ticket, id) = (Ticket(number), name.clone());
        names.push(name);
        match state.step(Event::Admit(ticket, Box::new(container)), now).answer {
            Answer::Admission(Admission::Refuse(_) | Admission::Unavailable(_)) => refused.push(id),
            _ => {
                let outcome = CreateOutcome::Created { id: id.clone(), pinned: true };
                state.step(Event::CreateEnded(ticket, outcome), now);
                let event = if ends { Event::Ended(id) } else { Event::Started(id) };
                state.step(event, now);
            }
        }
    }
    let explain = |name: String| match state.step(Event::Explain(name), now).answer {
        Answer::Explanations(found) => found,
        _ => Vec::new(),
    };
    PlacedPods { explanations: names.into_iter().flat_map(explain).collect(), refused }
}
