use std::fs;
use std::path::Path;

use bayplan_types::{Bytes, CpuId};

use super::*;
use crate::kernel::DiskKernel;

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(root.path(), path, text);
    }
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const STALL: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";

#[test]
fn a_group_tells_what_it_has_and_nothing_else() {
    let root = tree(&[
        ("g/cpu.stat", "usage_usec 70\nuser_usec 40\nsystem_usec 30\nthrottled_usec 9\n"),
        ("g/memory.pressure", STALL),
        ("g/memory.current", "8192\n"),
        (
            "g/memory.stat",
            "anon 1\nworkingset_refault_file 5\npgdemote_kswapd 2\npgdemote_direct 1\n",
        ),
        ("g/memory.events", "low 0\nhigh 4\nmax 0\noom 0\noom_kill 1\n"),
        ("g/memory.numa_stat", "anon N0=4096 N1=0\nfile N0=0 N1=100\n"),
        ("g/io.stat", "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n"),
        ("empty/cgroup.procs", ""),
    ]);
    let mut buffer = Vec::new();
    let mut files = GroupFiles::open(root.path(), "g");
    let read = files.read(&mut buffer);
    assert_eq!((read.cpu_usec, read.throttled_usec), (Some(70), Some(9)));
    let stall = Stall { some_usec: 12, full_usec: Some(3) };
    assert_eq!(read.pressure, Pressure { memory: Some(stall), ..Pressure::default() });
    assert_eq!((read.memory.current, read.memory.refaults), (Some(Bytes(8192)), Some(5)));
    assert_eq!((read.memory.demoted, read.memory.high_events), (Some(3), Some(4)));
    assert_eq!((read.memory.oom_kills, read.memory.by_node.len()), (Some(1), 2));
    assert_eq!(read.io.map(|io| (io.read, io.writes)), Some((Bytes(10), 2)));
    assert_eq!(files.oddities().count(), 0);
    for dir in ["empty", "none"] {
        let read = GroupFiles::open(root.path(), dir).read(&mut buffer);
        assert_eq!(read, GroupCounters::default());
    }
}

/// A container `ab` of the pod `/kubepods/pod1`, with these files below `sys/fs/cgroup`: CPU time, time under its limit and pressure of CPUs.
fn check_found(files: &[(&str, &str)], expected: Option<[Option<u64>; 3]>) {
    let files: Vec<(String, &str)> =
        files.iter().map(|(path, text)| (format!("sys/fs/cgroup/{path}"), *text)).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
    let root = tree(&files);
    let mut kernel = DiskKernel::open(root.path()).unwrap();
    let found = GroupFiles::find(root.path(), &mut kernel, "/kubepods/pod1", "ab").unwrap();
    let read = found.map(|mut group| {
        let read = group.read(&mut Vec::new());
        assert_eq!(group.oddities().count(), 0);
        [read.cpu_usec, read.throttled_usec, read.pressure.cpu.map(|it| it.some_usec)]
    });
    assert_eq!(read, expected);
}

#[test]
fn a_container_is_found_in_both_versions_and_in_both_at_once() {
    let v1 = [
        ("cpu/kubepods/pod1/ab/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 9999\n"),
        ("cpuacct/kubepods/pod1/ab/cpuacct.usage", "70999\n"),
    ];
    let beside = [
        ("unified/kubepods/pod1/ab/cpu.stat", "usage_usec 71\nuser_usec 40\n"),
        ("unified/kubepods/pod1/ab/cpu.pressure", STALL),
    ];
    let v2 = [
        ("kubepods/pod1/ab/cgroup.type", "domain\n"),
        ("kubepods/pod1/ab/cpu.stat", "usage_usec 72\nthrottled_usec 8\n"),
        ("kubepods/pod1/ab/cpu.pressure", STALL),
    ];
    check_found(&v2, Some([Some(72), Some(8), Some(12)]));
    check_found(&[v1, beside].concat(), Some([Some(71), Some(9), Some(12)]));
    check_found(&v1, Some([Some(70), Some(9), None]));
    check_found(&beside, Some([Some(71), None, Some(12)]));
    check_found(&[("cpu/kubepods/pod1/other/cpu.stat", "")], None);
    check_found(&[], None);
}

#[test]
fn files_stay_open_and_what_is_broken_is_told_once() {
    let root = tree(&[("g/memory.current", "1\n"), ("g/io.stat", "8:0 rbytes=1\n")]);
    let mut buffer = Vec::new();
    let mut files = GroupFiles::open(root.path(), "g");
    assert_eq!(files.read(&mut buffer).memory.current, Some(Bytes(1)));
    write(root.path(), "g/memory.current", "2\n");
    write(root.path(), "g/io.stat", "8:0 rbytes\n");
    for _ in 0..2 {
        let read = files.read(&mut buffer);
        assert_eq!((read.memory.current, read.io), (Some(Bytes(2)), None));
    }
    let told: Vec<&str> = files.oddities().collect();
    assert_eq!(told, ["/g/io.stat cannot be understood: \"8:0 rbytes\""]);
}

const UNCORES: &str = "sys/devices/system/cpu/intel_uncore_frequency";

#[test]
fn the_node_has_what_its_machine_counts() {
    let root = tree(&[
        ("proc/stat", "cpu  1 2 3 4 5 0 0 0 0 0\ncpu0 1 2 3 4 5 0 0 0 0 0\nintr 1\n"),
        ("proc/pressure/cpu", STALL),
        ("proc/pressure/irq", "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2400000\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_avg_freq", ""),
        ("sys/devices/system/cpu/cpu2/cpufreq/cpuinfo_avg_freq", "2100000\n"),
        ("sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq", "2400000\n"),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "<unknown>\n"),
        ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
        (&format!("{UNCORES}/package_00_die_00/current_freq_khz"), "2400000\n"),
        (&format!("{UNCORES}/package_00_die_01/current_freq_khz"), "0\n"),
        (&format!("{UNCORES}/package_00_die_02/max_freq_khz"), "2400000\n"),
        (&format!("{UNCORES}/package_01_die_00/current_freq_khz"), "800000\n"),
        (&format!("{UNCORES}/uncore00/package_id"), "1\n"),
        (&format!("{UNCORES}/uncore00/current_freq_khz"), "1200000\n"),
        (&format!("{UNCORES}/uncore01/package_id"), "1\n"),
        (&format!("{UNCORES}/uncore01/current_freq_khz"), "much\n"),
        ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
        ("sys/class/powercap/intel-rapl:0/energy_uj", "90\n"),
        ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "100\n"),
        ("sys/class/powercap/intel-rapl:0:0/name", "dram\n"),
        ("sys/class/powercap/intel-rapl:0:0/energy_uj", "7\n"),
        ("sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n"),
        ("sys/class/powercap/intel-rapl-mmio:0/energy_uj", "90\n"),
    ]);
    let mut kernel = DiskKernel::open(root.path()).unwrap();
    let mut files = NodeFiles::open(root.path(), &mut kernel);
    let read = files.read(&mut Vec::new());
    assert_eq!(read.pressure.cpu, Some(Stall { some_usec: 12, full_usec: Some(3) }));
    assert_eq!(read.pressure.irq, Some(Stall { some_usec: 5, full_usec: Some(5) }));
    assert_eq!(read.pressure.memory, None);
    assert_eq!(read.idle_ticks, [(CpuId(0), 9)].into());
    assert_eq!(read.frequencies_khz, [(CpuId(0), 2_400_000), (CpuId(2), 2_100_000)].into());
    let uncore = |package, name: &str| Uncore { package, name: name.to_owned() };
    let (whole, part) = (uncore(0, "package_00_die_00"), uncore(1, "uncore00"));
    assert_eq!(read.uncores_khz, [(whole, 2_400_000), (part, 1_200_000)].into());
    let throttles = CoreThrottles { core: Some(3), package: None };
    assert_eq!(read.throttles, [(CpuId(0), throttles)].into());
    let energy = [("package-0", 90), ("package-0/dram", 7)].map(|(zone, it)| (zone.to_owned(), it));
    assert_eq!(read.energy_uj, energy.into());
    let ends = files.zones().map(|zone| (zone.used(90, 95), zone.used(90, 4)));
    assert_eq!(ends.collect::<Vec<_>>(), [(Some(5), Some(14)), (Some(5), None)]);
}

#[test]
fn a_cache_without_a_value_makes_the_sum_absent() {
    let data = "sys/fs/resctrl/g/mon_data";
    let files = |second: &'static str| {
        [
            (format!("{data}/mon_L3_00/llc_occupancy"), "100\n"),
            (format!("{data}/mon_L3_01/llc_occupancy"), second),
            (format!("{data}/mon_L3_00/mbm_total_bytes"), "7\n"),
            (format!("{data}/mon_L3_01/mbm_total_bytes"), "8\n"),
            (format!("{data}/mon_PERF_PKG_00/energy"), "9\n"),
        ]
    };
    for (second, occupancy) in [
        ("50\n", Some(Bytes(150))),
        ("Unavailable\n", None),
        ("Unassigned\n", None),
        ("Error\n", None),
        ("much\n", None),
    ] {
        let files = files(second);
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let root = tree(&files);
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        let mut files = MonitorFiles::open(root.path(), &mut kernel, "sys/fs/resctrl/g");
        let total = Some(Bytes(15));
        for _ in 0..2 {
            let read = files.read(&mut Vec::new());
            assert_eq!(read, MonitorCounters { occupancy, total, local: None, is_undivided: true });
        }
        let odd = format!("/{data}/mon_L3_01/llc_occupancy cannot be understood: \"much\"");
        let odd = (second == "much\n").then_some(&*odd);
        assert_eq!(files.oddities().collect::<Vec<_>>(), Vec::from_iter(odd));
    }
    let root = tree(&[]);
    let mut kernel = DiskKernel::open(root.path()).unwrap();
    let mut none = MonitorFiles::open(root.path(), &mut kernel, "sys/fs/resctrl/g");
    assert_eq!(none.read(&mut Vec::new()), MonitorCounters::default());
}
