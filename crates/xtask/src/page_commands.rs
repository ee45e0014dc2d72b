//! Commands of the project's own tools in its pages. In: every page under version control. Out: those that the tools would not understand. What `bayplan` itself takes, tests of the crate
//! `cli` check.
//!
//! Looked at are `cargo xtask`, `cargo test`, `cargo bench`, `cargo run` and `cargo build`, and scripts of the repository, in blocks of shell and between backquotes. Words in capital letters stand for something.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::{arm64, cargo, lab, nightly, reenact, workspace};

/// What the workspace has.
struct Known {
    /// Directories of packages, by name.
    packages: BTreeMap<String, PathBuf>,
    /// Directories of targets, by the kind that an option names, and their name.
    targets: BTreeMap<(String, String), PathBuf>,
    scripts: BTreeSet<String>,
}

/// Every command of a page that would fail by its words.
pub(crate) fn check_commands() -> anyhow::Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(workspace()).output()?;
    let files = String::from_utf8(output.stdout).context("git ls-files")?;
    let files: BTreeSet<String> = files.split_terminator('\0').map(str::to_owned).collect();
    let known = Known::read(files.clone())?;
    let mut breaches = Vec::new();
    for page in files.iter().filter(|it| it.ends_with(".md")) {
        let text = fs::read_to_string(workspace().join(page)).with_context(|| page.clone())?;
        for words in commands(&text) {
            if let Err(why) = known.check(&words) {
                breaches.push(format!("{page}: `{}`: {why:#}", words.join(" ")));
            }
        }
    }
    Ok(breaches)
}

impl Known {
    fn read(scripts: BTreeSet<String>) -> anyhow::Result<Known> {
        let mut command = Command::new(cargo());
        command.args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
        let told = command.current_dir(workspace()).output().context("cannot run cargo")?;
        ensure!(told.status.success(), "cargo metadata: {}", told.status);
        let told: Value = serde_json::from_slice(&told.stdout).context("cargo metadata")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let dir = |file: &Value| Path::new(&text(file)).parent().unwrap_or(Path::new("")).into();
        let (mut packages, mut targets) = (BTreeMap::new(), BTreeMap::new());
        for package in told["packages"].as_array().into_iter().flatten() {
            packages.insert(text(&package["name"]), dir(&package["manifest_path"]));
            for target in package["targets"].as_array().into_iter().flatten() {
                let key = (text(&target["kind"][0]), text(&target["name"]));
                targets.insert(key, dir(&target["src_path"]));
            }
        }
        Ok(Known { packages, targets, scripts })
    }

    fn check(&self, words: &[String]) -> anyhow::Result<()> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["cargo", "xtask", args @ ..] => understood_by_xtask(args),
            ["cargo", "test" | "bench" | "run" | "build", args @ ..] => self.check_cargo(args),
            ["cargo", ..] => Ok(()),
            [script, args @ ..] => self.check_script(script.trim_start_matches("./"), args),
            [] => Ok(()),
        }
    }

    /// Packages, targets, and parts of names of tests.
    fn check_cargo(&self, args: &[&str]) -> anyhow::Result<()> {
        let (own, rest) =
            args.split_at(args.iter().position(|it| *it == "--").unwrap_or(args.len()));
        let (mut dir, mut filters, mut own) = (None, Vec::new(), own.iter());
        while let Some(word) = own.next() {
            match *word {
                "-p" | "--test" | "--bench" | "--bin" => {
                    let name = own.next().with_context(|| format!("{word} needs a value"))?;
                    if !stands_for_something(name) {
                        dir = Some(self.dir(word, name)?);
                    }
                }
                "--profile" | "--features" | "--target" => _ = own.next(),
                option if option.starts_with('-') => {}
                filter => filters.push(filter),
            }
        }
        if args.contains(&"--test") {
            filters.extend(rest.iter().skip(1).filter(|it| !it.starts_with('-')));
        }
        let Some(dir) = dir else { return Ok(()) };
        let filters = filters.into_iter().filter(|it| !stands_for_something(it));
        for filter in filters.map(|it| it.trim_end_matches(':')) {
            let last = filter.rsplit("::").next().unwrap_or(filter);
            ensure!(has_text(dir, last)?, "no test below {} has {filter}", dir.display());
        }
        Ok(())
    }

    fn dir(&self, option: &str, name: &str) -> anyhow::Result<&Path> {
        let found = match option {
            "-p" => self.packages.get(name),
            _ => self.targets.get(&(option.trim_start_matches('-').to_owned(), name.to_owned())),
        };
        found.map(PathBuf::as_path).with_context(|| format!("there is no {option} {name}"))
    }

    /// The script is there, and it or what is beside it knows the options.
    fn check_script(&self, script: &str, args: &[&str]) -> anyhow::Result<()> {
        ensure!(self.scripts.contains(script), "there is no such file");
        let dir = Path::new(script).parent().unwrap_or(Path::new(""));
        let beside = self.scripts.iter().filter(|it| {
            it.as_str() == script || it.ends_with(".py") && Path::new(it).parent() == Some(dir)
        });
        let mut text = String::new();
        for file in beside {
            text.push_str(&fs::read_to_string(workspace().join(file))?);
        }
        let options = args.iter().take_while(|it| **it != "--").filter(|it| it.starts_with("--"));
        for option in options {
            ensure!(text.contains(*option), "it has no option {option}");
        }
        Ok(())
    }
}

/// As `main` would take it; values that stand for something, and a command that is only named, are taken as they are.
fn understood_by_xtask(args: &[&str]) -> anyhow::Result<()> {
    let stands_for = args.iter().any(|it| stands_for_something(it));
    let is_understood = match args {
        ["arm64" | "lab"] => true,
        ["lab" | "reenact", ..] if stands_for => true,
        ["setup" | "test" | "tidy" | "shape" | "chart" | "image" | "package" | "deny" | "help"]
        | ["image" | "shape", _] => true,
        ["fuzz", rest @ ..] => matches!(rest, [] | [_]),
        ["nightly", wanted @ ..] => return nightly::check(wanted),
        ["reenact", args @ ..] => reenact::check(args)?,
        ["arm64", args @ ..] => arm64::is_known(args),
        ["lab", args @ ..] => return lab::check(args),
        _ => false,
    };
    match is_understood {
        true => Ok(()),
        false => bail!("`cargo xtask` does not know this"),
    }
}

fn stands_for_something(word: &str) -> bool {
    word.starts_with('$') || word.chars().all(|it| it.is_ascii_uppercase() || "_.".contains(it))
}

/// Whether a source below a directory has this text, or is called so.
fn has_text(dir: &Path, text: &str) -> anyhow::Result<bool> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let is_it = match path.extension().is_some_and(|it| it == "rs") {
            true => {
                path.file_stem().is_some_and(|it| it == text)
                    || fs::read_to_string(&path)?.contains(text)
            }
            false => path.is_dir() && has_text(&path, text)?,
        };
        if is_it {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The project's own commands of a page.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut block = None;
    let joined = page.replace("\\\n", " ");
    for line in joined.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(language), None) => block = Some(matches!(language, "sh" | "console")),
            (Some(_), Some(_)) => block = None,
            (None, Some(is_shell)) => {
                let line = line.strip_prefix("$ ").unwrap_or(line);
                let line = line.split(" #").next().unwrap_or(line);
                let parts = line.split(['|', ';']).flat_map(|it| it.split("&&"));
                found.extend(parts.filter(|_| is_shell).filter_map(command));
            }
            (None, None) => {
                let spans = line.split('`').skip(1).step_by(2);
                // Some are named with what comes after them left out.
                let is_whole = |span: &&str| {
                    !span.contains("...")
                        && !span.split(' ').next_back().is_some_and(|it| it.starts_with("--"))
                };
                found.extend(spans.filter(is_whole).filter_map(command));
            }
        }
    }
    found
}

/// From the program on, if it is one of ours.
fn command(text: &str) -> Option<Vec<String>> {
    let is_before = |it: &&str| {
        matches!(*it, "sudo" | "-E" | "env" | "nice")
            || it.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            })
    };
    let own: Vec<String> = text
        .split_whitespace()
        .skip_while(is_before)
        .take_while(|it| !it.starts_with(['>', '<', '&']) && *it != "2>")
        .map(|it| it.trim_matches(['\'', '"']).to_owned())
        .collect();
    let program = own.first()?;
    let is_script = |it: &str| {
        let it = it.trim_start_matches("./");
        it == ".ci/run" || it == "bpf/build" || it.starts_with("tests/") && is_called_as_script(it)
    };
    (program == "cargo" && own.len() > 1 || is_script(program)).then_some(own)
}

/// By what scripts of tests are called.
fn is_called_as_script(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "run" | "build" | "run-deployed" | "check-rpm" | "compare-with-hwloc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_blocks_of_shell_and_between_backquotes() {
        let page = "\
Run `cargo xtask tidy`, `cargo test -p CRATE`, `cargo xtask lab ...` or `A=1 tests/x/run --a`, not `cargo` or `tests/x`.

```sh
A=1 sudo -E cargo bench -p x --bench y >log # two minutes
cd a && ./tests/x/run \\
    --b 'c' | less
```

```text
cargo none
```
";
        let found: Vec<String> = commands(page).iter().map(|it| it.join(" ")).collect();
        let expected = [
            "cargo xtask tidy",
            "cargo test -p CRATE",
            "cargo bench -p x --bench y",
            "./tests/x/run --b c",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let git = ["tests/kubelet/run", "tests/kubelet/world.py"].map(str::to_owned);
        let known = Known::read(BTreeSet::from(git)).unwrap();
        for (command, is_fine) in [
            ("cargo xtask tidy", true),
            ("cargo xtask tidier", false),
            ("cargo xtask nightly soak fuzz", true),
            ("cargo xtask nightly soup", false),
            ("cargo xtask lab run --kernel all -- a_hog_is_named", true),
            ("cargo xtask lab run --kernel 2.6", false),
            ("cargo xtask lab run -- a_cat_is_named", false),
            ("cargo xtask lab run --program FILE -- ARGUMENTS", true),
            ("cargo xtask lab shell --machine 1cpu", true),
            ("cargo xtask lab", true),
            ("cargo xtask lab run --reenact SCENARIO", true),
            ("cargo xtask lab walk", false),
            ("cargo xtask reenact --scenario redis-near", true),
            ("cargo xtask reenact --scenario redis-nowhere", false),
            ("cargo xtask arm64 units", true),
            ("cargo xtask arm64 unit", false),
            ("cargo test -p bayplan-tests --test daemon chaos -- --nocapture", true),
            ("cargo test -p bayplan-tests --test daemon -- chaoses", false),
            ("cargo test -p bayplan-tests --test demon", false),
            ("cargo test -p CRATE", true),
            ("cargo bench -p bayplan-benches --bench proxy -- --runs 5", true),
            ("cargo run --bin bayplan -- demo", true),
            ("cargo run --bin bayplane", false),
            ("tests/kubelet/run --only x", true),
            ("tests/kubelet/run --onely x", false),
            ("tests/kubelet/runs", false),
            ("cargo add procfs", true),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let found = known.check(&words);
            assert_eq!(found.is_ok(), is_fine, "{command}: {found:?}");
        }
    }
}
