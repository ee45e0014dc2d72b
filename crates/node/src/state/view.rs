//! What others see of the state: status, explanations, records, notes, counts. Nothing here changes anything.

use std::collections::BTreeMap;

use bayplan_allocator::{Allocation, ContainerId, Narrowing, Part};
use bayplan_types::{CpuClass, CpuSet, Pinning, QosClass};

use crate::decision::LEFT_ALONE;
use crate::event::Note;
use crate::names::matches;
use crate::record::{AllocationForm, ContainerForm, PlacedRecord, RECORD_VERSION, Record};
use crate::state::NodeState;
use crate::status::{
    ClassedCpus, ContainerStatus, Explanation, HeldSets, NarrowingStatus, PoolStatus, Status,
};

impl NodeState {
    pub(super) fn placed_record(&self, id: ContainerId) -> Option<Record> {
        let container = self.containers.get(&id)?;
        Some(Record::Placed(Box::new(PlacedRecord {
            id: id.0,
            runtime_id: container.runtime_id.clone(),
            container: ContainerForm::from(&*container.spec),
            allocation: self.place(id)?,
            decision: container.decision.clone(),
            cold: container.cold,
            elsewhere: container.elsewhere.clone().map(Box::new),
            is_unasked: container.is_unasked,
        })))
    }

    /// What a container holds, in words that outlive the pools.
    pub(crate) fn place(&self, id: ContainerId) -> Option<AllocationForm> {
        Some(AllocationForm::new(self.ledger.allocation(id)?, &self.containers.get(&id)?.home))
    }

    pub(super) fn machine_record(&self) -> Record {
        Record::Machine {
            version: RECORD_VERSION,
            fingerprint: self.fingerprint.clone(),
            is_partial: self.known.is_partial(),
            group_types: self.groups.fingerprint(),
        }
    }

    pub(crate) fn placed_note(&self, id: ContainerId) -> Option<Note> {
        let container = self.containers.get(&id)?;
        let allocation = self.ledger.allocation(id)?;
        Some(Note::Placed {
            container: container.full_name(),
            cpus: match allocation.terms.preserve.cpus && !container.claim.is_pinned() {
                true => LEFT_ALONE.to_owned(),
                false => self.cpus_of(id, allocation).to_string(),
            },
            pool: self.ledger.pools().get(allocation.pool)?.name.clone(),
            class: allocation.class(),
            qos: container.spec.pod.qos,
        })
    }

    /// The whole state as records: what a compacted journal holds.
    pub fn snapshot_records(&self) -> Vec<Record> {
        let placed = self.containers.ids().filter_map(|id| self.placed_record(*id));
        let mode = self.mode_since.map(|at| Record::Mode { mode: self.mode, at });
        let paused =
            self.is_rebalance_paused.then_some(Record::RebalancePaused { is_paused: true });
        let unstarted = self.departed.unstarted().iter().cloned();
        let unstarted = unstarted.map(|runtime_id| Record::Unstarted { runtime_id });
        let first = std::iter::once(self.machine_record());
        let groups = self.group_records();
        first.chain(mode).chain(paused).chain(groups).chain(placed).chain(unstarted).collect()
    }

    /// How many containers hold each class of CPUs, by QoS class.
    pub fn container_counts(&self) -> BTreeMap<(CpuClass, Option<QosClass>), usize> {
        let mut counts = BTreeMap::new();
        for (_, container, held) in self.held_containers() {
            *counts.entry((held.class(), container.spec.pod.qos)).or_default() += 1;
        }
        counts
    }

    /// What `bayplan status` shows of the state.
    pub fn status(&self) -> Status {
        let ledger = &self.ledger;
        let pools = ledger.pools();
        let owned = pools.allocatable().difference(ledger.free());
        let narrowings = self.narrowings();
        let (idle, closed) = self.kept_by_all();
        let ids = self.containers.ids();
        let mut containers: Vec<ContainerStatus> =
            ids.filter_map(|id| self.container_status(*id, &narrowings)).collect();
        containers.sort_by_key(ContainerStatus::full_name);
        Status {
            front_end: None,
            format: "bayplan-status/1".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: self.mode,
            mode_since: self.mode_since,
            cpus: ClassedCpus {
                exclusive: owned.to_string(),
                shared: ledger.free().to_string(),
                reserved: pools.reserved().to_string(),
                isolated: pools.isolated().to_string(),
                idle: idle.to_string(),
                closed: closed.to_string(),
                lent: self.lent_now().to_string(),
            },
            pools: pools
                .iter()
                .map(|pool| PoolStatus {
                    name: pool.name.clone(),
                    cpus: pool.cpus.to_string(),
                    shared_cpus: ledger.shared_cpus(pool.id).to_string(),
                    shared_requests_milli: ledger.shared_requests(pool.id).0,
                })
                .collect(),
            containers,
            groups: self.group_statuses(),
            clocks: self.clock_statuses(),
            config: None,
        }
    }

    /// The uid of a container's pod.
    pub fn pod_uid(&self, id: ContainerId) -> Option<&str> {
        Some(&self.containers.get(&id)?.spec.pod.uid)
    }

    /// Containers that have other CPUs than those that they were told, because an update of theirs has failed.
    pub fn failed_updates(&self) -> usize {
        let held = self.told.held().iter();
        let off = held.filter(|(runtime_id, held)| {
            let wanted = self.containers.id_of(runtime_id).and_then(|id| self.pinning(id));
            wanted.is_some_and(|wanted| is_elsewhere(held, &wanted))
        });
        off.count()
    }

    fn container_status(
        &self,
        id: ContainerId,
        narrowings: &[Narrowing],
    ) -> Option<ContainerStatus> {
        let container = self.containers.get(&id)?;
        let (allocation, pinning) = (self.ledger.allocation(id)?, self.pinning(id)?);
        let spec = &container.spec;
        // Memory that the rebalancer has brought home has these nodes already.
        let is_new = |it: &&Narrowing| it.container == id && it.to != pinning.mems;
        let narrowing = narrowings.iter().find(is_new);
        let held = container.runtime_id.as_ref().and_then(|id| self.told.held().get(id));
        let held = held.filter(|held| is_elsewhere(held, &pinning));
        Some(ContainerStatus {
            id: container.runtime_id.clone(),
            namespace: spec.pod.namespace.clone(),
            pod: spec.pod.name.clone(),
            container: spec.name.clone(),
            qos: spec.pod.qos.map(|qos| qos.name().to_owned()),
            cgroup_parent: spec.pod.cgroup_parent.clone(),
            class: allocation.class().name().to_owned(),
            phase: container.phase.name().to_owned(),
            resize: container.resize_name().to_owned(),
            asked: container.decision.asked.clone(),
            exclusive: allocation.exclusive.to_string(),
            cpus: pinning.cpus.to_string(),
            exclusive_of_pod: self.exclusive_of_pod(allocation).to_string(),
            mems: pinning.mems.to_string(),
            cpus_left_alone: allocation.terms.preserve.cpus && !container.claim.is_pinned(),
            mems_left_alone: allocation.terms.preserve.memory,
            pool: match allocation.is_reserved {
                true => "reserved".to_owned(),
                false => self.ledger.pools().get(allocation.pool)?.name.clone(),
            },
            group: self.groups.name_for(id).unwrap_or_default(),
            held: held.map(|held| HeldSets {
                cpus: held.cpus.to_string(),
                mems: held.mems.to_string(),
                why: "the runtime has not taken the update; it is told again".to_owned(),
                is_expected: false,
            }),
            intruders: Vec::new(),
            has_wide_vectors: self.has_wide_vectors(spec),
            narrowing: narrowing.map(|it| NarrowingStatus {
                to: it.to.to_string(),
                moves_bytes: it.moves_memory.map(|bytes| bytes.0),
            }),
        })
    }

    fn exclusive_of_pod(&self, held: &Allocation) -> CpuSet {
        let holder = self.ledger.holder_of(held.terms.owner);
        let holder = holder.filter(|_| matches!(held.terms.part, Part::Holder | Part::Joined));
        holder.map(|(_, holder)| holder.exclusive.clone()).unwrap_or_default()
    }

    /// Everything about containers with a name, pod, `namespace/pod/container` or runtime id that begins with `name`; live ones first, then the
    /// latest of those that are gone.
    pub fn explain(&self, name: &str) -> Vec<Explanation> {
        let narrowings = self.narrowings();
        let live = self.containers.iter().filter(|(_, container)| {
            let by_id = container.runtime_id.as_ref().is_some_and(|id| id.starts_with(name));
            by_id || matches(&container.full_name(), name)
        });
        let mut found: Vec<Explanation> = live
            .map(|(id, container)| Explanation {
                container: container.full_name(),
                now: self.container_status(*id, &narrowings),
                decision: container.decision.clone(),
                known: self.known_view(*id).map(Box::new),
                isolation: None,
                vectors: self.vectors_view(*id),
                files: Vec::new(),
                rebalance: Vec::new(),
                front_end: None,
                end: None,
            })
            .collect();
        if found.is_empty() {
            let gone = self.history.iter().rev().filter(|gone| matches(&gone.name, name));
            found.extend(gone.take(1).map(|gone| Explanation {
                container: gone.name.clone(),
                now: None,
                decision: gone.decision.clone(),
                known: None,
                isolation: None,
                vectors: None,
                files: Vec::new(),
                rebalance: Vec::new(),
                front_end: None,
                end: gone.end.clone(),
            }));
        }
        found
    }
}

/// Whether CPUs that a container was found with, or had before an update of it failed, are not those that it is to have.
fn is_elsewhere(held: &Pinning, wanted: &Pinning) -> bool {
    !wanted.cpus.is_empty() && held.cpus != wanted.cpus
}
