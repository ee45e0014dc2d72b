//! Use of AVX-512 by container, as metrics tell it: of a container that uses it within two seconds, and never of one beside it that does not. Processors without AVX-512 have nothing to tell.

#[path = "../../crates/host/tests/programs/mod.rs"]
mod programs;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, SLEEP};
use bayplan_tests::process::wait_for;
use bayplan_types::QosClass;
use programs::{WITH, WITHOUT};

const CONFIG: &str = "observeInterval: 1s\nrebalance: {mode: off}\n";
/// From the start of the container.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// A process begins with what its parent did, and that is over two seconds later.
const INHERITED: Duration = Duration::from_secs(4);
/// For which it is not seen in the other one.
const UNSEEN_FOR: Duration = Duration::from_secs(5);

/// Threads of a pod that use it and threads that do not; `None`: nothing is told of it yet.
fn threads(node: &Node, pod: &str) -> anyhow::Result<Option<[u32; 2]>> {
    let metrics = node.metrics()?;
    let of = |used: &str| {
        let labels = [format!("pod=\"{pod}\""), format!("used=\"{used}\"")];
        let mut lines =
            metrics.lines().filter(|it| it.starts_with("bayplan_container_avx512_threads{"));
        let line = lines.find(|line| labels.iter().all(|it| line.contains(it)))?;
        line.rsplit_once(' ')?.1.parse().ok()
    };
    Ok(of("yes").zip(of("no")).map(|(yes, no)| [yes, no]))
}

/// A container that runs this program alone.
fn launch(node: &mut Node, dir: &Path, name: &str, code: &[u8]) -> anyhow::Result<()> {
    let program = programs::write(dir, name, code)?.display().to_string();
    let spec = ContainerSpec {
        command: vec![program],
        host_dirs: vec![dir.display().to_string()],
        ..ContainerSpec::burstable("app", 100)
    };
    node.launch(&PodSpec::new(&format!("vectors-{name}"), QosClass::Burstable), &spec).map(drop)
}

fn play(node: &mut Node) -> anyhow::Result<()> {
    let has_it = fs::read_to_string("/proc/cpuinfo")?.split_whitespace().any(|it| it == "avx512f");
    node.reset(CONFIG)?;
    let dir = tempfile::tempdir()?;
    launch(node, dir.path(), "without", WITHOUT)?;
    std::thread::sleep(INHERITED);
    if !has_it {
        ensure!(threads(node, "vectors-without")?.is_none(), "something is told of AVX-512");
        return Ok(());
    }
    wait_for("a thread without it", LIMIT, || {
        Ok(threads(node, "vectors-without")?.filter(|it| *it == [0, 1]))
    })?;
    launch(node, dir.path(), "with", WITH)?;
    let begun = Instant::now();
    wait_for("a thread that uses it", LIMIT, || {
        Ok(threads(node, "vectors-with")?.filter(|it| *it == [1, 0]))
    })?;
    let took = begun.elapsed();
    println!("  told {:.2} s after the start", took.as_secs_f64());
    ensure!(took <= SEEN_WITHIN, "it took {took:?}");
    while begun.elapsed() < SEEN_WITHIN + UNSEEN_FOR {
        let found = [threads(node, "vectors-with")?, threads(node, "vectors-without")?];
        ensure!(found == [Some([1, 0]), Some([0, 1])], "{found:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

pub(crate) fn run(bayplan: &Path) -> anyhow::Result<()> {
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let played = play(&mut node);
    node.end(played)
}
