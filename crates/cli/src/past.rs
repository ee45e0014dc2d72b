//! The history of a node, read from its files: the daemon need not run. In: a directory or a file. Out: entries, and what is damaged.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bayplan_daemon::query_control;
use bayplan_host::history::{Dropped, Piece, Reader, segments};
use bayplan_node::history::{Entry, HISTORY_DIR, parse_entries};
use bayplan_node::status::Status;

use crate::args::PastOptions;
use crate::node_config::NodeConfig;

/// Damaged lines that are listed.
const LISTED_MAX: usize = 5;

/// A history that is being read.
#[derive(Debug)]
pub(crate) struct Past {
    path: PathBuf,
    reader: Reader,
    /// What is damaged, in words.
    damaged: Vec<String>,
    /// Records of newer versions.
    strange: usize,
}

impl Past {
    /// The history of the daemon behind a control socket, where it says that it keeps it.
    pub(crate) fn of_daemon(socket: &Path) -> anyhow::Result<Past> {
        let asked = query_control::<Status>(socket, "/api/v1/status");
        let status = tokio::runtime::Runtime::new()?.block_on(asked)?;
        let state_dir = status.config.and_then(|it| it.state_dir);
        let state_dir = state_dir.with_context(|| {
            let socket = socket.display();
            format!(
                "the daemon at {socket} does not say where its history is; name it with --state-dir"
            )
        })?;
        let path = find(Path::new(&state_dir))?;
        Ok(Past { reader: Reader::new(&path), path, damaged: Vec::new(), strange: 0 })
    }

    /// The history that was named, or else that of the configuration.
    pub(crate) fn open(config: &NodeConfig, options: &PastOptions) -> anyhow::Result<Past> {
        let path = match &options.state_dir {
            Some(named) => find(named)?,
            None => {
                let path = config.usable()?.state_dir.join(HISTORY_DIR);
                let message = || {
                    format!("cannot read {}: has a daemon run with this stateDir?", path.display())
                };
                segments(&path).with_context(message)?;
                path
            }
        };
        let reader = Reader::new(&path);
        Ok(Past { path, reader, damaged: Vec::new(), strange: 0 })
    }

    /// What is new since the last time; see [`Reader::read`].
    pub(crate) fn read(&mut self, is_growing: bool) -> anyhow::Result<Vec<Entry>> {
        let read = self.reader.read(is_growing);
        let pieces = read.with_context(|| format!("cannot read {}", self.path.display()))?;
        let mut entries = Vec::new();
        for Piece { path, recovered } in pieces {
            let (parsed, strange) = parse_entries(&recovered.records);
            entries.extend(parsed);
            self.strange += strange;
            let shown =
                |Dropped { line, why }: &Dropped| format!("{}:{line}: {why}", path.display());
            self.damaged.extend(recovered.dropped.iter().map(shown));
        }
        Ok(entries)
    }

    /// What could not be read, if anything.
    pub(crate) fn render_damage(&self) -> Option<String> {
        let mut lines = Vec::new();
        if !self.damaged.is_empty() {
            lines.push(format!("{} damaged lines were left out:", self.damaged.len()));
            lines.extend(self.damaged.iter().take(LISTED_MAX).map(|line| format!("  {line}")));
            if self.damaged.len() > LISTED_MAX {
                lines.push(format!("  and {} more", self.damaged.len() - LISTED_MAX));
            }
        }
        if self.strange > 0 {
            lines.push(format!("{} entries can be read by a newer version only", self.strange));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// A state directory, the directory of its history, or one segment.
fn find(named: &Path) -> anyhow::Result<PathBuf> {
    let metadata = std::fs::metadata(named);
    let is_dir = metadata.with_context(|| format!("cannot read {}", named.display()))?.is_dir();
    let below = named.join(HISTORY_DIR);
    if is_dir && below.is_dir() {
        return Ok(below);
    }
    let found: io::Result<Vec<PathBuf>> = segments(named);
    if found.with_context(|| format!("cannot read {}", named.display()))?.is_empty() {
        bail!(
            "{} holds no history; expected a state directory of the daemon, its directory `{HISTORY_DIR}`, or a file in that",
            named.display()
        );
    }
    Ok(named.to_owned())
}
