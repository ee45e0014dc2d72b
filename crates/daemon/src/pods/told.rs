//! Pods that the agent tells of, for a kubelet without PodsAPI. In: pods as the API server has them. Out: one pod by its uid, and those that are news.
//!
//! While kubelet itself lists its pods, what the agent tells is kept and not used: of two sources that are not of the same moment one would take back what the other has told.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bayplan_workload::PodFacts;
use tokio::sync::Notify;

/// More pods than a node has.
const PODS_MAX: usize = 4096;

/// Pods by uid.
#[derive(Debug)]
pub(crate) struct ToldPods {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    pods: BTreeMap<String, PodFacts>,
    /// Those that are not handed on yet.
    news: BTreeMap<String, PodFacts>,
    /// Kubelet does not tell.
    is_needed: bool,
}

impl Default for ToldPods {
    fn default() -> ToldPods {
        let state = State { pods: BTreeMap::new(), news: BTreeMap::new(), is_needed: true };
        ToldPods { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl ToldPods {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `is_all`: there are no other pods.
    pub(crate) fn tell(&self, pods: Vec<PodFacts>, is_all: bool) {
        let mut state = self.state();
        if is_all {
            let uids: Vec<&String> = pods.iter().map(|it| &it.uid).collect();
            state.pods.retain(|uid, _| uids.contains(&uid));
        }
        for pod in pods.into_iter().take(PODS_MAX) {
            let is_known = state.pods.get(&pod.uid) == Some(&pod);
            let has_room = state.pods.len() < PODS_MAX || state.pods.contains_key(&pod.uid);
            if !is_known && has_room {
                state.news.insert(pod.uid.clone(), pod.clone());
                state.pods.insert(pod.uid.clone(), pod);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Whether kubelet does not tell of pods itself.
    pub(super) fn set_needed(&self, is_needed: bool) {
        self.state().is_needed = is_needed;
        self.changed.notify_one();
    }

    pub(super) fn get(&self, uid: &str) -> Option<PodFacts> {
        let state = self.state();
        state.pods.get(uid).filter(|_| state.is_needed).cloned()
    }

    /// Pods that are others than before; waits until there are some.
    pub(super) async fn news(&self) -> Vec<PodFacts> {
        loop {
            let news = self.take();
            if !news.is_empty() {
                return news;
            }
            self.changed.notified().await;
        }
    }

    fn take(&self) -> Vec<PodFacts> {
        let mut state = self.state();
        match state.is_needed {
            true => std::mem::take(&mut state.news).into_values().collect(),
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, name: &str) -> PodFacts {
        PodFacts { uid: uid.to_owned(), name: name.to_owned(), ..PodFacts::default() }
    }

    #[test]
    fn what_is_told_is_news_once_and_used_only_without_kubelet() {
        let told = ToldPods::default();
        told.tell(vec![pod("a", "x"), pod("b", "y")], true);
        assert_eq!(told.take(), [pod("a", "x"), pod("b", "y")]);
        told.tell(vec![pod("a", "x"), pod("b", "z")], false);
        assert_eq!(told.take(), [pod("b", "z")]);
        assert_eq!(told.get("a"), Some(pod("a", "x")));
        told.tell(vec![pod("b", "z")], true);
        assert_eq!((told.get("a"), told.take()), (None, Vec::new()));
        told.set_needed(false);
        told.tell(vec![pod("c", "x")], false);
        assert_eq!((told.get("c"), told.take()), (None, Vec::new()));
        told.set_needed(true);
        assert_eq!((told.get("c"), told.take()), (Some(pod("c", "x")), vec![pod("c", "x")]));
    }
}
