//! One review of the API server. In: an AdmissionReview with a pod. Out: the answer, with a patch that adds the annotation of its requests, and what profiles write. Pure.

use axum::Json;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::colocation::{Known, Texts, colocate};

/// As nri-plugins' resource annotator calls it.
const ANNOTATION: &str = "noderesource.dev/resources";

/// The API server refuses pods with more.
const ANNOTATIONS_MAX: usize = 256 << 10;

/// The answer to a review; what is no review is an error of the request, which the API server ignores.
pub(super) fn answer(body: &[u8], known: &Known) -> Result<Json<Value>, (StatusCode, String)> {
    let review: Value = serde_json::from_slice(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("the body is no JSON: {error}\n")))?;
    let request = &review["request"];
    let Some(uid) = request["uid"].as_str() else {
        return Err((StatusCode::BAD_REQUEST, "the body is no AdmissionReview\n".to_owned()));
    };
    let mut response = json!({ "uid": uid, "allowed": true });
    let (patch, left_out) = patch(request, uid, known);
    if !left_out.is_empty() {
        response["warnings"] = json!(left_out);
    }
    if !patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(json!(patch).to_string()));
    }
    Ok(Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    })))
}

/// Operations of a JSON patch, none where nothing is to be said; and warnings about what is left out.
fn patch(request: &Value, uid: &str, known: &Known) -> (Vec<Value>, Vec<String>) {
    if request["operation"] != "CREATE" || request["kind"]["kind"] != "Pod" {
        return (Vec::new(), Vec::new());
    }
    let pod = &request["object"];
    let namespace = request["namespace"].as_str().unwrap_or_default();
    let mut writes = colocate(known, namespace, uid, pod);
    // What is there already, another webhook has written; it may know more.
    let has_said = pod["metadata"]["annotations"].get(ANNOTATION).is_some();
    if let Some(text) = requests_of_pod(pod).filter(|_| !has_said) {
        writes.annotations.insert(ANNOTATION.to_owned(), text);
    }
    let warning = |it: String| format!("bayplan: a pod cannot have the label {it} of a profile");
    let mut warnings: Vec<String> = writes.left_out.into_iter().map(warning).collect();
    if annotations_size(pod, &writes.annotations) > ANNOTATIONS_MAX {
        writes.annotations.clear();
        warnings
            .push("bayplan: annotations would be larger than 256 KiB; none is added".to_owned());
    }
    let mut patch = add_all(pod, "labels", &writes.labels);
    patch.extend(add_all(pod, "annotations", &writes.annotations));
    let fields = writes.spec.iter();
    patch.extend(fields.map(|(name, value)| add(&format!("/spec/{name}"), value.clone())));
    (patch, warnings)
}

/// Of names and values, in bytes, if these were added.
fn annotations_size(pod: &Value, added: &Texts) -> usize {
    let there = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let there = there.filter(|(name, _)| !added.contains_key(*name));
    let there = there.map(|(name, value)| name.len() + value.as_str().unwrap_or_default().len());
    there.sum::<usize>() + added.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
}

fn add(path: &str, value: Value) -> Value {
    json!({ "op": "add", "path": path, "value": value })
}

/// Adds to a map in the metadata, which may not be there yet.
fn add_all(pod: &Value, map: &str, texts: &Texts) -> Vec<Value> {
    let path = format!("/metadata/{map}");
    match pod["metadata"][map].is_object() {
        _ if texts.is_empty() => Vec::new(),
        false => vec![add(&path, json!(texts))],
        true => {
            let texts = texts.iter();
            texts.map(|(key, text)| add(&format!("{path}/{}", escape(key)), json!(text))).collect()
        }
    }
}

/// A key in a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Requests of each container by name; `None` where no container requests anything.
fn requests_of_pod(pod: &Value) -> Option<String> {
    let [init, own] = ["initContainers", "containers"].map(|list| requests(&pod["spec"][list]));
    let says = |list: &Map<String, Value>| list.values().any(|it| it.get("requests").is_some());
    let is_said = says(&init) || says(&own);
    is_said.then(|| json!({ "initContainers": init, "containers": own }).to_string())
}

fn requests(containers: &Value) -> Map<String, Value> {
    let containers = containers.as_array().into_iter().flatten();
    let named = containers.filter_map(|it| Some((it["name"].as_str()?, &it["resources"])));
    let entry = |(name, resources): (&str, &Value)| {
        let lists = ["requests", "limits"];
        let said = lists.iter().filter_map(|list| {
            let amounts = resources.get(*list)?.as_object().filter(|it| !it.is_empty())?;
            Some(((*list).to_owned(), Value::Object(amounts.clone())))
        });
        (name.to_owned(), Value::Object(said.collect()))
    };
    named.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::webhook::colocation::Profile;

    #[test]
    fn requests_of_pods_become_an_annotation() {
        let performance = json!({ "requests": { "cpu": "2", "power.intel.com/performance": 2 }, "limits": { "cpu": "2" } });
        for (spec, expected) in [
            (json!({ "containers": [{ "name": "a" }] }), None),
            (json!({ "containers": [{ "name": "a", "resources": {} }] }), None),
            (json!({ "containers": [{ "name": "a", "resources": { "requests": {} } }] }), None),
            (json!({ "containers": "odd" }), None),
            (json!(null), None),
            (
                json!({ "containers": [{ "name": "a", "resources": performance.clone() }, { "name": "b" }] }),
                Some(
                    json!({ "initContainers": {}, "containers": { "a": performance.clone(), "b": {} } }),
                ),
            ),
            (
                json!({ "initContainers": [{ "name": "i", "resources": performance.clone() }], "containers": [{ "name": "b" }] }),
                Some(json!({ "initContainers": { "i": performance }, "containers": { "b": {} } })),
            ),
        ] {
            let text = requests_of_pod(&json!({ "spec": spec.clone() }));
            let said = text.map(|text| serde_json::from_str::<Value>(&text).unwrap());
            assert_eq!(said, expected, "{spec}");
        }
    }

    /// Paths that are patched.
    fn patched(operation: &str, kind: &str, metadata: &Value, known: &Known) -> Vec<String> {
        let containers = json!([{ "name": "a", "resources": { "requests": { "cpu": "1" } } }]);
        let object = json!({ "metadata": metadata, "spec": { "containers": containers } });
        let review = json!({ "request": { "uid": "u", "operation": operation, "kind": { "kind": kind }, "object": object } });
        let Json(answer) = answer(review.to_string().as_bytes(), known).unwrap();
        assert_eq!(answer["response"]["uid"], "u");
        assert_eq!(answer["response"]["allowed"], true);
        let Some(patch) = answer["response"]["patch"].as_str() else { return Vec::new() };
        let patch: Vec<Value> =
            serde_json::from_slice(&BASE64_STANDARD.decode(patch).unwrap()).unwrap();
        patch.iter().map(|it| it["path"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_review_is_allowed_and_new_pods_are_patched() {
        let annotated = json!({ "annotations": { "a": "b" } });
        let said = json!({ "annotations": { ANNOTATION: "{}" } });
        let pointer = "/metadata/annotations/noderesource.dev~1resources";
        for (operation, kind, metadata, expected) in [
            ("CREATE", "Pod", json!({}), vec!["/metadata/annotations"]),
            ("CREATE", "Pod", json!({ "annotations": null }), vec!["/metadata/annotations"]),
            ("CREATE", "Pod", annotated.clone(), vec![pointer]),
            ("CREATE", "Pod", said, vec![]),
            ("UPDATE", "Pod", annotated.clone(), vec![]),
            ("CREATE", "Node", annotated, vec![]),
        ] {
            let paths = patched(operation, kind, &metadata, &Known::default());
            assert_eq!(paths, expected, "{operation} {kind} {metadata}");
        }
        for body in ["", "{}", "[1]", r#"{"request":{"uid":3}}"#] {
            let refused = answer(body.as_bytes(), &Known::default()).unwrap_err();
            assert_eq!(refused.0, StatusCode::BAD_REQUEST, "{body}");
        }
    }

    #[test]
    fn a_pod_is_never_made_invalid_by_what_is_written() {
        let profile = |spec: Value| {
            let profile = Profile::read(&json!({ "spec": spec })).unwrap();
            Known { profiles: BTreeMap::from([("p".to_owned(), profile)]), ..Known::default() }
        };
        let check = |annotation: usize, known: &Known, paths: usize, warning: &str| {
            let containers = json!([{ "name": "a", "resources": { "requests": { "cpu": "1" } } }]);
            let metadata =
                json!({ "labels": { "x": "y" }, "annotations": { "a": "z".repeat(annotation) } });
            let object = json!({ "metadata": metadata, "spec": { "containers": containers } });
            let request =
                json!({ "operation": "CREATE", "kind": { "kind": "Pod" }, "object": object });
            let (patch, warnings) = patch(&request, "u", known);
            assert_eq!(patch.len(), paths, "{warnings:?}");
            assert!(warnings.join("\n").contains(warning), "{warnings:?}");
            assert_eq!(warnings.is_empty(), warning.is_empty(), "{warnings:?}");
        };
        check(1, &Known::default(), 1, "");
        check(ANNOTATIONS_MAX - 10, &Known::default(), 0, "larger than 256 KiB");
        let long = profile(json!({ "labelSuffixes": { "x": "-".repeat(70) } }));
        check(1, &long, 1, "a pod cannot have the label x=y---");
    }

    #[test]
    fn what_profiles_say_is_patched_too() {
        let spec = json!({ "qosClass": "BE", "schedulerName": "s", "annotations": { "b/c": "d" } });
        let profile = Profile::read(&json!({ "spec": spec })).unwrap();
        let profiles = BTreeMap::from([("p".to_owned(), profile)]);
        let known = Known { profiles, ..Known::default() };
        let metadata = json!({ "labels": { "x": "y" }, "annotations": { ANNOTATION: "{}" } });
        let paths = patched("CREATE", "Pod", &metadata, &known);
        let expected = [
            "/metadata/labels/koordinator.sh~1qosClass",
            "/metadata/annotations/b~1c",
            "/spec/schedulerName",
        ];
        assert_eq!(paths, expected);
        assert_eq!(escape("a~b/c"), "a~0b~1c");
    }
}
