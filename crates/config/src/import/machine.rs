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
    let amount = || parse_milli(text).map(|milli| format!("{milli}m"));
    let no_amount = || format!("`{text}` is no amount of CPUs, nor `cpuset:` and a list");
    let found = match listed(text, walk.machine) {
        Some(list) => list.map(|cpus| cpus.to_string()),
        None => amount().ok_or_else(no_amount),
    };
    match found {
        Ok(cpus) => walk.take(place, node, path("reservedCpus"), Yaml::text(cpus)),
        Err(why) => walk.note(place, node, Fate::Lost(why)),
    }
}

/// `availableCpus` of a list (`cpuset:0-1`) or all but a list (`exclude-cpuset:2-15`).
pub(super) fn make_available(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let text = text_of(node).unwrap_or_default();
    let no_list = || Err(format!("`{text}` does not say which CPUs: `cpuset:` and a list"));
    match listed(text, walk.machine).unwrap_or_else(no_list) {
        Ok(cpus) => {
            walk.take(place, node, path("availableCpus"), Yaml::text(cpus.to_string()));
        }
        Err(why) => walk.note(place, node, Fate::Lost(why)),
    }
}

/// The CPUs of `cpuset:` or `exclude-cpuset:`; `None` for another text.
fn listed(text: &str, machine: Option<&Topology>) -> Option<Result<CpuSet, String>> {
    const NEEDS_MACHINE: &str =
        "the CPUs are to be listed: run this on the node, or name its --machine";
    if let Some(list) = text.strip_prefix("cpuset:") {
        return Some(cpu_list(list));
    }
    let list = text.strip_prefix("exclude-cpuset:")?;
    let machine = machine.ok_or_else(|| NEEDS_MACHINE.to_owned());
    Some(machine.and_then(|it| Ok(it.cpus().difference(&cpu_list(list)?))))
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
