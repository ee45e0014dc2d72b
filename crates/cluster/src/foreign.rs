//! Configurations of other systems in the cluster. In: objects of CRI Resource Manager and nri-plugins by their names, and the node. Out: the one that is for
//! this node, as a configuration of Bayplan; nothing is merged, and no object is ever written.
//!
//! | System | Objects | Label with the node's group |
//! |---|---|---|
//! | nri-plugins | `BalloonsPolicy`, `TopologyAwarePolicy`: `node.NODE`, `group.GROUP`, `default` | `config.nri/group`, `group.config.nri`, `resource-policy.nri.io/group` |
//! | CRI Resource Manager | `ConfigMap`: `cri-resmgr-config.` and the same | `cri-resource-manager.intel.com/group` |
//!
//! As there, a node with a group label gets its own object or its group's and never the default one. nri-plugins go before CRI Resource Manager; a
//! system without any object is as one that is not accepted. Two policies of nri-plugins at the same step are a mistake.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::{Value as Json, json};

use crate::object::{ConfigObject, NodeObject, allowed_moves};

/// A system with objects that can be accepted, in the order in which they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum System {
    /// Custom resources of nri-plugins.
    NriPlugins,
    /// ConfigMaps of CRI Resource Manager.
    CriResmgr,
}

/// Labels of a Node that name its group, the first one that is there counts.
const NRI_GROUPS: [&str; 3] =
    ["config.nri/group", "group.config.nri", "resource-policy.nri.io/group"];
const CRI_RESMGR_GROUPS: [&str; 1] = ["cri-resource-manager.intel.com/group"];
/// Where both systems have their objects unless told otherwise.
const NAMESPACE: &str = "kube-system";
/// What a condition names of keys without counterpart.
const LOST_NAMED_MAX: usize = 10;

impl System {
    const ALL: [System; 2] = [System::NriPlugins, System::CriResmgr];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            System::NriPlugins => "nri-plugins",
            System::CriResmgr => "cri-resmgr",
        }
    }

    fn group_labels(self) -> &'static [&'static str] {
        match self {
            System::NriPlugins => &NRI_GROUPS,
            System::CriResmgr => &CRI_RESMGR_GROUPS,
        }
    }

    fn kinds(self) -> &'static [ForeignKind] {
        match self {
            System::NriPlugins => &[ForeignKind::Balloons, ForeignKind::TopologyAware],
            System::CriResmgr => &[ForeignKind::ConfigMap],
        }
    }

    /// The label with the node's group, and the group.
    fn group(self, node: &NodeObject) -> Option<(&'static str, &str)> {
        let label = |label: &&'static str| Some((*label, node.labels.get(*label)?.as_str()));
        self.group_labels().iter().find_map(label)
    }
}

/// Objects of a system in a namespace, as `SYSTEM` or `SYSTEM=NAMESPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The system.
    pub system: System,
    /// Where its objects are.
    pub namespace: String,
}

impl FromStr for Accepted {
    type Err = String;

    fn from_str(text: &str) -> Result<Accepted, String> {
        let (name, namespace) = text.split_once('=').unwrap_or((text, NAMESPACE));
        let system = System::ALL.into_iter().find(|it| it.name() == name);
        let system = system.ok_or_else(|| {
            let names = System::ALL.map(System::name).join(", ");
            format!("objects of `{name}` cannot be accepted, expected {names}")
        })?;
        match namespace {
            "" => Err(format!("`{text}` names no namespace, expected {name}=NAMESPACE")),
            _ => Ok(Accepted { system, namespace: namespace.to_owned() }),
        }
    }
}

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ForeignKind {
    Balloons,
    TopologyAware,
    ConfigMap,
}

impl ForeignKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ForeignKind::Balloons => "BalloonsPolicy",
            ForeignKind::TopologyAware => "TopologyAwarePolicy",
            ForeignKind::ConfigMap => "ConfigMap",
        }
    }

    /// Where it is served: group, version, and the plural of its name.
    pub(crate) fn resource(self) -> [&'static str; 3] {
        match self {
            ForeignKind::Balloons => ["config.nri", "v1alpha1", "balloonspolicies"],
            ForeignKind::TopologyAware => ["config.nri", "v1alpha1", "topologyawarepolicies"],
            ForeignKind::ConfigMap => ["", "v1", "configmaps"],
        }
    }

    fn object_name(self, step: &str) -> String {
        match self {
            ForeignKind::ConfigMap => format!("cri-resmgr-config.{step}"),
            ForeignKind::Balloons | ForeignKind::TopologyAware => step.to_owned(),
        }
    }
}

/// How exactly an object names the node; the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Node,
    Group,
    Default,
}

/// An object that would be for the node if it were there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ForeignName {
    pub(crate) system: System,
    pub(crate) step: Step,
    pub(crate) kind: ForeignKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ForeignName {
    /// Kind and namespace, as before the name of a [`ConfigObject`].
    fn place(&self) -> String {
        format!("{}/{}", self.kind.name(), self.namespace)
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.place(), self.name)
    }

    /// The node's group for its system.
    pub(crate) fn group<'a>(&self, node: &'a NodeObject) -> Option<&'a str> {
        self.system.group(node).map(|it| it.1)
    }
}

/// As much of an object as counts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ForeignObject {
    /// Its generation, or its version where its kind has none.
    generation: i64,
    /// Without status and other metadata, which other programs change.
    text: Json,
    annotations: BTreeMap<String, String>,
}

impl ForeignObject {
    pub(crate) fn read(object: &Json, kind: ForeignKind) -> ForeignObject {
        let [group, version, _] = kind.resource();
        let metadata = &object["metadata"];
        let generation = metadata["generation"].as_i64();
        let resource_version = || metadata["resourceVersion"].as_str()?.parse().ok();
        let version =
            if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let mut text = json!({
            "apiVersion": version, "kind": kind.name(), "metadata": { "name": metadata["name"] },
        });
        for key in ["spec", "data"] {
            if let Some(value) = object.get(key) {
                text[key] = value.clone();
            }
        }
        let annotations = serde_json::from_value(metadata["annotations"].clone());
        ForeignObject {
            generation: generation.or_else(resource_version).unwrap_or_default(),
            text,
            annotations: annotations.unwrap_or_default(),
        }
    }
}

/// What is known of objects: `None` for one that is not there.
pub(crate) type Found = BTreeMap<ForeignName, Option<ForeignObject>>;

/// Every object that could be for this node.
pub(crate) fn candidates(accepted: &[Accepted], node: &NodeObject) -> Vec<ForeignName> {
    let mut names = Vec::new();
    for Accepted { system, namespace } in accepted {
        let group = system.group(node).map(|(_, group)| (Step::Group, format!("group.{group}")));
        let steps = [(Step::Node, format!("node.{}", node.name))].into_iter().chain(group);
        for (step, text) in steps.chain([(Step::Default, "default".to_owned())]) {
            names.extend(system.kinds().iter().map(|kind| ForeignName {
                system: *system,
                step,
                kind: *kind,
                namespace: namespace.clone(),
                name: kind.object_name(&text),
            }));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// What is chosen for a node among the objects of other systems.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ForeignChoice<'a> {
    /// Not everything is known yet.
    Unknown,
    /// There is no object of any system.
    Nothing,
    Object(&'a ForeignName, &'a ForeignObject),
    /// The node's group has none: full names of those that could be, and the label.
    Missing(String, &'static str),
    /// Two count as much as each other: their full names.
    Several(String),
}

/// Chooses for a node.
pub(crate) fn choose_foreign<'a>(
    accepted: &[Accepted],
    node: &NodeObject,
    found: &'a Found,
) -> ForeignChoice<'a> {
    let names = candidates(accepted, node);
    if names.iter().any(|name| !found.contains_key(name)) {
        return ForeignChoice::Unknown;
    }
    let is_there = |system: System| {
        let of_system = names.iter().filter(move |it| it.system == system);
        of_system
            .filter_map(|it| found.get_key_value(it))
            .filter_map(|(name, it)| Some((name, it.as_ref()?)))
    };
    let system = System::ALL.into_iter().find(|it| is_there(*it).next().is_some());
    let Some(system) = system else { return ForeignChoice::Nothing };
    let group = system.group(node);
    let last = if group.is_some() { Step::Group } else { Step::Default };
    let Some(best) = is_there(system).map(|it| it.0.step).min().filter(|it| *it <= last) else {
        let of_group = names.iter().filter(|it| it.system == system && it.step == Step::Group);
        let missing = of_group.map(ForeignName::full_name).collect::<Vec<_>>().join(" or ");
        return ForeignChoice::Missing(missing, group.map_or("", |it| it.0));
    };
    let best: Vec<_> = is_there(system).filter(|it| it.0.step == best).collect();
    match best.as_slice() {
        [(name, object)] => ForeignChoice::Object(name, object),
        all => {
            let names: Vec<String> = all.iter().map(|it| it.0.full_name()).collect();
            ForeignChoice::Several(names.join(" and "))
        }
    }
}

/// An object of another system that is to become a configuration of Bayplan.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Its full name.
    pub name: &'a str,
    /// Itself, in YAML.
    pub text: &'a str,
    /// The node.
    pub node: &'a str,
    /// The node's group.
    pub group: Option<&'a str>,
    /// The daemon's `bayplan-machine/1`, for amounts of CPUs that have to become lists.
    pub machine: Option<&'a str>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// A configuration of Bayplan without the node's own keys.
    pub text: String,
    /// Keys without counterpart.
    pub lost: Vec<String>,
}

/// Makes the configuration; the error says what is wrong with the object.
pub type Convert = fn(&Question<'_>) -> Result<Converted, String>;

/// The object as a configuration of this node.
pub(crate) fn convert_foreign(
    name: &ForeignName,
    object: &ForeignObject,
    node: &NodeObject,
    machine: &str,
    convert: Convert,
) -> ConfigObject {
    let (allowed, mut problems) = allowed_moves(&object.annotations);
    let full_name = name.full_name();
    let converted =
        serde_yaml::to_string(&object.text).map_err(|it| it.to_string()).and_then(|text| {
            let (group, machine) = (name.group(node), Some(machine));
            convert(&Question { name: &full_name, text: &text, node: &node.name, group, machine })
        });
    let Converted { text, lost } = converted.unwrap_or_else(|problem| {
        problems.push(problem);
        Converted::default()
    });
    ConfigObject {
        place: name.place(),
        allowed,
        text,
        note: note(&lost),
        problem: problems.into_iter().reduce(|all, one| format!("{all}\n{one}")),
        ..ConfigObject::empty(&name.name, object.generation)
    }
}

fn note(lost: &[String]) -> Option<String> {
    let named = lost.iter().take(LOST_NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = match lost.len().saturating_sub(LOST_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!lost.is_empty()).then(|| format!("without counterpart, see `bayplan import`: {named}{more}"))
}

#[cfg(test)]
mod tests;
