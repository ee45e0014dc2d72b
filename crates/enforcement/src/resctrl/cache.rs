//! Which bits of a cache partitions and classes get. In: their shares, and what the cache has. Out: a mask for each, or why there is none.
//!
//! Rounding is goresctrl's, so that a configuration gives the same masks: the percentages of all partitions together are rounded down to bits, of
//! which the smallest share gets its part first, rounded down but no less than the machine's minimum, and the largest the rest; they are laid side
//! by side from bit 0 on in the order of the partitions' names. A class's percentage is rounded up to bits of its partition (goresctrl's doc/rdt.md; what a mask
//! may be: Documentation/filesystems/resctrl.rst, "Cache Bit Masks").

use super::bitmask::CapacityBitmask;
use super::info::CacheInfo;
use super::share::CacheShare;

/// The masks of all partitions of one cache, disjoint, in the order given, which is that of their names.
///
/// # Errors
/// What partitions ask for, and what the cache has.
pub(super) fn partition_masks(
    cache: &CacheInfo,
    shares: &[(&str, CacheShare)],
) -> Result<Vec<CapacityBitmask>, String> {
    let absolute: Vec<(&str, CapacityBitmask)> = shares
        .iter()
        .filter_map(|(name, share)| match share {
            CacheShare::Bits(bits) => Some((*name, *bits)),
            _ => None,
        })
        .collect();
    if absolute.is_empty() {
        return relative_masks(cache, shares);
    }
    if let Some((name, share)) = shares.iter().find(|it| !matches!(it.1, CacheShare::Bits(_))) {
        let (other, bits) = absolute[0];
        return Err(format!(
            "partition `{name}` asks for {share}, but `{other}` for the bits 0x{bits}; give all partitions percentages, or all of them bits"
        ));
    }
    for (index, (name, bits)) in absolute.iter().enumerate() {
        let overlaps = |(_, it): &&(&str, CapacityBitmask)| it.bits() & bits.bits() != 0;
        if let Some((other, theirs)) = absolute[..index].iter().find(overlaps) {
            return Err(format!(
                "partitions `{other}` (0x{theirs}) and `{name}` (0x{bits}) overlap; partitions have bits of their own"
            ));
        }
        check_mask(cache, *bits).map_err(|why| format!("partition `{name}`: {why}"))?;
    }
    Ok(absolute.into_iter().map(|(_, bits)| bits).collect())
}

fn relative_masks(
    cache: &CacheInfo,
    shares: &[(&str, CacheShare)],
) -> Result<Vec<CapacityBitmask>, String> {
    let mut percents = Vec::new();
    for (index, (name, share)) in shares.iter().enumerate() {
        let CacheShare::Percent(percent) = share else {
            return Err(format!(
                "partition `{name}` asks for {share}, but only classes can have a range of percentages"
            ));
        };
        percents.push((u32::from(*percent), index));
    }
    let percent_sum: u32 = percents.iter().map(|(percent, _)| percent).sum();
    if percent_sum > 100 {
        let asked: Vec<String> = shares.iter().map(|(name, it)| format!("`{name}` {it}")).collect();
        return Err(format!("partitions ask for {percent_sum}% together: {}", asked.join(", ")));
    }
    let width = cache.mask.count();
    let bits_sum = percent_sum * width / 100;
    let mut bits_left = bits_sum;
    let mut counts = vec![0; shares.len()];
    percents.sort_unstable();
    for (rank, (percent, index)) in percents.iter().enumerate() {
        if bits_left < cache.bits_min.max(1) {
            return Err(format!(
                "partition `{}` asks for {percent}%, but of {width} bits none are left for it: partitions have {} at least",
                shares[*index].0, cache.bits_min
            ));
        }
        let percent_left = bits_left * percent_sum / bits_sum;
        let is_last = rank + 1 == percents.len();
        let count = (percent * bits_left).checked_div(percent_left).unwrap_or(0);
        counts[*index] = if is_last { bits_left } else { count.max(cache.bits_min).min(bits_left) };
        bits_left -= counts[*index];
    }
    let mut first = 0;
    let masks = counts.iter().map(|count| {
        let mask = cache.mask.slice(first, first + count.saturating_sub(1));
        first += count;
        mask.filter(|_| *count > 0).ok_or_else(|| "a partition has no bit".to_owned())
    });
    masks.collect()
}

/// The mask of a class in its partition.
///
/// # Errors
/// What it asks for, and what the partition and the cache have.
pub(super) fn class_mask(
    cache: &CacheInfo,
    partition: CapacityBitmask,
    share: CacheShare,
) -> Result<CapacityBitmask, String> {
    let mask = match share {
        CacheShare::Bits(bits) => {
            let raised = bits.raised(partition.first()).filter(|it| it.is_within(partition));
            raised.ok_or_else(|| {
                format!("0x{bits}, counted from the lowest bit of its partition, does not fit into 0x{partition}")
            })?
        }
        CacheShare::Percent(percent) => hundredths(cache, partition, 0, percent)?,
        CacheShare::Range(low, high) => hundredths(cache, partition, low, high)?,
    };
    check_mask(cache, mask)?;
    Ok(mask)
}

/// The bits of a partition in which these hundredths of it begin, and as many below (or above) as the machine wants.
fn hundredths(
    cache: &CacheInfo,
    partition: CapacityBitmask,
    low: u8,
    high: u8,
) -> Result<CapacityBitmask, String> {
    let (low, high) = (u32::from(low.max(1)), u32::from(high));
    if low > high {
        return Err("asks for 0%; a class has one bit at least".to_owned());
    }
    let count = partition.count();
    let (mut from, mut to) = ((low - 1) * count / 100, (high - 1) * count / 100);
    let lacking = cache.bits_min.saturating_sub(to - from + 1);
    to += lacking.saturating_sub(from);
    from = from.saturating_sub(lacking);
    let mask = partition.slice(from, to).filter(|_| to < count);
    mask.ok_or_else(|| too_narrow(cache, partition))
}

/// Whether the kernel takes the mask for this resource (`cbm_validate` in fs/resctrl/ctrlmondata.c says the same in `last_cmd_status`).
///
/// # Errors
/// What the machine wants.
pub(super) fn check_mask(cache: &CacheInfo, mask: CapacityBitmask) -> Result<(), String> {
    if !mask.is_within(cache.mask) {
        return Err(format!("0x{mask} has bits that the cache lacks, which has 0x{}", cache.mask));
    }
    if !cache.is_sparse && !mask.is_one_block() {
        return Err(format!(
            "the bits of 0x{mask} do not stand side by side, as this machine wants"
        ));
    }
    if mask.first_run() < cache.bits_min {
        return Err(too_narrow(cache, mask));
    }
    Ok(())
}

fn too_narrow(cache: &CacheInfo, mask: CapacityBitmask) -> String {
    format!(
        "0x{mask} has fewer than the {} bits side by side that this machine wants",
        cache.bits_min
    )
}
