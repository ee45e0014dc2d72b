//! The program of the packages. In: the working tree. Out: one file, linked with glibc statically, and laid out for what it does most.
//!
//! It is linked statically (`crt-static`), so that one build runs on every distribution, however old its libc is; the target is the one that is installed anyway, and glibc's
//! allocator is the one that is measured. musl's is slow with several threads.
//!
//! It is built twice: a first program counts where its calls go while the proxy's benchmark runs with it, and the second is made for those counts (rustc book, "Profile-guided
//! Optimization"). A call passes through some 300 functions that are cold each time; what lying side by side is worth is in
//! `benches/proxy/README.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::{cargo, make_empty, run_program, workspace};

/// Each call of the benchmark at least 400 times.
const TRAINING: [&str; 7] = ["--runs", "1", "--rounds", "10", "--idle", "5", "--no-go"];

/// Builds it.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let target = host()?;
    let tool = tool(&target)?;
    let counts = workspace().join("target/counts");
    let merged = counts.join("merged.profdata");
    make_empty(&counts)?;
    let counting = compile(&target, "target/counting", "generate", &counts)?;
    run_program(
        Command::new(cargo())
            .args(["bench", "--locked", "-p", "bayplan-benches", "--bench", "proxy", "--"])
            .arg("--bayplan")
            .arg(&counting)
            .args(TRAINING)
            .env_remove("LLVM_PROFILE_FILE")
            .current_dir(workspace()),
    )?;
    merge(&tool, &counts, &merged)?;
    compile(&target, "target", "use", &merged)
}

/// A program that is linked statically, without counts: quick to make, for images.
pub(crate) fn build_static() -> anyhow::Result<PathBuf> {
    let target = host()?;
    run_program(
        Command::new(cargo())
            .args(["build", "--locked", "--profile", "dist", "--bin", "bayplan"])
            .args(["--target", &target, "--target-dir", "target/image"])
            .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
            .current_dir(workspace()),
    )?;
    Ok(workspace().join("target/image").join(target).join("dist/bayplan"))
}

/// One of the two programs: `profile` is `generate` or `use`. The target is named so that build scripts and macros are made without these flags: they cannot be linked statically,
/// and are not to be counted.
fn compile(target: &str, dir: &str, profile: &str, counts: &Path) -> anyhow::Result<PathBuf> {
    let mut flags = vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("-Cprofile-{profile}={}", counts.display()),
    ];
    flags.extend(remaps(
        &workspace(),
        env_dir("CARGO_HOME", ".cargo"),
        env_dir("RUSTUP_HOME", ".rustup"),
    ));
    let flags = flags.join("\x1f");
    run_program(
        Command::new(cargo())
            .args(["build", "--locked", "--profile", "dist", "--bin", "bayplan"])
            .args(["--target", target, "--target-dir", dir])
            .env("CARGO_ENCODED_RUSTFLAGS", flags)
            .current_dir(workspace()),
    )?;
    Ok(workspace().join(dir).join(target).join("dist/bayplan"))
}

/// Where cargo and rustup keep things, or the usual place in the home directory.
fn env_dir(variable: &str, usual: &str) -> Option<PathBuf> {
    let set = std::env::var_os(variable).map(PathBuf::from);
    set.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(usual)))
}

/// So that messages of panics name files as they are in the sources, and not where a machine that makes packages has them. The last that
/// fits counts.
fn remaps(workspace: &Path, cargo: Option<PathBuf>, rustup: Option<PathBuf>) -> Vec<String> {
    let places = [(rustup, "rust"), (cargo, "cargo"), (Some(workspace.to_owned()), "bayplan")];
    let remap = |(from, to): (Option<PathBuf>, &str)| {
        Some(format!("--remap-path-prefix={}={to}", from?.display()))
    };
    places.into_iter().filter_map(remap).collect()
}

/// Makes one file of what each process has counted.
fn merge(tool: &Path, counts: &Path, merged: &Path) -> anyhow::Result<()> {
    let files =
        fs::read_dir(counts)?.map(|it| Ok(it?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(
        !files.is_empty(),
        "{} is empty: the program has not written what it counted while the benchmark ran; it does when it is ended by SIGTERM",
        counts.display()
    );
    run_program(Command::new(tool).args(["merge", "-o"]).arg(merged).args(files))
}

/// `llvm-profdata` of the LLVM that rustc has: that of another version may not read what was counted.
fn tool(target: &str) -> anyhow::Result<PathBuf> {
    let root = told_by_rustc(&["--print", "sysroot"])?;
    let tool = Path::new(root.trim()).join("lib/rustlib").join(target).join("bin/llvm-profdata");
    if !tool.exists() {
        let mut add = Command::new("rustup");
        add.args(["component", "add", "llvm-tools"]).current_dir(workspace());
        run_program(&mut add).with_context(|| {
            format!("{} is missing, and rustup is what would fetch it", tool.display())
        })?;
    }
    Ok(tool)
}

fn told_by_rustc(args: &[&str]) -> anyhow::Result<String> {
    let told = Command::new("rustc").args(args).current_dir(workspace()).output();
    let told = told.context("cannot run rustc")?;
    ensure!(told.status.success(), "rustc {args:?}: {}", told.status);
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

fn host() -> anyhow::Result<String> {
    let told = told_by_rustc(&["-vV"])?;
    match told.lines().find_map(|line| line.strip_prefix("host: ")) {
        Some(host) if host.ends_with("-linux-gnu") => Ok(host.to_owned()),
        other => bail!("packages are made on Linux with glibc; rustc says {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_without_the_places_of_the_machine_that_makes_packages() {
        let flags = remaps(Path::new("/home/me/bayplan"), Some("/home/me/.cargo".into()), None);
        let expected = [
            "--remap-path-prefix=/home/me/.cargo=cargo",
            "--remap-path-prefix=/home/me/bayplan=bayplan",
        ];
        assert_eq!(flags, expected);
    }
}
