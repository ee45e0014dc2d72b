//! A real Prometheus (Debian's package, see `cargo xtask setup`) scrapes the daemon, evaluates the rules of `deploy/prometheus`, and is asked everything that the
//! dashboard of `deploy/grafana` asks. In: a node whose kernel files count everything. Out: every question answered, and every name in one documented.
//!
//! Containers have no processes here, so what probes count of them has to have an answer only where it is told of; `containerd/audit.rs` has it all told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bayplan_tests::process::find_unpacked;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::node::{MACHINE, Node, soon};

/// Enough for a busy machine; each scrape and each rule has a turn every second.
const PATIENCE: Duration = Duration::from_secs(120);

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

fn promtool(args: &[&str], input: &str) {
    let program = find_unpacked("promtool", "prometheus").unwrap();
    let mut command = Command::new(program);
    command.args(args).current_dir(deploy("prometheus"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let [out, err] = [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(done.status.success(), "promtool {args:?}\n{out}{err}");
}

#[test]
fn the_rules_do_what_their_tests_say() {
    promtool(&["check", "rules", "bayplan.rules.yaml"], "");
    promtool(&["test", "rules", "bayplan.rules.test.yaml"], "");
}

/// Something that is asked of Prometheus, and by whom.
struct Question {
    from: String,
    expression: String,
}

impl Question {
    /// Names of metrics, those that recording rules make included.
    fn names(&self) -> BTreeSet<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let words = self.expression.split(|c: char| !is_part(c));
        let is_name = |it: &&str| {
            it.starts_with("bayplan_") || it.starts_with("process_") || it.contains(':')
        };
        words.filter(is_name).map(str::to_owned).collect()
    }

    /// No answer is an answer, too.
    fn is_condition(&self) -> bool {
        [" > ", " < ", " == "].iter().any(|it| self.expression.contains(it))
    }
}

/// Everything that the rules say, and the names of what they record with its expression.
fn rules() -> (Vec<Question>, BTreeMap<String, Question>) {
    let text = fs::read_to_string(deploy("prometheus/bayplan.rules.yaml")).unwrap();
    let (mut all, mut recorded) = (Vec::new(), BTreeMap::new());
    let file: Value = serde_yaml::from_str(&text).unwrap();
    for rule in file["groups"].as_array().unwrap().iter().flat_map(|it| it["rules"].as_array()) {
        for rule in rule {
            let expression = rule["expr"].as_str().unwrap().to_owned();
            let question =
                |from: &str| Question { from: from.to_owned(), expression: expression.clone() };
            match (rule["record"].as_str(), rule["alert"].as_str()) {
                (Some(name), _) => drop(recorded.insert(name.to_owned(), question(name))),
                (_, Some(name)) => all.push(question(name)),
                _ => panic!("neither a record nor an alert: {rule}"),
            }
        }
    }
    (all, recorded)
}

/// Everything that the dashboard asks, with everything chosen.
fn dashboard() -> Vec<Question> {
    let text = fs::read_to_string(deploy("grafana/bayplan.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push((title.to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["definition"].as_str() else { continue };
        // label_values(METRIC, LABEL)
        let inner = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (metric, label) = inner.rsplit_once(", ").unwrap();
        let name = variable["name"].as_str().unwrap();
        all.push((format!("${name}"), format!("group by ({label}) ({metric})")));
    }
    let chosen = |expression: &str| {
        let mut expression = expression.replace("$__rate_interval", "1m");
        for variable in ["$instance", "$namespace", "$pod", "$container"] {
            expression = expression.replace(variable, ".*");
        }
        assert!(!expression.contains('$'), "{expression}");
        expression
    };
    all.into_iter()
        .map(|(from, expression)| Question { from, expression: chosen(&expression) })
        .collect()
}

/// Prometheus with the rules, ended with the test.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Prometheus {
    fn start(node: &Node) -> Prometheus {
        let dir = node.path("prometheus");
        fs::create_dir(&dir).unwrap();
        let (rules, target) = (deploy("prometheus/bayplan.rules.yaml"), node.metrics_address());
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: bayplan, static_configs: [{{targets: [\"{target}\"]}}]}}]\n",
            rules.display()
        );
        fs::write(dir.join("prometheus.yml"), config).unwrap();
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let log = dir.join("log");
        let child = Command::new(find_unpacked("prometheus", "prometheus").unwrap())
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Prometheus { child, address, log }
    }

    /// The answer to a query at this moment; an error when it is not yet there, or not a good question.
    async fn ask(&self, expression: &str) -> Result<Vec<Value>, String> {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/query?query={query}");
        let answer =
            request(self.address, &path, "*/*").await.map_err(|error| error.to_string())?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
        let answer: Value = serde_json::from_str(body).map_err(|_| body.to_owned())?;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"]["result"].as_array().unwrap().clone()),
            _ => Err(answer["error"].to_string()),
        }
    }
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

/// What this node may lack: probes, and a kernel file that somebody else has changed.
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

/// Names of samples.
fn samples(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// What comes out of questions now: names of metrics that are there, and what is wrong with the answers.
async fn round(
    prometheus: &Prometheus,
    target: SocketAddr,
    questions: &[Question],
    recorded: &BTreeMap<String, Question>,
) -> Vec<String> {
    let text = match request(target, "/metrics", "*/*").await {
        Ok(text) => text,
        Err(error) => return vec![error.to_string()],
    };
    let samples = samples(&text);
    let is_there = |name: &String| samples.contains(&**name);
    let mut wrong = Vec::new();
    for question in questions.iter().chain(recorded.values()) {
        let made_of = |name: String| match recorded.get(&name) {
            Some(question) => question.names(),
            None => BTreeSet::from([name]),
        };
        let names: BTreeSet<String> =
            question.names().into_iter().flat_map(made_of).flat_map(made_of).collect();
        let is_due = names.iter().all(is_there) && !question.is_condition();
        match prometheus.ask(&question.expression).await {
            Ok(found) if found.is_empty() && is_due => {
                wrong.push(format!("{}: no answer to {}", question.from, question.expression));
            }
            Ok(_) => {}
            Err(error) => {
                wrong.push(format!("{}: {error}: {}", question.from, question.expression))
            }
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_answers_what_the_dashboard_and_the_rules_ask() {
    let mut node = Node::without_daemon(MACHINE);
    write_node(&node.host_root());
    node.spawn_daemon("observeInterval: 1s\nreservedCpus: \"0,8\"\n").await;
    node.guaranteed("owner", 2000).await;
    node.burstable("shared", 500).await;
    write_groups(&node).await;
    let prometheus = Prometheus::start(&node);
    let (alerts, recorded) = rules();
    let questions: Vec<Question> = dashboard().into_iter().chain(alerts).collect();

    let (deadline, target) = (Instant::now() + PATIENCE, node.metrics_address());
    // All of it once at least, or else nothing was due.
    let mut is_seen = false;
    loop {
        let text = request(target, "/metrics", "*/*").await.unwrap_or_default();
        is_seen |= text.contains("\nbayplan_container_cpu_seconds_total{");
        let wrong = round(&prometheus, target, &questions, &recorded).await;
        if is_seen && wrong.is_empty() {
            break;
        }
        let log = fs::read_to_string(&prometheus.log).unwrap();
        assert!(Instant::now() < deadline, "{}\n{log}\n{text}", wrong.join("\n"));
        sleep(Duration::from_millis(500)).await;
    }

    let answer = soon(request(target, "/metrics", "*/*")).await.unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    promtool(&["check", "metrics"], text);

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
