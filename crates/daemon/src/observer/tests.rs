use std::fs;
use std::path::Path;
use std::sync::Arc;

use bayplan_cri::translate::{NewContainer, Pod};
use bayplan_types::CpuClass;
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

fn occupant(name: &str, attempt: u32, runtime_id: &str) -> Occupant {
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
        spec,
        class: CpuClass::Shared,
        cpus: "0-3".parse().unwrap(),
        exclusive: "".parse().unwrap(),
        mems: "0".parse().unwrap(),
        is_left_alone: false,
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
        *self.shown.reading.lock().unwrap() = self.reader.read(&occupancy);
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
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
        # HELP bayplan_cpu_frequency_hertz Frequency of the CPU now
        # TYPE bayplan_cpu_frequency_hertz gauge
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
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let line =
        r#"bayplan_container_cpu_seconds_total{namespace="default",pod="web",container="a"} 2.0"#;
    assert_eq!(lines, [line]);
}
