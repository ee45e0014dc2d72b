//! Reads a configuration file. In: YAML text. Out: a [`Config`] and where each key stands, or every mistake with its line and column.

use std::path::Path;

use super::cpu_classes::trees::unknown_classes;
use super::errors::{ConfigError, ConfigErrors};
use super::exclusions::exclusions;
use super::foreign::foreign;
use super::groups::link;
use super::kind::{Field, Kind};
use super::settings::Settings;
use super::sockets::shared_paths;
use super::table::{Key, keys, keys_of};
use crate::config::Config;
use crate::yaml::{Node, Position, Value, parse_yaml};

/// A configuration, and what of it a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// What it means.
    pub config: Config,
    /// Whole names of the keys that it has, and where each begins.
    pub(super) stands: Vec<(&'static str, Position)>,
}

impl ConfigFile {
    /// Parses a configuration; `path` is for messages only.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every mistake at once.
    pub fn parse(path: &Path, text: &str) -> Result<ConfigFile, ConfigErrors> {
        let (file, errors) = ConfigFile::read_text(text);
        ConfigErrors::none_of(path, errors).map(|()| file)
    }

    /// What can be understood of a text, and its mistakes in no order.
    pub(super) fn read_text(text: &str) -> (ConfigFile, Vec<ConfigError>) {
        let Reader { file, errors } = Reader::of(text);
        (file, errors)
    }

    /// What can be understood of a text, and its mistakes. A text that is no YAML is read key by key: each line that begins a key at the
    /// margin, with those that belong to it or alone, counts if it is YAML by itself.
    pub fn parse_usable(path: &Path, text: &str) -> (Config, Option<ConfigErrors>) {
        let errors = match ConfigFile::parse(path, text) {
            Ok(file) => return (file.config, None),
            Err(errors) => errors,
        };
        let config = match parse_yaml(text) {
            Ok(_) => Reader::of(text).file.config,
            Err(_) => {
                let mut reader = Reader::default();
                for piece in pieces(text) {
                    let first = piece.lines().next().unwrap_or_default();
                    let parsed = parse_yaml(&piece).or_else(|_| parse_yaml(first));
                    if let Ok(Node { value: Value::Map(entries), .. }) = parsed {
                        reader.entries("", &entries);
                    }
                }
                reader.file.config
            }
        };
        (config, Some(errors))
    }

    /// Where a key stands; the beginning of the file if it has its default.
    pub fn place(&self, key: &str) -> Position {
        let place = self.stands.iter().find(|(name, _)| *name == key).map(|(_, at)| *at);
        place.unwrap_or(Position { line: 1, column: 1 })
    }

    /// Whether it has the key of this whole name.
    pub fn says(&self, key: &str) -> bool {
        self.stands.iter().any(|(name, _)| *name == key)
    }

    /// Every key with its value, and whether the file says so.
    pub fn settings(&self) -> Settings {
        Settings::of(&self.config, &self.stands)
    }
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

/// Lines that begin a key at the margin, each with the lines that belong to it.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for line in text.lines() {
        let begins = line.starts_with(|it: char| !it.is_whitespace() && !"#-]}".contains(it));
        match pieces.last_mut().filter(|_| !begins) {
            Some(piece) => piece.push_str(&format!("{line}\n")),
            None => pieces.push(format!("{line}\n")),
        }
    }
    pieces
}

impl Reader {
    fn of(text: &str) -> Reader {
        let mut reader = Reader::default();
        match parse_yaml(text) {
            Ok(root) => match foreign(&root) {
                Some((at, message)) => reader.mistake(at, message),
                None => reader.root(&root),
            },
            Err((at, message)) => match foreign_piece(text) {
                Some((at, message)) => reader.mistake(at, message),
                None => reader.mistake(at, format!("not YAML: {message}")),
            },
        }
        reader
    }

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
        let at = self.file.place("groups");
        for message in link(&mut self.file.config) {
            self.mistake(at, message);
        }
        for (at, message) in exclusions(&self.file.settings()) {
            self.mistake(at, message);
        }
        for (at, message) in unknown_classes(&self.file.config, &self.file.stands) {
            self.mistake(at, message);
        }
        for (at, message) in shared_paths(&self.file.config, &self.file.stands) {
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
                self.mistake(*at, format!("duplicate key `{}`", key.name));
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

/// The same for the first of several documents in one file, which is how objects of Kubernetes often come.
fn foreign_piece(text: &str) -> Option<(Position, String)> {
    let documents = text.split("\n---");
    let roots = documents.filter_map(|document| parse_yaml(document).ok());
    roots.filter_map(|root| foreign(&root)).next()
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
    if let Some(elsewhere) = keys().find(|key| key.split().1 == name) {
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
