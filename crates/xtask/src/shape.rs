//! The shape of the code in figures: import cycles, which `cargo xtask tidy` refuses, and what `cargo xtask shape` prints, also of another checkout of the project.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::modules::{self, Module};
use crate::workspace;

/// One crate: paths below `src` and their texts.
type Files = BTreeMap<String, String>;

/// Repeated code: so many lines one after the other that are somewhere else, too.
const REPEATED_LINES: usize = 6;

/// `cargo xtask shape [DIR]`.
pub(crate) fn run(project: Option<&str>) -> anyhow::Result<()> {
    let crates = read_crates(project.map_or_else(workspace, Into::into).as_path())?;
    let repeated = repeated_lines(&crates);
    let heads = ["product", "tests", "repeated", "modules", "in cycles"];
    println!("{:<14}{}", "crate", heads.map(|it| format!("{it:>11}")).concat());
    let row = |name: &str, figures: [usize; 5]| {
        println!("{name:<14}{}", figures.map(|it| format!("{it:>11}")).concat());
    };
    let mut sums = [0; 5];
    for (name, files) in &crates {
        let (product, tests) = lines(files);
        let (modules, cyclic) = (modules::graph(files).len(), in_cycles(files).len());
        let repeated = repeated.get(name.as_str()).copied().unwrap_or_default();
        let figures = [product, tests, repeated, modules, cyclic];
        row(name, figures);
        sums.iter_mut().zip(figures).for_each(|(sum, it)| *sum += it);
    }
    row("all", sums);
    // Comments and this very text are no imports.
    let imports = |text: &String| modules::product(text).contains("use bayplan_cri::");
    let others = crates.iter().filter(|(name, _)| *name != "cri").flat_map(|(_, files)| files);
    let importers = others.filter(|(path, text)| !modules::is_test(path) && imports(text)).count();
    println!("\nfiles of crates that import bayplan_cri: {importers}");
    for (what, of) in [
        ("file", largest_file as Largest),
        ("function", largest_function),
        ("struct", largest_struct),
    ] {
        let found = crates.iter().flat_map(|(name, files)| {
            files.iter().filter(|(path, _)| !modules::is_test(path)).filter_map(
                move |(path, text)| {
                    let (size, item) = of(&modules::product(text))?;
                    Some((size, format!("crates/{name}/src/{path}{item}")))
                },
            )
        });
        if let Some((size, place)) = found.max() {
            let unit = if what == "struct" { "fields" } else { "lines" };
            println!("largest {what}: {size} {unit}, {place}");
        }
    }
    Ok(())
}

/// Crates with modules that import each other in cycles.
pub(crate) fn check_cycles() -> anyhow::Result<Vec<String>> {
    let cyclic =
        read_crates(&workspace())?.into_iter().map(|(name, files)| (name, in_cycles(&files)));
    let breaches = cyclic.filter(|(_, cyclic)| !cyclic.is_empty()).map(|(name, cyclic)| {
        let names: Vec<String> = cyclic.iter().map(|module| module.join("::")).collect();
        format!(
            "crates/{name}: modules import each other in cycles; take one direction of the import away: {}",
            names.join(", ")
        )
    });
    Ok(breaches.collect())
}

fn in_cycles(files: &Files) -> BTreeSet<Module> {
    modules::cycles(&modules::graph(files)).into_iter().flatten().collect()
}

fn read_crates(project: &Path) -> anyhow::Result<BTreeMap<String, Files>> {
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(project.join("crates"))? {
        let dir = entry?.path();
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut files = Files::new();
        read_below(&dir.join("src"), &dir.join("src"), &mut files)?;
        crates.insert(name, files);
    }
    Ok(crates)
}

fn read_below(root: &Path, dir: &Path, files: &mut Files) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            read_below(root, &path, files)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            files.insert(name, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Lines of product and of tests, without empty ones.
fn lines(files: &Files) -> (usize, usize) {
    let count = |text: &str| text.lines().filter(|line| !line.trim().is_empty()).count();
    let mut sum = (0, 0);
    for (path, text) in files {
        let end = modules::tests_at(text);
        let product = if modules::is_test(path) { 0 } else { count(&text[..end]) };
        sum = (sum.0 + product, sum.1 + count(text) - product);
    }
    sum
}

/// Lines of product code that are repeated, by crate. Imports, comments and lines with punctuation only do not count.
fn repeated_lines(crates: &BTreeMap<String, Files>) -> BTreeMap<&str, usize> {
    let texts: Vec<(&str, Vec<String>)> = crates
        .iter()
        .flat_map(|(name, files)| files.iter().map(move |file| (name.as_str(), file)))
        .filter(|(_, (path, _))| !modules::is_test(path))
        .map(|(name, (_, text))| (name, telling_lines(&modules::product(text))))
        .collect();
    let mut places: HashMap<&[String], Vec<(usize, usize)>> = HashMap::new();
    for (file, (_, lines)) in texts.iter().enumerate() {
        for (at, window) in lines.windows(REPEATED_LINES).enumerate() {
            places.entry(window).or_default().push((file, at));
        }
    }
    let repeated = places.values().filter(|it| it.len() > 1).flatten();
    let lines: BTreeSet<(usize, usize)> = repeated
        .flat_map(|(file, at)| (*at..at + REPEATED_LINES).map(move |line| (*file, line)))
        .collect();
    let mut sums = BTreeMap::new();
    for (file, _) in lines {
        *sums.entry(texts[file].0).or_default() += 1;
    }
    sums
}

/// Lines of code with a word, other than imports, without indentation.
fn telling_lines(product: &str) -> Vec<String> {
    let says_something = |line: &&str| {
        let is_import = ["use ", "pub use ", "pub(crate) use ", "mod ", "pub mod "];
        !is_import.iter().any(|it| line.starts_with(it)) && line.chars().any(char::is_alphanumeric)
    };
    product.lines().map(str::trim).filter(says_something).map(str::to_owned).collect()
}

/// How large the largest item of a text is, and what is added to its path.
type Largest = fn(&str) -> Option<(usize, String)>;

fn largest_file(text: &str) -> Option<(usize, String)> {
    Some((text.lines().count(), String::new()))
}

fn largest_function(text: &str) -> Option<(usize, String)> {
    let of = |lines: &[&str]| lines.len();
    largest(text, "fn ", of)
}

fn largest_struct(text: &str) -> Option<(usize, String)> {
    largest(text, "struct ", |lines| lines.iter().filter(|line| is_field(line)).count())
}

fn is_field(line: &str) -> bool {
    let line = line.trim_start_matches("    ").trim_start_matches("pub(crate) ");
    let name = line.trim_start_matches("pub ").split(": ").next().unwrap_or_default();
    line.contains(": ") && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The item that begins with this keyword and has the largest size; items end with a brace below their beginning, as rustfmt has it.
fn largest(text: &str, keyword: &str, size: fn(&[&str]) -> usize) -> Option<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let items = lines.iter().enumerate().filter_map(|(at, line)| {
        let indent = line.len() - line.trim_start().len();
        let name = line.trim_start().split_once(keyword).filter(|(before, _)| {
            before
                .split_whitespace()
                .all(|it| it.starts_with("pub") || matches!(it, "async" | "const"))
        })?;
        let name: String =
            name.1.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let end = format!("{}}}", " ".repeat(indent));
        let length = lines[at..].iter().position(|line| **line == end)? + 1;
        Some((size(&lines[at..at + length]), format!(", {name}")))
    });
    items.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_repeated_where_enough_of_them_follow_each_other_twice() {
        let code =
            |count: usize| (0..count).map(|it| format!("    say({it});\n")).collect::<String>();
        for (first, second, expected) in [
            (code(6), code(6), Some(12)),
            (code(5), code(5), None),
            (code(7), code(6), Some(12)),
            (format!("use a::b;\n// {}\n", code(6)), code(6), None),
            (code(6).replace("say(3);\n", "say(3);\n\n}\n// and\n"), code(6), Some(12)),
        ] {
            let files = |text: &str| Files::from([("lib.rs".to_owned(), text.to_owned())]);
            let crates = BTreeMap::from([
                ("a".to_owned(), files(&first)),
                (
                    "b".to_owned(),
                    files(&format!("{second}\n#[cfg(test)]\nmod tests {{\n{second}}}\n")),
                ),
            ]);
            let found = repeated_lines(&crates);
            let sum = (!found.is_empty()).then(|| found.values().sum());
            assert_eq!(sum, expected, "{first}{second}");
        }
    }

    #[test]
    fn items_are_measured_to_their_closing_brace() {
        let text = "struct A {\n    pub a: u8,\n    b: u8,\n}\n\nimpl A {\n    pub fn f() {\n        g();\n    }\n}\n";
        assert_eq!(largest_function(text), Some((3, ", f".to_owned())));
        assert_eq!(largest_struct(text), Some((2, ", A".to_owned())));
        assert_eq!(largest_file(text).map(|it| it.0), Some(10));
    }
}
