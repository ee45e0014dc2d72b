//! Random histories on random machines, against a runtime that is a few maps: it carries plans out, or not, it forgets answers, loses
//! containers and makes others up.

mod allowed;
mod annotations;
mod claims;
mod cold_start;
mod colocation;
mod compaction;
mod groups;
mod huge_pages;
mod known;
mod live;
mod modes;
mod narrowing;
mod overflow;
mod pods;
mod reconfigured;
mod refused;
mod sets_changed;
mod starting;
mod together;
mod turned;
mod unasked;
mod undone;
mod vectors;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_allocator::policy::{Policy, pools};
use bayplan_allocator::{Part, check_ledger};
use bayplan_enforcement::{Pass, Write};
use bayplan_rebalance::Knob;
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::{Bytes, CpuId, CpuSet, MilliCpu, QosClass};
use bayplan_workload::annotations::Rule;
use bayplan_workload::{Admission, CreateOutcome, NewContainer, Pod, ResizeOutcome, Resources};
use proptest::prelude::*;

use super::*;
use crate::container::Phase;
use crate::event::{
    Answer, ChangedMachine, Event, FailedWrite, Note, RuntimeView, Seen, SeenDetails, Step,
};
use crate::history::Kind;
use crate::record::{AllocationForm, Record, replay};
use crate::settings::CompactionConfig;
use crate::turned::Turn;

/// A machine as one line, its reserved CPUs, and those that are offline or isolated, as far as it has them.
#[derive(Clone, Debug)]
struct Machine {
    line: String,
    reserved: String,
    policy: Policy,
    /// System pods run on them.
    has_system: bool,
    offline: CpuSet,
    isolated: CpuSet,
    compacts: bool,
    narrows: bool,
    /// A container that cannot have exclusive CPUs shares.
    shares: bool,
}

impl Machine {
    fn new(line: &str, reserved: &str) -> Machine {
        let (offline, isolated) = (CpuSet::new(), CpuSet::new());
        let (line, reserved) = (line.to_owned(), reserved.to_owned());
        let (compacts, narrows, shares) = (false, false, false);
        let (policy, has_system) = (Policy::default(), true);
        Machine { line, reserved, policy, has_system, offline, isolated, compacts, narrows, shares }
    }

    /// `None`: every CPU is offline.
    fn topology(&self) -> Option<Topology> {
        let whole = parse_machine(&self.line).unwrap().online.unwrap();
        let mut line = self.line.clone();
        for (option, cpus) in [("offline", &self.offline), ("isolated", &self.isolated)] {
            let cpus = cpus.intersection(&whole);
            if !cpus.is_empty() {
                line.push_str(&format!(" {option}:{cpus}"));
            }
        }
        derive(&parse_machine(&line).unwrap()).ok()
    }

    fn changed(&self) -> Option<ChangedMachine> {
        Some(ChangedMachine::new(&self.topology()?, self.policy, &self.reserved.parse().unwrap()))
    }
}

fn fresh(machine: &Machine) -> NodeState {
    let ChangedMachine { pools, fingerprint, .. } = machine.changed().unwrap();
    let rules = machine.rules();
    let config = CompactionConfig { enabled: machine.compacts, ..CompactionConfig::default() };
    NodeState::new(Ledger::new(Arc::new(pools)), rules, fingerprint)
        .with_compaction(config)
        .with_narrowing(machine.narrows)
        .with_on_no_capacity(match machine.shares {
            true => OnNoCapacity::Share,
            false => OnNoCapacity::Refuse,
        })
}

/// CPUs as the bits of a number.
fn cpus_of(bits: u64) -> CpuSet {
    (0..64).filter(|cpu| bits & 1 << cpu != 0).map(CpuId).collect()
}

/// A container of the runtime.
#[derive(Clone, Debug)]
struct Real {
    spec: NewContainer,
    pinning: Pinning,
    /// The runtime has read where it is to run, and does not notice updates until it runs.
    is_starting: bool,
    is_running: bool,
    is_alive: bool,
}

/// A creation on its way.
#[derive(Clone, Debug)]
struct Pending {
    ticket: Ticket,
    spec: NewContainer,
    told: Pinning,
    /// What the runtime has made of it.
    made: Option<String>,
    /// The pod is gone or the name is taken.
    is_impossible: bool,
    /// The daemon no longer waits for it, but the runtime may still do it.
    is_given_up: bool,
}

/// What happens next. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Op {
    Admit {
        pod: u8,
        name: u8,
        attempt: u32,
        milli: i64,
        gib: i64,
    },
    Retry(usize),
    Make(usize),
    CreateEnds {
        which: usize,
        is_answered: bool,
    },
    Start(usize),
    Remove(usize),
    Vanish {
        which: usize,
        is_removed: bool,
    },
    Appear {
        pod: u8,
        name: u8,
        milli: i64,
        cpus: u64,
    },
    PodEnds(u8),
    Resize {
        which: usize,
        milli: i64,
    },
    ResizeEnds {
        which: usize,
        outcome: ResizeOutcome,
    },
    WritesFail(u8),
    FailuresArrive,
    SyncStarts,
    View,
    SyncEnds,
    Sync,
    Restart,
    Hotplug {
        offline: u64,
        isolated: u64,
    },
    Reshape(String),
    Configure {
        reserved: u64,
        has_system: bool,
        has_one_pool: bool,
    },
    SetMode(Mode),
    Turn {
        which: usize,
        cpus: u64,
    },
    Pause(bool),
    /// A minute goes by.
    Wait,
}

fn any_milli() -> impl Strategy<Value = i64> {
    prop_oneof![3 => (0i64..9).prop_map(|cpus| cpus * 1000), 2 => 0i64..9000, 1 => Just(1500)]
}

fn any_op() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    prop_oneof![
        8 => (0u8..8, 0u8..3, 0u32..2, any_milli(), 0i64..6).prop_map(
            |(pod, name, attempt, milli, gib)| Op::Admit { pod, name, attempt, milli, gib }
        ),
        2 => which().prop_map(Op::Retry),
        6 => which().prop_map(Op::Make),
        6 => (which(), prop::bool::weighted(0.7))
            .prop_map(|(which, is_answered)| Op::CreateEnds { which, is_answered }),
        4 => which().prop_map(Op::Start),
        3 => which().prop_map(Op::Remove),
        1 => (which(), any::<bool>())
            .prop_map(|(which, is_removed)| Op::Vanish { which, is_removed }),
        1 => (0u8..8, 0u8..3, any_milli(), any::<u64>())
            .prop_map(|(pod, name, milli, cpus)| Op::Appear { pod, name, milli, cpus }),
        1 => (0u8..8).prop_map(Op::PodEnds),
        3 => (which(), any_milli()).prop_map(|(which, milli)| Op::Resize { which, milli }),
        3 => (which(), resize_outcome())
            .prop_map(|(which, outcome)| Op::ResizeEnds { which, outcome }),
        1 => any::<u8>().prop_map(Op::WritesFail),
        1 => Just(Op::FailuresArrive),
        1 => Just(Op::SyncStarts),
        2 => Just(Op::View),
        2 => Just(Op::SyncEnds),
        1 => Just(Op::Sync),
        1 => Just(Op::Restart),
        2 => (any_few_cpus(), any_few_cpus())
            .prop_map(|(offline, isolated)| Op::Hotplug { offline, isolated }),
        1 => any_machine().prop_map(|machine| Op::Reshape(machine.line)),
        2 => (any_few_cpus(), any::<bool>(), any::<bool>())
            .prop_map(|(reserved, has_system, has_one_pool)| Op::Configure { reserved, has_system, has_one_pool }),
        2 => prop::sample::select(&Mode::ALL[..]).prop_map(Op::SetMode),
        2 => (which(), any_few_cpus()).prop_map(|(which, cpus)| Op::Turn { which, cpus }),
        1 => any::<bool>().prop_map(Op::Pause),
        2 => Just(Op::Wait),
    ]
}

/// Mostly none or few, now and then nearly all, neighbours more often than not.
fn any_few_cpus() -> impl Strategy<Value = u64> {
    let block = (0u32..16, 1u32..9).prop_map(|(first, len)| ((1u64 << len) - 1) << first);
    prop_oneof![3 => Just(0), 3 => block, 1 => any::<u64>(), 1 => (0u32..64).prop_map(|cpu| !(1 << cpu))]
}

fn any_machine() -> impl Strategy<Value = Machine> {
    let shape = (1u32..3, 1u32..3, 1u32..3, 1u32..5, 1u32..3, any::<bool>(), any::<bool>());
    let huge = prop::sample::select(&["", "", " huge:2M=1024", " pmem:16 online:kernel"][..]);
    (shape, huge).prop_map(|((pack, numa, l3, core, pu, l3_first, reserve), huge)| {
        let middle = match l3_first {
            true => format!("l3:{l3} numa:{numa}"),
            false => format!("numa:{numa} l3:{l3}"),
        };
        let line = format!("pack:{pack} {middle} core:{core} pu:{pu} mem:8{huge}");
        let is_large = pack * numa * l3 * core * pu > 2;
        Machine::new(&line, if reserve && is_large { "0" } else { "" })
    })
}

/// Pods 0 to 2 are Guaranteed, 3 Burstable, 4 BestEffort, 5 is a system pod. Pod 1 has a GiB in huge pages beside its memory, if any; pod 2
/// starts on slow memory. For pods 6 and 7, which are Guaranteed, too, a scheduler has chosen CPUs.
fn spec(pod: u8, name: u8, attempt: u32, milli: i64, gib: i64) -> NewContainer {
    let qos = match pod {
        0..=2 | 6 | 7 => QosClass::Guaranteed,
        4 => QosClass::BestEffort,
        _ => QosClass::Burstable,
    };
    let namespace = if pod == 5 { "kube-system" } else { "default" };
    NewContainer {
        pod: Pod {
            id: format!("sandbox{pod}"),
            namespace: namespace.into(),
            name: format!("pod{pod}"),
            qos: Some(qos),
            // Of one pod it is known what it needs as a whole.
            resources: if pod == 1 { resources(6000) } else { Resources::default() },
            annotations: match pod {
                2 => BTreeMap::from([("bayplan.dev/cold-start".to_owned(), "2m".to_owned())]),
                6 => BTreeMap::from([chosen("1-2")]),
                7 => BTreeMap::from([chosen("2,5-6")]),
                _ => BTreeMap::new(),
            },
            ..Pod::default()
        },
        name: format!("c{name}"),
        attempt,
        resources: Resources { memory_limit: gib << 30, ..resources(milli) },
        huge_pages: (pod == 1 && gib > 0).then(|| (TWO_MIB, Bytes::gib(1))).into_iter().collect(),
        ..NewContainer::default()
    }
}

/// What Koordinator's scheduler writes into a pod.
fn chosen(cpus: &str) -> (String, String) {
    let name = "scheduling.koordinator.sh/resource-status".to_owned();
    (name, format!(r#"{{"cpuset":"{cpus}","numaNodeResources":[{{"node":0}}]}}"#))
}

const TWO_MIB: Bytes = Bytes(2 << 20);

/// As kubelet computes them.
fn resize_outcome() -> impl Strategy<Value = ResizeOutcome> {
    prop_oneof![
        8 => Just(ResizeOutcome::Done),
        1 => Just(ResizeOutcome::Failed),
        1 => Just(ResizeOutcome::Unknown),
    ]
}

fn resources(milli: i64) -> Resources {
    Resources {
        cpu_shares: (milli * 1024 / 1000).max(2),
        cpu_quota: milli * 100,
        cpu_period: 100_000,
        memory_limit: 0,
        // A twentieth of the machine's memory, if it is Burstable.
        oom_score_adj: 950,
    }
}

struct World {
    machine: Machine,
    online: CpuSet,
    state: NodeState,
    journal: Vec<String>,
    /// What the journal has of each container, by the ledger's id.
    journaled: BTreeMap<u64, AllocationForm>,
    real: BTreeMap<String, Real>,
    pending: Vec<Pending>,
    /// Kubelet's updates on their way, with what bayplan wrote into them, and what the container had before.
    updates: Vec<(String, Pinning, Resources)>,
    made: usize,
    tickets: u64,
    /// Bits that say which of the next plan's writes fail.
    failing: u8,
    /// Failures that the state has not heard of.
    failures: Vec<FailedWrite>,
    /// Containers with a last write that failed.
    wrong: BTreeSet<String>,
    /// Everything that was said.
    notes: Vec<Note>,
    basis: Option<(u64, BTreeSet<String>)>,
    view: Option<RuntimeView>,
    now: Timestamp,
    /// Pods that owned CPUs when draining began.
    owners: BTreeSet<String>,
}

impl World {
    fn new(machine: Machine) -> World {
        World {
            state: fresh(&machine),
            online: machine.topology().unwrap().cpus().clone(),
            machine,
            journal: Vec::new(),
            journaled: BTreeMap::new(),
            real: BTreeMap::new(),
            pending: Vec::new(),
            updates: Vec::new(),
            made: 0,
            tickets: 0,
            failing: 0,
            failures: Vec::new(),
            wrong: BTreeSet::new(),
            notes: Vec::new(),
            basis: None,
            view: None,
            now: Timestamp::UNIX_EPOCH,
            owners: BTreeSet::new(),
        }
    }

    fn step(&mut self, event: Event) -> Answer {
        let step = self.state.step(event, self.now);
        self.carry_out(step)
    }

    fn carry_out(&mut self, step: Step) -> Answer {
        self.notes.extend(step.notes);
        self.note_records(&step.records);
        let failing = std::mem::take(&mut self.failing);
        for (index, write) in step.plan.writes.into_iter().enumerate() {
            assert!(write.new.cpus.is_subset(&self.online), "{write:?} names offline CPUs");
            let id = write.container;
            let fail = |is_gone| FailedWrite { container: id.clone(), is_gone, withheld: None };
            match self.real.get_mut(&id) {
                None => self.failures.push(fail(true)),
                Some(real) if real.is_alive && failing & 1 << (index % 8) != 0 => {
                    self.failures.push(fail(false));
                    self.wrong.insert(id);
                }
                Some(real) if real.is_starting => {
                    self.wrong.insert(id);
                }
                Some(real) => {
                    real.pinning = write.new;
                    self.wrong.remove(&id);
                }
            }
        }
        step.answer
    }

    fn note_records(&mut self, records: &[Record]) {
        self.journal.extend(records.iter().map(|it| serde_json::to_string(it).unwrap()));
        for record in records {
            match record {
                Record::Placed(placed) => {
                    self.journaled.insert(placed.id, placed.allocation.clone());
                }
                Record::Released { id, .. } => {
                    self.journaled.remove(id);
                }
                _ => {}
            }
        }
    }

    fn remove(&mut self, which: usize) {
        if let Some(id) = self.any_real(which) {
            self.real.remove(&id);
            self.wrong.remove(&id);
            self.step(Event::Ended(id));
        }
    }

    fn play(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Admit { pod, name, attempt, milli, gib } => {
                self.admit(spec(pod, name, attempt, milli, gib));
            }
            Op::Retry(which) => {
                if let Some(pending) = pick(&self.pending, which) {
                    self.admit(pending.spec.clone());
                }
            }
            Op::Make(which) => self.make(which),
            Op::CreateEnds { which, is_answered } => self.create_ends(which, is_answered),
            Op::Start(which) => self.start(which),
            Op::Remove(which) => self.remove(which),
            Op::Vanish { which, is_removed } => self.vanish(which, is_removed),
            Op::Appear { pod, name, milli, cpus } => {
                let cpus = cpus_of(cpus).intersection(&self.online);
                let pinning = Pinning { cpus, ..Pinning::default() };
                self.make_real(spec(pod, name, 7, milli, 0), pinning);
            }
            Op::PodEnds(pod) => self.end_pod(&format!("sandbox{pod}")),
            Op::Resize { which, milli } => self.resize(which, milli),
            Op::ResizeEnds { which, outcome } => self.resize_ends(which, outcome),
            Op::WritesFail(mask) => self.failing = mask,
            Op::FailuresArrive => self.report_failures(),
            Op::SyncStarts => self.start_sync(),
            Op::View => self.take_view(),
            Op::SyncEnds => {
                if let Some(view) = self.view.take() {
                    self.step(Event::Synced(view));
                }
            }
            Op::Sync => self.sync()?,
            Op::Restart => self.restart()?,
            Op::Hotplug { offline, isolated } => {
                let (offline, isolated) = (cpus_of(offline), cpus_of(isolated));
                self.change(Machine { offline, isolated, ..self.machine.clone() })?;
            }
            Op::Reshape(line) => {
                let reserved = self.machine.reserved.clone();
                let Machine { compacts, narrows, shares, has_system, policy, .. } = self.machine;
                let machine = Machine::new(&line, &reserved);
                self.change(Machine { compacts, narrows, shares, has_system, policy, ..machine })?;
            }
            Op::Configure { reserved, has_system, has_one_pool } => {
                self.configure(reserved, has_system, has_one_pool)?;
            }
            Op::SetMode(mode) => {
                self.owners = self.owners();
                self.step(Event::SetMode(mode));
            }
            Op::Turn { which, cpus } => self.turn(which, cpus_of(cpus)),
            Op::Pause(is_paused) => {
                self.step(Event::PauseRebalance(is_paused));
            }
            Op::Wait => {
                self.now += SignedDuration::from_mins(1);
                self.step(Event::Ping);
            }
        }
        Ok(())
    }

    /// The rebalancer lets a container leave CPUs, or where that are none brings memory home, and takes back what was before.
    fn turn(&mut self, which: usize, leave: CpuSet) {
        let ids: Vec<ContainerId> = self.state.containers.keys().copied().collect();
        let Some(target) = pick(&ids, which).copied() else { return };
        let held = self.state.ledger.allocation(target);
        let is_owner = held.is_some_and(|it| !it.exclusive.is_empty());
        let knob = match is_owner {
            _ if leave.is_empty() => Knob::Memory,
            true => Knob::MoveOwner,
            false if leave.len().is_multiple_of(4) => Knob::Siblings,
            false => Knob::Move,
        };
        let held = held.filter(|_| knob == Knob::Memory);
        let mems = held.and_then(|it| self.state.home_of(target, it).ok()).unwrap_or_default();
        let turn = Turn { knob, target, step: 1, leave, mems };
        // Beside up to two others, so that some end while others stand.
        let standing = self.state.turned.iter().map(|(number, it)| (number, it.clone()));
        let mut turns: Vec<(u64, Turn)> = standing.collect();
        turns.drain(..turns.len().saturating_sub(2));
        let number = turns.last().map_or(1, |(number, _)| number + 1);
        turns.push((number, turn));
        self.step(Event::Turn(Turned::from_turns(turns)));
    }

    /// Pods with exclusive CPUs: within a pod these go over to another container when their holder ends.
    fn owners(&self) -> BTreeSet<String> {
        let held = self.state.ledger.allocations().filter(|(_, held)| !held.exclusive.is_empty());
        let containers = held.filter_map(|(id, _)| self.state.containers.get(&id));
        containers.map(|container| container.spec.pod.name.clone()).collect()
    }

    /// Alive or killed before anything of it was in the journal, the daemon comes to the same places.
    fn change(&mut self, machine: Machine) -> Result<(), TestCaseError> {
        let Some(topology) = machine.topology() else { return Ok(()) };
        let changed = machine.changed().unwrap();
        let mut killed = fresh(&machine);
        killed.restore(replay(&self.journal), self.now);
        self.machine = machine;
        self.online = topology.cpus().clone();
        let fingerprint = changed.fingerprint.clone();
        self.step(Event::MachineChanged(Box::new(changed)));
        prop_assert_eq!(killed.ledger.holdings(), self.state.ledger.holdings());
        prop_assert_eq!(&self.state.fingerprint, &fingerprint);
        Ok(())
    }

    fn admit(&mut self, spec: NewContainer) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let owned_before = self.owned();
        let claims = spec.pod.annotations.keys().any(|it| it.contains("koord"));
        let tried = self.step(Event::TryAdmit(ticket, Box::new(spec.clone())));
        let answer = match tried {
            Answer::Admission(Admission::Refuse(_)) | Answer::AskFirst => {
                self.step(Event::Admit(ticket, Box::new(spec.clone())))
            }
            placed => placed,
        };
        if claims {
            let owned = self.owned();
            let is_kept = |(id, cpus): (&ContainerId, &CpuSet)| {
                !self.state.containers.contains_key(id) || owned.get(id) == Some(cpus)
            };
            assert!(owned_before.iter().all(is_kept), "{owned_before:?} {owned:?}");
        }
        let told = match answer {
            Answer::Admission(Admission::Place(told)) => told,
            Answer::Admission(Admission::Refuse(_)) => return,
            Answer::Admission(Admission::PassThrough) if self.state.is_restored() => {
                Pinning::default()
            }
            other => panic!("{other:?}"),
        };
        self.pending.push(Pending {
            ticket,
            spec,
            told,
            made: None,
            is_impossible: false,
            is_given_up: false,
        });
    }

    /// CPUs of containers that have no others.
    fn owned(&self) -> BTreeMap<ContainerId, CpuSet> {
        let held = self.state.ledger.allocations();
        let held = held.filter(|(_, it)| it.shared.is_none());
        held.map(|(id, it)| (id, it.exclusive.clone())).collect()
    }

    fn make_real(&mut self, spec: NewContainer, pinning: Pinning) -> Option<String> {
        let mut others = self.real.values();
        let is = |real: &Real| {
            let other = &real.spec;
            (&other.pod.id, &other.name, other.attempt) == (&spec.pod.id, &spec.name, spec.attempt)
        };
        if others.any(is) {
            return None;
        }
        self.made += 1;
        // Neither in the order of creation nor always in another.
        let id = format!("{:02x}-{}", self.made * 37 % 256, self.made);
        let real = Real { spec, pinning, is_starting: false, is_running: false, is_alive: true };
        self.real.insert(id.clone(), real);
        Some(id)
    }

    fn make(&mut self, which: usize) {
        let open = self.pending.iter().enumerate();
        let open: Vec<usize> = open
            .filter(|(_, pending)| pending.made.is_none() && !pending.is_impossible)
            .map(|(index, _)| index)
            .collect();
        let Some(index) = pick(&open, which).copied() else { return };
        let Pending { spec, told, .. } = self.pending[index].clone();
        let made = self.make_real(spec, told);
        let pending = &mut self.pending[index];
        pending.is_impossible = made.is_none();
        pending.made = made;
        if pending.is_given_up {
            self.pending.remove(index);
        }
    }

    fn create_ends(&mut self, which: usize, is_answered: bool) {
        let waiting = self.pending.iter().enumerate().filter(|(_, pending)| !pending.is_given_up);
        let waiting: Vec<usize> = waiting.map(|(index, _)| index).collect();
        let Some(index) = pick(&waiting, which).copied() else { return };
        let pending = &mut self.pending[index];
        let ticket = pending.ticket;
        let outcome = match (&pending.made, is_answered) {
            (_, false) => CreateOutcome::Unknown,
            (Some(id), true) => CreateOutcome::Created { id: id.clone(), pinned: true },
            (None, true) => CreateOutcome::Failed,
        };
        let may_come = outcome == CreateOutcome::Unknown && pending.made.is_none();
        if may_come && !pending.is_impossible {
            pending.is_given_up = true;
        } else {
            self.pending.remove(index);
        }
        self.step(Event::CreateEnded(ticket, outcome));
    }

    fn any_real(&self, which: usize) -> Option<String> {
        let ids: Vec<&String> = self.real.keys().collect();
        pick(&ids, which).map(|id| (*id).clone())
    }

    /// Kubelet starts only what it was told of, which takes its time: the second call ends what the first has begun.
    fn start(&mut self, which: usize) {
        let Some(id) = self.any_real(which) else { return };
        let is_pending = self.pending.iter().any(|pending| pending.made.as_ref() == Some(&id));
        let Some(real) = self.real.get_mut(&id).filter(|real| real.is_alive && !is_pending) else {
            return;
        };
        real.is_running |= real.is_starting;
        real.is_starting = !real.is_running;
        if real.is_running {
            self.step(Event::Started(id));
        }
    }

    fn vanish(&mut self, which: usize, is_removed: bool) {
        let Some(id) = self.any_real(which) else { return };
        self.wrong.remove(&id);
        if is_removed {
            self.real.remove(&id);
        } else if let Some(real) = self.real.get_mut(&id) {
            (real.is_alive, real.is_running) = (false, false);
        }
    }

    fn end_pod(&mut self, pod: &str) {
        self.real.retain(|_, real| real.spec.pod.id != pod);
        self.wrong.retain(|id| self.real.contains_key(id));
        for pending in self.pending.iter_mut().filter(|pending| pending.spec.pod.id == pod) {
            pending.is_impossible = pending.made.is_none();
        }
        self.pending.retain(|pending| !(pending.is_given_up && pending.is_impossible));
        self.step(Event::PodEnded(pod.to_owned()));
    }

    fn resize(&mut self, which: usize, milli: i64) {
        let Some(id) = self.any_real(which) else { return };
        let before = self.state.ledger.holdings().clone();
        let answer = self.step(Event::Resize(id.clone(), resources(milli)));
        let Some(real) = self.real.get_mut(&id) else { return };
        match answer {
            Answer::Admission(Admission::Place(pinning)) => {
                let before = real.spec.resources;
                real.spec.resources = before.updated_by(resources(milli));
                self.updates.push((id, pinning, before));
            }
            Answer::Admission(Admission::PassThrough) => {
                real.spec.resources = real.spec.resources.updated_by(resources(milli));
            }
            Answer::Admission(Admission::Refuse(_)) => {
                assert_eq!(*self.state.ledger.holdings(), before, "a refused resize");
            }
            other => panic!("{other:?}"),
        }
    }

    /// The update arrives at the runtime, perhaps after others were placed where it is going.
    fn resize_ends(&mut self, which: usize, outcome: ResizeOutcome) {
        let Some(index) = which.checked_rem(self.updates.len()) else { return };
        let (id, pinning, before) = self.updates.remove(index);
        match self.real.get_mut(&id) {
            Some(real) if outcome == ResizeOutcome::Done => {
                real.pinning = pinning;
                self.wrong.remove(&id);
            }
            Some(real) if outcome == ResizeOutcome::Failed => real.spec.resources = before,
            _ => {}
        }
        self.step(Event::Resized(id, outcome));
    }

    fn report_failures(&mut self) {
        let failures = std::mem::take(&mut self.failures);
        if !failures.is_empty() {
            self.step(Event::WritesFailed(failures));
        }
    }

    fn start_sync(&mut self) {
        let Answer::SyncBasis { basis, known } = self.step(Event::SyncStarted) else {
            panic!("no basis")
        };
        self.view = None;
        self.basis = Some((basis, known));
    }

    fn take_view(&mut self) {
        let Some((basis, known)) = self.basis.take() else { return };
        let seen = |(id, real): (&String, &Real)| {
            let details =
                SeenDetails { container: real.spec.clone(), pinning: real.pinning.clone() };
            let seen = Seen {
                pod_id: real.spec.pod.id.clone(),
                name: real.spec.name.clone(),
                attempt: real.spec.attempt,
                is_alive: real.is_alive,
                is_running: real.is_running,
                details: (real.is_alive && !known.contains(id)).then(|| Box::new(details)),
            };
            (id.clone(), seen)
        };
        self.view = Some(RuntimeView { basis, containers: self.real.iter().map(seen).collect() });
    }

    /// A whole sync in which nothing goes wrong: afterwards the ledger is about what the runtime has, and every container is in place.
    fn sync(&mut self) -> Result<(), TestCaseError> {
        self.failing = 0;
        self.report_failures();
        self.start_sync();
        self.take_view();
        let view = self.view.take().unwrap();
        self.step(Event::Synced(view));
        // Also one that seemed to be wrong must be in place now; `check` looks.
        self.wrong.retain(|id| self.real.get(id).is_some_and(|real| real.is_starting));
        let live: BTreeSet<&String> =
            self.real.iter().filter(|(_, real)| real.is_alive).map(|(id, _)| id).collect();
        for id in self.state.by_runtime_id.keys() {
            prop_assert!(live.contains(id), "{} is held and does not live", id);
        }
        for (id, real) in self.real.iter().filter(|(_, real)| real.is_alive) {
            let spec = &real.spec;
            let is_being_made = self.state.containers.values().any(|container| {
                container.phase == Phase::Creating
                    && container.is(&spec.pod.id, &spec.name, spec.attempt)
            });
            let is_held = self.state.by_runtime_id.contains_key(id);
            let is_idle = self.is_superseded(real) || self.state.is_restored();
            prop_assert!(is_held || is_being_made || is_idle, "{} lives and is not held", id);
        }
        Ok(())
    }

    /// Never started, and there is a later attempt of it.
    fn is_superseded(&self, real: &Real) -> bool {
        let is_later = |spec: &NewContainer| {
            spec.pod.id == real.spec.pod.id
                && spec.name == real.spec.name
                && spec.attempt > real.spec.attempt
        };
        !real.is_running
            && (self.real.values().any(|other| is_later(&other.spec))
                || self.state.containers.values().any(|container| is_later(&container.spec)))
    }

    /// The daemon is killed and reads its journal; whatever it waited for is no longer waited for.
    fn restart(&mut self) -> Result<(), TestCaseError> {
        let mut again = fresh(&self.machine);
        let step = again.restore(replay(&self.journal), self.now);
        prop_assert_eq!(&step.notes, &[]);
        prop_assert_eq!(again.ledger.holdings(), self.state.ledger.holdings());
        prop_assert_eq!(again.mode, self.state.mode);
        prop_assert_eq!(again.next_warming(), self.state.next_warming());
        let live = replay(&self.journal).fingerprint;
        prop_assert!(live.is_none_or(|live| live == self.state.fingerprint));
        let compacted = self.state.snapshot_records();
        let compacted: Vec<String> =
            compacted.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
        let mut third = fresh(&self.machine);
        third.restore(replay(&compacted), self.now);
        prop_assert_eq!(third.ledger.holdings(), self.state.ledger.holdings());
        prop_assert_eq!(third.mode, self.state.mode);

        // What was turned is turned back when the kernel has been asked.
        let is_turned = |id: &ContainerId| self.state.pinning(*id) != again.pinning(*id);
        let turned = self.state.by_runtime_id.iter().filter(|(_, id)| is_turned(id));
        self.wrong.extend(turned.map(|(runtime_id, _)| runtime_id.clone()));
        self.state = again;
        (self.journal, self.journaled) = (Vec::new(), BTreeMap::new());
        self.note_records(&self.state.snapshot_records());
        self.pending.retain(|pending| pending.made.is_none() && !pending.is_impossible);
        self.pending.iter_mut().for_each(|pending| pending.is_given_up = true);
        self.failures.clear();
        let cut_off = self.updates.drain(..).map(|(id, ..)| id);
        self.wrong.extend(cut_off.filter(|id| self.real.contains_key(id)));
        (self.basis, self.view) = (None, None);
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let state = &self.state;
        prop_assert_eq!(check_ledger(&state.ledger), Vec::<String>::new());
        let held: Vec<ContainerId> = state.ledger.allocations().map(|(id, _)| id).collect();
        let known: Vec<ContainerId> = state.containers.keys().copied().collect();
        prop_assert_eq!(held, known);
        for id in state.containers.keys() {
            prop_assert_eq!(self.journaled.get(&id.0).cloned(), state.place(*id), "{}", id);
        }
        self.check_cold()?;
        self.check_claims()?;
        for id in state.containers.keys() {
            let cpus = state.pinning(*id).unwrap().cpus;
            prop_assert!(cpus.is_subset(&self.online), "{} is to run on {}", id, cpus);
            let is_left_alone = state.ledger.allocation(*id).unwrap().terms.preserve.cpus;
            prop_assert!(!cpus.is_empty() || is_left_alone, "{} is to run nowhere", id);
        }
        for (id, container) in &state.containers {
            if let Some(runtime_id) = &container.runtime_id {
                prop_assert_eq!(state.by_runtime_id.get(runtime_id), Some(id));
            }
        }
        prop_assert!(state.by_ticket.values().all(|(id, _)| state.containers.contains_key(id)));
        if state.is_draining() {
            let owners = self.owners();
            prop_assert!(owners.is_subset(&self.owners), "{:?} {:?}", owners, self.owners);
        }
        self.check_pinnings()
    }

    /// Every container that is known and had its last write carried out is where the ledger has it, and so on no CPUs of another. Cold starts end in
    /// time.
    fn check_cold(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.state.next_warming().is_none_or(|it| it > self.now));
        Ok(())
    }

    /// A pod with chosen CPUs has all of its containers there, with nothing in the ledger, and no other container that Bayplan places.
    fn check_claims(&self) -> Result<(), TestCaseError> {
        let state = &self.state;
        let (pools, reserved) = (state.ledger.pools(), state.machine.reserved());
        for (id, container) in &state.containers {
            let claims = container.claim.is_pinned();
            let held = state.ledger.allocation(*id).unwrap();
            let holds_none = held.exclusive.is_empty() && held.shared == Some(MilliCpu::ZERO);
            prop_assert!(!claims || (holds_none && held.terms.preserve.cpus), "{:?}", held);
            let is_chosen = ["pod6", "pod7"].contains(&container.spec.pod.name.as_str());
            prop_assert!(claims || !is_chosen, "{}", id);
            let Some(chosen) = state.chosen_cpus(*id).filter(|_| !state.is_restored()) else {
                continue;
            };
            prop_assert_eq!(&state.pinning(*id).unwrap().cpus, &chosen);
            // Where everything is claimed and nothing reserved, shared containers have to run somewhere.
            let lent = chosen.difference(reserved).intersection(&pools.unplaced_cpus());
            prop_assert!(lent.is_empty() || (lent.len() == 1 && reserved.is_empty()), "{}", lent);
            prop_assert!(lent.is_empty() || pools.allocatable() == lent);
            let others = state.containers.keys().filter(|id| state.chosen_cpus(**id).is_none());
            for other in others {
                let cpus = state.pinning(*other).unwrap().cpus.intersection(&chosen);
                prop_assert!(cpus.difference(&lent).is_subset(reserved), "{} on {}", other, cpus);
            }
        }
        Ok(())
    }

    fn check_pinnings(&self) -> Result<(), TestCaseError> {
        let state = &self.state;
        let mut owned = CpuSet::new();
        let mut shared = CpuSet::new();
        for (runtime_id, id) in &state.by_runtime_id {
            prop_assert!(state.containers.contains_key(id), "{} is nobody", runtime_id);
            let Some(real) = self.real.get(runtime_id).filter(|real| real.is_alive) else {
                continue;
            };
            let is_under_way = self.updates.iter().any(|(id, ..)| id == runtime_id);
            if is_under_way || self.wrong.contains(runtime_id) {
                continue;
            }
            let cpus = &real.pinning.cpus;
            let due = state.pinning(*id).unwrap_or_default();
            prop_assert_eq!(cpus, &due.cpus, "{}", runtime_id);
            let held = state.ledger.allocation(*id).unwrap();
            let holder = state.ledger.holder_of(held.terms.owner).filter(|_| !state.is_restored());
            if let Some((_, holder)) = holder.filter(|_| held.terms.part == Part::Joined) {
                prop_assert_eq!(cpus, &state.ledger.cpus_of(holder), "{}", runtime_id);
                continue;
            }
            let own = &held.exclusive;
            prop_assert!(own.is_subset(cpus) && own.is_disjoint(&owned));
            owned.union_with(own);
            shared.union_with(&cpus.difference(own));
        }
        prop_assert!(state.is_restored() || owned.is_disjoint(&shared), "{} of {}", shared, owned);
        Ok(())
    }

    /// Everything ends, some of it unseen.
    fn end(&mut self) -> Result<(), TestCaseError> {
        self.pending.retain(|pending| !pending.is_given_up);
        while !self.pending.is_empty() {
            let which = self.pending.len();
            self.create_ends(which, self.pending.len().is_multiple_of(2));
            self.pending.retain(|pending| !pending.is_given_up);
            self.check()?;
        }
        let ids: Vec<String> = self.real.keys().cloned().collect();
        for (index, id) in ids.into_iter().enumerate() {
            self.real.remove(&id);
            self.wrong.remove(&id);
            if index % 2 == 0 {
                self.step(Event::Ended(id));
            }
            self.check()?;
        }
        self.sync()?;
        self.sync()?;
        let empty = fresh(&self.machine);
        prop_assert_eq!(self.state.ledger.holdings(), empty.ledger.holdings());
        prop_assert!(self.state.containers.is_empty() && self.state.by_runtime_id.is_empty());
        prop_assert!(self.state.by_ticket.is_empty() && self.state.ended.is_empty());
        prop_assert!(self.state.observed.is_empty(), "{:?}", self.state.observed);
        prop_assert!(replay(&self.journal).containers.is_empty());
        Ok(())
    }
}

fn to_line(record: &Record) -> String {
    serde_json::to_string(record).unwrap()
}

fn pick<T>(among: &[T], which: usize) -> Option<&T> {
    among.get(which.checked_rem(among.len())?)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_history_keeps_the_ledger_and_the_runtime_in_line(
        machine in any_machine(),
        (compacts, narrows, shares) in any::<(bool, bool, bool)>(),
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        let mut world = World::new(Machine { compacts, narrows, shares, ..machine });
        for op in ops {
            world.play(op)?;
            world.check()?;
        }
        world.end()?;
    }
}

/// One CPU for those that share and seven to own.
fn small() -> World {
    World::new(Machine::new("pack:1 numa:1 core:8 pu:1 mem:8", ""))
}

/// Creates container `name` of `pod` without anything going wrong; its id.
fn created(world: &mut World, pod: u8, name: u8, milli: i64) -> String {
    world.admit(spec(pod, name, 0, milli, 0));
    let last = world.pending.len() - 1;
    let Pending { ticket, spec, told, .. } = world.pending.remove(last);
    let id = world.make_real(spec, told).unwrap();
    world.step(Event::CreateEnded(ticket, CreateOutcome::Created { id: id.clone(), pinned: true }));
    world.check().unwrap();
    id
}

#[test]
fn a_container_that_was_created_on_cpus_that_found_an_owner_meanwhile_is_moved_before_its_reply() {
    let mut world = small();
    world.admit(spec(3, 0, 0, 100, 0));
    world.make(0);
    created(&mut world, 0, 0, 4000);
    let Pending { ticket, made, .. } = world.pending.remove(0);
    let outcome = CreateOutcome::Created { id: made.unwrap(), pinned: true };
    let step = world.state.step(Event::CreateEnded(ticket, outcome), Timestamp::UNIX_EPOCH);
    assert!(step.answers_after_plan && step.plan.writes.len() == 1);
    world.carry_out(step);
    world.check().unwrap();
}

#[test]
fn the_first_of_two_creations_runs_where_the_first_was_told() {
    let mut world = small();
    world.admit(spec(3, 0, 0, 100, 0));
    created(&mut world, 0, 0, 4000);
    // Kubelet tries again, and is told of fewer CPUs; then the first one comes through.
    world.admit(spec(3, 0, 0, 100, 0));
    world.make(0);
    world.create_ends(0, true);
    world.check().unwrap();
}

#[test]
fn a_failed_write_is_repeated_by_the_next_sync_and_not_at_once() {
    let mut world = small();
    let shared = created(&mut world, 3, 0, 100);
    world.failing = u8::MAX;
    created(&mut world, 0, 0, 4000);
    assert!(world.wrong.contains(&shared));
    let failed = std::mem::take(&mut world.failures);
    let step = world.state.step(Event::WritesFailed(failed), Timestamp::UNIX_EPOCH);
    assert!(step.plan.is_empty() && step.sync_soon);
    world.sync().unwrap();
    world.check().unwrap();
}

#[test]
fn an_old_view_does_not_bring_back_what_has_ended() {
    let mut world = small();
    world.start_sync();
    let id = created(&mut world, 0, 0, 4000);
    world.take_view();
    world.real.remove(&id);
    world.step(Event::Ended(id));
    let view = world.view.take().unwrap();
    world.step(Event::Synced(view));
    assert!(world.state.containers.is_empty());
    world.end().unwrap();
}

#[test]
fn a_creation_that_is_repeated_with_other_resources_holds_one_place() {
    let mut world = small();
    world.admit(spec(0, 0, 0, 2000, 0));
    world.create_ends(0, false);
    world.admit(spec(0, 0, 0, 3000, 0));
    world.make(1);
    world.sync().unwrap();
    world.create_ends(0, true);
    world.sync().unwrap();
    world.check().unwrap();
    assert_eq!(world.state.containers.len(), 1);
}

#[test]
fn what_differs_after_a_restart_is_repaired_by_the_first_sync() {
    let mut world = small();
    created(&mut world, 0, 0, 4000);
    let shared = created(&mut world, 3, 0, 100);
    world.restart().unwrap();
    world.real.get_mut(&shared).unwrap().pinning = Pinning::default();
    world.sync().unwrap();
    world.check().unwrap();
}

#[test]
fn a_new_attempt_takes_the_place_of_the_one_before() {
    let mut state = state("core:4");
    let first = make(&mut state, 0, new_container("1", "app", 0, 3));
    assert_eq!(owned(&state), "1-3");
    // It crashed, and kubelet has said nothing; there is one more CPU, not three.
    let second = make(&mut state, 1, new_container("1", "app", 1, 3));
    assert_ne!(first, second);
    assert_eq!(owned(&state), "1-3");
}

#[test]
fn a_new_sandbox_of_a_pod_takes_the_place_of_the_old_one() {
    let mut state = state("core:4");
    make(&mut state, 0, new_container("1", "app", 0, 3));
    let pod = new_container("2", "app", 0, 3).pod;
    state.step(Event::PodStarted(pod), Timestamp::UNIX_EPOCH);
    assert_eq!(owned(&state), "");
}

/// A creation that came to an unknown end at second 0, with 30 seconds of grace: what it owns after syncs at these seconds that do not
/// find it.
fn owned_in_doubt(seconds: &[i64]) -> Vec<String> {
    let mut state = state("core:4").with_doubt_grace(SignedDuration::from_secs(30));
    let admit = Event::Admit(Ticket(1), Box::new(new_container("1", "app", 0, 3)));
    state.step(admit, Timestamp::UNIX_EPOCH);
    state.step(Event::CreateEnded(Ticket(1), CreateOutcome::Unknown), Timestamp::UNIX_EPOCH);
    let look = |second: &i64| {
        let now = Timestamp::from_second(*second).unwrap();
        let Answer::SyncBasis { basis, .. } = state.step(Event::SyncStarted, now).answer else {
            unreachable!("an answer to another question")
        };
        let view = RuntimeView { basis, containers: BTreeMap::new() };
        state.step(Event::Synced(view), now);
        owned(&state)
    };
    seconds.iter().map(look).collect()
}

#[test]
fn a_creation_in_doubt_keeps_its_place_while_the_runtime_may_be_at_work() {
    assert_eq!(owned_in_doubt(&[29, 31]), ["1-3", ""]);
}

#[test]
fn a_clock_that_is_put_back_starts_the_wait_for_a_creation_in_doubt_anew() {
    assert_eq!(owned_in_doubt(&[-3600, -3571, -3569]), ["1-3", "1-3", ""]);
}

/// Rules that allow every wish.
pub(crate) fn everything() -> RequestRules {
    RequestRules { permissions: vec![Rule::everything()], ..RequestRules::default() }
}

pub(crate) fn state(line: &str) -> NodeState {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = pools(&topology, Policy::default(), &CpuSet::new()).unwrap();
    NodeState::new(Ledger::new(Arc::new(pools)), everything(), String::new())
}

pub(crate) fn new_container(pod_id: &str, name: &str, attempt: u32, cpus: i64) -> NewContainer {
    let pod = Pod {
        id: pod_id.to_owned(),
        uid: "uid".to_owned(),
        qos: Some(QosClass::Guaranteed),
        ..Pod::default()
    };
    let resources = Resources { cpu_shares: cpus * 1024, ..Resources::default() };
    NewContainer { pod, name: name.to_owned(), attempt, resources, ..NewContainer::default() }
}

/// Admits and creates; gives the runtime's id.
pub(crate) fn make(state: &mut NodeState, ticket: u64, container: NewContainer) -> String {
    let id = format!("id{ticket}");
    let admitted =
        state.step(Event::TryAdmit(Ticket(ticket), Box::new(container)), Timestamp::UNIX_EPOCH);
    assert!(matches!(admitted.answer, Answer::Admission(Admission::Place(_))), "{admitted:?}");
    let created = CreateOutcome::Created { id: id.clone(), pinned: true };
    state.step(Event::CreateEnded(Ticket(ticket), created), Timestamp::UNIX_EPOCH);
    id
}

fn owned(state: &NodeState) -> String {
    let ledger = state.ledger();
    ledger.pools().allocatable().difference(ledger.free()).to_string()
}

#[test]
fn an_attempt_that_was_never_started_is_not_adopted_beside_a_later_one() {
    let mut state = state("core:4");
    make(&mut state, 0, new_container("1", "app", 0, 2));
    make(&mut state, 1, new_container("1", "app", 1, 2));
    let containers =
        [("id0".to_owned(), seen(0, false)), ("id1".to_owned(), seen(1, false))].into();
    let basis = state.steps + 1;
    state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
    state.step(Event::Synced(RuntimeView { basis, containers }), Timestamp::UNIX_EPOCH);
    assert_eq!(state.containers.len(), 1);
    assert_eq!(owned(&state), "1-2");
}

/// What the runtime and the kernel say of the container `1/app`, which has CPUs 1 and 2.
fn seen(attempt: u32, is_running: bool) -> Seen {
    let pinning = Pinning { cpus: "1-2".parse().unwrap(), ..Pinning::default() };
    Seen { is_running, ..running(new_container("1", "app", attempt, 2), pinning) }
}

/// What the runtime and the kernel say of a container that runs there.
fn running(container: NewContainer, pinning: Pinning) -> Seen {
    Seen {
        pod_id: container.pod.id.clone(),
        name: container.name.clone(),
        attempt: container.attempt,
        is_alive: true,
        is_running: true,
        details: Some(Box::new(SeenDetails { container, pinning })),
    }
}

/// The runtime goes on listing it as created, and it had CPUs of its own again at the next sync, and after a restart.
#[test]
fn what_was_ended_before_it_was_started_is_not_adopted_again() {
    let mut before = state("core:4");
    let id = make(&mut before, 0, new_container("1", "app", 0, 2));
    let mut lines: Vec<String> = Vec::new();
    let mut note = |step: &Step| {
        lines.extend(step.records.iter().map(|it| serde_json::to_string(it).unwrap()));
    };
    note(&before.step(Event::Ended(id.clone()), Timestamp::UNIX_EPOCH));
    let sync = |state: &mut NodeState, is_there: bool, is_running: bool| {
        state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
        let containers = is_there.then(|| (id.clone(), seen(0, is_running))).into_iter().collect();
        let view = RuntimeView { basis: state.steps, containers };
        state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
        owned(state)
    };
    let restarted = |lines: &[String]| {
        let mut after = state("core:4");
        after.restore(replay(lines), Timestamp::UNIX_EPOCH);
        after
    };
    let compacted = |state: &NodeState| -> Vec<String> {
        let records = state.snapshot_records();
        records.iter().map(|record| serde_json::to_string(record).unwrap()).collect()
    };
    for mut state in [before.clone(), restarted(&lines), restarted(&compacted(&before))] {
        assert_eq!([sync(&mut state, true, false), sync(&mut state, true, false)], ["", ""]);
        // It was started all the same.
        assert_eq!(sync(&mut state.clone(), true, true), "1-2");
        sync(&mut state, false, false);
        assert!(state.unstarted.is_empty());
    }
}

/// Kubelet has given up the creation, found what it had made, and stopped that before the runtime was asked. It kept its CPUs until it was removed.
#[test]
fn what_was_ended_before_its_creation_was_known_is_not_adopted() {
    let mut before = state("core:4");
    let mut lines: Vec<String> = Vec::new();
    for event in [
        Event::TryAdmit(Ticket(0), Box::new(new_container("1", "app", 0, 2))),
        Event::CreateEnded(Ticket(0), CreateOutcome::Unknown),
        Event::Ended("id0".to_owned()),
        Event::Ended("id0".to_owned()),
    ] {
        let step = before.step(event, Timestamp::UNIX_EPOCH);
        lines.extend(step.records.iter().map(|it| serde_json::to_string(it).unwrap()));
    }
    assert_eq!(owned(&before), "1-2");
    assert_eq!(lines.iter().filter(|line| line.contains("unstarted")).count(), 1, "{lines:?}");
    let mut restarted = state("core:4");
    restarted.restore(replay(&lines), Timestamp::UNIX_EPOCH);
    for mut state in [before, restarted] {
        for (is_running, expected) in [(false, ""), (false, ""), (true, "1-2")] {
            state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
            let containers = [("id0".to_owned(), seen(0, is_running))].into();
            let view = RuntimeView { basis: state.steps, containers };
            state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
            assert_eq!(owned(&state), expected);
        }
    }
}

#[test]
fn a_failed_write_is_forgiven_when_the_kernel_was_asked() {
    let mut state = state("core:4");
    let id = make(&mut state, 0, new_container("1", "app", 0, 2));
    let failed = FailedWrite { container: id.clone(), is_gone: false, withheld: None };
    state.step(Event::WritesFailed(vec![failed]), Timestamp::UNIX_EPOCH);
    state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
    let view = RuntimeView { basis: state.steps, containers: [(id.clone(), seen(0, true))].into() };
    let step = state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
    assert_eq!(step.forgiven, [id]);
}

/// It was planned as for a container that may run anywhere, which only loses CPUs and waits for nothing.
#[test]
fn a_withheld_write_is_planned_again_as_one_that_gives_cpus() {
    let mut state = state("core:4");
    let sharer = make(&mut state, 0, new_container("1", "sharer", 0, 0));
    let owner = make(&mut state, 1, new_container("2", "owner", 0, 2));
    let other = make(&mut state, 2, new_container("3", "other", 0, 0));
    let step = state.step(Event::Ended(owner), Timestamp::UNIX_EPOCH);
    let withheld = step.plan.writes.iter().find(|it| it.container == sharer).unwrap();
    assert_eq!(withheld.pass, Pass::Grow);
    let failed = |withheld: Option<&Write>| {
        let withheld = withheld.cloned().map(Box::new);
        vec![FailedWrite { container: sharer.clone(), is_gone: false, withheld }]
    };
    let before = state.clone();
    let planned = |mut state: NodeState, failed: Vec<Vec<FailedWrite>>| {
        for failed in failed {
            state.step(Event::WritesFailed(failed), Timestamp::UNIX_EPOCH);
        }
        let step = state.step(Event::Started(other.clone()), Timestamp::UNIX_EPOCH);
        let writes = step.plan.writes.iter().filter(|it| it.container == sharer);
        writes.map(|it| (it.pass, it.old.clone())).collect::<Vec<_>>()
    };
    let grow = vec![(Pass::Grow, withheld.old.clone())];
    assert_eq!(planned(before.clone(), vec![failed(Some(withheld))]), grow);
    let unknown = vec![(Pass::Shrink, None)];
    assert_eq!(planned(before.clone(), vec![failed(None)]), unknown);
    // The first of its writes has failed, so it is not known where it is.
    assert_eq!(planned(before, vec![failed(None), failed(Some(withheld))]), unknown);
}

/// What `status` says that a container has instead of what it was told.
fn held(state: &NodeState, name: &str) -> Option<String> {
    let status = state.clone().status();
    let found = status.containers.into_iter().find(|it| it.container == name)?;
    found.held.map(|held| held.cpus)
}

#[test]
fn a_container_whose_update_the_runtime_refuses_is_shown_where_it_is() {
    let mut state = state("core:4");
    let sharer = make(&mut state, 0, new_container("1", "sharer", 0, 0));
    assert_eq!(held(&state, "sharer"), None);
    make(&mut state, 1, new_container("2", "owner", 0, 2));
    // As long as nothing is known to have failed, what was told holds.
    assert_eq!(held(&state, "sharer"), None);
    let failed = || vec![FailedWrite { container: sharer.clone(), is_gone: false, withheld: None }];
    state.step(Event::WritesFailed(failed()), Timestamp::UNIX_EPOCH);
    let before = held(&state, "sharer").unwrap();
    // It stays there however often it is tried again, and wherever it is told to be meanwhile.
    make(&mut state, 2, new_container("3", "second", 0, 1));
    assert_eq!(held(&state, "sharer").as_ref(), Some(&before));
    state.step(Event::WritesFailed(failed()), Timestamp::UNIX_EPOCH);
    assert_eq!(held(&state, "sharer"), Some(before));
    state.step(Event::WritesLanded(vec![sharer]), Timestamp::UNIX_EPOCH);
    assert_eq!(held(&state, "sharer"), None);
}

#[test]
fn a_container_is_counted_as_elsewhere_only_until_the_cause_is_gone() {
    let told = |state: &NodeState, id: &str| state.pinning(state.by_runtime_id[id]).unwrap();
    for is_owner_gone in [true, false] {
        let mut state = state("core:4");
        let sharer = make(&mut state, 0, new_container("1", "sharer", 0, 0));
        let owner = make(&mut state, 1, new_container("2", "owner", 0, 2));
        let failed =
            vec![FailedWrite { container: sharer.clone(), is_gone: false, withheld: None }];
        state.step(Event::WritesFailed(failed), Timestamp::UNIX_EPOCH);
        assert_eq!(state.failed_updates(), 1);
        let (mut seen, of_owner) = (seen(0, true), (owner.clone(), seen(1, true)));
        let pinning = match is_owner_gone {
            // It may run where it is, so nothing is written any more.
            true => {
                state.step(Event::Ended(owner), Timestamp::UNIX_EPOCH);
                told(&state, &sharer)
            }
            // An operator has put it right.
            false => told(&state, &sharer),
        };
        assert_eq!(state.failed_updates(), usize::from(!is_owner_gone));
        seen.details =
            Some(Box::new(SeenDetails { container: new_container("1", "sharer", 0, 0), pinning }));
        state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
        let mut containers: BTreeMap<String, Seen> = [(sharer, seen)].into();
        containers.extend((!is_owner_gone).then_some(of_owner));
        let view = RuntimeView { basis: state.steps, containers };
        state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
        assert_eq!(state.failed_updates(), 0);
    }
}

#[test]
fn what_a_neighbour_had_taken_is_no_longer_told_once_it_is_given_back() {
    let mut state = state("core:4");
    make(&mut state, 0, new_container("1", "sharer", 0, 0));
    let outcome = |state: &NodeState| {
        let found = state.explain("sharer");
        found.into_iter().next().unwrap().decision.outcome
    };
    let first = outcome(&state);
    let owner = make(&mut state, 1, new_container("2", "owner", 0, 2));
    let squeezed = outcome(&state);
    assert!(squeezed.starts_with(&format!("{first}; squeezed from CPUs 0-3 to ")), "{squeezed}");
    state.step(Event::Ended(owner), Timestamp::UNIX_EPOCH);
    assert_eq!(outcome(&state), first);
}

#[test]
fn a_refused_resize_is_not_the_last_word_and_leaves_everything() {
    let mut state = state("core:4");
    let id = make(&mut state, 0, new_container("1", "app", 0, 2));
    let before = state.ledger().holdings().clone();
    let huge = Resources { cpu_shares: 9 * 1024, ..Resources::default() };
    let first = state.step(Event::TryResize(id.clone(), huge), Timestamp::UNIX_EPOCH);
    assert!(
        matches!(first.answer, Answer::Admission(Admission::Refuse(_))) && first.notes.is_empty()
    );
    let last = state.step(Event::Resize(id, huge), Timestamp::UNIX_EPOCH);
    assert!(
        matches!(last.answer, Answer::Admission(Admission::Refuse(_))) && !last.notes.is_empty()
    );
    assert_eq!(*state.ledger().holdings(), before);
}

#[test]
fn a_journal_record_with_a_set_that_is_no_list_costs_the_place_and_not_the_container() {
    let mut before = state("core:4");
    make(&mut before, 0, new_container("1", "app", 0, 2));
    let lines: Vec<String> = before
        .snapshot_records()
        .iter()
        .map(|record| serde_json::to_string(record).unwrap().replace("\"1-2\"", "\"0-x\""))
        .collect();
    let mut after = state("core:4");
    let step = after.restore(replay(&lines), Timestamp::UNIX_EPOCH);
    let [Note::Failure { kind: "not_restored", message }] = &step.notes[..] else {
        panic!("{step:?}")
    };
    assert!(message.contains("`0-x` is not a number or a range"), "{message}");
    assert_eq!((after.containers.len(), owned(&after).as_str()), (1, ""));
}
