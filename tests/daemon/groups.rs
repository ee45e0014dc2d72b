//! Groups of containers with a common CPU set, through the proxy: what the runtime has of each member while the group grows and shrinks, through restarts, modes and CPUs that go.

use std::path::Path;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_daemon::config::{Config, parse_config};
use bayplan_node::mode::Mode;
use bayplan_types::{CpuSet, QosClass};

use crate::hotplug::all;
use crate::modes::change;
use crate::node::{Node, set, soon};

const MACHINE: &str = "pack:2 numa:2 core:4 pu:2 mem:16";
const ALL: &str = "0-31";
const GROUPS: &str = "groups:
- {name: web, members: {namespaces: [shop]}, instances: {max: 1}, size: {requests: {min: 1, max: 6}}}
";

const POOLS: &str = "groups:
- {name: exclusive, size: {list: [\"9,25\", \"10,26\"]}, inside: slots}
- {name: shared, size: {list: [\"11,27\"]}}
";

async fn start() -> Node {
    start_with(with_web).await
}

fn with_web(config: &mut Config) {
    config.groups = parse_config(Path::new("f"), GROUPS).unwrap().groups;
}

async fn start_with(adjust: fn(&mut Config)) -> Node {
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = adjust;
    node.start_daemon().await;
    node
}

async fn launch(node: &mut Node, namespace: &str, name: &str, milli: u64) -> String {
    let pod =
        PodSpec { namespace: namespace.to_owned(), ..PodSpec::new(name, QosClass::Burstable) };
    let container = ContainerSpec::burstable(name, milli);
    soon(node.kubelet.launch(&pod, &container)).await.unwrap().1
}

/// The CPUs of the group, on which both are and on which the third is not.
async fn check_group(node: &Node, members: &[&str], other: &str, count: usize) -> CpuSet {
    let status = node.wait_until_in_line().await;
    let group: CpuSet = status.groups.first().map(|it| set(&it.cpus)).unwrap_or_default();
    assert_eq!(group.len(), count, "{status:#?}");
    for id in members {
        assert_eq!(node.cpus(id), group);
    }
    assert!(node.cpus(other).is_disjoint(&group));
    group
}

#[tokio::test(flavor = "multi_thread")]
async fn members_follow_their_group_and_others_stay_off_it() {
    let mut node = start().await;
    let other = launch(&mut node, "bank", "other", 500).await;
    let first = launch(&mut node, "shop", "first", 1000).await;
    let small = check_group(&node, &[&first], &other, 1).await;
    let second = launch(&mut node, "shop", "second", 3000).await;
    let large = check_group(&node, &[&first, &second], &other, 4).await;
    assert!(small.is_subset(&large), "{small} {large}");

    // The journal has it all.
    node.kill_daemon();
    node.start_daemon().await;
    assert_eq!(check_group(&node, &[&first, &second], &other, 4).await, large);

    soon(node.kubelet.stop(&second)).await.unwrap();
    check_group(&node, &[&first], &other, 1).await;
    soon(node.kubelet.stop(&first)).await.unwrap();
    let status = node.wait_until_in_line().await;
    assert!(status.groups.is_empty() && status.cpus.exclusive.is_empty(), "{status:#?}");
}

/// No group takes a container while the node is drained; restored, all run everywhere, and placed again the group has its CPUs.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_as_before_when_a_restored_node_is_placed_again() {
    let mut node = start().await;
    let other = launch(&mut node, "bank", "other", 500).await;
    let first = launch(&mut node, "shop", "first", 2000).await;
    let group = check_group(&node, &[&first], &other, 2).await;

    change(&node, Mode::Draining).await;
    let late = launch(&mut node, "shop", "late", 1000).await;
    assert_eq!(check_group(&node, &[&first], &late, 2).await, group);
    soon(node.kubelet.stop(&late)).await.unwrap();

    change(&node, Mode::Restored).await;
    for _ in 0..2 {
        assert_eq!([&first, &other].map(|id| node.cpus(id)), [ALL; 2].map(set));
        node.kill_daemon();
        node.start_daemon().await;
    }
    change(&node, Mode::Placing).await;
    assert_eq!(check_group(&node, &[&first], &other, 2).await, group);
}

/// A group with CPUs that go offline has as many elsewhere, and keeps these when the others are back.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_loses_cpus_has_others() {
    let mut node = Node::start_watching_with(MACHINE, with_web).await;
    let other = launch(&mut node, "bank", "other", 500).await;
    let first = launch(&mut node, "shop", "first", 3000).await;
    let before = check_group(&node, &[&first], &other, 3).await;

    let gone: CpuSet = before.iter().take(2).collect();
    node.plug(&format!("{MACHINE} offline:{gone}"));
    node.wait_until("the CPUs are known to be gone", |now| all(now).is_disjoint(&gone)).await;
    let after = check_group(&node, &[&first], &other, 3).await;
    assert!(after.is_disjoint(&gone) && before.difference(&gone).is_subset(&after), "{after}");

    node.plug(MACHINE);
    node.wait_until("the CPUs are back", |now| gone.is_subset(&all(now))).await;
    assert_eq!(check_group(&node, &[&first], &other, 3).await, after);
}

#[tokio::test(flavor = "multi_thread")]
async fn cmk_isolate_is_taken_out_of_a_command_and_its_pool_is_given() {
    let mut node = start_with(|config| {
        config.groups = parse_config(Path::new("f"), POOLS).unwrap().groups;
    })
    .await;
    let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    for (name, command, variables, left, cpus) in [
        (
            "script",
            &["bash", "-c", "cmk isolate --pool=exclusive app -- -x"][..],
            &[][..],
            &["bash", "-c", "app -x"][..],
            "9,25",
        ),
        ("words", &["/opt/bin/cmk", "isolate", "--pool", "shared", "app"], &[], &["app"], "11,27"),
        ("variable", &["app"], &[("STP_POOL", "exclusive")], &["app"], "10,26"),
    ] {
        let pod = PodSpec::new(name, QosClass::Burstable);
        let variables =
            variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let container = ContainerSpec {
            command: words(command),
            variables: variables.collect(),
            ..ContainerSpec::burstable(name, 500)
        };
        let id = soon(node.kubelet.launch(&pod, &container)).await.unwrap().1;
        let made = node.runtime.container(&id).unwrap();
        assert_eq!(made.command, words(left), "{name}");
        assert_eq!(node.cpus(&id), set(cpus), "{name}");
        let told =
            |key: &str| made.variables.iter().find(|(it, _)| it == key).map(|(_, it)| it.as_str());
        assert_eq!(told("CMK_CPUS_ASSIGNED"), Some(cpus), "{name}");
        assert_eq!(told("CMK_CPUS_SHARED"), Some("11,27"), "{name}");
    }
    // What asks for nothing of CMK keeps its command.
    let left = words(&["app", "--isolate", "--", "x"]);
    let container =
        ContainerSpec { command: left.clone(), ..ContainerSpec::burstable("other", 500) };
    let pod = PodSpec::new("other", QosClass::Burstable);
    let id = soon(node.kubelet.launch(&pod, &container)).await.unwrap().1;
    let made = node.runtime.container(&id).unwrap();
    assert_eq!((made.command, made.variables.len()), (left, 0));
}
