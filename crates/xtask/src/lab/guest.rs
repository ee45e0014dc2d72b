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
use crate::lab::{root, systemd};
use crate::setup::find_program;

/// `quiet` leaves panics on the console, and `panic=-1` with `-no-reboot` ends QEMU then. `rootfstype=ramfs`: from a tmpfs, runc copies
/// itself into memory for every container, and the emulator has to translate each copy.
const KERNEL_ARGS: &str = "console=ttyS0 quiet panic=-1 oops=panic rootfstype=ramfs nokaslr mitigations=off \
                           apparmor=0 random.trust_cpu=on";

/// A model of which the kernel knows that NUMA nodes may share an L3. Without `cx16`, because QEMU 7.2 leaves garbage in the flags
/// when it emulates that instruction with one thread, and a kernel since 6.12 that uses it dies within seconds.
const CPU: &str = "Skylake-Server,-cx16";

/// For what the guest wants to give back.
const ARTEFACT_BYTES: u64 = 64 << 20;

/// The program that is being packed.
const STRIPPED: &str = "stripped";

/// When a guest is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) whole: Duration,
    /// Without anything new on its console.
    pub(crate) silent: Duration,
}

/// The guest's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Init {
    /// A shell.
    Shell,
    /// systemd, and what is tested is a service.
    Systemd,
}

impl Init {
    pub(crate) fn find(name: &str) -> anyhow::Result<Init> {
        match name {
            "shell" => Ok(Init::Shell),
            "systemd" => Ok(Init::Systemd),
            _ => bail!("`{name}` is no first process; there are shell and systemd"),
        }
    }
}

/// What runs where.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) machine: &'static Machine,
    pub(crate) kernel: Kernel,
    pub(crate) init: Init,
    /// A Debian package that is to be installed there, in place of what it has.
    pub(crate) package: Option<PathBuf>,
    /// Where the console and the artefacts go; what was there is kept beside it, once.
    pub(crate) out: PathBuf,
}

impl Guest {
    pub(crate) fn name(&self) -> String {
        let init = match self.init {
            Init::Shell => "",
            Init::Systemd => " with systemd",
        };
        format!("{} on {}{init}", self.machine.name, self.kernel.version)
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
        limits: Limits,
        shows: bool,
    ) -> anyhow::Result<()> {
        let mut qemu = self.prepare(programs, command)?;
        let console = self.console_file();
        File::create(&console)?;
        qemu.arg("-serial").arg(format!("file:{}", console.display()));
        let log = File::create(self.out.join("qemu.log"))?;
        qemu.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = qemu.spawn().context("cannot start QEMU")?;
        let watched = watch(&mut child, &console, limits, shows);
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
            let before = PathBuf::from(format!("{}.before", self.out.display()));
            if before.is_dir() {
                fs::remove_dir_all(&before)?;
            }
            fs::rename(&self.out, before)?;
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
            .arg(format!("{KERNEL_ARGS} {} {}", tsc_arg(), self.machine.kernel_args()))
            .arg("-drive")
            .arg(format!("file={},if=virtio,format=raw,cache=unsafe", self.artefacts().display()));
        Ok(qemu)
    }

    /// The root, the modules and what is tested, one archive after the other.
    fn pack(&self, programs: &[(&str, &Path)], command: &str, to: &Path) -> anyhow::Result<()> {
        let mut tested = Archive::default();
        for (name, program) in programs.iter().filter(|it| !self.is_in_package(it.0)) {
            tested.add_program(&format!("usr/bin/{name}"), &strip(program, &self.out)?)?;
        }
        tested.add_script("lab/command", command);
        tested.add_file("lab/machine", self.machine.expectation());
        let mut parts = vec![root::archive()?, self.kernel.modules()];
        if self.init == Init::Systemd {
            parts.push(systemd::archive()?);
            match &self.package {
                Some(package) => systemd::add_package(&mut tested, package)?,
                None => systemd::add_packaged(&mut tested)?,
            }
        }
        let mut file = File::create(to)?;
        for part in parts {
            io::copy(&mut File::open(part)?, &mut file)?;
        }
        tested.write(&mut file)
    }

    fn is_in_package(&self, program: &str) -> bool {
        self.package.is_some() && program == "bayplan"
    }

    fn artefacts(&self) -> PathBuf {
        self.out.join("artefacts.tar")
    }

    /// Unpacks what the guest left, if it came to that, and removes what is large.
    fn take_back(&self) -> anyhow::Result<()> {
        let tar = self.artefacts();
        let unpack = Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&self.out).output();
        let unpack = unpack.context("cannot run tar")?;
        if tar.exists() && !unpack.status.success() {
            let why = String::from_utf8_lossy(&unpack.stderr);
            eprintln!("lab: not all that the guest left could be unpacked: {}", why.trim());
        }
        for large in [tar, self.out.join("initrd"), self.out.join(STRIPPED)] {
            if large.exists() {
                fs::remove_file(large)?;
            }
        }
        Ok(())
    }
}

/// The guest's time stamp counter is ours. It is the only clock that can be read without leaving the emulated CPU, and Go reads clocks all
/// the time. A guest that calibrates it on a busy host lets time pass at any speed, so it is told the frequency; when that is wrong, as
/// where `cpu MHz` follows the load, the kernel's watchdog finds out before the first process runs and takes another clock.
fn tsc_arg() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let khz = if told.contains(" constant_tsc ") { parse_khz(&told) } else { None };
    khz.map_or_else(|| "tsc=unstable".to_owned(), |khz| format!("tsc_early_khz={khz}"))
}

/// From a line such as `cpu MHz         : 2445.432`.
fn parse_khz(cpuinfo: &str) -> Option<u64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    let (mhz, khz) = line.split_once(':')?.1.trim().split_once('.')?;
    format!("{mhz}{:0<3.3}", khz).parse().ok()
}

/// Waits until the guest says how the command ended, and gives its exit code.
pub(crate) fn watch(
    child: &mut Child,
    console: &Path,
    limits: Limits,
    shows: bool,
) -> anyhow::Result<String> {
    let started = Instant::now();
    let (mut shown, mut heard) = (0, started);
    loop {
        let has_ended = child.try_wait()?.is_some();
        let text = fs::read(console)?;
        if shows {
            io::stdout().write_all(&text[shown..])?;
            io::stdout().flush()?;
        }
        if text.len() > shown {
            (shown, heard) = (text.len(), Instant::now());
        }
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.split('\n').rev().skip(1).map(str::trim);
        if let Some(code) = lines.find_map(|line| line.strip_prefix("lab: exit ")) {
            return Ok(code.to_owned());
        }
        if has_ended {
            bail!("the guest ended before the command did");
        }
        if started.elapsed() > limits.whole {
            bail!("the guest did not end within {:?}", limits.whole);
        }
        if heard.elapsed() > limits.silent {
            bail!("the guest printed nothing for {:?}", limits.silent);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Instead of QEMU, a shell that writes to the console; how watching it ends.
    fn check(script: &str, whole_ms: u64, silent_ms: u64, due: Result<&str, &str>) {
        let dir = tempfile::tempdir().unwrap();
        let console = dir.path().join("console.log");
        File::create(&console).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdout(File::options().append(true).open(&console).unwrap());
        let mut child = shell.spawn().unwrap();
        let ms = Duration::from_millis;
        let limits = Limits { whole: ms(whole_ms), silent: ms(silent_ms) };
        let told = watch(&mut child, &console, limits, false);
        // It may have ended by itself.
        let _killed = child.kill();
        child.wait().unwrap();
        let told = told.map_err(|error| error.to_string());
        assert_eq!(told, due.map(str::to_owned).map_err(str::to_owned), "{script}");
    }

    #[test]
    fn a_guest_that_panics_or_hangs_is_given_up_with_the_reason() {
        let long = 60_000;
        check("echo lab: exit 0; exec sleep 60", long, long, Ok("0"));
        check("printf 'a\\r\\nlab: exit 3\\r\\n'", long, long, Ok("3"));
        check("echo Kernel panic; echo", long, long, Err("the guest ended before the command did"));
        check("echo; exec sleep 60", long, 300, Err("the guest printed nothing for 300ms"));
        check(
            "printf 'lab: exit 0'; exec sleep 60",
            long,
            300,
            Err("the guest printed nothing for 300ms"),
        );
        check(
            "while echo; do sleep 0.1; done",
            900,
            long,
            Err("the guest did not end within 900ms"),
        );
    }

    #[test]
    fn a_frequency_is_read_to_the_kilohertz() {
        for (text, due) in [
            ("processor : 0\ncpu MHz\t\t: 2445.432\ncpu MHz\t\t: 800.1\n", Some(2_445_432)),
            ("cpu MHz\t\t: 800.1\n", Some(800_100)),
            ("cpu MHz\t\t: 3700.123456\n", Some(3_700_123)),
            ("cpu MHz\t\t: unknown\n", None),
            ("BogoMIPS : 50.00\n", None),
        ] {
            assert_eq!(parse_khz(text), due, "{text}");
        }
    }
}
