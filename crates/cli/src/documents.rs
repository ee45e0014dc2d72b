//! Commands and configurations of the documents, as the program reads them. Only a test.

use std::fs;
use std::path::{Path, PathBuf};

use bayplan_daemon::config::parse_config;
use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Args;

/// A page below the root of the project, with its text.
struct Page {
    name: String,
    text: String,
}

/// README, ARCHITECTURE and everything below `docs` and `deploy`.
fn pages() -> Vec<Page> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md"].map(PathBuf::from).into();
    let mut todo = vec![PathBuf::from("docs"), PathBuf::from("deploy")];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap().map(Result::unwrap) {
            let path = dir.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => todo.push(path),
                false if path.extension().is_some_and(|it| it == "md") => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    let page = |path: PathBuf| Page {
        text: fs::read_to_string(root.join(&path)).unwrap(),
        name: path.display().to_string(),
    };
    found.into_iter().map(page).collect()
}

/// Blocks of a page: language and content.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fences = page.split("\n```").skip(1).step_by(2);
    fences.map(|it| it.split_once('\n').unwrap_or((it, ""))).collect()
}

/// Commands of this program in a line of a shell: without `sudo`, variables, redirections and remarks.
fn in_shell(line: &str) -> Vec<Vec<String>> {
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.split(" #").next().unwrap_or(line);
    let parts = line.split(['|', ';']).flat_map(|it| it.split("&&"));
    parts.filter_map(|part| command(&words(part))).collect()
}

/// Words of a shell, with single and double quotes.
fn words(text: &str) -> Vec<String> {
    let (mut found, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => found.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word);
    found
}

/// From the program's name on, as far as the shell does not redirect.
fn command(words: &[String]) -> Option<Vec<String>> {
    let is_before = |it: &&String| {
        matches!(it.as_str(), "sudo" | "-E")
            || it
                .split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let mut rest = words.iter().skip_while(is_before).cloned();
    let program = rest.next().filter(|it| it == "bayplan" || it.ends_with("/bayplan"))?;
    let own = rest.take_while(|it| !it.starts_with(['>', '<']) && it != "2>" && it != "&");
    Some([program].into_iter().chain(own).collect())
}

/// What is said in a line of text or a table: optional parts are left out, and of alternatives the first one counts.
fn in_text(line: &str) -> Vec<Vec<String>> {
    let spans = line.split('`').skip(1).step_by(2).filter(|it| it.starts_with("bayplan "));
    let plain = |span: &str| {
        let mut plain = String::new();
        let mut depth = 0_u32;
        for c in span.chars() {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ if depth == 0 => plain.push(c),
                _ => {}
            }
        }
        plain
    };
    let words_of = |span: &str| {
        let first = |it: String| it.split('|').next().unwrap_or_default().to_owned();
        let span = plain(span).replace("...", "");
        words(span.split(" | ").next().unwrap_or_default())
            .into_iter()
            .map(first)
            .collect::<Vec<String>>()
    };
    spans.filter_map(|span| command(&words_of(span))).collect()
}

/// Why the program does not read it. What stands for something, in capital letters, need not be a value that it takes; and a command that is only named may lack what it needs.
fn mistake(words: &[String], is_named: bool) -> Option<String> {
    use ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion, InvalidSubcommand,
        InvalidValue, MissingRequiredArgument, MissingSubcommand, ValueValidation,
    };
    let error = Args::try_parse_from(words).err()?;
    let stands_for = |kind| match error.get(kind) {
        Some(ContextValue::String(it)) => {
            it.chars().all(|c| c.is_ascii_uppercase() || matches!(c, '_' | '.' | '-' | '='))
        }
        _ => false,
    };
    let is_fine = match error.kind() {
        DisplayHelp | DisplayVersion => true,
        DisplayHelpOnMissingArgumentOrSubcommand | MissingRequiredArgument | MissingSubcommand => {
            is_named
        }
        InvalidValue | ValueValidation => stands_for(ContextKind::InvalidValue),
        InvalidSubcommand => stands_for(ContextKind::InvalidSubcommand),
        _ => false,
    };
    (!is_fine).then(|| format!("{}: {error}", words.join(" ")))
}

#[test]
fn every_command_of_the_documents_is_one_that_the_program_takes() {
    let (mut mistakes, mut count) = (Vec::new(), 0);
    let mut check = |page: &Page, words: &[String], is_named| {
        count += 1;
        mistakes.extend(mistake(words, is_named).map(|it| format!("{}: {it}", page.name)));
    };
    for page in pages() {
        for (language, content) in blocks(&page.text) {
            let is_shell = matches!(language, "sh" | "console");
            let joined = content.replace("\\\n", " ");
            for line in joined.lines().filter(|_| is_shell) {
                in_shell(line).iter().for_each(|it| check(&page, it, false));
            }
        }
        let mut is_block = false;
        for line in page.text.lines() {
            is_block ^= line.starts_with("```");
            if !is_block {
                in_text(line).iter().for_each(|it| check(&page, it, true));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(count > 200, "{count} commands were found");
}

/// First keys of blocks that are no configuration of a daemon: annotations of a pod, values of the chart, Prometheus.
const OTHERS: [&str; 4] = ["bayplan.dev/", "controlGroup:", "scrape_configs:", "# prometheus.yml"];

#[test]
fn every_configuration_of_the_documents_is_one_that_the_program_reads() {
    let (mut mistakes, mut count) = (Vec::new(), 0);
    for page in pages() {
        for (_, content) in blocks(&page.text).into_iter().filter(|it| it.0 == "yaml") {
            let is_object = content.lines().any(|it| it.trim_start().starts_with("kind: "));
            let is_other = OTHERS.iter().any(|it| content.starts_with(it));
            let read = match is_object || is_other {
                true => serde_yaml::from_multiple::<serde_json::Value>(content)
                    .map(drop)
                    .map_err(|it| it.to_string()),
                false => parse_config(Path::new(&page.name), content)
                    .map(drop)
                    .map_err(|it| it.to_string()),
            };
            count += 1;
            mistakes.extend(read.err().map(|it| format!("{}: {it}\n{content}", page.name)));
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(count > 30, "{count} blocks were found");
}
