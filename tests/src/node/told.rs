//! What the daemon of a node answers at its control socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, ensure};
use bayplan_daemon::{RebalanceView, query_control};
use bayplan_node::status::{ContainerStatus, Status as NodeStatus};
use bayplan_types::CpuSet;

use super::Node;

impl Node {
    /// What the daemon says.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self) -> anyhow::Result<NodeStatus> {
        Ok(self.tokio.block_on(query_control(&self.daemon.control, "/api/v1/status"))?)
    }

    /// What the daemon says of one container.
    ///
    /// # Errors
    /// It does not answer or does not know it.
    pub fn status_of(&self, id: &str) -> anyhow::Result<ContainerStatus> {
        let containers = self.status()?.containers;
        let found = containers.into_iter().find(|it| it.id.as_deref() == Some(id));
        found.with_context(|| format!("the status has no container {id}"))
    }

    /// The CPUs that the daemon gave to this container alone.
    ///
    /// # Errors
    /// There are none.
    pub fn exclusive_of(&self, id: &str) -> anyhow::Result<CpuSet> {
        let cpus: CpuSet = self.status_of(id)?.exclusive.parse()?;
        ensure!(!cpus.is_empty(), "no exclusive CPU was promised");
        Ok(cpus)
    }

    /// The shared CPUs of this container's pool, as the daemon says.
    ///
    /// # Errors
    /// It does not know the container or its pool.
    pub fn shared_around(&self, id: &str) -> anyhow::Result<CpuSet> {
        let pool = self.status_of(id)?.pool;
        let pools = self.status()?.pools;
        let pool = pools.into_iter().find(|it| it.name == pool).context("and its pool")?;
        Ok(pool.shared_cpus.parse()?)
    }

    /// What the rebalancer says.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn rebalance(&self) -> anyhow::Result<RebalanceView> {
        Ok(self.tokio.block_on(query_control(&self.daemon.control, "/api/v1/rebalance"))?)
    }

    /// What the probes have counted, as of `bayplan audit -o json`.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn audit(&self) -> anyhow::Result<serde_json::Value> {
        Ok(self.tokio.block_on(query_control(&self.daemon.control, "/api/v1/audit"))?)
    }

    /// The daemon's metrics, as Prometheus reads them.
    ///
    /// # Errors
    /// It does not answer.
    pub fn metrics(&self) -> anyhow::Result<String> {
        self.get("/metrics")
    }

    /// How often the daemon has counted a failure of this kind since it was started.
    ///
    /// # Errors
    /// It does not answer.
    pub fn failures(&self, kind: &str) -> anyhow::Result<u64> {
        let metrics = self.metrics()?;
        let head = format!("bayplan_failures_total{{kind=\"{kind}\"}} ");
        let told = metrics.lines().find_map(|line| line.strip_prefix(&head));
        told.map_or(Ok(0), |count| count.parse().context(head))
    }

    /// What the daemon answers at its control socket, with the head.
    ///
    /// # Errors
    /// It does not answer.
    pub fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut socket = UnixStream::connect(&self.daemon.control)?;
        write!(socket, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        Ok(text)
    }
}
