//! The cluster's configuration while the daemon runs. In: a text and its object, or word that there is none any more. Out: what that changes,
//! and a daemon that has changed; with a mistake, or on a disk that does not keep it, nothing has.

use std::path::Path;

use jiff::Timestamp;

use crate::cluster_config::{ClusterConfig, Kept, effective};
use crate::config::check_config_on;
use crate::reload::{ConfigDiff, Reloader};
use crate::tasks::blocking;

impl Reloader {
    /// What it would change; `None`: what giving up the one that holds would change.
    ///
    /// # Errors
    /// It has mistakes, or does not fit the machine.
    pub(crate) async fn preview_cluster(
        &self,
        given: Option<&ClusterConfig>,
    ) -> anyhow::Result<ConfigDiff> {
        let file = given.map(ClusterConfig::parse).transpose()?;
        let ground = self.0.parts.ground.lock().await;
        if let Some((given, file)) = given.zip(file.as_ref()) {
            check_config_on(file, Path::new(&given.name), &ground.topology)?;
        }
        let new = self.known(|known| effective(&known.node, file.as_ref()));
        self.diff(&new, &ground).await
    }

    /// Keeps it below the state directory, and goes on under it. `None`: goes on under the node's file alone.
    ///
    /// # Errors
    /// It has mistakes, does not fit the machine, or cannot be kept; then everything is as it was.
    pub(crate) async fn apply_cluster(
        &self,
        given: Option<ClusterConfig>,
    ) -> anyhow::Result<ConfigDiff> {
        let done = self.take_from_cluster(given).await;
        match &done {
            Ok(diff) => diff.log(),
            Err(error) => {
                let problem = format!("{error:#}");
                tracing::warn!("the cluster's configuration is refused: {problem}");
                self.known(|known| {
                    known.kept.problem = Some(problem);
                    let since = known.status.cluster.as_ref().map(|it| it.since);
                    let since = since.unwrap_or_else(Timestamp::now);
                    known.status.cluster = known.kept.status(since);
                });
            }
        }
        done
    }

    /// The one that holds.
    pub(crate) fn cluster(&self) -> Option<ClusterConfig> {
        self.known(|known| known.kept.held.as_ref().map(|(held, _)| held.clone()))
    }

    async fn take_from_cluster(&self, given: Option<ClusterConfig>) -> anyhow::Result<ConfigDiff> {
        let held = match given {
            Some(given) => Some((given.parse()?, given)),
            None => None,
        };
        let mut ground = self.0.parts.ground.lock().await;
        if let Some((file, given)) = &held {
            check_config_on(file, Path::new(&given.name), &ground.topology)?;
        }
        let new = self.known(|known| effective(&known.node, held.as_ref().map(|(file, _)| file)));
        let (kept, state_dir) =
            (held.as_ref().map(|(_, given)| given.clone()), self.0.started.state_dir.clone());
        let written = blocking(move || match kept {
            Some(given) => given.keep(&state_dir),
            None => ClusterConfig::give_up(&state_dir),
        });
        written.await.unwrap_or_else(|| anyhow::bail!("the daemon is stopping"))?;
        let diff = self.go_on_under(new, &mut ground).await?;
        let is_file_good = self.known(|known| {
            known.kept = Kept { held: held.map(|(file, given)| (given, file)), problem: None };
            known.status.cluster = known.kept.status(Timestamp::now());
            known.status.problem.is_none()
        });
        self.0.parts.metrics.set_config_file_good(is_file_good);
        Ok(diff)
    }
}
