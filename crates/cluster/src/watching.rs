//! What the parts of the agent have in common: what is known of the cluster, how it is followed, and times.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event};
use sha2::{Digest as _, Sha256};

use crate::foreign::Found;
use crate::object::{ConfigObject, NodeObject};

/// How often the daemon is asked how it is.
pub(crate) const LOOK: Duration = Duration::from_secs(15);
/// How often the status is written although it has not changed; 20 % more or less by the node's name.
pub(crate) const REPAIR: Duration = Duration::from_secs(600);

/// What is known of the cluster; `None`: nothing yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct World {
    pub(crate) node: Option<NodeObject>,
    pub(crate) configs: Option<BTreeMap<String, ConfigObject>>,
    /// Objects of other systems.
    pub(crate) foreign: Found,
}

/// This node's part of a time.
pub(crate) fn spread(node: &str, all: Duration) -> Duration {
    let digest = Sha256::digest(node);
    let number = digest.iter().take(4).fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    all.mul_f64(f64::from(number) / f64::from(u32::MAX))
}

/// Hands over what comes, and says once when nothing does.
pub(crate) async fn follow<K>(
    what: &str,
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    mut take: impl FnMut(Event<K>),
) {
    let mut stream = std::pin::pin!(stream);
    let mut is_failing = false;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                if matches!(event, Event::InitDone | Event::Apply(_)) && is_failing {
                    tracing::info!("{what} can be watched again");
                    is_failing = false;
                }
                take(event);
            }
            Err(error) if !is_failing => {
                tracing::warn!("cannot watch {what}; trying again: {error}");
                is_failing = true;
            }
            Err(error) => tracing::debug!("cannot watch {what}: {error}"),
        }
    }
}
