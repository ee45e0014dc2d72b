//! The rest of a container's pod. In: the container, the others of the node. Out: which of them are of its pod, and how much of the pod is still to
//! come.
//!
//! CRI brings containers one by one. But kubelet writes into the sandbox configuration, which comes along with every container, what the pod
//! needs as a whole (`calculateSandboxResources`, since 1.23): the sum of its containers, or what its init containers need where that is
//! more. What of that no container holds yet is still to come; nothing of the CPUs is where a silent container ([`crate::silent`]) counts the
//! rest of them already.

use bayplan_allocator::{ContainerId, PodWishes};
use bayplan_types::{Bytes, MilliCpu, QosClass};

use crate::container::NewContainer;
use crate::resources::{Resources, positive};

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
    // Silent containers count together all that the others leave of the pod's CPUs, whatever their own shares say.
    let mut is_shared_out = container.is_silent;
    for (id, other) in others.filter(|(_, other)| other.pod.is(pod)) {
        wishes.mates.push(id);
        is_shared_out |= other.is_silent;
        let theirs = amount(other.resources, pod.qos);
        held.cpu += theirs.cpu;
        held.memory += theirs.memory;
    }
    wishes.rest = match is_shared_out {
        true => MilliCpu::ZERO,
        false => whole.cpu.saturating_sub(held.cpu),
    };
    wishes.rest_memory = whole.memory.saturating_sub(held.memory);
    // Of the others of one that is made again, some may have ended for good.
    wishes.is_rest_sure = container.attempt == 0;
    wishes
}

/// Whether the others and the new container hold more than the pod needs: then one has ended without an event.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Pod;

    /// Containers as `NAME CPUS` of a pod that needs so many CPUs, and GiB as many; the last one is the new one.
    fn check(qos: QosClass, whole: i64, containers: &[(&str, i64)], expected: &str) {
        let resources = |cpus: i64| Resources {
            cpu_shares: cpus * 1024,
            memory_limit: cpus << 30,
            ..Resources::default()
        };
        let pod = Pod {
            id: "a".to_owned(),
            qos: Some(qos),
            resources: resources(whole),
            ..Pod::default()
        };
        let container = |(name, cpus): &(&str, i64)| {
            let (name, pod) = match name.strip_prefix("other/") {
                Some(name) => (name, Pod { id: "b".to_owned(), ..pod.clone() }),
                None => (*name, pod.clone()),
            };
            let resources = resources(*cpus);
            NewContainer { pod, name: name.to_owned(), resources, ..NewContainer::default() }
        };
        let containers: Vec<NewContainer> = containers.iter().map(container).collect();
        let (newcomer, others) = containers.split_last().unwrap();
        let ids = others.iter().zip(0..).map(|(other, id)| (ContainerId(id), other));
        let wishes = pod_wishes(newcomer, ids, false);
        let has_ended = has_ended_mates(newcomer, others.iter().filter(|it| it.pod.is(&pod)));
        let PodWishes { mates, rest, rest_memory, .. } = wishes;
        let mates: Vec<u64> = mates.iter().map(|id| id.0).collect();
        assert_eq!(
            format!("mates {mates:?}, rest {rest} and {rest_memory}, has ended {has_ended}"),
            expected
        );
    }

    #[test]
    fn the_rest_is_not_counted_once_more_beside_a_silent_container() {
        let resources = |shares: i64| Resources { cpu_shares: shares, ..Resources::default() };
        let pod = Pod {
            id: "a".to_owned(),
            qos: Some(QosClass::Guaranteed),
            resources: resources(4096),
            ..Pod::default()
        };
        // Open-ended: its own request is half a CPU, its limit the pod's.
        let silent = NewContainer {
            pod: pod.clone(),
            name: "silent".to_owned(),
            resources: Resources { cpu_quota: 400_000, ..resources(512) },
            is_silent: true,
            ..NewContainer::default()
        };
        let own = NewContainer { pod, resources: resources(1024), ..NewContainer::default() };
        for (newcomer, others, expected) in [
            (&silent, &[][..], 0),
            (&silent, &[&own], 0),
            (&own, &[&silent], 0),
            (&own, &[], 3000),
            (&own, &[&own], 2000),
        ] {
            let ids = others.iter().zip(0..).map(|(other, id)| (ContainerId(id), *other));
            let rest = pod_wishes(newcomer, ids, false).rest;
            assert_eq!(rest, MilliCpu(expected), "{} beside {}", newcomer.name, others.len());
        }
    }

    #[test]
    fn the_rest_is_what_the_pod_needs_and_no_container_holds() {
        use QosClass::{Burstable, Guaranteed};
        for (qos, whole, containers, expected) in [
            (Guaranteed, 6, &[("a", 6)][..], "mates [], rest 0 and 0 B, has ended false"),
            (Guaranteed, 6, &[("a", 2)], "mates [], rest 4 and 4 GiB, has ended false"),
            (
                Guaranteed,
                6,
                &[("a", 2), ("other/a", 1), ("b", 1)],
                "mates [0], rest 3 and 3 GiB, has ended false",
            ),
            (Guaranteed, 6, &[("a", 2), ("b", 4)], "mates [0], rest 0 and 0 B, has ended false"),
            (Burstable, 6, &[("a", 2), ("b", 1)], "mates [0], rest 3 and 0 B, has ended false"),
            // An init container has ended.
            (Guaranteed, 6, &[("a", 1), ("b", 6)], "mates [0], rest 0 and 0 B, has ended true"),
            // Kubelet does not say.
            (Guaranteed, 0, &[("a", 2), ("b", 4)], "mates [], rest 0 and 0 B, has ended false"),
        ] {
            check(qos, whole, containers, expected);
        }
    }
}
