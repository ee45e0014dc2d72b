//! Classes of scheduling on a node with a runtime that Bayplan is a plugin of: what the kernel says of the first process of containers.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_types::QosClass;

use crate::node::Node;

/// What has to be in the configuration.
pub const CONFIG: &str = "schedulingClasses:
- {name: first, policy: fifo, priority: 7, ioClass: be, ioPriority: 2}
- {name: later, policy: batch, nice: 5}
permissions: [{namespaces: [fast], allow: [scheduling-class=first]}]
";

/// A real-time class where a rule and the kernel allow it, and not where one of them does not; other numbers in any case. Containerd 1.7 leaves all of it out.
///
/// # Errors
/// What is not so.
pub fn play(node: &mut Node) -> anyhow::Result<()> {
    let is_refused = Path::new("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists();
    let first = if is_refused { "SCHED_OTHER 0" } else { "SCHED_FIFO 7" };
    let runtime = node.status()?.front_end.and_then(|it| it.runtime).unwrap_or_default();
    let leaves_out =
        runtime.trim_start_matches("containerd ").trim_start_matches('v').starts_with("1.");
    for (namespace, class, expected) in [
        ("fast", "first", &*format!("{first}, nice 0, best-effort: prio 2")),
        ("default", "first", "SCHED_OTHER 0, nice 0, none: prio 0"),
        ("default", "later", "SCHED_BATCH 0, nice 5, none: prio 0"),
    ] {
        let mut pod = PodSpec::new(&format!("scenario-{class}"), QosClass::Burstable);
        namespace.clone_into(&mut pod.namespace);
        pod.annotations = vec![("bayplan.dev/scheduling-class".into(), class.into())];
        let placed = node.launch(&pod, &ContainerSpec::burstable("app", 100))?;
        let found = scheduling_of(placed.pid)?;
        let expected = if leaves_out { "SCHED_OTHER 0, nice 0, none: prio 0" } else { expected };
        ensure!(found == expected, "{namespace} {class}: {found}, not {expected}");
        println!("{namespace} {class}: {found}");
        node.end_pods()?;
    }
    Ok(())
}

/// Of a process: policy, priority and nice value (proc_pid_stat(5), fields 41, 40 and 19), and class and priority of I/O.
fn scheduling_of(pid: u32) -> anyhow::Result<String> {
    const POLICIES: [&str; 4] = ["SCHED_OTHER", "SCHED_FIFO", "SCHED_RR", "SCHED_BATCH"];
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // What follows the name, which may have spaces, begins with the third field.
    let (_, rest) = stat.rsplit_once(") ").context("stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().context("stat is short");
    let policy = POLICIES.get(field(41)?.parse::<usize>()?).context("another policy")?;
    let io = Command::new("busybox").args(["ionice", "-p"]).arg(pid.to_string()).output()?;
    let io = String::from_utf8_lossy(&io.stdout).trim().to_owned();
    Ok(format!("{policy} {}, nice {}, {io}", field(40)?, field(19)?))
}
