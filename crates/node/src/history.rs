//! What happened on the node, as JSON. In: steps of the state. Out: lines for people and for `bayplan replay`; and from lines the entries.
//!
//! Unlike the journal's records, entries are never needed for a start, and nothing is lost by losing one but what it tells. A container
//! is described once, with everything that kubelet says about it, in the entry that tells how it came; later ones only name it. As the
//! oldest entries go in time, every segment has an opening: the machine, the configuration, and every container that is there.

mod proposal;
mod told;

use std::ops::Not;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::groups::GroupForm;
use crate::mode::Mode;
use crate::names::matches;
use crate::record::{AllocationForm, ContainerForm, ResourcesForm};

pub use crate::place::Place;
pub use proposal::{CulpritForm, FindingForm, ProposalForm, VerdictForm, past_proposals};
pub use told::news;

/// The directory of the history below the state directory.
pub const HISTORY_DIR: &str = "history";

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The daemon started. `node` says with what.
    Started,
    /// A segment was begun while the daemon ran. `node` as for `started`.
    Continued,
    /// The machine as it is from now on, in `machine`.
    Machine,
    /// A container that was there when the segment was begun; `spec` and `allocation` say all about it.
    Held,
    /// A container was placed. `spec` says all that kubelet said of it, `asked` what that means.
    Placed,
    /// No place for a container, of which `spec` says all, or for the `resources` to which kubelet wanted to change it.
    Refused,
    /// A container that bayplan did not place was taken over; `before` is where it ran.
    Adopted,
    /// A container that kubelet did not touch has another place; `by` says what for.
    Moved,
    /// A container that shares CPUs has fewer of them, because a neighbour came or grew; `why` names it.
    Squeezed,
    /// Kubelet changed what a container may have to `resources`.
    Resized,
    /// Kubelet said that the pod of the container needs `resources` as a whole from now on.
    PodResized,
    /// Annotations of the container that count while it runs are others from now on; `why` says which.
    Annotated,
    /// A container gave everything back.
    Ended,
    /// The rebalancer found that a container suffers, and what it would turn on this one; `why` says both.
    Proposed,
    /// What the rebalancer turned on the container was kept, taken back, or could not be done; `why` says which, and what it was.
    Judged,
    /// The node was found at rest, and it was looked whether holes can be joined or memory narrowed.
    Looked,
    /// An operator chose another mode, `why` says which.
    Mode,
    /// Another configuration holds, which `node` has.
    Configured,
    /// The runtime does not answer.
    RuntimeLost,
    /// The runtime answers again.
    RuntimeBack,
    /// Something failed that an operator should know.
    Failure,
    /// Something that only a newer version knows.
    #[serde(other)]
    Unknown,
}

impl Kind {
    /// All that this version writes.
    pub const ALL: [Kind; 21] = [
        Kind::Started,
        Kind::Continued,
        Kind::Machine,
        Kind::Held,
        Kind::Placed,
        Kind::Refused,
        Kind::Adopted,
        Kind::Moved,
        Kind::Squeezed,
        Kind::Resized,
        Kind::PodResized,
        Kind::Annotated,
        Kind::Ended,
        Kind::Proposed,
        Kind::Judged,
        Kind::Looked,
        Kind::Mode,
        Kind::Configured,
        Kind::RuntimeLost,
        Kind::RuntimeBack,
        Kind::Failure,
    ];

    /// The word in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Started => "started",
            Kind::Continued => "continued",
            Kind::Machine => "machine",
            Kind::Held => "held",
            Kind::Placed => "placed",
            Kind::Refused => "refused",
            Kind::Adopted => "adopted",
            Kind::Moved => "moved",
            Kind::Squeezed => "squeezed",
            Kind::Resized => "resized",
            Kind::PodResized => "pod_resized",
            Kind::Annotated => "annotated",
            Kind::Ended => "ended",
            Kind::Proposed => "proposed",
            Kind::Judged => "judged",
            Kind::Looked => "looked",
            Kind::Mode => "mode",
            Kind::Configured => "configured",
            Kind::RuntimeLost => "runtime_lost",
            Kind::RuntimeBack => "runtime_back",
            Kind::Failure => "failure",
            Kind::Unknown => "unknown",
        }
    }

    /// Whether it tells of nothing new, and is there for replay alone.
    pub fn is_bookkeeping(self) -> bool {
        matches!(self, Kind::Continued | Kind::Held | Kind::Looked)
    }
}

/// For what a container has another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Room for a request.
    Room,
    /// Free CPUs that lie together.
    Compaction,
    /// Fewer memory nodes.
    Narrowing,
    /// The end of a start on slow memory.
    ColdStart,
    /// A container that suffers from it, or the end of that.
    Rebalancer,
    /// CPUs or memory nodes that came or went while the daemon ran.
    Machine,
    /// Another configuration.
    Config,
    /// Something that was different when the daemon started again.
    Restart,
    /// The runtime had created it without asking.
    Unasked,
    /// Something that only a newer version knows.
    #[serde(other)]
    Unknown,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: Kind,
    /// To which container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<ContainerNames>,
    /// What it asked for, for example `2 exclusive, memory 4 GiB`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// For what it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Place>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Place>,
    /// The reason, or the outcome with its reason, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What about the pod could not be understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// All that kubelet said of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<ContainerForm>>,
    /// What kubelet wanted it to have from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesForm>,
    /// All that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Box<AllocationForm>>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Box<MachineForm>>,
    /// The daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Box<NodeForm>>,
    /// What the rebalancer proposed, or how that was judged; absent from entries of older versions, which have one line in `why`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Box<ProposalForm>>,
}

/// A container by its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerNames {
    /// The ledger's id, once it has a place; a later container may have the same after this one has ended and the daemon was started anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub pod: String,
    /// Container name.
    pub container: String,
    /// Counts restarts.
    pub attempt: u32,
    /// QoS class; absent where the cgroup parent does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// The runtime's id, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_id: Option<String>,
}

impl ContainerNames {
    /// `namespace/pod/container`.
    pub fn full_name(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.pod, self.container)
    }

    /// Whether this is its name, its pod, `namespace/pod/container`, or the beginning of the runtime's id.
    pub fn is_called(&self, name: &str) -> bool {
        let by_id = self.runtime_id.as_ref().is_some_and(|id| id.starts_with(name));
        by_id || matches(&self.full_name(), name)
    }
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineForm {
    /// Names its shape.
    pub fingerprint: String,
    /// All that are online.
    pub cpus: String,
    /// What was read of it, in the text form of `bayplan snapshot`; absent where the daemon was given its machine in another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// The CPUs for system pods, as they are in use; absent in older histories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<String>,
}

/// A daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeForm {
    /// Its version.
    pub version: String,
    /// Its configuration in YAML, as far as it says where containers go.
    pub config: String,
    /// What it does with containers.
    #[serde(default, skip_serializing_if = "is_placing")]
    pub mode: Mode,
    /// The CPUs for system pods, as they are in use; absent in older histories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<String>,
    /// The ids of the containers that are there.
    pub live: Vec<u64>,
    /// Every group that is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupForm>,
    /// This configuration holds again, because the last change of group types was undone; absent from older histories.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_taken_back: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_placing(mode: &Mode) -> bool {
    *mode == Mode::Placing
}

impl Entry {
    /// The mode that an operator chose, where it tells of that.
    pub fn mode(&self) -> Option<Mode> {
        let name = self.why.rsplit(' ').next().filter(|_| self.kind == Kind::Mode)?;
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// All containers that it tells of, as `namespace/pod/container`: those to which it happened, and those for which it was proposed.
    pub fn names(&self) -> Vec<String> {
        let victim = self.proposal.as_ref().map(|it| it.victim.clone());
        let mut names: Vec<String> =
            self.who.as_ref().map(ContainerNames::full_name).into_iter().chain(victim).collect();
        names.dedup();
        names
    }

    /// Something of this kind happened, at a time that is still to be said.
    pub fn new(kind: Kind) -> Entry {
        Entry {
            at: Timestamp::UNIX_EPOCH,
            kind,
            who: None,
            asked: String::new(),
            by: None,
            before: None,
            after: None,
            why: String::new(),
            warnings: Vec::new(),
            spec: None,
            resources: None,
            allocation: None,
            machine: None,
            node: None,
            proposal: None,
        }
    }

    /// A failure in words.
    pub fn failure(why: String) -> Entry {
        Entry { why, ..Entry::new(Kind::Failure) }
    }
}

/// The entries of a segment, and how many of its records are none.
pub fn parse_entries(records: &[String]) -> (Vec<Entry>, usize) {
    let parsed = records.iter().map(|record| serde_json::from_str(record));
    let (entries, strange): (Vec<_>, Vec<_>) = parsed.partition(Result::is_ok);
    (entries.into_iter().flatten().collect(), strange.len())
}
