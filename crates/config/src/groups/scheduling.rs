//! The key `schedulingClasses`: when threads and I/O of containers have their turn. In: a tree of the file. Out: classes, or every mistake in them.

use bayplan_enforcement::{IoPriority, NamedScheduling};
use bayplan_types::QosClass;
use bayplan_workload::annotations::Words;
use serde_json::{Map, Value as Json, json};

use super::fields::texts;
use super::named::named_list;
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::Fields;
use crate::kind::{Field, Tree};
use crate::yaml::Node;

/// `schedulingClasses`.
pub(crate) struct SchedulingClasses;

const EXPECTED: &str = "a list of classes such as {name: calm, policy: idle, ioClass: idle}";
const KEYS: [&str; 5] = ["name", "policy", "ioClass", "namespaces", "qosClasses"];
const POLICIES: &Words<bool> = &[("other", false), ("idle", true)];
const IO_CLASSES: &Words<Option<IoPriority>> = &[
    ("none", None),
    ("rt", Some(IoPriority::Realtime)),
    ("be", Some(IoPriority::BestEffort)),
    ("idle", Some(IoPriority::Idle)),
];
/// Known from nri-plugins, and not to be had: why.
const NO_EFFECT: &[(&str, &str)] = &[
    ("nice", NICE),
    ("priority", REALTIME),
    ("flags", REALTIME),
    ("runtime", REALTIME),
    ("deadline", REALTIME),
    ("period", REALTIME),
    ("ioPriority", "groups have classes of I/O, and no priorities in them"),
];
const NICE: &str = "in a cgroup of its own a nice value compares only the container's own threads; CPU time is divided by requests";
const REALTIME: &str = "real-time and deadline scheduling are for the program to ask for";

impl Tree for SchedulingClasses {
    fn expected(&self) -> String {
        EXPECTED.to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let (classes, errors) = named_list(field, (EXPECTED, "classes"), class, |it| &it.name);
        config.scheduling_classes = classes;
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        config.scheduling_classes.iter().map(shown).collect()
    }

    fn schema(&self) -> Json {
        let texts = json!({ "type": "array", "items": { "type": "string" } });
        let words = |words: Vec<&str>| json!({ "enum": words });
        json!({
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "required": ["name"],
                "additionalProperties": false,
                "properties": {
                    "name": { "type": "string" },
                    "policy": words(POLICIES.iter().map(|(word, _)| *word).collect()),
                    "ioClass": words(IO_CLASSES.iter().map(|(word, _)| *word).collect()),
                    "namespaces": texts,
                    "qosClasses": { "type": "array", "items": words(QosClass::ALL.iter().map(|it| it.name()).collect()) },
                },
            },
        })
    }
}

fn shown(it: &NamedScheduling) -> Json {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), json!(it.name));
    if it.class.is_idle {
        shown.insert("policy".to_owned(), json!("idle"));
    }
    if let Some((word, _)) = IO_CLASSES.iter().find(|(_, io)| io.is_some() && *io == it.class.io) {
        shown.insert("ioClass".to_owned(), json!(word));
    }
    if !it.namespaces.is_empty() {
        shown.insert("namespaces".to_owned(), json!(it.namespaces));
    }
    if !it.qos.is_empty() {
        let names: Vec<&str> = it.qos.iter().map(|it| it.name()).collect();
        shown.insert("qosClasses".to_owned(), json!(names));
    }
    Json::Object(shown)
}

fn class(node: &Node, errors: &mut Vec<ConfigError>) -> NamedScheduling {
    let mut read = NamedScheduling::default();
    let mut fields = Fields::new("schedulingClasses", node, errors);
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "name" => read.name = fields.name(value),
            "policy" => read.class.is_idle = fields.word(&key, value, POLICIES).unwrap_or(false),
            "ioClass" => read.class.io = fields.word(&key, value, IO_CLASSES).flatten(),
            "namespaces" => read.namespaces = texts(&mut fields, &key, value),
            "qosClasses" => {
                for name in texts(&mut fields, &key, value) {
                    match QosClass::ALL.into_iter().find(|it| it.name() == name) {
                        Some(qos) => read.qos.push(qos),
                        None => fields.wrong(value.at, format!("`{name}` is no QoS class")),
                    }
                }
            }
            other => match NO_EFFECT.iter().find(|(known, _)| *known == other) {
                Some((_, why)) => fields.wrong(at, format!("`{other}` cannot be set: {why}")),
                None => fields.unknown(at, other, &KEYS),
            },
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use crate::test_support::differences;

    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&differences(text));
    }

    #[test]
    fn classes_say_what_groups_can_say() {
        check(
            "
schedulingClasses:
- {name: calm, policy: idle, ioClass: idle, namespaces: [batch*], qosClasses: [BestEffort]}
- {name: first, ioClass: rt}
groups: [{name: a, schedulingClass: calm}]
",
            expect![[
                r#"{"groups":[{"name":"a","schedulingClass":"calm","size":{"requests":{"min":1}}}],"schedulingClasses":[{"ioClass":"idle","name":"calm","namespaces":["batch*"],"policy":"idle","qosClasses":["BestEffort"]},{"ioClass":"rt","name":"first"}]}"#
            ]],
        );
        check(
            "
schedulingClasses:
- {name: a, policy: fifo, nice: -5, priority: 10, ioPriority: 3, qosClasses: [Best], other: 1}
- {name: a}
groups: [{name: a, schedulingClass: odd}]
",
            expect![[r#"
                f:3:21: `schedulingClasses`: `policy` is `fifo`, expected other, idle
                f:3:27: `schedulingClasses`: `nice` cannot be set: in a cgroup of its own a nice value compares only the container's own threads; CPU time is divided by requests
                f:3:37: `schedulingClasses`: `priority` cannot be set: real-time and deadline scheduling are for the program to ask for
                f:3:51: `schedulingClasses`: `ioPriority` cannot be set: groups have classes of I/O, and no priorities in them
                f:3:78: `schedulingClasses`: `Best` is no QoS class
                f:3:86: `schedulingClasses`: unknown key `other`; known are name, policy, ioClass, namespaces, qosClasses
                f:4:3: two classes of `schedulingClasses` are called `a`
                f:5:9: `groups`: `a` has the class `odd`, which `schedulingClasses` does not define"#]],
        );
    }
}
