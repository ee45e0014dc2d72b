//! Names of annotations. In: the annotations of a pod. Out: for every key the one that counts for a container, and those that are not known.
//!
//! A key is written `KEY.PREFIX/container.NAME`, `KEY.PREFIX/pod`, `KEY.PREFIX` or `PREFIX/KEY`; the most specific one wins, of equally
//! specific ones ours.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Our own prefix.
pub(crate) const OWN: &str = "bayplan.dev";
/// CRI Resource Manager.
pub(super) const CRM: &str = "cri-resource-manager.intel.com";
/// nri-plugins.
pub(super) const NRI: &str = "resource-policy.nri.io";
/// Ours first.
const PREFIXES: [&str; 3] = [OWN, CRM, NRI];

/// What an annotation is for, the least specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    /// Every container of the pod.
    Pod,
    /// The same, and more specific, because it says so.
    WholePod,
    /// The container of this name.
    Container(&'a str),
}

impl Scope<'_> {
    /// Orders scopes without their names.
    pub(super) fn specificity(self) -> u8 {
        match self {
            Scope::Pod => 0,
            Scope::WholePod => 1,
            Scope::Container(_) => 2,
        }
    }
}

/// The name of an annotation, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name<'a> {
    pub(super) key: &'a str,
    pub(super) prefix: &'static str,
    pub(super) scope: Scope<'a>,
}

/// `None`: it is no name under a prefix of ours, or has a scope that does not exist.
pub(super) fn parse_name(name: &str) -> Option<Name<'_>> {
    let (domain, scope) = match name.split_once('/') {
        None => (name, Scope::Pod),
        Some((domain, "pod")) if !PREFIXES.contains(&domain) => (domain, Scope::WholePod),
        Some((domain, rest)) => match PREFIXES.into_iter().find(|prefix| *prefix == domain) {
            Some(prefix) => return Some(Name { key: rest, prefix, scope: Scope::Pod }),
            None => (domain, Scope::Container(rest.strip_prefix("container.")?)),
        },
    };
    let split = |prefix| Some((domain.strip_suffix(prefix)?.strip_suffix('.')?, prefix));
    let (key, prefix) = PREFIXES.into_iter().find_map(split)?;
    // The user's guide of CRI Resource Manager calls the class so.
    let key = if prefix == CRM && key == "rdt-class" { "rdtclass" } else { key };
    Some(Name { key, prefix, scope })
}

/// Whether bayplan has a use for an annotation of this name, be it to say that it does not understand it.
pub(super) fn has_prefix(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.contains(prefix))
}

/// An annotation that counts for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// As it stands in the pod.
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) scope: Scope<'a>,
    prefix: &'static str,
}

/// Annotations by key, and the names that belong to none.
#[derive(Debug, Default)]
pub(super) struct Lookup<'a> {
    pub(super) found: BTreeMap<&'a str, Found<'a>>,
    pub(super) unknown: Vec<&'a str>,
}

/// Sorts the annotations of a pod for one of its containers; `is_known` says which keys there are under which prefix.
pub(super) fn look_up<'a>(
    annotations: &'a BTreeMap<String, String>,
    container: &str,
    is_known: impl Fn(&Name<'_>) -> bool,
) -> Lookup<'a> {
    let mut lookup = Lookup::default();
    for (name, value) in annotations.iter().filter(|(name, _)| has_prefix(name)) {
        let Some(parsed) = parse_name(name).filter(&is_known) else {
            lookup.unknown.push(name);
            continue;
        };
        let Name { key, prefix, scope } = parsed;
        if matches!(scope, Scope::Container(other) if other != container) {
            continue;
        }
        let new = Found { name, value, scope, prefix };
        let best = lookup.found.entry(key).or_insert(new);
        if new.rank() > best.rank() {
            *best = new;
        }
    }
    lookup
}

impl<'a> Found<'a> {
    fn rank(&self) -> (u8, Reverse<Option<usize>>, Reverse<&'a str>) {
        let prefix = PREFIXES.iter().position(|prefix| *prefix == self.prefix);
        (self.scope.specificity(), Reverse(prefix), Reverse(self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        use Scope::{Container, Pod, WholePod};
        for (name, expected) in [
            ("bayplan.dev/siblings", Some(("siblings", OWN, Pod))),
            ("siblings.bayplan.dev", Some(("siblings", OWN, Pod))),
            ("siblings.bayplan.dev/pod", Some(("siblings", OWN, WholePod))),
            ("siblings.bayplan.dev/container.a.b", Some(("siblings", OWN, Container("a.b")))),
            ("cpu.preserve.resource-policy.nri.io", Some(("cpu.preserve", NRI, Pod))),
            ("cri-resource-manager.intel.com/affinity", Some(("affinity", CRM, Pod))),
            ("rdt-class.cri-resource-manager.intel.com/pod", Some(("rdtclass", CRM, WholePod))),
            ("rdt-class.bayplan.dev", Some(("rdt-class", OWN, Pod))),
            ("bayplan.dev/pod", Some(("pod", OWN, Pod))),
            ("siblings.bayplan.dev/pods", None),
            ("siblings.bayplan.dev/", None),
            ("siblingsbayplan.dev/pod", None),
            ("bayplan.dev", None),
            ("", None),
            ("/", None),
            ("\0/container.\0", None),
        ] {
            let expected = expected.map(|(key, prefix, scope)| Name { key, prefix, scope });
            assert_eq!(parse_name(name), expected, "{name:?}");
        }
    }

    fn check(names: &[&str], expected: &str) {
        let annotations = names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        let lookup = look_up(&annotations, "c", |name| name.key == "k");
        let found: Vec<&str> = lookup.found.values().map(|found| found.name).collect();
        assert_eq!(format!("{} | {}", found.join(" "), lookup.unknown.join(" ")), expected);
    }

    #[test]
    fn the_most_specific_name_wins_and_then_ours() {
        let crm = "k.cri-resource-manager.intel.com";
        check(
            &[&format!("{crm}/container.c"), "k.bayplan.dev/pod"],
            &format!("{crm}/container.c | "),
        );
        check(&[&format!("{crm}/pod"), "bayplan.dev/k"], &format!("{crm}/pod | "));
        check(&[crm, "bayplan.dev/k"], "bayplan.dev/k | ");
        check(&["k.resource-policy.nri.io", crm], &format!("{crm} | "));
        check(&["k.bayplan.dev/container.other"], " | ");
        check(
            &["bayplan.dev/l", "k.bayplan.dev/node", "example.com/k"],
            " | bayplan.dev/l k.bayplan.dev/node",
        );
    }
}
