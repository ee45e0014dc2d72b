//! A virtual machine with several packages and NUMA nodes, a real kernel with cgroup v2, and the programs that a test names.
//! In: a command for the guest. Out: what it printed.
//!
//! The guest has no disk: everything is in its initial RAM file system, from which it switches to a tmpfs, because runc cannot pivot
//! away from the former. It runs under software emulation with one thread, which is faster than several on a small host.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use crate::process::{Process, find_program, wait_for};

/// Two packages of two cores with two threads, a NUMA node each.
const SHAPE: [&str; 14] = [
    "-smp",
    "8,sockets=2,cores=2,threads=2",
    "-m",
    "2G",
    "-object",
    "memory-backend-ram,id=m0,size=1G",
    "-object",
    "memory-backend-ram,id=m1,size=1G",
    "-numa",
    "node,nodeid=0,cpus=0-3,memdev=m0",
    "-numa",
    "node,nodeid=1,cpus=4-7,memdev=m1",
    "-numa",
    "dist,src=0,dst=1,val=21",
];

const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
insmod /overlay.ko
mkdir /new; mount -t tmpfs -o mode=755 tmpfs /new
cp -a /bin /lib /lib64 /usr /etc /stage2 /new/ 2>/dev/null
cd /new; mkdir -p proc sys dev run tmp root var/lib var/log
mount --move /proc proc; mount --move /sys sys; mount --move /dev dev
exec switch_root /new /bin/sh /stage2
"#;

const STAGE2: &str = r#"export PATH=/usr/sbin:/usr/bin:/bin HOME=/root GOMAXPROCS=2
mkdir -p /dev/shm /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t devpts devpts /dev/pts
mount -t cgroup2 none /sys/fs/cgroup; mkdir /sys/fs/cgroup/init; echo $$ > /sys/fs/cgroup/init/cgroup.procs
for c in $(cat /sys/fs/cgroup/cgroup.controllers); do echo +$c > /sys/fs/cgroup/cgroup.subtree_control; done
ip link set lo up; hostname guest
echo "guest up after $(cut -d' ' -f1 /proc/uptime) s"
COMMAND
echo "guest exit $?"
poweroff -f
"#;

/// What the guest is made of.
#[derive(Debug)]
pub struct Guest {
    dir: TempDir,
    kernel: PathBuf,
}

impl Guest {
    /// Puts together a guest that holds containerd, runc, busybox and `binary` as `/usr/bin/NAME`, and runs `command` in it.
    ///
    /// # Errors
    /// A program or the kernel is missing.
    pub fn build(binary: &Path, command: &str) -> anyhow::Result<Guest> {
        let cache = kernel_dir();
        let kernel = cache.join("vmlinuz");
        let module = cache.join("overlay.ko");
        ensure!(
            kernel.is_file() && module.is_file(),
            "there is no guest kernel in {}; run `cargo xtask setup`",
            cache.display()
        );
        let dir = TempDir::with_prefix("bayplan-guest-")?;
        let root = dir.path().join("root");
        for path in ["bin", "dev", "proc", "sys", "etc", "usr/bin", "usr/sbin"] {
            fs::create_dir_all(root.join(path))?;
        }
        fs::copy(find_program("busybox", "busybox-static")?, root.join("bin/busybox"))?;
        fs::copy(module, root.join("overlay.ko"))?;
        for program in ["containerd", "containerd-shim-runc-v2", "ctr"] {
            install(&root, &find_program(program, "containerd")?, &format!("usr/bin/{program}"))?;
        }
        install(&root, &find_program("runc", "runc")?, "usr/sbin/runc")?;
        let name = binary.file_name().and_then(|name| name.to_str()).context("a file name")?;
        install(&root, binary, &format!("usr/bin/{name}"))?;
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
        fs::write(root.join("etc/hosts"), "127.0.0.1 localhost guest\n")?;
        fs::write(root.join("etc/resolv.conf"), "")?;
        fs::write(root.join("init"), INIT)?;
        fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
        fs::write(root.join("stage2"), STAGE2.replace("COMMAND", command))?;
        let pack = "find . | busybox cpio -o -H newc > ../initrd";
        let packed = Command::new("sh").args(["-c", pack]).current_dir(&root).output()?;
        ensure!(packed.status.success(), "cpio: {}", String::from_utf8_lossy(&packed.stderr));
        fs::remove_dir_all(root)?;
        Ok(Guest { dir, kernel })
    }

    /// Runs the guest to its end and gives what it printed.
    ///
    /// # Errors
    /// The command failed, or the guest did not end within `limit`; the message has the end of the console.
    pub fn run(self, limit: Duration) -> anyhow::Result<String> {
        let qemu = find_program("qemu-system-x86_64", "qemu-system-x86")?;
        let console = self.dir.path().join("console");
        let mut command = Command::new(qemu);
        command
            .args(["-M", "q35", "-nodefaults", "-no-reboot", "-display", "none"])
            .args(["-accel", "tcg,thread=single", "-cpu", "max"])
            .args(SHAPE)
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(self.dir.path().join("initrd"))
            .arg("-append")
            .arg("console=ttyS0 quiet panic=-1 tsc=unstable nokaslr mitigations=off apparmor=0 random.trust_cpu=on");
        let mut process = Process::start(&mut command, &self.dir.path().join("qemu.log"))?;
        let ended = wait_for("the guest to end", limit, || {
            Ok(read(&console).contains("guest exit").then_some(()))
        });
        process.kill()?;
        let text = read(&console);
        if let Err(error) = ended {
            bail!("{error:#}; console:\n{text}\n{}", process.last_words());
        }
        ensure!(text.contains("guest exit 0"), "the command failed in the guest; console:\n{text}");
        Ok(text)
    }
}

fn read(console: &Path) -> String {
    String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned()
}

/// Where `cargo xtask setup` puts the guest's kernel.
fn kernel_dir() -> PathBuf {
    let target = std::env::var("CARGO_TARGET_DIR").map(PathBuf::from);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    target.unwrap_or_else(|_| workspace.join("target")).join("guest-kernel")
}

/// Copies a program without its debug information, and the libraries it is linked with.
fn install(root: &Path, program: &Path, to: &str) -> anyhow::Result<()> {
    let target = root.join(to);
    let stripped = Command::new("strip").arg("-o").arg(&target).arg(program).output();
    if !stripped.is_ok_and(|stripped| stripped.status.success()) {
        fs::copy(program, &target)?;
    }
    for library in libraries(program)? {
        let inside = root.join(library.strip_prefix("/")?);
        if let Some(dir) = inside.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::copy(&library, inside)?;
    }
    Ok(())
}

fn libraries(program: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let listed = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}
