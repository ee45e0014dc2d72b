//! Finds the compiled probes. The object in `bpf/prebuilt` is used, so that clang is not needed; `BAYPLAN_BUILD_BPF=1` compiles the sources anew.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../bpf");
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-env-changed=BAYPLAN_BUILD_BPF");
    let dir = match env::var("BAYPLAN_BUILD_BPF").as_deref() {
        Ok("1") => {
            let dir = PathBuf::from(env::var("OUT_DIR")?);
            let script = sources.join("build");
            let status = Command::new(&script).arg(&dir).status()?;
            if !status.success() {
                return Err(io::Error::other(format!("{}: {status}", script.display())).into());
            }
            dir
        }
        _ => sources.join("prebuilt"),
    };
    println!("cargo::rustc-env=BAYPLAN_BPF_OBJECT={}", dir.join("bayplan.bpf.o").display());
    Ok(())
}
