//! What a guest has besides when systemd is its first process. In: this machine's systemd. Out: an archive in the cache that is laid
//! over the guest's root, so that guests without it do not unpack it.
//!
//! Of systemd there is what a node needs to run units: no journal, no udev, no D-Bus (systemctl and runc take systemd's own socket then).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::cache::{digest_files, key, made_once};
use crate::lab::archive::{Archive, libraries};
use crate::setup::find_program;
use crate::workspace;

/// Not in the search path. It reads units beside itself and in `etc/systemd/system`.
const SYSTEMD: &str = "lib/systemd/systemd";

const PROGRAMS: [&str; 2] = ["systemctl", "systemd-run"];

/// What the package installs, from the working tree.
const PACKAGED: [(&str, &str); 3] = [
    ("deploy/bayplan.service", "usr/lib/systemd/system/bayplan.service"),
    ("deploy/bayplan.socket", "usr/lib/systemd/system/bayplan.socket"),
    ("deploy/config.yaml", "etc/bayplan/config.yaml"),
];

/// Every service wants them by default, and links of enabled units are made beside them.
const TARGETS: [&str; 7] = [
    "basic.target",
    "multi-user.target",
    "shutdown.target",
    "sockets.target",
    "sysinit.target",
    "timers.target",
    "umount.target",
];

/// In place of the root's own, which mounts what systemd mounts itself.
const START: &str = "exec /lib/systemd/systemd\n";

/// Without a journal, services write into the kernel's log, which comes back to the host.
const SYSTEM_CONF: &str = "[Manager]
DefaultStandardOutput=kmsg
DefaultStandardError=kmsg
DefaultEnvironment=TOKIO_WORKER_THREADS=2
";

/// What is tested runs containers, as `containerd.service` does, and is not stopped.
const UNIT: &str = "[Unit]
Description=What runs in this guest
[Service]
ExecStart=/bin/sh /lab/run
StandardInput=file:/dev/console
StandardOutput=file:/dev/console
StandardError=file:/dev/console
Delegate=yes
OOMPolicy=continue
LimitNOFILE=infinity
TasksMax=infinity
";

const DEFAULT_TARGET: &str = "[Unit]
Requires=multi-user.target lab.service
After=multi-user.target
AllowIsolate=yes
";

/// `controlGroup` is looked up.
const GROUPS: &str = "root:x:0:\n";

/// A machine without one is taken to boot for the first time, and then systemd enables every unit.
const MACHINE_ID: &str = "62617970 6c616e20 6c616220 67756573\n";

/// Adds what is tested and changes often.
pub(crate) fn add_packaged(archive: &mut Archive) -> anyhow::Result<()> {
    for (from, inside) in PACKAGED {
        archive.add_file(inside, read(&workspace().join(from))?);
    }
    Ok(())
}

/// The package, and what installs it. busybox has no tar that dpkg could use.
pub(crate) fn add_package(archive: &mut Archive, package: &Path) -> anyhow::Result<()> {
    for name in ["dpkg", "dpkg-deb", "dpkg-split", "tar"] {
        archive.add_program(&format!("usr/bin/{name}"), &find_program(name)?)?;
    }
    archive.add_file("lab/bayplan.deb", read(package)?);
    Ok(())
}

/// Made anew when a program, a target or a line above has changed.
pub(crate) fn archive() -> anyhow::Result<PathBuf> {
    let systemd = Path::new("/").join(SYSTEMD);
    ensure!(
        systemd.is_file(),
        "{} is not there; install the Debian package systemd",
        systemd.display()
    );
    let mut programs = vec![(SYSTEMD.to_owned(), systemd)];
    for name in PROGRAMS {
        programs.push((format!("usr/bin/{name}"), find_program(name)?));
    }
    let units = Path::new("/lib/systemd/system");
    let targets: Vec<(String, PathBuf)> = TARGETS
        .iter()
        .map(|name| (format!("lib/systemd/system/{name}"), units.join(name)))
        .collect();
    let mut files: Vec<PathBuf> =
        programs.iter().chain(&targets).map(|(_, from)| from.clone()).collect();
    for (_, program) in &programs {
        files.extend(libraries(program, "")?.into_iter().map(PathBuf::from));
    }
    let texts = [START, SYSTEM_CONF, UNIT, DEFAULT_TARGET, MACHINE_ID, GROUPS].concat();
    let name = format!("systemd-{}", key(&[&digest_files(&files)?, &texts]));
    let dir = made_once(&name, |dir| pack(&programs, &targets, dir))?;
    Ok(dir.join("systemd.cpio"))
}

fn pack(
    programs: &[(String, PathBuf)],
    targets: &[(String, PathBuf)],
    dir: &Path,
) -> anyhow::Result<()> {
    let mut archive = Archive::default();
    for (inside, program) in programs {
        archive.add_program(inside, program)?;
    }
    for (inside, target) in targets {
        archive.add_file(inside, read(target)?);
    }
    archive.add_dir("var/tmp");
    archive.add_script("lab/start", START);
    archive.add_file("etc/machine-id", MACHINE_ID.replace(' ', ""));
    archive.add_file("etc/group", GROUPS);
    archive.add_file("etc/hostname", "guest\n");
    archive.add_file("etc/systemd/system.conf", SYSTEM_CONF);
    archive.add_file("etc/systemd/system/lab.service", UNIT);
    archive.add_file("etc/systemd/system/default.target", DEFAULT_TARGET);
    archive.write(&mut fs::File::create(dir.join("systemd.cpio"))?)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
