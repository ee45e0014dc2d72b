//! What a container asks for on this node, with all others as its neighbours.

use bayplan_allocator::{ContainerId, Request};
use bayplan_types::{CpuSet, NodeId};
use bayplan_workload::annotations::{Warning, tell_effects_in};
use bayplan_workload::silent::Member;
use bayplan_workload::{Hardware, NewContainer, derive_request};

use super::NodeState;
use crate::groups::has_no_affinity;

impl NodeState {
    /// What a container asks for, also by annotation, and with all others as its neighbours.
    pub(crate) fn request(&self, id: ContainerId, spec: &NewContainer) -> (Request, Vec<Warning>) {
        self.request_beside(id, spec, None)
    }

    /// The same beside a new container that is not placed yet.
    pub(super) fn request_beside(
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
        let left_alone = self.groups.preserve_for(id, self.rules.preserve);
        request.wishes.preserve.cpus |= left_alone.cpus;
        request.wishes.preserve.memory |= left_alone.memory;
        if let Some(group) = self.groups.name_for(id) {
            let has_no_affinity = has_no_affinity(spec, &self.rules);
            request.wishes.preserve.cpus |= *has_no_affinity.as_ref().unwrap_or(&false);
            tell_effects_in(&group, spec, &self.rules, &mut warnings);
            warnings.extend(has_no_affinity.err());
        }
        request.wishes.place.clock = self.clock_wish(id, spec, &request);
        (request, warnings)
    }
}
