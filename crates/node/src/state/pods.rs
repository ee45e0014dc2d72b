//! What happens to whole pods: a sandbox comes in place of another, ends, or needs something else.

use std::sync::Arc;

use bayplan_allocator::ContainerId;
use bayplan_workload::{Pod, Resources};
use jiff::Timestamp;

use crate::change::Change;
use crate::container::Phase;
use crate::event::{Answer, Step};
use crate::state::NodeState;

impl NodeState {
    /// Kubelet makes a new sandbox for a pod only after the old one has died, and its containers with it.
    pub(super) fn pod_started(&mut self, pod: &Pod, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        let of_old = self.containers.iter().filter(|(_, container)| {
            let old = &container.spec.pod;
            !pod.uid.is_empty() && old.uid == pod.uid && old.id != pod.id
        });
        let ids: Vec<ContainerId> = of_old.map(|(id, _)| *id).collect();
        for id in ids {
            self.release(id, "its sandbox was replaced", now, &mut step);
        }
        step
    }

    pub(super) fn pod_ended(&mut self, pod_id: &str, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        let of_pod = self.containers.iter().filter(|(_, container)| {
            container.spec.pod.id == pod_id && container.phase != Phase::Creating
        });
        let ids: Vec<ContainerId> = of_pod.map(|(id, _)| *id).collect();
        for id in ids {
            self.end(id, "its pod ended", now, &mut step);
        }
        step
    }

    /// Where containers count together what the pod asked for, they do so at once. Else no container moves for it; it counts when one of the pod's containers comes or is resized.
    pub(super) fn pod_resized(&mut self, pod_id: &str, needs: Resources) -> Step {
        let mut step = Step::new(Answer::Done);
        let of_pod = self.containers.iter_mut().filter(|(_, it)| it.spec.pod.id == pod_id);
        let mut changed = Vec::new();
        for (id, container) in of_pod {
            let now_needed = container.spec.pod.resources.updated_by(needs);
            if container.spec.pod.resources != now_needed {
                container.pod_before = Some(container.spec.pod.resources);
                Arc::make_mut(&mut container.spec).pod.resources = now_needed;
                changed.push(*id);
            }
        }
        if let Some(spec) = changed.first().and_then(|id| self.containers.get(id)) {
            let spec = Arc::clone(&spec.spec);
            self.unsettle(&spec);
            if needs.memory_limit > 0 && changed.len() > 1 {
                self.unsettled.insert(spec.pod.owner().pod);
            }
        }
        // The history is told once for the pod.
        for (place, id) in changed.into_iter().enumerate() {
            let change = match place {
                0 => Change::PodResized { id, needs },
                _ => Change::Amended(id),
            };
            self.emit(change, &mut step);
        }
        step
    }
}
