//! What kinds of hardware there are.

use std::fmt;

/// What the memory of a NUMA node is made of, as far as placement cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKind {
    /// Ordinary memory.
    #[default]
    Dram,
    /// High-bandwidth memory beside the DRAM.
    Hbm,
    /// Persistent memory that is used as slow, large memory.
    Pmem,
    /// Memory behind a CXL link.
    Cxl,
    /// Memory of a GPU that its driver shows as a NUMA node. It is the device's: a container gets it only where it asks for this kind.
    Gpu,
}

impl MemoryKind {
    /// Memory of a device, which is no part of the machine's own memory.
    pub fn is_of_device(self) -> bool {
        self == MemoryKind::Gpu
    }

    /// Slower than DRAM, and mostly larger.
    pub fn is_slow(self) -> bool {
        matches!(self, MemoryKind::Pmem | MemoryKind::Cxl)
    }

    /// Every kind.
    pub const ALL: [MemoryKind; 5] =
        [MemoryKind::Dram, MemoryKind::Hbm, MemoryKind::Pmem, MemoryKind::Cxl, MemoryKind::Gpu];

    /// The name as it stands in messages and files.
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Dram => "Dram",
            MemoryKind::Hbm => "Hbm",
            MemoryKind::Pmem => "Pmem",
            MemoryKind::Cxl => "Cxl",
            MemoryKind::Gpu => "Gpu",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a core is built for, on machines that have several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoreKind {
    /// The large ones: Intel Core beside Atom, the highest capacity of an Arm machine.
    Performance,
    /// The small ones.
    Efficient,
}

impl CoreKind {
    /// Every kind.
    pub const ALL: [CoreKind; 2] = [CoreKind::Performance, CoreKind::Efficient];

    /// The name as it stands in messages and files.
    pub fn name(self) -> &'static str {
        match self {
            CoreKind::Performance => "Performance",
            CoreKind::Efficient => "Efficient",
        }
    }
}

impl fmt::Display for CoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How well the hardware treats a CPU compared with the others of its package. The order is that of goodness, worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuPriority {
    /// Slower than others: an efficient core, the lowest base frequency, the worst energy preference.
    Low,
    /// Like all others.
    #[default]
    Normal,
    /// Faster than others.
    High,
}

impl CpuPriority {
    /// Every priority, best first.
    pub const ALL: [CpuPriority; 3] = [CpuPriority::High, CpuPriority::Normal, CpuPriority::Low];

    /// The name as it stands in messages and files.
    pub fn name(self) -> &'static str {
        match self {
            CpuPriority::Low => "Low",
            CpuPriority::Normal => "Normal",
            CpuPriority::High => "High",
        }
    }
}

impl fmt::Display for CpuPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
