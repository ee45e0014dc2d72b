//! What the cluster says while the daemon runs. In: a text and its object, what the Node says, or word that there is neither any more. Out: what
//! that changes, and a daemon that has changed; with a mistake, or on a disk that does not keep it, nothing has.

use jiff::Timestamp;

use crate::cluster_config::ClusterConfig;
use crate::reload::{ConfigDiff, Reloader};
use crate::tasks::blocking;

impl Reloader {
    /// What it would change; an empty one: what giving up the one that holds would change.
    ///
    /// # Errors
    /// It has mistakes, or does not fit the machine.
    pub(crate) async fn preview_cluster(&self, given: ClusterConfig) -> anyhow::Result<ConfigDiff> {
        let given = given.parse()?;
        let ground = self.0.parts.ground.lock().await;
        given.check_on(&ground.topology)?;
        let new = self.known(|known| given.on_node(&known.node));
        self.diff(&new, &ground).await
    }

    /// Keeps it below the state directory, and goes on under it. An empty one: goes on under the node's file alone.
    ///
    /// # Errors
    /// It has mistakes, does not fit the machine, or cannot be kept; then everything is as it was.
    pub(crate) async fn apply_cluster(&self, given: ClusterConfig) -> anyhow::Result<ConfigDiff> {
        let done = self.take_from_cluster(given).await;
        match &done {
            Ok(diff) => diff.log(),
            Err(error) => {
                let problem = format!("{error:#}");
                tracing::warn!("the cluster's configuration is refused: {problem}");
                self.known(|known| {
                    known.kept.problem = Some(problem);
                    known.show_cluster();
                });
            }
        }
        done
    }

    /// The one that holds; empty where none does.
    pub(crate) fn cluster(&self) -> ClusterConfig {
        self.known(|known| known.kept.config.clone())
    }

    async fn take_from_cluster(&self, given: ClusterConfig) -> anyhow::Result<ConfigDiff> {
        let given = given.parse()?;
        let mut ground = self.0.parts.ground.lock().await;
        given.check_on(&ground.topology)?;
        let new = self.known(|known| given.on_node(&known.node));
        let earlier = self.keep(given.config.clone()).await?;
        let diff = match self.go_on_under(new, &mut ground).await {
            Ok(diff) => diff,
            Err(error) => {
                // A start is not to go on under what does not hold.
                if let Err(lost) = self.keep(earlier).await {
                    tracing::error!("the cluster's configuration that holds is not kept: {lost:#}");
                }
                return Err(error);
            }
        };
        let is_file_good = self.known(|known| {
            known.kept = given;
            known.status.cluster = known.kept.status(&known.node, Timestamp::now());
            known.status.problem.is_none()
        });
        self.0.parts.metrics.set_config_file_good(is_file_good);
        Ok(diff)
    }

    /// Keeps it for the next start; gives what was kept until then, empty where that was nothing that can be read.
    async fn keep(&self, config: ClusterConfig) -> anyhow::Result<ClusterConfig> {
        let state_dir = self.0.started.state_dir.clone();
        let written = blocking(move || {
            let earlier = ClusterConfig::read(&state_dir).ok().flatten().unwrap_or_default();
            match config.is_empty() {
                true => ClusterConfig::give_up(&state_dir)?,
                false => config.keep(&state_dir)?,
            }
            Ok(earlier)
        });
        written.await.unwrap_or_else(|| anyhow::bail!("the daemon is stopping"))
    }
}
