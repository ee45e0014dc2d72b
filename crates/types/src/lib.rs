//! The vocabulary of bayplan: sets of CPUs and NUMA nodes, ids, units, QoS classes. No policy and no I/O.

mod bit_set;
mod cpu_set;
pub mod fold;
mod hardware;
mod id;
mod node_set;
mod parse_set_error;
mod pinning;
mod qos;
mod scheduling;
mod speed_select;
mod unit;

pub use cpu_set::CpuSet;
pub use hardware::{CoreKind, CpuPriority, MemoryKind};
pub use id::{CoreId, CpuId, DieId, L3Id, NodeId, PackageId};
pub use node_set::NodeSet;
pub use parse_set_error::ParseSetError;
pub use pinning::Pinning;
pub use qos::{CpuClass, QosClass};
pub use scheduling::{IoClass, ThreadPolicy, ThreadScheduling};
pub use speed_select::{
    CLOS_COUNT, CLOS_MHZ_MAX, CLOS_MHZ_STEP, CLOS_WEIGHT_MAX, CORE_POWER, ClosLimits, CorePower,
    NoCorePower, ParseCorePowerError, ParseProfileError, PerformanceProfile, PowerCore,
    PowerDomain, SPEED_SELECT_DEVICE, SpeedSelect,
};
pub use unit::{AMPLIFICATION_PERCENT, Bytes, HugeBytes, Khz, MilliCpu};
