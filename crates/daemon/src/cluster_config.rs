//! What the cluster says for this node, kept below the state directory so that a start without API server goes on under it. In: a text with the
//! name and generation of its object, and what the Node itself says. Out: a file that is there as a whole or not at all, and what it means beside
//! the node's file.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::Context as _;
use bayplan_node::status::{AmplificationStatus, ClusterConfigStatus};
use bayplan_topology::Topology;
use bayplan_types::AMPLIFICATION_PERCENT;
use bayplan_workload::Amplification;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::{Config, ConfigErrors, ConfigFile, check_config_on};

/// The file below the state directory.
const FILE: &str = "cluster-config.json";
const FORMAT: &str = "bayplan-cluster-config/1";

/// A key that the Node says where neither the object nor the file does.
const AMPLIFICATION: &str = "requests.amplificationPercent";

/// A configuration by its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectConfig {
    /// Kind and name of the object, for example `BayplanConfig/default`.
    pub(crate) name: String,
    /// The object's `metadata.generation`.
    pub(crate) generation: i64,
    /// The configuration in YAML.
    pub(crate) text: String,
}

impl ObjectConfig {
    /// All of it or nothing.
    fn whole(
        name: Option<String>,
        generation: Option<i64>,
        text: Option<String>,
    ) -> Result<Option<ObjectConfig>, String> {
        match (name, generation, text) {
            (Some(name), Some(generation), Some(text)) => {
                Ok(Some(ObjectConfig { name, generation, text }))
            }
            (None, None, None) => Ok(None),
            _ => Err("expected name, generation and text of an object, or none of them".to_owned()),
        }
    }
}

/// What the cluster says for this node; format `bayplan-cluster-config/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub(crate) struct ClusterConfig {
    /// Counts instead of the node's file; `None`: the file counts.
    object: Option<ObjectConfig>,
    /// What the Node says of [`AMPLIFICATION`].
    amplification_percent: Option<usize>,
}

/// The same as a file; without an object its three fields are missing.
#[derive(Serialize, Deserialize)]
struct Form {
    format: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amplification_percent: Option<usize>,
}

impl TryFrom<Form> for ClusterConfig {
    type Error = String;

    fn try_from(form: Form) -> Result<ClusterConfig, String> {
        let Form { format, name, generation, text, amplification_percent } = form;
        match format == FORMAT {
            true => ClusterConfig::new(
                ObjectConfig::whole(name, generation, text)?,
                amplification_percent,
            ),
            false => Err(format!("format is `{format}`, expected {FORMAT}")),
        }
    }
}

impl From<ClusterConfig> for Form {
    fn from(config: ClusterConfig) -> Form {
        let ClusterConfig { object, amplification_percent } = config;
        let (name, generation, text) = match object {
            Some(ObjectConfig { name, generation, text }) => {
                (Some(name), Some(generation), Some(text))
            }
            None => (None, None, None),
        };
        Form { format: FORMAT.to_owned(), name, generation, text, amplification_percent }
    }
}

impl ClusterConfig {
    /// # Errors
    /// The percentage is none that the key can have.
    fn new(
        object: Option<ObjectConfig>,
        amplification_percent: Option<usize>,
    ) -> Result<ClusterConfig, String> {
        match amplification_percent.filter(|it| !AMPLIFICATION_PERCENT.contains(it)) {
            None => Ok(ClusterConfig { object, amplification_percent }),
            Some(percent) => {
                let [min, max] = [AMPLIFICATION_PERCENT.start(), AMPLIFICATION_PERCENT.end()];
                Err(format!("amplification_percent is {percent}, expected {min} to {max}"))
            }
        }
    }

    /// As it comes over the control socket, where a body is there in any case.
    ///
    /// # Errors
    /// It is nothing, or only a part of an object.
    pub(crate) fn given(
        name: Option<String>,
        generation: Option<i64>,
        text: String,
        amplification_percent: Option<usize>,
    ) -> Result<ClusterConfig, String> {
        let text = Some(text).filter(|it| name.is_some() || !it.is_empty());
        let config = ClusterConfig::new(
            ObjectConfig::whole(name, generation, text)?,
            amplification_percent,
        )?;
        match config.is_empty() {
            true => {
                Err("expected name and generation of an object, or amplification_percent".into())
            }
            false => Ok(config),
        }
    }

    /// Whether the cluster says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == ClusterConfig::default()
    }

    /// What it means.
    ///
    /// # Errors
    /// Every mistake of the text.
    pub(crate) fn parse(self) -> Result<Kept, ConfigErrors> {
        let parse = |it: &ObjectConfig| ConfigFile::parse_shared(Path::new(&it.name), &it.text);
        let file = self.object.as_ref().map(parse).transpose()?;
        Ok(Kept { config: self, file, problem: None })
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
        serde_json::from_slice(&bytes).with_context(unusable).map(Some)
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

/// What the cluster said last, where it can be used, and why it cannot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) config: ClusterConfig,
    /// What the text of its object means.
    file: Option<ConfigFile>,
    pub(crate) problem: Option<String>,
}

impl Kept {
    /// What is below a state directory. A text that this version refuses is not used, and neither deleted: the agent brings the next one.
    pub(crate) fn read(state_dir: &Path) -> Kept {
        let read = ClusterConfig::read(state_dir);
        match read.and_then(|found| Ok(found.unwrap_or_default().parse()?)) {
            Ok(kept) => kept,
            Err(error) => Kept { problem: Some(format!("{error:#}")), ..Kept::default() },
        }
    }

    /// # Errors
    /// The text of its object does not fit the machine.
    pub(crate) fn check_on(&self, topology: &Topology) -> Result<(), ConfigErrors> {
        match (&self.config.object, &self.file) {
            (Some(object), Some(file)) => check_config_on(file, Path::new(&object.name), topology),
            _ => Ok(()),
        }
    }

    /// The same without its object, which is not used because of this.
    pub(crate) fn without_object(self, problem: String) -> Kept {
        let config = ClusterConfig { object: None, ..self.config };
        Kept { config, file: None, problem: Some(problem) }
    }

    /// What a node with this file goes on under: the cluster's configuration with the node's own keys, or without one the file; with what the Node says, where that says nothing.
    pub(crate) fn on_node(&self, node: &ConfigFile) -> Config {
        let of_object = self.file.as_ref().map(|it| it.on_node(&node.config));
        let mut config = of_object.unwrap_or_else(|| node.config.clone());
        if let Some(AmplificationStatus { percent, holds: true }) = self.amplification(node) {
            config.requests.amplification = Amplification { percent };
        }
        config
    }

    fn amplification(&self, node: &ConfigFile) -> Option<AmplificationStatus> {
        let said = self.file.as_ref().unwrap_or(node);
        let percent = self.config.amplification_percent?;
        Some(AmplificationStatus { percent, holds: !said.says(AMPLIFICATION) })
    }

    /// What is shown of it on a node with this file; `None`: there is nothing.
    pub(crate) fn status(
        &self,
        node: &ConfigFile,
        since: Timestamp,
    ) -> Option<ClusterConfigStatus> {
        let object = self.config.object.as_ref();
        (!self.config.is_empty() || self.problem.is_some()).then(|| ClusterConfigStatus {
            name: object.map(|it| it.name.clone()),
            generation: object.map(|it| it.generation),
            since,
            amplification: self.amplification(node),
            problem: self.problem.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Option<ObjectConfig> {
        let (name, text) = ("BayplanConfig/default".to_owned(), text.to_owned());
        Some(ObjectConfig { name, generation: 3, text })
    }

    #[test]
    fn what_is_kept_is_read_again_and_broken_files_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(dir.path().join(FILE), text).unwrap();
        assert_eq!(ClusterConfig::read(dir.path()).unwrap(), None);
        for config in [
            ClusterConfig::new(object("log: debug\n"), None),
            ClusterConfig::new(object(""), Some(150)),
            ClusterConfig::new(None, Some(1000)),
        ] {
            let config = config.unwrap();
            config.keep(dir.path()).unwrap();
            assert_eq!(ClusterConfig::read(dir.path()).unwrap(), Some(config));
        }
        // As before there was anything but an object.
        write(
            r#"{"format":"bayplan-cluster-config/1","name":"BayplanConfig/default","generation":3,"text":""}"#,
        );
        let expected = ClusterConfig::new(object(""), None).unwrap();
        assert_eq!(ClusterConfig::read(dir.path()).unwrap(), Some(expected));
        for broken in [
            "",
            "{",
            r#"{"format":"x/2","name":"","generation":0,"text":""}"#,
            r#"{"format":"bayplan-cluster-config/1","name":"a","text":""}"#,
            r#"{"format":"bayplan-cluster-config/1","amplification_percent":99}"#,
            r#"{"format":"bayplan-cluster-config/1","amplification_percent":1001}"#,
        ] {
            write(broken);
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
        let config = ClusterConfig::new(object(""), None).unwrap();
        let error = config.keep(&dir.path().join("absent")).unwrap_err();
        assert!(format!("{error:#}").contains(FILE), "{error:#}");
    }

    #[test]
    fn what_is_given_is_an_object_or_something_of_the_node() {
        let (name, text) = (|| Some("BayplanConfig/default".to_owned()), String::new);
        let given = ClusterConfig::given;
        for (given, expected) in [
            (given(name(), Some(3), text(), None), Some((object(""), None))),
            (given(name(), Some(3), text(), Some(150)), Some((object(""), Some(150)))),
            (given(None, None, text(), Some(100)), Some((None, Some(100)))),
            (given(None, None, text(), None), None),
            (given(name(), None, text(), Some(150)), None),
            (given(None, Some(3), text(), Some(150)), None),
            (given(None, None, "log: debug\n".to_owned(), Some(150)), None),
            (given(None, None, text(), Some(99)), None),
        ] {
            let expected = expected
                .map(|(object, percent)| ClusterConfig { object, amplification_percent: percent });
            assert_eq!(given.ok(), expected);
        }
    }

    #[test]
    fn the_node_says_what_the_configuration_does_not() {
        const SAYS: &str = "requests:\n  amplification-percent: 120\n";
        for (file, cluster, of_node, expected, holds) in [
            ("", None, None, 100, None),
            ("", None, Some(150), 150, Some(true)),
            (SAYS, None, None, 120, None),
            (SAYS, None, Some(150), 120, Some(false)),
            // Said, although it is the default.
            ("requests:\n  amplificationPercent: 100\n", None, Some(150), 100, Some(false)),
            ("requests:\n  fullPcpusOnly: true\n", None, Some(150), 150, Some(true)),
            ("", Some(""), Some(150), 150, Some(true)),
            ("", Some(SAYS), Some(150), 120, Some(false)),
            // An object counts as a whole, so what the file says holds for nothing.
            (SAYS, Some(""), Some(150), 150, Some(true)),
            (SAYS, Some(""), None, 100, None),
        ] {
            let node = ConfigFile::parse(Path::new("f"), file).unwrap();
            let config = ClusterConfig::new(cluster.and_then(object), of_node).unwrap();
            let kept = config.parse().unwrap();
            let case = format!("{file} {cluster:?} {of_node:?}");
            let mut effective = kept.on_node(&node);
            assert_eq!(effective.requests.amplification.percent, expected, "{case}");
            let status = kept.status(&node, Timestamp::UNIX_EPOCH).and_then(|it| it.amplification);
            assert_eq!(
                status.map(|it| (Some(it.percent), it.holds)),
                holds.map(|it| (of_node, it))
            );
            // Nothing else is other.
            let without = Kept {
                config: ClusterConfig { amplification_percent: None, ..kept.config.clone() },
                ..kept
            };
            let without = without.on_node(&node);
            effective.requests.amplification = without.requests.amplification;
            assert_eq!(effective, without, "{case}");
        }
    }

    #[test]
    fn without_its_object_what_the_node_says_holds_on() {
        let config = ClusterConfig::new(object("reservedCpus: \"99\"\n"), Some(150)).unwrap();
        let kept = config.parse().unwrap().without_object("no".to_owned());
        let node = ConfigFile::default();
        assert_eq!(kept.on_node(&node).requests.amplification.percent, 150);
        let status = kept.status(&node, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!((status.name, status.problem.as_deref()), (None, Some("no")));
    }
}
