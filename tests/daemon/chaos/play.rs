//! Carries a round out. In: what happens, and the node. Out: the same node, on which nothing goes wrong any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::disk::{Trouble, TroubledDisk, Wrong};
use super::plan::{Mishap, PODS, Pause, Round};
use super::pod::{Clients, Pod};
use crate::node::{Node, soon};

/// The node with its daemon's disk.
pub(crate) struct Stage {
    pub(crate) node: Node,
    pub(crate) disk: Arc<TroubledDisk>,
    pub(crate) pods: Vec<Pod>,
    /// Of the journal nothing was ever lost.
    pub(crate) is_disk_good: bool,
    /// Daemons that have died.
    pub(crate) deaths: usize,
}

impl Stage {
    pub(crate) async fn new(mut node: Node) -> Stage {
        let disk = Arc::new(TroubledDisk::default());
        node.disk = Arc::<TroubledDisk>::clone(&disk);
        node.start_daemon().await;
        let pods = (0..PODS).map(Pod::new).collect();
        Stage { node, disk, pods, is_disk_good: true, deaths: 0 }
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
            calls.spawn(pod.play(clients.clone(), acts));
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

    fn arm(&mut self, round: &Round) {
        for mishap in &round.mishaps {
            match *mishap {
                Mishap::Disk(trouble) => {
                    self.is_disk_good &= trouble.wrong == Wrong::Kills;
                    self.disk.expect(trouble);
                }
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
                sleep(away).await;
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
                let (disk, node) = (Arc::clone(&self.disk), &mut self.node);
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
        self.deaths += 1;
        self.disk.die();
        self.node.bury_daemon().await;
        self.disk.bury();
        self.new_disk();
    }

    fn new_disk(&mut self) {
        self.disk = Arc::new(TroubledDisk::default());
        self.node.disk = Arc::<TroubledDisk>::clone(&self.disk);
    }

    /// Nothing goes wrong any more, and the daemon is there.
    async fn calm(&mut self) {
        self.node.runtime.clear_faults();
        self.disk.mend();
        if self.disk.is_dead() {
            self.restart_daemon().await;
        }
    }

    /// Kubelet looks at what there is, and ends what it does not know.
    pub(crate) async fn relist(&mut self) {
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
        ids.filter(|id| live.iter().any(|it| it.id == *id)).collect()
    }
}

fn when(mishap: &Mishap) -> Option<Duration> {
    match mishap {
        Mishap::Kill { after } | Mishap::RuntimeDies { after, .. } => Some(*after),
        Mishap::Disk(_) | Mishap::Runtime { .. } => None,
    }
}
