//! A type of groups as a file would say it: only what is not as usual. And what a file may say, as a JSON schema.

use bayplan_allocator::{CpuWishes, Within};
use bayplan_workload::annotations::{Condition, Words};
use serde_json::{Map, Value as Json, json};

use super::fields::{
    CORE_TYPES, CPU_PRIORITIES, FILLS, IDLE_LEVELS, INSIDE, ISOLATED, LEVELS, MEMORY, PACKINGS,
    PRIORITIES, SIBLINGS,
};
use bayplan_node::groups::{Capacity, GroupType, InstanceKey, Instances, Members, Most, Size};

/// Those of its fields that are not as usual.
#[derive(Default)]
struct Shown(Map<String, Json>);

impl Shown {
    fn put(&mut self, key: &str, value: Option<Json>) {
        self.0.extend(value.map(|value| (key.to_owned(), value)));
    }

    /// Nothing, where it is empty.
    fn section(self) -> Option<Json> {
        (!self.0.is_empty()).then_some(Json::Object(self.0))
    }
}

fn word<T: PartialEq>(value: &T, words: &Words<T>) -> Json {
    json!(words.iter().find(|(_, it)| it == value).map_or("", |(word, _)| *word))
}

fn unusual<T: PartialEq + Default>(value: &T, words: &Words<T>) -> Option<Json> {
    (*value != T::default()).then(|| word(value, words))
}

fn only<T: Into<Json>>(is_unusual: bool, value: T) -> Option<Json> {
    is_unusual.then(|| value.into())
}

pub(super) fn group_type(it: &GroupType) -> Json {
    let mut shown = Shown::default();
    shown.put("name", Some(json!(it.name)));
    shown.put("members", members(&it.members));
    shown.put("instances", instances(&it.instances));
    shown.put("size", Some(size(&it.size)));
    shown.put("inside", unusual(&it.inside, INSIDE));
    shown.put("capacity", capacity(it.capacity));
    shown.put("priority", unusual(&it.priority, PRIORITIES));
    shown.put("cpus", cpus(&it.cpus, &it.near));
    shown.put("cpuClass", it.cpu_class.as_ref().map(|name| json!(name)));
    shown.put("shareIdle", it.cpus.shares_idle.map(|level| word(&level, IDLE_LEVELS)));
    let kinds: Vec<Json> = it.memory_kinds.iter().map(|kind| word(kind, MEMORY)).collect();
    shown.put("memoryTypes", only(!kinds.is_empty(), kinds));
    shown.put("pinCPU", only(!it.pins_cpus, false));
    shown.put("pinMemory", only(!it.pins_memory, false));
    Json::Object(shown.0)
}

fn members(it: &Members) -> Option<Json> {
    let mut shown = Shown::default();
    shown.put("namespaces", only(!it.namespaces.is_empty(), it.namespaces.clone()));
    let conditions: Vec<Json> = it.conditions.iter().map(Condition::to_value).collect();
    shown.put("match", only(!conditions.is_empty(), conditions));
    shown.put("annotation", only(!it.by_annotation, false));
    shown.put("all", only(it.all, true));
    shown.section()
}

fn instances(it: &Instances) -> Option<Json> {
    let mut shown = Shown::default();
    let by = match &it.by {
        InstanceKey::Type => None,
        InstanceKey::Pod => Some("pod"),
        InstanceKey::Namespace => Some("namespace"),
        InstanceKey::Template(template) => Some(template.as_str()),
    };
    shown.put("by", by.map(|by| json!(by)));
    shown.put("min", only(it.min > 0, it.min));
    shown.put(
        "max",
        match it.max {
            Most::Unlimited => None,
            Most::Count(count) => Some(json!(count)),
            Most::Percent(percent) => Some(json!(format!("{percent}%"))),
            Most::Cpus(cpus) => Some(json!(format!("{cpus} CPUs"))),
        },
    );
    shown.put("fill", unusual(&it.fill, FILLS));
    shown.put("preferNew", only(it.prefers_new, true));
    shown.put("spreadPods", only(it.spreads_pods, true));
    shown.put("perNamespace", only(it.per_namespace, true));
    shown.section()
}

fn size(it: &Size) -> Json {
    match it {
        Size::Requests { min, max } => {
            let mut shown = Shown::default();
            shown.put("min", Some(json!(min)));
            shown.put("max", max.map(|max| json!(max)));
            json!({ "requests": shown.0 })
        }
        Size::Fixed(size) => json!({ "fixed": size }),
        Size::List(lists) => {
            json!({ "list": lists.iter().map(ToString::to_string).collect::<Vec<_>>() })
        }
        Size::Domain(level) => json!({ "domain": word(level, LEVELS) }),
    }
}

fn capacity(it: Capacity) -> Option<Json> {
    let mut shown = Shown::default();
    shown.put("pods", it.pods.map(|pods| json!(pods)));
    shown.put("containers", it.containers.map(|containers| json!(containers)));
    shown.section()
}

fn cpus(it: &CpuWishes, near: &[String]) -> Option<Json> {
    let mut shown = Shown::default();
    shown.put("packing", unusual(&it.packing, PACKINGS));
    shown.put("siblings", unusual(&it.siblings, SIBLINGS));
    shown.put("isolated", unusual(&it.isolated, ISOLATED));
    shown.put("coreType", it.core_kind.map(|(kind, _)| word(&kind, CORE_TYPES)));
    shown.put("priority", it.priority.map(|(priority, _)| word(&priority, CPU_PRIORITIES)));
    shown.put(
        "within",
        match it.within {
            Some(Within::One(level)) => Some(word(&level, LEVELS)),
            _ => None,
        },
    );
    shown.put("hideHyperthreads", only(it.hides_hyperthreads, true));
    shown.put("near", only(!near.is_empty(), near.to_vec()));
    shown.section()
}

fn words<T>(words: &Words<T>) -> Json {
    json!({ "enum": words.iter().map(|(word, _)| *word).collect::<Vec<_>>() })
}

fn object(properties: Json) -> Json {
    json!({ "type": ["object", "null"], "additionalProperties": false, "properties": properties })
}

pub(super) fn schema() -> Json {
    let flag = json!({ "type": "boolean" });
    let texts = json!({ "type": "array", "items": { "type": ["string", "integer"] } });
    let count = json!({ "type": "integer", "minimum": 0 });
    let bound = json!({ "type": ["integer", "string"], "minimum": 0 });
    let members = object(json!({
        "namespaces": texts,
        "match": { "type": "array", "items": { "type": "object" } },
        "annotation": flag,
        "all": flag,
    }));
    let instances = json!({
        "type": ["object", "null", "string", "integer"],
        "additionalProperties": false,
        "properties": {
            "by": { "type": "string" },
            "min": count,
            "max": bound,
            "fill": words(FILLS),
            "preferNew": flag,
            "spreadPods": flag,
            "perNamespace": flag,
        },
    });
    let size = json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": false,
        "properties": {
            "requests": object(json!({ "min": count, "max": bound })),
            "fixed": { "type": "integer", "minimum": 1 },
            "list": texts,
            "domain": words(LEVELS),
        },
    });
    let cpus = object(json!({
        "packing": words(PACKINGS),
        "siblings": words(SIBLINGS),
        "isolated": words(ISOLATED),
        "coreType": words(CORE_TYPES),
        "priority": words(CPU_PRIORITIES),
        "within": words(LEVELS),
        "hideHyperthreads": flag,
        "near": texts,
    }));
    json!({
        "type": ["array", "null"],
        "items": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": false,
            "properties": {
                "name": { "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$" },
                "members": members,
                "instances": instances,
                "size": size,
                "inside": words(INSIDE),
                "capacity": object(json!({ "pods": bound, "containers": bound })),
                "priority": words(PRIORITIES),
                "cpus": cpus,
                "memoryTypes": texts,
                "pinCPU": flag,
                "pinMemory": flag,
                "cpuClass": { "type": "string" },
                "shareIdle": words(IDLE_LEVELS),
            },
        },
    })
}
