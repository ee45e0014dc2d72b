//! `cargo xtask package`: the program ([`crate::program`]), and the Debian and RPM packages that hold it. In: the working tree. Out:
//! `target/package`. What goes where in a package is said in `crates/cli/Cargo.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use crate::tool::install;
use crate::{make_empty, program, run_program, workspace};

pub(crate) const HELP: &str = "\
cargo xtask package      build a static bayplan, laid out for what it does most, its bill of materials (CycloneDX), and its Debian and RPM packages, into
                         target/package
";

/// What makes the packages, installed below `target/tools`; pinned, because others may make other packages.
const TOOLS: [(&str, &str); 3] =
    [("cargo-cyclonedx", "0.5.9"), ("cargo-deb", "3.8.0"), ("cargo-generate-rpm", "0.21.1")];
/// What the program is made of, in CycloneDX's JSON; the tool writes it beside the manifest.
const BILL_OF_MATERIALS: &str = "bayplan.cdx";
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "bayplan.bash"), ("zsh", "_bayplan"), ("fish", "bayplan.fish")];

pub(crate) fn run() -> anyhow::Result<()> {
    make(&program::build()?, &[], &[])
}

/// Another processor than this machine's.
pub(crate) struct Cross<'a> {
    /// As rustc names it.
    pub(crate) target: &'a str,
    /// What runs its programs here, and the first arguments.
    pub(crate) emulator: &'a [&'a str],
    /// Where everything goes.
    pub(crate) out: &'a Path,
}

/// Packages of a program for another processor. What makes packages takes everything from `target/package`, so what lies there is put aside meanwhile.
pub(crate) fn run_cross(program: &Path, cross: &Cross<'_>) -> anyhow::Result<()> {
    let stage = workspace().join("target/package");
    let aside = workspace().join("target/package.aside");
    if stage.exists() && !aside.exists() {
        fs::rename(&stage, &aside)?;
    }
    let made = make(program, cross.emulator, &["--target", cross.target]);
    make_empty(cross.out)?;
    fs::rename(&stage, cross.out)?;
    if aside.exists() {
        fs::rename(&aside, &stage)?;
    }
    made
}

/// `runner` runs the program, where this machine cannot; `target` tells the tools its processor.
fn make(built: &Path, runner: &[&str], target: &[&str]) -> anyhow::Result<()> {
    let out = workspace().join("target/package");
    make_empty(&out)?;
    for dir in ["man", "completions"] {
        fs::create_dir(out.join(dir))?;
    }
    let program = out.join("bayplan");
    fs::copy(built, &program)?;
    let running = || match runner {
        [emulator, options @ ..] => {
            let mut command = Command::new(emulator);
            command.args(options).arg(&program);
            command
        }
        [] => Command::new(&program),
    };
    run_program(running().arg("man").arg(out.join("man")))?;
    for (shell, file) in COMPLETIONS {
        let script = running().args(["completions", shell]).output()?;
        ensure!(script.status.success(), "completions of {shell}: {}", script.status);
        fs::write(out.join("completions").join(file), script.stdout)?;
    }
    let tools = install_tools()?;
    write_bill_of_materials(&tools, &out)?;
    let package = |tool: &str, args: &[&str]| {
        let mut command = Command::new(tools.join(tool));
        // Each is a sub-command of cargo, and expects its own name first.
        command.arg(tool.trim_start_matches("cargo-")).args(args).args(target);
        run_program(command.arg("--output").arg(&out).current_dir(workspace()))
    };
    package("cargo-deb", &["--no-build", "--no-strip", "--package", "bayplan-cli"])?;
    package("cargo-generate-rpm", &["--package", "crates/cli"])?;
    list(&out)
}

/// What the program is made of: every crate, with version, checksum and licence.
fn write_bill_of_materials(tools: &Path, out: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(tools.join("cargo-cyclonedx"));
    command.args(["cyclonedx", "--format", "json", "--manifest-path", "crates/cli/Cargo.toml"]);
    command.args(["--override-filename", BILL_OF_MATERIALS]).current_dir(workspace());
    run_program(&mut command)?;
    // The tool writes one for each member of the workspace.
    let crates = fs::read_dir(workspace().join("crates"))?.map(|it| it.map(|it| it.path()));
    let mut members = crates.collect::<Result<Vec<PathBuf>, _>>()?;
    members.extend(["tests", "tests/plant", "benches"].map(|it| workspace().join(it)));
    for member in members {
        let file = member.join(BILL_OF_MATERIALS).with_extension("cdx.json");
        if member.ends_with("cli") {
            fs::copy(&file, out.join("bayplan.cdx.json"))?;
        }
        if file.exists() {
            fs::remove_file(&file)?;
        }
    }
    Ok(())
}

/// Where the tools are.
fn install_tools() -> anyhow::Result<PathBuf> {
    for (name, version) in TOOLS {
        run_program(&mut install(name, version, &workspace().join("target/tools")))?;
    }
    Ok(workspace().join("target/tools/bin"))
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
