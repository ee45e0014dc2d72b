//! What can happen to the node, and what must be done about it. Values only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_allocator::ContainerId;
use bayplan_enforcement::{Plan, Write};
use bayplan_types::{CpuSet, MilliCpu, Pinning};
use bayplan_workload::{
    Admission, CreateOutcome, NewContainer, Pod, PodFacts, ResizeOutcome, Resources, Ticket,
};
use jiff::Timestamp;

use crate::colocation::Colocation;
use crate::history::{Entry, Kind, ProposalForm};
use crate::huge_pages::HugePagesNow;
use crate::lost::Lost;
use crate::mode::{Mode, ModePlan, NotInPlace};
use crate::occupancy::Occupancy;
use crate::reconfigure::{ChangedConfig, Shift};
use crate::record::Record;
use crate::resources_file::FileNews;
use crate::status::{Explanation, Status};
use crate::turned::Turned;

pub use crate::note::Note;
pub use crate::reconfigure::{ChangedMachine, fingerprint};

/// Something happened, or a question is asked.
#[derive(Clone, Debug)]
pub enum Event {
    /// A pod sandbox runs.
    PodStarted(Pod),
    /// A pod sandbox was stopped or removed.
    PodEnded(String),
    /// The containers of a sandbox need this together from now on.
    PodResized(String, Resources),
    /// Pods as kubelet had them at this time or later.
    PodsSeen(Vec<PodFacts>, Timestamp),
    /// A container is to be created. If no pool can hold it, or its pod seems to hold too much, that is not the last word: the runtime is
    /// asked first what has ended.
    TryAdmit(Ticket, Box<NewContainer>),
    /// A container is to be created, and this is the last word.
    Admit(Ticket, Box<NewContainer>),
    /// What CMK would put into the environment of this container, which is being created.
    PoolEnvironment(Ticket),
    /// Which class of scheduling this container has by name, which is being created.
    SchedulingClass(Ticket),
    /// The creation came to an end.
    CreateEnded(Ticket, CreateOutcome),
    /// A container is about to be started.
    Starting(String),
    /// A container was started.
    Started(String),
    /// A container was stopped or removed.
    Ended(String),
    /// The runtime says that the container with this id has ended by itself, and how.
    Exited(String, String),
    /// Which pod is to be asked for before this change of a container's resources is decided?
    ResizeAsked(String, Resources),
    /// Kubelet changes a container's resources. As with `TryAdmit`, a refusal is not the last word.
    TryResize(String, Resources),
    /// Kubelet changes a container's resources, and this is the last word.
    Resize(String, Resources),
    /// Kubelet's change of resources has come to its end; one that was refused before it was decided has failed.
    Resized(String, ResizeOutcome),
    /// Huge pages as they are now, before a container that asks for some is placed.
    HugePagesRead(Box<HugePagesNow>),
    /// Some writes of an earlier plan failed.
    WritesFailed(Vec<FailedWrite>),
    /// Writes to these containers, by the runtime's ids, succeeded after others to them had failed.
    WritesLanded(Vec<String>),
    /// The front end has given an answer that told where these containers are to run, by the runtime's ids; it may not have arrived.
    ToldInDoubt(Vec<String>),
    /// The front end has a new connection, before which the runtime has ended all creations that were asked about: what it does not list now it has not made.
    Reconnected,
    /// CPUs or memory nodes have come or gone.
    MachineChanged(Box<ChangedMachine>),
    /// The configuration is another one.
    ConfigChanged(Box<ChangedConfig>),
    /// The last change of group types is undone, for this reason: the configuration until then holds again.
    ConfigTakenBack(Box<ChangedConfig>, String),
    /// Dry run: which containers would be elsewhere if this were the configuration?
    PreviewConfig(Box<ChangedConfig>),
    /// The same, and what would be where.
    PreviewStatus(Box<ChangedConfig>),
    /// The runtime is about to be asked what runs.
    SyncStarted,
    /// The runtime has told what runs.
    Synced(RuntimeView),
    /// An operator wants another mode. The answer follows the writes.
    SetMode(Mode),
    /// What would change with this mode?
    PlanMode(Mode),
    /// Where all containers run, to be compared with where they should.
    ReadBack(RuntimeView),
    /// What the kernel's files say of containers with sets that were changed past the runtime, when the state was at this step; by the runtime's ids.
    SetsChanged(u64, BTreeMap<String, Pinning>),
    /// The runtime does not answer, for this reason.
    RuntimeLost(String),
    /// The runtime answers again.
    RuntimeBack,
    /// The rebalancer proposes nothing from now on, or does so again.
    PauseRebalance(bool),
    /// From now on the rebalancer has turned this and nothing else. Answered as `Starting` is.
    Turn(Turned),
    /// From now on BestEffort containers get this beside their place. Answered as `Starting` is, and where only the budget is another, at once.
    Colocate(Colocation),
    /// Containers have used so much CPU time since the last look, by the runtime's ids: CPUs' worth of it.
    Used(BTreeMap<String, MilliCpu>),
    /// Containers of which use of wide vectors was measured, by the runtime's ids, and whether there was any since the last reading.
    VectorsSeen(BTreeMap<String, bool>),
    /// The rebalancer tells the history something of this container, in words and in values.
    Told(Kind, ContainerId, String, Box<ProposalForm>),
    /// Are events dealt with?
    Ping,
    /// Which container has which CPUs?
    Status,
    /// Which containers run where, for what is written beside CPU sets?
    Occupancy,
    /// Which exclusive CPUs does this container have, by the runtime's id?
    ExclusiveCpus(String),
    /// Why is this container where it is?
    Explain(String),
}

impl Event {
    /// Kubelet's call is not answered after it, but after another event, unless nothing was changed.
    pub fn is_beginning(&self) -> bool {
        matches!(self, Event::TryAdmit(..) | Event::Admit(..))
    }

    /// A call of kubelet, or an event of the runtime, waits for its answer; the runtime is asked what runs before one is refused.
    pub fn is_awaited_by_front_end(&self) -> bool {
        matches!(
            self,
            Event::PodStarted(_)
                | Event::PodEnded(_)
                | Event::PodResized(..)
                | Event::TryAdmit(..)
                | Event::Admit(..)
                | Event::CreateEnded(..)
                | Event::Starting(_)
                | Event::Started(_)
                | Event::Ended(_)
                | Event::Exited(..)
                | Event::TryResize(..)
                | Event::Resize(..)
                | Event::Resized(..)
                | Event::Synced(_)
        )
    }

    /// It asks only. What is due at this time is done in its step as in any other, and its step tells so.
    pub fn is_question(&self) -> bool {
        matches!(
            self,
            Event::Ping
                | Event::PoolEnvironment(_)
                | Event::SchedulingClass(_)
                | Event::Status
                | Event::Occupancy
                | Event::ExclusiveCpus(_)
                | Event::Explain(_)
                | Event::SyncStarted
                | Event::PlanMode(_)
                | Event::PreviewConfig(_)
                | Event::PreviewStatus(_)
        )
    }

    /// Kernel files may have to be written after it although nothing else has changed.
    pub fn needs_files(&self) -> bool {
        matches!(self, Event::Turn(_) | Event::Colocate(_) | Event::Started(_))
    }
}

/// How a write ended, as far as that is news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// It failed.
    Failed(FailedWrite),
    /// It succeeded after one to the same container had failed; the runtime's id.
    Landed(String),
}

/// A container with a pinning that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedWrite {
    /// The runtime's id.
    pub container: String,
    /// The runtime no longer knows it.
    pub is_gone: bool,
    /// A write that was not made, because another container has not left CPUs of it. `None`: it was made, and failed.
    pub withheld: Option<Box<Write>>,
}

/// What the runtime says is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeView {
    /// The value that [`Answer::SyncBasis`] gave.
    pub basis: u64,
    /// Every container, by the runtime's id.
    pub containers: BTreeMap<String, Seen>,
}

/// One container as the runtime and the kernel show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Sandbox.
    pub pod_id: String,
    /// Name in the pod.
    pub name: String,
    /// Counts restarts.
    pub attempt: u32,
    /// Created or running, not exited.
    pub is_alive: bool,
    /// Its process runs.
    pub is_running: bool,
    /// Everything else, for containers that the state did not know, or of which it did not know all; `None` when it could not be found out.
    pub details: Option<Box<SeenDetails>>,
}

/// What an unknown container must tell before it can be adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenDetails {
    /// Pod and resources. The pod of a container that the state has may be lacking.
    pub container: NewContainer,
    /// Where the kernel or, failing that, the runtime says it runs; empty CPUs: everywhere.
    pub pinning: Pinning,
}

/// The reply to an event.
#[allow(
    clippy::large_enum_variant,
    reason = "the large answer is the frequent one, and a handful exist at a time"
)]
#[derive(Clone, Debug)]
pub enum Answer {
    /// Noted.
    Done,
    /// To `Synced`.
    Synced {
        /// Containers run that nothing is known of, so creations wait.
        is_partial: bool,
    },
    /// To `Admit` and `Resize`.
    Admission(Admission),
    /// To `TryAdmit`: a container of the pod must have ended, so the runtime is to be asked before this one is placed.
    AskFirst,
    /// To `SyncStarted`: how far the state was, and which containers it knows.
    SyncBasis {
        /// Goes into [`RuntimeView::basis`].
        basis: u64,
        /// Runtime ids of containers with a known pinning and known resources.
        known: BTreeSet<String>,
        /// Runtime ids of all containers that it has: their pods it knows.
        placed: BTreeSet<String>,
    },
    /// To `ConfigChanged`, `ConfigTakenBack` and `PreviewConfig`: containers that are elsewhere.
    Shifts(Vec<Shift>),
    /// The same, after writes to some containers have failed.
    ShiftsInDoubt(Vec<Shift>),
    /// To `ConfigChanged`, `PreviewConfig` and `PreviewStatus`: what of the types of groups cannot be had, each in words. Nothing has changed.
    NotPossible(Vec<String>),
    /// To `PreviewStatus`: containers that would be elsewhere, and what would be where.
    WhatIf(Vec<Shift>, Box<Status>),
    /// To `PlanMode`.
    ModePlan(Box<ModePlan>),
    /// To `ReadBack`: containers that did not run where they should, and were written again.
    NotInPlace(Vec<NotInPlace>),
    /// To `Status`.
    Status(Box<Status>),
    /// To `Occupancy`.
    Occupancy(Arc<Occupancy>),
    /// To `ExclusiveCpus`; empty for a container that is not managed.
    ExclusiveCpus(CpuSet),
    /// To `Starting` and `Turn`: the step after which it is as it is now; `None`: an unmanaged container, or nothing is new.
    Since(Option<u64>),
    /// To `ResizeAsked`: the pod's uid; `None`: nothing is known of the container, or nothing changes.
    PodUid(Option<String>),
    /// To `PoolEnvironment`; `None`: it is in no pool that CMK's words name.
    PoolEnvironment(Option<Vec<(String, String)>>),
    /// To `SchedulingClass`: the name that its pod says, or the type of its group.
    SchedulingClass(Option<String>),
    /// To `Explain`; empty when nothing matches.
    Explanations(Vec<Explanation>),
}

impl Answer {
    /// The same after the writes that it waited for, of which some may have failed.
    pub fn after_writes(self, are_all_made: bool) -> Answer {
        match self {
            Answer::Shifts(shifts) if !are_all_made => Answer::ShiftsInDoubt(shifts),
            other => other,
        }
    }
}

/// Everything that follows from one event.
#[derive(Debug)]
pub struct Step {
    /// To be on disk before the answer leaves.
    pub records: Vec<Record>,
    /// What the history is told.
    pub history: Vec<Entry>,
    /// To be carried out; before the answer leaves where `answers_after_plan`.
    pub plan: Plan,
    /// To the sender of the event.
    pub answer: Answer,
    /// Whether the answer waits for the plan.
    pub answers_after_plan: bool,
    /// Log lines and metrics.
    pub notes: Vec<Note>,
    /// Runtime ids of containers with failed writes that no longer count: they hold nothing any more, or it was read back where they run.
    pub forgiven: Vec<String>,
    /// What containers are told of their CPUs.
    pub files: FileNews,
    /// The runtime should be asked soon what runs.
    pub sync_soon: bool,
    /// Containers that have lost their CPUs, or any place.
    pub(crate) lost: Vec<Lost>,
}

impl Step {
    /// Nothing follows but an answer.
    pub fn new(answer: Answer) -> Step {
        Step {
            records: Vec::new(),
            history: Vec::new(),
            plan: Plan::default(),
            answer,
            answers_after_plan: false,
            notes: Vec::new(),
            forgiven: Vec::new(),
            files: FileNews::default(),
            sync_soon: false,
            lost: Vec::new(),
        }
    }

    /// Something that an operator should know; the history has it, too, at the end of the step. `kind` is a fixed word.
    pub(crate) fn fail(&mut self, kind: &'static str, message: String) {
        self.notes.push(Note::Failure { kind, message });
    }

    /// What follows later from the same event. Its answer counts; what is to be carried out is planned at the end.
    pub(crate) fn append(&mut self, mut later: Step) {
        self.take_told(&mut later);
        self.answer = later.answer;
        self.answers_after_plan |= later.answers_after_plan;
        self.sync_soon |= later.sync_soon;
    }

    /// What another step tells journal, history and log.
    pub(crate) fn take_told(&mut self, other: &mut Step) {
        self.records.append(&mut other.records);
        self.history.append(&mut other.history);
        self.notes.append(&mut other.notes);
        self.lost.append(&mut other.lost);
    }
}
