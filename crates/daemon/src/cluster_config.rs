//! The configuration that the cluster has for this node, kept below the state directory so that a start without API server goes on under it.
//! In: a text with the name and generation of its object. Out: a file that is there as a whole or not at all, and what it says.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use bayplan_node::status::ClusterConfigStatus;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::{Config, ConfigErrors, ConfigFile};

/// The file below the state directory.
const FILE: &str = "cluster-config.json";
const FORMAT: &str = "bayplan-cluster-config/1";

/// A configuration of the cluster, by its object; format `bayplan-cluster-config/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterConfig {
    format: String,
    /// Kind and name of the object, for example `BayplanConfig/default`.
    pub(crate) name: String,
    /// The object's `metadata.generation`.
    pub(crate) generation: i64,
    /// The configuration in YAML.
    pub(crate) text: String,
}

impl ClusterConfig {
    pub(crate) fn new(name: String, generation: i64, text: String) -> ClusterConfig {
        ClusterConfig { format: FORMAT.to_owned(), name, generation, text }
    }

    /// # Errors
    /// Every mistake of the text.
    pub(crate) fn parse(&self) -> Result<ConfigFile, ConfigErrors> {
        ConfigFile::parse_shared(Path::new(&self.name), &self.text)
    }

    /// The one that was kept last; `None` if none was, or it was given up.
    ///
    /// # Errors
    /// It cannot be read, or is of another version.
    pub(crate) fn read(state_dir: &Path) -> anyhow::Result<Option<ClusterConfig>> {
        let path = state_dir.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let unusable = || format!("{} is not what this version keeps there", path.display());
        let found: ClusterConfig = serde_json::from_slice(&bytes).with_context(unusable)?;
        ensure!(
            found.format == FORMAT,
            "{}: format is `{}`, expected {FORMAT}",
            path.display(),
            found.format
        );
        Ok(Some(found))
    }

    /// Keeps it: on disk before this comes back.
    ///
    /// # Errors
    /// The disk refuses; then the one that was kept before still is.
    pub(crate) fn keep(&self, state_dir: &Path) -> anyhow::Result<()> {
        let path = state_dir.join(FILE);
        let next = state_dir.join(format!("{FILE}.next"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&next)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            File::open(state_dir)?.sync_all()
        };
        write().with_context(|| {
            format!("cannot keep the cluster's configuration in {}", path.display())
        })
    }

    /// Gives up the one that was kept, if any.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn give_up(state_dir: &Path) -> anyhow::Result<()> {
        let path = state_dir.join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// The cluster's configuration as it was kept, where it can be used, and why it cannot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// With what its text means.
    pub(crate) held: Option<(ClusterConfig, ConfigFile)>,
    pub(crate) problem: Option<String>,
}

impl Kept {
    /// What is shown of it; `None`: there is none.
    pub(crate) fn status(&self, since: Timestamp) -> Option<ClusterConfigStatus> {
        let object = self.held.as_ref().map(|(held, _)| held);
        (object.is_some() || self.problem.is_some()).then(|| ClusterConfigStatus {
            name: object.map(|it| it.name.clone()),
            generation: object.map(|it| it.generation),
            since,
            problem: self.problem.clone(),
        })
    }

    /// What is below a state directory. A text that this version refuses is not used, and neither deleted: the agent brings the next one.
    pub(crate) fn read(state_dir: &Path) -> Kept {
        let parsed = ClusterConfig::read(state_dir)
            .and_then(|found| found.map(|found| Ok((found.parse()?, found))).transpose());
        match parsed {
            Ok(found) => Kept { held: found.map(|(file, found)| (found, file)), problem: None },
            Err(error) => Kept { held: None, problem: Some(format!("{error:#}")) },
        }
    }

    /// Its meaning.
    pub(crate) fn file(&self) -> Option<&ConfigFile> {
        self.held.as_ref().map(|(_, file)| file)
    }
}

/// What a node goes on under: the cluster's configuration with the node's own keys, or without one the node's file.
pub(crate) fn effective(node: &Config, cluster: Option<&ConfigFile>) -> Config {
    cluster.map_or_else(|| node.clone(), |cluster| cluster.on_node(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_broken_files_say_so() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ClusterConfig::read(dir.path()).unwrap(), None);
        let config = ClusterConfig::new("BayplanConfig/default".into(), 3, "log: debug\n".into());
        config.keep(dir.path()).unwrap();
        assert_eq!(ClusterConfig::read(dir.path()).unwrap(), Some(config));
        for broken in ["", "{", r#"{"format":"x/2","name":"","generation":0,"text":""}"#] {
            fs::write(dir.path().join(FILE), broken).unwrap();
            let error = format!("{:#}", ClusterConfig::read(dir.path()).unwrap_err());
            assert!(error.contains(FILE), "{error}");
        }
        ClusterConfig::give_up(dir.path()).unwrap();
        ClusterConfig::give_up(dir.path()).unwrap();
        assert_eq!(ClusterConfig::read(dir.path()).unwrap(), None);
    }

    #[test]
    fn a_refusing_disk_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let config = ClusterConfig::new("a".into(), 1, String::new());
        let error = config.keep(&dir.path().join("absent")).unwrap_err();
        assert!(format!("{error:#}").contains(FILE), "{error:#}");
    }
}
