//! axe-core, the rules for accessibility that the test in a browser applies. In: nothing. Out: its script in the cache.
//!
//! Its licence is MPL-2.0. It is fetched from npm for tests and neither part of the repository nor of what is shipped.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::cache::made_once;
use crate::run_program;

/// What `npm pack` is asked for, and the file that it makes.
const PACKAGE: &str = "axe-core@4.14.1";
const ARCHIVE: &str = "axe-core-4.14.1.tgz";

/// The script; fetched once.
///
/// # Errors
/// npm is not installed, or cannot fetch it.
pub(crate) fn file() -> anyhow::Result<PathBuf> {
    let dir = made_once("axe-core-4.14.1", |dir| {
        let mut pack = Command::new("npm");
        pack.args(["pack", "--ignore-scripts", "--silent", PACKAGE]).current_dir(dir);
        run_program(&mut pack).context("axe-core comes from npm (Debian: apt install npm)")?;
        let mut unpack = Command::new("tar");
        unpack.args(["--extract", "--file", ARCHIVE, "package/axe.min.js"]).current_dir(dir);
        run_program(&mut unpack)?;
        fs::remove_file(dir.join(ARCHIVE))?;
        Ok(())
    })?;
    Ok(dir.join("package/axe.min.js"))
}
