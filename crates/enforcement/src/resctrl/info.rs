//! What a machine's resctrl offers, as `info/` and the root's `schemata` say it (resctrl.rst, "Info directory").

use std::collections::BTreeMap;

use super::bitmask::CapacityBitmask;

/// Everything that classes depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlInfo {
    /// Allocation of L2 caches.
    pub l2: Option<CacheInfo>,
    /// Allocation of L3 caches.
    pub l3: Option<CacheInfo>,
    /// Bounds on memory bandwidth.
    pub mb: Option<BandwidthInfo>,
    /// How many control groups there can be with the root: the smallest `num_closids`, because the kernel takes that.
    pub closids: u32,
    /// Monitoring.
    pub monitor: Option<MonitorInfo>,
}

/// Caches of one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheInfo {
    /// Code and data have lines of their own in `schemata` (`cdp`, `cdpl2`).
    pub is_split: bool,
    /// All that can be given (`cbm_mask`).
    pub mask: CapacityBitmask,
    /// So many bits stand side by side at least (`min_cbm_bits`).
    pub bits_min: u32,
    /// Bits need not stand side by side (`sparse_masks`).
    pub is_sparse: bool,
    /// Bits that devices use, too (`shareable_bits`).
    pub shareable: u32,
    /// The caches by their ids, and which bits of each an exclusive or pseudo-locked group has to itself (`E` and `P` in `bit_usage`).
    pub caches: BTreeMap<u32, u32>,
}

/// Domains of memory bandwidth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandwidthInfo {
    /// What the numbers in `schemata` mean.
    pub unit: BandwidthUnit,
    /// The least that can be written (`min_bandwidth`).
    pub min: u32,
    /// The steps in which it can be (`bandwidth_gran`).
    pub step: u32,
    /// Unlimited.
    pub max: u32,
    /// The ids of the domains, which are those of L3 caches.
    pub ids: Vec<u32>,
}

/// What a number for memory bandwidth means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandwidthUnit {
    /// Hundredths, as Intel's processors have it.
    Percent,
    /// MB a second, kept by the kernel itself (`mba_MBps`).
    Megabytes,
    /// Eighths of a GB a second, as AMD's processors have it.
    EighthsOfGigabyte,
}

/// Monitoring (`info/L3_MON`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorInfo {
    /// How many control and monitoring groups there can be together, with the root.
    pub rmids: u32,
    /// What is counted: `llc_occupancy`, `mbm_total_bytes`.
    pub features: Vec<String>,
}
