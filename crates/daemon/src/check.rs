//! Looks at a node before the daemon is trusted with it. In: a configuration, the files of the node, the runtime. Out: findings.

use std::path::Path;

use bayplan_allocator::policy::{PoolsError, pools};
use bayplan_cri::upstream::Upstream;
use bayplan_enforcement::{WEIGHT_REMEDY, idle_weight};
use bayplan_host::kernel::DiskKernel;
use bayplan_host::{
    Depth, read_block_devices, read_runtime_affinity, read_snapshot, read_undivided_disks,
};
use bayplan_node::reconfigure::check_division;
use bayplan_node::status::{ContainerStatus, Status};
use bayplan_probes::{Probe, ProbeState, Probes, Refusal};
use bayplan_topology::{Topology, derive};
use bayplan_types::CpuSet;

use crate::check_cgroups::check_cgroups;
use crate::check_front_end::{check_front_end, check_kubelet_sockets};
use crate::check_groups::check_groups;
use crate::check_speed_select::check_speed_select;
use crate::config::{Config, counter_choice};
use crate::control::query_control;
use crate::enforcer::{check_classes, patterns_of};
use crate::neighbours::{check_driver, check_neighbours};
use crate::read_machine::{AsItWas, read_own_snapshot};
use crate::scheduling_class::{check_realtime, check_scheduling};
use crate::socket::find_group;

pub use crate::finding::{Finding, Severity};

/// Everything about a node that the daemon needs.
pub async fn check_node(config: &Config) -> Vec<Finding> {
    let mut findings = check_machine(config);
    findings.push(check_cgroups(&config.host_root));
    findings.push(check_rights(config));
    findings.push(check_speed_select(config));
    findings.push(check_runtime(config).await);
    findings.extend(check_neighbours(&config.host_root));
    // CRI does not tell of cgroups afterwards; a daemon that runs has heard of them.
    let status = query_control::<Status>(&config.control_socket, "/api/v1/status").await;
    findings.extend(check_front_end(config, status.as_ref().ok()));
    findings.extend(check_kubelet_sockets(config));
    if let Ok(status) = &status {
        findings.extend(check_driver(status));
        findings.extend(check_holds(status));
    }
    findings.extend(check_affinity(&config.host_root));
    findings.extend(check_probes(config));
    findings
}

/// Containers that have not what was asked for them.
fn check_holds(status: &Status) -> Vec<Finding> {
    let off = status.containers.iter().filter(|it| it.is_off());
    let texts = off.flat_map(ContainerStatus::full_holds_texts);
    let remedy =
        "`bayplan plan` says what is still to be written, `bayplan why CONTAINER` what it costs";
    texts.map(|text| Finding::warning("holds", text, remedy)).collect()
}

/// An affinity of the runtime, which every container inherits.
fn check_affinity(root: &Path) -> Option<Finding> {
    let mut kernel = DiskKernel::open(root).ok()?;
    let (program, cpus) = read_runtime_affinity(root, &mut kernel)?;
    let message = format!(
        "{program} itself may run on CPUs {cpus} only, and containers inherit that whatever their CPU sets say"
    );
    let remedy = "take CPUAffinity= out of its unit, or start it without taskset, and make the containers anew";
    Some(Finding::warning("affinity", message, remedy))
}

/// Whether this process could attach each probe, which it does for a moment. The daemon's own rights may be others.
fn check_probes(config: &Config) -> Vec<Finding> {
    if !config.has_probes {
        return vec![Finding::ok("probes", "off, as the configuration says")];
    }
    let Ok(snapshot) = read_snapshot(&config.host_root, Depth::Placement) else {
        return Vec::new();
    };
    let Ok(topology) = derive(&snapshot) else { return Vec::new() };
    let table = match Probes::attach(&topology, counter_choice(config.counters)) {
        Ok(probes) => probes.table(),
        Err(refusal) => Probes::table_of_refused(&refusal, counter_choice(config.counters)),
    };
    let row = |Probe { name, counts, state }: Probe| match state {
        ProbeState::Attached => Finding::ok("probes", format!("{name} can be attached: {counts}")),
        ProbeState::Waiting => {
            let message = format!("{name} can be loaded, for when a container owns CPUs: {counts}");
            Finding::ok("probes", message)
        }
        ProbeState::Unsupported(refusal) => {
            Finding::ok("probes", format!("{name} ({counts}) unsupported. {refusal}"))
        }
        ProbeState::Refused(refusal) => {
            let Refusal { reason, remedy } = refusal;
            let message = format!("{name} ({counts}) cannot be attached. {reason}");
            Finding::warning("probes", message, remedy)
        }
    };
    table.into_iter().map(row).collect()
}

/// The machine below `hostRoot`, and why its energy preferences are not known, if they are not.
///
/// # Errors
/// It cannot be read, or there is no CPU.
pub fn read_checked_machine(config: &Config) -> anyhow::Result<(Topology, Option<String>)> {
    // Every file, to see contradictions that a quick reading would not.
    let AsItWas { read, unknown } =
        read_own_snapshot(&config.host_root, &config.state_dir, Depth::Cpus)?;
    Ok((derive(&read)?, unknown))
}

/// What mends a machine that cannot be read.
const READABLE: &str =
    "see that /sys and /proc are mounted below hostRoot, and that this user may read them";

/// What is odd about the machine, and what the configuration wants that it does not have.
pub fn check_machine(config: &Config) -> Vec<Finding> {
    let (topology, unknown) = match read_checked_machine(config) {
        Ok(read) => read,
        Err(error) => return vec![Finding::failure("machine", format!("{error:#}"), READABLE)],
    };
    let mut findings = check_topology(config, &topology);
    findings.extend(unknown.map(|why| {
        let message = format!("{why}; which energy preferences are the machine's own is not known");
        let remedy =
            "let this user read the state directory (stateDir); run as root where the daemon does";
        Finding::warning("machine", message, remedy)
    }));
    findings.extend(check_weights(config));
    findings.extend(check_resctrl(config));
    let kernel = DiskKernel::open(&config.host_root);
    findings.extend(kernel.ok().and_then(|mut kernel| check_realtime(config, &mut kernel)));
    findings
}

/// The same of a machine that need not be this one: nothing that lies in files is looked at.
pub fn check_topology(config: &Config, topology: &Topology) -> Vec<Finding> {
    let shape = format!("{} CPUs, {} NUMA nodes", topology.cpus().len(), topology.nodes().len());
    let mut findings = match topology.oddities() {
        [] => vec![Finding::ok("machine", shape)],
        odd => odd
            .iter()
            .map(|oddity| {
                let remedy = "compare with `bayplan topology`; what firmware or a hypervisor tells wrongly has to be mended there";
                Finding::warning("machine", oddity.to_string(), remedy)
            })
            .collect(),
    };
    findings.extend(check_limits(topology));
    findings.push(check_reserved(config, topology));
    let isolated = isolated_reserved(topology, &config.division().reserved_on(topology));
    findings.extend(isolated.map(|message| Finding::warning("reserved", message, ISOLATED)));
    findings.extend(check_wants(config, topology));
    findings.extend(check_groups(config, topology));
    findings.extend(check_scheduling(config));
    findings
}

/// What mends several reserved CPUs that are isolated.
pub(crate) const ISOLATED: &str = "reserve others, or take them out of isolcpus";

/// What is wrong with several reserved CPUs that are isolated: the kernel does not spread threads over those (`isolcpus` in
/// `Documentation/admin-guide/kernel-parameters.txt`).
pub(crate) fn isolated_reserved(topology: &Topology, reserved: &CpuSet) -> Option<String> {
    let isolated = reserved.intersection(topology.isolated());
    (isolated.len() > 1).then(|| {
        format!(
            "reservedCpus: {isolated} are isolated, and the kernel does not balance load among isolated CPUs: threads of system pods stay on \
             one of them"
        )
    })
}

/// Classes of caches and bandwidth that cannot be had here.
fn check_resctrl(config: &Config) -> Vec<Finding> {
    let Ok(mut kernel) = DiskKernel::open(&config.host_root) else { return Vec::new() };
    let found = check_classes(&mut kernel, &config.resctrl).into_iter();
    let remedy = "correct resctrl.partitions, or set `optional: true` below resctrl.options for what a machine may lack";
    found.map(|message| Finding::warning("resctrl", message, remedy)).collect()
}

/// Weights for all disks that do nothing on some.
fn check_weights(config: &Config) -> Vec<Finding> {
    let classes = &config.block_io_classes;
    if classes.is_empty() {
        return Vec::new();
    }
    let devices = read_block_devices(&config.host_root, patterns_of(classes.values()));
    let undivided = read_undivided_disks(&config.host_root);
    let idle = classes.iter();
    let idle = idle.filter_map(|(name, class)| idle_weight(name, class, &devices, &undivided));
    idle.map(|message| Finding::warning("disks", message, WEIGHT_REMEDY)).collect()
}

/// What the groups around pods keep from containers.
fn check_limits(topology: &Topology) -> Vec<Finding> {
    let remedy = "containers are placed within these; where that is not wanted, look at cpuset.cpus, cpuset.mems and AllowedCPUs of kubepods and the groups above it";
    let mut findings = Vec::new();
    if let Some(cpus) = topology.pods_cpus() {
        let message = format!(
            "the cgroups around pods allow CPUs {cpus} and keep {} from containers",
            topology.withheld()
        );
        findings.push(Finding::warning("limits", message, remedy));
    }
    if let Some(mems) = topology.pods_mems() {
        let message = format!("the cgroups around pods allow memory nodes {mems} only");
        findings.push(Finding::warning("limits", message, remedy));
    }
    findings
}

/// What mends reserved CPUs that cannot be had, or do not do.
const RESERVE: &str = "set reservedCpus to CPUs that are online, not isolated and allowed to pods, as kubelet's reservedSystemCPUs";

fn check_reserved(config: &Config, topology: &Topology) -> Finding {
    let division = config.division();
    let failure = |error: &dyn std::fmt::Display| {
        Finding::failure("reserved", format!("reservedCpus: {error}"), RESERVE)
    };
    if let Err(error) = division.check(topology) {
        return failure(&error);
    }
    let reserved = division.reserved_on(topology);
    match pools(&division.machine(topology), config.policy, &reserved) {
        Err(PoolsError::ReservedNotOnline { missing, .. })
            if missing.is_subset(topology.offline()) =>
        {
            let message = format!("reservedCpus: {missing} are offline; others stand in for them");
            Finding::warning("reserved", message, RESERVE)
        }
        Err(PoolsError::NothingLeft { .. }) if check_division(topology, &division).is_ok() => {
            let message = format!(
                "reservedCpus: {reserved} are all that containers could have just now: other CPUs are offline or taken"
            );
            Finding::warning("reserved", message, RESERVE)
        }
        Err(error) => failure(&error),
        Ok(_) if reserved.is_empty() => Finding::warning(
            "reserved",
            "no CPUs are reserved, so system pods share with all others",
            "set reservedCpus to those that kubelet reserves (reservedSystemCPUs)",
        ),
        Ok(_) if reserved.intersects(&topology.withheld()) => {
            let message = format!(
                "reservedCpus: {} are not allowed to containers, so system pods cannot run there",
                reserved.intersection(&topology.withheld())
            );
            Finding::warning("reserved", message, RESERVE)
        }
        Ok(_) => Finding::ok("reserved", format!("CPUs {reserved}")),
    }
}

/// What is preferred for all containers, but cannot be had here.
fn check_wants(config: &Config, topology: &Topology) -> Vec<Finding> {
    let requests = &config.requests;
    let lacks = |key: &str, what: &str| {
        let message = format!("requests.{key} has no effect: this machine has no {what}");
        Finding::warning("requests", message, "leave the key out, or use a machine that has it")
    };
    let mut findings = Vec::new();
    if requests.prefer_isolated_cpus && topology.isolated().is_empty() {
        findings.push(lacks(
            "preferIsolatedCpus",
            "isolated CPUs (isolcpus on the kernel's command line)",
        ));
    }
    let reserved = config.division().reserved_on(topology);
    if let Some(level) = requests.burst_level
        && pools(topology, config.policy, &reserved).is_ok_and(|it| !it.shares_level(level))
    {
        let what =
            format!("{level} with shared CPUs of its own, and the next larger domain is used");
        findings.push(lacks("unlimitedBurstable", &what));
    }
    if let Some(priority) = requests.priority
        && topology.cpus_of_priority(priority).is_empty()
    {
        let what = format!("CPUs of priority {}", format!("{priority:?}").to_lowercase());
        findings.push(lacks("defaultCpuPriority", &what));
    }
    findings
}

fn check_rights(config: &Config) -> Finding {
    let dirs = [config.socket.parent(), config.control_socket.parent(), Some(&config.state_dir)];
    for dir in dirs.into_iter().flatten() {
        // The nearest directory that exists is the one in which the others would be made.
        let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
        if let Err(error) = nix::unistd::access(existing, nix::unistd::AccessFlags::W_OK) {
            let message = format!("cannot write to {} ({error})", existing.display());
            return Finding::failure("rights", message, "run as root, or choose other paths");
        }
    }
    if let Err(error) = find_group(&config.control_group) {
        let remedy = "set controlGroup to a group that there is, or leave it out";
        return Finding::failure("rights", format!("controlGroup: {error:#}"), remedy);
    }
    Finding::ok("rights", "sockets and journal can be written")
}

async fn check_runtime(config: &Config) -> Finding {
    let upstream = Upstream::new(config.runtime_socket.clone(), config.runtime_timeout);
    match upstream.version().await {
        Ok(version) => Finding::ok("runtime", format!("{} {}", version.name, version.version)),
        Err(error) => {
            let remedy = "start the runtime, or correct runtimeSocket";
            Finding::failure("runtime", error.to_string(), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_topology::parse_machine;
    use expect_test::expect;

    use super::*;
    use crate::config::parse_config;

    #[test]
    fn several_isolated_cpus_that_are_reserved_are_told() {
        let snapshot = parse_machine("numa:1 core:4 pu:2 isolated:2-3").unwrap();
        let topology = derive(&snapshot).unwrap();
        for (reserved, expected) in [("0,2", false), ("2", false), ("2-3", true), ("0-7", true)] {
            let told = isolated_reserved(&topology, &reserved.parse().unwrap());
            assert_eq!(told.is_some(), expected, "{reserved}: {told:?}");
            let named = told.is_none_or(|it| it.contains("2-3 are isolated"));
            assert!(named, "{reserved}");
        }
    }

    #[test]
    fn a_remedy_is_one_of_the_finding_and_not_of_its_check() {
        let topology = derive(&parse_machine("numa:1 core:4").unwrap()).unwrap();
        let check = |text: &str| {
            let config = parse_config(Path::new("c"), text).unwrap();
            let found = check_topology(&config, &topology).into_iter();
            let wrong = found.filter(|it| it.severity != Severity::Ok);
            let lines =
                wrong.map(|it| format!("{}: {}\n  {:?}\n", it.check, it.message, it.remedy()));
            lines.collect::<String>()
        };
        expect![[r#"
            reserved: no CPUs are reserved, so system pods share with all others
              Some("set reservedCpus to those that kubelet reserves (reservedSystemCPUs)")
        "#]]
        .assert_eq(&check("reservedCpus: ''"));
        expect![[r#"
            reserved: reservedCpus: reserved CPUs 9 are not online; this machine has 0-3
              Some("set reservedCpus to CPUs that are online, not isolated and allowed to pods, as kubelet's reservedSystemCPUs")
        "#]].assert_eq(&check("reservedCpus: '9'"));
        expect![[r#"
            requests: requests.preferIsolatedCpus has no effect: this machine has no isolated CPUs (isolcpus on the kernel's command line)
              Some("leave the key out, or use a machine that has it")
        "#]].assert_eq(&check("reservedCpus: '0'\nrequests: {preferIsolatedCpus: true}"));
        expect![[r#"
            requests: requests.unlimitedBurstable has no effect: this machine has no L3 with shared CPUs of its own, and the next larger domain is used
              Some("leave the key out, or use a machine that has it")
        "#]].assert_eq(&check("reservedCpus: '0'\nrequests: {unlimitedBurstable: l3cache}"));
    }

    #[test]
    fn a_weight_that_does_nothing_is_named_with_the_disks() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in
            [("dev", "254:0\n"), ("device/type", "0\n"), ("queue/scheduler", "[none]\n")]
        {
            let path = root.path().join("sys/block/vda").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let check = |class: &str| {
            let text = format!("hostRoot: {}\n{class}", root.path().display());
            let config = parse_config(Path::new("c"), &text).unwrap();
            let found = check_weights(&config).into_iter();
            found.map(|it| format!("{:?} {}\n", it.severity, it.message)).collect::<String>()
        };
        assert_eq!(check(""), "");
        assert_eq!(check("blockIo: {classes: {slow: []}}"), "");
        expect![[r#"
            Warning block I/O class "slow": its weight does nothing on vda: neither the scheduler bfq nor io.cost.qos divides there
        "#]]
        .assert_eq(&check("blockIo: {classes: {slow: [{Weight: 50}]}}"));
    }
}
