//! How many CPUs a pod and a namespace may keep from others beside those that they own. In: the place that a container would have. Out: the
//! same, a place without the wish that goes too far, or why there is none.

use std::collections::BTreeSet;

use bayplan_allocator::{Allocation, Offer, Refusal, Request, Siblings, Strictness};
use bayplan_types::CpuSet;
use bayplan_workload::NewContainer;
use bayplan_workload::annotations::{Field, Warning, WarningKind, Wish, is_allowed_by_rule};

use crate::container::full_name;
use crate::event::Step;
use crate::state::NodeState;

/// What came of a request: the request as it counts, and its place.
pub(super) type Bounded = (Request, Result<Offer, Refusal>);

impl NodeState {
    /// The place of a new container. A wish that keeps more CPUs from others than the ceilings let it is taken back, which `warnings` tells.
    ///
    /// # Errors
    /// It requires to keep more.
    pub(super) fn offer_bounded(
        &mut self,
        request: Request,
        spec: &NewContainer,
        is_final: bool,
        warnings: &mut Vec<Warning>,
        step: &mut Step,
    ) -> Result<Bounded, String> {
        let offered = self.offer_with_room(&request, &full_name(spec), is_final, step);
        let over = offered.as_ref().ok().and_then(|it| self.over(&request, spec, it.allocation()));
        let Some(why) = over else {
            let place = offered.as_ref().ok().map(|it| it.allocation());
            warnings.extend(place.and_then(|it| self.overfills(it)));
            warnings.extend(self.bursts_wider(&request));
            if place.is_some() {
                warnings.extend(self.unmet_here(&request, spec));
            }
            return Ok((request, offered));
        };
        match self.with_usual_siblings(&request, &why, warnings) {
            Some(request) => self.offer_bounded(request, spec, is_final, warnings, step),
            None => Err(format!(
                "refused: it requires to be apart from other exclusive containers, and {why}"
            )),
        }
    }

    /// The request without a preference that keeps too many CPUs from others; `None`: it has none.
    pub(crate) fn with_usual_siblings(
        &self,
        request: &Request,
        why: &str,
        warnings: &mut Vec<Warning>,
    ) -> Option<Request> {
        let usual = self.rules.wishes.cpus.siblings;
        if request.wishes.cpus.siblings == usual {
            return None;
        }
        let word = if request.wishes.cpus.siblings == Siblings::Idle { "idle" } else { "shared" };
        let text = format!("its preference for {word} siblings has no effect: {why}");
        warnings.push(Warning { kind: WarningKind::OverCeiling, text });
        let mut request = request.clone();
        request.wishes.cpus.siblings = usual;
        Some(request)
    }

    /// By how much a place goes too far; `None`: it does not.
    pub(crate) fn over(
        &self,
        request: &Request,
        spec: &NewContainer,
        place: &Allocation,
    ) -> Option<String> {
        let cpus = &request.wishes.cpus;
        let is_apart = matches!(cpus.apart, Some((_, Strictness::Required)));
        if !is_apart && cpus.siblings == self.rules.wishes.cpus.siblings {
            return None;
        }
        let wish = Wish { field: Field::Apart, value: None, is_harmful: false };
        if is_allowed_by_rule(&wish, &spec.pod.namespace, &self.rules) {
            return None;
        }
        let owner = place.terms.owner;
        let (ceilings, pools) = (self.rules.ceilings, self.ledger.pools());
        let core = pools.threads_max();
        let (owned, kept) = self.kept(place, |it| it.terms.owner.pod == owner.pod);
        let most = owned.len() * ceilings.pod_percent / 100 + core;
        if kept.len() > most {
            return Some(format!(
                "its pod, which owns {} CPUs, would keep {} more from others (at most {most}, closedCpus.podPercent)",
                owned.len(),
                kept.len(),
            ));
        }
        let (_, kept) = self.kept(place, |it| it.terms.owner.namespace == owner.namespace);
        let most = core.max(pools.allocatable().len() * ceilings.namespace_percent / 100);
        (kept.len() > most).then(|| {
            format!(
                "its namespace would keep {} CPUs from others beside those that it owns (at most {most}, closedCpus.namespacePercent)",
                kept.len(),
            )
        })
    }

    /// CPUs that the containers of an owner own, and those that they keep from others beside these.
    fn kept(&self, place: &Allocation, is_one: impl Fn(&Allocation) -> bool) -> (CpuSet, CpuSet) {
        let held = self.ledger.allocations().map(|(_, it)| it).filter(|it| is_one(it));
        let (mut owned, mut kept) = (CpuSet::new(), CpuSet::new());
        for it in held.chain([place]) {
            owned.union_with(&it.exclusive);
            kept.union_with(&self.ledger.kept_by(it));
        }
        let kept = kept.difference(&owned);
        (owned, kept)
    }

    /// Told where a container asks to burst over a level of which no shared CPUs are: containers share whole NUMA nodes at least.
    fn bursts_wider(&self, request: &Request) -> Option<Warning> {
        let level = request.wishes.place.burst_level?;
        let is_asked = self.rules.wishes.place.burst_level != Some(level);
        let applies = request.demand.exclusive() == 0 && request.ceiling.is_none();
        if !is_asked || !applies || self.ledger.pools().shares_level(level) {
            return None;
        }
        let text = format!(
            "annotation `unlimited-burstable` has no effect: no {level} of this machine has shared CPUs of its own, the next larger domain is used"
        );
        Some(Warning { kind: WarningKind::NoEffect, text })
    }

    /// CPUs that are left idle for containers, and those that are closed to other owners beside these.
    pub fn kept_by_all(&self) -> (CpuSet, CpuSet) {
        let (mut idle, mut closed) = (CpuSet::new(), CpuSet::new());
        let keeps = |it: &Allocation| !it.idle.is_empty() || it.terms.closes.is_some();
        for (_, it) in self.ledger.allocations().filter(|(_, it)| keeps(it)) {
            idle.union_with(&it.idle);
            closed.union_with(&self.ledger.kept_by(it));
        }
        let closed = closed.difference(&idle);
        (idle, closed)
    }

    /// Told where pods on the reserved CPUs request more than these are.
    pub(super) fn overfills(&self, place: &Allocation) -> Option<Warning> {
        let reserved = self.ledger.pools().reserved();
        if !place.is_reserved || reserved.is_empty() {
            return None;
        }
        let held = self.ledger.allocations().map(|(_, it)| it).filter(|it| it.is_reserved);
        let milli: u64 = held.chain([place]).filter_map(|it| it.shared).map(|it| it.0).sum();
        let capacity = 1000 * reserved.len() as u64;
        (milli > capacity && place.shared.is_some_and(|it| it.0 > 0)).then(|| Warning {
            kind: WarningKind::ReservedFull,
            text: format!(
                "containers on the reserved CPUs {reserved} request {milli}m together, more than the {capacity}m that these are"
            ),
        })
    }

    /// What a pod's author is told: without the names of other pods' containers, which only `explain` has.
    pub(super) fn without_names(&self, text: &str, spec: &NewContainer) -> String {
        const OTHER: &str = "a container of another pod";
        let others = self.containers.values().filter(|it| !it.spec.pod.is(&spec.pod));
        let names: BTreeSet<String> = others.map(|it| it.full_name()).collect();
        // Longer names first: one may begin with another.
        let mut named: Vec<&String> = names.iter().filter(|it| text.contains(*it)).collect();
        named.sort_by_key(|it| std::cmp::Reverse(it.len()));
        let told = named.iter().fold(text.to_owned(), |text, it| text.replace(it.as_str(), OTHER));
        let twice = format!("{OTHER}, {OTHER}");
        let mut told = told;
        while told.contains(&twice) {
            told = told.replace(&twice, OTHER);
        }
        told
    }
}
