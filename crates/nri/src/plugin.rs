//! The plugin's end. In: the runtime's socket, and what answers its events. Out: a registration that is made anew whenever it is lost.
//!
//! ```text
//! connect ─▶ RegisterPlugin ─▶ Configure ─▶ Synchronize ─▶ events ─▶ (connection ends) ─▶ connect
//! ```
//!
//! The runtime ends the connection of a plugin that does not answer in time, and goes on without it. So every event is answered when nine tenths of its time are over, if only with nothing.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api;
use crate::events::{Event, Mask, event_of, name_of};
use crate::other_plugins::{OtherPlugin, other_plugins};
use crate::session::{Call, End, Service, Session};
use crate::ttrpc::{INVALID_ARGUMENT, Status, UNIMPLEMENTED, UNKNOWN};

/// The version of the protocol file.
pub const NRI_VERSION: &str = "v0.12.5";

/// A runtime that is started again makes its socket anew; asking costs next to nothing.
const CONNECT_AGAIN: Duration = Duration::from_millis(100);
/// The longest pause after registrations that failed: the runtime deals with one plugin at a time, and waits seconds for one that is slow.
const REGISTER_AGAIN_MAX: Duration = Duration::from_secs(2);
/// Longer than the runtime's own limit, so that a busy one is not given up by its plugin.
const REGISTER_LIMIT: Duration = Duration::from_secs(15);
/// How long leaving waits for events that are being answered.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// Where and as what to register.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The runtime's socket for plugins.
    pub socket: PathBuf,
    /// The plugin's name.
    pub name: String,
    /// Two digits: plugins are asked in ascending order.
    pub index: String,
}

/// What the runtime said at registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Its name.
    pub runtime: String,
    /// Its version.
    pub version: String,
    /// Its version of NRI; empty before 0.12.
    pub nri_version: String,
    /// How long it waits for an answer; `None`: it does not say.
    pub request_timeout: Option<Duration>,
}

/// Something that happens to a pod or a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    /// What.
    pub event: Event,
    /// The pod, or the container's pod.
    pub pod: api::PodSandbox,
    /// The container, in events of containers.
    pub container: Option<api::Container>,
    /// What is asked for, in `UpdateContainer` and `UpdatePodSandbox`.
    pub resources: Option<api::LinuxResources>,
}

/// What is done about it: adjustments where a container is created, updates where the event's answer has room for some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Changes of the container that is being created.
    pub adjust: Option<api::ContainerAdjustment>,
    /// Changes of containers that exist.
    pub update: Vec<api::ContainerUpdate>,
}

/// What answers events.
pub trait Hooks: Clone + Send + Sync + 'static {
    /// The runtime has said its name, its version and how long it waits. Returns whether a request is to fail when this plugin does not answer it in time: any from NRI 0.12.4
    /// on, a creation from 0.10 on.
    fn configured(&self, granted: &Granted) -> bool;
    /// The plugin is registered; events follow. Must not wait.
    fn synchronized(&self);
    /// The connection has ended, or none could be made.
    fn lost(&self, why: &str);
    /// No event of this connection is being answered any more, and none comes: what is under way on it is in doubt.
    fn connection_ended(&self, connection: u64) -> impl Future<Output = ()> + Send;
    /// These other plugins have had their say about a container that is being created. Must not wait.
    fn beside(&self, others: Vec<OtherPlugin>);
    /// Answers one event of this connection; an error fails the request where the runtime lets it.
    fn answer(
        &self,
        connection: u64,
        hook: Hook,
    ) -> impl Future<Output = Result<Reply, String>> + Send;
    /// An event was answered after this time; `is_late`: not by [`Hooks::answer`], which took too long. What is answered then.
    fn answered(&self, event: Event, took: Duration, is_late: bool) -> Result<Reply, String>;
}

/// Stays registered until `stop`.
pub async fn run<H: Hooks>(settings: Settings, hooks: H, stop: CancellationToken) {
    let (mut mask, mut failures) = (None, 0_u32);
    for connection in 0_u64.. {
        // Not raced with `stop`, so that it can leave properly.
        let lasted = connect_once(&settings, &hooks, connection, mask, &stop).await;
        if stop.is_cancelled() {
            return;
        }
        let pause = match lasted {
            Connection::None => CONNECT_AGAIN,
            Connection::Registered => {
                failures = 0;
                CONNECT_AGAIN
            }
            Connection::NotRegistered { refused } => {
                // What was subscribed to is the only thing that a runtime refuses without a word.
                mask = match refused {
                    Some(Mask::All) => Some(Mask::Old),
                    _ => None,
                };
                failures = failures.saturating_add(1);
                (CONNECT_AGAIN * 2_u32.saturating_pow(failures.min(16))).min(REGISTER_AGAIN_MAX)
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// How far a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// There was none.
    None,
    /// It ended before the plugin was registered; `refused`: after this was subscribed to.
    NotRegistered { refused: Option<Mask> },
    /// It ended after that.
    Registered,
}

/// From connecting until the connection ends, or until `stop` and then until what is being answered is.
async fn connect_once<H: Hooks>(
    settings: &Settings,
    hooks: &H,
    connection: u64,
    mask: Option<Mask>,
    stop: &CancellationToken,
) -> Connection {
    let socket = match UnixStream::connect(&settings.socket).await {
        Ok(socket) => socket,
        Err(why) => {
            hooks.lost(&format!("cannot connect to {}: {why}", settings.socket.display()));
            return Connection::None;
        }
    };
    let (progress, running) = (Arc::<Mutex<Progress>>::default(), TaskTracker::new());
    running.close();
    let service = PluginEnd {
        hooks: hooks.clone(),
        connection,
        name: format!("{}-{}", settings.index, settings.name),
        mask,
        progress: Arc::clone(&progress),
        running: running.clone(),
    };
    let session = Session::start(socket, End::Plugin, service);
    let register = api::RegisterPluginRequest {
        plugin_name: settings.name.clone(),
        plugin_idx: settings.index.clone(),
        nri_version: NRI_VERSION.to_owned(),
    };
    let registering = session.call::<api::Empty>("RegisterPlugin", &register, REGISTER_LIMIT);
    let registered = tokio::select! {
        registered = registering => registered,
        () = stop.cancelled() => Ok(api::Empty::default()),
    };
    let mut why = "the connection has ended".to_owned();
    if let Err(error) = registered {
        why = format!("cannot register at {}: {error}", settings.socket.display());
        session.close();
    }
    tokio::select! {
        () = session.closed() => {}
        () = stop.cancelled() => {
            let _still_running = timeout(LEAVE_LIMIT, running.wait()).await;
            session.close();
        }
    }
    let progress = {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.is_over = true;
        *progress
    };
    hooks.lost(&why);
    let hooks = hooks.clone();
    tokio::spawn(async move {
        running.wait().await;
        hooks.connection_ended(connection).await;
    });
    match progress {
        Progress { is_synchronized: true, .. } => Connection::Registered,
        Progress { subscribed, .. } => Connection::NotRegistered { refused: subscribed },
    }
}

/// How far the registration is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    subscribed: Option<Mask>,
    is_synchronized: bool,
    /// The connection has ended: calls that came before, and are heard of only now, are not answered.
    is_over: bool,
}

/// Answers what the runtime calls.
#[derive(Clone)]
struct PluginEnd<H> {
    hooks: H,
    /// Its number.
    connection: u64,
    /// Its own name, as the runtime has it.
    name: String,
    /// What to subscribe to; `None`: what the runtime's version knows.
    mask: Option<Mask>,
    progress: Arc<Mutex<Progress>>,
    running: TaskTracker,
}

/// The only part of a `SynchronizeRequest` that is read: what runs is asked for by CRI, which tells more.
#[derive(Clone, PartialEq, Message)]
struct SynchronizePart {
    #[prost(bool, tag = "3")]
    more: bool,
}

impl<H: Hooks> Service for PluginEnd<H> {
    async fn answer(&self, call: Call) -> Result<Vec<u8>, Status> {
        let _running = self.running.token();
        if self.progress().is_over {
            return Err(Status::new(UNKNOWN, "the connection has ended"));
        }
        match call.method.as_str() {
            "Configure" => Ok(self.configure(&read(&call)?).encode_to_vec()),
            "Synchronize" => Ok(self.synchronize(&read(&call)?).encode_to_vec()),
            "Shutdown" => Ok(Vec::new()),
            // Approved at once, also where it cannot be read: an empty answer rejects nothing, and an error would fail the creation.
            "ValidateContainerAdjustment" => {
                match read(&call) {
                    Ok(request) => self.hooks.beside(other_plugins(&request, &self.name)),
                    Err(why) => tracing::warn!("approved unread: {}", why.message),
                }
                Ok(Vec::new())
            }
            "StateChange" => {
                let api::StateChangeEvent { event, pod, container } = read(&call)?;
                // One that is newer than this plugin.
                let Ok(event) = Event::try_from(event) else { return Ok(Vec::new()) };
                let pod = pod.unwrap_or_default();
                self.hook(&call, Hook { event, pod, container, resources: None }).await?;
                Ok(Vec::new())
            }
            method => match event_of(method) {
                Some(event) => {
                    let reply = self.hook(&call, read_hook(event, &call)?).await?;
                    Ok(encode_reply(event, reply))
                }
                None => {
                    Err(Status::new(UNIMPLEMENTED, format!("bayplan does not answer {method}")))
                }
            },
        }
    }
}

impl<H: Hooks> PluginEnd<H> {
    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn configure(&self, request: &api::ConfigureRequest) -> api::ConfigureResponse {
        let millis = u64::try_from(request.request_timeout).ok().filter(|it| *it > 0);
        let granted = Granted {
            runtime: request.runtime_name.clone(),
            version: request.runtime_version.clone(),
            nri_version: request.nri_version.clone(),
            request_timeout: millis.map(Duration::from_millis),
        };
        let fail_request = self.hooks.configured(&granted);
        let mask = self.mask.unwrap_or_else(|| Mask::for_runtime(request));
        self.progress().subscribed = Some(mask);
        let failure_policy = Some(api::FailurePolicy { fail_request, keep_connected: true });
        // The runtime fails a creation with a plugin that was to approve it and does not answer.
        let events = mask.bits(fail_request);
        api::ConfigureResponse { events, failure_policy }
    }

    /// Each part is answered with `more`, so that the runtime sends the next one.
    fn synchronize(&self, part: &SynchronizePart) -> api::SynchronizeResponse {
        if !part.more {
            self.progress().is_synchronized = true;
            self.hooks.synchronized();
        }
        api::SynchronizeResponse { update: Vec::new(), more: part.more }
    }

    async fn hook(&self, call: &Call, hook: Hook) -> Result<Reply, Status> {
        let (started, event) = (Instant::now(), hook.event);
        let patience = call.deadline.saturating_duration_since(started) * 9 / 10;
        let answer = match timeout(patience, self.hooks.answer(self.connection, hook)).await {
            Ok(answer) => {
                let _reply = self.hooks.answered(event, started.elapsed(), false);
                answer
            }
            Err(_) => {
                tracing::error!(
                    event = name_of(event),
                    ?patience,
                    "an NRI event was not answered in time"
                );
                self.hooks.answered(event, started.elapsed(), true)
            }
        };
        answer.map_err(|why| Status::new(UNKNOWN, why))
    }
}

fn read<M: Message + Default>(call: &Call) -> Result<M, Status> {
    M::decode(call.payload.clone()).map_err(|why| {
        Status::new(INVALID_ARGUMENT, format!("bayplan cannot read {}: {why}", call.method))
    })
}

/// The messages of all events but two have the pod first and the container second.
fn read_hook(event: Event, call: &Call) -> Result<Hook, Status> {
    let (pod, container, resources) = match event {
        Event::UpdateContainer => {
            let it: api::UpdateContainerRequest = read(call)?;
            (it.pod, it.container, it.linux_resources)
        }
        Event::UpdatePodSandbox => {
            let it: api::UpdatePodSandboxRequest = read(call)?;
            (it.pod, None, it.linux_resources)
        }
        Event::RunPodSandbox
        | Event::StopPodSandbox
        | Event::RemovePodSandbox
        | Event::PostUpdatePodSandbox => {
            let it: api::RunPodSandboxRequest = read(call)?;
            (it.pod, None, None)
        }
        _ => {
            let it: api::CreateContainerRequest = read(call)?;
            (it.pod, it.container, None)
        }
    };
    Ok(Hook { event, pod: pod.unwrap_or_default(), container, resources })
}

fn encode_reply(event: Event, Reply { adjust, update }: Reply) -> Vec<u8> {
    match event {
        Event::CreateContainer => {
            api::CreateContainerResponse { adjust, update, evict: Vec::new() }.encode_to_vec()
        }
        Event::UpdateContainer => {
            api::UpdateContainerResponse { update, evict: Vec::new() }.encode_to_vec()
        }
        Event::StopContainer => api::StopContainerResponse { update }.encode_to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
