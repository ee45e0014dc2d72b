//! Balloons that are made of balloons that are made of others. In: the types of a policy. Out: the same types, each made of types that are made of no others.
//!
//! Components have equal parts of a balloon, and so have theirs of each part, so a flat list in which types stand several times says the same. What it cannot say is left as it
//! stands: bounds of a type in between, one that chooses among its components, a circle, and a list that would be longer than [`LONGEST`].

use super::document::{find, items, scalar};
use crate::yaml::Node;

/// Components of one type.
const LONGEST: usize = 64;
/// Types that are made of each other.
const DEEPEST: usize = 8;

/// Components of a type, of which each may be made of others, by equal parts.
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
    // Each part is written as often as makes all parts equally long.
    let length = parts.iter().map(Vec::len).try_fold(1, least_common_multiple)?;
    if length * parts.len() > LONGEST {
        return None;
    }
    let repeated = parts.iter().flat_map(|part| {
        part.iter().flat_map(move |name| std::iter::repeat_n(name.clone(), length / part.len()))
    });
    Some(repeated.collect())
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

fn least_common_multiple(a: usize, b: usize) -> Option<usize> {
    let (mut high, mut low) = (a, b);
    while low > 0 {
        (high, low) = (low, high % low);
    }
    let multiple = a.checked_mul(b)?.checked_div(high)?;
    (1..=LONGEST).contains(&multiple).then_some(multiple)
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
            ("name: a, components: [{balloonType: x}, {balloonType: y}]\nname: x\nname: y", "x y"),
            (
                "name: a, components: [{balloonType: b}, {balloonType: c}]\n\
                 name: b, components: [{balloonType: u}, {balloonType: v}]\n\
                 name: c, components: [{balloonType: w}, {balloonType: x}], preferNewBalloons: true",
                "u v w x",
            ),
            (
                "name: a, components: [{balloonType: b}, {balloonType: z}]\n\
                 name: b, components: [{balloonType: u}, {balloonType: v}, {balloonType: w}]",
                "u v w z z z",
            ),
            (
                "name: a, components: [{balloonType: b}, {balloonType: c}]\n\
                 name: b, components: [{balloonType: u}, {balloonType: v}]\n\
                 name: c, components: [{balloonType: w}, {balloonType: x}, {balloonType: d}]\n\
                 name: d, components: [{balloonType: y}]",
                "u u u v v v w w x x y y",
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
        let wide: String = (0..70).map(|idx| format!("{{balloonType: x{idx}}}, ")).collect();
        let wide = wide.trim_end_matches(", ");
        check(
            &format!("name: a, components: [{{balloonType: b}}]\nname: b, components: [{wide}]"),
            "b",
        );
    }
}
