//! A node inside of namespaces: containerd, kubelet with pods from files, and Bayplan where the configuration has it. Everything ends with the namespaces.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value as Json, json};

use super::cell::{CGROUP_ROOT, Task, hierarchies, patient};
use super::chains::Chains;
use super::configuration::Configuration;
use super::holding::nodes;
use super::manifest::IMAGE;
use super::scenario::{Play, Scenario};

const RUNTIME: &str = "/run/containerd/containerd.sock";
const BAYPLAN: &str = "/run/bayplan/bayplan.sock";
/// Of a proxy that was given.
const PROXY: &str = "/run/proxy.sock";
const PLUGINS: &str = "/run/nri/nri.sock";
const METRICS: u16 = 9478;
const PODS: u16 = 10255;
const MANIFESTS: &str = "/var/lib/kubelet/manifests";
/// That of the node, in a network of its own.
const ADDRESS: &str = "192.0.2.10";
const PATIENCE: Duration = Duration::from_secs(60);
/// They belong to the machine; kubelet gets plain files in their place.
const SYSCTLS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Asks until there is an answer; `limit` is that of a machine that is not emulated.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let limit = patient(limit);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(Instant::now() < deadline, "waited {} s for {what}", limit.as_secs());
        sleep(Duration::from_millis(50));
    }
}

/// Runs a command and shows its output only when it fails.
fn command(line: &[&str]) -> anyhow::Result<()> {
    let (program, args) = line.split_first().context("an empty command")?;
    let done = Command::new(program).args(args).output();
    let done = done.with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}: {}", line.join(" "), said.trim());
    Ok(())
}

/// Starts everything; then kubelet takes pods.
pub(crate) fn start(
    task: &Task,
    configuration: Configuration,
    scenario: &Scenario,
) -> anyhow::Result<()> {
    make_network()?;
    make_directories(&task.work)?;
    make_control_groups()?;
    start_containerd(task)?;
    match configuration {
        _ if configuration.is_bayplan() => {
            let more = match scenario.play {
                Play::Chains(deployment) => {
                    Chains::of(&nodes(), deployment).bayplan_options(deployment)
                }
                _ => String::new(),
            };
            start_bayplan(task, configuration, &more)?;
        }
        Configuration::GivenProxy => start_given("proxy", task.given.proxy.as_deref(), &task.work)?,
        Configuration::GivenPlugin => {
            start_given("plugin", task.given.plugin.as_deref(), &task.work)?
        }
        _ => {}
    }
    start_kubelet(task, configuration)
}

/// One address and a default route, which kubelet looks for.
fn make_network() -> anyhow::Result<()> {
    let address = format!("{ADDRESS}/24");
    command(&["ip", "link", "set", "lo", "up"])?;
    let veth = ["ip", "link", "add", "uplink0", "type", "veth", "peer", "name", "uplink1"];
    if let Err(error) = command(&veth) {
        // Guests have no such driver, and no pod there has a network of its own.
        eprintln!("without a veth: {error:#}");
        command(&["ip", "address", "add", &address, "dev", "lo"])?;
        return command(&["ip", "route", "add", "default", "dev", "lo"]);
    }
    for line in [
        &["ip", "address", "add", &address, "dev", "uplink0"][..],
        &["ip", "link", "set", "uplink0", "up"],
        &["ip", "link", "set", "uplink1", "up"],
        &["ip", "route", "add", "default", "via", "192.0.2.1", "dev", "uplink0"],
    ] {
        command(line)?;
    }
    Ok(())
}

/// A /run, a /var/lib and a /var/log of our own, and files in place of sysctls.
fn make_directories(work: &Path) -> anyhow::Result<()> {
    command(&["mount", "--make-rshared", "/"])?;
    let names = Path::new("/etc/resolv.conf");
    let text = fs::read_to_string(names).unwrap_or_default();
    command(&["mount", "-t", "tmpfs", "tmpfs", "/run"])?;
    if !names.exists() {
        // A link into the /run that is now hidden; containerd copies it into every pod.
        let target = fs::read_link(names).map(|it| Path::new("/etc").join(it))?;
        fs::create_dir_all(target.parent().context("a directory")?)?;
        fs::write(target, text)?;
    }
    for dir in ["/run/netns", "/run/lock", "/run/bayplan", "/run/nri"] {
        fs::create_dir_all(dir)?;
    }
    for name in ["lib", "log"] {
        let own = work.join(name);
        fs::create_dir_all(&own)?;
        command(&["mount", "--bind", &own.display().to_string(), &format!("/var/{name}")])?;
    }
    for name in SYSCTLS {
        let file = work.join(name.replace('/', "-"));
        let place = Path::new("/proc/sys").join(name);
        fs::write(&file, fs::read(&place)?)?;
        command(&["mount", "--bind", &file.display().to_string(), &place.display().to_string()])?;
    }
    for dir in [work.join("out"), work.join("tmp"), work.join("cni"), MANIFESTS.into()] {
        fs::create_dir_all(dir)?;
    }
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "reenact",
        "plugins": [{
            "type": "bridge",
            "bridge": "reenact0",
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/ipam",
                "ranges": [[{ "subnet": "10.88.0.0/16" }]],
            },
        }],
    });
    Ok(fs::write(work.join("cni/10-reenact.conflist"), network.to_string())?)
}

/// The root of kubelet's control groups, with all CPUs.
fn make_control_groups() -> anyhow::Result<()> {
    for hierarchy in hierarchies() {
        let group = hierarchy.join(CGROUP_ROOT);
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        for name in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(text) = fs::read_to_string(hierarchy.join(name)) {
                fs::write(group.join(name), text.trim())?;
            }
        }
    }
    Ok(())
}

/// Its output goes to `NAME.log`.
fn spawn(name: &str, mut command: Command, work: &Path) -> anyhow::Result<Child> {
    let log = File::create(work.join(format!("{name}.log")))?;
    let spawned = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    spawned.with_context(|| format!("cannot start {name}"))
}

/// Until `is_up`; fails with the end of its log when it ends.
fn await_up(
    name: &str,
    mut child: Child,
    work: &Path,
    mut is_up: impl FnMut() -> bool,
) -> anyhow::Result<()> {
    let up = wait_for(name, PATIENCE, || {
        if let Some(status) = child.try_wait()? {
            bail!("{name} ended with {status}");
        }
        Ok(is_up().then_some(()))
    });
    up.with_context(|| {
        let log = fs::read_to_string(work.join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("; ")
    })
}

fn start_containerd(task: &Task) -> anyhow::Result<()> {
    let work = &task.work;
    let dir = work.display();
    let config = work.join("containerd.toml");
    // `restrict_oom_score_adj`: a machine without CAP_SYS_RESOURCE cannot lower the score.
    let text = format!(
        r#"version = 3
root = "{dir}/root"
state = "/run/containerd"
[grpc]
  address = "{RUNTIME}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{dir}/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.nri.v1.nri"]
  socket_path = "{PLUGINS}"
  plugin_path = "{dir}/nri/plugins"
  plugin_config_path = "{dir}/nri/conf.d"
"#
    );
    fs::write(&config, text)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = [task.programs.containerd.clone(), task.programs.runc.clone()];
    let dirs = dirs.into_iter().chain(std::env::split_paths(&path));
    let mut program = Command::new(task.programs.containerd.join("containerd"));
    program.env("PATH", std::env::join_paths(dirs)?).env("TMPDIR", work.join("tmp"));
    program.arg("--config").arg(config).args(["--log-level", "warn"]);
    let child = spawn("containerd", program, work)?;
    await_up("containerd", child, work, || UnixStream::connect(RUNTIME).is_ok())?;
    let image = task.image.display().to_string();
    command(&["ctr", "-a", RUNTIME, "-n", "k8s.io", "images", "import", &image])
}

/// `more`: what the scenario adds to its configuration.
fn start_bayplan(task: &Task, configuration: Configuration, more: &str) -> anyhow::Result<()> {
    let work = &task.work;
    let is_plugin = configuration == Configuration::Nri;
    let front_end = match is_plugin {
        true => format!("frontEnd: nri\nnri: {{socket: {PLUGINS}}}\n"),
        false => format!("socket: {BAYPLAN}\n"),
    };
    let config = work.join("bayplan.yaml");
    let text = format!(
        "{front_end}runtimeSocket: {RUNTIME}\ncontrolSocket: /run/bayplan/control.sock\nstateDir: {}\nmetricsAddress: 127.0.0.1:{METRICS}\n{more}",
        work.join("state").display()
    );
    fs::write(&config, text)?;
    let mut program = Command::new(&task.programs.bayplan);
    program.arg("--config").arg(config).arg("run");
    let child = spawn("bayplan", program, work)?;
    await_up("bayplan", child, work, || match is_plugin {
        false => UnixStream::connect(BAYPLAN).is_ok() && fetch(METRICS, "/healthz").is_ok(),
        true => fetch(METRICS, "/api/v1/status")
            .ok()
            .and_then(|text| serde_json::from_str::<Json>(&text).ok())
            .is_some_and(|status| status["front_end"]["is_registered"] == true),
    })
}

/// A proxy has started when it listens, a plugin when containerd has a connection to it.
fn start_given(name: &str, line: Option<&str>, work: &Path) -> anyhow::Result<()> {
    let line = line.with_context(|| format!("no --{name}"))?;
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {line}")]);
    shell.envs([("RUNTIME", RUNTIME), ("SOCKET", PROXY), ("NRI", PLUGINS)]);
    let child = spawn(name, shell, work)?;
    await_up(name, child, work, || match name {
        "proxy" => UnixStream::connect(PROXY).is_ok(),
        _ => fs::read_to_string("/proc/net/unix").is_ok_and(|it| has_connection(&it, PLUGINS)),
    })
}

/// Whether /proc/net/unix has a connection (state 03) that was accepted at this path.
fn has_connection(text: &str, path: &str) -> bool {
    let cells = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    cells.into_iter().any(|it| it.get(5) == Some(&"03") && it.get(7) == Some(&path))
}

fn start_kubelet(task: &Task, configuration: Configuration) -> anyhow::Result<()> {
    let work = &task.work;
    let runtime = match configuration {
        Configuration::Proxy => BAYPLAN,
        Configuration::GivenProxy => PROXY,
        _ => RUNTIME,
    };
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "readOnlyPort": PODS,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "staticPodPath": MANIFESTS,
        "volumePluginDir": work.join("volume-plugins"),
        "containerRuntimeEndpoint": format!("unix://{runtime}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{CGROUP_ROOT}"),
        // The static CPU manager needs a reservation; a whole CPU for it would leave none to request on a machine of two.
        "systemReserved": { "cpu": "100m" },
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "failCgroupV1": false,
        "makeIPTablesUtilChains": false,
        "fileCheckFrequency": "1s",
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
    });
    if let (Some(config), Json::Object(more)) =
        (config.as_object_mut(), configuration.kubelet_options())
    {
        config.extend(more);
    }
    let file = work.join("kubelet.json");
    fs::write(&file, config.to_string())?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut program = Command::new(&task.programs.kubelet);
    program.env("PATH", format!("{path}:/usr/sbin:/sbin")).arg("--config").arg(file);
    program.args(["--hostname-override", "reenact", "--node-ip", ADDRESS, "--cert-dir"]);
    program.arg(work.join("kubelet-pki"));
    let child = spawn("kubelet", program, work)?;
    // It says it is well before it answers about pods.
    await_up("kubelet", child, work, || {
        fetch(10248, "/healthz").is_ok() && fetch(PODS, "/pods").is_ok()
    })
}

/// The body of an answer of status 200.
fn fetch(port: u16, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the head")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.split(' ').nth(1) == Some("200"), "{path}: {status}");
    Ok(body.to_owned())
}

/// Gives kubelet a pod.
pub(crate) fn submit(name: &str, manifest: &Json) -> anyhow::Result<()> {
    // Written beside it first, so that kubelet never reads half of it.
    let partial = PathBuf::from(format!("{MANIFESTS}/../{name}.json"));
    fs::write(&partial, manifest.to_string())?;
    Ok(fs::rename(partial, Path::new(MANIFESTS).join(format!("{name}.json")))?)
}

/// A pod that runs.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// The runtime's id of its container.
    pub(crate) container: String,
    pub(crate) address: String,
}

/// Until the pod's container runs.
pub(crate) fn await_running(name: &str) -> anyhow::Result<Running> {
    let full = format!("{name}-reenact");
    wait_for(&format!("pod {name}"), PATIENCE, || {
        let pods: Json = serde_json::from_str(&fetch(PODS, "/pods")?)?;
        let items = pods["items"].as_array().cloned().unwrap_or_default();
        let Some(pod) = items.into_iter().find(|it| it["metadata"]["name"] == full) else {
            return Ok(None);
        };
        let status = &pod["status"];
        if status["phase"] == "Failed" || status["phase"] == "Succeeded" {
            bail!("pod {name} has ended: {}", status);
        }
        let main = &status["containerStatuses"][0];
        if main["state"].get("running").is_none() {
            return Ok(None);
        }
        let id = main["containerID"].as_str().unwrap_or_default();
        let (_, container) = id.split_once("://").context("a container's id")?;
        let address = status["podIP"].as_str().unwrap_or_default().to_owned();
        Ok(Some(Running { container: container.to_owned(), address }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_there_when_the_runtime_has_accepted_it() {
        let listening = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                         0000000000000000: 00000002 00000000 00010000 0001 01 81 /run/nri/nri.sock\n";
        assert!(!has_connection(listening, PLUGINS));
        let accepted =
            "0000000000000000: 00000003 00000000 00000000 0001 03 95 /run/nri/nri.sock\n";
        assert!(has_connection(&format!("{listening}{accepted}"), PLUGINS));
        assert!(!has_connection(accepted, PROXY));
    }
}
