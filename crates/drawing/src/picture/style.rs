//! How things look. Fills are light and outlines dark, so that black text stands on everything; nothing is told by colour alone,
//! because pictures are printed in grey.

use bayplan_types::MemoryKind;

use bayplan_topology::DeviceKind;
use bayplan_topology::Level;

/// What a box stands for, as far as that shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Style {
    /// The sheet of paper.
    Page,
    /// Keeps things together without being seen.
    Invisible,
    /// The legend as a whole.
    Legend,
    Machine,
    Package,
    Die,
    Node,
    L3,
    /// What cores share below the L3: a cluster or a level 2 cache.
    Frame,
    /// A core where all are alike, or a large one.
    Core(CoreLook),
    /// One CPU.
    Cpu(CpuLook),
    Memory(MemoryKind),
    Device(DeviceKind),
    /// CPUs that do not run.
    Offline,
}

/// A core's outline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CoreLook {
    Plain,
    Performance,
    Efficient,
}

/// What shows on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CpuLook {
    pub(crate) fill: Fill,
    pub(crate) hatch: Option<Hatch>,
    pub(crate) bar: Option<Bar>,
}

/// What runs on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fill {
    /// One of the strong colours.
    Exclusive(usize),
    /// One of the quiet colours.
    Shared(usize),
    Reserved,
    #[default]
    Empty,
}

/// Lines over the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Hatch {
    Isolated,
    Partitioned,
    /// Grey alone would look like a container's color in a grey print.
    Reserved,
}

/// A thick edge: above for a CPU that the hardware treats better, below for one that it treats worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Bar {
    High,
    Low,
}

/// Colours of containers with CPUs of their own. Neighbours in the list differ in hue and in lightness.
const EXCLUSIVE: [&str; 12] = [
    "#8ec4ee", "#fbc77d", "#a9dba0", "#f3a6a0", "#cdb5ec", "#f6e58d", "#7fd0c7", "#f5b6d6",
    "#b9c98a", "#a8b4f0", "#e3bd97", "#b5e3f5",
];

/// Colours of shared pools.
const SHARED: [&str; 6] = ["#dfe8f2", "#efe9d8", "#ddecdf", "#f0e1e9", "#e5e2f2", "#dbecec"];

impl Fill {
    /// The colour; colours come round again, letters on the CPUs tell them apart.
    pub(crate) fn color(self) -> &'static str {
        let pick = |colors: &[&'static str], at: usize| {
            colors.get(at % colors.len().max(1)).copied().unwrap_or("#fff")
        };
        match self {
            Fill::Empty => "#fff",
            Fill::Exclusive(at) => pick(&EXCLUSIVE, at),
            Fill::Shared(at) => pick(&SHARED, at),
            Fill::Reserved => "#c9c9c9",
        }
    }
}

impl Hatch {
    /// The pattern in the picture.
    pub(crate) fn pattern(self) -> &'static str {
        match self {
            Hatch::Isolated => "bayplan-isolated",
            Hatch::Partitioned => "bayplan-partitioned",
            Hatch::Reserved => "bayplan-reserved",
        }
    }
}

/// How an object looks.
pub(crate) fn style_of(level: Level) -> Style {
    match level {
        Level::Machine => Style::Machine,
        Level::Drawer | Level::Book | Level::Package => Style::Package,
        Level::Die => Style::Die,
        Level::NumaNode => Style::Node,
        Level::L3 => Style::L3,
        Level::Cluster | Level::L2 => Style::Frame,
        Level::Core => Style::Core(CoreLook::Plain),
    }
}

impl Style {
    /// Every box of a color of its own; CPUs have that of what runs there.
    pub(crate) const COLORED: [Style; 18] = [
        Style::Page,
        Style::Machine,
        Style::Package,
        Style::Die,
        Style::Node,
        Style::L3,
        Style::Frame,
        Style::Core(CoreLook::Plain),
        Style::Core(CoreLook::Efficient),
        Style::Memory(MemoryKind::Dram),
        Style::Memory(MemoryKind::Hbm),
        Style::Memory(MemoryKind::Pmem),
        Style::Memory(MemoryKind::Cxl),
        Style::Device(DeviceKind::Network),
        Style::Device(DeviceKind::Storage),
        Style::Device(DeviceKind::Accelerator),
        Style::Device(DeviceKind::Other),
        Style::Offline,
    ];

    /// The color that it is filled with.
    pub(crate) fn color(self) -> &'static str {
        match self {
            Style::Invisible | Style::Legend | Style::Frame => "none",
            Style::Page | Style::Offline => "#fff",
            Style::Machine => "#fafafa",
            Style::Package => "#eceff3",
            Style::Die => "#f6f7f9",
            Style::Node => "#eef6ea",
            Style::L3 => "#fdf3dc",
            Style::Core(CoreLook::Efficient) => "#e4e4e4",
            Style::Core(CoreLook::Plain | CoreLook::Performance) => "#fff",
            Style::Cpu(look) => look.fill.color(),
            Style::Memory(MemoryKind::Dram) => "#d3eac6",
            Style::Memory(MemoryKind::Hbm) => "#f7d3cd",
            Style::Memory(MemoryKind::Pmem) => "#dbd2ee",
            Style::Memory(MemoryKind::Cxl) | Style::Device(DeviceKind::Memory) => "#cbe3f4",
            Style::Memory(MemoryKind::Gpu) | Style::Device(DeviceKind::Accelerator) => "#e9ddf6",
            Style::Device(DeviceKind::Network) => "#d9e8fb",
            Style::Device(DeviceKind::Storage) => "#fbe6c9",
            Style::Device(DeviceKind::Other) => "#efefef",
        }
    }

    /// The name in the style sheet; `None` for what is not drawn.
    pub(crate) fn class(self) -> Option<&'static str> {
        Some(match self {
            Style::Invisible | Style::Legend => return None,
            Style::Page => "page",
            Style::Machine => "machine",
            Style::Package => "package",
            Style::Die => "die",
            Style::Node => "node",
            Style::L3 => "l3",
            Style::Frame => "frame",
            Style::Core(CoreLook::Plain) => "core",
            Style::Core(CoreLook::Performance) => "core large",
            Style::Core(CoreLook::Efficient) => "small",
            Style::Cpu(_) => "cpu",
            Style::Memory(MemoryKind::Dram) => "dram",
            Style::Memory(MemoryKind::Hbm) => "hbm",
            Style::Memory(MemoryKind::Pmem) => "pmem",
            Style::Memory(MemoryKind::Cxl) => "cxl",
            Style::Device(DeviceKind::Network) => "network",
            Style::Device(DeviceKind::Storage) => "storage",
            Style::Memory(MemoryKind::Gpu) | Style::Device(DeviceKind::Accelerator) => {
                "accelerator"
            }
            Style::Device(DeviceKind::Memory) => "cxl",
            Style::Device(DeviceKind::Other) => "other",
            Style::Offline => "offline",
        })
    }

    /// Room between the outline and what is inside.
    pub(crate) fn padding(self) -> usize {
        match self {
            Style::Invisible => 0,
            Style::Page => 14,
            Style::Machine | Style::Package | Style::Legend => 6,
            Style::Die | Style::Node | Style::L3 => 5,
            Style::Frame | Style::Memory(_) | Style::Device(_) | Style::Offline => 3,
            Style::Core(_) => 2,
            Style::Cpu(_) => 1,
        }
    }

    /// Room between what stands above each other.
    pub(crate) fn gap(self) -> usize {
        match self {
            Style::Legend => 7,
            _ => 3,
        }
    }

    /// Radius of the corners.
    pub(crate) fn radius(self) -> usize {
        match self {
            Style::Machine | Style::Package => 4,
            Style::Die | Style::Node | Style::L3 => 3,
            Style::Memory(_) | Style::Device(_) | Style::Frame | Style::Offline => 2,
            Style::Core(CoreLook::Efficient) => 4,
            Style::Core(_) => 1,
            Style::Page | Style::Invisible | Style::Legend | Style::Cpu(_) => 0,
        }
    }
}
