//! Programs of Rust that automation runs. In: a name and a version. Out: what builds it, and where it is then. Built once for each version and kept
//! in the cache, outside of the source tree, so that a clean clone starts with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::cache_dir;
use crate::{cargo, workspace};

/// A program of one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// Builds it; cargo does nothing where it is there.
    pub(crate) fn install(self) -> anyhow::Result<Command> {
        Ok(install(self.name, self.version, &self.root()?))
    }

    /// The program.
    pub(crate) fn program(self) -> anyhow::Result<PathBuf> {
        Ok(self.root()?.join("bin").join(self.name))
    }

    fn root(self) -> anyhow::Result<PathBuf> {
        Ok(cache_dir()?.join("tools").join(format!("{}-{}", self.name, self.version)))
    }
}

/// Installs a program of Rust below `root`. They run for seconds and are built for minutes, so without optimisations and what debuggers need.
pub(crate) fn install(name: &str, version: &str, root: &Path) -> Command {
    let mut command = Command::new(cargo());
    command.args(["install", "--debug", "--locked", "--quiet", name, "--version", version]);
    command.arg("--root").arg(root).env("CARGO_PROFILE_DEV_DEBUG", "0").current_dir(workspace());
    command
}
