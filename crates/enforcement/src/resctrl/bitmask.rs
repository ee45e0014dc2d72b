//! Which parts of a cache: the masks that the kernel shows in `cbm_mask` and takes in `schemata` (resctrl.rst, "Cache Bit Masks").

use std::fmt;

/// Parts of one cache, a bit each. Invariant: at least one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CapacityBitmask(u32);

impl CapacityBitmask {
    /// `None` for a mask without bits, which the kernel refuses.
    pub fn new(bits: u32) -> Option<CapacityBitmask> {
        (bits != 0).then_some(CapacityBitmask(bits))
    }

    /// `count` bits from bit `first` on; `None` if there are none or some lie above bit 31.
    pub fn block(first: u32, count: u32) -> Option<CapacityBitmask> {
        let bits = (1_u64 << count.min(33)) - 1;
        u32::try_from(bits.checked_shl(first)?).ok().and_then(CapacityBitmask::new)
    }

    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// How many bits.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The lowest bit.
    pub fn first(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// How many bits stand side by side from the lowest on; the kernel compares this with `min_cbm_bits`.
    pub fn first_run(self) -> u32 {
        (self.0 >> self.first()).trailing_ones()
    }

    /// Whether all bits stand side by side.
    pub fn is_one_block(self) -> bool {
        self.first_run() == self.count()
    }

    /// Whether it has no bit that `other` lacks.
    pub fn is_within(self, other: CapacityBitmask) -> bool {
        self.0 & !other.0 == 0
    }

    /// Its bits from the `from`th to the `to`th, counted from zero at the lowest; `None` where there are none.
    pub fn slice(self, from: u32, to: u32) -> Option<CapacityBitmask> {
        let set = (0..u32::BITS).map(|bit| 1 << bit).filter(|bit| self.0 & bit != 0);
        let ranked = (0..).zip(set).filter(|(rank, _)| (from..=to).contains(rank));
        CapacityBitmask::new(ranked.fold(0, |bits, (_, bit)| bits | bit))
    }

    /// Itself, `count` bits higher; `None` if a bit would be lost.
    pub fn raised(self, count: u32) -> Option<CapacityBitmask> {
        u32::try_from(u64::from(self.0).checked_shl(count)?).ok().and_then(CapacityBitmask::new)
    }
}

/// As in `schemata`: hexadecimal without a prefix.
impl fmt::Display for CapacityBitmask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_know_their_blocks() {
        let rows = [(0x1, 1, 0, true), (0xf0, 4, 4, true), (0xf0f, 4, 0, false)];
        for (bits, run, first, is_one_block) in rows {
            let mask = CapacityBitmask::new(bits).unwrap();
            assert_eq!((mask.first_run(), mask.first()), (run, first), "{mask}");
            assert_eq!(mask.is_one_block(), is_one_block, "{mask}");
        }
        assert_eq!(CapacityBitmask::new(0), None);
    }

    #[test]
    fn blocks_slices_and_shifts_stay_inside() {
        let bits = |mask: Option<CapacityBitmask>| mask.map(CapacityBitmask::bits);
        let mask = CapacityBitmask::new(0xf0f).unwrap();
        assert_eq!(bits(CapacityBitmask::block(4, 4)), Some(0xf0));
        assert_eq!(bits(CapacityBitmask::block(0, 32)), Some(u32::MAX));
        assert_eq!(bits(CapacityBitmask::block(1, 32)), None);
        assert_eq!(bits(CapacityBitmask::block(70, 1)), None);
        assert_eq!(bits(CapacityBitmask::block(3, 0)), None);
        assert_eq!(bits(mask.slice(3, 4)), Some(0x108));
        assert_eq!(bits(mask.slice(8, 9)), None);
        assert_eq!(bits(mask.raised(20)), Some(0xf0f0_0000));
        assert_eq!(bits(mask.raised(21)), None);
        assert_eq!(bits(mask.raised(80)), None);
    }
}
