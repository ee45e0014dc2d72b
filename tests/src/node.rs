//! A node: containerd, the daemon as a process in front of it, and a client that speaks as kubelet does.
//! In: what a pod's author writes. Out: where the kernel and the runtime have its containers.

mod end;
mod placed;
mod pods;
mod runtime;
mod told;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bayplan_cri::kubelet::{CgroupDriver, Kubelet, RunningPod};
use bayplan_cri::upstream::Upstream;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::end::has_kubepods;
pub use self::placed::{Placed, allowed_by_kernel};
pub use self::pods::Asked;
use crate::containerd::{Containerd, Programs};
use crate::daemon::Daemon;
use crate::image::IMAGE;
use crate::process::wait_for;

/// Generous: everything here also runs in a virtual machine without hardware virtualisation.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What a container runs that is to do nothing.
pub const SLEEP: [&str; 3] = ["/bin/busybox", "sleep", "1000000"];

/// How the daemon hears of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Kubelet's calls pass through it.
    Proxy,
    /// The runtime asks it; kubelet calls the runtime.
    Plugin,
}

/// A node under test.
#[derive(Debug)]
pub struct Node {
    way: Way,
    command: Vec<String>,
    driver: CgroupDriver,
    dir: TempDir,
    containerd: Containerd,
    daemon: Daemon,
    tokio: Runtime,
    kubelet: Kubelet,
    runtime: Upstream,
    pods: Vec<RunningPod>,
    had_kubepods: bool,
    /// Where the daemon is to register instead of the runtime's own socket.
    nri: Option<PathBuf>,
}

impl Node {
    /// Starts containerd and the daemon. `bayplan` is the daemon's binary, `command` what containers run, `driver` makes their cgroups:
    /// where that is systemd, it also runs the daemon, by the units of the package.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn start(bayplan: &Path, command: &[&str], driver: CgroupDriver) -> anyhow::Result<Node> {
        Node::start_with(bayplan, command, driver, Way::Proxy, Programs::installed()?)
    }

    /// As [`Self::start`], with this containerd and this front end.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn start_with(
        bayplan: &Path,
        command: &[&str],
        driver: CgroupDriver,
        way: Way,
        programs: Programs,
    ) -> anyhow::Result<Node> {
        let prefix = "bayplan-node-";
        let (dir, daemon) = match driver {
            CgroupDriver::Cgroupfs => {
                let dir = TempDir::with_prefix(prefix)?;
                let daemon = Daemon::child(bayplan, dir.path());
                (dir, daemon)
            }
            CgroupDriver::Systemd => {
                // The unit has a /tmp of its own, in which there is no runtime.
                let dir = TempDir::with_prefix_in(prefix, "/run")?;
                let daemon = Daemon::unit(bayplan, dir.path())?;
                (dir, daemon)
            }
        };
        let had_kubepods = has_kubepods()?;
        let containerd = Containerd::start(dir.path(), driver, programs)?;
        let tokio = Runtime::new()?;
        let _entered = tokio.enter();
        let kubelet = kubelet(way, &daemon, &containerd, dir.path(), command, driver);
        let runtime = Upstream::new(containerd.socket().to_owned(), LIMIT);
        drop(_entered);
        let pods = Vec::new();
        let mut node = Node {
            way,
            command: command.iter().map(|it| (*it).to_owned()).collect(),
            driver,
            dir,
            containerd,
            daemon,
            tokio,
            kubelet,
            runtime,
            pods,
            had_kubepods,
            nri: None,
        };
        node.write_config("")?;
        node.start_again()?;
        Ok(node)
    }

    /// As new: no containers, and a daemon without memory. `config` is more for its configuration.
    ///
    /// # Errors
    /// Something cannot be removed, or the daemon does not end or does not come up.
    pub fn reset(&mut self, config: &str) -> anyhow::Result<()> {
        self.remove_pods()?;
        self.daemon.terminate()?;
        self.daemon.forget()?;
        self.write_config(config)?;
        self.start_again()
    }

    /// Stops the daemon in order and starts it with another configuration; its containers run on.
    ///
    /// # Errors
    /// It does not end or does not come up.
    pub fn reconfigure(&mut self, config: &str) -> anyhow::Result<()> {
        self.daemon.terminate()?;
        self.write_config(config)?;
        self.start_again()
    }

    /// With the next configuration that is written the daemon registers at this socket.
    pub fn take_nri_from(&mut self, socket: PathBuf) {
        self.nri = Some(socket);
    }

    /// Writes another configuration while the daemon runs on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_config(&self, config: &str) -> anyhow::Result<()> {
        let front_end = match self.way {
            Way::Proxy => String::new(),
            Way::Plugin => {
                let socket = self.nri.clone().unwrap_or_else(|| self.containerd.nri_socket());
                format!("frontEnd: nri\nnri: {{socket: {}}}\n", socket.display())
            }
        };
        self.daemon.configure(self.containerd.socket(), &format!("{front_end}{config}"))
    }

    /// Stops the daemon in order and starts it with the other front end, and with more in its configuration; kubelet calls where that one wants it to.
    ///
    /// # Errors
    /// It does not end or does not come up.
    pub fn switch(&mut self, way: Way, config: &str) -> anyhow::Result<()> {
        self.daemon.terminate()?;
        self.way = way;
        self.write_config(config)?;
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let entered = self.tokio.enter();
        let (daemon, containerd) = (&self.daemon, &self.containerd);
        let dir = self.dir.path();
        self.kubelet = kubelet(way, daemon, containerd, dir, &command, self.driver);
        drop(entered);
        self.start_again()
    }

    /// SIGKILL, and a new daemon.
    ///
    /// # Errors
    /// It does not come up.
    pub fn restart_after_kill(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        self.start_again()
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// There was nothing to kill.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.daemon.kill()
    }

    /// Until that process is gone.
    ///
    /// # Errors
    /// It does not die.
    pub fn await_death(&mut self, pid: u32) -> anyhow::Result<()> {
        self.daemon.await_death(pid)
    }

    /// A daemon after the last one has ended, without waiting until it serves.
    ///
    /// # Errors
    /// It does not start.
    pub fn launch_daemon(&mut self) -> anyhow::Result<()> {
        self.daemon.start()
    }

    /// A daemon after the last one has ended.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.daemon.start()?;
        self.wait_until_serving()
    }

    fn wait_until_serving(&mut self) -> anyhow::Result<()> {
        if self.way == Way::Plugin {
            return self.wait_until_registered();
        }
        let socket = self.daemon.socket.clone();
        // A call that fails costs far more than the attempt to connect.
        wait_for("the daemon's socket", LIMIT, || Ok(UnixStream::connect(&socket).ok()))
            .with_context(|| self.daemon.last_words())?;
        let proxied = Upstream::new(socket, LIMIT);
        wait_for("the daemon", LIMIT, || Ok(self.tokio.block_on(proxied.version()).ok()))
            .with_context(|| self.daemon.last_words())?;
        Ok(())
    }

    /// Until the runtime has registered the daemon as a plugin.
    ///
    /// # Errors
    /// It does not.
    pub fn wait_until_registered(&self) -> anyhow::Result<()> {
        wait_for("the registration", LIMIT, || {
            let status = self.status().ok().and_then(|it| it.front_end);
            Ok(status.filter(|it| it.is_registered))
        })
        .with_context(|| self.last_words())?;
        Ok(())
    }

    /// The daemon's process.
    ///
    /// # Errors
    /// It does not run.
    pub fn daemon_pid(&self) -> anyhow::Result<u32> {
        self.daemon.pid()
    }

    /// Where kubelet connects.
    pub fn socket(&self) -> &Path {
        &self.daemon.socket
    }

    /// Where the daemon keeps what it remembers.
    pub fn state_dir(&self) -> &Path {
        &self.daemon.state
    }

    /// Where the node has its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where programs ask the daemon.
    pub fn control(&self) -> &Path {
        &self.daemon.control
    }

    /// The daemon's log.
    pub fn log(&self) -> &Path {
        &self.daemon.log
    }
}

/// A client that calls as kubelet does, where it has to with this front end.
fn kubelet(
    way: Way,
    daemon: &Daemon,
    containerd: &Containerd,
    dir: &Path,
    command: &[&str],
    driver: CgroupDriver,
) -> Kubelet {
    let socket = match way {
        Way::Proxy => daemon.socket.clone(),
        Way::Plugin => containerd.socket().to_owned(),
    };
    let logs = dir.join("logs").display().to_string();
    Kubelet::new(socket, IMAGE, command, &logs).with_driver(driver)
}
