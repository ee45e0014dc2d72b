//! What was found of a node: a value that `bayplan check`, the log and the metrics share.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, but not as well as it could.
    Warning,
    /// Does not work.
    Failure,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, a short word.
    pub check: &'static str,
    /// How it is.
    pub severity: Severity,
    /// What was found and what to do.
    pub message: String,
    /// What mends it, for what is not as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
}

/// What mends a finding that is not as it should be, by what was looked at.
const REMEDIES: [(&str, &str); 20] = [
    ("affinity", "take CPUAffinity= out of the runtime's unit, and make the containers anew"),
    (
        "cgroups",
        "start the kernel with cgroup v2 (systemd.unified_cgroup_hierarchy=1), and enable the controller cpuset for kubepods",
    ),
    (
        "cgroup-driver",
        "make the containers of the old driver anew, for example by draining the node",
    ),
    (
        "claims",
        "give one of the two systems these CPUs, and take them out of the other's configuration",
    ),
    (
        "configuration",
        "correct the file; `bayplan config check` names line and column, `bayplan config show` every key",
    ),
    (
        "kubelet-cpu",
        "set kubelet's cpuManagerPolicy to none, remove its state file, and start it again",
    ),
    ("disks", "choose the scheduler bfq, or io.cost.qos, for these disks, or leave the weight out"),
    (
        "holds",
        "`bayplan plan` says what is still to be written, `bayplan why CONTAINER` what it costs",
    ),
    (
        "kubelet",
        "start kubelet with the socket that Bayplan serves, cpuManagerPolicy none and memoryManagerPolicy None",
    ),
    ("limits", "raise cpuset.cpus and cpuset.mems of kubepods and the groups above it"),
    (
        "machine",
        "compare with `bayplan topology`; what firmware or a hypervisor tells wrongly has to be mended there",
    ),
    (
        "kubelet-memory",
        "set kubelet's memoryManagerPolicy to None, remove its state file, and start it again",
    ),
    ("nri", "enable NRI in the runtime's configuration, or set frontEnd: cri"),
    ("pinner", "stop the other program that pins containers, or have Bayplan drained"),
    ("probes", "give the daemon CAP_BPF and CAP_PERFMON, a kernel with BTF, or set probes: off"),
    ("requests", "leave the key out, or use a machine that has it"),
    (
        "reserved",
        "set reservedCpus to CPUs that are online, not isolated and allowed to pods, as kubelet's reservedSystemCPUs",
    ),
    ("resctrl", "mount /sys/fs/resctrl, and take out classes that this processor does not have"),
    ("rights", "run as root, or choose other paths"),
    ("runtime", "start the runtime, or correct runtimeSocket"),
];

fn remedy_of(check: &str, severity: Severity) -> Option<&'static str> {
    let found = REMEDIES.iter().find(|(of, _)| *of == check).map(|(_, remedy)| *remedy);
    debug_assert!(severity == Severity::Ok || found.is_some(), "no remedy for {check}");
    found.filter(|_| severity != Severity::Ok)
}

impl Finding {
    /// With the remedy of its check.
    pub fn new(check: &'static str, severity: Severity, message: String) -> Finding {
        Finding { check, severity, message, remedy: remedy_of(check, severity) }
    }
}

pub(crate) fn finding(
    check: &'static str,
    severity: Severity,
    message: impl Into<String>,
) -> Finding {
    Finding::new(check, severity, message.into())
}
