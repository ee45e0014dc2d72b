//! What a pod asks for by annotation and label. In: a container with its pod, and what the configuration says. Out: [`Asked`], and a
//! [`Warning`] for everything that was not understood or has no effect. Pure.
//!
//! One table, [`KEYS`], says what each key is called, accepts, means and fills; lookup, warnings and the reference page come from it.
//! A later source wins: configuration, extended resources, Katalyst, Koordinator, runtimes, our keys (and their older names) from the least specific
//! to the most. Values are untrusted text: none of them is trusted with its length, depth or contents, and only one that was to require something keeps
//! its own pod from being placed.

mod affinity;
pub(crate) mod effect;
mod extended;
mod field;
mod hints;
mod koordinator;
mod live;
mod names;
mod page;
mod permissions;
mod source;
mod table;
mod tuning;
mod values;
mod webhook;
mod yaml;

use std::collections::BTreeMap;

use bayplan_allocator::Wishes;
use bayplan_types::NodeSet;

pub use affinity::{Affinity, Condition, affinities, is_key, value_of};
pub use effect::{ClassNames, tell_effects_in};
pub use field::Field;
pub use hints::{HintSource, Hints, nears};
pub use koordinator::{FOREIGN, Foreign, may_claim};
pub use live::{render_changes, with_live};
pub use page::{render_page, render_text};
pub use permissions::{GROUPS, Group, Item, Rule, Wish, allowed, is_allowed_by_rule};
pub use source::Sources;
pub use table::{KEYS, Key, Values};
pub use tuning::{
    BatchLimits, CpuPartition, INTERRUPTS, InterruptRule, PARTITION, RebalanceWish, Tuning, WakeUp,
};
pub use values::{BURST, FLAG, NUMA_STRATEGY, PRIORITY, SIBLINGS, Words, known_as, matches_glob};
pub use webhook::parse_quantity;

use crate::cmk::INFRA;
use crate::request::{NewContainer, Pod, RequestRules};
use crate::resources::ExactRequests;
use names::look_up;
pub use values::shown;
use values::{Misread, VALUE_MAX, word};

/// What of a value is shown in a warning.
const SHOWN_MAX: usize = 40;
/// Kubernetes allows 253 characters, a slash and 63 characters.
const NAME_MAX: usize = 317;
/// More about one container are only counted.
const WARNINGS_MAX: usize = 20;

/// Bytes of names and values of a pod's annotations that are kept, and the same of its labels.
const KEPT_MAX: usize = 64 << 10;
/// Kubernetes allows 63 characters.
const LABEL_MAX: usize = 256;
/// Stands among what was kept where something was left out, with the number of these. No annotation can be called so.
const CUT: &str = "#left-out";

/// What a container asks for, all sources together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// About the split into exclusive and shared CPUs.
    pub prefer_shared_cpus: Option<bool>,
    /// Each container has the QoS class that its own resources make.
    pub has_own_qos: bool,
    /// About the reserved CPUs.
    pub prefer_reserved_cpus: Option<bool>,
    /// Whether the pod said anything about isolated CPUs; if not, the configuration may.
    pub prefer_isolated_cpus: Option<bool>,
    /// The type of groups that it is to belong to.
    pub group: Option<String>,
    /// Everything that placement takes as it is. `place` is filled from `affinity` and `hints` by callers that know the others and the devices.
    pub wishes: Wishes,
    /// What a webhook says that the container requests, and in which annotation.
    pub requests: Option<(&'static str, ExactRequests)>,
    /// Which devices and mounts count.
    pub hints: Hints,
    /// NUMA nodes that Koordinator's scheduler has chosen.
    pub numa_nodes: NodeSet,
    /// Its relations to other containers.
    pub affinity: Vec<Affinity>,
    /// What it asks for beside its place.
    pub tuning: Tuning,
}

impl Asked {
    /// What holds for a container of a pod that says nothing.
    fn usual(rules: &RequestRules) -> Asked {
        Asked {
            prefer_shared_cpus: rules.prefer_shared_cpus.then_some(true),
            has_own_qos: rules.has_own_qos,
            wishes: rules.wishes.clone(),
            ..Asked::default()
        }
    }
}

/// Something about a pod that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// For the metric.
    pub kind: WarningKind,
    /// A sentence for people.
    pub text: String,
}

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningKind {
    /// It could not be understood, and does nothing.
    NotUnderstood,
    /// It could not be understood, and was to require something: a container that is not there yet is not placed without it.
    RequirementNotUnderstood,
    /// It was understood, and does nothing.
    NoEffect,
    /// The configuration does not let the namespace ask for it.
    NotAllowed,
    /// It names a class that the configuration lacks.
    UnknownClass,
    /// It would keep more CPUs from others than a pod or a namespace may.
    OverCeiling,
    /// The reserved CPUs are too few for those that run there.
    ReservedFull,
}

impl WarningKind {
    /// The word in metrics.
    pub fn name(self) -> &'static str {
        match self {
            WarningKind::NotUnderstood | WarningKind::RequirementNotUnderstood => "not_understood",
            WarningKind::NoEffect => "no_effect",
            WarningKind::NotAllowed => "not_allowed",
            WarningKind::UnknownClass => "unknown_class",
            WarningKind::OverCeiling => "over_ceiling",
            WarningKind::ReservedFull => "reserved_full",
        }
    }
}

/// A value, and the container for which it is read.
pub(super) struct Said<'a> {
    value: &'a str,
    container: &'a str,
}

impl Said<'_> {
    fn flag(&self) -> Result<bool, Misread> {
        word(self.value, FLAG)
    }
}

/// Annotations that bayplan reads or warns of. Values that are too long to be read are cut, so that they can be warned of; names that
/// Kubernetes would not take are left out, and so are the longest of those that are together over 64 KiB.
pub fn relevant<'a>(
    annotations: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let is_relevant = |name: &str| {
        name.len() <= NAME_MAX
            && (names::has_prefix(name) || koordinator::is_known(name) || tuning::is_known(name))
    };
    let pairs = annotations.into_iter().filter(|(name, _)| is_relevant(name));
    capped(pairs.map(|(name, value)| (name.as_str(), cut(value, VALUE_MAX + 1))))
}

/// Labels of a pod, without the longest of those that are together over 64 KiB.
pub fn kept_labels<'a>(
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let pairs = labels.into_iter().filter(|(name, _)| name.len() <= NAME_MAX);
    capped(pairs.map(|(name, value)| (name.as_str(), cut(value, LABEL_MAX))))
}

/// What stands for annotations or labels that were not kept.
pub fn left_out(count: usize) -> BTreeMap<String, String> {
    [(CUT.to_owned(), count.to_string())].into()
}

/// The shortest first, until [`KEPT_MAX`] is reached; the note [`CUT`] says how many are missing.
fn capped<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    let mut pairs: Vec<_> = pairs.filter(|(name, _)| *name != CUT).collect();
    pairs.sort_by_key(|(name, value)| (name.len() + value.len(), *name));
    let mut left = KEPT_MAX;
    let fitting = pairs.iter().take_while(|(name, value)| {
        let rest = left.checked_sub(name.len() + value.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let fitting = fitting.count();
    let kept = pairs.iter().take(fitting);
    let kept = kept.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let missing = pairs.len() - fitting;
    let note = (missing > 0).then(|| (CUT.to_owned(), missing.to_string()));
    kept.chain(note).collect()
}

/// At most so many bytes of it, in whole characters, and at least one byte more than `VALUE_MAX` of what was longer.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.ceil_char_boundary(bytes_max)]
}

/// Reads everything that a pod says about one of its containers.
pub fn read_annotations(container: &NewContainer, rules: &RequestRules) -> (Asked, Vec<Warning>) {
    let usual = Asked::usual(rules);
    let mut asked = usual.clone();
    let mut warnings = Warnings::default();
    warnings.left_out(&container.pod);
    // Without groups CMK itself may be there.
    match container.cmk.as_ref().filter(|_| rules.has_groups) {
        Some(Ok(isolate)) => {
            asked.group = Some(isolate.pool.clone());
            if isolate.pool == INFRA {
                asked.prefer_reserved_cpus = Some(true);
            }
        }
        Some(Err(why)) if !why.is_refusal() => {
            warnings.push(WarningKind::NotUnderstood, why.to_string());
        }
        _ => {}
    }
    webhook::read(container, &mut asked, &mut warnings);
    read_extended(container, rules, &mut asked);
    webhook::read_batch(container, &mut asked, &mut warnings);
    koordinator::read(&container.pod, rules, &mut asked, &mut warnings);
    tuning::read(container, &mut asked, &mut warnings);
    read_keys(container, &mut asked, &mut warnings);
    take_back(container, rules, &usual, &mut asked, &mut warnings);
    if asked.affinity.is_empty() {
        asked.affinity = affinity::implicit(rules);
    }
    (asked, warnings.finish())
}

/// Fills `tuning.cpu_class` from a requested profile, where kubelet tells of requests instead of what an annotation says of them. CPUs that have one are the container's own, also where the configuration prefers shared ones,
/// unless its namespace may not have the class.
fn read_extended(container: &NewContainer, rules: &RequestRules, asked: &mut Asked) {
    if let Some(facts) = container.facts.as_deref() {
        let requested = extended::requested(Some(facts));
        asked.tuning.cpu_class = requested.map(|(_, profile)| profile);
    }
    let is_allowed = || {
        let wish = permissions::wish(Field::CpuClass, asked);
        allowed(&wish, &container.pod.namespace, rules)
    };
    if asked.tuning.cpu_class.is_some() && asked.prefer_shared_cpus == Some(true) && is_allowed() {
        asked.prefer_shared_cpus = None;
    }
}

/// Takes back what the namespace may not ask for.
fn take_back(
    container: &NewContainer,
    rules: &RequestRules,
    usual: &Asked,
    asked: &mut Asked,
    warnings: &mut Warnings,
) {
    if asked == usual {
        return;
    }
    let namespace = &container.pod.namespace;
    let sources = Sources::new(container);
    for wish in permissions::wishes(asked, usual) {
        if !allowed(&wish, namespace, rules) {
            wish.field.copy(usual, asked);
            let what = sources.of_field(wish.field).unwrap_or_else(|| wish.field.path().to_owned());
            warnings.not_allowed(&what, namespace);
        }
    }
}

/// Reads the keys of [`KEYS`].
fn read_keys(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let lookup = look_up(&container.pod.annotations, &container.name, table::is_known);
    for name in lookup.unknown {
        warnings.unknown(name);
    }
    let keys = KEYS.iter().filter_map(|key| Some((key, lookup.found.get(key.name)?)));
    let mut said: Vec<_> = keys.collect();
    said.sort_by_key(|(_, found)| found.scope.specificity());
    for (key, found) in said {
        let before = asked.clone();
        let said = Said { value: found.value, container: &container.name };
        let done = check_length(found.value).and_then(|()| (key.set)(asked, &said));
        if let Err(misread) = done {
            *asked = before;
            let (name, expected) = (annotation(found.name), key.values.text());
            match key.requires(found.value) {
                true => warnings.misread_requirement(&name, found.value, &expected, &misread),
                false => warnings.misread(&name, found.value, &expected, &misread),
            }
        }
    }
}

fn annotation(name: &str) -> String {
    format!("annotation `{}`", shown(name, 4 * SHOWN_MAX))
}

fn check_length(value: &str) -> Result<(), Misread> {
    match value.len() > VALUE_MAX {
        true => Err(Misread::because(format!("longer than {} KiB", VALUE_MAX >> 10))),
        false => Ok(()),
    }
}

fn misread_text(what: &str, value: &str, expected: &str, misread: &Misread) -> String {
    let value = shown(value, SHOWN_MAX);
    let detail = misread.detail.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    format!("{what} is `{value}`{detail}, expected {expected}")
}

#[derive(Default)]
struct Warnings {
    list: Vec<Warning>,
    /// Those that are too many.
    more: usize,
}

impl Warnings {
    fn push(&mut self, kind: WarningKind, text: String) {
        match self.list.len() < WARNINGS_MAX {
            true => self.list.push(Warning { kind, text }),
            false => self.more += 1,
        }
    }

    /// `what` is the kind of the thing and its name.
    fn misread(&mut self, what: &str, value: &str, expected: &str, misread: &Misread) {
        let text = format!("{}; ignored", misread_text(what, value, expected, misread));
        self.push(WarningKind::NotUnderstood, text);
    }

    /// However much else there is to warn of, this comes with it.
    fn misread_requirement(&mut self, what: &str, value: &str, expected: &str, misread: &Misread) {
        let text = misread_text(what, value, expected, misread);
        self.list.insert(0, Warning { kind: WarningKind::RequirementNotUnderstood, text });
    }

    fn unknown(&mut self, name: &str) {
        let text =
            format!("{} is unknown (`bayplan annotations` lists all); ignored", annotation(name));
        self.push(WarningKind::NotUnderstood, text);
    }

    fn no_effect(&mut self, what: &str) {
        self.push(WarningKind::NoEffect, format!("{what} has no effect"));
    }

    /// Annotations and labels that were not kept.
    fn left_out(&mut self, pod: &Pod) {
        for (what, all) in [("annotations", &pod.annotations), ("labels", &pod.labels)] {
            if let Some(count) = all.get(CUT) {
                let kib = KEPT_MAX >> 10;
                let count = shown(count, SHOWN_MAX);
                self.push(
                    WarningKind::NotUnderstood,
                    format!(
                        "{count} {what} of the pod are left out, the longest of more than {kib} KiB"
                    ),
                );
            }
        }
    }

    fn not_allowed(&mut self, what: &str, namespace: &str) {
        let namespace = shown(namespace, SHOWN_MAX);
        let text = format!(
            "{what} is not allowed in namespace `{namespace}` (`permissions` in the configuration); ignored"
        );
        self.push(WarningKind::NotAllowed, text);
    }

    fn finish(mut self) -> Vec<Warning> {
        if self.more > 0 {
            let text = format!("{} more warnings", self.more);
            self.list.push(Warning { kind: WarningKind::NotUnderstood, text });
        }
        self.list
    }
}

#[cfg(test)]
mod tests;
