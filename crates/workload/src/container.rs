//! A pod and a container that is to be created, as a front end describes them. Values only; `request.rs` makes requests of them.

use std::collections::BTreeMap;

use bayplan_allocator::Owner;
use bayplan_types::{Bytes, QosClass};

use crate::cmk::{CommandError, Isolate};
use crate::facts::{AssignedDevices, Facts, PodFacts};
use crate::resources::Resources;

/// A pod as its sandbox configuration describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The runtime's sandbox id.
    pub id: String,
    /// Kubernetes UID.
    pub uid: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
    /// `None`: the parent cgroup does not tell.
    pub qos: Option<QosClass>,
    /// The parent cgroup as kubelet gave it.
    pub cgroup_parent: String,
    /// Those annotations of the pod that bayplan could understand; others may be large and are not needed here.
    pub annotations: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What its containers request and may use together, without the sandbox's own overhead; all zero where kubelet (before 1.23) does
    /// not say.
    pub resources: Resources,
    /// Huge pages that its containers may use together, where kubelet says it: bytes by size of a page.
    pub huge_pages: BTreeMap<Bytes, Bytes>,
}

impl Pod {
    /// Whether both are the same sandbox; where the runtime's ids are not known, the same pod by name.
    pub fn is(&self, other: &Pod) -> bool {
        self.identity() == other.identity()
    }

    /// Whether these facts are of it. A uid alone does not say so: where the API server tells of pods, that of a static pod is an annotation, which anyone may write.
    pub fn is_told_by(&self, facts: &PodFacts) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&facts.uid, &facts.namespace, &facts.name)
    }

    /// The same numbers for the same pod and namespace, on every machine and in every version, so that no journal has to keep them.
    pub fn owner(&self) -> Owner {
        let (id, namespace, name) = self.identity();
        Owner { pod: fnv1a([id, namespace, name]), namespace: fnv1a([&self.namespace]) }
    }

    /// What made it, by the labels that Kubernetes' controllers give their pods and by how they name them; the pod itself where nothing tells.
    pub fn made_by(&self) -> &str {
        let label = |name: &str| self.labels.get(name).map(String::as_str);
        let without_end = || self.name.rsplit_once('-').map(|(owner, _)| owner);
        let job = label("batch.kubernetes.io/job-name").or(label("job-name"));
        let deployment = label("pod-template-hash").and_then(|hash| {
            let owner = without_end()?;
            Some(owner.strip_suffix(hash)?.trim_end_matches('-'))
        });
        // Pods of a StatefulSet have the label, too.
        let numbered = label("controller-revision-hash").and_then(|_| without_end());
        job.or(deployment).or(numbered).filter(|owner| !owner.is_empty()).unwrap_or(&self.name)
    }

    fn identity(&self) -> (&str, &str, &str) {
        match self.id.as_str() {
            "" => ("", &self.namespace, &self.name),
            id => (id, "", ""),
        }
    }
}

/// FNV-1a of 64 bits, each part ended by a byte that UTF-8 has not: the standard library's hashes may change with its releases.
fn fnv1a<const N: usize>(parts: [&str; N]) -> u64 {
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A container that is to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewContainer {
    /// Its pod.
    pub pod: Pod,
    /// Name in the pod.
    pub name: String,
    /// Counts restarts.
    pub attempt: u32,
    /// Its image as kubelet tells the runtime: an id or a digest, so that another version has another one. Empty where it is not known.
    pub image: String,
    /// Its cgroup settings.
    pub resources: Resources,
    /// Huge pages: bytes by size of a page. Request and limit are equal, and are never changed in place.
    pub huge_pages: BTreeMap<Bytes, Bytes>,
    /// Names of sizes of huge pages that it may have, and that are none.
    pub odd_page_sizes: Vec<String>,
    /// Its devices: paths below `/dev` and PCI addresses.
    pub devices: Vec<String>,
    /// Those of its mounts with a source below `/dev`.
    pub mounts: Vec<String>,
    /// Where its other volumes come from, and the disks below each, as paths below `/dev`: none until they were looked up.
    pub volumes: BTreeMap<String, Vec<String>>,
    /// It asks for an isolated partition of CPUs, and none could be had on the machine when it was created; false until that was looked up.
    pub lacks_partition: bool,
    /// It says nothing of its CPUs itself, and has its settings from its pod's ([`crate::silent`]); false until that was found.
    pub is_silent: bool,
    /// Its memory was resized in place to as much as its pod has, or more, which it did not have from its pod before: until the pod's figure
    /// follows, the limit is its own all the same ([`crate::silent`]).
    pub says_memory: bool,
    /// What kubelet knows of it beside that; `None` where kubelet was not asked, or did not answer in time.
    pub facts: Option<Box<Facts>>,
    /// Devices that kubelet has given to it, as far as it has told of them.
    pub assigned: Vec<AssignedDevices>,
    /// What it asks for in CMK's words, or why that cannot be understood.
    pub cmk: Option<Result<Isolate, CommandError>>,
    /// The runtime's id that it will have, where the front end knows that before the runtime has made it: by it a creation that ended in doubt is recognised.
    pub due_id: Option<String>,
    /// It was placed on CPUs that another system had chosen for its pod, and keeps them also where `permissions` do not allow that any more.
    pub keeps_chosen: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_the_same_numbers_everywhere() {
        let pod = |id: &str, namespace: &str, name: &str| Pod {
            id: id.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Pod::default()
        };
        let owner = |id: &str, namespace: &str, name: &str| pod(id, namespace, name).owner();
        // As the definition of FNV-1a computes them; a change would not be noticed by any other test.
        assert_eq!(fnv1a([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(["a"]), (0xaf63_dc4c_8601_ec8c ^ 0xff_u64).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(owner("s1", "a", "x"), owner("s1", "a", "y"));
        assert_ne!(owner("s1", "a", "x").pod, owner("s2", "a", "x").pod);
        assert_eq!(owner("s1", "a", "x").namespace, owner("s2", "a", "x").namespace);
        assert_ne!(owner("", "a", "bc").pod, owner("", "ab", "c").pod);
        assert!(
            pod("s1", "a", "x").is(&pod("s1", "", "")) && !pod("", "a", "x").is(&pod("", "a", "y"))
        );
    }
}
