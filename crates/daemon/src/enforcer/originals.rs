//! What kernel files said before bayplan changed them. In: values, before the first write. Out: the same after any end of the daemon.
//!
//! A file of its own beside the journal, in the same lines: the journal is written anew by the task that decides, and these by the enforcer.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bayplan_enforcement::{Original, Slot};
use bayplan_host::disk::Disk;
use bayplan_host::journal::{Journal, JournalError, Recovered, parse_journal};
use serde::{Deserialize, Serialize};

/// Where the kernel's name for its start is.
pub(crate) const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
/// Its directory below the state directory.
const DIRECTORY: &str = "originals";
/// The file is written anew when it is this large, and four times as large as it would have to be.
const COMPACT_BYTES_MIN: u64 = 256 * 1024;
const RECORD_BYTES: u64 = 200;
/// The time between two tries to read a file that the disk does not give.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record {
    /// Opens the file: since which start of the kernel these hold.
    Boot { id: String },
    /// The value before the first write.
    Original {
        #[serde(flatten)]
        slot: Slot,
        #[serde(flatten)]
        original: Original,
    },
    /// It has that value again, or is gone.
    Returned {
        #[serde(flatten)]
        slot: Slot,
    },
}

/// Originals, in memory and on disk.
#[derive(Debug)]
pub(crate) struct Originals {
    journal: Journal,
    all: BTreeMap<Slot, Original>,
    /// The kernel's name for its start; `None` where it has none.
    boot: Option<String>,
    /// The file does not say everything, or cannot be appended to.
    is_behind: bool,
    /// It is damaged, and no copy of it as it was could be made.
    is_uncopied: bool,
    /// What the file says is not known: it is not written over, and no value of today is taken for one of before.
    unread: Option<Unread>,
}

/// A file that the disk does not give.
#[derive(Debug)]
struct Unread {
    why: String,
    next_try: Duration,
}

impl Originals {
    /// Whether a daemon has ever opened them in this state directory. A caller that may not look is told so when they are opened.
    pub(crate) fn are_below(state_dir: &Path) -> bool {
        state_dir.join(DIRECTORY).try_exists().unwrap_or(true)
    }

    /// Those of earlier runs since the kernel was started, which it calls `boot` (`/proc/sys/kernel/random/boot_id`): afterwards its files are as they
    /// always are. What is damaged of the file is dropped, and told; one that cannot be read is tried again ([`Self::read_again`]).
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        state_dir: &Path,
        boot: Option<String>,
    ) -> Result<(Originals, Vec<String>), JournalError> {
        let journal = Journal::unread_on(disk, &state_dir.join(DIRECTORY))?;
        let mut originals = Originals {
            journal,
            all: BTreeMap::new(),
            boot,
            is_behind: true,
            is_uncopied: false,
            unread: None,
        };
        let told = originals.read(Duration::ZERO);
        Ok((originals, told))
    }

    /// Where the file could not be read, it is tried once more, now and then. Tells as [`Self::open`] does. `now` only ever grows, from the opening on.
    pub(crate) fn read_again(&mut self, now: Duration) -> Vec<String> {
        match self.next_try() {
            Some(next_try) if next_try <= now => self.read(now),
            _ => Vec::new(),
        }
    }

    fn read(&mut self, now: Duration) -> Vec<String> {
        let recovered = match self.journal.read() {
            Ok(recovered) => recovered,
            Err(error) => {
                let why = format!(
                    "{:#}; what earlier runs have changed is not given back until that can be read",
                    anyhow::Error::new(error)
                );
                self.unread = Some(Unread { why, next_try: now + RETRY });
                return Vec::new();
            }
        };
        self.unread = None;
        let mut told: Vec<String> = recovered
            .dropped
            .iter()
            .map(|dropped| format!("line {}: {}", dropped.line, dropped.why))
            .collect();
        let (all, odd) = of_boot(&recovered, self.boot.as_deref());
        self.all = all;
        told.extend(odd);
        if !told.is_empty() {
            // It stays where it is, too: a daemon that is killed before the file is written anew leaves the way back.
            let copied = self.journal.copy_aside();
            self.is_uncopied = copied.is_err();
            told.push(match copied {
                Ok(old) => format!("the file as it was is in {}", old.display()),
                Err(error) => format!("the file as it was could not be copied yet: {error}"),
            });
        }
        told
    }

    /// Why it is not known what kernel files said before; `None`: it is known.
    pub(crate) fn unread(&self) -> Option<&str> {
        self.unread.as_ref().map(|unread| unread.why.as_str())
    }

    /// When the file is to be tried again.
    pub(crate) fn next_try(&self) -> Option<Duration> {
        self.unread.as_ref().map(|unread| unread.next_try)
    }

    pub(crate) fn all(&self) -> &BTreeMap<Slot, Original> {
        &self.all
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// On disk when this comes back.
    ///
    /// # Errors
    /// Why they are not; then they are not in memory, either.
    pub(crate) fn remember(&mut self, new: &BTreeMap<Slot, Original>) -> Result<(), String> {
        if new.is_empty() {
            return Ok(());
        }
        if let Some(why) = self.unread() {
            return Err(why.to_owned());
        }
        self.all.extend(new.iter().map(|(slot, original)| (slot.clone(), original.clone())));
        let kept = self.write(new);
        if kept.is_err() {
            self.is_behind = true;
            self.all.retain(|slot, _| !new.contains_key(slot));
        }
        kept
    }

    fn write(&mut self, new: &BTreeMap<Slot, Original>) -> Result<(), String> {
        if self.is_behind || self.is_large() {
            return self.rewrite();
        }
        let lines = lines_of(new);
        let written = self.journal.append(&lines).and_then(|()| self.journal.sync());
        self.is_behind = written.is_err();
        written.map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }

    /// The whole file anew, on disk when this comes back.
    pub(crate) fn rewrite(&mut self) -> Result<(), String> {
        let boot = self.boot.iter().map(|id| Record::Boot { id: id.clone() });
        let boot = boot.filter_map(|record| serde_json::to_string(&record).ok());
        let lines: Vec<String> = boot.chain(lines_of(&self.all)).collect();
        if self.is_uncopied {
            self.journal.set_aside().map_err(|error| error.to_string())?;
            self.is_uncopied = false;
        }
        let written = self.journal.rewrite(&lines);
        self.is_behind = written.is_err();
        written.map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }

    #[cfg(test)]
    pub(super) fn is_behind_for_tests(&mut self) {
        self.is_behind = true;
    }

    fn is_large(&self) -> bool {
        let needed = RECORD_BYTES.saturating_mul(self.all.len() as u64);
        self.journal.bytes() > COMPACT_BYTES_MIN.max(needed.saturating_mul(4))
    }

    /// In the file, and not necessarily on the disk: with the machine the files end, too.
    pub(crate) fn forget(&mut self, slots: &[Slot]) {
        if slots.is_empty() || self.unread.is_some() {
            return;
        }
        let returned = |slot: &Slot| Record::Returned { slot: slot.clone() };
        let lines = slots.iter().filter_map(|slot| serde_json::to_string(&returned(slot)).ok());
        let lines: Vec<String> = lines.collect();
        for slot in slots {
            self.all.remove(slot);
        }
        // What could not be written is written with the next one.
        let _tried = match self.is_behind {
            true => self.rewrite(),
            false => self.journal.append(&lines).map_err(|_| {
                self.is_behind = true;
                String::new()
            }),
        };
    }
}

/// What files of the running kernel said before, and why records say nothing.
fn of_boot(recovered: &Recovered, boot: Option<&str>) -> (BTreeMap<Slot, Original>, Vec<String>) {
    let (mut all, mut told, mut before) = (BTreeMap::new(), Vec::new(), None);
    for record in &recovered.records {
        match serde_json::from_str(record) {
            Ok(Record::Boot { id }) => before = Some(id),
            Ok(Record::Original { slot, original }) => {
                // A second one is of a file that others write, too: they have written this.
                all.insert(slot, original);
            }
            Ok(Record::Returned { slot }) => {
                all.remove(&slot);
            }
            Err(error) => told.push(error.to_string()),
        }
    }
    if boot.is_some_and(|boot| before.is_some_and(|before| before != boot)) {
        all.clear();
    }
    (all, told)
}

/// What files below a root said before, for a caller that only looks: nothing where no daemon has ever run.
///
/// # Errors
/// Why that cannot be read.
pub(crate) fn read_originals(
    root: &Path,
    state_dir: &Path,
) -> Result<BTreeMap<Slot, Original>, String> {
    let file = state_dir.join(DIRECTORY).join("journal");
    let bytes = match fs::read(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        read => read.map_err(|error| format!("cannot read {}: {error}", file.display()))?,
    };
    let boot = fs::read_to_string(root.join(BOOT_ID)).ok();
    Ok(of_boot(&parse_journal(&bytes), boot.as_deref().map(str::trim)).0)
}

/// Does not fail: records are maps with text keys.
fn lines_of(originals: &BTreeMap<Slot, Original>) -> Vec<String> {
    let lines = originals.iter().filter_map(|(slot, original)| {
        let (slot, original) = (slot.clone(), original.clone());
        serde_json::to_string(&Record::Original { slot, original }).ok()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bayplan_enforcement::Form;

    use bayplan_host::disk::SoundDisk;

    use super::*;

    fn sound() -> Arc<dyn Disk> {
        Arc::new(SoundDisk)
    }

    fn originals(rows: &[(&str, &str)]) -> BTreeMap<Slot, Original> {
        let original = |value: &str| Original { form: Form::Text, value: value.to_owned() };
        rows.iter().map(|(path, value)| (Slot::file(*path), original(value))).collect()
    }

    fn reopened(dir: &Path) -> (BTreeMap<Slot, Original>, usize) {
        let (read, told) = Originals::open(sound(), dir, None).unwrap();
        (read.all, told.len())
    }

    #[test]
    fn what_was_remembered_is_there_after_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let (mut kept, _) = Originals::open(sound(), dir.path(), None).unwrap();
        kept.remember(&originals(&[("a", "1"), ("b", "2")])).unwrap();
        kept.remember(&originals(&[("c", "3")])).unwrap();
        kept.forget(&[Slot::file("a")]);
        drop(kept);
        assert_eq!(reopened(dir.path()), (originals(&[("b", "2"), ("c", "3")]), 0));
    }

    #[test]
    fn a_torn_line_costs_what_it_says_and_the_last_value_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (mut kept, _) = Originals::open(sound(), dir.path(), None).unwrap();
        kept.remember(&originals(&[("a", "1")])).unwrap();
        kept.remember(&originals(&[("b", "2")])).unwrap();
        kept.remember(&originals(&[("a", "3")])).unwrap();
        drop(kept);
        assert_eq!(reopened(dir.path()).0, originals(&[("a", "3"), ("b", "2")]));
        let file = fs::read_dir(dir.path().join(DIRECTORY)).unwrap();
        let file =
            file.map(|it| it.unwrap().path()).max_by_key(|it| fs::metadata(it).unwrap().len());
        let file = file.unwrap();
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, &text[..text.len() - 9]).unwrap();
        let (all, told) = reopened(dir.path());
        assert_eq!(all, originals(&[("a", "1"), ("b", "2")]));
        assert!(told > 0);
    }

    /// A damaged file was moved where it could not be copied, and a daemon that was killed then had lost the way back.
    #[test]
    fn a_damaged_file_of_which_there_is_no_copy_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let (file, old) = (
            dir.path().join(DIRECTORY).join("journal"),
            dir.path().join(DIRECTORY).join("journal.old"),
        );
        // Neither a copy nor the file itself can take the place of a directory.
        fs::create_dir_all(&old).unwrap();
        fs::write(&file, "damaged\n").unwrap();
        let (mut kept, told) = Originals::open(sound(), dir.path(), None).unwrap();
        assert!(told.iter().any(|line| line.contains("could not be copied")), "{told:?}");
        let new = originals(&[("kubepods/a/cpu.idle", "0")]);
        kept.remember(&new).unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "damaged\n");
        fs::remove_dir(&old).unwrap();
        kept.remember(&new).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "damaged\n");
        drop(kept);
        assert_eq!(reopened(dir.path()).0, new);
    }

    #[test]
    fn a_damaged_file_stays_until_it_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (mut kept, _) = Originals::open(sound(), dir.path(), None).unwrap();
        kept.remember(&originals(&[("a", "1"), ("b", "2")])).unwrap();
        drop(kept);
        let file = dir.path().join(DIRECTORY).join("journal");
        let damaged = fs::read_to_string(&file).unwrap().replacen("\"a\"", "\"x\"", 1);
        fs::write(&file, &damaged).unwrap();
        // Nothing can be copied over a directory.
        let aside = file.with_extension("old");
        fs::create_dir(&aside).unwrap();
        for _ in 0..2 {
            assert_eq!(reopened(dir.path()), (originals(&[("b", "2")]), 2));
        }
        fs::remove_dir(&aside).unwrap();
        assert_eq!(reopened(dir.path()), (originals(&[("b", "2")]), 2));
        assert_eq!(fs::read_to_string(&aside).unwrap(), damaged);
        assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
    }

    #[test]
    fn what_is_forgotten_first_of_all_does_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut kept, _) = Originals::open(sound(), dir.path(), None).unwrap();
        kept.remember(&originals(&[("a", "1")])).unwrap();
        drop(kept);
        let (mut next, _) = Originals::open(sound(), dir.path(), None).unwrap();
        next.forget(&[Slot::file("a")]);
        drop(next);
        assert_eq!(reopened(dir.path()).0, BTreeMap::new());
    }

    #[test]
    fn another_start_of_the_kernel_leaves_nothing_to_give_back() {
        let dir = tempfile::tempdir().unwrap();
        let open =
            |boot: &str| Originals::open(sound(), dir.path(), Some(boot.to_owned())).unwrap().0;
        open("first").remember(&originals(&[("a", "1")])).unwrap();
        assert_eq!(open("first").count(), 1);
        assert_eq!(open("second").count(), 0);
        assert_eq!(Originals::open(sound(), dir.path(), None).unwrap().0.count(), 1);
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let (mut kept, _) = Originals::open(sound(), dir.path(), None).unwrap();
        for round in 0..200 {
            let rows: Vec<(String, String)> =
                (0..20).map(|i| (format!("round{round}/{i}"), "x".repeat(60))).collect();
            let rows: Vec<(&str, &str)> = rows.iter().map(|(a, b)| (&**a, &**b)).collect();
            let new = originals(&rows);
            kept.remember(&new).unwrap();
            kept.forget(&new.keys().cloned().collect::<Vec<_>>());
        }
        assert!(kept.journal.bytes() < 2 * COMPACT_BYTES_MIN);
    }
}
