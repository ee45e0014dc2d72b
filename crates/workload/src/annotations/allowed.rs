//! Whether a namespace may have a wish. In: the wish, the namespace, the rules of the configuration. Out: yes or no. Pure.

use super::field::Field;
use super::permissions::Wish;
use crate::rules::RequestRules;

/// Whether pods of a namespace may have a wish. The last rule that names both decides. Without one, what is harmful is not allowed, but
/// for the reserved CPUs in the namespaces with pods that run there anyway.
pub fn allowed(wish: &Wish, namespace: &str, rules: &RequestRules) -> bool {
    let said = rules.permissions.iter().rev().find_map(|rule| rule.verdict(wish, namespace));
    let is_system = || rules.is_reserved_namespace(namespace);
    let is_harmful = wish.is_harmful || rules.classes.is_harmful(wish);
    said.unwrap_or_else(|| !is_harmful || (wish.field == Field::IsReserved && is_system()))
}

/// Whether a rule says so in as many words: what is harmless is then not bounded either.
pub fn is_allowed_by_rule(wish: &Wish, namespace: &str, rules: &RequestRules) -> bool {
    rules.permissions.iter().rev().find_map(|rule| rule.verdict(wish, namespace)) == Some(true)
}
