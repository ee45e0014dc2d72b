//! Looks at the front end of a node. In: a configuration, the runtime's socket for plugins, a daemon that runs. Out: findings.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use bayplan_nri::events::parse_version;

use crate::check_required_plugins::check_required_plugins;
use crate::config::{Config, FrontEnd};
use crate::finding::Finding;
use crate::neighbours::kubelet_endpoint;
use bayplan_node::status::{FrontEndStatus, Status};

/// The first NRI in which unsolicited updates of plugins cannot block the runtime for ever.
const LOCK_ORDER: (u32, u32, u32) = (0, 12, 1);

/// How Bayplan hears of containers on this node; nothing where that is the CRI proxy.
pub(crate) fn check_front_end(config: &Config, status: Option<&Status>) -> Vec<Finding> {
    if config.front_end == FrontEnd::Cri {
        return Vec::new();
    }
    let mut findings = vec![check_socket(&config.nri_socket)];
    if let Some(front_end) = status.and_then(|it| it.front_end.as_ref()) {
        findings.extend(check_registration(front_end, config));
    }
    findings.extend(check_required_plugins(&config.host_root, config.on_failure));
    findings.extend(check_kubelet(config));
    findings
}

/// A socket is left behind by a runtime that has ended, so it is connected to.
fn check_socket(socket: &Path) -> Finding {
    let path = socket.display();
    match UnixStream::connect(socket) {
        Ok(_) => Finding::ok("nri", format!("the runtime takes plugins at {path}")),
        Err(why) => Finding::failure(
            "nri",
            format!("the runtime takes no plugins at {path} ({why})"),
            "containerd 1.7 needs `disable = false` in [plugins.\"io.containerd.nri.v1.nri\"], CRI-O enable_nri = true; or set nri.socket",
        ),
    }
}

/// What kubelet can be asked at its local sockets. Without them amounts come from annotations and cgroup settings.
pub(crate) fn check_kubelet_sockets(config: &Config) -> Vec<Finding> {
    let rows = [
        (
            &config.kubelet_pods_socket,
            "pods (kubelet.podsSocket)",
            "requests of Burstable pods are estimated, extended resources and changed annotations are not seen; kubelet has this from 1.37 on, or with the feature gate PodsAPI",
        ),
        (
            &config.pod_resources_socket,
            "devices (kubelet.podResourcesSocket)",
            "devices are found by the paths in the container's configuration only",
        ),
    ];
    let look = |(socket, what, without): (&Option<PathBuf>, &str, &str)| {
        let socket = socket.as_ref()?;
        let path = socket.display();
        let text = match UnixStream::connect(socket) {
            Ok(_) => format!("kubelet tells of {what} at {path}"),
            Err(why) => format!("kubelet does not tell of {what} at {path} ({why}): {without}"),
        };
        Some(Finding::ok("kubelet", text))
    };
    rows.into_iter().filter_map(look).collect()
}

/// What the runtime said to the daemon that runs.
fn check_registration(front_end: &FrontEndStatus, config: &Config) -> Vec<Finding> {
    let runtime = front_end.runtime.as_deref().unwrap_or("no runtime yet");
    if !front_end.is_registered {
        let why = front_end.problem.as_deref().unwrap_or("it has not been tried");
        let message = format!("the daemon is not registered as a plugin: {why}");
        let remedy = "enable NRI in the runtime's configuration, or set frontEnd: cri";
        return vec![Finding::failure("nri", message, remedy)];
    }
    let nri = front_end.nri_version.as_deref().unwrap_or("before 0.12");
    let limit = front_end.request_timeout_ms.map_or("?".to_owned(), |it| format!("{it} ms"));
    let message =
        format!("registered with {runtime}, NRI {nri}, which waits {limit} for an answer");
    let mut findings = vec![Finding::ok("nri", message)];
    let granted = front_end.request_timeout_ms.map(|it| u128::from(it) * 3 / 4);
    if granted.is_some_and(|it| it < config.decision_timeout.as_millis()) {
        let message = format!(
            "decisionTimeout is {:?}, but the runtime waits {limit} for a plugin, so decisions may take {} ms",
            config.decision_timeout,
            granted.unwrap_or_default()
        );
        let remedy = "raise plugin_request_timeout of the runtime, or lower decisionTimeout";
        findings.push(Finding::warning("nri", message, remedy));
    }
    findings.extend(check_other_plugins(front_end));
    if !is_lock_safe(front_end.nri_version.as_deref()) {
        let message = format!(
            "NRI {nri} of {runtime} can block for ever when a plugin updates containers unasked (fixed in 0.12.1); Bayplan does not"
        );
        let remedy = "use a runtime with a newer NRI, or no other plugin that does so";
        findings.push(Finding::warning("nri", message, remedy));
    }
    findings
}

/// Other plugins that set what Bayplan sets, and what came of it.
fn check_other_plugins(front_end: &FrontEndStatus) -> Vec<Finding> {
    let mut findings = Vec::new();
    for plugin in &front_end.other_plugins {
        let (name, sets) = (&plugin.name, plugin.sets.join(" and "));
        findings.push(match sets.as_str() {
            "" => Finding::ok("nri", format!("the plugin {name} sets no CPU sets")),
            sets => Finding::warning(
                "nri",
                format!("the plugin {name} sets {sets}, too: a container for which both do so is not created"),
                "use one of them",
            ),
        });
    }
    if let Some(it) = &front_end.taken_back {
        let message = format!(
            "the runtime has taken back {} creations after Bayplan had answered, the last one at {} of {}: {}",
            it.times, it.at, it.container, it.why
        );
        let remedy = "see the runtime's log of that time; where another plugin is the reason, use one of them";
        findings.push(Finding::warning("nri", message, remedy));
    }
    findings
}

fn is_lock_safe(version: Option<&str>) -> bool {
    let Some(version) = version else { return false };
    let patch = version.split(['.', '-', '+']).nth(2).and_then(|it| it.parse().ok());
    parse_version(version)
        .is_some_and(|(major, minor)| (major, minor, patch.unwrap_or_default()) >= LOCK_ORDER)
}

/// Kubelet's endpoint, if that is Bayplan's own socket, where nothing answers with this front end.
pub(crate) fn kubelet_at_proxy(config: &Config) -> Option<String> {
    let endpoint = kubelet_endpoint(&config.host_root)?;
    let is_own = Path::new(endpoint.trim_start_matches("unix://")) == config.socket;
    is_own.then_some(endpoint)
}

fn check_kubelet(config: &Config) -> Option<Finding> {
    let endpoint = kubelet_at_proxy(config)?;
    let message = format!("kubelet calls {endpoint}, where nothing answers with frontEnd: nri");
    let runtime = config.runtime_socket.display();
    let remedy = format!("set kubelet's containerRuntimeEndpoint to unix://{runtime}");
    Some(Finding::failure("nri", message, remedy))
}

#[cfg(test)]
mod tests {
    use bayplan_node::status::{PluginStatus, TakenBack};

    use super::*;

    #[test]
    fn versions_in_which_unasked_updates_block_are_known() {
        for (version, expected) in [
            (None, false),
            (Some("v0.12.0"), false),
            (Some("v0.12.1"), true),
            (Some("0.12.3"), true),
            (Some("v0.13.0-rc.1"), true),
            (Some("v1.0.0"), true),
            (Some("odd"), false),
        ] {
            assert_eq!(is_lock_safe(version), expected, "{version:?}");
        }
    }

    #[test]
    fn what_the_runtime_granted_is_told_with_what_follows() {
        let registered = FrontEndStatus {
            kind: "nri".into(),
            is_registered: true,
            runtime: Some("containerd v2.3.1".into()),
            nri_version: Some("v0.12.0".into()),
            request_timeout_ms: Some(2000),
            ..FrontEndStatus::default()
        };
        let plugin = |name: &str, sets: &[&str]| PluginStatus {
            name: name.into(),
            sets: sets.iter().map(|it| (*it).to_owned()).collect(),
        };
        let beside = FrontEndStatus {
            nri_version: Some("v0.12.3".into()),
            request_timeout_ms: Some(10_000),
            other_plugins: vec![plugin("10-a", &["cpuset.cpus"]), plugin("20-b", &[])],
            taken_back: Some(TakenBack {
                container: "n/p/c".into(),
                why: "perhaps because the plugin 10-a, which sets CPU sets, has set the same"
                    .into(),
                at: jiff::Timestamp::UNIX_EPOCH,
                times: 3,
            }),
            ..registered.clone()
        };
        let lost =
            FrontEndStatus { problem: Some("no socket".into()), ..FrontEndStatus::default() };
        for (status, expected) in [
            (
                &registered,
                "\
ok: registered with containerd v2.3.1, NRI v0.12.0, which waits 2000 ms for an answer
warning: decisionTimeout is 5s, but the runtime waits 2000 ms for a plugin, so decisions may take 1500 ms; raise plugin_request_timeout of the runtime, or lower decisionTimeout
warning: NRI v0.12.0 of containerd v2.3.1 can block for ever when a plugin updates containers unasked (fixed in 0.12.1); Bayplan does not; use a runtime with a newer NRI, or no other plugin that does so
",
            ),
            (
                &beside,
                "\
ok: registered with containerd v2.3.1, NRI v0.12.3, which waits 10000 ms for an answer
warning: the plugin 10-a sets cpuset.cpus, too: a container for which both do so is not created; use one of them
ok: the plugin 20-b sets no CPU sets
warning: the runtime has taken back 3 creations after Bayplan had answered, the last one at 1970-01-01T00:00:00Z of n/p/c: perhaps because the plugin 10-a, which sets CPU sets, has set the same; see the runtime's log of that time; where another plugin is the reason, use one of them
",
            ),
            (
                &lost,
                "failure: the daemon is not registered as a plugin: no socket; enable NRI in the runtime's configuration, or set frontEnd: cri\n",
            ),
        ] {
            let found = check_registration(status, &Config::default()).into_iter();
            let text: String = found
                .map(|it| format!("{}: {}\n", format!("{:?}", it.severity).to_lowercase(), it.in_words()))
                .collect();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn kubelet_at_the_proxys_socket_is_found_in_its_arguments_and_in_its_configuration() {
        for (arguments, file, expected) in [
            ("", "containerRuntimeEndpoint: unix:///run/bayplan/bayplan.sock\n", true),
            ("", "containerRuntimeEndpoint: /run/bayplan/bayplan.sock\n", true),
            ("", "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n", false),
            ("", "a: 1\n", false),
            ("--container-runtime-endpoint=unix:///run/bayplan/bayplan.sock", "a: 1\n", true),
        ] {
            let root = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            };
            write("proc/7/cmdline", &format!("/usr/bin/kubelet\0{arguments}\0"));
            write("var/lib/kubelet/config.yaml", file);
            let config = Config { host_root: root.path().into(), ..Config::default() };
            assert_eq!(kubelet_at_proxy(&config).is_some(), expected, "{arguments} {file}");
        }
    }

    #[test]
    fn a_socket_without_a_runtime_is_a_failure_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let found = check_socket(&dir.path().join("nri.sock"));
        assert_eq!(found.severity, crate::finding::Severity::Failure);
        assert!(found.in_words().contains("disable = false"), "{found:?}");
    }
}
