//! The key `memory.reclaim`: classes of containers of which idle memory is reclaimed. In: a tree of the file. Out: classes, or every mistake in them.

use std::time::Duration;

use bayplan_enforcement::ReclaimClass;
use bayplan_types::Bytes;
use serde_json::{Map, Value as Json, json};

use super::kind::{Field, Tree, parse_duration, parse_memory, render_duration, render_memory};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::{Fields, named};
use crate::yaml::Node;
use bayplan_enforcement::NO_RECLAIM_CLASS;

/// Classes by their names.
pub(super) struct ReclaimClasses;

const EXPECTED: &str = "names of classes, each with some of {every: 60s, bytes: 64Mi, maxStalledPercent: 1, swappiness: 60}";
const KEYS: [&str; 4] = ["every", "bytes", "maxStalledPercent", "swappiness"];
/// Shorter, and what was taken would not have been missed yet.
const EVERY_MIN: Duration = Duration::from_secs(1);
const BYTES_MIN: Bytes = Bytes(64 << 10);
/// More at once is no little any more.
const BYTES_MAX: Bytes = Bytes(1 << 30);
/// As the kernel has it (`vm.swappiness`).
const SWAPPINESS_MAX: u8 = 200;

/// What a class has of which it says nothing.
const DEFAULT: ReclaimClass = ReclaimClass {
    every: Duration::from_secs(60),
    bytes: Bytes(64 << 20),
    stalled_percent_max: 1,
    swappiness: None,
};

impl Tree for ReclaimClasses {
    fn expected(&self) -> String {
        EXPECTED.to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let read = |at, name: &str, value: &Node, errors: &mut Vec<ConfigError>| {
            if name == NO_RECLAIM_CLASS {
                let message = format!("`{name}` is what a pod says that is in no class");
                errors.push(ConfigError { at, message });
            }
            class(&format!("{}.{name}", field.key), value, errors)
        };
        config.reclaim_classes = named(field, EXPECTED, &mut errors, read);
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        let classes = config.reclaim_classes.iter();
        Json::Object(classes.map(|(name, class)| (name.clone(), shown_class(class))).collect())
    }

    fn schema(&self) -> Json {
        let class = json!({
            "type": ["object", "null"],
            "properties": {
                "every": { "type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(h|m|s|ms|us) ?)+$" },
                "bytes": { "type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi|Ti)$" },
                "maxStalledPercent": { "type": "integer", "minimum": 0, "maximum": 100 },
                "swappiness": { "type": "integer", "minimum": 0, "maximum": SWAPPINESS_MAX },
            },
            "additionalProperties": false,
        });
        json!({
            "type": ["object", "null"],
            "propertyNames": { "not": { "const": NO_RECLAIM_CLASS } },
            "additionalProperties": class,
        })
    }
}

/// All of it, also what is the default: it is what holds.
fn shown_class(class: &ReclaimClass) -> Json {
    let mut shown = Map::new();
    shown.insert("every".to_owned(), json!(render_duration(class.every)));
    shown.insert("bytes".to_owned(), json!(render_memory(Some(class.bytes))));
    shown.insert("maxStalledPercent".to_owned(), json!(class.stalled_percent_max));
    shown.extend(class.swappiness.map(|it| ("swappiness".to_owned(), json!(it))));
    Json::Object(shown)
}

fn class(name: &str, node: &Node, errors: &mut Vec<ConfigError>) -> ReclaimClass {
    const EVERY: &str = "a duration from 1s to 1h such as 60s";
    let every = |text: &str| parse_duration(text).filter(|it| *it >= EVERY_MIN);
    let bytes =
        |text: &str| parse_memory(text).flatten().filter(|it| (BYTES_MIN..=BYTES_MAX).contains(it));
    let mut fields = Fields::new(name, node, errors);
    let mut read = DEFAULT;
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "every" => put(&mut read.every, fields.parsed(&key, value, EVERY, every)),
            "bytes" => {
                put(
                    &mut read.bytes,
                    fields.parsed(&key, value, "an amount from 64Ki to 1Gi", bytes),
                );
            }
            "maxStalledPercent" => {
                let percent = fields.number(&key, value, 0..=100, "0 to 100");
                put(&mut read.stalled_percent_max, percent);
            }
            "swappiness" => {
                read.swappiness = fields.number(&key, value, 0..=SWAPPINESS_MAX, "0 to 200");
            }
            _ => fields.unknown(at, &key, &KEYS),
        }
    }
    read
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use crate::test_support::shown_line;

    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&shown_line(text, |line| line.contains(" reclaim: ")));
    }

    #[test]
    fn a_class_says_what_is_not_as_usual() {
        let text = "\
memory:
  reclaim:
    BestEffort:
    slowly:
      every: 5m
      bytes: 4Mi
      maxStalledPercent: 0
      swappiness: 200
";
        check(
            text,
            expect![[
                r#"reclaim: {"BestEffort":{"bytes":"64Mi","every":"1m","maxStalledPercent":1},"slowly":{"bytes":"4Mi","every":"5m","maxStalledPercent":0,"swappiness":200}}  # line 3 of the file"#
            ]],
        );
        check("memory: {reclaim: }\n", expect!["reclaim: {}  # line 1 of the file"]);
    }

    #[test]
    fn every_mistake_in_a_class_is_told() {
        let text = "\
memory:
  reclaim:
    a: often
    b:
      every: 10ms
      bytes: unlimited
      maxStalledPercent: 101
      swappiness: [1]
      bits: 1
    b: {bytes: 2Gi}
    none:
";
        check(
            text,
            expect![[r#"
                f:3:8: `memory.reclaim.a`: expected lines of `key: value`
                f:5:14: `memory.reclaim.b`: `every` is `10ms`, expected a duration from 1s to 1h such as 60s
                f:6:14: `memory.reclaim.b`: `bytes` is `unlimited`, expected an amount from 64Ki to 1Gi
                f:7:26: `memory.reclaim.b`: `maxStalledPercent` is `101`, expected 0 to 100
                f:8:19: `memory.reclaim.b`: `swappiness` is no text
                f:9:7: `memory.reclaim.b`: unknown key `bits`; known are every, bytes, maxStalledPercent, swappiness
                f:10:5: duplicate class `b`
                f:10:16: `memory.reclaim.b`: `bytes` is `2Gi`, expected an amount from 64Ki to 1Gi
                f:11:5: `none` is what a pod says that is in no class"#]],
        );
        check(
            "memory: {reclaim: [a]}\n",
            expect![
                "f:1:19: `memory.reclaim`: expected names of classes, each with some of {every: 60s, bytes: 64Mi, maxStalledPercent: 1, swappiness: 60}"
            ],
        );
    }
}
