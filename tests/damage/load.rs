//! The machines that are damaged.

use std::fs;
use std::path::Path;

use bayplan_host::kernel_files::{Entry, KernelFiles};
use bayplan_topology::{Snapshot, parse_machine};

const CPU_DIR: &str = "sys/devices/system/cpu";
const NODE_DIR: &str = "sys/devices/system/node";
/// First line of the text form of kernel files.
const HEADER: &str = "bayplan-files/1\n";

pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) files: KernelFiles,
}

/// Every machine that there is.
pub(crate) fn machines() -> Vec<Machine> {
    let mut machines = small_machines();
    let folders = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/machines")).unwrap();
    for folder in folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        machines.extend(load(&folder).map(|files| Machine { name, files }));
    }
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(machines.len() >= 7, "{}", machines.len());
    machines
}

/// Those that the fuzz targets damage, too: eight CPUs at most, and every kind of file.
pub(crate) fn small_machines() -> Vec<Machine> {
    let seeds = [
        ("server", include_str!("../fuzz/seeds/files/server.txt")),
        ("hybrid", include_str!("../fuzz/seeds/files/hybrid.txt")),
        ("old", include_str!("../fuzz/seeds/files/old.txt")),
    ];
    let machines = seeds.into_iter().map(|(name, text)| Machine {
        name: name.to_owned(),
        files: KernelFiles::parse(text).unwrap(),
    });
    machines.collect()
}

/// A folder holds one line for a synthetic machine, or kernel files in their text form.
fn load(folder: &Path) -> Option<KernelFiles> {
    if let Ok(line) = fs::read_to_string(folder.join("machine.txt")) {
        return Some(write(&parse_machine(line.trim()).unwrap()));
    }
    let texts =
        fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()));
    let files = texts.map(Result::unwrap).find(|text| text.starts_with(HEADER))?;
    Some(KernelFiles::parse(&files).unwrap())
}

/// What Linux shows of a synthetic machine, as far as those have it.
fn write(snapshot: &Snapshot) -> KernelFiles {
    let mut files = KernelFiles::default();
    let mut text = |path: String, text: Option<String>| {
        if let Some(text) = text {
            files.insert(path, Entry::Text(text));
        }
    };
    for (file, cpus) in [
        ("present", &snapshot.present),
        ("possible", &snapshot.possible),
        ("online", &snapshot.online),
        ("isolated", &snapshot.isolated),
    ] {
        text(format!("{CPU_DIR}/{file}"), cpus.as_ref().map(ToString::to_string));
    }
    for cpu in &snapshot.cpus {
        let dir = format!("{CPU_DIR}/cpu{}", cpu.id);
        let set = |cpus: &Option<_>| cpus.as_ref().map(ToString::to_string);
        text(format!("{dir}/online"), cpu.online.map(|on| u8::from(on).to_string()));
        let package = cpu.package_id.map(|id| id.to_string());
        text(format!("{dir}/topology/physical_package_id"), package);
        text(format!("{dir}/topology/die_id"), cpu.die_id.map(|id| id.to_string()));
        text(format!("{dir}/topology/core_id"), cpu.core_id.map(|id| id.to_string()));
        text(format!("{dir}/topology/core_cpus_list"), set(&cpu.thread_siblings));
        for cache in &cpu.caches {
            let dir = format!("{dir}/cache/index3");
            text(format!("{dir}/level"), cache.level.map(|level| level.to_string()));
            text(format!("{dir}/type"), Some("Unified".to_owned()));
            text(format!("{dir}/shared_cpu_list"), set(&cache.shared_cpus));
            text(format!("{dir}/id"), cache.id.map(|id| id.to_string()));
        }
    }
    text(format!("{NODE_DIR}/online"), snapshot.online_nodes.as_ref().map(ToString::to_string));
    for node in &snapshot.nodes {
        let dir = format!("{NODE_DIR}/node{}", node.id);
        let row: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        text(format!("{dir}/cpulist"), node.cpus.as_ref().map(ToString::to_string));
        text(format!("{dir}/distance"), Some(row.join(" ")));
        let total = node.mem_total.map(|total| format!("MemTotal: {} kB", total.0 >> 10));
        text(format!("{dir}/meminfo"), total);
    }
    files
}
