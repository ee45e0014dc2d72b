//! Objects of the API server as the agent uses them. In: their JSON. Out: values, with what is wrong with an object that the API server's own checks
//! have let pass.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// The annotation that lets one configuration move more exclusive containers than its `maxMoves`: a number, or `any`.
pub(crate) const ALLOW_MOVES: &str = "bayplan.dev/allow-moves";

/// The manager of labels and annotations.
pub(crate) const METADATA_MANAGER: &str = "bayplan-agent/metadata";
/// The manager of labels of features and profiles.
pub(crate) const FEATURES_MANAGER: &str = "bayplan-agent/features";
/// The manager of extended resources.
pub(crate) const CAPACITY_MANAGER: &str = "bayplan-agent/capacity";

/// The manager of the condition.
pub(crate) const CONDITION_MANAGER: &str = "bayplan-agent/condition";
/// The manager of the NodeResourceTopology.
pub(crate) const TOPOLOGY_MANAGER: &str = "bayplan-agent/node-topology";

/// The manager of the NodeFeature.
pub(crate) const NODE_FEATURE_MANAGER: &str = "bayplan-agent/node-feature";

/// What the agent needs of the Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeObject {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: Vec<Json>,
    /// `status.capacity`.
    pub capacity: BTreeMap<String, String>,
    /// The condition `bayplan.dev/Placing`.
    pub placing: Option<NodeCondition>,
    /// What of these the agent has applied.
    pub owned: OwnedKeys,
}

/// The type of the agent's condition.
pub(crate) const PLACING: &str = "bayplan.dev/Placing";

/// A condition as the Node has it, as far as it is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCondition {
    pub(crate) status: String,
    pub(crate) reason: String,
}

impl NodeCondition {
    /// Of a Node object.
    pub(crate) fn read(node: &Json) -> Option<NodeCondition> {
        let conditions = node.pointer("/status/conditions")?.as_array()?;
        let found = conditions.iter().find(|it| it["type"] == PLACING)?;
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        Some(NodeCondition { status: text("status"), reason: text("reason") })
    }
}

/// Keys of a Node that the agent has applied, by `metadata.managedFields`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedKeys {
    /// Of labels.
    pub labels: BTreeSet<String>,
    /// Of annotations.
    pub annotations: BTreeSet<String>,
    /// Of labels of features and profiles.
    pub features: BTreeSet<String>,
    /// Of extended resources.
    pub capacity: BTreeSet<String>,
    /// Whether the condition is the agent's.
    pub has_condition: bool,
}

impl NodeObject {
    /// Whether nothing differs but the version, which kubelet's reports change.
    pub(crate) fn is_as(&self, other: &NodeObject) -> bool {
        *self == NodeObject { version: self.version.clone(), ..other.clone() }
    }

    /// Reads a Node; what is missing is empty.
    pub fn read(object: &Json) -> NodeObject {
        let text = |pointer: &str| {
            object.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned()
        };
        let map = |pointer: &str| {
            let found = object.pointer(pointer).cloned().unwrap_or_default();
            serde_json::from_value(found).unwrap_or_default()
        };
        let keys = |manager: &str, pointer: &str| owned_keys(object, manager, pointer);
        NodeObject {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            version: text("/metadata/resourceVersion"),
            labels: map("/metadata/labels"),
            annotations: map("/metadata/annotations"),
            taints: object
                .pointer("/spec/taints")
                .and_then(Json::as_array)
                .cloned()
                .unwrap_or_default(),
            capacity: map("/status/capacity"),
            placing: NodeCondition::read(object),
            owned: OwnedKeys {
                labels: keys(METADATA_MANAGER, "/f:metadata/f:labels"),
                annotations: keys(METADATA_MANAGER, "/f:metadata/f:annotations"),
                features: keys(FEATURES_MANAGER, "/f:metadata/f:labels"),
                capacity: keys(CAPACITY_MANAGER, "/f:status/f:capacity"),
                has_condition: has_condition(object),
            },
        }
    }
}

/// Whether the zones of a NodeResourceTopology are the agent's, and no other program's.
pub(crate) fn is_own_topology(object: &Json) -> bool {
    let entries = object.pointer("/metadata/managedFields").and_then(Json::as_array);
    let of_zones =
        entries.into_iter().flatten().filter(|it| it["fieldsV1"].get("f:zones").is_some());
    let mut is_own = of_zones.map(|it| it["manager"] == TOPOLOGY_MANAGER).peekable();
    is_own.peek().is_some() && is_own.all(|it| it)
}

/// Whether the agent has applied a condition: an element of a list that is found by its key.
fn has_condition(object: &Json) -> bool {
    let entries = object.pointer("/metadata/managedFields").and_then(Json::as_array);
    let own = entries.into_iter().flatten().filter(|it| it["manager"] == CONDITION_MANAGER);
    let mut lists =
        own.filter_map(|it| it["fieldsV1"].pointer("/f:status/f:conditions")?.as_object());
    lists.any(|it| it.keys().any(|key| key.starts_with("k:")))
}

/// Keys of a map that a manager has applied.
fn owned_keys(object: &Json, manager: &str, pointer: &str) -> BTreeSet<String> {
    let entries = object.pointer("/metadata/managedFields").and_then(Json::as_array);
    let own = entries
        .into_iter()
        .flatten()
        .filter(|it| it["manager"] == manager && it["operation"] == "Apply");
    let maps = own.filter_map(|it| it["fieldsV1"].pointer(pointer)?.as_object());
    maps.flat_map(|it| it.keys()).filter_map(|it| Some(it.strip_prefix("f:")?.to_owned())).collect()
}

/// A BayplanConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigObject {
    /// What stands before its name in messages: its kind, and the namespace of an object of another system.
    pub place: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Labels that a node must have; `None`: the object counts by its name.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Of several objects that select a node, the highest counts.
    pub priority: i32,
    /// Exclusive containers that may be moved.
    pub max_moves: u32,
    /// Nodes take it over within so many seconds.
    pub rollout_seconds: u32,
    /// Exclusive containers that the annotation lets it move instead of `max_moves`.
    pub allowed: Option<u32>,
    /// The configuration in YAML, keys in the order in which `kubectl` shows them.
    pub text: String,
    /// What of another system's object does not count.
    pub note: Option<String>,
    /// What is wrong with the object itself; it is chosen as any other, and not used.
    pub problem: Option<String>,
}

#[derive(Default, Deserialize)]
struct Meta {
    name: String,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_selector: Option<BTreeMap<String, String>>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    max_moves: u32,
    #[serde(default)]
    rollout_seconds: u32,
    #[serde(default)]
    config: Option<Json>,
}

impl ConfigObject {
    /// A BayplanConfig that says nothing.
    pub(crate) fn empty(name: &str, generation: i64) -> ConfigObject {
        ConfigObject {
            place: "BayplanConfig".to_owned(),
            name: name.to_owned(),
            generation,
            node_selector: None,
            priority: 0,
            max_moves: 0,
            rollout_seconds: 0,
            allowed: None,
            text: String::new(),
            note: None,
            problem: None,
        }
    }

    /// Kind and name, as the daemon is told.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.place, self.name)
    }

    /// Reads an object as far as it can be understood.
    pub fn read(object: &Json) -> ConfigObject {
        let mut problems = Vec::new();
        let meta: Meta = part(object, "metadata", &mut problems);
        let spec: Spec = part(object, "spec", &mut problems);
        let (allowed, mistakes) = allowed_moves(&meta.annotations);
        problems.extend(mistakes);
        let text = match spec.config {
            None | Some(Json::Null) => String::new(),
            Some(config) => serde_yaml::to_string(&config).unwrap_or_else(|error| {
                problems.push(format!("spec.config: {error}"));
                String::new()
            }),
        };
        ConfigObject {
            node_selector: spec.node_selector,
            priority: spec.priority,
            max_moves: spec.max_moves,
            rollout_seconds: spec.rollout_seconds,
            allowed,
            text,
            problem: problems.into_iter().reduce(|all, one| format!("{all}\n{one}")),
            ..ConfigObject::empty(&meta.name, meta.generation)
        }
    }
}

/// What an annotation lets an object move, and what is wrong with it.
pub(crate) fn allowed_moves(annotations: &BTreeMap<String, String>) -> (Option<u32>, Vec<String>) {
    let Some(text) = annotations.get(ALLOW_MOVES) else { return (None, Vec::new()) };
    match text.trim() {
        "any" => (Some(u32::MAX), Vec::new()),
        number => match number.parse() {
            Ok(number) => (Some(number), Vec::new()),
            Err(_) => {
                let said =
                    format!("annotation {ALLOW_MOVES} is `{number}`, expected a number or any");
                (None, vec![said])
            }
        },
    }
}

/// One part of an object; its default where it has another form, which is told.
fn part<T: Default + DeserializeOwned>(object: &Json, name: &str, problems: &mut Vec<String>) -> T {
    let json = object.get(name).cloned().unwrap_or(Json::Null);
    serde_json::from_value(json).unwrap_or_else(|error| {
        problems.push(format!("{name}: {error}"));
        T::default()
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(json: &str, expected: Expect) {
        let it = ConfigObject::read(&serde_json::from_str(json).unwrap());
        let shown = it.problem.clone().unwrap_or_else(|| format!("{it:?}"));
        expected.assert_eq(&shown);
    }

    #[test]
    fn keys_that_the_agent_has_applied_are_told_from_others() {
        let fields = |manager: &str, operation: &str, fields: Json| serde_json::json!({ "manager": manager, "operation": operation, "fieldsV1": fields });
        let labels = |key: &str| serde_json::json!({ "f:metadata": { "f:labels": { key: {} } } });
        let node = NodeObject::read(&serde_json::json!({
            "metadata": { "name": "n", "uid": "u", "labels": { "a": "1" }, "managedFields": [
                fields(METADATA_MANAGER, "Apply", labels("f:a")),
                fields("kubelet", "Update", labels("f:b")),
                fields(CONDITION_MANAGER, "Apply", serde_json::json!({ "f:status": { "f:conditions": { "k:{\"type\":\"t\"}": {} } } })),
                fields(CAPACITY_MANAGER, "Apply", serde_json::json!({ "f:status": { "f:capacity": { "f:x/y": {} } } })),
            ] },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] }, "status": { "capacity": { "x/y": "0" } },
        }));
        expect![[r#"NodeObject { name: "n", uid: "u", version: "", labels: {"a": "1"}, annotations: {}, taints: [Object {"effect": String("NoSchedule"), "key": String("k")}], capacity: {"x/y": "0"}, placing: None, owned: OwnedKeys { labels: {"a"}, annotations: {}, features: {}, capacity: {"x/y"}, has_condition: true } }"#]].assert_eq(&format!("{node:?}"));
    }

    #[test]
    fn the_condition_is_found_among_those_of_others() {
        let node = json!({ "status": { "conditions": [
            { "type": "Ready", "status": "True" },
            { "type": PLACING, "status": "False", "reason": "NotReady" },
        ] } });
        let found = NodeCondition::read(&node).unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "NotReady"));
        assert_eq!(NodeCondition::read(&json!({})), None);
    }

    #[test]
    fn objects_are_read_and_mistakes_told() {
        check(
            r#"{"metadata": {"name": "default", "generation": 2, "annotations": {"bayplan.dev/allow-moves": "any"}},
                "spec": {"maxMoves": 1, "config": {"reservedCpus": "0", "compaction": {"enabled": true}}}}"#,
            expect![[
                r#"ConfigObject { place: "BayplanConfig", name: "default", generation: 2, node_selector: None, priority: 0, max_moves: 1, rollout_seconds: 0, allowed: Some(4294967295), text: "compaction:\n  enabled: true\nreservedCpus: \"0\"\n", note: None, problem: None }"#
            ]],
        );
        check(
            r#"{"metadata": {"name": "node.a"}, "spec": {"nodeSelector": {"a": "b"}, "priority": -3, "rolloutSeconds": 60}}"#,
            expect![[
                r#"ConfigObject { place: "BayplanConfig", name: "node.a", generation: 0, node_selector: Some({"a": "b"}), priority: -3, max_moves: 0, rollout_seconds: 60, allowed: None, text: "", note: None, problem: None }"#
            ]],
        );
        check(
            r#"{"metadata": {"name": "x"}, "spec": {"maxMoves": -1}}"#,
            expect!["spec: invalid value: integer `-1`, expected u32"],
        );
        check(
            r#"{"metadata": {"name": "x", "annotations": {"bayplan.dev/allow-moves": "all"}}, "spec": {}}"#,
            expect!["annotation bayplan.dev/allow-moves is `all`, expected a number or any"],
        );
    }

    #[test]
    fn a_topology_is_the_agents_only_where_all_its_zones_are() {
        let entry =
            |manager: &str, field: &str| json!({ "manager": manager, "fieldsV1": { (field): {} } });
        for (entries, expected) in [
            (vec![entry(TOPOLOGY_MANAGER, "f:zones"), entry("kubectl", "f:metadata")], true),
            (vec![entry("rte", "f:zones")], false),
            (vec![entry(TOPOLOGY_MANAGER, "f:zones"), entry("rte", "f:zones")], false),
            (vec![entry(TOPOLOGY_MANAGER, "f:metadata")], false),
            (Vec::new(), false),
        ] {
            let object = json!({ "metadata": { "managedFields": entries } });
            assert_eq!(is_own_topology(&object), expected, "{object}");
        }
    }
}
