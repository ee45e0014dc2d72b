//! Pods that the agent tells of, for a kubelet without PodsAPI. In: pods as the API server has them. Out: one pod, and those that are news. A uid alone names no pod here: that of
//! a static pod is an annotation, which anyone may write.
//!
//! While kubelet itself lists its pods, what the agent tells is kept and not used: of two sources that are not of the same moment one would take back what the other has told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bayplan_workload::PodFacts;
use tokio::sync::Notify;

/// More pods than a node has.
const PODS_MAX: usize = 4096;

/// Pods by `namespace/name`.
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

    /// `names`: there are no other pods than these.
    pub(crate) fn tell(&self, pods: Vec<PodFacts>, names: Option<&[String]>) {
        let mut state = self.state();
        let State { pods: known, news, .. } = &mut *state;
        for pod in pods {
            let name = format!("{}/{}", pod.namespace, pod.name);
            let is_known = known.get(&name) == Some(&pod);
            let has_room = known.len() < PODS_MAX || known.contains_key(&name);
            if !is_known && has_room {
                news.insert(name.clone(), pod.clone());
                known.insert(name, pod);
            }
        }
        if let Some(names) = names {
            let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            known.retain(|name, _| names.contains(name.as_str()));
            news.retain(|name, _| names.contains(name.as_str()));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Whether kubelet does not tell of pods itself.
    pub(super) fn set_needed(&self, is_needed: bool) {
        self.state().is_needed = is_needed;
        self.changed.notify_one();
    }

    pub(super) fn get(&self, uid: &str, [namespace, name]: [&str; 2]) -> Option<PodFacts> {
        let state = self.state();
        let found = state.pods.get(&format!("{namespace}/{name}"));
        found.filter(|pod| state.is_needed && pod.uid == uid).cloned()
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
    use bayplan_workload::PodAbout;

    use super::*;

    fn pod(uid: &str, name: &str, class: &str) -> PodFacts {
        let about = PodAbout { priority_class: Some(class.to_owned()), ..PodAbout::default() };
        let (uid, namespace, name) = (uid.to_owned(), "n".to_owned(), name.to_owned());
        PodFacts { uid, namespace, name, about, ..PodFacts::default() }
    }

    #[test]
    fn what_is_told_is_news_once_and_used_only_without_kubelet() {
        let told = ToldPods::default();
        let names = |names: &[&str]| names.iter().map(|it| format!("n/{it}")).collect::<Vec<_>>();
        told.tell(vec![pod("1", "a", "x"), pod("2", "b", "y")], Some(&names(&["a", "b"])));
        assert_eq!(told.take(), [pod("1", "a", "x"), pod("2", "b", "y")]);
        told.tell(vec![pod("1", "a", "x"), pod("2", "b", "z")], None);
        assert_eq!(told.take(), [pod("2", "b", "z")]);
        assert_eq!(told.get("1", ["n", "a"]), Some(pod("1", "a", "x")));
        told.tell(vec![pod("2", "b", "z")], Some(&names(&["b"])));
        assert_eq!((told.get("1", ["n", "a"]), told.take()), (None, Vec::new()));
        told.set_needed(false);
        told.tell(vec![pod("3", "c", "x"), pod("4", "d", "x")], None);
        assert_eq!((told.get("3", ["n", "c"]), told.take()), (None, Vec::new()));
        told.tell(Vec::new(), Some(&names(&["b", "c"])));
        told.set_needed(true);
        let c = pod("3", "c", "x");
        assert_eq!((told.get("3", ["n", "c"]), told.take()), (Some(c.clone()), vec![c]));
    }

    #[test]
    fn a_pod_with_the_uid_of_another_is_another_pod() {
        let told = ToldPods::default();
        told.tell(vec![pod("1", "a", "x"), pod("1", "thief", "y")], None);
        assert_eq!(told.get("1", ["n", "a"]), Some(pod("1", "a", "x")));
        told.tell(Vec::new(), Some(&["n/a".to_owned()]));
        assert_eq!(told.get("1", ["n", "a"]), Some(pod("1", "a", "x")));
    }
}
