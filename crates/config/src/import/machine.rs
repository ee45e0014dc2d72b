//! CPUs of the machine for amounts and exclusions: where other systems let the machine decide, our configuration has a list.

use bayplan_topology::Topology;
use bayplan_types::CpuSet;

use super::output::Yaml;
use super::report::Fate;
use super::walk::{Place, Walk, path};
use crate::yaml::Node;

use super::document::text_of;

/// `reservedCpus` of an amount (`750m`, `2`), a list (`cpuset:0-1`) or all but a list (`exclude-cpuset:2-15`).
pub(super) fn reserve(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let text = text_of(node).unwrap_or_default();
    match reserved(text, walk.machine) {
        Ok(cpus) => walk.take(place, node, path("reservedCpus"), Yaml::text(cpus)),
        Err(why) => walk.note(place, node, Fate::Lost(why)),
    }
}

fn reserved(text: &str, machine: Option<&Topology>) -> Result<String, String> {
    const NEEDS_MACHINE: &str =
        "the CPUs are to be listed: run this on the node, or name its --machine";
    if let Some(list) = text.strip_prefix("cpuset:") {
        return Ok(cpu_list(list)?.to_string());
    }
    if let Some(list) = text.strip_prefix("exclude-cpuset:") {
        let machine = machine.ok_or(NEEDS_MACHINE)?;
        return Ok(machine.cpus().difference(&cpu_list(list)?).to_string());
    }
    let milli = parse_milli(text)
        .ok_or_else(|| format!("`{text}` is no amount of CPUs, nor `cpuset:` and a list"))?;
    let machine = machine.ok_or(NEEDS_MACHINE)?;
    lowest(machine, milli).map(|cpus| cpus.to_string())
}

/// As many CPUs as an amount needs, the lowest cores first, as kubelet takes them.
pub(super) fn lowest(machine: &Topology, milli: u64) -> Result<CpuSet, String> {
    let wanted = usize::try_from(milli.div_ceil(1000)).unwrap_or(usize::MAX);
    let mut cores: Vec<&CpuSet> = machine.cores().iter().collect();
    cores.sort_by_key(|core| core.first());
    let cpus: CpuSet = cores.into_iter().flat_map(|core| core.iter()).take(wanted).collect();
    match cpus.len() == wanted {
        true => Ok(cpus),
        false => Err(format!("this machine has {} CPUs only", cpus.len())),
    }
}

/// A list of CPUs.
pub(super) fn cpu_list(text: &str) -> Result<CpuSet, String> {
    text.trim().parse().map_err(|error| format!("`{text}` is no list of CPUs: {error}"))
}

/// A quantity of CPUs of Kubernetes, in thousandths: `750m`, `2`, `1.5`.
pub(super) fn parse_milli(text: &str) -> Option<u64> {
    if let Some(milli) = text.strip_suffix('m') {
        return milli.parse().ok();
    }
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = whole.parse().ok()?;
    let is_digits = rest.len() <= 3 && rest.chars().all(|c| c.is_ascii_digit());
    let part: u64 = if rest.is_empty() { 0 } else { format!("{rest:0<3}").parse().ok()? };
    is_digits.then(|| whole.checked_mul(1000)?.checked_add(part)).flatten()
}
