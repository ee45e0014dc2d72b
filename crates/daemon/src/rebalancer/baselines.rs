//! What is usual, on disk. In: baselines. Out: the same after a restart, so that no container has to suffer for half an hour before it shows.
//!
//! In the lines of the journal, in a file of its own that is written anew as a whole, seldom: what is lost with a crash is minutes of learning. What cannot be
//! used of it is left out and told.

use std::path::Path;
use std::sync::Arc;

use bayplan_host::disk::Disk;
use bayplan_host::journal::{Journal, JournalError};
use bayplan_rebalance::{Baseline, Signal, Usual, Workload};
use bayplan_types::CoreKind;
use serde::{Deserialize, Serialize};

/// Its directory below the state directory.
const DIRECTORY: &str = "baselines";

/// The file.
#[derive(Debug)]
pub(super) struct BaselineFile(Journal);

/// One line; the words are those of `bayplan rebalance status`.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    namespace: String,
    owner: String,
    container: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    image: String,
    /// Absent on machines with one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cores: Option<String>,
    signal: String,
    /// Of the logarithm.
    median: f64,
    spread: f64,
    seen: u32,
}

impl BaselineFile {
    /// What is in it, and what could not be used.
    ///
    /// # Errors
    /// [`JournalError`] when there can be no such file.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        state_dir: &Path,
    ) -> Result<(BaselineFile, Vec<Baseline>, Vec<String>), JournalError> {
        let (journal, recovered) = Journal::open_on(disk, &state_dir.join(DIRECTORY))?;
        let mut told: Vec<String> =
            recovered.dropped.iter().map(|it| format!("line {}: {}", it.line, it.why)).collect();
        let mut baselines = Vec::new();
        for record in &recovered.records {
            match serde_json::from_str::<Line>(record) {
                // A signal or a kind of core that only another version knows.
                Ok(line) => baselines.extend(line.baseline()),
                Err(error) => told.push(error.to_string()),
            }
        }
        Ok((BaselineFile(journal), baselines, told))
    }

    /// On disk when this comes back.
    ///
    /// # Errors
    /// [`JournalError`]; then the file is as it was.
    pub(super) fn save(&mut self, baselines: &[Baseline]) -> Result<(), JournalError> {
        // Does not fail: lines are maps with text keys.
        let lines = baselines.iter().filter_map(|it| serde_json::to_string(&Line::of(it)).ok());
        self.0.rewrite(&lines.collect::<Vec<_>>())
    }
}

impl Line {
    fn of(baseline: &Baseline) -> Line {
        let Baseline { workload, cores, signal, usual } = baseline;
        let Workload { namespace, owner, container, image } = workload.clone();
        Line {
            namespace,
            owner,
            container,
            image,
            cores: cores.map(|kind| kind.name().to_owned()),
            signal: signal.name().to_owned(),
            median: usual.median,
            spread: usual.spread,
            seen: usual.seen,
        }
    }

    fn baseline(self) -> Option<Baseline> {
        let Line { namespace, owner, container, image, cores, signal, median, spread, seen } = self;
        let cores = match cores {
            None => None,
            Some(name) => Some(CoreKind::ALL.into_iter().find(|kind| kind.name() == name)?),
        };
        Some(Baseline {
            workload: Workload { namespace, owner, container, image },
            cores,
            signal: Signal::ALL.into_iter().find(|it| it.name() == signal)?,
            usual: Usual { median, spread, seen },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bayplan_host::disk::SoundDisk;

    use super::*;

    fn sound() -> Arc<dyn Disk> {
        Arc::new(SoundDisk)
    }

    fn baselines() -> Vec<Baseline> {
        let workload = Workload {
            namespace: "n".to_owned(),
            owner: "web".to_owned(),
            container: "main".to_owned(),
            image: String::new(),
        };
        let usual = Usual { median: -1.5, spread: 0.25, seen: 30 };
        let row = |cores, signal| Baseline { workload: workload.clone(), cores, signal, usual };
        vec![row(None, Signal::Waiting), row(Some(CoreKind::Efficient), Signal::Delay)]
    }

    #[test]
    fn what_is_usual_is_there_after_the_process_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, found, told) = BaselineFile::open(sound(), dir.path()).unwrap();
        assert_eq!((found.len(), told.len()), (0, 0));
        file.save(&baselines()).unwrap();
        file.save(&baselines()[..1]).unwrap();
        file.save(&baselines()).unwrap();
        drop(file);
        let (_, found, told) = BaselineFile::open(sound(), dir.path()).unwrap();
        assert_eq!((found, told), (baselines(), Vec::<String>::new()));
    }

    #[test]
    fn what_cannot_be_used_is_left_out_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, ..) = BaselineFile::open(sound(), dir.path()).unwrap();
        file.save(&baselines()).unwrap();
        drop(file);
        let files = fs::read_dir(dir.path().join(DIRECTORY)).unwrap();
        let path = files
            .map(|it| it.unwrap().path())
            .max_by_key(|it| fs::metadata(it).unwrap().len())
            .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{}rubbish\n", &text[..text.len() - 5])).unwrap();
        let (_, found, told) = BaselineFile::open(sound(), dir.path()).unwrap();
        assert_eq!(found, baselines()[..1]);
        assert!(!told.is_empty());
    }

    #[test]
    fn what_only_another_version_knows_is_left_out() {
        let line = |cores: Option<&str>, signal: &str| Line {
            cores: cores.map(str::to_owned),
            signal: signal.to_owned(),
            ..Line::of(&baselines()[0])
        };
        assert!(line(None, "waiting").baseline().is_some());
        assert!(line(Some("quantum"), "waiting").baseline().is_none());
        assert!(line(None, "mood").baseline().is_none());
    }
}
