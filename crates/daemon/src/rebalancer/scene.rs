//! Which container runs where, in the words of the rebalancer. In: occupancy, the machine, how long every container is where it is. Out: a scene.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_node::occupancy::{ClockStanding, Occupancy, Occupant};
use bayplan_node::turned::{Turn, Turned};
use bayplan_rebalance::{ClockPlace, Knob, Mode, Resident, Scene, Unrest, Workload};
use bayplan_topology::Topology;
use bayplan_types::{CpuClass, CpuSet, NodeId, NodeSet, QosClass};
use bayplan_workload::annotations::RebalanceWish;

use super::reach::Reach;
use crate::config::RebalanceConfig;
use crate::enforcer::{Drift, SCARCE};

/// Since when every container is where it is.
#[derive(Debug, Default)]
pub(super) struct Stays(BTreeMap<ContainerId, (String, CpuSet, NodeSet, Duration)>);

impl Stays {
    /// A container that is new or elsewhere is there since `now`.
    pub(super) fn note(&mut self, occupancy: &Occupancy, now: Duration) {
        let mut before = std::mem::take(&mut self.0);
        for Occupant { id, runtime_id, cpus, mems, .. } in &occupancy.occupants {
            let known = before
                .remove(id)
                .filter(|(was, at, on, _)| was == runtime_id && at == cpus && on == mems);
            let new = || (runtime_id.clone(), cpus.clone(), mems.clone(), now);
            self.0.insert(*id, known.unwrap_or_else(new));
        }
    }

    fn since(&self, id: ContainerId) -> Duration {
        self.0.get(&id).map_or(Duration::ZERO, |(.., since)| *since)
    }
}

/// How far the rebalancer may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    /// With which containers.
    pub(super) config: &'a RebalanceConfig,
    /// With what.
    pub(super) reach: &'a Reach,
}

/// The node at the end of a round; `is_late`: the round ended much later than it should have.
pub(super) fn scene_of(
    occupancy: &Occupancy,
    topology: Arc<Topology>,
    stays: &Stays,
    bounds: Bounds<'_>,
    is_late: bool,
) -> Scene {
    let modes = modes_of(occupancy, bounds);
    let resident = |it: &Occupant| {
        let mode = modes.get(&it.id).copied().unwrap_or(Mode::Off);
        let mut knobs = knobs_of(it, &topology);
        knobs.extend(classes_of(it, &occupancy.turned, bounds.reach));
        if mode == Mode::Act {
            knobs.retain(|knob| may_turn(*knob, it, occupancy, &modes, bounds.reach));
        }
        let resident = Resident {
            name: it.name.clone(),
            workload: workload_of(it),
            qos: it.spec.pod.qos,
            class: it.class,
            cpus: if it.cpus.is_empty() { topology.cpus().clone() } else { it.cpus.clone() },
            exclusive: it.exclusive.clone(),
            mems: it.mems.clone(),
            since: stays.since(it.id),
            mode,
            knobs,
        };
        (it.id, resident)
    };
    let unrest = [
        (occupancy.is_rebalance_paused, Unrest::Paused),
        (occupancy.is_restored, Unrest::Restored),
        (!occupancy.is_at_rest, Unrest::Creating),
        (is_late, Unrest::Overload),
    ];
    Scene {
        residents: occupancy.occupants.iter().map(resident).collect(),
        shared: occupancy.shared.clone(),
        idle: BTreeMap::new(),
        touched: BTreeSet::new(),
        intruders: BTreeMap::new(),
        disallowed: disallowed(occupancy, &modes, bounds.reach),
        contested: BTreeSet::new(),
        clocks: occupancy.clocks.iter().map(|(id, it)| (*id, clock_place(it))).collect(),
        unrest: unrest.into_iter().find(|(holds, _)| *holds).map(|(_, unrest)| unrest),
        topology,
    }
}

fn clock_place(it: &ClockStanding) -> ClockPlace {
    ClockPlace { leave: it.leave.clone(), is_better_away: it.gain_at_home > 0 }
}

/// What was measured while another program changed kernel files is not what was decided, so nothing is changed or judged by it. A container with
/// contested files is not acted on until they are not: else one fight would stop everything.
pub(super) fn note_drift(scene: &mut Scene, drift: &Drift) {
    for (id, it) in &mut scene.residents {
        if drift.contested.contains(&it.name) {
            it.mode = it.mode.min(Mode::Observe);
            scene.contested.insert(*id);
        }
        if it.mode != Mode::Off && drift.changed.contains(&it.name) {
            scene.unrest.get_or_insert(Unrest::Drift);
        }
    }
}

/// How far to go with each container. Where nothing can be turned, it is said what would be.
fn modes_of(occupancy: &Occupancy, bounds: Bounds<'_>) -> BTreeMap<ContainerId, Mode> {
    let Bounds { config, reach } = bounds;
    let most = if reach.knobs.is_empty() { Mode::Observe } else { Mode::Act };
    let mode =
        |it: &Occupant| config.mode_of(&it.spec.pod.namespace, it.tuning.rebalance).min(most);
    occupancy.occupants.iter().map(|it| (it.id, mode(it))).collect()
}

/// Proposals in force that could not be made any more under this configuration, or beside the containers that have come since. Those of containers that are not to be acted on are
/// found by their modes.
fn disallowed(
    occupancy: &Occupancy,
    modes: &BTreeMap<ContainerId, Mode>,
    reach: &Reach,
) -> BTreeSet<u64> {
    let may = |turn: &Turn| {
        let target = occupancy.occupants.iter().find(|it| it.id == turn.target);
        target.is_none_or(|it| may_turn(turn.knob, it, occupancy, modes, reach))
    };
    let over = occupancy.turned.iter().filter(|(_, turn)| !may(turn));
    over.map(|(number, _)| number).collect()
}

/// Whether a knob of a container that is to be acted on can be turned here, without touching others that are not.
fn may_turn(
    knob: Knob,
    of: &Occupant,
    occupancy: &Occupancy,
    modes: &BTreeMap<ContainerId, Mode>,
    reach: &Reach,
) -> bool {
    let all_act = |concerns: &dyn Fn(&Occupant) -> bool| {
        let concerned = occupancy.occupants.iter().filter(|it| concerns(it));
        concerned.map(|it| modes.get(&it.id)).all(|mode| mode == Some(&Mode::Act))
    };
    match knob {
        Knob::Evict => true,
        other if !reach.knobs.contains(&other) => false,
        // The whole pod is idle then.
        Knob::Idle => all_act(&|it| it.spec.pod.id == of.spec.pod.id),
        Knob::Suppress => all_act(&|it| it.spec.pod.qos == Some(QosClass::BestEffort)),
        // A pod that has said how much it may save up has decided that.
        Knob::Burst => of.tuning.burst_percent.is_none(),
        Knob::Clock => of.spec.pod.qos.is_some_and(|it| occupancy.clock_classes.contains(&it)),
        // Exclusive CPUs are a promise: only a pod with the annotation has agreed to others.
        Knob::MoveOwner => of.tuning.rebalance == Some(RebalanceWish::Act),
        _ => true,
    }
}

/// What could be turned for it or on it. Not its weight: a container's and a pod's count among those of their QoS class only, and those of the classes are
/// kubelet's, which writes them every minute.
fn knobs_of(it: &Occupant, topology: &Topology) -> BTreeSet<Knob> {
    // One that runs on exclusive CPUs of its pod is of that class, and has no others to go to.
    let shares = it.exclusive.is_empty() && it.class != CpuClass::Exclusive && !it.is_left_alone;
    let is_best_effort = it.spec.pod.qos == Some(QosClass::BestEffort);
    let is_limited = it.spec.resources.cpu_quota > 0;
    let owns_all = !it.exclusive.is_empty() && it.cpus.is_subset(&it.exclusive);
    // Of a container that nothing binds to its place, the caches and nodes of the machine; else those of its own CPUs.
    let has_choice = |cpus: &CpuSet| is_wide(topology, cpus);
    let may_go = !it.is_immovable
        && (has_choice(&it.cpus) || (it.may_share_elsewhere && has_choice(topology.cpus())));
    let around = topology.nodes_of(&it.cpus);
    // No container leaves its NUMA nodes with exclusive CPUs.
    let has_other_cache = || around.iter().all(|node| node_is_wide(topology, node));
    let may_go_as_owner = owns_all && !it.is_immovable && !it.is_left_alone && has_other_cache();
    let offered = [
        (Knob::Idle, shares && is_best_effort),
        (Knob::Siblings, shares),
        (Knob::Suppress, shares && is_best_effort),
        (Knob::Gather, shares && !it.is_immovable && caches_of(topology, &it.cpus) > 1),
        (Knob::Burst, is_limited && shares),
        (Knob::Move, shares && may_go),
        (Knob::Clock, shares && !it.is_immovable && it.may_share_elsewhere),
        (Knob::Memory, it.home.is_ok()),
        (Knob::MoveOwner, may_go_as_owner),
        (Knob::Evict, true),
    ];
    offered.into_iter().filter(|(_, is_there)| *is_there).map(|(knob, _)| knob).collect()
}

/// Whether the CPUs of a NUMA node have several last-level caches.
fn node_is_wide(topology: &Topology, node: NodeId) -> bool {
    topology.node(node).is_some_and(|it| caches_of(topology, &it.cpus) > 1)
}

/// Whether CPUs have several last-level caches or NUMA nodes.
fn is_wide(topology: &Topology, cpus: &CpuSet) -> bool {
    topology.nodes_of(cpus).len() > 1 || caches_of(topology, cpus) > 1
}

fn caches_of(topology: &Topology, cpus: &CpuSet) -> usize {
    topology.caches().iter().filter(|it| it.level == 3 && it.cpus.intersects(cpus)).count()
}

/// Knobs that are a class with less than its own, as far as they are not turned already. Threads are in one class, so where one of them is turned the others are not
/// offered. Where there are none, it is not said that there should be.
fn classes_of(it: &Occupant, turned: &Turned, reach: &Reach) -> impl Iterator<Item = Knob> {
    let is_turned = |knob: Knob| turned.step(knob, it.id) > 0;
    let left = SCARCE.into_iter().filter(move |(knob, scarce)| {
        if SCARCE.iter().any(|(other, _)| other != knob && is_turned(*other)) {
            return false;
        }
        let steps = reach.classes.as_ref().map_or(0, |classes| classes.narrower(it, *scarce));
        usize::try_from(turned.step(*knob, it.id)).is_ok_and(|step| step < steps)
    });
    left.map(|(knob, _)| knob)
}

/// A container of another image is another version, of which something else is usual.
fn workload_of(it: &Occupant) -> Workload {
    let (pod, container, image) = (&it.spec.pod, it.spec.name.clone(), it.spec.image.clone());
    let (namespace, owner) = (pod.namespace.clone(), pod.made_by().to_owned());
    Workload { namespace, owner, container, image }
}
