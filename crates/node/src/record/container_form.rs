//! A container in the words of the journal and of the history. In: what kubelet says of a container. Out: the same as JSON, and back.

use std::collections::BTreeMap;
use std::ops::Not;

use bayplan_types::{Bytes, QosClass};
use bayplan_workload::annotations::left_out;
use bayplan_workload::cmk::Isolate;
use bayplan_workload::{Facts, NewContainer, Pod, Resources};
use serde::{Deserialize, Serialize};

use super::PodTexts;
use crate::facts_form::{AssignedForm, FactsForm};

/// [`NewContainer`] as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerForm {
    pub(super) pod_id: String,
    pod_uid: String,
    namespace: String,
    pod: String,
    qos: Option<String>,
    cgroup_parent: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    /// Annotations and labels are in the record [`Record::PodTexts`](super::Record::PodTexts) of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) texts: Option<u64>,
    /// What the pod needs as a whole, where kubelet says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod_needs: Option<ResourcesForm>,
    /// Bytes by size of a page, of the pod as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pod_huge_pages: Vec<(u64, u64)>,
    name: String,
    attempt: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    image: String,
    cpu_shares: i64,
    cpu_quota: i64,
    cpu_period: i64,
    memory_limit: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    oom_score_adj: i64,
    /// Bytes by size of a page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    huge_pages: Vec<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    devices: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    volumes: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Not::not")]
    lacks_partition: bool,
    #[serde(default, skip_serializing_if = "Not::not")]
    is_silent: bool,
    #[serde(default, skip_serializing_if = "Not::not")]
    says_memory: bool,
    /// What kubelet knows of it beside that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    facts: Option<Box<FactsForm>>,
    /// Devices that kubelet has given to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    assigned: Vec<AssignedForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cmk: Option<IsolateForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_id: Option<String>,
}

/// What a container asks for in CMK's words, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IsolateForm {
    pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    socket: Option<u32>,
    #[serde(default, skip_serializing_if = "Not::not")]
    no_affinity: bool,
    slots: usize,
}

impl From<&Isolate> for IsolateForm {
    fn from(it: &Isolate) -> IsolateForm {
        let Isolate { pool, socket, no_affinity, slots } = it.clone();
        IsolateForm { pool, socket, no_affinity, slots }
    }
}

impl From<IsolateForm> for Isolate {
    fn from(form: IsolateForm) -> Isolate {
        let IsolateForm { pool, socket, no_affinity, slots } = form;
        Isolate { pool, socket, no_affinity, slots }
    }
}

/// [`Resources`] as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcesForm {
    cpu_shares: i64,
    cpu_quota: i64,
    cpu_period: i64,
    memory_limit: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    oom_score_adj: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

impl From<Resources> for ResourcesForm {
    fn from(resources: Resources) -> ResourcesForm {
        let Resources { cpu_shares, cpu_quota, cpu_period, memory_limit, oom_score_adj } =
            resources;
        ResourcesForm { cpu_shares, cpu_quota, cpu_period, memory_limit, oom_score_adj }
    }
}

impl From<ResourcesForm> for Resources {
    fn from(form: ResourcesForm) -> Resources {
        let ResourcesForm { cpu_shares, cpu_quota, cpu_period, memory_limit, oom_score_adj } = form;
        Resources { cpu_shares, cpu_quota, cpu_period, memory_limit, oom_score_adj }
    }
}

fn by_size(pages: &BTreeMap<Bytes, Bytes>) -> Vec<(u64, u64)> {
    pages.iter().map(|(size, bytes)| (size.0, bytes.0)).collect()
}

fn from_sizes(pages: Vec<(u64, u64)>) -> BTreeMap<Bytes, Bytes> {
    pages.into_iter().map(|(size, bytes)| (Bytes(size), Bytes(bytes))).collect()
}

impl ContainerForm {
    /// Uid of its pod.
    pub fn pod_uid(&self) -> &str {
        &self.pod_uid
    }

    /// Namespace of its pod.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Bytes of the pod's annotations and labels, and of the names of its devices.
    pub fn bytes_said(&self) -> usize {
        let said = self.annotations.iter().chain(&self.labels);
        let said: usize = said.map(|(name, value)| name.len() + value.len()).sum();
        said + self.assigned.iter().map(AssignedForm::bytes_said).sum::<usize>()
    }

    /// Puts back annotations and labels that stand in a record of their own; whether that was read.
    pub(super) fn read_texts(&mut self, texts: &BTreeMap<u64, PodTexts>) -> bool {
        let Some(id) = self.texts.take() else { return true };
        let found = texts.get(&id).cloned();
        let is_there = found.is_some();
        found.unwrap_or_default().give_to(self);
        is_there
    }

    /// The same without its devices, and without annotations and labels, but for a note of how many they were.
    pub fn leave_out_said(&mut self) {
        self.assigned.clear();
        for said in [&mut self.annotations, &mut self.labels] {
            if !said.is_empty() {
                *said = left_out(said.len());
            }
        }
    }
}

impl From<&NewContainer> for ContainerForm {
    fn from(container: &NewContainer) -> ContainerForm {
        let (pod, resources) = (&container.pod, container.resources);
        ContainerForm {
            pod_id: pod.id.clone(),
            pod_uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            qos: pod.qos.map(|qos| qos.name().to_owned()),
            cgroup_parent: pod.cgroup_parent.clone(),
            annotations: pod.annotations.clone(),
            labels: pod.labels.clone(),
            texts: None,
            pod_huge_pages: by_size(&pod.huge_pages),
            pod_needs: (pod.resources != Resources::default()).then(|| pod.resources.into()),
            name: container.name.clone(),
            attempt: container.attempt,
            image: container.image.clone(),
            cpu_shares: resources.cpu_shares,
            cpu_quota: resources.cpu_quota,
            cpu_period: resources.cpu_period,
            memory_limit: resources.memory_limit,
            oom_score_adj: resources.oom_score_adj,
            huge_pages: by_size(&container.huge_pages),
            devices: container.devices.clone(),
            mounts: container.mounts.clone(),
            volumes: container.volumes.clone(),
            lacks_partition: container.lacks_partition,
            is_silent: container.is_silent,
            says_memory: container.says_memory,
            facts: container.facts.as_deref().map(|it| Box::new(FactsForm::from(it))),
            assigned: container.assigned.iter().map(AssignedForm::from).collect(),
            cmk: container.cmk.as_ref().and_then(|it| it.as_ref().ok()).map(IsolateForm::from),
            due_id: container.due_id.clone(),
        }
    }
}

impl From<ContainerForm> for NewContainer {
    fn from(form: ContainerForm) -> NewContainer {
        let qos = QosClass::ALL.into_iter().find(|qos| form.qos.as_deref() == Some(qos.name()));
        NewContainer {
            pod: Pod {
                id: form.pod_id,
                uid: form.pod_uid,
                namespace: form.namespace,
                name: form.pod,
                qos,
                cgroup_parent: form.cgroup_parent,
                annotations: form.annotations,
                labels: form.labels,
                resources: form.pod_needs.map(Resources::from).unwrap_or_default(),
                huge_pages: from_sizes(form.pod_huge_pages),
            },
            name: form.name,
            attempt: form.attempt,
            image: form.image,
            resources: Resources {
                cpu_shares: form.cpu_shares,
                cpu_quota: form.cpu_quota,
                cpu_period: form.cpu_period,
                memory_limit: form.memory_limit,
                oom_score_adj: form.oom_score_adj,
            },
            huge_pages: from_sizes(form.huge_pages),
            odd_page_sizes: Vec::new(),
            devices: form.devices,
            mounts: form.mounts,
            volumes: form.volumes,
            lacks_partition: form.lacks_partition,
            is_silent: form.is_silent,
            says_memory: form.says_memory,
            facts: form.facts.map(|it| Box::new(Facts::from(*it))),
            assigned: form.assigned.into_iter().map(Into::into).collect(),
            cmk: form.cmk.map(|it| Ok(it.into())),
            due_id: form.due_id,
            // What its container holds says it.
            keeps_chosen: false,
        }
    }
}
