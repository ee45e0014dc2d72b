//! What the kernel lets processes do. In: a process id. Out: its CPUs and memory nodes; and for ourselves, what we have the right to. The files are in
//! proc_pid_status(5), the rights in capabilities(7).

use std::path::{Path, PathBuf};
use std::{fs, io};

use bayplan_types::{CpuSet, NodeSet, ParseSetError};

use crate::kernel::Kernel;

/// Why a process's sets could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A line is missing or is not a list.
    #[error("{} has no usable `{key}` line", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's key.
        key: &'static str,
        /// What was wrong with its value, if it was there.
        #[source]
        source: Option<ParseSetError>,
    },
}

/// `Cpus_allowed_list` and `Mems_allowed_list` of `/proc/PID/status` (proc(5)) under `root`; `None` when there is no such process.
///
/// # Errors
/// [`ProcessError`] when the file cannot be read or lacks these lines.
pub fn read_process_pinning(
    root: &Path,
    pid: u32,
) -> Result<Option<(CpuSet, NodeSet)>, ProcessError> {
    let path = root.join("proc").join(pid.to_string()).join("status");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // The process ended between open and read (ESRCH).
        Err(error) if error.raw_os_error() == Some(3) => return Ok(None),
        Err(source) => return Err(ProcessError::Read { path, source }),
    };
    let cpus = parse_line(&text, "Cpus_allowed_list").map_err(|e| e.at(&path))?;
    let mems = parse_line(&text, "Mems_allowed_list").map_err(|e| e.at(&path))?;
    Ok(Some((cpus, mems)))
}

/// Whether we have a capability in force, by its number in linux/capability.h (`CapEff` in `/proc/self/status`, proc_pid_status(5)).
/// `None`: the kernel does not tell.
pub fn read_capability(kernel: &mut dyn Kernel, number: u32) -> Option<bool> {
    let text = kernel.read("proc/self/status").ok()?;
    let mask = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask.checked_shr(number)? & 1 == 1)
}

struct LineError(&'static str, Option<ParseSetError>);

impl LineError {
    fn at(self, path: &Path) -> ProcessError {
        ProcessError::Line { path: path.to_owned(), key: self.0, source: self.1 }
    }
}

fn parse_line<T: std::str::FromStr<Err = ParseSetError>>(
    status: &str,
    key: &'static str,
) -> Result<T, LineError> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .ok_or(LineError(key, None))?;
    value.parse().map_err(|source| LineError(key, Some(source)))
}

#[cfg(test)]
mod tests {
    use crate::fake_kernel::FakeKernel;

    use super::*;

    fn check(status: &str, expected: Result<Option<(&str, &str)>, &str>) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        fs::write(root.path().join("proc/7/status"), status).unwrap();
        let read = read_process_pinning(root.path(), 7)
            .map(|found| found.map(|(cpus, mems)| (cpus.to_string(), mems.to_string())))
            .map_err(|error| error.to_string().replace(&root.path().display().to_string(), ""));
        let expected = expected
            .map(|found| found.map(|(cpus, mems)| (cpus.to_owned(), mems.to_owned())))
            .map_err(str::to_owned);
        assert_eq!(read, expected);
    }

    #[test]
    fn status_lines_are_read_or_named() {
        let good =
            "Name:\tsh\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t0-1\n";
        check(good, Ok(Some(("0-3,8", "0-1"))));
        check("Name:\tsh\n", Err("/proc/7/status has no usable `Cpus_allowed_list` line"));
        let garbage = "Cpus_allowed_list:\t0-x\nMems_allowed_list:\t0\n";
        check(garbage, Err("/proc/7/status has no usable `Cpus_allowed_list` line"));
    }

    #[test]
    fn a_process_that_is_gone_is_not_an_error() {
        assert!(read_process_pinning(Path::new("/nonexistent"), 1).unwrap().is_none());
    }

    #[test]
    fn our_own_process_is_read_from_the_real_kernel() {
        let (cpus, _) = read_process_pinning(Path::new("/"), std::process::id()).unwrap().unwrap();
        assert!(!cpus.is_empty());
    }

    #[test]
    fn a_capability_is_in_force_not_or_not_told() {
        for (status, number, due) in [
            ("Name:\tx\nCapPrm:\t0\nCapEff:\t0000000000200000\n", 21, Some(true)),
            ("CapPrm:\t000001ffffffffff\nCapEff:\t000000c000000000\n", 21, Some(false)),
            ("CapEff:\t000000c000000000\n", 39, Some(true)),
            ("CapEff:\t000000c000000000\n", 64, None),
            ("CapEff:\tx\n", 21, None),
            ("Name:\tx\n", 21, None),
        ] {
            let mut kernel = FakeKernel::new(&[("proc/self/status", status)]);
            assert_eq!(read_capability(&mut kernel, number), due, "{status}");
        }
        assert_eq!(read_capability(&mut FakeKernel::new(&[]), 21), None);
    }
}
