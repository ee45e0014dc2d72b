//! Walks the keys of a document by rules. In: a document and the [`Rule`]s of its system. Out: keys of ours, and a [`Note`] for each of theirs.
//!
//! A rule is the name of a key below the place that is walked, dots between levels, whatever its case, and what becomes of it. A key without a rule is noted as one without
//! counterpart. Keys of a mapping that no rule begins with are one note.

use bayplan_topology::Topology;

use super::document::{Document, Origin, entries};
use super::input::Target;
use super::output::{Step, Yaml, render_comment};
use super::report::{Counts, Fate, Imported, Note, count_keys, shorten};
use crate::yaml::{Node, Position, Value};

/// The name of a key, and what becomes of it.
pub(super) type Rule = (&'static str, Does);

/// What becomes of a key.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// Its value, with all that is below, is the value of this key of ours.
    Take(&'static str),
    /// Its value is converted; an error is why it has no counterpart.
    Convert(&'static str, fn(&Node) -> Result<Yaml, String>),
    /// Its value decides.
    Judge(fn(&Node) -> Fate),
    /// It is always so.
    Holds(&'static str),
    /// It has no counterpart.
    Lost(&'static str),
    /// A function notes it and all that is below.
    Call(fn(&mut Walk<'_>, &Place, &Node)),
}

/// Where the walk is, in their document and in ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// Their key: `spec.balloonTypes[0]`.
    pub(super) key: String,
    /// Ours: `groups`, 0.
    pub(super) to: Vec<Step>,
}

impl Place {
    /// A key below, theirs.
    pub(super) fn below(&self, key: &str) -> Place {
        let dot = if self.key.is_empty() { "" } else { "." };
        Place { key: format!("{}{dot}{key}", self.key), to: self.to.clone() }
    }

    /// An item of this list, theirs.
    pub(super) fn item(&self, idx: usize) -> Place {
        Place { key: format!("{}[{idx}]", self.key), to: self.to.clone() }
    }

    /// The same place of theirs, another of ours.
    pub(super) fn writing(&self, to: Vec<Step>) -> Place {
        Place { key: self.key.clone(), to }
    }

    /// A key of ours below, dots between levels.
    pub(super) fn target(&self, key: &str) -> Vec<Step> {
        let mut to = self.to.clone();
        to.extend(path(key));
        to
    }
}

/// A path of ours, dots between levels.
pub(super) fn path(key: &str) -> Vec<Step> {
    key.split('.').map(|key| Step::Key(key.to_owned())).collect()
}

/// A path as it is written: `groups[0].size.requests.min`.
fn render_path(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => text.push_str(&format!(".{key}")),
            Step::Index(idx) => text.push_str(&format!("[{idx}]")),
        }
    }
    text
}

/// What is written, and what was noted so far.
pub(super) struct Walk<'a> {
    /// Our configuration.
    pub(super) out: Yaml,
    /// The machine, if it is known.
    pub(super) machine: Option<&'a Topology>,
    notes: Vec<Note>,
    file: String,
    /// The system and form of this document.
    origin: Option<Origin>,
    /// What becomes of keys without a rule; `None`: they have no counterpart.
    rest: Option<&'static str>,
    /// The first note of this document.
    first: usize,
    /// Keys of ours that are not carried out yet.
    refused: &'a [&'a str],
    /// Keys of ours that belong into a node's file.
    node_keys: &'a [&'a str],
}

impl<'a> Walk<'a> {
    pub(super) fn new(target: &Target<'a>) -> Walk<'a> {
        let Target { machine, refused, node_keys, .. } = *target;
        Walk {
            out: Yaml::Null,
            machine,
            notes: Vec::new(),
            file: String::new(),
            origin: None,
            rest: None,
            first: 0,
            refused,
            node_keys,
        }
    }

    /// What follows is of this document.
    pub(super) fn begin(&mut self, document: &Document) {
        self.sort();
        self.first = self.notes.len();
        self.file.clone_from(&document.file);
        self.origin.clone_from(&document.origin);
    }

    /// Whether the system of this document has a class `default` that need not be defined.
    pub(super) fn has_default_class(&self) -> bool {
        matches!(self.origin, Some(Origin::Power(_)))
    }

    /// Notes of a document are in the order of its lines, in whatever order its keys were walked.
    fn sort(&mut self) {
        if let Some(notes) = self.notes.get_mut(self.first..) {
            notes.sort_by_key(|note| note.at);
        }
    }

    /// A whole document has no counterpart.
    pub(super) fn leave(&mut self, document: &Document, why: &str) {
        let place = Place { key: document.title.clone(), to: Vec::new() };
        self.note(&place, &document.root, Fate::lost(why));
    }

    /// Walks a document.
    pub(super) fn document(&mut self, rules: &[Rule], document: &Document) {
        let place = Place { key: document.prefix.to_owned(), to: Vec::new() };
        self.keys(rules, &place, &document.root);
    }

    /// Walks while keys without a rule need no key here, for this reason.
    pub(super) fn with_rest(&mut self, why: &'static str, walk: impl FnOnce(&mut Self)) {
        self.rest = Some(why);
        walk(self);
        self.rest = None;
    }

    /// Walks the keys of a mapping.
    pub(super) fn keys(&mut self, rules: &[Rule], place: &Place, node: &Node) {
        self.descend(rules, place, "", node);
    }

    fn descend(&mut self, rules: &[Rule], place: &Place, name: &str, node: &Node) {
        for (_, key, value) in entries(node) {
            let whole = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            let below = place.below(key);
            let rule = rules.iter().find(|(known, _)| known.eq_ignore_ascii_case(&whole));
            let begins = |(known, _): &&Rule| {
                let head = known.get(..whole.len());
                let rest = known.get(whole.len()..);
                head.is_some_and(|it| it.eq_ignore_ascii_case(&whole))
                    && rest.is_some_and(|it| it.starts_with('.'))
            };
            let is_section = rules.iter().any(|rule| begins(&rule));
            match rule {
                Some((_, does)) => self.apply(*does, &below, value),
                None if is_section && !matches!(value.value, Value::Scalar(_) | Value::List(_)) => {
                    self.descend(rules, &below, &whole, value);
                }
                None => {
                    let system = || self.origin.as_ref().map_or("", Origin::name);
                    let unknown = || format!("no key of {} that is known here", system());
                    let fate = self.rest.map_or_else(|| Fate::Lost(unknown()), Fate::holds);
                    self.note(&below, value, fate);
                }
            }
        }
    }

    fn apply(&mut self, does: Does, place: &Place, node: &Node) {
        match does {
            Does::Take(key) => self.take(place, node, place.target(key), Yaml::of(node)),
            Does::Convert(key, convert) => match convert(node) {
                Ok(value) => self.take(place, node, place.target(key), value),
                Err(why) => self.note(place, node, Fate::Lost(why)),
            },
            Does::Judge(judge) => self.note(place, node, judge(node)),
            Does::Holds(why) => self.note(place, node, Fate::holds(why)),
            Does::Lost(why) => self.note(place, node, Fate::lost(why)),
            Does::Call(call) => call(self, place, node),
        }
    }

    /// Carries a key over to a path of ours, unless another value stands there already.
    pub(super) fn take(&mut self, place: &Place, node: &Node, to: Vec<Step>, value: Yaml) {
        if let Some(fate) = self.refusal(&render_path(&to)) {
            self.note(place, node, fate);
            return;
        }
        let comment = comment(place, node);
        let fate = match self.out.set(&to, value, Some(comment)) {
            true => Fate::Taken(render_path(&to)),
            false => Fate::Lost(format!("`{}` is set already, to another value", render_path(&to))),
        };
        self.note(place, node, fate);
    }

    /// Adds to a list of ours.
    pub(super) fn add(&mut self, place: &Place, node: &Node, to: Vec<Step>, values: Vec<Yaml>) {
        let comment = comment(place, node);
        let fate = match self.out.add(&to, values, Some(comment)) {
            true => Fate::Taken(render_path(&to)),
            false => Fate::Lost(format!("`{}` is no list", render_path(&to))),
        };
        self.note(place, node, fate);
    }

    /// Sets a key of ours that no single key of theirs says; what stands there already stays.
    pub(super) fn put(&mut self, to: Vec<Step>, value: Yaml, why: &str) {
        let key = render_path(&to);
        if let Some(fate) = self.refusal(&key) {
            self.note_text(&key, why, fate);
            return;
        }
        if self.out.get(&to).is_none() {
            self.out.set(&to, value, Some(why.to_owned()));
        }
    }

    /// Why a key of ours cannot be set: it is not carried out yet, or belongs into a node's file.
    pub(super) fn refusal(&self, key: &str) -> Option<Fate> {
        let is_digit = |c: char| c.is_ascii_digit();
        let plain: String = key.split(is_digit).collect();
        let is_below = |refused: &&&str| {
            let rest = plain.strip_prefix(**refused);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if let Some(own) = self.node_keys.iter().find(is_below) {
            return Some(Fate::Lost(format!(
                "`{own}` is the node's own: it belongs into its file"
            )));
        }
        let refused = self.refused.iter().find(is_below)?;
        Some(Fate::Lost(format!("`{refused}` is not supported yet")))
    }

    /// Writes down what became of a key. An empty one counts for nothing.
    pub(super) fn note(&mut self, place: &Place, node: &Node, fate: Fate) {
        if matches!(node.value, Value::Null) && !matches!(fate, Fate::Taken(_)) {
            return;
        }
        let refusal = match &fate {
            Fate::Taken(key) => self.refusal(key),
            _ => None,
        };
        let fate = refusal.unwrap_or(fate);
        let note = Note {
            file: self.file.clone(),
            at: node.at,
            key: place.key.clone(),
            value: shorten(node),
            keys: count_keys(node),
            fate,
        };
        self.notes.push(note);
    }

    /// The same for what is no node of a document.
    pub(super) fn note_text(&mut self, key: &str, value: &str, fate: Fate) {
        let at = Position { line: 1, column: 1 };
        let node = Node { at, value: Value::Scalar(value.to_owned()) };
        self.note(&Place { key: key.to_owned(), to: Vec::new() }, &node, fate);
    }

    /// How many entries the list at a path of ours has.
    pub(super) fn list_len(&self, key: &str) -> usize {
        match self.out.get(&path(key)) {
            Some(Yaml::List(items)) => items.len(),
            _ => 0,
        }
    }

    /// The file, and all notes.
    pub(super) fn finish(mut self, origins: &[String]) -> Imported {
        self.sort();
        let counts = Counts::of(&self.notes);
        let from = format!("Written by `bayplan import` from {}.", origins.join(", "));
        let mut text = render_comment(&from, 0);
        let how =
            "Above a key stands where it comes from; what has no key here is listed at the end.";
        text.push_str(&render_comment(how, 0));
        if self.out != Yaml::Null {
            text.push('\n');
            text.push_str(&self.out.render());
        }
        let mut list = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                text.push_str(&format!("\n# {title}\n"));
                text.extend(lines.iter().map(|line| render_comment(&format!("- {line}"), 0)));
            }
        };
        let line = |note: &Note, why: &str| format!("{}: {} ({why})", note.key, note.value);
        let held = self.notes.iter().filter_map(|note| match &note.fate {
            Fate::Holds(why) => Some(line(note, why)),
            _ => None,
        });
        list("Needs no key here:", held.collect());
        let lost = self.notes.iter().filter_map(|note| match &note.fate {
            Fate::Lost(why) => Some(line(note, why)),
            _ => None,
        });
        list("Without counterpart:", lost.collect());
        text.push_str(&format!("\n# {}\n", counts.render()));
        Imported { text, notes: self.notes }
    }
}

fn comment(place: &Place, node: &Node) -> String {
    match node.value {
        Value::Map(_) | Value::List(_) => place.key.clone(),
        _ => format!("{}: {}", place.key, shorten(node)),
    }
}
