//! Random machines, and what containers ask for on them.

use super::*;

/// What a history does next.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create {
        exclusive: usize,
        shared: Option<u64>,
        gib: u64,
        limit: Option<u64>,
        reserved: bool,
        wishes: Vec<&'static str>,
    },
    Release(usize),
    Resize {
        which: usize,
        exclusive: usize,
        shared: Option<u64>,
    },
    Restart,
    Narrow,
    Group {
        cpus: usize,
        exactly: Option<u64>,
        wishes: Vec<&'static str>,
    },
    GroupSize {
        which: usize,
        cpus: usize,
    },
    Join {
        which: usize,
        own: usize,
        gib: u64,
        wishes: Vec<&'static str>,
    },
    Compose {
        which: usize,
        sizes: Vec<usize>,
        wishes: Vec<&'static str>,
    },
}

/// Half of the containers wish nothing.
fn any_wishes() -> impl Strategy<Value = Vec<&'static str>> {
    const WISHES: [&str; 36] = [
        "idle",
        "shared",
        "spread",
        "whole",
        "each-core",
        "priority:Low!",
        "apart:Core",
        "apart:Core!",
        "apart:L3",
        "apart:L3!",
        "apart:Numa!",
        "isolated",
        "isolated!",
        "kind:E",
        "priority:High",
        "avoid:1-3",
        "balance",
        "within:Numa",
        "even",
        "hide",
        "bound",
        "memory:Hbm",
        "near:0",
        "near:1!",
        "with:1",
        "without:2",
        "preserve",
        "keep-mems",
        "immovable",
        "mate:1",
        "rest:3",
        "restmem:2",
        "one!",
        "fewest:Numa",
        "huge2M:1",
        "huge1G:2",
    ];
    let some = prop::collection::vec(prop::sample::select(&WISHES[..]), 1..4);
    prop_oneof![4 => Just(Vec::new()), 4 => some, 1 => Just(vec!["near:0", "near:1", "each"])]
}

/// No container asks for more exclusive CPUs than `exclusive_max`.
pub(super) fn any_op(exclusive_max: usize) -> impl Strategy<Value = Op> {
    let shared = || prop::option::of(0u64..4000);
    prop_oneof![
        5 => (
            0..=exclusive_max, shared(), 0u64..12, prop::option::of(0u64..40), prop::bool::weighted(0.1),
            any_wishes(),
        )
            .prop_map(|(exclusive, shared, gib, limit, reserved, wishes)| Op::Create {
                exclusive, shared, gib, limit, reserved, wishes
            }),
        3 => any::<usize>().prop_map(Op::Release),
        1 => (any::<usize>(), 0..=exclusive_max + 3, shared())
            .prop_map(|(which, exclusive, shared)| Op::Resize { which, exclusive, shared }),
        1 => Just(Op::Restart),
        1 => Just(Op::Narrow),
    ]
}

/// The same, with groups.
pub(super) fn any_group_op(exclusive_max: usize) -> impl Strategy<Value = Op> {
    let exactly = prop::option::weighted(0.3, any::<u64>());
    prop_oneof![
        6 => any_op(exclusive_max),
        2 => (1..=exclusive_max, exactly, any_wishes())
            .prop_map(|(cpus, exactly, wishes)| Op::Group { cpus, exactly, wishes }),
        3 => (any::<usize>(), 0..=exclusive_max + 3)
            .prop_map(|(which, cpus)| Op::GroupSize { which, cpus }),
        5 => (any::<usize>(), 0usize..3, 0u64..6, any_wishes())
            .prop_map(|(which, own, gib, wishes)| Op::Join { which, own, gib, wishes }),
        2 => (any::<usize>(), prop::collection::vec(1usize..4, 1..4), any_wishes())
            .prop_map(|(which, sizes, wishes)| Op::Compose { which, sizes, wishes }),
    ]
}

pub(super) fn any_machine() -> impl Strategy<Value = (String, String)> {
    let shape = (1u32..4, 1u32..3, 1u32..3, 1u32..4, 1u32..5, 1u32..3, any::<bool>());
    let extra = prop::sample::select(vec![
        "",
        "",
        "",
        " ecore:3",
        " pmem:16/pack",
        " hbm:2",
        " cxl:8/machine",
        " huge:2M=512",
        " huge:1G=2",
        " fast:1",
    ]);
    let policy = prop::sample::select(vec!["", "", "one-shared-pool "]);
    let offline = prop::option::weighted(0.2, 1u32..4);
    (policy, shape, prop::bool::ANY, prop::bool::weighted(0.2), extra, offline).prop_map(
        |(policy, (pack, die, numa, l3, core, pu, l3_first), reserve, isolate, extra, offline)| {
            let middle = if l3_first {
                format!("l3:{l3} numa:{numa}")
            } else {
                format!("numa:{numa} l3:{l3}")
            };
            let cpus = pack * die * numa * l3 * core * pu;
            let mut line =
                format!("{policy}pack:{pack} die:{die} {middle} core:{core} pu:{pu} mem:8");
            if isolate && cpus > 2 {
                line.push_str(&format!(" isolated:{}", cpus - 1));
            }
            if cpus > 4 {
                line.push_str(extra);
                line.push_str(&offline.map(|cpu| format!(" offline:{cpu}")).unwrap_or_default());
            }
            (line, if reserve && cpus > 2 { "0".to_owned() } else { String::new() })
        },
    )
}

/// From one CPU to 1,024, most of them with packages, nodes or cores that differ.
pub(super) fn uneven_machine() -> impl Strategy<Value = (String, String)> {
    let line = prop::sample::select(vec![
        "numa:1 core:1",
        "numa:1 l3:1 core:6 pu:2 ecore:8 mem:8",
        "pack:3 numa:1 core:1,9,4 pu:2 mem:8",
        "pack:2 numa:2 core:20,3,16,1 pu:4 mem:8 hbm:2",
        "pack:2 l3:1 numa:3 core:8 pu:2 mem:8 pmem:16/pack",
        "pack:4 numa:2 core:30,64,1,40,64,8,64,50 pu:2 mem:8 cxl:64/machine",
        "pack:8 numa:1 core:16 pu:8 mem:16",
        "pack:2 numa:8 l3:4 core:8 pu:2 mem:8 huge:2M=512",
    ]);
    let offline = prop::option::of(1u32..6);
    (line, offline, prop::bool::ANY).prop_map(|(line, offline, reserve)| match line {
        "numa:1 core:1" => (line.to_owned(), String::new()),
        _ => {
            let offline = offline.map(|cpu| format!(" offline:{cpu}")).unwrap_or_default();
            (format!("{line}{offline}"), if reserve { "0".to_owned() } else { String::new() })
        }
    })
}
