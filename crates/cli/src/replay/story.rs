//! One side of a history as `simulate` judges it. In: which container came, where it was put, which moved, which went. Out: a trace, and what became
//! of its events.

use std::collections::BTreeMap;

use bayplan_node::history::{Entry, Place};
use bayplan_types::{Bytes, CpuSet, NodeSet, QosClass};
use bayplan_workload::NewContainer;

use crate::simulate::placement::{Effect, Kind, Outcome, Placed, PlacementRow};
use crate::simulate::trace::{Event, Op, Trace, Wanted};

/// What became of a container that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has a place.
    Placed(Place),
    /// It has none, for this reason.
    Refused(String),
}

/// One side of a history.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) trace: Trace,
    pub(crate) rows: Vec<PlacementRow>,
    /// Containers that moved since the last event, with the CPUs of their own.
    moved: BTreeMap<String, CpuSet>,
}

impl Story {
    pub(crate) fn new() -> Story {
        let trace = Trace { name: String::new(), machine: String::new(), events: Vec::new() };
        Story { trace, rows: Vec::new(), moved: BTreeMap::new() }
    }

    /// The container of this number came.
    pub(crate) fn come(&mut self, number: usize, wanted: &Wanted, fate: &Fate) {
        let moved = std::mem::take(&mut self.moved);
        let effect = Effect { updates: 0, moved };
        let outcome = match fate {
            Fate::Refused(why) => {
                self.effect(effect);
                Outcome::Refused { why: why.clone() }
            }
            Fate::Placed(place) => Outcome::Placed(Box::new(placed(place, wanted, effect))),
        };
        self.push(number.to_string(), Op::Create(wanted.clone()), outcome);
    }

    /// The container of this number has another place because of itself.
    pub(crate) fn change(&mut self, number: usize, wanted: &Wanted, fate: &Fate) {
        if matches!(fate, Fate::Placed(_)) {
            self.go(number);
        }
        self.come(number, wanted, fate);
    }

    /// The container of this number went.
    pub(crate) fn go(&mut self, number: usize) {
        self.settle();
        self.push(number.to_string(), Op::Remove, Outcome::Removed(Effect::default()));
    }

    /// The container of this number has another place because of another one. One that keeps its exclusive CPUs has not moved here.
    pub(crate) fn moved(&mut self, number: usize, entry: &Entry) {
        let own = |place: &Option<Place>| place.as_ref().map(|place| set(&place.own));
        let (before, after) = (own(&entry.before), own(&entry.after));
        if let Some(cpus) = after.filter(|cpus| !cpus.is_empty() && before.as_ref() != Some(cpus)) {
            self.moved.insert(number.to_string(), cpus);
        }
    }

    /// Containers that moved are where they are.
    pub(crate) fn settle(&mut self) {
        let moved = std::mem::take(&mut self.moved);
        self.effect(Effect { updates: 0, moved });
    }

    /// No container came or went, and yet one moved.
    fn effect(&mut self, effect: Effect) {
        if !effect.moved.is_empty() {
            self.push(String::new(), Op::Remove, Outcome::Removed(effect));
        }
    }

    fn push(&mut self, id: String, op: Op, outcome: Outcome) {
        self.rows.push(PlacementRow { id: id.clone(), op: op.name(), outcome });
        self.trace.events.push(Event { id, op });
    }
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap_or_default()
}

fn placed(place: &Place, wanted: &Wanted, effect: Effect) -> Placed {
    let (exclusive, cpus) = (set(&place.own), set(&place.cpus));
    let kind = match (exclusive.is_empty(), cpus == exclusive || wanted.is_exclusive()) {
        (true, _) => Kind::Shared,
        (false, true) => Kind::Exclusive,
        (false, false) => Kind::Mixed,
    };
    let mems: NodeSet = place.mems.parse().unwrap_or_default();
    Placed { kind, exclusive, cpus, mems, effect }
}

/// What a container asks for, as a pod spec has it.
pub(crate) fn wanted(spec: &NewContainer) -> Wanted {
    let limit = u64::try_from(spec.resources.memory_limit).ok().filter(|limit| *limit > 0);
    Wanted {
        pod: format!("{}/{}", spec.pod.namespace, spec.pod.name),
        namespace: spec.pod.namespace.clone(),
        annotations: spec.pod.annotations.clone(),
        labels: spec.pod.labels.clone(),
        qos: spec.pod.qos.unwrap_or(QosClass::Burstable),
        cpu_request: spec.resources.cpu_request(spec.pod.qos),
        cpu_limit: spec.resources.cpu_limit(),
        memory_limit: limit.map(Bytes),
    }
}
