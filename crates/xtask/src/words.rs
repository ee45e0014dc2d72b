//! Words for persons where containers, processes, CPUs and files are meant (CONTRIBUTING.md, "Words"). In: comments, texts and names of functions of crates and
//! tests, comments of probes, docstrings, and pages. Out: the places.
//!
//! A text is what stands in quotation marks and has a space: without one it is a key or a name. Persons are named as what they are: operators, users, owners of an application.

use std::fs;
use std::process::Command;

use anyhow::Context as _;

use crate::workspace;

const WORDS: [&str; 10] =
    ["who", "whom", "whoever", "whose", "somebody", "nobody", "anybody", "he", "him", "his"];
/// Such words as parts of a function's name. `whose` is of things, too.
const WORDS_IN_NAMES: [&str; 13] = [
    "himself",
    "who",
    "whom",
    "whoever",
    "somebody",
    "somebodys",
    "nobody",
    "nobodys",
    "anybody",
    "everybody",
    "he",
    "him",
    "his",
];

/// Files that have such words for another reason: lists of them, and a record of a probe with such a field.
const ALLOWED: [&str; 2] = ["crates/xtask/src/words.rs", "crates/probes/src/records.rs"];
/// It is of things, too, and allowed in texts and records of decisions.
const OF_THINGS: &str = "whose";

/// Places that have such a word.
pub(crate) fn check_words() -> anyhow::Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(workspace()).output()?;
    let files = String::from_utf8(output.stdout).context("git ls-files")?;
    let mut found = Vec::new();
    for path in files.split_terminator('\0').filter(|path| is_looked_at(path)) {
        let text = fs::read_to_string(workspace().join(path)).with_context(|| path.to_owned())?;
        let told = |place| format!("{place}: containers, processes, CPUs and files are things");
        found.extend(places(path, &text).into_iter().map(told));
    }
    Ok(found)
}

fn is_looked_at(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>()[..] {
        _ if ALLOWED.contains(&path) => false,
        ["proto", ..] => false,
        [.., page] if page.ends_with(".md") => true,
        ["bpf", file] => file.ends_with(".c") || file.ends_with(".h"),
        ["crates", _, "src" | "tests", ..] => path.ends_with(".rs"),
        ["tests" | "benches", ..] => path.ends_with(".rs") || path.ends_with(".py"),
        _ => false,
    }
}

/// Records of decisions and the like, which grow, may say of things what [`OF_THINGS`] says.
fn is_strict(path: &str) -> bool {
    let is_guide = path.strip_prefix("docs/").is_some_and(|it| !it.contains('/'));
    !path.ends_with(".md") || is_guide || matches!(path, "README.md" | "ARCHITECTURE.md")
}

/// Where a file has such a word outside of code: `PATH:LINE WORD`.
fn places(path: &str, text: &str) -> Vec<String> {
    let mut is_inside = false;
    let mut places = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let is_rust = path.ends_with(".rs");
        let prose = match path.rsplit_once('.') {
            Some((_, "md")) => outside_of_fence(line, &mut is_inside),
            Some((_, "rs")) => line_comment(line),
            Some((_, "py")) => docstring(line, &mut is_inside),
            _ => block_comment(line, &mut is_inside),
        };
        let words = words_for_persons(prose.unwrap_or_default(), is_strict(path));
        let texts = if is_rust { texts(line) } else { Vec::new() };
        let words = words.chain(texts.into_iter().flat_map(|it| words_for_persons(it, false)));
        let name = if is_rust { function_name(line).unwrap_or_default() } else { "" };
        let words = words.chain(name.split('_').filter(|word| WORDS_IN_NAMES.contains(word)));
        places.extend(words.map(|word| format!("{path}:{number} {word}")));
    }
    places
}

/// A line of Markdown, unless it is in a block of code.
fn outside_of_fence<'a>(line: &'a str, is_inside: &mut bool) -> Option<&'a str> {
    let is_fence = line.trim_start().starts_with("```");
    *is_inside ^= is_fence;
    (!is_fence && !*is_inside).then_some(line)
}

/// The comment of a line of Rust: from `//` on, at the beginning or after a space, and not in a string.
fn line_comment(line: &str) -> Option<&str> {
    let starts = line.match_indices("//").map(|(at, _)| line.split_at(at));
    let is_comment = |before: &str| {
        before.trim_end().len() < before.len() && before.matches('"').count().is_multiple_of(2)
    };
    starts.filter(|(before, _)| before.is_empty() || is_comment(before)).map(|it| it.1).next()
}

/// What stands in quotation marks in a line of Rust, if it has a space. A text of several lines is looked at in its first line only.
fn texts(line: &str) -> Vec<&str> {
    let code = line.strip_suffix(line_comment(line).unwrap_or_default()).unwrap_or(line);
    let (mut texts, mut begun, mut is_escaped) = (Vec::new(), None, false);
    for (at, c) in code.char_indices() {
        let is_char = code[..at].ends_with('\'') && code[at + 1..].starts_with('\'');
        let is_mark = c == '"' && !is_escaped && !is_char;
        is_escaped = c == '\\' && !is_escaped;
        if is_mark {
            match begun.take() {
                Some(start) => texts.push(&code[start..at]),
                None => begun = Some(at + 1),
            }
        }
    }
    texts.extend(begun.map(|start| &code[start..]));
    texts.retain(|it| it.contains(' '));
    texts
}

/// The comment of a line of C, which may have begun before it.
fn block_comment<'a>(line: &'a str, is_inside: &mut bool) -> Option<&'a str> {
    let from = if *is_inside { line } else { line.split_once("/*")?.1 };
    *is_inside = !from.contains("*/");
    from.split("*/").next()
}

/// The part of a line of Python that is in a docstring, which may have begun before it.
fn docstring<'a>(line: &'a str, is_inside: &mut bool) -> Option<&'a str> {
    let mut parts = line.split("\"\"\"");
    let (first, second) = (parts.next(), parts.next());
    let was_inside =
        std::mem::replace(is_inside, *is_inside ^ (line.matches("\"\"\"").count() % 2 == 1));
    if was_inside { first } else { second }
}

/// The name of the function that a line of Rust begins.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let is_item = before
        .split_whitespace()
        .all(|it| it.starts_with("pub") || matches!(it, "async" | "const" | "unsafe"));
    is_item.then(|| after.split(|it: char| !it.is_alphanumeric() && it != '_').next())?
}

/// Such words of a line, without those in backquotes; `is_strict`: also the one that is of things, too.
fn words_for_persons(prose: &str, is_strict: bool) -> impl Iterator<Item = &str> {
    let texts = prose.split('`').step_by(2);
    let words = texts.flat_map(|text| text.split(|it: char| !it.is_alphanumeric() && it != '_'));
    words
        .filter(|word| WORDS.iter().any(|it| word.eq_ignore_ascii_case(it)))
        .filter(move |word| is_strict || !word.eq_ignore_ascii_case(OF_THINGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_comments_and_names_of_functions_and_not_in_other_code() {
        // A tilde stands for a quotation mark, so that this file itself has none of the words in comments.
        let rust = [
            "//! Who runs, which `who` knows.",
            "let nobody = ~he // him~; // whoever, somebody's, whole",
            "let who = his;",
            "    told(~nobody's \\~he\\~ whose~, ~who~, 'c', ~a b~, ~moved him~); // ok",
            "let url = ~https://he~;",
            "    pub(crate) async fn moves_nobody_else<T>(he: u8) {",
            "fn a_thread_whose_name_is_there(f: impl Fn(u8)) {",
        ];
        let rust = rust.join("\n").replace('~', "\"");
        let found = "1 Who, 2 whoever, 2 somebody, 2 he, 2 him, 4 nobody, 4 he, 4 him, 6 nobody";
        let found: Vec<String> = found.split(", ").map(|it| format!("a.rs:{it}")).collect();
        assert_eq!(places("a.rs", &rust), found);
        let c = "/* his\n * nobody */ int who; /* whom */\nint he;\n";
        assert_eq!(places("a.h", c), ["a.h:1 his", "a.h:2 nobody"]);
        let python = "who = 1\n\"\"\"Who\n`who` whoever\n\"\"\"\nhe = 1\n    \"\"\"His.\"\"\"\n";
        assert_eq!(places("a.py", python), ["a.py:2 Who", "a.py:3 whoever", "a.py:6 His"]);
        let page = "# Whose\n```sh\nwho\n```\n| `who` | anybody |\n";
        assert_eq!(places("docs/a.md", page), ["docs/a.md:1 Whose", "docs/a.md:5 anybody"]);
        assert_eq!(places("docs/decisions/a.md", page), ["docs/decisions/a.md:5 anybody"]);
    }

    #[test]
    fn comments_of_code_and_pages_are_looked_at() {
        for (path, expected) in [
            ("crates/node/src/a/b.rs", true),
            ("crates/node/Cargo.toml", false),
            ("bpf/maps.h", true),
            ("docs/map.md", true),
            ("docs/decisions/001-a.md", true),
            ("README.md", true),
            ("proto/README.md", false),
            ("crates/xtask/src/words.rs", false),
            ("crates/probes/tests/kernel/tests.rs", true),
            ("benches/probes/main.rs", true),
            ("tests/daemon/main.rs", true),
            ("tests/README.md", true),
            ("tests/kubelet/world.py", true),
        ] {
            assert_eq!(is_looked_at(path), expected, "{path}");
        }
    }
}
