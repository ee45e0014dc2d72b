//! The configuration file in the words of JSON Schema, for editors and for programs that make such files.

use serde_json::{Map, Value as Json, json};

use super::exclusions::exclusion_schema;
use super::kind::Kind;
use super::settings::Settings;
use super::table::{Key, keys_of};
use crate::config::Config;

/// A schema of draft 2020-12. What it refuses is a mistake; what it accepts can still have some that no schema can tell, such as CPUs
/// twice in a list.
pub fn schema() -> Json {
    let defaults = Settings::of(&Config::default(), &[]);
    let mut schema = section("", &defaults);
    schema.extend([
        ("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema")),
        ("title".to_owned(), json!("Configuration of bayplan")),
    ]);
    Json::Object(schema)
}

/// A mapping of the keys of a section, or of those outside of all.
fn section(name: &str, defaults: &Settings) -> Map<String, Json> {
    let mut properties = Map::new();
    for key in keys_of(name) {
        for spelling in key.spellings() {
            properties.insert(spelling, property(key, defaults));
        }
    }
    let mut section = object(Kind::Section.schema());
    section.insert("additionalProperties".to_owned(), json!(false));
    section.insert("properties".to_owned(), Json::Object(properties));
    if name == "requests" {
        section.insert("allOf".to_owned(), exclusion_schema());
    }
    section
}

fn property(key: &Key, defaults: &Settings) -> Json {
    let mut property = match key.kind {
        Kind::Section => section(key.name, defaults),
        _ => object(key.kind.schema()),
    };
    property.insert("description".to_owned(), json!(key.text));
    if let Some(default) = defaults.iter().find(|it| it.key == key.name) {
        property.insert("default".to_owned(), default.value.clone());
    }
    Json::Object(property)
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(map) => map,
        _ => Map::new(),
    }
}
