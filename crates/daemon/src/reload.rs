//! Reads the configuration file again: when asked to (SIGHUP, `bayplan config reload`), and when the file is another one. In: the file. Out: the same
//! daemon under the new configuration, or under the old one and word of what is wrong with the new.
//!
//! All or nothing: a file with a mistake, one that does not fit the machine, or one with types of groups that cannot be had changes nothing. What only a start can change (sockets,
//! directories) is told and waits for it; the rest of the file holds.
//!
//! The file is polled, like the files of the machine, by what `stat` says of it. Editors rename a new file over the old one, and mounted
//! ConfigMaps change a link above it; to watch all of that would be more than one call a second costs. A file is read when it is another
//! one and the same twice in a row, so no half-written file is. One that has gone changes nothing: an empty file means the defaults.
//!
//! While the cluster has a configuration for the node (`cluster_config.rs`), only the node's own keys of the file count.

mod carried_out;
mod cluster;

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard, Notify, watch};
use tokio::time::MissedTickBehavior;

use bayplan_node::reconfigure::Shift;
use bayplan_node::status::{ConfigStatus, Status};
use bayplan_topology::Topology;

use crate::cluster_config::Kept;
use crate::config::{
    CONFIG_PATH, Change, Config, ConfigErrors, ConfigFile, changes, check_config_on,
    read_config_file,
};
use crate::hotplug::{Ground, Machine, Watch};
use crate::inbox::{Inbox, Looker};
use crate::metrics::Metrics;
use crate::runtime::SharedRuntime;
use crate::systemd::Ear;

/// How often the file is looked at.
const POLL: Duration = Duration::from_secs(1);

type SetFilter = dyn Fn(&str) -> anyhow::Result<()> + Send + Sync;

/// Where logging can be told of another filter.
#[derive(Clone)]
pub struct LogFilter(Arc<SetFilter>);

impl LogFilter {
    /// Calls this with every new filter.
    pub fn new(set: impl Fn(&str) -> anyhow::Result<()> + Send + Sync + 'static) -> LogFilter {
        LogFilter(Arc::new(set))
    }
}

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogFilter")
    }
}

/// A configuration, and the file that it is in, if that is to be followed.
#[derive(Clone, Debug)]
pub struct Followed {
    pub(crate) config: Config,
    file: Option<FollowedFile>,
    /// What the file said, with the places of its keys.
    said: ConfigFile,
    /// What the cluster said when it was last heard.
    kept: Kept,
    log: Option<LogFilter>,
    /// Kernel files are not written, whatever the file says.
    pub(crate) is_dry_run: bool,
}

#[derive(Clone, Debug)]
struct FollowedFile {
    path: PathBuf,
    /// What it was when it was read; `None`: there was none, and everything has its default.
    stamp: Option<Stamp>,
}

impl From<Config> for Followed {
    fn from(config: Config) -> Followed {
        let mut said = ConfigFile::default();
        said.config = config.clone();
        let kept = Kept::default();
        Followed { config, file: None, said, kept, log: None, is_dry_run: false }
    }
}

impl Followed {
    /// Reads a file as [`read_config_file`] does, and what the cluster said last from the state directory that it names.
    ///
    /// # Errors
    /// As there.
    pub fn read(path: Option<&Path>) -> anyhow::Result<Followed> {
        let followed = path.unwrap_or(Path::new(CONFIG_PATH)).to_owned();
        // Before it is read, so that no change is missed.
        let stamp = Stamp::of(&followed);
        let said = read_config_file(path)?;
        let kept = Kept::read(&said.config.state_dir);
        let config = kept.on_node(&said);
        let file = Some(FollowedFile { path: followed, stamp });
        Ok(Followed { config, file, said, kept, log: None, is_dry_run: false })
    }

    /// Checks what the file says against the machine, as [`check_config_on`] does. Nothing is checked of a configuration without a
    /// file. What the cluster said is left out where it does not fit the machine: a start must not fail by what is not in the file.
    ///
    /// # Errors
    /// As there.
    pub fn fitted_to(mut self, machine: &Machine) -> Result<Followed, ConfigErrors> {
        if let Some(file) = &self.file {
            check_config_on(&self.said, &file.path, machine.topology())?;
        }
        if let Err(errors) = self.kept.check_on(machine.topology()) {
            self.kept = self.kept.without_object(errors.to_string());
            self.config = self.kept.on_node(&self.said);
        }
        if let Some(problem) = &self.kept.problem {
            tracing::error!("the configuration of the cluster is not used, the file is: {problem}");
        }
        Ok(self)
    }

    /// What holds from the start on.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Nothing is written into kernel files, whatever the file says; what would be goes into the log.
    pub fn with_dry_run(self, is_dry_run: bool) -> Followed {
        Followed { is_dry_run, ..self }
    }

    /// The key `log` can change while the daemon runs.
    pub fn with_log(self, log: LogFilter) -> Followed {
        Followed { log: Some(log), ..self }
    }
}

/// What tells one file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    /// Also when a file is given an old time.
    changed: (i64, i64),
}

impl Stamp {
    /// `None`: it is not there, or may not be looked at.
    fn of(path: &Path) -> Option<Stamp> {
        let file = std::fs::metadata(path).ok()?;
        Some(Stamp {
            inode: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

/// What another configuration changes; format `bayplan-config-diff/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigDiff {
    /// Names the format.
    pub format: String,
    /// Keys with different values.
    pub changes: Vec<Change>,
    /// Containers that are elsewhere because of it.
    pub moves: Vec<Shift>,
}

impl ConfigDiff {
    fn new(changes: Vec<Change>, moves: Vec<Shift>) -> ConfigDiff {
        ConfigDiff { format: "bayplan-config-diff/1".to_owned(), changes, moves }
    }

    fn log(&self) {
        for Change { key, from, to, needs_restart } in &self.changes {
            match needs_restart {
                true => tracing::warn!(key, %from, %to, "configured, and needs a restart"),
                false => tracing::info!(key, %from, %to, "configured"),
            }
        }
    }
}

/// What another configuration would make of the node; format `bayplan-what-if/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// Names the format.
    pub format: String,
    /// Keys, and containers that would be elsewhere.
    pub diff: ConfigDiff,
    /// What would be where.
    pub status: Status,
}

/// Gives a daemon another configuration. Cheap to clone; clones are about the same daemon.
#[derive(Clone, Debug)]
pub struct Reloader(Arc<Inner>);

/// What a configuration has to reach.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) live: watch::Sender<Arc<Config>>,
    pub(crate) ground: Arc<Mutex<Ground>>,
    pub(crate) inbox: Inbox,
    pub(crate) looker: Looker,
    pub(crate) runtime: SharedRuntime,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sync_soon: Arc<Notify>,
    pub(crate) ear: Ear,
}

impl Parts {
    /// What follows the machine that the daemon runs on; `None` for a fixed one.
    pub(crate) fn watch(&self, machine: &Machine) -> Option<Watch> {
        machine.watch(Arc::clone(&self.ground), self.inbox.clone(), Arc::clone(&self.metrics))
    }
}

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    log: Option<LogFilter>,
    /// What the daemon was started with.
    started: Config,
    parts: Parts,
    known: std::sync::Mutex<Known>,
}

/// What was last read, and what the cluster said last.
#[derive(Debug)]
struct Known {
    stamp: Option<Stamp>,
    status: ConfigStatus,
    /// What the file said when it was last good.
    node: ConfigFile,
    kept: Kept,
}

impl Known {
    /// What is shown of what the cluster said, after any of both has changed.
    fn show_cluster(&mut self) {
        let since = self.status.cluster.as_ref().map(|it| it.since);
        self.status.cluster = self.kept.status(&self.node, since.unwrap_or_else(Timestamp::now));
    }
}

impl Reloader {
    pub(crate) fn new(followed: Followed, parts: Parts) -> Reloader {
        let Followed { config, file, said, kept, log, .. } = followed;
        let stamp = file.as_ref().and_then(|file| file.stamp);
        let path = file.map(|file| file.path);
        let status = ConfigStatus {
            file: path.as_ref().filter(|_| stamp.is_some()).map(|it| it.display().to_string()),
            read_at: Timestamp::now(),
            problem: None,
            restart_for: Vec::new(),
            state_dir: Some(config.state_dir.display().to_string()),
            cluster: kept.status(&said, Timestamp::now()),
        };
        let known = Known { stamp, status, node: said, kept };
        let known = std::sync::Mutex::new(known);
        Reloader(Arc::new(Inner { path, log, started: config, parts, known }))
    }

    /// Reads the file again, and goes on under what it says. Comes back when the containers that have to move have moved.
    ///
    /// # Errors
    /// There is no file, it has mistakes, it does not fit the machine, its types of groups cannot be had, or the runtime has not moved containers for them; then everything is as it
    /// was.
    pub async fn reload(&self) -> anyhow::Result<ConfigDiff> {
        self.0.parts.ear.reloading();
        let done = self.read_again().await;
        self.0.parts.ear.ready();
        self.tell(&done);
        done
    }

    /// What that file would change.
    ///
    /// # Errors
    /// It has mistakes, does not fit the machine, or its types of groups cannot be had.
    pub(crate) async fn preview(&self, path: &Path, text: &str) -> anyhow::Result<ConfigDiff> {
        let file = ConfigFile::parse(path, text)?;
        let ground = self.0.parts.ground.lock().await;
        check_config_on(&file, path, &ground.topology)?;
        let new = self.known(|known| known.kept.on_node(&file));
        self.diff(&new, &ground).await
    }

    /// What would be where under that file, beside what it would change.
    ///
    /// # Errors
    /// As of [`Self::preview`].
    pub(crate) async fn what_if(&self, path: &Path, text: &str) -> anyhow::Result<WhatIf> {
        let file = ConfigFile::parse(path, text)?;
        let ground = self.0.parts.ground.lock().await;
        check_config_on(&file, path, &ground.topology)?;
        let new = self.known(|known| known.kept.on_node(&file));
        // One question: between two the node may have become another one.
        let (moves, status) = self.status_under(&new, &ground).await?;
        let diff = ConfigDiff::new(self.changes(&new), moves);
        Ok(WhatIf { format: "bayplan-what-if/1".to_owned(), diff, status: *status })
    }

    async fn diff(&self, new: &Config, ground: &Ground) -> anyhow::Result<ConfigDiff> {
        let changes = self.changes(new);
        let moves = self.moves_under(new, ground).await?;
        Ok(ConfigDiff::new(changes, moves))
    }

    /// What holds, and what is wrong with what does not.
    pub(crate) fn status(&self) -> ConfigStatus {
        self.known(|known| known.status.clone())
    }

    /// What was read of the machine in use; `None` for a fixed one.
    pub(crate) async fn machine_files(&self) -> Option<Arc<str>> {
        self.0.parts.ground.lock().await.files.clone()
    }

    /// The machine in use.
    pub(crate) async fn topology(&self) -> Topology {
        self.0.parts.ground.lock().await.topology.clone()
    }

    /// The configuration that holds now.
    pub(crate) fn live(&self) -> Arc<Config> {
        Arc::clone(&self.0.parts.live.borrow())
    }

    /// What the rebalancer does now, as the file says it.
    pub(crate) fn rebalance_mode(&self) -> &'static str {
        self.0.parts.live.borrow().rebalance.mode.name()
    }

    /// Looks at the file for ever; does nothing for a configuration without one.
    pub(crate) async fn watch(self) {
        let Some(path) = self.0.path.clone() else { return std::future::pending().await };
        let mut polls = tokio::time::interval(POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = None;
        loop {
            polls.tick().await;
            let path = path.clone();
            let Ok(stamp) = tokio::task::spawn_blocking(move || Stamp::of(&path)).await else {
                continue;
            };
            if self.known(|known| known.stamp == stamp) {
                seen = None;
            } else if seen == Some(stamp) {
                // Whatever comes of it has been told.
                let _told = self.reload().await;
            } else {
                seen = Some(stamp);
            }
        }
    }

    async fn read_again(&self) -> anyhow::Result<ConfigDiff> {
        let Some(path) = self.0.path.clone() else {
            bail!("this daemon has no configuration file");
        };
        let mut ground = self.0.parts.ground.lock().await;
        let had_file = self.known(|known| known.status.file.is_some());
        let followed = path.clone();
        let read = tokio::task::spawn_blocking(move || {
            let stamp = Stamp::of(&followed);
            // Without a file at the start, there need not be one now.
            let read = match had_file || stamp.is_some() {
                true => read_config_file(Some(&followed)),
                false => Ok(ConfigFile::default()),
            };
            (stamp, read)
        });
        let (stamp, read) = read.await?;
        self.known(|known| known.stamp = stamp);
        let file = read?;
        check_config_on(&file, &path, &ground.topology)?;
        let new = self.known(|known| known.kept.on_node(&file));
        let diff = self.go_on_under(new, &mut ground).await?;
        self.known(|known| {
            let path = self.0.path.as_ref().filter(|_| stamp.is_some());
            known.status.file = path.map(|it| it.display().to_string());
            known.node = file;
            known.show_cluster();
        });
        Ok(diff)
    }

    /// Applies it, unless all that differs waits for a restart.
    async fn go_on_under(
        &self,
        new: Config,
        ground: &mut MutexGuard<'_, Ground>,
    ) -> anyhow::Result<ConfigDiff> {
        let changes = self.changes(&new);
        let needs_step = changes.iter().any(|change| !change.needs_restart);
        let moves = match needs_step {
            true => self.apply(new, ground).await?,
            false => Vec::new(),
        };
        Ok(ConfigDiff::new(changes, moves))
    }

    async fn apply(
        &self,
        new: Config,
        ground: &mut MutexGuard<'_, Ground>,
    ) -> anyhow::Result<Vec<Shift>> {
        let Inner { parts, log, .. } = &*self.0;
        let moves = self.carry_out(&new, ground).await?;
        ground.reconfigure(&new);
        parts.runtime.set_limit(new.runtime_timeout);
        let is_other = new.log != parts.live.borrow().log;
        if let Some(Err(error)) = log.as_ref().filter(|_| is_other).map(|log| log.0(&new.log)) {
            tracing::warn!("the log filter cannot be changed: {error:#}");
        }
        parts.live.send_replace(Arc::new(new));
        // Looks made since the step were shown under the configuration before.
        parts.looker.note_change();
        // By the new interval from now on.
        parts.sync_soon.notify_one();
        Ok(moves)
    }

    /// From what holds; of what needs a restart, from what the daemon was started with.
    fn changes(&self, new: &Config) -> Vec<Change> {
        changes(&self.0.started, &self.0.parts.live.borrow(), new)
    }

    fn tell(&self, done: &anyhow::Result<ConfigDiff>) {
        let metrics = &self.0.parts.metrics;
        match done {
            Err(error) => {
                tracing::error!("the configuration that held goes on to hold: {error:#}");
                metrics.config_read("failed");
                self.known(|known| known.status.problem = Some(format!("{error:#}")));
            }
            Ok(diff) => {
                diff.log();
                let restart_for = diff.changes.iter().filter(|it| it.needs_restart);
                let restart_for: Vec<String> = restart_for.map(|it| it.key.clone()).collect();
                if diff.changes.len() == restart_for.len() {
                    metrics.config_read("unchanged");
                }
                self.known(|known| {
                    let (read_at, problem) = (Timestamp::now(), None);
                    let before = known.status.clone();
                    known.status = ConfigStatus { read_at, problem, restart_for, ..before };
                });
            }
        }
    }

    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        // Nothing that is done under the lock can panic half way.
        let mut known = self.0.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        look(&mut known)
    }
}
