//! The rebalancer: counters in files that the test writes, as a kernel would.

mod memory;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec, RunningPod};
use bayplan_daemon::config::{Config, EnforcementMode};
use bayplan_daemon::{RebalanceView, post_control, query_control};
use bayplan_node::proposals::ProposalState;
use bayplan_rebalance::{Knob, Mode};
use bayplan_types::{Bytes, CpuSet, QosClass};
use nix::libc::EIO;

use crate::disks::{Illness, Patient};
use crate::node::{Node, set, soon};
use crate::observing::{metrics, sum};

/// One core, which the two keep busy: where there is room elsewhere no container is to blame.
pub(crate) const MACHINE: &str = "pack:1 numa:1 core:1 pu:2 mem:8";

/// Short, so that tests do not wait long; the rebalancer counts in looks.
const INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn fast(config: &mut Config) {
    config.rebalance.interval = INTERVAL;
    config.reserved_cpus = CpuSet::new();
}

pub(crate) fn acting(config: &mut Config) {
    fast(config);
    config.rebalance.mode = Mode::Act;
}

/// Directories of cgroups.
pub(crate) struct Groups {
    pub(crate) server: PathBuf,
    hog: PathBuf,
    runtime: EmbeddedRuntime,
}

impl Groups {
    /// The hog's pod.
    fn pod(&self) -> &Path {
        self.hog.parent().unwrap()
    }

    /// That of all BestEffort pods.
    pub(crate) fn class(&self) -> &Path {
        self.pod().parent().unwrap()
    }

    /// Where the runtime lets the two run.
    pub(crate) fn cpus(&self) -> [CpuSet; 2] {
        [&self.server, &self.hog].map(|group| {
            let id = group.file_name().unwrap().to_str().unwrap();
            set(&self.runtime.container(id).unwrap().cpus)
        })
    }

    pub(crate) fn is_apart(&self) -> bool {
        let [server, hog] = self.cpus();
        server.is_disjoint(&hog)
    }

    pub(crate) fn is_idle(&self) -> bool {
        text(self.pod(), "cpu.idle") == "1"
    }

    pub(crate) fn is_suppressed(&self) -> bool {
        !text(self.class(), "cpu.max").starts_with("max")
    }
}

/// What helps the server: nothing does in tests that do not let it.
pub(crate) type Cure = fn(&Groups) -> bool;

/// What the two do, in percent of a CPU.
#[derive(Clone, Copy)]
pub(crate) struct Doing {
    /// What the server uses, and for how long it waits for a CPU or is stopped by its own limit.
    pub(crate) server: u128,
    pub(crate) stalled: u128,
    pub(crate) throttled: u128,
    /// What the hog uses.
    pub(crate) hog: u128,
}

/// The server waits for the hog; once that is cured it does not.
const CROWDED: [Doing; 2] = [
    Doing { server: 90, stalled: 80, throttled: 0, hog: 140 },
    Doing { server: 90, stalled: 0, throttled: 0, hog: 100 },
];

/// A server that waits for a hog, in the counters of their groups, from now on until it is dropped.
pub(crate) struct Trouble {
    is_over: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

impl Trouble {
    fn start(groups: Arc<Groups>, cure: Cure) -> Trouble {
        Trouble::of(groups, cure, CROWDED)
    }

    /// What the two do before and after the cure.
    pub(crate) fn of(groups: Arc<Groups>, cure: Cure, [ill, well]: [Doing; 2]) -> Trouble {
        let is_over = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&is_over);
        let writer = std::thread::spawn(move || {
            let (mut last, mut total) = (Instant::now(), [0; 4]);
            while !seen.load(Ordering::Relaxed) {
                let micros = std::mem::replace(&mut last, Instant::now()).elapsed().as_micros();
                let Doing { server, stalled, throttled, hog } =
                    if cure(&groups) { well } else { ill };
                for (total, share) in total.iter_mut().zip([server, stalled, throttled, hog]) {
                    *total += micros * share;
                }
                let [server, stalled, throttled, hog] = total.map(|it| it / 100);
                for (group, used, stalled, throttled) in
                    [(&groups.server, server, stalled, throttled), (&groups.hog, hog, 0, 0)]
                {
                    let text = format!("usage_usec {used}\nthrottled_usec {throttled}\n");
                    write(group, "cpu.stat", &text);
                    let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled}\n");
                    write(group, "cpu.pressure", &text);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Trouble { is_over, writer: Some(writer) }
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            writer.join().unwrap();
        }
    }
}

/// In place, as the kernel's files are: a reader that has them open reads the new text.
pub(crate) fn write(group: &Path, file: &str, text: &str) {
    use std::io::Write as _;
    let open =
        fs::OpenOptions::new().create(true).truncate(false).write(true).open(group.join(file));
    open.unwrap().write_all(text.as_bytes()).unwrap();
}

pub(crate) fn text(group: &Path, file: &str) -> String {
    fs::read_to_string(group.join(file)).unwrap().trim().to_owned()
}

async fn view(node: &Node) -> RebalanceView {
    soon(query_control(&node.control_socket(), "/api/v1/rebalance")).await.unwrap()
}

/// The view as soon as it says this.
pub(crate) async fn view_when(
    node: &Node,
    what: &str,
    is_so: impl Fn(&RebalanceView) -> bool,
) -> RebalanceView {
    let waited = async {
        loop {
            let view = view(node).await;
            if is_so(&view) {
                return view;
            }
            tokio::time::sleep(INTERVAL / 2).await;
        }
    };
    match tokio::time::timeout(Duration::from_secs(60), waited).await {
        Ok(view) => view,
        Err(_) => panic!("never {what}: {:#?}", view(node).await),
    }
}

pub(crate) async fn files_when(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), waited).await.is_ok(), "never {what}");
}

pub(crate) async fn pause(node: &Node, paused: bool) -> RebalanceView {
    let path = format!("/api/v1/rebalance?paused={paused}");
    soon(post_control(&node.control_socket(), &path, String::new())).await.unwrap()
}

/// Whether the proposal with this knob is there, in this state.
pub(crate) fn has(view: &RebalanceView, knob: &str, state: ProposalState) -> bool {
    view.proposals.iter().any(|it| it.knob == knob && it.state == state)
}

/// A hog's pod with this annotation.
pub(crate) fn hog(qos: QosClass, annotation: Option<(&str, &str)>) -> PodSpec {
    let mut pod = PodSpec::new("hog", qos);
    let annotation =
        annotation.map(|(key, value)| (format!("bayplan.dev/{key}"), value.to_owned()));
    pod.annotations.extend(annotation);
    pod
}

/// `memory.numa_stat` with so many MiB on two nodes.
fn pages(first: u64, second: u64) -> String {
    format!("anon N0={:<12} N1={:<12}\n", first << 20, second << 20)
}

/// A server and a hog, with groups that exist, on a node with a running daemon.
pub(crate) async fn settled(
    node: &mut Node,
    (qos, server): (QosClass, &ContainerSpec),
    hog: &PodSpec,
) -> Arc<Groups> {
    let pod = PodSpec::new("server", qos);
    let (_, server) = soon(node.kubelet.launch(&pod, server)).await.unwrap();
    let (_, hog) =
        soon(node.kubelet.launch(hog, &ContainerSpec::burstable("hog", 0))).await.unwrap();
    let cgroups = node.host_root().join("sys/fs/cgroup");
    let mut groups = Vec::new();
    for (name, id) in [("server", server), ("hog", hog)] {
        let parent = node.held(name).await.cgroup_parent;
        let group = cgroups.join(parent.trim_start_matches('/')).join(id);
        // At once, as the kernel makes a group: what is not there when it is found is not looked for again.
        let made = node.path(name);
        fs::create_dir(&made).unwrap();
        write(&made, "cpu.stat", "usage_usec 0\n");
        write(&made, "cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
        // As wide as the numbers will be.
        write(&made, "memory.numa_stat", &pages(0, 0));
        fs::create_dir_all(group.parent().unwrap()).unwrap();
        fs::rename(&made, &group).unwrap();
        // Every group but the root has these.
        for above in group.ancestors().take_while(|it| **it != cgroups) {
            for (file, text) in [
                ("cgroup.type", "domain\n"),
                ("cpu.idle", "0\n"),
                ("cpu.max", "max 100000\n"),
                ("cpu.max.burst", "0\n"),
                ("cpu.weight", "1\n"),
            ] {
                write(above, file, text);
            }
        }
        groups.push(group);
    }
    write(&cgroups.join("kubepods"), "cpuset.mems", "\n");
    write(&cgroups, "cgroup.controllers", "cpu memory\n");
    let [server, hog] = <[PathBuf; 2]>::try_from(groups).unwrap();
    Arc::new(Groups { server, hog, runtime: node.runtime.clone() })
}

/// A node with the trouble, for which there is this cure.
async fn troubled(
    adjust: fn(&mut Config),
    wish: Option<&str>,
    cure: Cure,
) -> (Node, Arc<Groups>, Trouble) {
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = adjust;
    node.start_daemon().await;
    let pod = hog(QosClass::BestEffort, wish.map(|it| ("rebalance", it)));
    let server = ContainerSpec::burstable("server", 100);
    let groups = settled(&mut node, (QosClass::Burstable, &server), &pod).await;
    let trouble = Trouble::start(Arc::clone(&groups), cure);
    (node, groups, trouble)
}

/// Of the hog's pod and class: `cpu.idle`, `cpu.weight`, `cpu.max`.
pub(crate) fn text_of(groups: &Groups) -> [String; 3] {
    let pod = groups.pod();
    [text(pod, "cpu.idle"), text(pod, "cpu.weight"), text(groups.class(), "cpu.max")]
}

fn history(node: &Node) -> String {
    let files = fs::read_dir(node.history()).unwrap();
    files.map(|it| fs::read_to_string(it.unwrap().path()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_suffers_is_told_with_its_culprits_and_nothing_is_changed() {
    let (mut node, groups, _trouble) = troubled(fast, None, |_| false).await;
    let found = soon(async {
        loop {
            let view = view(&node).await;
            if let Some(found) = view.proposals.first() {
                return found.clone();
            }
            tokio::time::sleep(INTERVAL).await;
        }
    })
    .await;
    assert_eq!(
        (found.victim.as_str(), found.target.as_str()),
        ("default/server/server", "default/hog/hog")
    );
    assert!(found.evidence.contains("cpu-pressure"), "{found:?}");
    assert!(sum(&metrics(&node).await, "bayplan_rebalance_proposals_total", &["observe"]) >= 1.0);
    assert_eq!(found.state, ProposalState::Observed);
    assert!(!groups.is_idle() && !groups.is_suppressed());
    node.check_in_line().await;
    node.stop_daemon().await;
    let text = history(&node);
    assert!(text.contains(r#""kind":"proposed""#) && text.contains("would turn"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_helps_is_done_and_kept_until_the_daemon_stops() {
    let (mut node, groups, _trouble) = troubled(acting, None, Groups::is_suppressed).await;
    let view = view_when(&node, "kept", |it| has(it, "suppress", ProposalState::Kept)).await;
    assert!(groups.is_suppressed(), "{view:#?}");
    assert_eq!(view.proposals.iter().filter(|it| it.state.is_in_force()).count(), 1);
    node.check_in_line().await;
    node.stop_daemon().await;
    assert_eq!(text_of(&groups), ["0", "1", "max 100000"]);
    let text = history(&node);
    assert!(text.contains("turns suppress on default/hog/hog"), "{text}");
    assert!(text.contains(r#""kind":"judged""#) && text.contains("kept: closed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_help_is_undone_and_the_next_is_tried() {
    let adjust: fn(&mut Config) = |config| {
        acting(config);
        config.rebalance.forbidden.insert(Knob::Suppress);
    };
    let (mut node, groups, _trouble) = troubled(adjust, None, |_| false).await;
    let next = |it: &RebalanceView| {
        has(it, "idle", ProposalState::Undone) && it.proposals.iter().any(|it| it.knob != "idle")
    };
    view_when(&node, "another one tried", next).await;
    files_when("idle no more", || !groups.is_idle()).await;
    assert_eq!(text(groups.pod(), "cpu.weight"), "1");
    node.stop_daemon().await;
    assert!(history(&node).contains("undone: closed"), "{}", history(&node));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_takes_back_what_is_turned_and_a_resume_does_not_turn_it_again_at_once() {
    let (node, groups, _trouble) = troubled(acting, None, Groups::is_suppressed).await;
    view_when(&node, "kept", |it| has(it, "suppress", ProposalState::Kept)).await;
    pause(&node, true).await;
    files_when("given back", || !groups.is_suppressed()).await;
    let view =
        view_when(&node, "withdrawn", |it| has(it, "suppress", ProposalState::Withdrawn)).await;
    let count = view.proposals.len();
    for _ in 0..10 {
        tokio::time::sleep(INTERVAL).await;
        assert!(!groups.is_suppressed());
    }
    assert_eq!(self::view(&node).await.proposals.len(), count);
    pause(&node, false).await;
    view_when(&node, "turned again", |it| it.proposals.len() > count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_killed_leaves_nothing_turned_to_the_next_one() {
    let (mut node, groups, _trouble) = troubled(acting, None, Groups::is_suppressed).await;
    files_when("turned", || groups.is_suppressed()).await;
    node.kill_daemon();
    node.adjust = |config| {
        fast(config);
        config.rebalance.mode = Mode::Off;
    };
    node.start_daemon().await;
    // One file after the other.
    files_when("given back", || text_of(&groups) == ["0", "1", "max 100000"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_turned_on_a_container_that_its_owner_or_its_namespace_keeps_out() {
    let observed: fn(&mut Config) = |config| {
        acting(config);
        config.rebalance.namespaces.insert("default".to_owned(), Mode::Observe);
    };
    for (adjust, wish) in
        [(acting as fn(&mut Config), Some("observe")), (observed, None), (observed, Some("act"))]
    {
        let (node, groups, _trouble) = troubled(adjust, wish, |_| false).await;
        let view = view_when(&node, "proposed", |it| !it.proposals.is_empty()).await;
        assert_eq!(view.proposals[0].state, ProposalState::Observed, "{view:#?}");
        assert!(!groups.is_idle() && !groups.is_suppressed());
    }
    let (node, groups, _trouble) = troubled(acting, Some("off"), |_| false).await;
    let mut looks = 0;
    while looks < 30 {
        tokio::time::sleep(INTERVAL).await;
        looks += usize::from(view(&node).await.sampled > 0);
        assert_eq!(view(&node).await.proposals.len(), 0);
    }
    assert!(!groups.is_idle() && !groups.is_suppressed());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_can_be_turned_it_is_said_what_would_be_and_why_it_is_not() {
    let dry: fn(&mut Config) = |config| {
        acting(config);
        config.enforcement = EnforcementMode::DryRun;
    };
    let (node, groups, _trouble) = troubled(dry, None, |_| false).await;
    let view = view_when(&node, "proposed", |it| !it.proposals.is_empty()).await;
    assert_eq!(view.proposals[0].state, ProposalState::Observed, "{view:#?}");
    assert!(!groups.is_idle());
    let why = |it: &RebalanceView| it.unrest.as_ref().is_some_and(|it| it.contains("dry-run"));
    view_when(&node, "said why", why).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_usual_is_on_disk_after_a_stop_and_a_bad_file_stops_nothing() {
    let (mut node, _groups, _trouble) = troubled(fast, None, |_| true).await;
    let kept = node.state_dir().join("baselines");
    let text = || -> String {
        let files = fs::read_dir(&kept).unwrap();
        files.map(|it| fs::read_to_string(it.unwrap().path()).unwrap()).collect()
    };
    // A container that came a moment ago is not learned of, nor is anything in rounds that are late.
    for _ in 0..20 {
        tokio::time::sleep(20 * INTERVAL).await;
        node.stop_daemon().await;
        if text().contains(r#""container":"server""#) {
            break;
        }
        node.start_daemon().await;
    }
    assert!(text().contains(r#""container":"server""#), "{}", text());
    for file in fs::read_dir(&kept).unwrap() {
        fs::write(file.unwrap().path(), "rubbish\n").unwrap();
    }
    node.start_daemon().await;
    view_when(&node, "looked", |it| it.sampled > 0).await;
    node.stop_daemon().await;
}

/// A server on one NUMA node, and a hog of a lower class on both, of which nothing but its place can be changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_shares_cpus_goes_out_of_the_way_and_comes_back() {
    let mut node = Node::without_daemon("pack:1 numa:2 l3:1 core:2 pu:1 mem:8");
    node.adjust = acting;
    node.start_daemon().await;
    let server = ContainerSpec::guaranteed("server", 500, Bytes::gib(1));
    let pod = hog(QosClass::Burstable, Some(("unlimited-burstable", "system")));
    let groups = settled(&mut node, (QosClass::Guaranteed, &server), &pod).await;
    assert_eq!(groups.cpus().map(|it| it.len()), [2, 4]);
    let _trouble = Trouble::start(Arc::clone(&groups), Groups::is_apart);
    let view = view_when(&node, "kept", |it| has(it, "move", ProposalState::Kept)).await;
    assert!(groups.is_apart(), "{view:#?}");
    node.check_in_line().await;
    // An owner of the CPUs that it has gone to drives nothing out of the machine.
    let (_, owner) = node.guaranteed("owner", 1000).await;
    assert!(!groups.cpus()[1].is_empty() && groups.cpus()[1].is_disjoint(&node.cpus(&owner)));
    node.check_in_line().await;
    pause(&node, true).await;
    files_when("back", || !groups.is_apart()).await;
    node.check_in_line().await;
}

/// The same, and then the hog asks for more than the CPUs to which it has gone: they are all its own again, of which the verdict knew nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_something_later_has_ended_is_not_told_as_kept_any_more() {
    let mut node = Node::without_daemon("pack:1 numa:2 l3:1 core:2 pu:1 mem:8");
    node.adjust = acting;
    node.start_daemon().await;
    let server = ContainerSpec::guaranteed("server", 500, Bytes::gib(1));
    let pod = hog(QosClass::Burstable, Some(("unlimited-burstable", "system")));
    let groups = settled(&mut node, (QosClass::Guaranteed, &server), &pod).await;
    let trouble = Trouble::start(Arc::clone(&groups), Groups::is_apart);
    view_when(&node, "kept", |it| has(it, "move", ProposalState::Kept)).await;
    // What helps then does not matter here.
    drop(trouble);
    let id = groups.hog.file_name().unwrap().to_str().unwrap();
    soon(node.kubelet.resize(id, &ContainerSpec::burstable("hog", 3000))).await.unwrap();
    files_when("everywhere", || !groups.is_apart()).await;
    let view = view_when(&node, "ended", |it| !has(it, "move", ProposalState::Kept)).await;
    let ended = view.proposals.iter().find(|it| it.knob == "move").unwrap();
    let why = "ended: too few other CPUs would be left for it";
    assert_eq!((ended.state, ended.outcome.as_str()), (ProposalState::Undone, why));
    let explained = node.explain("default/hog/hog").await;
    let told = explained[0].rebalance.iter().find(|it| it.knob == "move").unwrap();
    assert_eq!((told.state, told.outcome.as_str()), (ProposalState::Undone, why));
    let verdicts = ["knob=\"move\"", "verdict=\"ended\""];
    let ended = sum(&metrics(&node).await, "bayplan_rebalance_verdicts_total", &verdicts);
    assert_eq!(ended, 1.0);
    node.check_in_line().await;
    node.stop_daemon().await;
    assert!(history(&node).contains(why), "{}", history(&node));
}

/// Nothing is turned that could not be given back after a crash.
#[tokio::test(flavor = "multi_thread")]
async fn where_originals_cannot_be_kept_no_knob_is_turned() {
    for illness in [Illness::Broken(EIO), Illness::Full, Illness::ReadOnly] {
        let disk = Arc::<Patient>::default();
        let mut node = Node::without_daemon(MACHINE);
        node.adjust = acting;
        node.disks.originals = Arc::<Patient>::clone(&disk);
        node.start_daemon().await;
        let pod = hog(QosClass::BestEffort, None);
        let server = ContainerSpec::burstable("server", 100);
        disk.becomes(Some(illness));
        let groups = settled(&mut node, (QosClass::Burstable, &server), &pod).await;
        let _trouble = Trouble::start(Arc::clone(&groups), Groups::is_suppressed);
        let is_refused = |it: &RebalanceView| has(it, "suppress", ProposalState::Refused);
        let view = view_when(&node, "refused", is_refused).await;
        assert_eq!(text_of(&groups), ["0", "1", "max 100000"], "{illness:?}: {view:#?}");
        let metrics = metrics(&node).await;
        assert!(sum(&metrics, "bayplan_failures_total", &["kind=\"originals\""]) >= 1.0);
        node.check_in_line().await;
        disk.becomes(None);
        node.stop_daemon().await;
        assert_eq!(text_of(&groups), ["0", "1", "max 100000"], "{illness:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_until_it_is_ended_also_through_a_restart() {
    let mut node = Node::start().await;
    assert!(!view(&node).await.is_paused);
    assert!(pause(&node, true).await.is_paused);
    node.stop_daemon().await;
    node.start_daemon().await;
    assert!(view(&node).await.is_paused);
    assert!(!pause(&node, false).await.is_paused);
    node.stop_daemon().await;
    node.start_daemon().await;
    assert!(!view(&node).await.is_paused);
}
