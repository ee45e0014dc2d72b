//! What became of the keys. In: a key and its value. Out: lines for people, and counts.

use serde::Serialize;

use super::document::{entries, items};
use crate::yaml::{Node, Position, Value};

/// What came of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// A configuration of bayplan.
    pub text: String,
    /// One per key of the files, in their order.
    pub notes: Vec<Note>,
}

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "fate", content = "why")]
pub enum Fate {
    /// Carried over to this key.
    Taken(String),
    /// It needs no key here; the reason.
    Holds(String),
    /// It has no counterpart; the reason.
    Lost(String),
}

impl Fate {
    pub(super) fn holds(why: &str) -> Fate {
        Fate::Holds(why.to_owned())
    }

    pub(super) fn lost(why: &str) -> Fate {
        Fate::Lost(why.to_owned())
    }
}

/// A key of another system, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The file that it stands in.
    pub file: String,
    /// Where.
    #[serde(flatten)]
    pub at: Position,
    /// Its whole name: `spec.balloonTypes[0].minCPUs`.
    pub key: String,
    /// Its value, shortened.
    pub value: String,
    /// The keys that are meant: those of a whole subtree are one note.
    pub keys: usize,
    /// What became of it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// How many keys had which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Carried over.
    pub taken: usize,
    /// Needed no key.
    pub holds: usize,
    /// Without counterpart.
    pub lost: usize,
}

impl Counts {
    /// Counts keys, not notes.
    pub fn of(notes: &[Note]) -> Counts {
        let mut counts = Counts::default();
        for note in notes {
            match note.fate {
                Fate::Taken(_) => counts.taken += note.keys,
                Fate::Holds(_) => counts.holds += note.keys,
                Fate::Lost(_) => counts.lost += note.keys,
            }
        }
        counts
    }

    /// In one line.
    pub fn render(&self) -> String {
        let Counts { taken, holds, lost } = self;
        format!("{taken} keys carried over, {holds} need no key, {lost} without counterpart")
    }
}

/// Keys below a node; a list of scalars is one.
pub(super) fn count_keys(node: &Node) -> usize {
    let below: usize = match &node.value {
        Value::Null | Value::Scalar(_) => 0,
        Value::List(_) => items(node).iter().filter(|it| !is_scalar(it)).map(count_keys).sum(),
        Value::Map(_) => entries(node).iter().map(|(.., it)| count_keys(it)).sum(),
    };
    below.max(1)
}

fn is_scalar(node: &Node) -> bool {
    matches!(node.value, Value::Scalar(_) | Value::Null)
}

/// In one line, for a table.
pub(super) fn shorten(node: &Node) -> String {
    const LENGTH_MAX: usize = 60;
    let text = flow(node);
    match text.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Scalar(text) => text.lines().collect::<Vec<_>>().join(" "),
        Value::List(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::Map(entries) => {
            let entries = entries.iter().map(|(_, key, value)| format!("{key}: {}", flow(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}
