//! What is to be written to kernel files, for people and programs.

use bayplan_enforcement::{FileWrite, Impossible, Reclaim};
use serde::{Deserialize, Serialize};

use crate::enforcer::Outcome;
use crate::enforcer::groups::{GroupOutcome, ThreadMove};

/// Format `bayplan-plan/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlanView {
    /// Names the format.
    pub format: String,
    /// Groups of resctrl that are made or removed before anything is written, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupView>,
    /// In the order in which they would be made.
    pub writes: Vec<WriteView>,
    /// Threads that are moved into groups afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveView>,
    /// What is reclaimed from which container again and again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reclaims: Vec<ReclaimView>,
    /// Files that are wanted and cannot be read.
    pub impossible: Vec<ImpossibleView>,
    /// What else cannot be had here, a sentence each.
    pub problems: Vec<String>,
    /// Containers that have not what they were told, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// What could not be written at the last try and is tried again: what and why, with the kernel's answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Values that bayplan has changed, and remembers as they were.
    pub changed: usize,
    /// How many failures these are: files, and groups of resctrl that could not be made, removed or filled.
    pub failing: usize,
    /// Files that another program changed again and again, and that are left to it for a while.
    pub contested: usize,
}

/// One group of resctrl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// `make` or `remove`.
    pub change: String,
    /// The directory.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Threads of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveView {
    /// The container's full name.
    pub unit: String,
    /// How many there are outside of its group now.
    pub threads: usize,
    /// The group's directory.
    pub path: String,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteView {
    /// `shrink`, `set` or `grow`.
    pub pass: String,
    /// The file.
    pub path: String,
    /// The line, in a file that has keys on its lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it says.
    pub old: String,
    /// What it is to say.
    pub new: String,
    /// The container or other unit that it is for.
    pub unit: String,
    /// Why.
    pub reason: String,
}

/// Idle memory of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimView {
    /// The container's full name.
    pub unit: String,
    /// The file.
    pub path: String,
    /// What one turn asks for there, in several writes.
    pub text: String,
    /// How often, and why.
    pub reason: String,
}

/// A file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImpossibleView {
    /// The file, with its line.
    pub slot: String,
    /// The container or other unit that it is for.
    pub unit: String,
    /// What the kernel says.
    pub why: String,
}

impl From<&FileWrite> for WriteView {
    fn from(write: &FileWrite) -> WriteView {
        WriteView {
            pass: write.pass.to_string(),
            path: format!("/{}", write.slot.path),
            key: write.slot.key.clone(),
            old: write.old.clone(),
            new: write.new.clone(),
            unit: write.unit.clone(),
            reason: write.reason.clone(),
        }
    }
}

fn group_views(groups: &GroupOutcome) -> Vec<GroupView> {
    let change = |is_made| if is_made { "make" } else { "remove" };
    let groups = groups.changes.iter().map(|it| GroupView {
        change: change(it.is_made).to_owned(),
        path: format!("/{}", it.path),
        reason: it.reason.clone(),
    });
    groups.collect()
}

fn move_views(groups: &GroupOutcome) -> Vec<MoveView> {
    let moves = groups.moves.iter().map(|ThreadMove { unit, group, threads }| MoveView {
        unit: unit.clone(),
        threads: *threads,
        path: format!("/{group}"),
    });
    moves.collect()
}

/// One line per group that is made or removed, and per container with threads that are moved.
pub(super) fn render_groups(groups: &GroupOutcome) -> String {
    let changes = group_views(groups).iter().map(render_group).collect::<String>();
    changes + &move_views(groups).iter().map(render_move).collect::<String>()
}

fn render_group(GroupView { change, path, reason }: &GroupView) -> String {
    format!("{change:<6} {path}  ({reason})\n")
}

fn render_move(MoveView { unit, threads, path }: &MoveView) -> String {
    format!("move   {threads} threads to {path}  ({unit})\n")
}

impl From<&Reclaim> for ReclaimView {
    fn from(it: &Reclaim) -> ReclaimView {
        ReclaimView {
            unit: it.member.unit.clone(),
            path: format!("/{}", it.path()),
            text: it.text(it.class.bytes),
            reason: it.reason(),
        }
    }
}

impl From<&Impossible> for ImpossibleView {
    fn from(it: &Impossible) -> ImpossibleView {
        let (unit, why) = (it.unit.clone(), it.why.clone());
        ImpossibleView { slot: it.slot.to_string(), unit, why }
    }
}

impl From<Outcome> for FilePlanView {
    fn from(outcome: Outcome) -> FilePlanView {
        let unknown =
            outcome.unkept.map(|why| format!("know what kernel files said before: {why}"));
        FilePlanView {
            format: "bayplan-plan/1".to_owned(),
            groups: group_views(&outcome.groups),
            writes: outcome.plan.writes.iter().map(WriteView::from).collect(),
            moves: move_views(&outcome.groups),
            reclaims: outcome.reclaims.iter().map(ReclaimView::from).collect(),
            impossible: outcome.plan.impossible.iter().map(ImpossibleView::from).collect(),
            problems: outcome.problems.into_iter().chain(unknown).collect(),
            changed: outcome.changed,
            failing: outcome.failing.len(),
            failures: outcome.failing,
            holds: Vec::new(),
            contested: outcome.contested,
        }
    }
}

/// One line per write, and what cannot be had.
pub fn render_file_plan_view(view: &FilePlanView) -> String {
    let or_none = |text: &str| if text.is_empty() { "(none)".to_owned() } else { text.to_owned() };
    let mut text: String = view.groups.iter().map(render_group).collect();
    for write in &view.writes {
        let WriteView { pass, path, key, old, new, unit, reason } = write;
        let key = key.as_ref().map(|key| format!(" [{key}]")).unwrap_or_default();
        let (old, new) = (or_none(old), or_none(new));
        text.push_str(&format!("{pass:<6} {path}{key} {old} -> {new}  ({unit}: {reason})\n"));
    }
    text.extend(view.moves.iter().map(render_move));
    if text.is_empty() && view.reclaims.is_empty() {
        text.push_str("Nothing is to be written.\n");
    }
    for ReclaimView { unit, path, text: value, reason } in &view.reclaims {
        text.push_str(&format!("reclaim {path} {value}  ({unit}: {reason})\n"));
    }
    for ImpossibleView { slot, unit, why } in &view.impossible {
        text.push_str(&format!("cannot {slot}: {why}  ({unit})\n"));
    }
    for problem in &view.problems {
        text.push_str(&format!("cannot: {problem}\n"));
    }
    for holds in &view.holds {
        text.push_str(&format!("differs: {holds}\n"));
    }
    for failure in &view.failures {
        text.push_str(&format!("failed, tried again: {failure}\n"));
    }
    for (count, what) in [
        (view.changed, "are changed by bayplan, and remembered as before"),
        (
            view.contested,
            "are changed by another program again and again, and left alone for a while",
        ),
    ] {
        if count > 0 {
            text.push_str(&format!("{count} values {what}.\n"));
        }
    }
    text
}
