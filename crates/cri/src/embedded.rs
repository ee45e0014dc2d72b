//! A CRI runtime without processes, for the demo and for tests. In: CRI calls on a socket. Out: what containerd would answer,
//! as far as that can be known without running anything.
//!
//! Honest means: states, ids, orders that are refused, codes and wording are containerd's (2.x), updates really change what
//! `ContainerStatus` tells, and events are sent when something happens. What needs a process (exec, attach, port forwarding,
//! checkpoints) is `UNIMPLEMENTED` and says so; process ids are 0 and usage is zero because nothing runs. One liberty: a container
//! may name an image that was never pulled.
//!
//! State lives in the [`EmbeddedRuntime`] and not in its server, so it outlives both the proxy and a restart of the server.

mod cgroups;
mod clock;
mod fault;
mod held;
mod image_service;
mod images;
mod render;
mod runtime_service;
mod snapshot;
mod state;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::service::Routes;

use crate::server;
use crate::v1::image_service_server::ImageServiceServer;
use crate::v1::runtime_service_server::RuntimeServiceServer;

pub use fault::Fault;
pub use snapshot::{ContainerSnapshot, NAME};

use cgroups::Cgroups;
use fault::{Faults, Faulty};
use images::Images;
use state::State;

/// Cheap to clone; clones share the state.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedRuntime {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    images: Mutex<Images>,
    faults: Faults,
    cgroups: Cgroups,
}

impl EmbeddedRuntime {
    /// A runtime without pods and with a few images.
    pub fn new() -> EmbeddedRuntime {
        EmbeddedRuntime::default()
    }

    /// The same with files of the cgroups that its containers would have, in `sys/fs/cgroup` below `root`.
    pub fn with_cgroups(root: PathBuf) -> EmbeddedRuntime {
        let inner = Inner { cgroups: Cgroups(Some(root)), ..Inner::default() };
        EmbeddedRuntime { inner: Arc::new(inner) }
    }

    /// Serves until `shutdown`, and then cuts all connections at once, as a runtime that is killed does.
    pub async fn serve(&self, listener: UnixListener, shutdown: impl Future<Output = ()>) {
        let mut routes = Routes::builder();
        routes
            .add_service(
                RuntimeServiceServer::new(self.clone())
                    .max_decoding_message_size(crate::frame::MESSAGE_LEN_MAX)
                    .max_encoding_message_size(crate::frame::MESSAGE_LEN_MAX),
            )
            .add_service(ImageServiceServer::new(self.clone()));
        let service = Faulty::new(routes.routes().prepare(), self.inner.faults.clone());
        server::serve::<_, Body>(listener, service, shutdown, std::future::ready(())).await;
    }

    /// One container. `None`: there is no such container.
    pub fn container(&self, id: &str) -> Option<ContainerSnapshot> {
        self.state().containers().find(|container| container.id == id).map(render::snapshot)
    }

    /// All containers in the order of their creation.
    pub fn containers(&self) -> Vec<ContainerSnapshot> {
        self.state().containers().map(render::snapshot).collect()
    }

    /// All pods and containers are gone without an event, as after a reboot. Ids are not used again.
    pub fn forget(&self) {
        self.state().forget();
    }

    /// From now on it is kept what the containers were after every change, for [`Self::recorded`].
    pub fn record(&self) {
        self.state().record();
    }

    /// Containers that had not ended, after every change since [`Self::record`], in the order of their creation.
    pub fn recorded(&self) -> Vec<Vec<ContainerSnapshot>> {
        self.state().recorded()
    }

    /// Makes every later call of a method (its bare name, for example `CreateContainer`) misbehave, until [`Self::clear_faults`].
    pub fn inject(&self, method: &str, fault: Fault) {
        self.inner.faults.inject(method, fault);
    }

    /// As [`Self::inject`], but the first `calls` calls of the method, counted from the runtime's beginning, go well.
    pub fn inject_after(&self, method: &str, calls: u64, fault: Fault) {
        self.inner.faults.inject_after(method, calls, fault);
    }

    /// Everything works again. Calls that hang already go on hanging.
    pub fn clear_faults(&self) {
        self.inner.faults.clear();
    }

    /// Comes back once a method was called this many times, counting calls that hang or fail.
    pub async fn called(&self, method: &str, times: u64) {
        self.inner.faults.called(method, times).await;
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> u64 {
        self.inner.faults.calls(method)
    }

    /// The state is changed in single steps, so one that a panic left behind is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn images(&self) -> MutexGuard<'_, Images> {
        self.inner.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
