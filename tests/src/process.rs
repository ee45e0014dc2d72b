//! Child processes that end with the test, and waiting for something to become true.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

/// A process that writes its output to a file; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output appended to `log`.
    ///
    /// # Errors
    /// The log cannot be opened, or the program is not there.
    pub fn start(command: &mut Command, log: &Path) -> anyhow::Result<Process> {
        let file = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Process { child, log: log.to_owned() })
    }

    /// Its pid.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The signal of this name, without SIG.
    pub(crate) fn signal(&self, name: &str) -> anyhow::Result<()> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status()?;
        ensure!(sent.success(), "SIG{name} was not sent");
        Ok(())
    }

    /// SIGTERM, and how it has ended.
    ///
    /// # Errors
    /// It does not end within 30 s.
    pub fn end(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal("TERM")?;
        let ended = wait_for("the process to end", Duration::from_secs(30), || {
            Ok(self.child.try_wait()?)
        });
        ended.with_context(|| self.last_words())
    }

    /// SIGTERM, and the exit code; fails when it does not end within 30 s, or ends by the signal.
    pub(crate) fn terminate(&mut self) -> anyhow::Result<i32> {
        let status = self.end()?;
        status.code().with_context(|| format!("{status}: {}", self.last_words()))
    }

    /// The end of its log, for error messages.
    pub fn last_words(&self) -> String {
        tail(&self.log)
    }
}

/// The end of a log, with its path.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(30)..).unwrap_or_default();
    format!("log {}:\n{}", log.display(), tail.join("\n"))
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.kill();
    }
}

/// Asks until there is an answer, for half of the time at most: waiting for a busy machine is not to keep it busy.
///
/// # Errors
/// The first one of `ask`, or that there was no answer within `limit`.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        let asked = Instant::now();
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if started.elapsed() > limit {
            bail!("waited {limit:?} for {what}");
        }
        sleep(asked.elapsed().max(Duration::from_millis(50)));
    }
}

/// The full path of a program; an error that says which package has it.
pub(crate) fn find_program(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let found = dirs.map(|dir| Path::new(dir).join(name)).find(|path| path.is_file());
    found.with_context(|| {
        format!("{name} is not installed; run `cargo xtask setup`, or install the Debian package {package}")
    })
}

/// The full path of a program that is installed, or that `cargo xtask setup` has only unpacked into the lab's cache, so that no service is started.
///
/// # Errors
/// It is in neither place; says how to get it.
pub fn find_unpacked(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let unpacked = cache.or_else(home).map(|dir| dir.join("bayplan-lab").join(package).join(name));
    match unpacked.filter(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => find_program(name, package),
    }
}
