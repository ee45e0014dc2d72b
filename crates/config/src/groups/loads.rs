//! The key `groupLoads`: what members of groups do to the cores and caches that they run on. In: a tree of the file. Out: kinds of load, or every mistake in them.

use bayplan_node::groups::Load;
use bayplan_topology::Level;
use bayplan_workload::annotations::Words;
use serde_json::{Value as Json, json};

use super::named::named_list;
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::Fields;
use crate::kind::{Field, Tree};
use crate::yaml::Node;

/// `groupLoads`.
pub(crate) struct GroupLoads;

const EXPECTED: &str = "a list of kinds of load such as {name: avx, level: core}";
const KEYS: [&str; 3] = ["name", "level", "overloadsInGroup"];
const LEVELS: &Words<Level> = &[("core", Level::Core), ("l2", Level::L2)];

impl Tree for GroupLoads {
    fn expected(&self) -> String {
        EXPECTED.to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let (loads, errors) = named_list(field, (EXPECTED, "kinds"), load, |it| &it.name);
        config.group_loads = loads;
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        let shown = |load: &Load| {
            let level =
                LEVELS.iter().find(|(_, it)| *it == load.level).map_or("", |(word, _)| word);
            match load.overloads {
                true => json!({ "name": load.name, "level": level, "overloadsInGroup": true }),
                false => json!({ "name": load.name, "level": level }),
            }
        };
        config.group_loads.iter().map(shown).collect()
    }

    fn schema(&self) -> Json {
        json!({
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "required": ["name"],
                "additionalProperties": false,
                "properties": {
                    "name": { "type": "string" },
                    "level": { "enum": ["core", "l2"] },
                    "overloadsInGroup": { "type": "boolean" },
                },
            },
        })
    }
}

fn load(node: &Node, errors: &mut Vec<ConfigError>) -> Load {
    let mut read = Load { name: String::new(), level: Level::Core, overloads: false };
    let mut fields = Fields::new("groupLoads", node, errors);
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "name" => read.name = fields.name(value),
            "level" => read.level = fields.word(&key, value, LEVELS).unwrap_or(Level::Core),
            "overloadsInGroup" => read.overloads = fields.flag(&key, value).unwrap_or(false),
            other => fields.unknown(at, other, &KEYS),
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
    fn types_have_the_loads_and_components_that_there_are() {
        check(
            "
groups:
- {name: vector, loads: [avx, memory]}
- {name: near, cpus: {far: [eth0], balance: true}}
- {name: both, components: [near, vector], componentCreation: balance}
groupLoads:
- {name: avx, level: core, overloadsInGroup: true}
- {name: memory, level: l2}
",
            expect![[
                r#"{"groupLoads":[{"level":"core","name":"avx","overloadsInGroup":true},{"level":"l2","name":"memory"}],"groups":[{"loads":["avx","memory"],"name":"vector","size":{"requests":{"min":1}}},{"cpus":{"balance":true,"far":["eth0"]},"name":"near","size":{"requests":{"min":1}}},{"componentCreation":"balance","components":["near","vector"],"name":"both","size":{"requests":{"min":1}}}]}"#
            ]],
        );
    }

    #[test]
    fn names_that_mean_nothing_are_mistakes() {
        check(
            "
groups:
- {name: a, loads: [avx]}
- {name: b, components: [a, c, d, e]}
- {name: d, components: [a], size: {list: [\"4\"]}}
- {name: e, size: {domain: numa}}
groupLoads:
- {level: l3, much: true}
- {name: x}
- {name: x}
- {level: l2}
",
            expect![[r#"
                f:3:3: `groups`: `a` has the load `avx`, which `groupLoads` does not define; it has x, x
                f:3:3: `groups`: `b` has the component `c`: there is no such type
                f:3:3: `groups`: `b` has the component `d`: that has components itself; name these instead, and others several times where their shares are larger
                f:3:3: `groups`: `b` has the component `e`: the size of that is neither requests nor fixed
                f:3:3: `groups`: `d` has components, so its size is one of requests and fixed, and its members share
                f:8:3: one of the kinds of `groupLoads` has no `name`
                f:8:11: `groupLoads`: `level` is `l3`, expected core, l2
                f:8:15: `groupLoads`: unknown key `much`; known are name, level, overloadsInGroup
                f:10:3: two kinds of `groupLoads` are called `x`
                f:11:3: one of the kinds of `groupLoads` has no `name`"#]],
        );
        check(
            "
groups:
- {name: a}
- {name: b, components: [a], loads: [avx]}
- {name: c, components: [a], cpus: {near: [eth0]}}
- {name: d, components: [a, a], size: {fixed: 1}}
- {name: e, components: [a, a], size: {fixed: 1}, componentCreation: balance, cpus: {balance: true}}
groupLoads: [{name: avx}]
",
            expect![[r#"
                f:3:3: `groups`: `b` has components, so `loads`, `near` and `far` are for these to say
                f:3:3: `groups`: `c` has components, so `loads`, `near` and `far` are for these to say
                f:3:3: `groups`: `d` has fewer CPUs than its 2 components"#]],
        );
        check(
            "groupLoads: avx\n",
            expect![
                "f:1:13: `groupLoads` is no list, expected a list of kinds of load such as {name: avx, level: core}"
            ],
        );
    }
}
