//! Machines with what the synthetic line does not have, for the tests of pictures.

use bayplan_types::{Bytes, CoreId, CpuId, CpuSet, Khz, NodeId};

use bayplan_topology::*;

use crate::Seat;

pub(crate) fn machine(spec: &str) -> Snapshot {
    parse_machine(spec).unwrap()
}

pub(crate) fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Eight large cores of two threads and sixteen small ones that share level 2 caches by four.
pub(crate) fn hybrid() -> Snapshot {
    let mut snapshot = machine("pack:1 l3:1 core:32 isolated:14-15");
    snapshot.mem_total = Some(Bytes::gib(64));
    let cache = |level, shared: CpuSet, mib: u64| CacheFacts {
        level: Some(level),
        kind: Some(CacheKind::Unified),
        shared_cpus: Some(shared),
        size: Some(Bytes(mib << 20)),
        id: None,
    };
    for facts in &mut snapshot.cpus {
        let cpu = facts.id.0;
        let group = |size: u32| {
            (cpu / size * size..cpu / size * size + size).map(CpuId).collect::<CpuSet>()
        };
        let is_large = cpu < 16;
        let core = group(if is_large { 2 } else { 1 });
        facts.core_id = Some(CoreId(if is_large { cpu / 2 } else { cpu }));
        facts.thread_siblings = Some(core.clone());
        facts.caches = if is_large { vec![cache(2, core, 2)] } else { vec![cache(2, group(4), 4)] };
        facts.caches.push(cache(3, CpuSet::first_n(32), 36));
    }
    let kind = |name: &str, cpus| KindFacts { name: name.to_owned(), cpus: set(cpus) };
    snapshot.kinds = vec![kind("cpu_core", "0-15"), kind("cpu_atom", "16-31")];
    snapshot
}

pub(crate) fn device(address: &str, class: u32, node: Option<u32>, names: &[&str]) -> DeviceFacts {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let facts = DeviceFacts::new(address.parse().unwrap(), class);
    let is_network = class >> 16 == 2;
    DeviceFacts {
        node: node.map(NodeId),
        interfaces: if is_network { names.clone() } else { Vec::new() },
        dev_nodes: if is_network { Vec::new() } else { names },
        memory_node: None,
        ..facts
    }
}

fn memory(id: u32, gib: u64, distances: &[u32]) -> NodeFacts {
    NodeFacts {
        cpus: Some(CpuSet::new()),
        mem_total: Some(Bytes::gib(gib)),
        distances: distances.to_vec(),
        ..NodeFacts::new(NodeId(id))
    }
}

/// Two packages of two nodes with persistent memory, and devices of every kind.
pub(crate) fn pmem_and_devices() -> Snapshot {
    let mut snapshot =
        machine("pack:2 l3:1 numa:2 core:14 pu:2 mem:96 isolated:4-7,60-63 offline:13,69");
    for (id, node) in snapshot.nodes.iter_mut().enumerate() {
        node.distances = match id {
            0 => vec![10, 11, 21, 21, 17, 28],
            1 => vec![11, 10, 21, 21, 17, 28],
            2 => vec![21, 21, 10, 11, 28, 17],
            _ => vec![21, 21, 11, 10, 28, 17],
        };
    }
    snapshot.nodes.push(memory(4, 1008, &[17, 17, 28, 28, 10, 28]));
    snapshot.nodes.push(memory(5, 1008, &[28, 28, 17, 17, 28, 10]));
    snapshot.online_nodes = Some("0-5".parse().unwrap());
    let dax = |name: &str, node| DaxFacts {
        name: name.to_owned(),
        node: Some(NodeId(node)),
        origin: DaxOrigin::Pmem,
    };
    snapshot.dax = vec![dax("dax0.0", 4), dax("dax1.0", 5)];
    for facts in &mut snapshot.cpus {
        for l3 in &mut facts.caches {
            l3.size = Some(Bytes((385 << 20) / 10));
        }
    }
    snapshot.policies = (0..112)
        .map(|id| PolicyFacts {
            id,
            base: Some(Khz(if id % 56 < 6 { 2_600_000 } else { 2_100_000 })),
            ..PolicyFacts::default()
        })
        .collect();
    snapshot.devices = vec![
        device("0000:16:00.0", 0x02_0000, Some(0), &["ens1f0np0"]),
        device("0000:16:00.1", 0x02_0000, Some(0), &["ens1f1np1"]),
        device("0000:00:1f.6", 0x02_0000, None, &["eno1"]),
        device("0000:c9:00.0", 0x01_0802, Some(3), &["nvme0n1"]),
        device("0000:ca:00.0", 0x01_0802, Some(3), &["nvme1n1"]),
        device("0000:98:00.0", 0x03_0200, Some(2), &["nvidia0", "dri/card1", "dri/renderD128"]),
        device("0000:00:14.0", 0x0c_0330, None, &[]),
        device("0000:00:15.0", 0x11_8000, None, &[]),
        device("0000:00:16.0", 0x07_8000, None, &[]),
    ];
    for bus in ["6a", "6f", "74", "79"] {
        let mut engine = device(&format!("0000:{bus}:01.0"), 0x08_8000, Some(1), &[]);
        (engine.vendor, engine.device) = (Some(0x8086), Some(0x0b25));
        engine.driver = Some("idxd".to_owned());
        snapshot.devices.push(engine);
    }
    for function in 0..8 {
        let mut vf = device(&format!("0000:16:01.{function}"), 0x02_0000, Some(0), &[]);
        vf.physical = Some("0000:16:00.0".parse().unwrap());
        vf.interfaces.extend((function == 0).then(|| "ens1f0v0".to_owned()));
        snapshot.devices.push(vf);
    }
    snapshot
}

/// What runs on [`pmem_and_devices`].
pub(crate) fn seat(cpu: CpuId) -> Option<Seat> {
    use bayplan_types::CpuClass;
    let within = |list: &str| set(list).contains(cpu);
    let owned =
        |class, label: &str| Some(Seat { class, label: label.to_owned(), guests: Vec::new() });
    let pool = |label: &str, guests: &[&str]| {
        let guests = guests.iter().map(|guest| (*guest).to_owned()).collect();
        Some(Seat { class: CpuClass::Shared, label: label.to_owned(), guests })
    };
    match () {
        () if within("0-1,56-57") => owned(CpuClass::Reserved, "system pods"),
        () if within("4-5,60-61") => owned(CpuClass::Isolated, "telco/upf-0/dataplane"),
        () if within("6-7,62-63") => owned(CpuClass::Isolated, ""),
        () if within("8-11,64-67") => owned(CpuClass::Exclusive, "default/web-7d4b9/app"),
        () if within("14-19,70-75") => owned(CpuClass::Exclusive, "shop/postgres-0/postgres"),
        () if within("28-41,84-97") => owned(CpuClass::Exclusive, "ml/trainer-0/train"),
        () if within("0-13,56-69") => pool("numa 0", &["default/web-7d4b9/sidecar"]),
        () if within("14-27,70-83") => pool(
            "numa 1",
            &[
                "kube-system/coredns-1/coredns",
                "monitoring/prometheus-0/prometheus",
                "default/job-1/a",
            ],
        ),
        () if within("42-50") => pool("numa 3", &["batch/render-1/render"]),
        () => None,
    }
}

/// High-bandwidth memory near each node and memory behind CXL.
pub(crate) fn hbm_and_cxl() -> Snapshot {
    let mut snapshot = machine("pack:1 l3:1 numa:4 core:14 pu:2 mem:64");
    let row = |own: usize| -> Vec<u32> {
        (0..9)
            .map(|other| match (own, other) {
                (a, b) if a == b => 10,
                (a, b) if b == a + 4 => 13,
                (_, 8) => 24,
                _ => 23,
            })
            .collect()
    };
    for (id, node) in snapshot.nodes.iter_mut().enumerate() {
        node.distances = row(id);
    }
    for id in 4..8 {
        let mut near: Vec<u32> = row(id);
        if let Some(slot) = near.get_mut(id - 4) {
            *slot = 13;
        }
        snapshot.nodes.push(memory(u32::try_from(id).unwrap(), 16, &near));
        snapshot.dax.push(DaxFacts {
            name: format!("dax{id}.0"),
            node: Some(NodeId(u32::try_from(id).unwrap())),
            origin: DaxOrigin::SpecialPurpose,
        });
    }
    snapshot.nodes.push(memory(8, 256, &[24, 25, 25, 25, 26, 26, 26, 26, 10]));
    snapshot.dax.push(DaxFacts {
        name: "dax9.0".into(),
        node: Some(NodeId(8)),
        origin: DaxOrigin::Cxl,
    });
    snapshot.devices = vec![device("0000:38:00.0", 0x05_0210, Some(8), &["cxl/mem0"])];
    snapshot.online_nodes = Some("0-8".parse().unwrap());
    snapshot
}

/// A node that lies across packages.
pub(crate) fn across() -> Snapshot {
    let mut snapshot = machine("pack:2 numa:1 core:4");
    snapshot.nodes[0].cpus = Some(set("0-4"));
    snapshot.nodes[1].cpus = Some(set("5-7"));
    snapshot.nodes.push(memory(2, 64, &[17, 28, 10]));
    snapshot.online_nodes = None;
    snapshot.nodes[0].distances = vec![10, 21, 17];
    snapshot.nodes[1].distances = vec![21, 10, 28];
    snapshot
}
