//! Clients of servers in containers: threads of this program, outside of containers, each on a CPU of its own. In: what to ask for, and whether to sleep between an answer and the next question. Out: how
//! long answers took.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::ensure;
use bayplan_tests::node::LIMIT;
use bayplan_tests::process::wait_for;
use bayplan_tests::under_load::PORT;
use bayplan_types::CpuId;
use nix::sched;
use nix::unistd::Pid;

/// What a client of the server on a port does until it is told to end: for each answer it says how long it took, in milliseconds, and hears how much work to ask for next; `None`: no more.
pub(crate) type Ask = fn(u16, &mut dyn FnMut(f64) -> Option<u32>) -> anyhow::Result<()>;

/// How clients ask.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    pub(crate) ask: Ask,
    /// Processes of the server, from [`PORT`] on; clients are divided among them.
    pub(crate) servers: u16,
    /// Of the server for an answer.
    pub(crate) work: u32,
    /// Between an answer and the next question.
    pub(crate) pause: Duration,
}

/// Clients that ask, until this is dropped.
pub(crate) struct Clients {
    is_over: Arc<AtomicBool>,
    work: Arc<AtomicU32>,
    /// How long answers took, in milliseconds.
    waits: Arc<Mutex<Vec<f64>>>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

impl Clients {
    /// A client on each of these CPUs.
    pub(crate) fn start(cpus: &[CpuId], asking: Asking) -> Clients {
        let Asking { ask, servers, work, pause } = asking;
        let (is_over, waits) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<f64>>>::default());
        let work = Arc::new(AtomicU32::new(work));
        let threads = cpus.iter().zip((PORT..PORT + servers).cycle()).map(|(cpu, port)| {
            let (cpu, is_over, waits) = (*cpu, Arc::clone(&is_over), Arc::clone(&waits));
            let work = Arc::clone(&work);
            std::thread::spawn(move || {
                run_on(cpu)?;
                ask(port, &mut |waited| {
                    waits.lock().unwrap_or_else(PoisonError::into_inner).push(waited);
                    sleep(pause);
                    (!is_over.load(Ordering::Relaxed)).then(|| work.load(Ordering::Relaxed))
                })
            })
        });
        let threads = threads.collect();
        Clients { is_over, work, waits, threads }
    }

    /// From the next question on.
    pub(crate) fn ask_for(&self, work: u32) {
        self.work.store(work, Ordering::Relaxed);
    }

    /// What was waited since this was called last, sorted.
    pub(crate) fn take(&self) -> Vec<f64> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = std::mem::take(&mut *waits);
        taken.retain(|it| it.is_finite());
        taken.sort_by(f64::total_cmp);
        taken
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Ok(Err(error)) = thread.join() {
                println!("  a client: {error:#}");
            }
        }
    }
}

/// The calling thread, and no other.
fn run_on(cpu: CpuId) -> anyhow::Result<()> {
    let mut own = sched::CpuSet::new();
    own.set(usize::try_from(cpu.0)?)?;
    Ok(sched::sched_setaffinity(Pid::from_raw(0), &own)?)
}

pub(crate) fn milliseconds_since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

/// For a loop of so many rounds.
pub(crate) fn ask_redis(port: u16, next: &mut dyn FnMut(f64) -> Option<u32>) -> anyhow::Result<()> {
    let address = ("127.0.0.1", port);
    let mut server = wait_for("the server", LIMIT, || Ok(TcpStream::connect(address).ok()))?;
    server.set_nodelay(true)?;
    let (mut answer, mut work) = ([0; 64], 0);
    loop {
        let question = format!("EVAL \"local x=0 while x<{work} do x=x+1 end return x\" 0\r\n");
        let begun = Instant::now();
        server.write_all(question.as_bytes())?;
        let length = server.read(&mut answer)?;
        let told = answer.get(..length).unwrap_or_default();
        ensure!(told == format!(":{work}\r\n").as_bytes(), "answered {}", told.escape_ascii());
        match next(milliseconds_since(begun)) {
            Some(more) => work = more,
            None => return Ok(()),
        }
    }
}

pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
}
