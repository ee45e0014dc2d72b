//! A process that is measured, and ends with the benchmark.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;

/// Ticks of `/proc/PID/stat` (`USER_HZ`), the same on every Linux that bayplan knows.
const TICKS_PER_SECOND: u32 = 100;

pub(crate) struct Process(Child);

impl Process {
    /// Starts it, and waits until somebody listens on the socket.
    pub(crate) async fn start(command: &mut Command, socket: &Path) -> Process {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while UnixStream::connect(socket).await.is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "nobody at {}", socket.display());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Process(child)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap()
    }

    /// CPU time so far, to a hundredth of a second.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self.read("stat");
        // The name may contain anything; what follows its last bracket does not.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
        Duration::from_secs(1) * ticks / TICKS_PER_SECOND
    }

    /// Resident memory, and how much of it belongs to no file.
    pub(crate) fn memory(&self) -> String {
        let status = self.read("status");
        let field = |name: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
            kib / 1024.0
        };
        let (all, anonymous) = (field("VmRSS:"), field("RssAnon:"));
        format!("{all:.1} MiB resident, {anonymous:.1} MiB of it anonymous")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}
