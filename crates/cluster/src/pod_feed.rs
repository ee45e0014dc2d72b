//! Tells the daemon of the node's pods as the API server has them, for a kubelet without PodsAPI (before 1.37). In: a watch. Out: questions to the daemon, of at most [`QUESTION_MAX`]
//! bytes each, for pods that have changed; and for all pods from time to time and after a question that failed, with the names of all, so that others are forgotten.
//!
//! Of a pod that is sent which the daemon reads, with all of its annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value as Json, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::api::Cluster;
use crate::daemon::{Daemon, Method};
use crate::node_pods::{ByPod, watch_pods};
use crate::said::Said;

/// All pods are told this often: a daemon that was started anew knows none.
const ALL_EVERY: Duration = Duration::from_secs(30);
/// After a question that failed.
const RETRY: Duration = Duration::from_secs(1);
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of the pods in one question; the daemon takes twice as much, and one pod is smaller.
const QUESTION_MAX: usize = 1 << 20;
/// By kubelet, on the object that stands for a static pod: that pod's uid.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Runs until the process ends.
pub(crate) async fn feed_pods(cluster: &Cluster, daemon: &impl Daemon) {
    let (known, pods) = watch::channel(None);
    tokio::join!(watch_pods(cluster, &known, entry), tell(pods, daemon));
}

async fn tell(mut pods: watch::Receiver<ByPod<Json>>, daemon: &impl Daemon) {
    let (mut told, mut said) = (BTreeMap::new(), Said::default());
    let (mut all_at, mut is_all_due) = (Instant::now() + ALL_EVERY, true);
    loop {
        match timeout_at(all_at, pods.changed()).await {
            Ok(Ok(())) => {}
            // The other end lives as long as this.
            Ok(Err(_)) => return,
            Err(_) => is_all_due = true,
        }
        let (news, names) = {
            let now = pods.borrow_and_update();
            let Some(now) = now.as_ref() else {
                all_at = Instant::now() + ALL_EVERY;
                continue;
            };
            told.retain(|name, _| now.contains_key(name));
            let news = now.iter().filter(|(name, pod)| is_all_due || told.get(*name) != Some(*pod));
            let news: BTreeMap<(String, String), Json> =
                news.map(|(name, pod)| (name.clone(), pod.clone())).collect();
            let names = is_all_due.then(|| now.keys().cloned().collect::<Vec<_>>());
            (news, names)
        };
        match ask(daemon, &questions(&news, names.as_deref())).await {
            Ok(()) => {
                said.is_over("daemon");
                told.extend(news);
                if is_all_due {
                    (all_at, is_all_due) = (Instant::now() + ALL_EVERY, false);
                }
            }
            Err(problem) => {
                if said.is_news("daemon", &problem) {
                    tracing::warn!("the daemon is not told of pods: {problem}");
                }
                sleep(RETRY).await;
                (all_at, is_all_due) = (Instant::now(), true);
            }
        }
    }
}

/// One after the other, until one fails.
async fn ask(daemon: &impl Daemon, questions: &[String]) -> Result<(), String> {
    for body in questions {
        let asked = daemon.ask(Method::Post, "/api/v1/pods", body.clone());
        let answer = timeout(PATIENCE, asked).await;
        let answer = answer.map_err(|_| format!("no answer within {PATIENCE:?}"))??;
        if !answer.is_good() {
            return Err(answer.text());
        }
    }
    Ok(())
}

/// Pods in questions that are small enough; the last one has the names of all pods, if these are to be told.
fn questions(
    pods: &BTreeMap<(String, String), Json>,
    names: Option<&[(String, String)]>,
) -> Vec<String> {
    let mut parts: Vec<(Vec<&Json>, usize)> = vec![(Vec::new(), 0)];
    for pod in pods.values() {
        let size = pod.to_string().len();
        match parts.last_mut() {
            Some((part, sum)) if part.is_empty() || *sum + size <= QUESTION_MAX => {
                part.push(pod);
                *sum += size;
            }
            _ => parts.push((vec![pod], size)),
        }
    }
    let last = parts.len() - 1;
    let body = |(at, (part, _)): (usize, (Vec<&Json>, usize))| match names {
        Some(names) if at == last => {
            let names = names.iter().map(|(namespace, name)| format!("{namespace}/{name}"));
            Some(json!({ "pods": part, "names": names.collect::<Vec<_>>() }).to_string())
        }
        _ => (!part.is_empty()).then(|| json!({ "pods": part }).to_string()),
    };
    parts.into_iter().enumerate().filter_map(body).collect()
}

/// What the daemon reads of a pod, with the uid that its containers have; `None`: it has none.
fn entry(pod: &Pod) -> Option<Json> {
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
    told["metadata"]["uid"].is_string().then_some(told)
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
        assert_eq!(
            entry(&pod).unwrap(),
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

    impl Deaf {
        async fn has_heard(&self, count: usize) {
            while self.0.lock().unwrap().len() < count {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    type Pods = BTreeMap<(String, String), Json>;

    fn name(name: &str) -> (String, String) {
        ("n".to_owned(), name.to_owned())
    }

    #[tokio::test]
    async fn a_daemon_that_was_away_is_told_of_all_pods() {
        let (known, pods) = watch::channel(None);
        let daemon = Deaf::default();
        let pod = |cpu: u32| json!({ "cpu": cpu });
        let change = |edit: &dyn Fn(&mut Pods)| {
            known.send_modify(|pods: &mut ByPod<Json>| edit(pods.get_or_insert_default()));
        };
        let play = async {
            change(&|pods| drop(pods.insert(name("a"), pod(1))));
            daemon.has_heard(2).await;
            change(&|pods| drop(pods.insert(name("b"), pod(2))));
            daemon.has_heard(3).await;
            change(&|pods| {
                pods.remove(&name("a"));
                pods.insert(name("b"), pod(3));
            });
            daemon.has_heard(4).await;
        };
        tokio::select! {
            () = tell(pods, &daemon) => {}
            () = play => {}
        }
        let heard = daemon.0.into_inner().unwrap();
        let bodies: Vec<&str> = heard.iter().map(|(_, body)| body.as_str()).collect();
        assert_eq!(
            bodies,
            [
                r#"{"names":["n/a"],"pods":[{"cpu":1}]}"#,
                r#"{"names":["n/a"],"pods":[{"cpu":1}]}"#,
                r#"{"pods":[{"cpu":2}]}"#,
                r#"{"pods":[{"cpu":3}]}"#,
            ]
        );
    }

    #[test]
    fn pods_with_large_annotations_are_told_in_several_questions() {
        let large = json!({ "a": "x".repeat(QUESTION_MAX / 2) });
        let pods: BTreeMap<_, _> = ["a", "b", "c"].map(|it| (name(it), large.clone())).into();
        let names = [name("a"), name("b"), name("c")];
        let bodies = questions(&pods, Some(&names));
        let told = |body: &String| {
            let body: Json = serde_json::from_str(body).unwrap();
            (body["pods"].as_array().unwrap().len(), body["names"].as_array().map(Vec::len))
        };
        assert_eq!(
            bodies.iter().map(told).collect::<Vec<_>>(),
            [(1, None), (1, None), (1, Some(3))]
        );
        assert!(bodies.iter().all(|it| it.len() < 2 * QUESTION_MAX));
        assert_eq!(questions(&BTreeMap::new(), Some(&[])), [r#"{"names":[],"pods":[]}"#]);
        assert_eq!(questions(&BTreeMap::new(), None), Vec::<String>::new());
    }
}
