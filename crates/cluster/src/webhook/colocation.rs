//! ClusterColocationProfiles of Koordinator (`config.koordinator.sh/v1alpha1`). In: the profiles, what is known of namespaces and priority classes, a new pod. Out:
//! what they write into the pod. Pure.
//!
//! All profiles that select the pod count, in the order of their names, so that of two that write the same key the last one holds. What a profile says of a strategic merge
//! (`patch`) is left out, and so are labels and names that the API server would refuse with the pod, and the translation of requests into Koordinator's batch resources, which needs its manager.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use twox_hash::XxHash64;

use crate::feature_rules::is_label_name;
use crate::feature_set::is_label_value;

const QOS_CLASS: &str = "koordinator.sh/qosClass";
const PRIORITY: &str = "koordinator.sh/priority";

/// Names with values.
pub(super) type Texts = BTreeMap<String, String>;

/// What profiles are judged by, each by its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) profiles: BTreeMap<String, Profile>,
    /// Labels of namespaces.
    pub(super) namespaces: BTreeMap<String, Texts>,
    pub(super) classes: BTreeMap<String, PriorityClass>,
    /// Which of these maps the API server has told of.
    pub(super) listed: BTreeSet<&'static str>,
}

impl Known {
    /// Whether the API server has told of all that it is asked for.
    pub(super) fn is_whole(&self) -> bool {
        self.listed.len() == 3
    }
}

/// What of a PriorityClass goes into a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PriorityClass {
    pub(super) value: i32,
    pub(super) preemption: String,
}

/// One profile. A selector that is not there selects everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    namespaces: Selector,
    pods: Selector,
    /// Of a hundred pods that it selects, so many are meant.
    percent: u64,
    spec: Spec,
    /// What of the object no pod may have.
    left_out: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    namespace_selector: Option<LabelSelector>,
    selector: Option<LabelSelector>,
    probability: Option<IntOrString>,
    labels: Texts,
    annotations: Texts,
    /// Labels that are copied: a new name by the name that has the value.
    label_keys_mapping: Texts,
    annotation_keys_mapping: Texts,
    /// What is appended to labels that are there.
    label_suffixes: Texts,
    qos_class: String,
    priority_class_name: String,
    koordinator_priority: Option<i32>,
    scheduler_name: String,
}

/// What is written into a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    pub(super) labels: Texts,
    pub(super) annotations: Texts,
    /// Fields of `spec`.
    pub(super) spec: BTreeMap<&'static str, Json>,
    /// Labels that no pod may have, and so are not written.
    pub(super) left_out: Vec<String>,
}

impl Profile {
    /// Reads an object of the API server.
    ///
    /// # Errors
    /// A selector or a percentage that is none.
    pub(super) fn read(object: &Json) -> anyhow::Result<Profile> {
        let spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
        let mut spec: Spec = serde_json::from_value(spec).context("spec")?;
        let namespaces = selector(spec.namespace_selector.take()).context("namespaceSelector")?;
        let pods = selector(spec.selector.take()).context("selector")?;
        let percent = percent(spec.probability.as_ref())?;
        let left_out = spec.retain_valid();
        Ok(Profile { namespaces, pods, percent, spec, left_out })
    }

    /// What the API server would refuse with each pod, and so is not written.
    pub(super) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// `number`: any number of the pod's own.
    fn is_meant(&self, labels: &Texts, namespace: &Texts, number: u64) -> bool {
        self.namespaces.matches(namespace)
            && self.pods.matches(labels)
            && number % 100 < self.percent
    }

    /// Adds what it writes; `labels` and `annotations`: those of the pod so far.
    fn write(&self, known: &Known, pod: &mut Pod, writes: &mut Writes) {
        let spec = &self.spec;
        let mut labels = spec.labels.clone();
        labels.extend(mapped(&pod.labels, &spec.label_keys_mapping));
        let suffixed = spec.label_suffixes.iter().filter_map(|(name, suffix)| {
            let value = labels.get(name).or_else(|| pod.labels.get(name))?;
            Some((name.clone(), format!("{value}{suffix}")))
        });
        let (suffixed, refused): (Vec<_>, Vec<_>) =
            suffixed.partition(|(_, value)| is_label_value(value));
        labels.extend(suffixed);
        writes.left_out.extend(refused.iter().map(|(name, value)| shown(name, value)));
        let own = [(QOS_CLASS, spec.qos_class.clone())].into_iter();
        let own = own.chain(spec.koordinator_priority.map(|it| (PRIORITY, it.to_string())));
        labels.extend(own.filter(|(_, it)| !it.is_empty()).map(|(key, it)| (key.to_owned(), it)));
        let mut annotations = spec.annotations.clone();
        annotations.extend(mapped(&pod.annotations, &spec.annotation_keys_mapping));
        if !spec.scheduler_name.is_empty() {
            writes.spec.insert("schedulerName", json!(spec.scheduler_name));
        }
        // The API server refuses a pod of a class that it does not know.
        if let Some(class) = known.classes.get(&spec.priority_class_name) {
            writes.spec.insert("priorityClassName", json!(spec.priority_class_name));
            writes.spec.insert("priority", json!(class.value));
            writes.spec.insert("preemptionPolicy", json!(class.preemption));
        }
        pod.labels.extend(labels.clone());
        pod.annotations.extend(annotations.clone());
        writes.labels.extend(labels);
        writes.annotations.extend(annotations);
    }
}

impl Spec {
    /// Takes out what would make a pod invalid, and tells of it.
    fn retain_valid(&mut self) -> Vec<String> {
        let mut left_out = Vec::new();
        let mut retain = |texts: &mut Texts, is_valid: &dyn Fn(&str, &str) -> bool| {
            texts.retain(|name, value| {
                let is_kept = is_valid(name, value);
                if !is_kept {
                    left_out.push(shown(name, value));
                }
                is_kept
            });
        };
        retain(&mut self.labels, &|name, value| is_label_name(name) && is_label_value(value));
        retain(&mut self.annotations, &|name, _| is_annotation_name(name));
        retain(&mut self.label_keys_mapping, &|_, to| is_label_name(to));
        retain(&mut self.annotation_keys_mapping, &|_, to| is_annotation_name(to));
        if !is_label_value(&self.qos_class) {
            left_out.push(shown(QOS_CLASS, &std::mem::take(&mut self.qos_class)));
        }
        if let Some(priority) = self.koordinator_priority.take_if(|it| *it < 0) {
            left_out.push(shown(PRIORITY, &priority.to_string()));
        }
        left_out
    }
}

/// As labels are, but for letters of the prefix.
fn is_annotation_name(name: &str) -> bool {
    is_label_name(&name.to_lowercase())
}

fn shown(name: &str, value: &str) -> String {
    format!("{name}={value}")
}

/// What of a pod profiles look at.
struct Pod {
    labels: Texts,
    annotations: Texts,
}

/// What all profiles write into this pod. `uid`: of the review, by which probability is decided.
pub(super) fn colocate(known: &Known, namespace: &str, uid: &str, pod: &Json) -> Writes {
    let texts = |pointer: &str| -> Texts {
        let found = pod.pointer(pointer).cloned().unwrap_or_default();
        serde_json::from_value(found).unwrap_or_default()
    };
    let (labels, annotations) = (texts("/metadata/labels"), texts("/metadata/annotations"));
    let of_namespace = known.namespaces.get(namespace).cloned().unwrap_or_default();
    let number = XxHash64::oneshot(0, uid.as_bytes());
    let meant = known.profiles.values();
    let meant: Vec<_> = meant.filter(|it| it.is_meant(&labels, &of_namespace, number)).collect();
    let (mut pod, mut writes) = (Pod { labels, annotations }, Writes::default());
    meant.into_iter().for_each(|it| it.write(known, &mut pod, &mut writes));
    writes
}

fn selector(said: Option<LabelSelector>) -> anyhow::Result<Selector> {
    Ok(Selector::try_from(said.unwrap_or_default())?)
}

/// A percentage such as `30%`, or 100 where none is said. Koordinator reads numbers without a sign as per cent, too.
fn percent(said: Option<&IntOrString>) -> anyhow::Result<u64> {
    let number = match said {
        None => Some(100),
        Some(IntOrString::Int(number)) => u64::try_from(*number).ok(),
        Some(IntOrString::String(text)) => text.strip_suffix('%').unwrap_or(text).parse().ok(),
    };
    let number = number.filter(|it| *it <= 100);
    number.with_context(|| format!("probability is {said:?}, expected 0% to 100%"))
}

/// The values of these names under others.
fn mapped<'a>(
    texts: &'a Texts,
    names: &'a Texts,
) -> impl Iterator<Item = (String, String)> + use<'a> {
    names.iter().filter_map(|(from, to)| Some((to.clone(), texts.get(from)?.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(specs: &[Json]) -> Known {
        let profiles = specs
            .iter()
            .enumerate()
            .map(|(at, spec)| (format!("p{at}"), Profile::read(&json!({ "spec": spec })).unwrap()));
        let labels = |text: &str| Texts::from([("team".to_owned(), text.to_owned())]);
        let class = PriorityClass { value: 7000, preemption: "Never".to_owned() };
        Known {
            profiles: profiles.collect(),
            namespaces: BTreeMap::from([
                ("batch".to_owned(), labels("a")),
                ("web".to_owned(), labels("b")),
            ]),
            classes: BTreeMap::from([("low".to_owned(), class)]),
            listed: BTreeSet::new(),
        }
    }

    /// What profiles write into a pod of the namespace `batch` with the labels `app: spark` and `tier: x`.
    fn check(specs: &[Json], expected: Json) {
        let pod = json!({ "metadata": { "labels": { "app": "spark", "tier": "x" }, "annotations": { "n": "v" } } });
        let Writes { labels, annotations, spec, .. } = colocate(&known(specs), "batch", "u", &pod);
        let mut found = json!({});
        for (name, part) in
            [("labels", json!(labels)), ("annotations", json!(annotations)), ("spec", json!(spec))]
        {
            if part != json!({}) {
                found[name] = part;
            }
        }
        assert_eq!(found, expected, "{specs:?}");
    }

    #[test]
    fn profiles_write_into_pods_that_they_select() {
        let batch = json!({ "labels": { "x": "y" } });
        check(&[], json!({}));
        check(&[json!({ "labels": { "x": "y" } })], batch.clone());
        for (selects, is_meant) in [
            (json!({ "selector": { "matchLabels": { "app": "spark" } } }), true),
            (json!({ "selector": { "matchLabels": { "app": "other" } } }), false),
            (
                json!({ "selector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["spark", "z"] }] } }),
                true,
            ),
            (
                json!({ "selector": { "matchExpressions": [{ "key": "app", "operator": "DoesNotExist" }] } }),
                false,
            ),
            (json!({ "namespaceSelector": { "matchLabels": { "team": "a" } } }), true),
            (json!({ "namespaceSelector": { "matchLabels": { "team": "b" } } }), false),
            (json!({ "selector": {}, "namespaceSelector": {} }), true),
            (json!({ "probability": "0%" }), false),
            (json!({ "probability": 100 }), true),
        ] {
            let mut spec = selects;
            spec["labels"] = json!({ "x": "y" });
            check(&[spec], if is_meant { batch.clone() } else { json!({}) });
        }
    }

    #[test]
    fn every_field_of_a_profile_is_written() {
        let class =
            json!({ "priorityClassName": "low", "priority": 7000, "preemptionPolicy": "Never" });
        for (spec, expected) in [
            (json!({ "qosClass": "BE" }), json!({ "labels": { QOS_CLASS: "BE" } })),
            (json!({ "koordinatorPriority": 5 }), json!({ "labels": { PRIORITY: "5" } })),
            (json!({ "priorityClassName": "low" }), json!({ "spec": class })),
            (json!({ "priorityClassName": "unknown" }), json!({})),
            (json!({ "schedulerName": "s" }), json!({ "spec": { "schedulerName": "s" } })),
            (json!({ "annotations": { "a": "b" } }), json!({ "annotations": { "a": "b" } })),
            (
                json!({ "labelKeysMapping": { "app": "kind", "gone": "z" } }),
                json!({ "labels": { "kind": "spark" } }),
            ),
            (
                json!({ "annotationKeysMapping": { "n": "m" } }),
                json!({ "annotations": { "m": "v" } }),
            ),
            (
                json!({ "labelSuffixes": { "tier": "-1", "gone": "-1" } }),
                json!({ "labels": { "tier": "x-1" } }),
            ),
            (json!({ "patch": { "spec": { "hostNetwork": true } } }), json!({})),
        ] {
            check(&[spec], expected);
        }
        let twice =
            [json!({ "labels": { "x": "1" }, "qosClass": "LS" }), json!({ "qosClass": "BE" })];
        check(&twice, json!({ "labels": { "x": "1", QOS_CLASS: "BE" } }));
    }

    #[test]
    fn what_would_make_a_pod_invalid_is_left_out() {
        let long = "x".repeat(63);
        for (spec, expected) in [
            (json!({ "labels": { "a b": "v" } }), "a b=v"),
            (json!({ "labels": { "UP.example/a": "v" } }), "UP.example/a=v"),
            (json!({ "labels": { "a": "-v" } }), "a=-v"),
            (json!({ "annotations": { "/a": "any text" } }), "/a=any text"),
            (json!({ "labelKeysMapping": { "app": "a/b/c" } }), "app=a/b/c"),
            (json!({ "annotationKeysMapping": { "n": "" } }), "n="),
            (json!({ "qosClass": "B E" }), "koordinator.sh/qosClass=B E"),
            (json!({ "koordinatorPriority": -1 }), "koordinator.sh/priority=-1"),
        ] {
            let profile = Profile::read(&json!({ "spec": spec.clone() })).unwrap();
            assert_eq!(profile.left_out(), [expected], "{spec}");
            check(&[spec], json!({}));
        }
        let valid = json!({ "labels": { "a": "" }, "annotations": { "UP.example/a": "any text" } });
        let expected = valid.clone();
        check(&[valid], expected);
        let suffixes = json!({ "labelSuffixes": { "app": "-1", "tier": long } });
        check(std::slice::from_ref(&suffixes), json!({ "labels": { "app": "spark-1" } }));
        let pod = json!({ "metadata": { "labels": { "tier": "x" } } });
        let writes = colocate(&known(&[suffixes]), "batch", "u", &pod);
        assert_eq!(writes.left_out, [format!("tier=x{long}")]);
    }

    #[test]
    fn profiles_that_cannot_be_read_are_told() {
        for (spec, expected) in [
            (
                json!({ "selector": { "matchExpressions": [{ "key": "a", "operator": "Odd" }] } }),
                "selector",
            ),
            (json!({ "probability": "101%" }), "expected 0% to 100%"),
            (json!({ "probability": -1 }), "expected 0% to 100%"),
            (json!({ "labels": 3 }), "spec"),
        ] {
            let told = format!("{:#}", Profile::read(&json!({ "spec": spec })).unwrap_err());
            assert!(told.contains(expected), "{told}");
        }
    }
}
