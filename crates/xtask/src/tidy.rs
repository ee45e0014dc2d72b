//! Checks what no compiler checks: the layers, that the pure crates stay pure, that released files are as released, that links lead somewhere,
//! that commands in pages can be run, that pages stay short, and that containers are no persons.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::links::check_links;
use crate::page_commands::check_commands;
use crate::shape::check_cycles;
use crate::units::check_units;
use crate::words::check_words;
use crate::{cargo, workspace};

/// Layer of each crate: it may depend on lower ones only.
const LAYERS: &[(&str, u8)] = &[
    ("bayplan-types", 0),
    ("bayplan-topology", 1),
    ("bayplan-allocator", 2),
    ("bayplan-drawing", 2),
    ("bayplan-workload", 3),
    ("bayplan-enforcement", 3),
    ("bayplan-rebalance", 3),
    ("bayplan-node", 4),
    ("bayplan-config", 5),
    ("bayplan-host", 6),
    ("bayplan-isst", 6),
    ("bayplan-cri", 6),
    ("bayplan-nri", 6),
    ("bayplan-probes", 6),
    ("bayplan-cluster", 6),
    ("bayplan-daemon", 7),
    ("bayplan-cli", 8),
];
/// Up to this layer a crate takes values and returns values.
const LAYER_PURE_MAX: u8 = 5;
/// Members that may use everything and that no crate of a layer uses.
const OUTSIDE: [&str; 4] = ["bayplan-xtask", "bayplan-tests", "bayplan-plant", "bayplan-benches"];
/// What a pure crate must not reach, also not through others.
const IMPURE: [&str; 9] =
    ["tokio", "tonic", "prost", "hyper", "aya", "axum", "kube", "nix", "tracing"];

pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = read_metadata()?;
    let mut breaches = check_layers(&metadata);
    breaches.extend(check_purity(&metadata));
    breaches.extend(check_lints()?);
    breaches.extend(check_cycles()?);
    breaches.extend(check_protocols()?);
    breaches.extend(check_units());
    breaches.extend(check_links()?);
    breaches.extend(check_commands()?);
    breaches.extend(check_sizes()?);
    breaches.extend(check_words()?);
    match breaches.as_slice() {
        [] => {
            println!("xtask: tidy");
            Ok(())
        }
        _ => bail!("not tidy:\n  {}", breaches.join("\n  ")),
    }
}

/// What is read first has a limit; more belongs on a page of its own.
const PAGES: [(&str, u64); 3] =
    [("README.md", 8 << 10), ("ARCHITECTURE.md", 20 << 10), ("docs/testing.md", 12 << 10)];

fn check_sizes() -> anyhow::Result<Vec<String>> {
    let mut breaches = Vec::new();
    for (page, limit) in PAGES {
        let bytes = fs::metadata(workspace().join(page)).context(page)?.len();
        if bytes > limit {
            breaches.push(format!("{page} has {bytes} bytes, more than {limit}"));
        }
    }
    Ok(breaches)
}

/// Package name to the names of its normal dependencies, for every package of the lock file.
struct Metadata {
    dependencies: BTreeMap<String, BTreeSet<String>>,
    members: BTreeSet<String>,
}

fn read_metadata() -> anyhow::Result<Metadata> {
    let output = Command::new(cargo())
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(workspace())
        .output()?;
    let json: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = list(&json["packages"]);
    let names: BTreeMap<String, String> =
        packages.iter().map(|it| (text(&it["id"]), text(&it["name"]))).collect();
    let name = |id: &Value| names.get(&text(id)).cloned().unwrap_or_default();
    let is_normal = |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
    let nodes = list(&json["resolve"]["nodes"]);
    let dependencies = nodes.iter().map(|node| {
        let normal = list(&node["deps"]).into_iter().filter(|dep| is_normal(dep));
        (name(&node["id"]), normal.map(|dep| name(&dep["pkg"])).collect())
    });
    Ok(Metadata {
        dependencies: dependencies.collect(),
        members: list(&json["workspace_members"]).iter().map(name).collect(),
    })
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

fn check_layers(metadata: &Metadata) -> Vec<String> {
    let mut breaches = Vec::new();
    for member in &metadata.members {
        let Some(own) = layer(member) else {
            if !OUTSIDE.contains(&member.as_str()) {
                breaches.push(format!("{member} is in no layer; put it into the table of tidy"));
            }
            continue;
        };
        for used in metadata.dependencies.get(member).into_iter().flatten() {
            let is_wrong = match layer(used) {
                Some(other) => other >= own,
                None => OUTSIDE.contains(&used.as_str()),
            };
            if is_wrong {
                breaches.push(format!("{member} (layer {own}) depends on {used}"));
            }
        }
    }
    breaches
}

fn check_purity(metadata: &Metadata) -> Vec<String> {
    let pure = LAYERS.iter().filter(|(_, layer)| *layer <= LAYER_PURE_MAX);
    let mut breaches = Vec::new();
    for (name, _) in pure {
        let mut reached = BTreeSet::new();
        let mut open = vec![(*name).to_owned()];
        while let Some(package) = open.pop() {
            if reached.insert(package.clone()) {
                open.extend(metadata.dependencies.get(&package).into_iter().flatten().cloned());
            }
        }
        for impure in IMPURE.iter().filter(|impure| reached.contains(**impure)) {
            breaches.push(format!("{name} is pure, but reaches {impure}"));
        }
    }
    breaches
}

/// Every member takes the workspace's lints, and every pure crate bans I/O in a `clippy.toml` of its own, the same for all.
fn check_lints() -> anyhow::Result<Vec<String>> {
    let mut breaches = Vec::new();
    let root = workspace();
    let crates = fs::read_dir(root.join("crates"))?.map(|entry| entry.map(|entry| entry.path()));
    let mut members = crates.collect::<Result<Vec<_>, _>>()?;
    members.extend(["tests", "tests/plant", "benches"].map(|it| root.join(it)));
    for member in members {
        let manifest = fs::read_to_string(member.join("Cargo.toml"))?;
        // One crate calls ioctl; its own lints are the same but for that.
        let is_argued = member.ends_with("isst")
            && manifest.contains("undocumented_unsafe_blocks = \"deny\"")
            && manifest.contains("unwrap_used = \"warn\"");
        if !manifest.contains("[lints]\nworkspace = true") && !is_argued {
            breaches.push(format!("{} does not take the workspace's lints", member.display()));
        }
    }
    let folders = LAYERS.iter().filter(|(_, layer)| *layer <= LAYER_PURE_MAX);
    let bans: BTreeSet<Option<String>> = folders
        .map(|(name, _)| {
            let folder = name.trim_start_matches("bayplan-");
            fs::read_to_string(root.join("crates").join(folder).join("clippy.toml")).ok()
        })
        .collect();
    let is_banning =
        |text: &String| text.contains("std::fs::read") && text.contains("Instant::now");
    match bans.iter().collect::<Vec<_>>().as_slice() {
        [Some(text)] if is_banning(text) => {}
        _ => breaches.push("the pure crates' clippy.toml differ, or one is missing".to_owned()),
    }
    Ok(breaches)
}

/// `proto/README.md` names each file in back quotes, and in the same row its SHA-256.
fn check_protocols() -> anyhow::Result<Vec<String>> {
    let dir = workspace().join("proto");
    let readme = fs::read_to_string(dir.join("README.md"))?;
    let mut breaches = Vec::new();
    let rows = readme.lines().filter(|line| line.starts_with("| `"));
    for row in rows {
        let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let Some(file) = quoted.first() else { continue };
        let bytes = fs::read(dir.join(file)).with_context(|| format!("proto/{file}"))?;
        let digest: String = Sha256::digest(bytes).iter().map(|it| format!("{it:02x}")).collect();
        if !quoted.contains(&digest.as_str()) {
            breaches.push(format!("proto/{file} has SHA-256 {digest}, which is not in README.md"));
        }
    }
    for file in ["cri/api.proto", "nri/api.proto"] {
        if !readme.contains(&format!("| `{file}`")) {
            breaches.push(format!("proto/README.md does not list {file}"));
        }
    }
    Ok(breaches)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of crates with the names of their dependencies.
    fn metadata(crates: &[(&str, &[&str])]) -> Metadata {
        let names = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect();
        let dependencies = crates.iter().map(|(name, used)| ((*name).to_owned(), names(used)));
        let members = crates.iter().map(|it| it.0.to_owned());
        Metadata {
            dependencies: dependencies.collect(),
            members: members.filter(|it| it.starts_with("bayplan-")).collect(),
        }
    }

    #[test]
    fn a_crate_that_depends_on_its_own_layer_or_a_higher_one_is_refused() {
        for (crates, expected) in [
            (&[("bayplan-node", &["bayplan-workload", "serde"][..])][..], ""),
            (&[("bayplan-xtask", &["bayplan-daemon"])], ""),
            (&[("bayplan-cri", &["bayplan-nri"])], "bayplan-cri (layer 6) depends on bayplan-nri"),
            (
                &[("bayplan-node", &["bayplan-host"])],
                "bayplan-node (layer 4) depends on bayplan-host",
            ),
            (
                &[("bayplan-cli", &["bayplan-tests"])],
                "bayplan-cli (layer 8) depends on bayplan-tests",
            ),
            (&[("bayplan-new", &[])], "bayplan-new is in no layer; put it into the table of tidy"),
        ] {
            assert_eq!(check_layers(&metadata(crates)).join("\n"), expected);
        }
    }

    #[test]
    fn a_pure_crate_that_reaches_io_through_another_is_refused() {
        for (crates, expected) in [
            (&[("bayplan-config", &["parser"][..]), ("parser", &["text"])][..], ""),
            (&[("bayplan-host", &["tokio"])], ""),
            (
                &[("bayplan-config", &["parser"]), ("parser", &["tokio"])],
                "bayplan-config is pure, but reaches tokio",
            ),
        ] {
            assert_eq!(check_purity(&metadata(crates)).join("\n"), expected);
        }
    }
}
