//! What became of each event, and the placement file, format `bayplan-bench-placement/1`. In: rows. Out: JSON, one event per line.

use std::collections::BTreeMap;

use bayplan_types::{CpuSet, NodeSet};
use serde::Serialize;

/// The format that is written.
pub(crate) const PLACEMENT_FORMAT: &str = "bayplan-bench-placement/1";

/// What a container got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// CPUs of its own only.
    Exclusive,
    /// CPUs of its own, and shared ones.
    Mixed,
    /// Shared or reserved CPUs only.
    Shared,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Exclusive => "exclusive",
            Kind::Mixed => "mixed",
            Kind::Shared => "shared",
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacementRow {
    /// The container.
    pub(crate) id: String,
    /// `create` or `remove`.
    pub(crate) op: &'static str,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

/// What came of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The container has a place.
    Placed(Box<Placed>),
    /// No pool can hold it.
    Refused { why: String },
    /// The container is gone.
    Removed(Effect),
    /// The remove of a container that was refused.
    Skipped,
}

/// A container's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) kind: Kind,
    /// CPUs that no other container runs on.
    pub(crate) exclusive: CpuSet,
    /// Everything that it may run on now.
    pub(crate) cpus: CpuSet,
    pub(crate) mems: NodeSet,
    pub(crate) effect: Effect,
}

/// What an event does to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Containers with a CPU set that had to be rewritten.
    pub(crate) updates: usize,
    /// Exclusive sets that were changed. The allocator moves only sharers; the format and the figures know more.
    pub(crate) moved: BTreeMap<String, CpuSet>,
}

/// Why the remove of a refused container is not `ok`.
const SKIPPED: &str = "its create was refused";

#[derive(Serialize)]
struct RowForm<'a> {
    i: usize,
    op: &'static str,
    id: &'a str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excl: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mems: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updates: Option<usize>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    moved: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    err: Option<&'a str>,
}

impl<'a> RowForm<'a> {
    fn new(i: usize, row: &'a PlacementRow) -> RowForm<'a> {
        let form = RowForm {
            i,
            op: row.op,
            id: &row.id,
            ok: true,
            kind: None,
            excl: None,
            cpus: None,
            mems: None,
            updates: None,
            moved: BTreeMap::new(),
            err: None,
        };
        match &row.outcome {
            Outcome::Placed(placed) => RowForm {
                kind: Some(placed.kind.name()),
                excl: Some(placed.exclusive.to_string()),
                cpus: Some(placed.cpus.to_string()),
                mems: Some(placed.mems.to_string()),
                ..form.with(&placed.effect)
            },
            Outcome::Removed(effect) => form.with(effect),
            Outcome::Refused { why } => RowForm { ok: false, err: Some(why), ..form },
            Outcome::Skipped => RowForm { ok: false, err: Some(SKIPPED), ..form },
        }
    }

    fn with(self, effect: &'a Effect) -> RowForm<'a> {
        let moved = effect.moved.iter().map(|(id, cpus)| (id.as_str(), cpus.to_string()));
        RowForm { updates: Some(effect.updates), moved: moved.collect(), ..self }
    }
}

/// The placement file.
///
/// # Errors
/// None is known: texts and numbers can always be written as JSON.
pub(crate) fn render_placement(trace: &str, rows: &[PlacementRow]) -> serde_json::Result<String> {
    let format = serde_json::to_string(PLACEMENT_FORMAT)?;
    let trace = serde_json::to_string(trace)?;
    let mut text =
        format!("{{\"format\":{format},\"system\":\"bayplan\",\"trace\":{trace},\"events\":[");
    for (i, row) in rows.iter().enumerate() {
        text.push_str(if i == 0 { "\n" } else { ",\n" });
        text.push_str(&serde_json::to_string(&RowForm::new(i, row))?);
    }
    text.push_str("\n]}\n");
    Ok(text)
}
