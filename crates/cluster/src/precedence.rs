//! Which object configures a node. In: the node and all objects. Out: one of them, as a whole: nothing is merged.
//!
//! 1. `node.NAME` of the node.
//! 2. Objects with a `nodeSelector` that selects the node: the highest priority, then the first name.
//! 3. `group.GROUP` where the node has the label [`GROUP_LABEL`]. A group without its object is no default: a wrong label must not give a node another
//!    configuration than its group's, so the one that holds goes on to hold.
//! 4. `default`.
//!
//! An object with a selector counts by that alone, whatever its name.

use std::cmp::Reverse;

use crate::object::{ConfigObject, NodeObject};

/// The label of a node that says its group.
pub const GROUP_LABEL: &str = "bayplan.dev/group";

/// What is chosen for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// This object.
    Object(&'a ConfigObject),
    /// The node's group has none, which this is the missing one of.
    Missing(String),
    /// There is none: the node's file counts.
    File,
}

/// Chooses for a node.
pub fn choose<'a>(node: &NodeObject, objects: &'a [ConfigObject]) -> Choice<'a> {
    let named = |name: &str| {
        objects.iter().find(|object| object.node_selector.is_none() && object.name == name)
    };
    if let Some(object) = named(&format!("node.{}", node.name)) {
        return Choice::Object(object);
    }
    let selecting = objects.iter().filter(|object| selects(object, node));
    if let Some(object) = selecting.min_by_key(|it| (Reverse(it.priority), it.name.clone())) {
        return Choice::Object(object);
    }
    if let Some(group) = node.labels.get(GROUP_LABEL) {
        let name = format!("group.{group}");
        return named(&name).map_or_else(|| Choice::Missing(name), Choice::Object);
    }
    named("default").map_or(Choice::File, Choice::Object)
}

fn selects(object: &ConfigObject, node: &NodeObject) -> bool {
    let has = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
    object.node_selector.as_ref().is_some_and(|selector| selector.iter().all(has))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Words of the form `key=value`.
    fn labels(text: &str) -> BTreeMap<String, String> {
        let pairs = text.split_whitespace().filter_map(|it| it.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// An object: its name, then `?` and labels of its selector, then `^` and its priority.
    fn object(text: &str) -> ConfigObject {
        let (text, priority) = text.split_once('^').unwrap_or((text, "0"));
        let (name, selector) = match text.split_once('?') {
            Some((name, selector)) => (name, Some(labels(&selector.replace(',', " ")))),
            None => (text, None),
        };
        ConfigObject {
            node_selector: selector,
            priority: priority.parse().unwrap(),
            ..ConfigObject::empty(name, 1)
        }
    }

    #[test]
    fn the_nearest_object_counts() {
        for (has, objects, expected) in [
            ("", "", "file"),
            ("", "default", "default"),
            ("", "node.n1 group.a default", "node.n1"),
            ("", "node.n2 group.a", "file"),
            ("bayplan.dev/group=a", "group.a default", "group.a"),
            ("bayplan.dev/group=a", "group.b default", "missing group.a"),
            ("bayplan.dev/group=a", "node.n1 group.b", "node.n1"),
            ("bayplan.dev/group=a pool=x", "group.a x?pool=x", "x"),
            ("pool=x", "x?pool=y default", "default"),
            ("pool=x", "b?pool=x a?pool=x", "a"),
            ("pool=x", "a?pool=x^1 b?pool=x^2 c?pool=x^-1", "b"),
            ("pool=x zone=z", "a?pool=x,zone=y b?pool=x,zone=z", "b"),
            ("", "all?", "all"),
            // By its selector alone.
            ("", "node.n1?pool=x default?pool=x", "file"),
            ("pool=x", "default?pool=x node.n1", "node.n1"),
        ] {
            let objects: Vec<ConfigObject> = objects.split_whitespace().map(object).collect();
            let node =
                NodeObject { name: "n1".to_owned(), labels: labels(has), ..NodeObject::default() };
            let shown = match choose(&node, &objects) {
                Choice::Object(object) => object.name.clone(),
                Choice::Missing(name) => format!("missing {name}"),
                Choice::File => "file".to_owned(),
            };
            assert_eq!(shown, expected, "{has}: {objects:?}");
        }
    }
}
