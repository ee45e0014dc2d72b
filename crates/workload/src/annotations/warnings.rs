//! What was not understood of a pod, or does nothing: a bounded list of sentences with their kinds.

use super::values::{Misread, shown};

/// What of a value is shown in a warning.
pub(super) const SHOWN_MAX: usize = 40;
/// More about one container are only counted.
const WARNINGS_MAX: usize = 20;

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

/// An annotation in a sentence.
pub(super) fn annotation(name: &str) -> String {
    format!("annotation `{}`", shown(name, 4 * SHOWN_MAX))
}

fn misread_text(what: &str, value: &str, expected: &str, misread: &Misread) -> String {
    let value = shown(value, SHOWN_MAX);
    let detail = misread.detail.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    format!("{what} is `{value}`{detail}, expected {expected}")
}

/// Warnings about one container.
#[derive(Default)]
pub(super) struct Warnings {
    list: Vec<Warning>,
    /// Those that are too many.
    more: usize,
}

impl Warnings {
    pub(super) fn push(&mut self, kind: WarningKind, text: String) {
        match self.list.len() < WARNINGS_MAX {
            true => self.list.push(Warning { kind, text }),
            false => self.more += 1,
        }
    }

    /// `what` is the kind of the thing and its name.
    pub(super) fn misread(&mut self, what: &str, value: &str, expected: &str, misread: &Misread) {
        let text = format!("{}; ignored", misread_text(what, value, expected, misread));
        self.push(WarningKind::NotUnderstood, text);
    }

    /// However much else there is to warn of, this comes with it.
    pub(super) fn misread_requirement(
        &mut self,
        what: &str,
        value: &str,
        expected: &str,
        misread: &Misread,
    ) {
        let text = misread_text(what, value, expected, misread);
        self.list.insert(0, Warning { kind: WarningKind::RequirementNotUnderstood, text });
    }

    pub(super) fn unknown(&mut self, name: &str) {
        let text =
            format!("{} is unknown (`bayplan annotations` lists all); ignored", annotation(name));
        self.push(WarningKind::NotUnderstood, text);
    }

    pub(super) fn no_effect(&mut self, what: &str) {
        self.push(WarningKind::NoEffect, format!("{what} has no effect"));
    }

    pub(super) fn not_allowed(&mut self, what: &str, namespace: &str) {
        let namespace = shown(namespace, SHOWN_MAX);
        let text = format!(
            "{what} is not allowed in namespace `{namespace}` (`permissions` in the configuration); ignored"
        );
        self.push(WarningKind::NotAllowed, text);
    }

    pub(super) fn finish(mut self) -> Vec<Warning> {
        if self.more > 0 {
            let text = format!("{} more warnings", self.more);
            self.list.push(Warning { kind: WarningKind::NotUnderstood, text });
        }
        self.list
    }
}
