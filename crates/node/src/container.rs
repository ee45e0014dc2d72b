//! A container in the ledger, as a value: what kubelet said of it, where it is in its life, what was decided.

use std::sync::Arc;

use bayplan_allocator::Previous;
use bayplan_types::Pinning;
use bayplan_workload::annotations::Warning;
use bayplan_workload::{NewContainer, Resources};
use jiff::Timestamp;

use crate::claims::Claim;
use crate::cold_start::Cold;
use crate::decision::Decision;
use crate::facts_form::Annotated;
use crate::note::Note;
use crate::record::Elsewhere;

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The runtime is making it.
    Creating,
    /// The runtime may or may not have made it.
    Unconfirmed,
    /// It exists.
    Created,
    /// It was started.
    Running,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Creating => "creating",
            Phase::Unconfirmed => "unconfirmed",
            Phase::Created => "created",
            Phase::Running => "running",
        }
    }
}

/// A container in the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) spec: Arc<NewContainer>,
    /// Its pod, by [`Owner::pod`](bayplan_allocator::Owner::pod): the containers of a pod are looked for often, and its names make that slow.
    pub(crate) pod: u64,
    pub(crate) runtime_id: Option<String>,
    pub(crate) phase: Phase,
    pub(crate) decision: Decision,
    /// The pool that it was placed in, by its lasting name: while CPUs are offline, several names may mean one pool.
    pub(crate) home: String,
    /// An earlier creation of the same container may have succeeded.
    pub(crate) has_doubt: bool,
    /// When the last creation of it ended in doubt; `None` for one that was being created when a restart cut that off.
    pub(crate) doubted_at: Option<Timestamp>,
    /// Kubelet's own updates that are under way.
    pub(crate) update: Option<UpdatesUnderWay>,
    /// What it goes back to if the runtime has not made that update; also while it is in doubt how the update ended, or one before it.
    pub(crate) undo: Option<Undo>,
    /// The resize about which kubelet was asked last, if that is not made yet.
    pub(crate) asked: Option<AskedResize>,
    /// The resize that was refused last, if kubelet has not given it up.
    pub(crate) refused: Option<RefusedResize>,
    /// It was written to when it existed and did not run yet.
    pub(crate) is_rewritten: bool,
    /// The step in which it last changed; a view of the runtime that is older says nothing about it.
    pub(crate) touched: u64,
    /// How far its start on slow memory is.
    pub(crate) cold: Cold,
    /// What another component has chosen for its pod.
    pub(crate) claim: Claim,
    /// What it held before a start on a machine of another shape.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// It was silent about its CPUs at some time since the daemon started (`bayplan_workload::silent`).
    pub(crate) was_silent: bool,
    /// The last change of annotations that count while it runs.
    pub(crate) annotated: Option<Annotated>,
    /// What its pod needed as a whole before kubelet said that anew.
    pub(crate) pod_before: Option<Resources>,
    /// The runtime made it without asking, and it waits for CPUs of its own.
    pub(crate) is_unasked: bool,
}

impl Container {
    pub(crate) fn full_name(&self) -> String {
        full_name(&self.spec)
    }

    /// Neither its creation nor an update by kubelet is under way or in doubt.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Created | Phase::Running) && self.update.is_none()
    }

    /// How far a resize has come of which the end is not known; empty where there is none.
    pub(crate) fn resize_name(&self) -> &'static str {
        let is_doubted = |undo: &Undo| undo.doubted_at.is_some();
        match (&self.update, &self.undo) {
            (Some(_), _) => "under way",
            (None, Some(undo)) if is_doubted(undo) => "in doubt",
            _ => "",
        }
    }

    /// Same pod, name and attempt: the same container to kubelet.
    pub(crate) fn is(&self, pod_id: &str, name: &str, attempt: u32) -> bool {
        self.spec.pod.id == pod_id && self.spec.name == name && self.spec.attempt == attempt
    }
}

pub(crate) fn full_name(spec: &NewContainer) -> String {
    format!("{}/{}/{}", spec.pod.namespace, spec.pod.name, spec.name)
}

/// For the log and the metric.
pub(crate) fn warning_notes(spec: &NewContainer, warnings: &[Warning]) -> Vec<Note> {
    let note = |warning: &Warning| Note::Failure {
        kind: warning.kind.name(),
        message: format!("{}: {}", full_name(spec), warning.text),
    };
    warnings.iter().map(note).collect()
}

/// A resize before which kubelet is asked for the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskedResize {
    /// When the resize was heard of.
    pub(crate) at: Timestamp,
    /// Kubelet has told the pod as it was then or later.
    pub(crate) is_told: bool,
}

/// Updates of one container by kubelet that are at the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpdatesUnderWay {
    /// What the last of them carries.
    pub(crate) told: Pinning,
    /// How many there are.
    pub(crate) count: u32,
    /// There have been several at once: the order in which the runtime makes them is not known, so none of them says what holds after it.
    pub(crate) overlap: bool,
}

/// What a container had before a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undo {
    pub(crate) resources: Resources,
    pub(crate) place: Previous,
    /// When an update ended in doubt. One that follows and fails does not settle it.
    pub(crate) doubted_at: Option<Timestamp>,
}

/// A resize that kubelet asks for again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedResize {
    pub(crate) asked: Resources,
    pub(crate) times: u64,
}
