//! What a pod asks for by annotation and label. In: a container with its pod, and what the configuration says. Out: [`Asked`], and a
//! [`Warning`] for everything that was not understood or has no effect. Pure.
//!
//! One table, [`KEYS`], says what each key is called, accepts, means and fills; lookup, warnings and the reference page come from it.
//! Who speaks later wins: configuration, Katalyst, Koordinator, runtimes, our keys (and their older names) from the least specific to the most.
//! Values are anybody's text: none of them is trusted with its length, depth or contents, and only one that was to require something
//! keeps its own pod from being placed.

mod affinity;
mod field;
mod hints;
mod koordinator;
mod names;
mod page;
mod source;
mod table;
mod tuning;
mod values;
mod webhook;
mod yaml;

use std::collections::BTreeMap;

use bayplan_allocator::Wishes;

pub use affinity::{Affinity, affinities};
pub use field::Field;
pub use hints::{HintSource, Hints, nears};
pub use koordinator::{FOREIGN, Foreign, may_claim};
pub use page::{render_page, render_text};
pub use source::Sources;
pub use table::{KEYS, Key, Values};
pub use tuning::{
    CpuPartition, INTERRUPTS, InterruptRule, PARTITION, RebalanceWish, Tuning, WakeUp,
};
pub use values::{BURST, FLAG, PRIORITY, SIBLINGS, Words, matches_glob};
pub use webhook::parse_quantity;

use crate::resources::ExactRequests;
use crate::translate::{NewContainer, RequestRules};
use names::look_up;
pub use values::shown;
use values::{Misread, VALUE_MAX, word};

/// What of a value is shown in a warning.
const SHOWN_MAX: usize = 40;
/// Kubernetes allows 253 characters, a slash and 63 characters.
const NAME_MAX: usize = 317;
/// More about one container are only counted.
const WARNINGS_MAX: usize = 20;

/// What a container asks for, all sources together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// About the split into exclusive and shared CPUs.
    pub prefer_shared_cpus: Option<bool>,
    /// About the reserved CPUs.
    pub prefer_reserved_cpus: Option<bool>,
    /// Whether the pod said anything about isolated CPUs; if not, the configuration may.
    pub prefer_isolated_cpus: Option<bool>,
    /// Everything that placement takes as it is. `place` is filled from `affinity` and `hints` by those who know the others and the devices.
    pub wishes: Wishes,
    /// What a webhook says that the container requests, and in which annotation.
    pub requests: Option<(&'static str, ExactRequests)>,
    /// Which devices and mounts count.
    pub hints: Hints,
    /// Its relations to other containers.
    pub affinity: Vec<Affinity>,
    /// What it asks for beside its place.
    pub tuning: Tuning,
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
    /// It could not be understood, and was to require something: who is not there yet is not placed without it.
    RequirementNotUnderstood,
    /// It was understood, and does nothing.
    NoEffect,
}

impl WarningKind {
    /// The word in metrics.
    pub fn name(self) -> &'static str {
        match self {
            WarningKind::NotUnderstood | WarningKind::RequirementNotUnderstood => "not_understood",
            WarningKind::NoEffect => "no_effect",
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
/// Kubernetes would not take are nobody's.
pub fn relevant<'a>(
    annotations: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let is_relevant = |name: &str| {
        name.len() <= NAME_MAX
            && (names::has_prefix(name) || koordinator::is_known(name) || tuning::is_known(name))
    };
    let pairs = annotations.into_iter().filter(|(name, _)| is_relevant(name));
    pairs.map(|(name, value)| (name.clone(), cut(value, VALUE_MAX + 1).to_owned())).collect()
}

/// At most so many bytes of it, in whole characters, and at least one byte more than `VALUE_MAX` of what was longer.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.ceil_char_boundary(bytes_max)]
}

/// Reads everything that a pod says about one of its containers.
pub fn read_annotations(container: &NewContainer, rules: &RequestRules) -> (Asked, Vec<Warning>) {
    let mut asked = Asked {
        prefer_shared_cpus: rules.prefer_shared_cpus.then_some(true),
        wishes: rules.wishes.clone(),
        ..Asked::default()
    };
    let mut warnings = Warnings::default();
    webhook::read(container, &mut asked, &mut warnings);
    koordinator::read(&container.pod, &mut asked, &mut warnings);
    tuning::read(container, &mut asked, &mut warnings);
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
        let done = check_length(found.value).and_then(|()| (key.set)(&mut asked, &said));
        if let Err(misread) = done {
            asked = before;
            let (name, expected) = (annotation(found.name), key.values.text());
            match key.requires(found.value) {
                true => warnings.misread_requirement(&name, found.value, &expected, &misread),
                false => warnings.misread(&name, found.value, &expected, &misread),
            }
        }
    }
    if asked.affinity.is_empty() {
        asked.affinity = affinity::implicit(rules);
    }
    (asked, warnings.finish())
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
