//! Which knob may help which victim, against which culprit, and what may be asked for it: the table that the arbiter goes down. In: evidence and
//! scene. Out: candidates, least disruptive first.

use bayplan_allocator::ContainerId;
use bayplan_topology::{Level, Topology};
use bayplan_types::{CpuSet, QosClass};

use crate::around::around;
use crate::detect::Judge;
use crate::knob::Knob;
use crate::proposal::{Culprit, Evidence, Proposal, Tie};
use crate::sample::Signal;
use crate::scene::{Mode, Resident, Scene};

/// Something that could be proposed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub knob: Knob,
    pub target: ContainerId,
    /// Steps before this one are left out.
    pub step_min: u32,
    pub leave: CpuSet,
    pub domain: Domain,
    pub mode: Mode,
}

/// Where something is felt: while one proposal there is not judged, there is no other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Domain {
    /// CPUs with tenants that feel it.
    pub cpus: CpuSet,
    /// What it changes for them.
    pub resource: Resource,
}

/// What a knob divides anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Time on CPUs.
    Time,
    /// The inside of cores.
    Cores,
    /// Caches and memory.
    Memory,
    /// All of these.
    Place,
}

impl Domain {
    /// Whether what is measured of one may come from the other.
    pub(crate) fn overlaps(&self, other: &Domain) -> bool {
        let is_same = self.resource == other.resource
            || self.resource == Resource::Place
            || other.resource == Resource::Place;
        is_same && self.cpus.intersects(&other.cpus)
    }
}

/// On which container a knob is turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// A culprit of the lowest QoS class, for a victim of a higher one.
    BestEffort,
    /// A culprit of a lower QoS class than the victim's.
    Lower,
    /// A culprit of the victim's QoS class or a lower one, because this costs it little.
    NotHigher,
    /// The victim itself.
    Victim,
    /// A culprit as in `NotHigher`; the victim where the culprit is more important or cannot be moved.
    Either,
}

struct Row {
    knob: Knob,
    target: Target,
    /// Any of them has to be found.
    signals: &'static [Signal],
    /// The culprit has to be tied to the victim by one of them; empty where it needs none.
    ties: &'static [Tie],
    resource: Resource,
    /// How far it is felt.
    reach: Level,
    /// How often it can be turned further.
    steps: u32,
}

const CPU: &[Signal] = &[Signal::Waiting, Signal::Delay, Signal::Preempted, Signal::CpuPressure];
const SLOW: &[Signal] = &[Signal::CyclesPerInstruction, Signal::CacheMisses];
const ALL: &[Signal] = &[
    Signal::Waiting,
    Signal::Delay,
    Signal::Preempted,
    Signal::CpuPressure,
    Signal::CyclesPerInstruction,
    Signal::CacheMisses,
];
const ANY: &[Tie] = &[Tie::Cpu, Tie::Core, Tie::L3, Tie::Node];
const CACHE: &[Tie] = &[Tie::Cpu, Tie::Core, Tie::L3];
const NONE: &[Tie] = &[];
const HOPS: &[Signal] = &[Signal::Migrations];
const CLOCK: &[Signal] = &[Signal::Clock];

/// So many times as high as its limit a signal is bad.
const SEVERE: f64 = 2.0;

/// In the order of the ladder. An exclusive container gets others of its own NUMA nodes only, so where just a node's memory is shared its move would
/// change nothing.
#[rustfmt::skip]
const TABLE: [Row; 12] = [
    Row { knob: Knob::Idle, target: Target::BestEffort, signals: CPU, ties: &[Tie::Cpu], resource: Resource::Time, reach: Level::L3, steps: 1 },
    Row { knob: Knob::Siblings, target: Target::NotHigher, signals: SLOW, ties: &[Tie::Core], resource: Resource::Cores, reach: Level::L3, steps: 1 },
    Row { knob: Knob::Suppress, target: Target::BestEffort, signals: ALL, ties: ANY, resource: Resource::Memory, reach: Level::L3, steps: 3 },
    Row { knob: Knob::Gather, target: Target::Victim, signals: HOPS, ties: NONE, resource: Resource::Cores, reach: Level::NumaNode, steps: 1 },
    Row { knob: Knob::Burst, target: Target::Victim, signals: &[Signal::Throttled], ties: NONE, resource: Resource::Time, reach: Level::L3, steps: 2 },
    Row { knob: Knob::Cache, target: Target::Lower, signals: SLOW, ties: CACHE, resource: Resource::Memory, reach: Level::L3, steps: 2 },
    Row { knob: Knob::Bandwidth, target: Target::Lower, signals: SLOW, ties: ANY, resource: Resource::Memory, reach: Level::NumaNode, steps: 3 },
    Row { knob: Knob::Move, target: Target::Either, signals: ALL, ties: ANY, resource: Resource::Place, reach: Level::NumaNode, steps: 1 },
    Row { knob: Knob::Clock, target: Target::Victim, signals: CLOCK, ties: NONE, resource: Resource::Place, reach: Level::Package, steps: 1 },
    Row { knob: Knob::Memory, target: Target::Victim, signals: &[Signal::FarMemory], ties: NONE, resource: Resource::Memory, reach: Level::NumaNode, steps: 1 },
    Row { knob: Knob::MoveOwner, target: Target::Either, signals: SLOW, ties: CACHE, resource: Resource::Place, reach: Level::NumaNode, steps: 1 },
    Row { knob: Knob::Evict, target: Target::Lower, signals: ALL, ties: ANY, resource: Resource::Place, reach: Level::NumaNode, steps: 1 },
];

/// How often a knob can be turned further.
pub(crate) fn steps(knob: Knob) -> u32 {
    TABLE.iter().find(|row| row.knob == knob).map_or(1, |row| row.steps)
}

/// Everything that could be done, in the order in which it is to be tried. Nothing in here has been asked for before, or is known not to help: that is the arbiter's.
pub(crate) fn candidates(judge: &Judge<'_>, scene: &Scene, evidence: &Evidence) -> Vec<Candidate> {
    let Some(victim) = scene.residents.get(&evidence.victim) else { return Vec::new() };
    let mut candidates = Vec::new();
    for row in &TABLE {
        let severity = row.severity(evidence);
        // Moving costs more than a little trouble.
        if severity == 0.0 || (row.resource == Resource::Place && severity < SEVERE) {
            continue;
        }
        // More at once is for CPUs that have nothing to do; on others it is taken from another container.
        if row.knob == Knob::Burst && judge.is_crowded(scene, evidence.victim, victim) {
            continue;
        }
        // Memory that is far away and hardly slows its container down stays there.
        if row.knob == Knob::Memory && !judge.far_memory_hurts(evidence.victim, is_slow(evidence)) {
            continue;
        }
        if row.target == Target::Victim {
            let leave = match row.knob {
                Knob::Gather => judge
                    .best_cache(scene, evidence.victim, victim)
                    .map(|cache| victim.cpus.difference(&cache)),
                Knob::Clock => scene.clocks.get(&evidence.victim).map(|it| it.leave.clone()),
                _ => Some(CpuSet::new()),
            };
            candidates
                .extend(leave.and_then(|it| row.on(scene, victim, evidence.victim, victim, it)));
            continue;
        }
        let tied = evidence.culprits.iter().filter(|it| row.ties.contains(&it.tie));
        // A container does not have to move if its going would change little, as against others of its tie: time on CPUs and traffic to memory are
        // not to be compared.
        let is_great = |culprit: &&Culprit| {
            let same = tied.clone().filter(|it| it.tie == culprit.tie);
            let most = same.map(|it| it.magnitude).fold(0.0, f64::max);
            row.resource != Resource::Place || culprit.magnitude >= most / 2.0
        };
        for culprit in tied.clone().filter(is_great) {
            let found = row.against(judge, scene, evidence.victim, victim, culprit).into_iter();
            candidates.extend(found.map(|it| match it.knob {
                Knob::Suppress => it.sparing(judge.suppression(scene), evidence),
                Knob::Bandwidth | Knob::Cache => {
                    Candidate { step_min: row.first_step(evidence), ..it }
                }
                _ => it,
            }));
        }
    }
    candidates
}

/// Not only CPUs are missing.
fn is_slow(evidence: &Evidence) -> bool {
    evidence.findings.iter().any(|it| SLOW.contains(&it.signal))
}

/// Whether a change leaves nothing to do for a knob: containers that hardly get CPU time do not have to be the last to get it, too.
pub(crate) fn covers(change: &Proposal, knob: Knob) -> bool {
    // All that may be made idle are suppressed.
    change.knob == Knob::Suppress && knob == Knob::Idle
}

/// A container goes elsewhere, or to a part of its CPUs, for its own sake.
pub(crate) fn flees(knob: Knob, target: ContainerId, victim: ContainerId) -> bool {
    matches!(knob, Knob::Move | Knob::MoveOwner | Knob::Gather | Knob::Clock) && target == victim
}

/// What a knob is turned for: its verdict is about these.
pub(crate) fn signals(knob: Knob) -> &'static [Signal] {
    TABLE.iter().find(|row| row.knob == knob).map_or(&[], |row| row.signals)
}

impl Candidate {
    /// What a culprit does not use is time where only time is missing, and the inside of cores otherwise.
    fn sparing(self, step_min: u32, evidence: &Evidence) -> Candidate {
        let resource = if is_slow(evidence) { Resource::Cores } else { Resource::Time };
        let domain = Domain { resource, ..self.domain };
        Candidate { step_min, domain, ..self }
    }
}

impl Row {
    /// The worse the trouble, the greater the first step: fast to protect.
    fn first_step(&self, evidence: &Evidence) -> u32 {
        let step = match self.severity(evidence) {
            mild if mild < 1.25 => 1,
            middle if middle < SEVERE => 2,
            _ => 3,
        };
        step.min(self.steps)
    }

    /// How much too high the worst of the signals is that this helps with: 1 is at its limit, 0 where none is found.
    fn severity(&self, evidence: &Evidence) -> f64 {
        let helped = evidence.findings.iter().filter(|it| self.signals.contains(&it.signal));
        helped.map(|it| it.short / it.limit).fold(0.0, f64::max)
    }

    /// What can be done about one culprit: on this one, or, where the knob is for either, on the victim.
    fn against(
        &self,
        judge: &Judge<'_>,
        scene: &Scene,
        id: ContainerId,
        victim: &Resident,
        culprit: &Culprit,
    ) -> Vec<Candidate> {
        let Some(other) = scene.residents.get(&culprit.container) else { return Vec::new() };
        let may = match self.target {
            Target::BestEffort => {
                rank(other) == QosClass::BestEffort && victim.qos.is_some_and(|it| it > rank(other))
            }
            Target::Lower => victim.qos.is_some_and(|it| rank(other) < it),
            Target::NotHigher | Target::Either => victim.qos.is_some_and(|it| rank(other) <= it),
            Target::Victim => false,
        };
        let is_memory = matches!(self.knob, Knob::Cache | Knob::Bandwidth);
        if is_memory && !judge.strains_memory(scene, culprit.container, self.reach) {
            return Vec::new();
        }
        if self.knob == Knob::Idle && judge.hides_by_idle(id, other) {
            return Vec::new();
        }
        let goer = (culprit.container, other);
        let fits = |place: &CpuSet| judge.has_room(scene, goer, false, place);
        let leave = may.then(|| self.leave(scene, victim, other, culprit.tie, &fits)).flatten();
        let leaves = |leave| self.on(scene, victim, culprit.container, other, leave);
        if let Some(asked) = leave.and_then(leaves) {
            return vec![asked];
        }
        if self.target != Target::Either {
            return Vec::new();
        }
        let is_asked = may && self.knob == Knob::Move;
        let away = is_asked.then(|| judge.out_of_the_way(scene, victim, goer)).flatten();
        let fits = |place: &CpuSet| judge.has_room(scene, (id, victim), true, place);
        let flight = self.leave(scene, other, victim, culprit.tie, &fits);
        let flight = flight.and_then(|leave| self.on(scene, victim, id, victim, leave));
        away.and_then(leaves).into_iter().chain(flight).collect()
    }

    fn on(
        &self,
        scene: &Scene,
        victim: &Resident,
        id: ContainerId,
        target: &Resident,
        leave: CpuSet,
    ) -> Option<Candidate> {
        let mode = match self.knob {
            Knob::Evict => Mode::Observe,
            _ => victim.mode.min(target.mode),
        };
        if mode == Mode::Off || victim.mode.min(target.mode) == Mode::Off {
            return None;
        }
        let felt = victim.cpus.union(&target.cpus);
        let cpus = match self.resource {
            // Where it goes is not known yet.
            Resource::Place => scene.topology.cpus().clone(),
            _ => around(&scene.topology, self.reach, &felt),
        };
        let domain = Domain { cpus, resource: self.resource };
        target.knobs.contains(&self.knob).then(|| Candidate {
            knob: self.knob,
            target: id,
            step_min: 1,
            leave,
            domain,
            mode,
        })
    }

    /// CPUs that `goer` leaves for the sake of `stayer`; empty for knobs that move no container, `None` where there is nowhere to go.
    fn leave(
        &self,
        scene: &Scene,
        stayer: &Resident,
        goer: &Resident,
        tie: Tie,
        fits: &dyn Fn(&CpuSet) -> bool,
    ) -> Option<CpuSet> {
        let topology: &Topology = &scene.topology;
        match self.knob {
            Knob::Siblings => {
                let leave = around(topology, Level::Core, &stayer.cpus).difference(&stayer.cpus);
                let rest = goer.cpus.difference(&leave);
                // A lower class may have too little by that; an equal would be the next victim.
                let may = !rest.is_empty() && (rank(goer) < rank(stayer) || fits(&rest));
                may.then_some(leave)
            }
            Knob::Move | Knob::MoveOwner => {
                let levels: &[Level] = match tie {
                    Tie::Node => &[Level::NumaNode],
                    Tie::L3 => &[Level::L3],
                    Tie::Core | Tie::Cpu => &[Level::L3, Level::Core],
                };
                let mut all = levels.iter().map(|level| around(topology, *level, &stayer.cpus));
                all.find(|leave| fits(&scene.shared.difference(leave)))
            }
            _ => Some(CpuSet::new()),
        }
    }
}

/// How important a container is. One of an unknown class is as important as can be.
pub(crate) fn rank(resident: &Resident) -> QosClass {
    resident.qos.unwrap_or(QosClass::Guaranteed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::Finding;

    fn row(knob: Knob) -> &'static Row {
        TABLE.iter().find(|row| row.knob == knob).unwrap()
    }

    /// The first step of a knob for findings as signal and multiple of the limit.
    fn check_step(knob: Knob, findings: &[(Signal, f64)], expected: u32) {
        let finding = |(signal, short): &(Signal, f64)| {
            let (signal, short) = (*signal, *short);
            Finding { signal, short, long: short, usual: None, limit: 1.0, spread: 0.0 }
        };
        let findings = findings.iter().map(finding).collect();
        let evidence = Evidence { victim: ContainerId(1), findings, culprits: Vec::new() };
        assert_eq!(row(knob).first_step(&evidence), expected);
    }

    #[test]
    fn the_worse_the_trouble_the_greater_the_first_step() {
        check_step(Knob::Bandwidth, &[(Signal::CacheMisses, 1.1)], 1);
        check_step(Knob::Bandwidth, &[(Signal::CacheMisses, 1.5)], 2);
        check_step(Knob::Bandwidth, &[(Signal::CacheMisses, 5.0)], 3);
    }

    #[test]
    fn no_step_is_beyond_the_last() {
        check_step(Knob::Cache, &[(Signal::CacheMisses, 5.0)], 2);
    }

    #[test]
    fn trouble_that_a_knob_is_not_for_does_not_count() {
        check_step(Knob::Cache, &[(Signal::Delay, 9.0), (Signal::CacheMisses, 1.1)], 1);
    }

    #[test]
    fn the_table_has_every_knob_once_and_in_its_order() {
        assert_eq!(TABLE.map(|row| row.knob), Knob::ALL);
    }

    fn check_overlap(a: (Resource, &str), b: (Resource, &str), expected: bool) {
        let domain =
            |(resource, cpus): (Resource, &str)| Domain { cpus: cpus.parse().unwrap(), resource };
        assert_eq!(domain(a).overlaps(&domain(b)), expected);
        assert_eq!(domain(b).overlaps(&domain(a)), expected);
    }

    #[test]
    fn what_is_felt_elsewhere_or_otherwise_does_not_wait() {
        check_overlap((Resource::Time, "0-3"), (Resource::Time, "3-5"), true);
        check_overlap((Resource::Time, "0-3"), (Resource::Time, "4-5"), false);
        check_overlap((Resource::Time, "0-3"), (Resource::Memory, "0-3"), false);
        check_overlap((Resource::Place, "0-7"), (Resource::Cores, "2"), true);
    }
}
