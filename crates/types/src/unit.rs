//! Quantities with their unit in the type.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, RangeInclusive, Sub, SubAssign};

use crate::NodeId;

/// Thousandths of a CPU, as in a Kubernetes resource quantity (`1500m`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliCpu(pub u64);

impl MilliCpu {
    /// No CPU time at all.
    pub const ZERO: MilliCpu = MilliCpu(0);

    /// `cpus` whole CPUs.
    pub fn from_cpus(cpus: usize) -> MilliCpu {
        MilliCpu(u64::try_from(cpus).unwrap_or(u64::MAX).saturating_mul(1000))
    }

    /// Whole CPUs in this amount, rounded down.
    pub fn whole_cpus(self) -> usize {
        usize::try_from(self.0 / 1000).unwrap_or(usize::MAX)
    }

    /// Whole CPUs needed to hold this amount, rounded up.
    pub fn cpus_needed(self) -> usize {
        usize::try_from(self.0.div_ceil(1000)).unwrap_or(usize::MAX)
    }

    /// The difference, or zero.
    pub fn saturating_sub(self, other: MilliCpu) -> MilliCpu {
        MilliCpu(self.0.saturating_sub(other.0))
    }

    /// What is left beyond whole CPUs.
    pub fn fraction(self) -> MilliCpu {
        MilliCpu(self.0 % 1000)
    }
}

impl fmt::Display for MilliCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) {
            write!(f, "{}", self.0 / 1000)
        } else {
            write!(f, "{}m", self.0)
        }
    }
}

/// What a scheduler that amplifies CPUs may count one as, in percent of its CPU time.
pub const AMPLIFICATION_PERCENT: RangeInclusive<usize> = 100..=1000;

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No memory.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` GiB.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// The difference, or zero.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Bytes {
    /// The largest binary unit that keeps the number above one, with at most one decimal: `62.6 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = match self.0 {
            n if n >= 1 << 40 => ("TiB", 40),
            n if n >= 1 << 30 => ("GiB", 30),
            n if n >= 1 << 20 => ("MiB", 20),
            n if n >= 1 << 10 => ("KiB", 10),
            n => return write!(f, "{n} B"),
        };
        let whole = self.0 >> shift;
        let tenths = ((self.0 - (whole << shift)).saturating_mul(10)) >> shift;
        if tenths == 0 { write!(f, "{whole} {unit}") } else { write!(f, "{whole}.{tenths} {unit}") }
    }
}

/// A frequency in kHz, the unit of the kernel's cpufreq files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Khz(pub u64);

impl fmt::Display for Khz {
    /// `3.8 GHz`; below 1 GHz, `800 MHz`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mhz, tenths) = (self.0 / 1000, (self.0 / 100_000) % 10);
        match mhz / 1000 {
            0 => write!(f, "{mhz} MHz"),
            ghz => write!(f, "{ghz}.{tenths} GHz"),
        }
    }
}

macro_rules! arithmetic {
    ($name:ident) => {
        impl Add for $name {
            type Output = $name;
            fn add(self, other: $name) -> $name {
                $name(self.0.saturating_add(other.0))
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                *self = *self + other;
            }
        }
        /// Panics in debug builds when the result would be negative: a ledger that gives back more than it lent is a bug.
        impl Sub for $name {
            type Output = $name;
            fn sub(self, other: $name) -> $name {
                debug_assert!(self.0 >= other.0, "{self:?} - {other:?} is negative");
                $name(self.0.saturating_sub(other.0))
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: $name) {
                *self = *self - other;
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = $name>>(iter: I) -> $name {
                iter.fold($name::ZERO, Add::add)
            }
        }
    };
}

arithmetic!(MilliCpu);
arithmetic!(Bytes);

/// Bytes of huge pages by memory node and size of a page.
pub type HugeBytes = BTreeMap<(NodeId, Bytes), Bytes>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_print_in_the_largest_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 20, "1 MiB"),
            ((62 << 30) + (6 << 30) / 10, "62.5 GiB"),
            (3 << 40, "3 TiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn milli_cpus_split_into_whole_and_fraction() {
        let m = MilliCpu(2500);
        assert_eq!((m.whole_cpus(), m.fraction(), m.cpus_needed()), (2, MilliCpu(500), 3));
        assert_eq!((m.to_string(), MilliCpu(3000).to_string()), ("2500m".into(), "3".into()));
    }
}
