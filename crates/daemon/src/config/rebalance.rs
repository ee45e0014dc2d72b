//! The section `rebalance`: whether it is looked for containers that suffer from others.

use std::collections::BTreeSet;
use std::time::Duration;

use bayplan_cri::annotations::Words;
use bayplan_rebalance::Knob;
use serde_json::{Value as Json, json};

use super::Config;
use super::kind::{Field, Tree};
use super::read::ConfigError;
use crate::yaml::Value;

/// How far the rebalancer goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebalanceMode {
    /// Nothing is looked at.
    Off,
    /// What would be done is said.
    #[default]
    Observe,
}

impl RebalanceMode {
    /// As the configuration writes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            RebalanceMode::Off => "off",
            RebalanceMode::Observe => "observe",
        }
    }
}

/// As the configuration writes them.
pub(super) const MODES: &Words<RebalanceMode> = &[
    (RebalanceMode::Off.name(), RebalanceMode::Off),
    (RebalanceMode::Observe.name(), RebalanceMode::Observe),
];

/// Everything about the rebalancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebalanceConfig {
    /// How far it goes.
    pub mode: RebalanceMode,
    /// How often it looks.
    pub interval: Duration,
    /// What it never proposes.
    pub forbidden: BTreeSet<Knob>,
}

impl Default for RebalanceConfig {
    fn default() -> RebalanceConfig {
        let (mode, interval) = (RebalanceMode::default(), Duration::from_secs(5));
        RebalanceConfig { mode, interval, forbidden: BTreeSet::new() }
    }
}

/// `rebalance.forbid`.
pub(super) struct ForbiddenKnobs;

impl Tree for ForbiddenKnobs {
    fn expected(&self) -> String {
        format!("a list with some of {}", Knob::ALL.map(Knob::name).join(", "))
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
                    match Knob::ALL.into_iter().find(|knob| knob.name() == word) {
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
        json!({ "type": "array", "items": { "enum": Knob::ALL.map(Knob::name) } })
    }
}
