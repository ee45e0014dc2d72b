//! The rest of a container's pod. In: the container, the others of the node. Out: who of them is of its pod, and how much of the pod is
//! still to come.
//!
//! CRI brings containers one by one. But kubelet writes into the sandbox configuration, which comes along with every container, what the pod
//! needs as a whole (`calculateSandboxResources`, since 1.23): the sum of its containers, or what its init containers need where that is
//! more. What of that nobody holds yet is still to come.

use bayplan_allocator::{ContainerId, PodWishes};
use bayplan_types::{Bytes, MilliCpu, QosClass};

use crate::translate::{NewContainer, Resources, positive};

/// What a container wishes for its pod; nothing where kubelet does not say what the pod needs. `is_one`: the pod has to lie together.
pub(crate) fn pod_wishes<'a>(
    container: &NewContainer,
    others: impl Iterator<Item = (ContainerId, &'a NewContainer)>,
    is_one: bool,
) -> PodWishes {
    let pod = &container.pod;
    let whole = amount(pod.resources, pod.qos);
    let mut wishes = PodWishes { is_one, ..PodWishes::default() };
    if whole.cpu == MilliCpu::ZERO {
        return wishes;
    }
    let mut held = amount(container.resources, pod.qos);
    for (id, other) in others.filter(|(_, other)| other.pod.is(pod)) {
        wishes.mates.push(id);
        let theirs = amount(other.resources, pod.qos);
        held.cpu += theirs.cpu;
        held.memory += theirs.memory;
    }
    wishes.rest = whole.cpu.saturating_sub(held.cpu);
    wishes.rest_memory = whole.memory.saturating_sub(held.memory);
    // Of the others of one that is made again, some may have ended for good.
    wishes.is_rest_sure = container.attempt == 0;
    wishes
}

/// Whether the others and the newcomer hold more than the pod needs: then somebody has ended, and nobody has told.
pub fn has_ended_mates<'a>(
    newcomer: &NewContainer,
    mates: impl Iterator<Item = &'a NewContainer>,
) -> bool {
    let pod = &newcomer.pod;
    let whole = amount(pod.resources, pod.qos).cpu;
    let held: MilliCpu = mates.map(|mate| amount(mate.resources, pod.qos).cpu).sum();
    whole > MilliCpu::ZERO && held + amount(newcomer.resources, pod.qos).cpu > whole
}

struct Amount {
    cpu: MilliCpu,
    memory: Bytes,
}

/// As for the request of one container: memory is set aside for Guaranteed pods only.
fn amount(resources: Resources, qos: Option<QosClass>) -> Amount {
    let memory = positive(resources.memory_limit).filter(|_| qos == Some(QosClass::Guaranteed));
    Amount { cpu: resources.cpu_request(qos), memory: Bytes(memory.unwrap_or(0)) }
}
