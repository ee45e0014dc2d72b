//! What holds at a container's first instruction: it reads its own kernel files before it does anything else.

use std::fs;
use std::path::Path;

use anyhow::ensure;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, QosClass};

use crate::Test;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[Test {
    name: "what_is_promised_holds_at_the_first_instruction",
    needs: |hardware| hardware.has_cpus(4),
    config: CONFIG,
    run: what_is_promised_holds_at_the_first_instruction,
}];

const STARTS: usize = 4;
pub(crate) const CONFIG: &str =
    "cpu: {burstPercent: 50}\nmemory: {lowPercent: 100, highPercent: 50}\n";
/// What an exclusive container is promised, and what a shared one, in the order in which they read it: no limit but what it may save up, and what is
/// protected.
const OWNER: &str = "max 100000, burst 0, low 33554432";
const SHARER: &str = "50000 100000, burst 25000, low 33554432";

fn what_is_promised_holds_at_the_first_instruction(
    node: &mut Node,
    _: &Hardware,
) -> anyhow::Result<()> {
    let early = early(node, STARTS)?;
    // The kernel's scheduler has the last word on which comes first; without a listener it is none of them.
    ensure!(early.len() <= 1, "{} of {STARTS}: {early:#?}", early.len());
    Ok(())
}

/// Containers that have begun before all that is promised was there, of so many, one after the other.
pub(crate) fn early(node: &mut Node, starts: usize) -> anyhow::Result<Vec<String>> {
    let seen = node.dir().join("seen");
    fs::create_dir_all(&seen)?;
    let mut early = Vec::new();
    for index in 0..starts {
        let (milli, promised) = if index % 2 == 0 { (1000, OWNER) } else { (500, SHARER) };
        let said = first_words(node, &seen.join(format!("{index}")), milli)?;
        node.end_pods()?;
        if said != promised {
            early.push(format!("{index} is promised {promised:?} and began with {said:?}"));
        }
    }
    Ok(early)
}

/// What a container finds in its cgroup, by the shell's own means: any other program would be an instruction too late.
fn first_words(node: &mut Node, file: &Path, milli: u64) -> anyhow::Result<String> {
    let cgroup = "/sys/fs/cgroup";
    let script = format!(
        "read max <{cgroup}/cpu.max; read burst <{cgroup}/cpu.max.burst; read low <{cgroup}/memory.low; \
         echo \"$max, burst $burst, low $low\" >{file}; exec /bin/busybox sleep 1000000",
        file = file.display()
    );
    let dir = file.parent().unwrap_or(file).display().to_string();
    let container = ContainerSpec {
        command: ["/bin/busybox", "sh", "-c", &script].map(str::to_owned).to_vec(),
        volumes: vec![dir],
        ..ContainerSpec::guaranteed("app", milli, Bytes(32 << 20))
    };
    node.launch(&PodSpec::new("first", QosClass::Guaranteed), &container)?;
    wait_for("the container's words", LIMIT, || {
        let said = fs::read_to_string(file).unwrap_or_default();
        Ok(said.ends_with('\n').then(|| said.trim().to_owned()))
    })
}
