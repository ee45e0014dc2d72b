//! The node's pods as the API server has them. In: a watch. Out: what a reader takes from each, kept as it is now.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::api::Cluster;
use crate::watching::follow;

/// Something of each of the node's pods, by namespace and name; `None` until they have been listed once.
pub(crate) type ByPod<T> = Option<BTreeMap<(String, String), T>>;

/// Keeps what `read` takes from the node's pods as it is now, for ever; tells only where that changes.
pub(crate) async fn watch_pods<T: Clone + PartialEq>(
    cluster: &Cluster,
    told: &watch::Sender<ByPod<T>>,
    read: impl Fn(&Pod) -> Option<T>,
) {
    let mut listed = BTreeMap::new();
    let key = |pod: &Pod| (pod.namespace().unwrap_or_default(), pod.name_any());
    let edit = |pod: &Pod, now: Option<T>| {
        told.send_if_modified(|pods| {
            let pods = pods.get_or_insert_default();
            let before = match now.clone() {
                Some(now) => pods.insert(key(pod), now),
                None => pods.remove(&key(pod)),
            };
            before != now
        });
    };
    follow("the node's pods", cluster.watch_pods(), |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(pod) => listed.extend(read(&pod).map(|it| (key(&pod), it))),
        Event::InitDone => {
            let found = Some(std::mem::take(&mut listed));
            told.send_if_modified(|pods| {
                let is_news = *pods != found;
                *pods = found;
                is_news
            });
        }
        Event::Apply(pod) => edit(&pod, read(&pod)),
        Event::Delete(pod) => edit(&pod, None),
    })
    .await;
}
