//! The key `requests.preserve`: containers of which nothing is set. In: expressions of the file. Out: conditions.

use bayplan_workload::annotations::Condition;
use serde_json::{Value as Json, json};

use super::Config;
use super::groups::read_conditions;
use super::kind::{Field, Tree};
use super::read::ConfigError;
use bayplan_config::yaml::Value;

/// `requests.preserve`.
pub(super) struct Preserved;

impl Tree for Preserved {
    fn expected(&self) -> String {
        "a list of expressions such as {key: namespace, operator: In, values: [infra]}".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        if matches!(field.value.value, Value::Null) {
            return Vec::new();
        }
        match read_conditions(field) {
            Ok(read) => {
                config.requests.preserved = read;
                Vec::new()
            }
            Err(errors) => errors,
        }
    }

    fn shown(&self, config: &mut Config) -> Json {
        config.requests.preserved.iter().map(Condition::to_value).collect()
    }

    fn schema(&self) -> Json {
        json!({ "type": ["array", "null"], "items": { "type": "object" } })
    }
}
