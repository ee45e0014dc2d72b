//! Reads a configuration file. In: YAML text. Out: a [`Config`] and where each key stands, or every mistake with its line and column.

use std::fmt;
use std::path::{Path, PathBuf};

use super::cpu_classes::unknown_classes;
use super::kind::{Field, Kind};
use super::requests::exclusions;
use super::table::{KEYS, Key, keys_of};
use super::{CONFIG_PATH, Config, Settings};
use crate::yaml::{Node, Position, Value, parse_yaml};

/// One mistake in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where.
    pub at: Position,
    /// What is wrong, what was expected, what to do.
    pub message: String,
}

/// Every mistake of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file.
    pub path: PathBuf,
    /// In the order of their positions; at least one.
    pub errors: Vec<ConfigError>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let ConfigError { at, message } = error;
            write!(f, "{}:{}:{}: {message}", self.path.display(), at.line, at.column)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A configuration, and what of it a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// What it means.
    pub config: Config,
    /// Whole names of the keys that it has, and where each begins.
    stands: Vec<(&'static str, Position)>,
}

impl ConfigFile {
    /// Reads and parses a file. `None` reads [`CONFIG_PATH`], and gives the defaults when there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, or [`ConfigErrors`].
    pub fn read(path: Option<&Path>) -> anyhow::Result<ConfigFile> {
        let (path, is_named) = path.map_or((Path::new(CONFIG_PATH), false), |path| (path, true));
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(ConfigFile::parse(path, &text)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => {
                Ok(ConfigFile::default())
            }
            Err(error) => {
                Err(anyhow::Error::new(error).context(format!("cannot read {}", path.display())))
            }
        }
    }

    /// Parses a configuration; `path` is for messages only.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every mistake at once.
    pub fn parse(path: &Path, text: &str) -> Result<ConfigFile, ConfigErrors> {
        let mut reader = Reader::default();
        match parse_yaml(text) {
            Ok(root) => reader.root(&root),
            Err((at, message)) => reader.mistake(at, format!("not YAML: {message}")),
        }
        reader.errors.sort_by_key(|error| error.at);
        match reader.errors.is_empty() {
            true => Ok(reader.file),
            false => Err(ConfigErrors { path: path.to_owned(), errors: reader.errors }),
        }
    }

    /// Every key with its value, and whether the file says so.
    pub fn settings(&self) -> Settings {
        Settings::of(&self.config, &self.stands)
    }
}

/// The meaning of a file, as [`ConfigFile::read`] reads it.
///
/// # Errors
/// The file cannot be read, or [`ConfigErrors`].
pub fn read_config(path: Option<&Path>) -> anyhow::Result<Config> {
    Ok(ConfigFile::read(path)?.config)
}

/// The meaning of a text, as [`ConfigFile::parse`] reads it.
///
/// # Errors
/// [`ConfigErrors`] with every mistake at once.
pub fn parse_config(path: &Path, text: &str) -> Result<Config, ConfigErrors> {
    Ok(ConfigFile::parse(path, text)?.config)
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    file: ConfigFile,
    errors: Vec<ConfigError>,
}

impl Reader {
    /// What the file says is shown on terminals, which must not obey it.
    fn mistake(&mut self, at: Position, message: impl AsRef<str>) {
        self.errors.push(ConfigError { at, message: without_controls(message.as_ref()) });
    }

    fn root(&mut self, root: &Node) {
        match &root.value {
            Value::Null => {}
            Value::Map(entries) => self.entries("", entries),
            Value::Scalar(_) | Value::List(_) => self
                .mistake(root.at, "expected `key: value` lines such as `reservedCpus: \"0,28\"`"),
        }
        for (at, message) in exclusions(&self.file.settings()) {
            self.mistake(at, message);
        }
        for (at, message) in unknown_classes(&self.file.config, &self.file.stands) {
            self.mistake(at, message);
        }
    }

    fn entries(&mut self, section: &str, entries: &[(Position, String, Node)]) {
        for (at, name, value) in entries {
            let Some(key) = keys_of(section).find(|key| key.is_called(name)) else {
                self.mistake(*at, unknown_key(section, name));
                continue;
            };
            if self.file.stands.iter().any(|(name, _)| *name == key.name) {
                self.mistake(*at, format!("`{}` stands twice", key.name));
            }
            self.file.stands.push((key.name, value.at));
            match (&key.kind, &value.value) {
                (Kind::Section, Value::Map(entries)) => self.entries(key.name, entries),
                (Kind::Section, Value::Null) => {}
                (Kind::Section, _) => self.mistake(value.at, no_mapping(key)),
                (kind, _) => {
                    let field = Field { key: key.name, value };
                    for error in kind.read(&mut self.file.config, &field) {
                        self.mistake(error.at, error.message);
                    }
                }
            }
        }
    }
}

fn without_controls(message: &str) -> String {
    let escape = |c: char| match c.is_control() && c != '\n' {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    message.chars().map(escape).collect()
}

fn no_mapping(section: &Key) -> String {
    let known: Vec<&str> = keys_of(section.name).map(|key| key.split().1).collect();
    format!(
        "`{}` is not a mapping, expected lines of `key: value`; known are {}",
        section.name,
        known.join(", ")
    )
}

/// What may have been meant, and all that is known.
fn unknown_key(section: &str, name: &str) -> String {
    const SIMILAR_MIN: f64 = 0.85;
    let whole = match section {
        "" => name.to_owned(),
        _ => format!("{section}.{name}"),
    };
    // The name that nri-plugins have for it.
    if whole == "requests.reservedPoolNamespaces" {
        return format!("`{whole}` is called `reservedNamespaces`, and is no part of `requests`");
    }
    if let Some(elsewhere) = KEYS.iter().find(|key| key.split().1 == name) {
        let place = match elsewhere.split().0 {
            "" => "outside of all sections".to_owned(),
            section => format!("below `{section}:`"),
        };
        return format!("`{name}` stands {place}, not here");
    }
    let known: Vec<&str> = keys_of(section).map(|key| key.split().1).collect();
    let similarity =
        |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let nearest = known.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let nearest = nearest.filter(|known| similarity(known) >= SIMILAR_MIN);
    let meant = nearest.map(|known| format!("did you mean `{known}`? ")).unwrap_or_default();
    format!("unknown key `{whole}`; {meant}known are {}", known.join(", "))
}
