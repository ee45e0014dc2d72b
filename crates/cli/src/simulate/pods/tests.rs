//! Pod files: what is read of them, and the recipes of the documents.

use std::fs;
use std::path::PathBuf;

use bayplan_config::{Config, new_state, parse_config};
use bayplan_topology::{derive, parse_machine};
use expect_test::{Expect, expect};

use super::*;
use crate::explain::render;
use crate::simulate::place_pods::place_pods;

/// What a file brings, one line per container: QoS class, shares, quota, memory; those of its pod; and whether it ends.
fn check(text: &str, expected: Expect) {
    // Tests may indent a file.
    let text = text.replace("\n        ", "\n");
    let arrivals = match parse_pods(Path::new("pod.yaml"), &text) {
        Ok(arrivals) => arrivals,
        Err(error) => return expected.assert_eq(&format!("{error:#}\n")),
    };
    let settings = |it: bayplan_workload::Resources| {
        format!("{}/{} {} MiB", it.cpu_shares, it.cpu_quota, it.memory_limit >> 20)
    };
    let line = |Arrival { container, ends }: &Arrival| {
        let pod = &container.pod;
        let qos = pod.qos.map_or("none", QosClass::name);
        let names = format!("{}/{}/{}", pod.namespace, pod.name, container.name);
        let (own, whole) = (settings(container.resources), settings(pod.resources));
        let huge: Vec<String> =
            container.huge_pages.iter().map(|(size, it)| format!(", {it} of {size}")).collect();
        let end = if *ends { ", ends" } else { "" };
        format!("{names} {qos}: {own} of {whole}{}{end}\n", huge.concat())
    };
    expected.assert_eq(&arrivals.iter().map(line).collect::<String>());
}

#[test]
fn a_pod_is_read_as_kubelet_reads_it() {
    check(
        r#"
        kind: Pod
        metadata: {name: a, namespace: n}
        spec:
          initContainers:
          - {name: setup, resources: {limits: {cpu: 3, memory: 1Gi}}}
          - {name: side, restartPolicy: Always, resources: {limits: {cpu: 500m, memory: 1Gi}}}
          containers:
          - {name: app, resources: {requests: {cpu: "2"}, limits: {cpu: 2, memory: 2Gi, hugepages-2Mi: 64Mi}}}
          - {name: log, resources: {limits: {cpu: 0.5, memory: 512Mi}}}
        ---
        kind: Pod
        metadata: {name: burst}
        spec: {containers: [{name: app, resources: {requests: {cpu: 250m, memory: 1Gi}}}]}
        ---
        kind: Pod
        metadata: {name: effort}
        spec: {containers: [{name: app}]}
        "#,
        expect![[r#"
            n/a/setup Guaranteed: 3072/300000 1024 MiB of 3072/300000 3584 MiB, ends
            n/a/side Guaranteed: 512/50000 1024 MiB of 3072/300000 3584 MiB
            n/a/app Guaranteed: 2048/200000 2048 MiB of 3072/300000 3584 MiB, 64 MiB of 2 MiB
            n/a/log Guaranteed: 512/50000 512 MiB of 3072/300000 3584 MiB
            default/burst/app Burstable: 256/0 0 MiB of 256/0 0 MiB
            default/effort/app BestEffort: 2/0 0 MiB of 2/0 0 MiB
        "#]],
    );
    // Resources of the pod as a whole, and a workload.
    check(
        r#"
        kind: StatefulSet
        metadata: {name: set, namespace: n}
        spec:
          replicas: 2
          template:
            spec:
              resources: {limits: {cpu: "4", memory: 4Gi}}
              containers:
              - {name: app, resources: {limits: {cpu: 1, memory: 1Gi}}}
              - {name: silent}
        "#,
        expect![[r#"
            n/set-0/app Guaranteed: 1024/100000 1024 MiB of 4096/400000 4096 MiB
            n/set-0/silent Guaranteed: 4096/400000 4096 MiB of 4096/400000 4096 MiB
            n/set-1/app Guaranteed: 1024/100000 1024 MiB of 4096/400000 4096 MiB
            n/set-1/silent Guaranteed: 4096/400000 4096 MiB of 4096/400000 4096 MiB
        "#]],
    );
}

#[test]
fn what_is_no_pod_is_told_with_its_place() {
    for (text, expected) in [
        (
            "kind: Service\nmetadata: {name: s}",
            expect![[r#"
            pod.yaml: Service s: is no pod, expected `kind: Pod`, or a Deployment, StatefulSet, DaemonSet, ReplicaSet or Job with a pod template
        "#]],
        ),
        (
            "kind: Pod\nspec: {containers: [{name: a}]}",
            expect![[r#"
            pod.yaml: Pod : metadata.name is missing
        "#]],
        ),
        (
            "kind: Pod\nmetadata: {name: p}",
            expect![[r#"
            pod.yaml: Pod p: spec.containers is empty, expected one at least
        "#]],
        ),
        (
            "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, resources: {limits: {cpu: four}}}]}",
            expect![[r#"
                pod.yaml: Pod p: container a: cpu is `four`, expected a quantity such as 500m, 4 or 8Gi
            "#]],
        ),
        (
            "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}",
            expect![[r#"
                pod.yaml: Pod p: container a: the request of cpu is more than its limit
            "#]],
        ),
        (
            "kind: Pod\nmetadata: [",
            expect![[r#"
                pod.yaml:2:11: expected mapping start at line 2, column 11
            "#]],
        ),
        (
            "",
            expect![[r#"
            pod.yaml: no pod, expected `kind: Pod` or a workload
        "#]],
        ),
    ] {
        check(text, expected);
    }
}

/// What the command prints.
fn simulated_under(config: &Config, machine: &str, text: &str) -> String {
    let topology = derive(&parse_machine(machine).unwrap()).unwrap();
    let state = new_state(config, &topology).unwrap();
    let placed = place_pods(state, parse_pods(Path::new("pod.yaml"), text).unwrap());
    let mut shown: String = placed.explanations.iter().map(render).collect();
    if !placed.refused.is_empty() {
        shown.push_str(&format!("bayplan: no place for {}\n", placed.refused.join(", ")));
    }
    shown
}

/// A pod of CMK says it in its command, also in that of a shell, and by its extended resource.
#[test]
fn words_of_cmk_and_extended_resources_count() {
    let groups = "
reservedCpus: \"0\"
groups:
- {name: exclusive, size: {list: [\"1\", \"2\", \"5\"]}, inside: slots}
- {name: shared, size: {list: [\"3\"]}, members: {all: true}}
";
    let pod = r#"
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: two
    command: [/bin/bash, -c]
    args: ["/opt/bin/cmk isolate --conf-dir=/etc/cmk --pool=exclusive --socket-id=0 app -x"]
    resources: {limits: {cmk.intel.com/exclusive-cores: 2}}
  - {name: one, env: [{name: STP_POOL, value: exclusive}]}
  - {name: infra, command: [cmk, isolate, --pool=infra, app]}
  - {name: other, command: [app]}
"#;
    let config = parse_config(Path::new("f"), groups).unwrap();
    let shown = simulated_under(&config, "pack:2 numa:1 core:4 pu:1", pod);
    let told = shown.lines().filter(|it| !it.starts_with(' ') || it.contains("running"));
    let warned = shown.lines().filter(|it| it.contains("warning"));
    expect![[r#"
        default/a/two: on exclusive CPUs inside its group in package 0
          now      running on CPUs 1-2, owns 1-2, memory nodes 0
        default/a/one: on exclusive CPUs inside its group in package 1
          now      running on CPUs 5, owns 5, memory nodes 1
        default/a/infra: placed in package 1
          now      running on CPUs 4,6-7, memory nodes 1
        default/a/other: on the CPUs of its group in package 0
          now      running on CPUs 3, memory nodes 0
          warning  the pool `infra` of `cmk isolate` (STP_POOL) is not allowed in namespace `default` (`permissions` in the configuration); ignored"#]]
    .assert_eq(&told.chain(warned).collect::<Vec<_>>().join("\n"));
}

const COMMAND: &str = "$ bayplan simulate ";
const WITH_CONFIG: &str = "--config node.yaml ";

/// A page of `docs` with pods in blocks of YAML, and below a block with the command and its output: at least so many. The configuration `node.yaml` is the last block of YAML before the pod that is none.
/// `UPDATE_EXPECT=1` rewrites the outputs.
#[track_caller]
fn check_page(name: &str, least: usize) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = fs::read_to_string(&path).unwrap();
    let (mut pod, mut config) = ("", "");
    let (mut again, mut rest) = (String::new(), page.as_str());
    let mut count = 0;
    while let Some((before, block)) = rest.split_once("\n```") {
        let (language, block) = block.split_once('\n').unwrap();
        let (content, after) = block.split_once("```\n").unwrap();
        let mut shown = content.to_owned();
        match language {
            "yaml" if content.lines().any(|line| line.starts_with("kind: ")) => pod = content,
            "yaml" => config = content,
            "console" => {
                let command = content.lines().next().unwrap();
                shown = format!("{command}\n{}", run_command(command, config, pod));
                count += 1;
            }
            _ => {}
        }
        again.push_str(&format!("{before}\n```{language}\n{shown}```\n"));
        rest = after;
    }
    again.push_str(rest);
    assert!(count >= least, "{name}: {count} pods");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &again).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), again, "UPDATE_EXPECT=1 rewrites it");
}

/// What a command of a page prints.
fn run_command(command: &str, config: &str, pod: &str) -> String {
    let arguments = command.strip_prefix(COMMAND).unwrap();
    let (config, arguments) = match arguments.strip_prefix(WITH_CONFIG) {
        Some(rest) => (parse_config(Path::new("node.yaml"), config).unwrap(), rest),
        None => (Config::default(), arguments),
    };
    let machine = arguments.strip_prefix("--machine '").unwrap();
    simulated_under(&config, machine.strip_suffix("' pod.yaml").unwrap(), pod)
}

#[test]
fn every_recipe_is_placed_as_its_page_says() {
    check_page("recipes.md", 7);
}

#[test]
fn every_guide_has_a_pod_that_is_placed_as_it_says() {
    for name in [
        "annotations.md",
        "colocation.md",
        "groups.md",
        "kernel-files.md",
        "migrating.md",
        "moves.md",
        "placement.md",
        "rebalance.md",
        "resctrl.md",
    ] {
        check_page(name, 1);
    }
}
