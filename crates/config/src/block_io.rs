//! The key `blockIo.classes`, in the form of goresctrl and CRI Resource Manager. In: a tree of the file. Out: classes, or every mistake in them.

use bayplan_enforcement::{BlockIoClass, BlockIoRule};
use bayplan_workload::annotations::parse_quantity;
use serde_json::{Map, Value as Json, json};

use super::kind::{Field, Tree};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::{Fields, LINES, named};
use crate::yaml::{Node, Value};

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
        let mut errors = Vec::new();
        let read = |_, name: &str, value: &Node, errors: &mut Vec<ConfigError>| {
            class(&format!("{}.{name}", field.key), value, errors)
        };
        config.block_io_classes = named(field, EXPECTED, &mut errors, read);
        errors
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

fn class(name: &str, node: &Node, errors: &mut Vec<ConfigError>) -> BlockIoClass {
    let rules = match &node.value {
        Value::List(rules) => rules.as_slice(),
        Value::Null => &[],
        _ => {
            let message = format!("`{name}`: expected a list of rules, each after a dash");
            errors.push(ConfigError { at: node.at, message });
            &[]
        }
    };
    BlockIoClass { rules: rules.iter().map(|it| rule(name, it, errors)).collect() }
}

fn rule(class: &str, node: &Node, errors: &mut Vec<ConfigError>) -> BlockIoRule {
    const LATENCY: &str = "a number of microseconds such as 75";
    let mut rule = BlockIoRule::default();
    let mut fields = Fields::new(class, node, errors);
    if matches!(node.value, Value::Null) {
        fields.wrong(node.at, "expected lines of `key: value` in a rule".to_owned());
    }
    let known = OTHERS.into_iter().chain(RATES.iter().map(|(name, _)| *name));
    let known: Vec<&'static str> = known.collect();
    // As goresctrl, in any case.
    let name_of = |key: &str| known.iter().find(|it| it.eq_ignore_ascii_case(key)).copied();
    for (name, (at, key, value)) in fields.entries_by_name(LINES, name_of) {
        let Some(name) = name else {
            fields.unknown(at, &key, &known);
            continue;
        };
        match name {
            "Devices" => rule.devices = devices(&mut fields, value),
            "Weight" => {
                let weight = number(&mut fields, "Weight", value, WEIGHT_MAX, "1 to 1000");
                rule.weight = weight.and_then(|it| it.try_into().ok());
            }
            name @ "LatencyMicroseconds" => {
                rule.latency_us = number(&mut fields, name, value, u64::MAX, LATENCY);
            }
            rate => {
                let places = [
                    &mut rule.read_bps,
                    &mut rule.write_bps,
                    &mut rule.read_iops,
                    &mut rule.write_iops,
                ];
                let mut places = RATES.iter().zip(places);
                if let Some(((name, expected), place)) = places.find(|((it, _), _)| *it == rate) {
                    *place = number(&mut fields, name, value, u64::MAX, expected);
                }
            }
        }
    }
    let besides = BlockIoRule { weight: None, ..rule.clone() };
    if rule.devices.is_empty() && besides != BlockIoRule::default() {
        let text = "a rule without Devices can have a Weight only: which disks is it for?";
        fields.wrong(node.at, text.to_owned());
    }
    rule
}

fn number(
    fields: &mut Fields<'_>,
    key: &str,
    value: &Node,
    max: u64,
    expected: &str,
) -> Option<u64> {
    let parse = |it: &str| parse_quantity(it, 1).filter(|number| (1..=max).contains(number));
    fields.parsed(key, value, expected, parse)
}

fn devices(fields: &mut Fields<'_>, value: &Node) -> Vec<String> {
    let mut devices = Vec::new();
    for (at, path) in fields.texts("Devices", value, "one such as [/dev/sd*]") {
        match path.starts_with("/dev/") {
            true => devices.push(path),
            false => fields
                .wrong(at, format!("`{path}` in Devices, expected a path or pattern below /dev")),
        }
    }
    devices
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
                f:5:17: `blockIo.classes.b`: `Weight` is `1001`, expected 1 to 1000
                f:6:19: `blockIo.classes.b`: `sda` in Devices, expected a path or pattern below /dev
                f:6:34: `blockIo.classes.b`: `Devices` has an item that is no text
                f:7:26: `blockIo.classes.b`: `ThrottleReadBps` is `much`, expected bytes per second such as 50M or 1Gi
                f:8:9: `blockIo.classes.b`: unknown key `ReadBps`; known are Devices, Weight, LatencyMicroseconds, ThrottleReadBps, ThrottleWriteBps, ThrottleReadIOPS, ThrottleWriteIOPS
                f:9:27: `blockIo.classes.b`: `ThrottleWriteBps` is `0`, expected bytes per second such as 50M or 1Gi
                f:10:9: `blockIo.classes.b`: a rule without Devices can have a Weight only: which disks is it for?
                f:11:9: `blockIo.classes.b`: expected lines of `key: value`
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
