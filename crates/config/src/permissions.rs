//! The key `permissions`: what the pods of which namespaces may ask for.

use bayplan_workload::annotations::{GROUPS, Item, Rule};
use serde_json::{Value as Json, json};

use super::kind::{Field, Tree};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::Fields;
use crate::yaml::{Node, Value};

/// `permissions`.
pub(super) struct Permissions;

const TEXTS: &str = "one such as [a, b]";
const KEYS: [&str; 3] = ["namespaces", "allow", "deny"];

impl Tree for Permissions {
    fn expected(&self) -> String {
        "a list of rules such as {namespaces: [telco-*], allow: [interrupts]}".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        config.permissions = match &field.value.value {
            Value::List(items) => items.iter().map(|it| rule(field.key, it, &mut errors)).collect(),
            Value::Null => Vec::new(),
            _ => {
                let message = format!("`{}`: is no list, expected {}", field.key, self.expected());
                errors.push(ConfigError { at: field.value.at, message });
                Vec::new()
            }
        };
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        let texts = |items: &[Item]| items.iter().map(|it| json!(it.text)).collect::<Json>();
        let shown = |rule: &Rule| {
            let mut shown = json!({ "namespaces": rule.namespaces });
            for (key, items) in [("allow", &rule.allow), ("deny", &rule.deny)] {
                if !items.is_empty() {
                    shown[key] = texts(items);
                }
            }
            shown
        };
        config.permissions.iter().map(shown).collect()
    }

    fn schema(&self) -> Json {
        let names =
            json!({ "type": "array", "items": { "type": ["string", "integer"], "minLength": 1 } });
        let [namespaces, allow, deny] = KEYS;
        json!({
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "required": [namespaces],
                "additionalProperties": false,
                "properties": { namespaces: names, allow: names, deny: names },
            },
        })
    }
}

fn rule(of: &str, node: &Node, errors: &mut Vec<ConfigError>) -> Rule {
    let mut rule = Rule::default();
    let mut fields = Fields::new(of, node, errors);
    if !matches!(node.value, Value::Map(_)) {
        let expected = KEYS.join(", ");
        fields.wrong(node.at, format!("a rule is no mapping, expected a rule with {expected}"));
        return rule;
    }
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "namespaces" => {
                let names = fields.texts(&key, value, TEXTS).into_iter();
                rule.namespaces = names.map(|(_, text)| text).collect();
            }
            "allow" => rule.allow = items(&mut fields, &key, value),
            "deny" => rule.deny = items(&mut fields, &key, value),
            _ => fields.unknown(at, &key, &KEYS),
        }
    }
    if rule.namespaces.is_empty() {
        let text = "a rule lacks `namespaces`, expected names; * is all of them";
        fields.wrong(node.at, text.to_owned());
    }
    rule
}

fn items(fields: &mut Fields<'_>, key: &str, value: &Node) -> Vec<Item> {
    let mut items = Vec::new();
    for (at, text) in fields.texts(key, value, TEXTS) {
        match Item::parse(&text) {
            Ok(item) => items.push(item),
            Err(why) => {
                let groups: Vec<&str> = GROUPS.iter().map(|(word, _)| *word).collect();
                let expected = format!(
                    "expected *, one of {}, or an annotation that `bayplan annotations` lists, with or without =VALUE",
                    groups.join(", ")
                );
                fields.wrong(at, format!("`{key}` has `{text}` ({why}), {expected}"));
            }
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};

    use crate::parse_config;

    /// The rules as they are shown, or the mistakes.
    fn check(text: &str, expected: Expect) {
        let shown = match parse_config(Path::new("f"), &format!("permissions:\n{text}")) {
            Ok(config) => config.differences(),
            Err(errors) => errors.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn rules_are_read_and_mistakes_are_named() {
        check(
            "- {namespaces: [telco-*, 5g], allow: [interrupts, rdtclass=gold], deny: [preserve]}\n- namespaces: [\"*\"]\n  deny: [cpu-class=power]\n",
            expect![[
                r#"{"permissions":[{"allow":["interrupts","rdtclass=gold"],"deny":["preserve"],"namespaces":["telco-*","5g"]},{"deny":["cpu-class=power"],"namespaces":["*"]}]}"#
            ]],
        );
        check("", expect!["{}"]);
        check(
            "  x\n",
            expect![
                "f:2:3: `permissions`: is no list, expected a list of rules such as {namespaces: [telco-*], allow: [interrupts]}"
            ],
        );
        check(
            "- {allow: [interupts, 5, [a]], also: 1}\n- {namespaces: all, deny: [\"apart=core\"]}\n- x\n",
            expect![[r#"
                f:2:3: `permissions`: a rule lacks `namespaces`, expected names; * is all of them
                f:2:12: `permissions`: `allow` has `interupts` (no annotation, label or group), expected *, one of interrupts, isolatedPartitions, preserve, reservedCpus, fixedCpus, closedCpus, priorities, classes, or an annotation that `bayplan annotations` lists, with or without =VALUE
                f:2:23: `permissions`: `allow` has `5` (no annotation, label or group), expected *, one of interrupts, isolatedPartitions, preserve, reservedCpus, fixedCpus, closedCpus, priorities, classes, or an annotation that `bayplan annotations` lists, with or without =VALUE
                f:2:26: `permissions`: `allow` has an item that is no text
                f:2:32: `permissions`: unknown key `also`; known are namespaces, allow, deny
                f:3:3: `permissions`: a rule lacks `namespaces`, expected names; * is all of them
                f:3:16: `permissions`: `namespaces` is no list, expected one such as [a, b]
                f:3:28: `permissions`: `deny` has `apart=core` (`apart` has no values that a rule can tell apart), expected *, one of interrupts, isolatedPartitions, preserve, reservedCpus, fixedCpus, closedCpus, priorities, classes, or an annotation that `bayplan annotations` lists, with or without =VALUE
                f:4:3: `permissions`: a rule is no mapping, expected a rule with namespaces, allow, deny"#]],
        );
    }
}
