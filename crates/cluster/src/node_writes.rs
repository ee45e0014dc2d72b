//! How a Node object becomes as it is wanted. In: the Node as it is, with what of it is the agent's, and [`NodeWishes`]. Out: writes, none where nothing differs.
//!
//! Labels, annotations and extended resources are applied by the server (server-side apply) under a manager of their own, always all of them, so that what is left out
//! goes away and what others own stays. The list of taints has one owner in the API: it is patched element by element, after a test that it is as it was seen.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use crate::node_wishes::{NOT_READY, NodeWishes, can_be_found, is_taint, taint};
use crate::object::NodeObject;
use crate::quantity::is_same;

/// One call of the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeWrite {
    /// Labels and annotations, applied.
    Metadata(Json),
    /// Labels of features and profiles, applied.
    Features(Json),
    /// Extended resources, applied to the status.
    Capacity(Json),
    /// Taints, a JSON patch.
    Taints(Json),
    /// The condition, applied to the status.
    Condition(Json),
}

/// What brings the Node to what is wanted.
pub(crate) fn node_writes(node: &NodeObject, wishes: &NodeWishes) -> Vec<NodeWrite> {
    let NodeObject { name, owned, .. } = node;
    let is_text = |found: &str, wanted: &str| found == wanted;
    let is_metadata = is_so(&node.labels, &owned.labels, &wishes.labels, is_text)
        && is_so(&node.annotations, &owned.annotations, &wishes.annotations, is_text);
    let metadata = (!is_metadata).then(|| {
        let maps = [("labels", &wishes.labels), ("annotations", &wishes.annotations)];
        let metadata = with_maps(json!({ "name": name }), &maps);
        NodeWrite::Metadata(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }))
    });
    let features = wishes.features.as_ref();
    let features = features.filter(|it| !is_so(&node.labels, &owned.features, it, is_text));
    let features = features.map(|labels| {
        let metadata = with_maps(json!({ "name": name }), &[("labels", labels)]);
        NodeWrite::Features(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }))
    });
    let is_capacity = is_so(&node.capacity, &owned.capacity, &wishes.capacity, is_same);
    let capacity = (!is_capacity).then(|| {
        NodeWrite::Capacity(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name },
            "status": with_maps(json!({}), &[("capacity", &wishes.capacity)]),
        }))
    });
    let taints = taint_patch(node, wishes).map(NodeWrite::Taints);
    metadata.into_iter().chain(taints).chain(capacity).chain(features).collect()
}

/// Adds maps that are not empty. An empty one would be a field that its manager owns as a whole, and in conflict with every other manager's empty one.
fn with_maps(mut object: Json, maps: &[(&str, &BTreeMap<String, String>)]) -> Json {
    for (name, map) in maps.iter().filter(|(_, map)| !map.is_empty()) {
        object[*name] = json!(map);
    }
    object
}

/// Every wish holds and nothing else is the agent's.
fn is_so(
    found: &BTreeMap<String, String>,
    owned: &BTreeSet<String>,
    wanted: &BTreeMap<String, String>,
    is_same: impl Fn(&str, &str) -> bool,
) -> bool {
    let is_there =
        |(key, value): (&String, &String)| found.get(key).is_some_and(|it| is_same(it, value));
    wanted.keys().eq(owned) && wanted.iter().all(is_there)
}

/// What takes the startup taint away; `None`: it is not there. For a Node of which nothing else differs: with the taint gone, pods come.
pub(crate) fn startup_write(node: &NodeObject) -> Option<NodeWrite> {
    let taints = [(NOT_READY.to_owned(), None)].into();
    taint_patch(node, &NodeWishes { taints, ..NodeWishes::default() }).map(NodeWrite::Taints)
}

/// From the end of the list on, so that positions stay what they are.
fn taint_patch(node: &NodeObject, wishes: &NodeWishes) -> Option<Json> {
    let unwanted = |found: &Json| {
        let wish = wishes.taints.iter().find(|(key, _)| is_taint(found, key));
        wish.is_some_and(|(key, value)| {
            value.as_deref().map(|it| taint(key, it)).is_none_or(|it| it["value"] != found["value"])
        })
    };
    let (mut patch, mut left) = (Vec::new(), node.taints.len());
    for (position, found) in node.taints.iter().enumerate().rev().filter(|(_, it)| unwanted(it)) {
        let path = format!("/spec/taints/{position}");
        patch.push(json!({ "op": "test", "path": path, "value": found }));
        patch.push(json!({ "op": "remove", "path": path }));
        left -= 1;
    }
    // A taint of a foreign key has to be listed before it is added.
    let wanted = wishes.taints.iter().filter(|(key, _)| can_be_found(node, key));
    let wanted = wanted.filter_map(|(key, value)| Some(taint(key, value.as_deref()?)));
    let is_there = |it: &Json| {
        node.taints
            .iter()
            .any(|found| ["key", "value", "effect"].iter().all(|key| found[key] == it[key]))
    };
    for missing in wanted.filter(|it| !is_there(it)) {
        if left == 0 && node.taints.is_empty() {
            // A list that is absent cannot be tested.
            let path = "/metadata/resourceVersion";
            patch.push(json!({ "op": "test", "path": path, "value": node.version }));
            patch.push(json!({ "op": "add", "path": "/spec/taints", "value": [missing] }));
        } else {
            patch.push(json!({ "op": "add", "path": "/spec/taints/-", "value": missing }));
        }
        left += 1;
    }
    (!patch.is_empty()).then_some(Json::Array(patch))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::feature_set::FeatureLabels;
    use crate::node_topology::ZoneReport;
    use crate::node_wishes::{DaemonView, no_wishes, node_wishes};
    use crate::part::{Part, Parts};

    const REPORT: &str = r#"{"group_types": [{"name": "exclusive", "members_max": 4, "has_slots": true}, {"name": "web", "members_max": 6}],
        "cpu_classes": ["performance", "not a name"], "zones": [{"cpu_milli": {"capacity": 8000, "allocatable": 7000, "available": 0}}]}"#;

    struct Case {
        parts: &'static [Part],
        is_placing: bool,
        taints: Json,
        features: &'static [(&'static str, &'static str)],
    }

    const CASE: Case = Case { parts: &[], is_placing: true, taints: Json::Null, features: &[] };

    fn render(writes: &[NodeWrite]) -> String {
        // What is left out goes away.
        let map = |it: &Json| if it.is_null() { "{}".to_owned() } else { it.to_string() };
        let lines = writes.iter().map(|it| match it {
            NodeWrite::Metadata(it) => {
                let [labels, annotations] =
                    ["labels", "annotations"].map(|key| map(&it["metadata"][key]));
                format!("metadata {labels} {annotations}")
            }
            NodeWrite::Features(it) => format!("features {}", map(&it["metadata"]["labels"])),
            NodeWrite::Capacity(it) => format!("capacity {}", map(&it["status"]["capacity"])),
            NodeWrite::Taints(it) => format!("taints {it}"),
            NodeWrite::Condition(it) => format!("condition {}", it["status"]["conditions"]),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Writes for a Node with these taints; then what withdraws them, after they were carried out.
    fn check(case: &Case, expected: Expect) {
        let report: ZoneReport = serde_json::from_str(REPORT).unwrap();
        let mut node =
            NodeObject { name: "n1".into(), version: "7".into(), ..NodeObject::default() };
        node.labels.insert("foreign".into(), "x".into());
        node.capacity.insert("cpu".into(), "8".into());
        node.taints = case.taints.as_array().cloned().unwrap_or_default();
        let of_features = case
            .features
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let features = FeatureLabels { of_features, ..FeatureLabels::default() };
        let parts: Parts = case.parts.iter().copied().collect();
        let daemon =
            DaemonView { report: &report, is_placing: case.is_placing, features: Some(&features) };
        let mut writes = Vec::new();
        // The second round adds what the first one has listed.
        for _ in 0..2 {
            let wishes = node_wishes(&node, &parts, &daemon);
            let round = node_writes(&node, &wishes);
            round.iter().for_each(|it| carry_out(&mut node, it, &wishes));
            writes.extend(round);
        }
        assert_eq!(node_writes(&node, &node_wishes(&node, &parts, &daemon)), []);
        let back = node_writes(&node, &no_wishes(&node));
        expected.assert_eq(&format!("{}\nback:\n{}", render(&writes), render(&back)));
    }

    /// What the API server makes of a write.
    fn carry_out(node: &mut NodeObject, write: &NodeWrite, wishes: &NodeWishes) {
        match write {
            NodeWrite::Metadata(_) => {
                node.labels.extend(wishes.labels.clone());
                node.annotations.extend(wishes.annotations.clone());
                node.owned.labels = wishes.labels.keys().cloned().collect();
                node.owned.annotations = wishes.annotations.keys().cloned().collect();
            }
            NodeWrite::Features(_) => {
                let features = wishes.features.clone().unwrap();
                node.owned.features = features.keys().cloned().collect();
                node.labels.extend(features);
            }
            NodeWrite::Capacity(_) => {
                node.capacity.extend(wishes.capacity.clone());
                node.owned.capacity = wishes.capacity.keys().cloned().collect();
            }
            NodeWrite::Taints(patch) => {
                for it in patch.as_array().unwrap() {
                    let path = it["path"].as_str().unwrap();
                    match (it["op"].as_str().unwrap(), path.rsplit('/').next().unwrap()) {
                        ("remove", position) => drop(node.taints.remove(position.parse().unwrap())),
                        ("add", "-") => node.taints.push(it["value"].clone()),
                        ("add", _) => node.taints = it["value"].as_array().unwrap().clone(),
                        _ => {}
                    }
                }
            }
            NodeWrite::Condition(_) => panic!("conditions are written beside the other parts"),
        }
    }

    #[test]
    fn without_parts_nothing_is_written() {
        check(
            &CASE,
            expect![[r#"

            back:
        "#]],
        );
    }

    #[test]
    fn taints_of_others_stay() {
        let foreign = json!({ "key": "foreign", "effect": "NoSchedule" });
        let not_ready = taint("bayplan.dev/not-ready", "true");
        let taints = json!([not_ready, foreign, not_ready]);
        check(
            &Case { parts: &[Part::Taints], taints: taints.clone(), ..CASE },
            expect![[r#"

                back:
                taints [{"op":"test","path":"/spec/taints/2","value":{"effect":"NoSchedule","key":"bayplan.dev/not-ready","value":"true"}},{"op":"remove","path":"/spec/taints/2"},{"op":"test","path":"/spec/taints/0","value":{"effect":"NoSchedule","key":"bayplan.dev/not-ready","value":"true"}},{"op":"remove","path":"/spec/taints/0"}]"#]],
        );
        check(
            &Case { parts: &[Part::Taints], taints, is_placing: false, features: &[] },
            expect![[r#"
                taints [{"op":"add","path":"/spec/taints/-","value":{"effect":"NoSchedule","key":"bayplan.dev/draining","value":"true"}}]
                back:
                taints [{"op":"test","path":"/spec/taints/3","value":{"effect":"NoSchedule","key":"bayplan.dev/draining","value":"true"}},{"op":"remove","path":"/spec/taints/3"},{"op":"test","path":"/spec/taints/2","value":{"effect":"NoSchedule","key":"bayplan.dev/not-ready","value":"true"}},{"op":"remove","path":"/spec/taints/2"},{"op":"test","path":"/spec/taints/0","value":{"effect":"NoSchedule","key":"bayplan.dev/not-ready","value":"true"}},{"op":"remove","path":"/spec/taints/0"}]"#]],
        );
    }

    #[test]
    fn labels_taints_and_resources_of_cmk_come_and_go_together() {
        check(
            &Case { parts: &[Part::Cmk], ..CASE },
            expect![[r#"
                metadata {"cmk.intel.com/cmk-node":"true"} {"bayplan.dev/own-taints":"cmk"}
                capacity {"cmk.intel.com/exclusive-cores":"4"}
                taints [{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/spec/taints","value":[{"effect":"NoSchedule","key":"cmk","value":"true"}]}]
                back:
                metadata {} {"bayplan.dev/own-taints":"cmk"}
                taints [{"op":"test","path":"/spec/taints/0","value":{"effect":"NoSchedule","key":"cmk","value":"true"}},{"op":"remove","path":"/spec/taints/0"}]
                capacity {}"#]],
        );
    }

    #[test]
    fn resources_are_those_of_groups_and_classes() {
        check(
            &Case { parts: &[Part::Groups, Part::PowerClasses], ..CASE },
            expect![[r#"
            capacity {"bayplan.dev/group-exclusive":"4","bayplan.dev/group-web":"6","power.intel.com/performance":"7"}
            back:
            capacity {}"#]],
        );
    }

    #[test]
    fn labels_of_features_are_left_to_nfd_where_it_runs() {
        check(
            &Case { features: &[("profile.node.kubernetes.io/a", "true")], ..CASE },
            expect![[r#"
                features {"profile.node.kubernetes.io/a":"true"}
                back:
                features {}"#]],
        );
        let mut node = NodeObject::default();
        node.annotations.insert("nfd.node.kubernetes.io/feature-labels".into(), "x".into());
        let label = |key: &str| [(key.to_owned(), "b".to_owned())].into();
        let mut features = FeatureLabels { of_features: label("a"), ..FeatureLabels::default() };
        let report = ZoneReport::default();
        let writes = |features: &FeatureLabels| {
            let daemon = DaemonView { report: &report, is_placing: true, features: Some(features) };
            render(&node_writes(&node, &node_wishes(&node, &Parts::new(), &daemon)))
        };
        assert_eq!(writes(&features), "");
        features.of_rules = label("of-a-rule");
        assert_eq!(writes(&features), r#"features {"of-a-rule":"b"}"#);
    }

    #[test]
    fn the_startup_taint_goes_by_a_write_of_its_own() {
        let foreign = json!({ "key": "foreign", "effect": "NoSchedule" });
        let mut node = NodeObject::default();
        assert_eq!(startup_write(&node), None);
        node.taints = vec![foreign, taint(NOT_READY, "true")];
        expect![[r#"taints [{"op":"test","path":"/spec/taints/1","value":{"effect":"NoSchedule","key":"bayplan.dev/not-ready","value":"true"}},{"op":"remove","path":"/spec/taints/1"}]"#]].assert_eq(&render(startup_write(&node).as_slice()));
    }

    #[test]
    fn a_taint_of_cmk_that_is_another_programs_stays() {
        for value in ["true", "other"] {
            check(
                &Case { parts: &[Part::Cmk], taints: json!([taint("cmk", value)]), ..CASE },
                expect![[r#"
                    metadata {"cmk.intel.com/cmk-node":"true"} {}
                    capacity {"cmk.intel.com/exclusive-cores":"4"}
                    back:
                    metadata {} {}
                    capacity {}"#]],
            );
        }
    }

    #[test]
    fn a_resource_in_another_notation_is_not_written_again() {
        let capacity = [("a/b".to_owned(), "1000".to_owned())].into();
        let wishes = NodeWishes { capacity, ..NodeWishes::default() };
        let mut node = NodeObject::default();
        node.owned.capacity.insert("a/b".into());
        node.capacity.insert("a/b".into(), "1k".into());
        assert_eq!(node_writes(&node, &wishes), []);
    }

    #[test]
    fn a_resource_that_kubelet_has_zeroed_is_repaired() {
        let mut node = NodeObject::default();
        let wishes = NodeWishes {
            capacity: [("a/b".to_owned(), "4".to_owned())].into(),
            ..NodeWishes::default()
        };
        node.owned.capacity.insert("a/b".into());
        node.capacity.insert("a/b".into(), "4".into());
        assert_eq!(node_writes(&node, &wishes), []);
        node.capacity.insert("a/b".into(), "0".into());
        assert_eq!(node_writes(&node, &wishes).len(), 1);
        node.capacity.insert("a/b".into(), "4".into());
        node.owned.capacity.clear();
        assert_eq!(node_writes(&node, &wishes).len(), 1);
    }
}
