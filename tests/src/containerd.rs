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
    programs: Programs,
    dir: PathBuf,
    socket: PathBuf,
}

/// Which containerd is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    containerd: PathBuf,
    /// Where it finds its shim and runc, before all others.
    dirs: Vec<PathBuf>,
}

impl Programs {
    /// As installed.
    ///
    /// # Errors
    /// It is not installed.
    pub fn installed() -> anyhow::Result<Programs> {
        Ok(Programs { containerd: find_program("containerd", "containerd")?, dirs: Vec::new() })
    }

    /// All in this directory.
    pub fn of_dir(dir: &Path) -> Programs {
        Programs { containerd: dir.join("containerd"), dirs: vec![dir.to_owned()] }
    }

    /// Containerd 2 as `tests/programs` builds it, in its cache.
    ///
    /// # Errors
    /// It was not built.
    pub fn built() -> anyhow::Result<Programs> {
        let [containerd, runc] = ["containerd-2", "runc"].map(built_dir);
        let (containerd, runc) = (containerd?, runc?);
        Ok(Programs { containerd: containerd.join("containerd"), dirs: vec![containerd, runc] })
    }
}

/// Where `tests/programs/build.py` puts what it builds; `None`: the environment does not say.
pub fn programs_cache() -> Option<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let general = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    variable("BAYPLAN_PROGRAMS_CACHE").or_else(|| Some(general()?.join("bayplan-programs")))
}

/// A program there: `NAME-DIGEST`.
fn built_dir(name: &str) -> anyhow::Result<PathBuf> {
    let cache = programs_cache().context("neither HOME nor BAYPLAN_PROGRAMS_CACHE is set")?;
    let entries = std::fs::read_dir(&cache).into_iter().flatten().flatten();
    let is_built = |dir: &PathBuf| {
        let digest = dir.file_name()?.to_str()?.strip_prefix(name)?.strip_prefix('-')?;
        Some(digest.len() == 16 && digest.bytes().all(|it| it.is_ascii_hexdigit()))
    };
    let found = entries.map(|it| it.path()).find(|dir| is_built(dir) == Some(true));
    found.with_context(|| {
        format!("{name} is not in {}; tests/critest/run builds it", cache.display())
    })
}

impl Containerd {
    /// Starts containerd below `dir` and imports the image. `driver` makes the containers' cgroups.
    ///
    /// # Errors
    /// A program is missing, we are not root, or containerd does not come up.
    pub fn start(
        dir: &Path,
        driver: CgroupDriver,
        programs: Programs,
    ) -> anyhow::Result<Containerd> {
        let ctr = find_program("ctr", "containerd")?;
        find_program("runc", "runc")?;
        let busybox = find_program("busybox", "busybox-static")?;
        let is_root = Command::new("id").arg("-u").output()?.stdout == b"0\n";
        ensure!(is_root, "containers need root: run the tests as root, for example with sudo -E");
        let socket = dir.join("containerd.sock");
        std::fs::write(dir.join(CONFIG), render_config(dir, &socket, driver))?;
        let process = run(&programs, dir)?;
        let dir = dir.to_owned();
        let containerd = Containerd { process, programs, dir, socket };
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

    /// SIGTERM; containers run on.
    ///
    /// # Errors
    /// It does not end.
    pub fn terminate(&mut self) -> anyhow::Result<()> {
        self.process.terminate().map(drop)
    }

    /// Another one after a kill, with the memory of the one before.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = run(&self.programs, &self.dir)?;
        self.wait_until_serving()
    }

    /// Whether it hangs from now on (SIGSTOP), or goes on.
    ///
    /// # Errors
    /// It does not run.
    pub fn hang(&self, hangs: bool) -> anyhow::Result<()> {
        self.process.signal(if hangs { "STOP" } else { "CONT" })
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The CRI socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where it takes plugins.
    pub fn nri_socket(&self) -> PathBuf {
        self.dir.join("nri.sock")
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }
}

/// With the configuration that is in `dir`.
fn run(programs: &Programs, dir: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(&programs.containerd);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = programs.dirs.iter().cloned().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(dirs)?);
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
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{dir}/nri.sock"
  plugin_path = "{dir}/nri/plugins"
  plugin_config_path = "{dir}/nri/conf.d"
"#
    )
}
