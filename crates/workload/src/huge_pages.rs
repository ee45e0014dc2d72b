//! Limits of huge pages. In: limits by the name of a page's size, as kubelet writes them. Out: bytes by size of a page, and the names that are no sizes. Pure.

use std::collections::BTreeMap;

use bayplan_types::Bytes;

/// Limits of huge pages by the name of their size. Kubelet names every size of the node, most of them with zero; what is no size is
/// left out.
pub fn huge_pages<'a>(limits: impl IntoIterator<Item = (&'a str, u64)>) -> BTreeMap<Bytes, Bytes> {
    let limits = limits.into_iter().filter(|(_, limit)| *limit > 0);
    limits.filter_map(|(size, limit)| Some((parse_page_size(size)?, Bytes(limit)))).collect()
}

/// Names of sizes that ask for huge pages and are no sizes.
pub fn odd_page_sizes(limits: &[(&str, u64)]) -> Vec<String> {
    let odd = limits.iter().filter(|(size, limit)| *limit > 0 && parse_page_size(size).is_none());
    odd.map(|(size, _)| (*size).to_owned()).collect()
}

/// As the kernel names the files of the hugetlb controller: `2MB`, `1GB`, a unit being 1024 of the one below it.
fn parse_page_size(text: &str) -> Option<Bytes> {
    let units = [("KB", 10), ("MB", 20), ("GB", 30)];
    units.iter().find_map(|(unit, shift)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(1 << shift).filter(|bytes| *bytes > 0).map(Bytes)
    })
}
