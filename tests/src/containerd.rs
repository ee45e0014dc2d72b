//! A containerd of our own in a directory of our own. In: a directory. Out: a CRI socket with one image.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::CgroupDriver;

use crate::image::{IMAGE, write_image};
use crate::process::{Process, find_program, wait_for};

const CONFIG: &str = "containerd.toml";

/// A running containerd; killed when dropped.
#[derive(Debug)]
pub struct Containerd {
    process: Process,
    dir: PathBuf,
    socket: PathBuf,
}

impl Containerd {
    /// Starts containerd below `dir` and imports the image. `driver` makes the containers' cgroups.
    ///
    /// # Errors
    /// A program is missing, we are not root, or containerd does not come up.
    pub fn start(dir: &Path, driver: CgroupDriver) -> anyhow::Result<Containerd> {
        let containerd = find_program("containerd", "containerd")?;
        let ctr = find_program("ctr", "containerd")?;
        find_program("runc", "runc")?;
        let busybox = find_program("busybox", "busybox-static")?;
        let is_root = Command::new("id").arg("-u").output()?.stdout == b"0\n";
        ensure!(is_root, "containers need root: run the tests as root, for example with sudo -E");
        let socket = dir.join("containerd.sock");
        std::fs::write(dir.join(CONFIG), render_config(dir, &socket, driver))?;
        let process = run(&containerd, dir)?;
        let dir = dir.to_owned();
        let containerd = Containerd { process, dir, socket };
        containerd.wait_until_serving()?;
        let archive = containerd.dir.join("image.tar");
        write_image(&busybox, &archive)?;
        let import = Command::new(&ctr)
            .arg("-a")
            .arg(&containerd.socket)
            .args(["-n", "k8s.io", "images", "import"])
            .arg(&archive)
            .output()?;
        ensure!(import.status.success(), "import: {}", String::from_utf8_lossy(&import.stderr));
        Ok(containerd)
    }

    fn wait_until_serving(&self) -> anyhow::Result<()> {
        let ctr = find_program("ctr", "containerd")?;
        let is_up = || Command::new(&ctr).arg("-a").arg(&self.socket).arg("version").output();
        // Asking is a process of its own, which would only slow down what it waits for.
        wait_for("containerd", Duration::from_secs(90), || {
            Ok((self.socket.exists() && is_up()?.status.success()).then_some(()))
        })
        .with_context(|| self.last_words())
    }

    /// SIGKILL. Containers run on: each has a process of containerd's that stays.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Another one after a kill, with the memory of the one before.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let containerd = find_program("containerd", "containerd")?;
        self.process = run(&containerd, &self.dir)?;
        self.wait_until_serving()
    }

    /// Whether it hangs from now on (SIGSTOP), or goes on.
    ///
    /// # Errors
    /// It does not run.
    pub fn hang(&self, hangs: bool) -> anyhow::Result<()> {
        self.process.signal(if hangs { "STOP" } else { "CONT" })
    }

    /// The CRI socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }
}

/// With the configuration that is in `dir`.
fn run(containerd: &Path, dir: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(containerd);
    command.arg("-c").arg(dir.join(CONFIG)).args(["--log-level", "warn"]);
    Process::start(&mut command, &dir.join("containerd.log"))
}

/// `restrict_oom_score_adj`: a machine without `CAP_SYS_RESOURCE` cannot lower the score, and the sandbox would not start.
fn render_config(dir: &Path, socket: &Path, driver: CgroupDriver) -> String {
    let is_systemd = driver == CgroupDriver::Systemd;
    let dir = dir.display();
    let socket = socket.display();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = {is_systemd}
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{dir}/cni/bin"
  conf_dir = "{dir}/cni/net.d"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
"#
    )
}
