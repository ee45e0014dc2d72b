//! A list of things with names, as the keys about groups have them. In: a tree of the file. Out: the things, and every mistake in them.

use crate::errors::ConfigError;
use crate::kind::Field;
use crate::yaml::{Node, Value};

/// The items of a list, each as `item` reads it. Each has a name, and no two may have the same. Messages say that the list is `expected`, and that it holds `things`.
pub(super) fn named_list<T>(
    field: &Field<'_>,
    (expected, things): (&str, &str),
    item: impl Fn(&Node, &mut Vec<ConfigError>) -> T,
    name: impl Fn(&T) -> &str,
) -> (Vec<T>, Vec<ConfigError>) {
    let mut errors = Vec::new();
    let items: &[Node] = match &field.value.value {
        Value::List(items) => items,
        Value::Null => &[],
        _ => {
            let message = format!("`{}` is no list, expected {expected}", field.key);
            errors.push(ConfigError { at: field.value.at, message });
            &[]
        }
    };
    let mut found: Vec<T> = Vec::new();
    for node in items {
        let one = item(node, &mut errors);
        let mut wrong = |message| errors.push(ConfigError { at: node.at, message });
        match name(&one) {
            "" => wrong(format!("one of the {things} of `{}` has no `name`", field.key)),
            own if found.iter().any(|it| name(it) == own) => {
                wrong(format!("two {things} of `{}` are called `{own}`", field.key));
            }
            _ => {}
        }
        found.push(one);
    }
    (found, errors)
}
