//! The key `schedulingClasses`: when threads and I/O of containers have their turn. In: a tree of the file. Out: classes, or every mistake in them.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use bayplan_enforcement::{NamedScheduling, SchedulingClass};
use bayplan_types::{IoClass, QosClass, ThreadPolicy, ThreadScheduling};
use bayplan_workload::annotations::Words;
use serde_json::{Map, Value as Json, json};

use super::fields::texts;
use super::named::named_list;
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::Fields;
use crate::kind::{Field, Tree};
use crate::yaml::{Node, Position, Value};

/// `schedulingClasses`.
pub(crate) struct SchedulingClasses;

const EXPECTED: &str = "a list of classes such as {name: calm, policy: idle, ioClass: idle}";
const KEYS: [&str; 8] =
    ["name", "policy", "priority", "nice", "ioClass", "ioPriority", "namespaces", "qosClasses"];
/// Policies of threads are those of sched(7); `idle` is of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyWord {
    Other,
    Idle,
    Batch,
    Fifo,
    RoundRobin,
}

const POLICIES: &Words<PolicyWord> = &[
    ("other", PolicyWord::Other),
    ("idle", PolicyWord::Idle),
    ("batch", PolicyWord::Batch),
    ("fifo", PolicyWord::Fifo),
    ("rr", PolicyWord::RoundRobin),
];
const IO_CLASSES: &Words<Option<IoClass>> = &[
    ("none", None),
    ("rt", Some(IoClass::Realtime)),
    ("be", Some(IoClass::BestEffort)),
    ("idle", Some(IoClass::Idle)),
];
/// Known from nri-plugins, and not to be had: why.
const NO_EFFECT: &[(&str, &str)] =
    &[("flags", FLAGS), ("runtime", DEADLINE), ("deadline", DEADLINE), ("period", DEADLINE)];
pub(crate) const FLAGS: &str = "flags of a policy are for the program to set";
pub(crate) const DEADLINE: &str = "the kernel refuses a deadline to threads that may not run on all CPUs (sched_setattr(2), EPERM), so a container with a CPU set could not be created";

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
                    "priority": integer(ThreadPolicy::PRIORITIES),
                    "nice": integer(ThreadPolicy::NICE),
                    "ioPriority": integer(ThreadScheduling::IO_PRIORITIES),
                    "ioClass": words(IO_CLASSES.iter().map(|(word, _)| *word).collect()),
                    "namespaces": texts,
                    "qosClasses": { "type": "array", "items": words(QosClass::ALL.iter().map(|it| it.name()).collect()) },
                },
            },
        })
    }
}

fn integer<T: Into<i64> + Copy>(range: RangeInclusive<T>) -> Json {
    json!({ "type": "integer", "minimum": (*range.start()).into(), "maximum": (*range.end()).into() })
}

fn shown(it: &NamedScheduling) -> Json {
    let mut shown = Map::new();
    let mut put = |key: &str, value: Json| shown.insert(key.to_owned(), value);
    put("name", json!(it.name));
    let threads = it.class.threads.policy.map(|policy| match policy {
        ThreadPolicy::Other(nice) => (PolicyWord::Other, "nice", i64::from(nice)),
        ThreadPolicy::Batch(nice) => (PolicyWord::Batch, "nice", nice.into()),
        ThreadPolicy::Fifo(priority) => (PolicyWord::Fifo, "priority", priority.into()),
        ThreadPolicy::RoundRobin(priority) => (PolicyWord::RoundRobin, "priority", priority.into()),
    });
    let policy = match threads {
        _ if it.class.is_idle => PolicyWord::Idle,
        Some((policy, ..)) => policy,
        None => PolicyWord::Other,
    };
    if policy != PolicyWord::Other {
        put("policy", json!(POLICIES.iter().find(|(_, it)| *it == policy).map(|(word, _)| word)));
    }
    if let Some((_, key, number)) = threads {
        put(key, json!(number));
    }
    if let Some((word, _)) = IO_CLASSES.iter().find(|(_, io)| io.is_some() && *io == it.class.io) {
        put("ioClass", json!(word));
    }
    if let Some((_, priority)) = it.class.threads.io {
        put("ioPriority", json!(priority));
    }
    if !it.namespaces.is_empty() {
        put("namespaces", json!(it.namespaces));
    }
    if !it.qos.is_empty() {
        let names: Vec<&str> = it.qos.iter().map(|it| it.name()).collect();
        put("qosClasses", json!(names));
    }
    Json::Object(shown)
}

/// What is said of threads. A value that cannot be read is `None`, and a mistake already; a number is there with its place if its key is.
struct ThreadKeys {
    policy: Option<PolicyWord>,
    io: Option<Option<IoClass>>,
    priority: Option<(Position, Option<u8>)>,
    nice: Option<(Position, Option<i8>)>,
    io_priority: Option<(Position, Option<u8>)>,
}

fn class(node: &Node, errors: &mut Vec<ConfigError>) -> NamedScheduling {
    let mut read = NamedScheduling::default();
    let mut threads = ThreadKeys {
        policy: Some(PolicyWord::Other),
        io: Some(None),
        priority: None,
        nice: None,
        io_priority: None,
    };
    let mut fields = Fields::new("schedulingClasses", node, errors);
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "name" => read.name = fields.name(value),
            "policy" if matches!(&value.value, Value::Scalar(it) if it == "deadline") => {
                threads.policy = None;
                fields.wrong(value.at, format!("`policy` cannot be `deadline`: {DEADLINE}"));
            }
            "policy" => threads.policy = fields.word(&key, value, POLICIES),
            "priority" => {
                let number = within(&mut fields, &key, value, ThreadPolicy::PRIORITIES);
                threads.priority = Some((value.at, number));
            }
            "nice" => {
                let number = within(&mut fields, &key, value, ThreadPolicy::NICE);
                threads.nice = Some((value.at, number));
            }
            "ioClass" => threads.io = fields.word(&key, value, IO_CLASSES),
            "ioPriority" => {
                let number = within(&mut fields, &key, value, ThreadScheduling::IO_PRIORITIES);
                threads.io_priority = Some((value.at, number));
            }
            "namespaces" => read.namespaces = texts(&mut fields, &key, value),
            "qosClasses" => {
                for name in texts(&mut fields, &key, value) {
                    match QosClass::ALL.into_iter().find(|it| it.name() == name) {
                        Some(qos) => read.qos.push(qos),
                        None => fields.wrong(value.at, format!("`{name}` is no QoS class")),
                    }
                }
            }
            _ => match NO_EFFECT.iter().find(|(known, _)| *known == key) {
                Some((_, why)) => fields.wrong(at, format!("`{key}` cannot be set: {why}")),
                None => fields.unknown(at, &key, &KEYS),
            },
        }
    }
    read.class = SchedulingClass {
        is_idle: threads.policy == Some(PolicyWord::Idle),
        io: threads.io.flatten(),
        threads: ThreadScheduling {
            policy: thread_policy(&mut fields, &threads),
            io: io_of_threads(&mut fields, &threads),
        },
    };
    read
}

fn within<T: FromStr + PartialOrd + Display>(
    fields: &mut Fields<'_>,
    key: &str,
    value: &Node,
    range: RangeInclusive<T>,
) -> Option<T> {
    let expected = format!("{} to {}", range.start(), range.end());
    fields.number(key, value, range, &expected)
}

fn thread_policy(fields: &mut Fields<'_>, said: &ThreadKeys) -> Option<ThreadPolicy> {
    use PolicyWord::{Batch, Fifo, Idle, Other, RoundRobin};
    let policy = said.policy?;
    if let Some((at, _)) = said.priority.filter(|_| !matches!(policy, Fifo | RoundRobin)) {
        fields.wrong(at, "`priority` is of the policies fifo and rr".to_owned());
    }
    if let Some((at, _)) = said.nice.filter(|_| !matches!(policy, Other | Batch)) {
        fields.wrong(at, "`nice` is of the policies other and batch".to_owned());
    }
    let nice = said.nice.and_then(|(_, nice)| nice);
    let mut priority = || match said.priority {
        Some((_, priority)) => priority,
        None => {
            let range = ThreadPolicy::PRIORITIES;
            let message =
                format!("fifo and rr need a `priority` of {} to {}", range.start(), range.end());
            fields.wrong(fields.at(), message);
            None
        }
    };
    match policy {
        Idle => None,
        Other => nice.map(ThreadPolicy::Other),
        Batch => Some(ThreadPolicy::Batch(nice.unwrap_or_default())),
        Fifo => priority().map(ThreadPolicy::Fifo),
        RoundRobin => priority().map(ThreadPolicy::RoundRobin),
    }
}

fn io_of_threads(fields: &mut Fields<'_>, said: &ThreadKeys) -> Option<(IoClass, u8)> {
    let (at, priority) = said.io_priority?;
    match said.io? {
        Some(class @ (IoClass::Realtime | IoClass::BestEffort)) => Some((class, priority?)),
        Some(IoClass::Idle) | None => {
            fields.wrong(at, "`ioPriority` is of the classes of I/O rt and be".to_owned());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use crate::test_support::differences;

    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&differences(text));
    }

    #[test]
    fn classes_say_what_groups_and_threads_can_say() {
        check(
            "
schedulingClasses:
- {name: calm, policy: idle, ioClass: idle, namespaces: [batch*], qosClasses: [BestEffort]}
- {name: first, policy: fifo, priority: 42, ioClass: rt, ioPriority: 2}
- {name: turns, policy: rr, priority: 1}
- {name: later, policy: batch}
- {name: nice, nice: -5}
- {name: plain, policy: other}
groups: [{name: a, schedulingClass: calm}]
",
            expect![[
                r#"{"groups":[{"name":"a","schedulingClass":"calm","size":{"requests":{"min":1}}}],"schedulingClasses":[{"ioClass":"idle","name":"calm","namespaces":["batch*"],"policy":"idle","qosClasses":["BestEffort"]},{"ioClass":"rt","ioPriority":2,"name":"first","policy":"fifo","priority":42},{"name":"turns","policy":"rr","priority":1},{"name":"later","nice":0,"policy":"batch"},{"name":"nice","nice":-5},{"name":"plain"}]}"#
            ]],
        );
    }

    #[test]
    fn what_a_class_cannot_say_is_refused_with_a_reason() {
        check(
            "
schedulingClasses:
- {name: a, policy: fifo, nice: -5, ioPriority: 8, qosClasses: [Best], other: 1}
- {name: a, priority: 10, ioPriority: 3}
- {name: b, policy: deadline, runtime: 1, flags: [reclaim]}
- {name: c, policy: rr, priority: 100}
groups: [{name: a, schedulingClass: odd}]
",
            expect![[r#"
                f:3:3: `schedulingClasses`: fifo and rr need a `priority` of 1 to 99
                f:3:33: `schedulingClasses`: `nice` is of the policies other and batch
                f:3:49: `schedulingClasses`: `ioPriority` is `8`, expected 0 to 7
                f:3:49: `schedulingClasses`: `ioPriority` is of the classes of I/O rt and be
                f:3:64: `schedulingClasses`: `Best` is no QoS class
                f:3:72: `schedulingClasses`: unknown key `other`; known are name, policy, priority, nice, ioClass, ioPriority, namespaces, qosClasses
                f:4:3: two classes of `schedulingClasses` are called `a`
                f:4:23: `schedulingClasses`: `priority` is of the policies fifo and rr
                f:4:39: `schedulingClasses`: `ioPriority` is of the classes of I/O rt and be
                f:5:21: `schedulingClasses`: `policy` cannot be `deadline`: the kernel refuses a deadline to threads that may not run on all CPUs (sched_setattr(2), EPERM), so a container with a CPU set could not be created
                f:5:31: `schedulingClasses`: `runtime` cannot be set: the kernel refuses a deadline to threads that may not run on all CPUs (sched_setattr(2), EPERM), so a container with a CPU set could not be created
                f:5:43: `schedulingClasses`: `flags` cannot be set: flags of a policy are for the program to set
                f:6:35: `schedulingClasses`: `priority` is `100`, expected 1 to 99
                f:7:9: `groups`: `a` has the class `odd`, which `schedulingClasses` does not define"#]],
        );
    }
}
