use std::fs;
use std::os::unix::fs::symlink;

use bayplan_topology::derive;
use bayplan_types::Bytes;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// Files below `sys/devices/system`, and their texts.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join("sys/devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

#[track_caller]
fn check(root: &TempDir, expected: Expect) {
    let Snapshot {
        cpus, present, possible, online, isolated, nodes, online_nodes, oddities, ..
    } = read_snapshot(root.path(), Depth::Cpus).unwrap();
    let mut lines = vec![
        format!("present {present:?}, possible {possible:?}"),
        format!("online {online:?}, isolated {isolated:?}"),
    ];
    lines.extend(cpus.iter().map(|cpu| format!("{cpu:?}")));
    lines.push(format!("nodes {online_nodes:?}"));
    lines.extend(nodes.iter().map(|node| format!("{node:?}")));
    lines.extend(oddities.iter().map(ToString::to_string));
    expected.assert_eq(&format!("{}\n", lines.join("\n")));
}

fn oddities(files: &[(&str, &str)]) -> Vec<String> {
    let root = tree(files);
    let snapshot = read_snapshot(root.path(), Depth::Cpus).unwrap();
    snapshot.oddities.iter().map(ToString::to_string).collect()
}

#[test]
fn every_file_is_read() {
    let root = tree(&[
        ("cpu/present", "0-1\n"),
        ("cpu/possible", "0-3\n"),
        ("cpu/online", "0\n"),
        ("cpu/isolated", "\n"),
        ("cpu/cpu1/online", "0\n"),
        ("cpu/cpu0/topology/physical_package_id", "3\n"),
        ("cpu/cpu0/topology/die_id", "-1\n"),
        ("cpu/cpu0/topology/core_id", "7\n"),
        ("cpu/cpu0/topology/core_cpus_list", "0-1\n"),
        ("cpu/cpu0/topology/thread_siblings_list", "0,9\n"),
        ("cpu/cpu0/cache/index3/level", "3\n"),
        ("cpu/cpu0/cache/index3/type", "Unified\n"),
        ("cpu/cpu0/cache/index3/size", "39424K\n"),
        ("cpu/cpu0/cache/index3/id", "2\n"),
        ("cpu/cpu0/cache/index3/shared_cpu_map", "00000000,00000003\n"),
        ("cpu/cpufreq/boost", "1\n"),
        ("node/online", "0-1\n"),
        ("node/node0/cpumap", "3\n"),
        ("node/node0/meminfo", "\nNode 0 MemTotal:       1024 kB\nNode 0 MemFree: 1 kB\n"),
        ("node/node0/distance", "10 21\n"),
    ]);
    check(
        &root,
        expect![[r#"
            present Some(CpuSet(0-1)), possible Some(CpuSet(0-3))
            online Some(CpuSet(0)), isolated Some(CpuSet())
            CpuFacts { id: CpuId(0), online: None, package_id: Some(PackageId(3)), package_cpus: None, die_id: None, core_id: Some(CoreId(7)), book: None, drawer: None, cluster_cpus: None, thread_siblings: Some(CpuSet(0-1)), capacity: None, caches: [CacheFacts { level: Some(3), kind: Some(Unified), shared_cpus: Some(CpuSet(0-1)), size: Some(Bytes(40370176)), id: Some(2) }] }
            CpuFacts { id: CpuId(1), online: Some(false), package_id: None, package_cpus: None, die_id: None, core_id: None, book: None, drawer: None, cluster_cpus: None, thread_siblings: None, capacity: None, caches: [] }
            nodes Some(NodeSet(0-1))
            NodeFacts { id: NodeId(0), cpus: Some(CpuSet(0-1)), mem_total: Some(Bytes(1048576)), distances: [10, 21], huge_pages: [], accesses: [], side_caches: [] }
        "#]],
    );
}

#[test]
fn a_cgroup_that_allows_only_some_cpus_is_seen() {
    let root = tree(&[("cpu/cpu0/online", "1")]);
    let group = root.path().join("sys/fs/cgroup/system.slice/bayplan.service");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("cpuset.cpus.effective"), "2-3\n").unwrap();
    fs::write(group.join("cpuset.mems.effective"), "1\n").unwrap();
    fs::create_dir_all(root.path().join("proc/self")).unwrap();
    fs::write(
        root.path().join("proc/self/cgroup"),
        "12:cpuset:/old\n0::/system.slice/bayplan.service\n",
    )
    .unwrap();
    let snapshot = read_snapshot(root.path(), Depth::Cpus).unwrap();
    assert_eq!(snapshot.allowed_cpus, Some("2-3".parse().unwrap()));
    assert_eq!(snapshot.allowed_mems, Some("1".parse().unwrap()));
    assert_eq!(snapshot.oddities, []);
}

#[test]
fn partitions_of_containers_are_not_those_of_others() {
    for (kubepods, kind, isolated) in [
        ("kubepods.slice", "isolated", "6-7"),
        ("kubelet/kubepods", "isolated", "6-7"),
        ("kubepods.slice", "root", "4-7"),
        ("kubepods.slice", "isolated invalid (CPUs not available)", "4-7"),
        ("kubepods.slice", "member", "4-7"),
        ("other/group", "isolated", "4-7"),
    ] {
        let root = root_of(&format!(
            "proc/self/cgroup 0::/bayplan\n\
             sys/fs/cgroup/bayplan/cpuset.cpus.effective 0-3\n\
             sys/fs/cgroup/cpuset.cpus.isolated 4-7\n\
             sys/fs/cgroup/{kubepods}/burstable/pod1/ab/cpuset.cpus.partition {kind}\n\
             sys/fs/cgroup/{kubepods}/burstable/pod1/ab/cpuset.cpus.effective 4-5\n\
             sys/fs/cgroup/{kubepods}/burstable/pod1/cd/cpuset.cpus.partition member\n\
             sys/devices/system/cpu/online 0-7\n"
        ));
        let is_its = kubepods.contains("kubepods") && matches!(kind, "isolated" | "root");
        let isolated = if is_its && kind == "root" { "6-7" } else { isolated };
        let allowed = if is_its { "0-5" } else { "0-3" };
        let again = read_files(capture(root.path()).unwrap(), Depth::Cpus).unwrap();
        for snapshot in [read_snapshot(root.path(), Depth::Cpus).unwrap(), again] {
            assert_eq!(snapshot.partitioned.unwrap().to_string(), isolated, "{kubepods} {kind}");
            assert_eq!(snapshot.allowed_cpus.unwrap().to_string(), allowed, "{kubepods} {kind}");
        }
    }
}

#[test]
fn cpus_isolated_at_boot_are_in_no_partition_although_the_kernel_lists_them() {
    let root = root_of(
        "sys/fs/cgroup/cpuset.cpus.isolated 2-5\n\
         sys/devices/system/cpu/isolated 2-3\n\
         sys/devices/system/cpu/online 0-7\n",
    );
    let snapshot = read_snapshot(root.path(), Depth::Cpus).unwrap();
    assert_eq!(snapshot.isolated, Some("2-3".parse().unwrap()));
    assert_eq!(snapshot.partitioned, Some("4-5".parse().unwrap()));
}

/// Files, links (`path -> target`) and directories (`path/`) below a root.
fn root_of(lines: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let files = KernelFiles::parse(&format!("bayplan-files/1\n{lines}")).unwrap();
    files.write_to(root.path()).unwrap();
    root
}

/// A server with everything that identifies it.
const REVEALING: &str = "\
proc/cmdline BOOT_IMAGE=/vmlinuz root=UUID=5e0c ro ip=10.1.2.3::10.1.2.1:255.255.255.0:node17 isolcpus=1 nohz_full=1 ds=nocloud;s=secret
proc/meminfo MemTotal: 2048 kB\\nMemFree: 4711 kB
proc/self/cgroup 0::/kubepods.slice/kubepods-pod5e0c0815.slice
proc/sys/kernel/osrelease 6.8.0
proc/sys/kernel/hostname node17
proc/pressure/cpu some avg10=0.00
proc/driver/nvidia/gpus/0000:02:00.0/information Model: A100\\nGPU UUID: GPU-5e0c\\nDevice Minor: \x20 3
proc/driver/nvidia/gpus/0000:02:00.0/numa_status Node: 1\\nStatus: online
sys/fs/cgroup/cgroup.controllers cpuset cpu io memory
sys/fs/cgroup/customer-4711/cpuset.cpus.partition member
sys/fs/cgroup/kubepods.slice/kubepods-pod5e0c0815.slice/cpuset.cpus.effective 0
sys/fs/cgroup/kubepods.slice/kubepods-pod5e0c0815.slice/cpuset.mems.effective 0
sys/fs/cgroup/cpuset.cpus.isolated 1
sys/fs/resctrl/info/L3/cbm_mask 7ff
sys/fs/resctrl/info/L3/min_cbm_bits 1
sys/fs/resctrl/info/L3/num_closids 16
sys/fs/resctrl/info/L3/shareable_bits 600
sys/fs/resctrl/info/MB/min_bandwidth 10
sys/fs/resctrl/info/MB/bandwidth_gran 10
sys/fs/resctrl/info/MB/num_closids 8
sys/fs/resctrl/info/L3_MON/mon_features llc_occupancy\\nmbm_total_bytes
sys/fs/resctrl/info/L3_MON/num_rmids 160
sys/devices/system/cpu/online 0-1
sys/devices/system/cpu/nohz_full 1
sys/devices/system/cpu/cpuidle/current_driver intel_idle
sys/devices/system/cpu/cpu0/cpuidle/state0/name POLL
sys/devices/system/cpu/cpu{0-1}/topology/physical_package_id 0
sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00/max_freq_khz 2400000
sys/devices/pci0000:00/0000:01:00.0/class 0x020000
sys/devices/pci0000:00/0000:01:00.0/numa_node 0
sys/devices/pci0000:00/0000:01:00.0/local_cpulist 0-1
sys/devices/pci0000:00/0000:01:00.0/driver -> ../../../bus/pci/drivers/ice
sys/devices/pci0000:00/0000:01:00.0/net/enx0011223344ff/address 00:11:22:33:44:ff
sys/devices/pci0000:00/0000:01:00.0/serial_number 11-22-33
sys/devices/pci0000:00/0000:01:01.0/class 0x020000
sys/devices/pci0000:00/0000:01:01.0/physfn -> ../0000:01:00.0
sys/devices/pci0000:00/0000:01:01.0/driver -> ../../../bus/pci/drivers/vfio-pci
sys/devices/pci0000:00/0000:01:01.0/iommu_group -> ../../../kernel/iommu_groups/42
sys/devices/pci0000:00/0000:02:00.0/class 0x030200
sys/devices/pci0000:00/0000:02:00.0/drm/renderD128/uevent MAJOR=226\\nDEVNAME=dri/renderD128
sys/devices/pci0000:00/0000:03:00.0/class 0x010802
sys/devices/pci0000:00/0000:03:00.0/nvme/nvme0/serial S4711
sys/devices/pci0000:00/0000:03:00.0/nvme/nvme0/nvme0n1/uevent DEVNAME=nvme0n1\\nID_SERIAL=S4711
sys/devices/pci0000:00/0000:00:00.0/class 0x060000
sys/bus/pci/devices/0000:00:00.0 -> ../../../devices/pci0000:00/0000:00:00.0
sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0
sys/bus/pci/devices/0000:01:01.0 -> ../../../devices/pci0000:00/0000:01:01.0
sys/bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/0000:02:00.0
sys/bus/pci/devices/0000:03:00.0 -> ../../../devices/pci0000:00/0000:03:00.0
sys/class/block/nvme0n1 -> ../../devices/pci0000:00/0000:03:00.0/nvme/nvme0/nvme0n1
sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0
sys/class/drm/renderD128 -> ../../devices/pci0000:00/0000:02:00.0/drm/renderD128
sys/class/misc/isst_interface/dev 10:1
sys/kernel/btf/vmlinux x
";

#[test]
fn devices_and_features_are_read() {
    let snapshot = read_snapshot(root_of(REVEALING).path(), Depth::Cpus).unwrap();
    assert_eq!(snapshot.oddities, []);
    let devices = snapshot.devices.iter().map(|device| format!("{device:?}\n"));
    let kernel = format!("{:?}\n", snapshot.kernel);
    expect![[r#"
        DeviceFacts { address: PciAddress { domain: 0, bus: 1, device: 0, function: 0 }, class: 131072, vendor: None, device: None, node: Some(NodeId(0)), local_cpus: Some(CpuSet(0-1)), physical: None, driver: Some("ice"), interfaces: ["enx0011223344ff"], dev_nodes: [], memory_node: None }
        DeviceFacts { address: PciAddress { domain: 0, bus: 1, device: 1, function: 0 }, class: 131072, vendor: None, device: None, node: None, local_cpus: None, physical: Some(PciAddress { domain: 0, bus: 1, device: 0, function: 0 }), driver: Some("vfio-pci"), interfaces: [], dev_nodes: ["vfio/42"], memory_node: None }
        DeviceFacts { address: PciAddress { domain: 0, bus: 2, device: 0, function: 0 }, class: 197120, vendor: None, device: None, node: None, local_cpus: None, physical: None, driver: None, interfaces: [], dev_nodes: ["dri/renderD128", "nvidia3"], memory_node: Some(NodeId(1)) }
        DeviceFacts { address: PciAddress { domain: 0, bus: 3, device: 0, function: 0 }, class: 67586, vendor: None, device: None, node: None, local_cpus: None, physical: None, driver: None, interfaces: [], dev_nodes: ["nvme0n1"], memory_node: None }
        KernelFacts { release: Some("6.8.0"), cpu_options: ["isolcpus=1", "nohz_full=1"], controllers: Some(["cpuset", "cpu", "io", "memory"]), has_psi: true, has_btf: true, resctrl: Some(ResctrlFacts { caches: [CacheControl { name: "L3", mask: Some(2047), bits_min: Some(1), groups: Some(16), shareable: Some(1536), is_sparse: None }], bandwidths: [BandwidthControl { name: "MB", min: Some(10), step: Some(10), groups: Some(8) }], monitoring: Some(ResctrlMonitoring { features: ["llc_occupancy", "mbm_total_bytes"], groups: Some(160) }) }), uncores: [UncoreFacts { name: "package_00_die_00", package: Some(PackageId(0)) }], cpufreq_driver: None, cpuidle_driver: Some("intel_idle"), idle_states: ["POLL"], has_speed_select: true, speed_select: None }
    "#]]
    .assert_eq(&devices.chain([kernel]).collect::<String>());
    assert_eq!(snapshot.partitioned, Some("1".parse().unwrap()));
    assert_eq!(snapshot.allowed_cpus, Some("0".parse().unwrap()));
}

#[test]
fn a_capture_does_not_tell_whose_machine_it_is() {
    let root = root_of(REVEALING);
    let files = capture(root.path()).unwrap();
    let text = files.render();
    for secret in [
        "5e0c",
        "node17",
        "10.1.2",
        "4711",
        "secret",
        "11:22",
        "0011223344ff",
        "11-22-33",
        "S4711",
        "customer",
        "GPU-",
        "BOOT_IMAGE",
    ] {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
    let read = |depth| read_files(files.clone(), depth).unwrap();
    let mut original = read_snapshot(root.path(), Depth::Cpus).unwrap();
    // All else is the same.
    original.devices[0].interfaces = vec!["enx000000000000".to_owned()];
    assert_eq!(read(Depth::Cpus), original);
}

#[test]
fn garbage_is_noted_and_counts_as_missing() {
    let long = "9".repeat(100);
    let found = oddities(&[
        ("cpu/online", "zero to three\n"),
        ("cpu/isolated", "0-99999999\n"),
        ("cpu/cpu0/online", "2\n"),
        ("cpu/cpu0/topology/physical_package_id", "-2\n"),
        ("cpu/cpu0/topology/core_id", &long),
        ("cpu/cpu0/topology/core_cpus_list", "0-\n"),
        ("cpu/cpu0/topology/thread_siblings", "xyz\n"),
        ("cpu/cpu0/cache/index0/type", "Trace\n"),
        ("cpu/cpu0/cache/index0/size", "lots\n"),
        ("cpu/cpu1", "a file where a directory should be\n"),
        ("cpu/cpu01/online", "1\n"),
        ("node/node0/meminfo", "Node 0 MemTotal: 5 MB\n"),
        ("node/node0/distance", "10 near\n"),
    ]);
    expect![[r#"
        /sys/devices/system/cpu/online: "zero to three"; assumed: as if the file were missing
        /sys/devices/system/cpu/isolated: "0-99999999"; assumed: as if the file were missing
        /sys/devices/system/cpu/cpu1: not a directory; assumed: it is not there
        /sys/devices/system/cpu/cpu0/online: "2"; assumed: as if the file were missing
        /sys/devices/system/cpu/cpu0/topology/core_cpus_list: "0-"; assumed: as if the file were missing
        /sys/devices/system/cpu/cpu0/topology/thread_siblings: "xyz"; assumed: as if the file were missing
        /sys/devices/system/cpu/cpu0/topology/physical_package_id: "-2"; assumed: as if the file were missing
        /sys/devices/system/cpu/cpu0/topology/core_id: "999999999999999999999999999999999999999999999999999999999999..."; assumed: as if the file were missing
        /sys/devices/system/cpu/cpu0/cache/index0/type: "Trace"; assumed: as if the file were missing
        /sys/devices/system/node/node0/meminfo: MemTotal without a number of kB; assumed: as if the file were missing
        /sys/devices/system/node/node0/distance: "10 near"; assumed: as if the file were missing"#]].assert_eq(&found.join("\n"));
}

#[test]
fn a_huge_file_is_cut_off() {
    let text = format!("Node 0 MemTotal: 4 kB\n{}", "x".repeat(100_000));
    let root = tree(&[("cpu/cpu0/online", "1"), ("node/node0/meminfo", &text)]);
    let snapshot = read_snapshot(root.path(), Depth::Cpus).unwrap();
    assert_eq!(snapshot.nodes[0].mem_total, Some(Bytes(4096)));
    assert_eq!(
        snapshot.oddities[0].to_string(),
        "/sys/devices/system/node/node0/meminfo: more than 65536 bytes; assumed: what stands in the first ones"
    );
}

#[test]
fn links_are_not_followed_out_of_the_root() {
    let outside = tree(&[("node/node0/cpulist", "0-63\n"), ("cpu/online", "0-63\n")]);
    let outside = outside.path().join("sys/devices/system");
    let root = tree(&[("cpu/cpu0/online", "1\n")]);
    let inside = root.path().join("sys/devices/system");
    symlink(outside.join("node"), inside.join("node")).unwrap();
    symlink(outside.join("cpu/online"), inside.join("cpu/online")).unwrap();
    symlink(inside.join("cpu/cpu0"), inside.join("cpu/cpu1")).unwrap();
    check(
        &root,
        expect![[r#"
            present None, possible None
            online None, isolated None
            CpuFacts { id: CpuId(0), online: Some(true), package_id: None, package_cpus: None, die_id: None, core_id: None, book: None, drawer: None, cluster_cpus: None, thread_siblings: None, capacity: None, caches: [] }
            nodes None
            /sys/devices/system/cpu/online: not a regular file; assumed: as if the file were missing
            /sys/devices/system/cpu/cpu1: not a directory; assumed: it is not there
            /sys/devices/system/node: leads out of the root; assumed: it is not there
        "#]],
    );
}

#[test]
fn a_root_without_cpus_is_refused_with_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    for root in [empty.path(), &empty.path().join("no/such/place")] {
        let text = read_snapshot(root, Depth::Cpus).unwrap_err().to_string();
        assert_eq!(
            text,
            format!(
                "{}/sys/devices/system/cpu is not there; expected the kernel's CPU directories: \
                 mount sysfs, or name the directory that holds `sys`",
                root.display()
            )
        );
    }
}

/// Three cores of two threads, `0,3`, `1,4` and `2,5`, with an edit; what a quick reading says of cores and doubts.
#[track_caller]
fn check_quick(file: &str, text: &str, level_2: &str, expected: Expect) {
    let mut files =
        KernelFiles::parse("bayplan-files/1\nsys/devices/system/cpu/online 0-5\n").unwrap();
    let mut add = |path: String, text: String| {
        files.insert(format!("sys/devices/system/cpu/{path}"), Entry::Text(text));
    };
    for cpu in 0..6 {
        let core = format!("{},{}", cpu % 3, cpu % 3 + 3);
        add(format!("cpu{cpu}/topology/physical_package_id"), "0".to_owned());
        add(format!("cpu{cpu}/topology/package_cpus_list"), "0-5".to_owned());
        add(format!("cpu{cpu}/topology/core_id"), format!("{}", cpu % 3 * 4));
        add(format!("cpu{cpu}/topology/core_cpus_list"), core.clone());
        let sharers = if level_2.is_empty() { core } else { level_2.to_owned() };
        for (file, text) in [("type", "Unified"), ("level", "2"), ("shared_cpu_list", &sharers)] {
            add(format!("cpu{cpu}/cache/index2/{file}"), text.to_owned());
        }
    }
    add(file.to_owned(), text.to_owned());
    let [quickest, topology] = [Depth::Placement, Depth::Cores]
        .map(|depth| derive(&read_files(files.clone(), depth).unwrap()).unwrap());
    assert_eq!(quickest.cores(), topology.cores());
    let mut lines: Vec<String> = topology.cores().iter().map(ToString::to_string).collect();
    let odd = topology.oddities().iter().filter(|odd| odd.path.ends_with("_list"));
    lines.extend(odd.map(ToString::to_string));
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn threads_of_the_first_core_are_asked_and_others_where_the_caches_do_not_say_the_same() {
    let list = |cpu: u32| format!("cpu{cpu}/topology/core_cpus_list");
    check_quick(
        "cpu0/online",
        "1",
        "",
        expect![[r#"
        0,3
        1,4
        2,5"#]],
    );
    check_quick(
        &list(3),
        "3",
        "",
        expect![[r#"
        0
        1,4
        2,5
        3
        /sys/devices/system/cpu/cpu*/topology/core_cpus_list: core of CPUs 0,3 according to CPU 0, contradicted by others; assumed: each CPU that says so is a core of its own"#]],
    );
    check_quick(
        &list(5),
        "5",
        "0-5",
        expect![[r#"
        0,3
        1,4
        2
        5
        /sys/devices/system/cpu/cpu*/topology/core_cpus_list: core of CPUs 2,5 according to CPU 2, contradicted by others; assumed: each CPU that says so is a core of its own"#]],
    );
    // The price of a quick reading.
    check_quick(
        &list(5),
        "5",
        "",
        expect![[r#"
        0,3
        1,4
        2,5"#]],
    );
    check_quick(
        "cpu2/cache/index2/shared_cpu_list",
        "2,4",
        "",
        expect![[r#"
        0,3
        1,4
        2,5
        /sys/devices/system/cpu/cpu*/cache/index2/shared_cpu_list: L2 of CPUs 2,4 according to CPU 2, contradicted by others; assumed: no such L2
        /sys/devices/system/cpu/cpu*/cache/index2/shared_cpu_list: L2 of CPUs 2,5 according to CPU 5, contradicted by others; assumed: no such L2"#]],
    );
}

#[test]
fn this_machine_has_a_cpu() {
    // A build sandbox may lack /sys.
    if let Ok(snapshot) = read_snapshot(Path::new("/"), Depth::Cpus) {
        assert!(!derive(&snapshot).unwrap().cpus().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_in_any_file_is_read_or_noted(text in "[-0-9,:/a-zK \\n\\x00]{0,12}", at in 0_usize..12) {
        let mut files = [
            ("cpu/online", "0\n"),
            ("cpu/present", "0\n"),
            ("cpu/isolated", "\n"),
            ("cpu/cpu0/online", "1\n"),
            ("cpu/cpu0/topology/core_id", "0\n"),
            ("cpu/cpu0/topology/core_cpus_list", "0\n"),
            ("cpu/cpu0/cache/index3/level", "3\n"),
            ("cpu/cpu0/cache/index3/size", "1K\n"),
            ("cpu/cpu0/cache/index3/shared_cpu_list", "0\n"),
            ("node/node0/cpulist", "0\n"),
            ("node/node0/meminfo", "Node 0 MemTotal: 4 kB\n"),
            ("node/node0/distance", "10\n"),
        ];
        files[at].1 = &text;
        let snapshot = read_snapshot(tree(&files).path(), Depth::Cpus).unwrap();
        let _either = derive(&snapshot);
    }
}
