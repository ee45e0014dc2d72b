//! What kubelet knows of a container, as JSON: in the journal, and for `explain`.

use std::collections::BTreeMap;

use bayplan_types::{Bytes, MilliCpu, NodeId};
use bayplan_workload::{
    AssignedDevices, ContainerFacts, ExactRequests, Facts, PodAbout, ResizeState,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The last change of annotations that count while a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Annotated {
    pub(crate) at: Timestamp,
    /// For people.
    pub(crate) changes: String,
}

/// [`Facts`] as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FactsForm {
    /// Its requests.
    #[serde(skip_serializing_if = "RequestsForm::is_empty")]
    pub requests: RequestsForm,
    /// Its requests as it runs, which a resize in place makes other ones.
    #[serde(skip_serializing_if = "RequestsForm::is_empty")]
    pub running: RequestsForm,
    /// Requests of the pod as a whole.
    #[serde(skip_serializing_if = "RequestsForm::is_empty")]
    pub of_pod: RequestsForm,
    /// An init container.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_init: bool,
    /// Its cgroup settings have changed since kubelet told this.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_older: bool,
    /// Extended resources.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extended: BTreeMap<String, u64>,
    /// Kind and name of the pod's controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name of the pod's priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// The pod's priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// How far a resize in place is, in Kubernetes' words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resize: Option<String>,
}

/// [`ExactRequests`] as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestsForm {
    /// Thousandths of a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u64>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl RequestsForm {
    fn is_empty(&self) -> bool {
        *self == RequestsForm::default()
    }
}

/// [`AssignedDevices`] as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedForm {
    resource: String,
    ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<u32>,
}

impl AssignedForm {
    /// Bytes of names.
    pub(crate) fn bytes_said(&self) -> usize {
        self.resource.len() + self.ids.iter().map(String::len).sum::<usize>()
    }
}

impl From<&AssignedDevices> for AssignedForm {
    fn from(devices: &AssignedDevices) -> AssignedForm {
        let AssignedDevices { resource, ids, nodes } = devices.clone();
        AssignedForm { resource, ids, nodes: nodes.iter().map(|it| it.0).collect() }
    }
}

impl From<AssignedForm> for AssignedDevices {
    fn from(form: AssignedForm) -> AssignedDevices {
        let AssignedForm { resource, ids, nodes } = form;
        // As kubelet's socket is read: a set has room for its largest member.
        let nodes = nodes.into_iter().filter_map(|it| u16::try_from(it).ok());
        AssignedDevices { resource, ids, nodes: nodes.map(|it| NodeId(it.into())).collect() }
    }
}

impl From<ExactRequests> for RequestsForm {
    fn from(requests: ExactRequests) -> RequestsForm {
        let ExactRequests { cpu, memory } = requests;
        RequestsForm { cpu_milli: cpu.map(|it| it.0), memory_bytes: memory.map(|it| it.0) }
    }
}

impl From<RequestsForm> for ExactRequests {
    fn from(form: RequestsForm) -> ExactRequests {
        let RequestsForm { cpu_milli, memory_bytes } = form;
        ExactRequests { cpu: cpu_milli.map(MilliCpu), memory: memory_bytes.map(Bytes) }
    }
}

impl From<&Facts> for FactsForm {
    fn from(facts: &Facts) -> FactsForm {
        let Facts { about, own, is_older } = facts;
        FactsForm {
            requests: own.requests.into(),
            running: own.running.into(),
            of_pod: about.requests.into(),
            is_init: own.is_init,
            is_older: *is_older,
            extended: own.extended.clone(),
            owner: about.owner.clone(),
            priority_class: about.priority_class.clone(),
            priority: about.priority,
            resize: about.resize.map(|it| it.name().to_owned()),
        }
    }
}

impl From<FactsForm> for Facts {
    fn from(form: FactsForm) -> Facts {
        let resize = form.resize.as_deref();
        let about = PodAbout {
            owner: form.owner,
            priority_class: form.priority_class,
            priority: form.priority,
            requests: form.of_pod.into(),
            resize: ResizeState::ALL.into_iter().find(|it| resize == Some(it.name())),
        };
        let own = ContainerFacts {
            requests: form.requests.into(),
            running: form.running.into(),
            is_init: form.is_init,
            extended: form.extended,
        };
        Facts { about, own, is_older: form.is_older }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_survive_the_journal() {
        let devices = AssignedDevices {
            resource: "intel.com/nic".to_owned(),
            ids: vec!["0000:3b:02.0".to_owned()],
            nodes: [NodeId(1)].into_iter().collect(),
        };
        let text = serde_json::to_string(&AssignedForm::from(&devices)).unwrap();
        let form: AssignedForm = serde_json::from_str(&text).unwrap();
        assert_eq!(AssignedDevices::from(form), devices, "{text}");
    }

    #[test]
    fn a_node_that_cannot_be_is_left_out_of_the_journal() {
        let text = r#"{"resource":"a/b","ids":[],"nodes":[1,65536,4294967295]}"#;
        let form: AssignedForm = serde_json::from_str(text).unwrap();
        let found = AssignedDevices::from(form).nodes;
        assert_eq!(found, [NodeId(1)].into_iter().collect());
    }

    #[test]
    fn facts_survive_the_journal() {
        let requests = ExactRequests { cpu: Some(MilliCpu(1500)), memory: Some(Bytes::gib(2)) };
        let about = PodAbout {
            owner: Some("ReplicaSet/web".to_owned()),
            priority_class: Some("high".to_owned()),
            priority: Some(-5),
            requests,
            resize: Some(ResizeState::Deferred),
        };
        let own = ContainerFacts {
            requests,
            running: ExactRequests { cpu: None, ..requests },
            is_init: true,
            extended: [("power.intel.com/power".to_owned(), 2)].into(),
        };
        for facts in [Facts::default(), Facts { about, own, is_older: true }] {
            let text = serde_json::to_string(&FactsForm::from(&facts)).unwrap();
            let form: FactsForm = serde_json::from_str(&text).unwrap();
            assert_eq!(Facts::from(form), facts, "{text}");
        }
        let nothing = serde_json::to_string(&FactsForm::from(&Facts::default())).unwrap();
        assert_eq!(nothing, "{}");
    }
}
