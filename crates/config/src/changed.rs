//! What of a configuration the state of the node needs. In: a configuration, a machine. Out: what `NodeState` takes for one.

use std::sync::Arc;

use bayplan_allocator::policy::PoolsError;
use bayplan_node::ChangedConfig;
use bayplan_node::event::ChangedMachine;
use bayplan_node::reconfigure::check_division;
use bayplan_topology::Topology;
use bayplan_types::CpuSet;

use crate::config::Config;
use crate::settings::Settings;

impl Config {
    /// As far as decisions depend on it, on this machine, on which these CPUs were reserved until now by an amount.
    ///
    /// # Errors
    /// The reserved CPUs do not fit the machine. As at a start, they may be offline.
    pub fn changed(
        &self,
        topology: &Topology,
        reserved: &CpuSet,
    ) -> Result<ChangedConfig, PoolsError> {
        let division = self.division();
        check_division(topology, &division)?;
        Ok(ChangedConfig {
            rules: self.rules(),
            groups: Arc::clone(&self.groups),
            compaction: self.compaction,
            narrows_memory: self.narrows_memory,
            on_no_capacity: self.on_no_capacity,
            doubt_grace: self.doubt_grace(),
            text: self.differences(),
            machine: ChangedMachine::divided(topology, &division.settled(topology, reserved)),
        })
    }

    /// A file that means the same, in one line: only what differs from the defaults.
    pub fn differences(&self) -> String {
        Settings::of(self, &[]).differences().to_string()
    }
}
