//! A second plugin, asked before or after Bayplan, that sets the CPUs of some containers.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_nri::api;
use bayplan_nri::events::Event;
use bayplan_nri::other_plugins::OtherPlugin;
use bayplan_nri::plugin::{Granted, Hook, Hooks, Reply, Settings, run};
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::process::wait_for;
use bayplan_types::QosClass;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::life::{in_kernel, launch_sharer};

/// Pins containers of pods with `pinned` in their names to CPU 0.
#[derive(Clone, Debug)]
struct Pinner {
    is_there: watch::Sender<bool>,
}

impl Hooks for Pinner {
    fn configured(&self, _granted: &Granted) -> bool {
        false
    }

    fn synchronized(&self) {
        self.is_there.send_replace(true);
    }

    fn lost(&self, _why: &str) {}

    async fn connection_ended(&self, _connection: u64) {}

    fn beside(&self, _others: Vec<OtherPlugin>) {}

    async fn answer(&self, _connection: u64, hook: Hook) -> Result<Reply, String> {
        if hook.event != Event::CreateContainer || !hook.pod.name.contains("pinned") {
            return Ok(Reply::default());
        }
        let cpu = api::LinuxCpu { cpus: "0".to_owned(), ..Default::default() };
        let linux = api::LinuxContainerAdjustment {
            resources: Some(api::LinuxResources { cpu: Some(cpu), ..Default::default() }),
            ..Default::default()
        };
        let adjust = api::ContainerAdjustment { linux: Some(linux), ..Default::default() };
        Ok(Reply { adjust: Some(adjust), update: Vec::new() })
    }

    fn answered(&self, _event: Event, _took: Duration, _is_late: bool) -> Result<Reply, String> {
        Ok(Reply::default())
    }
}

pub(crate) fn is_named(node: &mut Node) -> anyhow::Result<()> {
    // What Bayplan leaves alone is not every pod's to say.
    let permissions = "permissions: [{namespaces: ['*'], allow: ['*']}]";
    // Only then it is told of other plugins.
    node.reconfigure(&format!("{permissions}\nonFailure: closed\n"))?;
    let sharer = launch_sharer(node)?;
    let all = in_kernel(&sharer)?;
    for index in ["10", "95"] {
        let tokio = tokio::runtime::Runtime::new()?;
        let settings =
            Settings { socket: node.nri_socket(), name: "pinner".into(), index: index.into() };
        let (is_there, mut came) = watch::channel(false);
        let stop = CancellationToken::new();
        let running = tokio.spawn(run(settings, Pinner { is_there }, stop.clone()));
        tokio.block_on(came.wait_for(|it| *it))?;
        beside(node, index).with_context(|| format!("beside a plugin of index {index}"))?;
        stop.cancel();
        tokio.block_on(running)?;
        wait_for("the sharer to have all", LIMIT, || {
            Ok((in_kernel(&sharer)? == all).then_some(()))
        })?;
    }
    Ok(())
}

fn beside(node: &mut Node, index: &str) -> anyhow::Result<()> {
    let (name, own) = (format!("{index}-pinner"), ContainerSpec::burstable("app", 50));
    println!("what Bayplan leaves alone the other one may pin");
    let mut alone = PodSpec::new("scenario-pinned-alone", QosClass::Burstable);
    alone.annotations.push(("bayplan.dev/cpu.preserve".to_owned(), "true".to_owned()));
    let pod = node.run_pod(&alone)?;
    node.answer(node.ask_to_create(&pod, &own, 0))??;
    let front_end = node.status()?.front_end.context("it is a plugin")?;
    let other = front_end.other_plugins.iter().find(|it| it.name == name);
    let sets = other.with_context(|| format!("{:?}", front_end.other_plugins))?.sets.concat();
    ensure!(sets == "cpuset.cpus", "{name} sets {sets}");
    node.end_pod(&pod)?;
    println!("what both pin is not created, and both are named");
    let pod = node.run_pod(&PodSpec::new("scenario-pinned-twice", QosClass::Burstable))?;
    let refused = node.answer(node.ask_to_create(&pod, &own, 0))?;
    let told = refused.err().context("it was created")?.message().to_owned();
    ensure!(told.contains(&name) && told.contains("90-bayplan"), "{told}");
    let taken_back = node.status()?.front_end.and_then(|it| it.taken_back).context("it is told")?;
    ensure!(taken_back.why.contains(&name), "{taken_back:?}");
    ensure!(taken_back.container == "default/scenario-pinned-twice/app", "{taken_back:?}");
    node.end_pod(&pod)?;
    println!("others are created as before");
    let pod = node.run_pod(&PodSpec::new("scenario-other", QosClass::Burstable))?;
    let id = node.answer(node.ask_to_create(&pod, &own, 0))??;
    node.begin(&id)?;
    node.end_pod(&pod)
}
