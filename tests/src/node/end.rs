//! The end of a node: its logs, and nothing of ours left on the machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use bayplan_cri::v1;

use super::Node;

impl Node {
    /// The ends of the logs.
    pub fn last_words(&self) -> String {
        format!("{}\n{}", self.daemon.last_words(), self.containerd.last_words())
    }

    /// Copies the logs into a directory, under names that begin with `name`.
    ///
    /// # Errors
    /// They cannot be copied.
    pub fn keep_logs(&self, dir: &Path, name: &str) -> anyhow::Result<()> {
        for log in ["bayplan.log", "containerd.log"] {
            std::fs::copy(self.dir.path().join(log), dir.join(format!("{name}-{log}")))?;
        }
        Ok(())
    }

    /// Leaves nothing of ours on the machine, whatever came of `told`.
    ///
    /// # Errors
    /// That of `told`, with logs, or else that something is left.
    pub fn end(mut self, told: anyhow::Result<()>) -> anyhow::Result<()> {
        let told = told.with_context(|| self.last_words());
        let cleaned = self.clean();
        told?;
        cleaned
    }

    fn clean(&mut self) -> anyhow::Result<()> {
        let ended = self.remove_pods();
        let stopped = self.daemon.terminate();
        self.remove_cgroups()?;
        ended?;
        let code = stopped?;
        ensure!(code == 0, "SIGTERM: exit code {code}");
        Ok(())
    }

    /// Past the daemon, in case that is what failed.
    pub(super) fn remove_pods(&mut self) -> anyhow::Result<()> {
        self.pods.clear();
        let mut client = self.runtime.runtime_client();
        self.tokio.block_on(async {
            for pod in self.runtime.list_pods().await? {
                let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
                client.stop_pod_sandbox(stop).await?;
                let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: pod.id };
                client.remove_pod_sandbox(remove).await?;
            }
            anyhow::Ok(())
        })
    }

    /// Those of our pods in any namespace, and those above them if nothing had made them before us.
    fn remove_cgroups(&self) -> anyhow::Result<()> {
        let mut find = "find /sys/fs/cgroup -depth -type d -path '*pod*-scenario-*' \
                        -exec rmdir {} ';'"
            .to_owned();
        if !self.had_kubepods {
            find.push_str(
                "; find /sys/fs/cgroup -depth -type d -path '*/kubepods*' -exec rmdir {} ';'",
            );
        }
        Command::new("sh").args(["-c", &find]).output()?;
        Ok(())
    }
}

/// A kubelet of this machine has cgroups of its own, which must stay.
pub(super) fn has_kubepods() -> anyhow::Result<bool> {
    let find = ["/sys/fs/cgroup", "-type", "d", "-name", "kubepods"];
    Ok(!Command::new("find").args(find).output()?.stdout.is_empty())
}
