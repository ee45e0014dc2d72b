//! What holds beside what was asked: groups around pods that allow less, sets and affinities that the kernel has.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bayplan_daemon::{FilePlanView, query_control};
use bayplan_types::CpuSet;
use tokio::time::sleep;

use crate::node::{Node, set, soon};

const TWO_NODES: &str = "numa:2 core:4 pu:2 mem:16";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Public reports: kubernetes#104147, lxcfs#301. A container owned CPUs on which it could not run.
#[tokio::test(flavor = "multi_thread")]
async fn containers_are_placed_within_what_the_groups_around_them_allow() {
    for (file, first, second) in [
        ("kubepods/cpuset.cpus.effective", "4-7,12-15", "2-3,10-13"),
        ("cpuset.cpus.effective", "2-5", "6-7,9-13"),
        ("cpuset/kubepods/cpuset.cpus", "1,3,5,7,9", "0,2,4,6,10-12"),
    ] {
        let mut node = Node::start_watching(TWO_NODES).await;
        let (_, before) = node.guaranteed("before", 2000).await;
        let file = node.host_root().join("sys/fs/cgroup").join(file);
        for allowed in [first, second] {
            write(&file, allowed);
            let allowed: CpuSet = allowed.parse().unwrap();
            let is_within = |text: &str| set(text).is_subset(&allowed) && !text.is_empty();
            let status = node
                .wait_until("within", |status| {
                    is_within(&status.cpus.shared)
                        && status.containers.iter().all(|it| is_within(&it.cpus))
                })
                .await;
            // The others are given to no container.
            assert!(set(&status.cpus.isolated).is_disjoint(&allowed), "{status:#?}");
        }
        let (_, owner) = node.guaranteed("owner", 1000).await;
        let allowed: CpuSet = second.parse().unwrap();
        assert!(node.cpus(&owner).is_subset(&allowed), "{}", file.display());
        soon(async {
            while !node.cpus(&before).is_subset(&allowed) {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
}

/// containerd#11345: the runtime's affinity is inherited, and the set that was asked was shown as the one that holds.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_kernel_has_is_shown_beside_what_was_asked() {
    let mut node = Node::start_watching(TWO_NODES).await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    node.burstable("other", 100).await;
    let group = async |name: &str| {
        let held = node.held(name).await;
        let dir = node.host_root().join("sys/fs/cgroup");
        let dir = dir.join(held.cgroup_parent.trim_start_matches('/')).join(held.id.unwrap());
        write(&dir.join("cgroup.type"), "domain");
        write(&dir.join("cpuset.cpus"), &held.cpus);
        write(&dir.join("cpuset.mems"), &held.mems);
        (dir, held.cpus)
    };
    let own = node.cpus(&owner);
    let (dir, asked) = group("owner").await;
    write(&dir.join("cpuset.cpus.effective"), &asked);
    write(&dir.join("cgroup.procs"), "77");
    let one = own.first().unwrap().to_string();
    let status = format!("Cpus_allowed_list:\t{one}\nMems_allowed_list:\t0");
    let proc = node.host_root().join("proc");
    write(&proc.join("77/status"), &status);
    write(&proc.join("9/comm"), "containerd");
    write(&proc.join("9/status"), &status);
    let (dir, asked_by_other) = group("other").await;
    let both = asked_by_other.parse::<CpuSet>().unwrap().union(&own).to_string();
    write(&dir.join("cpuset.cpus.effective"), &both);
    let status = node
        .wait_until("held", |status| status.containers.iter().all(|it| it.held.is_some()))
        .await;
    let of = |name: &str| status.containers.iter().find(|it| it.container == name).unwrap();
    let held = of("owner").held.as_ref().unwrap();
    assert_eq!((held.cpus.as_str(), of("owner").cpus.as_str()), (one.as_str(), asked.as_str()));
    assert!(held.why.starts_with("affinity inherited from containerd"), "{held:?}");
    assert_eq!(of("other").held.as_ref().unwrap().cpus, both);
    let intruders = &of("owner").intruders;
    assert_eq!(intruders, &[format!("default/other/other on {own}")]);
    let explained = node.explain("owner").await;
    let now = explained[0].now.as_ref().unwrap();
    assert_eq!((now.held.as_ref(), &now.intruders), (Some(held), intruders));
    let plan: FilePlanView =
        soon(query_control(&node.control_socket(), "/api/v1/plan")).await.unwrap();
    assert_eq!(plan.holds.len(), 3, "{plan:#?}");
}
