//! Pods as kubelet knows them. In: what kubelet does with one. Out: calls, and what kubelet makes of the answers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_types::{Bytes, MilliCpu, QosClass};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::plan::{Act, Call, Class};
use crate::node::{kubelet, wait_for_socket};

/// A pod with one container of the same name.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) name: String,
    /// How many pods there were in its place before.
    generation: u32,
    /// What it was asked for first.
    class: Option<Class>,
    /// The sandbox, once the runtime has told of it.
    pub(crate) sandbox: Option<RunningPod>,
    container: Option<Container>,
    /// Calls that went well.
    pub(crate) answered: usize,
}

#[derive(Clone, Debug)]
struct Container {
    spec: ContainerSpec,
    class: Class,
    attempt: u32,
    /// `None`: the runtime did not answer.
    id: Option<String>,
    /// What it had when kubelet was told that it is there, if that was CPUs of its own.
    told: Option<Told>,
    /// CPU shares that its pod needs as a whole, if kubelet was told since that this is known, of a container that was placed.
    needs: Option<i64>,
    /// Kubelet has given up on a resize of its pod, which may still arrive, also after a later one.
    resizing: bool,
}

/// What is kept whatever happens to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// All its CPUs are its own, these ones.
    Owns(String),
    /// Some of its CPUs are its own.
    OwnsSome,
}

/// The clients of a round.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) shared: Kubelet,
    pub(crate) socket: PathBuf,
    pub(crate) past: Kubelet,
    pub(crate) runtime: EmbeddedRuntime,
    /// As of the node.
    pub(crate) to_end: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) ended: Arc<Mutex<BTreeSet<String>>>,
    /// The daemon, where it is a process, which is not to be killed while it is not there.
    pub(crate) process: Option<Arc<Mutex<Option<Child>>>>,
}

impl Clients {
    /// Kills the daemon so much later, with no other task in between.
    fn kill(&self, after: Duration) -> Option<JoinHandle<()>> {
        let process = Arc::clone(self.process.as_ref()?);
        Some(spawn_blocking(move || {
            sleep(after);
            let mut process = process.lock().unwrap();
            let Some(process) = process.as_mut() else { return };
            // A process that has been waited for is not hit: another one may have its number.
            process.kill().unwrap();
            // A moment later it would still seem to be alive.
            process.wait().unwrap();
        }))
    }
}

fn in_group(name: &str, pod: PodSpec) -> PodSpec {
    PodSpec { annotations: vec![("bayplan.dev/group".to_owned(), name.to_owned())], ..pod }
}

impl Pod {
    pub(crate) fn new(index: usize) -> Pod {
        let name = format!("pod{index}");
        Pod { name, generation: 0, class: None, sandbox: None, container: None, answered: 0 }
    }

    fn spec(&self, class: Class) -> PodSpec {
        let name = format!("{}-{}", self.name, self.generation);
        match class {
            Class::Guaranteed => PodSpec::new(&name, QosClass::Guaranteed),
            Class::Burstable => PodSpec::new(&name, QosClass::Burstable),
            Class::System => PodSpec {
                namespace: "kube-system".to_owned(),
                ..PodSpec::new(&name, QosClass::Burstable)
            },
            Class::Web => in_group("web", PodSpec::new(&name, QosClass::Burstable)),
            Class::Slot => in_group("slots", PodSpec::new(&name, QosClass::Guaranteed)),
            Class::Zone(team) => {
                PodSpec { namespace: team.to_owned(), ..PodSpec::new(&name, QosClass::Burstable) }
            }
            Class::ZoneOwner(team) => {
                PodSpec { namespace: team.to_owned(), ..PodSpec::new(&name, QosClass::Guaranteed) }
            }
        }
    }

    /// There will be another pod in its place.
    pub(crate) fn forget(&mut self) {
        (self.class, self.sandbox, self.container) = (None, None, None);
        self.generation += 1;
    }

    pub(crate) fn id(&self) -> Option<String> {
        self.container.as_ref()?.id.clone()
    }

    /// The container that kubelet was told of, with what it was not asked to give up since.
    pub(crate) fn told(&self) -> Option<(&str, &Told)> {
        let container = self.container.as_ref()?;
        Some((container.id.as_deref()?, container.told.as_ref()?))
    }

    /// What it owns it may have elsewhere from now on, or, after a start with other types, which refuses nothing, not at all.
    pub(crate) fn is_regrouped(&mut self, at_start: bool) {
        let Some(container) = &mut self.container else { return };
        let may_move = container.told.is_some() && !at_start;
        container.told = may_move.then_some(Told::OwnsSome);
    }

    /// The container of the pod that needs as much, as kubelet was told, and how much.
    pub(crate) fn needs(&self) -> Option<(&str, i64)> {
        let container = self.container.as_ref()?;
        Some((container.id.as_deref()?, container.needs?))
    }

    /// Kubelet looks at what the runtime has, and believes it.
    pub(crate) fn relist(&mut self, runtime: &EmbeddedRuntime) {
        let Some(sandbox) = &self.sandbox else { return };
        let mut found = runtime.containers();
        found.retain(|it| it.pod_id == sandbox.id && it.name == self.name);
        let latest = found.into_iter().max_by_key(|it| it.attempt);
        let Some(container) = &mut self.container else { return };
        match latest {
            Some(latest) => {
                if container.id.as_ref() != Some(&latest.id) {
                    (container.told, container.needs) = (None, None);
                }
                (container.attempt, container.id) = (latest.attempt, Some(latest.id));
            }
            None => self.container = None,
        }
    }

    /// One after the other, on a connection that is shared with others, or not.
    pub(crate) async fn play(mut self, mut clients: Clients, acts: Vec<Act>) -> Pod {
        for act in acts {
            let mut alone = clients.clone();
            alone.shared = kubelet(clients.socket.clone());
            let with = if act.is_alone { &mut alone } else { &mut clients };
            if with.process.is_some() {
                wait_for_socket(&with.socket).await;
            }
            let killed = act.kill_after.and_then(|after| with.kill(after));
            // A client that gives up hangs up.
            let answered = timeout(act.patience, self.call(act.call, with)).await;
            if let Some(killed) = killed {
                killed.await.unwrap();
            }
            self.answered += usize::from(matches!(answered, Ok(Some(()))));
            self.relist(&clients.runtime);
        }
        self
    }

    /// As far as it goes: kubelet takes an error for a reason to try again later.
    async fn call(&mut self, call: Call, with: &mut Clients) -> Option<()> {
        // A container that was never started is there after it was stopped as before, and the daemon may know nothing of it any more.
        if matches!(call, Call::Stop | Call::Remove | Call::End)
            && let Some(container) = &mut self.container
        {
            with.to_end.lock().unwrap().extend(container.id.clone());
            (container.told, container.needs) = (None, None);
        }
        // Of a container with a creation that was given up kubelet knows no id.
        if matches!(call, Call::End) {
            let sandbox = self.sandbox.as_ref().map(|it| it.id.clone());
            with.to_end.lock().unwrap().extend(sandbox);
        }
        match call {
            Call::Launch { milli, class } => self.launch(milli, class, with).await,
            Call::Restart => self.restart(with).await,
            Call::Resize { milli } => self.resize(milli, with).await,
            Call::ResizePod { milli } => self.resize_pod(milli, with).await,
            Call::Exit => with.past.stop(&self.id()?).await.ok(),
            Call::Stop => {
                let id = self.id()?;
                with.shared.stop(&id).await.ok()?;
                with.ended.lock().unwrap().insert(id);
                Some(())
            }
            Call::Remove => {
                with.shared.remove(&self.id()?).await.ok()?;
                self.container = None;
                Some(())
            }
            Call::End => {
                with.shared.end_pod(self.sandbox.as_ref()?).await.ok()?;
                self.forget();
                Some(())
            }
        }
    }

    /// Kubelet makes nothing more in a sandbox that it has asked to end; it asks again until that is done.
    fn is_to_end(&self, with: &Clients) -> bool {
        self.sandbox.as_ref().is_some_and(|it| with.to_end.lock().unwrap().contains(&it.id))
    }

    async fn launch(&mut self, milli: u64, class: Class, with: &mut Clients) -> Option<()> {
        if self.is_to_end(with) {
            with.shared.end_pod(self.sandbox.as_ref()?).await.ok()?;
            self.forget();
        }
        let class = *self.class.get_or_insert(class);
        if self.sandbox.is_none() {
            self.sandbox = Some(with.shared.run_pod(&self.spec(class)).await.ok()?);
        }
        if self.container.is_none() {
            let spec = match class {
                Class::Guaranteed | Class::ZoneOwner(_) | Class::Slot => {
                    ContainerSpec::guaranteed(&self.name, milli, Bytes::gib(1))
                }
                Class::Burstable | Class::System | Class::Web | Class::Zone(_) => {
                    ContainerSpec::burstable(&self.name, milli)
                }
            };
            self.container = Some(Container {
                spec,
                class,
                attempt: 0,
                id: None,
                told: None,
                needs: None,
                resizing: false,
            });
        }
        if self.id().is_none() {
            self.create(with).await?;
        }
        with.shared.start(&self.id()?).await.ok()
    }

    /// Asks for the container, and looks what it got.
    async fn create(&mut self, with: &mut Clients) -> Option<()> {
        let container = self.container.as_mut()?;
        let sandbox = self.sandbox.as_ref()?;
        let made = with.shared.create(sandbox, &container.spec, container.attempt);
        let id = made.await.ok()?;
        // Without CPUs it was created without a decision, which had taken too long.
        let made = with.runtime.container(&id).filter(|it| !it.cpus.is_empty());
        container.needs = None;
        container.told =
            made.and_then(|made| match (container.class, container.spec.cpu_request) {
                (Class::Guaranteed, MilliCpu(1500)) => Some(Told::OwnsSome),
                (Class::Guaranteed, MilliCpu(1000..)) => Some(Told::Owns(made.cpus)),
                (Class::Slot, _) => Some(Told::Owns(made.cpus)),
                (Class::ZoneOwner(_), MilliCpu(1000 | 2000 | 3000 | 4000 | 6000)) => {
                    Some(Told::Owns(made.cpus))
                }
                _ => None,
            });
        container.id = Some(id);
        Some(())
    }

    /// The process has ended by itself; a new attempt is made, and the old container goes.
    async fn restart(&mut self, with: &mut Clients) -> Option<()> {
        if self.is_to_end(with) {
            return None;
        }
        with.past.stop(&self.id()?).await.ok()?;
        let container = self.container.as_mut()?;
        let old = container.id.take()?;
        container.attempt += 1;
        self.create(with).await?;
        with.shared.remove(&old).await.ok()?;
        with.shared.start(&self.id()?).await.ok()
    }

    /// Only of an owner of CPUs it is sure that the daemon has placed it, and so that it hears of it.
    async fn resize_pod(&mut self, milli: u64, with: &mut Clients) -> Option<()> {
        let whole = ContainerSpec::burstable(&self.name, milli);
        let mut is_last = true;
        if let Some(container) = &mut self.container {
            container.needs = None;
            is_last = !std::mem::replace(&mut container.resizing, true);
        }
        let answered = with.shared.resize_pod(self.sandbox.as_ref()?, &whole).await;
        if let Some(container) = &mut self.container {
            container.resizing = !is_last;
        }
        answered.ok()?;
        let placed = self.container.as_mut().filter(|it| it.told.is_some() && it.id.is_some());
        if let Some(placed) = placed.filter(|_| is_last) {
            placed.needs = Some(whole.resources().cpu_shares);
        }
        Some(())
    }

    async fn resize(&mut self, milli: u64, with: &mut Clients) -> Option<()> {
        let container = self.container.as_mut()?;
        container.told = None;
        let mut wanted = container.spec.clone();
        wanted.cpu_request.0 = milli;
        wanted.cpu_limit = wanted.cpu_limit.map(|_| wanted.cpu_request);
        with.shared.resize(container.id.as_ref()?, &wanted).await.ok()?;
        container.spec = wanted;
        Some(())
    }
}
