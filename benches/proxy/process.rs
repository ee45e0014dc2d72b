//! A process that is measured, and ends with the benchmark.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use tokio::net::UnixStream;

pub(crate) struct Process(Child);

impl Process {
    /// Starts it, and waits until a process listens on the socket.
    pub(crate) async fn start(command: &mut Command, socket: &Path) -> Process {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while UnixStream::connect(socket).await.is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "no process listens at {}",
                socket.display()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Process(child)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap()
    }

    /// CPU time of all its threads so far, as the scheduler has counted it.
    pub(crate) fn cpu(&self) -> Duration {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        clock_gettime(clock_getcpuclockid(pid).unwrap()).unwrap().into()
    }

    /// Percent of one CPU that it takes while this goes by.
    pub(crate) async fn busy(&self, wait: Duration) -> f64 {
        let (before, started) = (self.cpu(), Instant::now());
        tokio::time::sleep(wait).await;
        (self.cpu() - before).as_secs_f64() / started.elapsed().as_secs_f64() * 100.0
    }

    /// Resident memory in MiB, and how much of it belongs to no file.
    pub(crate) fn memory(&self) -> [f64; 2] {
        let status = self.read("status");
        ["VmRSS:", "RssAnon:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
            kib / 1024.0
        })
    }
}

/// In which a process ends that is asked to; then it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

impl Process {
    /// Asks it to end, because a program that counts where its calls go writes that down at its end.
    pub(crate) fn end(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        // It may have ended already.
        let _asked = kill(pid, Signal::SIGTERM);
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}
