//! An oracle that knows the culprit and the best knobs before anything happens: up to three of them, found by trying everything on copies of the
//! machine.

use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_plant::Plant;
use bayplan_rebalance::{Evidence, Knob, Mode, Outcome, Proposal};
use bayplan_topology::Topology;
use bayplan_types::CpuSet;

use crate::PERIOD;
use crate::suites::Trial;

/// Knobs that are turned at most.
const KNOBS_MAX: u64 = 3;
/// Of all that was tried first, so many are tried again beside the best.
const SHORT_LIST: usize = 8;
/// Times between which the oracle looks at a copy of the machine.
const GLANCE: Duration = Duration::from_secs(50);

/// The best proposals for a trial; none where there is no victim or nothing helps.
pub(crate) fn choose(trial: &Trial) -> Vec<Proposal> {
    let Some(victim) = trial.victims.first() else { return Vec::new() };
    let mut start = trial.plant.clone();
    while start.now() <= trial.onset {
        start.step(PERIOD);
    }
    let mut chosen: Vec<Proposal> = Vec::new();
    let mut best = cost(&start, trial, &chosen);
    let mut open = candidates(&start, *victim);
    for number in 1..=KNOBS_MAX {
        let mut tried: Vec<(f64, Proposal)> = open
            .into_iter()
            .map(|candidate| {
                let candidate = Proposal { number, ..candidate };
                let all = [chosen.as_slice(), std::slice::from_ref(&candidate)].concat();
                (cost(&start, trial, &all), candidate)
            })
            .collect();
        tried.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Not worth another knob.
        let Some((cost, candidate)) = tried.first().filter(|(cost, _)| *cost < 0.99 * best) else {
            break;
        };
        best = *cost;
        chosen.push(candidate.clone());
        open = tried.into_iter().skip(1).take(SHORT_LIST).map(|(_, it)| it).collect();
    }
    chosen
}

/// How slow every container is that serves requests, victims above all: the sum of p99 in relation to the beginning.
fn cost(start: &Plant, trial: &Trial, proposals: &[Proposal]) -> f64 {
    let mut plant = start.clone();
    for proposal in proposals {
        if plant.carry_out(proposal) != Outcome::Done {
            return f64::INFINITY;
        }
    }
    let mut cost = 0.0;
    while plant.now() < trial.end {
        plant.step(GLANCE);
        let truths = plant.truths().values().filter_map(|truth| truth.p99);
        cost += truths.map(|p99| p99.as_secs_f64()).sum::<f64>();
    }
    cost
}

/// CPUs outside of the last of the caches that a container runs on.
fn others_than_last(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    let caches = topology.caches().iter().filter(|it| it.level == 3);
    let last = caches.map(|it| it.cpus.intersection(cpus)).rfind(|it| !it.is_empty());
    last.map_or_else(CpuSet::new, |last| cpus.difference(&last))
}

fn candidates(plant: &Plant, victim: ContainerId) -> Vec<Proposal> {
    let scene = plant.scene();
    let around = |levels_l3: bool| -> CpuSet {
        let Some(resident) = scene.residents.get(&victim) else { return CpuSet::new() };
        if levels_l3 {
            let caches = scene.topology.caches().iter().filter(|cache| cache.level == 3);
            let near = caches.filter(|cache| cache.cpus.intersects(&resident.cpus));
            return near.fold(CpuSet::new(), |all, cache| all.union(&cache.cpus));
        }
        let cores = resident.cpus.iter().filter_map(|cpu| scene.topology.core_of(cpu));
        cores.fold(CpuSet::new(), |all, core| all.union(core))
    };
    let mut candidates = Vec::new();
    for (id, resident) in &scene.residents {
        for knob in resident.knobs.iter().filter(|knob| **knob != Knob::Evict) {
            let leave = match knob {
                Knob::Siblings => around(false),
                Knob::Gather => others_than_last(scene.topology.as_ref(), &resident.cpus),
                Knob::Move | Knob::MoveOwner => around(true),
                _ => CpuSet::new(),
            };
            let steps: &[u32] = match knob {
                Knob::Suppress | Knob::Bandwidth | Knob::Cache => &[1, 3],
                _ => &[1],
            };
            candidates.extend(steps.iter().map(|step| Proposal {
                number: 0,
                at: plant.now(),
                mode: Mode::Act,
                knob: *knob,
                target: *id,
                step: *step,
                leave: leave.clone(),
                evidence: Evidence { victim, findings: Vec::new(), culprits: Vec::new() },
            }));
        }
    }
    candidates
}
