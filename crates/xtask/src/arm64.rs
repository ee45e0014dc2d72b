//! `cargo xtask arm64`: Bayplan for 64-bit Arm, made and tried on another machine. In: the working tree. Out: a static program, its packages in `target/package-arm64`, the unit tests
//! under user-mode emulation, or the demo in a guest with an emulated Arm board.

mod guest;

use std::path::PathBuf;
use std::process::Command;

use crate::package::{self, Cross};
use crate::setup::run_apt;
use crate::{cargo, run_program, workspace};

pub(crate) const HELP: &str = "\
cargo xtask arm64 package|units [CRATE...]|demo
                         package: the static program for 64-bit Arm and its Debian and RPM packages, into target/package-arm64; units: the unit tests of all or
                         some crates under user-mode emulation; demo: `bayplan topology` and `bayplan demo` of the packaged program on an emulated board
                         with a Debian kernel. As root they install what they need: a cross compiler and QEMU
";

/// As rustc names it.
pub(crate) const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Debian's packages: the cross compiler with its libc, and both kinds of emulators.
const PACKAGES: [&str; 4] =
    ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static", "qemu-system-arm"];
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Runs a program of that processor. Where its libraries are: as Debian's cross compiler has them.
const EMULATOR: [&str; 3] = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"];
/// Tools and tests of this machine.
const NOT_EMULATED: [&str; 3] = ["bayplan-xtask", "bayplan-tests", "bayplan-plant"];

pub(crate) fn run(args: &[&str]) -> anyhow::Result<Option<()>> {
    match args {
        ["package"] => {
            install()?;
            let out = packaged();
            let out = out.parent().unwrap_or(&out);
            package::run_cross(&build()?, &Cross { target: TARGET, emulator: &EMULATOR, out })?;
        }
        ["units", crates @ ..] => {
            install()?;
            units(crates)?;
        }
        ["demo"] => {
            install()?;
            guest::run(&packaged())?;
        }
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// Whether this is understood.
pub(crate) fn is_known(args: &[&str]) -> bool {
    matches!(args, ["package" | "demo"] | ["units", ..])
}

/// The program of the package.
fn packaged() -> PathBuf {
    workspace().join("target/package-arm64/bayplan")
}

fn install() -> anyhow::Result<()> {
    let mut listed = Command::new("dpkg-query");
    listed.args(["-W", "-f", "${db:Status-Status}\n"]).args(PACKAGES);
    let has_all = listed.output().is_ok_and(|told| {
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        told.lines().filter(|it| *it == "installed").count() == PACKAGES.len()
    });
    if !has_all {
        run_apt(&["update", "--quiet"], &workspace())?;
        let mut args = vec!["install", "--yes", "--no-install-recommends"];
        args.extend(PACKAGES);
        run_apt(&args, &workspace())?;
    }
    run_program(Command::new("rustup").args(["target", "add", TARGET]).current_dir(workspace()))
}

/// Cargo, with a compiler and a linker for the other processor.
fn cross(args: &[&str]) -> Command {
    let mut command = Command::new(cargo());
    command.args(args).args(["--locked", "--target", TARGET]).current_dir(workspace());
    command.env("CC_aarch64_unknown_linux_gnu", LINKER);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command
}

/// Static, and without the layout by counts that this machine's program has: these would have to be taken on such a processor.
fn build() -> anyhow::Result<PathBuf> {
    let mut command = cross(&["build", "--profile", "dist", "--bin", "bayplan"]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    run_program(&mut command)?;
    Ok(workspace().join("target").join(TARGET).join("dist/bayplan"))
}

fn units(crates: &[&str]) -> anyhow::Result<()> {
    let mut command = cross(&["test", "--lib"]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR.join(" "));
    match crates {
        [] => {
            command.arg("--workspace");
            NOT_EMULATED.iter().for_each(|it| {
                command.args(["--exclude", it]);
            });
        }
        some => some.iter().for_each(|it| {
            command.args(["--package", it]);
        }),
    }
    run_program(&mut command)
}
