//! What the cluster shows of a node and its pods: the row of `kubectl get bpn`, which the API server makes of the definition, and events on pods.

use std::collections::BTreeMap;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_types::{Bytes, QosClass};
use serde_json::{Value as Json, json};

use crate::world::{NODES, World};

/// Cells by column, of a node with one container that has two CPUs of its own.
pub(crate) async fn a_row_says_how_the_node_is(world: &World) {
    let expected = [
        ("Name", json!("n1")),
        ("Config", json!("BayplanConfig/default")),
        ("Applied", json!("True")),
        ("Ready", json!("True")),
        ("Healthy", json!("True")),
        ("Mode", json!("placing")),
        ("Exclusive", json!(2)),
        ("Version", json!(env!("CARGO_PKG_VERSION"))),
    ];
    let is_so = |table: &Json| {
        let cells = cells(table);
        expected.iter().all(|(name, value)| cells.get(*name) == Some(value))
    };
    let table = world.table_until("the row of the node", NODES, is_so).await;
    let cells = cells(&table);
    for name in ["Shared", "Largest-Free"] {
        assert!(cells[name].as_u64().is_some_and(|it| it > 0), "{name}: {table:#}");
    }
    assert!(cells["Age"].is_string(), "{table:#}");
    let rows = async |config: &str| {
        let path = format!("{NODES}?fieldSelector=status.configName%3DBayplanConfig/{config}");
        world.read(&path).await["items"].as_array().map(Vec::len)
    };
    assert_eq!((rows("default").await, rows("other").await), (Some(1), Some(0)));
}

fn cells(table: &Json) -> BTreeMap<String, Json> {
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    let names = columns.map(|it| it["name"].as_str().unwrap_or_default().to_owned());
    let cells = table["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
    names.zip(cells).collect()
}

/// One that the node has no room for, and one that has fewer CPUs because of a neighbour.
pub(crate) async fn pods_hear_of_refusals_and_neighbours(world: &mut World) {
    let mut kubelet = world.node.kubelet.clone();
    let large = kubelet.run_pod(&PodSpec::new("large", QosClass::Guaranteed)).await.unwrap();
    let container = ContainerSpec::guaranteed("large", 99_000, Bytes::gib(1));
    kubelet.create(&large, &container, 0).await.unwrap_err();
    world.event("PlacementRefused", "large").await;
    let (shares, _) = world.node.burstable("shares", 100).await;
    // Of both NUMA nodes.
    let (takes, _) = world.node.guaranteed("takes", 9000).await;
    world.event("SharedCpusReduced", "shares").await;
    for pod in [large, shares, takes] {
        kubelet.end_pod(&pod).await.unwrap();
    }
}
