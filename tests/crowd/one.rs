//! What the agent of one node needs: a process beside a daemon with as many pods as kubelet lets a node have, each of the size that controllers make them. As the manifests start it, and with
//! everything: then it publishes all parts and tells the daemon of pods.

use std::fs;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::figures::cpu_seconds;
use crate::servers::Servers;
use crate::world::{AGENT_PROGRAM, World};

/// `maxPods` of kubelet.
const PODS: usize = 110;
/// What follows a start is over.
const SETTLED: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_secs(120);
/// MiB that are resident of the program of a package; of another one, its own memory alone: of a program that was not made small more pages are read.
const MEMORY_MAX: f64 = 25.0;
/// Parts of one CPU.
const CPU_MAX: f64 = 0.001;

pub(crate) async fn measure(servers: Servers) {
    let mut world = World::start(servers).await;
    let mut size = 0;
    for number in 0..PODS {
        let name = format!("pod{number}");
        let path = "/api/v1/namespaces/default/pods";
        let (status, told) = world.as_admin("POST", path, &pod(&name)).await;
        assert_eq!(status, 200, "{told}");
        size = told.to_string().len();
        world.node.burstable(&name, 20).await;
    }
    println!("{PODS} pods of {size} bytes");
    world.restart_plain_agent().await;
    check("as the manifests start it", world.agent_pid()).await;
    world.restart_agent().await;
    check("with everything", world.agent_pid()).await;
}

async fn check(name: &str, pid: u32) {
    sleep(SETTLED).await;
    let before = cpu_seconds(pid).unwrap();
    sleep(REST).await;
    let cpu = (cpu_seconds(pid).unwrap() - before) / REST.as_secs_f64();
    let [resident, own, peak] = ["VmRSS:", "RssAnon:", "VmHWM:"].map(|it| mebibytes(pid, it));
    println!(
        "{name}: {resident:.1} MiB resident, {own:.1} of them its own, {peak:.1} at most; {:.3} % of a CPU at rest",
        cpu * 100.0
    );
    let is_packaged = std::env::var_os(AGENT_PROGRAM).is_some();
    let memory = if is_packaged { peak } else { own };
    if is_packaged || !cfg!(debug_assertions) {
        assert!(memory < MEMORY_MAX && cpu < CPU_MAX, "more than it may need");
    }
}

/// A pod with what a Deployment's has beside its programs.
fn pod(name: &str) -> Json {
    let variables: Vec<Json> = (0..30)
        .map(|it| json!({ "name": format!("VARIABLE_{it}"), "value": format!("a value of the usual length, number {it}") }))
        .collect();
    let amounts = json!({ "requests": { "cpu": "20m", "memory": "64Mi" } });
    let mounts: Vec<Json> = (0..6)
        .map(|it| json!({ "name": format!("volume{it}"), "mountPath": format!("/etc/volume{it}") }))
        .collect();
    let volumes: Vec<Json> = (0..6)
        .map(|it| json!({ "name": format!("volume{it}"), "configMap": { "name": format!("settings-{it}") } }))
        .collect();
    let container = json!({ "name": name, "image": "registry.example.com/team/program:1.2.3", "env": variables, "resources": amounts, "volumeMounts": mounts });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": name }, "annotations": { "kubernetes.io/config.mirror": format!("default-{name}"), "note": "x".repeat(2000) } },
        "spec": { "nodeName": "n1", "containers": [container], "volumes": volumes },
    })
}

/// A line of `proc_pid_status(5)`.
fn mebibytes(pid: u32, key: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix(key)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}
