use std::fs;
use std::path::Path;
use std::sync::Arc;

use bayplan_allocator::NoHome;
use bayplan_types::CpuClass;
use bayplan_workload::{NewContainer, Pod};
use expect_test::expect;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::*;
use crate::config::Config;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

pub(crate) fn occupant(name: &str, attempt: u32, runtime_id: &str) -> Occupant {
    let pod = Pod {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        cgroup_parent: "/kubepods/pod1".to_owned(),
        ..Pod::default()
    };
    let spec = NewContainer { pod, name: name.to_owned(), attempt, ..NewContainer::default() };
    Occupant {
        id: bayplan_allocator::ContainerId(0),
        name: format!("default/web/{name}"),
        runtime_id: runtime_id.to_owned(),
        scheduling_class: None,
        spec: Arc::new(spec),
        tuning: Arc::default(),
        class: CpuClass::Shared,
        cpus: "0-3".parse().unwrap(),
        exclusive: "".parse().unwrap(),
        mems: "0".parse().unwrap(),
        home: Err(NoHome::AtHome),
        is_left_alone: false,
        is_immovable: false,
        is_claimed: false,
        may_share_elsewhere: false,
        is_together: false,
        is_running: true,
    }
}

struct Setting {
    root: tempfile::TempDir,
    reader: Reader,
    shown: Shown,
    registry: Registry,
}

fn setting(files: &[(&str, &str)]) -> Setting {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "sys/fs/cgroup/cgroup.controllers", "cpu memory io\n");
    for (path, text) in files {
        write(root.path(), path, text);
    }
    let config = Config { host_root: root.path().to_owned(), ..Config::default() };
    let (_live, config) = watch::channel(Arc::new(config));
    let shown = shown();
    let mut registry = Registry::with_prefix("bayplan");
    registry.register_collector(Box::new(shown.of_containers()));
    registry.register_collector(Box::new(shown.clone()));
    Setting { root, reader: Reader::new(config), shown, registry }
}

impl Setting {
    fn read(&mut self, occupants: &[Occupant]) -> String {
        let occupancy = Occupancy { occupants: occupants.to_vec(), ..Occupancy::default() };
        *self.shown.reading.lock().unwrap() = self.reader.read(&occupancy, Instant::now());
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

/// A reading of a machine that counts everything, and of containers that have everything.
pub(crate) fn everything() -> Shown {
    let group = "sys/fs/cgroup/kubepods/pod1/abc";
    let stall = "some avg10=0 avg60=0 avg300=0 total=7\nfull avg10=0 avg60=0 avg300=0 total=3\n";
    let cpu = "sys/devices/system/cpu/cpu0";
    let uncore = "sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00";
    let rapl = "sys/class/powercap/intel-rapl:0";
    let cache = "sys/fs/resctrl/bayplan.gold/mon_data/mon_L3_00";
    let own = "sys/fs/resctrl/bayplan.gold/mon_groups/bayplan.abc/mon_data/mon_L3_00";
    let tin = "sys/fs/resctrl/bayplan.tin/mon_data/mon_L3_00";
    let other = "sys/fs/resctrl/mon_groups/bayplan.def/mon_data/mon_L3_00";
    let pressures = ["cpu", "memory", "io", "irq"].map(|it| {
        [format!("{group}/{it}.pressure"), format!("proc/pressure/{it}")].map(|path| (path, stall))
    });
    let rest = [
        (format!("{group}/cpu.stat"), "usage_usec 1500000\nthrottled_usec 250000\n"),
        (format!("{group}/cpuset.cpus.effective"), "0-3\n"),
        (format!("{group}/cgroup.threads"), "71\n72\n73\n"),
        ("proc/self/arch_status".to_owned(), "AVX512_elapsed_ms:\t-1\n"),
        ("proc/71/arch_status".to_owned(), "AVX512_elapsed_ms:\t20\n"),
        ("proc/72/arch_status".to_owned(), "AVX512_elapsed_ms:\t-1\n"),
        (format!("{group}/memory.numa_stat"), "anon N0=4096 N1=100\nfile N0=1 N1=0\n"),
        (format!("{group}/memory.stat"), "workingset_refault_file 5\npgdemote_kswapd 2\n"),
        (format!("{group}/memory.events"), "oom_kill 1\n"),
        (format!("{group}/io.stat"), "8:0 rbytes=10 wbytes=20 rios=1 wios=2\n"),
        ("proc/stat".to_owned(), "cpu0 1 2 3 4 5\ncpu1 1 2 3 4 5\ncpu2 1 2 3 4 5\n"),
        (format!("{cpu}/cpufreq/scaling_cur_freq"), "2400000\n"),
        (format!("{uncore}/current_freq_khz"), "2400000\n"),
        (format!("{cpu}/thermal_throttle/core_throttle_count"), "3\n"),
        (format!("{cpu}/thermal_throttle/package_throttle_count"), "4\n"),
        (format!("{rapl}/name"), "package-0\n"),
        (format!("{rapl}/energy_uj"), "90000000\n"),
        (format!("{cache}/llc_occupancy"), "4096\n"),
        (format!("{cache}/mbm_total_bytes"), "300\n"),
        (format!("{cache}/mbm_local_bytes"), "100\n"),
        (format!("{own}/llc_occupancy"), "1024\n"),
        (format!("{own}/mbm_total_bytes"), "30\n"),
        (format!("{own}/mbm_local_bytes"), "10\n"),
        // Where processors tell the sum only.
        (format!("{tin}/mbm_total_bytes"), "30\n"),
        (format!("{other}/mbm_total_bytes"), "30\n"),
        ("sys/fs/cgroup/kubepods/pod1/def/cpu.stat".to_owned(), "usage_usec 1\n"),
    ];
    let files: Vec<(String, &str)> = pressures.into_iter().flatten().chain(rest).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
    let mut it = setting(&files);
    let mixed = Occupant { exclusive: "1".parse().unwrap(), ..occupant("mixed", 0, "abc") };
    let system = Occupant { class: CpuClass::Reserved, ..occupant("system", 0, "def") };
    let occupancy = Occupancy {
        occupants: vec![mixed, system],
        reserved: "0".parse().unwrap(),
        shared: "2".parse().unwrap(),
        ..Occupancy::default()
    };
    *it.shown.reading.lock().unwrap() = it.reader.read(&occupancy, Instant::now());
    it.shown
}

#[test]
fn traffic_of_which_only_the_sum_is_told_is_told_as_such() {
    let data = "sys/fs/resctrl/mon_groups/bayplan.abc/mon_data/mon_L3_00";
    let cpu = "sys/fs/cgroup/kubepods/pod1/abc/cpu.stat";
    for (local, expected) in [
        (Some("10\n"), vec![("local", "10.0"), ("remote", "20.0")]),
        // For the moment.
        (Some("Unassigned\n"), vec![]),
        (None, vec![("unknown", "30.0")]),
    ] {
        let total = format!("{data}/mbm_total_bytes");
        let mut it = setting(&[(&total, "30\n"), (cpu, "usage_usec 1\n")]);
        if let Some(local) = local {
            write(it.root.path(), &format!("{data}/mbm_local_bytes"), local);
        }
        let text = it.read(&[occupant("server", 0, "abc")]);
        let told = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("bayplan_container_memory_traffic_bytes_total{")?;
            let (_, rest) = rest.split_once("where=\"")?;
            rest.split_once("\"} ")
        });
        assert_eq!(told.collect::<Vec<_>>(), expected, "{local:?}");
    }
}

#[test]
fn idle_time_counts_for_what_a_cpu_is_used_for_then() {
    let stat = |ticks: [u64; 3]| {
        let [a, b, c] = ticks;
        format!("cpu0 0 0 0 {a} 0\ncpu1 0 0 0 {b} 0\ncpu2 0 0 0 {c} 0\n")
    };
    let mut it = setting(&[("proc/stat", &stat([100, 100, 100]))]);
    let rounds = [
        ([100, 100, 100], "1-2", "Shared 0, Reserved 0"),
        ([110, 120, 130], "1-2", "Shared 50, Reserved 10"),
        // CPU 1 is owned now; CPU 2 has had some of its idle time taken back.
        ([110, 220, 120], "2", "Exclusive 100, Shared 50, Reserved 10"),
    ];
    for (ticks, shared, expected) in rounds {
        write(it.root.path(), "proc/stat", &stat(ticks));
        let owner = Occupant { exclusive: "1".parse().unwrap(), ..occupant("a", 0, "abc") };
        let occupancy = Occupancy {
            occupants: if shared == "2" { vec![owner] } else { Vec::new() },
            reserved: "0".parse().unwrap(),
            shared: shared.parse().unwrap(),
            ..Occupancy::default()
        };
        let idle = it.reader.read(&occupancy, Instant::now()).idle_ticks;
        let idle: Vec<String> = idle.iter().map(|(class, it)| format!("{class:?} {it}")).collect();
        assert_eq!(idle.join(", "), expected);
    }
}

#[test]
fn what_is_counted_is_shown_and_nothing_else() {
    let group = "sys/fs/cgroup/kubepods/pod1/abc";
    let mut it = setting(&[
        (&format!("{group}/cpu.stat"), "usage_usec 1500000\nthrottled_usec 250000\n"),
        (&format!("{group}/memory.numa_stat"), "anon N0=4096 N1=100\nfile N0=1 N1=0\n"),
        (
            &format!("{group}/memory.pressure"),
            "some avg10=0 avg60=0 avg300=0 total=7\nfull avg10=0 avg60=0 avg300=0 total=3\n",
        ),
        (&format!("{group}/io.stat"), "8:0 rbytes=10 wbytes=20 rios=1 wios=2\n"),
        ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
        ("sys/class/powercap/intel-rapl:0/energy_uj", "90000000\n"),
        ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "100000000\n"),
        ("sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq", "2400000\n"),
    ]);
    it.read(&[occupant("server", 0, "abc")]);
    write(it.root.path(), "sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n");
    expect![[r##"
        # HELP bayplan_container_cpus CPUs that the container may run on, by what they are used for; exclusive: its own
        # TYPE bayplan_container_cpus gauge
        bayplan_container_cpus{namespace="default",pod="web",container="server",class="shared"} 4.0
        # HELP bayplan_container_cpu_seconds CPU time of the container
        # TYPE bayplan_container_cpu_seconds counter
        # UNIT bayplan_container_cpu_seconds seconds
        bayplan_container_cpu_seconds_total{namespace="default",pod="web",container="server"} 1.5
        # HELP bayplan_container_throttled_seconds Time in which its CPU limit stopped the container
        # TYPE bayplan_container_throttled_seconds counter
        # UNIT bayplan_container_throttled_seconds seconds
        bayplan_container_throttled_seconds_total{namespace="default",pod="web",container="server"} 0.25
        # HELP bayplan_container_stalled_seconds Time in which some or all tasks of the container stood still for lack of a resource
        # TYPE bayplan_container_stalled_seconds counter
        # UNIT bayplan_container_stalled_seconds seconds
        bayplan_container_stalled_seconds_total{namespace="default",pod="web",container="server",resource="memory",kind="some"} 0.000007
        bayplan_container_stalled_seconds_total{namespace="default",pod="web",container="server",resource="memory",kind="full"} 0.000003
        # HELP bayplan_container_memory_bytes Memory of the container on the NUMA nodes that it is to use (near), and elsewhere (far)
        # TYPE bayplan_container_memory_bytes gauge
        # UNIT bayplan_container_memory_bytes bytes
        bayplan_container_memory_bytes{namespace="default",pod="web",container="server",where="near"} 4097.0
        bayplan_container_memory_bytes{namespace="default",pod="web",container="server",where="far"} 100.0
        # HELP bayplan_container_io_bytes Bytes that the container has read from and written to block devices
        # TYPE bayplan_container_io_bytes counter
        # UNIT bayplan_container_io_bytes bytes
        bayplan_container_io_bytes_total{namespace="default",pod="web",container="server",direction="read"} 10.0
        bayplan_container_io_bytes_total{namespace="default",pod="web",container="server",direction="written"} 20.0
        # HELP bayplan_container_io_operations Times that the container has read from and written to block devices
        # TYPE bayplan_container_io_operations counter
        bayplan_container_io_operations_total{namespace="default",pod="web",container="server",direction="read"} 1.0
        bayplan_container_io_operations_total{namespace="default",pod="web",container="server",direction="written"} 2.0
        # HELP bayplan_cpu_frequency_hertz Frequency of the CPU now
        # TYPE bayplan_cpu_frequency_hertz gauge
        # UNIT bayplan_cpu_frequency_hertz hertz
        bayplan_cpu_frequency_hertz{cpu="3"} 2400000000.0
        # HELP bayplan_energy_joules Energy since the daemon started
        # TYPE bayplan_energy_joules counter
        # UNIT bayplan_energy_joules joules
        bayplan_energy_joules_total{zone="package-0"} 15.0
        # EOF
    "##]].assert_eq(&it.read(&[occupant("server", 0, "abc")]));
    // Gone with the container.
    let text = it.read(&[]);
    assert!(!text.contains("container"), "{text}");
}

#[test]
fn of_two_attempts_the_latest_is_shown_and_once() {
    let mut it = setting(&[
        ("sys/fs/cgroup/kubepods/pod1/old/cpu.stat", "usage_usec 1000000\n"),
        ("sys/fs/cgroup/kubepods/pod1/new/cpu.stat", "usage_usec 2000000\n"),
    ]);
    let text =
        it.read(&[occupant("a", 1, "new"), occupant("a", 0, "old"), occupant("b", 0, "none")]);
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("bayplan_container_cpu_seconds")).collect();
    let line =
        r#"bayplan_container_cpu_seconds_total{namespace="default",pod="web",container="a"} 2.0"#;
    assert_eq!(lines, [line]);
}

/// A group that was made anew, elsewhere or in the same place, has other files; those of others are not read.
#[test]
fn a_container_is_found_by_its_monitor_group() {
    let mut it = setting(&[("sys/fs/cgroup/kubepods/pod1/abc/cpu.stat", "usage_usec 1000000\n")]);
    let root = it.root.path().to_owned();
    let write_group = |group: &str, bytes: u64| {
        let data = format!("sys/fs/resctrl/{group}/mon_data/mon_L3_00");
        write(&root, &format!("{data}/llc_occupancy"), &format!("{bytes}\n"));
        write(&root, &format!("{data}/mbm_total_bytes"), "Unavailable\n");
    };
    let mut occupancies = |round: &str| {
        let text = it.read(&[occupant("server", 0, "abc")]);
        assert!(!text.contains("memory_traffic"), "{round}: {text}");
        let names = ["bayplan_container_cache_occupancy_bytes{", "bayplan_cache_occupancy_bytes{"];
        let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.map(|line| line.replace("namespace=\"default\",pod=\"web\",", "")).collect::<Vec<_>>()
    };
    assert_eq!(occupancies("no resctrl"), [""; 0]);
    write_group("mon_groups/theirs", 1);
    write_group("mon_groups/bayplan.other", 2);
    write_group("mon_groups/bayplan.abc", 3);
    let own = |bytes: u32| {
        format!("bayplan_container_cache_occupancy_bytes{{container=\"server\"}} {bytes}.0")
    };
    assert_eq!(occupancies("in the root"), [own(3)]);
    fs::remove_dir_all(root.join("sys/fs/resctrl/mon_groups/bayplan.abc")).unwrap();
    write_group("bayplan.gold", 5);
    write_group("bayplan.gold/mon_groups/bayplan.abc", 4);
    let class = "bayplan_cache_occupancy_bytes{cache_class=\"gold\"} 5.0".to_owned();
    assert_eq!(occupancies("in a class"), [own(4), class]);
}

#[test]
fn a_group_that_comes_late_is_looked_for_less_often_and_found() {
    let mut it = setting(&[]);
    let (start, server) = (Instant::now(), occupant("server", 0, "abc"));
    let mut is_read = |second: u64| {
        let occupancy = Occupancy { occupants: vec![server.clone()], ..Occupancy::default() };
        let reading = it.reader.read(&occupancy, start + Duration::from_secs(second));
        !reading.containers.is_empty()
    };
    for second in [0, 5, 10, 20] {
        assert!(!is_read(second), "{second}");
    }
    write(it.root.path(), "sys/fs/cgroup/kubepods/pod1/abc/cgroup.type", "domain\n");
    write(it.root.path(), "sys/fs/cgroup/kubepods/pod1/abc/cpu.stat", "usage_usec 1000000\n");
    assert!(!is_read(30), "looked for too often");
    assert!(is_read(40));
    assert!(is_read(45));
}
