//! `bayplan annotations`: what pods can ask for, as this version reads it.

use bayplan_workload::annotations::{FOREIGN, Field, KEYS, render_text};
use serde::Serialize;

use crate::args::{Output, OutputOptions};
use crate::visible::print_json;

/// All keys; format `bayplan-annotations/1`.
#[derive(Debug, Serialize)]
struct Reference {
    format: &'static str,
    annotations: Vec<Entry>,
    /// Annotations and labels of other systems.
    foreign: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    values: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'static str>,
    meaning: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    older_names: Vec<String>,
    /// Fields of a request that it fills.
    fills: Vec<&'static str>,
}

/// Prints the table.
pub(crate) fn run(options: &OutputOptions) -> anyhow::Result<()> {
    match options.output {
        Output::Text => out!("{}", render_text())?,
        Output::Json => print_json(&reference())?,
    }
    Ok(())
}

fn paths(fields: &[Field]) -> Vec<&'static str> {
    fields.iter().map(|field| field.path()).collect()
}

fn reference() -> Reference {
    let annotations = KEYS.iter().map(|key| Entry {
        name: key.annotation(),
        values: key.values.text(),
        default: Some(key.default),
        meaning: key.meaning,
        older_names: key.older_names(),
        fills: paths(key.fills),
    });
    let foreign = FOREIGN.iter().map(|it| Entry {
        name: it.name.to_owned(),
        values: it.values.to_owned(),
        default: None,
        meaning: it.meaning,
        older_names: Vec::new(),
        fills: paths(it.fills),
    });
    Reference {
        format: "bayplan-annotations/1",
        annotations: annotations.collect(),
        foreign: foreign.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_every_key_with_what_it_fills() {
        let json = serde_json::to_value(reference()).unwrap();
        assert_eq!(json["annotations"].as_array().map(Vec::len), Some(KEYS.len()));
        assert_eq!(json["annotations"][0]["fills"][0], "preferences.prefer_shared_cpus");
        assert_eq!(json["foreign"][0]["name"], "koordinator.sh/qosClass");
    }
}
