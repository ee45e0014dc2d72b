//! A bug in a daemon that is a process: the task that writes a file of the state directory panics. In: a file that says which task, and when. Out:
//! disks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io};

use bayplan_host::disk::{Disk, Disks, Operation};

/// Names the file, for the tests' own program; `bayplan` itself knows nothing of it. The panic removes the file.
pub const VARIABLE: &str = "BAYPLAN_TEST_BUG";
/// What the panic says.
pub const MESSAGE: &str = "a bug that a test has asked for";

/// Where the bug is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where the journal is written, for which the task that decides waits.
    Journal,
    /// Where the history is written, for which no task waits.
    History,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Journal => "journal",
            Place::History => "history",
        }
    }
}

/// From now on so many operations go well there, and the next one panics.
///
/// # Errors
/// The file cannot be written.
pub fn expect(file: &Path, place: Place, after: usize) -> io::Result<()> {
    // In one step, because it may be read at any moment.
    let new = file.with_extension("new");
    fs::write(&new, format!("{} {after}", place.name()))?;
    fs::rename(new, file)
}

/// Those of this process.
pub fn disks() -> Disks {
    let Some(file) = env::var_os(VARIABLE).map(PathBuf::from) else { return Disks::default() };
    let disk = |place| Arc::new(Buggy { place, file: file.clone(), done: AtomicUsize::new(0) });
    Disks { journal: disk(Place::Journal), history: disk(Place::History), ..Disks::default() }
}

#[derive(Debug)]
struct Buggy {
    place: Place,
    file: PathBuf,
    /// Since the bug is expected.
    done: AtomicUsize,
}

impl Disk for Buggy {
    #[expect(clippy::panic, reason = "this is what it is for")]
    fn before(&self, _: Operation, bytes: usize) -> io::Result<usize> {
        let expected = fs::read_to_string(&self.file).unwrap_or_default();
        let after = expected.strip_prefix(self.place.name()).map(|it| it.trim().parse());
        if after.is_some_and(|after| after == Ok(self.done.fetch_add(1, Ordering::Relaxed))) {
            fs::remove_file(&self.file)?;
            panic!("{MESSAGE}");
        }
        Ok(bytes)
    }
}
