//! What a key takes. In: a value of the file, or of a configuration. Out: the one as the other, or what was expected instead.
//!
//! A kind reads, shows and describes, so that the three cannot differ: what is shown is read back as the same.

use std::net::SocketAddr;
use std::path::{Component, PathBuf};
use std::time::Duration;

use bayplan_types::{Bytes, CpuSet, MilliCpu};
use bayplan_workload::annotations::{Words, known_as};
use serde_json::{Value as Json, json};

use super::log_filter::is_log_filter;
use crate::config::Config;
use crate::errors::ConfigError;
use crate::yaml::{Node, Value};

/// Where a value is kept.
pub(super) type Place<T> = fn(&mut Config) -> &mut T;

/// What a key takes, and where that is kept.
pub(super) enum Kind {
    /// Holds the keys with names that begin with its own.
    Section,
    /// An absolute path.
    Path(Place<PathBuf>),
    /// An absolute path, or the name of the key that has it otherwise.
    PathOr(&'static str, Place<Option<PathBuf>>),
    /// An address and a port, or `off`.
    Address(Place<Option<SocketAddr>>),
    /// A CPU list.
    Cpus(Place<CpuSet>),
    /// A CPU list, or an amount for which the machine has the CPUs chosen.
    CpusOrAmount(Place<CpuSet>, Place<Option<MilliCpu>>),
    /// Several names.
    Names(Place<Vec<String>>),
    /// Several directories in containers.
    Directories(Place<Vec<PathBuf>>),
    /// 10 ms to an hour.
    Duration(Place<Duration>),
    /// A whole number within bounds.
    Count(usize, usize, Place<usize>),
    /// An amount of memory, or `unlimited`.
    Memory(Place<Option<Bytes>>),
    /// An amount of memory or of disk within bounds.
    Size(Bytes, Bytes, Place<Bytes>),
    /// One of some words.
    Word(&'static dyn Choice),
    /// `true`, because of what follows from a written `false`.
    Always(&'static str),
    /// The name of a group, or its number.
    Group(Place<String>),
    /// What is logged.
    Filter(Place<String>),
    /// Names and lists of a form of their own.
    Tree(&'static dyn Tree),
}

/// A value with keys of its own.
pub(super) trait Tree: Sync {
    /// What it takes, for messages.
    fn expected(&self) -> String;
    /// Keeps what the file says, and gives every mistake in it.
    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError>;
    /// What is kept, as a file would say it.
    fn shown(&self, config: &mut Config) -> Json;
    /// What it takes, in the words of JSON Schema.
    fn schema(&self) -> Json;
}

/// Words of any meaning, and where the meaning is kept.
pub(super) trait Choice: Sync {
    /// All words.
    fn words(&self) -> Vec<&'static str>;
    /// Keeps what a word means; false if it means nothing.
    fn set(&self, config: &mut Config, word: &str) -> bool;
    /// The first word for what is kept.
    fn shown(&self, config: &mut Config) -> &'static str;
}

/// The words of a table; their meaning is kept as it is.
pub(super) struct OneOf<T: 'static>(pub(super) &'static Words<T>, pub(super) Place<T>);

impl<T: Clone + PartialEq + Sync> Choice for OneOf<T> {
    fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|(word, _)| *word).collect()
    }

    fn set(&self, config: &mut Config, word: &str) -> bool {
        let word = known_as(word);
        let found = self.0.iter().find(|(known, _)| *known == word);
        if let Some((_, meaning)) = found {
            *self.1(config) = meaning.clone();
        }
        found.is_some()
    }

    fn shown(&self, config: &mut Config) -> &'static str {
        let kept = self.1(config);
        self.0.iter().find(|(_, meaning)| meaning == kept).map_or("", |(word, _)| word)
    }
}

/// What a file says of one key.
pub(super) struct Field<'a> {
    /// Its name with those of its sections.
    pub(super) key: &'a str,
    pub(super) value: &'a Node,
}

impl<'a> Field<'a> {
    pub(super) fn wrong(&self, found: &str, expected: &str) -> ConfigError {
        let message = format!("`{}` is {found}, expected {expected}", self.key);
        ConfigError { at: self.value.at, message }
    }

    /// The one value; what is none is a mistake.
    pub(super) fn scalar(&self, expected: &str) -> Result<&'a str, ConfigError> {
        match &self.value.value {
            Value::Scalar(text) => Ok(text),
            Value::Null => Err(self.wrong("empty", expected)),
            Value::List(_) => Err(self.wrong("a list", expected)),
            Value::Map(_) => Err(self.wrong("a mapping", expected)),
        }
    }
}

const DURATION_MIN: Duration = Duration::from_millis(10);
const DURATION_MAX: Duration = Duration::from_secs(3600);
/// More CPU time than any machine has, in thousandths of a CPU.
const AMOUNT_MAX: u64 = 65_536_000;
const UNITS: [(&str, u32); 4] = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
const FILTER: &str =
    "off, error, warn, info, debug or trace, or levels by crate such as bayplan_cri=debug,info";
const PORTS: &str = "IP:PORT such as 127.0.0.1:9478, or off";

impl Kind {
    /// What it takes, for messages.
    fn expected(&self) -> String {
        match self {
            Kind::Section => "lines of `key: value`".to_owned(),
            Kind::Path(_) => "an absolute path".to_owned(),
            Kind::PathOr(other, _) => format!("an absolute path, or {other}"),
            Kind::Address(_) => PORTS.to_owned(),
            Kind::Cpus(_) => "a CPU list such as \"0,28\" or \"0-3\"".to_owned(),
            Kind::CpusOrAmount(..) => {
                "a CPU list such as \"0,28\" or \"0-3\", or an amount such as 750m or 2 CPUs"
                    .to_owned()
            }
            Kind::Names(_) => "a list of names such as [kube-system, monitoring]".to_owned(),
            Kind::Directories(_) => {
                "a list of absolute paths in containers, each once and not /, such as [/.bayplan]"
                    .to_owned()
            }
            Kind::Duration(_) => "a duration from 10ms to 1h such as 500ms, 2s or 1m".to_owned(),
            Kind::Count(min, max, _) => format!("a number from {min} to {max}"),
            Kind::Memory(_) => "an amount such as 512Mi, 16Gi or 1Ti, or unlimited".to_owned(),
            Kind::Size(min, max, _) => {
                let [min, max] = [min, max].map(|bytes| render_memory(Some(*bytes)));
                format!("an amount from {min} to {max}")
            }
            Kind::Word(choice) => format!("one of {}", choice.words().join(", ")),
            Kind::Always(_) => "true".to_owned(),
            Kind::Group(_) => "the name or number of a group".to_owned(),
            Kind::Filter(_) => FILTER.to_owned(),
            Kind::Tree(tree) => tree.expected(),
        }
    }

    /// Keeps what the file says, and gives what of it is wrong and what was expected.
    pub(super) fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        match self {
            Kind::Tree(tree) => tree.read(config, field),
            _ => self.read_value(config, field).err().into_iter().collect(),
        }
    }

    fn read_value(&self, config: &mut Config, field: &Field<'_>) -> Result<(), ConfigError> {
        if let Kind::Names(place) = self {
            *place(config) = self.names(field)?;
            return Ok(());
        }
        if let Kind::Directories(place) = self {
            *place(config) = self.directories(field)?;
            return Ok(());
        }
        let text = field.scalar(&self.expected())?;
        let is_read = match self {
            Kind::Section | Kind::Names(_) | Kind::Directories(_) | Kind::Tree(_) => false,
            Kind::Path(place) => put(place(config), parse_path(text)),
            Kind::PathOr(other, place) if text == *other => put(place(config), Some(None)),
            // YAML 1.1 has `off` for `false`.
            Kind::PathOr("off", place) if text == "false" => put(place(config), Some(None)),
            Kind::PathOr(_, place) => put(place(config), parse_path(text).map(Some)),
            Kind::Address(place) => put(place(config), parse_address(text)),
            Kind::Cpus(place) => match text.parse() {
                Ok(cpus) => put(place(config), Some(cpus)),
                Err(error) => return Err(self.wrong(field, &format!("`{text}` ({error})"))),
            },
            Kind::CpusOrAmount(list, amount) => {
                match (parse_amount(text), text.parse::<CpuSet>()) {
                    (Some(some), _) => put(amount(config), Some(Some(some))),
                    (None, Ok(cpus)) => put(list(config), Some(cpus)),
                    (None, Err(error)) => {
                        return Err(self.wrong(field, &format!("`{text}` ({error})")));
                    }
                }
            }
            Kind::Duration(place) => put(place(config), parse_duration(text)),
            Kind::Count(min, max, place) => {
                let count = text.parse().ok().filter(|count| (min..=max).contains(&count));
                put(place(config), count)
            }
            Kind::Memory(place) => put(place(config), parse_memory(text)),
            Kind::Size(min, max, place) => {
                let size = parse_memory(text).flatten();
                put(place(config), size.filter(|size| (min..=max).contains(&size)))
            }
            Kind::Word(choice) => {
                choice.set(config, text)
                    || as_switch(text).is_some_and(|word| choice.set(config, word))
            }
            Kind::Always(why) if text == "false" => {
                let message = format!("`{}` cannot be false: {why}", field.key);
                return Err(ConfigError { at: field.value.at, message });
            }
            Kind::Always(_) => text == "true",
            Kind::Group(place) => {
                let is_name = !text.is_empty() && !text.contains([':', '/', ' ']);
                put(place(config), is_name.then(|| text.to_owned()))
            }
            Kind::Filter(place) => put(place(config), is_log_filter(text).then(|| text.to_owned())),
        };
        if is_read { Ok(()) } else { Err(self.wrong(field, &format!("`{text}`"))) }
    }

    fn wrong(&self, field: &Field<'_>, found: &str) -> ConfigError {
        field.wrong(found, &self.expected())
    }

    fn names(&self, field: &Field<'_>) -> Result<Vec<String>, ConfigError> {
        let Value::List(items) = &field.value.value else {
            return Err(self.wrong(field, "not a list"));
        };
        let names = items.iter().map(|item| match &item.value {
            Value::Scalar(name) if !name.is_empty() => Ok(name.clone()),
            _ => Err(self.wrong(&Field { value: item, ..*field }, "not only names")),
        });
        names.collect()
    }

    fn directories(&self, field: &Field<'_>) -> Result<Vec<PathBuf>, ConfigError> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for name in self.names(field)? {
            let path = PathBuf::from(&name);
            let mut parts = path.components();
            let is_plain = parts.next() == Some(Component::RootDir)
                && path.file_name().is_some()
                && parts.all(|part| matches!(part, Component::Normal(_)));
            if !is_plain || paths.contains(&path) {
                return Err(self.wrong(field, &format!("`{name}`")));
            }
            paths.push(path);
        }
        Ok(paths)
    }

    /// What is kept, as a file would say it; a section has no value of its own.
    pub(super) fn shown(&self, config: &mut Config) -> Option<Json> {
        Some(match self {
            Kind::Section => return None,
            Kind::Path(place) => json!(place(config).display().to_string()),
            Kind::PathOr(other, place) => match place(config) {
                Some(path) => json!(path.display().to_string()),
                None => json!(other),
            },
            Kind::Address(place) => match place(config) {
                Some(address) => json!(address.to_string()),
                None => json!("off"),
            },
            Kind::Cpus(place) => json!(place(config).to_string()),
            Kind::CpusOrAmount(list, amount) => match amount(config) {
                Some(amount) => json!(format!("{}m", amount.0)),
                None => json!(list(config).to_string()),
            },
            Kind::Names(place) => json!(place(config)),
            Kind::Directories(place) => json!(place(config)),
            Kind::Duration(place) => json!(render_duration(*place(config))),
            Kind::Count(_, _, place) => json!(place(config)),
            Kind::Memory(place) => json!(render_memory(*place(config))),
            Kind::Size(_, _, place) => json!(render_memory(Some(*place(config)))),
            Kind::Word(choice) => match choice.shown(config) {
                "true" => json!(true),
                "false" => json!(false),
                word => json!(word),
            },
            Kind::Always(_) => json!(true),
            Kind::Group(place) | Kind::Filter(place) => json!(place(config)),
            Kind::Tree(tree) => tree.shown(config),
        })
    }

    /// What it takes, in the words of JSON Schema. A schema cannot say everything that is checked: it knows no order of the bounds of a CPU
    /// list, no longest duration, no address.
    pub(super) fn schema(&self) -> Json {
        match self {
            Kind::Section => json!({ "type": ["object", "null"] }),
            Kind::Path(_) => json!({ "type": "string", "pattern": "^(unix://)?/" }),
            Kind::PathOr("off", _) => json!({ "anyOf": [
                { "enum": ["off", false] },
                { "type": "string", "pattern": "^(unix://)?/" },
            ]}),
            Kind::PathOr(other, _) => {
                json!({ "type": "string", "pattern": format!("^(unix://)?/|^{other}$") })
            }
            Kind::Address(_) => json!({ "anyOf": [
                { "enum": ["off", false] },
                { "type": "string", "pattern": r"^([0-9.]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$" },
            ]}),
            Kind::CpusOrAmount(..) => json!({
                "type": ["string", "integer"],
                "minimum": 0,
                "pattern": "^$|^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$|^[0-9]+m$|^[0-9]+ CPUs?$",
            }),
            Kind::Cpus(_) => json!({
                "type": ["string", "integer"],
                "minimum": 0,
                "pattern": "^$|^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$",
            }),
            Kind::Names(_) => json!({
                "type": "array",
                "items": { "type": ["string", "integer"], "minLength": 1 },
            }),
            Kind::Directories(_) => json!({
                "type": "array",
                "uniqueItems": true,
                "items": { "type": "string", "pattern": "^/[^/]" },
            }),
            Kind::Duration(_) => json!({
                "type": "string",
                "pattern": r"^([0-9]+(\.[0-9]+)?(h|m|s|ms|us) ?)+$",
            }),
            Kind::Count(min, max, _) => {
                json!({ "type": "integer", "minimum": min, "maximum": max })
            }
            Kind::Memory(_) => json!({
                "type": "string",
                "pattern": "^([0-9]+(Ki|Mi|Gi|Ti)|unlimited)$",
            }),
            Kind::Size(..) => json!({ "type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi|Ti)$" }),
            Kind::Word(choice) => {
                json!({ "enum": choice.words().into_iter().flat_map(scalars).collect::<Json>() })
            }
            Kind::Always(_) => json!({ "enum": scalars("true") }),
            Kind::Group(_) => json!({ "type": ["string", "integer"], "pattern": "^[^:/ ]+$" }),
            Kind::Filter(_) => json!({ "type": "string", "minLength": 1 }),
            Kind::Tree(tree) => tree.schema(),
        }
    }
}

/// As YAML may write a word: `"true"` is the text, `true` is not, and `on` is `true` for many programs.
pub(super) fn scalars(word: &'static str) -> Vec<Json> {
    match word {
        "true" => vec![json!(true), json!(word)],
        "false" => vec![json!(false), json!(word)],
        "on" => vec![json!(word), json!(true)],
        "off" => vec![json!(word), json!(false)],
        _ => vec![json!(word)],
    }
}

/// Whether there was something to keep.
fn put<T>(place: &mut T, value: Option<T>) -> bool {
    let is_there = value.is_some();
    if let Some(value) = value {
        *place = value;
    }
    is_there
}

fn parse_path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    path.is_absolute().then_some(path)
}

/// YAML reads `on` and `off` without quotes as true and false.
pub(super) fn as_switch(text: &str) -> Option<&'static str> {
    match text {
        "true" => Some("on"),
        "false" => Some("off"),
        _ => None,
    }
}

/// The outer `None` is no address; YAML reads a bare `off` as false.
fn parse_address(text: &str) -> Option<Option<SocketAddr>> {
    match text {
        "off" | "false" => Some(None),
        _ => text.parse().ok().map(Some),
    }
}

pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let parsed: jiff::SignedDuration = text.parse().ok()?;
    let duration = Duration::try_from(parsed).ok()?;
    (DURATION_MIN..=DURATION_MAX).contains(&duration).then_some(duration)
}

pub(super) fn render_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units = [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000)];
    let smaller = [("ms", 1_000_000), ("us", 1000)];
    let mut units = units.iter().chain(&smaller);
    match units.find(|(_, length)| nanos >= *length && nanos.is_multiple_of(*length)) {
        Some((unit, length)) => format!("{}{unit}", nanos / length),
        None => format!("{nanos}ns"),
    }
}

/// The outer `None` is no amount.
pub(super) fn parse_memory(text: &str) -> Option<Option<Bytes>> {
    if text == "unlimited" {
        return Some(None);
    }
    UNITS.iter().find_map(|(unit, shift)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(1 << shift).map(|bytes| Some(Bytes(bytes)))
    })
}

pub(super) fn render_memory(memory: Option<Bytes>) -> String {
    let Some(Bytes(bytes)) = memory else { return "unlimited".to_owned() };
    let fits = |shift: u32| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let (unit, shift) = UNITS.into_iter().find(|(_, shift)| fits(*shift)).unwrap_or(("Ki", 10));
    format!("{}{unit}", bytes >> shift)
}

/// `750m`, `2 CPUs`; a number alone is a CPU.
fn parse_amount(text: &str) -> Option<MilliCpu> {
    let whole = || text.strip_suffix(" CPUs").or_else(|| text.strip_suffix(" CPU"));
    let milli = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<u64>().ok()?,
        None => whole()?.parse::<u64>().ok()?.checked_mul(1000)?,
    };
    (1..=AMOUNT_MAX).contains(&milli).then_some(MilliCpu(milli))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};

    use crate::ConfigFile;

    fn check(text: &str, expected: Expect) {
        let shown = match ConfigFile::parse(Path::new("f"), &format!("reservedCpus: {text}\n")) {
            Ok(file) => file.config.differences(),
            Err(errors) => errors.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn reserved_cpus_are_a_list_or_an_amount() {
        check("\"0,28\"", expect![[r#"{"reservedCpus":"0,28"}"#]]);
        check("2", expect![[r#"{"reservedCpus":"2"}"#]]);
        check("750m", expect![[r#"{"reservedCpus":"750m"}"#]]);
        check("2 CPUs", expect![[r#"{"reservedCpus":"2000m"}"#]]);
        check(
            "0m",
            expect![[
                r#"f:1:15: `reservedCpus` is `0m` (`0m` is not a number or a range such as 0-3), expected a CPU list such as "0,28" or "0-3", or an amount such as 750m or 2 CPUs"#
            ]],
        );
        check(
            "1.5",
            expect![[
                r#"f:1:15: `reservedCpus` is `1.5` (`1.5` is not a number or a range such as 0-3), expected a CPU list such as "0,28" or "0-3", or an amount such as 750m or 2 CPUs"#
            ]],
        );
    }
}
