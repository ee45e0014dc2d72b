//! The key `memory.reclaim`: classes of containers of which idle memory is reclaimed. In: a tree of the file. Out: classes, or every mistake in them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use bayplan_enforcement::ReclaimClass;
use bayplan_types::Bytes;
use serde_json::{Map, Value as Json, json};

use super::kind::{Field, Tree, parse_duration, parse_memory, render_duration, render_memory};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::yaml::{Node, Position, Value};
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
        let mut reader = Reader::default();
        let mut classes = BTreeMap::new();
        match &field.value.value {
            Value::Map(entries) => {
                for (at, name, value) in entries {
                    let class = reader.class(&format!("{}.{name}", field.key), value);
                    if name == NO_RECLAIM_CLASS {
                        reader
                            .wrong(*at, format!("`{name}` is what a pod says that is in no class"));
                    }
                    if classes.insert(name.clone(), class).is_some() {
                        reader.wrong(*at, format!("duplicate class `{name}`"));
                    }
                }
            }
            Value::Null => {}
            _ => reader.wrong(field.value.at, format!("`{}`: expected {EXPECTED}", field.key)),
        }
        config.reclaim_classes = classes;
        reader.errors
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

#[derive(Default)]
struct Reader {
    errors: Vec<ConfigError>,
}

impl Reader {
    fn wrong(&mut self, at: Position, message: String) {
        self.errors.push(ConfigError { at, message });
    }

    fn class(&mut self, class: &str, value: &Node) -> ReclaimClass {
        let mut read = DEFAULT;
        let entries = match &value.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            _ => {
                self.wrong(value.at, format!("`{class}`: expected lines of `key: value`"));
                &[]
            }
        };
        for (at, name, value) in entries {
            let text = match &value.value {
                Value::Scalar(text) => text.as_str(),
                _ => "",
            };
            let expected = match name.as_str() {
                "every" => {
                    let every = parse_duration(text).filter(|it| *it >= EVERY_MIN);
                    put(&mut read.every, every, "a duration from 1s to 1h such as 60s")
                }
                "bytes" => {
                    let bytes = parse_memory(text).flatten();
                    let bytes = bytes.filter(|it| (BYTES_MIN..=BYTES_MAX).contains(it));
                    put(&mut read.bytes, bytes, "an amount from 64Ki to 1Gi")
                }
                "maxStalledPercent" => {
                    put(&mut read.stalled_percent_max, within(text, 0..=100), "0 to 100")
                }
                "swappiness" => {
                    let swappiness = within(text, 0..=SWAPPINESS_MAX).map(Some);
                    put(&mut read.swappiness, swappiness, "0 to 200")
                }
                _ => {
                    let known = KEYS.join(", ");
                    self.wrong(
                        *at,
                        format!("unknown key `{name}` in `{class}`; known are {known}"),
                    );
                    continue;
                }
            };
            if let Err(expected) = expected {
                let message = format!("`{class}`: {name} is `{text}`, expected {expected}");
                self.wrong(value.at, message);
            }
        }
        read
    }
}

fn within<T: FromStr + PartialOrd>(text: &str, range: RangeInclusive<T>) -> Option<T> {
    text.parse().ok().filter(|it| range.contains(it))
}

fn put<T>(place: &mut T, value: Option<T>, expected: &'static str) -> Result<(), &'static str> {
    *place = value.ok_or(expected)?;
    Ok(())
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
                f:5:14: `memory.reclaim.b`: every is `10ms`, expected a duration from 1s to 1h such as 60s
                f:6:14: `memory.reclaim.b`: bytes is `unlimited`, expected an amount from 64Ki to 1Gi
                f:7:26: `memory.reclaim.b`: maxStalledPercent is `101`, expected 0 to 100
                f:8:19: `memory.reclaim.b`: swappiness is ``, expected 0 to 200
                f:9:7: unknown key `bits` in `memory.reclaim.b`; known are every, bytes, maxStalledPercent, swappiness
                f:10:5: duplicate class `b`
                f:10:16: `memory.reclaim.b`: bytes is `2Gi`, expected an amount from 64Ki to 1Gi
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
