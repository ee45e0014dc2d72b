//! Every key with its value. In: a configuration, and where its file says what. Out: the same as a commented file.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::kind::Kind;
use super::table::{Key, When, find, keys};
use crate::config::Config;
use crate::yaml::Position;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub enum Source {
    /// The default.
    Default,
    /// From the file, where it stands.
    File(Position),
}

/// One key and its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Its name with those of its sections, for example `compaction.enabled`.
    pub key: &'static str,
    /// As a file would say it.
    pub value: Json,
    /// Where the value comes from.
    #[serde(flatten)]
    pub source: Source,
    /// Whether the daemon has to be started again for a change of it.
    pub needs_restart: bool,
    /// What it is for.
    pub text: &'static str,
}

/// A key that has another value now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its name with those of its sections.
    pub key: String,
    /// The value until now.
    pub from: Json,
    /// The value from now on.
    pub to: Json,
    /// It is not used before the daemon is started again.
    pub needs_restart: bool,
}

/// What differs in `new`: from what holds now, or from what the daemon was started with for what only a start can change.
pub fn changes(started: &Config, now: &Config, new: &Config) -> Vec<Change> {
    let [started, now, new] = [started, now, new].map(|config| Settings::of(config, &[]));
    let of_each = started.0.into_iter().zip(now.0).zip(new.0);
    let change = |((started, now), new): ((Setting, Setting), Setting)| {
        let needs_restart = new.needs_restart;
        let from = if needs_restart { started.value } else { now.value };
        let key = new.key.to_owned();
        (from != new.value).then_some(Change { key, from, to: new.value, needs_restart })
    };
    of_each.filter_map(change).collect()
}

/// Every key with its value, in the order of the documentation. `Display` writes a file that means the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Settings(Vec<Setting>);

const HEADER: &str = "Configuration of bayplan with every key. `bayplan config check FILE` lists every mistake with line and column, and \
                      `bayplan config schema` is for editors. What is left out has its default.";

/// Columns of a comment.
const WIDTH: usize = 120;

impl Settings {
    pub(super) fn of(config: &Config, stands: &[(&'static str, Position)]) -> Settings {
        let mut config = config.clone();
        let setting = |key: &Key| {
            let at = stands.iter().find(|(name, _)| *name == key.name).map(|(_, at)| *at);
            Some(Setting {
                key: key.name,
                value: key.kind.shown(&mut config)?,
                source: at.map_or(Source::Default, Source::File),
                needs_restart: key.when == When::Restart,
                text: key.text,
            })
        };
        Settings(keys().filter_map(setting).collect())
    }

    /// What differs from the defaults, section by section.
    pub(super) fn differences(&self) -> Json {
        let defaults = Settings::of(&Config::default(), &[]);
        let mut all = Map::new();
        for (setting, default) in self.iter().zip(defaults.iter()) {
            if setting.value == default.value {
                continue;
            }
            let (key, value) = (setting.key.to_owned(), setting.value.clone());
            match setting.key.split_once('.') {
                None => {
                    all.insert(key, value);
                }
                Some((section, name)) => {
                    let section = all.entry(section).or_insert_with(|| json!({}));
                    if let Json::Object(keys) = section {
                        keys.insert(name.to_owned(), value);
                    }
                }
            }
        }
        Json::Object(all)
    }

    /// In the order of the documentation.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        comment(f, "", HEADER)?;
        let mut section = "";
        for setting in self.iter() {
            let (around, name) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
            let indent = if around.is_empty() { "" } else { "  " };
            if around != section || around.is_empty() {
                writeln!(f)?;
            }
            if let Some(opened) = find(around).filter(|_| around != section) {
                comment(f, "", opened.text)?;
                writeln!(f, "{around}:")?;
            }
            section = around;
            let restart = if setting.needs_restart { " A change needs a restart." } else { "" };
            comment(f, indent, &format!("{}{restart}", setting.text))?;
            let line = format!("{name}: {}", render_yaml(setting));
            match setting.source {
                Source::File(at) => writeln!(f, "{indent}{line}  # line {} of the file", at.line)?,
                // A value that is written says more than a default: some options exclude it.
                Source::Default if is_always(setting) => comment(f, indent, &line)?,
                Source::Default => writeln!(f, "{indent}{line}")?,
            }
        }
        Ok(())
    }
}

fn is_always(setting: &Setting) -> bool {
    find(setting.key).is_some_and(|key| matches!(key.kind, Kind::Always(_)))
}

/// Lines of a comment, broken between words.
fn comment(f: &mut fmt::Formatter<'_>, indent: &str, text: &str) -> fmt::Result {
    let mut line = format!("{indent}#");
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            writeln!(f, "{line}")?;
            line = format!("{indent}#");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(f, "{line}")
}

/// A value in YAML. What could be taken for something else is quoted; JSON's escapes are YAML's, too.
fn render_yaml(setting: &Setting) -> String {
    let is_number_and_unit = find(setting.key)
        .is_some_and(|it| matches!(it.kind, Kind::Duration(_) | Kind::Memory(_) | Kind::Size(..)));
    match &setting.value {
        Json::String(text) if is_number_and_unit => text.clone(),
        Json::String(text) => render_text(text),
        Json::Array(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), render_text))
                .collect();
            format!("[{}]", items.join(", "))
        }
        value => value.to_string(),
    }
}

fn render_text(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_word = WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-=".contains(c));
    if is_plain && !is_word { text.to_owned() } else { Json::from(text).to_string() }
}
