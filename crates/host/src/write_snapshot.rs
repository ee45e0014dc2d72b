//! A machine as kernel files. In: a [`Snapshot`], mostly a synthetic one. Out: the files that Linux would show of it, which
//! [`crate::read_files`] reads back to the same snapshot, and which other programs that read sysfs understand, too.

use std::collections::BTreeMap;
use std::fmt::Display;

use bayplan_topology::{
    AccessFacts, CacheFacts, CacheKind, CpuFacts, DaxFacts, DaxOrigin, DeviceFacts, NodeFacts,
    Snapshot,
};
use bayplan_types::{Bytes, CpuId, CpuSet, DieId, PackageId};

use crate::kernel_files::{Entry, KernelFiles};
use crate::read_snapshot::{NVIDIA_DIR, PODS_RECORDED};
use crate::read_speed_select::write_speed_select;

const CPU_DIR: &str = "sys/devices/system/cpu";
const NODE_DIR: &str = "sys/devices/system/node";

/// The files of a machine.
pub fn write_snapshot(snapshot: &Snapshot) -> KernelFiles {
    let mut files = Writer::default();
    files.cpus(snapshot);
    files.nodes(snapshot);
    for dax in &snapshot.dax {
        files.dax(dax);
    }
    for device in &snapshot.devices {
        files.device(device);
    }
    if let Some(driver) = &snapshot.kernel.cpufreq_driver {
        for policy in &snapshot.policies {
            files.text(format!("{CPU_DIR}/cpufreq/policy{}/scaling_driver", policy.id), driver);
        }
    }
    if let Some(Ok(facts)) = &snapshot.kernel.speed_select {
        for (path, text) in write_speed_select(facts) {
            files.text(path, text);
        }
    }
    let (cpus, mems) = (&snapshot.pods_cpus, &snapshot.pods_mems);
    files.maybe(format!("{PODS_RECORDED}/cpuset.cpus.effective"), cpus.as_ref());
    files.maybe(format!("{PODS_RECORDED}/cpuset.mems.effective"), mems.as_ref());
    files.0
}

#[derive(Default)]
struct Writer(KernelFiles);

impl Writer {
    fn text(&mut self, path: String, text: impl Display) {
        self.0.insert(path, Entry::Text(text.to_string()));
    }

    fn maybe(&mut self, path: String, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(path, value);
        }
    }

    /// A set as a mask and as a list, as the kernel has most of them.
    fn both(&mut self, dir: &str, mask: &str, list: &str, cpus: &CpuSet) {
        self.text(format!("{dir}/{mask}"), cpus.render_mask());
        self.text(format!("{dir}/{list}"), cpus);
    }

    fn cpus(&mut self, snapshot: &Snapshot) {
        for (file, cpus) in [
            ("present", &snapshot.present),
            ("possible", &snapshot.possible),
            ("online", &snapshot.online),
            ("isolated", &snapshot.isolated),
            ("nohz_full", &snapshot.nohz_full),
        ] {
            self.maybe(format!("{CPU_DIR}/{file}"), cpus.as_ref());
        }
        let packages = Packages::of(&snapshot.cpus);
        for cpu in &snapshot.cpus {
            self.cpu(cpu, &packages);
        }
        for kind in &snapshot.kinds {
            self.text(format!("sys/devices/{}/cpus", kind.name), &kind.cpus);
        }
        for policy in &snapshot.policies {
            let file = |name: &str| format!("{CPU_DIR}/cpufreq/policy{}/{name}", policy.id);
            let cpus = policy.cpus.clone().unwrap_or_else(|| CpuSet::from(CpuId(policy.id)));
            let listed: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
            self.text(file("related_cpus"), listed.join(" "));
            for (name, frequency) in [
                ("base_frequency", policy.base),
                ("cpuinfo_min_freq", policy.min),
                ("cpuinfo_max_freq", policy.max),
            ] {
                self.maybe(file(name), frequency.map(|khz| khz.0));
            }
            self.maybe(file("energy_performance_preference"), policy.preference.as_ref());
            // Where older programs look.
            self.0.insert(
                format!("{CPU_DIR}/cpu{}/cpufreq", policy.id),
                Entry::Link(format!("../cpufreq/policy{}", policy.id)),
            );
        }
    }

    fn cpu(&mut self, cpu: &CpuFacts, packages: &Packages) {
        let dir = format!("{CPU_DIR}/cpu{}", cpu.id);
        self.0.insert(dir.clone(), Entry::Dir);
        self.maybe(format!("{dir}/online"), cpu.online.map(u8::from));
        self.maybe(format!("{dir}/cpu_capacity"), cpu.capacity);
        let topology = format!("{dir}/topology");
        self.maybe(format!("{topology}/physical_package_id"), cpu.package_id);
        self.maybe(format!("{topology}/die_id"), cpu.die_id);
        self.maybe(format!("{topology}/core_id"), cpu.core_id);
        if let Some(cpus) = &cpu.thread_siblings {
            self.both(&topology, "core_cpus", "core_cpus_list", cpus);
            self.both(&topology, "thread_siblings", "thread_siblings_list", cpus);
        }
        if let Some(cpus) = &cpu.cluster_cpus {
            self.both(&topology, "cluster_cpus", "cluster_cpus_list", cpus);
        }
        for (of, around) in [("book", &cpu.book), ("drawer", &cpu.drawer)] {
            let Some(around) = around else { continue };
            self.maybe(format!("{topology}/{of}_id"), around.id);
            let names = (format!("{of}_siblings"), format!("{of}_siblings_list"));
            self.both(&topology, &names.0, &names.1, &around.cpus);
        }
        if let Some(cpus) = packages.package(cpu).or(cpu.package_cpus.as_ref()) {
            self.both(&topology, "package_cpus", "package_cpus_list", cpus);
            self.both(&topology, "core_siblings", "core_siblings_list", cpus);
        }
        if let Some(cpus) = packages.die(cpu) {
            self.both(&topology, "die_cpus", "die_cpus_list", cpus);
        }
        for (index, cache) in cache_indexes(cpu) {
            let dir = format!("{dir}/cache/index{index}");
            self.maybe(format!("{dir}/level"), cache.level);
            let kind = cache.kind.map(|kind| match kind {
                CacheKind::Data => "Data",
                CacheKind::Instruction => "Instruction",
                CacheKind::Unified => "Unified",
            });
            self.maybe(format!("{dir}/type"), kind);
            self.maybe(format!("{dir}/size"), cache.size.map(|size| format!("{}K", size.0 >> 10)));
            self.maybe(format!("{dir}/id"), cache.id);
            if let Some(cpus) = &cache.shared_cpus {
                self.both(&dir, "shared_cpu_map", "shared_cpu_list", cpus);
            }
        }
    }

    fn nodes(&mut self, snapshot: &Snapshot) {
        self.maybe(format!("{NODE_DIR}/online"), snapshot.online_nodes.as_ref());
        self.maybe(format!("{NODE_DIR}/has_normal_memory"), snapshot.normal_memory.as_ref());
        for node in &snapshot.nodes {
            self.node(node);
        }
        if let Some(total) = snapshot.mem_total {
            self.text("proc/meminfo".to_owned(), format!("MemTotal: {} kB", total.0 >> 10));
        }
        for tier in &snapshot.tiers {
            let path =
                format!("sys/devices/virtual/memory_tiering/memory_tier{}/nodelist", tier.tier);
            self.text(path, &tier.nodes);
        }
    }

    fn node(&mut self, node: &NodeFacts) {
        let dir = format!("{NODE_DIR}/node{}", node.id);
        self.0.insert(dir.clone(), Entry::Dir);
        if let Some(cpus) = &node.cpus {
            self.both(&dir, "cpumap", "cpulist", cpus);
        }
        if let Some(total) = node.mem_total {
            let line = format!("Node {} MemTotal: {} kB", node.id, total.0 >> 10);
            self.text(format!("{dir}/meminfo"), line);
        }
        let row: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        if !row.is_empty() {
            self.text(format!("{dir}/distance"), row.join(" "));
        }
        for pages in &node.huge_pages {
            let dir = format!("{dir}/hugepages/hugepages-{}kB", pages.size.0 >> 10);
            self.text(format!("{dir}/nr_hugepages"), pages.total);
            self.text(format!("{dir}/free_hugepages"), pages.free);
        }
        for access in &node.accesses {
            self.access(&dir, access);
        }
        for (index, Bytes(size)) in node.side_caches.iter().enumerate() {
            self.text(format!("{dir}/memory_side_cache/index{}/size", index + 1), size);
        }
    }

    fn access(&mut self, node: &str, access: &AccessFacts) {
        let dir = format!("{node}/access{}/initiators", access.class);
        self.0.insert(dir.clone(), Entry::Dir);
        for id in access.initiators.iter() {
            let target = format!("../../../node{id}");
            self.0.insert(format!("{dir}/node{id}"), Entry::Link(target));
        }
        for (file, value) in [
            ("read_bandwidth", access.read_bandwidth),
            ("write_bandwidth", access.write_bandwidth),
            ("read_latency", access.read_latency),
            ("write_latency", access.write_latency),
        ] {
            self.maybe(format!("{dir}/{file}"), value);
        }
    }

    fn dax(&mut self, dax: &DaxFacts) {
        let place = match dax.origin {
            DaxOrigin::Pmem => "LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region0",
            DaxOrigin::Cxl => "platform/ACPI0017:00/root0/decoder0.0/region0",
            DaxOrigin::SpecialPurpose => "platform/hmem.0",
        };
        let path = format!("devices/{place}/{}", dax.name);
        let node = dax.node.map_or_else(|| "-1".to_owned(), |node| node.to_string());
        self.text(format!("sys/{path}/target_node"), node);
        let link = Entry::Link(format!("../../../{path}"));
        self.0.insert(format!("sys/bus/dax/devices/{}", dax.name), link);
    }

    fn device(&mut self, device: &DeviceFacts) {
        let address = device.address;
        let below_sys = format!("devices/pci{:04x}:{:02x}/{address}", address.domain, address.bus);
        let dir = format!("sys/{below_sys}");
        let link = Entry::Link(format!("../../../{below_sys}"));
        self.0.insert(format!("sys/bus/pci/devices/{address}"), link);
        self.text(format!("{dir}/class"), format_args!("0x{:06x}", device.class));
        self.maybe(format!("{dir}/vendor"), device.vendor.map(|id| format!("0x{id:04x}")));
        self.maybe(format!("{dir}/device"), device.device.map(|id| format!("0x{id:04x}")));
        let node = device.node.map_or_else(|| "-1".to_owned(), |node| node.to_string());
        self.text(format!("{dir}/numa_node"), node);
        if let Some(cpus) = &device.local_cpus {
            self.both(&dir, "local_cpus", "local_cpulist", cpus);
        }
        if let Some(physical) = device.physical {
            self.0.insert(format!("{dir}/physfn"), Entry::Link(format!("../{physical}")));
        }
        if let Some(driver) = &device.driver {
            let target = format!("../../../bus/pci/drivers/{driver}");
            self.0.insert(format!("{dir}/driver"), Entry::Link(target));
        }
        if let Some(node) = device.memory_node {
            let dir = format!("{NVIDIA_DIR}/{address}");
            self.text(format!("{dir}/numa_status"), format_args!("Node: {node}"));
        }
        for interface in &device.interfaces {
            self.0.insert(format!("{dir}/net/{interface}"), Entry::Dir);
        }
        for node in &device.dev_nodes {
            let class = class_of(node);
            let name = node.rsplit('/').next().unwrap_or(node);
            self.text(format!("{dir}/{class}/{name}/uevent"), format_args!("DEVNAME={node}"));
            let target = format!("../../{below_sys}/{class}/{name}");
            self.0.insert(format!("sys/class/{class}/{name}"), Entry::Link(target));
        }
    }
}

/// The class with members that make device nodes of such a name.
fn class_of(node: &str) -> &'static str {
    let is_controller = node
        .strip_prefix("nvme")
        .is_some_and(|rest| rest.bytes().all(|digit| digit.is_ascii_digit()));
    match node.split_once('/') {
        Some(("dri", _)) => "drm",
        Some(("accel", _)) => "accel",
        Some(("infiniband", _)) => "infiniband_verbs",
        _ if is_controller => "nvme",
        _ => "block",
    }
}

/// Caches with the number that Linux gives their directory, where the instruction half of level 1 comes second.
fn cache_indexes(cpu: &CpuFacts) -> impl Iterator<Item = (usize, &CacheFacts)> {
    let has_split = |level: Option<u32>| level.is_some_and(|level| level > 1);
    cpu.caches
        .iter()
        .enumerate()
        .map(move |(position, cache)| (position + usize::from(has_split(cache.level)), cache))
}

/// The CPUs of each package and die, by their numbers.
struct Packages {
    packages: BTreeMap<PackageId, CpuSet>,
    dies: BTreeMap<(PackageId, DieId), CpuSet>,
}

impl Packages {
    fn of(cpus: &[CpuFacts]) -> Packages {
        let mut all = Packages { packages: BTreeMap::new(), dies: BTreeMap::new() };
        for cpu in cpus {
            let Some(package) = cpu.package_id else { continue };
            all.packages.entry(package).or_default().insert(cpu.id);
            if let Some(die) = cpu.die_id {
                all.dies.entry((package, die)).or_default().insert(cpu.id);
            }
        }
        all
    }

    fn package(&self, cpu: &CpuFacts) -> Option<&CpuSet> {
        self.packages.get(&cpu.package_id?)
    }

    fn die(&self, cpu: &CpuFacts) -> Option<&CpuSet> {
        self.dies.get(&(cpu.package_id?, cpu.die_id?))
    }
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};
    use proptest::prelude::*;

    use super::*;
    use crate::{Depth, read_files, read_snapshot};

    /// A line with levels and options at random.
    fn line() -> impl Strategy<Value = String> {
        let level = |name: &'static str, max: u32| {
            prop::option::of(1..=max).prop_map(move |count| match count {
                Some(count) => format!("{name}:{count} "),
                None => String::new(),
            })
        };
        let option = |texts: &'static [&'static str]| prop::sample::select(texts);
        let levels = (
            level("pack", 3),
            level("die", 2),
            level("l3", 2),
            level("cluster", 2),
            level("l2", 2),
            prop::sample::select(vec!["core:1", "core:3,2", "core:4"]),
            level("pu", 3),
        );
        let options = (
            option(&["", "ecore:3"]),
            option(&["", "hbm:8", "pmem:64/machine hbm:2", "cxl:16/numa"]),
            option(&["", "huge:2M=512"]),
            option(&["", "isolated:0"]),
            option(&["", "fast:0"]),
            option(&["", "nic:2/numa vf:9", "gpu:1 nvme:2", "nic:1/machine"]),
            any::<bool>(),
        );
        (levels, options).prop_map(|((pack, die, l3, cluster, l2, core, pu), options)| {
            let (ecore, memory, huge, isolated, fast, devices, offline) = options;
            let offline = if offline && core != "core:1" { "offline:1" } else { "" };
            format!(
                "{pack}{die}numa:2 {l3}{cluster}{l2}{core} {pu}{ecore} {memory} {huge} {isolated} {fast} {devices} {offline}"
            )
        })
    }

    fn without_core_numbers(mut snapshot: Snapshot) -> Snapshot {
        snapshot.cpus.iter_mut().for_each(|cpu| cpu.core_id = None);
        snapshot
    }

    proptest! {
        #[test]
        fn a_machine_reads_back(line in line()) {
            let snapshot = parse_machine(&line).unwrap();
            let files = write_snapshot(&snapshot);
            let text = files.render();
            // Not `prop_assert_eq`, which would print thousands of lines.
            prop_assert!(KernelFiles::parse(&text).as_ref() == Ok(&files), "the text form");
            let thorough = read_files(files.clone(), Depth::Cpus).unwrap();
            prop_assert!(thorough == snapshot, "every file");
            let topology = derive(&snapshot).unwrap();
            prop_assert_eq!(topology.oddities(), &[]);
            let quick = read_files(files.clone(), Depth::Cores).unwrap();
            prop_assert!(derive(&quick).unwrap() == topology, "the leaders' files");
            let quicker = derive(&read_files(files, Depth::Placement).unwrap()).unwrap();
            prop_assert!(quicker == derive(&without_core_numbers(snapshot)).unwrap(), "the fewest files");
            prop_assert_eq!(quicker.fingerprint(), topology.fingerprint());
        }
    }

    #[test]
    fn the_same_comes_from_a_disk() {
        for line in
            ["xeon-8280l-pmem nic:2 vf:3 gpu:1 nvme:1 isolated:4-7", "core-hybrid offline:3"]
        {
            let snapshot = parse_machine(line).unwrap();
            let root = tempfile::tempdir().unwrap();
            write_snapshot(&snapshot).write_to(root.path()).unwrap();
            let read = |depth| read_snapshot(root.path(), depth).unwrap();
            assert!(read(Depth::Cpus) == snapshot, "{line}");
            assert!(derive(&read(Depth::Cores)) == derive(&snapshot), "{line}");
            let unnumbered = without_core_numbers(snapshot.clone());
            assert!(derive(&read(Depth::Placement)) == derive(&unnumbered), "{line}");
            let captured = crate::capture(root.path()).unwrap();
            assert!(read_files(captured, Depth::Cpus).unwrap() == snapshot, "{line}");
        }
    }
}
