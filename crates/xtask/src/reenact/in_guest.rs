//! What a guest of the lab needs to measure. In: scenarios, this machine's programs. Out: files for the guest, and the command line that runs there.
//!
//! Time means nothing in an emulated machine; where containers run and where their memory is does.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::programs::Programs;
use super::scenario::Scenario;
use crate::lab::archive::libraries;
use crate::setup::find_program;

/// Below it are the guest's programs.
const BIN: &str = "/usr/bin";
/// Those that busybox does not have, or with fewer options.
const TOOLS: [&str; 5] = ["chrt", "ip", "setpriv", "taskset", "unshare"];
/// Of what is only unpacked; the others are for scenarios about time.
const UNPACKED: [&str; 3] = ["usr/bin/memcached", "usr/bin/wrk", "usr/sbin/nginx"];
/// The guest gives it back.
const OUT: &str = "/artefacts/reenact";

/// What is packed, and what is run.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// A name below `/usr/bin` of the guest and a file each; containerd 2 comes with the lab.
    pub(crate) files: Vec<(String, PathBuf)>,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
}

/// Whether these are names of scenarios that a guest can run.
///
/// # Errors
/// Says which is not.
pub(crate) fn check_names(scenarios: &str) -> anyhow::Result<()> {
    for name in scenarios.split(',') {
        let scenario = Scenario::by_name(name).with_context(|| {
            format!("no scenario `{name}`; `cargo xtask reenact --list` has their names")
        })?;
        ensure!(scenario.is_for_guests(), "a guest has no network and no drivers for {name}");
    }
    Ok(())
}

/// Builds and fetches what is missing. `args` are more of the command line of `cargo xtask reenact`.
pub(crate) fn pack(scenarios: &str, args: &[String], bayplan: &Path) -> anyhow::Result<Packed> {
    let programs = Programs::prepare(Some(bayplan))?;
    let mut files = vec![
        ("xtask".to_owned(), programs.inside.clone()),
        ("kubelet".to_owned(), programs.kubelet.clone()),
    ];
    for name in TOOLS {
        files.push((name.to_owned(), find_program(name)?));
    }
    for (inside, file) in unpacked_files(&programs)? {
        files.push((format!("unpacked/{inside}"), file));
    }
    let there = serde_json::to_string(&there())?;
    let head = ["xtask", "reenact-with", &there, "--scenario", scenarios, "--out", OUT];
    let command = head.into_iter().map(str::to_owned).chain(args.iter().cloned()).collect();
    Ok(Packed { files, command })
}

/// Where a guest has the programs.
fn there() -> Programs {
    let at = |name: &str| Path::new(BIN).join(name);
    Programs {
        bayplan: at("bayplan"),
        kubelet: at("kubelet"),
        containerd: at("containerd-given"),
        runc: at("containerd-given"),
        unpacked: at("unpacked"),
        inside: at("xtask"),
    }
}

/// Programs that are only unpacked, and the libraries that came with them, by their paths below the root of packages.
fn unpacked_files(programs: &Programs) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for name in UNPACKED {
        let program = programs.unpacked.join(name);
        for library in libraries(&program, &programs.libraries())?.iter().map(Path::new) {
            if let Ok(inside) = library.strip_prefix(&programs.unpacked) {
                found.push((inside.display().to_string(), library.to_owned()));
            }
        }
        ensure!(program.is_file(), "{} is missing", program.display());
        found.push((name.to_owned(), program));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The programs that a guest was given.
pub(crate) fn given(programs: &str) -> anyhow::Result<Programs> {
    serde_json::from_str(programs).context("reenact-with is for `cargo xtask lab run --reenact`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_for_guests_are_those_about_placement() {
        assert!(check_names("chain-spread,chain-namespaces,redis-near").is_ok());
        let error = |names: &str| check_names(names).unwrap_err().to_string();
        assert_eq!(error("qperf"), "a guest has no network and no drivers for qperf");
        assert!(error("chain").contains("no scenario `chain`"));
    }

    #[test]
    fn the_guest_reads_what_it_is_given() {
        let text = serde_json::to_string(&there()).unwrap();
        assert_eq!(given(&text).unwrap().kubelet, Path::new("/usr/bin/kubelet"));
        assert!(given("{}").is_err());
    }
}
