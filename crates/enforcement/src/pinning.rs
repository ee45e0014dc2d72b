//! Where containers run: as it should be, and as it was last seen. What a set that is empty means is cgroup v2's: the setting of the group around it
//! (Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files").

use std::collections::BTreeMap;

use bayplan_types::Pinning;

/// The pinning that every running container should have, by the runtime's container id. An empty set is left as it is.
pub type DesiredState = BTreeMap<String, Pinning>;

/// The pinning that every running container was last seen with. An empty set of CPUs is a container that may run everywhere.
pub type ObservedState = BTreeMap<String, Pinning>;
