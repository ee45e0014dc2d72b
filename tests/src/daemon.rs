//! The daemon under test. In: a configuration. Out: a process that serves kubelet: a child of the test, or the unit of the package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::process::{Process, tail, wait_for};

/// The unit as the package installs it.
pub const UNIT: &str = "bayplan.service";
/// That of the socket for kubelet.
pub const SOCKET_UNIT: &str = "bayplan.socket";

/// What the unit sets in the environment.
pub const ENVIRONMENT: [(&str, &str); 2] =
    [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "131072")];

/// What starts it.
#[derive(Debug)]
enum Keeper {
    Test(Option<Process>),
    Systemd,
}

/// The daemon, which may run or not.
#[derive(Debug)]
pub(crate) struct Daemon {
    program: PathBuf,
    keeper: Keeper,
    config: PathBuf,
    /// Where it keeps what it remembers.
    pub(crate) state: PathBuf,
    /// What it says.
    pub(crate) log: PathBuf,
    /// Where kubelet connects.
    pub(crate) socket: PathBuf,
    /// Where the command line connects.
    pub(crate) control: PathBuf,
}

impl Daemon {
    /// A child of the test, with everything that it has in `dir`.
    pub(crate) fn child(program: &Path, dir: &Path) -> Daemon {
        Daemon {
            program: program.to_owned(),
            keeper: Keeper::Test(None),
            config: dir.join("bayplan.yaml"),
            log: dir.join("bayplan.log"),
            state: dir.join("bayplan"),
            socket: dir.join("bayplan.sock"),
            control: dir.join("control.sock"),
        }
    }

    /// The units, enabled as NODE.md says, with everything where the default configuration has it. Only the log is in `dir`.
    ///
    /// # Errors
    /// systemd does not know the units, or cannot listen.
    pub(crate) fn unit(program: &Path, dir: &Path) -> anyhow::Result<Daemon> {
        let log = dir.join("bayplan.log");
        let drop_in = Path::new("/run/systemd/system/bayplan.service.d/log.conf");
        fs::create_dir_all(drop_in.parent().context("a directory")?)?;
        fs::write(drop_in, format!("[Service]\nStandardError=append:{}\n", log.display()))?;
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", "--now", SOCKET_UNIT])?;
        systemctl(&["enable", UNIT])?;
        Ok(Daemon {
            program: program.to_owned(),
            keeper: Keeper::Systemd,
            config: "/etc/bayplan/config.yaml".into(),
            log,
            state: "/var/lib/bayplan".into(),
            socket: "/run/bayplan/bayplan.sock".into(),
            control: "/run/bayplan/control.sock".into(),
        })
    }

    /// Writes the configuration for the next start: where everything is, then `more`, which may have its own `decisionTimeout` and `metricsAddress`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn configure(&self, runtime: &Path, more: &str) -> anyhow::Result<()> {
        let patience = match more.contains("decisionTimeout:") {
            true => "",
            false => "decisionTimeout: 30s\n",
        };
        let metrics = match more.contains("metricsAddress:") {
            true => "",
            false => "metricsAddress: 127.0.0.1:0\n",
        };
        let log = match more.lines().any(|it| it.starts_with("log:")) {
            true => "",
            false => "log: debug,h2=info,hyper_util=info\n",
        };
        let config = format!(
            "socket: {}\nruntimeSocket: {}\ncontrolSocket: {}\nstateDir: {}\n\
             runtimeTimeout: 30s\n{log}{patience}{metrics}{more}",
            self.socket.display(),
            runtime.display(),
            self.control.display(),
            self.state.display(),
        );
        fs::write(&self.config, config)
            .with_context(|| format!("cannot write {}", self.config.display()))
    }

    /// Starts it, unless systemd has done so.
    ///
    /// # Errors
    /// It does not start; a unit, that it does not say it is ready.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        match &mut self.keeper {
            Keeper::Test(child) => {
                let mut command = Command::new(&self.program);
                command.args(["run", "--config"]).arg(&self.config).envs(ENVIRONMENT);
                *child = Some(Process::start(&mut command, &self.log)?);
            }
            Keeper::Systemd => {
                systemctl(&["start", UNIT]).with_context(|| self.last_words())?;
            }
        }
        Ok(())
    }

    /// SIGTERM, and the exit code.
    ///
    /// # Errors
    /// It does not end, or did not run.
    pub(crate) fn terminate(&mut self) -> anyhow::Result<i32> {
        match &mut self.keeper {
            Keeper::Test(child) => child.as_mut().context("it does not run")?.terminate(),
            Keeper::Systemd => {
                systemctl(&["stop", UNIT])?;
                Ok(property("ExecMainStatus")?.parse()?)
            }
        }
    }

    /// # Errors
    /// It does not run.
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        match &self.keeper {
            Keeper::Test(child) => Ok(child.as_ref().context("it does not run")?.id()),
            Keeper::Systemd => Ok(property("MainPID")?.parse()?),
        }
    }

    /// SIGKILL. systemd starts a unit again by itself.
    ///
    /// # Errors
    /// There was nothing to kill.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        let pid = self.pid()?;
        ensure!(pid != 0, "it does not run");
        if let Keeper::Systemd = self.keeper {
            systemctl(&["kill", "--kill-who=main", "--signal=KILL", UNIT])?;
        }
        self.await_death(pid)
    }

    /// Until the process `pid`, which was killed, is gone.
    ///
    /// # Errors
    /// It does not die.
    pub(crate) fn await_death(&mut self, pid: u32) -> anyhow::Result<()> {
        match &mut self.keeper {
            Keeper::Test(child) => child.as_mut().context("it does not run")?.kill(),
            Keeper::Systemd => wait_for("the daemon to die", Duration::from_secs(30), || {
                Ok((property("MainPID")? != pid.to_string()).then_some(()))
            }),
        }
    }

    /// Removes what it remembers, and its log.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn forget(&self) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.state)?;
        Ok(fs::write(&self.log, "")?)
    }

    /// The end of its log, for error messages.
    pub(crate) fn last_words(&self) -> String {
        tail(&self.log)
    }
}

/// Runs `systemctl` and gives what it prints, without the line end.
///
/// # Errors
/// It fails; with its words.
pub fn systemctl(args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("systemctl");
    // On a terminal it would wait for passwords.
    let done = command.args(args).stdin(Stdio::null()).output().context("cannot run systemctl")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "systemctl {}: {}", args.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// A property of the daemon's unit, as `systemctl show` names it.
///
/// # Errors
/// As of [`systemctl`].
pub fn property(name: &str) -> anyhow::Result<String> {
    systemctl(&["show", "--value", "--property", name, UNIT])
}
