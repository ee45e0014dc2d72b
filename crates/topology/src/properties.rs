//! From facts to the tree: sound machines and corrupted ones at random.

use bayplan_types::{Bytes, CoreId, CpuId, CpuSet, DieId, NodeId, PackageId};
use proptest::prelude::*;

use crate::*;

fn machine(spec: &str) -> Snapshot {
    parse_machine(spec).unwrap()
}

/// A synthetic machine with the counts that were asked for.
#[derive(Clone, Debug)]
struct Asked {
    spec: String,
    counts: [(Level, usize); 5],
    cpus: usize,
}

fn asked() -> impl Strategy<Value = Asked> {
    let counts = (1_usize..4, 1_usize..3, 1_usize..4, 1_usize..4, 1_usize..6);
    let smt = prop::sample::select(vec![1_usize, 2, 4, 8]);
    (counts, smt, any::<bool>()).prop_map(|((pack, die, numa, l3, core), pu, l3_outside)| {
        let inner = if l3_outside {
            format!("l3:{l3} numa:{numa}")
        } else {
            format!("numa:{numa} l3:{l3}")
        };
        let dies = pack * die;
        let (l3s, numas) = if l3_outside { (l3, l3 * numa) } else { (numa * l3, numa) };
        let cores = dies * numa * l3 * core;
        Asked {
            spec: format!("pack:{pack} die:{die} {inner} core:{core} pu:{pu}"),
            counts: [
                (Level::Package, pack),
                (Level::Die, dies),
                (Level::NumaNode, dies * numas),
                (Level::L3, dies * l3s),
                (Level::Core, cores),
            ],
            cpus: cores * pu,
        }
    })
}

/// One way to damage a snapshot; the numbers are taken modulo what is there.
#[derive(Clone, Debug)]
enum Damage {
    LoseCpu(usize),
    Siblings(usize, CpuSet),
    L3(usize, CpuSet),
    Package(usize, Option<u32>),
    Die(usize, Option<u32>),
    Core(usize, Option<u32>),
    Number(usize, u32),
    Online(Option<CpuSet>),
    Isolated(CpuSet),
    Present(CpuSet),
    LoseNode(usize),
    NodeCpus(usize, Option<CpuSet>),
    NodeMemory(usize, Option<u64>),
    NodeNumber(usize, u32),
    Distances(usize, Vec<u32>),
    OnlineNodes(Option<Vec<u32>>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let cpus = || {
        let members = prop::collection::vec(0_u32..80, 0..12);
        members.prop_map(|members| members.into_iter().map(CpuId).collect::<CpuSet>())
    };
    let number = || prop_oneof![0_u32..8, Just(u32::MAX), Just(16_383), Just(16_384), Just(2_047)];
    let some = |strategy| prop::option::of(strategy);
    let at = || 0_usize..200;
    prop_oneof![
        at().prop_map(Damage::LoseCpu),
        (at(), cpus()).prop_map(|(at, cpus)| Damage::Siblings(at, cpus)),
        (at(), cpus()).prop_map(|(at, cpus)| Damage::L3(at, cpus)),
        (at(), some(number())).prop_map(|(at, id)| Damage::Package(at, id)),
        (at(), some(number())).prop_map(|(at, id)| Damage::Die(at, id)),
        (at(), some(number())).prop_map(|(at, id)| Damage::Core(at, id)),
        (at(), number()).prop_map(|(at, id)| Damage::Number(at, id)),
        prop::option::of(cpus()).prop_map(Damage::Online),
        cpus().prop_map(Damage::Isolated),
        cpus().prop_map(Damage::Present),
        at().prop_map(Damage::LoseNode),
        (at(), prop::option::of(cpus())).prop_map(|(at, cpus)| Damage::NodeCpus(at, cpus)),
        (at(), prop::option::of(0_u64..3)).prop_map(|(at, bytes)| Damage::NodeMemory(at, bytes)),
        (at(), number()).prop_map(|(at, id)| Damage::NodeNumber(at, id)),
        (at(), prop::collection::vec(number(), 0..6))
            .prop_map(|(at, row)| Damage::Distances(at, row)),
        prop::option::of(prop::collection::vec(0_u32..9, 0..6)).prop_map(Damage::OnlineNodes),
    ]
}

fn pick<T>(items: &mut [T], at: usize) -> Option<&mut T> {
    let len = items.len().max(1);
    items.get_mut(at % len)
}

fn apply(snapshot: &mut Snapshot, damage: Damage) {
    let Snapshot { cpus, nodes, .. } = snapshot;
    match damage {
        Damage::LoseCpu(at) if !cpus.is_empty() => drop(cpus.remove(at % cpus.len())),
        Damage::LoseNode(at) if !nodes.is_empty() => drop(nodes.remove(at % nodes.len())),
        Damage::LoseCpu(_) | Damage::LoseNode(_) => {}
        Damage::Siblings(at, set) => {
            pick(cpus, at).into_iter().for_each(|cpu| cpu.thread_siblings = Some(set.clone()));
        }
        Damage::L3(at, set) => {
            let l3 = pick(cpus, at).and_then(|cpu| cpu.caches.last_mut());
            l3.into_iter().for_each(|l3| l3.shared_cpus = Some(set.clone()));
        }
        Damage::Package(at, id) => {
            pick(cpus, at).into_iter().for_each(|cpu| cpu.package_id = id.map(PackageId));
        }
        Damage::Die(at, id) => {
            pick(cpus, at).into_iter().for_each(|cpu| cpu.die_id = id.map(DieId));
        }
        Damage::Core(at, id) => {
            pick(cpus, at).into_iter().for_each(|cpu| cpu.core_id = id.map(CoreId));
        }
        Damage::Number(at, id) => pick(cpus, at).into_iter().for_each(|cpu| cpu.id = CpuId(id)),
        Damage::Online(set) => snapshot.online = set,
        Damage::Isolated(set) => snapshot.isolated = Some(set),
        Damage::Present(set) => snapshot.present = Some(set),
        Damage::NodeCpus(at, set) => {
            pick(nodes, at).into_iter().for_each(|node| node.cpus = set.clone());
        }
        Damage::NodeMemory(at, bytes) => {
            pick(nodes, at).into_iter().for_each(|node| node.mem_total = bytes.map(Bytes));
        }
        Damage::NodeNumber(at, id) => {
            pick(nodes, at).into_iter().for_each(|node| node.id = NodeId(id));
        }
        Damage::Distances(at, row) => {
            pick(nodes, at).into_iter().for_each(|node| node.distances = row.clone());
        }
        Damage::OnlineNodes(ids) => {
            snapshot.online_nodes = ids.map(|ids| ids.into_iter().map(NodeId).collect());
        }
    }
}

proptest! {
    #[test]
    fn a_synthetic_machine_is_sound_and_as_asked(asked in asked()) {
        let topology = derive(&machine(&asked.spec)).unwrap();
        prop_assert_eq!(check_topology(&topology), Vec::<String>::new());
        prop_assert_eq!(topology.oddities(), &[]);
        for (level, count) in asked.counts {
            let found = topology.objects().iter().filter(|object| object.level == level).count();
            prop_assert_eq!(found, count, "{} of `{}`", level, asked.spec);
        }
        prop_assert_eq!(topology.cpus().len(), asked.cpus);
        prop_assert_eq!(topology.fingerprint(), derive(&machine(&asked.spec)).unwrap().fingerprint());
    }

    #[test]
    fn whatever_is_offline_the_machine_is_sound(
        asked in asked(),
        offline in prop::collection::btree_set(0_u32..64, 0..40),
    ) {
        let last = u32::try_from(asked.cpus).unwrap() - 1;
        let offline: CpuSet = offline.into_iter().filter(|cpu| *cpu < last).map(CpuId).collect();
        let spec = format!("{} offline:{offline}", asked.spec);
        let topology = derive(&machine(&spec)).unwrap();
        prop_assert_eq!(check_topology(&topology), Vec::<String>::new());
        prop_assert_eq!(topology.offline(), &offline);
        prop_assert_eq!(topology.cpus().len(), asked.cpus - offline.len());
        prop_assert_eq!(topology.oddities(), &[]);
    }

    #[test]
    fn a_corrupted_machine_is_sound_or_refused(
        asked in asked(),
        damages in prop::collection::vec(damage(), 1..12),
    ) {
        let mut snapshot = machine(&asked.spec);
        for damage in damages {
            apply(&mut snapshot, damage);
        }
        if let Ok(topology) = derive(&snapshot) {
            prop_assert_eq!(check_topology(&topology), Vec::<String>::new());
            let _json = to_json(&topology);
        }
    }
}
