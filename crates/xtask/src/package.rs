//! `cargo xtask package`: one static program, and the Debian and RPM packages that hold it. In: the working tree. Out:
//! `target/package`. What goes where in a package is said in `crates/cli/Cargo.toml`.
//!
//! The program is linked with glibc statically (`crt-static`), so one build runs on every distribution, however old its libc is; the target is
//! the one that is installed anyway, and glibc's allocator is the one that is measured. musl's is slow with several threads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::{cargo, run_program, workspace};

pub(crate) const HELP: &str = "\
cargo xtask package      build a static bayplan, and its Debian and RPM packages, into target/package
";

/// What makes the packages, installed below `target/tools`; pinned, because the same tree is to give the same package.
const TOOLS: [(&str, &str); 2] = [("cargo-deb", "3.8.0"), ("cargo-generate-rpm", "0.21.1")];
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "bayplan.bash"), ("zsh", "_bayplan"), ("fish", "bayplan.fish")];

pub(crate) fn run() -> anyhow::Result<()> {
    let out = workspace().join("target/package");
    match fs::remove_dir_all(&out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", out.display()));
        }
        _ => {}
    }
    for dir in ["man", "completions"] {
        let dir = out.join(dir);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let program = out.join("bayplan");
    fs::copy(build()?, &program)?;
    run_program(Command::new(&program).arg("man").arg(out.join("man")))?;
    for (shell, file) in COMPLETIONS {
        let script = Command::new(&program).args(["completions", shell]).output()?;
        fs::write(out.join("completions").join(file), script.stdout)?;
    }
    let tools = install_tools()?;
    let package = |tool: &str, args: &[&str]| {
        let mut command = Command::new(tools.join(tool));
        // Each is a sub-command of cargo, and expects its own name first.
        command.arg(tool.trim_start_matches("cargo-")).args(args);
        run_program(command.arg("--output").arg(&out).current_dir(workspace()))
    };
    package("cargo-deb", &["--no-build", "--no-strip", "--package", "bayplan-cli"])?;
    package("cargo-generate-rpm", &["--package", "crates/cli"])?;
    list(&out)
}

/// The program, linked statically. The target is named so that build scripts and macros are not linked that way, too, which they cannot be.
fn build() -> anyhow::Result<PathBuf> {
    let target = host()?;
    run_program(
        Command::new(cargo())
            .args(["build", "--locked", "--profile", "dist", "--bin", "bayplan"])
            .args(["--target", &target, "--target-dir", "target"])
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .current_dir(workspace()),
    )?;
    Ok(workspace().join("target").join(target).join("dist/bayplan"))
}

fn host() -> anyhow::Result<String> {
    let told = Command::new("rustc").arg("-vV").current_dir(workspace()).output()?.stdout;
    let told = String::from_utf8_lossy(&told);
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    match host {
        Some(host) if host.ends_with("-linux-gnu") => Ok(host.to_owned()),
        other => bail!("packages are made on Linux with glibc; rustc says {other:?}"),
    }
}

/// Where the tools are.
fn install_tools() -> anyhow::Result<PathBuf> {
    for (name, version) in TOOLS {
        run_program(&mut install(name, version))?;
    }
    Ok(tools())
}

/// Installs a program of Rust among our tools; cargo does nothing where this version is there.
pub(crate) fn install(name: &str, version: &str) -> Command {
    let mut command = Command::new(cargo());
    command.args(["install", "--locked", "--quiet", name, "--version", version]);
    command.args(["--root", "target/tools"]).current_dir(workspace());
    command
}

/// The directory of their programs.
pub(crate) fn tools() -> PathBuf {
    workspace().join("target/tools/bin")
}

fn list(out: &Path) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(out)?.map(|it| Ok(it?.path())).collect::<Result<_, std::io::Error>>()?;
    files.sort();
    for file in files.iter().filter(|it| it.is_file()) {
        println!("{:8} KiB  {}", fs::metadata(file)?.len() / 1024, file.display());
    }
    Ok(())
}
