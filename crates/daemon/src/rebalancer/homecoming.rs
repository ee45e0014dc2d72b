//! Memory that is brought home: one node after the other, each a change of the state that the runtime is told of. In: a proposal that stands. Out: how that ended.
//!
//! The kernel moves the pages while the runtime writes `cpuset.mems`, and comes back when it has moved them, so in between everybody else has his turn. What does not
//! fit stays where it is, and whoever asks for more on a full node may be killed for it (cgroup-v2.rst, "cpuset.mems"): so it is looked first how much would come, and
//! how much room there is, beside what the ledger has set aside.

use std::path::PathBuf;

use bayplan_allocator::ContainerId;
use bayplan_host::kernel::DiskKernel;
use bayplan_host::read_node_memory;
use bayplan_rebalance::Outcome;
use bayplan_types::{Bytes, NodeSet};

use super::task::{Looker, RebalancerTask};
use crate::event::{Answer, Event};
use crate::occupancy::Occupant;
use crate::tasks::blocking;

/// This part of a node's memory stays free: the kernel begins to look for pages that it can take back some hundredths before the end.
const SPARED: u64 = 32;

impl RebalancerTask {
    /// Brings the memory of a proposal's target home; `None` when the daemon is stopping.
    pub(super) async fn bring_home(
        &self,
        looker: &mut Looker,
        number: u64,
        target: ContainerId,
    ) -> Option<Outcome> {
        let Some(mut before) = self.occupant(target).await? else { return Some(gone()) };
        let home = match &before.home {
            Ok(home) => home.clone(),
            Err(why) => return Some(Outcome::Refused(why.to_string())),
        };
        if let Err(why) = self.has_room(&before, home).await? {
            return Some(Outcome::Refused(why));
        }
        for step in 1.. {
            looker.coming.insert(number, step);
            self.hand_over(looker).await?;
            let Some(now) = self.occupant(target).await? else { return Some(gone()) };
            match &now.home {
                Err(why) => return Some(Outcome::Refused(why.to_string())),
                Ok(home) if now.mems == *home => break,
                // Each step leaves a node, but for what was taken back meanwhile.
                Ok(_) if now.mems == before.mems => {
                    return Some(Outcome::Refused("it was taken back on its way".to_owned()));
                }
                Ok(_) => before = now,
            }
        }
        looker.coming.remove(&number);
        Some(Outcome::Done)
    }

    async fn occupant(&self, id: ContainerId) -> Option<Option<Occupant>> {
        let Answer::Occupancy(occupancy) = self.inbox.ask(Event::Occupancy).await? else {
            return Some(None);
        };
        Some(occupancy.occupants.into_iter().find(|it| it.id == id))
    }

    /// Whether what would come has room now, whatever was promised.
    async fn has_room(&self, occupant: &Occupant, home: NodeSet) -> Option<Result<(), String>> {
        let read = self.shown.groups();
        let counted = read.and_then(|mut it| it.groups.remove(&occupant.runtime_id));
        let Some((counters, _)) = counted else {
            return Some(Err("it is not known where its memory is".to_owned()));
        };
        let by_node = counters.memory.by_node;
        let coming = by_node.iter().filter(|(node, _)| !home.contains(**node));
        let coming: Bytes = coming.map(|(_, bytes)| *bytes).sum();
        let root = self.config.borrow().host_root.clone();
        let spare = blocking(move || spare_on(root, &home)).await?;
        Some(match spare {
            None => Err("the kernel does not tell how much memory is free there".to_owned()),
            Some(spare) if spare < coming => {
                Err(format!("{coming} would come, and there is room for {spare}"))
            }
            Some(_) => Ok(()),
        })
    }
}

/// What these nodes can take in.
fn spare_on(root: PathBuf, nodes: &NodeSet) -> Option<Bytes> {
    let mut kernel = DiskKernel::open(&root).ok()?;
    let spare = nodes.iter().map(|node| {
        let memory = read_node_memory(&mut kernel, node)?;
        Some(memory.available.saturating_sub(Bytes(memory.total.0 / SPARED)))
    });
    spare.sum()
}

fn gone() -> Outcome {
    Outcome::Refused("it is gone".to_owned())
}
