//! What is not an object: kernel, sets of CPUs, frequencies, huge pages, devices, distances, oddities.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bayplan_types::{ClosLimits, CpuPriority, CpuSet, Khz, NoCorePower, NodeId, SpeedSelect};

use super::lines::Lines;
use bayplan_topology::{Device, DeviceKind};
use bayplan_topology::{FrequencyPolicy, NumaNode, Topology};
use bayplan_types::fold::{count_and_list, fold_numbers, plural};

/// Oddities beyond this number are counted, not listed; the JSON form has them all.
const ODDITIES_SHOWN: usize = 20;
/// With more NUMA nodes than this, distances do not help a reader; the JSON form has them.
const DISTANCES_SHOWN: usize = 16;

/// What is to be said of the whole machine.
pub(super) fn machine(topology: &Topology, lines: &mut Lines) {
    kernel(topology, lines);
    let all = topology.cpus();
    let allowed = topology.allowed_cpus().filter(|allowed| *allowed != all);
    let withheld = topology.withheld();
    let of_priority = |priority| {
        let cpus = topology.cpus_of_priority(priority);
        if cpus == *all { CpuSet::new() } else { cpus }
    };
    let (high, low) = (of_priority(CpuPriority::High), of_priority(CpuPriority::Low));
    for (name, cpus) in [
        ("isolated", topology.isolated()),
        ("in isolated partitions", topology.partitioned()),
        ("without timer tick", topology.nohz_full()),
        ("offline", topology.offline()),
        ("high priority", &high),
        ("low priority", &low),
        ("not allowed to containers", &withheld),
        ("allowed to this process", allowed.unwrap_or(&CpuSet::new())),
    ] {
        if !cpus.is_empty() {
            lines.add(1, &format!("{name}: {}", count_and_list(cpus)));
        }
    }
    frequencies(topology.policies(), lines);
}

fn kernel(topology: &Topology, lines: &mut Lines) {
    let kernel = topology.kernel();
    let mut can: Vec<String> = Vec::new();
    if kernel.controllers.is_some() {
        can.push("cgroup v2".to_owned());
    }
    can.extend(kernel.has_psi.then(|| "PSI".to_owned()));
    can.extend(kernel.has_btf.then(|| "BTF".to_owned()));
    if let Some(resctrl) = &kernel.resctrl {
        let caches = resctrl.caches.iter().map(|cache| cache.name.as_str());
        let names = caches.chain(resctrl.bandwidths.iter().map(|control| control.name.as_str()));
        let monitoring = resctrl.monitoring.iter().map(|_| "monitoring");
        let names: Vec<&str> = names.chain(monitoring).collect();
        can.push(format!("resctrl ({})", names.join(", ")));
    }
    can.extend(kernel.cpufreq_driver.iter().map(|driver| format!("cpufreq {driver}")));
    can.extend(kernel.cpuidle_driver.iter().map(|driver| format!("cpuidle {driver}")));
    if !kernel.uncores.is_empty() {
        can.push(plural(kernel.uncores.len(), "uncore"));
    }
    can.extend(kernel.has_speed_select.then(|| "Speed Select".to_owned()));
    match &kernel.release {
        Some(release) if can.is_empty() => lines.add(1, &format!("kernel {release}")),
        Some(release) => lines.add(1, &format!("kernel {release}: {}", can.join(", "))),
        None if can.is_empty() => {}
        None => lines.add(1, &format!("kernel: {}", can.join(", "))),
    }
    speed_select(kernel.speed_select.as_ref(), lines);
    if !kernel.cpu_options.is_empty() {
        lines.add(1, &format!("kernel options: {}", kernel.cpu_options.join(" ")));
    }
}

/// What the device of Speed Select says, a line for each power domain and for each class of service that has cores.
fn speed_select(facts: Option<&Result<SpeedSelect, String>>, lines: &mut Lines) {
    let facts = match facts {
        Some(Ok(facts)) => facts,
        Some(Err(why)) => return lines.add(1, &format!("Speed Select says nothing: {why}")),
        None => return,
    };
    for unread in facts.unread_in_words() {
        lines.add(1, &format!("Speed Select: cannot read {unread}"));
    }
    for domain in &facts.domains {
        let mut parts = Vec::new();
        if let Some(profile) = &domain.profile {
            let locked = if profile.is_locked { ", locked" } else { "" };
            parts.push(format!("level {}{locked}", profile.level));
        }
        let switches = [
            ("base frequency", domain.is_base_frequency_on),
            ("turbo frequency", domain.is_turbo_frequency_on),
        ];
        let on = switches.into_iter().filter(|(_, is_on)| *is_on);
        parts.extend(on.map(|(name, _)| format!("{name} on")));
        parts.push(match facts.core_power_of(domain) {
            Ok(power) => format!("core power {power}"),
            Err(NoCorePower::Missing) => "no core power".to_owned(),
            Err(NoCorePower::Unread(_)) => "core power not known".to_owned(),
        });
        lines
            .add(1, &format!("Speed Select of power domain {}: {}", domain.name, parts.join(", ")));
        for (number, ClosLimits { min_mhz, max_mhz, weight }) in (0..).zip(&domain.clos) {
            let cpus = domain.cpus_of_class(number);
            if !cpus.is_empty() {
                let cpus = count_and_list(&cpus);
                let limits = format!("{min_mhz} to {max_mhz} MHz, weight {weight}");
                lines.add(2, &format!("class of service {number}: {limits}: {cpus}"));
            }
        }
    }
}

/// CPUs with the same frequencies share a line.
fn frequencies(policies: &[FrequencyPolicy], lines: &mut Lines) {
    type Range = (Option<Khz>, Option<Khz>, Option<Khz>, Option<String>);
    let mut ranges: BTreeMap<Range, CpuSet> = BTreeMap::new();
    for policy in policies {
        let key = (policy.base, policy.min, policy.max, policy.preference.clone());
        ranges.entry(key).or_default().union_with(&policy.cpus);
    }
    for ((base, min, max, preference), cpus) in ranges {
        let mut parts = Vec::new();
        match (min, max) {
            (Some(min), Some(max)) => parts.push(format!("{min} to {max}")),
            (None, Some(max)) => parts.push(format!("up to {max}")),
            (Some(min), None) => parts.push(format!("from {min}")),
            (None, None) => {}
        }
        parts.extend(base.map(|base| format!("base {base}")));
        parts.extend(preference.map(|preference| format!("preference {preference}")));
        if !parts.is_empty() {
            lines.add(1, &format!("frequency: {}: {}", parts.join(", "), count_and_list(&cpus)));
        }
    }
}

/// Side caches, speed and huge pages of a node.
pub(super) fn memory_details(node: &NumaNode, depth: usize, lines: &mut Lines) {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(node.speed.bandwidth.map(|mbps| format!("{mbps} MB/s")));
    parts.extend(node.speed.latency.map(|ns| format!("{ns} ns")));
    parts.extend(node.is_movable_only.then(|| "movable memory only".to_owned()));
    parts.extend(node.side_caches.iter().map(|size| format!("a side cache of {size}")));
    for pages in node.huge_pages.iter().filter(|pages| pages.total > 0) {
        parts.push(format!("{} huge pages of {} ({} free)", pages.total, pages.size, pages.free));
    }
    if !parts.is_empty() {
        lines.add(depth, &format!("memory: {}", parts.join(", ")));
    }
}

/// The devices of one node, or those of none; virtual functions are counted at their physical one.
pub(super) fn devices(topology: &Topology, node: Option<NodeId>, depth: usize, lines: &mut Lines) {
    let devices = topology.devices();
    let shown = devices.iter().filter(|device| {
        device.node == node && device.kind != DeviceKind::Other && device.physical.is_none()
    });
    for device in shown {
        let functions = devices.iter().filter(|other| other.physical == Some(device.address));
        lines.add(depth, &describe(device, functions.count()));
    }
}

fn describe(device: &Device, functions: usize) -> String {
    let mut line = device.kind.name().to_owned();
    for name in device.interfaces.iter().chain(&device.dev_nodes) {
        // Writing to a String cannot fail.
        let _ = write!(line, " {name}");
    }
    if let Some(node) = device.memory_node {
        let _ = write!(line, ", memory on node {node}");
    }
    let driver = device.driver.iter().map(|driver| format!(", {driver}")).collect::<String>();
    let _ = write!(line, " ({}{driver})", device.address);
    if functions > 0 {
        let _ = write!(line, ", {}", plural(functions, "virtual function"));
    }
    line
}

/// A row per node, with a column per node.
pub(super) fn distances(topology: &Topology, lines: &mut Lines) {
    let nodes = topology.nodes();
    if !(2..=DISTANCES_SHOWN).contains(&nodes.len()) {
        return;
    }
    let ids = fold_numbers(nodes.iter().map(|node| node.id.0).collect());
    lines.add(0, &format!("Distances between NUMA nodes {ids}:"));
    for from in nodes {
        let mut row = format!("{:>4}:", from.id.0);
        for to in nodes {
            match topology.distance(from.id, to.id) {
                Some(distance) => {
                    let _ = write!(row, " {distance:>3}");
                }
                None => row.push_str("   -"),
            }
        }
        lines.add(0, &row);
    }
}

/// What was odd.
pub(super) fn oddities(topology: &Topology, lines: &mut Lines) {
    let oddities = topology.oddities();
    if oddities.is_empty() {
        return;
    }
    lines.add(0, "Odd:");
    for oddity in oddities.iter().take(ODDITIES_SHOWN) {
        lines.add(1, &oddity.to_string());
    }
    if let Some(more) = oddities.len().checked_sub(ODDITIES_SHOWN).filter(|more| *more > 0) {
        lines.add(1, &format!("and {more} more"));
    }
}
