//! `bayplan import --check` against a daemon with pods: what it says is what happens when the written configuration is taken.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_node::status::Status;
use bayplan_types::QosClass;

use crate::node::{DAEMON, MACHINE, Node, soon};

const BALLOONS: &str = "kind: BalloonsPolicy
metadata: {name: default}
spec:
  reservedResources: {cpu: \"cpuset:0,8\"}
  pinCPU: true
  balloonTypes:
  - {name: web, namespaces: [shop], minCPUs: 1, maxCPUs: 4, maxBalloons: 1, irqMode: isolate}
";

/// `bayplan import ARGUMENTS` of this file, for the daemon's machine.
async fn import(node: &Node, arguments: &[&str]) -> Output {
    let file = node.path("balloons.yaml");
    fs::write(&file, BALLOONS).unwrap();
    let mut command = Command::new(DAEMON);
    command.arg("import").arg(file).args(["--machine", MACHINE]).args(arguments);
    command.arg("--control").arg(node.path("control.sock")).env_remove("BAYPLAN_LOG");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// CPUs by name.
fn places(status: &Status) -> BTreeMap<String, String> {
    status.containers.iter().map(|it| (it.full_name(), it.cpus.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_that_would_move_by_an_import_are_those_that_do() {
    let mut node = Node::without_daemon(MACHINE);
    node.spawn_daemon("reservedCpus: \"0,8\"\n").await;
    for (namespace, name) in [("shop", "first"), ("shop", "second"), ("bank", "other")] {
        let pod =
            PodSpec { namespace: namespace.into(), ..PodSpec::new(name, QosClass::Burstable) };
        soon(node.kubelet.launch(&pod, &ContainerSpec::burstable(name, 1000))).await.unwrap();
    }
    node.guaranteed("owner", 2000).await;
    let before = places(&node.wait_until_in_line().await);

    let checked = import(&node, &["--check"]).await;
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{said}{}", String::from_utf8_lossy(&checked.stderr));
    assert!(said.contains("spec.balloonTypes[0].maxCPUs") && said.contains("irqMode"), "{said}");
    assert_eq!(places(&node.check_in_line().await), before, "a check has moved a container");

    let written = String::from_utf8(import(&node, &[]).await.stdout).unwrap();
    let path = node.path("bayplan.yaml");
    let base = fs::read_to_string(&path).unwrap().replace("reservedCpus: \"0,8\"\n", "");
    let new = node.path("new.yaml");
    fs::write(&new, format!("{base}{written}")).unwrap();
    fs::rename(new, &path).unwrap();
    node.wait_until("there is a group", |now| {
        now.containers.iter().filter(|it| it.group == "web[0]").count() == 2
    })
    .await;
    let after = places(&node.wait_until_in_line().await);
    for (name, cpus) in &after {
        let row = said.lines().find(|it| it.trim_start().starts_with(name));
        let told = row.is_some_and(|it| it.contains(&format!("{} -> {cpus}", before[name])));
        assert_eq!(told, before[name] != *cpus, "{name} is on {cpus}; {said}");
    }
    assert_ne!(after, before);
}
