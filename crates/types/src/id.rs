//! The kernel's numbers, one type each, so that a CPU number is never taken for a node number.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// One logical CPU as the kernel numbers it (`/sys/devices/system/cpu/cpuN`).
    CpuId
);
id!(
    /// A physical package (`topology/physical_package_id`).
    PackageId
);
id!(
    /// A die; the kernel's number is unique within its package only (`topology/die_id`).
    DieId
);
id!(
    /// A NUMA node (`/sys/devices/system/node/nodeN`).
    NodeId
);
id!(
    /// A last-level cache domain (`cache/index3/id`, or its lowest CPU where the kernel gives no id).
    L3Id
);
id!(
    /// A core; the kernel's number is unique within its package or die only (`topology/core_id`).
    CoreId
);
