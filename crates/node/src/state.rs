//! The state of the node and its one door. In: an event. Out: what must be journaled, written and answered.
//!
//! Approach: a container is placed before it exists and is then known by its ticket; once the runtime has made it, by the
//! runtime's id. Nothing here waits, reads a clock or writes: [`NodeState::step`] is a function of the state and the event.
//!
//! ```text
//! Admit ─▶ Creating ── Created ─▶ Created ── Started ─▶ Running ── Ended, PodEnded, gone ─▶ (released)
//!              ├─ Failed ─▶ (released)
//!              └─ Unknown ─▶ Unconfirmed ── found by sync ─▶ Created
//!                                 └─ not found by sync ─▶ (released)
//! ```
//!
//! `observed` holds what every container was last told; a write counts as done when it is planned, and is forgotten when it fails,
//! so that the next plan repeats it.

mod ceilings;
mod entries;
mod groups;
mod live;
mod pods;
mod refused;
mod resizing;
mod sets_changed;
mod squeezed;
mod starting;
mod together;
pub(crate) mod view;
mod zones;

pub use zones::NodeZones;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Ledger, Move, Part, Pools, Request};
use bayplan_enforcement::{DesiredState, ObservedState, plan_pinnings};
use bayplan_topology::Device;
use bayplan_types::{CpuSet, NodeId, Pinning};
use bayplan_workload::annotations::{Warning, WarningKind, tell_effects_in};
use bayplan_workload::mates::has_ended_mates;
use bayplan_workload::silent::Member;
use bayplan_workload::{
    Admission, CreateOutcome, Hardware, NewContainer, RequestRules, Resources, Ticket,
    derive_request,
};
use jiff::{SignedDuration, Timestamp};

use crate::claims::Claim;
use crate::cold_start::Cold;
use crate::colocation::Colocation;
use crate::compactor::Compactor;
use crate::decision::{
    Decision, render_asked, render_lacking, render_unused_kinds, unread_requirement,
};
use crate::event::{Answer, Event, FailedWrite, Note, Step};
use crate::facts_form::Annotated;
use crate::groups::{Groups, has_no_affinity};
use crate::history::{Entry, Kind};
use crate::known::Known;
use crate::mode::{DRAINED, Mode};
use crate::narrowing::Narrower;
use crate::record::{Elsewhere, Record};
use crate::resources_file::Tellings;
use crate::sent::Sent;
use crate::settings::{CompactionConfig, OnNoCapacity};
use crate::state::refused::RefusedResize;
use crate::turned::Turned;

/// Decisions about containers that are gone or were refused, kept for `explain`.
const HISTORY_MAX: usize = 256;

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
    fn name(self) -> &'static str {
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
    pub(crate) runtime_id: Option<String>,
    pub(crate) phase: Phase,
    pub(crate) decision: Decision,
    /// The pool that it was placed in, by its lasting name: while CPUs are offline, several names may mean one pool.
    pub(crate) home: String,
    /// An earlier creation of the same container may have succeeded.
    pub(crate) has_doubt: bool,
    /// When the last creation of it ended in doubt; `None` for one that was being created when a restart cut that off.
    pub(crate) doubted_at: Option<Timestamp>,
    /// What kubelet's own update under way carries.
    update: Option<Pinning>,
    /// The resize that was refused last, if kubelet has not given it up.
    refused: Option<RefusedResize>,
    /// It was written to when it existed and did not run yet.
    is_rewritten: bool,
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
    pod_before: Option<Resources>,
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

/// What of the memory that was asked for is not given.
fn memory_notes(pools: &Pools, name: &str, request: &Request, held: &Allocation) -> Vec<Note> {
    let lacking = render_lacking(request, held).map(|text| ("huge_pages", text));
    let unused = render_unused_kinds(pools, request, held);
    let unused = unused.map(|text| (WarningKind::NoEffect.name(), text));
    let texts = lacking.into_iter().chain(unused);
    texts.map(|(kind, text)| Note::Failure { kind, message: format!("{name}: {text}") }).collect()
}

/// What the history is told of where the state comes from.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The configuration in YAML, as far as it says where containers go.
    pub config: Arc<str>,
    /// What was read of the machine, in the text form of `bayplan snapshot`.
    pub machine: Option<Arc<str>>,
}

/// Everything that bayplan knows about the node.
#[derive(Clone, Debug)]
pub struct NodeState {
    pub(crate) ledger: Ledger,
    /// The pools of the ledger as they are while no CPUs are claimed.
    pub(crate) machine: Arc<Pools>,
    /// CPUs that are claimed, and so in no pool of the ledger.
    pub(crate) claimed: CpuSet,
    pub(crate) rules: RequestRules,
    pub(crate) fingerprint: String,
    pub(crate) origin: Origin,
    /// Those of the machine.
    pub(crate) devices: Arc<[Device]>,
    pub(crate) containers: BTreeMap<ContainerId, Container>,
    /// Creations under way, and what each was told.
    by_ticket: BTreeMap<Ticket, (ContainerId, Pinning)>,
    pub(crate) by_runtime_id: BTreeMap<String, ContainerId>,
    /// Runtime ids of what ended, with the step; a view of the runtime that is older must not bring them back.
    pub(crate) ended: BTreeMap<String, u64>,
    /// Runtime ids of what kubelet has ended without ever starting it. Containerd does nothing to stop such a container and lists it as
    /// created until it is removed; it will not be started.
    pub(crate) unstarted: BTreeSet<String>,
    pub(crate) observed: ObservedState,
    /// What each container had before it was told what it was told last, by the runtime's id.
    before: ObservedState,
    /// What those have of which the last update failed: not what they were told.
    pub(crate) held: ObservedState,
    /// Pods of which a container has ended, or that have another figure, by [`Owner::pod`](bayplan_allocator::Owner::pod); none between two steps.
    unsettled: BTreeSet<u64>,
    history: VecDeque<(String, Decision)>,
    next_id: u64,
    pub(crate) steps: u64,
    /// How long a creation in doubt keeps its place although the runtime does not list it: it may still be at work.
    pub(crate) doubt_grace: SignedDuration,
    pub(crate) compactor: Compactor,
    pub(crate) narrower: Narrower,
    pub(crate) tellings: Tellings,
    pub(crate) on_no_capacity: OnNoCapacity,
    pub(crate) mode: Mode,
    /// When it was chosen; `None` for the one that a node begins with.
    pub(crate) mode_since: Option<Timestamp>,
    pub(crate) is_rebalance_paused: bool,
    pub(crate) turned: Turned,
    /// What BestEffort containers get beside their place.
    pub(crate) colocation: Colocation,
    pub(crate) sent: Sent,
    pub(crate) known: Known,
    pub(crate) groups: Groups,
    /// Containers that the runtime made without asking get CPUs of their own once they are found.
    pub(crate) places_unasked: bool,
}

impl NodeState {
    /// An empty node. `fingerprint` names the shape of its machine.
    pub fn new(ledger: Ledger, rules: RequestRules, fingerprint: String) -> NodeState {
        NodeState {
            machine: Arc::new(ledger.pools().clone()),
            claimed: CpuSet::new(),
            ledger,
            rules,
            fingerprint,
            origin: Origin::default(),
            devices: Arc::default(),
            containers: BTreeMap::new(),
            by_ticket: BTreeMap::new(),
            by_runtime_id: BTreeMap::new(),
            ended: BTreeMap::new(),
            unstarted: BTreeSet::new(),
            observed: ObservedState::new(),
            before: ObservedState::new(),
            held: ObservedState::new(),
            unsettled: BTreeSet::new(),
            history: VecDeque::new(),
            next_id: 0,
            steps: 0,
            doubt_grace: SignedDuration::ZERO,
            compactor: Compactor::new(CompactionConfig::default()),
            narrower: Narrower::default(),
            tellings: Tellings::default(),
            on_no_capacity: OnNoCapacity::default(),
            mode: Mode::default(),
            mode_since: None,
            is_rebalance_paused: false,
            turned: Turned::default(),
            colocation: Colocation::default(),
            sent: Sent::default(),
            known: Known::default(),
            groups: Groups::default(),
            places_unasked: false,
        }
    }

    /// With what a journal that was just read says of what runs.
    pub fn with_known(self, known: Known) -> NodeState {
        NodeState { known, ..self }
    }

    /// A creation in doubt keeps its place for at least this long although the runtime does not list it.
    pub fn with_doubt_grace(self, doubt_grace: SignedDuration) -> NodeState {
        NodeState { doubt_grace, ..self }
    }

    /// Containers can be placed near these devices.
    pub fn with_devices(self, devices: Arc<[Device]>) -> NodeState {
        NodeState { devices, ..self }
    }

    /// The history is told this of where the state comes from.
    pub fn with_origin(self, origin: Origin) -> NodeState {
        NodeState { origin, ..self }
    }

    /// What the containers hold.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether an operator has stopped the rebalancer.
    pub fn is_rebalance_paused(&self) -> bool {
        self.is_rebalance_paused
    }

    /// The cgroup around the pod of the container that the runtime calls this, as kubelet named it.
    pub fn cgroup_parent(&self, runtime_id: &str) -> Option<&str> {
        let container = self.containers.get(self.by_runtime_id.get(runtime_id)?)?;
        Some(&container.spec.pod.cgroup_parent)
    }

    /// The one way in which the state changes.
    pub fn step(&mut self, event: Event, now: Timestamp) -> Step {
        self.steps += 1;
        let version = self.ledger.version();
        // What is observed may have changed although the ledger has not.
        let has_observed = matches!(
            &event,
            Event::Synced(_)
                | Event::Resized(..)
                | Event::Started(_)
                | Event::ReadBack(_)
                | Event::Turn(_)
                | Event::SetsChanged(..)
                | Event::ToldInDoubt(_)
        ) || matches!(&event, Event::Colocate(it) if it.lent != self.colocation.lent);
        let is_creation_over = matches!(event, Event::CreateEnded(..));
        let mut step = match self.not_yet(&event) {
            Some(answer) => Step::new(answer),
            None => self.take(event, now),
        };
        self.settle_pods(now, &mut step);
        self.settle_claims(now, &mut step);
        self.settle_groups(&mut step);
        self.end_cold_starts(now, &mut step);
        // A failed write is repeated with the next change or after the next sync: at once it would fail again.
        if self.ledger.version() != version || !step.records.is_empty() || has_observed {
            self.plan(&mut step);
            self.note_squeezed(&mut step);
            self.note_files(&mut step);
        }
        self.note_holes(&mut step, is_creation_over);
        self.note_room(&mut step, is_creation_over);
        step.answers_after_plan |= self.corrects_new(&step);
        NodeState::finish_entries(&mut step, now);
        step
    }

    /// The answer to a call that cannot be decided before the runtime has told what runs.
    fn not_yet(&self, event: &Event) -> Option<Answer> {
        let is_final = match event {
            Event::TryAdmit(..) | Event::TryResize(..) => false,
            Event::Admit(..) | Event::Resize(..) => true,
            _ => return None,
        };
        // Nothing is placed then.
        if self.is_restored() {
            return None;
        }
        self.known.answer(is_final)
    }

    fn take(&mut self, event: Event, now: Timestamp) -> Step {
        match event {
            Event::PodStarted(pod) => self.pod_started(&pod, now),
            Event::PodEnded(pod_id) => self.pod_ended(&pod_id, now),
            Event::TryAdmit(_, container) | Event::Admit(_, container) if self.is_restored() => {
                self.pass(&container, now)
            }
            Event::PodResized(pod_id, needs) => self.pod_resized(&pod_id, needs),
            Event::PodsSeen(pods, asked) => self.pods_seen(&pods, asked, now),
            Event::TryAdmit(ticket, container) => self.admit(ticket, *container, false, now),
            Event::Admit(ticket, container) => self.admit(ticket, *container, true, now),
            Event::PoolEnvironment(ticket) => {
                let id = self.by_ticket.get(&ticket).map(|(id, _)| *id);
                Step::new(Answer::PoolEnvironment(id.and_then(|id| self.pool_environment(id))))
            }
            Event::CreateEnded(ticket, outcome) => self.create_ended(ticket, outcome, now),
            Event::Starting(id) => self.starting(&id, now),
            Event::Started(id) => self.started(&id),
            Event::Ended(id) => self.ended(&id, "stopped or removed", now),
            Event::TryResize(id, resources) | Event::Resize(id, resources)
                if self.is_restored() =>
            {
                self.pass_resize(&id, resources, now)
            }
            Event::TryResize(id, resources) => self.resize(&id, resources, false, now),
            Event::Resize(id, resources) => self.resize(&id, resources, true, now),
            Event::Resized(id, is_answered) => self.resized(&id, is_answered),
            Event::WritesFailed(failed) => self.writes_failed(&failed, now),
            Event::HugePagesRead(now) => self.huge_pages_read(&now),
            Event::WritesLanded(landed) => self.writes_landed(&landed),
            Event::ToldInDoubt(told) => self.told_in_doubt(&told),
            Event::Reconnected => self.reconnected(),
            Event::MachineChanged(machine) => self.machine_changed(*machine, now),
            Event::ConfigChanged(config) => self.config_changed(*config, now),
            Event::PreviewConfig(config) => self.preview_config(*config, now),
            Event::SyncStarted => Step::new(Answer::SyncBasis {
                basis: self.steps,
                known: self.observed.keys().cloned().collect(),
            }),
            Event::Synced(view) => self.synced(&view, now),
            Event::SetMode(mode) => self.set_mode(mode, now),
            Event::PlanMode(mode) => Step::new(Answer::ModePlan(Box::new(self.plan_mode(mode)))),
            Event::ReadBack(view) => self.read_back(&view),
            Event::SetsChanged(basis, found) => self.sets_changed(basis, found),
            Event::RuntimeLost(why) => Step::told(Entry { why, ..Entry::new(Kind::RuntimeLost) }),
            Event::RuntimeBack => Step::told(Entry::new(Kind::RuntimeBack)),
            Event::PauseRebalance(is_paused) => self.pause_rebalance(is_paused),
            Event::Turn(turned) => self.turn(turned),
            Event::Colocate(colocation) => self.colocate(colocation),
            Event::Told(kind, id, why, about) => self.told(kind, id, why, about),
            Event::Ping => Step::new(Answer::Done),
            Event::Status => Step::new(Answer::Status(Box::new(self.status()))),
            Event::Occupancy => Step::new(Answer::Occupancy(Box::new(self.occupancy()))),
            Event::Explain(name) => Step::new(Answer::Explanations(self.explain(&name))),
        }
    }

    /// A container that was told of CPUs that have found an owner since must not be started there.
    fn corrects_new(&self, step: &Step) -> bool {
        step.records.iter().any(|record| match record {
            Record::Created { runtime_id, .. } => {
                step.plan.writes.iter().any(|write| write.container == *runtime_id)
            }
            _ => false,
        })
    }

    fn plan(&mut self, step: &mut Step) {
        // Giving all CPUs to every container takes none away.
        if self.known.is_partial() && !self.is_restored() {
            return;
        }
        step.plan = plan_pinnings(&self.desired(), &self.observed);
        for write in &step.plan.writes {
            self.note_rewritten(&write.container);
            // After a failure, and until an update succeeds, that is what it had before the first that failed.
            let had = self.held.get(&write.container).or(write.old.as_ref());
            if let Some(had) = had.filter(|had| !had.cpus.is_empty()) {
                self.before.insert(write.container.clone(), had.clone());
            }
            self.observed.insert(write.container.clone(), write.new.clone());
        }
    }

    pub(crate) fn desired(&self) -> DesiredState {
        let pairs = self.by_runtime_id.iter();
        pairs.filter_map(|(id, key)| Some((id.clone(), self.pinning(*key)?))).collect()
    }

    /// Where it is to run, as far as that is bayplan's to say: what is left alone is empty.
    pub(crate) fn pinning(&self, id: ContainerId) -> Option<Pinning> {
        let allocation = self.ledger.allocation(id)?;
        let preserve = allocation.terms.preserve;
        let Pinning { cpus, mems } = match self.is_restored() {
            true => self.everywhere(),
            false => {
                let (cpus, mems) = (self.cpus_of(id, allocation), self.mems_of(id, allocation));
                Pinning { cpus, mems }
            }
        };
        let is_pinned = self.containers.get(&id).is_some_and(|it| it.claim.is_pinned());
        let cpus = (!preserve.cpus || is_pinned).then_some(cpus);
        let mems = (!preserve.memory).then_some(mems);
        Some(Pinning { cpus: cpus.unwrap_or_default(), mems: mems.unwrap_or_default() })
    }

    pub(crate) fn take_id(&mut self) -> ContainerId {
        let id = ContainerId(self.next_id);
        self.next_id += 1;
        id
    }

    pub(crate) fn skip_ids_below(&mut self, next_id: u64) {
        self.next_id = self.next_id.max(next_id);
    }

    /// What a container asks for, also by annotation, and with all others as its neighbours.
    pub(crate) fn request(&self, id: ContainerId, spec: &NewContainer) -> (Request, Vec<Warning>) {
        self.request_beside(id, spec, None)
    }

    /// The same beside a new container that is not placed yet.
    fn request_beside(
        &self,
        id: ContainerId,
        spec: &NewContainer,
        newcomer: Option<Member<'_>>,
    ) -> (Request, Vec<Warning>) {
        let others = self.containers.iter().filter(|(other, _)| **other != id);
        let others = others.map(|(id, container)| (*id, &*container.spec)).chain(newcomer);
        let nodes = spec.assigned.iter().flat_map(|it| it.nodes.iter());
        let pools = self.ledger.pools();
        let near = |node: NodeId| (node, pools.cpus_of_nodes(&[node].into_iter().collect()));
        let node_cpus: Vec<(NodeId, CpuSet)> = nodes.map(near).collect();
        let hardware = Hardware {
            devices: &self.devices,
            node_cpus: &node_cpus,
            memory: self.ledger.pools().memory(),
            isolated_in_a_node: match spec.lacks_partition {
                true => self.ledger.isolated_in_a_node(id),
                false => 0,
            },
        };
        let (mut request, mut warnings) = derive_request(id, spec, &self.rules, hardware, others);
        let cold = self.containers.get(&id).map(|it| it.cold).unwrap_or_default();
        request.wishes.memory.cold_start = cold.wish();
        self.groups.shape(&mut request);
        if let Some(group) = self.groups.name_for(id) {
            let has_no_affinity = has_no_affinity(spec, &self.rules);
            request.wishes.preserve.cpus |= *has_no_affinity.as_ref().unwrap_or(&false);
            tell_effects_in(&group, spec, &self.rules, &mut warnings);
            warnings.extend(has_no_affinity.err());
        }
        (request, warnings)
    }

    /// The same container, if its creation is under way or in doubt.
    fn in_creation(&self, spec: &NewContainer) -> Option<ContainerId> {
        let mut containers = self.containers.iter();
        let found = containers.find(|(_, container)| {
            container.runtime_id.is_none()
                && container.is(&spec.pod.id, &spec.name, spec.attempt)
                && container.spec.resources == spec.resources
        });
        found.map(|(id, _)| *id)
    }

    fn admit(
        &mut self,
        ticket: Ticket,
        mut spec: NewContainer,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        if let Some(id) = self.in_creation(&spec) {
            return self.admit_again(ticket, id, spec.due_id);
        }
        if !is_final && self.has_ended_mates(&spec) {
            return Step::new(Answer::AskFirst);
        }
        let mut step = Step::new(Answer::Done);
        self.release_earlier(&spec, now, &mut step);
        let id = self.take_id();
        let way = self.make_way(id, &mut spec, now, &mut step);
        let fitted = match self.fit_newcomer(id, &spec, &CpuSet::new()) {
            Ok(fitted) => fitted,
            Err(why) => {
                self.undo(way, &mut step);
                return self.refuse_ungrouped(step, id, &spec, why, is_final, now);
            }
        };
        let mut step = self.admit_new(ticket, id, spec, is_final, now, step);
        match (self.containers.contains_key(&id), fitted) {
            (true, fitted) => {
                NodeState::keep(way, &mut step);
                fitted.into_iter().for_each(|it| self.keep_fitted(it, id, &mut step));
            }
            (false, fitted) => {
                fitted.into_iter().for_each(|it| self.undo_fitted(it));
                self.undo(way, &mut step);
            }
        }
        step
    }

    /// No group can take it.
    fn refuse_ungrouped(
        &mut self,
        step: Step,
        id: ContainerId,
        spec: &NewContainer,
        why: String,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        let (request, warnings) = self.request(id, spec);
        let decision =
            Decision::refused(render_asked(&request), format!("refused: {why}"), warnings, now);
        self.refuse_unasked(step, spec, decision, is_final)
    }

    /// Places one that has not been here before.
    fn admit_new(
        &mut self,
        ticket: Ticket,
        id: ContainerId,
        spec: NewContainer,
        is_final: bool,
        now: Timestamp,
        mut step: Step,
    ) -> Step {
        let (request, mut warnings) = self.request(id, &spec);
        let (request, cold) = self.as_cold(request, &spec, &mut warnings, now);
        let asked = render_asked(&request);
        let barred =
            unread_requirement(&warnings).or_else(|| self.claim_refused(&spec, &request, now));
        let allowed = barred.map_or_else(|| self.as_mode_allows(request), Err);
        let bounded = allowed.and_then(|(request, is_drained)| {
            let bounded = self.offer_bounded(request, &spec, is_final, &mut warnings, &mut step);
            bounded.map(|(request, offered)| (request, offered, is_drained))
        });
        let notes = warning_notes(&spec, &warnings);
        let (request, offered, is_drained) = match bounded {
            Ok(bounded) => bounded,
            Err(why) => {
                step.notes.extend(notes.into_iter().filter(|_| is_final));
                let decision = Decision::refused(asked, why, warnings, now);
                return self.refuse_unasked(step, &spec, decision, is_final);
            }
        };
        let mut decision = self.decision(&spec, &request, offered.as_ref(), warnings, now);
        if is_drained && offered.is_ok() {
            decision.outcome.push_str(DRAINED);
        }
        if offered.is_err() && !is_final {
            let why = self.without_names(&decision.outcome, &spec);
            step.answer = Answer::Admission(Admission::Refuse(why));
            return step;
        }
        step.notes.extend(notes);
        let name = full_name(&spec);
        let (request, offer, decision) = match offered {
            Ok(offer) => (request, offer, decision),
            Err(_) => match self.share_instead(&name, &request, &decision, &mut step) {
                Some(shared) => shared,
                None => {
                    step.history.push(self.refusal(None, &spec, &decision, None));
                    return self.refuse(step, &spec, decision);
                }
            },
        };
        step.notes.extend(memory_notes(self.ledger.pools(), &name, &request, offer.allocation()));
        let moves = offer.moves().to_vec();
        self.known.note_grant(id);
        if let Err(stale) = self.ledger.commit(offer) {
            step.notes.push(Note::Failure { kind: "stale_offer", message: stale.to_string() });
            step.answer = Answer::Admission(Admission::PassThrough);
            return step;
        }
        self.compactor.has_come(&request);
        self.insert(id, spec, None, Phase::Creating, decision);
        self.begin_cold(id, cold);
        step.records.extend(self.placed_record(id));
        step.notes.extend(self.placed_note(id));
        step.history.extend(self.arrival(id, None));
        self.note_moves(&moves, id, &mut step);
        self.tell(ticket, id, &mut step);
        step
    }

    /// CPUs of a container that has ended, as of an init container, wait to be used by this one of its pod.
    fn has_ended_mates(&self, spec: &NewContainer) -> bool {
        let of_pod = self.containers.iter().filter(|(_, container)| {
            container.spec.pod.is(&spec.pod) && container.spec.name != spec.name
        });
        let owns = |id: &ContainerId| {
            self.ledger.allocation(*id).is_some_and(|it| !it.exclusive.is_empty())
        };
        of_pod.clone().any(|(id, _)| owns(id))
            && has_ended_mates(spec, of_pod.map(|(_, container)| &*container.spec))
    }

    /// Sharers that made room for `owner`: they are told why, and the journal where they are.
    pub(crate) fn note_moves(&mut self, moves: &[Move], owner: ContainerId, step: &mut Step) {
        let of_group =
            || self.groups.instances.get(&owner).map(|it| format!("the group {}", it.name()));
        let owner = self.containers.get(&owner).map(Container::full_name).or_else(of_group);
        let owner = owner.unwrap_or_default();
        for made in moves {
            let pools = self.ledger.pools();
            let name = |pool| pools.get(pool).map_or("?", |pool| pool.name.as_str()).to_owned();
            let (from, to) = (name(made.from), name(made.to));
            let why = format!("to make room for {owner}");
            step.history.extend(self.sharer_relocation(made, &why));
            if let Some(container) = self.containers.get_mut(&made.container) {
                container.decision.note_move(&from, &to, &why);
            }
            self.remember_home(made.container);
            step.records.extend(self.placed_record(made.container));
        }
    }

    /// Kubelet makes a new attempt only after the one before has ended, of which there need not have been an event.
    pub(crate) fn release_earlier(&mut self, spec: &NewContainer, now: Timestamp, step: &mut Step) {
        let earlier = self.containers.iter().filter(|(_, container)| {
            container.spec.pod.id == spec.pod.id
                && container.spec.name == spec.name
                && container.spec.attempt < spec.attempt
        });
        let earlier: Vec<ContainerId> = earlier.map(|(id, _)| *id).collect();
        for id in earlier {
            self.release(id, "a new attempt replaces it", now, step);
        }
    }

    /// Kubelet asks again for a container with a first creation that has not ended, or ended in doubt.
    fn admit_again(&mut self, ticket: Ticket, id: ContainerId, due_id: Option<String>) -> Step {
        if let Some(container) = self.containers.get_mut(&id) {
            if container.spec.due_id != due_id {
                Arc::make_mut(&mut container.spec).due_id = due_id;
            }
            container.has_doubt = true;
            container.phase = Phase::Creating;
            container.touched = self.steps;
        }
        let mut step = Step::new(Answer::Done);
        self.tell(ticket, id, &mut step);
        step
    }

    /// Answers a creation once the others have let go, which for a retry may still be under way.
    fn tell(&mut self, ticket: Ticket, id: ContainerId, step: &mut Step) {
        let told = self.pinning(id);
        self.by_ticket.insert(ticket, (id, told.clone().unwrap_or_default()));
        step.answer = Answer::Admission(told.map_or(Admission::PassThrough, Admission::Place));
        step.answers_after_plan = true;
    }

    pub(crate) fn insert(
        &mut self,
        id: ContainerId,
        spec: NewContainer,
        runtime_id: Option<String>,
        phase: Phase,
        decision: Decision,
    ) {
        if let Some(runtime_id) = &runtime_id {
            self.by_runtime_id.insert(runtime_id.clone(), id);
        }
        let claim = self.claim_of(id, &spec);
        let container = Container {
            spec: Arc::new(spec),
            runtime_id,
            phase,
            decision,
            home: String::new(),
            has_doubt: false,
            doubted_at: None,
            update: None,
            refused: None,
            // What it was told before us is not known.
            is_rewritten: phase == Phase::Created,
            touched: self.steps,
            cold: Cold::No,
            claim,
            elsewhere: None,
            was_silent: false,
            annotated: None,
            pod_before: None,
            is_unasked: false,
        };
        self.containers.insert(id, container);
        self.remember_home(id);
    }

    /// Its home is the pool that it is in now.
    pub(crate) fn remember_home(&mut self, id: ContainerId) {
        let Some(allocation) = self.ledger.allocation(id) else { return };
        let home = self.ledger.pools().lasting_name(allocation.pool).unwrap_or_default();
        if let Some(container) = self.containers.get_mut(&id) {
            container.home = home.to_owned();
        }
    }

    fn create_ended(&mut self, ticket: Ticket, outcome: CreateOutcome, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        let Some((id, told)) = self.by_ticket.remove(&ticket) else {
            // Passed through without a decision: whatever came of it is found by asking the runtime.
            step.sync_soon = !matches!(outcome, CreateOutcome::Failed);
            return step;
        };
        let is_retried = self.by_ticket.values().any(|(other, _)| *other == id);
        let Some(container) = self.containers.get_mut(&id) else { return step };
        container.touched = self.steps;
        let has_doubt = container.has_doubt;
        match outcome {
            // Both creations of the same container have succeeded: the later one is found by asking the runtime.
            CreateOutcome::Created { id: other, .. }
                if container.runtime_id.as_ref().is_some_and(|known| *known != other) =>
            {
                step.sync_soon = true;
            }
            CreateOutcome::Created { id: runtime_id, pinned } => {
                let is_moved = self.release_namesake(id, &runtime_id, now, &mut step);
                // After a doubt the runtime may answer with the container of an earlier call, which was told something else.
                let is_told = pinned && !is_moved && !has_doubt;
                let told = if is_told { told } else { Pinning::default() };
                self.bind(id, runtime_id.clone(), told);
                step.records.push(Record::Created { id: id.0, runtime_id, at: now });
            }
            // Another creation of the same container has succeeded.
            _ if container.runtime_id.is_some() => {}
            CreateOutcome::Failed if !container.has_doubt => {
                self.release(id, "the runtime did not create it", now, &mut step);
            }
            CreateOutcome::Failed | CreateOutcome::Unknown => {
                container.has_doubt = true;
                container.doubted_at = Some(now);
                // While another creation of it is under way, that cannot be told.
                container.phase = if is_retried { Phase::Creating } else { Phase::Unconfirmed };
                step.sync_soon = !is_retried;
            }
        }
        step
    }

    /// A creation that was given up, and repeated with other resources, may seem to have made the container: there is only one.
    /// True where it did, and so the container may run where that one was placed.
    fn release_namesake(
        &mut self,
        id: ContainerId,
        runtime_id: &str,
        now: Timestamp,
        step: &mut Step,
    ) -> bool {
        let other = self.by_runtime_id.get(runtime_id).copied().filter(|other| *other != id);
        if let Some(other) = other {
            self.release(other, "another creation made it", now, step);
            self.ended.remove(runtime_id);
        }
        other.is_some()
    }

    pub(crate) fn bind(&mut self, id: ContainerId, runtime_id: String, told: Pinning) {
        if let Some(container) = self.containers.get_mut(&id) {
            container.phase = Phase::Created;
            container.runtime_id = Some(runtime_id.clone());
            self.unstarted.remove(&runtime_id);
            self.observed.insert(runtime_id.clone(), told);
            self.by_runtime_id.insert(runtime_id, id);
        }
    }

    fn ended(&mut self, runtime_id: &str, why: &str, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        match self.by_runtime_id.get(runtime_id).copied() {
            Some(id) => self.end(id, why, now, &mut step),
            None => {
                self.ended.insert(runtime_id.to_owned(), self.steps);
                // It may be what a creation without an answer has made.
                let is_anybodys = self.containers.values().any(|it| it.runtime_id.is_none());
                if is_anybodys && self.unstarted.insert(runtime_id.to_owned()) {
                    step.records.push(Record::Unstarted { runtime_id: runtime_id.to_owned() });
                }
            }
        }
        step
    }

    /// Releases what kubelet has ended, and so will not start any more.
    fn end(&mut self, id: ContainerId, why: &str, now: Timestamp, step: &mut Step) {
        let unstarted = self.containers.get(&id).filter(|it| it.phase == Phase::Created);
        if let Some(runtime_id) = unstarted.and_then(|it| it.runtime_id.clone()) {
            self.unstarted.insert(runtime_id.clone());
            step.records.push(Record::Unstarted { runtime_id });
        }
        self.release(id, why, now, step);
    }

    pub(crate) fn release(&mut self, id: ContainerId, why: &str, now: Timestamp, step: &mut Step) {
        let departure = self.departure(id, why);
        self.refusals_over(id, "has no container any more", step);
        let Some(container) = self.containers.remove(&id) else { return };
        step.history.push(departure);
        let heir = self.heir_of(id);
        self.ledger.release(id);
        self.leave_group(id);
        step.records.extend(heir.and_then(|heir| self.placed_record(heir)));
        self.unsettle(&container.spec);
        self.by_ticket.retain(|_, (other, _)| *other != id);
        if let Some(runtime_id) = &container.runtime_id {
            self.by_runtime_id.remove(runtime_id);
            self.observed.remove(runtime_id);
            self.before.remove(runtime_id);
            self.held.remove(runtime_id);
            self.ended.insert(runtime_id.clone(), self.steps);
            step.forgiven.push(runtime_id.clone());
        }
        step.records.push(Record::Released { id: id.0, why: why.to_owned(), at: now });
        step.notes.push(Note::Released { container: container.full_name(), why: why.to_owned() });
        self.remember(container.full_name(), container.decision);
    }

    /// The one that takes over the exclusive CPUs that this one holds for its pod.
    fn heir_of(&self, id: ContainerId) -> Option<ContainerId> {
        let terms = self.ledger.allocation(id)?.terms;
        (terms.part == Part::Holder).then(|| self.ledger.joined_of(terms.owner).next()).flatten()
    }

    fn remember(&mut self, name: String, decision: Decision) {
        if self.history.len() >= HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back((name, decision));
    }

    /// These have what they were told after an update of theirs had failed.
    fn writes_landed(&mut self, landed: &[String]) -> Step {
        for container in landed {
            self.held.remove(container);
            self.before.remove(container);
        }
        Step::new(Answer::Done)
    }

    /// An answer that told the runtime where these are to run may not have arrived: it is told again.
    fn told_in_doubt(&mut self, told: &[String]) -> Step {
        for container in told.iter().filter(|it| self.by_runtime_id.contains_key(*it)) {
            self.observed.insert(container.clone(), Pinning::default());
        }
        Step::new(Answer::Done)
    }

    /// Creations in doubt that were asked about by the runtime's id are over: the next view of the runtime counts.
    fn reconnected(&mut self) -> Step {
        let doubtful = self.containers.values_mut();
        for container in doubtful.filter(|it| it.spec.due_id.is_some()) {
            container.doubted_at = None;
        }
        Step { sync_soon: true, ..Step::new(Answer::Done) }
    }

    fn writes_failed(&mut self, failed: &[FailedWrite], now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        for write in failed {
            self.observed.remove(&write.container);
            match self.by_runtime_id.get(&write.container).copied() {
                Some(id) if write.is_gone => {
                    self.release(id, "the runtime no longer knows it", now, &mut step);
                }
                Some(id) => {
                    let had = self.before.remove(&write.container);
                    self.held.extend(had.map(|had| (write.container.clone(), had)));
                    step.history.extend(self.failed_write(id));
                    if let Some(container) = self.containers.get_mut(&id) {
                        container.touched = self.steps;
                    }
                    step.sync_soon = true;
                }
                None => {}
            }
        }
        step
    }
}

#[cfg(test)]
pub(crate) mod tests;
