//! Which program has changed a kernel file that was right. In: the repair, what the file said before bayplan, and which containers the runtime was
//! told of just now. Out: an author, as far as one can be told.
//!
//! Not every program that changes a file wants it otherwise. When a property of a unit is set, systemd writes all files of its group with what it
//! knows itself (systemd's `cgroup.c`, `unit_realize_cgroup_now`): the runtime sets the CPUs of a scope, kubelet sets the weights of the slices
//! around all pods every minute, and `memory.low` is what it was before bayplan. That it may is the delegation of systemd's CGROUP_DELEGATION
//! document, "Two Key Design Rules": a group has one writer.

use std::collections::{BTreeMap, BTreeSet};

use crate::file_plan::FileWrite;
use crate::setting::{Original, Slot, is_same};

/// The program that has changed a file that was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Author {
    /// The runtime, or systemd for it: it was told something about this container just now.
    Runtime,
    /// systemd, along with something else of the unit: the file says again what it said before bayplan.
    Systemd,
    /// A program that may want it otherwise.
    Others,
}

impl Author {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Author::Runtime => "runtime",
            Author::Systemd => "systemd",
            Author::Others => "others",
        }
    }
}

/// Containers about which the runtime was told something just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The runtime's ids, which are in the names of their groups.
    pub ids: BTreeSet<String>,
    /// The names of their pods' groups.
    pub pods: BTreeSet<String>,
}

impl Told {
    /// Whether it is the group of such a container, one below it, or that of its pod.
    fn is_about(&self, slot: &Slot) -> bool {
        let Some((dir, _)) = slot.path.rsplit_once('/') else { return false };
        let pod = dir.rsplit('/').next().unwrap_or_default();
        self.pods.contains(pod)
            || self.ids.iter().any(|id| !id.is_empty() && dir.contains(id.as_str()))
    }
}

/// The likeliest author of what this write repairs.
pub fn author_of(write: &FileWrite, originals: &BTreeMap<Slot, Original>, told: &Told) -> Author {
    let is_as_before = || {
        let original = originals.get(&write.slot);
        original.is_some_and(|it| is_same(&it.form, &it.value, &write.old))
    };
    match () {
        () if told.is_about(&write.slot) => Author::Runtime,
        () if is_in_unit(&write.slot) && is_as_before() => Author::Systemd,
        () => Author::Others,
    }
}

/// A file in the group of a unit itself.
fn is_in_unit(slot: &Slot) -> bool {
    let dir = slot.path.rsplit_once('/').map(|(dir, _)| dir);
    dir.is_some_and(|dir| {
        dir.starts_with("sys/fs/cgroup/")
            && [".slice", ".scope"].iter().any(|end| dir.ends_with(end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_plan::FilePass;
    use crate::setting::Form;

    const PODS: &str = "sys/fs/cgroup/kubepods.slice";
    const POD: &str = "sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice";

    fn write(path: &str, old: &str) -> FileWrite {
        FileWrite {
            pass: FilePass::Set,
            slot: Slot::file(path),
            form: Form::Bytes,
            old: old.to_owned(),
            new: "4096".to_owned(),
            unit: "u".to_owned(),
            reason: "r".to_owned(),
            is_step: false,
            gives_back: false,
        }
    }

    #[test]
    fn the_writer_is_told_by_place_time_and_value() {
        let told = Told {
            ids: ["abc".to_owned()].into(),
            pods: ["kubepods-pod1.slice".to_owned()].into(),
        };
        let untold = Told::default();
        let scope = format!("{POD}/cri-containerd-abc.scope");
        let rows = [
            (format!("{scope}/memory.low"), "8192", &told, Author::Runtime),
            (format!("{scope}/container/memory.low"), "8192", &told, Author::Runtime),
            (format!("{POD}/memory.low"), "8192", &told, Author::Runtime),
            (format!("{PODS}/memory.low"), "8192", &told, Author::Others),
            (format!("{PODS}/memory.low"), "0", &told, Author::Systemd),
            (format!("{scope}/memory.low"), "0", &untold, Author::Systemd),
            (format!("{scope}/memory.low"), "8192", &untold, Author::Others),
            // Only systemd writes files without meaning them.
            ("sys/fs/cgroup/kubepods/pod1/abd/memory.low".to_owned(), "0", &told, Author::Others),
            ("proc/irq/1/smp_affinity_list".to_owned(), "0", &told, Author::Others),
            ("memory.low".to_owned(), "0", &told, Author::Others),
        ];
        for (path, old, told, expected) in rows {
            let original = Original { form: Form::Bytes, value: "0".to_owned() };
            let originals = [(Slot::file(path.as_str()), original)].into();
            assert_eq!(author_of(&write(&path, old), &originals, told), expected, "{path} {old}");
        }
    }

    #[test]
    fn what_was_never_remembered_is_no_writers_habit() {
        let write = write(&format!("{POD}/memory.low"), "0");
        assert_eq!(author_of(&write, &BTreeMap::new(), &Told::default()), Author::Others);
    }
}
