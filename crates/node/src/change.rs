//! What has happened to the node, each thing as one value. From it follow the journal's record, the history's entry, the log's note, and for a move what `explain`
//! tells of it (`state/emit.rs`), so that none of them can be forgotten where the state changes.
//!
//! A change is whatever the journal or the history is told of. What only the log and the metrics are told of is a plain [`Note`](crate::note::Note):
//!
//! - failures and warnings; the history has failures from the notes of the step, at its end ([`Step::fail`](crate::event::Step::fail));
//! - a resize that is refused once more, and the end of such refusals;
//! - how many containers another machine or configuration has moved, which is known when all have been placed; each of them is a change;
//! - the place of one of these containers, which the log has when it is found, and journal and history when all places are.

use bayplan_allocator::ContainerId;
use bayplan_types::{CpuSet, Pinning};
use bayplan_workload::{NewContainer, Resources};
use jiff::Timestamp;

use crate::decision::Decision;
use crate::history::{By, ContainerNames, Kind, Place, ProposalForm};
use crate::mode::Mode;

/// One thing that happened. It is emitted when the state is as it is after it.
#[derive(Clone, Debug)]
pub(crate) enum Change<'a> {
    /// A container was placed that is about to be created.
    Placed(ContainerId),
    /// A container that Bayplan did not place was taken over from where it ran.
    Adopted {
        id: ContainerId,
        /// Where it ran.
        found: &'a Pinning,
        /// How it was taken over, in words.
        how: String,
    },
    /// There is no place for a container, or for what it is resized to.
    Refused {
        spec: &'a NewContainer,
        decision: &'a Decision,
        /// The container that was to be resized, and what kubelet wanted to change.
        resized: Option<(ContainerId, Resources)>,
        /// What kubelet is told.
        why: String,
    },
    /// The runtime has given a container its id.
    Created { id: ContainerId, runtime_id: String, at: Timestamp },
    /// A container that the runtime may go on listing was ended without having been started.
    Unstarted { runtime_id: String },
    /// Kubelet has changed what a container may have.
    Resized {
        id: ContainerId,
        before: Place,
        /// What kubelet wanted to change.
        update: Resources,
    },
    /// The runtime has not made a resize.
    ResizeUndone {
        id: ContainerId,
        /// What it should go back to, where there is no room for that and it stays as it is.
        lacking: Option<Resources>,
        why: String,
    },
    /// Kubelet has changed what the pod of this container needs as a whole.
    PodResized { id: ContainerId, needs: Resources },
    /// Annotations that count while a container runs have changed.
    Annotated {
        id: ContainerId,
        /// Which, in words.
        changes: String,
    },
    /// A container that kubelet did not touch has another place.
    Moved(Moved),
    /// A container that kubelet did not touch was decided about anew, and has another place.
    PlacedAnew { id: ContainerId, by: By, before: Place, why: String },
    /// The journal knows something of a container that is no longer so, and that the history is told in other words, or not at all.
    Amended(ContainerId),
    /// A container shares fewer CPUs than before.
    Squeezed { id: ContainerId, before: Place, why: String },
    /// The CPUs of a container could not be written.
    WriteFailed {
        id: ContainerId,
        /// It was not tried, because another container has not left CPUs of this one.
        is_withheld: bool,
    },
    /// Another program has changed the sets of a container.
    SetsChanged { id: ContainerId, why: String },
    /// The rebalancer tells something of a container.
    Rebalanced { kind: Kind, id: ContainerId, why: String, about: Box<ProposalForm> },
    /// A container has given everything back.
    Released {
        id: ContainerId,
        /// As it was called.
        names: ContainerNames,
        /// Where it was.
        before: Option<Place>,
        why: &'a str,
        at: Timestamp,
    },
    /// It happened to a group.
    Group(GroupChange),
    /// It happened to the node as a whole.
    Node(NodeChange<'a>),
}

/// Another place of a container that was decided about earlier; that decision stays, and says so.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) id: ContainerId,
    pub(crate) by: By,
    /// Where it was.
    pub(crate) before: Place,
    /// What of its place has changed.
    pub(crate) what: What,
    /// That until then.
    pub(crate) from: String,
    /// That from then on.
    pub(crate) to: String,
    pub(crate) why: String,
}

/// What of a place can change alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The pool of which it shares CPUs, given by name.
    Pool,
    /// Its exclusive CPUs.
    Cpus,
    /// Its memory nodes.
    Mems,
}

impl What {
    /// For people.
    pub(crate) fn named(self, value: &str) -> String {
        match self {
            What::Pool => value.to_owned(),
            What::Cpus => format!("CPUs {value}"),
            What::Mems => format!("memory nodes {value}"),
        }
    }
}

/// What has happened to a group.
#[derive(Clone, Debug)]
pub(crate) enum GroupChange {
    /// It was made, or has other CPUs.
    Fitted(ContainerId),
    /// It has another pool or terms, and the same CPUs: only the journal is told.
    Amended(ContainerId),
    /// No container needs it any more.
    Ended { id: ContainerId, name: String },
    /// It is over, because there are no CPUs for it.
    Lost { id: ContainerId, name: String },
    /// It is over, because the configuration has its type no more.
    Retired(ContainerId),
}

/// What has happened to the node as a whole.
#[derive(Clone, Debug)]
pub(crate) enum NodeChange<'a> {
    /// An operator has chosen another mode.
    Mode { from: Mode, to: Mode, at: Timestamp },
    /// An operator has paused the rebalancer, or let it go on.
    RebalancePaused(bool),
    /// CPUs or memory nodes came or went.
    Machine,
    /// How the CPUs of the machine are divided, or whether all that runs is known, has changed: the journal names the machine anew.
    MachineNamed,
    /// Another configuration holds.
    Configured {
        /// These CPUs are reserved.
        reserved: &'a CpuSet,
        /// It is the earlier one: the last change of group types was undone.
        is_taken_back: bool,
    },
    /// The node was found at rest, and it was looked whether holes can be joined or memory narrowed.
    Looked,
    /// The runtime does not answer.
    RuntimeLost(String),
    /// The runtime answers again.
    RuntimeBack,
}
