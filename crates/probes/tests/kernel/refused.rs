//! What a machine is told that has no probes: what happened, and what would mend it. Each is tried by a separate process with rights and files of its
//! own.

use std::path::Path;
use std::process::Command;

use crate::work::Worker;

/// What a process that has begun to `lack` something is told.
#[track_caller]
fn check(lack: &str, expected: [&str; 2]) {
    let mut worker = Worker::new(None, 0, &format!("attach {lack}"));
    worker.begin();
    let said = worker.hear();
    print!("({said}) ");
    for words in expected {
        assert!(said.contains(words), "{said}, expected {words}");
    }
}

pub(crate) fn a_process_that_may_not_load_programs_is_told_so() {
    check("capabilities", [": not permitted; ", "give the process CAP_BPF and CAP_PERFMON"]);
}

pub(crate) fn a_kernel_without_types_is_told() {
    check("types", ["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF=y"]);
}

/// Only in the lab's guests, which are told by a file of theirs: nothing but a new boot takes it back.
pub(crate) fn a_kernel_that_is_locked_down_is_told() {
    if std::env::var_os("BAYPLAN_EMULATED").is_none() || !Path::new("/lab/machine").is_file() {
        print!("(only in the lab) ");
        return;
    }
    let lock = "mount -t securityfs securityfs /sys/kernel/security; echo confidentiality > /sys/kernel/security/lockdown";
    let status = Command::new("sh").args(["-c", lock]).status();
    assert!(status.unwrap().success(), "this kernel cannot be locked down");
    check("nothing", ["the kernel is locked down (confidentiality)", "lockdown=integrity"]);
}
