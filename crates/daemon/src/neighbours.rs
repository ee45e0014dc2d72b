//! What else on this node decides where containers run, and how their cgroups are made. In: processes and files of the node, the cgroups of
//! containers. Out: findings, for `bayplan check`; and, while the daemon runs, log lines when they change, and a metric.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bayplan_host::{CommandLine, read_claimed_cpus, read_command_lines};
use bayplan_node::event::{Answer, Event};
use bayplan_node::status::Status;
use bayplan_types::CpuSet;
use tokio::time::MissedTickBehavior;

use crate::check_cgroups::check_cgroups;
use crate::finding::{Finding, Severity};
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::tasks::blocking;

/// How often the node is looked at. No caller waits for it.
const POLL: Duration = Duration::from_secs(60);

const KUBELET: &str = "kubelet";

/// A program that writes CPU sets of containers.
struct Pinner {
    program: &'static str,
    what: &'static str,
    severity: Severity,
    effect: &'static str,
    remedy: &'static str,
}

const FIGHT: &str = "it and bayplan would both write CPU sets";
const ONE: &str = "run one of them on this node";
const MAY_FIGHT: &str =
    "where its features that write CPU sets are on, it and bayplan fight over them";
const OFF: &str = "turn its features that write CPU sets off";

const PINNERS: [Pinner; 8] = [
    Pinner {
        program: "nri-resource-policy-topology-aware",
        what: "nri-plugins",
        severity: Severity::Failure,
        effect: FIGHT,
        remedy: ONE,
    },
    Pinner {
        program: "nri-resource-policy-balloons",
        what: "nri-plugins",
        severity: Severity::Failure,
        effect: FIGHT,
        remedy: ONE,
    },
    Pinner {
        program: "nri-resource-policy-template",
        what: "nri-plugins",
        severity: Severity::Failure,
        effect: FIGHT,
        remedy: ONE,
    },
    Pinner {
        program: "cri-resmgr",
        what: "CRI Resource Manager",
        severity: Severity::Failure,
        effect: FIGHT,
        remedy: ONE,
    },
    Pinner {
        program: "koordlet",
        what: "Koordinator's agent",
        severity: Severity::Warning,
        effect: MAY_FIGHT,
        remedy: OFF,
    },
    Pinner {
        program: "koord-runtime-proxy",
        what: "Koordinator's runtime proxy",
        severity: Severity::Warning,
        effect: MAY_FIGHT,
        remedy: OFF,
    },
    Pinner {
        program: "katalyst-agent",
        what: "Katalyst's agent",
        severity: Severity::Warning,
        effect: MAY_FIGHT,
        remedy: OFF,
    },
    Pinner {
        program: "dracpu",
        what: "the DRA CPU driver",
        severity: Severity::Warning,
        effect: "CPUs that are claimed of it are left alone, and so are the containers that claim them; but it also writes the CPU \
                 sets of all others",
        remedy: ONE,
    },
];

/// Everything about the node's other programs; `root` holds `proc`, `var` and `run`.
pub(crate) fn check_neighbours(root: &Path) -> Vec<Finding> {
    let programs: Vec<&str> =
        PINNERS.iter().map(|pinner| pinner.program).chain([KUBELET]).collect();
    let read = read_command_lines(root, &programs);
    let lines = read.as_deref().unwrap_or_default();
    let mut findings = check_kubelet(root, lines.iter().find(|line| line.program == KUBELET));
    match &read {
        Ok(lines) => findings.extend(check_pinners(lines)),
        Err(error) => {
            let proc = root.join("proc");
            let message = format!(
                "{} cannot be listed ({error}), so other programs are not seen",
                proc.display()
            );
            findings.push(Finding::warning("pinner", message, "mount the node's proc there"));
        }
    }
    findings.push(match read_claimed_cpus(root) {
        Ok(none) if none.is_empty() => {
            Finding::ok("claims", "no CPUs are claimed of the DRA CPU driver")
        }
        Ok(cpus) => Finding::ok(
            "claims",
            format!("CPUs {cpus} are claimed of the DRA CPU driver, and left alone"),
        ),
        Err(error) => Finding::warning(
            "claims",
            format!("{:#}; which CPUs are claimed is not known", anyhow::Error::new(error)),
            "let the DRA CPU driver write the file anew, or remove it where that driver is gone",
        ),
    });
    findings
}

fn check_pinners(lines: &[CommandLine]) -> Vec<Finding> {
    let runs = |pinner: &&Pinner| lines.iter().any(|line| line.program == pinner.program);
    let found = PINNERS.iter().filter(runs).map(|pinner| {
        let Pinner { program, what, severity, effect, remedy } = pinner;
        let message = format!("{program} runs ({what}): {effect}");
        match severity {
            Severity::Failure => Finding::failure("pinner", message, *remedy),
            _ => Finding::warning("pinner", message, *remedy),
        }
    });
    let found: Vec<Finding> = found.collect();
    match found.is_empty() {
        true => vec![Finding::ok("pinner", "no other program that writes CPU sets runs")],
        false => found,
    }
}

/// One of kubelet's managers that write the same files as bayplan.
struct Manager {
    check: &'static str,
    /// In kubelet's configuration.
    key: &'static str,
    flag: &'static str,
    /// In kubelet's directory.
    state: &'static str,
}

const MANAGERS: [Manager; 2] = [
    Manager {
        check: "kubelet-cpu",
        key: "cpuManagerPolicy",
        flag: "--cpu-manager-policy",
        state: "cpu_manager_state",
    },
    Manager {
        check: "kubelet-memory",
        key: "memoryManagerPolicy",
        flag: "--memory-manager-policy",
        state: "memory_manager_state",
    },
];

/// Kubelet's own managers; `kubelet` is how it was started, if it runs.
fn check_kubelet(root: &Path, kubelet: Option<&CommandLine>) -> Vec<Finding> {
    let arguments = kubelet.map(|line| line.arguments.as_slice()).unwrap_or_default();
    MANAGERS.iter().map(|manager| check_manager(root, arguments, manager)).collect()
}

/// Where a kubelet that runs calls the runtime, as it was told by its arguments or its configuration; `None` where neither says, or none runs.
pub(crate) fn kubelet_endpoint(root: &Path) -> Option<String> {
    let lines = read_command_lines(root, &[KUBELET]).ok()?;
    let arguments = &lines.first()?.arguments;
    if let Some(endpoint) = flag(arguments, "--container-runtime-endpoint") {
        return Some(endpoint.to_owned());
    }
    let file = flag(arguments, "--config").unwrap_or("/var/lib/kubelet/config.yaml");
    let text = std::fs::read_to_string(root.join(file.trim_start_matches('/'))).ok()?;
    let config: serde_json::Value = serde_yaml::from_str(&text).ok()?;
    Some(config.get("containerRuntimeEndpoint")?.as_str()?.to_owned())
}

/// The value of `--flag value` or `--flag=value`; the last one counts, as for kubelet.
fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let mut pairs = arguments.windows(2).rev();
    let following = pairs.find(|pair| pair.first().is_some_and(|it| it == name));
    let following = following.and_then(|pair| pair.get(1)).map(String::as_str);
    let joined = arguments.iter().rev().find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    joined.or(following)
}

/// What kubelet's CPU manager has given to single containers (`CPUManagerCheckpoint`, pkg/kubelet/cm/cpumanager/state/checkpoint.go): by pod
/// and container, as CPU lists. The memory manager's entries are of another form, and give none.
fn given_cpus(state: &serde_json::Value) -> CpuSet {
    let entries = state.get("entries").and_then(|it| it.as_object());
    let containers = entries.into_iter().flatten().filter_map(|(_, pod)| pod.as_object());
    let lists = containers.flatten().filter_map(|(_, cpus)| cpus.as_str());
    lists.filter_map(|list| list.parse().ok()).fold(CpuSet::new(), |all, cpus| all.union(&cpus))
}

/// What it does counts more than how it was started, and that more than its configuration.
fn check_manager(root: &Path, arguments: &[String], manager: &Manager) -> Finding {
    let Manager { check, key, state, .. } = *manager;
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let dir = below(flag(arguments, "--root-dir").unwrap_or("var/lib/kubelet"));
    let config: PathBuf = match flag(arguments, "--config") {
        Some(path) => below(path),
        None => dir.join("config.yaml"),
    };
    let configured = std::fs::read_to_string(&config)
        .ok()
        .and_then(|text| serde_yaml::from_str::<serde_json::Value>(&text).ok())
        .map(|config| config.get(key).and_then(|it| it.as_str()).unwrap_or("none").to_owned());
    let running = std::fs::read_to_string(dir.join(state))
        .ok()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let given = running.as_ref().map(given_cpus).unwrap_or_default();
    let running = running.and_then(|state| state.get("policyName")?.as_str().map(str::to_owned));
    let started = flag(arguments, manager.flag).map(str::to_owned);
    match running.or(started).or(configured) {
        Some(policy) if policy.eq_ignore_ascii_case("none") => {
            Finding::ok(check, format!("{key} is {policy}"))
        }
        Some(policy) => {
            let given = match given.is_empty() {
                true => String::new(),
                false => format!(
                    ". Kubelet has given CPUs {given} to containers; these keep them where they had them before bayplan came, \
                     and otherwise bayplan gives them others"
                ),
            };
            let message = format!(
                "{key} is {policy}, so kubelet and bayplan would both write CPU sets{given}"
            );
            let state = dir.join(state);
            let remedy = format!(
                "stop kubelet, set {key} to none, remove {} and start kubelet",
                state.display()
            );
            Finding::failure(check, message, remedy)
        }
        None => {
            let (config, state) = (config.display(), dir.join(state));
            let message = format!("neither {config} nor {} can be read", state.display());
            Finding::warning(check, message, format!("make sure that {key} is none"))
        }
    }
}

/// The rules by which kubelet names cgroups. `None`: there are no containers.
pub(crate) fn check_driver(status: &Status) -> Option<Finding> {
    check_parents(status.containers.iter().map(|it| it.cgroup_parent.as_str()))
}

fn check_parents<'a>(parents: impl Iterator<Item = &'a str>) -> Option<Finding> {
    let driver =
        |parent: &str| match parent.split(':').next().unwrap_or_default().ends_with(".slice") {
            true => "systemd",
            false => "cgroupfs",
        };
    let drivers: BTreeSet<&str> = parents.filter(|it| !it.is_empty()).map(driver).collect();
    let names: Vec<&str> = drivers.into_iter().collect();
    let check = "cgroup-driver";
    match names.as_slice() {
        [] => None,
        [one] => Some(Finding::ok(check, format!("kubelet's cgroup driver is {one}"))),
        _ => Some(Finding::warning(
            check,
            "containers have cgroups of both drivers, cgroupfs and systemd: kubelet's cgroupDriver was changed while they ran. They keep \
             their places",
            "make containers of the old driver anew, for example by draining the node",
        )),
    }
}

/// What was found the last time.
#[derive(Debug, Default)]
struct Known(Option<Vec<Finding>>);

impl Known {
    /// Those that are new. The first time, what is as it should be is not worth a word.
    fn news<'a>(&self, findings: &'a [Finding]) -> Vec<&'a Finding> {
        let is_new = |it: &&Finding| match &self.0 {
            Some(known) => !known.contains(it),
            None => it.severity != Severity::Ok,
        };
        findings.iter().filter(is_new).collect()
    }
}

/// Looks for ever; says what is new, once.
pub(crate) async fn watch_neighbours(root: PathBuf, inbox: Inbox, metrics: Arc<Metrics>) {
    let mut polls = tokio::time::interval(POLL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = Known::default();
    loop {
        polls.tick().await;
        let root = root.clone();
        let looked = blocking(move || {
            let mut findings = check_neighbours(&root);
            findings.push(check_cgroups(&root));
            findings
        });
        let Some(mut findings) = looked.await else { return };
        if let Some(Answer::Status(status)) = inbox.ask(Event::Status).await {
            findings.extend(check_driver(&status));
        }
        for found in known.news(&findings) {
            let (check, message) = (found.check, found.in_words());
            match found.severity {
                Severity::Ok => tracing::info!(check, "{message}"),
                Severity::Warning | Severity::Failure => tracing::warn!(check, "{message}"),
            }
        }
        metrics.show_findings(&findings);
        known = Known(Some(findings));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_with(files: &[(&str, &str)], expected: &[(&str, Severity)]) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let findings = check_neighbours(root.path());
        let found: Vec<_> = findings.iter().map(|found| (found.check, found.severity)).collect();
        assert_eq!(found, expected, "{findings:?}");
    }

    #[test]
    fn kubelets_own_managers_are_found_in_its_configuration_its_flags_or_its_state() {
        use Severity::{Failure, Ok, Warning};
        let all = |cpu, memory| {
            [("kubelet-cpu", cpu), ("kubelet-memory", memory), ("pinner", Ok), ("claims", Ok)]
        };
        check_with(&[], &all(Warning, Warning));
        let config = "var/lib/kubelet/config.yaml";
        check_with(&[(config, "cpuManagerPolicy: static\n")], &all(Failure, Ok));
        check_with(
            &[
                ("var/lib/kubelet/cpu_manager_state", "{\"policyName\":\"none\"}"),
                ("var/lib/kubelet/memory_manager_state", "{\"policyName\":\"Static\"}"),
            ],
            &all(Ok, Failure),
        );
        check_with(
            &[(config, "a: [\n"), ("var/lib/kubelet/cpu_manager_state", "{")],
            &all(Warning, Warning),
        );
        let process = "proc/7/cmdline";
        for flags in ["--cpu-manager-policy=static\0", "-v\0--cpu-manager-policy\0static\0"] {
            let kubelet = format!("/usr/bin/kubelet\0{flags}");
            check_with(&[(process, &kubelet), (config, "")], &all(Failure, Ok));
        }
        // Kubelet says where its files are.
        let elsewhere = "/usr/bin/kubelet\0--config=/etc/k.yaml\0--root-dir=/data\0";
        check_with(
            &[(process, elsewhere), (config, "cpuManagerPolicy: static\n")],
            &all(Warning, Warning),
        );
        check_with(
            &[
                (process, elsewhere),
                ("etc/k.yaml", "memoryManagerPolicy: Static\n"),
                ("data/cpu_manager_state", "{\"policyName\":\"static\"}"),
            ],
            &all(Failure, Failure),
        );
    }

    #[test]
    fn what_kubelet_has_given_away_is_named() {
        let entries = r#"{"uid-1":{"app":"2-3,10-11","sidecar":"4"},"uid-2":{"app":"12"}}"#;
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("var/lib/kubelet");
        std::fs::create_dir_all(&dir).unwrap();
        let state = format!(
            r#"{{"policyName":"static","defaultCpuSet":"0-1","entries":{entries},"checksum":1}}"#
        );
        std::fs::write(dir.join("cpu_manager_state"), state).unwrap();
        let findings = check_kubelet(root.path(), None);
        let named = "Kubelet has given CPUs 2-4,10-12 to containers";
        assert!(findings[0].message.contains(named), "{findings:?}");
        let memory =
            r#"{"policyName":"Static","entries":{"uid-1":{"app":[{"numaAffinity":[0]}]}}}"#;
        assert!(given_cpus(&serde_json::from_str(memory).unwrap()).is_empty());
    }

    #[test]
    fn other_pinners_and_claims_are_found() {
        use Severity::{Failure, Ok, Warning};
        let kubelet = ("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n");
        check_with(
            &[
                kubelet,
                ("proc/7/cmdline", "/bin/nri-resource-policy-balloons\0"),
                ("proc/8/cmdline", "koordlet\0"),
                ("run/cdi/dra.cpu.json", "{"),
            ],
            &[
                ("kubelet-cpu", Ok),
                ("kubelet-memory", Ok),
                ("pinner", Failure),
                ("pinner", Warning),
                ("claims", Warning),
            ],
        );
    }

    fn check_drivers(parents: &[&str], expected: Option<(Severity, &str)>) {
        let found = check_parents(parents.iter().copied());
        let shown = found.as_ref().map(|it| (it.severity, it.message.as_str()));
        assert!(
            match (shown, expected) {
                (Some(found), Some(expected)) =>
                    found.0 == expected.0 && found.1.contains(expected.1),
                (found, expected) => found == expected,
            },
            "{shown:?}"
        );
    }

    #[test]
    fn the_cgroup_driver_is_told_by_the_cgroups() {
        check_drivers(&[""], None);
        check_drivers(&["/kubepods/pod1", ""], Some((Severity::Ok, "is cgroupfs")));
        let slices = ["kubepods-pod1.slice", "kubepods-pod2.slice:cri-containerd:ab"];
        check_drivers(&slices, Some((Severity::Ok, "is systemd")));
        check_drivers(&["/kubepods/pod1", slices[0]], Some((Severity::Warning, "of both drivers")));
    }

    #[test]
    fn what_was_said_is_not_said_again() {
        let good = Finding::ok("pinner", "well");
        let bad = Finding::warning("pinner", "not well", "mend it");
        let findings = [good.clone(), bad.clone()];
        assert_eq!(Known::default().news(&findings), [&bad]);
        assert_eq!(Known(Some(vec![bad.clone()])).news(&findings), [&good]);
        assert!(Known(Some(findings.to_vec())).news(&findings).is_empty());
    }
}
