//! Installs what the tests need beyond Rust and a C compiler, and says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::{run_program, workspace};

/// A program the tests use, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 4] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("busybox", "busybox-static"),
    ("qemu-system-x86_64", "qemu-system-x86"),
];

/// Depends on the current kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";

fn run_apt(args: &[&str], dir: &Path) -> anyhow::Result<()> {
    let is_root = Command::new("id").arg("-u").output()?.stdout == b"0\n";
    let mut command = match is_root {
        true => Command::new("apt-get"),
        false => {
            let mut sudo = Command::new("sudo");
            sudo.arg("apt-get");
            sudo
        }
    };
    run_program(command.args(args).env("DEBIAN_FRONTEND", "noninteractive").current_dir(dir))
}

/// Packages that are missing, then the kernel if it is missing.
pub(crate) fn run() -> anyhow::Result<()> {
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(name, _)| !has_program(name))
        .map(|(_, package)| *package)
        .collect();
    let kernel_dir = kernel_dir();
    let has_kernel = ["vmlinuz", "overlay.ko"].iter().all(|it| kernel_dir.join(it).is_file());
    if missing.is_empty() && has_kernel {
        println!("xtask: everything that the tests need is here");
        return Ok(());
    }
    if !has_program("apt-get") {
        bail!(
            "the tests need {} and the Debian package {KERNEL}, unpacked into {}; this machine has no apt-get, so \
             please install them yourself",
            PROGRAMS.map(|(name, _)| name).join(", "),
            kernel_dir.display()
        );
    }
    run_apt(&["update", "--quiet"], Path::new("/"))?;
    if !missing.is_empty() {
        println!("xtask: installing Debian packages: {}", missing.join(", "));
        let mut args = vec!["install", "--yes", "--no-install-recommends"];
        args.extend(missing);
        run_apt(&args, Path::new("/"))?;
    }
    if !has_kernel {
        println!("xtask: fetching a kernel for the virtual machine into {}", kernel_dir.display());
        fetch_kernel(&kernel_dir).context("cannot fetch the kernel for the virtual machine")?;
    }
    Ok(())
}

fn has_program(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let found = dirs.map(|dir| Path::new(dir).join(name)).find(|path| path.is_file());
    // Debian also has a busybox that is linked with libc, which an image without libraries cannot run.
    found.is_some_and(|path| name != "busybox" || is_static(&path))
}

/// `ldd` fails for a program that needs no library.
fn is_static(program: &Path) -> bool {
    Command::new("ldd").arg(program).output().is_ok_and(|listed| !listed.status.success())
}

fn kernel_dir() -> PathBuf {
    let target = std::env::var("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|_| workspace().join("target")).join("guest-kernel")
}

/// Unpacks the package without installing it and keeps the two files that the virtual machine needs.
fn fetch_kernel(dir: &Path) -> anyhow::Result<()> {
    let scratch = dir.join("unpacked");
    fs::create_dir_all(&scratch)?;
    let depends = Command::new("apt-cache").args(["depends", KERNEL]).output()?;
    let depends = String::from_utf8(depends.stdout)?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|package| package.starts_with("linux-image-"))
        .with_context(|| format!("apt-cache knows no kernel behind {KERNEL}"))?;
    run_program(Command::new("apt-get").args(["download", package]).current_dir(&scratch))?;
    let archive = find(&scratch, &|name| name.ends_with(".deb"))?;
    run_program(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(&scratch))?;
    fs::copy(find(&scratch, &|name| name.starts_with("vmlinuz-"))?, dir.join("vmlinuz"))?;
    let module = find(&scratch, &|name| name == "overlay.ko")
        .context("its overlay module is missing or compressed")?;
    fs::copy(module, dir.join("overlay.ko"))?;
    fs::remove_dir_all(scratch)?;
    Ok(())
}

fn find(dir: &Path, is_it: &dyn Fn(&str) -> bool) -> anyhow::Result<PathBuf> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            } else if is_it(&entry.file_name().to_string_lossy()) {
                return Ok(entry.path());
            }
        }
    }
    ensure!(dir.is_dir(), "{} is gone", dir.display());
    bail!("nothing like it in {}", dir.display());
}
