//! `bayplan demo`: the real daemon between a client that speaks as kubelet does and a runtime without processes, on a synthetic
//! machine. No root, no Kubernetes, no network.

mod stage;
mod story;

use std::io::IsTerminal as _;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::args::DemoOptions;
use crate::demo::stage::Stage;

/// Plays the story, and waits at its end if asked to.
pub(crate) fn run(options: &DemoOptions) -> anyhow::Result<()> {
    let is_watched = std::io::stdout().is_terminal();
    let pause = Duration::from_millis(if is_watched { 1200 } else { 0 });
    let pause = options.pause.unwrap_or(pause);
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut stage = Stage::build(&options.machine).await?;
        story::play(&mut stage, pause).await?;
        if options.keep {
            keep(&stage).await?;
        }
        stage.close().await;
        Ok(())
    })
}

async fn keep(stage: &Stage) -> anyhow::Result<()> {
    let socket = stage.control_socket();
    let socket = socket.display();
    println!("The daemon keeps running. In another terminal:");
    println!("  bayplan status --control {socket}");
    println!("  bayplan explain inference --control {socket}");
    if let Some(address) = stage.metrics_address() {
        println!("  curl http://{address}/metrics");
    }
    println!("Ctrl-C ends it.");
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
