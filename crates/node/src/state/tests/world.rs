//! The model of a node: its state, its journal, and a runtime that is a few maps. It carries plans out, or not, forgets answers, loses containers and makes others up.

use super::*;

/// A container of the runtime.
#[derive(Clone, Debug)]
pub(super) struct Real {
    pub(super) spec: NewContainer,
    pub(super) pinning: Pinning,
    /// The runtime has read where it is to run, and does not notice updates until it runs.
    pub(super) is_starting: bool,
    pub(super) is_running: bool,
    pub(super) is_alive: bool,
}

/// A creation on its way.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) spec: NewContainer,
    pub(super) told: Pinning,
    /// What the runtime has made of it.
    pub(super) made: Option<String>,
    /// The pod is gone or the name is taken.
    pub(super) is_impossible: bool,
    /// The daemon no longer waits for it, but the runtime may still do it.
    pub(super) is_given_up: bool,
}

pub(super) struct World {
    pub(super) machine: Machine,
    /// As it was before the last change of group types; `None` after another change and after a restart.
    pub(super) earlier: Option<Machine>,
    pub(super) online: CpuSet,
    pub(super) state: NodeState,
    pub(super) journal: Vec<String>,
    /// What the journal has of each container, by the ledger's id.
    pub(super) journaled: BTreeMap<u64, AllocationForm>,
    /// What it has of each group.
    pub(super) journaled_groups: BTreeMap<u64, String>,
    /// Pods are in namespaces of which groups may be.
    pub(super) is_grouped: bool,
    pub(super) real: BTreeMap<String, Real>,
    pub(super) pending: Vec<Pending>,
    /// Kubelet's updates on their way, with what bayplan wrote into them, and what the container had before.
    pub(super) updates: Vec<(String, Pinning, Resources)>,
    pub(super) made: usize,
    pub(super) tickets: u64,
    /// Bits that say which of the next plan's writes fail.
    pub(super) failing: u8,
    /// Failures that the state has not heard of.
    pub(super) failures: Vec<FailedWrite>,
    /// Containers with a last write that failed.
    pub(super) wrong: BTreeSet<String>,
    /// Everything that was said.
    pub(super) notes: Vec<Note>,
    /// How far the state was when it was asked last, which containers it knows, and which it has.
    pub(super) basis: Option<(u64, BTreeSet<String>, BTreeSet<String>)>,
    pub(super) view: Option<RuntimeView>,
    pub(super) now: Timestamp,
    /// Pods that owned CPUs when draining began.
    pub(super) owners: BTreeSet<String>,
}

impl World {
    pub(super) fn new(machine: Machine) -> World {
        let mut world = World {
            state: fresh(&machine),
            online: machine.topology().unwrap().cpus().clone(),
            machine,
            earlier: None,
            journal: Vec::new(),
            journaled: BTreeMap::new(),
            journaled_groups: BTreeMap::new(),
            is_grouped: false,
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
        };
        world.note_records(&world.state.snapshot_records());
        world
    }

    pub(super) fn step(&mut self, event: Event) -> Answer {
        let step = self.state.step(event, self.now);
        self.carry_out(step)
    }

    pub(super) fn carry_out(&mut self, step: Step) -> Answer {
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

    pub(super) fn note_records(&mut self, records: &[Record]) {
        self.journal.extend(records.iter().map(|it| serde_json::to_string(it).unwrap()));
        for record in records {
            match record {
                Record::Placed(placed) => {
                    self.journaled.insert(placed.id, placed.allocation.clone());
                }
                Record::Released { id, .. } => {
                    self.journaled.remove(id);
                }
                Record::Group(form) => {
                    self.journaled_groups.insert(form.id, to_line(record));
                }
                Record::GroupEnded { id } => {
                    self.journaled_groups.remove(id);
                }
                _ => {}
            }
        }
    }

    pub(super) fn remove(&mut self, which: usize) {
        if let Some(id) = self.any_real(which) {
            self.real.remove(&id);
            self.wrong.remove(&id);
            self.step(Event::Ended(id));
        }
    }

    pub(super) fn play(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Admit { pod, name, attempt, milli, gib } => {
                self.admit(self.spec(pod, name, attempt, milli, gib));
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
                self.make_real(self.spec(pod, name, 7, milli, 0), pinning);
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
                let Machine { reserved, types, .. } = self.machine.clone();
                let Machine { compacts, narrows, shares, has_system, policy, .. } = self.machine;
                let machine = Machine::new(&line, &reserved);
                let machine = Machine { types, policy, ..machine };
                self.change(Machine { compacts, narrows, shares, has_system, ..machine })?;
            }
            Op::Configure { reserved, has_system, has_one_pool } => {
                self.configure(reserved, has_system, has_one_pool)?;
            }
            Op::Regroup(types) => {
                self.configure_as(Machine { types, ..self.machine.clone() })?;
            }
            Op::TakeBack => self.take_back()?,
            Op::Used(milli) => self.use_cpus(milli),
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
    pub(super) fn turn(&mut self, which: usize, leave: CpuSet) {
        let ids: Vec<ContainerId> = self.state.containers.ids().copied().collect();
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
    pub(super) fn owners(&self) -> BTreeSet<String> {
        let held = self.state.ledger.allocations().filter(|(_, held)| !held.exclusive.is_empty());
        let containers = held.filter_map(|(id, _)| self.state.containers.get(&id));
        containers.map(|container| container.spec.pod.name.clone()).collect()
    }

    /// Alive or killed before anything of it was in the journal, the daemon comes to the same places.
    pub(super) fn change(&mut self, machine: Machine) -> Result<(), TestCaseError> {
        let Some(topology) = machine.topology() else { return Ok(()) };
        let changed = machine.changed().unwrap();
        self.earlier = None;
        let mut killed = fresh(&machine);
        // Sizes that follow use are measured anew by the first look after a start.
        killed.groups.followed.clone_from(&self.state.groups.followed);
        killed.restore(replay(&self.journal), self.now);
        self.machine = machine;
        self.online = topology.cpus().clone();
        let fingerprint = changed.fingerprint.clone();
        self.step(Event::MachineChanged(Box::new(changed)));
        // Groups that are always there are made with the first event.
        killed.step(Event::Ping, self.now);
        match self.is_grouped {
            // New groups may have other ids.
            true => prop_assert_eq!(any_groups::places(&killed), any_groups::places(&self.state)),
            false => prop_assert_eq!(killed.ledger.holdings(), self.state.ledger.holdings()),
        }
        prop_assert_eq!(&self.state.fingerprint, &fingerprint);
        Ok(())
    }

    pub(super) fn admit(&mut self, spec: NewContainer) {
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
                !self.state.containers.contains(id) || owned.get(id) == Some(cpus)
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
    pub(super) fn owned(&self) -> BTreeMap<ContainerId, CpuSet> {
        let held = self.state.ledger.allocations();
        let held = held.filter(|(_, it)| it.shared.is_none());
        held.map(|(id, it)| (id, it.exclusive.clone())).collect()
    }

    pub(super) fn make_real(&mut self, spec: NewContainer, pinning: Pinning) -> Option<String> {
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

    pub(super) fn make(&mut self, which: usize) {
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

    pub(super) fn create_ends(&mut self, which: usize, is_answered: bool) {
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

    pub(super) fn any_real(&self, which: usize) -> Option<String> {
        let ids: Vec<&String> = self.real.keys().collect();
        pick(&ids, which).map(|id| (*id).clone())
    }

    /// Kubelet starts only what it was told of, which takes its time: the second call ends what the first has begun.
    pub(super) fn start(&mut self, which: usize) {
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

    pub(super) fn vanish(&mut self, which: usize, is_removed: bool) {
        let Some(id) = self.any_real(which) else { return };
        self.wrong.remove(&id);
        if is_removed {
            self.real.remove(&id);
        } else if let Some(real) = self.real.get_mut(&id) {
            (real.is_alive, real.is_running) = (false, false);
        }
    }

    pub(super) fn end_pod(&mut self, pod: &str) {
        self.real.retain(|_, real| real.spec.pod.id != pod);
        self.wrong.retain(|id| self.real.contains_key(id));
        for pending in self.pending.iter_mut().filter(|pending| pending.spec.pod.id == pod) {
            pending.is_impossible = pending.made.is_none();
        }
        self.pending.retain(|pending| !(pending.is_given_up && pending.is_impossible));
        self.step(Event::PodEnded(pod.to_owned()));
    }

    pub(super) fn resize(&mut self, which: usize, milli: i64) {
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
    pub(super) fn resize_ends(&mut self, which: usize, outcome: ResizeOutcome) {
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

    pub(super) fn report_failures(&mut self) {
        let failures = std::mem::take(&mut self.failures);
        if !failures.is_empty() {
            self.step(Event::WritesFailed(failures));
        }
    }

    pub(super) fn start_sync(&mut self) {
        let Answer::SyncBasis { basis, known, placed } = self.step(Event::SyncStarted) else {
            panic!("no basis")
        };
        self.view = None;
        self.basis = Some((basis, known, placed));
    }

    pub(super) fn take_view(&mut self) {
        let Some((basis, known, placed)) = self.basis.take() else { return };
        let seen = |(id, real): (&String, &Real)| {
            let mut container = real.spec.clone();
            if placed.contains(id) {
                container.pod = Pod::default();
            }
            let details = SeenDetails { container, pinning: real.pinning.clone() };
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
    pub(super) fn sync(&mut self) -> Result<(), TestCaseError> {
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
        for id in self.state.containers.by_runtime_id().keys() {
            prop_assert!(live.contains(id), "{} is held and does not live", id);
        }
        for (id, real) in self.real.iter().filter(|(_, real)| real.is_alive) {
            let spec = &real.spec;
            let is_being_made = self.state.containers.values().any(|container| {
                container.phase == Phase::Creating
                    && container.is(&spec.pod.id, &spec.name, spec.attempt)
            });
            let is_held = self.state.containers.by_runtime_id().contains_key(id);
            let is_idle = self.is_superseded(real) || self.state.is_restored();
            prop_assert!(is_held || is_being_made || is_idle, "{} lives and is not held", id);
        }
        Ok(())
    }

    /// Never started, and there is a later attempt of it.
    pub(super) fn is_superseded(&self, real: &Real) -> bool {
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
    pub(super) fn restart(&mut self) -> Result<(), TestCaseError> {
        let mut again = fresh(&self.machine);
        let step = again.restore(replay(&self.journal), self.now);
        let is_due = |note: &Note| matches!(note, Note::Failure { kind: "not_allowed", .. });
        let strange = step.notes.iter().find(|it| self.machine.permits || !is_due(it));
        prop_assert_eq!(strange, None);
        self.notes.extend(step.notes);
        prop_assert_eq!(again.ledger.holdings(), self.state.ledger.holdings());
        prop_assert_eq!(&again.groups.instances, &self.state.groups.instances);
        prop_assert_eq!(&again.groups.members, &self.state.groups.members);
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

        self.begin_anew(again);
        Ok(())
    }

    /// Goes on with a state that was read from the journal.
    pub(super) fn begin_anew(&mut self, again: NodeState) {
        // What was turned is turned back when the kernel has been asked.
        let is_turned = |id: &ContainerId| self.state.pinning(*id) != again.pinning(*id);
        let turned = self.state.containers.by_runtime_id().iter().filter(|(_, id)| is_turned(id));
        self.wrong.extend(turned.map(|(runtime_id, _)| runtime_id.clone()));
        self.state = again;
        self.earlier = None;
        (self.journal, self.journaled) = (Vec::new(), BTreeMap::new());
        self.journaled_groups.clear();
        self.note_records(&self.state.snapshot_records());
        self.pending.retain(|pending| pending.made.is_none() && !pending.is_impossible);
        self.pending.iter_mut().for_each(|pending| pending.is_given_up = true);
        self.failures.clear();
        let cut_off = self.updates.drain(..).map(|(id, ..)| id);
        self.wrong.extend(cut_off.filter(|id| self.real.contains_key(id)));
        (self.basis, self.view) = (None, None);
    }
}

/// One CPU for those that share and seven to own.
pub(super) fn small() -> World {
    World::new(Machine::new("pack:1 numa:1 core:8 pu:1 mem:8", ""))
}

/// Creates container `name` of `pod` without anything going wrong; its id.
pub(super) fn created(world: &mut World, pod: u8, name: u8, milli: i64) -> String {
    world.admit(spec(pod, name, 0, milli, 0));
    let last = world.pending.len() - 1;
    let Pending { ticket, spec, told, .. } = world.pending.remove(last);
    let id = world.make_real(spec, told).unwrap();
    world.step(Event::CreateEnded(ticket, CreateOutcome::Created { id: id.clone(), pinned: true }));
    world.check().unwrap();
    id
}
