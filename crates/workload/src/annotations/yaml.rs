//! YAML in annotations, read with little patience: it is untrusted.

use serde_json::{Map, Value};

use super::values::{Misread, shown};

/// One document without aliases, so that its size is that of its text.
pub(super) fn parse_yaml(text: &str) -> Result<Value, Misread> {
    let mut options = serde_yaml::Options::default();
    if let Some(budget) = &mut options.budget {
        budget.max_aliases = 0;
        budget.max_depth = 8;
    }
    serde_yaml::from_str_with_options(text, options).map_err(|error| {
        let at = error.location().map(|at| format!(" in line {}", at.line()));
        Misread::because(format!("not YAML{}", at.unwrap_or_default()))
    })
}

/// A mistyped key must not pass for one that is missing.
pub(super) fn refuse_unknown(fields: &Map<String, Value>, known: &[&str]) -> Result<(), Misread> {
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let known = known.join(", ");
            Err(Misread::because(format!("`{}` is unknown; known are {known}", shown(key, 40))))
        }
    }
}

/// A word, also one that looks like a number.
pub(super) fn string(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A list of words.
pub(super) fn strings(name: &str, value: &Value) -> Result<Vec<String>, Misread> {
    let list = value.as_array().and_then(|items| items.iter().map(string).collect());
    list.ok_or_else(|| Misread::because(format!("`{name}` is not a list of words")))
}
