//! The keys `resctrl.options` and `resctrl.partitions`, in the form of goresctrl. In: trees of the file. Out: partitions and classes, or every mistake in
//! them.
//!
//! A share stands for all caches, or below their ids; it is one text, or one for `unified`, `code` and `data`. Classes of the file of containerd
//! (`rdt_config_file`), of CRI-O, of nri-plugins (`control.rdt`) and of CRI Resource Manager (which calls two keys of a class `l3Schema` and `mbSchema`) are taken over as they
//! are.

use std::collections::BTreeMap;
use std::str::FromStr;

use bayplan_enforcement::resctrl::{
    Bandwidth, CacheShare, CacheShares, CdpShares, ClassName, PerCache, ResctrlClass,
    ResctrlOptions, ResctrlPartition, check_config,
};
use serde_json::{Map, Value as Json, json};

use super::kind::{Field, Tree};
use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::{Entries, mapping, repeated};
use crate::yaml::{Node, Position, Value};

/// What the machine may lack.
pub(super) struct ResctrlOptionsTree;

/// Partitions and classes.
pub(super) struct ResctrlPartitions;

/// For every cache.
const ALL: &str = "all";

impl Tree for ResctrlOptionsTree {
    fn expected(&self) -> String {
        "l2, l3 or mb, each with {optional: true}, or nothing such as {}".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut reader = Reader::default();
        config.resctrl.options = reader.options(field.value);
        reader.errors
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
        let mut reader = Reader::default();
        config.resctrl.partitions = reader.partitions(field.value, &self.expected());
        for problem in check_config(&config.resctrl) {
            let at = reader.places.get(&problem.of).copied().unwrap_or(field.value.at);
            reader.wrong(at, &problem.of, &problem.text);
        }
        reader.errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        shown_partitions(&config.resctrl.partitions)
    }

    fn schema(&self) -> Json {
        schema()
    }
}

#[derive(Default)]
struct Reader {
    errors: Vec<ConfigError>,
    /// Where partitions and classes stand, by what problems call them.
    places: BTreeMap<String, Position>,
}

impl Reader {
    fn wrong(&mut self, at: Position, of: &str, text: &str) {
        self.errors.push(ConfigError { at, message: format!("`resctrl`: {of}: {text}") });
    }

    /// The keys below a key.
    fn entries<'a>(&mut self, of: &str, node: &'a Node, expected: &str) -> &'a Entries {
        let entries = self.names(of, node, expected);
        for (at, key) in repeated(entries) {
            self.wrong(at, of, &format!("duplicate key `{key}`"));
        }
        entries
    }

    /// The same for names of partitions and classes: `check_config` tells of those that are there already.
    fn names<'a>(&mut self, of: &str, node: &'a Node, expected: &str) -> &'a Entries {
        mapping(node).unwrap_or_else(|| {
            self.wrong(node.at, of, &format!("expected {expected}"));
            &[]
        })
    }

    fn unknown(&mut self, at: Position, of: &str, name: &str, known: &str) {
        self.wrong(at, of, &format!("unknown key `{name}`; known are {known}"));
    }

    fn partitions(&mut self, node: &Node, expected: &str) -> Vec<ResctrlPartition> {
        let mut partitions = Vec::new();
        for (at, name, value) in self.names("partitions", node, expected) {
            self.places.insert(format!("partition `{name}`"), *at);
            partitions.push(self.partition(name, value));
        }
        partitions.sort_by(|a, b| a.name.cmp(&b.name));
        partitions
    }

    fn options(&mut self, node: &Node) -> ResctrlOptions {
        let mut options = ResctrlOptions::default();
        let of = "options";
        for (at, name, value) in self.entries(of, node, "l2, l3 or mb") {
            let place = match name.as_str() {
                "l2" => &mut options.is_l2_optional,
                "l3" => &mut options.is_l3_optional,
                "mb" => &mut options.is_mb_optional,
                _ => {
                    self.unknown(*at, of, name, "l2, l3, mb");
                    continue;
                }
            };
            for (at, key, value) in self.entries(of, value, "`optional: true` or false") {
                match key.as_str() {
                    "optional" => *place = self.flag(&format!("{of}.{name}"), value),
                    _ => self.unknown(*at, of, key, "optional"),
                }
            }
        }
        options
    }

    fn flag(&mut self, of: &str, node: &Node) -> bool {
        match &node.value {
            Value::Scalar(text) if text == "true" => return true,
            Value::Scalar(text) if text == "false" => {}
            _ => self.wrong(node.at, of, "expected true or false"),
        }
        false
    }

    fn partition(&mut self, name: &str, node: &Node) -> ResctrlPartition {
        const KNOWN: &str = "l2Allocation, l3Allocation, mbAllocation, classes";
        let of = format!("partition `{name}`");
        let mut partition = ResctrlPartition { name: name.to_owned(), ..Default::default() };
        for (at, key, value) in self.entries(&of, node, &format!("lines of {KNOWN}")) {
            match key.as_str() {
                "l2Allocation" => partition.l2 = self.caches(&of, value),
                "l3Allocation" => partition.l3 = self.caches(&of, value),
                "mbAllocation" => partition.mb = self.bandwidth(&of, value),
                "classes" => {
                    for (at, name, value) in self.names(&of, value, "names of classes") {
                        let class = self.class(*at, name, value);
                        partition.classes.extend(class);
                    }
                }
                _ => self.unknown(*at, &of, key, KNOWN),
            }
        }
        partition.classes.sort_by(|a, b| a.name.cmp(&b.name));
        partition
    }

    fn class(&mut self, at: Position, name: &str, node: &Node) -> Option<ResctrlClass> {
        const KNOWN: &str = "l2Allocation, l3Allocation, mbAllocation, kubernetes";
        let name = match name.parse::<ClassName>() {
            Ok(name) => name,
            Err(why) => {
                self.wrong(at, "a class", &why);
                return None;
            }
        };
        let of = format!("class `{name}`");
        self.places.insert(of.clone(), at);
        let mut class = ResctrlClass::new(name);
        for (at, key, value) in self.entries(&of, node, &format!("lines of {KNOWN}")) {
            match key.as_str() {
                "l2Allocation" => class.l2 = self.caches(&of, value),
                "l3Allocation" | "l3Schema" | "l3schema" => class.l3 = self.caches(&of, value),
                "mbAllocation" | "mbSchema" | "mbschema" => class.mb = self.bandwidth(&of, value),
                "kubernetes" => self.refusals(&of, value, &mut class),
                _ => self.unknown(*at, &of, key, KNOWN),
            }
        }
        Some(class)
    }

    fn refusals(&mut self, of: &str, node: &Node, class: &mut ResctrlClass) {
        const KNOWN: &str = "denyPodAnnotation, denyContainerAnnotation";
        for (at, key, value) in self.entries(of, node, &format!("lines of {KNOWN}")) {
            match key.as_str() {
                "denyPodAnnotation" => class.refuses.pod_annotations = self.flag(of, value),
                "denyContainerAnnotation" => {
                    class.refuses.container_annotations = self.flag(of, value);
                }
                _ => self.unknown(*at, of, key, KNOWN),
            }
        }
    }

    /// Nothing is as if the key were not there.
    fn caches(&mut self, of: &str, node: &Node) -> Option<CacheShares> {
        self.per_cache(of, node, |node| matches!(node.value, Value::Scalar(_)), Reader::cdp_shares)
    }

    fn bandwidth(&mut self, of: &str, node: &Node) -> Option<PerCache<Vec<Bandwidth>>> {
        self.per_cache(of, node, |node| matches!(node.value, Value::List(_)), Reader::bounds)
    }

    fn per_cache<T>(
        &mut self,
        of: &str,
        node: &Node,
        is_short: fn(&Node) -> bool,
        read: fn(&mut Reader, &str, &Node) -> Option<T>,
    ) -> Option<PerCache<T>> {
        if is_short(node) {
            return read(self, of, node).map(PerCache::all);
        }
        if matches!(node.value, Value::Null) {
            return None;
        }
        let mut shares = PerCache { all: None, some: Vec::new() };
        for (at, ids, value) in
            self.entries(of, node, "a share, or `all` and cache ids with one each")
        {
            let value = read(self, of, value);
            match (ids.as_str(), value) {
                (_, None) => {}
                (ALL, value) => shares.all = value,
                (ids, Some(value)) => match ids.parse() {
                    Ok(ids) => shares.some.push((ids, value)),
                    Err(error) => self.wrong(*at, of, &error.to_string()),
                },
            }
        }
        Some(shares)
    }

    fn cdp_shares(&mut self, of: &str, node: &Node) -> Option<CdpShares> {
        const KNOWN: &str = "unified, code, data";
        if matches!(node.value, Value::Scalar(_)) {
            let unified = self.share(of, node)?;
            return Some(CdpShares { unified, code_and_data: None });
        }
        let (mut unified, mut code, mut data) = (None, None, None);
        let errors = self.errors.len();
        for (at, key, value) in
            self.entries(of, node, "a share such as \"60%\", or unified, code and data")
        {
            let share = self.share(of, value);
            match key.to_ascii_lowercase().as_str() {
                "unified" => unified = share,
                "code" => code = share,
                "data" => data = share,
                _ => self.unknown(*at, of, key, KNOWN),
            }
        }
        if self.errors.len() > errors {
            return None;
        }
        match (unified, code, data) {
            (Some(unified), None, None) => Some(CdpShares { unified, code_and_data: None }),
            (Some(unified), Some(code), Some(data)) => {
                Some(CdpShares { unified, code_and_data: Some((code, data)) })
            }
            (None, ..) => {
                self.wrong(
                    node.at,
                    of,
                    "`unified` is missing, which counts where code and data are one",
                );
                None
            }
            (Some(_), ..) => {
                self.wrong(
                    node.at,
                    of,
                    "`code` and `data` go together; write both, or only `unified`",
                );
                None
            }
        }
    }

    fn share(&mut self, of: &str, node: &Node) -> Option<CacheShare> {
        let text = match &node.value {
            Value::Scalar(text) => text.as_str(),
            _ => "",
        };
        CacheShare::from_str(text)
            .inspect_err(|error| self.wrong(node.at, of, &error.to_string()))
            .ok()
    }

    fn bounds(&mut self, of: &str, node: &Node) -> Option<Vec<Bandwidth>> {
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            _ => {
                self.wrong(node.at, of, "mbAllocation: expected a list such as [50%, 1500MBps]");
                return None;
            }
        };
        let bounds = items.iter().filter_map(|item| match &item.value {
            Value::Scalar(text) => Some(Bandwidth::from(text.as_str())),
            _ => {
                self.wrong(item.at, of, "mbAllocation: expected values such as 50% or 1500MBps");
                None
            }
        });
        Some(bounds.collect())
    }
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
