//! Random machines, and the state of a node on one.

use super::*;

/// A machine as one line, its reserved CPUs, and those that are offline or isolated, as far as it has them.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) line: String,
    pub(super) reserved: String,
    pub(super) policy: Policy,
    /// System pods run on them.
    pub(super) has_system: bool,
    pub(super) offline: CpuSet,
    pub(super) isolated: CpuSet,
    pub(super) compacts: bool,
    pub(super) narrows: bool,
    /// A container that cannot have exclusive CPUs shares.
    pub(super) shares: bool,
    /// Types of groups.
    pub(super) types: Arc<[GroupType]>,
    /// Pods may have every wish, and not only harmless ones.
    pub(super) permits: bool,
}

impl Machine {
    pub(super) fn new(line: &str, reserved: &str) -> Machine {
        let (offline, isolated) = (CpuSet::new(), CpuSet::new());
        let (line, reserved) = (line.to_owned(), reserved.to_owned());
        let (compacts, narrows, shares) = (false, false, false);
        let (policy, has_system) = (Policy::default(), true);
        let types = Arc::default();
        Machine {
            line,
            reserved,
            policy,
            has_system,
            offline,
            isolated,
            compacts,
            narrows,
            shares,
            types,
            permits: true,
        }
    }

    /// `None`: every CPU is offline.
    pub(super) fn topology(&self) -> Option<Topology> {
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

    pub(super) fn changed(&self) -> Option<ChangedMachine> {
        Some(ChangedMachine::new(&self.topology()?, self.policy, &self.reserved.parse().unwrap()))
    }
}

pub(super) fn fresh(machine: &Machine) -> NodeState {
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
        .with_groups(Arc::clone(&machine.types))
}

/// CPUs as the bits of a number.
pub(super) fn cpus_of(bits: u64) -> CpuSet {
    (0..64).filter(|cpu| bits & 1 << cpu != 0).map(CpuId).collect()
}

/// Mostly none or few, now and then nearly all, neighbours more often than not.
pub(super) fn any_few_cpus() -> impl Strategy<Value = u64> {
    let block = (0u32..16, 1u32..9).prop_map(|(first, len)| ((1u64 << len) - 1) << first);
    prop_oneof![3 => Just(0), 3 => block, 1 => any::<u64>(), 1 => (0u32..64).prop_map(|cpu| !(1 << cpu))]
}

pub(super) fn any_machine() -> impl Strategy<Value = Machine> {
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
