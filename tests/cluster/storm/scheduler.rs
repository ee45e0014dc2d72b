//! kube-scheduler as scheduler-plugins builds it, as a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use crate::servers::{ADMIN, Servers, find, is_missing};
use crate::world::kubeconfig;

const PLUGIN: &str = "NodeResourceTopologyMatch";
const VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// By a variable, or in the cache of programs. `None`: it is not there, which is said, and a failure where it is required.
pub(crate) fn find_scheduler() -> Option<PathBuf> {
    let found = find("BAYPLAN_SCHEDULER", "kube-scheduler", "kube-scheduler-");
    if found.is_none() {
        is_missing("kube-scheduler");
    }
    found
}

/// A process that ends with this value.
pub(crate) struct Scheduler(Child);

impl Drop for Scheduler {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

impl Scheduler {
    /// `has_zones`: with the plugin that reads NodeResourceTopologies.
    pub(crate) fn start(servers: &Servers, program: &Path, has_zones: bool) -> Scheduler {
        let access = servers.path("scheduler.kubeconfig");
        fs::write(&access, kubeconfig(&servers.address(), ADMIN)).unwrap();
        let file = servers.path("scheduler.yaml");
        fs::write(&file, configuration(&access, has_zones).to_string()).unwrap();
        let log = fs::File::create(servers.path("scheduler.log")).unwrap();
        let mut command = Command::new(program);
        command.arg("--config").arg(file);
        command.args(["--secure-port=0", "--authentication-skip-lookup=true", "--v=2"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Scheduler(command.spawn().unwrap())
    }

    /// The end of its log, for messages.
    pub(crate) fn words(&self, servers: &Servers) -> String {
        let log = fs::read_to_string(servers.path("scheduler.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

fn configuration(access: &Path, has_zones: bool) -> Json {
    let mut profile = json!({ "schedulerName": "default-scheduler" });
    if has_zones {
        profile["plugins"] = json!({ "multiPoint": { "enabled": [{ "name": PLUGIN }] } });
        profile["pluginConfig"] = json!([{ "name": PLUGIN, "args": {
            "apiVersion": VERSION, "kind": format!("{PLUGIN}Args"), "cacheResyncPeriodSeconds": 1,
            "cache": { "informerMode": "Dedicated" },
        } }]);
    }
    json!({
        "apiVersion": VERSION,
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": { "leaderElect": false },
        "clientConnection": { "kubeconfig": access, "qps": 500, "burst": 1000 },
        // A storm is over before the pauses of a scheduler that is in no hurry.
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "profiles": [profile],
    })
}
