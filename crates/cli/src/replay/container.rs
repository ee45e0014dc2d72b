//! A container of a replay, and what entries of a history say of one. Values only.

use bayplan_node::history::{Entry, Kind, Place};
use bayplan_workload::NewContainer;

use crate::replay::story::Fate;

/// Names a container for as long as it lives: sandbox, name, attempt.
pub(super) type Key = (String, String, u32);

/// A container that came.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) key: Key,
    pub(super) spec: NewContainer,
    /// It has a place in the replay.
    pub(super) is_held: bool,
    /// It has had a place, or been refused one, in the history, and in the replay.
    pub(super) is_told: [bool; 2],
}

/// What an entry says became of a container.
pub(super) fn fate(entry: &Entry) -> Fate {
    match entry.kind {
        Kind::Refused => Fate::Refused(entry.why.clone()),
        _ => Fate::Placed(place_then(entry)),
    }
}

/// What the runtime of the replay calls a container.
pub(super) fn runtime_id(number: usize) -> String {
    format!("replayed-{number}")
}

pub(super) fn number_in(runtime_id: &str) -> Option<usize> {
    runtime_id.strip_prefix("replayed-")?.parse().ok()
}

/// Where it was, without its group, which entries of older versions do not tell.
pub(super) fn place_then(entry: &Entry) -> Place {
    let place = entry.after.clone().unwrap_or_default();
    Place { group: String::new(), ..place }
}
