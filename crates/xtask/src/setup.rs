//! Installs what the tests need beyond Rust and a C compiler, and says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::cache::{cache_dir, made_once};
use crate::run_program;

/// A program the tests use, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 10] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("busybox", "busybox-static"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("systemctl", "systemd"),
    // For a disk that hangs.
    ("mkfs.ext4", "e2fsprogs"),
    // With redis itself, without the service that the package redis-server starts.
    ("redis-benchmark", "redis-tools"),
    ("stress-ng", "stress-ng"),
    // For `bpf/build --check`; builds use the compiled probes that are committed.
    ("clang", "clang"),
    ("llvm-strip", "llvm"),
];

/// A package that is only unpacked, into the lab's cache, because installing it starts a service; and its programs.
const UNPACKED: (&str, [&str; 2]) = ("prometheus", ["prometheus", "promtool"]);

/// Whether this program runs as root.
pub(crate) fn is_root() -> anyhow::Result<bool> {
    let told = Command::new("id").arg("-u").output().context("cannot run id")?;
    Ok(told.stdout == b"0\n")
}

/// `apt-get`, as root.
pub(crate) fn run_apt(args: &[&str], dir: &Path) -> anyhow::Result<()> {
    let mut command = match is_root()? {
        true => Command::new("apt-get"),
        false => {
            let mut sudo = Command::new("sudo");
            sudo.arg("apt-get");
            sudo
        }
    };
    run_program(command.args(args).env("DEBIAN_FRONTEND", "noninteractive").current_dir(dir))
}

/// Packages that are missing.
pub(crate) fn install_programs() -> anyhow::Result<()> {
    let missing = PROGRAMS.iter().filter(|(name, _)| !has_program(name));
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !has_program("apt-get") {
        let names = PROGRAMS.map(|(name, _)| name).join(", ");
        bail!(
            "the tests need {names}; this machine has no apt-get, so please install them yourself"
        );
    }
    run_apt(&["update", "--quiet"], Path::new("/"))?;
    println!("xtask: installing Debian packages: {}", missing.join(", "));
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend(missing);
    run_apt(&args, Path::new("/"))
}

/// The programs that are only unpacked, unless they are there. They need nothing but libc.
pub(crate) fn unpack_programs() -> anyhow::Result<()> {
    let (package, programs) = UNPACKED;
    if programs.iter().all(|name| find_program(name).is_ok()) {
        return Ok(());
    }
    made_once(package, |dir| {
        ensure!(
            has_program("apt-get"),
            "the tests need {}; this machine has no apt-get, so please put them into PATH yourself",
            programs.join(" and ")
        );
        run_apt(&["update", "--quiet"], Path::new("/"))?;
        let scratch = dir.join("unpacked");
        fs::create_dir_all(&scratch)?;
        let mut download = Command::new("apt-get");
        run_program(download.args(["download", package]).current_dir(&scratch))?;
        let fetched = fs::read_dir(&scratch)?.next().context("apt-get has fetched nothing")??;
        run_program(Command::new("dpkg-deb").arg("--extract").arg(fetched.path()).arg(&scratch))?;
        for name in programs {
            fs::rename(scratch.join("usr/bin").join(name), dir.join(name))
                .with_context(|| format!("the package {package} has no {name}"))?;
        }
        fs::remove_dir_all(scratch)?;
        Ok(())
    })?;
    Ok(())
}

/// Tests mount a file system of their own; nothing of FUSE but the kernel's part is needed.
pub(crate) fn check_fuse() -> anyhow::Result<()> {
    let device = Path::new("/dev/fuse");
    if !device.exists() {
        // Where it is built in, or this is a container, there may be no modprobe.
        let _tried = Command::new("modprobe").arg("fuse").status();
    }
    ensure!(
        device.exists(),
        "the tests need /dev/fuse: load the kernel's module `fuse`, or start this container with `--device /dev/fuse --cap-add SYS_ADMIN`"
    );
    Ok(())
}

/// Whether tests with real containers find their programs.
pub(crate) fn has_containers() -> bool {
    ["containerd", "ctr", "runc", "busybox"].into_iter().all(has_program)
}

/// Whether tests with a real Prometheus find its programs.
pub(crate) fn has_prometheus() -> bool {
    let (package, programs) = UNPACKED;
    let unpacked = cache_dir().map(|dir| dir.join(package));
    let is_unpacked = |name: &str| unpacked.as_ref().is_ok_and(|dir| dir.join(name).is_file());
    programs.into_iter().all(|name| is_unpacked(name) || find_program(name).is_ok())
}

/// The full path of a program.
pub(crate) fn find_program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let found = dirs.map(|dir| Path::new(dir).join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not installed; run `cargo xtask setup`"))
}

fn has_program(name: &str) -> bool {
    // Debian also has a busybox that is linked with libc, which an image without libraries cannot run.
    find_program(name).is_ok_and(|path| name != "busybox" || is_static(&path))
}

/// `ldd` fails for a program that needs no library.
fn is_static(program: &Path) -> bool {
    Command::new("ldd").arg(program).output().is_ok_and(|listed| !listed.status.success())
}
