//! The tasks that look at containers and change how they run beside their placement.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::colocation::{ColocationTask, run_colocation, share_no_more};
use crate::health::Part;
use crate::hotplug::Machine;
use crate::prober::{ProberTask, run_prober};
use crate::rebalancer::{RebalancerTask, run_rebalancer, take_back};
use crate::reclaimer::run_reclaimer;
use crate::tasks::{Losses, until};

/// The rebalancer, the probes, what shares CPUs with BestEffort containers, and what reclaims idle memory.
pub(crate) fn start_looking(
    machine: &Machine,
    looking: RebalancerTask,
    losses: &Losses,
    (stop, close): (&CancellationToken, &CancellationToken),
) -> impl Iterator<Item = JoinHandle<()>> + use<> {
    let probing = ProberTask {
        inbox: looking.inbox.clone(),
        config: looking.config.clone(),
        ground: Arc::clone(&looking.ground),
        sightings: looking.sightings.clone(),
    };
    // What it has turned would not be judged any more.
    let (inbox, enforcement) = (looking.inbox.clone(), looking.enforcement.clone());
    let root = looking.config.borrow().host_root.clone();
    let metrics = Arc::clone(&looking.metrics);
    let reclaiming = run_reclaimer(root, enforcement.clone(), Arc::clone(&metrics), stop.clone());
    let reclaiming = losses.spare(Part::Reclaimer, reclaiming);
    let tidy = async move {
        take_back(&inbox, &enforcement).await;
        metrics.rebalancing.looked(0, 0);
    };
    let colocating = ColocationTask {
        inbox: looking.inbox.clone(),
        config: looking.config.clone(),
        ground: Arc::clone(&looking.ground),
        metrics: Arc::clone(&looking.metrics),
        is_dry_run: looking.is_dry_run,
    };
    let (sharing, shared) = (looking.inbox.clone(), looking.enforcement.clone());
    let shown = Arc::clone(&looking.metrics);
    // Nothing would follow the load any more.
    let unshare = async move {
        share_no_more(&sharing, &shared).await;
        shown.rebalancing.show_best_effort(None, 0);
    };
    // Before everything is taken back, or it would share again after that.
    let work = async move {
        let _stopping = run_colocation(colocating).await;
    };
    let colocating = until(close.clone(), work);
    let colocating = losses.spare_then(Part::Colocation, colocating, unshare);
    let rebalancing = run_rebalancer(looking, stop.clone());
    let rebalancing = losses.spare_then(Part::Rebalancer, rebalancing, tidy);
    // A machine that is not this one has no kernel to count in.
    let probing = || {
        // Numbers that stand still would be taken for a quiet node.
        let sightings = probing.sightings.clone();
        let tidy = async move { sightings.clear(Vec::new()) };
        losses.spare_then(Part::Prober, run_prober(probing, stop.clone()), tidy)
    };
    let probing = machine.is_real().then(probing);
    [rebalancing, reclaiming, colocating].into_iter().chain(probing)
}
