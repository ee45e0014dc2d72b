//! The keys of `rebalance` that are lists or mappings. In: trees of the file. Out: what they mean, or every mistake in them.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_rebalance::{Knob, Mode};
use bayplan_workload::annotations::Words;
use serde_json::{Value as Json, json};

use super::KNOBS;
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::one_of;
use crate::kind::{Field, Tree, as_switch, scalars};
use crate::yaml::Value;

/// As the configuration writes them.
pub(crate) const MODES: &Words<Mode> =
    &[("off", Mode::Off), ("observe", Mode::Observe), ("act", Mode::Act)];

/// `rebalance.namespaces`.
pub(crate) struct NamespaceModes;

impl Tree for NamespaceModes {
    fn expected(&self) -> String {
        "names of namespaces, each with off, observe or act".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let mut namespaces = BTreeMap::new();
        let mut wrong = |at, message: String| errors.push(ConfigError { at, message });
        match &field.value.value {
            Value::Map(entries) => {
                for (at, name, value) in entries {
                    let word = match &value.value {
                        Value::Scalar(word) => word.as_str(),
                        _ => "no word",
                    };
                    let mode = one_of(as_switch(word).unwrap_or(word), MODES);
                    let key = format!("{}.{name}", field.key);
                    match mode {
                        Some(mode) if namespaces.insert(name.clone(), mode).is_some() => {
                            wrong(*at, format!("duplicate key `{key}`"));
                        }
                        Some(_) => {}
                        None => wrong(
                            value.at,
                            format!("`{key}` is `{word}`, expected off, observe or act"),
                        ),
                    }
                }
            }
            Value::Null => {}
            _ => wrong(field.value.at, format!("`{}`: expected {}", field.key, self.expected())),
        }
        config.rebalance.namespaces = namespaces;
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        let namespaces = config.rebalance.namespaces.iter();
        Json::Object(namespaces.map(|(name, mode)| (name.clone(), json!(mode.name()))).collect())
    }

    fn schema(&self) -> Json {
        let words: Vec<Json> = MODES.iter().flat_map(|(word, _)| scalars(word)).collect();
        json!({ "type": ["object", "null"], "additionalProperties": { "enum": words } })
    }
}

/// `rebalance.forbid`.
pub(crate) struct ForbiddenKnobs;

impl Tree for ForbiddenKnobs {
    fn expected(&self) -> String {
        format!("a list with some of {}", KNOBS.map(Knob::name).join(", "))
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let mut wrong = |at, found: &str| {
            let message = format!("`{}` is {found}, expected {}", field.key, self.expected());
            errors.push(ConfigError { at, message });
        };
        let mut forbidden = BTreeSet::new();
        match &field.value.value {
            Value::List(items) => {
                for item in items {
                    let word = match &item.value {
                        Value::Scalar(word) => word.as_str(),
                        _ => "not only words",
                    };
                    match KNOBS.into_iter().find(|knob| knob.name() == word) {
                        Some(knob) => drop(forbidden.insert(knob)),
                        None => wrong(item.at, &format!("`{word}`")),
                    }
                }
            }
            _ => wrong(field.value.at, "not a list"),
        }
        config.rebalance.forbidden = forbidden;
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        config.rebalance.forbidden.iter().map(|knob| knob.name()).collect()
    }

    fn schema(&self) -> Json {
        json!({ "type": "array", "items": { "enum": KNOBS.map(Knob::name) } })
    }
}
