//! The tokio runtime of a daemon that is a part of the test.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::node::POLL;

/// Threads of a daemon that is here, besides that which forwards.
pub(crate) const WORKERS: usize = 2;

/// A tokio runtime that is not waited for when it is dropped, which is forbidden in another one.
pub(crate) struct Engine(Option<Runtime>);

impl Engine {
    pub(crate) fn new(thread_name: String) -> Engine {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKERS).thread_name(thread_name).enable_all();
        Engine(Some(builder.build().unwrap()))
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.0.as_ref().unwrap().handle()
    }

    /// Ends it. Whether within this time no task gets another turn.
    pub(crate) fn end(self, limit: Duration) -> bool {
        let (handle, deadline) = (self.handle().clone(), Instant::now() + limit);
        drop(self);
        while handle.metrics().num_alive_tasks() > 0 {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}
