//! The runtime's end of NRI, for tests. In: a socket's path, and how this runtime behaves. Out: plugins that are registered, events for them, and what became of containers.
//!
//! It behaves as the Go runtimes do where that matters: frames that Go cannot read end the connection, one lock is around every event and every update, updates of a reply are made one after the
//! other, a plugin that is late is cut off and the request goes on without it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message as _;
use tokio::net::UnixListener;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::timeout;

use crate::api;
use crate::events::{Event, Mask, name_of};
use crate::plugin::{Hook, Reply};
use crate::session::{Call, CallError, End, Service, Session};
use crate::ttrpc::{Status, UNIMPLEMENTED};

/// How long a plugin may take from connecting to its subscription.
const REGISTRATION: Duration = Duration::from_secs(5);

/// How a runtime behaves.
#[derive(Clone, Debug)]
pub struct Manners {
    /// `containerd` or `cri-o`.
    pub runtime: String,
    /// Of the runtime.
    pub version: String,
    /// Of NRI, as it is told to plugins: nothing before 0.12.
    pub nri_version: String,
    /// Events that it knows.
    pub events: i32,
    /// Events without an answer come as `StateChange`, as before NRI 0.12.
    pub has_state_changes: bool,
    /// An event waits so long for its answer.
    pub request_timeout: Duration,
    /// An update that fails makes the creation fail (CRI-O); otherwise it is ignored (containerd).
    pub fails_with_updates: bool,
    /// Pods and containers are told in so many parts.
    pub parts: usize,
    /// Another plugin, by its index and name, which sets the CPUs of containers with names that begin with `both`; empty: there is none.
    pub other: String,
}

impl Manners {
    /// Containerd 2.4.
    pub fn containerd() -> Manners {
        Manners {
            runtime: "containerd".to_owned(),
            version: "v2.4.2".to_owned(),
            nri_version: "v0.12.3".to_owned(),
            events: 0x3fff,
            has_state_changes: false,
            request_timeout: Duration::from_secs(2),
            fails_with_updates: false,
            parts: 1,
            other: String::new(),
        }
    }

    /// Containerd 2.0, with NRI 0.8.
    pub fn old_containerd() -> Manners {
        Manners {
            version: "v2.0.5".to_owned(),
            nri_version: String::new(),
            events: Mask::Old.bits(false),
            has_state_changes: true,
            ..Manners::containerd()
        }
    }

    /// CRI-O 1.36, with NRI 0.11.
    pub fn crio() -> Manners {
        Manners {
            runtime: "cri-o".to_owned(),
            version: "1.36.0".to_owned(),
            nri_version: String::new(),
            has_state_changes: true,
            fails_with_updates: true,
            ..Manners::containerd()
        }
    }
}

/// A runtime that plugins can connect to.
#[derive(Debug)]
pub struct RuntimeEnd {
    listener: UnixListener,
    manners: Manners,
    /// Containers that cannot be updated.
    pub stuck: Arc<Mutex<BTreeSet<String>>>,
}

/// Where a container runs: the texts of `cpuset.cpus` and `cpuset.mems`, empty for everywhere.
pub type Sets = (String, String);

/// A plugin that is registered, and what it has done.
#[derive(Debug)]
pub struct Plugin {
    session: Session,
    manners: Manners,
    subscribed: i32,
    lock: AsyncMutex<()>,
    sets: Mutex<BTreeMap<String, Sets>>,
    stuck: Arc<Mutex<BTreeSet<String>>>,
    /// What it called itself.
    pub registered: api::RegisterPluginRequest,
    /// What it subscribed to.
    pub configured: api::ConfigureResponse,
}

impl RuntimeEnd {
    /// Listens at this path.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(path: &Path, manners: Manners) -> io::Result<RuntimeEnd> {
        let listener = UnixListener::bind(path)?;
        Ok(RuntimeEnd { listener, manners, stuck: Arc::default() })
    }

    /// Waits for a plugin, and brings it to where events begin. What it is told to run is only counted by it.
    ///
    /// # Errors
    /// Why it is not registered.
    pub async fn accept(&self, containers: &[api::Container]) -> Result<Plugin, String> {
        let (socket, _) = self.listener.accept().await.map_err(|why| why.to_string())?;
        let registrations = Registrations::default();
        let session = Session::start(socket, End::Runtime, registrations.clone());
        let registered = timeout(REGISTRATION, registrations.next()).await;
        let registered = registered.map_err(|_| "registration timed out".to_owned())?;
        let Manners { request_timeout, parts, .. } = self.manners;
        let millis = |it: Duration| i64::try_from(it.as_millis()).unwrap_or(i64::MAX);
        let configure = api::ConfigureRequest {
            config: String::new(),
            runtime_name: self.manners.runtime.clone(),
            runtime_version: self.manners.version.clone(),
            registration_timeout: millis(REGISTRATION),
            request_timeout: millis(request_timeout),
            nri_version: self.manners.nri_version.clone(),
        };
        let configured: api::ConfigureResponse = session
            .call("Configure", &configure, REGISTRATION)
            .await
            .map_err(|it| it.to_string())?;
        let unknown = configured.events & !self.manners.events;
        if unknown != 0 {
            session.close();
            return Err(format!("invalid plugin events: {unknown:#x}"));
        }
        let parts = parts.max(1);
        let size = containers.len().div_ceil(parts).max(1);
        for part in 0..parts {
            let more = part + 1 < parts;
            let containers = containers.iter().skip(part * size).take(size).cloned().collect();
            let request = api::SynchronizeRequest { pods: Vec::new(), containers, more };
            let answer: api::SynchronizeResponse = session
                .call("Synchronize", &request, request_timeout)
                .await
                .map_err(|it| it.to_string())?;
            if answer.more != more {
                return Err(format!("part {part} of {parts} was answered with {answer:?}"));
            }
        }
        let subscribed = match configured.events {
            0 => self.manners.events,
            some => some,
        };
        Ok(Plugin {
            session,
            manners: self.manners.clone(),
            subscribed,
            lock: AsyncMutex::new(()),
            sets: Mutex::default(),
            stuck: Arc::clone(&self.stuck),
            registered,
            configured,
        })
    }
}

impl Plugin {
    /// Tells of an event. Nothing comes of it where the plugin has not subscribed, is gone, or is late; then it is cut off.
    ///
    /// # Errors
    /// What the plugin answered, in the runtime's words.
    pub async fn tell(&self, hook: Hook) -> Result<Reply, String> {
        let _events_are_told_one_by_one = self.lock.lock().await;
        self.call(hook).await
    }

    /// Creates a container: asks, adjusts it, and makes the updates.
    ///
    /// # Errors
    /// The plugin refuses, or an update fails and this runtime fails with it.
    pub async fn create(&self, hook: Hook) -> Result<(), String> {
        let _updates_are_made_within_the_event = self.lock.lock().await;
        let id = hook.container.as_ref().map(|it| it.id.clone()).unwrap_or_default();
        let Reply { adjust, update } = self.call(hook.clone()).await?;
        self.collect(&hook).await?;
        let adjusted = adjust.and_then(|it| it.linux).and_then(|it| it.resources);
        self.write(&id, adjusted.as_ref());
        self.apply(&update)
    }

    /// What the other plugin does: it fails the creation, or lets it be approved.
    async fn collect(&self, hook: &Hook) -> Result<(), String> {
        let other = self.manners.other.as_str();
        let is_approved = self.subscribed & (1 << (Event::ValidateContainerAdjustment as i32 - 1));
        let Some(container) = hook.container.clone().filter(|_| !other.is_empty()) else {
            return Ok(());
        };
        let own = format!("{}-{}", self.registered.plugin_idx, self.registered.plugin_name);
        if container.name.starts_with("both") {
            for event in [Event::StopContainer, Event::RemoveContainer] {
                self.call(Hook { event, ..hook.clone() }).await?;
            }
            return Err(format!("plugins \"{other}\" and \"{own}\" both tried to set CPUSetCPUs"));
        }
        if is_approved == 0 {
            return Ok(());
        }
        let plugin = |name: &str| {
            let (index, name) = name.split_once('-').unwrap_or_default();
            api::PluginInstance { index: index.to_owned(), name: name.to_owned() }
        };
        let request = api::ValidateContainerAdjustmentRequest {
            pod: Some(hook.pod.clone()),
            container: Some(container),
            plugins: vec![plugin(other), plugin(&own)],
            ..Default::default()
        };
        let limit = self.manners.request_timeout;
        let answer: api::ValidateContainerAdjustmentResponse = self
            .session
            .call("ValidateContainerAdjustment", &request, limit)
            .await
            .map_err(|it| it.to_string())?;
        if answer.reject { Err(answer.reason) } else { Ok(()) }
    }

    /// An update by CRI: the plugin is asked, and what it wants instead counts.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn update(&self, hook: Hook) -> Result<(), String> {
        let _updates_are_made_within_the_event = self.lock.lock().await;
        let id = hook.container.as_ref().map(|it| it.id.clone()).unwrap_or_default();
        let asked = hook.resources.clone();
        let reply = self.call(hook).await?;
        self.write(&id, asked.as_ref());
        self.apply(&reply.update)
    }

    /// Where a container runs.
    pub fn sets(&self, id: &str) -> Sets {
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.get(id).cloned().unwrap_or_default()
    }

    /// Comes back when the connection has ended.
    pub async fn closed(&self) {
        self.session.closed().await;
    }

    /// Ends the connection, as a runtime does that is killed.
    pub fn close(&self) {
        self.session.close();
    }

    fn apply(&self, updates: &[api::ContainerUpdate]) -> Result<(), String> {
        for update in updates {
            let stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
            match stuck.contains(&update.container_id) {
                true if self.manners.fails_with_updates => {
                    return Err(format!("failed to update container {}", update.container_id));
                }
                true => {}
                false => {
                    let resources = update.linux.as_ref().and_then(|it| it.resources.as_ref());
                    self.write(&update.container_id, resources);
                }
            }
        }
        Ok(())
    }

    /// Empty texts change nothing, as in the protocol.
    fn write(&self, id: &str, resources: Option<&api::LinuxResources>) {
        let Some(cpu) = resources.and_then(|it| it.cpu.as_ref()) else { return };
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let (cpus, mems) = sets.entry(id.to_owned()).or_default();
        for (kept, new) in [(cpus, &cpu.cpus), (mems, &cpu.mems)] {
            if !new.is_empty() {
                new.clone_into(kept);
            }
        }
    }

    async fn call(&self, Hook { event, pod, container, resources }: Hook) -> Result<Reply, String> {
        if self.subscribed & (1 << (event as i32 - 1)) == 0 {
            return Ok(Reply::default());
        }
        let pod = Some(pod);
        let limit = self.manners.request_timeout;
        let (session, method) = (&self.session, name_of(event));
        let answer = match event {
            Event::CreateContainer => {
                let request = api::CreateContainerRequest { pod, container };
                let answer = session.call::<api::CreateContainerResponse>(method, &request, limit);
                answer.await.map(|it| Reply { adjust: it.adjust, update: it.update })
            }
            Event::UpdateContainer => {
                let linux_resources = resources;
                let request = api::UpdateContainerRequest { pod, container, linux_resources };
                let answer = session.call::<api::UpdateContainerResponse>(method, &request, limit);
                answer.await.map(|it| Reply { adjust: None, update: it.update })
            }
            Event::StopContainer => {
                let request = api::StopContainerRequest { pod, container };
                let answer = session.call::<api::StopContainerResponse>(method, &request, limit);
                answer.await.map(|it| Reply { adjust: None, update: it.update })
            }
            Event::UpdatePodSandbox => {
                let request = api::UpdatePodSandboxRequest {
                    pod,
                    overhead_linux_resources: None,
                    linux_resources: resources,
                };
                let answer = session.call::<api::Empty>(method, &request, limit);
                answer.await.map(|_| Reply::default())
            }
            event if self.manners.has_state_changes => {
                let request = api::StateChangeEvent { event: event.into(), pod, container };
                let answer = session.call::<api::Empty>("StateChange", &request, limit);
                answer.await.map(|_| Reply::default())
            }
            _ => {
                let request = api::PostCreateContainerRequest { pod, container };
                let answer = session.call::<api::Empty>(method, &request, limit);
                answer.await.map(|_| Reply::default())
            }
        };
        match answer {
            Err(CallError::Refused(status)) => Err(status.message),
            Err(_) => {
                self.session.close();
                Ok(Reply::default())
            }
            Ok(reply) => Ok(reply),
        }
    }
}

/// What plugins call; there is one plugin to a connection.
#[derive(Clone, Debug, Default)]
struct Registrations {
    last: Arc<Mutex<Option<api::RegisterPluginRequest>>>,
    came: Arc<Notify>,
}

impl Registrations {
    async fn next(&self) -> api::RegisterPluginRequest {
        loop {
            let came = self.came.notified();
            if let Some(registration) =
                self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                return registration;
            }
            came.await;
        }
    }
}

impl Service for Registrations {
    async fn answer(&self, call: Call) -> Result<Vec<u8>, Status> {
        let registration = match call.method.as_str() {
            "RegisterPlugin" => api::RegisterPluginRequest::decode(call.payload).ok(),
            _ => None,
        };
        let Some(registration) = registration else {
            return Err(Status::new(UNIMPLEMENTED, format!("no {} here", call.method)));
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(registration);
        self.came.notify_one();
        Ok(Vec::new())
    }
}
