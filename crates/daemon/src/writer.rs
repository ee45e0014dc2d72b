//! Carries plans out at the runtime. In: batches, each a plan and perhaps an answer that must wait for it. Out: updates, and events
//! about those that failed.

use std::sync::Arc;
use std::time::Duration;

use bayplan_cri::upstream::{RuntimeError, Upstream};
use bayplan_enforcement::{Plan, Step as Pass, Write};
use futures::StreamExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::event::{Answer, Event, FailedWrite};
use crate::inbox::Inbox;
use crate::metrics::Metrics;

/// Updates that one pass of a plan has in flight at the runtime.
const WRITES_IN_FLIGHT_MAX: usize = 16;
/// Failures that are reported together.
const FAILURES_MAX: usize = 64;

/// A plan on its way to the runtime, and who waits for it.
pub(crate) struct Batch {
    pub(crate) plan: Plan,
    pub(crate) answer: Option<(oneshot::Sender<Answer>, Answer)>,
}

/// Carries plans out, one after the other, until the loop is gone.
pub(crate) async fn run_writer(
    mut batches: mpsc::UnboundedReceiver<Batch>,
    upstream: Upstream,
    failures: mpsc::UnboundedSender<FailedWrite>,
    limit: Duration,
    metrics: Arc<Metrics>,
) {
    while let Some(Batch { plan, answer }) = batches.recv().await {
        let mut has_failed = false;
        for pass in [Pass::Shrink, Pass::Grow] {
            let writes: Vec<Write> = plan.pass(pass).cloned().collect();
            if has_failed {
                // Somebody still holds what others would take.
                let why = "another container did not let go";
                writes.into_iter().for_each(|write| report(&failures, write, false, why));
                break;
            }
            let updates = writes.into_iter().map(|write| apply(upstream.clone(), write, limit));
            let mut updates = futures::stream::iter(updates).buffer_unordered(WRITES_IN_FLIGHT_MAX);
            while let Some((write, result)) = updates.next().await {
                metrics.update_ended(result.as_ref().err());
                if let Err(error) = result {
                    let is_gone = matches!(error, RuntimeError::Gone { .. });
                    has_failed |= !is_gone;
                    report(&failures, write, is_gone, &error.to_string());
                }
            }
        }
        if let Some((answer, content)) = answer {
            let _gave_up = answer.send(content);
        }
    }
}

/// Fails when the loop is gone, and then nobody wants to know.
fn report(failures: &mpsc::UnboundedSender<FailedWrite>, write: Write, is_gone: bool, why: &str) {
    tracing::warn!(container = write.container, why, "not updated");
    let (container, why) = (write.container, why.to_owned());
    let _gone = failures.send(FailedWrite { container, is_gone, why });
}

/// `limit` is less than a decision may take, so that one container that hangs does not hold up all decisions.
async fn apply(
    upstream: Upstream,
    write: Write,
    limit: Duration,
) -> (Write, Result<(), RuntimeError>) {
    tracing::debug!(
        container = write.container,
        step = %write.step,
        cpus = %write.new.cpus,
        mems = %write.new.mems,
        "update"
    );
    let updated = timeout(limit, upstream.update_container(&write.container, &write.new)).await;
    let result = updated.unwrap_or_else(|_| {
        let socket = upstream.socket().to_owned();
        Err(RuntimeError::TimedOut { call: "UpdateContainerResources", socket, limit })
    });
    (write, result)
}

/// Passes failures of the writer on as events, so that the writer never waits for the loop.
pub(crate) async fn report_failures(
    mut failures: mpsc::UnboundedReceiver<FailedWrite>,
    inbox: Inbox,
) {
    let mut failed = Vec::new();
    while failures.recv_many(&mut failed, FAILURES_MAX).await > 0 {
        let event = Event::WritesFailed(std::mem::take(&mut failed));
        if inbox.ask(event).await.is_none() {
            return;
        }
    }
}
