//! Memory that is brought home: a change of the state, of which the runtime is told. In: a proposal that stands. Out: how that ended, by what the kernel says.
//!
//! The process that writes `cpuset.mems` waits until the kernel has moved the pages (cgroup v2, since Linux 5.15), and meanwhile no other can change
//! a cpuset or enter a cgroup: so not more is moved than that takes a moment. What does not fit stays where it is, and a container that asks for more
//! on a full node may be killed for it (cgroup-v2.rst, "cpuset.mems"): so it is looked first how much would come, and how much room there is, beside
//! what the ledger has set aside.
//!
//! It is one write. On the way over nodes in between the kernel would put pages on any of those that stay, not on the nearest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_host::kernel::{DiskKernel, Kernel as _};
use bayplan_host::{find_cpuset_group, read_node_memory};
use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::Occupant;
use bayplan_rebalance::Outcome;
use bayplan_types::{Bytes, NodeId, NodeSet};

use super::carry_out::WRITTEN_WITHIN;
use super::task::{Looker, RebalancerTask};
use crate::tasks::blocking;

/// This part of a node's memory stays free: the kernel begins to look for pages that it can take back some hundredths before the end.
const SPARED: u64 = 32;
/// More than this is not moved. It is 262,144 pages of 4 KiB, each of which is unmapped, copied and mapped again while others wait.
const MOST: Bytes = Bytes(1 << 30);
/// Between two looks whether the kernel has what was to be written.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl RebalancerTask {
    /// Brings the memory of a proposal's target home; `None` when the daemon is stopping.
    pub(super) async fn bring_home(
        &self,
        looker: &mut Looker,
        number: u64,
        target: ContainerId,
    ) -> Option<Outcome> {
        let Some(occupant) = self.occupant(target).await? else { return Some(gone()) };
        let home = match &occupant.home {
            Ok(home) => home.clone(),
            Err(why) => return Some(Outcome::Refused(why.to_string())),
        };
        if let Err(why) = self.may_come(&occupant, &home).await? {
            return Some(Outcome::Refused(why));
        }
        looker.homes.insert(number, home.clone());
        self.hand_over(looker).await?;
        match self.occupant(target).await? {
            Some(now) if now.mems == home => self.has_come(&occupant, home).await,
            Some(_) => Some(Outcome::Refused("it was taken back on its way".to_owned())),
            None => Some(gone()),
        }
    }

    async fn occupant(&self, id: ContainerId) -> Option<Option<Occupant>> {
        let Answer::Occupancy(occupancy) = self.inbox.ask(Event::Occupancy).await? else {
            return Some(None);
        };
        Some(occupancy.occupants.iter().find(|it| it.id == id).cloned())
    }

    /// Whether what would come has room now, whatever was promised, and is not too much to be moved at once.
    async fn may_come(&self, occupant: &Occupant, home: &NodeSet) -> Option<Result<(), String>> {
        let read = self.shown.groups();
        let counted = read.and_then(|mut it| it.groups.remove(&occupant.runtime_id));
        let by_node = counted.map(|(counters, _)| counters.memory.by_node).unwrap_or_default();
        let (root, nodes) = (self.config.borrow().host_root.clone(), home.clone());
        let spare = blocking(move || spare_on(&root, &nodes)).await?;
        Some(check_room(&by_node, &occupant.mems, home, spare))
    }

    /// Whether the kernel has these nodes for it, once the runtime had time to write them.
    async fn has_come(&self, occupant: &Occupant, home: NodeSet) -> Option<Outcome> {
        let why =
            format!("its cpuset.mems did not say {home} within {} s", WRITTEN_WITHIN.as_secs());
        let root = self.config.borrow().host_root.clone();
        let (parent, id) = (occupant.spec.pod.cgroup_parent.clone(), occupant.runtime_id.clone());
        let waiting = async {
            loop {
                let (root, parent, id) = (root.clone(), parent.clone(), id.clone());
                let found = blocking(move || mems_by_kernel(&root, &parent, &id)).await?;
                if found.as_ref() == Some(&home) {
                    return Some(Outcome::Done);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let waited = tokio::time::timeout(WRITTEN_WITHIN, waiting).await;
        waited.unwrap_or(Some(Outcome::Refused(why)))
    }
}

/// What moves when a container's nodes change is counted by `by_node`, what each node at home can take in is `spare`; nothing where the kernel does not tell.
///
/// From a node that is left pages go to one at home by their order, not by distance (`do_migrate_pages`, mm/mempolicy.c): so each has to have room for all.
/// They stay on nodes that are in both sets only if these are of different sizes.
fn check_room(
    by_node: &BTreeMap<NodeId, Bytes>,
    from: &NodeSet,
    home: &NodeSet,
    spare: Option<Bytes>,
) -> Result<(), String> {
    if by_node.is_empty() {
        return Err("it is not known where its memory is".to_owned());
    }
    let stays = |node: NodeId| home.contains(node) && from.len() != home.len();
    let coming = by_node.iter().filter(|(node, _)| !stays(**node)).map(|(_, bytes)| *bytes);
    let coming: Bytes = coming.sum();
    match spare {
        _ if coming > MOST => {
            Err(format!("{coming} would move, more than {MOST}: it would hold up the node"))
        }
        None => Err("the kernel does not tell how much memory is free there".to_owned()),
        Some(spare) if spare < coming => {
            Err(format!("{coming} would come, and there is room for {spare}"))
        }
        Some(_) => Ok(()),
    }
}

/// What each of these nodes can take in.
fn spare_on(root: &Path, nodes: &NodeSet) -> Option<Bytes> {
    let mut kernel = DiskKernel::open(root).ok()?;
    let spare = nodes.iter().map(|node| {
        let memory = read_node_memory(&mut kernel, node)?;
        Some(memory.available.saturating_sub(Bytes(memory.total.0 / SPARED)))
    });
    spare.collect::<Option<Vec<Bytes>>>()?.into_iter().min()
}

/// What its cgroup's file says.
fn mems_by_kernel(root: &Path, parent: &str, id: &str) -> Option<NodeSet> {
    let mut kernel = DiskKernel::open(root).ok()?;
    let dir = find_cpuset_group(&mut kernel, parent, id).ok()??;
    kernel.read(&format!("{dir}/cpuset.mems")).ok()?.trim().parse().ok()
}

fn gone() -> Outcome {
    Outcome::Refused("it is gone".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MiB by node, from where to where, MiB of room on the fullest node at home.
    #[track_caller]
    fn check(by_node: &[(u32, u64)], way: (&str, &str), spare: Option<u64>, expected: &str) {
        let mib = |mib: u64| Bytes(mib << 20);
        let by_node = by_node.iter().map(|(node, it)| (NodeId(*node), mib(*it))).collect();
        let (from, home) = (way.0.parse().unwrap(), way.1.parse().unwrap());
        let said = check_room(&by_node, &from, &home, spare.map(mib));
        assert_eq!(said.err().unwrap_or_default(), expected);
    }

    #[test]
    fn memory_that_was_not_counted_does_not_come() {
        check(&[], ("0-1", "0"), Some(4096), "it is not known where its memory is");
        let why = "the kernel does not tell how much memory is free there";
        check(&[(1, 1)], ("0-1", "0"), None, why);
    }

    #[test]
    fn more_memory_than_holds_up_the_node_is_not_moved() {
        check(&[(0, 8192), (1, 1024)], ("0-1", "0"), Some(4096), "");
        let why = "1.5 GiB would move, more than 1 GiB: it would hold up the node";
        check(&[(0, 1), (1, 1024), (2, 512)], ("0-2", "0"), Some(4096), why);
    }

    #[test]
    fn each_node_at_home_has_room_for_all_that_comes() {
        check(&[(2, 300), (3, 300)], ("0-3", "0-1"), Some(600), "");
        let why = "600 MiB would come, and there is room for 599 MiB";
        check(&[(2, 300), (3, 300)], ("0-3", "0-1"), Some(599), why);
    }

    /// From 0 and 1 to 1 and 2 the kernel moves those of 1, too.
    #[test]
    fn pages_do_not_stay_where_as_many_nodes_come_as_go() {
        let why = "700 MiB would come, and there is room for 300 MiB";
        check(&[(0, 300), (1, 400)], ("0-1", "1-2"), Some(300), why);
    }
}
