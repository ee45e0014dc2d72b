//! Machines by what their `info/` says.

use super::*;

pub(super) fn cache(mask: u32, bits_min: u32, caches: u32) -> CacheInfo {
    CacheInfo {
        is_split: false,
        mask: CapacityBitmask::new(mask).unwrap(),
        bits_min,
        is_sparse: false,
        shareable: 0,
        caches: (0..caches).map(|id| (id, 0)).collect(),
    }
}

pub(super) fn percent(step: u32, domains: u32) -> BandwidthInfo {
    let ids = (0..domains).collect();
    BandwidthInfo { unit: BandwidthUnit::Percent, min: 10, step, max: 100, ids }
}

pub(super) fn machine(name: &str) -> ResctrlInfo {
    let split = |it: CacheInfo| CacheInfo { is_split: true, ..it };
    let info = ResctrlInfo { closids: 16, ..ResctrlInfo::default() };
    match name {
        // As goresctrl's tests have them. Steps of 1, so that what the kernel would round hides nothing.
        "full" => ResctrlInfo { l3: Some(cache(0xfffff, 1, 4)), mb: Some(percent(1, 4)), ..info },
        "without MB" => ResctrlInfo { l3: Some(cache(0xfffff, 2, 4)), ..info },
        "without MB, CDP" => ResctrlInfo { l3: Some(split(cache(0xfffff, 2, 4))), ..info },
        "without L3" => ResctrlInfo { mb: Some(percent(1, 4)), ..info },
        "without L3, MBps" => {
            let unit = BandwidthUnit::Megabytes;
            let mb = BandwidthInfo { unit, max: u32::MAX, ..percent(1, 4) };
            ResctrlInfo { mb: Some(mb), ..info }
        }
        "L2" => ResctrlInfo { l2: Some(cache(0xff, 1, 2)), ..info },
        "L2 CDP" => {
            let (l2, l3) = (split(cache(0xfffff, 1, 4)), cache(0xfff, 1, 1));
            ResctrlInfo { l2: Some(l2), l3: Some(l3), ..info }
        }
        // Xeon Gold 6230: two sockets, CAT with CDP, MBA in steps of ten; devices use the two highest ways, too.
        "xeon" => {
            let l3 = CacheInfo { shareable: 0x600, ..split(cache(0x7ff, 1, 2)) };
            ResctrlInfo { closids: 8, l3: Some(l3), mb: Some(percent(10, 2)), ..info }
        }
        // EPYC 7763: an L3 per CCX, any bits, bandwidth in eighths of a GB a second.
        "epyc" => {
            let l3 = CacheInfo { is_sparse: true, ..cache(0xffff, 1, 8) };
            let (unit, ids) = (BandwidthUnit::EighthsOfGigabyte, (0..8).collect());
            let mb = BandwidthInfo { unit, min: 0, step: 1, max: 2048, ids };
            ResctrlInfo { l3: Some(l3), mb: Some(mb), ..info }
        }
        // Another group has the two lowest bits of cache 1 to itself.
        "pseudo-locked" => {
            let mut l3 = cache(0xfffff, 1, 2);
            l3.caches.insert(1, 0x3);
            ResctrlInfo { l3: Some(l3), ..info }
        }
        "nothing" => ResctrlInfo::default(),
        _ => panic!("no machine {name}"),
    }
}
