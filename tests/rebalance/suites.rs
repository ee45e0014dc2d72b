//! What is wrong on which machine. Each suite makes one trial per seed; seeds choose places, programs and loads within what the suite is about.

use std::collections::BTreeSet;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_plant::{Act, Demand, Lie, Nature, Plant, Sensor, Stubborn, Tenant, Work, chance};
use bayplan_rebalance::{Knob, Mode};
use bayplan_topology::{derive, parse_machine};
use bayplan_types::{CpuClass, CpuSet, NodeSet, QosClass};

/// Something to be tried on many seeds.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// In a sentence, for people.
    pub(crate) about: &'static str,
    pub(crate) seeds: u64,
    pub(crate) aim: Aim,
    pub(crate) trial: fn(u64) -> Trial,
}

/// What should come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The victims are relieved wherever the oracle can do it.
    Relief,
    /// Nothing is done, or nothing that does harm.
    Rest,
}

/// One machine, and what becomes of it.
pub(crate) struct Trial {
    pub(crate) plant: Plant,
    /// Which containers are going to suffer; empty where none is.
    pub(crate) victims: Vec<ContainerId>,
    /// From which container; `None` where none is to blame.
    pub(crate) culprit: Option<ContainerId>,
    /// From when.
    pub(crate) onset: Duration,
    pub(crate) end: Duration,
}

pub(crate) const SUITES: [Suite; 17] = [
    Suite {
        name: "neighbour",
        about: "one noisy neighbour on the victim's CPUs",
        seeds: 8,
        aim: Aim::Relief,
        trial: neighbour,
    },
    Suite {
        name: "beside",
        about: "a victim that owns CPUs, and a neighbour beside it: threads of its cores, cache, memory",
        seeds: 8,
        aim: Aim::Relief,
        trial: beside,
    },
    Suite {
        name: "two-victims",
        about: "two victims, one culprit",
        seeds: 6,
        aim: Aim::Relief,
        trial: two_victims,
    },
    Suite {
        name: "phases",
        about: "a culprit that computes, streams, and rests in turn",
        seeds: 6,
        aim: Aim::Relief,
        trial: phases,
    },
    Suite {
        name: "oscillating",
        about: "a culprit that comes and goes",
        seeds: 6,
        aim: Aim::Relief,
        trial: oscillating,
    },
    Suite {
        name: "dropouts",
        about: "one noisy neighbour, and samples that are lost",
        seeds: 6,
        aim: Aim::Relief,
        trial: dropouts,
    },
    Suite {
        name: "no-counters",
        about: "one noisy neighbour, and a processor that counts nothing, as in most virtual machines",
        seeds: 6,
        aim: Aim::Relief,
        trial: no_counters,
    },
    Suite {
        name: "no-probes",
        about: "the same, and only the kernel's files tell anything",
        seeds: 6,
        aim: Aim::Relief,
        trial: no_probes,
    },
    Suite {
        name: "sets-only",
        about: "one noisy neighbour, and nothing but CPU sets can be turned, as without enforcement",
        seeds: 6,
        aim: Aim::Relief,
        trial: sets_only,
    },
    Suite {
        name: "useless-knob",
        about: "one noisy neighbour, and the first knobs do nothing",
        seeds: 6,
        aim: Aim::Relief,
        trial: useless_knob,
    },
    Suite {
        name: "refused-knob",
        about: "one noisy neighbour, and the first knobs are refused",
        seeds: 6,
        aim: Aim::Relief,
        trial: refused_knob,
    },
    Suite {
        name: "tight-limit",
        about: "a limit that stops its container for moments",
        seeds: 4,
        aim: Aim::Relief,
        trial: tight_limit,
    },
    Suite {
        name: "hopping",
        about: "a server with threads that go from cache to cache, on a machine with four",
        seeds: 6,
        aim: Aim::Relief,
        trial: hopping,
    },
    Suite {
        name: "own-reasons",
        about: "a victim that is slow for its own reasons",
        seeds: 8,
        aim: Aim::Rest,
        trial: own_reasons,
    },
    Suite {
        name: "full",
        about: "a full machine where all are as important",
        seeds: 4,
        aim: Aim::Rest,
        trial: full,
    },
    Suite {
        name: "lying",
        about: "a quiet machine with a sensor that lies",
        seeds: 8,
        aim: Aim::Rest,
        trial: lying,
    },
    Suite {
        name: "quiet",
        about: "a day on a quiet machine",
        seeds: 2,
        aim: Aim::Rest,
        trial: quiet,
    },
];

/// Two packages of eight cores with two threads; a NUMA node and a cache of 32 MiB each.
const MACHINE: &str = "pack:2 numa:1 l3:1 core:8 pu:2 cache:48K,2M,32M mem:64";
/// CPUs of the nodes.
const NODES: [&str; 2] = ["0-7,16-23", "8-15,24-31"];
/// The second of the containers, most of the time.
const CULPRIT: Option<ContainerId> = Some(ContainerId(2));
/// When things go wrong at the earliest; until then the rebalancer learns what is usual.
const CALM: Duration = Duration::from_secs(900);
const END: Duration = Duration::from_secs(2700);

/// Choices of one seed, numbered.
#[derive(Clone, Copy)]
struct Dice(u64);

impl Dice {
    fn between(self, number: u64, low: f64, high: f64) -> f64 {
        low + (high - low) * chance(self.0, number)
    }

    fn one_of<T: Copy, const N: usize>(self, number: u64, all: [T; N]) -> T {
        let draw = chance(self.0, number) * N as f64;
        let idx = (1..N).take_while(|idx| *idx as f64 <= draw).count();
        all[idx]
    }

    /// When it begins: not at the beginning of a round.
    fn onset(self) -> Duration {
        CALM + Duration::from_secs_f64(self.between(100, 0.0, 60.0))
    }
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn nodes(list: &str) -> NodeSet {
    list.parse().unwrap()
}

fn steady(demand: Demand, nature: Nature) -> Vec<Act> {
    vec![Act { from: Duration::ZERO, demand, nature }]
}

/// A container of Burstable QoS that shares a node's CPUs.
fn burstable(name: &str, node: usize, work: Work, acts: Vec<Act>) -> Tenant {
    Tenant {
        name: format!("{name}/{name}-0/main"),
        qos: QosClass::Burstable,
        class: CpuClass::Shared,
        cpus: cpus(NODES[node]),
        mems: nodes(&node.to_string()),
        weight: 100.0,
        limit: None,
        work,
        acts,
        cycle: None,
        wander: 0.2,
        hops: 0.0,
        hops_from: Duration::ZERO,
        mode: Mode::Act,
        knobs: [
            Knob::Siblings,
            Knob::Bandwidth,
            Knob::Cache,
            Knob::Move,
            Knob::Memory,
            Knob::Evict,
        ]
        .into(),
    }
}

/// The same without any request: what kubelet gives the least weight.
fn best_effort(tenant: Tenant) -> Tenant {
    let knobs: BTreeSet<Knob> = &tenant.knobs | &[Knob::Idle, Knob::Suppress].into();
    Tenant { qos: QosClass::BestEffort, weight: 1.0, knobs, ..tenant }
}

/// The same with CPUs of its own.
fn owner(tenant: Tenant, list: &str) -> Tenant {
    let knobs = [Knob::Memory, Knob::MoveOwner].into();
    let cpus = cpus(list);
    Tenant { qos: QosClass::Guaranteed, class: CpuClass::Exclusive, cpus, knobs, ..tenant }
}

fn server(name: &str, node: usize, demand: f64) -> Tenant {
    let work = Work::Service { request: Duration::from_millis(1) };
    burstable(name, node, work, steady(Demand::Constant(demand), Nature::SERVER))
}

fn batch(name: &str, node: usize, threads: f64, nature: Nature) -> Tenant {
    burstable(name, node, Work::Batch, steady(Demand::Constant(threads), nature))
}

/// Does nothing until `onset`.
fn from(onset: Duration, tenant: Tenant) -> Tenant {
    let shift = |act: &Act| Act { from: act.from + onset, ..act.clone() };
    let mut acts = steady(Demand::Constant(0.02), Nature::COMPUTE);
    acts.extend(tenant.acts.iter().map(shift));
    Tenant { acts, ..tenant }
}

/// Others that do no harm.
fn innocents(dice: Dice) -> Vec<Tenant> {
    let small = |number| dice.between(number, 0.5, 1.5);
    vec![
        server("shop", 0, small(10)),
        server("mail", 1, small(11)),
        batch("build", 1, dice.between(12, 1.0, 3.0), Nature::COMPUTE),
        best_effort(batch("index", 1, dice.between(13, 0.5, 1.5), Nature::SCATTER)),
        best_effort(batch("backup", 0, dice.between(14, 0.2, 0.6), Nature::STREAM)),
    ]
}

fn plant(mut first: Vec<Tenant>, dice: Dice) -> Plant {
    first.extend(innocents(dice));
    let machine = derive(&parse_machine(MACHINE).unwrap()).unwrap();
    Plant::new(machine, first, dice.0)
}

fn first(victims: u64) -> Vec<ContainerId> {
    (1..=victims).map(ContainerId).collect()
}

/// A neighbour that makes the CPUs of node 0 busy, of one of several kinds.
fn culprit(dice: Dice) -> Tenant {
    let nature = dice.one_of(1, [Nature::COMPUTE, Nature::STREAM, Nature::SCATTER]);
    let threads = dice.between(2, 16.0, 32.0);
    let culprit = batch("crunch", 0, threads, nature);
    // Where it shares CPUs by equal weight it is as often of the victim's class as below it.
    if dice.between(3, 0.0, 1.0) < 0.7 {
        let weight = dice.one_of(4, [1.0, 100.0]);
        Tenant { weight, ..best_effort(culprit) }
    } else {
        culprit
    }
}

fn neighbour(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let victim = server("front", 0, dice.between(0, 2.0, 5.0));
    let plant = plant(vec![victim, from(onset, culprit(dice))], dice);
    Trial { plant, victims: first(1), culprit: CULPRIT, onset, end: END }
}

fn beside(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    // Threads of four cores, or four whole cores.
    let (own, others) = dice.one_of(5, [("0-3", "4-7,16-23"), ("0-3,16-19", "4-7,20-23")]);
    let victim = owner(server("front", 0, dice.between(0, 1.5, 2.5)), own);
    let nature = dice.one_of(1, [Nature::STREAM, Nature::SCATTER]);
    let culprit =
        Tenant { cpus: cpus(others), ..batch("crunch", 0, dice.between(2, 8.0, 16.0), nature) };
    let mut all = vec![victim, from(onset, best_effort(culprit))];
    all.extend(innocents(dice).into_iter().map(|tenant| Tenant {
        cpus: if tenant.cpus == cpus(NODES[0]) { cpus(others) } else { tenant.cpus.clone() },
        ..tenant
    }));
    let machine = derive(&parse_machine(MACHINE).unwrap()).unwrap();
    Trial {
        plant: Plant::new(machine, all, seed),
        victims: first(1),
        culprit: CULPRIT,
        onset,
        end: END,
    }
}

fn two_victims(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let victims = [
        server("front", 0, dice.between(0, 2.0, 4.0)),
        server("search", 0, dice.between(6, 1.0, 3.0)),
    ];
    let plant = plant(victims.into_iter().chain([from(onset, culprit(dice))]).collect(), dice);
    Trial { plant, victims: first(2), culprit: Some(ContainerId(3)), onset, end: END }
}

fn phases(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let length = Duration::from_secs_f64(dice.between(5, 120.0, 300.0));
    let work = [
        (24.0, Nature::COMPUTE),
        (14.0, Nature::STREAM),
        (0.1, Nature::COMPUTE),
        (20.0, Nature::SCATTER),
    ];
    let acts = (0..12).map(|number| {
        let (threads, nature) = work[number as usize % work.len()];
        Act { from: length * number, demand: Demand::Constant(threads), nature }
    });
    let culprit =
        best_effort(Tenant { acts: acts.collect(), ..batch("crunch", 0, 0.0, Nature::COMPUTE) });
    let victim = server("front", 0, dice.between(0, 2.0, 5.0));
    let culprit = Tenant { weight: 100.0, ..culprit };
    Trial {
        plant: plant(vec![victim, from(onset, culprit)], dice),
        victims: first(1),
        culprit: CULPRIT,
        onset,
        end: END,
    }
}

fn oscillating(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let period = Duration::from_secs_f64(dice.between(5, 60.0, 400.0));
    let culprit = culprit(dice);
    let acts = culprit.acts.iter().map(|act| Act {
        demand: Demand::OnOff { high: dice.between(2, 16.0, 32.0), low: 0.1, period },
        ..act.clone()
    });
    let culprit = Tenant { acts: acts.collect(), ..culprit };
    let victim = server("front", 0, dice.between(0, 2.0, 5.0));
    Trial {
        plant: plant(vec![victim, from(onset, culprit)], dice),
        victims: first(1),
        culprit: CULPRIT,
        onset,
        end: END,
    }
}

fn dropouts(seed: u64) -> Trial {
    let trial = neighbour(seed);
    let sensor = Sensor { lost: 0.15, lost_rounds: 0.1, ..Sensor::default() };
    Trial { plant: trial.plant.with_sensor(sensor), ..trial }
}

fn no_counters(seed: u64) -> Trial {
    let trial = neighbour(seed);
    let sensor = Sensor { counters: false, ..Sensor::default() };
    Trial { plant: trial.plant.with_sensor(sensor), ..trial }
}

fn no_probes(seed: u64) -> Trial {
    let trial = neighbour(seed);
    let sensor = Sensor { counters: false, probes: false, ..Sensor::default() };
    Trial { plant: trial.plant.with_sensor(sensor), ..trial }
}

fn sets_only(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let victim = server("front", 0, dice.between(0, 2.0, 5.0));
    let mut all = vec![victim, from(onset, culprit(dice))];
    all.extend(innocents(dice));
    for tenant in &mut all {
        tenant.knobs = [Knob::Siblings, Knob::Move].into();
    }
    let machine = derive(&parse_machine(MACHINE).unwrap()).unwrap();
    let plant = Plant::new(machine, all, seed);
    Trial { plant, victims: first(1), culprit: CULPRIT, onset, end: END }
}

/// Of the first knobs of the ladder, those that would help here most do not.
fn first_knobs() -> BTreeSet<Knob> {
    [Knob::Idle, Knob::Siblings].into()
}

fn useless_knob(seed: u64) -> Trial {
    let trial = neighbour(seed);
    let stubborn = Stubborn { useless: first_knobs(), ..Stubborn::default() };
    Trial { plant: trial.plant.with_knobs(stubborn), ..trial }
}

fn refused_knob(seed: u64) -> Trial {
    let trial = neighbour(seed);
    let stubborn = Stubborn { refused: first_knobs(), ..Stubborn::default() };
    Trial { plant: trial.plant.with_knobs(stubborn), ..trial }
}

fn tight_limit(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let demand = dice.between(0, 1.5, 2.5);
    let busy = demand * dice.between(1, 1.3, 1.5);
    let mut victim = server("front", 0, demand);
    victim.acts.push(Act { from: onset, demand: Demand::Constant(busy), nature: Nature::SERVER });
    // Requests need some more than when nothing runs beside them; the rest is for moments.
    victim.limit = Some(busy * 1.4);
    victim.wander = 0.05;
    victim.knobs.insert(Knob::Burst);
    Trial { plant: plant(vec![victim], dice), victims: first(1), culprit: None, onset, end: END }
}

/// Two services on all CPUs; the threads of one begin to go from cache to cache. There is no culprit.
fn hopping(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let everywhere = |tenant: Tenant| {
        let mut tenant = Tenant { cpus: cpus("0-31"), mems: nodes("0"), ..tenant };
        tenant.knobs.insert(Knob::Gather);
        tenant
    };
    let calm = everywhere(server("shop", 0, dice.between(10, 0.5, 1.5)));
    let mut victim = everywhere(server("front", 0, dice.between(0, 1.5, 3.0)));
    victim.hops = dice.between(1, 2000.0, 4000.0);
    victim.hops_from = onset;
    let jobs = best_effort(batch("jobs", 0, dice.between(12, 1.0, 3.0), Nature::COMPUTE));
    let machine = "pack:1 numa:1 l3:4 core:4 pu:2 cache:48K,1M,32M mem:64";
    let machine = derive(&parse_machine(machine).unwrap()).unwrap();
    let all = vec![victim, calm, Tenant { cpus: cpus("0-31"), ..jobs }];
    Trial {
        plant: Plant::new(machine, all, seed),
        victims: first(1),
        culprit: None,
        onset,
        end: END,
    }
}

fn own_reasons(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let demand = dice.between(0, 2.0, 4.0);
    let mut victim = server("front", 0, demand);
    let worse = Nature { misses: 20.0, working_set: 64.0, ..Nature::SERVER };
    let act = match dice.one_of(1, [0, 1, 2]) {
        // More requests than it has CPUs for.
        0 => Act { from: onset, demand: Demand::Constant(17.0), nature: Nature::SERVER },
        // A new version that needs more memory.
        1 => Act { from: onset, demand: Demand::Constant(demand), nature: worse },
        // A new version that computes more for each instruction.
        _ => {
            let nature = Nature { cycles: 1.8, ..Nature::SERVER };
            Act { from: onset, demand: Demand::Constant(demand * 1.8), nature }
        }
    };
    victim.acts.push(act);
    Trial { plant: plant(vec![victim], dice), victims: Vec::new(), culprit: None, onset, end: END }
}

fn full(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let services = (0..8).map(|number| {
        let mut service = server(&format!("service-{number}"), number % 2, 2.0);
        let demand = dice.between(20 + number as u64, 3.4, 4.4);
        service.acts.push(Act {
            from: onset,
            demand: Demand::Constant(demand),
            nature: Nature::SERVER,
        });
        service
    });
    let machine = derive(&parse_machine(MACHINE).unwrap()).unwrap();
    let plant = Plant::new(machine, services.collect(), seed);
    Trial { plant, victims: Vec::new(), culprit: None, onset, end: END }
}

fn lying(seed: u64) -> Trial {
    let dice = Dice(seed);
    let onset = dice.onset();
    let changes: [fn(&mut bayplan_rebalance::Sample); 4] = [
        |sample| sample.delay_p99 = sample.delay_p99.map(|_| Duration::from_millis(80)),
        |sample| {
            sample.cycles_per_instruction =
                sample.cycles_per_instruction.map(|cycles| cycles * 3.0);
        },
        |sample| {
            sample.waiting = Some(9.0);
            sample.cpu_pressure = Some(0.95);
        },
        |sample| sample.throttled = Some(0.6),
    ];
    let lie = Lie {
        about: ContainerId(1),
        from: onset,
        until: onset + Duration::from_secs_f64(dice.between(5, 60.0, 900.0)),
        change: dice.one_of(1, changes),
    };
    let sensor = Sensor { lies: vec![lie], ..Sensor::default() };
    let plant =
        plant(vec![server("front", 0, dice.between(0, 2.0, 5.0))], dice).with_sensor(sensor);
    Trial { plant, victims: Vec::new(), culprit: None, onset, end: END }
}

fn quiet(seed: u64) -> Trial {
    let dice = Dice(seed);
    let day = Duration::from_secs(86_400);
    let mut victim = server("front", 0, 3.0);
    victim.acts = steady(Demand::Wave { mean: 3.0, swing: 2.0, period: day }, Nature::SERVER);
    let job = Demand::OnOff { high: 3.0, low: 0.1, period: Duration::from_secs(5400) };
    let jobs = best_effort(burstable("jobs", 1, Work::Batch, steady(job, Nature::COMPUTE)));
    Trial {
        plant: plant(vec![victim, jobs], dice),
        victims: Vec::new(),
        culprit: None,
        onset: CALM,
        end: day,
    }
}
