//! A YAML document in which every key and value knows its line and column. In: text. Out: a tree, or the one syntax error.
//!
//! Deserialising straight into a struct stops at the first mistake; from this tree all mistakes can be listed at once.

use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{DuplicateKeyPolicy, Spanned, UserMessageFormatter};

/// Position of a key or value, both from 1; 0 when the parser does not know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Line.
    pub line: u64,
    /// Column.
    pub column: u64,
}

/// A value where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins.
    pub at: Position,
    /// What it is.
    pub value: Value,
}

/// Scalars keep their text; what they mean depends on the key.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing stands there, or `null`.
    Null,
    /// Text, a number or a flag.
    Scalar(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in the order of the file, duplicate keys included.
    Map(Vec<(Position, String, Node)>),
}

/// Parses one document; an empty one is `Null`.
///
/// # Errors
/// The first syntax error, and where it is.
pub fn parse_yaml(text: &str) -> Result<Node, (Position, String)> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Node { at: Position { line: 1, column: 1 }, value: Value::Null });
    }
    // A key that stands twice is reported with all other mistakes; with this policy both reach the visitor.
    let options = serde_yaml::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    match serde_yaml::from_str_with_options::<Spanned<Value>>(text, options) {
        Ok(root) => twice(text).map_or_else(|| Ok(root.into()), Err),
        Err(error) => {
            let at = error.location().map(|location| position(&location)).unwrap_or_default();
            Err((at, error.without_snippet().render_with_formatter(&UserMessageFormatter)))
        }
    }
}

/// The first key that stands twice, where it is a number: with the policy above, only the last of these reaches the visitor.
fn twice(text: &str) -> Option<(Position, String)> {
    let options = serde_yaml::options! { duplicate_keys: DuplicateKeyPolicy::Error };
    let error = serde_yaml::from_str_with_options::<Spanned<Value>>(text, options).err()?;
    let serde_yaml::Error::DuplicateMappingKey { key: Some(key), location } =
        error.without_snippet()
    else {
        return None;
    };
    key.parse::<i64>().ok()?;
    Some((position(location), format!("duplicate key `{key}`")))
}

fn position(location: &serde_yaml::Location) -> Position {
    Position { line: location.line(), column: location.column() }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Node {
        Node { at: position(&spanned.referenced), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

macro_rules! scalars {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E>(self, value: $type) -> Result<Value, E> {
            Ok(Value::Scalar(value.to_string()))
        })*
    };
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a list or a mapping")
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            list.push(item.into());
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let value = entries.next_value::<Spanned<Value>>()?;
            map.push((position(&key.referenced), key.value, value.into()));
        }
        Ok(Value::Map(map))
    }
}
