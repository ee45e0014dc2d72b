//! Containers that say nothing themselves in a pod that says what it needs as a whole. In: the containers of a pod as CRI describes
//! them. Out: which of them are silent, and what of the pod's figure each counts. Pure.
//!
//! # The rule
//!
//! Since Kubernetes 1.34 a pod may say what it needs as a whole (`spec.resources`, KEP-2837). Kubelet then writes the pod's own figure
//! into the sandbox configuration (`calculateSandboxResources`), and **the pod's limit into every container that has none**
//! (`getCPULimit`, `getMemoryLimit`; of a container without a request, the shares follow its limit). CRI does not tell such a *silent* container
//! from one that asks for as much as its pod. But the containers of a pod never request more together than their pod, so:
//!
//! - **CPU.** Where the containers of a pod that are there request more together than the pod does, those with the shares and quota of the pod's
//!   limit are silent. A container of a Guaranteed pod with a limit above its request is silent too: of a Guaranteed pod without a figure of its own,
//!   both are the same in every container. A container alone in a Guaranteed pod is not silent: all of the pod is its own either way. The first of
//!   several shows itself when the second comes.
//! - **Once silent, silent** for as long as another silent one is there and its limit is its request, or it has none: kubelet resizes pod
//!   and containers one after another, in either order. So a Guaranteed pod needs the most of its last figure and those of its silent containers.
//! - **What counts.** The silent ones together count what the others leave of the pod's figure. The oldest of them counts all of it, the rest
//!   nothing; where it ends, the next one does.
//! - **Exclusive CPUs.** In a Guaranteed pod with whole CPUs the silent ones own what the others leave, together ([`Part`]); the
//!   others own theirs as in any pod. Else all of them share, and the pool counts what the pod requests.
//! - **Memory** of a Guaranteed pod goes by the same sum, for itself: a container may say its CPUs and not its memory. **Huge pages** as well,
//!   where the sandbox configuration names them; else silent containers with the same amount have it together.
//! - **Init containers** that have ended are not there, sidecars are. Where it is not known yet that one has ended, the runtime is asked before the next one of its
//!   pod is placed (`has_ended_mates`); should it not answer, the two share what they would never have at the same time.
//! - **A pod without a figure** (kubelet before 1.23; a container that was found running) has no silent containers but those that were known as such.
//!
//! The daemon keeps in its journal which containers are silent, and the pod's figure.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_allocator::{ContainerId, Demand, Part};
use bayplan_types::{Bytes, MilliCpu, QosClass};

use crate::container::NewContainer;
use crate::resources::{Resources, positive, shares_of};

/// A container of a pod with the ledger's name for it.
pub type Member<'a> = (ContainerId, &'a NewContainer);

/// What of its pod's figure one container counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// CPU time, where it is silent about that; else its own request counts.
    pub cpu: Option<MilliCpu>,
    /// Whether its exclusive CPUs are its pod's.
    pub part: Part,
    /// Memory that is set aside, where it is not its own limit.
    pub memory: Option<Bytes>,
    /// Huge pages, where they are not its own: bytes by size of a page.
    pub huge_pages: BTreeMap<Bytes, Bytes>,
}

impl Share {
    /// Its CPU demand where it is silent: all that is left of the pod for the first one, nothing for the others.
    pub(crate) fn demand(&self) -> Option<Demand> {
        let cpu = self.cpu?;
        Some(match self.part {
            Part::Holder => Demand::new(cpu.whole_cpus(), None),
            _ => Demand::new(0, Some(cpu)),
        })
    }
}

/// Which containers of a pod are silent about their CPUs; by the module's rule.
pub fn silent(members: &[Member<'_>]) -> BTreeSet<ContainerId> {
    let members = latest(members);
    let Some(((_, first), pod)) = members.first().zip(figure(&members)) else {
        return known(&members);
    };
    let qos = first.pod.qos;
    let whole = pod.cpu_request(qos);
    let known = known(&members);
    let requested: MilliCpu = members.iter().map(|(_, it)| it.resources.cpu_request(qos)).sum();
    let is_over = requested > whole;
    let is_silent = |(id, it): &&Member<'_>| {
        let is_known = known.contains(id) && (is_over || known.len() > 1);
        let is_filled = is_over && is_filled(it.resources, pod, qos);
        is_known || is_filled || is_open_ended(it.resources, pod, qos)
    };
    members.iter().filter(is_silent).map(|(id, _)| *id).collect()
}

/// What of the pod's figure the container `id` counts; `None` where that is what it asks for itself.
pub fn share(id: ContainerId, members: &[Member<'_>]) -> Option<Share> {
    let members = latest(members);
    let (_, container) = members.iter().find(|(other, _)| *other == id)?;
    let qos = container.pod.qos;
    let pod = figure(&members).unwrap_or_default();
    let silent: Vec<&NewContainer> =
        members.iter().map(|(_, it)| *it).filter(|it| it.is_silent).collect();
    let mut share = Share::default();
    if container.is_silent {
        let request = |it: &NewContainer| it.resources.cpu_request(qos).0;
        let asked = silent.iter().map(|it| request(it)).max().unwrap_or_default();
        let is_guaranteed = qos == Some(QosClass::Guaranteed);
        let whole = pod.cpu_request(qos).0.max(if is_guaranteed { asked } else { 0 });
        let rows = members.iter().map(|(id, it)| (*id, request(it), it.is_silent));
        let cpu = MilliCpu(counted(id, whole, rows.clone()));
        let rest = MilliCpu(counted_of_first(whole, rows));
        let is_first = silent.first().is_some_and(|it| std::ptr::eq(*it, *container));
        let is_set = is_guaranteed && whole % 1000 == 0 && rest.whole_cpus() > 0;
        share.part = match (is_set, is_first) {
            (false, _) => Part::Alone,
            (true, true) => Part::Holder,
            (true, false) => Part::Joined,
        };
        share.cpu = Some(cpu);
    }
    share.memory = memory(id, &members, pod, qos);
    share.huge_pages = huge_pages(id, container, &members);
    (share != Share::default()).then_some(share)
}

/// Of those that were known as silent, those that may still be: their limit is their request, or not set. Kubelet 1.37 takes the request away when it resizes one of a Guaranteed pod.
fn known(members: &[Member<'_>]) -> BTreeSet<ContainerId> {
    let may_be = |it: &NewContainer| {
        let request = it.resources.cpu_request(it.pod.qos);
        let has_none = request == MilliCpu::ZERO && it.pod.qos == Some(QosClass::Guaranteed);
        let has_same = it.resources.cpu_limit().is_none_or(|limit| limit == request);
        it.is_silent && (has_same || has_none)
    };
    members.iter().filter(|(_, it)| may_be(it)).map(|(id, _)| *id).collect()
}

/// The settings that kubelet writes for a container without CPUs in a pod with this figure.
fn is_filled(resources: Resources, pod: Resources, qos: Option<QosClass>) -> bool {
    let request = resources.cpu_request(qos);
    match (resources.cpu_limit(), pod.cpu_limit()) {
        (Some(limit), Some(of_pod)) => {
            limit == of_pod && positive(resources.cpu_shares) == Some(shares_of(of_pod))
        }
        // Kubelet that enforces no limits writes none; the shares are there.
        (None, None) if qos == Some(QosClass::Guaranteed) => request >= pod.cpu_request(qos),
        (None, None) => request > pod.cpu_request(qos),
        _ => false,
    }
}

/// A limit above the request in a Guaranteed pod; the least quota that kubelet writes is that of 10m (`MinMilliCPULimit`).
fn is_open_ended(resources: Resources, pod: Resources, qos: Option<QosClass>) -> bool {
    let least = MilliCpu(10).max(resources.cpu_request(qos));
    qos == Some(QosClass::Guaranteed)
        && positive(resources.cpu_shares).is_some()
        && pod.cpu_limit().is_some_and(|of_pod| resources.cpu_limit() == Some(of_pod))
        && resources.cpu_limit().is_some_and(|limit| limit > least)
}

fn memory(
    id: ContainerId,
    members: &[Member<'_>],
    pod: Resources,
    qos: Option<QosClass>,
) -> Option<Bytes> {
    let whole = positive(pod.memory_limit).filter(|_| qos == Some(QosClass::Guaranteed))?;
    let limit = |it: &NewContainer| positive(it.resources.memory_limit).unwrap_or(0);
    // Where the pod was made smaller, its containers follow.
    let whole = members.iter().map(|(_, it)| limit(it)).fold(whole, u64::max);
    let of_pod = positive(pod.memory_limit).unwrap_or(0);
    let rows = |counts_silent: bool| {
        members.iter().map(move |(id, it)| {
            let is_filled = !it.says_memory && (limit(it) == of_pod || limit(it) == whole);
            (*id, limit(it), is_filled || (counts_silent && it.is_silent))
        })
    };
    // Where it was made larger, they follow as well.
    let is_behind = own(rows(false)) > whole;
    over(id, whole, rows(is_behind)).map(Bytes)
}

/// Whether a container that is resized in place says its memory itself although the figure is its pod's, or more: what it had before was not
/// filled from the pod. `pod_before` is the pod's figure before the last one, where kubelet has resized the pod first.
pub fn says_memory(
    before: &NewContainer,
    resized: Resources,
    pod_before: Option<Resources>,
) -> bool {
    let limit = |it: Resources| positive(it.memory_limit);
    let (had, has) = (limit(before.resources), limit(resized));
    let of_pod = limit(before.pod.resources);
    if had == has {
        return before.says_memory;
    }
    let is_filled = |pod: Option<u64>| pod.is_some() && had >= pod;
    let was_filled = before.is_silent
        || (!before.says_memory && (is_filled(of_pod) || is_filled(pod_before.and_then(limit))));
    of_pod.is_some() && has >= of_pod && !was_filled
}

/// What those ask for that are not filled from the pod.
fn own(rows: impl Iterator<Item = (ContainerId, u64, bool)>) -> u64 {
    let own = rows.filter(|(_, _, is_filled)| !is_filled);
    own.fold(0, |sum, (_, own, _)| sum.saturating_add(own))
}

fn huge_pages(
    id: ContainerId,
    container: &NewContainer,
    members: &[Member<'_>],
) -> BTreeMap<Bytes, Bytes> {
    let amount = |it: &NewContainer, size| it.huge_pages.get(size).map_or(0, |bytes| bytes.0);
    let of_pod = |size| {
        let named = members.iter().rev().find_map(|(_, it)| it.pod.huge_pages.get(size));
        named.map(|bytes| bytes.0)
    };
    let counted = container.huge_pages.keys().filter_map(|size| {
        let own = amount(container, size);
        let whole = of_pod(size);
        let filled = whole.unwrap_or(own);
        let is_filled =
            |it: &NewContainer| amount(it, size) == filled && (whole.is_some() || it.is_silent);
        let rows = members.iter().map(|(id, it)| (*id, amount(it, size), is_filled(it)));
        let others = rows.clone().filter(|(_, _, is_filled)| !is_filled).map(|(_, own, _)| own);
        let whole = whole.unwrap_or_else(|| others.fold(filled, u64::saturating_add));
        Some((*size, Bytes(over(id, whole, rows)?)))
    });
    counted.collect()
}

/// What one counts where all of them ask for more than `whole`.
fn over(
    id: ContainerId,
    whole: u64,
    rows: impl Iterator<Item = (ContainerId, u64, bool)> + Clone,
) -> Option<u64> {
    let all = rows.clone().fold(0, |sum: u64, (_, own, _)| sum.saturating_add(own));
    (all > whole).then(|| counted(id, whole, rows))
}

/// Of what the others leave the first one that is filled from the pod counts all, and the rest nothing.
fn counted(
    id: ContainerId,
    whole: u64,
    rows: impl Iterator<Item = (ContainerId, u64, bool)> + Clone,
) -> u64 {
    let first = rows.clone().find(|(_, _, is_filled)| *is_filled).map(|(id, _, _)| id);
    match rows.clone().find(|(other, _, _)| *other == id) {
        Some((_, own, false)) => own,
        _ if first == Some(id) => counted_of_first(whole, rows),
        _ => 0,
    }
}

fn counted_of_first(whole: u64, rows: impl Iterator<Item = (ContainerId, u64, bool)>) -> u64 {
    whole.saturating_sub(own(rows))
}

/// The pod's figure as it was heard last; `None` where kubelet does not say it.
fn figure(members: &[Member<'_>]) -> Option<Resources> {
    let is_said = |it: &Resources| it.cpu_request(None) > MilliCpu::ZERO;
    members.iter().rev().map(|(_, it)| it.pod.resources).find(is_said)
}

/// By id. Of an attempt that may or may not have been created, and the one after it, only the later one is there.
fn latest<'a>(members: &[Member<'a>]) -> Vec<Member<'a>> {
    let by_name: BTreeMap<&str, Member<'a>> =
        members.iter().map(|member| (member.1.name.as_str(), *member)).collect();
    let ids: BTreeSet<ContainerId> = by_name.values().map(|(id, _)| *id).collect();
    let mut latest: Vec<Member<'a>> =
        members.iter().filter(|(id, _)| ids.contains(id)).copied().collect();
    latest.sort_by_key(|(id, _)| *id);
    latest
}

#[cfg(test)]
mod tests;
