//! Conditions of a BayplanNode. In: how the last attempt to configure the daemon ended, and what the daemon says of itself. Out: conditions that keep the
//! time of their last change.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::mistake::bounded;

/// How far the configuration of this node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The object holds.
    Holds,
    /// No object is for this node: its file holds.
    File,
    /// The object of the node's group is missing.
    Missing {
        /// Its kind and name.
        object: String,
        /// The label with the node's group.
        label: &'static str,
    },
    /// It comes in so many seconds.
    Waiting(u64),
    /// It has mistakes, or does not fit the machine.
    Invalid(String),
    /// It would move too much.
    TooManyMoves(String),
    /// The daemon cannot be asked.
    DaemonAway(String),
}

impl Applied {
    /// Status, reason and message.
    fn texts(&self, object: &str) -> (&'static str, &'static str, String) {
        match self {
            Applied::Holds => ("True", "Applied", format!("{object} holds")),
            Applied::File => (
                "True",
                "NoObject",
                "no object in the cluster is for this node; its file holds".to_owned(),
            ),
            Applied::Missing { object, label } => (
                "False",
                "GroupMissing",
                format!(
                    "the node's group has no {object}; what held goes on to hold: create it, or correct the label {label}"
                ),
            ),
            // Without the seconds, of which there are others at each look: all that differs is written.
            Applied::Waiting(_) => (
                "False",
                "Waiting",
                format!("{object} comes when this node's part of its rolloutSeconds is over"),
            ),
            Applied::Invalid(why) => ("False", "Invalid", why.clone()),
            Applied::TooManyMoves(why) => ("False", "TooManyMoves", format!("{object} {why}")),
            Applied::DaemonAway(why) => ("Unknown", "DaemonAway", why.clone()),
        }
    }

    /// As a condition; `object` is kind and name of what was chosen.
    pub(crate) fn condition(&self, object: &str, generation: Option<i64>) -> Condition {
        let (status, reason, message) = self.texts(object);
        Condition {
            observed_generation: generation,
            ..Condition::new("ConfigApplied", status, reason, &message)
        }
    }
}

/// One condition, in the form of `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When the status became what it is; RFC 3339.
    pub last_transition_time: String,
    /// The generation of the configuration that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    pub(crate) fn new(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
        Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: bounded(message),
            last_transition_time: String::new(),
            observed_generation: None,
        }
    }
}

/// Fills in when each became what it is: as before, or now.
pub(crate) fn with_times(
    conditions: Vec<Condition>,
    before: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let with_time = |condition: Condition| {
        let same = before
            .iter()
            .find(|it| it.kind == condition.kind && it.status == condition.status)
            .filter(|it| !it.last_transition_time.is_empty());
        let since = same.map_or_else(|| seconds(now), |it| it.last_transition_time.clone());
        Condition { last_transition_time: since, ..condition }
    };
    conditions.into_iter().map(with_time).collect()
}

/// RFC 3339 without fractions, which `metav1.Time` wants.
pub(crate) fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(applied: Applied, expected: Expect) {
        let it = applied.condition("BayplanConfig/default", Some(3));
        expected.assert_eq(&format!("{} {}: {}", it.status, it.reason, it.message));
    }

    #[test]
    fn each_outcome_says_what_holds_and_what_to_do() {
        check(Applied::Holds, expect!["True Applied: BayplanConfig/default holds"]);
        check(
            Applied::File,
            expect!["True NoObject: no object in the cluster is for this node; its file holds"],
        );
        check(
            Applied::Missing { object: "BayplanConfig/group.a".into(), label: "bayplan.dev/group" },
            expect![
                "False GroupMissing: the node's group has no BayplanConfig/group.a; what held goes on to hold: create it, or correct the label bayplan.dev/group"
            ],
        );
        check(
            Applied::Waiting(9),
            expect![
                "False Waiting: BayplanConfig/default comes when this node's part of its rolloutSeconds is over"
            ],
        );
        check(
            Applied::TooManyMoves("would move 2".into()),
            expect!["False TooManyMoves: BayplanConfig/default would move 2"],
        );
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let condition = |status| vec![Condition::new("A", status, "R", "m")];
        let first = with_times(condition("True"), &[], at(10));
        let second = with_times(condition("True"), &first, at(20));
        let third = with_times(condition("False"), &second, at(30));
        let times = [&first, &second, &third].map(|it| it[0].last_transition_time.clone());
        assert_eq!(times, ["1970-01-01T00:00:10Z", "1970-01-01T00:00:10Z", "1970-01-01T00:00:30Z"]);
    }
}
