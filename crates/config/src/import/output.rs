//! The configuration that is written: a tree of keys in the order in which they were set, each with comments. Out: YAML.

use crate::yaml::{Node, Value};

/// A value and what is said above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    comments: Vec<String>,
    value: Yaml,
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Yaml {
    #[default]
    Null,
    Scalar(String),
    List(Vec<Item>),
    Map(Vec<(String, Item)>),
}

/// One step down the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

impl Yaml {
    /// A scalar.
    pub(super) fn text(text: impl Into<String>) -> Yaml {
        Yaml::Scalar(text.into())
    }

    /// A list of scalars.
    pub(super) fn texts(texts: impl IntoIterator<Item = String>) -> Yaml {
        Yaml::List(texts.into_iter().map(|it| Item::from(Yaml::Scalar(it))).collect())
    }

    /// A mapping.
    pub(super) fn map(entries: impl IntoIterator<Item = (String, Yaml)>) -> Yaml {
        Yaml::Map(entries.into_iter().map(|(key, value)| (key, Item::from(value))).collect())
    }

    /// As it is in another file.
    pub(super) fn of(node: &Node) -> Yaml {
        match &node.value {
            Value::Null => Yaml::Null,
            Value::Scalar(text) => Yaml::Scalar(text.clone()),
            Value::List(items) => {
                Yaml::List(items.iter().map(|it| Item::from(Yaml::of(it))).collect())
            }
            Value::Map(entries) => {
                Yaml::map(entries.iter().map(|(_, key, value)| (key.clone(), Yaml::of(value))))
            }
        }
    }

    /// The item at a path, which is made where it is missing. `None` where something else stands in the way.
    fn at(&mut self, path: &[Step]) -> Option<&mut Yaml> {
        let Some((step, rest)) = path.split_first() else { return Some(self) };
        self.item(step)?.value.at(rest)
    }

    fn item(&mut self, step: &Step) -> Option<&mut Item> {
        match step {
            Step::Key(key) => {
                if *self == Yaml::Null {
                    *self = Yaml::Map(Vec::new());
                }
                let Yaml::Map(entries) = self else { return None };
                let idx = entries.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
                    entries.push((key.clone(), Item::default()));
                    entries.len() - 1
                });
                entries.get_mut(idx).map(|(_, item)| item)
            }
            Step::Index(idx) => {
                if *self == Yaml::Null {
                    *self = Yaml::List(Vec::new());
                }
                let Yaml::List(items) = self else { return None };
                if items.len() <= *idx {
                    items.resize(idx + 1, Item::default());
                }
                items.get_mut(*idx)
            }
        }
    }

    /// What stands at a path.
    pub(super) fn get(&self, path: &[Step]) -> Option<&Yaml> {
        let Some((step, rest)) = path.split_first() else { return Some(self) };
        let item = match (self, step) {
            (Yaml::Map(entries), Step::Key(key)) => {
                &entries.iter().find(|(known, _)| known == key)?.1
            }
            (Yaml::List(items), Step::Index(idx)) => items.get(*idx)?,
            _ => return None,
        };
        item.value.get(rest)
    }

    /// Sets what is not set yet, or is set to the same; `false` where something else stands already.
    pub(super) fn set(&mut self, path: &[Step], value: Yaml, comment: Option<String>) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let Some(item) = self.at(parents).and_then(|parent| parent.item(last)) else {
            return false;
        };
        if item.value != Yaml::Null && item.value != value {
            return false;
        }
        item.value = value;
        item.comments.extend(comment);
        true
    }

    /// Adds to the list at a path; what is there already is not added again.
    pub(super) fn add(
        &mut self,
        path: &[Step],
        values: Vec<Yaml>,
        comment: Option<String>,
    ) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let Some(item) = self.at(parents).and_then(|parent| parent.item(last)) else {
            return false;
        };
        if item.value == Yaml::Null {
            item.value = Yaml::List(Vec::new());
        }
        let Yaml::List(items) = &mut item.value else { return false };
        for value in values {
            if !items.iter().any(|it| it.value == value) {
                items.push(Item::from(value));
            }
        }
        item.comments.extend(comment);
        true
    }

    /// As text of a file.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        match self {
            Yaml::Map(entries) => {
                for (idx, (key, item)) in entries.iter().enumerate() {
                    if idx > 0 && (!item.comments.is_empty() || !item.is_flat()) {
                        text.push('\n');
                    }
                    item.render_entry(key, 0, &mut text);
                }
            }
            other => other.render_below(0, &mut text),
        }
        text
    }

    /// What comes below a key or a dash.
    fn render_below(&self, indent: usize, text: &mut String) {
        match self {
            Yaml::Null | Yaml::Scalar(_) => {}
            Yaml::Map(entries) => {
                for (key, item) in entries {
                    item.render_entry(key, indent, text);
                }
            }
            Yaml::List(items) => {
                for item in items {
                    item.render_item(indent, text);
                }
            }
        }
    }

    /// In one line, if it is short and without comments.
    fn flat(&self) -> Option<String> {
        const LENGTH_MAX: usize = 80;
        match self {
            Yaml::Null => Some(String::new()),
            Yaml::Scalar(text) => Some(quote(text)),
            Yaml::List(items) => {
                let is_scalar =
                    |it: &&Item| matches!(it.value, Yaml::Scalar(_)) && it.comments.is_empty();
                let flat = items.iter().filter(is_scalar).filter_map(|it| it.value.flat());
                let flat: Vec<String> = flat.collect();
                let line = format!("[{}]", flat.join(", "));
                (flat.len() == items.len() && line.len() <= LENGTH_MAX).then_some(line)
            }
            Yaml::Map(entries) => entries.is_empty().then(|| "{}".to_owned()),
        }
    }
}

impl From<Yaml> for Item {
    fn from(value: Yaml) -> Item {
        Item { comments: Vec::new(), value }
    }
}

impl Item {
    fn is_flat(&self) -> bool {
        self.value.flat().is_some()
    }

    fn render_comments(&self, indent: usize, text: &mut String) {
        for comment in &self.comments {
            text.push_str(&render_comment(comment, indent));
        }
    }

    fn render_entry(&self, key: &str, indent: usize, text: &mut String) {
        self.render_comments(indent, text);
        let margin = " ".repeat(indent);
        let key = quote(key);
        match self.value.flat() {
            Some(flat) => text.push_str(format!("{margin}{key}: {flat}").trim_end()),
            None => text.push_str(&format!("{margin}{key}:")),
        }
        text.push('\n');
        if !self.is_flat() {
            self.value.render_below(indent + 2, text);
        }
    }

    fn render_item(&self, indent: usize, text: &mut String) {
        let margin = " ".repeat(indent);
        self.render_comments(indent, text);
        if let Some(flat) = self.value.flat() {
            text.push_str(&format!("{margin}- {flat}\n"));
            return;
        }
        // The first line of what follows goes behind the dash, its comments before it.
        let mut below = String::new();
        self.value.render_below(indent + 2, &mut below);
        let mut has_dash = false;
        for line in below.lines() {
            let is_comment = line.trim_start().starts_with('#');
            match has_dash || is_comment {
                true if has_dash => text.push_str(&format!("{line}\n")),
                true => text.push_str(&format!("{}\n", line.get(2..).unwrap_or_default())),
                false => {
                    let line = line.get(indent + 2..).unwrap_or_default();
                    text.push_str(&format!("{margin}- {line}\n"));
                    has_dash = true;
                }
            }
        }
    }
}

/// Lines of a comment, broken at blanks.
pub(super) fn render_comment(comment: &str, indent: usize) -> String {
    const WIDTH: usize = 118;
    let margin = " ".repeat(indent);
    let mut text = String::new();
    let mut line = format!("{margin}#");
    for word in comment.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > indent + 1 {
            text.push_str(&format!("{line}\n"));
            line = format!("{margin}#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&format!("{line}\n"));
    text
}

/// A scalar that is read as the same text again.
fn quote(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let is_named = !["null", "true", "false", "yes", "no", "on", "off", "y", "n"]
        .contains(&text.to_ascii_lowercase().as_str())
        && text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = text == "0" || digits.parse::<u64>().is_ok() && !digits.starts_with(['0', '+']);
    let is_plain =
        is_named && text.chars().all(is_word) || is_number || ["true", "false"].contains(&text);
    match is_plain {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}
