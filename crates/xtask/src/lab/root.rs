//! The guest's file system, without what is to be tested. In: programs of this machine. Out: an archive in the cache.
//!
//! The guest has no disk for it: the kernel unpacks it into memory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{digest_files, key, made_once};
use crate::lab::archive::{Archive, libraries};
use crate::setup::find_program;

/// As they are installed here, so that the same ones are tested on this machine and in the guest.
const PROGRAMS: [(&str, &str); 8] = [
    ("containerd", "usr/bin/containerd"),
    ("containerd-shim-runc-v2", "usr/bin/containerd-shim-runc-v2"),
    ("ctr", "usr/bin/ctr"),
    ("runc", "usr/sbin/runc"),
    ("busybox", "bin/busybox"),
    ("redis-check-rdb", "usr/bin/redis-check-rdb"),
    ("redis-benchmark", "usr/bin/redis-benchmark"),
    ("stress-ng", "usr/bin/stress-ng"),
];

const DIRS: [&str; 11] = [
    "artefacts",
    "dev",
    "new",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/sbin",
    "var/lib",
    "var/log",
];

/// runc cannot pivot away from the first file system, so its bind mount becomes the root.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
while read -r module; do insmod /modules/$module; done < /modules/list
mount --bind / /new; cd /new; mount --move . /
exec chroot . /bin/sh /lab/start
";

/// What the first process does, unless it is systemd, which does so itself.
const START: &str = "export PATH=/usr/sbin:/usr/bin:/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts; mount -t devpts devpts /dev/pts
for it in /dev/shm /run; do mount -t tmpfs tmpfs $it; done
mount -t cgroup2 none /sys/fs/cgroup; mount -t bpf none /sys/fs/bpf
mkdir /sys/fs/cgroup/init; echo $$ > /sys/fs/cgroup/init/cgroup.procs
for it in $(cat /sys/fs/cgroup/cgroup.controllers); do echo +$it > /sys/fs/cgroup/cgroup.subtree_control; done
hostname guest
. /lab/run
";

/// One thread of the host runs all CPUs: more workers would only wait for each other, and every collection of garbage and every signal
/// that preempts one is noticed (together a fifth of the time).
const RUN: &str = "export PATH=/usr/sbin:/usr/bin:/bin HOME=/root BAYPLAN_EMULATED=1
export TOKIO_WORKER_THREADS=2 GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1 GOGC=400
mount -t tmpfs tmpfs /tmp; mount -t tracefs none /sys/kernel/tracing; ip link set lo up
echo \"lab: up after $(cut -d' ' -f1 /proc/uptime) s\"
sh /lab/command; code=$?
dmesg > /artefacts/dmesg
tar -C /artefacts -cf /dev/vda . ; sync
echo \"lab: exit $code\"
poweroff -f
";

/// Made anew when a program or a line above has changed.
pub(crate) fn archive() -> anyhow::Result<PathBuf> {
    let mut programs: Vec<PathBuf> = Vec::new();
    for (name, _) in PROGRAMS {
        programs.push(find_program(name)?);
    }
    let mut files = programs.clone();
    for program in &programs {
        files.extend(libraries(program, "")?.into_iter().map(PathBuf::from));
    }
    let name =
        format!("root-{}", key(&[&digest_files(&files)?, INIT, START, RUN, &DIRS.join(" ")]));
    let dir = made_once(&name, |dir| pack(&programs, dir))?;
    Ok(dir.join("root.cpio"))
}

fn pack(programs: &[PathBuf], dir: &Path) -> anyhow::Result<()> {
    let mut archive = Archive::default();
    DIRS.iter().for_each(|dir| archive.add_dir(dir));
    for ((_, inside), program) in PROGRAMS.iter().zip(programs) {
        archive.add_program(inside, program)?;
    }
    archive.add_file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    archive.add_file("etc/hosts", "127.0.0.1 localhost guest\n");
    archive.add_file("etc/resolv.conf", "");
    archive.add_script("init", INIT);
    archive.add_script("lab/start", START);
    archive.add_script("lab/run", RUN);
    archive.write(&mut fs::File::create(dir.join("root.cpio"))?)
}
