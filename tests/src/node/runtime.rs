//! The containerd of a node: ended, killed, hung and started again while containers run, and what it says of them.

use std::path::PathBuf;

use anyhow::Context as _;
use bayplan_workload::runtime::{ContainerDetails, ContainerState, ListedContainer};

use super::{LIMIT, Node};
use crate::process::wait_for;

impl Node {
    /// SIGKILL to containerd; containers run on.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_runtime(&mut self) -> anyhow::Result<()> {
        self.containerd.kill()
    }

    /// SIGTERM to containerd; containers run on.
    ///
    /// # Errors
    /// It does not end.
    pub fn end_runtime(&mut self) -> anyhow::Result<()> {
        self.containerd.terminate()
    }

    /// Whether containerd hangs from now on, or goes on.
    ///
    /// # Errors
    /// It does not run.
    pub fn hang_runtime(&self, hangs: bool) -> anyhow::Result<()> {
        self.containerd.hang(hangs)
    }

    /// Another containerd after a kill, with the memory of the one before.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_runtime_again(&mut self) -> anyhow::Result<()> {
        self.containerd.start_again()?;
        // It answers before it knows its containers again, and refuses every call about them until then.
        wait_for("its containers", LIMIT, || {
            Ok(self.tokio.block_on(self.runtime.list_pods()).ok())
        })
        .with_context(|| self.containerd.last_words())?;
        Ok(())
    }

    /// Pid of containerd.
    pub fn runtime_pid(&self) -> u32 {
        self.containerd.pid()
    }

    /// Where containerd takes plugins.
    pub fn nri_socket(&self) -> PathBuf {
        self.containerd.nri_socket()
    }

    /// What the runtime says of a container.
    ///
    /// # Errors
    /// It does not answer, or does not know it.
    pub fn details(&self, id: &str) -> anyhow::Result<ContainerDetails> {
        Ok(self.tokio.block_on(self.runtime.container_details(id))?)
    }

    /// Containers that the runtime lists as created or running.
    ///
    /// # Errors
    /// It does not answer.
    pub fn alive(&self) -> anyhow::Result<Vec<ListedContainer>> {
        let listed = self.tokio.block_on(self.runtime.list_containers())?;
        Ok(listed.into_iter().filter(|it| it.state != ContainerState::Exited).collect())
    }
}
