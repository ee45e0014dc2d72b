//! How a file says which containers keep what the runtime gives them. In: a tree of the file. Out: expressions, or every mistake in them.

use bayplan_workload::annotations::Condition;
use serde_json::{Value as Json, json};

use crate::config::Config;
use crate::errors::ConfigError;
use crate::groups::read_conditions;
use crate::kind::{Field, Tree};
use crate::yaml::Value;

/// `requests.preserve`.
pub(crate) struct Preserved;

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
