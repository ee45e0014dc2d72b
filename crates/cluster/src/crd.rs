//! The custom resources. In: the JSON Schema of a configuration of the cluster, which comes from the configuration's table. Out: definitions for
//! `kubectl apply`.
//!
//! A structural schema of Kubernetes says less than JSON Schema: one type each, no `anyOf` of types, no unknown keys beside known ones. What it cannot say is
//! left to the daemon, which says it with line and column. Unknown keys are kept and not dropped, so that the daemon can tell of them; a dropped key
//! would be a mistake that nothing tells of. Defaults are not in the schema: the API server would write all of them into every object.

use serde_json::{Map, Value as Json, json};

use crate::{GROUP, VERSION};

/// Nodes take a configuration over within this time at most: a day.
const ROLLOUT_SECONDS_MAX: u32 = 86_400;

/// BayplanConfig and BayplanNode; `config` is the schema of a configuration.
pub fn crds(config: &Json) -> [Json; 2] {
    [config_crd(config), node_crd()]
}

fn config_crd(config: &Json) -> Json {
    let mut config = structural(config);
    config["description"] = json!(
        "The configuration, as a whole: what is left out has its default, whatever the node's file says."
    );
    let spec = json!({
        "type": "object",
        "properties": {
            "nodeSelector": {
                "description": "Labels that a node must have. Without a selector the object counts by its name: default, group.GROUP or node.NODE.",
                "type": "object",
                "maxProperties": 16,
                "additionalProperties": { "type": "string", "maxLength": 63 },
            },
            "priority": {
                "description": "Of several objects that select a node the highest counts, then the first name.",
                "type": "integer",
                "format": "int32",
            },
            "maxMoves": {
                "description": "Exclusive containers that a node may move for it. With more it goes on as it is, unless the annotation bayplan.dev/allow-moves has their number, or any.",
                "type": "integer",
                "minimum": 0,
                "maximum": 1_000_000,
            },
            "rolloutSeconds": {
                "description": "Nodes take a change over one after the other within so many seconds.",
                "type": "integer",
                "minimum": 0,
                "maximum": ROLLOUT_SECONDS_MAX,
            },
            "config": config,
        },
        "required": ["config"],
    });
    let by_name = "self.metadata.name == 'default' || self.metadata.name.startsWith('group.') || self.metadata.name.startsWith('node.') || has(self.spec.nodeSelector)";
    let schema = json!({
        "type": "object",
        "properties": { "spec": spec },
        "required": ["spec"],
        "x-kubernetes-validations": [{
            "rule": by_name,
            "message": "an object without spec.nodeSelector is named default, group.GROUP or node.NODE; with another name it would configure no node",
        }],
    });
    let columns = json!([
        { "name": "Priority", "type": "integer", "jsonPath": ".spec.priority" },
        { "name": "Max-Moves", "type": "integer", "jsonPath": ".spec.maxMoves" },
        { "name": "Rollout", "type": "integer", "jsonPath": ".spec.rolloutSeconds" },
        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
    ]);
    definition(
        &Names { kind: "BayplanConfig", plural: "bayplanconfigs", short: "bpc" },
        &schema,
        &columns,
        None,
    )
}

fn node_crd() -> Json {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let number = |about: &str| json!({ "type": "integer", "description": about });
    let condition = json!({
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            "type": { "type": "string" },
            "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
            "reason": { "type": "string" },
            "message": { "type": "string" },
            "lastTransitionTime": { "type": "string", "format": "date-time" },
            "observedGeneration": { "type": "integer", "format": "int64" },
        },
    });
    let status = json!({
        "type": "object",
        "properties": {
            "configName": text("The object that configures this node; empty: the node's file does."),
            "configGeneration": number("Its generation."),
            "configHash": text("Of the configuration that holds; equal on nodes that have the same."),
            "daemonVersion": text("Of bayplan on the node."),
            "mode": text("placing, draining or restored."),
            "lastSync": { "type": "string", "format": "date-time", "description": "When the agent last wrote this." },
            "exclusiveCpus": number("CPUs of one container each."),
            "sharedCpus": number("CPUs that run shared containers."),
            "reservedCpus": number("CPUs for system pods."),
            "isolatedCpus": number("CPUs that the kernel's command line isolates."),
            "largestFree": number("Most CPUs without an exclusive container in one NUMA node."),
            "containers": number("Containers that have a place."),
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": condition,
            },
        },
    });
    let schema = json!({ "type": "object", "properties": { "status": status } });
    let is = |kind: &str| format!(".status.conditions[?(@.type=='{kind}')].status");
    let columns = json!([
        { "name": "Config", "type": "string", "jsonPath": ".status.configName" },
        { "name": "Applied", "type": "string", "jsonPath": is("ConfigApplied") },
        { "name": "Ready", "type": "string", "jsonPath": is("DaemonReady") },
        { "name": "Healthy", "type": "string", "jsonPath": is("PlacementHealthy") },
        { "name": "Mode", "type": "string", "jsonPath": ".status.mode" },
        { "name": "Exclusive", "type": "integer", "jsonPath": ".status.exclusiveCpus" },
        { "name": "Shared", "type": "integer", "jsonPath": ".status.sharedCpus" },
        { "name": "Largest-Free", "type": "integer", "jsonPath": ".status.largestFree" },
        { "name": "Version", "type": "string", "jsonPath": ".status.daemonVersion", "priority": 1 },
        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
    ]);
    let names = Names { kind: "BayplanNode", plural: "bayplannodes", short: "bpn" };
    definition(&names, &schema, &columns, Some(".status.configName"))
}

struct Names {
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
}

/// `selectable`: a field that lists can be narrowed by; then the status is a resource of its own, too.
fn definition(names: &Names, schema: &Json, columns: &Json, selectable: Option<&str>) -> Json {
    let Names { kind, plural, short } = names;
    let mut version = json!({
        "name": VERSION,
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": schema },
        "additionalPrinterColumns": columns,
    });
    if let Some(field) = selectable {
        version["subresources"] = json!({ "status": {} });
        version["selectableFields"] = json!([{ "jsonPath": field }]);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_lowercase(),
                "shortNames": [short],
            },
            "versions": [version],
        },
    })
}

/// What a structural schema can say of a JSON Schema.
fn structural(schema: &Json) -> Json {
    let mut said = Map::new();
    if let Some(description) = schema.get("description") {
        said.insert("description".to_owned(), description.clone());
    }
    let keep = |said: &mut Map<String, Json>, keys: &[&str]| {
        for key in keys {
            if let Some(value) = schema.get(*key) {
                said.insert((*key).to_owned(), value.clone());
            }
        }
    };
    match types(schema).as_slice() {
        ["object"] => object(schema, &mut said),
        ["array"] => {
            said.insert("type".to_owned(), json!("array"));
            let items = schema.get("items").map_or_else(anything, structural);
            said.insert("items".to_owned(), items);
        }
        ["string"] => {
            said.insert("type".to_owned(), json!("string"));
            keep(&mut said, &["pattern", "minLength", "enum"]);
        }
        ["integer"] => {
            said.insert("type".to_owned(), json!("integer"));
            keep(&mut said, &["minimum", "maximum"]);
        }
        ["boolean"] => {
            said.insert("type".to_owned(), json!("boolean"));
        }
        ["integer", "string"] => {
            said.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
        }
        _ => {
            said.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
    }
    if is_nullable(schema) && said.contains_key("type") {
        said.insert("nullable".to_owned(), json!(true));
    }
    Json::Object(said)
}

fn object(schema: &Json, said: &mut Map<String, Json>) {
    said.insert("type".to_owned(), json!("object"));
    if let Some(required) = schema.get("required") {
        said.insert("required".to_owned(), required.clone());
    }
    match (schema.get("properties").and_then(Json::as_object), schema.get("additionalProperties")) {
        (Some(properties), _) => {
            let properties =
                properties.iter().map(|(name, of)| (name.clone(), structural(of))).collect();
            said.insert("properties".to_owned(), Json::Object(properties));
            said.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
        (None, Some(of)) if of.is_object() => {
            said.insert("additionalProperties".to_owned(), structural(of));
        }
        _ => {
            said.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
    }
}

fn anything() -> Json {
    json!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// Names of its types but for `null`, in order; none where it says them in another way than as types or words.
fn types(schema: &Json) -> Vec<&str> {
    let mut types: Vec<&str> = match (schema.get("type"), schema.get("enum")) {
        (Some(Json::String(one)), _) => vec![one],
        (Some(Json::Array(all)), _) => all.iter().filter_map(Json::as_str).collect(),
        (None, Some(Json::Array(words))) if words.iter().all(Json::is_string) => vec!["string"],
        (None, Some(Json::Array(words))) if words.iter().all(Json::is_boolean) => vec!["boolean"],
        _ => Vec::new(),
    };
    types.retain(|it| *it != "null");
    types.sort_unstable();
    types
}

fn is_nullable(schema: &Json) -> bool {
    let is_null = |it: &Json| it.as_str() == Some("null");
    schema.get("type").and_then(Json::as_array).is_some_and(|all| all.iter().any(is_null))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(schema: Json, expected: Expect) {
        expected.assert_eq(&structural(&schema).to_string());
    }

    #[test]
    fn what_can_be_said_is_said_and_the_rest_is_let_pass() {
        check(
            json!({ "type": ["string", "integer"], "pattern": "^[0-9]*$", "default": "" , "description": "d"}),
            expect![[r#"{"description":"d","x-kubernetes-int-or-string":true}"#]],
        );
        check(json!({ "enum": ["a", "b"] }), expect![[r#"{"enum":["a","b"],"type":"string"}"#]]);
        check(json!({ "enum": [true, false] }), expect![[r#"{"type":"boolean"}"#]]);
        check(
            json!({ "enum": ["on", true] }),
            expect![[r#"{"x-kubernetes-preserve-unknown-fields":true}"#]],
        );
        check(
            json!({ "anyOf": [{}] }),
            expect![[r#"{"x-kubernetes-preserve-unknown-fields":true}"#]],
        );
        check(
            json!({ "type": ["object", "null"], "additionalProperties": false, "properties": { "a": { "type": "integer", "minimum": 1 } }, "allOf": [] }),
            expect![[
                r#"{"nullable":true,"properties":{"a":{"minimum":1,"type":"integer"}},"type":"object","x-kubernetes-preserve-unknown-fields":true}"#
            ]],
        );
        check(
            json!({ "type": "object", "propertyNames": {}, "additionalProperties": { "type": "array", "uniqueItems": true, "items": { "type": "string" } } }),
            expect![[
                r#"{"additionalProperties":{"items":{"type":"string"},"type":"array"},"type":"object"}"#
            ]],
        );
    }
}
