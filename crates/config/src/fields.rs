//! Reads the keys of a mapping. In: a mapping of the file. Out: values; every mistake with its place, a key that stands twice among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use bayplan_workload::annotations::Words;

use crate::errors::ConfigError;
use crate::kind::Field;
use crate::yaml::{Node, Position, Value};

/// A key where it stands, and its value.
pub(crate) type Entry<'a> = (Position, String, &'a Node);

pub(crate) const LINES: &str = "lines of `key: value`";

/// The fields of one mapping.
pub(crate) struct Fields<'a> {
    what: String,
    node: &'a Node,
    errors: &'a mut Vec<ConfigError>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(what: &str, node: &'a Node, errors: &'a mut Vec<ConfigError>) -> Fields<'a> {
        Fields { what: what.to_owned(), node, errors }
    }

    /// The same for a value that is a mapping of its own.
    pub(crate) fn inner<'b>(&'b mut self, key: &str, node: &'b Node) -> Fields<'b> {
        Fields { what: format!("{}.{key}", self.what), node, errors: self.errors }
    }

    /// Where the mapping begins.
    pub(crate) fn at(&self) -> Position {
        self.node.at
    }

    pub(crate) fn wrong(&mut self, at: Position, message: String) {
        self.errors.push(ConfigError { at, message: format!("`{}`: {message}", self.what) });
    }

    pub(crate) fn unknown(&mut self, at: Position, key: &str, known: &[&str]) {
        self.wrong(at, format!("unknown key `{key}`; known are {}", known.join(", ")));
    }

    /// How many mistakes there are so far.
    pub(crate) fn mistakes(&self) -> usize {
        self.errors.len()
    }

    /// Keys and values; what is no mapping is a mistake, and so is a key that stands twice.
    pub(crate) fn entries(&mut self) -> Vec<Entry<'a>> {
        self.entries_of(LINES)
    }

    /// The same; `expected` ends the sentence about what is no mapping.
    pub(crate) fn entries_of(&mut self, expected: &str) -> Vec<Entry<'a>> {
        let entries = self.names(expected);
        self.refuse_repeated(&entries, |_| None);
        entries
    }

    /// The same where a key has several spellings: each with its name, if it is known.
    pub(crate) fn entries_by_name(
        &mut self,
        expected: &str,
        name_of: impl Fn(&str) -> Option<&'static str>,
    ) -> Vec<(Option<&'static str>, Entry<'a>)> {
        let entries = self.names(expected);
        self.refuse_repeated(&entries, &name_of);
        entries.into_iter().map(|it| (name_of(&it.1), it)).collect()
    }

    /// The same for names that the file gives, of which the caller says whether one may stand twice.
    pub(crate) fn names(&mut self, expected: &str) -> Vec<Entry<'a>> {
        let entries = mapping(self.node).unwrap_or_else(|| {
            self.wrong(self.node.at, format!("expected {expected}"));
            &[]
        });
        entries.iter().map(|(at, key, value)| (*at, key.clone(), value)).collect()
    }

    fn refuse_repeated(
        &mut self,
        entries: &[Entry<'_>],
        name_of: impl Fn(&str) -> Option<&'static str>,
    ) {
        let mut known = BTreeSet::new();
        for (at, key, _) in entries {
            if !known.insert(name_of(key).unwrap_or(key)) {
                self.wrong(*at, format!("duplicate key `{key}`"));
            }
        }
    }

    pub(crate) fn text<'b>(&mut self, key: &str, value: &'b Node) -> Option<&'b str> {
        match &value.value {
            Value::Scalar(text) if !text.is_empty() => Some(text),
            _ => {
                self.wrong(value.at, format!("`{key}` is no text"));
                None
            }
        }
    }

    pub(crate) fn word<T: Clone>(
        &mut self,
        key: &str,
        value: &Node,
        words: &Words<T>,
    ) -> Option<T> {
        let text = self.text(key, value)?.to_owned();
        let found = one_of(&text, words);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(value.at, format!("`{key}` is `{text}`, expected {}", known.join(", ")));
        }
        found
    }

    /// What a parser makes of the text, or a mistake.
    pub(crate) fn parsed<T>(
        &mut self,
        key: &str,
        value: &Node,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(key, value)?.to_owned();
        let parsed = parse(&text);
        if parsed.is_none() {
            self.wrong(value.at, format!("`{key}` is `{text}`, expected {expected}"));
        }
        parsed
    }

    /// What the type makes of the text; its error says what was expected.
    pub(crate) fn read<T: FromStr<Err: Display>>(&mut self, key: &str, value: &Node) -> Option<T> {
        let read = self.text(key, value)?.parse();
        read.inspect_err(|error| self.wrong(value.at, format!("`{key}`: {error}"))).ok()
    }

    /// A number within bounds; `expected` names them.
    pub(crate) fn number<T: FromStr + PartialOrd>(
        &mut self,
        key: &str,
        value: &Node,
        bounds: RangeInclusive<T>,
        expected: &str,
    ) -> Option<T> {
        let parse = |text: &str| text.parse().ok().filter(|it| bounds.contains(it));
        self.parsed(key, value, expected, parse)
    }

    /// The items of a list; what is none is a mistake. `expected` ends the sentence.
    pub(crate) fn list<'b>(&mut self, key: &str, value: &'b Node, expected: &str) -> &'b [Node] {
        match &value.value {
            Value::List(items) => items,
            _ => {
                self.wrong(value.at, format!("`{key}` is no list, expected {expected}"));
                &[]
            }
        }
    }

    /// The items of a list of texts, with their places.
    pub(crate) fn texts(
        &mut self,
        key: &str,
        value: &Node,
        expected: &str,
    ) -> Vec<(Position, String)> {
        let mut texts = Vec::new();
        for item in self.list(key, value, expected) {
            match &item.value {
                Value::Scalar(text) if !text.is_empty() => texts.push((item.at, text.clone())),
                _ => self.wrong(item.at, format!("`{key}` has an item that is no text")),
            }
        }
        texts
    }

    pub(crate) fn flag(&mut self, key: &str, value: &Node) -> Option<bool> {
        self.word(key, value, &[("true", true), ("false", false)])
    }
}

/// The lines of a mapping.
pub(crate) type Entries = [(Position, String, Node)];

/// The lines below a key, none where it has no value; `None`: it is no mapping.
pub(crate) fn mapping(node: &Node) -> Option<&Entries> {
    match &node.value {
        Value::Map(entries) => Some(entries),
        Value::Null => Some(&[]),
        _ => None,
    }
}

/// Values by their names; a name that stands twice is a mistake, and what is no mapping is one, too.
pub(crate) fn named<T>(
    field: &Field<'_>,
    expected: &str,
    errors: &mut Vec<ConfigError>,
    mut read: impl FnMut(Position, &str, &Node, &mut Vec<ConfigError>) -> T,
) -> BTreeMap<String, T> {
    let mut named = BTreeMap::new();
    let entries = mapping(field.value).unwrap_or_else(|| {
        let message = format!("`{}`: expected {expected}", field.key);
        errors.push(ConfigError { at: field.value.at, message });
        &[]
    });
    for (at, name, value) in entries {
        let read = read(*at, name, value, errors);
        if named.insert(name.clone(), read).is_some() {
            errors.push(ConfigError { at: *at, message: format!("duplicate class `{name}`") });
        }
    }
    named
}

pub(crate) fn one_of<T: Clone>(text: &str, words: &Words<T>) -> Option<T> {
    words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| meaning.clone())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::test_support::differences;

    #[test]
    fn a_key_that_stands_twice_is_a_mistake_in_every_mapping() {
        let text = "\
groups:
- {name: a, name: b, members: {all: true, all: false}}
groupLoads:
- {name: avx, level: core, level: l2}
schedulingClasses:
- {name: c, policy: idle, policy: other}
blockIo:
  classes: {slow: [{Weight: 10, Weight: 20}, {Weight: 10, weight: 20}]}
memory:
  reclaim: {little: {every: 5m, every: 6m}}
permissions:
- {namespaces: [a], namespaces: [b]}
cpuClasses:
  schedule: [{at: '22:00', at: '23:00', shared: a, shared: b}]
  classes: [{name: a, clos: 0, name: b}, {name: b}]
resctrl:
  options: {l3: {optional: true}, l3: {optional: false}}
  partitions:
    p: {l3Allocation: 50%, l3Allocation: 60%, classes: {c: {l3Allocation: 50%, l3Allocation: 60%}}}
";
        expect![[r#"
            f:2:13: `groups`: duplicate key `name`
            f:2:43: `groups.members`: duplicate key `all`
            f:4:28: `groupLoads`: duplicate key `level`
            f:6:27: `schedulingClasses`: duplicate key `policy`
            f:8:33: `blockIo.classes.slow`: duplicate key `Weight`
            f:8:59: `blockIo.classes.slow`: duplicate key `weight`
            f:10:33: `memory.reclaim.little`: duplicate key `every`
            f:12:21: `permissions`: duplicate key `namespaces`
            f:14:28: `cpuClasses.schedule`: duplicate key `at`
            f:14:52: `cpuClasses.schedule`: duplicate key `shared`
            f:15:32: `cpuClasses.classes.a`: duplicate key `name`
            f:17:35: `resctrl.options`: duplicate key `l3`
            f:19:28: `resctrl.partitions.p`: duplicate key `l3Allocation`
            f:19:80: `resctrl.partitions.p.classes.c`: duplicate key `l3Allocation`"#]]
        .assert_eq(&differences(text));
    }
}
