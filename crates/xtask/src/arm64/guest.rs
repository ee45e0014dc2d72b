//! The demo on an emulated board. In: a static program for 64-bit Arm. Out: what it printed, and a failure where it does not know the board, or the demo fails.
//!
//! A kernel of Debian's, busybox, and the program are all that is there; the device tree that QEMU makes tells the kernel of two NUMA nodes and of clusters of cores.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::lab::archive::Archive;
use crate::lab::{Limits, foreign, watch};
use crate::workspace;

/// Two packages, each a NUMA node with four cores.
const BOARD: &str = "-M virt,gic-version=3 -cpu cortex-a72 -accel tcg,thread=single -smp 8,sockets=2,clusters=1,cores=4,threads=1 -m 2048 \
    -object memory-backend-ram,id=m0,size=1G -object memory-backend-ram,id=m1,size=1G \
    -numa node,nodeid=0,cpus=0-3,memdev=m0 -numa node,nodeid=1,cpus=4-7,memdev=m1 -nodefaults -no-reboot -display none";
const KERNEL_ARGS: &str = "console=ttyAMA0 quiet panic=-1 rdinit=/init";
/// What `bayplan topology -o json` has to say of the board.
const NODES: [&str; 2] = ["0-3", "4-7"];
const LIMITS: Limits =
    Limits { whole: Duration::from_secs(1200), silent: Duration::from_secs(300) };

const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp /root; mount -t tmpfs tmpfs /tmp; mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
uname -srm
code=1
bayplan topology && bayplan topology -o json > /tmp/machine && bayplan demo && code=0
for node in NODES; do grep -q \"\\\"$node\\\"\" /tmp/machine || { echo \"no node with CPUs $node\"; cat /tmp/machine; code=2; }; done
echo \"lab: exit $code\"
poweroff -f
";

pub(super) fn run(program: &Path) -> anyhow::Result<()> {
    ensure!(
        program.is_file(),
        "there is no {}; run `cargo xtask arm64 package`",
        program.display()
    );
    let out = workspace().join("target/arm64");
    fs::create_dir_all(&out)?;
    let foreign = foreign::fetch("arm64")?;
    let mut archive = Archive::default();
    archive.add_program("usr/bin/bayplan", program)?;
    archive.add_program("bin/busybox", &foreign.busybox)?;
    for dir in ["dev", "proc", "sys", "tmp", "root", "run", "var/lib"] {
        archive.add_dir(dir);
    }
    archive.add_script("init", &INIT.replace("NODES", &NODES.join(" ")));
    let (initrd, console) = (out.join("initrd"), out.join("console.log"));
    archive.write(&mut File::create(&initrd)?)?;
    File::create(&console)?;
    let mut qemu = Command::new("qemu-system-aarch64");
    qemu.args(BOARD.split_whitespace()).arg("-kernel").arg(&foreign.kernel);
    qemu.arg("-initrd").arg(&initrd).args(["-append", KERNEL_ARGS]);
    qemu.arg("-serial").arg(format!("file:{}", console.display()));
    let log = File::create(out.join("qemu.log"))?;
    qemu.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = qemu.spawn().context("cannot start qemu-system-aarch64")?;
    let watched = watch(&mut child, &console, LIMITS, true);
    // It may have ended by itself.
    let _killed = child.kill();
    child.wait()?;
    fs::remove_file(initrd)?;
    let code = watched.with_context(|| format!("its console is {}", console.display()))?;
    ensure!(code == "0", "exit code {code} in the guest; its console is {}", console.display());
    println!("arm64: the demo passed on an emulated board");
    Ok(())
}
