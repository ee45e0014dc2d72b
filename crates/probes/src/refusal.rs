//! Why something could not be attached, and what would mend it. In: an error of the loader. Out: two sentences for the operator.

use std::error::Error;
use std::fmt;
use std::io;

use nix::errno::Errno;

/// Why a probe is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What happened.
    pub reason: String,
    /// What would mend it.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.remedy)
    }
}

/// What stands around a refusal: the machine's word on what may be read of its kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// `/sys/kernel/security/lockdown`, such as `none [integrity] confidentiality`.
    pub(crate) lockdown: Option<String>,
}

impl Surroundings {
    /// Reads them.
    pub(crate) fn read() -> Surroundings {
        Surroundings { lockdown: std::fs::read_to_string("/sys/kernel/security/lockdown").ok() }
    }

    fn is_confidential(&self) -> bool {
        self.lockdown.as_deref().is_some_and(|text| text.contains("[confidentiality]"))
    }
}

/// Judges why `doing` failed.
pub(crate) fn judge(
    doing: &str,
    error: &(dyn Error + 'static),
    surroundings: &Surroundings,
) -> Refusal {
    let errno = errno_of(error);
    let (reason, remedy) = match errno {
        // The verifier then does not know the helpers that read the kernel's memory, which is a program that is not valid.
        Some(Errno::EPERM | Errno::EINVAL | Errno::EACCES) if surroundings.is_confidential() => (
            format!("{doing}: the kernel is locked down (confidentiality)"),
            "boot with lockdown=integrity or without lockdown",
        ),
        Some(Errno::EPERM) => (
            format!("{doing}: not permitted"),
            "give the process CAP_BPF and CAP_PERFMON, and allow it the system call bpf (SystemCallFilter=bpf; in a container a seccomp \
             profile that does)",
        ),
        Some(Errno::ENOMEM) => (
            format!("{doing}: no memory"),
            "raise the limit of the cgroup of the process (MemoryMax=), or on kernels before 5.11 LimitMEMLOCK=",
        ),
        Some(Errno::ENOSYS) => (
            format!("{doing}: the kernel has no bpf system call, or a filter hides it"),
            "use a kernel with CONFIG_BPF_SYSCALL=y, and allow the system call bpf",
        ),
        Some(Errno::EINVAL | Errno::EACCES) => (
            format!("{doing}: the kernel refuses it ({})", first_line(error)),
            "use a kernel from 5.16 on; if it is one, please report this with `bayplan check -o json`",
        ),
        _ => (
            format!("{doing}: {}", first_line(error)),
            "use a kernel from 5.16 on with CONFIG_DEBUG_INFO_BTF=y, as distributions ship them",
        ),
    };
    Refusal { reason, remedy: remedy.to_owned() }
}

/// The system's error number, wherever in the chain it is.
pub(crate) fn errno_of(error: &(dyn Error + 'static)) -> Option<Errno> {
    let mut at = Some(error);
    while let Some(error) = at {
        let own = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if let Some(errno) = own {
            return Some(Errno::from_raw(errno));
        }
        at = error.source();
    }
    None
}

/// The innermost error's first line: the verifier's words are pages.
fn first_line(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// As libraries do: an error around the system's.
    #[derive(Debug)]
    struct Wrapped(io::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "the syscall failed\npage after page of the verifier")
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[track_caller]
    fn check(errno: Errno, lockdown: Option<&str>, expected: Expect) {
        let error = Wrapped(io::Error::from(errno));
        let surroundings = Surroundings { lockdown: lockdown.map(str::to_owned) };
        expected.assert_eq(&judge("loading switched", &error, &surroundings).to_string());
    }

    #[test]
    fn a_refusal_says_what_would_mend_it() {
        check(
            Errno::EPERM,
            None,
            expect![
                "loading switched: not permitted; give the process CAP_BPF and CAP_PERFMON, and allow it the system call bpf (SystemCallFilter=bpf; in a container a seccomp profile that does)"
            ],
        );
        check(
            Errno::EPERM,
            Some("none [integrity] confidentiality\n"),
            expect![
                "loading switched: not permitted; give the process CAP_BPF and CAP_PERFMON, and allow it the system call bpf (SystemCallFilter=bpf; in a container a seccomp profile that does)"
            ],
        );
        for errno in [Errno::EPERM, Errno::EINVAL] {
            check(
                errno,
                Some("none integrity [confidentiality]\n"),
                expect![
                    "loading switched: the kernel is locked down (confidentiality); boot with lockdown=integrity or without lockdown"
                ],
            );
        }
        check(
            Errno::ENOMEM,
            None,
            expect![
                "loading switched: no memory; raise the limit of the cgroup of the process (MemoryMax=), or on kernels before 5.11 LimitMEMLOCK="
            ],
        );
        check(
            Errno::ENOSYS,
            None,
            expect![
                "loading switched: the kernel has no bpf system call, or a filter hides it; use a kernel with CONFIG_BPF_SYSCALL=y, and allow the system call bpf"
            ],
        );
        check(
            Errno::EINVAL,
            None,
            expect![
                "loading switched: the kernel refuses it (Invalid argument (os error 22)); use a kernel from 5.16 on; if it is one, please report this with `bayplan check -o json`"
            ],
        );
        check(
            Errno::ENOENT,
            None,
            expect![
                "loading switched: No such file or directory (os error 2); use a kernel from 5.16 on with CONFIG_DEBUG_INFO_BTF=y, as distributions ship them"
            ],
        );
    }

    #[test]
    fn an_error_without_a_number_is_told_by_its_first_line() {
        let error: Box<dyn Error> = "unknown BTF type name `x`\nmore".into();
        let refusal = judge("finding sched_switch", &*error, &Surroundings::default());
        assert_eq!(refusal.reason, "finding sched_switch: unknown BTF type name `x`");
    }
}
