//! The key `blockIo.classes`, in the form of goresctrl and CRI Resource Manager. In: a tree of the file. Out: classes, or every mistake in them.

use std::collections::BTreeMap;

use bayplan_enforcement::{BlockIoClass, BlockIoRule};
use bayplan_workload::annotations::parse_quantity;
use serde_json::{Map, Value as Json, json};

use super::kind::{Field, Tree};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::yaml::{Node, Position, Value};

/// Classes by their names.
pub(super) struct BlockIoClasses;

/// What a rule takes, how it is called, and what is expected.
const RATES: [(&str, &str); 4] = [
    ("ThrottleReadBps", "bytes per second such as 50M or 1Gi"),
    ("ThrottleWriteBps", "bytes per second such as 50M or 1Gi"),
    ("ThrottleReadIOPS", "operations per second such as 500 or 10k"),
    ("ThrottleWriteIOPS", "operations per second such as 500 or 10k"),
];
const OTHERS: [&str; 3] = ["Devices", "Weight", "LatencyMicroseconds"];
const EXPECTED: &str = "names of classes, each with a list of rules such as {Devices: [/dev/sd*], ThrottleWriteBps: 50M}";
/// Some kernels take no larger weights (bfq), and goresctrl no smaller range.
const WEIGHT_MAX: u64 = 1000;

impl Tree for BlockIoClasses {
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
                    if classes.insert(name.clone(), class).is_some() {
                        reader.wrong(*at, format!("duplicate class `{name}`"));
                    }
                }
            }
            Value::Null => {}
            _ => reader.wrong(field.value.at, format!("`{}`: expected {EXPECTED}", field.key)),
        }
        config.block_io_classes = classes;
        reader.errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        let classes = config.block_io_classes.iter();
        let classes = classes.map(|(name, class)| {
            (name.clone(), class.rules.iter().map(shown_rule).collect::<Json>())
        });
        Json::Object(classes.collect())
    }

    fn schema(&self) -> Json {
        let quantity =
            json!({ "type": ["string", "integer"], "pattern": "^[0-9.]+([kMGTPE]i?)?$" });
        let mut properties = Map::new();
        for (name, text) in RATES {
            let mut property = quantity.clone();
            property["description"] = json!(text);
            properties.insert(name.to_owned(), property);
        }
        properties.insert(
            "Devices".to_owned(),
            json!({ "type": "array", "items": { "type": "string", "pattern": "^/dev/" } }),
        );
        properties.insert(
            "Weight".to_owned(),
            json!({ "type": "integer", "minimum": 1, "maximum": WEIGHT_MAX }),
        );
        properties
            .insert("LatencyMicroseconds".to_owned(), json!({ "type": "integer", "minimum": 1 }));
        let rule = json!({
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        json!({
            "type": ["object", "null"],
            "additionalProperties": { "type": ["array", "null"], "items": rule },
        })
    }
}

fn shown_rule(rule: &BlockIoRule) -> Json {
    let mut shown = Map::new();
    if !rule.devices.is_empty() {
        shown.insert("Devices".to_owned(), json!(rule.devices));
    }
    let numbers = [
        ("Weight", rule.weight.map(u64::from)),
        (RATES[0].0, rule.read_bps),
        (RATES[1].0, rule.write_bps),
        (RATES[2].0, rule.read_iops),
        (RATES[3].0, rule.write_iops),
        ("LatencyMicroseconds", rule.latency_us),
    ];
    for (name, number) in numbers {
        shown.extend(number.map(|number| (name.to_owned(), json!(number))));
    }
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

    fn class(&mut self, name: &str, value: &Node) -> BlockIoClass {
        let rules = match &value.value {
            Value::List(rules) => rules.as_slice(),
            Value::Null => &[],
            _ => {
                self.wrong(
                    value.at,
                    format!("`{name}`: expected a list of rules, each after a dash"),
                );
                &[]
            }
        };
        BlockIoClass { rules: rules.iter().map(|rule| self.rule(name, rule)).collect() }
    }

    fn rule(&mut self, class: &str, value: &Node) -> BlockIoRule {
        let mut rule = BlockIoRule::default();
        let Value::Map(entries) = &value.value else {
            self.wrong(value.at, format!("`{class}`: expected lines of `key: value` in a rule"));
            return rule;
        };
        for (at, name, value) in entries {
            let is = |known: &&str| known.eq_ignore_ascii_case(name);
            let rates = [
                &mut rule.read_bps,
                &mut rule.write_bps,
                &mut rule.read_iops,
                &mut rule.write_iops,
            ];
            let mut rates = RATES.iter().zip(rates);
            if let Some(((known, expected), place)) = rates.find(|((known, _), _)| is(known)) {
                *place = self.number(class, known, value, u64::MAX, expected);
            } else if is(&OTHERS[0]) {
                rule.devices = self.devices(class, value);
            } else if is(&OTHERS[1]) {
                let weight = self.number(class, OTHERS[1], value, WEIGHT_MAX, "1 to 1000");
                rule.weight = weight.and_then(|it| it.try_into().ok());
            } else if is(&OTHERS[2]) {
                let expected = "a number of microseconds such as 75";
                rule.latency_us = self.number(class, OTHERS[2], value, u64::MAX, expected);
            } else {
                let known = RATES.iter().map(|(name, _)| *name);
                let known: Vec<&str> = OTHERS.into_iter().chain(known).collect();
                self.wrong(
                    *at,
                    format!("unknown key `{name}` in `{class}`; known are {}", known.join(", ")),
                );
            }
        }
        let besides = BlockIoRule { weight: None, ..rule.clone() };
        if rule.devices.is_empty() && besides != BlockIoRule::default() {
            self.wrong(
                value.at,
                format!("`{class}`: a rule without Devices can have a Weight only: which disks is it for?"),
            );
        }
        rule
    }

    fn number(
        &mut self,
        class: &str,
        name: &str,
        value: &Node,
        max: u64,
        expected: &str,
    ) -> Option<u64> {
        let text = match &value.value {
            Value::Scalar(text) => text.as_str(),
            _ => "",
        };
        let number = parse_quantity(text, 1).filter(|number| (1..=max).contains(number));
        if number.is_none() {
            self.wrong(value.at, format!("`{class}`: {name} is `{text}`, expected {expected}"));
        }
        number
    }

    fn devices(&mut self, class: &str, value: &Node) -> Vec<String> {
        let Value::List(items) = &value.value else {
            self.wrong(value.at, format!("`{class}`: Devices is not a list such as [/dev/sd*]"));
            return Vec::new();
        };
        let mut devices = Vec::new();
        for item in items {
            match &item.value {
                Value::Scalar(path) if path.starts_with("/dev/") => devices.push(path.clone()),
                Value::Scalar(path) => self.wrong(
                    item.at,
                    format!(
                        "`{class}`: `{path}` in Devices, expected a path or pattern below /dev"
                    ),
                ),
                _ => self.wrong(item.at, format!("`{class}`: Devices holds paths only")),
            }
        }
        devices
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use crate::test_support::shown_line;

    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&shown_line(text, |line| line.contains(" classes: ")));
    }

    #[test]
    fn classes_are_those_of_goresctrl() {
        let text = "\
blockIo:
  classes:
    slow:
      - Weight: 80
      - devices: [/dev/sd*, /dev/disk/by-id/*SSD*]
        ThrottleReadBps: 50M
        throttlereadiops: 1.5k
        LatencyMicroseconds: 75
    usual:
";
        check(
            text,
            expect![[
                r#"classes: {"slow":[{"Weight":80},{"Devices":["/dev/sd*","/dev/disk/by-id/*SSD*"],"LatencyMicroseconds":75,"ThrottleReadBps":50000000,"ThrottleReadIOPS":1500}],"usual":[]}  # line 3 of the file"#
            ]],
        );
        check("blockIo: {classes: }\n", expect!["classes: {}  # line 1 of the file"]);
    }

    #[test]
    fn every_mistake_in_a_class_is_told() {
        let text = "\
blockIo:
  classes:
    a: fast
    b:
      - Weight: 1001
        Devices: [sda, /dev/sda, [a]]
        ThrottleReadBps: much
        ReadBps: 1
      - ThrottleWriteBps: 0
      - ThrottleWriteBps: 5M
      - 7
    b: []
";
        check(
            text,
            expect![[r#"
            f:3:8: `blockIo.classes.a`: expected a list of rules, each after a dash
            f:5:17: `blockIo.classes.b`: Weight is `1001`, expected 1 to 1000
            f:6:19: `blockIo.classes.b`: `sda` in Devices, expected a path or pattern below /dev
            f:6:34: `blockIo.classes.b`: Devices holds paths only
            f:7:26: `blockIo.classes.b`: ThrottleReadBps is `much`, expected bytes per second such as 50M or 1Gi
            f:8:9: unknown key `ReadBps` in `blockIo.classes.b`; known are Devices, Weight, LatencyMicroseconds, ThrottleReadBps, ThrottleWriteBps, ThrottleReadIOPS, ThrottleWriteIOPS
            f:9:27: `blockIo.classes.b`: ThrottleWriteBps is `0`, expected bytes per second such as 50M or 1Gi
            f:10:9: `blockIo.classes.b`: a rule without Devices can have a Weight only: which disks is it for?
            f:11:9: `blockIo.classes.b`: expected lines of `key: value` in a rule
            f:12:5: duplicate class `b`"#]],
        );
        check(
            "blockIo: {classes: [a]}\n",
            expect![
                "f:1:20: `blockIo.classes`: expected names of classes, each with a list of rules such as {Devices: [/dev/sd*], ThrottleWriteBps: 50M}"
            ],
        );
    }
}
