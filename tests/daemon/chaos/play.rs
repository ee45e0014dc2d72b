//! Carries a round out. In: what happens, and the node. Out: pods as kubelet knows them afterwards.

use std::sync::Arc;
use std::time::Duration;

use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_cri::upstream::ContainerState;
use bayplan_types::{Bytes, QosClass};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::disk::{Trouble, TroubledDisk, Wrong};
use super::plan::{Act, Call, Class, Mishap, PODS, Pause, Round};
use crate::node::{Node, kubelet, soon};

/// A pod as kubelet knows it.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    name: String,
    /// How many pods there were in its place before.
    generation: u32,
    /// The sandbox, once the runtime has told of it.
    sandbox: Option<RunningPod>,
    container: Option<Container>,
}

#[derive(Clone, Debug)]
struct Container {
    spec: ContainerSpec,
    class: Class,
    attempt: u32,
    /// `None`: the runtime did not answer.
    id: Option<String>,
}

impl Pod {
    pub(crate) fn new(index: usize) -> Pod {
        Pod { name: format!("pod{index}"), generation: 0, sandbox: None, container: None }
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
        }
    }

    /// There will be another pod in its place.
    fn forget(&mut self) {
        *self = Pod {
            name: self.name.clone(),
            generation: self.generation + 1,
            sandbox: None,
            container: None,
        };
    }

    /// Kubelet looks at what the runtime has, and believes it.
    fn relist(&mut self, runtime: &EmbeddedRuntime) {
        let Some(sandbox) = &self.sandbox else { return };
        let mut found = runtime.containers();
        found.retain(|it| it.pod_id == sandbox.id && it.name == self.name);
        let latest = found.into_iter().max_by_key(|it| it.attempt);
        if let Some(container) = &mut self.container {
            match latest {
                Some(latest) => {
                    (container.attempt, container.id) = (latest.attempt, Some(latest.id));
                }
                None => self.container = None,
            }
        }
    }

    async fn launch(&mut self, kubelet: &mut Kubelet, milli: u64, class: Class) -> Option<()> {
        let spec = || match class {
            Class::Guaranteed => ContainerSpec::guaranteed(&self.name, milli, Bytes::gib(1)),
            Class::Burstable | Class::System => ContainerSpec::burstable(&self.name, milli),
        };
        let wanted = spec();
        let class = self.container.as_ref().map_or(class, |it| it.class);
        if self.sandbox.is_none() {
            self.sandbox = Some(kubelet.run_pod(&self.spec(class)).await.ok()?);
        }
        let container =
            self.container.get_or_insert(Container { spec: wanted, class, attempt: 0, id: None });
        if container.id.is_none() {
            let made = kubelet.create(self.sandbox.as_ref()?, &container.spec, container.attempt);
            container.id = Some(made.await.ok()?);
        }
        kubelet.start(container.id.as_ref()?).await.ok()
    }

    async fn restart(&mut self, kubelet: &mut Kubelet, past: &mut Kubelet) -> Option<()> {
        past.stop(&self.id()?).await.ok()?;
        let container = self.container.as_mut()?;
        let old = container.id.take()?;
        container.attempt += 1;
        let made = kubelet.create(self.sandbox.as_ref()?, &container.spec, container.attempt);
        container.id = Some(made.await.ok()?);
        kubelet.remove(&old).await.ok()?;
        kubelet.start(container.id.as_ref()?).await.ok()
    }

    fn id(&self) -> Option<String> {
        self.container.as_ref()?.id.clone()
    }

    /// As far as it goes: kubelet takes an error for a reason to try again later.
    async fn call(&mut self, call: Call, kubelet: &mut Kubelet, past: &mut Kubelet) -> Option<()> {
        match call {
            Call::Launch { milli, class } => self.launch(kubelet, milli, class).await,
            Call::Restart => self.restart(kubelet, past).await,
            Call::Resize { milli } => {
                let id = self.id()?;
                let spec = &mut self.container.as_mut()?.spec;
                let mut wanted = spec.clone();
                wanted.cpu_request.0 = milli;
                wanted.cpu_limit = wanted.cpu_limit.map(|_| wanted.cpu_request);
                kubelet.resize(&id, &wanted).await.ok()?;
                *spec = wanted;
                Some(())
            }
            Call::Exit => past.stop(&self.id()?).await.ok(),
            Call::Stop => kubelet.stop(&self.id()?).await.ok(),
            Call::Remove => {
                kubelet.remove(&self.id()?).await.ok()?;
                self.container = None;
                Some(())
            }
            Call::End => {
                kubelet.end_pod(self.sandbox.as_ref()?).await.ok()?;
                self.forget();
                Some(())
            }
        }
    }
}

/// The clients of a round.
#[derive(Clone)]
struct Clients {
    shared: Kubelet,
    socket: std::path::PathBuf,
    past: Kubelet,
    runtime: EmbeddedRuntime,
}

impl Clients {
    async fn play(mut self, mut pod: Pod, acts: Vec<Act>) -> Pod {
        for act in acts {
            let mut alone = act.is_alone.then(|| kubelet(self.socket.clone()));
            let client = alone.as_mut().unwrap_or(&mut self.shared);
            // Who gives up hangs up.
            let _gave_up = timeout(act.patience, pod.call(act.call, client, &mut self.past)).await;
            pod.relist(&self.runtime);
        }
        pod
    }
}

/// The node with its daemon's disk.
pub(crate) struct Stage {
    pub(crate) node: Node,
    pub(crate) disk: Arc<TroubledDisk>,
    pub(crate) pods: Vec<Pod>,
}

impl Stage {
    pub(crate) async fn new(mut node: Node) -> Stage {
        let disk = Arc::new(TroubledDisk::default());
        node.disk = disk.clone();
        node.start_daemon().await;
        Stage { node, disk, pods: (0..PODS).map(Pod::new).collect() }
    }

    /// Comes back when all calls have ended and everything that went wrong has had its time.
    pub(crate) async fn play(&mut self, round: &Round) {
        let clients = Clients {
            shared: self.node.kubelet.clone(),
            socket: self.node.path("bayplan.sock"),
            past: self.node.past_daemon(),
            runtime: self.node.runtime.clone(),
        };
        let begun = Instant::now();
        self.arm(round);
        let mut calls = JoinSet::new();
        for (index, pod) in std::mem::take(&mut self.pods).into_iter().enumerate() {
            let acts = round.acts.iter().filter(|act| act.pod == index).copied().collect();
            calls.spawn(clients.clone().play(pod, acts));
        }
        let mut timed: Vec<Mishap> = round.mishaps.clone();
        timed.retain(|it| when(it).is_some());
        timed.sort_by_key(when);
        for mishap in &timed {
            let due = sleep_until(begun + when(mishap).unwrap_or_default());
            if self.lives_until(due).await {
                self.strike(mishap).await;
            }
        }
        let mut played = Vec::new();
        let all = async {
            while let Some(pod) = calls.join_next().await {
                played.push(pod.unwrap());
            }
        };
        self.lives_until(all).await;
        while let Some(pod) = calls.join_next().await {
            played.push(pod.unwrap());
        }
        played.sort_by(|one, other| one.name.cmp(&other.name));
        self.pods = played;
        self.calm().await;
    }

    fn arm(&self, round: &Round) {
        for mishap in &round.mishaps {
            match *mishap {
                Mishap::Disk(trouble) => self.disk.expect(trouble),
                Mishap::Runtime { method, after, fault } => {
                    let calls = self.node.runtime.calls(method);
                    self.node.runtime.inject_after(method, calls + after, fault);
                }
                Mishap::Kill { .. } | Mishap::RuntimeDies { .. } => {}
            }
        }
    }

    /// Waits for it; should the daemon die first, it is started again, and this gives false.
    async fn lives_until(&mut self, it: impl Future<Output = ()>) -> bool {
        let killed = tokio::select! {
            () = it => false,
            () = self.disk.killed() => true,
        };
        if killed {
            self.restart_daemon().await;
        }
        !killed
    }

    async fn strike(&mut self, mishap: &Mishap) {
        match *mishap {
            Mishap::Kill { .. } => self.restart_daemon().await,
            Mishap::RuntimeDies { away, forgets, .. } => {
                self.node.stop_runtime().await;
                if forgets {
                    self.node.runtime.forget();
                }
                tokio::time::sleep(away).await;
                self.node.start_runtime();
            }
            Mishap::Disk(_) | Mishap::Runtime { .. } => {}
        }
    }

    /// The daemon goes and comes back, or not.
    pub(crate) async fn pause(&mut self, pause: Pause) {
        match pause {
            Pause::Nothing => {}
            Pause::Kill => self.restart_daemon().await,
            Pause::Stop => {
                self.node.stop_daemon().await;
                self.new_disk();
                self.node.start_daemon().await;
            }
            Pause::KillTwice { at } => {
                self.kill_daemon().await;
                self.disk.expect(Trouble { after: at, wrong: Wrong::Kills, part: 500 });
                let (disk, node) = (self.disk.clone(), &mut self.node);
                let has_started = tokio::select! {
                    () = node.start_daemon() => true,
                    () = disk.killed() => false,
                };
                if has_started {
                    self.kill_daemon().await;
                } else {
                    self.disk.bury();
                    self.new_disk();
                }
                self.node.start_daemon().await;
            }
        }
    }

    async fn restart_daemon(&mut self) {
        self.kill_daemon().await;
        self.node.start_daemon().await;
    }

    async fn kill_daemon(&mut self) {
        self.disk.die();
        self.node.bury_daemon().await;
        self.disk.bury();
        self.new_disk();
    }

    fn new_disk(&mut self) {
        self.disk = Arc::new(TroubledDisk::default());
        self.node.disk = self.disk.clone();
    }

    /// Nothing goes wrong any more, the daemon is there, and kubelet knows what there is.
    async fn calm(&mut self) {
        self.node.runtime.clear_faults();
        self.disk.mend();
        if self.disk.is_dead() {
            self.restart_daemon().await;
        }
        let mut past = self.node.past_daemon();
        let known = soon(past.pods()).await.unwrap();
        for pod in &mut self.pods {
            let is_known = pod.sandbox.as_ref().is_none_or(|it| known.contains(&it.id));
            if !is_known {
                pod.forget();
            }
            pod.relist(&self.node.runtime);
        }
        let ours: Vec<&String> =
            self.pods.iter().filter_map(|pod| Some(&pod.sandbox.as_ref()?.id)).collect();
        for stray in known.iter().filter(|id| !ours.contains(id)) {
            soon(self.node.kubelet.end_sandbox(stray)).await.unwrap();
        }
        for pod in &mut self.pods {
            if pod.sandbox.is_none() {
                pod.forget();
            }
        }
        let known: Vec<String> = self.pods.iter().filter_map(Pod::id).collect();
        for stray in self.node.runtime.containers().iter().filter(|it| !known.contains(&it.id)) {
            soon(self.node.kubelet.remove(&stray.id)).await.unwrap();
        }
    }

    /// Kubelet ends all pods.
    pub(crate) async fn end(&mut self) {
        for pod in &mut self.pods {
            if let Some(sandbox) = &pod.sandbox {
                soon(self.node.kubelet.end_pod(sandbox)).await.unwrap();
                pod.forget();
            }
        }
    }

    /// Containers that kubelet knows of and that have not ended.
    pub(crate) fn known(&self) -> Vec<String> {
        let live = self.node.live();
        let ids = self.pods.iter().filter_map(Pod::id);
        ids.filter(|id| live.iter().any(|it| it.id == *id && is_live(it.state))).collect()
    }
}

fn is_live(state: ContainerState) -> bool {
    matches!(state, ContainerState::Created | ContainerState::Running)
}

fn when(mishap: &Mishap) -> Option<Duration> {
    match mishap {
        Mishap::Kill { after } | Mishap::RuntimeDies { after, .. } => Some(*after),
        Mishap::Disk(_) | Mishap::Runtime { .. } => None,
    }
}
