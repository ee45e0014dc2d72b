//! The back channel: how the daemon asks the container runtime what runs, and tells it where containers run, whatever the front end is.
//!
//! The CRI client is the one that nodes have; tests have a model that answers from maps (`runtime/model.rs`).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bayplan_cri::upstream::Upstream;
use bayplan_types::Pinning;
use bayplan_workload::runtime::{
    ContainerDetails, EndedContainer, ListedContainer, PodDetails, RuntimeError,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};

#[cfg(test)]
pub(crate) mod model;

/// An answer of the runtime to come.
pub(crate) type Asked<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

/// Clones share the connection.
pub(crate) type SharedRuntime = Arc<dyn Runtime>;

/// A container runtime. Each question is answered within the limit.
pub(crate) trait Runtime: fmt::Debug + Send + Sync {
    /// Every container, also those that have ended.
    fn list(&self) -> Asked<'_, Vec<ListedContainer>>;
    /// How a container was set up.
    fn describe<'a>(&'a self, id: &'a str) -> Asked<'a, ContainerDetails>;
    /// How a sandbox was set up.
    fn describe_pod<'a>(&'a self, id: &'a str) -> Asked<'a, PodDetails>;
    /// Moves a container to these CPUs and memory nodes and changes nothing else; an empty set stays as it is.
    fn update<'a>(&'a self, id: &'a str, pinning: &'a Pinning) -> Asked<'a, ()>;
    /// Containers that end from now on, until the runtime goes away or the stream fails; some may be told twice, and some not at all.
    fn ended(&self) -> BoxStream<'static, Result<EndedContainer, RuntimeError>>;
    /// Where it listens, for messages.
    fn socket(&self) -> PathBuf;
    /// From now on an answer may take this long.
    fn set_limit(&self, limit: Duration);
}

impl Runtime for Upstream {
    fn list(&self) -> Asked<'_, Vec<ListedContainer>> {
        self.list_containers().boxed()
    }

    fn describe<'a>(&'a self, id: &'a str) -> Asked<'a, ContainerDetails> {
        self.container_details(id).boxed()
    }

    fn describe_pod<'a>(&'a self, id: &'a str) -> Asked<'a, PodDetails> {
        self.pod_details(id).boxed()
    }

    fn update<'a>(&'a self, id: &'a str, pinning: &'a Pinning) -> Asked<'a, ()> {
        self.update_container(id, pinning).boxed()
    }

    fn ended(&self) -> BoxStream<'static, Result<EndedContainer, RuntimeError>> {
        self.ended_containers().boxed()
    }

    fn socket(&self) -> PathBuf {
        Upstream::socket(self).to_owned()
    }

    fn set_limit(&self, limit: Duration) {
        Upstream::set_limit(self, limit);
    }
}
