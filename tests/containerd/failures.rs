//! What is around Bayplan dies, hangs or is full, and Bayplan dies, while real containers run and start. Whatever happens, a container that runs
//! stays where it is, one that starts gets its CPU in the end, and nothing else is on it, by the kernel's word.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec, RunningPod};
use bayplan_node::status::ContainerStatus;
use bayplan_tests::disk::Mounted;
use bayplan_tests::node::{Asked, LIMIT, Node, Placed, SLEEP};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, QosClass};
use tonic::Code;

/// Kubelet tries as often as it likes; more than this is no bad luck any more.
const ATTEMPTS: u32 = 20;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(300);
/// How long after the beginning of a call the victim dies: before anything is done, and about in the middle of what the runtime does.
const MOMENTS_MS: [u64; 2] = [0, 60];
/// A decision may take this long where it is to be late.
const IMPATIENT: &str = "decisionTimeout: 3s\n";

fn pod(name: &str, qos: QosClass) -> PodSpec {
    PodSpec::new(&format!("failures-{name}"), qos)
}

fn one_cpu() -> ContainerSpec {
    ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20))
}

/// A container that runs, shares, and is not to notice anything but that its CPUs become fewer and more.
fn launch_sharer(node: &mut Node) -> anyhow::Result<Placed> {
    node.launch(&pod("sharer", QosClass::Burstable), &ContainerSpec::burstable("app", 100))
}

/// The owner has one CPU, the same by the status, and the sharer has all others, in the same process as before.
fn check_apart(node: &Node, owner: &Placed, sharer: &Placed) -> anyhow::Result<()> {
    ensure!(owner.cpus.len() == 1, "the owner runs on {}", owner.cpus);
    ensure!(node.exclusive_of(&owner.id)? == owner.cpus, "{:?}", node.status_of(&owner.id));
    // containerd forgets a change that it gave up in the middle, also where the kernel has made it.
    let due = Placed { cpus: sharer.cpus.difference(&owner.cpus), ..sharer.clone() };
    let has_let_go = || Ok(node.seen(&sharer.id)?.filter(|now| *now == due));
    wait_for("the sharer to let go", LIMIT, has_let_go)
        .with_context(|| format!("{due:?} is due: {:?}", node.seen(&sharer.id)))?;
    Ok(())
}

/// Only the sharer is there any more, and it has all CPUs again.
fn check_alone(node: &Node, sharer: &Placed) -> anyhow::Result<()> {
    let is_sharer = |it: &ContainerStatus| it.id.as_deref() == Some(sharer.id.as_str());
    wait_for("the sharer to be alone", LIMIT, || {
        let known = node.status()?.containers;
        let now = node.seen(&sharer.id)?;
        Ok((known.iter().all(is_sharer) && now.as_ref() == Some(sharer)).then_some(()))
    })
    .with_context(|| format!("{:?}", node.status()))
}

/// As kubelet does until a pod's container runs: another is created for one that did not start.
fn until_running(
    node: &mut Node,
    pod: &RunningPod,
    mut id: Option<String>,
) -> anyhow::Result<Placed> {
    for attempt in 1..=ATTEMPTS {
        if let Some(id) = &id {
            let is_running = |node: &Node| anyhow::Ok(node.details(id)?.pid.is_some());
            // The answer to a start may have been lost, and not the start.
            if is_running(node)? || node.answer(node.ask_to_start(id))?.is_ok() {
                return node.look(id);
            }
            // It may be under way still.
            sleep(PAUSE);
            if is_running(node)? {
                return node.look(id);
            }
        }
        id = node.answer(node.ask_to_create(pod, &one_cpu(), attempt))?.ok();
        if id.is_none() {
            sleep(PAUSE);
        }
    }
    bail!("it did not start in {ATTEMPTS} attempts");
}

/// As kubelet does, again and again: containerd removes no pod while its start is under way, also where no call waits for that any more.
fn end_pod(node: &mut Node, pod: &RunningPod) -> anyhow::Result<()> {
    wait_for("the end of a pod", LIMIT, || Ok(node.end_pod(pod).ok()))
}

/// A container that runs, with a decision that may have been late.
fn until_placed(node: &Node, id: &str) -> anyhow::Result<Placed> {
    wait_for("its CPU", LIMIT, || Ok(node.seen(id)?.filter(|now| now.cpus.len() == 1)))
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    Runtime,
    Daemon,
}

impl Victim {
    fn dies(self, node: &mut Node) -> anyhow::Result<()> {
        match self {
            Victim::Runtime => node.kill_runtime(),
            Victim::Daemon => node.kill(),
        }
    }

    fn returns(self, node: &mut Node) -> anyhow::Result<()> {
        match self {
            Victim::Runtime => node.start_runtime_again(),
            Victim::Daemon => node.start_again(),
        }
    }
}

/// One pod after the other starts, and the victim dies in its creation, between that and its start, or in its start.
fn dies_at_every_moment(node: &mut Node, victim: Victim, sharer: &Placed) -> anyhow::Result<()> {
    for after_ms in MOMENTS_MS {
        let moment = Duration::from_millis(after_ms);
        println!("{victim:?} dies {moment:?} after the beginning of a creation");
        let created = node.run_pod(&pod(&format!("created-{after_ms}"), QosClass::Guaranteed))?;
        let asked = node.ask_to_create(&created, &one_cpu(), 0);
        sleep(moment);
        victim.dies(node)?;
        let id = node.answer(asked)?.ok();
        victim.returns(node)?;
        let owner = until_running(node, &created, id)?;
        check_apart(node, &owner, sharer)?;
        end_pod(node, &created)?;
        check_alone(node, sharer)?;

        println!("{victim:?} dies {moment:?} after the beginning of a start");
        let started = node.run_pod(&pod(&format!("started-{after_ms}"), QosClass::Guaranteed))?;
        let id = node.answer(node.ask_to_create(&started, &one_cpu(), 0))??;
        let promised = node.exclusive_of(&id)?;
        let asked = node.ask_to_start(&id);
        sleep(moment);
        victim.dies(node)?;
        let _it_may_have_failed = node.answer(asked)?;
        victim.returns(node)?;
        let owner = until_running(node, &started, Some(id.clone()))?;
        ensure!(owner.id != id || owner.cpus == promised, "{promised} was promised: {owner:?}");
        check_apart(node, &owner, sharer)?;
        end_pod(node, &started)?;
        check_alone(node, sharer)?;
    }
    Ok(())
}

fn with_node(
    bayplan: &Path,
    play: impl FnOnce(&mut Node) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let played = play(&mut node);
    node.end(played)
}

pub(crate) fn runtime_is_killed(bayplan: &Path) -> anyhow::Result<()> {
    with_node(bayplan, |node| {
        let sharer = launch_sharer(node)?;
        let early = node.run_pod(&pod("early", QosClass::Guaranteed))?;
        node.kill_runtime()?;
        let refused = node.answer(node.ask_to_create(&early, &one_cpu(), 0))?;
        let code = refused.err().context("a container without a runtime")?.code();
        ensure!(code == Code::Unavailable, "{code:?}");
        node.start_runtime_again()?;
        let owner = until_running(node, &early, None)?;
        check_apart(node, &owner, &sharer)?;
        node.end_pod(&early)?;
        check_alone(node, &sharer)?;
        dies_at_every_moment(node, Victim::Runtime, &sharer)
    })
}

pub(crate) fn daemon_is_killed(bayplan: &Path) -> anyhow::Result<()> {
    with_node(bayplan, |node| {
        let sharer = launch_sharer(node)?;
        dies_at_every_moment(node, Victim::Daemon, &sharer)
    })
}

pub(crate) fn runtime_hangs(bayplan: &Path) -> anyhow::Result<()> {
    with_node(bayplan, |node| {
        node.reconfigure(IMPATIENT)?;
        let sharer = launch_sharer(node)?;
        let first = node.run_pod(&pod("first", QosClass::Guaranteed))?;
        let big = node.run_pod(&pod("big", QosClass::Guaranteed))?;
        node.hang_runtime(true)?;
        let asked = asked_while_it_hangs(node, &first, &big);
        node.hang_runtime(false)?;
        let id = node.answer(asked?)??;
        node.answer(node.ask_to_start(&id))??;
        let owner = until_placed(node, &id)?;
        check_apart(node, &owner, &sharer)
    })
}

/// A creation that waits for the runtime, and one that is refused without it.
fn asked_while_it_hangs(
    node: &Node,
    first: &RunningPod,
    big: &RunningPod,
) -> anyhow::Result<Asked<String>> {
    let asked = node.ask_to_create(first, &one_cpu(), 0);
    // A container that does not fit is refused, although the runtime cannot be asked which ones have ended.
    let too_many = ContainerSpec::guaranteed("app", 1_000_000, Bytes(64 << 20));
    let refused = node.answer(node.ask_to_create(big, &too_many, 0))?;
    let refused = refused.err().context("a container with a thousand CPUs")?;
    ensure!(refused.message().contains("needs 1000 exclusive CPUs"), "{refused:?}");
    ensure!(!asked.is_answered(), "there is an answer of a runtime that hangs");
    Ok(asked)
}

pub(crate) fn disk_is_full(bayplan: &Path) -> anyhow::Result<()> {
    with_node(bayplan, |node| {
        node.kill()?;
        let disk = Mounted::in_memory(node.state_dir())?;
        node.start_again()?;
        let sharer = launch_sharer(node)?;
        disk.fill()?;
        // What is left of the last page is soon used up.
        let mut count = 0;
        while node.failures("journal")? == 0 {
            count += 1;
            ensure!(count <= ATTEMPTS, "the journal can still be written");
            let filler = pod(&format!("filler-{count}"), QosClass::BestEffort);
            node.launch(&filler, &ContainerSpec::burstable("app", 0))?;
        }
        println!("full after {count} containers");
        let owner = node.launch(&pod("unwritten", QosClass::Guaranteed), &one_cpu())?;
        check_apart(node, &owner, &sharer)?;
        let told = node.get("/readyz")?;
        ensure!(told.contains(" 503 ") && told.contains("journal"), "{told}");
        node.restart_after_kill()?;
        check_apart(node, &owner, &sharer)?;
        let known = node.status()?.containers.len();
        ensure!(u32::try_from(known)? == count + 2, "{known} are known, not {count} and two");
        disk.empty()?;
        node.launch(&pod("later", QosClass::BestEffort), &ContainerSpec::burstable("app", 0))?;
        wait_for("the journal", LIMIT, || {
            Ok(node.get("/readyz")?.contains(" 200 ").then_some(()))
        })?;
        node.restart_after_kill()?;
        check_apart(node, &owner, &sharer)?;
        let journal = std::fs::read_to_string(node.state_dir().join("journal"))?;
        for name in ["sharer", "unwritten", "later"] {
            ensure!(journal.contains(&format!("failures-{name}")), "{name} is missing: {journal}");
        }
        // Before the disk goes from below it.
        node.kill()?;
        drop(disk);
        node.start_again()
    })
}

pub(crate) fn disk_hangs(bayplan: &Path) -> anyhow::Result<()> {
    with_node(bayplan, |node| {
        node.kill()?;
        let disk = Mounted::in_file(&node.dir().join("disk"), node.state_dir())?;
        node.start_again()?;
        let played = decided_late(node, &disk);
        disk.thaw().ok();
        node.kill()?;
        drop(disk);
        node.start_again()?;
        played
    })
}

fn decided_late(node: &mut Node, disk: &Mounted) -> anyhow::Result<()> {
    let sharer = launch_sharer(node)?;
    let late = node.run_pod(&pod("late", QosClass::Guaranteed))?;
    node.reconfigure(IMPATIENT)?;
    disk.freeze()?;
    let id = node.answer(node.ask_to_create(&late, &one_cpu(), 0))??;
    node.answer(node.ask_to_start(&id))??;
    ensure!(node.details(&id)?.pid.is_some(), "it does not run");
    disk.thaw()?;
    let owner = until_placed(node, &id)?;
    check_apart(node, &owner, &sharer)?;
    ensure!(node.failures("undecided")? > 0, "it was not counted");
    node.end_pod(&late)?;
    check_alone(node, &sharer)?;

    node.reconfigure(&format!("{IMPATIENT}onFailure: closed\n"))?;
    let closed = node.run_pod(&pod("closed", QosClass::Guaranteed))?;
    disk.freeze()?;
    let refused = node.answer(node.ask_to_create(&closed, &one_cpu(), 0))?;
    let refused = refused.err().context("a container without a decision")?;
    ensure!(refused.message().contains("onFailure is closed"), "{refused:?}");
    disk.thaw()?;
    check_alone(node, &sharer)?;
    let owner = until_running(node, &closed, None)?;
    check_apart(node, &owner, &sharer)
}
