//! Kubernetes QoS classes and the classes a CPU can be in.

use std::fmt;

/// The QoS class that Kubernetes gave to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// No requests and no limits.
    BestEffort,
    /// Requests below limits, or only for some containers.
    Burstable,
    /// Requests equal limits for CPU and memory of every container.
    Guaranteed,
}

impl QosClass {
    /// Every class, lowest first.
    pub const ALL: [QosClass; 3] =
        [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];

    /// The name as Kubernetes writes it.
    pub fn name(self) -> &'static str {
        match self {
            QosClass::BestEffort => "BestEffort",
            QosClass::Burstable => "Burstable",
            QosClass::Guaranteed => "Guaranteed",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a CPU is used for. Every CPU is in exactly one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuClass {
    /// Runs one container and nothing else.
    Exclusive,
    /// Taken from the scheduler's load balancing by the kernel (`isolcpus=`).
    Isolated,
    /// Runs every container that has a shared part in a pool holding this CPU.
    Shared,
    /// Kept for system pods.
    Reserved,
}

impl CpuClass {
    /// Every class.
    pub const ALL: [CpuClass; 4] =
        [CpuClass::Exclusive, CpuClass::Isolated, CpuClass::Shared, CpuClass::Reserved];

    /// The name as it stands in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            CpuClass::Exclusive => "exclusive",
            CpuClass::Isolated => "isolated",
            CpuClass::Shared => "shared",
            CpuClass::Reserved => "reserved",
        }
    }
}

impl fmt::Display for CpuClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
