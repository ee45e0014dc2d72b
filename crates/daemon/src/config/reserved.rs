//! The key `reservedCpus`: a list of CPUs, or an amount for which the machine has the CPUs chosen.

use bayplan_types::{CpuSet, MilliCpu};
use serde_json::{Value as Json, json};

use super::Config;
use super::kind::{Field, Tree};
use super::read::ConfigError;
use bayplan_config::yaml::Value;

/// `reservedCpus`.
pub(super) struct ReservedCpus;

/// More than any machine has.
const AMOUNT_MAX: u64 = 65_536_000;

impl Tree for ReservedCpus {
    fn expected(&self) -> String {
        "a CPU list such as \"0,28\" or \"0-3\", or an amount such as 750m or 2 CPUs".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let found = match &field.value.value {
            Value::Scalar(text) => match (amount(text), text.parse::<CpuSet>()) {
                (Some(amount), _) => {
                    config.reserved_amount = Some(amount);
                    return Vec::new();
                }
                (None, Ok(cpus)) => {
                    config.reserved_cpus = cpus;
                    return Vec::new();
                }
                (None, Err(error)) => format!("`{text}` ({error})"),
            },
            Value::Null => "empty".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        };
        let message = format!("`{}` is {found}, expected {}", field.key, self.expected());
        vec![ConfigError { at: field.value.at, message }]
    }

    fn shown(&self, config: &mut Config) -> Json {
        match config.reserved_amount {
            Some(amount) => json!(format!("{}m", amount.0)),
            None => json!(config.reserved_cpus.to_string()),
        }
    }

    fn schema(&self) -> Json {
        json!({
            "type": ["string", "integer"],
            "minimum": 0,
            "pattern": "^$|^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$|^[0-9]+m$|^[0-9]+ CPUs?$",
        })
    }
}

/// `750m`, `2 CPUs`; a number alone is a CPU.
fn amount(text: &str) -> Option<MilliCpu> {
    let whole = || text.strip_suffix(" CPUs").or_else(|| text.strip_suffix(" CPU"));
    let milli = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<u64>().ok()?,
        None => whole()?.parse::<u64>().ok()?.checked_mul(1000)?,
    };
    (1..=AMOUNT_MAX).contains(&milli).then_some(MilliCpu(milli))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};

    use crate::config::ConfigFile;

    fn check(text: &str, expected: Expect) {
        let shown = match ConfigFile::parse(Path::new("f"), &format!("reservedCpus: {text}\n")) {
            Ok(file) => file.config.differences(),
            Err(errors) => errors.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn reserved_cpus_are_a_list_or_an_amount() {
        check("\"0,28\"", expect![[r#"{"reservedCpus":"0,28"}"#]]);
        check("2", expect![[r#"{"reservedCpus":"2"}"#]]);
        check("750m", expect![[r#"{"reservedCpus":"750m"}"#]]);
        check("2 CPUs", expect![[r#"{"reservedCpus":"2000m"}"#]]);
        check(
            "0m",
            expect![[
                r#"f:1:15: `reservedCpus` is `0m` (`0m` is not a number or a range such as 0-3), expected a CPU list such as "0,28" or "0-3", or an amount such as 750m or 2 CPUs"#
            ]],
        );
        check(
            "1.5",
            expect![[
                r#"f:1:15: `reservedCpus` is `1.5` (`1.5` is not a number or a range such as 0-3), expected a CPU list such as "0,28" or "0-3", or an amount such as 750m or 2 CPUs"#
            ]],
        );
    }
}
