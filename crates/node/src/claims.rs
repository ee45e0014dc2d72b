//! CPUs that another component has chosen for a pod, for all of its containers together (Koordinator's scheduler, by annotation). In: the state. Out:
//! pools without these CPUs, and which containers have to move for that.
//!
//! CPUs that are claimed are given to no container in the ledger, as those of another's cpuset partition: while a container of the pod is known, they
//! are in no pool. Its containers run on exactly these CPUs and hold none. All of it follows from what the containers' pods say: no record of the
//! journal is needed, and it is the same whichever of them was found first.
//!
//! A container that is to be created is refused where its CPUs cannot be its pod's alone. One that runs already runs on: owners of its CPUs are given
//! others, and of what it has not alone then, an operator is told.

use bayplan_types::CpuSet;
use bayplan_workload::annotations::shown;

/// Characters of a list of CPUs in a message.
const LIST_SHOWN_MAX: usize = 60;
/// What another component has chosen for a container's pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim {
    /// None: nothing was chosen.
    pub(crate) cpus: CpuSet,
    /// The container itself is left alone all the same.
    pub(crate) is_left_alone: bool,
}

impl Claim {
    /// Whether the container is to run on these CPUs.
    pub(crate) fn is_pinned(&self) -> bool {
        !self.cpus.is_empty() && !self.is_left_alone
    }
}

/// A list of CPUs for a message; a pod can make it as long as it likes.
pub(crate) fn shown_cpus(cpus: &CpuSet) -> String {
    shown(&cpus.to_string(), LIST_SHOWN_MAX)
}
