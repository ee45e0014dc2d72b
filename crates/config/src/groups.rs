//! The key `groups`: types of groups of containers with a common CPU set. In: a tree of the file. Out: types, or every mistake in them.

mod fields;
mod links;
mod loads;
mod named;
pub(crate) mod scheduling;
mod shown;

pub(super) use links::link;
pub(super) use loads::GroupLoads;
pub(super) use scheduling::SchedulingClasses;

use bayplan_workload::annotations::Condition;
use serde_json::{Value as Json, json};

use super::kind::{Field, Tree};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::yaml::{Node, Position, Value};
use bayplan_node::groups::{GroupType, Inside, Members, Size};

use self::fields::{INSIDE, texts};
use self::named::named_list;
use crate::fields::Fields;

/// `groups`.
pub(super) struct GroupTypes;

const EXPECTED: &str = "a list of types such as {name: web, members: {namespaces: [shop]}, size: {requests: {min: 1, max: 8}}}";

impl Tree for GroupTypes {
    fn expected(&self) -> String {
        EXPECTED.to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let (types, mut errors) = named_list(field, (EXPECTED, "types"), group_type, |it| &it.name);
        errors.extend(overlapping(&types, field.value));
        config.groups = types.into();
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        config.groups.iter().map(shown::group_type).collect()
    }

    fn schema(&self) -> Json {
        shown::schema()
    }
}

/// Lists of CPUs that have CPUs in common.
fn overlapping(types: &[GroupType], value: &Node) -> Vec<ConfigError> {
    let lists = types.iter().enumerate().flat_map(|(index, it)| match &it.size {
        Size::List(lists) => lists.iter().map(|cpus| (index, cpus)).collect(),
        _ => Vec::new(),
    });
    let lists: Vec<_> = lists.collect();
    let mut errors = Vec::new();
    for (at, (index, cpus)) in lists.iter().enumerate() {
        let before = lists.iter().take(at).find(|(_, other)| other.intersects(cpus));
        if let (Some((_, other)), Value::List(items)) = (before, &value.value) {
            let place: Position = items.get(*index).map(|it| it.at).unwrap_or_default();
            let twice = other.intersection(cpus);
            let message = format!("CPUs {twice} stand in two lists of `groups`");
            errors.push(ConfigError { at: place, message });
        }
    }
    errors
}

const KEYS: [&str; 17] = [
    "name",
    "members",
    "instances",
    "size",
    "inside",
    "capacity",
    "priority",
    "cpus",
    "memoryTypes",
    "pinCPU",
    "pinMemory",
    "cpuClass",
    "shareIdle",
    "loads",
    "components",
    "componentCreation",
    "schedulingClass",
];

fn group_type(node: &Node, errors: &mut Vec<ConfigError>) -> GroupType {
    let mut read = GroupType::new("");
    let mut shares_idle = None;
    let mut fields = Fields::new("groups", node, errors);
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "name" => read.name = fields.name(value),
            "members" => read.members = members(&mut fields.inner("members", value)),
            "instances" => {
                read.instances = fields::instances(&mut fields.inner("instances", value), value)
            }
            "size" => (read.size, read.follows) = fields::size(&mut fields.inner("size", value)),
            "inside" => read.inside = fields.word(&key, value, INSIDE).unwrap_or_default(),
            "capacity" => read.capacity = fields::capacity(&mut fields.inner("capacity", value)),
            "priority" => {
                read.priority = fields.word(&key, value, fields::PRIORITIES).unwrap_or_default();
            }
            "cpus" => (read.cpus, read.place) = fields::cpus(&mut fields.inner("cpus", value)),
            "cpuClass" => read.cpu_class = fields.text(&key, value).map(str::to_owned),
            "shareIdle" => shares_idle = fields.word(&key, value, fields::IDLE_LEVELS),
            "loads" => read.loads = fields::loads(&mut fields, value),
            "components" => read.components = texts(&mut fields, &key, value),
            "componentCreation" => {
                read.creation = fields.word(&key, value, fields::CREATIONS).unwrap_or_default();
            }
            "memoryTypes" => read.memory_kinds = fields.memory_kinds(value),
            "pinCPU" => read.pins_cpus = fields.flag(&key, value),
            "pinMemory" => read.pins_memory = fields.flag(&key, value),
            "schedulingClass" => {
                read.scheduling_class = fields.text(&key, value).map(str::to_owned);
            }
            other => fields.unknown(at, other, &KEYS),
        }
    }
    read.cpus.shares_idle = shares_idle;
    let is_list = matches!(read.size, Size::List(_));
    if read.inside == Inside::Slots && !is_list {
        let message = format!("`{}`: slots need a size that is a list of CPUs", read.name);
        fields.wrong(node.at, message);
    }
    read
}

fn members(fields: &mut Fields<'_>) -> Members {
    const KEYS: [&str; 4] = ["namespaces", "match", "annotation", "all"];
    let mut read = Members::default();
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "namespaces" => read.namespaces = texts(fields, &key, value),
            "match" => read.conditions = conditions(fields, &key, value),
            "annotation" => read.by_annotation = fields.flag(&key, value).unwrap_or(true),
            "all" => read.all = fields.flag(&key, value).unwrap_or(false),
            other => fields.unknown(at, other, &KEYS),
        }
    }
    read
}

/// The expressions of a key of the file, or every mistake in them.
pub(super) fn read_conditions(field: &Field<'_>) -> Result<Vec<Condition>, Vec<ConfigError>> {
    let mut errors = Vec::new();
    let mut fields = Fields::new(field.key, field.value, &mut errors);
    let read = conditions(&mut fields, "expressions", field.value);
    if errors.is_empty() { Ok(read) } else { Err(errors) }
}

/// Expressions of the key `what`.
fn conditions(fields: &mut Fields<'_>, what: &str, value: &Node) -> Vec<Condition> {
    let Value::List(items) = &value.value else {
        fields.wrong(value.at, format!("`{what}` is no list of {{key, operator, values}}"));
        return Vec::new();
    };
    let mut read = Vec::new();
    for item in items {
        match Condition::read(&as_json(item)) {
            Ok(condition) => read.push(condition),
            Err(why) => fields.wrong(item.at, format!("`{what}`: {why}")),
        }
    }
    read
}

fn as_json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Scalar(text) => json!(text),
        Value::List(items) => items.iter().map(as_json).collect(),
        Value::Map(entries) => Json::Object(
            entries.iter().map(|(_, key, value)| (key.clone(), as_json(value))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use crate::test_support::shown_line;

    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&shown_line(text, |line| line.trim_start().starts_with("groups:")));
    }

    #[test]
    fn a_type_says_what_is_not_as_usual() {
        let text = r#"
groups:
- {name: redis, members: {namespaces: [shop]}, instances: {max: 4, preferNew: true}, size: {requests: {min: 2, max: 8}}}
- {name: exclusive, size: {list: ["4,12", "5,13"]}, inside: slots}
- {name: shared, size: {list: ["6,14"]}, pinMemory: false}
- {name: dualcore, instances: {max: "95%", fill: packed}, size: {fixed: 2}, capacity: {pods: 3}}
- {name: zones, members: {match: [{key: namespace, operator: Matches, values: ["a*"]}]}, instances: {by: namespace}, size: {domain: numa}, inside: guaranteed-exclusive}
- {name: key, instances: {by: "${pod/labels/app}", min: 1, max: 8 CPUs}, cpus: {packing: spread, siblings: idle, isolated: prefer, coreType: performance, priority: low, within: numa, hideHyperthreads: true, near: [eth0]}, memoryTypes: [dram, hbm], priority: high, cpuClass: performance, shareIdle: numa}
- {name: rest, members: {all: true, annotation: false}}
"#;
        check(
            text,
            expect![[
                r#"groups: [{"instances":{"max":4,"preferNew":true},"members":{"namespaces":["shop"]},"name":"redis","size":{"requests":{"max":8,"min":2}}}, {"inside":"slots","name":"exclusive","size":{"list":["4,12","5,13"]}}, {"name":"shared","pinMemory":false,"size":{"list":["6,14"]}}, {"capacity":{"pods":3},"instances":{"fill":"packed","max":"95%"},"name":"dualcore","size":{"fixed":2}}, {"inside":"guaranteed-exclusive","instances":{"by":"namespace"},"members":{"match":[{"key":"namespace","operator":"Matches","values":["a*"]}]},"name":"zones","size":{"domain":"numa"}}, {"cpuClass":"performance","cpus":{"coreType":"performance","hideHyperthreads":true,"isolated":"prefer","near":["eth0"],"packing":"spread","priority":"low","siblings":"idle","within":"numa"},"instances":{"by":"${pod/labels/app}","max":"8 CPUs","min":1},"memoryTypes":["dram","hbm"],"name":"key","priority":"high","shareIdle":"numa","size":{"requests":{"min":1}}}, {"members":{"all":true,"annotation":false},"name":"rest","size":{"requests":{"min":1}}}]  # line 3 of the file"#
            ]],
        );
    }

    #[test]
    fn every_mistake_in_a_type_is_told() {
        let text = r#"
groups:
- members: {namespaces: shop, match: [{key: nme, operator: In}], some: true}
- {name: "a b", size: {requests: {min: 4, max: 2}}, inside: exclusive}
- {name: c, size: {fixed: 0}, instances: {by: "${nothing}", max: many}}
- {name: c, size: {list: ["1-2", "2-3"]}, capacity: {pods: 0}}
- {name: none, size: {domain: core}, inside: slots}
- {name: d, size: {fixed: 1, list: []}, cpus: {within: core, isolated: maybe}}
- often
"#;
        check(
            text,
            expect![[r#"
                f:3:3: one of the types of `groups` has no `name`
                f:3:25: `groups.members`: `namespaces` is no list
                f:3:39: `groups.members`: `match`: In needs some value, not 0
                f:3:66: `groups.members`: unknown key `some`; known are namespaces, match, annotation, all
                f:4:10: `groups`: `a b` is no name: expected letters, digits, `.`, `_`, `-`, and not `none`
                f:4:34: `groups.size.requests`: `max` is less than `min`, which is 4
                f:4:61: `groups`: `inside` is `exclusive`, expected share, slots, guaranteed-exclusive
                f:5:27: `groups.size`: `fixed` is `0`, expected 1 to 65536
                f:5:47: `groups.instances`: `by` is `${nothing}`, expected type, pod, namespace, or a text with keys such as `${pod/labels/app}`
                f:5:66: `groups.instances`: `max` is no number, percentage (`50%`), amount (`8 CPUs`) or `unlimited`
                f:6:3: two types of `groups` are called `c`
                f:6:3: CPUs 2 stand in two lists of `groups`
                f:6:60: `groups.capacity`: `pods` is `0`, expected 1 to 65536 or unlimited
                f:7:3: `groups`: `none`: slots need a size that is a list of CPUs
                f:7:10: `groups`: `none` is no name: expected letters, digits, `.`, `_`, `-`, and not `none`
                f:7:31: `groups.size`: `domain` is `core`, expected l3, numa, die, package, machine
                f:8:19: `groups.size`: expected one of requests, usage, fixed, list, domain
                f:8:56: `groups.cpus`: `within` is `core`, expected l3, numa, die, package, machine
                f:8:72: `groups.cpus`: `isolated` is `maybe`, expected no, prefer, require
                f:9:3: `groups`: expected lines of `key: value`
                f:9:3: one of the types of `groups` has no `name`"#]],
        );
        check(
            "groups: [{name: a, cpuClass: nope, instances: {min: 3, max: 2}}]\n",
            expect![[r#"
                f:1:9: `groups`: `a` has the `cpuClass` `nope`, which is no class; known are performance, balance-performance, balance-power, power, default
                f:1:9: `groups`: `a`: `max` of `instances` is 2, less than `min`, which is 3"#]],
        );
        check(
            "groups: {a: 1}\n",
            expect![
                "f:1:9: `groups` is no list, expected a list of types such as {name: web, members: {namespaces: [shop]}, size: {requests: {min: 1, max: 8}}}"
            ],
        );
    }
}
