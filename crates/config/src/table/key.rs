//! A row of the table.

use crate::kind::Kind;

/// When a changed key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// As soon as the file is read again.
    Now,
    /// From the next start of the daemon on.
    Restart,
}

/// One key, or a section of keys.
pub(crate) struct Key {
    /// `resyncInterval`, or `compaction.enabled` in a section.
    pub(crate) name: &'static str,
    /// When a change of it holds.
    pub(crate) when: When,
    pub(crate) kind: Kind,
    /// What it is for, for the author of a file.
    pub(crate) text: &'static str,
}

impl Key {
    /// The section that it stands in, and its name there; the section of a key outside of all is empty.
    pub(crate) fn split(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }

    /// Keys of `requests` come from elsewhere, and are accepted as they are written there: kubelet's `full-pcpus-only`, the
    /// `preferSharedCPUs` of nri-plugins.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        match self.split() {
            ("requests", known) => plain(known) == plain(name),
            (_, known) => known == name,
        }
    }

    /// Its name in its section, and how it is written elsewhere.
    pub(crate) fn spellings(&self) -> Vec<String> {
        let (section, name) = self.split();
        let mut all = vec![name.to_owned()];
        if section == "requests" {
            all.push(name.replace("Cpu", "CPU").replace("Pcpu", "PCPU"));
            all.push(kebab(name));
            all.dedup();
        }
        all
    }
}

/// So that `full-pcpus-only`, `fullPCPUsOnly` and `fullPcpusOnly` are one.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

/// As kubelet writes its options.
fn kebab(name: &str) -> String {
    let dashed = |c: char| match c.is_ascii_uppercase() {
        true => format!("-{}", c.to_ascii_lowercase()),
        false => c.to_string(),
    };
    let dashed: String = name.chars().map(dashed).collect();
    dashed.replace("uncore-cache", "uncorecache")
}
