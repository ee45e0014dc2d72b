//! `bayplan cmk isolate`: a program on a CPU list of a pool.
//!
//! The list is chosen and marked with the ids of this process and of the program while the directory is locked. A list with processes that have all
//! ended counts as free, whether or not `reconcile` has run. Signals are passed on, and the exit code is the program's (128 and the signal's number
//! if a signal ended it).

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bayplan_config::cmk::{Pools, Wanted, choose, reclaim};
use bayplan_types::CpuSet;
use bayplan_workload::cmk::{INFRA, SHARED, environment};
use nix::sched::{CpuSet as KernelCpus, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::store::{Processes, Store};
use crate::args::IsolateOptions;

/// Runs the program.
pub(super) fn run(options: &IsolateOptions) -> anyhow::Result<ExitCode> {
    let wanted = Wanted {
        pool: options.pool.clone(),
        socket: u32::try_from(options.socket_id).ok(),
        count: core_count()?,
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(isolate(options, &wanted))
}

/// `CMK_NUM_CORES`: lists of an exclusive pool.
fn core_count() -> anyhow::Result<usize> {
    let text = std::env::var("CMK_NUM_CORES").unwrap_or_else(|_| "1".to_owned());
    let count = text.parse::<usize>().ok().filter(|count| *count > 0);
    count.with_context(|| format!("CMK_NUM_CORES is `{text}`, expected a number of cores"))
}

async fn isolate(options: &IsolateOptions, wanted: &Wanted) -> anyhow::Result<ExitCode> {
    let dir = &options.dir.conf_dir;
    // Before the program is there, so that no signal is missed.
    let mut signals = Signals::new()?;
    let own = std::process::id();
    let processes = Processes::find()?;
    let store = Store::open(dir)?;
    let mut pools = store.read()?;
    reclaim(&mut pools, |pid| processes.is_running(pid));
    let chosen = choose(&pools, wanted, usize::try_from(own).unwrap_or_default())?;
    let cpus = cpus_of(&pools, wanted, &chosen);
    if !options.no_affinity {
        set_affinity(&cpus)?;
    }
    let mut child = spawn(options, &pools, &cpus)?;
    let tasks = [Some(own), child.id()].into_iter().flatten().collect::<Vec<u32>>();
    let marked = mark(&mut pools, wanted, &chosen, &tasks).and_then(|()| store.write(&pools));
    if let Err(error) = marked {
        child.kill().await?;
        return Err(error);
    }
    drop(store);
    let ended = wait(&mut child, &mut signals).await;
    unmark(dir, &tasks)?;
    ended
}

fn cpus_of(pools: &Pools, wanted: &Wanted, chosen: &[usize]) -> CpuSet {
    let mut cpus = CpuSet::new();
    let slots = pools.pools.get(&wanted.pool).map_or(&[][..], |pool| &pool.slots);
    for slot in chosen.iter().filter_map(|idx| slots.get(*idx)) {
        cpus.union_with(&slot.cpus);
    }
    cpus
}

/// For this process, which the program inherits.
fn set_affinity(cpus: &CpuSet) -> anyhow::Result<()> {
    let mut set = KernelCpus::new();
    for cpu in cpus.iter() {
        let cpu = usize::try_from(cpu.0)?;
        set.set(cpu)
            .with_context(|| format!("CPU {cpu} is beyond what sched_setaffinity takes"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
        .with_context(|| format!("cannot run on CPUs {cpus}; are they online?"))
}

fn spawn(options: &IsolateOptions, pools: &Pools, cpus: &CpuSet) -> anyhow::Result<Child> {
    let words = without_dashes(&options.command);
    let Some((program, arguments)) = words.split_first() else { bail!("no command to run") };
    Command::new(program)
        .args(arguments)
        .envs(environment(cpus, &pools.cpus_of(SHARED), &pools.cpus_of(INFRA)))
        .spawn()
        .with_context(|| format!("cannot run {program}"))
}

/// `sleep -- 10` is `sleep 10`.
fn without_dashes(command: &[String]) -> Vec<&str> {
    let words = command.iter().enumerate();
    let kept = words.filter(|(idx, word)| *idx > 1 || word.as_str() != "--");
    kept.map(|(_, word)| word.as_str()).collect()
}

fn mark(pools: &mut Pools, wanted: &Wanted, chosen: &[usize], tasks: &[u32]) -> anyhow::Result<()> {
    let pool = pools.pools.get_mut(&wanted.pool).context("the pool is gone")?;
    for idx in chosen {
        let slot = pool.slots.get_mut(*idx).context("the CPU list is gone")?;
        slot.tasks.extend(tasks);
    }
    Ok(())
}

/// A directory that was removed meanwhile needs no change.
fn unmark(dir: &Path, tasks: &[u32]) -> anyhow::Result<()> {
    let Ok(store) = Store::open(dir) else { return Ok(()) };
    let mut pools = store.read()?;
    for slot in pools.pools.values_mut().flat_map(|pool| &mut pool.slots) {
        slot.tasks.retain(|pid| !tasks.contains(pid));
    }
    store.write(&pools)
}

/// Signals that are passed on.
struct Signals {
    listened: Vec<(Signal, tokio::signal::unix::Signal)>,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        const PASSED_ON: [Signal; 6] = [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ];
        let listen = |it: Signal| Ok((it, signal(SignalKind::from_raw(it as i32))?));
        let listened = PASSED_ON.into_iter().map(listen);
        Ok(Signals { listened: listened.collect::<anyhow::Result<_>>()? })
    }

    async fn next(&mut self) -> Signal {
        let next = self.listened.iter_mut().map(|(name, listened)| {
            Box::pin(async move {
                listened.recv().await;
                *name
            })
        });
        next_of(next.collect()).await
    }
}

/// The first that is ready.
async fn next_of<F: Future<Output = Signal> + Unpin>(mut all: Vec<F>) -> Signal {
    std::future::poll_fn(move |context| {
        for one in &mut all {
            if let std::task::Poll::Ready(signal) = std::pin::Pin::new(one).poll(context) {
                return std::task::Poll::Ready(signal);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

async fn wait(child: &mut Child, signals: &mut Signals) -> anyhow::Result<ExitCode> {
    use std::os::unix::process::ExitStatusExt as _;
    loop {
        tokio::select! {
            ended = child.wait() => {
                let ended = ended.context("cannot wait for the program")?;
                let code = ended.code().or(ended.signal().map(|signal| 128 + signal)).unwrap_or(1);
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
            }
            signal = signals.next() => {
                if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
                    // It may have ended at this very moment.
                    kill(Pid::from_raw(pid), signal).ok();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_between_program_and_arguments_are_left_out() {
        let check = |words: &[&str], expected: &[&str]| {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(without_dashes(&words), expected);
        };
        check(&["sleep", "--", "10"], &["sleep", "10"]);
        check(&["--", "sleep", "10"], &["sleep", "10"]);
        check(&["app", "-x", "--", "y"], &["app", "-x", "--", "y"]);
    }
}
