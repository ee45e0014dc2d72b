//! Records as lines of one journal file. In: records, each whole. Out: lines in which large annotations and labels of a pod are written once,
//! and named by its containers; and the reverse.
//!
//! Small ones stay in the record of each container, which then stands for itself. Of large ones a pod with many containers would write as many copies,
//! each again whenever one of its containers changes. Where the line with the texts is lost, its containers keep what they hold and lose the texts.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

use super::{ContainerForm, Record};

/// Up to this many bytes are written with each container.
const INLINE_MAX: usize = 1 << 10;

/// Annotations and labels of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodTexts {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
}

impl PodTexts {
    fn bytes(&self) -> usize {
        let all = self.annotations.iter().chain(&self.labels);
        all.map(|(name, value)| name.len() + value.len()).sum()
    }

    fn take_from(container: &mut ContainerForm) -> PodTexts {
        PodTexts {
            annotations: std::mem::take(&mut container.annotations),
            labels: std::mem::take(&mut container.labels),
        }
    }

    pub(super) fn give_to(self, container: &mut ContainerForm) {
        (container.annotations, container.labels) = (self.annotations, self.labels);
    }
}

/// Writes the lines of one file, from its first line on. Texts are known by their digest, so that a daemon does not keep a second copy; another pod with the
/// same digest has texts of its own.
#[derive(Debug, Default)]
pub struct LineWriter {
    /// Names of the texts that the file has, by the pod's sandbox and the digest.
    written: BTreeMap<(String, u64), u64>,
}

impl LineWriter {
    /// The lines of these records, which follow all lines of earlier calls.
    pub fn lines(&mut self, records: Vec<Record>) -> Vec<String> {
        let mut lines = Vec::with_capacity(records.len());
        for record in records {
            match record {
                Record::Placed(mut placed) => {
                    lines.extend(self.line_of_texts(&mut placed.container));
                    lines.extend(line(&Record::Placed(placed)));
                }
                record => lines.extend(line(&record)),
            }
        }
        lines
    }

    /// Takes large texts out of the record of a container; the line that has them, unless the file has it already.
    fn line_of_texts(&mut self, container: &mut ContainerForm) -> Option<String> {
        let texts = PodTexts::take_from(container);
        if texts.bytes() <= INLINE_MAX {
            texts.give_to(container);
            return None;
        }
        let mut hasher = DefaultHasher::new();
        texts.hash(&mut hasher);
        let key = (container.pod_id.clone(), hasher.finish());
        let next = self.written.len() as u64;
        let is_new = !self.written.contains_key(&key);
        let id = *self.written.entry(key).or_insert(next);
        container.texts = Some(id);
        is_new.then(|| line(&Record::PodTexts { id, texts })).flatten()
    }
}

/// Does not fail: records are maps with text keys.
fn line(record: &Record) -> Option<String> {
    serde_json::to_string(record).ok()
}

#[cfg(test)]
mod tests {
    use bayplan_allocator::{Allocation, PoolId};
    use bayplan_types::MilliCpu;
    use bayplan_workload::{NewContainer, Pod};
    use proptest::prelude::*;

    use super::super::{AllocationForm, PlacedRecord, replay};
    use super::*;
    use crate::decision::Decision;

    fn placed(id: u64, pod: &str, annotations: &[(&str, &str)]) -> Record {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let annotations = annotations.iter().map(pair).collect();
        let pod = Pod { id: pod.to_owned(), annotations, ..Pod::default() };
        let container = NewContainer { pod, name: format!("c{id}"), ..NewContainer::default() };
        let decision = r#"{"at":"2026-11-26T08:00:00Z","asked":"a share","outcome":"placed"}"#;
        let decision: Decision = serde_json::from_str(decision).unwrap();
        let held = Allocation {
            shared: Some(MilliCpu(100)),
            mems: "0".parse().unwrap(),
            ..Allocation::new(PoolId::MACHINE)
        };
        let allocation = AllocationForm::new(&held, "machine");
        Record::Placed(Box::new(PlacedRecord {
            is_unasked: false,
            id,
            runtime_id: None,
            container: ContainerForm::from(&container),
            allocation,
            decision,
            cold: crate::cold_start::Cold::default(),
            elsewhere: None,
        }))
    }

    fn live(records: &[Record]) -> Vec<Record> {
        let lines: Vec<String> = records.iter().filter_map(line).collect();
        read(&lines)
    }

    fn read(lines: &[String]) -> Vec<Record> {
        let live = replay(lines);
        live.containers.into_values().map(|it| Record::Placed(Box::new(it))).collect()
    }

    fn bytes(lines: &[String]) -> usize {
        lines.iter().map(String::len).sum()
    }

    /// Twenty containers of a pod with as much as a pod may say.
    #[test]
    fn large_annotations_of_a_pod_are_written_once() {
        let large = "x".repeat(60 << 10);
        let records: Vec<Record> =
            (0..20).map(|id| placed(id, "pod", &[("example.com/a", &large)])).collect();
        let before: Vec<String> = records.iter().filter_map(line).collect();
        let mut writer = LineWriter::default();
        let after = writer.lines(records.clone());
        assert!(bytes(&before) > 20 * large.len(), "{}", bytes(&before));
        assert!(bytes(&after) < large.len() + 20 * 1024, "{}", bytes(&after));
        assert_eq!(read(&after), records);
        // A container that changes names them again, and no line repeats them.
        let again = writer.lines(records[..1].to_vec());
        assert!(again.len() == 1 && again[0].len() < 1024, "{again:?}");
        // What is written anew begins with them.
        assert_eq!(read(&LineWriter::default().lines(records.clone())), records);
    }

    #[test]
    fn texts_that_change_are_written_again_and_small_ones_stay_where_they_were() {
        let (one, other) = ("1".repeat(2000), "2".repeat(2000));
        let records =
            [("a", &one), ("b", &other)].map(|(name, text)| placed(1, "pod", &[(name, text)]));
        let lines = LineWriter::default().lines(records.to_vec());
        assert_eq!((lines.len(), read(&lines)), (4, vec![records[1].clone()]));
        let small = placed(1, "pod", &[("a", "small")]);
        assert_eq!(LineWriter::default().lines(vec![small.clone()]), [line(&small).unwrap()]);
    }

    #[test]
    fn where_the_line_with_the_texts_is_lost_the_containers_stay_and_it_is_counted() {
        let large = "x".repeat(2000);
        let records = (0..2).map(|id| placed(id, "pod", &[("a", &large)])).collect();
        let lines = LineWriter::default().lines(records);
        let live = replay(&lines[1..]);
        assert_eq!((live.containers.len(), live.unreadable), (2, 2));
        assert!(live.containers.values().all(|it| it.container.bytes_said() == 0));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            pods in prop::collection::vec((0u64..6, 0usize..3, 0usize..3, 0usize..3000), 0..24),
            cut in 0usize..24,
        ) {
            let text = |length: usize| "t".repeat(length);
            let records: Vec<Record> = pods
                .iter()
                .map(|(id, pod, name, length)| {
                    placed(*id, ["p", "q", "r"][*pod], &[(["a", "b", "c"][*name], &text(*length))])
                })
                .collect();
            let (first, second) = records.split_at(cut.min(records.len()));
            let mut writer = LineWriter::default();
            let mut lines = writer.lines(first.to_vec());
            lines.extend(writer.lines(second.to_vec()));
            prop_assert_eq!(read(&lines), live(&records));
        }
    }
}
