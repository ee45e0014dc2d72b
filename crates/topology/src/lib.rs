//! The hardware of one machine. In: a [`Snapshot`], facts as the kernel's files give them. Out: a [`Topology`], a tree of
//! packages, dies, NUMA nodes, L3s and cores, with a list of everything that was odd.
//!
//! Pure: no file, clock or environment. Snapshots come from real files (crate `bayplan-host`) or from one line of text
//! ([`parse_machine`]); both take the same way through [`derive()`].

mod agree;
mod caches;
mod check;
mod derive;
mod derive_devices;
mod device;
mod fingerprint;
mod json;
mod kinds;
mod memory;
mod mems;
mod nest;
mod numa;
#[cfg(test)]
mod properties;
mod snapshot;
mod speed_select;
mod synthetic;
mod topology;

pub use check::check_topology;
pub use derive::{DeriveError, derive};
pub use device::{Device, DeviceKind, find_device};
pub use json::{
    BandwidthJson, CacheControlJson, CacheJson, DeviceJson, FrequencyJson, HugePagesJson,
    JSON_FORMAT, JSON_HELP, KernelJson, KindJson, NodeJson, ObjectJson, OddityJson, PrioritiesJson,
    ResctrlJson, TopologyJson, to_json,
};
pub use snapshot::{
    AccessFacts, AroundPackages, BandwidthControl, CacheControl, CacheFacts, CacheKind, CpuFacts,
    DaxFacts, DaxOrigin, DeviceFacts, HugePages, KernelFacts, KindFacts, NodeFacts, Oddity,
    PciAddress, PciAddressError, PolicyFacts, ResctrlFacts, ResctrlMonitoring, Snapshot, TierFacts,
    UncoreFacts,
};
pub use synthetic::{SYNTHETIC_HELP, SyntheticError, parse_machine, preset_names};
pub use topology::{
    Cache, FrequencyPolicy, KindEvidence, Level, MemorySpeed, NumaNode, Object, ObjectIdx, StandIn,
    Topology, index_cpus,
};
