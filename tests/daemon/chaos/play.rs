//! Carries a round out. In: what happens, and the node. Out: the same node, on which nothing goes wrong any more.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bayplan_daemon::ask_control;
use bayplan_host::disk::{Disk, Disks};
use nix::sys::signal::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::GROUPED;
use super::disk::{Trouble, TroubledDisk, Wrong};
use super::plan::{Form, GROUPS, Mishap, PODS, Pause, Round};
use super::pod::{Clients, Pod};
use crate::node::{DAEMON, Node, kubelet, soon, wait_for_socket};
use crate::reload::{RELOAD, rename_over};

/// Of a daemon that is a process, as impatient as one that is here.
const CONFIG: &str = "resyncInterval: 25ms\nruntimeTimeout: 250ms\ndecisionTimeout: 1s\nreservedCpus: \"0,8\"\nprobes: \"off\"\n\
    log: warn\n";

/// Between two looks at the process.
const POLL: Duration = Duration::from_millis(2);

/// The node with its daemon's disk.
pub(crate) struct Stage {
    pub(crate) node: Node,
    pub(crate) form: Form,
    /// Under a daemon that is here.
    pub(crate) disk: Arc<TroubledDisk>,
    pub(crate) pods: Vec<Pod>,
    /// Of what was written nothing was ever lost.
    pub(crate) is_disk_good: bool,
    /// Daemons that have died.
    pub(crate) deaths: usize,
    /// Which types of groups there are, where there are any.
    types: usize,
    /// How often they were changed.
    pub(crate) changed: usize,
}

impl Stage {
    pub(crate) async fn new(node: Node, form: Form) -> Stage {
        let pods = (0..PODS).map(Pod::new).collect();
        let disk = Arc::default();
        let mut stage =
            Stage { node, form, disk, pods, is_disk_good: true, deaths: 0, types: 0, changed: 0 };
        stage.new_disk();
        stage.start_daemon().await;
        stage
    }

    /// Comes back when all calls have ended and everything that went wrong has had its time.
    pub(crate) async fn play(&mut self, round: &Round) {
        let clients = Clients {
            shared: self.node.kubelet.clone(),
            socket: self.node.path("bayplan.sock"),
            past: self.node.past_daemon(),
            runtime: self.node.runtime.clone(),
            to_end: Arc::clone(&self.node.to_end),
            ended: Arc::clone(&self.node.ended),
            process: (self.form == Form::Process).then(|| Arc::clone(&self.node.process)),
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
        loop {
            let all = async {
                while let Some(pod) = calls.join_next().await {
                    played.push(pod.unwrap());
                }
            };
            if self.lives_until(all).await {
                break;
            }
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
            () = self.killed() => true,
        };
        if killed {
            self.restart_daemon().await;
        }
        !killed
    }

    /// Comes back when the daemon is dead.
    async fn killed(&self) {
        match self.form {
            Form::Here => self.disk.killed().await,
            Form::Process => {
                while !self.is_dead() {
                    sleep(POLL).await;
                }
            }
        }
    }

    /// Panics where a process has ended in another way than by being killed.
    fn is_dead(&self) -> bool {
        match self.form {
            Form::Here => self.disk.is_dead(),
            Form::Process => self.node.exit_status().is_some_and(|status| {
                assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "it has ended: {status}");
                true
            }),
        }
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
                match self.form {
                    Form::Here => self.node.stop_daemon().await,
                    Form::Process => {
                        self.node.signal_daemon(Signal::SIGTERM);
                        let status = self.node.daemon_ended().await;
                        assert!(status.success(), "stopped: {status}");
                    }
                }
                self.new_disk();
                self.start_daemon().await;
            }
            Pause::KillTwice { at } if self.form == Form::Process => {
                self.kill_daemon().await;
                self.spawn_daemon();
                sleep(Duration::from_millis(10) * u32::try_from(at).unwrap()).await;
                self.restart_daemon().await;
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
            Pause::Types { which, kill_after } => self.change_types(which, kill_after).await,
        }
    }

    /// What cannot be had is taken out of the file again, as it would be refused at each look.
    async fn change_types(&mut self, which: usize, kill_after: Option<Duration>) {
        let before = std::mem::replace(&mut self.types, which);
        let at_start = kill_after.is_some();
        self.pods.iter_mut().for_each(|pod| pod.is_regrouped(at_start));
        self.write_types();
        let socket = self.node.control_socket();
        let reload = ask_control(&socket, "POST", RELOAD, String::new());
        match kill_after {
            Some(after) => {
                let _cut = tokio::time::timeout(after, reload).await;
                self.restart_daemon().await;
            }
            None => {
                let (status, said) = soon(reload).await.unwrap();
                let said = String::from_utf8_lossy(&said);
                match status {
                    200 => self.changed += usize::from(which != before),
                    422 => {
                        self.types = before;
                        self.write_types();
                    }
                    _ => panic!("{status} {said}"),
                }
            }
        }
        self.node.adjust = GROUPED[self.types];
    }

    /// As at the beginning; where nothing is left to be moved this is not refused.
    pub(crate) async fn restore_types(&mut self) {
        if self.types != 0 {
            self.change_types(0, None).await;
            assert_eq!(self.types, 0, "refused");
        }
    }

    /// Into the file of the daemon.
    fn write_types(&self) {
        let text = std::fs::read_to_string(self.node.path("bayplan.yaml")).unwrap();
        let (more, _) = text.split_once("groups:").unwrap();
        rename_over(&self.node, &format!("{more}{}", GROUPS[self.types]));
    }

    async fn restart_daemon(&mut self) {
        self.kill_daemon().await;
        self.start_daemon().await;
    }

    async fn start_daemon(&mut self) {
        match self.form {
            Form::Here => self.node.start_daemon().await,
            Form::Process => {
                let socket = self.node.path("bayplan.sock");
                loop {
                    self.spawn_daemon();
                    tokio::select! {
                        () = wait_for_socket(&socket) => break,
                        () = self.killed() => self.deaths += 1,
                    }
                }
            }
        }
    }

    /// A process, which is not there yet when this comes back. Its log is in `bayplan.log`.
    fn spawn_daemon(&mut self) {
        let groups = if self.node.config().groups.is_empty() { "" } else { GROUPS[self.types] };
        let (arguments, metrics) = self.node.daemon_arguments(&format!("{CONFIG}{groups}"));
        let log = File::options().append(true).create(true).open(self.node.path("bayplan.log"));
        let mut command = Command::new(DAEMON);
        command.args(arguments).env_remove("BAYPLAN_LOG").stdin(Stdio::null()).stderr(log.unwrap());
        self.node.adopt_daemon(command.spawn().unwrap(), metrics);
        self.node.kubelet = kubelet(self.node.path("bayplan.sock"));
    }

    async fn kill_daemon(&mut self) {
        self.deaths += 1;
        if self.form == Form::Process {
            self.node.kill_daemon();
            return;
        }
        self.disk.die();
        self.node.bury_daemon();
        self.disk.bury();
        self.new_disk();
    }

    fn new_disk(&mut self) {
        self.disk = Arc::new(TroubledDisk::default());
        let disk: Arc<dyn Disk> = Arc::<TroubledDisk>::clone(&self.disk);
        self.node.disks = Disks::all(&disk);
    }

    /// Nothing goes wrong any more, and the daemon is there.
    async fn calm(&mut self) {
        self.node.runtime.clear_faults();
        self.disk.mend();
        if self.is_dead() {
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
