//! Where the lab and its setup keep what takes long to make: outside of the source tree, so that a clean clone starts with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

/// `$XDG_CACHE_HOME/bayplan-lab`, or below `~/.cache`.
pub(crate) fn cache_dir() -> anyhow::Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty());
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let dir = cache.map(PathBuf::from).or_else(home);
    let dir = dir.context("neither XDG_CACHE_HOME nor HOME is set")?.join("bayplan-lab");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// A name for what is made of these texts.
pub(crate) fn key(texts: &[&str]) -> String {
    let digest = Sha256::digest(texts.join("\0").as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The contents of files as a text. By a program, because ours is built without optimisation and would take seconds.
pub(crate) fn digest_files(files: &[PathBuf]) -> anyhow::Result<String> {
    let summed = Command::new("sha256sum").args(files).output().context("cannot run sha256sum")?;
    ensure!(summed.status.success(), "sha256sum: {}", String::from_utf8_lossy(&summed.stderr));
    Ok(String::from_utf8(summed.stdout)?)
}

/// The directory `name`; `make` fills it unless it is there. Others see all of it or nothing.
pub(crate) fn made_once(
    name: &str,
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let cache = cache_dir()?;
    let dir = cache.join(name);
    if !dir.is_dir() {
        let scratch = cache.join(format!("{name}.{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        let made = make(&scratch);
        // Another process that was making it may have been faster.
        if made.is_err() || fs::rename(&scratch, &dir).is_err() {
            fs::remove_dir_all(&scratch)?;
        }
        made?;
    }
    Ok(dir)
}
