//! What a container wants to be near, in the expressions of CRI Resource Manager. In: the YAML of a pod, then the containers of the node. Out:
//! weights by container. Only the new container's own expressions count; one that is placed does not move for them.
//!
//! ```yaml
//! web: [cache]                # short: the containers of this name in the pod, and they it, with weight 1
//! worker:
//! - scope: {key: namespace, operator: In, values: [batch]}     # default: the same pod
//!   match: {key: pod/labels/app, operator: Equals, values: [feed]}
//!   weight: 100               # 1 without it
//! ```

use std::borrow::Cow;

use bayplan_allocator::ContainerId;
use serde_json::{Map, Value};

use super::values::{Misread, Said, matches_glob, shown};
use super::yaml::{parse_yaml, refuse_unknown, string, strings};
use crate::container::NewContainer;

/// Weights are cut to this and its negative.
const WEIGHT_MAX: i32 = 1000;
/// Weight of what the configuration says about all containers.
const WEIGHT_IMPLICIT: i32 = 10;
/// So many expressions, and so many values in them, one container may have: all are compared with every container of the node while
/// kubelet waits.
const EXPRESSIONS_MAX: usize = 64;
const VALUES_MAX: usize = 64;
/// So many keys may be joined.
const KEYS_MAX: usize = 8;

/// What an annotation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Near,
    Far,
}

/// One expression: each container that is in the scope and matches weighs this much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    scope: Scope,
    matches: Condition,
    weight: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    SamePod,
    SameNamespace,
    Where(Condition),
}

/// A question about one container: `{key: pod/labels/app, operator: In, values: [a, b]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    keys: Vec<String>,
    /// Stands between the values of several keys.
    separator: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    NotEqual,
    In,
    NotIn,
    Exists,
    NotExist,
    AlwaysTrue,
    Matches,
    MatchesNot,
    MatchesAny,
    MatchesNone,
}

const OPERATORS: [(&str, Operator); 11] = [
    ("Equals", Operator::Equals),
    ("NotEqual", Operator::NotEqual),
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("NotExist", Operator::NotExist),
    ("AlwaysTrue", Operator::AlwaysTrue),
    ("Matches", Operator::Matches),
    ("MatchesNot", Operator::MatchesNot),
    ("MatchesAny", Operator::MatchesAny),
    ("MatchesNone", Operator::MatchesNone),
];

/// How much each of the `others` draws (above zero) or repels (below) the new container; those that it does not care about are left out.
pub fn affinities<'a>(
    expressions: &[Affinity],
    newcomer: &NewContainer,
    others: impl IntoIterator<Item = (ContainerId, &'a NewContainer)>,
) -> Vec<(ContainerId, i32)> {
    if expressions.is_empty() {
        return Vec::new();
    }
    let weigh = |other: &NewContainer| {
        let counts = expressions.iter().filter(|it| it.counts(newcomer, other));
        let sum = counts.fold(0i32, |sum, it| sum.saturating_add(it.weight));
        sum.clamp(-WEIGHT_MAX, WEIGHT_MAX)
    };
    let weighed = others.into_iter().map(|(id, other)| (id, weigh(other)));
    weighed.filter(|(_, weight)| *weight != 0).collect()
}

/// Adds what an annotation says about the container for which it is read.
pub(super) fn parse(
    affinity: &mut Vec<Affinity>,
    said: &Said<'_>,
    sign: Sign,
) -> Result<(), Misread> {
    let yaml = parse_yaml(said.value)?;
    let Value::Object(containers) = &yaml else {
        return Err(Misread::because("not a mapping from container names"));
    };
    for (name, items) in containers {
        let items = items.as_array();
        let items = items
            .ok_or_else(|| Misread::because(format!("`{}` is not a list", shown(name, 40))))?;
        for item in items {
            match string(item) {
                Some(other) if name == said.container => affinity.push(named(&other, sign)),
                Some(other) if other == said.container => affinity.push(named(name, sign)),
                Some(_) => {}
                None => {
                    let parsed = parse_expression(item, sign)?;
                    affinity.extend(Some(parsed).filter(|_| name == said.container));
                }
            }
        }
    }
    if affinity.len() > EXPRESSIONS_MAX {
        return Err(Misread::because(format!("more than {EXPRESSIONS_MAX} expressions")));
    }
    match affinity.iter().map(Affinity::values).sum::<usize>() > VALUES_MAX {
        true => Err(Misread::because(format!("more than {VALUES_MAX} values"))),
        false => Ok(()),
    }
}

/// The container of this name in the same pod.
fn named(name: &str, sign: Sign) -> Affinity {
    let matches = Condition {
        keys: vec!["name".to_owned()],
        operator: Operator::Equals,
        values: vec![name.to_owned()],
        ..Condition::always()
    };
    Affinity { scope: Scope::SamePod, matches, weight: sign.of(1) }
}

fn parse_expression(item: &Value, sign: Sign) -> Result<Affinity, Misread> {
    let Value::Object(fields) = item else {
        return Err(Misread::because("an expression is neither a name nor a mapping"));
    };
    refuse_unknown(fields, &["scope", "match", "weight"])?;
    let scope = match fields.get("scope") {
        None | Some(Value::Null) => Scope::SamePod,
        Some(scope) => Scope::Where(Condition::parse("scope", scope)?),
    };
    let matches = fields.get("match").ok_or_else(|| Misread::because("`match` is missing"))?;
    let weight = match fields.get("weight") {
        None | Some(Value::Null) => 1,
        Some(weight) => weight
            .as_i64()
            .and_then(|it| i32::try_from(it.clamp(-i64::from(WEIGHT_MAX), WEIGHT_MAX.into())).ok())
            .ok_or_else(|| Misread::because("`weight` is not a whole number"))?,
    };
    Ok(Affinity { scope, matches: Condition::parse("match", matches)?, weight: sign.of(weight) })
}

impl Sign {
    fn of(self, weight: i32) -> i32 {
        match self {
            Sign::Near => weight,
            Sign::Far => -weight,
        }
    }
}

impl Affinity {
    /// Containers of one pod near each other, as the configuration may have it.
    pub(crate) fn of_same_pod() -> Affinity {
        Affinity::implicit(Scope::SamePod)
    }

    /// Containers of one namespace near each other, as the configuration may have it.
    pub(crate) fn of_same_namespace() -> Affinity {
        Affinity::implicit(Scope::SameNamespace)
    }

    fn implicit(scope: Scope) -> Affinity {
        Affinity { scope, matches: Condition::always(), weight: WEIGHT_IMPLICIT }
    }

    /// How many things it compares.
    fn values(&self) -> usize {
        let in_scope = match &self.scope {
            Scope::SamePod | Scope::SameNamespace => 0,
            Scope::Where(condition) => condition.values.len(),
        };
        in_scope + self.matches.values.len()
    }

    fn counts(&self, newcomer: &NewContainer, other: &NewContainer) -> bool {
        let is_in_scope = match &self.scope {
            Scope::SamePod => newcomer.pod.is(&other.pod),
            Scope::SameNamespace => newcomer.pod.namespace == other.pod.namespace,
            Scope::Where(condition) => condition.holds(other),
        };
        is_in_scope && self.matches.holds(other)
    }
}

impl Condition {
    fn always() -> Condition {
        Condition {
            keys: Vec::new(),
            separator: String::new(),
            operator: Operator::AlwaysTrue,
            values: Vec::new(),
        }
    }

    /// Reads one that stands outside of a pod.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> Result<Condition, String> {
        Condition::parse("match", value)
            .map_err(|misread| misread.detail.unwrap_or_else(|| "not understood".to_owned()))
    }

    /// As [`Condition::read`] takes it.
    pub fn to_value(&self) -> Value {
        let operator = OPERATORS.iter().find(|(_, it)| *it == self.operator);
        let key = match &self.keys[..] {
            [key] => key.clone(),
            keys => format!(":,{}{}", self.separator, keys.join(",")),
        };
        let mut fields = Map::new();
        if self.operator != Operator::AlwaysTrue {
            fields.insert("key".to_owned(), key.into());
        }
        fields.insert("operator".to_owned(), operator.map_or("", |(name, _)| name).into());
        if !self.values.is_empty() {
            fields.insert("values".to_owned(), self.values.clone().into());
        }
        Value::Object(fields)
    }

    fn parse(name: &str, value: &Value) -> Result<Condition, Misread> {
        let Value::Object(fields) = value else {
            return Err(Misread::because(format!("`{name}` is not a mapping")));
        };
        refuse_unknown(fields, &["key", "operator", "values"])?;
        let operator = parse_operator(fields)?;
        let values = match fields.get("values") {
            None | Some(Value::Null) => Vec::new(),
            Some(values) => strings("values", values)?,
        };
        let (needed, is_fitting) = match operator {
            Operator::Exists | Operator::NotExist | Operator::AlwaysTrue => {
                ("no", values.is_empty())
            }
            Operator::Equals | Operator::NotEqual | Operator::Matches | Operator::MatchesNot => {
                ("one", values.len() == 1)
            }
            Operator::In | Operator::NotIn | Operator::MatchesAny | Operator::MatchesNone => {
                ("some", !values.is_empty())
            }
        };
        if !is_fitting {
            let count = values.len();
            return Err(Misread::because(format!(
                "{operator:?} needs {needed} value, not {count}"
            )));
        }
        let key = fields.get("key").and_then(string).unwrap_or_default();
        let (keys, separator) = split_keys(&key);
        let is_known = keys.len() <= KEYS_MAX && keys.iter().all(|key| is_key(key));
        if operator != Operator::AlwaysTrue && !is_known {
            return Err(Misread::because(format!("key `{}` is unknown", shown(&key, 40))));
        }
        Ok(Condition { keys, separator, operator, values })
    }

    /// Whether it is so.
    pub fn holds(&self, container: &NewContainer) -> bool {
        let value = self.value_of(container);
        let is_one = |test: &dyn Fn(&str, &str) -> bool| {
            value.as_deref().is_some_and(|it| self.values.iter().any(|value| test(value, it)))
        };
        let equal = |value: &str, it: &str| value == it || value == "*";
        match self.operator {
            Operator::Equals | Operator::In => is_one(&equal),
            Operator::NotEqual | Operator::NotIn => !is_one(&equal),
            Operator::Exists => value.is_some(),
            Operator::NotExist => value.is_none(),
            Operator::AlwaysTrue => true,
            Operator::Matches | Operator::MatchesAny => is_one(&matches_glob),
            Operator::MatchesNot | Operator::MatchesNone => !is_one(&matches_glob),
        }
    }

    /// `None`: it has none of the keys.
    fn value_of<'a>(&self, container: &'a NewContainer) -> Option<Cow<'a, str>> {
        if let [key] = &self.keys[..] {
            return value_of(container, key).map(Cow::Borrowed);
        }
        let values: Vec<Option<&str>> =
            self.keys.iter().map(|key| value_of(container, key)).collect();
        let has_any = values.iter().any(Option::is_some);
        let values: Vec<&str> = values.into_iter().map(Option::unwrap_or_default).collect();
        has_any.then(|| values.join(&self.separator).into())
    }
}

fn parse_operator(fields: &Map<String, Value>) -> Result<Operator, Misread> {
    let word = fields.get("operator").and_then(string).unwrap_or_default();
    let found = OPERATORS.iter().find(|(name, _)| *name == word);
    found.map(|(_, operator)| *operator).ok_or_else(|| {
        let known = OPERATORS.map(|(name, _)| name).join(", ");
        Misread::because(format!("operator `{}` is none of {known}", shown(&word, 40)))
    })
}

/// Several keys are one value: `:pod/name:name`, joined with a colon, or with separators of one's own for keys and values behind the
/// colon: `:,-pod/name,name`.
fn split_keys(key: &str) -> (Vec<String>, String) {
    let is_separator = |c: char| c.is_ascii_punctuation() && !matches!(c, '/' | '.');
    let Some(rest) = key.strip_prefix(':').filter(|rest| rest.len() >= 3) else {
        return (vec![key.to_owned()], String::new());
    };
    let mut chars = rest.chars();
    let (keys, between_keys, between_values) = match (chars.next(), chars.next()) {
        (Some(keys), Some(values)) if is_separator(keys) && is_separator(values) => {
            (chars.as_str(), keys, values)
        }
        _ => (rest, ':', ':'),
    };
    let keys = keys.split(between_keys).map(str::to_owned);
    (keys.collect(), between_values.to_string())
}

/// Ids and tags of a container, which CRI Resource Manager has too, are not known when it is placed.
const KEYS: [&str; 8] = [
    "name",
    "namespace",
    "qosclass",
    "pod/name",
    "pod/namespace",
    "pod/qosclass",
    "pod/id",
    "pod/uid",
];

/// Whether containers can have such a key.
pub fn is_key(key: &str) -> bool {
    KEYS.contains(&key) || key.starts_with("labels/") || key.starts_with("pod/labels/")
}

/// What a key says about a container. Its labels are those of its pod: kubelet gives containers none of their own.
pub fn value_of<'a>(container: &'a NewContainer, key: &str) -> Option<&'a str> {
    let pod = &container.pod;
    if let Some(label) = key.strip_prefix("pod/").unwrap_or(key).strip_prefix("labels/") {
        return match pod.labels.get(label) {
            Some(value) => Some(value),
            None if key == "labels/io.kubernetes.container.name" => Some(&container.name),
            None => None,
        };
    }
    match key {
        "name" => Some(&container.name),
        "pod/name" => Some(&pod.name),
        "namespace" | "pod/namespace" => Some(&pod.namespace),
        "qosclass" | "pod/qosclass" => pod.qos.map(|qos| qos.name()),
        "pod/uid" => Some(&pod.uid),
        "pod/id" => Some(&pod.id),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
