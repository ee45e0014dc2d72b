//! Tells the daemon of the node's pods as the API server has them, for a kubelet without PodsAPI (before 1.37). In: a watch. Out: one question to the daemon for each pod that
//! changes, and all pods from time to time and after a question that failed.
//!
//! Only what the daemon reads of a pod is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use serde_json::{Map, Value as Json, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::api::Cluster;
use crate::daemon::{Daemon, Method};
use crate::said::Said;
use crate::watching::follow;

/// All pods are told this often: a daemon that was started anew knows none.
const ALL_EVERY: Duration = Duration::from_secs(30);
/// After a question that failed.
const RETRY: Duration = Duration::from_secs(1);
/// By kubelet, on the object that stands for a static pod: that pod's uid.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What the watch tells.
enum News {
    All(BTreeMap<String, Json>),
    Changed(String, Json),
    Gone(String),
}

/// Runs until the process ends.
pub(crate) async fn feed_pods(cluster: &Cluster, daemon: &impl Daemon) {
    // As many as a node has pods, several times.
    let (sender, news) = mpsc::unbounded_channel();
    let mut listed = BTreeMap::new();
    let watching = follow("the node's pods", cluster.watch_pods(), |event| {
        let told = match event {
            Event::Init => {
                listed.clear();
                return;
            }
            Event::InitApply(pod) => {
                listed.extend(entry(&pod));
                return;
            }
            Event::InitDone => Some(News::All(std::mem::take(&mut listed))),
            Event::Apply(pod) => entry(&pod).map(|(uid, pod)| News::Changed(uid, pod)),
            Event::Delete(pod) => entry(&pod).map(|(uid, _)| News::Gone(uid)),
        };
        if let Some(told) = told {
            // The other end lives as long as this.
            let _heard = sender.send(told);
        }
    });
    tokio::join!(watching, tell(news, daemon));
}

async fn tell(mut news: mpsc::UnboundedReceiver<News>, daemon: &impl Daemon) {
    let (mut known, mut said): (Option<BTreeMap<String, Json>>, _) = (None, Said::default());
    let mut owes_all = false;
    loop {
        let mut changed = None;
        match timeout(if owes_all { RETRY } else { ALL_EVERY }, news.recv()).await {
            Ok(Some(News::All(pods))) => {
                known = Some(pods);
                owes_all = true;
            }
            Ok(Some(News::Changed(uid, pod))) => {
                let before = known.get_or_insert_default().insert(uid, pod.clone());
                changed = Some(pod).filter(|it| before.as_ref() != Some(it));
            }
            Ok(Some(News::Gone(uid))) => drop(known.get_or_insert_default().remove(&uid)),
            Ok(None) => return,
            Err(_) => owes_all = true,
        }
        let (path, pods) = match (&known, changed) {
            (Some(known), _) if owes_all => {
                ("/api/v1/pods?all=true", known.values().cloned().collect())
            }
            (_, Some(pod)) => ("/api/v1/pods", vec![pod]),
            _ => continue,
        };
        let body = json!({ "pods": pods }).to_string();
        let problem = match daemon.ask(Method::Post, path, body).await {
            Ok(answer) if answer.is_good() => {
                said.is_over("daemon");
                owes_all = false;
                continue;
            }
            Ok(answer) => answer.text(),
            Err(error) => error,
        };
        if said.is_news("daemon", &problem) {
            tracing::warn!("the daemon is not told of pods: {problem}");
        }
        owes_all = true;
        sleep(RETRY).await;
    }
}

/// Its uid as containers have it, and what the daemon reads of it.
fn entry(pod: &Pod) -> Option<(String, Json)> {
    let object = serde_json::to_value(pod).ok()?;
    let mut told = json!({
        "metadata": pick(&object["metadata"], &["name", "namespace", "uid", "annotations", "ownerReferences"]),
        "spec": pick(&object["spec"], &["priorityClassName", "priority", "resources"]),
        "status": pick(&object["status"], &["conditions"]),
    });
    for (part, list) in [
        ("spec", "containers"),
        ("spec", "initContainers"),
        ("status", "containerStatuses"),
        ("status", "initContainerStatuses"),
    ] {
        let items = object[part][list].as_array().into_iter().flatten();
        told[part][list] = items.map(|it| pick(it, &["name", "resources"])).collect();
    }
    let static_uid = object["metadata"]["annotations"].get(MIRROR).and_then(Json::as_str);
    if let Some(uid) = static_uid {
        told["metadata"]["uid"] = json!(uid);
    }
    let uid = told["metadata"]["uid"].as_str()?.to_owned();
    Some((uid, told))
}

fn pick(object: &Json, keys: &[&str]) -> Json {
    let found = keys.iter().filter_map(|key| {
        let value = object.get(*key).filter(|it| !it.is_null())?;
        Some(((*key).to_owned(), value.clone()))
    });
    Json::Object(found.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::daemon::Answer;

    #[test]
    fn only_what_is_read_of_a_pod_is_told() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "n", "namespace": "s", "uid": "u", "labels": { "a": "b" }, "annotations": { MIRROR: "static" } },
            "spec": { "nodeName": "x", "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "phase": "Running", "containerStatuses": [{ "name": "c", "image": "i", "imageID": "d", "ready": true, "restartCount": 0 }] },
        }))
        .unwrap();
        let (uid, told) = entry(&pod).unwrap();
        assert_eq!(uid, "static");
        assert_eq!(
            told,
            json!({
                "metadata": { "name": "n", "namespace": "s", "uid": "static", "annotations": { MIRROR: "static" } },
                "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }], "initContainers": [] },
                "status": { "containerStatuses": [{ "name": "c" }], "initContainerStatuses": [] },
            })
        );
    }

    /// Remembers paths and bodies; refuses the first question.
    #[derive(Default)]
    struct Deaf(Mutex<Vec<(String, String)>>);

    impl Daemon for Deaf {
        async fn ask(&self, _: Method, path: &str, body: String) -> Result<Answer, String> {
            let mut heard = self.0.lock().unwrap();
            heard.push((path.to_owned(), body));
            let status = if heard.len() == 1 { 503 } else { 204 };
            Ok(Answer { status, body: Vec::new() })
        }
    }

    #[tokio::test]
    async fn a_daemon_that_was_away_is_told_of_all_pods() {
        let (sender, news) = mpsc::unbounded_channel();
        let daemon = Deaf::default();
        let pod = |cpu: u32| json!({ "cpu": cpu });
        for it in [
            News::All(BTreeMap::from([("a".to_owned(), pod(1))])),
            News::Changed("b".to_owned(), pod(2)),
            News::Changed("b".to_owned(), pod(2)),
            News::Changed("b".to_owned(), pod(3)),
            News::Gone("a".to_owned()),
        ] {
            sender.send(it).unwrap_or_else(|_| panic!("it is there"));
        }
        drop(sender);
        tell(news, &daemon).await;
        let heard = daemon.0.into_inner().unwrap();
        let heard: Vec<_> = heard.iter().map(|(path, body)| format!("{path} {body}")).collect();
        assert_eq!(
            heard,
            [
                r#"/api/v1/pods?all=true {"pods":[{"cpu":1}]}"#,
                r#"/api/v1/pods?all=true {"pods":[{"cpu":1},{"cpu":2}]}"#,
                r#"/api/v1/pods {"pods":[{"cpu":3}]}"#,
            ]
        );
    }
}
