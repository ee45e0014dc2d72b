//! `bayplan demo`: the real daemon between a client that speaks as kubelet does and a runtime without processes, on a synthetic
//! machine. No root, no Kubernetes, no network.

mod stage;
mod story;

use std::io::IsTerminal as _;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use bayplan_config::Config;

use crate::args::DemoOptions;
use crate::demo::stage::Stage;
use crate::node_config::{NodeConfig, read_config};

/// Plays the story, and waits at its end if asked to.
pub(crate) fn run(config: &NodeConfig, options: &DemoOptions) -> anyhow::Result<()> {
    let is_watched = std::io::stdout().is_terminal();
    let pause = Duration::from_millis(if is_watched { 1200 } else { 0 });
    let pause = options.pause.unwrap_or(pause);
    let config = match config.tried() {
        Some(path) => Some(read_config(path)?),
        None => None,
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut stage = Stage::build(&options.machine, config.map(placement)).await?;
        // However it ends, also where no program reads any more, the daemon is stopped and its directory removed.
        let told = tell(&mut stage, options, pause).await;
        stage.close().await;
        told
    })
}

/// What of a configuration is about places. No other part counts: nothing of this machine is read or written.
fn placement(config: Config) -> Config {
    Config {
        reserved_cpus: config.reserved_cpus,
        reserved_amount: config.reserved_amount,
        available_cpus: config.available_cpus,
        policy: config.policy,
        reserved_namespaces: config.reserved_namespaces,
        permissions: config.permissions,
        ceilings: config.ceilings,
        groups: config.groups,
        group_loads: config.group_loads,
        requests: config.requests,
        on_no_capacity: config.on_no_capacity,
        ..Config::default()
    }
}

async fn tell(stage: &mut Stage, options: &DemoOptions, pause: Duration) -> anyhow::Result<()> {
    story::play(stage, pause).await?;
    if options.keep {
        keep(stage).await?;
    }
    Ok(())
}

async fn keep(stage: &Stage) -> anyhow::Result<()> {
    let socket = stage.control_socket();
    let socket = socket.display();
    sayln!("The daemon keeps running. In another terminal:")?;
    sayln!("  bayplan status --control {socket}")?;
    sayln!("  bayplan explain inference --control {socket}")?;
    if let Some(address) = stage.metrics_address() {
        sayln!("  curl http://{address}/metrics")?;
    }
    sayln!("Ctrl-C ends it.")?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
