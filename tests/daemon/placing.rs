//! Which containers get which CPUs, and what happens to the others meanwhile.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_types::{Bytes, CpuSet, QosClass};
use bayplan_workload::annotations::CpuPartition;

use crate::node::{MACHINE, Node, RESERVED, STUCK, set, soon};

/// On a runtime that does not tell what ends, as containerd before 1.7.
async fn start_without_events() -> Node {
    let mut node = Node::without_daemon(MACHINE);
    node.runtime.inject("GetContainerEvents", Fault::Fail(12));
    node.start_daemon().await;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn two_owners_are_disjoint_and_the_rest_shares_what_is_left() {
    let mut node = Node::start().await;
    let empty = node.status().await;
    let (_, shared) = node.burstable("shared", 500).await;
    let (_, first) = node.guaranteed("first", 2000).await;
    let (_, second) = node.guaranteed("second", 6000).await;
    let (one, two) = (node.cpus(&first), node.cpus(&second));
    assert_eq!((one.len(), two.len()), (2, 6));
    assert!(one.is_disjoint(&two));
    let rest = node.cpus(&shared);
    assert!(rest.is_disjoint(&one.union(&two)), "{rest}");
    node.check_in_line().await;

    soon(node.kubelet.stop(&second)).await.unwrap();
    let status = node.wait_until_in_line().await;
    assert_eq!(set(&status.cpus.exclusive), one);
    assert_eq!(set(&status.cpus.shared), set(&empty.cpus.shared).difference(&one));
    assert!(rest.is_subset(&node.cpus(&shared)) && rest != node.cpus(&shared));
    assert_eq!(node.cpus(&first), one, "it was not its turn to move");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_have_let_go_before_an_owner_is_created() {
    let mut node = Node::start().await;
    let (_, shared) = node.burstable("shared", 500).await;
    // Nothing waits here: when the answer arrives, the update must be done.
    for name in ["a", "b", "c"] {
        let pod = PodSpec::new(name, QosClass::Guaranteed);
        let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
        let container = ContainerSpec::guaranteed(name, 2000, Bytes::gib(1));
        let owner = soon(node.kubelet.create(&pod, &container, 0)).await.unwrap();
        assert!(node.cpus(&shared).is_disjoint(&node.cpus(&owner)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn system_pods_run_on_reserved_cpus_and_no_others_do() {
    let mut node = Node::start().await;
    let system =
        PodSpec { namespace: "kube-system".into(), ..PodSpec::new("coredns", QosClass::Burstable) };
    let container = ContainerSpec::burstable("coredns", 100);
    let (_, system) = soon(node.kubelet.launch(&system, &container)).await.unwrap();
    let (_, shared) = node.burstable("shared", 100).await;
    let (_, owner) = node.guaranteed("owner", 1000).await;
    assert_eq!(node.cpus(&system), set(RESERVED));
    assert!(node.cpus(&shared).is_disjoint(&set(RESERVED)));
    assert!(node.cpus(&owner).is_disjoint(&set(RESERVED)));
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_one_owns_a_cpu_and_shares_others() {
    let mut node = Node::start().await;
    let (_, mixed) = node.guaranteed("mixed", 1500).await;
    let (_, shared) = node.burstable("shared", 100).await;
    let held = node.held("mixed").await;
    let own = set(&held.exclusive);
    assert_eq!((own.len(), held.class.as_str()), (1, "exclusive"));
    assert!(own.is_subset(&node.cpus(&mixed)) && own != node.cpus(&mixed));
    assert!(node.cpus(&shared).is_disjoint(&own));
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ends_gives_everything_back() {
    let mut node = Node::start().await;
    let before = node.status().await;
    let (pod, _) = node.guaranteed("owner", 4000).await;
    let container = ContainerSpec::guaranteed("sidecar", 1000, Bytes::gib(1));
    soon(node.kubelet.create(&pod, &container, 0)).await.unwrap();
    assert_eq!(set(&node.status().await.cpus.exclusive).len(), 5);
    soon(node.kubelet.end_pod(&pod)).await.unwrap();
    assert_eq!(node.status().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_in_place_keeps_cpus_and_grows_and_shrinks() {
    let mut node = Node::start().await;
    let (_, shared) = node.burstable("shared", 100).await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let two = node.cpus(&owner);
    let asked = |cpus: u64| ContainerSpec::guaranteed("owner", cpus * 1000, Bytes::gib(1));

    soon(node.kubelet.resize(&owner, &asked(4))).await.unwrap();
    let four = node.cpus(&owner);
    assert!(four.len() == 4 && two.is_subset(&four), "{two} and then {four}");
    assert!(node.cpus(&shared).is_disjoint(&four));
    assert_eq!(node.on_record(&owner).cpu_quota, 400_000);
    node.check_in_line().await;

    soon(node.kubelet.resize(&owner, &asked(1))).await.unwrap();
    let one = node.cpus(&owner);
    assert!(one.len() == 1 && one.is_subset(&four), "{four} and then {one}");
    let status = node.wait_until_in_line().await;
    assert_eq!(set(&status.cpus.exclusive), one);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_resize_leaves_everything() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    node.burstable("shared", 100).await;
    let (before, records) = (node.status().await, node.runtime.containers());
    let much = ContainerSpec::guaranteed("owner", 64_000, Bytes::gib(1));
    let refused = soon(node.kubelet.resize(&owner, &much)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert_eq!(node.status().await, before);
    assert_eq!(node.runtime.containers(), records);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_container_is_refused_for_cpus_of_one_that_has_ended_unseen() {
    let mut node = start_without_events().await;
    let mut past = node.past_daemon();
    for round in 0..5 {
        // Nine of thirteen: two of them never fit at once.
        let (_, id) = node.guaranteed(&format!("owner{round}"), 9000).await;
        soon(past.stop(&id)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_needs_are_known_comes_to_one_node() {
    let mut node = Node::start().await;
    // Leaves two CPUs of the first NUMA node, which would be the tightest fit.
    node.guaranteed("other", 4000).await;
    let [one, two] =
        ["one", "two"].map(|name| ContainerSpec::guaranteed(name, 2000, Bytes::gib(1)));
    let whole = Some(ContainerSpec::guaranteed("", 4000, Bytes::gib(2)));
    let pod = PodSpec { whole, ..PodSpec::new("pod", QosClass::Guaranteed) };
    let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
    let mut owned = Vec::new();
    for container in [one, two] {
        let id = soon(node.kubelet.create(&pod, &container, 0)).await.unwrap();
        owned.extend(node.cpus(&id).iter().map(|cpu| cpu.0));
    }
    owned.sort_unstable();
    assert_eq!(owned, [4, 5, 12, 13]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cpus_of_an_init_container_are_used_again() {
    let mut node = start_without_events().await;
    let mut past = node.past_daemon();
    let (init, app) = (
        ContainerSpec::guaranteed("init", 4000, Bytes::gib(1)),
        ContainerSpec::guaranteed("app", 4000, Bytes::gib(1)),
    );
    for round in 0..5 {
        let whole = Some(app.clone());
        let pod = PodSpec { whole, ..PodSpec::new(&format!("pod{round}"), QosClass::Guaranteed) };
        let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
        let first = soon(node.kubelet.create(&pod, &init, 0)).await.unwrap();
        soon(node.kubelet.start(&first)).await.unwrap();
        let cpus = node.cpus(&first);
        soon(past.stop(&first)).await.unwrap();
        let second = soon(node.kubelet.create(&pod, &app, 0)).await.unwrap();
        assert_eq!(node.cpus(&second), cpus);
        soon(node.kubelet.end_pod(&pod)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_comes_near_the_disk_that_its_volume_is_on() {
    let mut node = Node::without_daemon("pack:2 numa:1 core:4 pu:2 mem:16 nvme:2");
    node.adjust = |config| config.decision_timeout = STUCK;
    write_disks(&node.host_root());
    node.start_daemon().await;
    let mut package = async |name: &str, volume: &str| {
        let pod = PodSpec::new(name, QosClass::Guaranteed);
        let container = ContainerSpec {
            volumes: vec![volume.to_owned()],
            ..ContainerSpec::guaranteed(name, 1000, Bytes::gib(1))
        };
        let (_, id) = soon(node.kubelet.launch(&pod, &container)).await.unwrap();
        node.cpus(&id).first().unwrap().0 % 8 / 4
    };
    // The system's disk is in the second package, too, and draws no container there.
    assert_eq!(package("on-the-system-disk", "/srv").await, 0);
    assert_eq!(package("logs", "/log/pods").await, 0);
    assert_eq!(package("not-mounted", "/database").await, 0);
    assert_eq!(package("database", "/data/db").await, 1);
    node.kill_daemon();
    node.start_daemon().await;
    node.check_in_line().await;
}

/// A node without cgroups of version 2, so without partitions, on which these CPUs are isolated at boot.
async fn isolated_node(machine: &str, isolated: &str, partition: CpuPartition) -> Node {
    let mut node = Node::without_daemon(&format!("{machine} isolated:{isolated}"));
    node.adjust = match partition {
        CpuPartition::Isolated => |config| {
            config.decision_timeout = STUCK;
            config.partition = CpuPartition::Isolated;
        },
        _ => |config| config.decision_timeout = STUCK,
    };
    let file = node.host_root().join("sys/devices/system/cpu/isolated");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, format!("{isolated}\n")).unwrap();
    node.start_daemon().await;
    node
}

/// The CPUs of a Guaranteed container.
async fn launch_on(node: &mut Node, name: &str, cpus: u32, asks: &[(&str, &str)]) -> CpuSet {
    let pairs = asks.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let pod = PodSpec { annotations: pairs.collect(), ..PodSpec::new(name, QosClass::Guaranteed) };
    let container = ContainerSpec::guaranteed(name, (cpus * 1000).into(), Bytes::gib(1));
    let (_, id) = soon(node.kubelet.launch(&pod, &container)).await.unwrap();
    node.cpus(&id)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_container_is_spread_over_nodes_for_cpus_isolated_at_boot_in_place_of_a_partition() {
    let machine = "pack:2 numa:1 core:8 pu:1 mem:16";
    let mut node = isolated_node(machine, "6-7,14-15", CpuPartition::None).await;
    let asks = [("bayplan.dev/cpu-partition", "isolated")];
    let (isolated, first) = (set("6-7,14-15"), set("0-7"));
    let wide = launch_on(&mut node, "wide", 4, &asks).await;
    assert!(wide.is_disjoint(&isolated), "{wide}");
    assert!(wide.is_subset(&first) || wide.is_disjoint(&first), "{wide}");
    for name in ["one", "other"] {
        let cpus = launch_on(&mut node, name, 2, &asks).await;
        assert!(cpus == set("6-7") || cpus == set("14-15"), "{name}: {cpus}");
    }
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_for_all_containers_does_not_use_up_cpus_isolated_at_boot() {
    let machine = "pack:1 numa:1 core:16 pu:1 mem:16";
    let mut node = isolated_node(machine, "6-7", CpuPartition::Isolated).await;
    let cpus = launch_on(&mut node, "ordinary", 2, &[]).await;
    assert!(cpus.is_disjoint(&set("6-7")), "{cpus}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_its_partition_gets_cpus_isolated_at_boot() {
    let mut node =
        isolated_node("pack:1 numa:1 core:16 pu:1 mem:16", "6-7", CpuPartition::None).await;
    let mut launch =
        async |name: &str, asks: &[(&str, &str)]| launch_on(&mut node, name, 2, asks).await;
    let asks = ("bayplan.dev/cpu-partition", "isolated");
    let isolated = set("6-7");
    assert!(launch("ordinary", &[]).await.is_disjoint(&isolated));
    assert!(launch("root", &[("bayplan.dev/cpu-partition", "root")]).await.is_disjoint(&isolated));
    let no = ("bayplan.dev/prefer-isolated-cpus", "false");
    let refuses = launch("refuses", &[asks, no]).await;
    assert!(refuses.is_disjoint(&isolated));
    assert_eq!(launch("asks", &[asks]).await, isolated);
    soon(async {
        while node.explain("asks").await[0].isolation.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let told = node.explain("asks").await[0].isolation.clone().unwrap();
    assert!(told.contains("isolcpus") && told.contains("in place of the partition"), "{told}");
    node.kill_daemon();
    node.start_daemon().await;
    node.check_in_line().await;
}

/// The system is on two partitions of the last disk, `/data` on one of the disk before it; both are in the second package.
fn write_disks(root: &Path) {
    const TABLE: &str = "\
22 1 259:1 / / rw - ext4 /dev/nvme3n1p1 rw
23 22 259:2 / /log rw - ext4 /dev/nvme3n1p2 rw
30 22 259:5 / /data rw - xfs /dev/nvme2n1p1 rw
";
    let put = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("proc/1/mountinfo", TABLE);
    fs::create_dir_all(root.join("sys/dev/block")).unwrap();
    let partitions = [("259:1", "nvme3n1", 1), ("259:2", "nvme3n1", 2), ("259:5", "nvme2n1", 1)];
    for (number, disk, partition) in partitions {
        let device = format!("devices/second/{disk}/{disk}p{partition}");
        put(&format!("sys/{device}/partition"), "");
        symlink(format!("../../{device}"), root.join("sys/dev/block").join(number)).unwrap();
    }
}
