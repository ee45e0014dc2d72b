//! Wishes that cannot be fulfilled as they are, each told once for all CPUs that it is about.

use std::collections::BTreeMap;

use bayplan_types::CpuSet;

/// What was wrong, by class and words.
#[derive(Debug, Default)]
pub(super) struct Problems(BTreeMap<(String, String), CpuSet>);

/// Tells for one class on some CPUs.
pub(super) struct Teller<'a> {
    problems: &'a mut Problems,
    class: &'a str,
    cpus: &'a CpuSet,
}

impl Problems {
    pub(super) fn about<'a>(&'a mut self, class: &'a str, cpus: &'a CpuSet) -> Teller<'a> {
        Teller { problems: self, class, cpus }
    }

    /// One line each, in the order of classes.
    pub(super) fn into_texts(self) -> Vec<String> {
        let lines = self.0.into_iter();
        lines
            .map(|((class, text), cpus)| format!("class \"{class}\" on {}: {text}", named(&cpus)))
            .collect()
    }
}

impl Teller<'_> {
    pub(super) fn tell(&mut self, text: impl Into<String>) {
        let key = (self.class.to_owned(), text.into());
        self.problems.0.entry(key).or_default().union_with(self.cpus);
    }
}

/// `CPU 3`, `CPUs 0-3`.
pub(super) fn named(cpus: &CpuSet) -> String {
    match cpus.len() {
        1 => format!("CPU {cpus}"),
        _ => format!("CPUs {cpus}"),
    }
}
