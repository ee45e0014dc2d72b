//! The keys of `cpuClasses`. In: trees of the file. Out: what they mean, or every mistake in them.
//!
//! Classes are a mapping by name, as in CRI Resource Manager, or a list of mappings with a `name`, as in nri-plugins; the names of its fields are
//! accepted.

use std::collections::BTreeMap;

use bayplan_enforcement::power::{Frequency, PowerClass};
use bayplan_types::CLOS_COUNT;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use serde_json::{Map, Value as Json, json};

use super::{CpuUse, Turn};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::{Entry, Fields, LINES, mapping};
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
pub(crate) const INSTEAD_OF_SPEED_SELECT: &str =
    "name a class of service with `clos`, and its limits in `cpuClasses.speedSelect`";
const PRIORITY: &str = "a whole number from 0 on";
const EXPECTED: &str = "names of classes, each with lines such as `minFreq: base`";

/// The own name of a field.
fn field_name(key: &str) -> Option<&'static str> {
    FIELDS.iter().find(|(own, theirs)| *own == key || *theirs == key).map(|(own, _)| *own)
}

fn class(fields: &mut Fields<'_>) -> PowerClass {
    let mut class = PowerClass::default();
    let entries = fields.entries_by_name(LINES, field_name);
    for (name, (at, key, value)) in &entries {
        match name.unwrap_or_default() {
            "governor" => class.governor = fields.text(key, value).map(str::to_owned),
            "minFreq" => class.min = fields.read(key, value),
            "maxFreq" => class.max = upper(fields, key, value),
            "energyPerformancePreference" => match &value.value {
                Value::Scalar(text) if text == "default" || text.is_empty() => {}
                _ => class.preference = fields.read(key, value),
            },
            "turbo" => class.turbo = fields.flag(key, value),
            "turboPriority" => {
                let priority = fields.number(key, value, 0..=u32::MAX, PRIORITY);
                class.turbo_priority = priority.unwrap_or_default();
            }
            "maxLatency" => class.latency = fields.read(key, value),
            "disabledCstates" => {
                let states = fields.texts(key, value, "one such as [C6]").into_iter();
                class.disabled_states = states.map(|(_, state)| state).collect();
            }
            "uncoreMinFreq" => class.uncore_min = fields.read(key, value),
            "uncoreMaxFreq" => class.uncore_max = upper(fields, key, value),
            "clos" => class.clos = fields.number(key, value, 0..=CLOS_COUNT - 1, CLOS),
            // Of a class in a list.
            _ if key == "name" => {}
            _ if SPEED_SELECT.contains(&key.as_str()) => {
                fields.wrong(*at, format!("`{key}`: {INSTEAD_OF_SPEED_SELECT}"));
            }
            _ => fields.unknown(*at, key, &FIELDS.map(|(own, _)| own)),
        }
    }
    bounds(fields, &entries, ["minFreq", "maxFreq"], [class.min, class.max]);
    let uncore = [class.uncore_min, class.uncore_max];
    bounds(fields, &entries, ["uncoreMinFreq", "uncoreMaxFreq"], uncore);
    class
}

/// A lowest frequency above the highest is a mistake on every machine where both are of one kind.
fn bounds(
    fields: &mut Fields<'_>,
    entries: &[(Option<&str>, Entry<'_>)],
    [low, high]: [&str; 2],
    bounds: [Option<Frequency>; 2],
) {
    let [Some(min), Some(max)] = bounds else { return };
    let is_above = match (min, max) {
        (Frequency::Exactly(min), Frequency::Exactly(max)) => min > max,
        _ => place_in_range(min).zip(place_in_range(max)).is_some_and(|(min, max)| min > max),
    };
    if is_above {
        let at =
            entries.iter().find(|(name, _)| *name == Some(low)).map(|(_, (.., value))| value.at);
        let message = format!("`{low}` is {min}, above `{high}`, {max}; expected at most that");
        fields.wrong(at.unwrap_or_default(), message);
    }
}

fn upper(fields: &mut Fields<'_>, key: &str, value: &Node) -> Option<Frequency> {
    let frequency = fields.read(key, value)?;
    if matches!(frequency, Frequency::BelowMax(_)) {
        fields.wrong(value.at, format!("`{key}`: `{frequency}` is for lowest frequencies only"));
        return None;
    }
    Some(frequency)
}

/// Names of classes, and what stands below each.
fn class_nodes<'a>(fields: &mut Fields<'a>, node: &'a Node) -> Vec<Entry<'a>> {
    let Value::List(items) = &node.value else { return fields.names(EXPECTED) };
    let mut named = Vec::new();
    for item in items {
        let entries = mapping(item).unwrap_or_default();
        match entries.iter().find(|(_, key, _)| key == "name").map(|(.., name)| &name.value) {
            Some(Value::Scalar(name)) => named.push((item.at, name.clone(), item)),
            _ => fields.wrong(item.at, "expected a class with a `name`".to_owned()),
        }
    }
    named
}

/// A class, or none.
fn class_name(text: &str) -> Option<String> {
    (text != "none").then(|| text.to_owned())
}

impl Tree for Classes {
    fn expected(&self) -> String {
        EXPECTED.to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let mut fields = Fields::new(field.key, field.value, &mut errors);
        let mut classes = BTreeMap::new();
        for (at, name, value) in class_nodes(&mut fields, field.value) {
            let class = class(&mut fields.inner(&name, value));
            if name == "none" || name.trim().is_empty() {
                fields.wrong(at, format!("a class cannot be called `{name}`"));
            } else if classes.insert(name.clone(), class).is_some() {
                fields.wrong(at, format!("duplicate class `{name}`"));
            }
        }
        config.cpu_classes.classes = classes;
        errors
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
        match field.scalar(&self.expected()).map(class_name) {
            Ok(Some(name)) => drop(config.cpu_classes.uses.insert(self.0, name)),
            Ok(None) => drop(config.cpu_classes.uses.remove(&self.0)),
            Err(error) => return vec![error],
        }
        Vec::new()
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
        let (mut errors, mut turns) = (Vec::new(), Vec::<Turn>::new());
        let mut fields = Fields::new(field.key, field.value, &mut errors);
        let items = match &field.value.value {
            Value::List(items) => items.as_slice(),
            Value::Null => &[],
            _ => {
                fields.wrong(field.value.at, format!("expected {}", self.expected()));
                &[]
            }
        };
        for item in items {
            let turn = match &item.value {
                Value::Map(_) => turn(&mut Fields::new(field.key, item, &mut errors)),
                _ => {
                    let message = format!("`{}`: expected {}", field.key, self.expected());
                    errors.push(ConfigError { at: item.at, message });
                    None
                }
            };
            if turn.as_ref().is_some_and(|turn| turns.iter().any(|it| it.at == turn.at)) {
                let message = format!("`{}`: duplicate time", field.key);
                errors.push(ConfigError { at: item.at, message });
            }
            turns.extend(turn);
        }
        turns.sort_by_key(|turn| turn.at);
        config.cpu_classes.schedule = turns;
        errors
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

fn turn(fields: &mut Fields<'_>) -> Option<Turn> {
    let (mut time, mut classes) = (None, BTreeMap::new());
    let entries = fields.entries();
    for (at, key, value) in &entries {
        if key == "at" {
            time = fields.parsed(key, value, "a time such as \"22:00\"", parse_time);
        } else if let Some(cpus) = CpuUse::ALL.into_iter().find(|cpus| cpus.name() == key) {
            classes.extend(fields.text(key, value).map(|text| (cpus, class_name(text))));
        } else {
            let known: Vec<&str> =
                ["at"].into_iter().chain(CpuUse::ALL.map(CpuUse::name)).collect();
            fields.unknown(*at, key, &known);
        }
    }
    if !entries.iter().any(|(_, key, _)| key == "at") {
        fields.wrong(fields.at(), "a line without a time: at: \"22:00\"".to_owned());
    }
    Some(Turn { at: time?, classes })
}

/// `T22` and `22` are times, too, for the library.
fn parse_time(text: &str) -> Option<Time> {
    text.parse().ok().filter(|_| matches!(text.len(), 5 | 8))
}

impl Tree for Zone {
    fn expected(&self) -> String {
        "a time zone such as Europe/Berlin or UTC, or local".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        match field.scalar(&self.expected()) {
            Ok("local") => config.cpu_classes.time_zone = None,
            Ok(name) if TimeZone::get(name).is_ok() => {
                config.cpu_classes.time_zone = Some(name.to_owned());
            }
            Ok(name) => return vec![field.wrong(&format!("`{name}`"), &self.expected())],
            Err(error) => return vec![error],
        }
        Vec::new()
    }

    fn shown(&self, config: &mut Config) -> Json {
        json!(config.cpu_classes.time_zone.as_deref().unwrap_or("local"))
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}
