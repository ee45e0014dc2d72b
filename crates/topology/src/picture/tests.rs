//! Pictures of machines.

use crate::picture::samples::*;
use crate::*;

#[test]
fn write_samples() {
    let Ok(dir) = std::env::var("BAYPLAN_PICTURES") else { return };
    let write =
        |name: &str, snapshot: Snapshot, seat: &dyn Fn(bayplan_types::CpuId) -> Option<Seat>| {
            let topology = derive(&snapshot).unwrap();
            println!("{name}: {:?}", topology.oddities());
            let started = std::time::Instant::now();
            let svg = render_svg(&topology, seat);
            println!("{name}: {} bytes, {:?}", svg.len(), started.elapsed());
            std::fs::write(format!("{dir}/{name}.svg"), svg).unwrap();
            std::fs::write(format!("{dir}/{name}.dot"), render_dot(&topology)).unwrap();
        };
    for (name, spec) in [
        ("one", "one-cpu"),
        ("eight", "core:4 pu:2"),
        ("none", "pack:2 core:2 offline:3"),
        ("xeon", "xeon-8480"),
        ("snc4", "xeon-8480-snc4"),
        ("epyc", "epyc-9654"),
        ("k1", "pack:4 numa:2 l3:1 core:64 pu:2"),
        ("smt8", "pack:8 numa:1 l3:2 core:8 pu:8"),
        ("k1l3", "pack:2 numa:4 l3:4 core:16 pu:2"),
        ("k8", "pack:16 numa:4 core:64 pu:2"),
        ("flat", "core:1024"),
        ("dies", "pack:2 die:2 numa:1 l3:2 core:6 pu:2"),
    ] {
        write(name, machine(spec), &|_| None);
    }
    write("hybrid", hybrid(), &|_| None);
    write("pmem", pmem_and_devices(), &|_| None);
    write("ledger", pmem_and_devices(), &seat);
    write("hbm", hbm_and_cxl(), &|_| None);
    write("across", across(), &|_| None);
    write("nodes-outside", machine("numa:4 pack:4 l3:1 core:6"), &|_| None);
    let mut foreign = pmem_and_devices();
    foreign.devices.push(device(
        "0000:20:00.0",
        0x02_0000,
        Some(1),
        &["</text><b>&amp;\"'\\", "WWWWWWWWWWWWWWW", "名前名前名前", "🦀🦀"],
    ));
    foreign.devices.push(device("0000:21:00.0", 0x02_0000, Some(1), &[&"W".repeat(200)]));
    write("foreign", foreign, &|_| None);
    let many = |cpu: bayplan_types::CpuId| {
        let (pod, class) = match cpu.0 % 512 {
            n if n < 8 => ("system".to_owned(), bayplan_types::CpuClass::Reserved),
            n if n % 64 < 40 => (
                format!("team-{}/service-{}/main", n / 64, n / 10),
                bayplan_types::CpuClass::Exclusive,
            ),
            n => (format!("numa {}", n / 64), bayplan_types::CpuClass::Shared),
        };
        let guests = (0..cpu.0 % 512 / 10).map(|n| format!("default/sidecar-{n}/main")).collect();
        Some(Seat {
            class,
            label: pod,
            guests: if class == bayplan_types::CpuClass::Shared { guests } else { vec![] },
        })
    };
    write("k1-ledger", machine("pack:4 numa:2 l3:1 core:64 pu:2"), &many);
    write("hybrid-ledger", hybrid(), &seat);
}
