//! Memory that is far from the CPUs, and comes home.

use super::*;

/// Memory nodes of the server, as the runtime has them.
fn mems(groups: &Groups) -> String {
    let id = groups.server.file_name().unwrap().to_str().unwrap();
    groups.runtime.container(id).unwrap().mems
}

/// That on which its CPUs are.
fn near(groups: &Groups) -> &'static str {
    if groups.cpus()[0].is_subset(&set("0-1")) { "0" } else { "1" }
}

/// The server's pages follow its nodes, as with cgroup v2.
fn pages_follow(groups: &Groups) -> bool {
    // As wide as any.
    write(&groups.server, "cpuset.mems", &format!("{:<8}\n", mems(groups)));
    pages_are_counted(groups)
}

fn pages_are_counted(groups: &Groups) -> bool {
    let text = match mems(groups).as_str() {
        "0" => pages(1024, 0),
        "1" => pages(0, 1024),
        _ => pages(512, 512),
    };
    write(&groups.server, "memory.numa_stat", &text);
    true
}

/// Two pods that leave 1 GiB on each of two nodes.
async fn fill(node: &mut Node, names: [&str; 2]) -> [RunningPod; 2] {
    let mut pods = Vec::new();
    for name in names {
        let pod = PodSpec::new(name, QosClass::Guaranteed);
        let container = ContainerSpec::guaranteed(name, 500, Bytes::gib(7));
        pods.push(soon(node.kubelet.launch(&pod, &container)).await.unwrap().0);
    }
    <[RunningPod; 2]>::try_from(pods).ok().unwrap()
}

/// A server with a CPU of its own that got memory on both nodes, because they were nearly full when it came, and now there is room; by the kernel so many MiB on each.
async fn far_from_home(mib: u64, cure: Cure) -> (Node, Arc<Groups>, Trouble) {
    let mut node = Node::without_daemon("pack:1 numa:2 l3:1 core:2 pu:1 mem:8");
    node.adjust = acting;
    for id in 0..2 {
        let dir = node.host_root().join(format!("sys/devices/system/node/node{id}"));
        fs::create_dir_all(&dir).unwrap();
        let kib = mib * 1024;
        let text = format!(
            "Node {id} MemTotal: 8388608 kB\nNode {id} MemFree: {kib} kB\nNode {id} Inactive(file): 0 kB\n"
        );
        write(&dir, "meminfo", &text);
    }
    node.start_daemon().await;
    let filled = fill(&mut node, ["left", "right"]).await;
    let server = ContainerSpec::guaranteed("server", 1000, Bytes::gib(2));
    let pod = hog(QosClass::BestEffort, None);
    let groups = settled(&mut node, (QosClass::Guaranteed, &server), &pod).await;
    assert_eq!(mems(&groups), "0-1");
    for pod in &filled {
        soon(node.kubelet.end_pod(pod)).await.unwrap();
    }
    let trouble = Trouble::start(Arc::clone(&groups), cure);
    (node, groups, trouble)
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_comes_home_and_may_be_everywhere_again_after_a_pause() {
    let (mut node, groups, _trouble) = far_from_home(4096, pages_follow).await;
    let view = view_when(&node, "kept", |it| has(it, "memory", ProposalState::Kept)).await;
    assert_eq!(mems(&groups), near(&groups), "{view:#?}");
    let found = view.proposals.iter().find(|it| it.knob == "memory").unwrap();
    assert_eq!((found.target.as_str(), &found.target), ("default/server/server", &found.victim));
    let explained = node.explain("default/server/server").await;
    assert!(explained[0].rebalance.iter().any(|it| it.knob == "memory"));
    let labels = ["knob=\"memory\"", "verdict=\"kept\""];
    assert_eq!(sum(&metrics(&node).await, "bayplan_rebalance_verdicts_total", &labels), 1.0);
    node.check_in_line().await;
    pause(&node, true).await;
    files_when("everywhere", || mems(&groups) == "0-1").await;
    node.check_in_line().await;
    node.stop_daemon().await;
    let text = history(&node);
    assert!(text.contains("turns memory on default/server/server"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_came_home_makes_way_for_containers_that_come_later() {
    let (mut node, groups, trouble) = far_from_home(4096, pages_follow).await;
    view_when(&node, "kept", |it| has(it, "memory", ProposalState::Kept)).await;
    drop(trouble);
    fill(&mut node, ["east", "west"]).await;
    assert_eq!(mems(&groups), "0-1");
    let view = view_when(&node, "ended", |it| has(it, "memory", ProposalState::Undone)).await;
    let ended = view.proposals.iter().find(|it| it.knob == "memory").unwrap();
    assert_eq!(ended.outcome, "ended: too little memory is free nearer to its CPUs");
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_killed_leaves_memory_where_it_was_promised() {
    let (mut node, groups, _trouble) = far_from_home(4096, pages_follow).await;
    files_when("at home", || mems(&groups) == near(&groups)).await;
    node.kill_daemon();
    node.adjust = |config| {
        fast(config);
        config.rebalance.mode = Mode::Off;
    };
    node.start_daemon().await;
    files_when("everywhere", || mems(&groups) == "0-1").await;
    node.check_in_line().await;
}

/// What is promised there may be in use all the same, by processes in no container.
#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_come_where_the_kernel_has_no_room_for_it() {
    // Of 8 GiB, a quarter of one stays free.
    let (node, groups, _trouble) = far_from_home(512, pages_follow).await;
    let view = view_when(&node, "refused", |it| has(it, "memory", ProposalState::Refused)).await;
    let refused = view.proposals.iter().find(|it| it.knob == "memory").unwrap();
    let why = "could not be done: 512 MiB would come, and there is room for 256 MiB";
    assert_eq!((refused.outcome.as_str(), mems(&groups).as_str()), (why, "0-1"));
    node.check_in_line().await;
}

/// The runtime says that it has done it, and nothing is to be seen of that.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_not_home_before_the_kernel_says_so() {
    let (node, groups, _trouble) = far_from_home(4096, pages_are_counted).await;
    let view = view_when(&node, "refused", |it| has(it, "memory", ProposalState::Refused)).await;
    let refused = view.proposals.iter().find(|it| it.knob == "memory").unwrap();
    let near = near(&groups);
    let why = format!("could not be done: its cpuset.mems did not say {near} within 10 s");
    assert_eq!(refused.outcome, why);
    files_when("everywhere", || mems(&groups) == "0-1").await;
    node.check_in_line().await;
}
