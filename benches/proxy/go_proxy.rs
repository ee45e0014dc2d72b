//! The proxy in Go: built once, if there is a Go toolchain.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `None`, with a word about it, where there is no toolchain or it cannot build.
pub(crate) fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go-passthrough");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-passthrough");
    let mut command = Command::new("go");
    command.args(["build", "-mod=mod", "-trimpath", "-o"]).arg(&binary).arg(".");
    match command.current_dir(&source).output() {
        Ok(built) if built.status.success() => Some(binary),
        Ok(failed) => {
            let why = String::from_utf8_lossy(&failed.stderr);
            eprintln!("the Go proxy is left out: {}", why.trim());
            None
        }
        Err(error) => {
            eprintln!("the Go proxy is left out: no Go toolchain ({error})");
            None
        }
    }
}
