//! CPUs that another component has chosen for a pod, in the state. In: what the pods say. Out: pools without these CPUs, and which containers have to
//! move for that. Which they are: `claims.rs` of the crate.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_allocator::{Allocation, ContainerId, Ledger, PoolId, Request, plan_way};
use bayplan_types::{CpuSet, MilliCpu, QosClass};
use bayplan_workload::annotations::may_claim;
use bayplan_workload::{NewContainer, Pod};
use jiff::Timestamp;

use super::NodeState;
use crate::claims::{Claim, shown_cpus};
use crate::container::Container;
use crate::event::{Answer, Step};
use crate::history::By;
use crate::names::list_names;

/// Also of a sandbox that was replaced.
fn is_same_pod(one: &Pod, other: &Pod) -> bool {
    let is_named_alike = (&one.namespace, &one.name) == (&other.namespace, &other.name);
    one.is(other) || (!one.name.is_empty() && is_named_alike)
}

impl NodeState {
    /// What was chosen for the pod of a container.
    pub(crate) fn claim_of(&self, id: ContainerId, spec: &NewContainer) -> Claim {
        if !may_claim(&spec.pod) {
            return Claim::default();
        }
        let wishes = self.request(id, spec).0.wishes;
        Claim { is_left_alone: wishes.preserve.cpus, cpus: wishes.claimed }
    }

    /// The CPUs on which a container runs because they were chosen for its pod: as far as they are online, and in no cpuset partition. `None` also
    /// where no such CPU is left; then it shares those of all.
    pub(crate) fn chosen_cpus(&self, id: ContainerId) -> Option<CpuSet> {
        let claim = Some(&self.containers.get(&id)?.claim).filter(|it| it.is_pinned())?;
        let cpus = claim.cpus.intersection(&self.machine.unplaced_cpus());
        (!cpus.is_empty()).then_some(cpus)
    }

    /// An empty ledger of the machine without what is claimed.
    pub(crate) fn take_claims(&mut self) {
        let claimed = self.claimed_now();
        self.take_claimed(claimed);
    }

    fn take_claimed(&mut self, claimed: CpuSet) {
        self.claimed = claimed;
        self.ledger = Ledger::new(self.machine.with_claimed(&self.claimed).into());
    }

    fn claimed_now(&self) -> CpuSet {
        let mut claimed = CpuSet::new();
        self.containers.values().for_each(|it| claimed.union_with(&it.claim.cpus));
        claimed
    }

    /// What is claimed since the last time leaves the pools, and what is not any more returns to them.
    pub(crate) fn settle_claims(&mut self, now: Timestamp, step: &mut Step) {
        let claimed = self.claimed_now();
        if claimed == self.claimed {
            return;
        }
        let gained = claimed.difference(&self.claimed);
        let has_gained = |it: &Container| it.claim.cpus.intersects(&gained);
        let newcomer = self.containers.iter().find(|(_, it)| has_gained(it)).map(|(id, _)| *id);
        self.exchange_claims(claimed, newcomer, now, step);
    }

    fn exchange_claims(
        &mut self,
        claimed: CpuSet,
        newcomer: Option<ContainerId>,
        now: Timestamp,
        step: &mut Step,
    ) {
        let moves = plan_way(&self.ledger, &claimed.difference(&self.claimed));
        self.ledger.move_sharers(&moves);
        if let Some(newcomer) = newcomer {
            self.note_moves(&moves, newcomer, step);
        }
        let places = self.forms();
        self.take_claimed(claimed);
        self.replan_from(&places, By::Room, &BTreeMap::new(), now, step);
    }

    /// Which containers would not keep their exclusive CPUs, which must not be taken from them, because what they share beside them is claimed.
    fn containers_that_would_lose(&self, claimed: &CpuSet, now: Timestamp) -> Option<String> {
        let mut then = self.clone();
        let all = self.claimed.union(claimed);
        then.exchange_claims(all, None, now, &mut Step::new(Answer::Done));
        let own = |state: &NodeState, id: &ContainerId| {
            state.ledger.allocation(*id).map(|it| it.exclusive.clone()).unwrap_or_default()
        };
        let losers =
            self.containers.iter().filter(|(id, _)| !own(self, id).is_subset(&own(&then, id)));
        let names = list_names(losers.map(|(_, it)| it.full_name()));
        (!names.is_empty()).then(|| format!("{names} would lose exclusive CPUs"))
    }

    /// The place of a container in the journal; that of one with CPUs that were chosen holds none, whatever a daemon has written that knew nothing of
    /// that.
    pub(crate) fn as_claimed(&self, id: ContainerId, had: Allocation) -> Allocation {
        let claiming = self.containers.get(&id).filter(|it| !it.claim.cpus.is_empty());
        let holds = !had.exclusive.is_empty() || had.shared != Some(MilliCpu::ZERO);
        let Some(container) = claiming.filter(|_| holds) else { return had };
        Allocation {
            shared: Some(MilliCpu::ZERO),
            mems: had.mems,
            charges: had.charges,
            huge_charges: had.huge_charges,
            terms: self.request(id, &container.spec).0.terms(),
            ..Allocation::new(PoolId::MACHINE)
        }
    }

    /// Why a new container cannot have the CPUs that were chosen for its pod.
    pub(crate) fn claim_refused(
        &self,
        spec: &NewContainer,
        request: &Request,
        now: Timestamp,
    ) -> Option<String> {
        let claimed = &request.wishes.claimed;
        if claimed.is_empty() {
            return None;
        }
        let chosen = shown_cpus(claimed);
        let why = self.in_the_way(&spec.pod, claimed);
        let why = why.or_else(|| self.containers_that_would_lose(claimed, now))?;
        Some(format!("refused: CPUs {chosen} were chosen for its pod, but {why}"))
    }

    fn in_the_way(&self, pod: &Pod, claimed: &CpuSet) -> Option<String> {
        let (machine, ledger) = (&*self.machine, &self.ledger);
        let online = machine.cpus();
        for (cpus, why) in [
            (claimed.difference(&online), "are not online"),
            (claimed.intersection(machine.reserved()), "are reserved"),
            (
                claimed.intersection(&online).difference(&machine.unplaced_cpus()),
                "are in a cpuset partition or claimed of the DRA CPU driver",
            ),
        ] {
            if !cpus.is_empty() {
                return Some(format!("CPUs {} {why}", shown_cpus(&cpus)));
            }
        }
        let owned = |id: &ContainerId, _: &Container| {
            let held = ledger.allocation(*id);
            let held = held.map(|it| it.exclusive.union(&it.idle).union(&ledger.closed_by(it)));
            held.unwrap_or_default()
        };
        let chosen = |_: &ContainerId, it: &Container| it.claim.cpus.clone();
        let others = self
            .others_with(pod, claimed, owned)
            .map(|(cpus, names)| format!("CPUs {cpus} are owned by {names}"));
        let of_group = || {
            let mut groups =
                ledger.groups().map(|(id, it)| (id, ledger.group_cpus(id).union(&it.idle)));
            let (id, cpus) = groups.find(|(_, cpus)| cpus.intersects(claimed))?;
            let cpus = shown_cpus(&cpus.intersection(claimed));
            Some(format!("CPUs {cpus} are those of the group {}", self.group_name(id)))
        };
        let others = others.or_else(of_group);
        let others = others.or_else(|| {
            let (cpus, names) = self.others_with(pod, claimed, chosen)?;
            Some(format!("CPUs {cpus} were chosen for the pod of {names}, too"))
        });
        let needs = pod.resources.cpu_request(pod.qos);
        // Shares of 2 are those of a pod that requests nothing.
        let is_known = pod.qos == Some(QosClass::BestEffort) || pod.resources.cpu_shares > 0;
        let is_known = is_known || needs > MilliCpu::ZERO;
        let is_unpaid = is_known && needs.cpus_needed() < claimed.len();
        let left = ledger.free().difference(claimed);
        let takes_last = claimed.intersects(ledger.free()) && left.is_empty();
        match others {
            Some(why) => Some(why),
            None if is_unpaid => Some(format!("its containers request {needs} CPUs together")),
            None if takes_last && machine.reserved().is_empty() => {
                Some("no CPU would be left for all others".to_owned())
            }
            None => None,
        }
    }

    /// Those of the CPUs that containers of other pods have, and their names.
    fn others_with(
        &self,
        pod: &Pod,
        claimed: &CpuSet,
        cpus_of: impl Fn(&ContainerId, &Container) -> CpuSet,
    ) -> Option<(String, String)> {
        let others = self.containers.iter().filter(|(_, it)| !is_same_pod(&it.spec.pod, pod));
        let had = others.map(|(id, it)| (cpus_of(id, it).intersection(claimed), it.full_name()));
        let had: Vec<(CpuSet, String)> = had.filter(|(cpus, _)| !cpus.is_empty()).collect();
        let all = had.iter().fold(CpuSet::new(), |all, (cpus, _)| all.union(cpus));
        let names = list_names(had.into_iter().map(|(_, name)| name));
        (!all.is_empty()).then(|| (shown_cpus(&all), names))
    }

    /// Whether its CPUs are for placement to choose.
    pub(crate) fn claims_nothing(&self, id: ContainerId) -> bool {
        let spec = self.containers.get(&id).map(|it| &it.spec);
        spec.is_some_and(|spec| !self.request(id, spec).0.wishes.has_no_choice())
    }

    /// Containers that keep CPUs which were chosen for their pods, although `permissions` do not allow that any more.
    pub(crate) fn keeping_chosen(&self) -> BTreeSet<ContainerId> {
        let keeps = |(id, container): (&ContainerId, &Container)| {
            let spec = Some(&*container.spec).filter(|it| it.keeps_chosen)?;
            let anew = NewContainer { keeps_chosen: false, ..spec.clone() };
            self.request(*id, &anew).0.wishes.claimed.is_empty().then_some(*id)
        };
        self.containers.iter().filter_map(keeps).collect()
    }

    /// Tells of those that did not do so before; `explain` tells of all that do.
    pub(crate) fn note_kept_chosen(&mut self, before: &BTreeSet<ContainerId>, step: &mut Step) {
        let keeping = self.keeping_chosen();
        let chosen = self.containers.iter_mut().filter(|(_, it)| it.spec.keeps_chosen);
        for (id, container) in chosen {
            let text = format!(
                "CPUs {}, which were chosen for its pod, are not allowed in namespace `{}` any more (`permissions` in the configuration); it keeps them until it ends",
                shown_cpus(&container.claim.cpus),
                container.spec.pod.namespace
            );
            container.decision.warnings.retain(|it| *it != text);
            if !keeping.contains(id) {
                continue;
            }
            if !before.contains(id) {
                step.fail("not_allowed", format!("{}: {text}", container.full_name()));
            }
            container.decision.warnings.push(text);
        }
    }

    /// By container, those of its CPUs that are not its pod's alone.
    pub(crate) fn not_alone(&self) -> BTreeMap<ContainerId, CpuSet> {
        let mut alone = self.machine.unplaced_cpus().difference(self.machine.reserved());
        // One where everything is claimed and nothing reserved.
        alone.subtract(&self.claimed.intersection(&self.ledger.pools().allocatable()));
        let claiming = || self.containers.iter().filter(|(_, it)| !it.claim.cpus.is_empty());
        let not_alone = claiming().map(|(id, container)| {
            let mut not_alone = container.claim.cpus.difference(&alone);
            let others =
                claiming().filter(|(_, it)| !is_same_pod(&it.spec.pod, &container.spec.pod));
            for (_, other) in others {
                not_alone.union_with(&container.claim.cpus.intersection(&other.claim.cpus));
            }
            (*id, not_alone)
        });
        not_alone.collect()
    }

    /// Tells of CPUs that are not their pod's alone and were before.
    pub(crate) fn note_not_alone(&self, before: &BTreeMap<ContainerId, CpuSet>, step: &mut Step) {
        for (id, not_alone) in self.not_alone() {
            let new = before.get(&id).map_or(not_alone.clone(), |was| not_alone.difference(was));
            let Some(container) = self.containers.get(&id).filter(|_| !new.is_empty()) else {
                continue;
            };
            let runs = self.pinning(id).map(|it| it.cpus).filter(|cpus| !cpus.is_empty());
            let runs = runs.map(|cpus| format!("; it runs on {}", shown_cpus(&cpus)));
            let message = format!(
                "{}: of CPUs {}, which were chosen for its pod, {} are offline, reserved or another container's{}",
                container.full_name(),
                shown_cpus(&container.claim.cpus),
                shown_cpus(&new),
                runs.unwrap_or_default()
            );
            step.fail("not_alone", message);
        }
    }
}
