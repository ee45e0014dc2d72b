//! On which path a container is harmed: in its CPU, in the hardware around it, or by itself.

use crate::sample::Signal;

/// How a signal comes to be too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Another container is on the CPU.
    Cpu,
    /// Another container is in the core, the cache or before the memory.
    Hardware,
    /// No other container has to do with it.
    Own,
}

/// How a signal comes to be too high.
pub(crate) fn path(signal: Signal) -> Path {
    match signal {
        Signal::Waiting | Signal::Delay | Signal::Preempted | Signal::CpuPressure => Path::Cpu,
        Signal::CyclesPerInstruction | Signal::CacheMisses => Path::Hardware,
        Signal::Migrations | Signal::Throttled | Signal::FarMemory | Signal::Clock => Path::Own,
    }
}
