//! The keys of `cpuClasses`. In: trees of the file. Out: what they mean, or every mistake in them.
//!
//! Classes are a mapping by name, as in CRI Resource Manager, or a list of mappings with a `name`, as in nri-plugins; the names of its fields are
//! accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use bayplan_enforcement::power::{Frequency, ParsePowerError, PowerClass};
use bayplan_types::CLOS_COUNT;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use serde_json::{Map, Value as Json, json};

use super::{CpuUse, Turn};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::repeated;
use crate::kind::{Field, Tree};
use crate::yaml::{Node, Position, Value};

/// What no single key can tell: names that are no class.
pub(crate) fn unknown_classes(
    config: &Config,
    stands: &[(&'static str, Position)],
) -> Vec<(Position, String)> {
    let unknown = config.cpu_classes.unknown().into_iter();
    let mistakes = unknown.map(|(key, name)| {
        let at = stands.iter().find(|(known, _)| *known == key).map(|(_, at)| *at);
        let known = config.cpu_classes.known();
        let message = format!("`{key}` has `{name}`, which is no class; known are {known}");
        (at.unwrap_or_default(), message)
    });
    mistakes.collect()
}

/// The key `cpuClasses.classes`.
pub(crate) struct Classes;
/// The keys `cpuClasses.exclusive` and so on.
pub(crate) struct ClassOf(pub(crate) CpuUse);
/// The key `cpuClasses.schedule`.
pub(crate) struct Schedule;
/// The key `cpuClasses.timeZone`.
pub(crate) struct Zone;

/// Fields of a class: how they are called, and what nri-plugins call them.
const FIELDS: [(&str, &str); 11] = [
    ("governor", "freqGovernor"),
    ("minFreq", "minFreq"),
    ("maxFreq", "maxFreq"),
    ("energyPerformancePreference", "energyPerformancePreference"),
    ("turbo", "turbo"),
    ("turboPriority", "turboPriority"),
    ("maxLatency", "maxLatency"),
    ("disabledCstates", "disabledCstates"),
    ("uncoreMinFreq", "uncoreMinFreq"),
    ("uncoreMaxFreq", "uncoreMaxFreq"),
    ("clos", "sstClosID"),
];
/// Fields of nri-plugins that make classes of service of Speed Select by themselves.
const SPEED_SELECT: [&str; 3] = ["pctPriority", "pctMinFreq", "pctMaxFreq"];

/// Where a frequency lies between the lowest (0) and the highest (100) of any CPU; `None` where that depends on the CPU.
fn place_in_range(frequency: Frequency) -> Option<u8> {
    match frequency {
        Frequency::Min => Some(0),
        Frequency::Percent(percent) => Some(percent),
        Frequency::Max => Some(100),
        Frequency::Base | Frequency::Exactly(_) | Frequency::BelowMax(_) => None,
    }
}

const CLOS: &str = "a class of service of Speed Select, 0 to 3";
const PRIORITY: &str = "a whole number from 0 on";
const EXPECTED: &str = "names of classes, each with lines such as `minFreq: base`";

#[derive(Default)]
struct Reader {
    errors: Vec<ConfigError>,
}

impl Reader {
    fn wrong(&mut self, at: Position, message: String) {
        self.errors.push(ConfigError { at, message });
    }

    fn text<'a>(&mut self, what: &str, value: &'a Node) -> Option<&'a str> {
        let text = match &value.value {
            Value::Scalar(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        };
        if text.is_none() {
            self.wrong(value.at, format!("`{what}`: expected one value"));
        }
        text
    }

    fn parsed<T: FromStr<Err = ParsePowerError>>(&mut self, what: &str, value: &Node) -> Option<T> {
        match self.text(what, value)?.parse() {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                self.wrong(value.at, format!("`{what}`: {error}"));
                None
            }
        }
    }

    fn class(&mut self, name: &str, entries: &[(Position, String, Node)]) -> PowerClass {
        let mut class = PowerClass::default();
        let mut known = BTreeSet::new();
        for (at, key, value) in entries {
            let what = format!("{name}.{key}");
            let field = FIELDS.iter().find(|(own, theirs)| own == key || theirs == key);
            if field.is_some_and(|(own, _)| !known.insert(*own)) {
                self.wrong(*at, format!("duplicate key `{what}`"));
            }
            match field.map_or("", |(own, _)| *own) {
                "governor" => class.governor = self.text(&what, value).map(str::to_owned),
                "minFreq" => class.min = self.parsed(&what, value),
                "maxFreq" => class.max = self.upper(&what, value),
                "energyPerformancePreference" => match &value.value {
                    Value::Scalar(text) if text == "default" || text.is_empty() => {}
                    _ => class.preference = self.parsed(&what, value),
                },
                "turbo" => class.turbo = self.flag(&what, value),
                "turboPriority" => {
                    let priority = self.number(&what, value, PRIORITY, u32::MAX);
                    class.turbo_priority = priority.unwrap_or_default();
                }
                "maxLatency" => class.latency = self.parsed(&what, value),
                "disabledCstates" => class.disabled_states = self.names(&what, value),
                "uncoreMinFreq" => class.uncore_min = self.parsed(&what, value),
                "uncoreMaxFreq" => class.uncore_max = self.upper(&what, value),
                "clos" => class.clos = self.number(&what, value, CLOS, CLOS_COUNT - 1),
                _ if SPEED_SELECT.contains(&key.as_str()) => self.wrong(
                    *at,
                    format!(
                        "`{what}`: name a class of service with `clos`, and its limits in `cpuClasses.speedSelect`"
                    ),
                ),
                _ => {
                    let known: Vec<&str> = FIELDS.iter().map(|(own, _)| *own).collect();
                    self.wrong(
                        *at,
                        format!("unknown key `{key}` in `{name}`; known are {}", known.join(", ")),
                    );
                }
            }
        }
        self.bounds(name, "minFreq", "maxFreq", [class.min, class.max], entries);
        let uncore = [class.uncore_min, class.uncore_max];
        self.bounds(name, "uncoreMinFreq", "uncoreMaxFreq", uncore, entries);
        class
    }

    /// A lowest frequency above the highest is a mistake on every machine where both are of one kind.
    fn bounds(
        &mut self,
        name: &str,
        low: &str,
        high: &str,
        bounds: [Option<Frequency>; 2],
        entries: &[(Position, String, Node)],
    ) {
        let [Some(min), Some(max)] = bounds else { return };
        let is_above = match (min, max) {
            (Frequency::Exactly(min), Frequency::Exactly(max)) => min > max,
            _ => place_in_range(min).zip(place_in_range(max)).is_some_and(|(min, max)| min > max),
        };
        if is_above {
            let at = entries.iter().find(|(_, key, _)| key == low).map(|(.., value)| value.at);
            let message =
                format!("`{name}.{low}` is {min}, above `{high}`, {max}; expected at most that");
            self.wrong(at.unwrap_or_default(), message);
        }
    }

    fn upper(&mut self, what: &str, value: &Node) -> Option<Frequency> {
        let frequency = self.parsed(what, value)?;
        if matches!(frequency, Frequency::BelowMax(_)) {
            self.wrong(value.at, format!("`{what}`: `{frequency}` is for lowest frequencies only"));
            return None;
        }
        Some(frequency)
    }

    fn number<T: FromStr + PartialOrd>(
        &mut self,
        what: &str,
        value: &Node,
        expected: &str,
        most: T,
    ) -> Option<T> {
        let text = self.text(what, value)?;
        let number = text.parse().ok().filter(|number| *number <= most);
        if number.is_none() {
            self.wrong(value.at, format!("`{what}` is `{text}`, expected {expected}"));
        }
        number
    }

    fn flag(&mut self, what: &str, value: &Node) -> Option<bool> {
        match self.text(what, value)? {
            "true" => Some(true),
            "false" => Some(false),
            text => {
                self.wrong(value.at, format!("`{what}` is `{text}`, expected true or false"));
                None
            }
        }
    }

    fn names(&mut self, what: &str, value: &Node) -> Vec<String> {
        let Value::List(items) = &value.value else {
            self.wrong(value.at, format!("`{what}` is not a list such as [C6]"));
            return Vec::new();
        };
        let names = items.iter().filter_map(|item| self.text(what, item).map(str::to_owned));
        names.collect()
    }

    fn class_name(&mut self, what: &str, value: &Node) -> Option<Option<String>> {
        let name = self.text(what, value)?;
        Some((name != "none").then(|| name.to_owned()))
    }
}

impl Tree for Classes {
    fn expected(&self) -> String {
        EXPECTED.to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut reader = Reader::default();
        let mut named: Vec<(Position, String, &Node)> = Vec::new();
        match &field.value.value {
            Value::Map(entries) => {
                named.extend(entries.iter().map(|(at, name, value)| (*at, name.clone(), value)));
            }
            Value::List(items) => {
                for item in items {
                    let name = match &item.value {
                        Value::Map(entries) => entries.iter().find(|(_, key, _)| key == "name"),
                        _ => None,
                    };
                    match name.map(|(_, _, name)| &name.value) {
                        Some(Value::Scalar(name)) => named.push((item.at, name.clone(), item)),
                        _ => reader.wrong(
                            item.at,
                            format!("`{}`: expected a class with a `name`", field.key),
                        ),
                    }
                }
            }
            Value::Null => {}
            Value::Scalar(_) => {
                reader.wrong(field.value.at, format!("`{}`: expected {EXPECTED}", field.key));
            }
        }
        let mut classes = BTreeMap::new();
        for (at, name, value) in named {
            let what = format!("{}.{name}", field.key);
            let class = match &value.value {
                Value::Map(entries) => {
                    let is_field = |(_, key, _): &&(Position, String, Node)| key != "name";
                    let fields: Vec<_> = entries.iter().filter(is_field).cloned().collect();
                    reader.class(&what, &fields)
                }
                Value::Null => PowerClass::default(),
                _ => {
                    reader.wrong(value.at, format!("`{what}`: expected lines of `key: value`"));
                    continue;
                }
            };
            if name == "none" || name.trim().is_empty() {
                reader.wrong(at, format!("a class cannot be called `{name}`"));
            } else if classes.insert(name.clone(), class).is_some() {
                reader.wrong(at, format!("duplicate class `{name}`"));
            }
        }
        config.cpu_classes.classes = classes;
        reader.errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        let classes = config.cpu_classes.classes.iter();
        Json::Object(classes.map(|(name, class)| (name.clone(), shown_class(class))).collect())
    }

    fn schema(&self) -> Json {
        let scalar = json!({ "type": ["string", "integer"] });
        let mut properties = Map::new();
        for name in FIELDS.iter().flat_map(|(own, theirs)| [own, theirs]) {
            let schema = match *name {
                "turbo" => json!({ "enum": [true, false, "true", "false"] }),
                "turboPriority" => json!({ "type": ["string", "integer"], "minimum": 0 }),
                "clos" | "sstClosID" => json!({ "enum": [0, 1, 2, 3, "0", "1", "2", "3"] }),
                "disabledCstates" => json!({ "type": "array", "items": { "type": "string" } }),
                _ => scalar.clone(),
            };
            properties.insert((*name).to_owned(), schema);
        }
        let class = |properties: &Map<String, Json>| {
            json!({
                "type": ["object", "null"],
                "properties": properties,
                "additionalProperties": false,
            })
        };
        let mut listed = properties.clone();
        listed.insert("name".to_owned(), scalar);
        json!({ "anyOf": [
            { "type": ["object", "null"], "additionalProperties": class(&properties) },
            { "type": "array", "items": class(&listed) },
        ]})
    }
}

fn shown_class(class: &PowerClass) -> Json {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Option<Json>| {
        shown.extend(value.map(|value| (name.to_owned(), value)));
    };
    let text = |value: &dyn std::fmt::Display| json!(value.to_string());
    put("governor", class.governor.as_ref().map(|it| json!(it)));
    put("minFreq", class.min.as_ref().map(|it| text(it)));
    put("maxFreq", class.max.as_ref().map(|it| text(it)));
    put("energyPerformancePreference", class.preference.as_ref().map(|it| text(it)));
    put("turbo", class.turbo.map(|it| json!(it)));
    let priority = class.turbo_priority;
    put("turboPriority", (priority > 0).then(|| json!(priority)));
    put("maxLatency", class.latency.as_ref().map(|it| text(it)));
    let states = &class.disabled_states;
    put("disabledCstates", (!states.is_empty()).then(|| json!(states)));
    put("uncoreMinFreq", class.uncore_min.as_ref().map(|it| text(it)));
    put("uncoreMaxFreq", class.uncore_max.as_ref().map(|it| text(it)));
    put("clos", class.clos.map(|it| json!(it)));
    Json::Object(shown)
}

impl Tree for ClassOf {
    fn expected(&self) -> String {
        "the name of a class, or none".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut reader = Reader::default();
        match reader.class_name(field.key, field.value) {
            Some(Some(name)) => drop(config.cpu_classes.uses.insert(self.0, name)),
            Some(None) => drop(config.cpu_classes.uses.remove(&self.0)),
            None => {}
        }
        reader.errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        json!(config.cpu_classes.uses.get(&self.0).map_or("none", String::as_str))
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

impl Tree for Schedule {
    fn expected(&self) -> String {
        "a list of lines such as {at: \"22:00\", exclusive: power}".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut reader = Reader::default();
        let mut turns: Vec<Turn> = Vec::new();
        match &field.value.value {
            Value::List(items) => {
                for item in items {
                    let turn = match &item.value {
                        Value::Map(entries) => read_turn(&mut reader, field.key, item.at, entries),
                        _ => {
                            reader.wrong(
                                item.at,
                                format!("`{}`: expected {}", field.key, self.expected()),
                            );
                            None
                        }
                    };
                    if turn.as_ref().is_some_and(|turn| turns.iter().any(|it| it.at == turn.at)) {
                        reader.wrong(item.at, format!("`{}`: duplicate time", field.key));
                    }
                    turns.extend(turn);
                }
            }
            Value::Null => {}
            _ => reader
                .wrong(field.value.at, format!("`{}`: expected {}", field.key, self.expected())),
        }
        turns.sort_by_key(|turn| turn.at);
        config.cpu_classes.schedule = turns;
        reader.errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        let turns = config.cpu_classes.schedule.iter().map(|turn| {
            let mut shown = Map::new();
            shown.insert("at".to_owned(), json!(turn.at.to_string()));
            for (cpus, class) in &turn.classes {
                shown.insert(cpus.name().to_owned(), json!(class.as_deref().unwrap_or("none")));
            }
            Json::Object(shown)
        });
        turns.collect()
    }

    fn schema(&self) -> Json {
        let mut properties = Map::new();
        for cpus in CpuUse::ALL {
            properties.insert(cpus.name().to_owned(), json!({ "type": "string", "minLength": 1 }));
        }
        let at = json!({ "type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9](:[0-5][0-9])?$" });
        properties.insert("at".to_owned(), at);
        json!({
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "required": ["at"],
                "properties": properties,
                "additionalProperties": false,
            },
        })
    }
}

fn read_turn(
    reader: &mut Reader,
    key: &str,
    at: Position,
    entries: &[(Position, String, Node)],
) -> Option<Turn> {
    let (mut time, mut classes) = (None, BTreeMap::new());
    for (at, name) in repeated(entries) {
        reader.wrong(at, format!("duplicate key `{key}.{name}`"));
    }
    for (at, name, value) in entries {
        if name == "at" {
            let text = reader.text(key, value)?;
            // `T22` and `22` are times, too, for the library.
            let parsed = text.parse::<Time>().ok().filter(|_| matches!(text.len(), 5 | 8));
            if parsed.is_none() {
                reader
                    .wrong(value.at, format!("`{key}`: `{text}` is not a time such as \"22:00\""));
                return None;
            }
            time = parsed;
        } else if let Some(cpus) = CpuUse::ALL.into_iter().find(|cpus| cpus.name() == name) {
            classes.insert(cpus, reader.class_name(&format!("{key}.{name}"), value)?);
        } else {
            let known = CpuUse::ALL.map(CpuUse::name).join(", ");
            reader.wrong(*at, format!("unknown key `{name}` in `{key}`; known are at, {known}"));
        }
    }
    if time.is_none() {
        reader.wrong(at, format!("`{key}`: a line without a time: at: \"22:00\""));
    }
    Some(Turn { at: time?, classes })
}

impl Tree for Zone {
    fn expected(&self) -> String {
        "a time zone such as Europe/Berlin or UTC, or local".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut reader = Reader::default();
        match reader.text(field.key, field.value) {
            Some("local") => config.cpu_classes.time_zone = None,
            Some(name) if TimeZone::get(name).is_ok() => {
                config.cpu_classes.time_zone = Some(name.to_owned());
            }
            Some(name) => reader.wrong(
                field.value.at,
                format!("`{}` is `{name}`, expected {}", field.key, self.expected()),
            ),
            None => {}
        }
        reader.errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        json!(config.cpu_classes.time_zone.as_deref().unwrap_or("local"))
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}
