//! What happens in the demo, step by step.

use std::time::{Duration, Instant};

use anyhow::bail;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec, RunningPod};
use bayplan_node::decision::Verdict;
use bayplan_types::{Bytes, QosClass};
use tonic::Code;

use crate::demo::stage::Stage;

/// Plays all of it, with `pause` after each step.
pub(crate) async fn play(stage: &mut Stage, pause: Duration) -> anyhow::Result<()> {
    let started = Instant::now();
    let cpus = stage.topology().cpus().len();
    sayln!(
        "A machine with {cpus} CPUs, the bayplan daemon, and a client that speaks as kubelet does.\n"
    )?;

    let system =
        PodSpec { namespace: "kube-system".into(), ..PodSpec::new("coredns", QosClass::Burstable) };
    launch(
        stage,
        "A system pod starts.",
        &system,
        &ContainerSpec::burstable("coredns", 100),
        pause,
    )
    .await?;

    let quarter = u64::try_from(cpus / 8).unwrap_or(1).max(1);
    let guaranteed = |name: &str| PodSpec::new(name, QosClass::Guaranteed);
    let database = ContainerSpec::guaranteed("database", quarter * 1000, Bytes::gib(8));
    let headline = format!("A latency-critical Guaranteed pod asks for {quarter} whole CPUs.");
    let database = launch(stage, &headline, &guaranteed("database"), &database, pause).await?;

    let api = ContainerSpec::guaranteed("api", 1500, Bytes::gib(2));
    let headline = "A Guaranteed pod asks for 1.5 CPUs: one exclusive, half a one shared.";
    launch(stage, headline, &guaranteed("api"), &api, pause).await?;

    let headline = "A noisy Burstable pod starts.";
    let batch = ContainerSpec::burstable("batch", quarter * 500);
    launch(stage, headline, &PodSpec::new("batch", QosClass::Burstable), &batch, pause).await?;
    let headline = "And a BestEffort one.";
    let logs = ContainerSpec::burstable("logs", 0);
    launch(stage, headline, &PodSpec::new("logs", QosClass::BestEffort), &logs, pause).await?;

    for kind in stage.groups() {
        join(stage, &kind, pause).await?;
    }

    let inference = ContainerSpec::guaranteed("inference", quarter * 1000, Bytes::gib(8));
    let headline = format!("Another {quarter} whole CPUs: the shared ones let go of them first.");
    launch(stage, &headline, &guaranteed("inference"), &inference, pause).await?;

    if let Some(database) = database {
        leave(stage, "The database leaves; its CPUs are shared again.", database, pause).await?;
    }
    restart(stage, pause).await?;
    sayln!("The story took {:.1} s.", started.elapsed().as_secs_f64())?;
    Ok(())
}

async fn launch(
    stage: &mut Stage,
    headline: &str,
    pod: &PodSpec,
    container: &ContainerSpec,
    pause: Duration,
) -> anyhow::Result<Option<(RunningPod, String)>> {
    sayln!("== {headline}")?;
    let running = match stage.kubelet.launch(pod, container).await {
        Ok(running) => Some(running),
        // How the daemon refuses; kubelet shows the text with the pod, and tries again.
        Err(status) if status.code() == Code::ResourceExhausted => {
            sayln!("  {} is refused: {}", container.name, status.message())?;
            None
        }
        Err(status) => {
            bail!("the runtime did not start {}: {}", container.name, status.message())
        }
    };
    show(stage).await?;
    explain(stage, &container.name).await?;
    sayln!()?;
    tokio::time::sleep(pause).await;
    Ok(running)
}

/// Two pods come into a group of this type.
async fn join(stage: &mut Stage, kind: &str, pause: Duration) -> anyhow::Result<()> {
    for (which, milli) in [("first", 1000), ("second", 500)] {
        let name = format!("{kind}-{which}");
        let annotations = vec![("bayplan.dev/group".to_owned(), kind.to_owned())];
        let pod = PodSpec { annotations, ..PodSpec::new(&name, QosClass::Burstable) };
        let headline = format!("A pod names the group {kind}.");
        launch(stage, &headline, &pod, &ContainerSpec::burstable(&name, milli), pause).await?;
    }
    Ok(())
}

async fn leave(
    stage: &mut Stage,
    headline: &str,
    (pod, id): (RunningPod, String),
    pause: Duration,
) -> anyhow::Result<()> {
    sayln!("== {headline}")?;
    let status = |status: tonic::Status| anyhow::anyhow!("{}", status.message());
    stage.kubelet.stop(&id).await.map_err(status)?;
    stage.kubelet.remove(&id).await.map_err(status)?;
    stage.kubelet.end_pod(&pod).await.map_err(status)?;
    show(stage).await?;
    sayln!()?;
    tokio::time::sleep(pause).await;
    Ok(())
}

async fn restart(stage: &mut Stage, pause: Duration) -> anyhow::Result<()> {
    sayln!("== The daemon is restarted; containers keep running.")?;
    let before = stage.pinned();
    stage.restart_daemon().await?;
    show(stage).await?;
    let after = stage.pinned();
    let moved = before.iter().filter(|container| !after.contains(container)).count();
    sayln!("  {moved} of {} containers moved.\n", before.len())?;
    tokio::time::sleep(pause).await;
    Ok(())
}

async fn show(stage: &mut Stage) -> anyhow::Result<()> {
    let status = stage.status().await?;
    say!("{}", stage.render(&status))?;
    Ok(())
}

/// Where it went, and why not elsewhere: one line per reason.
async fn explain(stage: &Stage, container: &str) -> anyhow::Result<()> {
    for explanation in stage.explain(container).await? {
        sayln!("  why: {}", explanation.decision.outcome)?;
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        for pool in explanation.decision.pools.iter().filter(|pool| pool.verdict != Verdict::Won) {
            match reasons.iter_mut().find(|(why, _)| *why == pool.why) {
                Some((_, pools)) => pools.push(pool.pool.clone()),
                None => reasons.push((pool.why.clone(), vec![pool.pool.clone()])),
            }
        }
        for (why, pools) in reasons {
            sayln!("       not {}: {why}", pools.join(", "))?;
        }
    }
    Ok(())
}
