//! The daemon's tasks, and what it means when a bug ends one. In: work. Out: tasks to wait for at a stop.
//!
//! Without some of them no container would be placed: their end is the end of the daemon, and systemd starts it anew. The node can do without the
//! others: such an end is logged, counted, and stands in `/readyz`.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::health::{Health, Part};
use crate::metrics::Metrics;

/// Spawns a task that breaks the daemon when it ends, by panic too.
pub(crate) fn vital(
    broken: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    vital_on(&Handle::current(), broken, work)
}

/// As [`vital`], on this runtime.
pub(crate) fn vital_on(
    home: &Handle,
    broken: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let guard = broken.clone().drop_guard();
    home.spawn(async move {
        let _guard = guard;
        work.await;
    })
}

/// Where the end of a task is told that the node can do without.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Losses {
    /// Spawns it.
    pub(crate) fn spare(
        &self,
        part: Part,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.spare_then(part, work, std::future::ready(()))
    }

    /// Spawns it, and does the last where a bug has ended the work.
    pub(crate) fn spare_then(
        &self,
        part: Part,
        work: impl Future<Output = ()> + Send + 'static,
        then: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let losses = self.clone();
        tokio::spawn(async move {
            // What it had is dropped with it, and no other task holds a half of it.
            if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
                losses.tell(part, panic.as_ref());
                then.await;
            }
        })
    }

    fn tell(&self, part: Part, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let why = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let part_name = part.name();
        tracing::error!(why, "a bug has ended {part_name}; it works again after a restart");
        self.health.lose(part);
        self.metrics.failed("task");
    }
}

/// Work that blocks, on a thread of its own; its panic is the caller's. `None`: the process ends.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// The work, or less of it if a stop comes.
pub(crate) async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn losses() -> Losses {
        let health = Arc::<Health>::default();
        health.set_synced(false);
        Losses { health, metrics: Arc::default() }
    }

    #[tokio::test]
    async fn the_panic_of_a_vital_task_breaks_the_daemon() {
        let broken = CancellationToken::new();
        let task = vital(&broken, async { panic!("a bug") });
        broken.cancelled().await;
        assert!(task.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn the_panic_of_another_task_is_told_and_what_is_left_of_it_is_tidied_up() {
        let losses = losses();
        let tidied = Arc::new(AtomicBool::new(false));
        let tidy = Arc::clone(&tidied);
        let then = async move { tidy.store(true, Ordering::Relaxed) };
        losses.spare_then(Part::Rebalancer, async { panic!("{} bug", 1) }, then).await.unwrap();
        assert!(tidied.load(Ordering::Relaxed));
        let lacking =
            ["a bug has ended the rebalancer; it works again after a restart (see the log)"];
        assert_eq!(losses.health.lacking(), lacking);
        assert!(losses.metrics.render(false).contains("bayplan_failures_total{kind=\"task\"} 1\n"));
    }

    #[tokio::test]
    async fn a_task_that_ends_is_no_loss() {
        let losses = losses();
        losses.spare(Part::Observer, async {}).await.unwrap();
        assert_eq!(losses.health.lacking(), Vec::<String>::new());
    }
}
