//! What the journal holds, as JSON. In: changes of the state. Out: records; and from lines the containers that were live at the end. How a container and what it holds are written:
//! `record/container_form.rs`, `record/allocation_form.rs`.
//!
//! Every record stands for itself, but for large annotations of pods (`record/lines.rs`), so a lost one costs only what it says. Formats are separate from the types that the daemon
//! computes with; `RECORD_VERSION` counts changes that an older daemon could not read.

mod allocation_form;
mod container_form;
mod lines;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not;

use bayplan_allocator::ContainerId;
use bayplan_types::CpuSet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cold_start::Cold;
use crate::decision::Decision;
use crate::groups::GroupForm;
use crate::mode::Mode;

pub use allocation_form::{AllocationForm, TermsForm};
pub use container_form::{ContainerForm, ResourcesForm};
pub use lines::{LineWriter, PodTexts};

/// Version of the records. Texts of pods ([`Record::PodTexts`]) are not counted: an older daemon drops those records with a warning, looks at what runs, and does not know the long
/// annotations of containers that were there (`docs/install.md`).
pub(crate) const RECORD_VERSION: u32 = 1;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// Opens each journal file: which machine it is about.
    Machine {
        /// Version of the records.
        version: u32,
        /// Shape of the machine.
        fingerprint: String,
        /// The writer did not know yet all that runs: an earlier journal was lost, and the runtime had not been asked.
        #[serde(default, skip_serializing_if = "Not::not")]
        is_partial: bool,
        /// Names the types of groups that held; `None`: there were none, or the writer did not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group_types: Option<String>,
    },
    /// An operator has chosen another mode.
    Mode {
        /// The one from then on.
        mode: Mode,
        /// When.
        at: Timestamp,
    },
    /// An operator has paused the rebalancer, or let it go on.
    RebalancePaused {
        /// From then on.
        is_paused: bool,
    },
    /// A container was placed or adopted; also written for every live container when the journal is compacted.
    Placed(Box<PlacedRecord>),
    /// The runtime gave it an id.
    Created {
        /// The ledger's id.
        id: u64,
        /// The runtime's id.
        runtime_id: String,
        /// When.
        at: Timestamp,
    },
    /// It gave everything back.
    Released {
        /// The ledger's id.
        id: u64,
        /// A short sentence.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// A group was made, or holds other CPUs.
    Group(Box<GroupForm>),
    /// A group is over.
    GroupEnded {
        /// The ledger's id.
        id: u64,
    },
    /// It had never been started, so the runtime may list it as created until it is removed.
    Unstarted {
        /// The runtime's id.
        runtime_id: String,
    },
    /// Annotations and labels of a pod, which records of its containers name from then on.
    PodTexts {
        /// Their name in this file.
        id: u64,
        /// What they say.
        texts: PodTexts,
    },
}

/// A container with everything it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedRecord {
    /// The ledger's id.
    pub id: u64,
    /// The runtime's id, once there is one.
    #[serde(default)]
    pub runtime_id: Option<String>,
    /// Which container it is and what it asked for.
    pub container: ContainerForm,
    /// What it holds.
    pub allocation: AllocationForm,
    /// Why it is there.
    pub decision: Decision,
    /// How far its start on slow memory is.
    #[serde(default, skip_serializing_if = "Cold::is_no")]
    pub cold: Cold,
    /// What it held before a start on a machine of another shape took it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Box<Elsewhere>>,
    /// The runtime made it without asking, and it waits for CPUs of its own (`unasked.rs`).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_unasked: bool,
}

/// A place on a machine of another shape. Taken again by the first start on that machine, so that one start with CPUs offline, or with
/// another root of the machine's files, does not make an exclusive container a shared one for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// Shape of that machine.
    pub fingerprint: String,
    /// What it held there.
    pub allocation: AllocationForm,
}

/// What a journal says was live at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// By the ledger's id.
    pub containers: BTreeMap<ContainerId, PlacedRecord>,
    /// Groups, by the ledger's id.
    pub groups: BTreeMap<ContainerId, GroupForm>,
    /// The next id to give out.
    pub next_id: u64,
    /// Shape of the machine that the journal is about.
    pub fingerprint: Option<String>,
    /// Its writer did not know yet all that ran.
    pub is_partial: bool,
    /// Names the types of groups that held last.
    pub group_types: Option<String>,
    /// The last mode that an operator has chosen, and when.
    pub mode: Option<(Mode, Timestamp)>,
    /// The rebalancer is paused.
    pub is_rebalance_paused: bool,
    /// Runtime ids of what has ended without having been started.
    pub unstarted: BTreeSet<String>,
    /// Lines that are not records of a version that this daemon knows.
    pub unreadable: usize,
}

impl Live {
    /// CPUs that containers and groups have to themselves.
    pub fn held(&self) -> CpuSet {
        let containers = self.containers.values().map(|it| it.allocation.taken());
        let groups = self.groups.values().map(GroupForm::held);
        containers.chain(groups).fold(CpuSet::new(), |all, it| all.union(&it))
    }
}

/// How the line of a container begins.
const PLACED: &str = r#"{"record":"placed","#;

/// Most lines, and the longest, are of containers. Where the tag comes first, what follows is read at once and not put aside until the tag is found.
fn parse_record(line: &str) -> serde_json::Result<Record> {
    match line.starts_with(PLACED) {
        true => serde_json::from_str(line).map(Record::Placed),
        false => serde_json::from_str(line),
    }
}

/// Plays records; a line that cannot be read is skipped and counted.
pub fn replay<'a>(lines: impl IntoIterator<Item = &'a String>) -> Live {
    let mut live = Live::default();
    let mut texts = BTreeMap::new();
    for line in lines {
        match parse_record(line) {
            Ok(Record::Machine { version, fingerprint, is_partial, group_types })
                if version <= RECORD_VERSION =>
            {
                (live.fingerprint, live.is_partial) = (Some(fingerprint), is_partial);
                live.group_types = group_types;
            }
            Ok(Record::Machine { .. }) | Err(_) => live.unreadable += 1,
            Ok(Record::Mode { mode, at }) => live.mode = Some((mode, at)),
            Ok(Record::RebalancePaused { is_paused }) => live.is_rebalance_paused = is_paused,
            Ok(Record::PodTexts { id, texts: said }) => {
                texts.insert(id, said);
            }
            Ok(Record::Placed(mut placed)) => {
                let is_whole = placed.container.read_texts(&texts);
                live.unreadable += usize::from(!is_whole);
                live.next_id = live.next_id.max(placed.id.saturating_add(1));
                live.containers.insert(ContainerId(placed.id), *placed);
            }
            Ok(Record::Created { id, runtime_id, .. }) => {
                live.unstarted.remove(&runtime_id);
                if let Some(placed) = live.containers.get_mut(&ContainerId(id)) {
                    placed.runtime_id = Some(runtime_id);
                }
            }
            Ok(Record::Released { id, .. }) => {
                live.containers.remove(&ContainerId(id));
            }
            Ok(Record::Group(group)) => {
                live.next_id = live.next_id.max(group.id.saturating_add(1));
                live.groups.insert(ContainerId(group.id), *group);
            }
            Ok(Record::GroupEnded { id }) => {
                live.groups.remove(&ContainerId(id));
            }
            Ok(Record::Unstarted { runtime_id }) => {
                live.unstarted.insert(runtime_id);
            }
        }
    }
    live
}

#[cfg(test)]
mod tests;
