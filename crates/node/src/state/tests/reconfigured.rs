//! Another configuration while containers come and go.

use bayplan_allocator::check_ledger;

use super::*;
use crate::reconfigure::{ChangedConfig, check_reserved};

impl Machine {
    pub(super) fn rules(&self) -> RequestRules {
        let namespaces = if self.has_system { vec!["kube-system".to_owned()] } else { Vec::new() };
        RequestRules {
            reserved_namespaces: namespaces,
            permissions: vec![Rule::everything()],
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
        let changed = Box::new(changed);
        let held = self.state.ledger.holdings().clone();
        let would = self.step(Event::PreviewConfig(changed.clone()));
        prop_assert_eq!(self.state.ledger.holdings(), &held);
        let did = self.step(Event::ConfigChanged(changed.clone()));
        let (Answer::Shifts(would), Answer::Shifts(did)) = (would, did) else {
            panic!("no answer");
        };
        prop_assert_eq!(would, did);
        self.machine = machine;
        let mut copy = self.state.clone();
        let again = copy.step(Event::ConfigChanged(changed), Timestamp::UNIX_EPOCH);
        prop_assert!(again.records.is_empty() && again.plan.is_empty());
        prop_assert!(matches!(again.answer, Answer::Shifts(shifts) if shifts.is_empty()));
        prop_assert_eq!(copy.ledger.holdings(), self.state.ledger.holdings());
        prop_assert_eq!(check_ledger(&self.state.ledger), Vec::<String>::new());
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
