//! Which workloads use wide vectors, by what was measured of their containers. In: readings, one after the other. Out: whether a container of a workload is taken to use them. Pure.
//!
//! A workload counts after [`LOOKS_MIN`] readings in a row with a container that used them, and until [`KEPT`] after the last of those that made it count, so that a container that is created anew
//! is known.

use std::collections::BTreeMap;

use bayplan_workload::NewContainer;
use jiff::{SignedDuration, Timestamp};

/// Readings in a row: one may be what a process did at its start, or before it was this process.
const LOOKS_MIN: u32 = 3;
/// A workload with phases of other code stays known between them.
const KEPT: SignedDuration = SignedDuration::from_mins(10);

/// What containers are instances of: namespace, what made the pod, name of the container. Unlike a baseline it outlives a change of the image.
type Workload = (String, String, String);

/// Workloads of which use was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VectorWorkloads(BTreeMap<Workload, Seen>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Readings in a row, up to `LOOKS_MIN`.
    looks: u32,
    /// The last of them.
    at: Timestamp,
    /// It counts.
    is_user: bool,
}

impl VectorWorkloads {
    /// One reading: containers of which use could be measured, and whether there was any.
    pub(crate) fn note<'a>(
        &mut self,
        read: impl IntoIterator<Item = (&'a NewContainer, bool)>,
        now: Timestamp,
    ) {
        let mut used: BTreeMap<Workload, bool> = BTreeMap::new();
        for (container, is_used) in read {
            *used.entry(workload_of(container)).or_default() |= is_used;
        }
        for (workload, is_used) in used {
            if is_used {
                let new = Seen { looks: 0, at: now, is_user: false };
                let seen = self.0.entry(workload).or_insert(new);
                seen.looks = (seen.looks + 1).min(LOOKS_MIN);
                seen.at = now;
                seen.is_user |= seen.looks == LOOKS_MIN;
            } else if let Some(seen) = self.0.get_mut(&workload) {
                seen.looks = 0;
            }
        }
        // A clock that was put back keeps nothing for long.
        self.0.retain(|_, seen| {
            let since = now.duration_since(seen.at);
            (seen.is_user || seen.looks > 0) && since >= SignedDuration::ZERO && since < KEPT
        });
    }

    /// Whether containers of its workload were found to use them.
    pub(crate) fn has(&self, container: &NewContainer) -> bool {
        !self.0.is_empty() && self.0.get(&workload_of(container)).is_some_and(|it| it.is_user)
    }
}

fn workload_of(container: &NewContainer) -> Workload {
    let pod = &container.pod;
    (pod.namespace.clone(), pod.made_by().to_owned(), container.name.clone())
}

#[cfg(test)]
mod tests {
    use bayplan_workload::Pod;
    use expect_test::{Expect, expect};

    use super::*;

    fn container(pod: &str) -> NewContainer {
        let labels = [("pod-template-hash".to_owned(), "h".to_owned())].into();
        let pod = Pod { namespace: "n".into(), name: pod.into(), labels, ..Pod::default() };
        NewContainer { pod, name: "c".into(), ..NewContainer::default() }
    }

    /// Minutes, and what was read of pods then: `+` used, `-` not used. After each, whether a new pod of the same Deployment counts.
    fn check(readings: &[(i64, &[(&str, char)])], expected: Expect) {
        let mut workloads = VectorWorkloads::default();
        let mut shown = Vec::new();
        for (minute, read) in readings {
            let now = Timestamp::from_second(60 * minute).unwrap();
            let read: Vec<(NewContainer, bool)> =
                read.iter().map(|(pod, sign)| (container(pod), *sign == '+')).collect();
            workloads.note(read.iter().map(|(it, used)| (it, *used)), now);
            assert!(!workloads.has(&container("other-h-x")));
            shown.push(if workloads.has(&container("web-h-new")) { "yes" } else { "no" });
        }
        expected.assert_eq(&shown.join(" "));
    }

    #[test]
    fn use_in_three_readings_counts_for_ten_minutes() {
        let (used, not): (&[_], &[_]) = (&[("web-h-a", '+')], &[("web-h-a", '-')]);
        check(
            &[(0, used), (1, used), (2, used), (3, not), (11, not)],
            expect!["no no yes yes yes"],
        );
        check(
            &[(0, used), (1, used), (2, used), (11, &[]), (12, &[])],
            expect!["no no yes yes no"],
        );
        check(&[(0, used), (1, used), (2, not), (3, used), (4, used)], expect!["no no no no no"]);
        // Another container of it keeps it known.
        let both = &[("web-h-a", '-'), ("web-h-b", '+')];
        check(&[(0, used), (1, both), (2, used)], expect!["no no yes"]);
        // The clock is put back.
        check(&[(60, used), (61, used), (62, used), (0, &[])], expect!["no no yes no"]);
    }
}
