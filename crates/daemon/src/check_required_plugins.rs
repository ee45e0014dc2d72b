//! Plugins without which the runtime refuses containers. In: the runtime's configuration below a root. Out: findings.
//!
//! The runtime's own API does not tell them, so its files are read: containerd's with their drop-ins, and CRI-O's.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::config::OnFailure;
use crate::finding::Finding;

/// Containerd's table is `[plugins.'io.containerd.nri.v1.nri'.default_validator]`, CRI-O's `[crio.nri]`.
const FILES: [&str; 2] = ["etc/containerd/config.toml", "etc/crio/crio.conf"];
/// Files here count after those.
const DIRS: [&str; 2] = ["etc/containerd/conf.d", "etc/crio/crio.conf.d"];
/// Bayplan's name as a plugin.
const OWN: &str = "bayplan";
const REMEDY: &str =
    "add it to required_plugins of the runtime's default_validator, or set onFailure: open";

/// What the files say; `None`: not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Required {
    is_enabled: Option<bool>,
    plugins: Option<Vec<String>>,
}

/// Whether creations are refused while Bayplan or another plugin is away; nothing where the files are elsewhere, or cannot be read.
pub(crate) fn check_required_plugins(root: &Path, on_failure: OnFailure) -> Vec<Finding> {
    let texts = files(root).into_iter().filter_map(|file| fs::read_to_string(file).ok());
    let required = texts.map(|text| parse(&text)).reduce(|before, later| Required {
        is_enabled: later.is_enabled.or(before.is_enabled),
        plugins: later.plugins.or(before.plugins),
    });
    required.map_or_else(Vec::new, |it| findings(&it, on_failure))
}

/// In the order in which they count.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = FILES.iter().map(|it| root.join(it)).collect();
    for dir in DIRS {
        let entries = fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|it| it.path()).collect();
        paths.sort();
        files.extend(paths);
    }
    files
}

fn parse(text: &str) -> Required {
    let Ok(file) = text.parse::<Table>() else { return Required::default() };
    let at = |path: &[&str]| {
        path.iter().try_fold(&file, |table, name| table.get(*name).and_then(Value::as_table))
    };
    let said = |table: Option<&Table>, [enabled, plugins]: [&str; 2]| Required {
        is_enabled: table.and_then(|it| it.get(enabled)).and_then(Value::as_bool),
        plugins: table.and_then(|it| it.get(plugins)).and_then(Value::as_array).map(|it| names(it)),
    };
    let containerds = at(&["plugins", "io.containerd.nri.v1.nri", "default_validator"]);
    let crios = at(&["crio", "nri"]);
    match containerds {
        Some(_) => said(containerds, ["enable", "required_plugins"]),
        None => said(crios, ["nri_enable_default_validator", "nri_validator_required_plugins"]),
    }
}

fn names(list: &[Value]) -> Vec<String> {
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn findings(required: &Required, on_failure: OnFailure) -> Vec<Finding> {
    let plugins = match (required.is_enabled, &required.plugins) {
        (Some(true), Some(plugins)) => plugins.as_slice(),
        _ => &[],
    };
    let (own, others): (Vec<&String>, Vec<&String>) =
        plugins.iter().partition(|it| it.as_str() == OWN);
    let mut found = Vec::new();
    match (own.is_empty(), on_failure) {
        (false, _) => found.push(Finding::ok(
            "nri",
            "the runtime requires the plugin bayplan: while it is away, containers are refused",
        )),
        (true, OnFailure::Closed) => found.push(Finding::warning(
            "nri",
            "onFailure is closed, but the runtime does not require the plugin bayplan: while it is away, containers are created without it",
            REMEDY,
        )),
        (true, OnFailure::Open) => {}
    }
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|it| it.as_str()).collect();
        let message = format!(
            "the runtime refuses containers while a plugin is away that it requires: {}",
            names.join(", ")
        );
        found.push(Finding::ok("nri", message));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\n";

    /// Each file with its text, and what is found with `onFailure: closed` and `open`.
    #[track_caller]
    fn check(files: &[(&str, &str)], closed: &[&str], open: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for (on_failure, expected) in [(OnFailure::Closed, closed), (OnFailure::Open, open)] {
            let found = check_required_plugins(root.path(), on_failure);
            let texts: Vec<String> = found.iter().map(Finding::in_words).collect();
            assert_eq!(texts, expected, "{on_failure:?} {files:?}");
        }
    }

    const NOT: &str = "onFailure is closed, but the runtime does not require the plugin bayplan: while it is away, containers are created without it; add it to required_plugins of the runtime's default_validator, or set onFailure: open";
    const OWN_FOUND: &str =
        "the runtime requires the plugin bayplan: while it is away, containers are refused";
    const OTHER: &str =
        "the runtime refuses containers while a plugin is away that it requires: 10-a";

    #[test]
    fn required_plugins_are_read_of_containerds_and_crios_files() {
        let main = "etc/containerd/config.toml";
        let text = |body: &str| format!("version = 3\n{TABLE}{body}");
        check(&[], &[], &[]);
        check(&[(main, "version = 3\n")], &[NOT], &[]);
        let one = text("  enable = true\n  required_plugins = [\"bayplan\"]\n");
        check(&[(main, &one)], &[OWN_FOUND], &[OWN_FOUND]);
        let lines =
            text("enable = true # on\nrequired_plugins = [ # two\n  'bayplan',\n  '10-a',\n]\n");
        check(&[(main, &lines)], &[OWN_FOUND, OTHER], &[OWN_FOUND, OTHER]);
        let crio = "[crio.nri]\nnri_enable_default_validator = true\nnri_validator_required_plugins = [\"bayplan\"]\n";
        check(&[("etc/crio/crio.conf.d/10.conf", crio)], &[OWN_FOUND], &[OWN_FOUND]);
    }

    #[test]
    fn what_is_off_said_elsewhere_or_said_again_later_counts_as_such() {
        let main = "etc/containerd/config.toml";
        for off in [
            format!("{TABLE}enable = false\nrequired_plugins = [\"bayplan\"]\n"),
            format!("{TABLE}required_plugins = [\"bayplan\"]\n"),
            "[other]\nenable = true\nrequired_plugins = [\"bayplan\"]\n".to_owned(),
            format!("{TABLE}enable = true\n# required_plugins = [\"bayplan\"]\n"),
            format!("{TABLE}enable = true\nrequired_plugins = [\"bayplan"),
        ] {
            check(&[(main, &off)], &[NOT], &[]);
        }
        let on = format!("{TABLE}enable = true\nrequired_plugins = [\"bayplan\"]\n");
        let later = format!("{TABLE}required_plugins = [\"10-a\"]\n");
        let drop_in = ("etc/containerd/conf.d/99.toml", later.as_str());
        check(&[(main, &on), drop_in], &[NOT, OTHER], &[OTHER]);
    }
}
