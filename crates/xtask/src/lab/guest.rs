//! One guest from start to end. In: a machine, a kernel, programs and a command. Out: whether the command succeeded; its console and
//! its files in a directory.
//!
//! It runs under software emulation with one thread, which is faster than several on a small host.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};

use crate::lab::archive::Archive;
use crate::lab::kernel::Kernel;
use crate::lab::machine::Machine;
use crate::lab::root;
use crate::setup::find_program;

/// `quiet` leaves panics on the console, and `panic=-1` with `-no-reboot` ends QEMU then. `tsc=unstable`: calibrated on a busy
/// host that counter runs at any speed, and with it all time limits in the guest.
const KERNEL_ARGS: &str = "console=ttyS0 quiet panic=-1 oops=panic tsc=unstable nokaslr mitigations=off \
                           apparmor=0 random.trust_cpu=on";

/// A model of which the kernel knows that NUMA nodes may share an L3. Without `cx16`, because QEMU 7.2 leaves garbage in the flags
/// when it emulates that instruction with one thread, and a kernel since 6.12 that uses it dies within seconds.
const CPU: &str = "Skylake-Server,-cx16";

/// For what the guest wants to give back.
const ARTEFACT_BYTES: u64 = 64 << 20;

/// The program that is being packed.
const STRIPPED: &str = "stripped";

/// What runs where.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) machine: &'static Machine,
    pub(crate) kernel: Kernel,
    /// Where the console and the artefacts go; emptied before.
    pub(crate) out: PathBuf,
}

impl Guest {
    pub(crate) fn name(&self) -> String {
        format!("{} on {}", self.machine.name, self.kernel.version)
    }

    /// What its console shows, or has shown.
    pub(crate) fn console(&self) -> String {
        let bytes = fs::read(self.console_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn console_file(&self) -> PathBuf {
        self.out.join("console.log")
    }

    /// Runs `command` with `programs` (a name in `/usr/bin` and a file each), and shows what it prints if that `shows`.
    pub(crate) fn run(
        &self,
        programs: &[(&str, &Path)],
        command: &str,
        limit: Duration,
        shows: bool,
    ) -> anyhow::Result<()> {
        let mut qemu = self.prepare(programs, command)?;
        let console = self.console_file();
        File::create(&console)?;
        qemu.arg("-serial").arg(format!("file:{}", console.display()));
        let log = File::create(self.out.join("qemu.log"))?;
        qemu.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = qemu.spawn().context("cannot start QEMU")?;
        let watched = watch(&mut child, &console, limit, shows);
        // It may have ended by itself.
        let _killed = child.kill();
        child.wait()?;
        self.take_back()?;
        let console = console.display();
        let code = watched.map_err(|error| anyhow!("{error:#}; its console is {console}"))?;
        ensure!(code == "0", "exit code {code} in the guest; its console is {console}");
        Ok(())
    }

    /// A shell on this terminal, until it ends.
    pub(crate) fn shell(&self, programs: &[(&str, &Path)]) -> anyhow::Result<()> {
        let mut qemu = self.prepare(programs, "cd /root; setsid cttyhack sh")?;
        qemu.args(["-serial", "mon:stdio"]);
        let status = qemu.status().context("cannot start QEMU")?;
        self.take_back()?;
        ensure!(status.success(), "QEMU: {status}");
        Ok(())
    }

    fn prepare(&self, programs: &[(&str, &Path)], command: &str) -> anyhow::Result<Command> {
        if self.out.is_dir() {
            fs::remove_dir_all(&self.out)?;
        }
        fs::create_dir_all(&self.out)?;
        File::create(self.artefacts())?.set_len(ARTEFACT_BYTES)?;
        let initrd = self.out.join("initrd");
        self.pack(programs, command, &initrd)?;
        let mut qemu = Command::new(find_program("qemu-system-x86_64")?);
        qemu.args(["-M", "q35", "-nodefaults", "-no-reboot", "-display", "none"])
            .args(["-accel", "tcg,thread=single", "-cpu", CPU])
            .args(self.machine.qemu_args())
            .arg("-kernel")
            .arg(self.kernel.image())
            .arg("-initrd")
            .arg(initrd)
            .arg("-append")
            .arg(format!("{KERNEL_ARGS} {}", self.machine.kernel_args()))
            .arg("-drive")
            .arg(format!("file={},if=virtio,format=raw,cache=unsafe", self.artefacts().display()));
        Ok(qemu)
    }

    /// The root, the modules and what is tested, one archive after the other.
    fn pack(&self, programs: &[(&str, &Path)], command: &str, to: &Path) -> anyhow::Result<()> {
        let mut tested = Archive::default();
        for (name, program) in programs {
            tested.add_program(&format!("usr/bin/{name}"), &strip(program, &self.out)?)?;
        }
        tested.add_script("lab/command", command);
        tested.add_file("lab/machine", self.machine.expectation());
        let mut file = File::create(to)?;
        for part in [root::archive()?, self.kernel.modules()] {
            io::copy(&mut File::open(part)?, &mut file)?;
        }
        tested.write(&mut file)
    }

    fn artefacts(&self) -> PathBuf {
        self.out.join("artefacts.tar")
    }

    /// Unpacks what the guest left, if it came to that, and removes what is large.
    fn take_back(&self) -> anyhow::Result<()> {
        let tar = self.artefacts();
        let unpack = Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&self.out).output();
        unpack.context("cannot run tar")?;
        for large in [tar, self.out.join("initrd"), self.out.join(STRIPPED)] {
            if large.exists() {
                fs::remove_file(large)?;
            }
        }
        Ok(())
    }
}

/// Waits until the guest says how the command ended, and gives its exit code.
fn watch(
    child: &mut Child,
    console: &Path,
    limit: Duration,
    shows: bool,
) -> anyhow::Result<String> {
    let started = Instant::now();
    let mut shown = 0;
    loop {
        let has_ended = child.try_wait()?.is_some();
        let text = fs::read(console)?;
        if shows {
            io::stdout().write_all(&text[shown..])?;
            io::stdout().flush()?;
        }
        shown = text.len();
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.split('\n').rev().skip(1).map(str::trim);
        if let Some(code) = lines.find_map(|line| line.strip_prefix("lab: exit ")) {
            return Ok(code.to_owned());
        }
        if has_ended {
            bail!("the guest ended before the command did");
        }
        if started.elapsed() > limit {
            bail!("the guest did not end within {limit:?}");
        }
        sleep(Duration::from_millis(100));
    }
}

/// Debug information is most of a program, and all of it would be unpacked by an emulated CPU.
fn strip(program: &Path, scratch: &Path) -> anyhow::Result<PathBuf> {
    let stripped = scratch.join(STRIPPED);
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(program).output();
    Ok(match done.is_ok_and(|done| done.status.success()) {
        true => stripped,
        false => program.to_owned(),
    })
}
