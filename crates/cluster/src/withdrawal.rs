//! The end of publishing: what agents have written of nodes is taken back. There are three ways, none of which needs the daemon:
//!
//! | When | By |
//! |---|---|
//! | the installation in the cluster is removed | [`withdraw_all`], a program with rights of its own that runs once, after the agents have lost theirs |
//! | the daemon is removed from a node | the node's agent, by [`crate::removal::is_removed`] |
//! | an agent ends | that agent, of the file in `features.d` alone ([`leave`]): no other program of the cluster reaches the node's files |

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep};

use crate::api::Cluster;
use crate::feature_file::remove_features;
use crate::node_publisher::withdraw_node;

/// Nodes from which something is taken at a time.
const AT_ONCE: usize = 16;
/// An installation that is removed loses its rights within moments; an agent that is only replaced ends as much later.
const RIGHTS_GO_WITHIN: Duration = Duration::from_secs(5);
const RIGHTS_LOOK: Duration = Duration::from_millis(500);

/// Takes back what agents have published of this node: of the Node object, its NodeResourceTopology, NodeFeatures and BayplanNode.
///
/// # Errors
/// Nothing says where the API server is, or it refuses.
pub async fn withdraw(node: &str) -> anyhow::Result<()> {
    withdraw_from(&Cluster::connect(node).await?).await
}

/// The same of every node, and of nodes that are gone. A node that fails keeps no other.
///
/// # Errors
/// Nothing says where the API server is, or it refuses.
pub async fn withdraw_all() -> anyhow::Result<()> {
    let cluster = Cluster::connect("").await?;
    let names = cluster.published_nodes().await?;
    let count = names.len();
    let done = names.into_iter().map(async |name| {
        let done = withdraw_from(&cluster.of(&name)).await;
        done.inspect_err(|error| tracing::error!(node = name, "{error:#}")).is_ok()
    });
    let failed = stream::iter(done).buffer_unordered(AT_ONCE).filter(|it| {
        let has_failed = !*it;
        async move { has_failed }
    });
    match failed.count().await {
        0 => tracing::info!(nodes = count, "nothing that agents have published is left"),
        failed => bail!("{failed} of {count} nodes still have what agents have published"),
    }
    Ok(())
}

async fn withdraw_from(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.withdraw_node_topology().await?;
    cluster.withdraw_node_features().await?;
    cluster.delete_own().await?;
    withdraw_node(cluster).await
}

/// Takes the file in `features.d` away where this agent may not write its Node any more, because then its installation is being removed. The agent that comes after one
/// that is only replaced finds the file as it is. Out: whether it was taken away.
///
/// # Errors
/// Nothing says where the API server is, or the file stays.
pub async fn leave(node: &str, directory: &Path) -> anyhow::Result<bool> {
    let cluster = Cluster::connect(node).await?;
    let begun = Instant::now();
    loop {
        // An API server that does not answer says nothing about rights; the file expires.
        if !cluster.may_write_node().await.unwrap_or(true) {
            remove_features(directory)?;
            return Ok(true);
        }
        if begun.elapsed() > RIGHTS_GO_WITHIN {
            return Ok(false);
        }
        sleep(RIGHTS_LOOK).await;
    }
}
