//! What files cost here: a record of the journal until it is on disk, and kernel files of a control group that has no process. Both are made for that and removed.

use std::path::Path;
use std::time::{Duration, Instant};

use bayplan_host::journal::{Journal, JournalError};
use bayplan_host::kernel::{DiskKernel, Kernel as _};
use bayplan_types::CpuSet;
use nix::errno::Errno;

use crate::bench::figures::{Figure, LeftOut, Part};

/// Below the daemon's state directory, on the same disk. What a killed run has left is used again.
const JOURNAL_DIR: &str = "bench";
/// A record of a container with what kubelet says of it is about as long.
const RECORD_BYTES: usize = 600;
/// Roots of control groups with CPU sets: of version 2, and of version 1.
const CGROUPS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/cpuset"];
const GROUP: &str = "bayplan-bench";

/// Appends records like those that there are, and waits for the disk after each, as the daemon does before it answers.
pub(super) fn journal(state_dir: &Path, records: &[String], rounds: usize) -> Part {
    let name = "journal: one record, until it is on disk";
    if !state_dir.is_dir() {
        let reason = format!("there is no {}: no daemon has run here", state_dir.display());
        return (Vec::new(), vec![LeftOut::new(name, reason)]);
    }
    let dir = state_dir.join(JOURNAL_DIR);
    let appended = append(&dir, records, rounds);
    // While another run has it, it is not ours to remove.
    if !matches!(appended, Err(JournalError::Locked { .. })) {
        // It was never made where the directory may not be written.
        let _removed = std::fs::remove_dir_all(&dir);
    }
    match appended {
        Ok((times, bytes)) => {
            let result = format!("{bytes} bytes each");
            (Figure::of(name, result, &times).into_iter().collect(), Vec::new())
        }
        Err(JournalError::Locked { .. }) => {
            (Vec::new(), vec![LeftOut::new(name, "another `bayplan bench` measures here")])
        }
        Err(error) => {
            (Vec::new(), vec![LeftOut::new(name, format!("{:#}", anyhow::Error::new(error)))])
        }
    }
}

/// Times, and the mean length of a record.
fn append(
    dir: &Path,
    records: &[String],
    rounds: usize,
) -> Result<(Vec<Duration>, usize), JournalError> {
    let usual = ["x".repeat(RECORD_BYTES)];
    let records = if records.is_empty() { &usual[..] } else { records };
    let mean = records.iter().map(String::len).sum::<usize>() / records.len();
    let (mut journal, _) = Journal::open(dir)?;
    journal.rewrite(&[])?;
    let mut times = Vec::new();
    for record in records.iter().cycle().take(rounds) {
        let begun = Instant::now();
        journal.append(std::slice::from_ref(record))?;
        journal.sync()?;
        times.push(begun.elapsed());
    }
    Ok((times, mean))
}

/// Writes a CPU set of a control group of its own to and fro, and reads it.
pub(super) fn kernel_files(root: &Path, cpus: &CpuSet, rounds: usize) -> Part {
    let name = "kernel file: cpuset.cpus of a control group without processes";
    let failed = |reason: String| (Vec::new(), vec![LeftOut::new(name, reason)]);
    let mut kernel = match DiskKernel::open(root) {
        Ok(kernel) => kernel,
        Err(error) => return failed(format!("cannot open {}: {error}", root.display())),
    };
    let mut has_sets = |parent: &&str| {
        ["cpuset.cpus", "cpuset.cpus.effective"]
            .iter()
            .any(|file| kernel.is_there(&format!("{parent}/{file}")))
    };
    let mut parents = CGROUPS.into_iter();
    let Some(parent) = parents.find(&mut has_sets) else {
        return failed("the root of control groups has no CPU sets".to_owned());
    };
    let group = format!("{parent}/{GROUP}");
    match kernel.make_dir(&group) {
        // Of a run that was killed.
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return failed(format!("cannot make {group}: {errno}; root may")),
    }
    let timed = write_and_read(&mut kernel, &format!("{group}/cpuset.cpus"), cpus, rounds);
    // It has no process, so it goes away.
    let removed = kernel.remove_dir(&group);
    let left = removed.err().map(|errno| LeftOut::new(&group, format!("not removed: {errno}")));
    let (figures, reason) = match timed {
        Ok(figures) => (figures, None),
        Err(errno) => (Vec::new(), Some(LeftOut::new(name, format!("{group}: {errno}")))),
    };
    (figures, reason.into_iter().chain(left).collect())
}

fn write_and_read(
    kernel: &mut DiskKernel,
    path: &str,
    cpus: &CpuSet,
    rounds: usize,
) -> Result<Vec<Figure>, Errno> {
    let first: CpuSet = cpus.iter().take(1).collect();
    let texts = [cpus.to_string(), first.to_string()];
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for text in texts.iter().cycle().take(rounds) {
        let begun = Instant::now();
        kernel.write(path, text)?;
        let written = begun.elapsed();
        kernel.read(path)?;
        writes.push(written);
        reads.push(begun.elapsed().saturating_sub(written));
    }
    let figures = [
        Figure::of("kernel file: write a CPU set", String::new(), &writes),
        Figure::of("kernel file: read it", String::new(), &reads),
    ];
    Ok(figures.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_journal_is_measured_beside_that_of_the_daemon_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (_daemon, _) = Journal::open(dir.path()).unwrap();
        // What a killed run has left.
        fs::create_dir(dir.path().join(JOURNAL_DIR)).unwrap();
        fs::write(dir.path().join("bench/journal"), "torn").unwrap();
        let (figures, left_out) = journal(dir.path(), &["{}".to_owned()], 5);
        assert_eq!((figures[0].count, figures[0].result.as_str()), (5, "2 bytes each"));
        assert_eq!(left_out, []);
        assert!(!dir.path().join(JOURNAL_DIR).exists());
    }

    #[test]
    fn a_second_run_at_the_same_time_leaves_the_first_its_journal() {
        let dir = tempfile::tempdir().unwrap();
        let (_first, _) = Journal::open(&dir.path().join(JOURNAL_DIR)).unwrap();
        let (figures, left_out) = journal(dir.path(), &[], 5);
        assert_eq!(figures, []);
        assert_eq!(left_out[0].reason, "another `bayplan bench` measures here");
        assert!(dir.path().join(JOURNAL_DIR).exists());
        let nowhere = dir.path().join("nowhere");
        assert!(journal(&nowhere, &[], 5).1[0].reason.ends_with("no daemon has run here"));
        assert!(!nowhere.exists());
    }

    #[test]
    fn kernel_files_need_control_groups_with_cpu_sets() {
        let root = tempfile::tempdir().unwrap();
        let cpus: CpuSet = "0-3".parse().unwrap();
        let reason = |root: &Path| kernel_files(root, &cpus, 2).1[0].reason.clone();
        assert_eq!(reason(root.path()), "the root of control groups has no CPU sets");
        let group = root.path().join("sys/fs/cgroup/cpuset");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpuset.cpus"), "0-3\n").unwrap();
        // A directory of a disk has no such files by itself: the kernel would have made one.
        assert!(reason(root.path()).starts_with("sys/fs/cgroup/cpuset/bayplan-bench: ENOENT"));
        assert!(!group.join(GROUP).exists());
    }
}
