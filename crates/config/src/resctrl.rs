//! The keys `resctrl.options` and `resctrl.partitions`, in the form of goresctrl. In: trees of the file. Out: partitions and classes, or every mistake in
//! them.
//!
//! A share stands for all caches, or below their ids; it is one text, or one for `unified`, `code` and `data`. Classes of the file of containerd
//! (`rdt_config_file`), of CRI-O, of nri-plugins (`control.rdt`) and of CRI Resource Manager (which calls two keys of a class `l3Schema` and `mbSchema`) are taken over as they
//! are.

use std::collections::BTreeMap;

use bayplan_enforcement::resctrl::{
    Bandwidth, CacheIds, CacheShares, CdpShares, ClassName, PerCache, Problem, Refusals,
    ResctrlClass, ResctrlOptions, ResctrlPartition, check_config,
};
use serde_json::{Map, Value as Json, json};

use super::kind::{Field, Tree};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::Fields;
use crate::yaml::{Node, Position, Value};

/// What the machine may lack.
pub(super) struct ResctrlOptionsTree;

/// Partitions and classes.
pub(super) struct ResctrlPartitions;

/// Where partitions and classes stand, by what problems call them.
type Places = BTreeMap<String, Position>;

/// For every cache.
const ALL: &str = "all";

impl Tree for ResctrlOptionsTree {
    fn expected(&self) -> String {
        "l2, l3 or mb, each with {optional: true}, or nothing such as {}".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        config.resctrl.options = options(&mut Fields::new(field.key, field.value, &mut errors));
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        shown_options(config.resctrl.options)
    }

    fn schema(&self) -> Json {
        let optional = object(json!({ "optional": flag() }));
        object(json!({ "l2": optional, "l3": optional, "mb": optional }))
    }
}

impl Tree for ResctrlPartitions {
    fn expected(&self) -> String {
        "names of partitions, or nothing such as {}; docs/resctrl.md has examples".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let (mut errors, mut places) = (Vec::new(), Places::new());
        let mut fields = Fields::new(field.key, field.value, &mut errors);
        config.resctrl.partitions = partitions(&mut fields, &self.expected(), &mut places);
        for Problem { of, text } in check_config(&config.resctrl) {
            let at = places.get(&of).copied().unwrap_or(field.value.at);
            errors.push(ConfigError { at, message: format!("`resctrl`: {of}: {text}") });
        }
        errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        shown_partitions(&config.resctrl.partitions)
    }

    fn schema(&self) -> Json {
        schema()
    }
}

fn options(fields: &mut Fields<'_>) -> ResctrlOptions {
    const KEYS: [&str; 3] = ["l2", "l3", "mb"];
    let mut options = ResctrlOptions::default();
    for (at, key, value) in fields.entries_of("l2, l3 or mb") {
        let place = match key.as_str() {
            "l2" => &mut options.is_l2_optional,
            "l3" => &mut options.is_l3_optional,
            "mb" => &mut options.is_mb_optional,
            _ => {
                fields.unknown(at, &key, &KEYS);
                continue;
            }
        };
        let mut fields = fields.inner(&key, value);
        for (at, key, value) in fields.entries_of("`optional: true` or false") {
            match key.as_str() {
                "optional" => *place = fields.flag(&key, value).unwrap_or_default(),
                _ => fields.unknown(at, &key, &["optional"]),
            }
        }
    }
    options
}

fn partitions(
    fields: &mut Fields<'_>,
    expected: &str,
    places: &mut Places,
) -> Vec<ResctrlPartition> {
    let mut partitions = Vec::new();
    for (at, name, value) in fields.names(expected) {
        places.insert(format!("partition `{name}`"), at);
        let mut fields = fields.inner(&name, value);
        partitions.push(partition(&mut fields, &name, places));
    }
    partitions.sort_by(|a, b| a.name.cmp(&b.name));
    partitions
}

fn partition(fields: &mut Fields<'_>, name: &str, places: &mut Places) -> ResctrlPartition {
    const KEYS: [&str; 4] = ["l2Allocation", "l3Allocation", "mbAllocation", "classes"];
    let mut partition = ResctrlPartition { name: name.to_owned(), ..Default::default() };
    for (at, key, value) in fields.entries_of(&lines_of(&KEYS)) {
        match key.as_str() {
            "l2Allocation" => partition.l2 = caches(fields, &key, value),
            "l3Allocation" => partition.l3 = caches(fields, &key, value),
            "mbAllocation" => partition.mb = bandwidth(fields, &key, value),
            "classes" => partition.classes = classes(&mut fields.inner(&key, value), places),
            _ => fields.unknown(at, &key, &KEYS),
        }
    }
    partition
}

fn classes(fields: &mut Fields<'_>, places: &mut Places) -> Vec<ResctrlClass> {
    let mut classes = Vec::new();
    for (at, key, value) in fields.names("names of classes") {
        match key.parse::<ClassName>() {
            Ok(name) => {
                places.insert(format!("class `{name}`"), at);
                classes.push(class(&mut fields.inner(&key, value), name));
            }
            Err(why) => fields.wrong(at, why),
        }
    }
    classes.sort_by(|a, b| a.name.cmp(&b.name));
    classes
}

fn class(fields: &mut Fields<'_>, name: ClassName) -> ResctrlClass {
    const KEYS: [&str; 4] = ["l2Allocation", "l3Allocation", "mbAllocation", "kubernetes"];
    let mut class = ResctrlClass::new(name);
    let name_of = |key: &str| match key {
        "l3Schema" | "l3schema" => Some("l3Allocation"),
        "mbSchema" | "mbschema" => Some("mbAllocation"),
        _ => KEYS.into_iter().find(|it| *it == key),
    };
    for (name, (at, key, value)) in fields.entries_by_name(&lines_of(&KEYS), name_of) {
        match name {
            Some("l2Allocation") => class.l2 = caches(fields, &key, value),
            Some("l3Allocation") => class.l3 = caches(fields, &key, value),
            Some("mbAllocation") => class.mb = bandwidth(fields, &key, value),
            Some("kubernetes") => class.refuses = refusals(&mut fields.inner(&key, value)),
            _ => fields.unknown(at, &key, &KEYS),
        }
    }
    class
}

fn refusals(fields: &mut Fields<'_>) -> Refusals {
    const KEYS: [&str; 2] = ["denyPodAnnotation", "denyContainerAnnotation"];
    let mut refuses = Refusals::default();
    for (at, key, value) in fields.entries_of(&lines_of(&KEYS)) {
        let place = match key.as_str() {
            "denyPodAnnotation" => &mut refuses.pod_annotations,
            "denyContainerAnnotation" => &mut refuses.container_annotations,
            _ => {
                fields.unknown(at, &key, &KEYS);
                continue;
            }
        };
        *place = fields.flag(&key, value).unwrap_or_default();
    }
    refuses
}

fn lines_of(keys: &[&str]) -> String {
    format!("lines of {}", keys.join(", "))
}

fn caches(fields: &mut Fields<'_>, key: &str, node: &Node) -> Option<CacheShares> {
    per_cache(fields, key, node, |node| matches!(node.value, Value::Scalar(_)), cdp_shares)
}

fn bandwidth(fields: &mut Fields<'_>, key: &str, node: &Node) -> Option<PerCache<Vec<Bandwidth>>> {
    per_cache(fields, key, node, |node| matches!(node.value, Value::List(_)), bounds)
}

/// One value for all caches (`is_short`), or values by cache ids. Nothing is as if the key were not there.
fn per_cache<T>(
    fields: &mut Fields<'_>,
    key: &str,
    node: &Node,
    is_short: fn(&Node) -> bool,
    read: fn(&mut Fields<'_>, &str, &Node) -> Option<T>,
) -> Option<PerCache<T>> {
    if is_short(node) {
        return read(fields, key, node).map(PerCache::all);
    }
    if matches!(node.value, Value::Null) {
        return None;
    }
    let mut shares = PerCache { all: None, some: Vec::new() };
    let mut fields = fields.inner(key, node);
    for (at, ids, value) in fields.entries_of("a share, or `all` and cache ids with one each") {
        let Some(value) = read(&mut fields, &ids, value) else { continue };
        match ids.parse::<CacheIds>() {
            _ if ids == ALL => shares.all = Some(value),
            Ok(ids) => shares.some.push((ids, value)),
            Err(error) => fields.wrong(at, error.to_string()),
        }
    }
    Some(shares)
}

fn cdp_shares(fields: &mut Fields<'_>, key: &str, node: &Node) -> Option<CdpShares> {
    const KEYS: [&str; 3] = ["unified", "code", "data"];
    const EXPECTED: &str = "a share such as \"60%\", or unified, code and data";
    if matches!(node.value, Value::Scalar(_)) {
        let unified = fields.read(key, node)?;
        return Some(CdpShares { unified, code_and_data: None });
    }
    let mut fields = fields.inner(key, node);
    let (mut unified, mut code, mut data) = (None, None, None);
    let mistakes = fields.mistakes();
    // As goresctrl, in any case.
    let name_of = |key: &str| KEYS.into_iter().find(|it| it.eq_ignore_ascii_case(key));
    for (name, (at, key, value)) in fields.entries_by_name(EXPECTED, name_of) {
        let share = fields.read(&key, value);
        match name {
            Some("unified") => unified = share,
            Some("code") => code = share,
            Some("data") => data = share,
            _ => fields.unknown(at, &key, &KEYS),
        }
    }
    if fields.mistakes() > mistakes {
        return None;
    }
    let problem = match (unified, code, data) {
        (Some(unified), None, None) => return Some(CdpShares { unified, code_and_data: None }),
        (Some(unified), Some(code), Some(data)) => {
            return Some(CdpShares { unified, code_and_data: Some((code, data)) });
        }
        (None, ..) => "`unified` is missing, which counts where code and data are one",
        (Some(_), ..) => "`code` and `data` go together; write both, or only `unified`",
    };
    fields.wrong(node.at, problem.to_owned());
    None
}

fn bounds(fields: &mut Fields<'_>, key: &str, node: &Node) -> Option<Vec<Bandwidth>> {
    let mut bounds = Vec::new();
    for item in fields.list(key, node, "one such as [50%, 1500MBps]") {
        match &item.value {
            Value::Scalar(text) => bounds.push(Bandwidth::from(text.as_str())),
            _ => fields.wrong(item.at, format!("`{key}`: expected values such as 50% or 1500MBps")),
        }
    }
    Some(bounds)
}

fn shown_options(options: ResctrlOptions) -> Json {
    let options = [
        ("l2", options.is_l2_optional),
        ("l3", options.is_l3_optional),
        ("mb", options.is_mb_optional),
    ];
    let options = options.into_iter().filter(|(_, is_optional)| *is_optional);
    let options = options.map(|(name, _)| (name.to_owned(), json!({ "optional": true })));
    Json::Object(options.collect())
}

fn shown_partitions(partitions: &[ResctrlPartition]) -> Json {
    let partitions = partitions.iter().map(|partition| {
        let ResctrlPartition { name, l2, l3, mb, classes } = partition;
        let mut shown = shown_shares(l2, l3, mb);
        let classes = classes.iter().map(|class| (class.name.to_string(), shown_class(class)));
        shown.insert("classes".to_owned(), Json::Object(classes.collect()));
        (name.clone(), Json::Object(shown))
    });
    Json::Object(partitions.collect())
}

fn shown_class(class: &ResctrlClass) -> Json {
    let mut shown = shown_shares(&class.l2, &class.l3, &class.mb);
    let refusals = [
        ("denyPodAnnotation", class.refuses.pod_annotations),
        ("denyContainerAnnotation", class.refuses.container_annotations),
    ];
    let refusals = refusals.into_iter().filter(|(_, refuses)| *refuses);
    let refusals: Map<String, Json> =
        refusals.map(|(name, _)| (name.to_owned(), json!(true))).collect();
    if !refusals.is_empty() {
        shown.insert("kubernetes".to_owned(), Json::Object(refusals));
    }
    Json::Object(shown)
}

fn shown_shares(
    l2: &Option<CacheShares>,
    l3: &Option<CacheShares>,
    mb: &Option<PerCache<Vec<Bandwidth>>>,
) -> Map<String, Json> {
    let cache = |shares: &CdpShares| match &shares.code_and_data {
        None => json!(shares.unified.to_string()),
        Some((code, data)) => json!({
            "unified": shares.unified.to_string(),
            "code": code.to_string(),
            "data": data.to_string(),
        }),
    };
    let bounds = |bounds: &Vec<Bandwidth>| bounds.iter().map(ToString::to_string).collect::<Json>();
    let rows = [
        ("l2Allocation", l2.as_ref().map(|it| shown_per_cache(it, cache))),
        ("l3Allocation", l3.as_ref().map(|it| shown_per_cache(it, cache))),
        ("mbAllocation", mb.as_ref().map(|it| shown_per_cache(it, bounds))),
    ];
    rows.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn shown_per_cache<T>(shares: &PerCache<T>, shown: impl Fn(&T) -> Json) -> Json {
    let some = shares.some.iter().map(|(ids, share)| (ids.to_string(), shown(share)));
    let all = shares.all.iter().map(|share| (ALL.to_owned(), shown(share)));
    Json::Object(all.chain(some).collect())
}

fn schema() -> Json {
    let share = json!({
        "type": ["string", "integer"],
        "pattern": "^([0-9]{1,3}(-[0-9]{1,3})?%|0x[0-9a-fA-F]+|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$",
    });
    let cdp = json!({ "anyOf": [share, {
        "type": "object",
        "properties": { "unified": share, "code": share, "data": share },
        "required": ["unified"],
        "additionalProperties": false,
    }]});
    let ids = json!({ "pattern": "^(all|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$" });
    let per_cache = |short: &Json, one: &Json| {
        json!({ "anyOf": [short, {
            "type": ["object", "null"],
            "propertyNames": ids,
            "additionalProperties": one,
        }]})
    };
    let bounds = json!({ "type": "array", "items": { "type": ["string", "integer"] } });
    let (cache, bandwidth) = (per_cache(&share, &cdp), per_cache(&bounds, &bounds));
    let map = |of: Json| json!({ "type": ["object", "null"], "additionalProperties": of });
    let class = object(json!({
        "l2Allocation": cache,
        "l3Allocation": cache,
        "l3Schema": cache,
        "l3schema": cache,
        "mbAllocation": bandwidth,
        "mbSchema": bandwidth,
        "mbschema": bandwidth,
        "kubernetes": object(json!({
            "denyPodAnnotation": flag(),
            "denyContainerAnnotation": flag(),
        })),
    }));
    let partition = object(json!({
        "l2Allocation": cache,
        "l3Allocation": cache,
        "mbAllocation": bandwidth,
        "classes": map(class),
    }));
    map(partition)
}

fn object(properties: Json) -> Json {
    json!({ "type": ["object", "null"], "properties": properties, "additionalProperties": false })
}

fn flag() -> Json {
    json!({ "enum": [true, false, "true", "false"] })
}

#[cfg(test)]
mod tests;
