//! Bayplan's own features as an object for Node Feature Discovery's master (`NodeFeature`, `nfd.k8s-sigs.io/v1alpha1`), for agents without a directory of NFD's worker. In: the
//! Node, and its features. Out: the object as JSON. Pure.
//!
//! NFD takes together all objects that name a node in their label. What its worker finds is in an object of the worker's, so that only Bayplan's own features are in this one.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::feature_set::{FeatureSet, own_labels};
use crate::object::NodeObject;

/// Names the node that an object is about.
pub(crate) const NODE_LABEL: &str = "nfd.node.kubernetes.io/node-name";
/// By which the agent knows its own objects.
pub(crate) const MANAGED_BY: [&str; 2] = ["app.kubernetes.io/managed-by", "bayplan-agent"];

/// The object of this node; it goes away with the Node object.
pub(crate) fn node_feature(node: &NodeObject, features: &FeatureSet) -> Json {
    let NodeObject { name, uid, .. } = node;
    let [key, manager] = MANAGED_BY;
    let elements: BTreeMap<_, _> = features.attributes("local.feature").collect();
    json!({
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": name,
            "labels": { NODE_LABEL: name, key: manager },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid }],
        },
        "spec": {
            "features": {
                "flags": {},
                "attributes": { "local.feature": { "elements": elements } },
                "instances": {},
            },
            "labels": own_labels(features).collect::<BTreeMap<_, _>>(),
        },
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_object_has_bayplans_own_features() {
        let features: FeatureSet = serde_json::from_str(
            r#"{"flags": {"cpu.cpuid": ["AVX512BW"]}, "attributes": {"local.feature": {"bayplan.dev/l3-groups": "4"}, "cpu.model": {"id": "1"}}}"#,
        )
        .unwrap();
        let node = NodeObject { name: "worker".into(), uid: "u".into(), ..NodeObject::default() };
        let object = node_feature(&node, &features);
        expect![[r#"{"features":{"attributes":{"local.feature":{"elements":{"bayplan.dev/l3-groups":"4"}}},"flags":{},"instances":{}},"labels":{"bayplan.dev/l3-groups":"4"}}"#]]
            .assert_eq(&object["spec"].to_string());
        assert_eq!(object["metadata"]["labels"][NODE_LABEL], "worker");
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u");
    }
}
