//! What a container can read of its CPUs and memory nodes: a shell file of variables. In: the state. Out: files by container, and which containers
//! still have one. Pure; `resources_dir.rs` puts them on disk.
//!
//! A container's directory is named by what is known of it before it exists and stays when the journal is lost: sandbox, name and
//! attempt. So a container that has a directory has the mount, and no record is needed.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_allocator::ContainerId;
use bayplan_types::{CpuSet, MemoryKind, NodeSet};

/// The file's name in the container's directory, as in CRI Resource Manager and nri-plugins.
pub const FILE: &str = "resources.sh";

/// The longest name of a directory that every file system takes.
const NAME_LEN_MAX: usize = 255;

/// One container's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcesFile {
    /// Of its directory.
    pub dir: String,
    /// The runtime's id, once it is known.
    pub container: Option<String>,
    /// All of it.
    pub text: String,
    /// The container does not exist yet, so its directory is made; otherwise one that has none has no mount either.
    pub is_new: bool,
}

/// What is to become of the files after a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileNews {
    /// To be written.
    pub changed: Vec<ResourcesFile>,
    /// After the runtime was asked: directories of containers that it knows, or soon will; all others can go.
    pub kept: Option<BTreeSet<String>>,
}

impl FileNews {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.kept.is_none()
    }
}

/// Whether containers are told, and what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tellings {
    pub(crate) is_on: bool,
    pub(crate) told: BTreeMap<ContainerId, String>,
}

/// The directory of a container. `None` where its names cannot be one: they come from a client, and are to lead nowhere else.
pub fn dir_name(pod_id: &str, name: &str, attempt: u32) -> Option<String> {
    let is_plain = |text: &str| {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !text.is_empty() && !text.starts_with('.') && text.chars().all(is_known)
    };
    let dir = format!("{pod_id}-{name}-{attempt}");
    (is_plain(pod_id) && is_plain(name) && dir.len() <= NAME_LEN_MAX).then_some(dir)
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    pub(crate) shared: CpuSet,
    pub(crate) exclusive: CpuSet,
    pub(crate) isolated: CpuSet,
    pub(crate) mems: NodeSet,
}

impl Variables {
    /// Every variable is there, also an empty one: a script that reads the file again must not keep the value from before.
    pub(crate) fn render(&self, kind: impl Fn(MemoryKind) -> NodeSet) -> String {
        let of = |wanted: MemoryKind| self.mems.intersection(&kind(wanted)).to_string();
        let lines = [
            ("SHARED_CPUS", self.shared.to_string()),
            ("EXCLUSIVE_CPUS", self.exclusive.to_string()),
            ("ISOLATED_CPUS", self.isolated.to_string()),
            ("ALL_MEMS", self.mems.to_string()),
            ("DRAM_MEMS", of(MemoryKind::Dram)),
            ("HBM_MEMS", of(MemoryKind::Hbm)),
            ("PMEM_MEMS", of(MemoryKind::Pmem)),
            ("CXL_MEMS", of(MemoryKind::Cxl)),
        ];
        lines.iter().map(|(name, value)| format!("{name}=\"{value}\"\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_directory_is_named_only_by_what_leads_nowhere_else() {
        for (pod, name, expected) in [
            ("0a1b", "app", Some("0a1b-app-2")),
            ("0a1b", "a.b-c_d", Some("0a1b-a.b-c_d-2")),
            ("..", "app", None),
            ("0a1b", "../../etc", None),
            ("0a1b", "a b", None),
            ("", "app", None),
            ("0a1b", "", None),
            ("0a1b", &"a".repeat(260), None),
        ] {
            assert_eq!(dir_name(pod, name, 2).as_deref(), expected, "{pod} {name}");
        }
    }

    #[test]
    fn every_variable_is_there_also_without_a_value() {
        let resources = Variables {
            shared: "4-5".parse().unwrap(),
            exclusive: "0-1".parse().unwrap(),
            mems: "0,2".parse().unwrap(),
            ..Variables::default()
        };
        let kinds = |kind| match kind {
            MemoryKind::Dram => "0-1".parse().unwrap(),
            MemoryKind::Pmem => "2-3".parse().unwrap(),
            _ => NodeSet::new(),
        };
        expect![[r#"
            SHARED_CPUS="4-5"
            EXCLUSIVE_CPUS="0-1"
            ISOLATED_CPUS=""
            ALL_MEMS="0,2"
            DRAM_MEMS="0"
            HBM_MEMS=""
            PMEM_MEMS="2"
            CXL_MEMS=""
        "#]]
        .assert_eq(&resources.render(kinds));
    }
}
