//! Which modules of a crate import each other. In: the text of its files. Out: a graph of modules, one for each file, and its cycles.
//!
//! An import is a path that begins with `crate`, `super`, `self` or a child module. Not counted: test code, comments, and a parent that re-exports
//! from its own children, since a facade is no dependence. `lib.rs` and `main.rs` are no modules here: they only declare.

use std::collections::{BTreeMap, BTreeSet};

/// A module's path below its crate, for example `["annotations", "table"]`.
pub(crate) type Module = Vec<String>;
/// What each module imports.
pub(crate) type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// `files`: paths below `src` with their texts.
pub(crate) fn graph(files: &BTreeMap<String, String>) -> Graph {
    let texts: BTreeMap<Module, String> = files
        .iter()
        .filter(|(path, _)| !is_test(path))
        .filter_map(|(path, text)| Some((module_of(path)?, product(text))))
        .collect();
    let modules: BTreeSet<Module> = texts.keys().cloned().collect();
    let imports = texts.iter().map(|(module, text)| {
        let mut found: BTreeSet<Module> =
            paths(module, text, &modules).iter().filter_map(|it| owner(it, &modules)).collect();
        found.remove(module);
        (module.clone(), found)
    });
    imports.collect()
}

/// Sets of modules of which each imports all others, itself or through others; those of one module are left out.
pub(crate) fn cycles(graph: &Graph) -> Vec<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reached(graph, module))).collect();
    let mut cycles: Vec<BTreeSet<Module>> = Vec::new();
    for (module, far) in &reached {
        if cycles.iter().any(|cycle| cycle.contains(*module)) {
            continue;
        }
        let back = far.iter().filter(|other| reached[**other].contains(*module));
        let cycle: BTreeSet<Module> = back.map(|other| (*other).clone()).collect();
        if cycle.len() > 1 {
            cycles.push(cycle);
        }
    }
    cycles
}

fn reached<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = graph[from].iter().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(&graph[module]);
        }
    }
    reached
}

/// Whether a file below `src` holds nothing but test code.
pub(crate) fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "test_support.rs"))
}

fn module_of(path: &str) -> Option<Module> {
    let path = path.strip_suffix(".rs")?;
    let module: Module = path.trim_end_matches("/mod").split('/').map(str::to_owned).collect();
    let is_root = matches!(module.as_slice(), [one] if one == "lib" || one == "main");
    (!is_root).then_some(module)
}

/// Where the tests at the end of a file begin; its length if there are none.
pub(crate) fn tests_at(text: &str) -> usize {
    let starts = ["", "pub(super) ", "pub(crate) "].into_iter();
    let found = starts.filter_map(|it| text.find(&format!("\n#[cfg(test)]\n{it}mod tests {{")));
    found.min().unwrap_or(text.len())
}

/// Without the tests at the end of a file, and without comments.
pub(crate) fn product(text: &str) -> String {
    let lines =
        text[..tests_at(text)].lines().map(|line| match line.trim_start().starts_with("//") {
            true => "",
            false => line,
        });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Without statements by which a module re-exports from its own children.
fn without_facade(text: &str) -> String {
    let mut kept = String::new();
    for statement in text.split_inclusive(';') {
        let visible = statement.trim_start();
        let is_facade = ["pub use ", "pub(crate) use ", "pub(super) use "].iter().any(|start| {
            let path = visible.strip_prefix(start);
            path.is_some_and(|it| !it.starts_with("crate::") && !it.starts_with("super::"))
        });
        if !is_facade {
            kept.push_str(statement);
        }
    }
    kept
}

/// Every path that a text names below its crate.
fn paths(module: &Module, text: &str, modules: &BTreeSet<Module>) -> Vec<Module> {
    let text = without_facade(text);
    let mut found = Vec::new();
    let (mut rest, mut before) = (text.as_str(), ' ');
    while let Some(first) = rest.chars().next() {
        if !is_word(first) {
            (before, rest) = (first, &rest[first.len_utf8()..]);
            continue;
        }
        let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        let after = &rest[word.len()..];
        if before != ':' && after.starts_with("::") {
            let mut child = module.clone();
            child.push(word.to_owned());
            let start = match word {
                "crate" => Some(Module::new()),
                "super" => Some(module[..module.len() - 1].to_vec()),
                "self" => Some(module.clone()),
                _ if modules.contains(&child) => Some(child),
                _ => None,
            };
            if let Some(start) = start {
                tree(start, &after[2..], &mut found);
            }
        }
        (before, rest) = ('a', after);
    }
    found
}

/// The leaves of `a::{b, c::{d, e}}`, of which `text` begins after `start`.
fn tree<'a>(start: Module, text: &'a str, found: &mut Vec<Module>) -> &'a str {
    let mut path = start;
    let mut rest = text.trim_start();
    loop {
        if let Some(mut inner) = rest.strip_prefix('{') {
            loop {
                inner = tree(path.clone(), inner, found).trim_start();
                match inner.strip_prefix(',') {
                    Some(more) if !more.trim_start().starts_with('}') => inner = more,
                    Some(more) => inner = more.trim_start(),
                    None => {}
                }
                if let Some(after) = inner.strip_prefix('}') {
                    return after;
                }
                if inner.is_empty() || inner.starts_with(';') {
                    return inner;
                }
            }
        }
        let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        rest = &rest[word.len()..];
        match word {
            "super" => drop(path.pop()),
            "self" | "" => {}
            _ => path.push(word.to_owned()),
        }
        match rest.strip_prefix("::") {
            Some(more) => rest = more,
            None => break,
        }
    }
    found.push(path);
    // Another name, or a star.
    &rest[rest.find([',', '}', ';']).unwrap_or(rest.len())..]
}

/// The module that a path leads into; `None` for what the root of the crate defines.
fn owner(path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    (1..=path.len()).rev().map(|len| path[..len].to_vec()).find(|it| modules.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&[&str]]) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let found = cycles(&graph(&files.collect()));
        let found: Vec<Vec<String>> =
            found.iter().map(|it| it.iter().map(|module| module.join("::")).collect()).collect();
        assert_eq!(found, expected, "{found:?}");
    }

    #[test]
    fn modules_that_import_each_other_are_a_cycle() {
        check(&[("a.rs", "use crate::b::B;"), ("b.rs", "fn f() {}")], &[]);
        check(&[("a.rs", "use crate::b::B;"), ("b.rs", "use super::a;")], &[&["a", "b"]]);
        check(
            &[("a.rs", "fn f() { crate::b::g() }"), ("b.rs", "use crate::{a::A, c};")],
            &[&["a", "b"]],
        );
        check(
            &[
                ("a.rs", "use crate::{d::{D, e}, b};"),
                ("b.rs", "use crate::{\n    c::C as X,\n};"),
                ("c.rs", "use crate::a::*;"),
            ],
            &[&["a", "b", "c"]],
        );
    }

    #[test]
    fn a_child_that_imports_its_parent_is_in_a_cycle_with_what_uses_it() {
        let child = ("a/b.rs", "use super::A;");
        check(&[("a.rs", "mod b;\nuse b::B;"), child], &[&["a", "a::b"]]);
        check(&[("a.rs", "mod b;\nfn f() { b::g() }"), child], &[&["a", "a::b"]]);
        check(&[("a.rs", "mod b;\npub use b::B;"), child], &[]);
        check(&[("a.rs", "mod b;\npub(crate) use self::b::{B, C};"), child], &[]);
    }

    #[test]
    fn tests_comments_and_the_root_do_not_count() {
        let test = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
        check(&[("a.rs", test), ("b.rs", "use crate::a::A;")], &[]);
        let seen = test.replace("mod tests", "pub(super) mod tests");
        check(&[("a.rs", &seen), ("b.rs", "use crate::a::A;")], &[]);
        check(&[("a/tests.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")], &[]);
        check(&[("a.rs", "// crate::b::B\nfn f() {}"), ("b.rs", "use crate::a::A;")], &[]);
        check(&[("lib.rs", "mod a;\npub use a::A;"), ("a.rs", "use crate::A;")], &[]);
    }
}
