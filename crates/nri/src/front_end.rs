//! The front end. In: events of NRI. Out: the node's answers as adjustments, updates and refusals.
//!
//! Problem: the runtime holds one lock while it waits for an answer, and updates of containers need it. So an answer never waits for an update: CPU sets that other containers must
//! leave are written to the kernel within the event ([`InEvent::let_go`]), are listed in the answer, and what grows is told to the runtime afterwards, by CRI.
//!
//! A creation is known by its container's id from the beginning. It ends with `PostCreateContainer`, or with `StopContainer` or `RemoveContainer` before that, or in doubt with the connection
//! on which it came.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_workload::{Admission, Agent, CreateOutcome, Mount, Pinning, ResizeOutcome, Ticket};

use crate::api;
use crate::events::Event;
use crate::other_plugins::OtherPlugin;
use crate::plugin::{Granted, Hook, Hooks, Reply};
use crate::translate;

/// After an update was answered, the runtime makes it, and tells when it is done; where it fails nothing is told.
const UPDATE_MAX: Duration = Duration::from_secs(10);

/// What other containers were made to do within an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetGo {
    /// Where containers are to run from now on, for the answer.
    pub updates: Vec<(String, Pinning)>,
    /// Containers that still run on CPUs that they should have left, by the runtime's ids.
    pub stuck: Vec<String>,
}

/// Where an `UpdateContainer` comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Kubelet's, or that of another client of the runtime.
    Other,
    /// The node's own.
    Own,
    /// The node's own, and overtaken: the container is to run here instead.
    Overtaken(Box<Pinning>),
}

/// What the node does for this front end only. Implemented beside [`Agent`].
pub trait InEvent: Agent {
    /// The runtime has said how long it waits for answers. Returns whether requests are to fail where there is no answer.
    fn configured(&self, granted: &Granted) -> bool;
    /// Events follow; what runs should be asked soon. Must not wait.
    fn synchronized(&self);
    /// There is no connection.
    fn lost(&self, why: &str);
    /// While this connection holds, the last answer of an earlier one has come to its end: creations of that one are in doubt only since now. Must not wait.
    fn settled(&self);
    /// These other plugins have had their say about a container that is being created. Must not wait.
    fn beside(&self, others: Vec<OtherPlugin>);
    /// The runtime has taken back the creation of this container after it was answered: another plugin sets the same, or the runtime has failed. `set_before`: CPUs that another
    /// plugin, or kubelet, had set before this plugin was asked.
    fn taken_back(&self, container: &str, set_before: &str);
    /// An event was answered; `is_late`: without a decision, and then this is what becomes of it.
    ///
    /// # Errors
    /// It is refused.
    fn answered(&self, event: Event, took: Duration, is_late: bool) -> Result<(), String>;
    /// Makes containers leave CPUs that they should have left, all but this one, before `cpus` are given away.
    ///
    /// # Errors
    /// They did not, and nothing may be placed there.
    fn let_go(
        &self,
        except: &str,
        place: &Pinning,
    ) -> impl Future<Output = Result<LetGo, String>> + Send;
    /// Where the update comes from that moves this container there.
    fn origin(&self, container_id: &str, asked: &Pinning) -> Origin;
}

/// The front end; clones share everything.
#[derive(Clone, Debug)]
pub struct FrontEnd<A> {
    agent: A,
    known: Arc<Mutex<Known>>,
    tickets: Arc<AtomicU64>,
}

/// What is under way.
#[derive(Debug, Default)]
struct Known {
    /// Creations that have not ended, by the container's id.
    creating: BTreeMap<String, Creation>,
    /// Updates that the runtime is making, by the container's id.
    updating: BTreeMap<String, Updating>,
    updates: u64,
    /// There is a connection, and it is synchronized.
    is_registered: bool,
    /// Creations of a container of a pod until now, where the runtime does not tell.
    attempts: BTreeMap<(String, String), u32>,
}

/// An update that the runtime is making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Updating {
    connection: u64,
    /// Each has a number of its own.
    number: u64,
}

/// A creation that has not ended.
#[derive(Clone, Debug)]
struct Creation {
    connection: u64,
    ticket: Ticket,
    /// The container was told where to run.
    is_told: bool,
    /// The CPUs that were set already.
    set_before: String,
}

impl<A: InEvent> FrontEnd<A> {
    /// Over this agent.
    pub fn new(agent: A) -> FrontEnd<A> {
        FrontEnd { agent, known: Arc::default(), tickets: Arc::new(AtomicU64::new(1)) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn create(
        &self,
        connection: u64,
        pod: &api::PodSandbox,
        made: &api::Container,
    ) -> Result<Reply, String> {
        // The same id again: what became of it before was never told.
        self.creation_ended(&made.id, |_| CreateOutcome::Failed).await;
        let mut container = translate::container(pod, made);
        container.attempt = self.attempt(pod, made);
        let (name, attempt) = (container.name.clone(), container.attempt);
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        // Before it is asked, so that it comes to an end also if the answer is late.
        let set_before = translate::cpus_before(made);
        let creation = Creation { connection, ticket, is_told: false, set_before };
        self.known().creating.insert(made.id.clone(), creation);
        let refused = |text| {
            // The node has ended it already.
            self.known().creating.remove(&made.id);
            Err(text)
        };
        let admission = self.agent.admit(ticket, container).await;
        // The runtime may have gone on without an answer, on this connection or on the next one; what has been decided since then has no other end.
        if self.known().creating.get(&made.id).is_none_or(|it| it.ticket != ticket) {
            self.agent.created(ticket, CreateOutcome::Unknown).await;
            return Err("the creation has ended meanwhile".to_owned());
        }
        let pinning = match admission {
            Admission::Place(pinning) => pinning,
            Admission::PassThrough => return Ok(Reply::default()),
            Admission::Refuse(text) | Admission::Unavailable(text) => return refused(text),
        };
        // Before others let go: their updates are on their way only with the answer.
        let threads = self.agent.thread_scheduling(ticket, &translate::pod(pod)).await;
        let let_go = match self.agent.let_go(&made.id, &pinning).await {
            Ok(let_go) => let_go,
            Err(why) => {
                self.creation_ended(&made.id, |_| CreateOutcome::Failed).await;
                return Err(why);
            }
        };
        let mut mounts: Vec<Mount> = self.agent.mounts(&pod.id, &name, attempt);
        mounts.retain(|it| made.mounts.iter().all(|own| own.destination != it.container_path));
        let mut adjust = translate::adjustment(&pinning, &mounts, threads);
        if let Some(said) = translate::cmk_words(made)
            && let Some(variables) = self.agent.pool_environment(ticket).await
        {
            let adjust = adjust.get_or_insert_default();
            let variable = |(key, value)| api::KeyValue { key, value };
            adjust.env = variables.into_iter().map(variable).collect();
            adjust.args = said.command.unwrap_or_default();
        }
        // Not before: an answer that comes too late is not given.
        if let Some(creation) = self.known().creating.get_mut(&made.id) {
            creation.is_told = true;
        }
        Ok(Reply { adjust, update: updates(let_go) })
    }

    /// As kubelet counts, where the runtime passes that on; otherwise as this connection has seen.
    fn attempt(&self, pod: &api::PodSandbox, made: &api::Container) -> u32 {
        let mut known = self.known();
        let next = known.attempts.entry((pod.id.clone(), made.name.clone())).or_default();
        let attempt = translate::attempt(made).unwrap_or(*next);
        *next = attempt.saturating_add(1);
        attempt
    }

    async fn creation_ended(
        &self,
        id: &str,
        outcome: impl FnOnce(bool) -> CreateOutcome,
    ) -> Option<Creation> {
        let creation = self.known().creating.remove(id)?;
        self.agent.created(creation.ticket, outcome(creation.is_told)).await;
        Some(creation)
    }

    async fn update(
        &self,
        connection: u64,
        id: &str,
        asked: &api::LinuxResources,
    ) -> Result<Reply, String> {
        self.update_ended(id, ResizeOutcome::Unknown).await;
        if let Some(there) = translate::pinning(asked) {
            match self.agent.origin(id, &there) {
                Origin::Own => return Ok(Reply::default()),
                Origin::Overtaken(there) => {
                    let update = translate::update(id, &there).into_iter().collect();
                    return Ok(Reply { adjust: None, update });
                }
                Origin::Other => {}
            }
        }
        let updating = {
            let mut known = self.known();
            known.updates += 1;
            let updating = Updating { connection, number: known.updates };
            known.updating.insert(id.to_owned(), updating);
            updating
        };
        // Before it is asked, so that it comes to an end also if the answer is late, and is not waited for.
        self.give_up_later(id, updating);
        let pinning = match self.agent.resize(id, translate::resources(asked)).await {
            Admission::Place(pinning) => pinning,
            Admission::PassThrough => Pinning::default(),
            Admission::Refuse(text) | Admission::Unavailable(text) => {
                self.known().updating.remove(id);
                return Err(text);
            }
        };
        let let_go = match self.agent.let_go(id, &pinning).await {
            Ok(let_go) => let_go,
            Err(why) => {
                self.update_ended(id, ResizeOutcome::Failed).await;
                return Err(why);
            }
        };
        let own = translate::update(id, &pinning);
        Ok(Reply { adjust: None, update: updates(let_go).into_iter().chain(own).collect() })
    }

    /// Where the runtime fails to make an update it tells nothing more of it.
    fn give_up_later(&self, id: &str, updating: Updating) {
        let (front_end, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(UPDATE_MAX).await;
            let is_same = front_end.known().updating.get(&id) == Some(&updating);
            if is_same {
                front_end.update_ended(&id, ResizeOutcome::Unknown).await;
            }
        });
    }

    async fn update_ended(&self, id: &str, outcome: ResizeOutcome) {
        let was_updating = self.known().updating.remove(id).is_some();
        if was_updating {
            self.agent.resized(id, outcome).await;
        }
    }

    async fn container_event(
        &self,
        connection: u64,
        event: Event,
        pod: &api::PodSandbox,
        container: &api::Container,
        resources: Option<&api::LinuxResources>,
    ) -> Result<Reply, String> {
        let id = container.id.as_str();
        let created = |pinned: bool| CreateOutcome::Created { id: container.id.clone(), pinned };
        match event {
            Event::CreateContainer => return self.create(connection, pod, container).await,
            Event::PostCreateContainer => {
                self.creation_ended(id, created).await;
            }
            Event::StartContainer => {
                self.creation_ended(id, created).await;
                self.agent.starting(id).await?;
            }
            Event::PostStartContainer => self.agent.started(id).await,
            Event::UpdateContainer => {
                let nothing = api::LinuxResources::default();
                return self.update(connection, id, resources.unwrap_or(&nothing)).await;
            }
            Event::PostUpdateContainer => self.update_ended(id, ResizeOutcome::Done).await,
            Event::StopContainer | Event::RemoveContainer => {
                self.ended(pod, container).await;
            }
            _ => {}
        }
        Ok(Reply::default())
    }

    /// A container has ended, or what was created of it is taken back.
    async fn ended(&self, pod: &api::PodSandbox, container: &api::Container) {
        match self.creation_ended(&container.id, |_| CreateOutcome::Failed).await {
            Some(Creation { is_told: true, set_before, .. }) => {
                let name = format!("{}/{}/{}", pod.namespace, pod.name, container.name);
                self.agent.taken_back(&name, &set_before);
            }
            Some(_) => {}
            None => {
                self.known().updating.remove(&container.id);
                self.agent.ended(&container.id).await;
            }
        }
    }

    async fn pod_event(
        &self,
        event: Event,
        pod: &api::PodSandbox,
        resources: Option<&api::LinuxResources>,
    ) {
        match event {
            Event::RunPodSandbox => self.agent.pod_started(translate::pod(pod)).await,
            Event::UpdatePodSandbox => {
                if let Some(resources) = resources {
                    self.agent.pod_resized(&pod.id, translate::resources(resources)).await;
                }
            }
            Event::StopPodSandbox | Event::RemovePodSandbox => {
                self.known().attempts.retain(|(of, _), _| *of != pod.id);
                self.agent.pod_ended(&pod.id).await;
            }
            _ => {}
        }
    }
}

fn updates(let_go: LetGo) -> Vec<api::ContainerUpdate> {
    let updates = let_go.updates.iter();
    updates.filter_map(|(id, pinning)| translate::update(id, pinning)).collect()
}

impl<A: InEvent> Hooks for FrontEnd<A> {
    fn configured(&self, granted: &Granted) -> bool {
        self.agent.configured(granted)
    }

    fn synchronized(&self) {
        self.known().is_registered = true;
        self.agent.synchronized();
    }

    fn lost(&self, why: &str) {
        self.known().is_registered = false;
        self.agent.lost(why);
    }

    /// The runtime goes on without an answer. While one was being made the node had not heard yet of what could end.
    async fn connection_ended(&self, connection: u64) {
        let (creations, updates) = {
            let mut known = self.known();
            let is_its = |_: &String, it: &mut Creation| it.connection == connection;
            let creations: Vec<Creation> =
                known.creating.extract_if(.., is_its).map(|(_, it)| it).collect();
            let is_its = |_: &String, it: &mut Updating| it.connection == connection;
            let updates: Vec<String> =
                known.updating.extract_if(.., is_its).map(|(id, _)| id).collect();
            (creations, updates)
        };
        for creation in creations {
            self.agent.created(creation.ticket, CreateOutcome::Unknown).await;
        }
        for id in updates {
            self.agent.resized(&id, ResizeOutcome::Unknown).await;
        }
        // Told after the doubts, because the registration was told before them.
        if self.known().is_registered {
            self.agent.settled();
        }
    }

    fn beside(&self, others: Vec<OtherPlugin>) {
        self.agent.beside(others);
    }

    async fn answer(&self, connection: u64, hook: Hook) -> Result<Reply, String> {
        let Hook { event, pod, container, resources } = hook;
        match container {
            Some(it) => {
                self.container_event(connection, event, &pod, &it, resources.as_ref()).await
            }
            None => {
                self.pod_event(event, &pod, resources.as_ref()).await;
                Ok(Reply::default())
            }
        }
    }

    fn answered(&self, event: Event, took: Duration, is_late: bool) -> Result<Reply, String> {
        self.agent.answered(event, took, is_late).map(|()| Reply::default())
    }
}

#[cfg(test)]
mod tests;
