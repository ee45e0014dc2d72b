//! Texts to sets of CPUs and nodes, and back.
#![no_main]

use bayplan_types::{CpuId, CpuSet, NodeSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<CpuSet>() {
        check(&set);
    }
    if let Ok(set) = CpuSet::parse_mask(text) {
        check(&set);
    }
    if let Ok(set) = text.parse::<NodeSet>() {
        assert_eq!(set.to_string().parse::<NodeSet>().as_ref(), Ok(&set));
        assert_eq!(NodeSet::parse_mask(&set.render_mask()).as_ref(), Ok(&set));
    }
});

fn check(set: &CpuSet) {
    let list = set.to_string();
    assert_eq!(list.parse::<CpuSet>().as_ref(), Ok(set));
    assert_eq!(CpuSet::parse_mask(&set.render_mask()).as_ref(), Ok(set));
    let members: Vec<CpuId> = set.iter().collect();
    assert!(members.is_sorted_by(|a, b| a < b));
    assert_eq!(members.len(), set.len());
    assert_eq!((members.first().copied(), members.last().copied()), (set.first(), set.last()));
    assert_eq!(&members.into_iter().collect::<CpuSet>(), set);
}
