//! Another configuration while containers come and go.

use bayplan_allocator::check_ledger;

use super::*;
use crate::reconfigure::{ChangedConfig, check_reserved};

impl Machine {
    pub(super) fn rules(&self) -> RequestRules {
        let namespaces = if self.has_system { vec!["kube-system".to_owned()] } else { Vec::new() };
        RequestRules {
            reserved_namespaces: namespaces,
            permissions: self.permits.then(Rule::everything).into_iter().collect(),
            has_groups: !self.types.is_empty(),
            ..RequestRules::default()
        }
    }

    /// `None`: the reserved CPUs do not fit the machine.
    fn config(&self, topology: &Topology) -> Option<ChangedConfig> {
        let reserved = self.reserved.parse().unwrap();
        check_reserved(topology, &reserved).ok()?;
        Some(ChangedConfig {
            rules: self.rules(),
            compaction: CompactionConfig { enabled: self.compacts, ..CompactionConfig::default() },
            narrows_memory: self.narrows,
            on_no_capacity: match self.shares {
                true => OnNoCapacity::Share,
                false => OnNoCapacity::Refuse,
            },
            // A creation in doubt keeps its place until the next sync and no longer.
            groups: Arc::clone(&self.types),
            doubt_grace: SignedDuration::ZERO,
            text: format!("{} {} {:?}", self.reserved, self.has_system, self.policy),
            machine: ChangedMachine::new(topology, self.policy, &reserved),
        })
    }
}

impl World {
    /// As far as the machine has these CPUs. The containers that move are those that a preview has named, and the same once more moves none.
    pub(super) fn configure(
        &mut self,
        reserved: u64,
        has_system: bool,
        has_one_pool: bool,
    ) -> Result<(), TestCaseError> {
        let reserved = cpus_of(reserved).intersection(&self.online).to_string();
        let policy = if has_one_pool { Policy::OneSharedPool } else { Policy::TopologyAware };
        self.configure_as(Machine { reserved, has_system, policy, ..self.machine.clone() })
    }

    pub(super) fn configure_as(&mut self, machine: Machine) -> Result<(), TestCaseError> {
        let Some(topology) = machine.topology() else { return Ok(()) };
        let Some(changed) = machine.config(&topology) else { return Ok(()) };
        let (changed, before) = (Box::new(changed), self.state.clone());
        let would = self.step(Event::PreviewConfig(changed.clone()));
        prop_assert_eq!(self.state.ledger.holdings(), before.ledger.holdings());
        let did = self.step(Event::ConfigChanged(changed.clone()));
        match (would, did) {
            (Answer::Shifts(would), Answer::Shifts(did)) => prop_assert_eq!(would, did),
            (Answer::NotPossible(would), Answer::NotPossible(did)) => {
                prop_assert_eq!(would, did);
                prop_assert_eq!(self.state.ledger.holdings(), before.ledger.holdings());
                prop_assert_eq!(&self.state.groups.types, &before.groups.types);
                return self.start_under(machine);
            }
            other => panic!("{other:?}"),
        }
        self.earlier = None;
        if machine.types != self.machine.types {
            self.check_sizes(&before)?;
            self.check_taken_back(&before, &topology)?;
            self.earlier = Some(self.machine.clone());
        }
        self.machine = machine;
        let mut copy = self.state.clone();
        let again = copy.step(Event::ConfigChanged(changed), Timestamp::UNIX_EPOCH);
        prop_assert!(again.records.is_empty() && again.plan.is_empty());
        prop_assert!(matches!(again.answer, Answer::Shifts(shifts) if shifts.is_empty()));
        prop_assert_eq!(copy.ledger.holdings(), self.state.ledger.holdings());
        prop_assert_eq!(check_ledger(&self.state.ledger), Vec::<String>::new());
        Ok(())
    }

    /// A change of types that was made leaves no group smaller than its members request that was large enough before.
    fn check_sizes(&self, before: &NodeState) -> Result<(), TestCaseError> {
        if !self.state.is_placing() || self.state.known.is_partial() {
            return Ok(());
        }
        let lacks = |state: &NodeState, id: ContainerId| {
            let least = state.groups.requested_cpus(id);
            least.is_some_and(|least| state.ledger.group_cpus(id).len() < least)
        };
        for id in self.state.groups.instances.keys() {
            let was_so = before.groups.short.contains(id) || lacks(before, *id);
            prop_assert!(was_so || !lacks(&self.state, *id), "{}", self.state.group_name(*id));
        }
        Ok(())
    }

    /// However much has happened since.
    pub(super) fn take_back(&mut self) -> Result<(), TestCaseError> {
        let Some(machine) = self.earlier.take() else { return Ok(()) };
        let topology = machine.topology().unwrap();
        let config = Box::new(machine.config(&topology).unwrap());
        self.machine = machine;
        // What had exclusive CPUs before the change has them again, also on a node that is draining since.
        let places = self.state.earlier.iter().flat_map(|it| &it.places);
        let owned = places.filter(|(_, was)| !was.form.taken().is_empty());
        let had = owned.filter_map(|(id, _)| self.state.containers.get(id));
        self.owners.extend(had.map(|it| it.spec.pod.name.clone()));
        self.step(Event::ConfigTakenBack(config, "why".to_owned()));
        prop_assert_eq!(&self.state.groups.types, &self.machine.types);
        prop_assert_eq!(check_ledger(&self.state.ledger), Vec::<String>::new());
        Ok(())
    }

    /// On a copy: undone at once, a change leaves everything as it was `before`, and the journal has it so. A group without members that another one has made superfluous may have been
    /// left then, and ends with the next look at all groups.
    fn check_taken_back(
        &self,
        before: &NodeState,
        topology: &Topology,
    ) -> Result<(), TestCaseError> {
        let mut before = before.clone();
        before.groups.unsettled.extend(before.groups.instances.keys());
        before.step(Event::Ping, self.now);
        let earlier = Box::new(self.machine.config(topology).unwrap());
        let mut copy = self.state.clone();
        let step = copy.step(Event::ConfigTakenBack(earlier, "why".to_owned()), self.now);
        prop_assert_eq!(check_ledger(&copy.ledger), Vec::<String>::new());
        prop_assert_eq!(copy.ledger.holdings(), before.ledger.holdings());
        prop_assert_eq!(&copy.groups.instances, &before.groups.instances);
        prop_assert_eq!(&copy.groups.members, &before.groups.members);
        let mut journal = self.journal.clone();
        journal.extend(step.records.iter().map(to_line));
        let mut again = fresh(&self.machine);
        again.restore(replay(&journal), self.now);
        prop_assert_eq!(again.ledger.holdings(), before.ledger.holdings());
        prop_assert_eq!(&again.groups.instances, &before.groups.instances);
        Ok(())
    }

    /// The daemon starts anew with types that it has refused while it ran; no start can refuse them.
    fn start_under(&mut self, machine: Machine) -> Result<(), TestCaseError> {
        self.machine = machine;
        let mut again = fresh(&self.machine);
        again.restore(replay(&self.journal), self.now);
        prop_assert_eq!(check_ledger(&again.ledger), Vec::<String>::new());
        self.begin_anew(again);
        // Groups that are always there are made with the first event.
        self.step(Event::Ping);
        Ok(())
    }
}

/// Issue 34: maps of the past took an amount of reserved CPUs for the lowest ones.
#[test]
fn the_history_tells_which_cpus_are_reserved_from_now_on() {
    let mut state = state("core:4");
    let machine = |line: &str, reserved: &str| {
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        ChangedMachine::new(&topology, Policy::default(), &reserved.parse().unwrap())
    };
    let config = ChangedConfig {
        rules: RequestRules::default(),
        compaction: CompactionConfig::default(),
        narrows_memory: false,
        on_no_capacity: OnNoCapacity::Refuse,
        groups: Arc::default(),
        doubt_grace: SignedDuration::ZERO,
        text: "other".to_owned(),
        machine: machine("core:4", "1-2"),
    };
    let step = state.step(Event::ConfigChanged(Box::new(config)), Timestamp::UNIX_EPOCH);
    let told = step.history.iter().find_map(|it| it.node.as_ref()?.reserved.clone());
    assert_eq!(told.as_deref(), Some("1-2"));
    let changed = Event::MachineChanged(Box::new(machine("core:4 offline:1", "2-3")));
    let step = state.step(changed, Timestamp::UNIX_EPOCH);
    let told = step.history.iter().find_map(|it| it.machine.as_ref()?.reserved.clone());
    assert_eq!(told.as_deref(), Some("2-3"));
}
