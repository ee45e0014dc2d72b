//! What a real containerd tells its plugin and is answered: an exclusive container comes beside a shared one, is resized, and goes.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec, RunningPod};
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::nri_relay::{Heard, relay};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, CpuSet, QosClass};
use expect_test::expect_file;

use crate::life::one_cpu;
use crate::transcript::Transcript;

type Shared = Arc<Mutex<Transcript>>;

const SHARED: &str = "scenario-shared";
const EXCLUSIVE: &str = "scenario-exclusive";

/// What the answer about the exclusive container has told of the shared one: the daemon tells it again unless it sees in time that the runtime has that answer.
const REPEATED: &str = "  UpdateContainer app running; shares 0, quota 0, period 0, cpus REST, mems 0, memory 0\n  PostUpdateContainer app running\n";

pub(crate) fn is_as_written_down(node: &mut Node) -> anyhow::Result<()> {
    let transcript = Shared::default();
    listen(node, &transcript)?;
    let own = play(node, &transcript)?;
    let text = lock(&transcript).text();
    let text = named_sets(&text, &own)?.replace(REPEATED, "");
    expect_file!["expected/containerd-2.txt"].assert_eq(&text);
    Ok(())
}

fn lock(transcript: &Shared) -> std::sync::MutexGuard<'_, Transcript> {
    transcript.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the daemon is a plugin by way of the relay.
fn listen(node: &mut Node, transcript: &Shared) -> anyhow::Result<()> {
    let socket = node.dir().join("trace.sock");
    let noting = Arc::clone(transcript);
    relay(&socket, node.nri_socket(), move |Heard { message, .. }| {
        if let Err(why) = lock(&noting).note(message) {
            println!("a message that cannot be read: {why}");
        }
    })?;
    node.take_nri_from(socket);
    node.reconfigure("log: warn\n")?;
    node.wait_until_registered()
}

/// Gives the CPU that was exclusive.
fn play(node: &mut Node, transcript: &Shared) -> anyhow::Result<CpuSet> {
    let app = ContainerSpec::burstable("app", 100);
    let (shared, shared_id) = begin(node, transcript, SHARED, &app)?;
    let all = node.look(&shared_id)?.cpus;
    let (exclusive, id) = begin(node, transcript, EXCLUSIVE, &one_cpu())?;
    let own = node.exclusive_of(&id)?;
    node.resize(&id, &ContainerSpec::guaranteed("app", 1000, Bytes(96 << 20)))?;
    await_update(transcript, EXCLUSIVE, "")?;
    node.stop(&id)?;
    await_update(transcript, SHARED, &format!("cpus {all}, "))?;
    node.end_pod(&exclusive)?;
    node.stop(&shared_id)?;
    node.end_pod(&shared)?;
    Ok(own)
}

/// A pod with one started container. Each call is answered before the next one is made.
fn begin(
    node: &mut Node,
    transcript: &Shared,
    name: &str,
    container: &ContainerSpec,
) -> anyhow::Result<(RunningPod, String)> {
    let qos = if name == SHARED { QosClass::Burstable } else { QosClass::Guaranteed };
    let pod = node.run_pod(&PodSpec::new(name, qos))?;
    let id = node.answer(node.ask_to_create(&pod, container, 0))??;
    node.answer(node.ask_to_start(&id))??;
    wait_for("the start to be told", LIMIT, || {
        Ok((lock(transcript).count(name, "PostStartContainer") > 0).then_some(()))
    })?;
    Ok((pod, id))
}

fn await_update(transcript: &Shared, pod: &str, told: &str) -> anyhow::Result<()> {
    let is_over = || Ok(lock(transcript).has_updated(pod, told).then_some(()));
    wait_for(&format!("the update of {pod}"), LIMIT, is_over)
        .with_context(|| lock(transcript).text())
}

/// Sets by what they are on this machine: how many CPUs there are makes no difference.
fn named_sets(text: &str, own: &CpuSet) -> anyhow::Result<String> {
    let machine = bayplan_daemon::derive_machine(Path::new("/"))?;
    let all = machine.cpus();
    let rest = all.difference(own);
    let mut named = text.to_owned();
    for (name, set) in [("ALL", all), ("REST", &rest), ("OWN", own)] {
        for end in [",", "\n", ";"] {
            named = named.replace(&format!("cpus {set}{end}"), &format!("cpus {name}{end}"));
        }
    }
    Ok(named)
}
