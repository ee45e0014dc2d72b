//! `bayplan run`.

use std::io::IsTerminal as _;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::args::RunOptions;
use crate::node_config::NodeConfig;
use crate::visible::LogLines;
use anyhow::Context as _;
use bayplan_daemon::config::Config;
use bayplan_daemon::systemd::Systemd;
use bayplan_daemon::{Daemon, Followed, LogFilter, Machine};
use bayplan_host::disk::Disks;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, reload};

/// Threads that forward calls and decide.
const THREADS_MAX: usize = 4;
/// A daemon in which something vital has ended gives back what it can for so long.
const BROKEN_STOP: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT; a second signal ends the process at once.
pub(crate) fn run(config: &NodeConfig, options: &RunOptions, disks: Disks) -> anyhow::Result<()> {
    // Before there is another thread, because it changes the environment.
    let systemd = Systemd::from_env()?;
    let followed = Followed::read(config.path())?;
    let log = init_log(&followed.config().log)?;
    let Config { host_root, state_dir, .. } = followed.config();
    let machine = Machine::of_host(host_root, state_dir)?.with_disks(disks);
    let followed = followed.fitted_to(&machine)?;
    let followed = followed.with_log(log).with_dry_run(options.dry_run);
    raise_file_limit();
    let runtime = runtime()?;
    let ended = runtime.block_on(serve(systemd, followed, machine));
    // A disk that hangs must not keep the process.
    runtime.shutdown_background();
    ended
}

/// Counters of containers and CPUs stay open; the soft limit is there for programs that use `select(2)`. A service manager may forbid this, and sets the limit
/// itself then.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// A thread per CPU would be hundreds on the machines that this is for, which all wait for one task that decides.
fn runtime() -> std::io::Result<Runtime> {
    let threads = available_parallelism()?.get().min(THREADS_MAX);
    Builder::new_multi_thread().worker_threads(threads).enable_all().build()
}

async fn serve(systemd: Systemd, followed: Followed, machine: Machine) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let daemon = tokio::select! {
        daemon = Daemon::start_under(systemd, followed, machine) => daemon?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let reloader = daemon.reloader();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // What comes of it is logged.
            let _told = reloader.reload().await;
        }
    });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = daemon.broken() => {
            // What still answers gives back what it has turned, and lets calls come to their end.
            let _in_time = tokio::time::timeout(BROKEN_STOP, daemon.stop()).await;
            anyhow::bail!("the daemon can no longer decide; this is a bug");
        }
    }
    tracing::info!("stopping; containers keep running as they are");
    tokio::select! {
        () = daemon.stop() => {}
        _ = terminate.recv() => tracing::warn!("stopped at once"),
        _ = interrupt.recv() => tracing::warn!("stopped at once"),
    }
    Ok(())
}

/// Logs go to standard error, where journald picks them up; it adds the time itself. The filter can be another one later, unless the
/// variable names one.
fn init_log(filter: &str) -> anyhow::Result<LogFilter> {
    const VARIABLE: &str = "BAYPLAN_LOG";
    let forced = std::env::var(VARIABLE).ok();
    let filter = parse_filter(forced.as_deref().unwrap_or(filter))?;
    let (filter, handle) = reload::Layer::new(filter);
    let is_journald = std::env::var_os("JOURNAL_STREAM").is_some();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| LogLines)
        // It would say so on standard error, with a panic where that is what cannot be written.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match is_journald {
        true => lines.without_time().boxed(),
        false => lines.boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(LogFilter::new(move |filter| {
        if forced.is_some() {
            tracing::warn!("log has no effect: {VARIABLE} is set");
            return Ok(());
        }
        Ok(handle.reload(parse_filter(filter)?)?)
    }))
}

fn parse_filter(text: &str) -> anyhow::Result<EnvFilter> {
    bayplan_daemon::config::parse_filter(text).with_context(|| {
        format!("log: `{text}` is not a filter such as info or bayplan_cri=debug,info")
    })
}
