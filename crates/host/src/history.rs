//! What happened, in files that never have more bytes than they may. In: records, one line of text each. Out: segments in a directory,
//! of which the oldest go first, and the records again.
//!
//! Segments are files `00000001`, `00000002` and so on. Each has a first line `bayplan-history 1`, and then lines as of `lines.rs`.
//! A segment begins with what has to be known to understand it, because those before it may be gone.
//!
//! Nothing here waits for the disk: the kernel writes within half a minute, a killed process loses nothing, and a machine that loses its
//! power the last moments. Guarantees: a record is there whole or not at all, and damage costs what it touches.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, Files, SoundDisk};
pub use crate::lines::{Dropped, Recovered};
use crate::lines::{line, parse_lines, parse_more};

const HEADER: &str = "bayplan-history 1";
/// A segment is full when it has this part of all that there may be.
const SEGMENTS: u64 = 8;

/// The history of one node. One process at a time writes it; any number may read.
#[derive(Debug)]
pub struct History {
    files: Files,
    dir: PathBuf,
    /// All segments together never have more.
    bytes_max: u64,
    /// The size of every segment, by its number.
    segments: BTreeMap<u64, u64>,
    /// The last segment; `None`: a new one has to be begun.
    file: Option<File>,
    /// Bytes with which the last segment was begun, where it was begun here.
    opening: u64,
}

impl History {
    /// The history in `dir`, which need not exist, and what its last segment holds. Whatever cannot be read or is damaged is left as it
    /// is: a new segment has to be begun then.
    pub fn open(dir: &Path, bytes_max: u64) -> (History, Recovered) {
        History::open_on(Arc::new(SoundDisk), dir, bytes_max)
    }

    /// As [`Self::open`], on a disk that may say no.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path, bytes_max: u64) -> (History, Recovered) {
        let (files, dir) = (Files(disk), dir.to_owned());
        let segments = list(&files, &dir).unwrap_or_default();
        let mut history = History { files, dir, bytes_max, segments, file: None, opening: 0 };
        let Some(number) = history.last() else { return (history, Recovered::default()) };
        let path = history.path(number);
        let Ok(bytes) = history.files.read(&path) else { return (history, Recovered::default()) };
        let recovered = parse_history(&bytes);
        if recovered.dropped.is_empty() && !bytes.is_empty() {
            history.segments.insert(number, bytes.len() as u64);
            history.file = history.files.open_end(&path).ok();
        }
        (history, recovered)
    }

    /// Whether the next records belong into a new segment.
    pub fn wants_segment(&self) -> bool {
        let size = self.last().and_then(|number| self.segments.get(&number)).copied();
        // A segment is not to be mostly what it begins with.
        let full = (self.bytes_max / SEGMENTS).max((2 * self.opening).min(self.bytes_max / 4));
        self.file.is_none() || size.is_none_or(|size| size >= full)
    }

    /// Appends records to the last segment.
    ///
    /// # Errors
    /// What the kernel said, or that there is no segment to append to; nothing of the records is there then.
    pub fn append(&mut self, records: &[String]) -> io::Result<()> {
        let text: String = records.iter().map(|record| line(record)).collect();
        self.make_room(text.len() as u64)?;
        let (Some(number), Some(file)) = (self.last(), &mut self.file) else {
            return Err(io::Error::other("there is no segment to append to"));
        };
        let size = self.segments.entry(number).or_default();
        let written = self.files.write(file, text.as_bytes());
        if written.is_err() {
            // What cannot be cut off again must not be in the middle of a segment.
            if self.files.truncate(file, *size).is_err() {
                self.file = None;
            }
            return written;
        }
        *size += text.len() as u64;
        Ok(())
    }

    /// Begins a segment with these records.
    ///
    /// # Errors
    /// What the kernel said; there is no new segment then.
    pub fn begin(&mut self, records: &[String]) -> io::Result<()> {
        self.file = None;
        // Others may have tidied up, or given back the right to look.
        self.segments = list(&self.files, &self.dir)?;
        let mut text = format!("{HEADER}\n");
        text.extend(records.iter().map(|record| line(record)));
        if text.len() as u64 > self.bytes_max {
            // To delete everything for it would not help.
            let bytes = text.len();
            let error =
                format!("a segment begins with {bytes} bytes, and it may have {}", self.bytes_max);
            return Err(io::Error::other(error));
        }
        self.make_room(text.len() as u64)?;
        self.files.make_private_dir(&self.dir)?;
        let number = self.last().map_or(1, |last| last.saturating_add(1));
        let path = self.path(number);
        let mut file = self.files.create(&path)?;
        self.files.write(&mut file, text.as_bytes()).inspect_err(|_| {
            // What is left of it is a torn segment, which nothing is appended to.
            let _left = self.files.remove(&path);
        })?;
        self.segments.insert(number, text.len() as u64);
        self.opening = text.len() as u64;
        self.file = Some(file);
        Ok(())
    }

    /// What all segments have together.
    pub fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    /// Removes the oldest segments until there is room for so many bytes.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while self.bytes().saturating_add(bytes) > self.bytes_max {
            let is_kept = |number: u64| self.file.is_some() && self.last() == Some(number);
            let oldest = self.segments.keys().next().copied().filter(|number| !is_kept(*number));
            let Some(number) = oldest else {
                return Err(io::Error::other(format!("it may have {} bytes", self.bytes_max)));
            };
            match self.files.remove(&self.path(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.segments.remove(&number),
            };
        }
        Ok(())
    }

    fn last(&self) -> Option<u64> {
        self.segments.keys().next_back().copied()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(file_name(number))
    }
}

fn file_name(number: u64) -> String {
    format!("{number:08}")
}

/// The size of every segment in a directory, by its number; none where there is no directory.
fn list(files: &Files, dir: &Path) -> io::Result<BTreeMap<u64, u64>> {
    let entries = match files.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut segments = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|number| *name == *file_name(*number)) {
            segments.insert(number, entry.metadata()?.len());
        }
    }
    Ok(segments)
}

/// The segments of a history in order: those in a directory, or the one file.
///
/// # Errors
/// What the kernel said, for example that there is nothing of this name.
pub fn segments(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files = Files(Arc::new(SoundDisk));
    Ok(list(&files, path)?.keys().map(|number| path.join(file_name(*number))).collect())
}

/// Reads a history from its beginning, and then what has been added since. Nothing is locked: a daemon may be writing it.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    /// The segment that was read last, and how many bytes and lines of it.
    at: Option<(PathBuf, u64, usize)>,
}

/// What was added to a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The segment.
    pub path: PathBuf,
    /// What it holds.
    pub recovered: Recovered,
}

impl Reader {
    /// Of a directory with segments, or of one file.
    pub fn new(path: &Path) -> Reader {
        Reader { path: path.to_owned(), at: None }
    }

    /// What is new since the last time, segment by segment. `is_growing`: a last line that is not whole is left for the next time.
    ///
    /// # Errors
    /// What the kernel said, for example that there is nothing of this name.
    pub fn read(&mut self, is_growing: bool) -> io::Result<Vec<Piece>> {
        let segments = segments(&self.path)?;
        let last = segments.last().cloned();
        let mut pieces = Vec::new();
        for path in segments {
            let (offset, lines) = match &self.at {
                Some((at, ..)) if path < *at => continue,
                Some((at, offset, lines)) if path == *at => (*offset, *lines),
                _ => (0, 0),
            };
            let is_open = is_growing && last.as_ref() == Some(&path);
            let Some(bytes) = read_from(&path, offset, is_open)? else { continue };
            self.at =
                Some((path.clone(), offset + bytes.len() as u64, lines + count_lines(&bytes)));
            let recovered = match lines {
                0 => parse_history(&bytes),
                _ => parse_more(&bytes, lines + 1),
            };
            pieces.push(Piece { path, recovered });
        }
        Ok(pieces)
    }
}

/// The bytes from `offset` on, of an open segment only whole lines; `None` where it is gone, because it was the oldest.
fn read_from(path: &Path, offset: u64, is_open: bool) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(offset))?;
        file.read_to_end(&mut bytes)
    });
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    if is_open {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(whole);
    }
    Ok(Some(bytes))
}

fn count_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// What a segment of these bytes holds. Every line but the header is a record or is dropped.
pub fn parse_history(bytes: &[u8]) -> Recovered {
    parse_lines(HEADER, "not the header of a history of this version", bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use nix::errno::Errno;
    use proptest::prelude::*;

    use super::*;
    use crate::disk::failing::Failing;

    fn records(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn read(dir: &Path) -> Vec<String> {
        let segments = segments(dir).unwrap().into_iter();
        segments.flat_map(|path| parse_history(&fs::read(path).unwrap()).records).collect()
    }

    fn bytes_on_disk(dir: &Path) -> u64 {
        let sizes = segments(dir).unwrap().into_iter().map(|it| fs::metadata(it).unwrap().len());
        sizes.sum()
    }

    #[test]
    fn what_was_told_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let (mut history, recovered) = History::open(&path, 4096);
        assert_eq!((recovered, history.wants_segment()), (Recovered::default(), true));
        assert!(history.append(&records(&["too soon"])).is_err());
        history.begin(&records(&["one"])).unwrap();
        history.append(&records(&["two", "th\nree"])).unwrap();
        assert_eq!(history.bytes(), bytes_on_disk(&path));
        let (mut history, recovered) = History::open(&path, 4096);
        assert_eq!(recovered.records, records(&["one", "two", "th ree"]));
        history.append(&records(&["four"])).unwrap();
        assert_eq!(read(&path), records(&["one", "two", "th ree", "four"]));
    }

    #[test]
    fn a_follower_reads_everything_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut history, _) = History::open(dir.path(), 4096);
        let mut reader = Reader::new(dir.path());
        let mut check = |expected: &[&str], dropped: &[usize]| {
            let pieces = reader.read(true).unwrap();
            let records = pieces.iter().flat_map(|it| it.recovered.records.clone());
            assert_eq!(records.collect::<Vec<_>>(), self::records(expected));
            let lines = pieces.iter().flat_map(|it| &it.recovered.dropped).map(|it| it.line);
            assert_eq!(lines.collect::<Vec<_>>(), dropped);
        };
        check(&[], &[]);
        history.begin(&records(&["one", "two"])).unwrap();
        check(&["one", "two"], &[]);
        history.append(&records(&["three"])).unwrap();
        // Half a line is being written.
        let half = |text: &[u8]| {
            let file = OpenOptions::new().append(true).open(dir.path().join("00000001"));
            file.unwrap().write_all(text).unwrap();
        };
        half(b"0000");
        check(&["three"], &[]);
        check(&[], &[]);
        half(b"0000 wrong\n");
        check(&[], &[5]);
        half(b"torn");
        history.begin(&records(&["four"])).unwrap();
        check(&["four"], &[6]);
        check(&[], &[]);
    }

    #[test]
    fn a_damaged_segment_stays_as_it_is_and_is_followed_by_another() {
        for damage in [&b"bayplan-history 9\n"[..], b"bayplan-history 1\n1234", b"", b"\xff\n\n"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("00000007"), damage).unwrap();
            fs::write(dir.path().join("notes.txt"), "somebody's").unwrap();
            let (mut history, _) = History::open(dir.path(), 4096);
            assert!(history.wants_segment());
            history.begin(&records(&["after"])).unwrap();
            assert_eq!(read(dir.path()), records(&["after"]));
            assert_eq!(fs::read(dir.path().join("00000007")).unwrap(), damage);
        }
    }

    #[test]
    fn where_nothing_can_be_written_it_is_an_error_and_later_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        fs::write(&path, "a file is in the way").unwrap();
        let (mut history, _) = History::open(&path, 4096);
        assert!(history.begin(&records(&["one"])).is_err());
        fs::remove_file(&path).unwrap();
        history.begin(&records(&["two"])).unwrap();
        // /dev/full answers every write with ENOSPC.
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let real = history.file.replace(full);
        assert!(history.append(&records(&["three"])).is_err());
        history.file = real;
        history.append(&records(&["four"])).unwrap();
        assert_eq!(read(&path), records(&["two", "four"]));
    }

    /// A daemon's day on such a disk, after one on a sound one. Gives what was written, and what was tried.
    fn live(disk: Arc<dyn Disk>, dir: &Path) -> (Vec<String>, Vec<String>) {
        let (mut history, _) = History::open_on(disk, dir, BYTES_MAX);
        let (mut written, mut tried) = (Vec::new(), Vec::new());
        for index in 0..6 {
            let batch = records(&[&format!("{index} first"), &format!("{index} second")]);
            tried.extend(batch.clone());
            let done = match history.wants_segment() || index == 3 {
                true => history.begin(&batch),
                false => history.append(&batch),
            };
            written.extend(batch.into_iter().filter(|_| done.is_ok()));
        }
        (written, tried)
    }

    const BYTES_MAX: u64 = 1 << 20;

    fn check_failing(is_lasting: bool, errno: Errno) {
        for at in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let before = records(&["before", "and before"]);
            History::open(dir.path(), BYTES_MAX).0.begin(&before).unwrap();
            let disk = Failing::new(at, is_lasting, errno);
            let (written, tried) = live(Arc::<Failing>::clone(&disk), dir.path());
            let done = disk.done.lock().unwrap().clone();
            let (mut next, _) = History::open(dir.path(), BYTES_MAX);
            next.begin(&records(&["after"])).unwrap();
            let read = read(dir.path());
            let what = format!("{errno} at operation {at} of {done:?}: {read:?}");
            assert!(read.starts_with(&before) && read.ends_with(&records(&["after"])), "{what}");
            // What was cut off is not there, or the disk has refused that, too.
            let rest = &read[2..read.len() - 1];
            assert!(written.iter().all(|record| rest.contains(record)), "{what}, {written:?}");
            let mut in_order = tried.iter();
            assert!(rest.iter().all(|record| in_order.any(|it| it == record)), "{what}");
            if done.len() <= at {
                assert!(at > 20 && rest == tried, "{what}");
                return;
            }
        }
    }

    #[test]
    fn a_disk_that_refuses_costs_only_what_it_was_asked_to_write() {
        for errno in [Errno::ENOSPC, Errno::EIO, Errno::EROFS] {
            check_failing(false, errno);
        }
    }

    #[test]
    fn what_was_there_before_is_readable_after_a_kill_at_any_operation() {
        check_failing(true, Errno::EIO);
    }

    #[test]
    fn what_is_larger_than_the_bound_is_refused_and_costs_only_what_is_older() {
        let dir = tempfile::tempdir().unwrap();
        let (mut history, _) = History::open(dir.path(), 256);
        history.begin(&records(&["one"])).unwrap();
        assert!(history.append(&["x".repeat(300)]).is_err());
        history.append(&records(&["two"])).unwrap();
        assert_eq!(read(dir.path()), records(&["one", "two"]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_never_has_more_bytes_than_it_may_and_loses_the_oldest(
            sizes in prop::collection::vec(0usize..200, 0..60),
            restarts in any::<u64>(),
            bytes_max in 300u64..3000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let (mut history, _) = History::open(dir.path(), bytes_max);
            let mut told = Vec::new();
            for (index, size) in sizes.iter().enumerate() {
                if restarts & 1 << (index % 64) != 0 {
                    history = History::open(dir.path(), bytes_max).0;
                }
                let record = format!("{index}{}", "-".repeat(*size));
                told.push(record);
                let new = &told[index..];
                let result = match history.wants_segment() {
                    true => history.begin(new),
                    false => history.append(new),
                };
                prop_assert!(result.is_ok(), "{:?}", result);
                let bytes = bytes_on_disk(dir.path());
                prop_assert!(bytes <= bytes_max && bytes == history.bytes());
                prop_assert!(told.ends_with(&read(dir.path())));
                prop_assert!(read(dir.path()).ends_with(new));
            }
        }

        #[test]
        fn a_flipped_or_cut_byte_costs_what_it_touches(cut in 0usize..200, at in 0usize..200, flip in 0u8..=255) {
            let dir = tempfile::tempdir().unwrap();
            let names = ["first", "second", "third", "fourth"];
            let (mut history, _) = History::open(dir.path(), 4096);
            history.begin(&records(&names[..1])).unwrap();
            history.append(&records(&names[1..])).unwrap();
            let path = dir.path().join("00000001");
            let mut bytes = fs::read(&path).unwrap();
            let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            bytes.truncate(cut.max(1));
            let whole = ends.iter().skip(1).filter(|end| **end < bytes.len()).count();
            let kept = parse_history(&bytes).records;
            // A flipped line break joins two lines, and a flip may make one.
            prop_assert!(kept.len() + 2 >= whole && kept.len() <= whole);
            prop_assert!(kept.iter().all(|record| names.contains(&record.as_str())));
            if flip == 0 {
                prop_assert_eq!(&kept, &records(&names[..whole]));
            }
            fs::write(&path, &bytes).unwrap();
            let (mut history, _) = History::open(dir.path(), 4096);
            let after = records(&["after"]);
            match history.wants_segment() {
                true => history.begin(&after).unwrap(),
                false => history.append(&after).unwrap(),
            }
            prop_assert_eq!(read(dir.path()), [kept, after].concat());
        }
    }
}
