//! Looks at a node before the daemon is trusted with it. In: a configuration, the files of the node, the runtime. Out: findings.

use std::path::Path;

use bayplan_allocator::policy::topology_aware::{PoolsError, pools};
use bayplan_cri::upstream::Upstream;
use bayplan_host::{Depth, read_snapshot};
use bayplan_topology::{Topology, derive};
use serde::Serialize;

use crate::config::Config;
use crate::socket::find_group;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, but not as well as it could.
    Warning,
    /// Does not work.
    Failure,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, a short word.
    pub check: &'static str,
    /// How it is.
    pub severity: Severity,
    /// What was found and what to do.
    pub message: String,
}

fn finding(check: &'static str, severity: Severity, message: impl Into<String>) -> Finding {
    Finding { check, severity, message: message.into() }
}

/// Everything about a node that the daemon needs.
pub async fn check_node(config: &Config) -> Vec<Finding> {
    let mut findings = check_machine(config);
    findings.push(check_cgroups(&config.host_root));
    findings.push(check_rights(config));
    findings.push(check_runtime(config).await);
    findings.extend(check_kubelet(&config.host_root));
    findings
}

/// What is odd about the machine, and what the configuration wants that it does not have.
pub fn check_machine(config: &Config) -> Vec<Finding> {
    // Every file, to see contradictions that a quick reading would not.
    let read = read_snapshot(&config.host_root, Depth::Cpus).map_err(anyhow::Error::from);
    let topology = match read.and_then(|snapshot| Ok(derive(&snapshot)?)) {
        Ok(topology) => topology,
        Err(error) => return vec![finding("machine", Severity::Failure, format!("{error:#}"))],
    };
    let shape = format!("{} CPUs, {} NUMA nodes", topology.cpus().len(), topology.nodes().len());
    let mut findings = match topology.oddities() {
        [] => vec![finding("machine", Severity::Ok, shape)],
        odd => odd
            .iter()
            .map(|oddity| finding("machine", Severity::Warning, oddity.to_string()))
            .collect(),
    };
    findings.push(check_reserved(config, &topology));
    findings.extend(check_wants(config, &topology));
    findings
}

fn check_reserved(config: &Config, topology: &Topology) -> Finding {
    match pools(topology, &config.reserved_cpus) {
        Err(PoolsError::ReservedNotOnline { missing, .. })
            if missing.is_subset(topology.offline()) =>
        {
            let message = format!("reservedCpus: {missing} are offline; others stand in for them");
            finding("reserved", Severity::Warning, message)
        }
        Err(error) => finding("reserved", Severity::Failure, format!("reservedCpus: {error}")),
        Ok(_) if config.reserved_cpus.is_empty() => finding(
            "reserved",
            Severity::Warning,
            "no CPUs are reserved, so system pods share with all others; set reservedCpus to those that kubelet \
             reserves (reservedSystemCPUs)",
        ),
        Ok(_) => finding("reserved", Severity::Ok, format!("CPUs {}", config.reserved_cpus)),
    }
}

/// What is preferred for everybody, but nobody can have here.
fn check_wants(config: &Config, topology: &Topology) -> Vec<Finding> {
    let requests = &config.requests;
    let lacks = |key: &str, what: &str| {
        let message = format!("requests.{key} has no effect: this machine has no {what}");
        finding("requests", Severity::Warning, message)
    };
    let mut findings = Vec::new();
    if requests.prefer_isolated_cpus && topology.isolated().is_empty() {
        findings.push(lacks(
            "preferIsolatedCpus",
            "isolated CPUs (isolcpus on the kernel's command line)",
        ));
    }
    if let Some(priority) = requests.priority
        && topology.cpus_of_priority(priority).is_empty()
    {
        let what = format!("CPUs of priority {}", format!("{priority:?}").to_lowercase());
        findings.push(lacks("defaultCpuPriority", &what));
    }
    findings
}

fn check_cgroups(root: &Path) -> Finding {
    let path = root.join("sys/fs/cgroup/cgroup.controllers");
    match std::fs::read_to_string(&path) {
        Ok(text) if text.split_whitespace().any(|name| name == "cpuset") => {
            finding("cgroups", Severity::Ok, "cgroup v2 with the cpuset controller")
        }
        Ok(text) => finding(
            "cgroups",
            Severity::Failure,
            format!("{} is `{}` and lacks cpuset", path.display(), text.trim()),
        ),
        Err(error) => finding(
            "cgroups",
            Severity::Warning,
            format!(
                "no unified cgroup v2 hierarchy ({}: {error}); CPU sets still work through the runtime",
                path.display()
            ),
        ),
    }
}

fn check_rights(config: &Config) -> Finding {
    let dirs = [config.socket.parent(), config.control_socket.parent(), Some(&config.state_dir)];
    for dir in dirs.into_iter().flatten() {
        // The nearest directory that exists is the one in which the others would be made.
        let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
        if let Err(error) = nix::unistd::access(existing, nix::unistd::AccessFlags::W_OK) {
            let message = format!(
                "cannot write to {} ({error}); run as root, or choose other paths",
                existing.display()
            );
            return finding("rights", Severity::Failure, message);
        }
    }
    if let Err(error) = find_group(&config.control_group) {
        return finding("rights", Severity::Failure, format!("controlGroup: {error:#}"));
    }
    finding("rights", Severity::Ok, "sockets and journal can be written")
}

async fn check_runtime(config: &Config) -> Finding {
    let upstream = Upstream::new(config.runtime_socket.clone(), config.runtime_timeout);
    match upstream.version().await {
        Ok(version) => {
            finding("runtime", Severity::Ok, format!("{} {}", version.name, version.version))
        }
        Err(error) => finding("runtime", Severity::Failure, error.to_string()),
    }
}

/// Kubelet's own CPU and memory managers would write the same files as bayplan.
pub fn check_kubelet(root: &Path) -> Vec<Finding> {
    let managers = [
        ("kubelet-cpu", "cpuManagerPolicy", "cpu_manager_state"),
        ("kubelet-memory", "memoryManagerPolicy", "memory_manager_state"),
    ];
    managers.map(|(check, key, state)| check_manager(root, check, key, state)).to_vec()
}

fn check_manager(root: &Path, check: &'static str, key: &str, state: &str) -> Finding {
    let dir = root.join("var/lib/kubelet");
    let configured = std::fs::read_to_string(dir.join("config.yaml"))
        .ok()
        .and_then(|text| serde_yaml::from_str::<serde_json::Value>(&text).ok())
        .map(|config| config.get(key).and_then(|it| it.as_str()).unwrap_or("none").to_owned());
    let running = std::fs::read_to_string(dir.join(state))
        .ok()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
        .and_then(|state| state.get("policyName")?.as_str().map(str::to_owned));
    match running.or(configured) {
        Some(policy) if policy.eq_ignore_ascii_case("none") => {
            finding(check, Severity::Ok, format!("{key} is {policy}"))
        }
        Some(policy) => finding(
            check,
            Severity::Failure,
            format!(
                "{key} is {policy}, so kubelet and bayplan would both write CPU sets; set it to none, remove {} \
                 and restart kubelet",
                dir.join(state).display()
            ),
        ),
        None => finding(
            check,
            Severity::Warning,
            format!(
                "neither {} nor {state} beside it can be read; make sure that {key} is none",
                dir.join("config.yaml").display()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_with(files: &[(&str, &str)], expected: &[(&str, Severity)]) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut findings = vec![check_cgroups(root.path())];
        findings.extend(check_kubelet(root.path()));
        let found: Vec<_> = findings.iter().map(|found| (found.check, found.severity)).collect();
        assert_eq!(found, expected, "{findings:?}");
    }

    #[test]
    fn kubelets_own_managers_are_found_in_its_configuration_or_its_state() {
        use Severity::{Failure, Ok, Warning};
        let cgroups = ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n");
        check_with(
            &[],
            &[("cgroups", Warning), ("kubelet-cpu", Warning), ("kubelet-memory", Warning)],
        );
        check_with(
            &[cgroups, ("var/lib/kubelet/config.yaml", "cpuManagerPolicy: static\n")],
            &[("cgroups", Ok), ("kubelet-cpu", Failure), ("kubelet-memory", Ok)],
        );
        check_with(
            &[
                ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
                ("var/lib/kubelet/cpu_manager_state", "{\"policyName\":\"none\"}"),
                ("var/lib/kubelet/memory_manager_state", "{\"policyName\":\"Static\"}"),
            ],
            &[("cgroups", Failure), ("kubelet-cpu", Ok), ("kubelet-memory", Failure)],
        );
        check_with(
            &[
                cgroups,
                ("var/lib/kubelet/config.yaml", "a: [\n"),
                ("var/lib/kubelet/cpu_manager_state", "{"),
            ],
            &[("cgroups", Ok), ("kubelet-cpu", Warning), ("kubelet-memory", Warning)],
        );
    }
}
