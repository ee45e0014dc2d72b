//! `bayplan run`.

use std::io::IsTerminal as _;
use std::path::Path;
use std::thread::available_parallelism;

use anyhow::Context as _;
use bayplan_daemon::config::{Config, read_config};
use bayplan_daemon::systemd::Systemd;
use bayplan_daemon::{Daemon, Machine};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Threads that forward calls and decide.
const THREADS_MAX: usize = 4;

/// Runs until SIGTERM or SIGINT; a second signal ends the process at once.
pub(crate) fn run(config: Option<&Path>) -> anyhow::Result<()> {
    // Before there is another thread, because it changes the environment.
    let systemd = Systemd::from_env()?;
    let config = read_config(config)?;
    init_log(&config.log)?;
    let machine = Machine::of_host(&config.host_root)?;
    let runtime = runtime()?;
    let ended = runtime.block_on(serve(systemd, config, machine));
    // A disk that hangs must not keep the process.
    runtime.shutdown_background();
    ended
}

/// A thread per CPU would be hundreds on the machines that this is for, which all wait for one task that decides.
fn runtime() -> std::io::Result<Runtime> {
    let threads = available_parallelism()?.get().min(THREADS_MAX);
    Builder::new_multi_thread().worker_threads(threads).enable_all().build()
}

async fn serve(systemd: Systemd, config: Config, machine: Machine) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::warn!("reload is not there yet; restart to apply the configuration");
        }
    });
    let daemon = tokio::select! {
        daemon = Daemon::start_under(systemd, config, machine) => daemon?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = daemon.broken() => anyhow::bail!("the daemon can no longer decide; this is a bug"),
    }
    tracing::info!("stopping; containers keep running as they are");
    tokio::select! {
        () = daemon.stop() => {}
        _ = terminate.recv() => tracing::warn!("stopped at once"),
        _ = interrupt.recv() => tracing::warn!("stopped at once"),
    }
    Ok(())
}

/// Logs go to standard error, where journald picks them up; it adds the time itself.
fn init_log(filter: &str) -> anyhow::Result<()> {
    let filter = std::env::var("BAYPLAN_LOG").unwrap_or_else(|_| filter.to_owned());
    let filter: EnvFilter = filter.parse().with_context(|| {
        format!("log: `{filter}` is not a filter such as info or bayplan_cri=debug,info")
    })?;
    let is_journald = std::env::var_os("JOURNAL_STREAM").is_some();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    if is_journald {
        log.without_time().init()
    } else {
        log.init()
    }
    Ok(())
}
