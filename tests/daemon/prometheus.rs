//! A real Prometheus (Debian's package, see `cargo xtask setup`) scrapes the daemon, evaluates the rules of `deploy/prometheus`, and is asked
//! everything that the dashboard of `deploy/grafana` asks. In: a node with kernel files that count everything. Out: every question answered, and
//! every name in one documented.
//!
//! Containers have no processes here, so what probes count of them has to have an answer only where it is told of; `containerd/audit.rs` has it all told.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bayplan_tests::prometheus::{Prometheus, Question, dashboard, promtool, rules, samples};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::node::{MACHINE, Node, soon};

/// Enough for a busy machine; each scrape and each rule has a turn every second.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn the_rules_do_what_their_tests_say() {
    promtool(&["check", "rules", "bayplan.rules.yaml"], "").unwrap();
    promtool(&["test", "rules", "bayplan.rules.test.yaml"], "").unwrap();
    promtool(&["check", "rules", "bayplan.scheduling.rules.yaml"], "").unwrap();
    promtool(&["test", "rules", "bayplan.scheduling.rules.test.yaml"], "").unwrap();
}

/// HTTP/1.0, so that the answer comes in one piece.
async fn request(address: SocketAddr, path: &str, accept: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// What a kernel counts of the node and its CPUs.
fn write_node(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let idle: String = (0..16).map(|cpu| format!("cpu{cpu} 1 2 3 400 5 0 0 0 0 0\n")).collect();
    write("proc/stat", &idle);
    for resource in ["cpu", "memory", "io", "irq"] {
        write(&format!("proc/pressure/{resource}"), STALL);
    }
    let rapl = "sys/class/powercap/intel-rapl:0";
    write(&format!("{rapl}/name"), "package-0\n");
    write(&format!("{rapl}/energy_uj"), "90000000\n");
    for cpu in 0..16 {
        let cpu = format!("sys/devices/system/cpu/cpu{cpu}");
        write(&format!("{cpu}/cpufreq/scaling_cur_freq"), "2400000\n");
        write(&format!("{cpu}/thermal_throttle/core_throttle_count"), "3\n");
    }
    let uncore = "sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00";
    write(&format!("{uncore}/current_freq_khz"), "2400000\n");
    let cache = "sys/fs/resctrl/bayplan.gold/mon_data/mon_L3_00";
    for file in ["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"] {
        write(&format!("{cache}/{file}"), "4096\n");
    }
    write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n");
}

/// What this node may lack: probes, and a kernel file that another program has changed.
const MAY_BE_ABSENT: [&str; 10] = [
    "bayplan_container_run_delay_seconds",
    "bayplan_container_preemptions_total",
    "bayplan_container_migrations_total",
    "bayplan_container_intrusion",
    "bayplan_container_cycles_total",
    "bayplan_container_instructions_total",
    "bayplan_container_cache_misses_total",
    "bayplan_container_counting_seconds_total",
    "bayplan_probe_state",
    "bayplan_file_drifts_total",
];

const STALL: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";

/// What it counts of containers.
async fn write_groups(node: &Node) {
    for held in node.status().await.containers {
        let parent = held.cgroup_parent.trim_start_matches('/');
        let id = held.id.unwrap();
        let dir = node.host_root().join("sys/fs/cgroup").join(parent).join(&id);
        fs::create_dir_all(&dir).unwrap();
        let monitor = format!("sys/fs/resctrl/mon_groups/bayplan.{id}/mon_data/mon_L3_00");
        let monitor = node.host_root().join(monitor);
        fs::create_dir_all(&monitor).unwrap();
        for file in ["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"] {
            fs::write(monitor.join(file), "4096\n").unwrap();
        }
        for (file, text) in [
            ("cpu.stat", "usage_usec 1500000\nthrottled_usec 250000\n"),
            ("memory.numa_stat", "anon N0=4096 N1=8192\nfile N0=1 N1=0\n"),
            ("memory.stat", "workingset_refault_file 5\npgdemote_kswapd 2\n"),
            ("memory.events", "oom_kill 0\n"),
            ("io.stat", "8:0 rbytes=10 wbytes=20 rios=1 wios=2\n"),
            ("cpu.pressure", STALL),
            ("memory.pressure", STALL),
            ("io.pressure", STALL),
            ("cgroup.type", "domain\n"),
        ] {
            fs::write(dir.join(file), text).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_answers_what_the_dashboard_and_the_rules_ask() {
    let mut node = Node::without_daemon(MACHINE);
    write_node(&node.host_root());
    node.spawn_daemon("observeInterval: 1s\nreservedCpus: \"0,8\"\n").await;
    node.guaranteed("owner", 2000).await;
    node.burstable("shared", 500).await;
    write_groups(&node).await;
    let target = node.metrics_address();
    let prometheus = Prometheus::start(&node.path("prometheus"), &target.to_string()).unwrap();
    let (alerts, recorded) = rules().unwrap();
    let questions: Vec<Question> = dashboard().unwrap().into_iter().chain(alerts).collect();

    let deadline = Instant::now() + PATIENCE;
    // All of it once at least, or else nothing was due.
    let mut is_seen = false;
    loop {
        let text = request(target, "/metrics", "*/*").await.unwrap_or_default();
        is_seen |= text.contains("\nbayplan_container_cpu_seconds_total{");
        let wrong =
            prometheus.wrong_answers(questions.iter().chain(recorded.values()), &recorded, &text);
        if is_seen && wrong.is_empty() {
            break;
        }
        let (wrong, log) = (wrong.join("\n"), prometheus.log());
        assert!(Instant::now() < deadline, "{wrong}\n{log}\n{text}");
        sleep(Duration::from_millis(500)).await;
    }

    let answer = soon(request(target, "/metrics", "*/*")).await.unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    promtool(&["check", "metrics"], text).unwrap();

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let asked = questions.iter().chain(recorded.values());
    for name in asked.flat_map(Question::names).filter(|it| !recorded.contains_key(it)) {
        let ends = ["", "_bucket", "_sum", "_count"];
        let mut families = ends.iter().filter_map(|end| name.strip_suffix(end));
        assert!(families.any(|it| page.contains(&format!("| `{it}` |"))), "{name} is no metric");
        let is_there = samples(text).contains(&*name);
        let may_be_absent = MAY_BE_ABSENT.iter().any(|it| name.starts_with(it));
        assert!(is_there || may_be_absent, "{name} is not exported\n{text}");
    }
}
