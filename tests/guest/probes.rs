//! The probes in this kernel: that they can be attached, and that they count.

use std::fs;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::CgroupDriver;
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::process::wait_for;
use serde_json::Value;

use crate::exclusive::own;
use crate::{Test, driver};

pub(crate) const TESTS: &[Test] = &[Test {
    name: "the_probes_count_in_this_kernel",
    needs: |hardware| hardware.has_cpus(4),
    config: "",
    run: |node, _| they_count(node),
}];

/// Each is attached, and somebody was seen on an owner's CPU.
pub(crate) fn they_count(node: &mut Node) -> anyhow::Result<()> {
    own(node, "owner", 2)?;
    let counts = |audit: &Value| {
        let mut all = audit["containers"].as_array().into_iter().flatten();
        // The owner sleeps, but timers and threads of the kernel come by.
        let is_seen = |it: &Value| it["intruders"].as_array().is_some_and(|it| !it.is_empty());
        all.any(|it| it["pod"] == "owner" && is_seen(it))
    };
    let counted = wait_for("the probes to count", LIMIT, || Ok(Some(node.audit()?).filter(counts)));
    let counted = counted.with_context(|| format!("{:?}", node.audit()))?;
    for probe in counted["probes"].as_array().context("a list of probes")? {
        let expected = if probe["name"] == "counters" { counters()? } else { "attached" };
        ensure!(probe["state"] == expected, "a probe is not {expected}: {probe}");
    }
    Ok(())
}

/// The guest's processor has no counters; under its unit the daemon does not get as far as that on kernels that are as strict as Debian's.
fn counters() -> anyhow::Result<&'static str> {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")?;
    let is_strict = paranoid.trim().parse::<i32>()? > 2;
    match driver() {
        CgroupDriver::Systemd if is_strict => Ok("refused"),
        _ => Ok("unsupported"),
    }
}
