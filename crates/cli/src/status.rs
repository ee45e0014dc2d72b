//! `bayplan status`.

use bayplan_daemon::query_control;
use bayplan_node::mode::Mode;
use bayplan_node::status::{
    AmplificationStatus, ClockStatus, ClusterConfigStatus, ConfigStatus, FrontEndStatus, Status,
    TakenBack,
};

use crate::args::{Output, StatusOptions};
use crate::control::control_socket;
use crate::node_config::NodeConfig;
use crate::text::{render_table, table};
use crate::visible::print_json;

/// Asks the daemon and prints which container has which CPUs.
pub(crate) fn run(config: &NodeConfig, options: &StatusOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let asked = query_control::<Status>(&socket, "/api/v1/status");
    let status = tokio::runtime::Runtime::new()?.block_on(asked)?;
    match options.output.output {
        Output::Text => out!("{}", render(&status))?,
        Output::Json => print_json(&status)?,
    }
    Ok(())
}

/// Tables: CPUs by class, containers, groups where there are some, containers that could do with fewer memory nodes, what of the configuration does not hold.
pub(crate) fn render(status: &Status) -> String {
    let mut classes = table(&["CLASS", "CPUS"]);
    let cpus = &status.cpus;
    for (class, cpus) in [
        ("exclusive", &cpus.exclusive),
        ("shared", &cpus.shared),
        ("reserved", &cpus.reserved),
        ("isolated", &cpus.isolated),
    ] {
        classes.add_row([class, dash(cpus)]);
    }
    let parts = [
        ("of these idle", &cpus.idle),
        ("of these closed", &cpus.closed),
        ("of these lent", &cpus.lent),
    ];
    for (class, cpus) in parts {
        if !cpus.is_empty() {
            classes.add_row([class, cpus]);
        }
    }
    let mut containers =
        table(&["CONTAINER", "QOS", "ASKED", "POOL", "EXCLUSIVE", "CPUS", "MEMS", "PHASE"]);
    for container in &status.containers {
        containers.add_row([
            container.full_name().as_str(),
            container.qos.as_deref().unwrap_or("?"),
            &container.asked,
            &container.pool,
            dash(&container.exclusive_text()),
            container.cpus_text(),
            dash(container.mems_text()),
            &container.phase,
        ]);
    }
    let mut text = String::new();
    match status.mode {
        Mode::Placing => {}
        Mode::Draining => text.push_str("DRAINING: new containers get no exclusive CPUs"),
        Mode::Restored => text.push_str(
            "RESTORED: every container may run on every CPU, and the exclusive CPUs below are only kept for `bayplan resume`",
        ),
    }
    if let Some(since) = status.mode_since.filter(|_| status.mode != Mode::Placing) {
        text.push_str(&format!("; since {since:.0}, until `bayplan resume`\n\n"));
    }
    text.push_str(&render_table(&classes));
    text.push('\n');
    match status.containers.is_empty() {
        true => text.push_str("no containers\n"),
        false => text.push_str(&render_table(&containers)),
    }
    text.push_str(&render_groups(status));
    text.push_str(&render_clocks(&status.clocks));
    for container in status.containers.iter().filter(|it| it.is_off()) {
        text.extend(container.full_holds_texts().iter().map(|it| format!("{it}\n")));
    }
    for container in &status.containers {
        if let Some(narrowing) = container.narrowing_text() {
            text.push_str(&format!("{} {narrowing}\n", container.full_name()));
        }
    }
    text.push_str(&status.front_end.as_ref().map(render_front_end).unwrap_or_default());
    text.push_str(&status.config.as_ref().map(render_config).unwrap_or_default());
    text
}

/// How Bayplan hears of containers, where it is the runtime that tells.
fn render_front_end(front_end: &FrontEndStatus) -> String {
    let FrontEndStatus { kind, runtime, problem, .. } = front_end;
    let runtime = runtime.as_deref().unwrap_or("no runtime yet");
    let mut text = match (front_end.is_registered, problem) {
        (true, _) => format!("front end: {kind}, registered with {runtime}\n"),
        (false, None) => format!("front end: {kind}, NOT REGISTERED\n"),
        (false, Some(why)) => format!(
            "front end: {kind}, NOT REGISTERED, so containers are created without Bayplan and placed later: {why}\n"
        ),
    };
    if let Some(TakenBack { container, why, times, .. }) = &front_end.taken_back {
        text.push_str(&format!(
            "creations that the runtime has taken back: {times}, the last one of {container}: {why}\n"
        ));
    }
    text
}

/// Groups with their members; nothing if there are none.
fn render_groups(status: &Status) -> String {
    if status.groups.is_empty() {
        return String::new();
    }
    let mut groups = table(&["GROUP", "KEY", "CPUS", "REQUESTED", "MEMBERS"]);
    for group in &status.groups {
        let members = status.containers.iter().filter(|it| it.group == group.name);
        let members: Vec<String> = members.map(|it| it.full_name()).collect();
        groups.add_row([
            group.name.as_str(),
            dash(&group.key),
            dash(&group.cpus),
            &format!("{}m", group.requests_milli),
            dash(&members.join(", ")),
        ]);
    }
    format!("\n{}", render_table(&groups))
}

/// How many containers that use wide vectors are in each clock domain; nothing without a strategy for them.
fn render_clocks(clocks: &[ClockStatus]) -> String {
    let parts = clocks.iter().map(|it| format!("{} on CPUs {}", it.containers, it.cpus));
    let parts: Vec<String> = parts.collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("containers with wide vectors: {}\n", parts.join(", ")),
    }
}

/// What of the configuration does not hold; nothing if all does.
fn render_config(config: &ConfigStatus) -> String {
    let mut text = String::new();
    if let Some(problem) = &config.problem {
        let since = config.read_at;
        text.push_str(&format!(
            "the configuration of {since:.0} goes on to hold, because the file as it is now cannot be used:\n"
        ));
        problem.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    if let Some(cluster) = &config.cluster {
        text.push_str(&render_cluster(cluster));
    }
    if !config.restart_for.is_empty() {
        let keys = config.restart_for.join(", ");
        text.push_str(&format!("a restart is needed for what the configuration says of {keys}\n"));
    }
    text
}

/// Which object of the cluster counts instead of the file, and why another one does not.
fn render_cluster(cluster: &ClusterConfigStatus) -> String {
    let ClusterConfigStatus { name, generation, since, amplification, problem } = cluster;
    let mut text = String::new();
    if let Some(name) = name {
        let generation = generation.map(|it| format!(", generation {it},")).unwrap_or_default();
        text.push_str(&format!(
            "{name} of the cluster{generation} is the configuration since {since:.0}; of the file only the node's own keys count\n"
        ));
    }
    if let Some(AmplificationStatus { percent, holds }) = amplification {
        let what = match holds {
            true => "is requests.amplificationPercent",
            false => {
                "has no effect, because the configuration says requests.amplificationPercent itself"
            }
        };
        text.push_str(&format!("the Node's amplification of CPUs to {percent} % {what}\n"));
    }
    if let Some(problem) = problem {
        text.push_str("a configuration of the cluster is not used:\n");
        problem.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text
}

fn dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

#[cfg(test)]
mod tests {
    use bayplan_node::status::{ContainerStatus, GroupStatus};
    use expect_test::expect;

    use super::*;

    /// In the group, if the text is not empty; with more of its fields.
    fn container(name: &str, group: &str, more: &str) -> ContainerStatus {
        let text = format!(
            r#"{{"id": null, "namespace": "n", "pod": "p", "container": "{name}", "qos": null, "class": "shared",
                "phase": "running", "asked": "", "exclusive": "", "cpus": "0", "mems": "0-1", "pool": "machine",
                "group": "{group}"{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn of_containers(containers: Vec<ContainerStatus>) -> Status {
        let cpus = r#"{"exclusive": "", "shared": "0", "reserved": "", "isolated": ""}"#;
        Status {
            format: String::new(),
            version: String::new(),
            mode: Mode::Placing,
            mode_since: None,
            front_end: None,
            cpus: serde_json::from_str(cpus).unwrap(),
            pools: Vec::new(),
            groups: Vec::new(),
            clocks: Vec::new(),
            config: None,
            containers,
        }
    }

    #[test]
    fn a_container_with_more_memory_nodes_than_needed_is_named_below_the_tables() {
        let clocks = vec![
            ClockStatus { cpus: "0-7".to_owned(), containers: 2 },
            ClockStatus { cpus: "8-15".to_owned(), containers: 0 },
        ];
        let containers = vec![
            container("a", "", ""),
            container("b", "", r#", "narrowing": {"to": "0", "moves_bytes": 4294967296}"#),
            container("c", "", r#", "narrowing": {"to": "1"}"#),
        ];
        let text = render(&Status { clocks, ..of_containers(containers) });
        let said: Vec<&str> = text.lines().filter(|line| line.contains("could be")).collect();
        assert_eq!(
            said,
            [
                "n/p/b could be narrowed from nodes 0-1 to 0, moving at most 4 GiB",
                "n/p/c could be narrowed from nodes 0-1 to 1, moving any amount of memory",
            ]
        );
        assert!(text.contains("containers with wide vectors: 2 on CPUs 0-7, 0 on CPUs 8-15\n"));
    }

    #[test]
    fn groups_and_their_members_are_a_table_of_their_own() {
        let group = |name: &str, key: &str, cpus: &str, requests_milli| GroupStatus {
            name: name.to_owned(),
            key: key.to_owned(),
            cpus: cpus.to_owned(),
            shared_cpus: cpus.to_owned(),
            requests_milli,
            members: 0,
        };
        let in_web = ["a", "b"].map(|name| container(name, "web[0]", ""));
        let status = of_containers(in_web.into_iter().chain([container("c", "", "")]).collect());
        assert_eq!(render_groups(&status), "");
        let groups = vec![group("web[0]", "shop", "1-2,9", 2500), group("spare[0]", "", "3", 0)];
        let text = render_groups(&Status { groups, ..status });
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "",
                "GROUP KEY CPUS REQUESTED MEMBERS",
                "web[0] shop 1-2,9 2500m n/p/a, n/p/b",
                "spare[0] - 3 0m -",
            ]
        );
    }

    #[test]
    fn a_front_end_that_is_not_registered_stands_out() {
        let told = |is_registered, problem: Option<&str>, runtime: Option<&str>| {
            render_front_end(&FrontEndStatus {
                kind: "nri".to_owned(),
                is_registered,
                problem: problem.map(str::to_owned),
                runtime: runtime.map(str::to_owned),
                ..FrontEndStatus::default()
            })
        };
        for (text, expected) in [
            (
                told(true, None, Some("containerd v2.4.2")),
                "front end: nri, registered with containerd v2.4.2\n",
            ),
            (told(false, None, None), "front end: nri, NOT REGISTERED\n"),
            (
                told(false, Some("no socket"), None),
                "front end: nri, NOT REGISTERED, so containers are created without Bayplan and placed later: no socket\n",
            ),
        ] {
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_creation_that_was_taken_back_is_told() {
        let taken_back = TakenBack {
            container: "n/p/c".to_owned(),
            why: "perhaps because the plugin 10-a, which sets CPU sets, has set the same"
                .to_owned(),
            at: jiff::Timestamp::UNIX_EPOCH,
            times: 2,
        };
        let text = render_front_end(&FrontEndStatus {
            kind: "nri".to_owned(),
            is_registered: true,
            taken_back: Some(taken_back),
            ..FrontEndStatus::default()
        });
        let expected = "front end: nri, registered with no runtime yet\ncreations that the runtime has taken back: 2, the last one of n/p/c: perhaps because the plugin 10-a, which sets CPU sets, has set the same\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_configuration_that_does_not_hold_is_explained() {
        let config = r#"{"file": "/c", "read_at": "2026-11-21T22:00:00Z",
            "problem": "/c:1:1: a\n/c:2:1: b", "restart_for": ["socket"]}"#;
        expect![[r#"
            the configuration of 2026-11-21T22:00:00Z goes on to hold, because the file as it is now cannot be used:
              /c:1:1: a
              /c:2:1: b
            a restart is needed for what the configuration says of socket
        "#]].assert_eq(&render_config(&serde_json::from_str(config).unwrap()));
        let good = r#"{"read_at": "2026-11-21T22:00:00Z"}"#;
        assert_eq!(render_config(&serde_json::from_str(good).unwrap()), "");
        let of_cluster = r#"{"file": "/c", "read_at": "2026-11-21T22:00:00Z",
            "cluster": {"name": "BayplanConfig/default", "generation": 4, "since": "2026-11-21T23:00:00Z", "problem": "a:1:1: b"}}"#;
        expect![[r#"
            BayplanConfig/default of the cluster, generation 4, is the configuration since 2026-11-21T23:00:00Z; of the file only the node's own keys count
            a configuration of the cluster is not used:
              a:1:1: b
        "#]].assert_eq(&render_config(&serde_json::from_str(of_cluster).unwrap()));
        for (holds, expected) in [
            (true, "is requests.amplificationPercent\n"),
            (
                false,
                "has no effect, because the configuration says requests.amplificationPercent itself\n",
            ),
        ] {
            let of_node = format!(
                r#"{{"read_at": "2026-11-21T22:00:00Z", "cluster": {{"since": "2026-11-21T23:00:00Z", "amplification": {{"percent": 150, "holds": {holds}}}}}}}"#
            );
            let shown = render_config(&serde_json::from_str(&of_node).unwrap());
            assert_eq!(shown, format!("the Node's amplification of CPUs to 150 % {expected}"));
        }
    }
}
