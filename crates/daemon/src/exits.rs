//! Hears from the runtime which containers have ended by themselves, so that their CPUs are free at once and not only after the next sync.
//! In: the runtime's events. Out: events for the state.
//!
//! Events can be lost, when the runtime restarts or this reader is slow, and old runtimes have none. So this comes on top of the sync and
//! replaces nothing of it.

use std::time::Duration;

use bayplan_node::event::Event;
use bayplan_workload::runtime::{EndedContainer, Exit, RuntimeError};
use futures::StreamExt as _;
use tokio::time::sleep;

use crate::sync::Syncer;

/// After a failure the runtime is asked again this soon, and then half as often each time.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(64);

/// gRPC `UNIMPLEMENTED`.
const UNIMPLEMENTED: u32 = 12;

/// Runs until the daemon stops.
pub(crate) async fn hear_exits(syncer: Syncer) {
    let mut retry = RETRY_MIN;
    loop {
        let mut ended = syncer.runtime.ended();
        while let Some(heard) = ended.next().await {
            match heard {
                Ok(EndedContainer { id, exit }) => {
                    retry = RETRY_MIN;
                    let event = match exit.filter(|it| !may_be_stop(it)) {
                        Some(exit) => Event::Exited(id, exit.to_string()),
                        None => Event::Ended(id),
                    };
                    if syncer.inbox.ask(event).await.is_none() {
                        return;
                    }
                }
                Err(RuntimeError::Failed { code: UNIMPLEMENTED, .. }) => {
                    // Said once, though it is tried again: the runtime may be replaced by a newer one.
                    if retry < RETRY_MAX {
                        tracing::info!(
                            "the runtime has no container events; it is asked now and then"
                        );
                    }
                    retry = RETRY_MAX;
                }
                Err(error) => tracing::debug!("no container events: {error}"),
            }
        }
        sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Exit codes of processes that SIGKILL and SIGTERM end, with which `StopContainer` ends them, too.
const KILLED: [i32; 2] = [137, 143];

/// Whether kubelet may have stopped it: its call and the runtime's event come in any order.
fn may_be_stop(exit: &Exit) -> bool {
    KILLED.contains(&exit.code) && exit.reason != "OOMKilled"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_that_kubelet_has_not_caused_is_told() {
        for (code, reason, expected) in [
            (137, "OOMKilled", Some("it exited with code 137: OOMKilled")),
            (139, "Error", Some("it exited with code 139: Error")),
            (0, "Completed", Some("it exited with code 0: Completed")),
            (1, "", Some("it exited with code 1")),
            (137, "Error", None),
            (143, "Error", None),
        ] {
            let exit = Exit { code, reason: reason.to_owned() };
            let told = (!may_be_stop(&exit)).then(|| exit.to_string());
            assert_eq!(told.as_deref(), expected);
        }
    }
}
