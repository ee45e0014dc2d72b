//! Other programs on the node that give CPUs to containers.

use std::fs;
use std::time::Duration;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_cri::upstream::Upstream;
use bayplan_cri::v1;
use bayplan_cri::v1::runtime_service_client::RuntimeServiceClient;
use bayplan_types::{Bytes, CpuSet, QosClass};

use crate::node::{MACHINE, Node, set, soon};
use crate::observing::{metrics, sum};

fn claim(node: &Node, cpus: &CpuSet) {
    let dir = node.host_root().join("run/cdi");
    fs::create_dir_all(&dir).unwrap();
    let devices =
        format!(r#"[{{"name":"claim-1","containerEdits":{{"env":["DRA_CPUSET_1={cpus}"]}}}}]"#);
    let devices = if cpus.is_empty() { "[]" } else { &devices };
    let text = format!(r#"{{"cdiVersion":"0.8.0","kind":"dra.k8s.io/cpu","devices":{devices}}}"#);
    fs::write(dir.join("dra.cpu.json"), text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cpus_that_others_claim_are_left_alone_while_they_do() {
    let mut node = Node::start_watching(MACHINE).await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    node.burstable("shared", 100).await;
    let claimed = node.cpus(&owner);
    claim(&node, &claimed);
    node.wait_until("they are no container's", |now| set(&now.cpus.isolated) == claimed).await;
    let status = node.wait_until_in_line().await;
    assert_eq!(set(&status.cpus.exclusive).len(), 2);
    assert!(node.live().iter().all(|it| set(&it.cpus).is_disjoint(&claimed)));

    node.kill_daemon();
    node.start_daemon().await;
    assert_eq!(node.wait_until_in_line().await.cpus, status.cpus);
    claim(&node, &CpuSet::new());
    node.wait_until("they are shared again", |now| claimed.is_subset(&set(&now.cpus.shared))).await;
    node.wait_until_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_cpus_are_all_claimed_starts() {
    let mut node = Node::start_watching(MACHINE).await;
    node.burstable("shared", 100).await;
    claim(&node, &set("0-15"));
    node.wait_until("they are claimed", |now| !set(&now.cpus.isolated).is_empty()).await;
    node.kill_daemon();
    node.start_daemon().await;
    let status = node.wait_until_in_line().await;
    assert!(!set(&status.cpus.shared).is_empty(), "shared containers have to run somewhere");
}

/// From kubelet's call to the runtime: all of the pod runs there and nothing else, whether the journal is there after a restart or not.
#[tokio::test(flavor = "multi_thread")]
async fn cpus_that_koordinators_scheduler_has_chosen_for_a_pod_are_left_to_it() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let (_, shared) = node.burstable("shared", 100).await;
    let chosen = |name: &str, cpus: &CpuSet| {
        let status = format!(r#"{{"cpuset":"{cpus}"}}"#);
        let annotation = "scheduling.koordinator.sh/resource-status".to_owned();
        let pod = PodSpec::new(name, QosClass::Guaranteed);
        PodSpec { annotations: vec![(annotation, status)], ..pod }
    };
    let cpus = set("5,14");
    let spec = |name: &str, milli| ContainerSpec::guaranteed(name, milli, Bytes::gib(1));
    let pod = chosen("chosen", &cpus);
    let (running, first) = soon(node.kubelet.launch(&pod, &spec("first", 1500))).await.unwrap();
    let second = soon(node.kubelet.create(&running, &spec("second", 500), 0)).await.unwrap();
    let is_left_to_them = |node: &Node| {
        let others = node.live().into_iter().filter(|it| it.id != first && it.id != second);
        let others: Vec<CpuSet> = others.map(|it| set(&it.cpus)).collect();
        assert_eq!(others.len(), 2);
        [&first, &second].iter().all(|id| node.cpus(id) == cpus)
            && others.iter().all(|it| it.is_disjoint(&cpus))
    };
    assert!(is_left_to_them(&node));
    let taken = chosen("taken", &node.cpus(&owner));
    let refused = soon(node.kubelet.launch(&taken, &spec("two", 2000))).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(refused.message().contains("are owned by a container of another pod"), "{refused}");

    for is_lost in [false, true] {
        node.kill_daemon();
        if is_lost {
            fs::remove_dir_all(node.state_dir()).unwrap();
        }
        node.start_daemon().await;
        node.wait_until("all are known", |now| now.containers.len() == 4).await;
        let status = node.wait_until_in_line().await;
        assert!(is_left_to_them(&node), "journal lost: {is_lost}");
        assert_eq!(set(&status.cpus.isolated), cpus);
    }
    soon(node.kubelet.end_pod(&running)).await.unwrap();
    node.wait_until("they are shared again", |now| cpus.is_subset(&set(&now.cpus.shared))).await;
    node.wait_until_in_line().await;
    assert!(cpus.is_subset(&node.cpus(&shared)));
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_in_the_way_are_counted_by_what_was_looked_at() {
    let mut node = Node::without_daemon(MACHINE);
    for (path, text) in [
        (
            "proc/7/cmdline",
            "/usr/bin/kubelet\0--cpu-manager-policy=static\0--memory-manager-policy=None\0",
        ),
        ("proc/8/cmdline", "/bin/koordlet\0"),
    ] {
        let path = node.host_root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    node.start_daemon().await;
    node.wait_until("it is at work", |_| true).await;
    let expected = [
        ("kubelet-cpu", 2.0),
        ("kubelet-memory", 0.0),
        ("pinner", 1.0),
        ("claims", 0.0),
        ("cgroups", 1.0),
    ];
    // The node is looked at beside everything else.
    loop {
        let text = metrics(&node).await;
        // One after the other is counted.
        let is_there =
            |check: &str| text.contains(&format!("bayplan_neighbours{{check=\"{check}\"}}"));
        if !expected.iter().all(|(check, _)| is_there(check)) {
            tokio::task::yield_now().await;
            continue;
        }
        for (check, value) in expected {
            let label = format!("check=\"{check}\"");
            assert_eq!(sum(&text, "bayplan_neighbours", &[&label]), value, "{check}\n{text}");
        }
        return;
    }
}

/// What kubelet's static CPU manager asks for: a CPU set, and everything else as it is.
async fn pin(mut client: RuntimeServiceClient<Upstream>, id: &str, cpus: &str) {
    let linux = v1::LinuxContainerResources { cpuset_cpus: cpus.to_owned(), ..Default::default() };
    let update = v1::UpdateContainerResourcesRequest {
        container_id: id.to_owned(),
        linux: Some(linux),
        ..Default::default()
    };
    soon(client.update_container_resources(update)).await.unwrap();
}

/// No CPU that kubelet has given to one of them is handed to another one, and kubelet's own CPU sets put no container on an owner's CPUs.
#[tokio::test(flavor = "multi_thread")]
async fn with_kubelets_static_cpu_manager_bayplan_decides_and_every_owner_stays_alone() {
    const GIVEN: &str = "2-3,10-11";
    const REST: &str = "0-1,4-9,12-15";
    let mut node = Node::without_daemon(MACHINE);
    let kubelet_dir = node.host_root().join("var/lib/kubelet");
    fs::create_dir_all(&kubelet_dir).unwrap();
    let state = format!(
        r#"{{"policyName":"static","defaultCpuSet":"{REST}","entries":{{"uid-first":{{"first":"{GIVEN}"}}}},"checksum":1}}"#
    );
    fs::write(kubelet_dir.join("cpu_manager_state"), state).unwrap();
    let mut ids = Vec::new();
    for (name, qos, spec, cpus) in [
        (
            "first",
            QosClass::Guaranteed,
            ContainerSpec::guaranteed("first", 4000, Bytes::gib(1)),
            GIVEN,
        ),
        ("sharer", QosClass::Burstable, ContainerSpec::burstable("sharer", 500), REST),
    ] {
        let (_, id) =
            soon(node.past_daemon().launch(&PodSpec::new(name, qos), &spec)).await.unwrap();
        let runtime = Upstream::new(node.path("runtime.sock"), Duration::from_secs(60));
        pin(runtime.runtime_client(), &id, cpus).await;
        ids.push(id);
    }
    let [first, sharer] = &ids[..] else { unreachable!("two were made") };
    node.start_daemon().await;
    node.wait_until_in_line().await;
    assert_eq!(set(&node.held("first").await.exclusive), set(GIVEN));

    // Kubelet believes that the CPUs of another container are free.
    let (_, second) = node.guaranteed("second", 2000).await;
    let third = ContainerSpec::guaranteed("third", 2000, Bytes::gib(1)).resources();
    let third = v1::LinuxContainerResources { cpuset_cpus: GIVEN.to_owned(), ..third };
    let third = node.create_raw("third", "/kubepods/poduid-third", third).await.unwrap();
    let before = node.wait_until_in_line().await;
    for (id, cpus) in [(first, "4-7"), (&second, GIVEN), (&third, "0-15"), (sharer, REST)] {
        pin(node.raw(), id, cpus).await;
        assert_eq!(node.check_in_line().await.containers, before.containers);
    }
    let owned = |id: &String| node.cpus(id).len();
    assert_eq!([owned(first), owned(&second), owned(&third)], [4, 2, 2]);
    soon(async {
        let (name, label) = ("bayplan_neighbours", "check=\"kubelet-cpu\"");
        while sum(&metrics(&node).await, name, &[label]) < 2.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
