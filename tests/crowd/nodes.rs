//! Node objects of the size that kubelet makes them, and the reports of all kubelets.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Client;
use serde_json::{Value as Json, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::world::call;

/// Kubelet reports a node on which nothing changes this often (`nodeStatusReportFrequency`).
const REPORT_EVERY: Duration = Duration::from_secs(300);
/// Images that kubelet reports at most (`nodeStatusMaxImages`).
const IMAGES: usize = 50;
const AT_ONCE: usize = 16;

/// The name of a node.
pub(crate) fn name(number: usize) -> String {
    format!("n{number}")
}

/// Makes so many.
pub(crate) async fn make(admin: &Client, count: usize) {
    let made = (0..count).map(async |number| {
        let name = name(number);
        let labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" });
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } });
        let (status, told) = call(admin, "POST", "/api/v1/nodes", &object).await;
        assert_eq!(status, 200, "{told}");
        report(admin, &name, true).await;
    });
    stream::iter(made).buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// Kubelets' reports, spread over their time, until it is dropped.
pub(crate) async fn beat(admin: Client, count: usize) {
    let mut ticks = interval(REPORT_EVERY / u32::try_from(count).unwrap());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in (0..count).cycle() {
        ticks.tick().await;
        report(&admin, &name(number), false).await;
    }
}

/// What kubelet writes; with its images only at first. While the API server is away it writes nothing.
async fn report(admin: &Client, name: &str, is_first: bool) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| json!({ "type": kind, "status": "False", "reason": format!("KubeletHas{kind}"), "message": "kubelet has what it needs", "lastHeartbeatTime": now, "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    let mut status = json!({ "conditions": conditions });
    if is_first {
        status["images"] = (0..IMAGES).map(image).collect();
        let amounts = json!({ "cpu": "112", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti", "hugepages-1Gi": "0", "hugepages-2Mi": "0" });
        status["capacity"] = amounts.clone();
        status["allocatable"] = amounts;
    }
    let path = format!("/api/v1/nodes/{name}/status?fieldManager=kubelet");
    let (code, told) = call(admin, "PATCH", &path, &json!({ "status": status })).await;
    assert!(code == 200 || !is_first, "{told}");
}

fn image(number: usize) -> Json {
    let digest = format!("{number:064x}");
    let repository = format!("registry.example.com/team/program-{number}");
    json!({ "names": [format!("{repository}@sha256:{digest}"), format!("{repository}:1.2.{number}")], "sizeBytes": 100_000_000 + number })
}
