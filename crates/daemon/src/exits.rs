//! Hears from the runtime which containers have ended by themselves, so that their CPUs are free at once and not only after the next sync.
//! In: the runtime's events. Out: events for the state.
//!
//! Events can be lost, when the runtime restarts or this reader is slow, and old runtimes have none. So this comes on top of the sync and
//! replaces nothing of it.

use std::time::Duration;

use bayplan_cri::upstream::RuntimeError;
use bayplan_node::event::Event;
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
                Ok(id) => {
                    retry = RETRY_MIN;
                    if syncer.inbox.ask(Event::Ended(id)).await.is_none() {
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
