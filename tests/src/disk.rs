//! A small disk for a state directory, mounted as the kernel does it: one that is full, and one that hangs.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

/// Takes up all the room that others leave.
const FILLER: &str = "filler";
const BYTES: u64 = 4 << 20;

/// Thawed and unmounted when dropped.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// A MiB of memory.
    ///
    /// # Errors
    /// It cannot be mounted: that needs root.
    pub fn in_memory(at: &Path) -> anyhow::Result<Mounted> {
        fs::create_dir_all(at)?;
        command("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"], at)?;
        Ok(Mounted(at.to_owned()))
    }

    /// A file system in the file `image`, which can hang.
    ///
    /// # Errors
    /// It cannot be made or mounted: that needs root, `mkfs.ext4` and a loop device.
    pub fn in_file(image: &Path, at: &Path) -> anyhow::Result<Mounted> {
        fs::create_dir_all(at)?;
        File::create(image)?.set_len(BYTES)?;
        command("mkfs.ext4", &["-q"], image)?;
        command("mount", &["-o", "loop", &image.display().to_string()], at)?;
        Ok(Mounted(at.to_owned()))
    }

    /// Mounted anew with another option, such as `ro`.
    ///
    /// # Errors
    /// A process has a file open that the option forbids.
    pub fn remount(&self, how: &str) -> anyhow::Result<()> {
        command("mount", &["-o", &format!("remount,{how}")], &self.0)
    }

    /// Nothing more fits on it; a writer that has begun a page of its own may still fill that.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut filler = File::create(self.0.join(FILLER))?;
        loop {
            match filler.write_all(&[0; 4096]) {
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                written => written?,
            }
        }
    }

    /// Takes back [`Mounted::fill`].
    ///
    /// # Errors
    /// It is not full.
    pub fn empty(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.0.join(FILLER))?)
    }

    /// A writer waits from now on, and cannot even be killed; for two minutes at most, also when this process is killed.
    ///
    /// # Errors
    /// It cannot hang, or does already.
    pub fn freeze(&self) -> anyhow::Result<()> {
        // A frozen file system that is left behind hangs every `sync` of the machine.
        Command::new("sh")
            .args(["-c", "sleep 120; exec fsfreeze --unfreeze \"$0\""])
            .arg(&self.0)
            .env("PATH", with_sbin())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot run sh")?;
        command("fsfreeze", &["--freeze"], &self.0)
    }

    /// Takes back [`Mounted::freeze`].
    ///
    /// # Errors
    /// It does not hang.
    pub fn thaw(&self) -> anyhow::Result<()> {
        command("fsfreeze", &["--unfreeze"], &self.0)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Most do not hang.
        let _thawed = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0).output();
        // Lazily, because the daemon may have it open.
        let _unmounted = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

fn with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn command(program: &str, arguments: &[&str], at: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).arg(at).env("PATH", with_sbin());
    let done = command.output().with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{program} {arguments:?} failed, it needs root: {}",
        said.trim()
    );
    Ok(())
}
