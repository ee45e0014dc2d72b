//! Frequency and sleep of CPUs: the daemon over the files of a frequency driver on a disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bayplan_daemon::post_control;
use bayplan_node::mode::{Mode, ModeReport};
use bayplan_types::CpuSet;
use expect_test::expect;
use tokio::time::{Duration, sleep};

use crate::node::{DAEMON, MACHINE, Node, kubelet, set, soon, wait_for_socket};
use crate::observing::{get, metrics, sum};

pub(crate) const CLASSES: &str = "\
reservedCpus: 0,8
sweepInterval: 100ms
cpuClasses:
  classes:
    fast: {governor: performance, minFreq: base, maxLatency: 10us}
    quiet: {energyPerformancePreference: power, maxFreq: 1GHz}
  exclusive: fast
  shared: quiet
";

pub(crate) fn file(node: &Node, cpu: u32, name: &str) -> PathBuf {
    let dir = node.host_root().join("sys/devices/system/cpu");
    match name {
        "latency" => dir.join(format!("cpu{cpu}/power/pm_qos_resume_latency_us")),
        name => dir.join(format!("cpufreq/policy{cpu}/{name}")),
    }
}

fn write(node: &Node, cpu: u32, name: &str, text: &str) {
    let path = file(node, cpu, name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// As intel_pstate shows itself; a disk takes everything.
pub(crate) fn write_driver(node: &Node) {
    for cpu in 0..16 {
        let rows = [
            ("affected_cpus", format!("{cpu}\n")),
            ("scaling_driver", "intel_pstate\n".to_owned()),
            ("cpuinfo_min_freq", "800000\n".to_owned()),
            ("cpuinfo_max_freq", "3600000\n".to_owned()),
            ("base_frequency", "2000000\n".to_owned()),
            ("scaling_available_governors", "performance powersave\n".to_owned()),
            ("scaling_governor", "powersave\n".to_owned()),
            ("scaling_min_freq", "800000\n".to_owned()),
            ("scaling_max_freq", "3600000\n".to_owned()),
            (
                "energy_performance_available_preferences",
                "performance balance_performance balance_power power\n".to_owned(),
            ),
            ("energy_performance_preference", "balance_performance\n".to_owned()),
            ("latency", "0\n".to_owned()),
        ];
        for (name, text) in rows {
            write(node, cpu, name, &text);
        }
    }
}

/// What is set on each CPU, for short.
fn shown(node: &Node, cpu: u32) -> String {
    let names = [
        "scaling_governor",
        "energy_performance_preference",
        "scaling_min_freq",
        "scaling_max_freq",
        "latency",
    ];
    let texts = names.map(|name| fs::read_to_string(file(node, cpu, name)).unwrap());
    texts.map(|text| text.trim().to_owned()).join(" ")
}

const BEFORE: &str = "powersave balance_performance 800000 3600000 0";
const FAST: &str = "performance performance 2000000 3600000 10";
pub(crate) const QUIET: &str = "powersave power 800000 1000000 0";

/// Waits until the CPUs of the sets show what stands beside them, and all others what was before.
pub(crate) async fn wait_for(node: &Node, rows: &[(&CpuSet, &str)]) {
    let wanted = |cpu: u32| {
        let row = rows.iter().find(|(cpus, _)| cpus.iter().any(|it| it.0 == cpu));
        row.map_or(BEFORE, |(_, text)| *text)
    };
    let reached = async {
        while (0..16).any(|cpu| shown(node, cpu) != wanted(cpu)) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    soon(reached).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cpus_have_the_class_of_the_container_there_and_everything_is_given_back() {
    let mut node = Node::without_daemon(MACHINE);
    write_driver(&node);
    node.spawn_daemon(CLASSES).await;
    let shared = set("1-7,9-15");
    wait_for(&node, &[(&shared, QUIET)]).await;

    let (pod, id) = node.guaranteed("owner", 2000).await;
    let own = node.cpus(&id);
    wait_for(&node, &[(&own, FAST), (&shared, QUIET)]).await;

    // Another program changes a file.
    let cpu = own.first().unwrap().0;
    write(&node, cpu, "scaling_governor", "powersave\n");
    wait_for(&node, &[(&own, FAST), (&shared, QUIET)]).await;

    let change = |to: Mode| {
        let (socket, path) = (node.control_socket(), format!("/api/v1/mode?to={}", to.name()));
        async move {
            let report: ModeReport =
                soon(post_control(&socket, &path, String::new())).await.unwrap();
            assert_eq!(report.files_not_written, [""; 0]);
        }
    };
    change(Mode::Restored).await;
    wait_for(&node, &[]).await;
    change(Mode::Placing).await;
    wait_for(&node, &[(&own, FAST), (&shared, QUIET)]).await;

    soon(node.kubelet.end_pod(&pod)).await.unwrap();
    wait_for(&node, &[(&shared, QUIET)]).await;
    // What a killed daemon has changed the next one gives back, which wants nothing of it.
    node.kill_daemon();
    node.spawn_daemon("reservedCpus: 0,8\n").await;
    wait_for(&node, &[]).await;
}

/// It was set aside, and with it the way back: the next daemon took for the original what the first one had written.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_read_what_was_before_loses_no_way_back() {
    let mut node = Node::without_daemon(MACHINE);
    write_driver(&node);
    node.spawn_daemon(CLASSES).await;
    let shared = set("1-7,9-15");
    wait_for(&node, &[(&shared, QUIET)]).await;
    node.kill_daemon();
    let originals = node.state_dir().join("originals/journal");
    let elsewhere = node.path("elsewhere");
    fs::rename(&originals, &elsewhere).unwrap();
    // A directory opens, and cannot be read.
    fs::create_dir(&originals).unwrap();

    node.spawn_daemon(&CLASSES.replace("  shared: quiet\n", "")).await;
    let (_, id) = node.guaranteed("owner", 2000).await;
    let own = node.cpus(&id);
    assert_eq!(own.len(), 2);
    let is_told =
        || async { sum(&metrics(&node).await, "bayplan_failures_total", &["kind=\"originals\""]) };
    soon(async { while is_told().await == 0.0 {} }).await;
    let (head, lacking) = get(&node, "GET /readyz").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(lacking.starts_with("what kernel files said before cannot be read"), "{lacking}");
    // What is set is neither given back nor changed.
    wait_for(&node, &[(&shared, QUIET)]).await;

    fs::remove_dir(&originals).unwrap();
    fs::rename(&elsewhere, &originals).unwrap();
    wait_for(&node, &[(&own, FAST)]).await;
    let is_ready = async || get(&node, "GET /readyz").await.0.starts_with("HTTP/1.1 200 ");
    soon(async { while !is_ready().await {} }).await;
    node.kill_daemon();
    node.spawn_daemon("reservedCpus: 0,8\n").await;
    wait_for(&node, &[]).await;
}

/// Everything below a directory: what files say, and where links lead.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            all.extend(tree(&path));
        }
        let text = match (kind.is_symlink(), kind.is_file()) {
            (true, _) => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            (_, true) => fs::read(&path).unwrap(),
            _ => Vec::new(),
        };
        all.insert(path, text);
    }
    all
}

/// What `bayplan plan` prints of a daemon that has changed no file.
async fn dry_run(more: &str, option: Option<&str>) -> String {
    let mut node = Node::without_daemon(MACHINE);
    write_driver(&node);
    let classes = CLASSES.replace("  shared: quiet\n", "");
    let (arguments, metrics) =
        node.daemon_arguments(&format!("{classes}isolation: {{interrupts: disable}}\n{more}"));
    let interrupt = node.host_root().join("proc/irq/9/smp_affinity_list");
    fs::create_dir_all(interrupt.parent().unwrap()).unwrap();
    fs::write(interrupt, "0-15\n").unwrap();
    let before = tree(&node.host_root());

    let log = node.path("log");
    let mut command = Command::new(DAEMON);
    command.args(arguments).args(option).env_remove("BAYPLAN_LOG").stdin(Stdio::null());
    command
        .stderr(fs::File::create(&log).unwrap())
        .stdout(fs::File::create(node.path("out")).unwrap());
    node.adopt_daemon(command.spawn().unwrap(), metrics);
    node.kubelet = kubelet(node.path("bayplan.sock"));
    soon(wait_for_socket(&node.path("bayplan.sock"))).await;
    let (_, id) = node.guaranteed("owner", 2000).await;
    assert_eq!(node.cpus(&id), set("1,9"));

    // The daemon has looked for itself, and says so; asked, it says the same.
    let said =
        || fs::read_to_string(&log).unwrap() + &fs::read_to_string(node.path("out")).unwrap();
    soon(async {
        while !said().contains("away from CPUs 1,9") {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let mut plan = Command::new(DAEMON);
    plan.args(["plan", "--control"]).arg(node.control_socket()).env_remove("BAYPLAN_CONFIG");
    let plan = plan.output().unwrap();
    assert!(plan.status.success(), "{plan:?}");
    node.kill_daemon();
    let after = tree(&node.host_root());
    let changed: Vec<_> =
        after.iter().filter(|(path, text)| before.get(*path) != Some(text)).collect();
    assert!(changed.is_empty() && after.len() == before.len(), "{changed:?}");
    String::from_utf8(plan.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_it_would_write_and_writes_nothing() {
    let by_configuration = dry_run("enforcement: dry-run\n", None).await;
    assert_eq!(dry_run("", Some("--dry-run")).await, by_configuration);
    expect![[r#"
        shrink /proc/irq/9/smp_affinity_list 0-15 -> 0,2-8,10-15  (irq 9: away from CPUs 1,9)
        set    /sys/devices/system/cpu/cpufreq/policy1/scaling_governor powersave -> performance  (CPU 1: class "fast": governor)
        set    /sys/devices/system/cpu/cpufreq/policy9/scaling_governor powersave -> performance  (CPU 9: class "fast": governor)
        set    /sys/devices/system/cpu/cpufreq/policy1/scaling_min_freq 800000 -> 2000000  (CPU 1: class "fast": lowest frequency)
        set    /sys/devices/system/cpu/cpufreq/policy9/scaling_min_freq 800000 -> 2000000  (CPU 9: class "fast": lowest frequency)
        set    /sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us 0 -> 10  (CPU 1: class "fast": time to wake up)
        set    /sys/devices/system/cpu/cpu9/power/pm_qos_resume_latency_us 0 -> 10  (CPU 9: class "fast": time to wake up)
        set    /sys/devices/system/cpu/cpufreq/policy1/energy_performance_preference balance_performance -> performance  (CPU 1: class "fast": preference)
        set    /sys/devices/system/cpu/cpufreq/policy9/energy_performance_preference balance_performance -> performance  (CPU 9: class "fast": preference)
    "#]]
    .assert_eq(&by_configuration);
}
