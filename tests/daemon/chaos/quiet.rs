//! What must hold once everything has come to rest. In: the node. Out: a panic that says what does not.

use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use bayplan_allocator::check_ledger;
use bayplan_cri::embedded::ContainerSnapshot;
use bayplan_daemon::config::new_state;
use bayplan_host::history::{parse_history, segments};
use bayplan_host::journal::parse_journal;
use bayplan_node::event::{Answer, Event};
use bayplan_node::record::replay;
use bayplan_node::status::Status;
use bayplan_types::CpuSet;
use bayplan_workload::runtime::ContainerState;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::plan::Form;
use super::play::Stage;
use super::pod::{Pod, Told};
use crate::node::{Node, set};

/// Something that must become so becomes so within this time.
const LIMIT: Duration = Duration::from_secs(20);

/// The place of a container: everything of its status that outlives the daemon.
type Seat = [String; 7];

/// What ends with a question has ended by then.
const MOMENT: Duration = Duration::from_secs(1);

pub(crate) fn seats(status: &Status) -> Vec<Seat> {
    let seat = |held: &bayplan_node::status::ContainerStatus| {
        let id = held.id.clone().unwrap_or_default();
        let [class, exclusive, cpus, mems, pool] =
            [&held.class, &held.exclusive, &held.cpus, &held.mems, &held.pool].map(Clone::clone);
        [id, held.full_name(), class, exclusive, cpus, mems, pool]
    };
    status.containers.iter().map(seat).collect()
}

/// Waits until ledger, runtime, kubelet and journal agree, and nothing has leaked; and until that has lasted for some looks of the daemon, as a call that its client has given up may be
/// answered late.
pub(crate) async fn check_quiet(stage: &mut Stage) -> Status {
    let (deadline, looks) = (Instant::now() + LIMIT, stage.node.config().resync_interval * 4);
    let mut agreed: Option<(Instant, Vec<Seat>)> = None;
    loop {
        // What was given up was perhaps still on its way.
        stage.relist().await;
        let found = check(stage).await;
        let is_over = Instant::now() >= deadline;
        match (found, &agreed) {
            (Ok(status), Some((since, seen))) if seats(&status) == *seen => {
                if since.elapsed() >= looks {
                    return status;
                }
            }
            (Ok(status), _) => {
                assert!(!is_over, "containers go on being moved: {agreed:#?}");
                agreed = Some((Instant::now(), seats(&status)));
            }
            (Err(why), _) => {
                assert!(!is_over, "{why}");
                agreed = None;
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn check(stage: &Stage) -> Result<Status, String> {
    let node = &stage.node;
    let status = node.status().await;
    check_owners(&status);
    check_groups(&status);
    check_panics(node);
    if let Some(why) = node.disagreement(&status) {
        return Err(format!("{why}\n{status:#?}\n{:#?}", node.live()));
    }
    for container in node.live() {
        let file = node.kernel_cpus(&container.id);
        if file.as_ref().is_some_and(|cpus| *cpus != set(&container.cpus)) {
            return Err(format!(
                "{} has {file:?} in the kernel, not {}",
                container.name, container.cpus
            ));
        }
    }
    let is_settled = |phase: &str| matches!(phase, "created" | "running");
    if let Some(held) = status.containers.iter().find(|it| !is_settled(&it.phase)) {
        return Err(format!("{} is still {}", held.full_name(), held.phase));
    }
    // A resize that was not made is taken back as soon as that is known, which under load is later than it takes to ask twice.
    if let Some(held) = status.containers.iter().find(|it| !it.resize.is_empty()) {
        return Err(format!("{} has a resize {}", held.full_name(), held.resize));
    }
    let mut known = stage.known();
    let mut held: Vec<String> = seats(&status).into_iter().map(|[id, ..]| id).collect();
    let live = node.live();
    known.retain(|id| {
        let is_left = |it: &ContainerSnapshot| it.id == *id && node.may_be_forgotten(it);
        held.contains(id) || !live.iter().any(is_left)
    });
    // A disk that did not keep it may have it forgotten.
    // A container that was stopped before it was started may have been started all the same.
    let mut ended = node.ended.lock().unwrap().clone();
    ended.retain(|id| {
        node.runtime.container(id).is_none_or(|it| it.state != ContainerState::Running)
    });
    if let Some(id) = held.iter().find(|id| stage.is_disk_good && ended.contains(*id)) {
        let runs = node.runtime.container(id);
        let why = node.explain(id).await;
        return Err(format!("{id} has ended, and is held\n{runs:#?}\n{why:#?}"));
    }
    known.sort();
    held.sort();
    if known != held {
        return Err(format!("kubelet knows {known:#?}, the daemon holds {held:#?}"));
    }
    check_promises(stage, &status).await;
    check_journal(stage, &status)?;
    check_history(node);
    check_leaks(stage).await?;
    Ok(status)
}

/// No CPU has two owners, and what is owned is what groups and containers own.
fn check_owners(status: &Status) {
    let mut owned = CpuSet::new();
    for held in &status.containers {
        let own = set(&held.exclusive);
        assert!(owned.is_disjoint(&own), "{} has another one's {own}", held.full_name());
        owned.union_with(&own);
    }
    status.groups.iter().for_each(|it| owned.union_with(&set(&it.cpus)));
    assert_eq!(owned, set(&status.cpus.exclusive), "{status:#?}");
}

/// Groups have different CPUs. Members run on those of theirs and on idle ones, if the group shares these, and all other containers elsewhere.
fn check_groups(status: &Status) {
    let mut taken = CpuSet::new();
    for group in &status.groups {
        let cpus = set(&group.cpus);
        assert!(taken.is_disjoint(&cpus), "{} has another group's CPUs: {status:#?}", group.name);
        taken.union_with(&cpus);
        let members = status.containers.iter().filter(|it| it.group == group.name);
        assert_eq!(members.count(), group.members, "{status:#?}");
    }
    let shares_idle = |group: &str| group.starts_with("web[");
    let mut used = taken.clone();
    let others = status.containers.iter().filter(|it| !shares_idle(&it.group));
    others.for_each(|it| used.union_with(&set(&it.cpus)));
    for held in &status.containers {
        let group = status.groups.iter().find(|it| it.name == held.group);
        let own = group.map(|it| set(&it.cpus)).unwrap_or_default();
        let beside = set(&held.cpus).difference(&own);
        let elsewhere = match (group.is_some(), shares_idle(&held.group)) {
            (true, true) => &used,
            (true, false) => {
                assert!(beside.is_empty(), "{} has left its group: {status:#?}", held.full_name());
                continue;
            }
            (false, _) => &taken,
        };
        assert!(
            beside.is_disjoint(elsewhere),
            "{} runs on the CPUs of another group or on CPUs in use: {status:#?}",
            held.full_name()
        );
    }
}

/// A container that was made with exclusive CPUs, and kubelet was told so, has them whatever happened since, and it is known why. Where writes to the
/// journal have failed that is not promised, nor where holes are joined.
async fn check_promises(stage: &Stage, status: &Status) {
    if !stage.is_disk_good || stage.node.config().compaction.enabled {
        return;
    }
    for (id, told) in stage.pods.iter().filter_map(Pod::told) {
        let Some(held) = status.containers.iter().find(|it| it.id.as_deref() == Some(id)) else {
            continue;
        };
        let is_kept = match told {
            Told::Owns(cpus) => held.exclusive == *cpus && held.cpus == *cpus,
            Told::OwnsSome => !held.exclusive.is_empty(),
        };
        assert!(is_kept, "{told:?} has become {held:#?}");
        let explained = stage.node.explain(id).await;
        let why = explained.first().map(|it| it.decision.outcome.clone()).unwrap_or_default();
        assert!(!why.starts_with("found running"), "{} is forgotten: {why}", held.full_name());
    }
}

/// What the file says makes the same ledger.
fn check_journal(stage: &Stage, status: &Status) -> Result<(), String> {
    let node = &stage.node;
    let recovered = parse_journal(&fs::read(node.journal()).map_err(|it| it.to_string())?);
    if !recovered.dropped.is_empty() {
        return Err(format!("{:?}", recovered.dropped));
    }
    check_needs(stage, &recovered.records);
    let mut state = new_state(&node.config(), node.topology()).unwrap();
    state.restore(replay(&recovered.records), Timestamp::now());
    let broken = check_ledger(state.ledger());
    assert!(broken.is_empty(), "{broken:#?}");
    let Answer::Status(restored) = state.step(Event::Status, Timestamp::now()).answer else {
        return Err("no status".to_owned());
    };
    match seats(&restored) == seats(status) && restored.cpus == status.cpus {
        true => Ok(()),
        false => Err(format!("journal {:#?}\ndaemon {:#?}", seats(&restored), seats(status))),
    }
}

/// Everything in it is readable, but for the end of a segment at which the disk or the daemon has died.
fn check_history(node: &Node) {
    let Ok(segments) = segments(&node.history()) else { return };
    for path in segments {
        // The oldest may be gone by now.
        let Ok(bytes) = fs::read(&path) else { continue };
        let lines = bytes.split(|byte| *byte == b'\n').count();
        let dropped = parse_history(&bytes).dropped;
        let is_end = |line: usize| line + 1 >= lines;
        assert!(dropped.iter().all(|it| is_end(it.line)), "{}: {dropped:?}", path.display());
    }
}

/// What kubelet was told that a pod needs as a whole is kept. Where writes to the journal have failed that is not promised.
fn check_needs(stage: &Stage, records: &[String]) {
    if !stage.is_disk_good {
        return;
    }
    let live = replay(records);
    for (id, needs) in stage.pods.iter().filter_map(Pod::needs) {
        let mut placed = live.containers.values();
        let Some(placed) = placed.find(|it| it.runtime_id.as_deref() == Some(id)) else { continue };
        let form = serde_json::to_value(&placed.container).unwrap();
        assert_eq!(form["pod_needs"]["cpu_shares"], needs, "{id} in {form:#}");
    }
}

/// As [`leaks`], in the end: the connection of the last question ends a little later than its answer comes, and on a busy machine it was there at most looks.
async fn check_leaks(stage: &Stage) -> Result<(), String> {
    let until = Instant::now() + MOMENT;
    loop {
        match leaks(stage) {
            Err(_) if Instant::now() < until => sleep(Duration::from_millis(5)).await,
            found => return found,
        }
    }
}

/// Connections, files and tasks are those of a daemon that has just been started, and kubelet's.
fn leaks(stage: &Stage) -> Result<(), String> {
    let node = &stage.node;
    let (process, tasks) = match stage.form {
        Form::Here => ("self".to_owned(), node.tasks()),
        Form::Process => (node.daemon_pid().to_string(), 0),
    };
    let at_most = [
        ("kubelet's connections", connections(&node.path("bayplan.sock")), 1),
        // The daemon's calls, its wait for events, and calls that are forwarded unread.
        ("connections to the runtime", connections(&node.path("runtime.sock")), 3),
        ("control connections", connections(&node.control_socket()), 0),
        // Journal and lock, the same for what kernel files said before and for what is usual, and a segment of the history.
        ("open files", open_files(&process, &node.state_dir()), 7),
        // These, in three directories of their own, and a journal that was torn.
        ("files", fs::read_dir(node.state_dir()).unwrap().count(), 6),
        ("tasks", tasks, 32),
    ];
    match at_most.into_iter().find(|(_, count, most)| count > most) {
        Some((what, count, most)) => Err(format!("{count} {what}, not {most} at most")),
        None => Ok(()),
    }
}

/// Those that the server has accepted (`/proc/net/unix`: state 03 is connected).
fn connections(socket: &Path) -> usize {
    let socket = socket.to_str().unwrap();
    let all = fs::read_to_string("/proc/net/unix").unwrap();
    let is_one = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.last() == Some(&socket) && words.get(5) == Some(&"03")
    };
    all.lines().filter(is_one).count()
}

fn open_files(process: &str, dir: &Path) -> usize {
    let all = fs::read_dir(Path::new("/proc").join(process).join("fd")).unwrap();
    let links = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.starts_with(dir)).count()
}

/// Panics of all daemons' threads, with the threads' names.
static PANICS: LazyLock<Mutex<Vec<(String, String)>>> = LazyLock::new(|| {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        PANICS.lock().unwrap().push((thread, panic.to_string()));
        before(panic);
    }));
    Mutex::default()
});

/// None of this node's daemons has panicked since the first time that this was asked, and none at all where calls are forwarded.
pub(crate) fn check_panics(node: &Node) {
    let panics = PANICS.lock().unwrap().clone();
    let is_ours = |name: &String| *name == node.thread_name() || name == "forwarder";
    let ours: Vec<_> = panics.iter().filter(|(name, _)| is_ours(name)).collect();
    assert!(ours.is_empty(), "{ours:#?}");
    // What a process says goes there.
    let log = fs::read_to_string(node.path("bayplan.log")).unwrap_or_default();
    assert!(!log.contains("panicked at"), "{log}");
}
