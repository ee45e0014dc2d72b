//! The programs of a run: what Debian has, what `tests/kubelet` builds, and Bayplan. Out: where each is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::manifest::libraries;
use crate::built::built_dir;
use crate::cache::made_once;
use crate::setup::{find_program, is_root};
use crate::{cargo, workspace};

/// Only unpacked: installing them would start a web server, and add libraries.
const UNPACKED: [&str; 5] = ["dpdk-dev", "memcached", "nginx", "qperf", "wrk"];
const KUBERNETES: &str = "1.34";

/// Full paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Programs {
    pub(crate) bayplan: PathBuf,
    pub(crate) kubelet: PathBuf,
    /// A directory with containerd and its shim.
    pub(crate) containerd: PathBuf,
    /// A directory.
    pub(crate) runc: PathBuf,
    /// The root of packages that are only unpacked.
    pub(crate) unpacked: PathBuf,
    /// This program, for what runs inside of namespaces.
    pub(crate) inside: PathBuf,
}

impl Programs {
    /// Builds and fetches what is missing.
    pub(crate) fn prepare(bayplan: Option<&Path>) -> anyhow::Result<Programs> {
        ensure!(is_root()?, "namespaces and containers need root: run it with sudo -E");
        for name in [
            "unshare",
            "setpriv",
            "ip",
            "chrt",
            "taskset",
            "ctr",
            "busybox",
            "redis-benchmark",
            "redis-check-rdb",
            "stress-ng",
        ] {
            find_program(name)?;
        }
        ensure!(
            Path::new("/usr/lib/cni/bridge").exists(),
            "/usr/lib/cni/bridge is missing: install Debian's package containernetworking-plugins"
        );
        let unpacked = unpack()?;
        let bayplan = match bayplan {
            Some(path) => {
                fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?
            }
            None => build_bayplan()?,
        };
        let mut build = Command::new(workspace().join("tests/kubelet/run"));
        build.args(["--build-only", "--kubernetes", KUBERNETES, "--world", "standalone"]);
        run(build.arg("--bayplan").arg(&bayplan))?;
        Ok(Programs {
            bayplan,
            kubelet: built(&format!("kubelet-{KUBERNETES}"))?.join("kubelet"),
            containerd: built("containerd-2")?,
            runc: built("runc")?,
            unpacked,
            inside: std::env::current_exe()?,
        })
    }

    /// What each says of itself, for the report.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        let ask = |program: PathBuf, argument: &str| {
            let mut command = Command::new(program);
            command.arg(argument).env("LD_LIBRARY_PATH", self.libraries());
            let told = command.output().ok()?;
            // wrk and nginx say it on standard error.
            let text = [told.stdout, told.stderr].concat();
            parse_version(&String::from_utf8_lossy(&text))
        };
        let programs = [
            ("bayplan", self.bayplan.clone(), "--version"),
            ("kubelet", self.kubelet.clone(), "--version"),
            ("containerd", self.containerd.join("containerd"), "--version"),
            ("runc", self.runc.join("runc"), "--version"),
            ("redis", "/usr/bin/redis-benchmark".into(), "--version"),
            ("stress-ng", "/usr/bin/stress-ng".into(), "--version"),
            ("memcached", self.unpacked.join("usr/bin/memcached"), "--version"),
            ("nginx", self.unpacked.join("usr/sbin/nginx"), "-v"),
            ("wrk", self.unpacked.join("usr/bin/wrk"), "-v"),
            ("qperf", self.unpacked.join("usr/bin/qperf"), "--version"),
        ];
        let told = programs.map(|(name, program, argument)| {
            let version = ask(program, argument).unwrap_or_else(|| "of unknown version".to_owned());
            (name.to_owned(), version)
        });
        told.into()
    }

    /// Libraries of what is only unpacked.
    pub(crate) fn libraries(&self) -> String {
        libraries(&self.unpacked.display().to_string())
    }
}

/// Runs a program with its standard output on ours for errors: standard output is for results.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdout(Stdio::from(std::io::stderr())).status();
    let status = status.with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name}: {status}");
    Ok(())
}

fn run_apt(args: &[&str]) -> anyhow::Result<()> {
    run(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// The first word that begins as a version does.
fn parse_version(text: &str) -> Option<String> {
    let words = text.split(|it: char| it.is_whitespace() || it == '/' || it == ',');
    let mut words = words.map(|it| it.trim_start_matches('v').trim_end_matches(['.', ']']));
    let is_version =
        |it: &&str| it.starts_with(|first: char| first.is_ascii_digit()) && it.contains('.');
    words.find(is_version).map(str::to_owned)
}

fn build_bayplan() -> anyhow::Result<PathBuf> {
    let mut build = Command::new(cargo());
    build.args(["build", "--release", "--locked", "--package", "bayplan-cli", "--bin", "bayplan"]);
    run(build.current_dir(workspace()))?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace().join("target"), PathBuf::from);
    Ok(target.join("release/bayplan"))
}

/// With what they need and the machine lacks.
fn unpack() -> anyhow::Result<PathBuf> {
    let root = made_once(&format!("reenact-{}", UNPACKED.join("-")), |dir| {
        let fetched = dir.join("fetched");
        fs::create_dir_all(fetched.join("partial"))?;
        run_apt(&["update", "--quiet"])?;
        let archives = format!("Dir::Cache::archives={}", fetched.display());
        let mut args = vec![
            "install",
            "--download-only",
            "--reinstall",
            "--yes",
            "--quiet",
            "--no-install-recommends",
            "-o",
            &archives,
        ];
        args.extend(UNPACKED);
        run_apt(&args)?;
        for entry in fs::read_dir(&fetched)? {
            let package = entry?.path();
            if package.extension().is_some_and(|it| it == "deb") {
                run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(dir))?;
            }
        }
        Ok(fs::remove_dir_all(&fetched)?)
    })?;
    Ok(root)
}

/// The directory of what `tests/kubelet/run` has built; it removes older ones.
fn built(name: &str) -> anyhow::Result<PathBuf> {
    let built = built_dir(name);
    built.with_context(|| format!("there is no {name}, although tests/kubelet/run was to build it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        let told = [
            ("bayplan 0.1.0 (290bb40)", "0.1.0"),
            ("Kubernetes v1.34.4", "1.34.4"),
            ("containerd github.com/containerd/containerd/v2 2.4.2 ", "2.4.2"),
            ("redis-benchmark 7.0.15", "7.0.15"),
            ("stress-ng, version 0.15.06 (gcc 12.2.0, x86_64 Linux)", "0.15.06"),
            ("memcached 1.6.18", "1.6.18"),
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer", "4.1.0-3+b2"),
        ];
        for (text, version) in told {
            assert_eq!(parse_version(text).as_deref(), Some(version), "{text}");
        }
        assert_eq!(parse_version("usage: x"), None);
    }
}
