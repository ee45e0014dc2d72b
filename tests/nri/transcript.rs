//! Messages between a runtime and its plugin as text, one line for each call. In: messages as they were heard. Out: what Bayplan reads of a request, and all of an answer. Pure.
//!
//! Ids are names of pods and containers, so that two runs give the same text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bayplan_nri::api;
use bayplan_nri::frame::{Connection, Kind, Message};
use bayplan_nri::ttrpc::{Request, Response};
use prost::Message as _;
use prost::bytes::Bytes;

/// A call, and its answer once there is one.
struct Call {
    /// The pod that it is about; empty: the node.
    pod: String,
    method: String,
    asked: String,
    answered: Option<String>,
}

/// Calls in the order of their requests.
#[derive(Default)]
pub(crate) struct Transcript {
    calls: Vec<Call>,
    /// Which of them has no answer yet, by its receiver and stream.
    pending: BTreeMap<(Connection, u32), usize>,
    /// Names by id of a sandbox or container.
    names: BTreeMap<String, String>,
}

impl Transcript {
    pub(crate) fn note(&mut self, message: &Message) -> anyhow::Result<()> {
        let key = (message.connection, message.stream);
        match message.kind {
            Kind::Request => {
                let request = Request::decode(message.body.clone())?;
                let (pod, asked) = self.tell_request(&request.method, request.payload)?;
                self.pending.insert(key, self.calls.len());
                self.calls.push(Call { pod, method: request.method, asked, answered: None });
            }
            Kind::Response => {
                let Some(at) = self.pending.remove(&key) else { return Ok(()) };
                let response = Response::decode(message.body.clone())?;
                let method = self.calls[at].method.clone();
                let answered = match response.status {
                    Some(status) if status.code != 0 => format!("refused: {}", status.message),
                    _ => self.tell_answer(&method, response.payload)?,
                };
                self.calls[at].answered = Some(answered);
            }
        }
        Ok(())
    }

    /// Answered calls of a method about a pod.
    pub(crate) fn count(&self, pod: &str, method: &str) -> usize {
        let is_it = |it: &&Call| it.pod == pod && it.method == method && it.answered.is_some();
        self.calls.iter().filter(is_it).count()
    }

    /// The last update of a pod's container is over, and told this.
    pub(crate) fn has_updated(&self, pod: &str, told: &str) -> bool {
        let of_pod: Vec<&Call> = self.calls.iter().filter(|it| it.pod == pod).collect();
        let [.., begun, ended] = of_pod[..] else { return false };
        begun.method == "UpdateContainer"
            && begun.asked.contains(told)
            && ended.method == "PostUpdateContainer"
            && ended.answered.is_some()
    }

    /// The node's calls, then those of each pod: calls about different pods may come in any order.
    pub(crate) fn text(&self) -> String {
        let mut by_pod: BTreeMap<&str, String> = BTreeMap::new();
        for Call { pod, method, asked, answered } in &self.calls {
            let lines = by_pod.entry(pod).or_default();
            let answered = answered.as_deref().unwrap_or("no answer");
            let asked = if asked.is_empty() { String::new() } else { format!(" {asked}") };
            let _infallible = match answered {
                "" => writeln!(lines, "  {method}{asked}"),
                answered => writeln!(lines, "  {method}{asked}\n    -> {answered}"),
            };
        }
        let title = |pod: &str| if pod.is_empty() { "node".to_owned() } else { pod.to_owned() };
        by_pod.iter().map(|(pod, lines)| format!("{}\n{lines}", title(pod))).collect()
    }

    /// The pod's name, and what is told of it.
    fn tell_request(&mut self, method: &str, payload: Bytes) -> anyhow::Result<(String, String)> {
        match method {
            "RegisterPlugin" => {
                let it = api::RegisterPluginRequest::decode(payload)?;
                Ok((String::new(), format!("{}-{}", it.plugin_idx, it.plugin_name)))
            }
            "Configure" => {
                let it = api::ConfigureRequest::decode(payload)?;
                let limits = (it.registration_timeout, it.request_timeout);
                let name = it.runtime_name;
                Ok((String::new(), format!("{name}, waits {} and {} ms", limits.0, limits.1)))
            }
            "Synchronize" => {
                let it = api::SynchronizeRequest::decode(payload)?;
                let (pods, containers) = (it.pods.len(), it.containers.len());
                Ok((String::new(), format!("{pods} pods, {containers} containers")))
            }
            _ => self.tell_event(method, payload),
        }
    }

    /// Requests about a pod and perhaps a container of it; all have these in the same fields.
    fn tell_event(&mut self, method: &str, payload: Bytes) -> anyhow::Result<(String, String)> {
        let it = match method {
            // Their third field is something else, or there is no container.
            "ValidateContainerAdjustment" => {
                let it = api::ValidateContainerAdjustmentRequest::decode(payload)?;
                let (pod, container, linux_resources) = (it.pod, it.container, None);
                api::UpdateContainerRequest { pod, container, linux_resources }
            }
            "UpdatePodSandbox" => {
                let it = api::UpdatePodSandboxRequest::decode(payload)?;
                let (pod, container, linux_resources) = (it.pod, None, it.linux_resources);
                api::UpdateContainerRequest { pod, container, linux_resources }
            }
            _ => api::UpdateContainerRequest::decode(payload)?,
        };
        let pod = it.pod.unwrap_or_default();
        self.names.insert(pod.id.clone(), pod.name.clone());
        let mut told = Vec::new();
        if let Some(container) = &it.container {
            self.names.insert(container.id.clone(), container.name.clone());
            told.push(format!("{} {}", container.name, state(container.state())));
            if method == "CreateContainer" {
                let linux = container.linux.clone().unwrap_or_default();
                told.push(resources(linux.resources.as_ref()));
            }
        } else if method == "RunPodSandbox" {
            let linux = pod.linux.clone().unwrap_or_default();
            told.push(format!("in {}", kind_of_parent(&linux.cgroup_parent)));
            told.push(resources(linux.pod_resources.as_ref()));
        }
        told.push(resources(it.linux_resources.as_ref()));
        told.retain(|it| !it.is_empty());
        Ok((pod.name, told.join("; ")))
    }

    fn tell_answer(&self, method: &str, payload: Bytes) -> anyhow::Result<String> {
        let told = match method {
            "Configure" => {
                let it = api::ConfigureResponse::decode(payload)?;
                format!("events {:#x}", it.events)
            }
            "Synchronize" => self.updates(&api::SynchronizeResponse::decode(payload)?.update),
            "CreateContainer" => {
                let it = api::CreateContainerResponse::decode(payload)?;
                let linux = it.adjust.and_then(|it| it.linux).unwrap_or_default();
                let own = resources(linux.resources.as_ref());
                let others = self.updates(&it.update);
                [own, others].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ")
            }
            "UpdateContainer" => {
                self.updates(&api::UpdateContainerResponse::decode(payload)?.update)
            }
            "StopContainer" => self.updates(&api::StopContainerResponse::decode(payload)?.update),
            _ => String::new(),
        };
        Ok(told)
    }

    fn updates(&self, updates: &[api::ContainerUpdate]) -> String {
        let told = updates.iter().map(|update| {
            let name = self.names.get(&update.container_id).map_or("unknown", String::as_str);
            let linux = update.linux.clone().unwrap_or_default();
            format!("of {name}: {}", resources(linux.resources.as_ref()))
        });
        told.collect::<Vec<_>>().join("; ")
    }
}

fn state(state: api::ContainerState) -> String {
    format!("{state:?}").trim_start_matches("Container").to_lowercase()
}

/// The part that tells the QoS class: names below it are this pod's only.
fn kind_of_parent(parent: &str) -> &str {
    let mut parts = parent.trim_start_matches('/').split('/');
    match (parts.next(), parts.next()) {
        (Some(_), Some(class @ ("burstable" | "besteffort"))) => class,
        (Some(root), _) => root,
        _ => "",
    }
}

/// What is there of CPUs and memory.
fn resources(resources: Option<&api::LinuxResources>) -> String {
    let Some(resources) = resources else { return String::new() };
    let cpu = resources.cpu.clone().unwrap_or_default();
    let memory = resources.memory.unwrap_or_default();
    let text = |it: &str| Some(it.to_owned()).filter(|it| !it.is_empty());
    let parts = [
        ("shares", cpu.shares.map(|it| it.value.to_string())),
        ("quota", cpu.quota.map(|it| it.value.to_string())),
        ("period", cpu.period.map(|it| it.value.to_string())),
        ("cpus", text(&cpu.cpus)),
        ("mems", text(&cpu.mems)),
        ("memory", memory.limit.map(|it| it.value.to_string())),
    ];
    let told = parts.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    told.collect::<Vec<_>>().join(", ")
}
