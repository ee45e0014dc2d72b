//! A runtime that answers from maps, for tests: what it lists, what it says of each, what it was told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_types::Pinning;
use bayplan_workload::runtime::{
    ContainerDetails, ContainerState, EndedContainer, ListedContainer, ListedPod, PodDetails,
    RuntimeError,
};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};

use super::{Asked, Runtime};

/// What it does with each container, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelRuntime {
    /// In its list; what is not in `details` is gone when it is asked about.
    pub(crate) listed: BTreeMap<String, ContainerState>,
    /// What it says of each, or why it does not.
    pub(crate) details: BTreeMap<String, Result<ContainerDetails, RuntimeError>>,
    /// Its list cannot be had, for this reason.
    pub(crate) problem: Option<RuntimeError>,
    /// Updates in the order in which they came.
    pub(crate) told: Arc<Mutex<Vec<(String, Pinning)>>>,
}

impl ModelRuntime {
    /// A list of these containers, each in a pod of its own and with details of which nothing is known.
    pub(crate) fn with(containers: &[(&str, ContainerState)]) -> ModelRuntime {
        let listed = containers.iter().map(|(id, state)| ((*id).to_owned(), *state));
        let details =
            containers.iter().map(|(id, _)| ((*id).to_owned(), Ok(ContainerDetails::default())));
        ModelRuntime {
            listed: listed.collect(),
            details: details.collect(),
            ..ModelRuntime::default()
        }
    }

    /// One that does not answer.
    pub(crate) fn away() -> ModelRuntime {
        let message = "cannot connect".to_owned();
        let away = RuntimeError::Unavailable { call: "ListContainers", message };
        ModelRuntime { problem: Some(away), ..ModelRuntime::default() }
    }

    fn pod(id: &str) -> ListedPod {
        ListedPod {
            id: id.to_owned(),
            uid: format!("uid-{id}"),
            namespace: "default".to_owned(),
            name: id.to_owned(),
            attempt: 0,
            is_ready: true,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

impl Runtime for ModelRuntime {
    fn list(&self) -> Asked<'_, Vec<ListedContainer>> {
        let container = |(id, state): (&String, &ContainerState)| ListedContainer {
            id: id.clone(),
            pod_id: format!("pod-{id}"),
            name: "app".to_owned(),
            attempt: 0,
            image: String::new(),
            state: *state,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        let listed = self.listed.iter().map(container).collect();
        let answer = self.problem.clone().map_or(Ok(listed), Err);
        async move { answer }.boxed()
    }

    fn describe<'a>(&'a self, id: &'a str) -> Asked<'a, ContainerDetails> {
        let gone = || Err(RuntimeError::Gone { id: id.to_owned() });
        let answer = self.details.get(id).cloned().unwrap_or_else(gone);
        async move { answer }.boxed()
    }

    fn describe_pod<'a>(&'a self, id: &'a str) -> Asked<'a, PodDetails> {
        async move { Ok(PodDetails { pod: ModelRuntime::pod(id), cgroup_parent: None }) }.boxed()
    }

    fn update<'a>(&'a self, id: &'a str, pinning: &'a Pinning) -> Asked<'a, ()> {
        async move {
            match self.details.get(id) {
                None => Err(RuntimeError::Gone { id: id.to_owned() }),
                Some(Err(error)) => Err(error.clone()),
                Some(Ok(_)) => {
                    self.told.lock().unwrap().push((id.to_owned(), pinning.clone()));
                    Ok(())
                }
            }
        }
        .boxed()
    }

    fn ended(&self) -> BoxStream<'static, Result<EndedContainer, RuntimeError>> {
        futures::stream::empty().boxed()
    }

    fn socket(&self) -> PathBuf {
        "/model".into()
    }

    fn set_limit(&self, _: Duration) {}
}
