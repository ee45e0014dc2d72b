//! An intruder: what ran on a CPU that another container owns.

use std::fmt;

use bayplan_types::CpuId;

/// The kernel's number of a cgroup (version 2): the inode number of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

/// A task or interrupt on a CPU that another container owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Intruder {
    /// Where.
    pub cpu: CpuId,
    /// Its identity.
    pub identity: Identity,
    /// Name of the task or of the interrupt's user, at most 16 bytes; may be empty.
    pub name: String,
}

/// What kind of intruder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// A thread of the kernel.
    KernelThread,
    /// A task of another container that is watched.
    Container(CgroupId),
    /// A task of no container, in this cgroup.
    Process(CgroupId),
    /// An interrupt with a number (`/proc/interrupts`).
    Interrupt(u32),
    /// Work that an interrupt has left for later.
    Softirq(Softirq),
    /// An interrupt without a number.
    Vector(Vector),
    /// More of a kind than there is room to tell apart.
    Others(Kind),
}

/// The kind of an intruder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A thread of the kernel.
    KernelThread,
    /// A task of another container that is watched.
    Container,
    /// A task of no container.
    Process,
    /// An interrupt with a number.
    Interrupt,
    /// Work that an interrupt has left for later.
    Softirq,
    /// An interrupt without a number.
    Vector,
}

impl Kind {
    /// Every one, in the order of `enum intruder_kind` in `bpf/records.h`.
    pub const ALL: [Kind; 6] = [
        Kind::KernelThread,
        Kind::Container,
        Kind::Process,
        Kind::Interrupt,
        Kind::Softirq,
        Kind::Vector,
    ];

    /// The name as it stands in labels.
    pub fn name(self) -> &'static str {
        match self {
            Kind::KernelThread => "kernel-thread",
            Kind::Container => "container",
            Kind::Process => "process",
            Kind::Interrupt => "interrupt",
            Kind::Softirq => "softirq",
            Kind::Vector => "vector",
        }
    }
}

impl Identity {
    /// What it is.
    pub fn kind(self) -> Kind {
        match self {
            Identity::KernelThread => Kind::KernelThread,
            Identity::Container(_) => Kind::Container,
            Identity::Process(_) => Kind::Process,
            Identity::Interrupt(_) => Kind::Interrupt,
            Identity::Softirq(_) => Kind::Softirq,
            Identity::Vector(_) => Kind::Vector,
            Identity::Others(kind) => kind,
        }
    }
}

impl Intruder {
    /// Those of its kind on its CPU that have no name.
    pub fn among_others(&self) -> Intruder {
        Intruder::others(self.cpu, self.identity.kind())
    }

    /// Those of a kind on a CPU that have no name.
    pub(crate) fn others(cpu: CpuId, kind: Kind) -> Intruder {
        Intruder { cpu, identity: Identity::Others(kind), name: String::new() }
    }
}

/// A softirq's number (include/linux/interrupt.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Softirq(pub u32);

/// Interrupts that CPUs send to themselves and each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vector {
    /// The CPU's own timer, the tick among others.
    LocalTimer,
    /// Another CPU asks this one to schedule.
    Reschedule,
    /// Another CPU asks several for a call.
    CallFunction,
    /// Another CPU asks this one for a call.
    CallFunctionSingle,
    /// Work of the kernel that has to run outside of a context where it cannot.
    IrqWork,
}

impl Vector {
    /// In the order of `enum vector` in `bpf/records.h`.
    pub(crate) const ALL: [Vector; 5] = [
        Vector::LocalTimer,
        Vector::Reschedule,
        Vector::CallFunction,
        Vector::CallFunctionSingle,
        Vector::IrqWork,
    ];
}

/// How much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intrusion {
    /// Time, in ns.
    pub ns: u64,
    /// How often it left the CPU again; 0 for one that has been running since it came.
    pub times: u64,
}

impl Intrusion {
    /// Both together. What one CPU took back of what another had charged is negative, so sums go around at 2^64.
    pub(crate) fn add(&mut self, other: Intrusion) {
        self.ns = self.ns.wrapping_add(other.ns);
        self.times = self.times.wrapping_add(other.times);
    }

    /// Takes over a newer sum. What is smaller for the moment, or negative, stands still: counters must not go down.
    pub(crate) fn rise_to(&mut self, now: Intrusion) {
        let floor = |sum: u64| if sum.cast_signed() < 0 { 0 } else { sum };
        self.ns = self.ns.max(floor(now.ns));
        self.times = self.times.max(floor(now.times));
    }
}

impl fmt::Display for Softirq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 10] = [
            "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
            "RCU",
        ];
        match usize::try_from(self.0).ok().and_then(|number| NAMES.get(number)) {
            Some(name) => write!(f, "softirq {name}"),
            None => write!(f, "softirq {}", self.0),
        }
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Vector::LocalTimer => "local timer interrupt",
            Vector::Reschedule => "rescheduling interrupt",
            Vector::CallFunction | Vector::CallFunctionSingle => "function call interrupt",
            Vector::IrqWork => "irq work interrupt",
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::KernelThread => f.write_str("kernel thread"),
            Identity::Container(CgroupId(id)) => write!(f, "container of cgroup {id}"),
            Identity::Process(CgroupId(id)) => write!(f, "process of cgroup {id}"),
            Identity::Interrupt(number) => write!(f, "irq {number}"),
            Identity::Softirq(softirq) => softirq.fmt(f),
            Identity::Vector(vector) => vector.fmt(f),
            Identity::Others(kind) => f.write_str(match kind {
                Kind::KernelThread => "other kernel threads, not named",
                Kind::Container => "other containers, not named",
                Kind::Process => "other processes, not named",
                Kind::Interrupt => "other irqs, not named",
                Kind::Softirq => "other softirqs, not named",
                Kind::Vector => "other interrupts, not named",
            }),
        }
    }
}
