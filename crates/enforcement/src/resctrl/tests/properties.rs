//! Whatever a configuration asks for, what comes of it is legal.

use proptest::prelude::*;

use super::*;

fn share() -> impl Strategy<Value = CacheShare> {
    prop_oneof![
        6 => (0_u8..=60).prop_map(CacheShare::Percent),
        1 => (0_u8..=100, 0_u8..=100).prop_map(|(a, b)| CacheShare::Range(a.min(b), a.max(b))),
        2 => (0_u32..32, 1_u32..12).prop_filter_map("no bits", |(first, count)| {
            CapacityBitmask::block(first, count).map(CacheShare::Bits)
        }),
        1 => any::<u32>().prop_filter_map("no bits", |bits| {
            CapacityBitmask::new(bits).map(CacheShare::Bits)
        }),
    ]
}

fn shares() -> impl Strategy<Value = CacheShares> {
    let one = || {
        let code_and_data = prop::option::weighted(0.2, (share(), share()));
        (share(), code_and_data)
            .prop_map(|(unified, code_and_data)| CdpShares { unified, code_and_data })
    };
    let some = prop::collection::vec((0_u32..3, one()), 0..2);
    (prop::option::weighted(0.9, one()), some).prop_map(|(all, some)| {
        let some = some.into_iter().map(|(id, it)| (id.to_string().parse().unwrap(), it));
        PerCache { all, some: some.collect() }
    })
}

fn bandwidths() -> impl Strategy<Value = PerCache<Vec<Bandwidth>>> {
    (0_u8..=100, any::<u32>()).prop_map(|(percent, rate)| {
        PerCache::all(vec![Bandwidth::Percent(percent), Bandwidth::MegabytesPerSecond(rate)])
    })
}

fn configs() -> impl Strategy<Value = ResctrlConfig> {
    let class = (prop::option::of(shares()), prop::option::of(bandwidths()));
    let classes = prop::collection::vec(class, 0..3);
    let partition = (shares(), bandwidths(), classes);
    prop::collection::vec(partition, 0..4).prop_map(|partitions| {
        let partitions = partitions.into_iter().enumerate().map(|(p, (l3, mb, classes))| {
            let classes = classes.into_iter().enumerate().map(|(c, (l3, mb))| {
                let name = format!("{p}.{c}").parse().unwrap();
                ResctrlClass { l3, mb, ..ResctrlClass::new(name) }
            });
            let (l3, mb, classes) = (Some(l3), Some(mb), classes.collect());
            ResctrlPartition { name: p.to_string(), l2: None, l3, mb, classes }
        });
        ResctrlConfig { options: ResctrlOptions::default(), partitions: partitions.collect() }
    })
}

fn machines() -> impl Strategy<Value = ResctrlInfo> {
    let units = prop_oneof![
        Just((BandwidthUnit::Percent, 100)),
        Just((BandwidthUnit::Megabytes, u32::MAX)),
        Just((BandwidthUnit::EighthsOfGigabyte, 2048)),
    ];
    let flags = (any::<bool>(), any::<bool>());
    (1_u32..=32, 1_u32..=4, flags, units, 0_u32..=10, 1_u32..=10).prop_map(
        |(width, bits_min, (is_split, is_sparse), (unit, max), min, step)| {
            let mask = CapacityBitmask::block(0, width).unwrap().bits();
            let l3 = CacheInfo { is_split, is_sparse, ..machines::cache(mask, bits_min, 3) };
            let mb = BandwidthInfo { unit, min, step, max, ids: vec![0, 2] };
            ResctrlInfo { l3: Some(l3), mb: Some(mb), closids: 8, ..ResctrlInfo::default() }
        },
    )
}

fn masks<'a>(
    class: &'a ResolvedClass,
) -> impl Iterator<Item = (&'static str, u32, CapacityBitmask)> + 'a {
    class.schemata.iter().flat_map(|(name, line)| match line {
        SchemaLine::Masks(masks) => masks.iter().map(|(id, mask)| (*name, *id, *mask)).collect(),
        SchemaLine::Bandwidth(_) => Vec::new(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_resolved_is_what_the_kernel_takes(config in configs(), info in machines()) {
        let resolved = match resolve(&config, &info) {
            Ok(resolved) => resolved,
            Err(problems) => return { prop_assert!(!problems.is_empty()); Ok(()) },
        };
        prop_assert_eq!(resolved.classes.len(), config.classes().count());
        let (l3, mb) = (info.l3.unwrap(), info.mb.unwrap());
        for class in &resolved.classes {
            let lines = if l3.is_split { 2 } else { 1 };
            prop_assert_eq!(masks(class).count(), lines * l3.caches.len());
            for (_, _, mask) in masks(class) {
                prop_assert!(cache::check_mask(&l3, mask).is_ok());
            }
            let Some(SchemaLine::Bandwidth(bounds)) = class.schemata.get("MB") else {
                panic!("no MB");
            };
            prop_assert_eq!(bounds.keys().copied().collect::<Vec<_>>(), mb.ids.clone());
            for bound in bounds.values() {
                prop_assert!(*bound <= mb.max && bound.is_multiple_of(mb.step));
            }
        }
        for (one, other) in resolved.classes.iter().zip(resolved.classes.iter().skip(1)) {
            let partition = |class: &ResolvedClass| class.name.as_str().split('.').next().unwrap().to_owned();
            if partition(one) != partition(other) {
                for (a, b) in masks(one).zip(masks(other)) {
                    prop_assert_eq!(a.2.bits() & b.2.bits(), 0);
                }
            }
        }
    }

    #[test]
    fn any_text_is_a_share_or_refused(text in "[0-9a-fx%,\\-]{0,12}") {
        if let Ok(share) = text.parse::<CacheShare>() {
            prop_assert_eq!(share.to_string().parse::<CacheShare>(), Ok(share));
        }
        if let Ok(ids) = text.parse::<CacheIds>() {
            prop_assert_eq!(ids.to_string().parse::<CacheIds>(), Ok(ids));
        }
    }
}
