//! How far the CPUs of a container are kept from all others. In: which containers own CPUs, what each was given of what it asks for. Out: a sentence
//! for `explain`.

use std::collections::BTreeMap;

use bayplan_enforcement::{PartitionGiven, PartitionKind, Slot};
use bayplan_host::kernel::Kernel;
use bayplan_types::CpuSet;

/// By the containers' full names.
pub(crate) type Isolations = BTreeMap<String, Isolation>;

/// What one container is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Isolation {
    pub(crate) given: PartitionGiven,
    /// Whether a partition is asked for, by the container or the configuration.
    pub(crate) is_asked: bool,
    /// The file that has to say so.
    pub(crate) slot: Option<Slot>,
}

impl Isolation {
    /// `failure` is why the file does not say what it should.
    pub(crate) fn text(&self, failure: Option<&str>) -> String {
        const OWN: &str =
            "exclusive CPUs, on which nothing else runs but processes outside of all containers";
        match (self.given, failure) {
            (PartitionGiven::Partition(kind), Some(why)) => {
                format!("{OWN}; partition {} cannot be had: {why}", kind.name())
            }
            (PartitionGiven::Partition(PartitionKind::Root), None) => {
                "partition root: nothing else of the node runs on its CPUs".to_owned()
            }
            (PartitionGiven::Partition(PartitionKind::Isolated), None) => {
                "partition isolated: nothing else of the node runs on its CPUs, and its own threads are not moved among them".to_owned()
            }
            (PartitionGiven::Boot, _) if self.is_asked => {
                "its CPUs are isolated since the machine was booted (isolcpus), in place of the partition that is asked for".to_owned()
            }
            (PartitionGiven::Boot, _) => {
                "its CPUs are isolated since the machine was booted (isolcpus)".to_owned()
            }
            (PartitionGiven::Exclusive, _) if self.is_asked => format!(
                "{OWN}; a partition needs cgroup v2, Linux 6.7, and no CPU that is isolated at boot"
            ),
            (PartitionGiven::Exclusive, _) => {
                format!("{OWN}; no partition is asked for (isolation.partition)")
            }
            (PartitionGiven::Forbidden, _) => format!(
                "{OWN}; for a partition the daemon lacks CAP_SYS_ADMIN, and `bayplan plan` says how to give it that"
            ),
            (PartitionGiven::Shared, _) => {
                "none: it shares CPUs, and a partition needs a Guaranteed pod and whole CPUs"
                    .to_owned()
            }
        }
    }
}

/// CPUs that are isolated since the machine was booted (Documentation/ABI/testing/sysfs-devices-system-cpu, `isolated`).
pub(super) fn isolated_at_boot(kernel: &mut dyn Kernel) -> CpuSet {
    let isolated = kernel.read("sys/devices/system/cpu/isolated").ok();
    isolated.and_then(|it| it.trim().parse().ok()).unwrap_or_default()
}
