//! What the configuration says about requests, and what holds for a container of a pod that says nothing.

use bayplan_allocator::{Demand, Preserve, Wishes};
use bayplan_types::MilliCpu;

use crate::annotations::affinity::{Affinity, Condition};
use crate::annotations::asked::Asked;
use crate::annotations::classes::ClassNames;
use crate::annotations::permissions::Rule;
use crate::annotations::values::matches_glob;
use crate::vectors::WideVectors;

/// What the configuration says about requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// Pods of these namespaces run on the reserved CPUs; `*` and `?` stand for any text and any character.
    pub reserved_namespaces: Vec<String>,
    /// Shared CPUs only, unless an annotation says otherwise.
    pub prefer_shared_cpus: bool,
    /// Each container of a Burstable pod has the QoS class that its own resources make, unless an annotation says otherwise.
    pub has_own_qos: bool,
    /// A container that gets a single CPU of its own prefers an isolated one. For more than one, the kernel does not spread threads over isolated
    /// CPUs.
    pub prefer_isolated_cpus: bool,
    /// Containers of a pod want to be near each other.
    pub colocate_pods: bool,
    /// Containers of a namespace want to be near each other.
    pub colocate_namespaces: bool,
    /// Wishes of a container that says nothing itself.
    pub wishes: Wishes,
    /// What the pods of a namespace may ask for, where that is not as usual; later ones count more.
    pub permissions: Vec<Rule>,
    /// Classes that pods can name.
    pub classes: ClassNames,
    /// How many CPUs may be kept from others.
    pub ceilings: Ceilings,
    /// There are types of groups, so what containers say in CMK's words counts.
    pub has_groups: bool,
    /// Cores of Koordinator's LSE pods of which some threads are not owned are used by others.
    pub lse_uses_siblings: bool,
    /// What a scheduler counts a CPU as.
    pub amplification: Amplification,
    /// Containers for which one of these holds keep the CPUs and memory nodes that the runtime gives them.
    pub preserved: Vec<Condition>,
    /// What is left alone of every container, where no group says otherwise.
    pub preserve: Preserve,
    /// Where containers go that use wide vectors.
    pub wide_vectors: WideVectors,
}

/// What a scheduler counts a CPU as that amplifies the CPUs of a node (Koordinator, `node.koordinator.sh/resource-amplification-ratio`): a container with CPUs of its own has as many as it
/// requests, and counts as more there; what one that shares requests is of the amplified ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amplification {
    /// Of CPU time of the machine; at least 100.
    pub percent: usize,
}

impl Default for Amplification {
    fn default() -> Amplification {
        Amplification { percent: 100 }
    }
}

impl Amplification {
    /// The same in CPU time of the machine.
    pub fn real(self, demand: Demand) -> Demand {
        match demand.shared() {
            Some(shared) if demand.exclusive() == 0 => Demand::new(0, Some(self.divide(shared))),
            _ => demand,
        }
    }

    /// The same of what is still to come of a pod. Where its containers `can_own` CPUs, how whole ones are split is not known, so they count as requested.
    pub(crate) fn real_rest(self, rest: MilliCpu, can_own: bool) -> MilliCpu {
        match can_own && rest.whole_cpus() > 0 {
            true => rest,
            false => self.divide(rest),
        }
    }

    fn divide(self, MilliCpu(amplified): MilliCpu) -> MilliCpu {
        let percent = u64::try_from(self.percent).unwrap_or(u64::MAX).max(100);
        MilliCpu(amplified.saturating_mul(100).div_ceil(percent))
    }
}

/// How many CPUs may be closed to other owners, or idle, beside those that a container owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceilings {
    /// For a pod, in percent of the CPUs that it owns, and one core more.
    pub pod_percent: usize,
    /// For a namespace, in percent of the CPUs that containers can own; one core at least.
    pub namespace_percent: usize,
}

impl Default for Ceilings {
    fn default() -> Ceilings {
        Ceilings { pod_percent: 100, namespace_percent: 25 }
    }
}

impl RequestRules {
    /// Whether pods of this namespace run on the reserved CPUs.
    pub fn is_reserved_namespace(&self, namespace: &str) -> bool {
        self.reserved_namespaces.iter().any(|it| matches_glob(it, namespace))
    }

    /// What holds for a container of a pod that says nothing, but for its affinity ([`RequestRules::affinity`]).
    pub(crate) fn usual(&self) -> Asked {
        Asked {
            prefer_shared_cpus: self.prefer_shared_cpus.then_some(true),
            has_own_qos: self.has_own_qos,
            wishes: self.wishes.clone(),
            ..Asked::default()
        }
    }

    /// Affinity of a container that names none itself.
    pub(crate) fn affinity(&self) -> Vec<Affinity> {
        let of_pods = self.colocate_pods.then(Affinity::of_same_pod);
        let of_namespaces = self.colocate_namespaces.then(Affinity::of_same_namespace);
        of_pods.into_iter().chain(of_namespaces).collect()
    }
}
