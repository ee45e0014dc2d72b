//! Balloons that are made of balloons that are made of others. In: the types of a policy. Out: the same types, each made of types that are made of no others.
//!
//! Components have equal parts of a balloon, and so have theirs of each part, so where all parts are made of equally many a flat list says the same. What it cannot say is left as it stands: parts of
//! different sizes (a type that stands twice in a list has two parts, of a CPU each at least), bounds of a type in between, one that chooses among its components, and a circle.

use super::document::{find, items, scalar};
use crate::yaml::Node;

/// Types that are made of each other.
const DEEPEST: usize = 8;

/// Components of a type, none of which is made of others where that can be said.
pub(super) fn flat(types: &[Node], item: &Node) -> Vec<String> {
    let names = components(item);
    expand(types, &names, DEEPEST).unwrap_or(names)
}

/// Names of the components of a type as it stands.
pub(super) fn components(item: &Node) -> Vec<String> {
    let listed = find(item, "components").map(items).unwrap_or_default();
    let names = listed.iter().filter_map(|it| scalar(it, "balloonType").or(scalar(it, "name")));
    names.map(str::to_owned).collect()
}

/// `None` where a flat list cannot say it.
fn expand(types: &[Node], names: &[String], depth: usize) -> Option<Vec<String>> {
    let parts: Option<Vec<Vec<String>>> =
        names.iter().map(|name| expand_one(types, name, depth.checked_sub(1)?)).collect();
    let parts = parts?;
    let length = parts.first().map_or(0, Vec::len);
    parts.iter().all(|part| part.len() == length).then(|| parts.concat())
}

fn expand_one(types: &[Node], name: &str, depth: usize) -> Option<Vec<String>> {
    let is_it = |it: &&Node| scalar(it, "name") == Some(name);
    let Some(item) = types.iter().find(is_it).filter(|it| !components(it).is_empty()) else {
        return Some(vec![name.to_owned()]);
    };
    let is_bounded = ["minCPUs", "maxCPUs"].iter().any(|key| find(item, key).is_some());
    let chooses = scalar(item, "componentCreation").is_some_and(|it| it != "all");
    if is_bounded || chooses {
        return None;
    }
    expand(types, &components(item), depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse_yaml;

    /// Of the type `a` among these, one a line.
    fn check(types: &str, expected: &str) {
        let types: String = types.lines().map(|line| format!("- {{{line}}}\n")).collect();
        let root = parse_yaml(&types).unwrap();
        let types = items(&root);
        let item = types.iter().find(|it| scalar(it, "name") == Some("a")).unwrap();
        assert_eq!(flat(types, item).join(" "), expected, "{types:?}");
    }

    #[test]
    fn parts_of_parts_are_parts_of_the_whole() {
        for (types, expected) in [
            ("name: a, components: [{balloonType: p}, {balloonType: q}]\nname: p\nname: q", "p q"),
            (
                "name: a, components: [{balloonType: b}, {balloonType: c}]\n\
                 name: b, components: [{balloonType: p}, {balloonType: q}]\n\
                 name: c, components: [{balloonType: r}, {balloonType: s}], preferNewBalloons: true",
                "p q r s",
            ),
            (
                "name: a, components: [{balloonType: b}, {balloonType: d}]\n\
                 name: b, components: [{balloonType: c}]\n\
                 name: c, components: [{balloonType: p}]\n\
                 name: d, components: [{balloonType: q}]",
                "p q",
            ),
        ] {
            check(types, expected);
        }
    }

    #[test]
    fn what_a_flat_list_cannot_say_stays_as_it_is() {
        let of = |more: &str| {
            format!(
                "name: a, components: [{{balloonType: b}}]\nname: b, components: [{{balloonType: u}}, {{balloonType: v}}]{more}"
            )
        };
        for (more, expected) in [
            ("", "u v"),
            (", minCPUs: 2", "b"),
            (", maxCPUs: 2", "b"),
            (", componentCreation: balance-balloons", "b"),
            (", componentCreation: all", "u v"),
        ] {
            check(&of(more), expected);
        }
        check("name: a, components: [{balloonType: a}]", "a");
        let uneven = "name: a, components: [{balloonType: b}, {balloonType: z}]\n\
                      name: b, components: [{balloonType: u}, {balloonType: v}]";
        check(uneven, "b z");
    }
}
