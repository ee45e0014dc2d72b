//! Links between the pages of this repository: the file exists, and so does the heading.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::workspace;

/// Every link of every page under version control that leads nowhere.
pub(crate) fn check_links() -> anyhow::Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(workspace()).output()?;
    let files = String::from_utf8(output.stdout).context("git ls-files")?;
    let files: BTreeSet<PathBuf> = files.split_terminator('\0').map(PathBuf::from).collect();
    let is_page = |path: &&PathBuf| path.extension().is_some_and(|it| it == "md");
    let pages = files.iter().filter(is_page).map(|path| {
        let text = fs::read_to_string(workspace().join(path));
        Ok((path.clone(), text.with_context(|| path.display().to_string())?))
    });
    Ok(dead_links(&pages.collect::<anyhow::Result<_>>()?, &files))
}

/// Of `pages`; their links may lead to each other's headings and to `files` or the directories that they are in.
fn dead_links(pages: &BTreeMap<PathBuf, String>, files: &BTreeSet<PathBuf>) -> Vec<String> {
    let mut dead = Vec::new();
    for (page, text) in pages {
        for link in links(text).filter(|link| !link.contains("://")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.clone(),
                _ => resolve(page.parent().unwrap_or(Path::new("")), path),
            };
            let is_there = match pages.get(&target) {
                Some(other) => heading.is_empty() || anchors(other).any(|it| it == heading),
                None => heading.is_empty() && files.iter().any(|file| file.starts_with(&target)),
            };
            if !is_there {
                dead.push(format!("{}: `{link}` leads nowhere", page.display()));
            }
        }
    }
    dead
}

/// A path relative to a directory, without `..`.
fn resolve(dir: &Path, path: &str) -> PathBuf {
    let mut resolved = dir.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => _ = resolved.pop(),
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    resolved
}

/// The lines that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// What stands in the brackets of `[..](..)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text)
        .flat_map(|line| line.split("](").skip(1))
        .filter_map(|it| Some(it.split_once(')')?.0))
}

/// The headings as they stand in links: in small letters, without punctuation, with `-` for each space.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|line| {
        let (marks, heading) = line.split_once(' ')?;
        (!marks.is_empty() && marks.chars().all(|it| it == '#')).then(|| anchor(heading))
    })
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(link: &str, is_dead: bool) {
        let page = format!("# One page\n\n```text\n[x](code.md)\n# no heading\n```\n[a]({link})\n");
        let pages = BTreeMap::from([
            (PathBuf::from("docs/a.md"), page),
            (PathBuf::from("README.md"), "# It\n\n## What `it` is, and why\n".to_owned()),
        ]);
        let others = ["docs/picture.svg", "deploy/grafana/x.json"].map(PathBuf::from);
        let files = pages.keys().cloned().chain(others).collect();
        let dead = [format!("docs/a.md: `{link}` leads nowhere")];
        assert_eq!(dead_links(&pages, &files), if is_dead { &dead[..] } else { &[] });
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        for link in [
            "https://example.org/x#y",
            "picture.svg",
            "../README.md",
            "./../README.md#what-it-is-and-why",
            "#one-page",
            "../deploy",
            "../deploy/grafana/",
        ] {
            check(link, false);
        }
        for link in [
            "gone.md",
            "README.md",
            "../README.md#what",
            "#no-heading",
            "../deploy/graf",
            "picture.svg#part",
        ] {
            check(link, true);
        }
    }
}
