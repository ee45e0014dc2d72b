//! What processors count on the way to a finding.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bayplan_allocator::ContainerId;
use bayplan_host::counters::GroupCounters;
use bayplan_node::occupancy::Occupancy;
use bayplan_probes::{
    CgroupId, CounterChoice, CounterStream, Counters, Drain, Event, EventCounts, Identity,
    Intruder, Intrusion,
};
use bayplan_rebalance::{Decision, Rebalancer, Round, Sample, Settings, Signal};
use bayplan_types::{CpuId, QosClass};

use super::{occupancy, occupant, scene};
use crate::observer::GroupsRead;
use crate::prober::Seen;
use crate::rebalancer::sampler::Sampler;
use crate::rebalancer::scene::Stays;

const PERIOD: Duration = Duration::from_secs(5);
/// A container keeps one CPU of 2 GHz busy.
const CYCLES: u64 = 10_000_000_000;

/// Two containers on one core, and what their processor counts.
struct Node {
    sampler: Sampler,
    begun: Instant,
    rounds: u32,
    events: [EventCounts; 2],
    usec: [u64; 2],
}

impl Node {
    fn new() -> Node {
        let events = [EventCounts::default(), EventCounts::default()];
        Node { sampler: Sampler::default(), begun: Instant::now(), rounds: 0, events, usec: [0; 2] }
    }

    fn at(&self) -> Duration {
        PERIOD * self.rounds
    }

    /// Five seconds more. Of the second how many percent of a CPU it uses, of each container cycles, instructions and cache misses, and in how many percent of the time they were counted.
    fn pass(&mut self, busy: u64, added: [([u64; 3], u64); 2]) -> BTreeMap<ContainerId, Sample> {
        self.rounds += 1;
        let kinds = [Event::Cycles, Event::Instructions, Event::CacheMisses];
        for (sum, (counts, percent)) in self.events.iter_mut().zip(added) {
            for (event, count) in kinds.into_iter().zip(counts) {
                *sum.counts.entry(event).or_default() += count;
            }
            sum.enabled_ns += 5_000_000_000;
            sum.running_ns += 50_000_000 * percent;
        }
        self.usec = [self.usec[0] + 5_000_000, self.usec[1] + 50_000 * busy];
        let groups = ["id-server", "id-hog"].into_iter().zip(self.usec).map(|(id, usec)| {
            let counters = GroupCounters { cpu_usec: Some(usec), ..GroupCounters::default() };
            (id.to_owned(), (counters, None))
        });
        let files = GroupsRead {
            at: self.begun + self.at(),
            groups: groups.collect(),
            caches: BTreeMap::new(),
            idle_ticks: BTreeMap::new(),
            frequencies_khz: BTreeMap::new(),
        };
        let drained = self.drained();
        self.sampler.sample(&both(), Some(files), Some(drained))
    }

    /// What the probes tell now.
    fn drained(&self) -> (Vec<Seen>, Drain) {
        let ids = [CgroupId(1), CgroupId(2)];
        let seen = ["server", "hog"].into_iter().zip(ids).map(|(pod, cgroup)| Seen {
            cgroup,
            namespace: "n".to_owned(),
            pod: pod.to_owned(),
            name: "main".to_owned(),
            owned: "".parse().unwrap(),
        });
        let drain = Drain {
            at: self.begun + self.at(),
            containers: ids.map(|id| (id, Counters::default())).into(),
            events: ids.into_iter().zip(self.events.clone()).collect(),
            outside: Counters::default(),
            intrusions: BTreeMap::new(),
            unnamed: Intrusion::default(),
        };
        (seen.collect(), drain)
    }
}

fn both() -> Occupancy {
    occupancy(vec![
        occupant(1, "server", QosClass::Burstable, "0"),
        occupant(2, "hog", QosClass::BestEffort, "1"),
    ])
}

#[track_caller]
fn check(counts: [u64; 3], percent: u64, expected: [Option<f64>; 2]) {
    let mut node = Node::new();
    node.pass(100, [([7, 7, 7], 100); 2]);
    let samples = node.pass(100, [(counts, percent); 2]);
    let sample = &samples[&ContainerId(1)];
    assert_eq!([sample.cycles_per_instruction, sample.cache_misses], expected);
}

#[test]
fn samples_have_cycles_and_misses_per_instruction() {
    check([3000, 2000, 10], 100, [Some(1.5), Some(5.0)]);
    check([3000, 2000, 0], 50, [Some(1.5), Some(0.0)]);
}

#[test]
fn what_was_hardly_counted_is_not_in_samples() {
    check([3000, 2000, 10], 5, [None, None]);
    check([0, 0, 0], 100, [None, None]);
}

/// Readings of the kernel's record of the server, as a group of five counters leaves them: time to be counted, counted and not read in milliseconds, then cycles, instructions, reference cycles, accesses to the cache
/// and misses in millions. What samples say of cycles and misses per instruction after each.
#[track_caller]
fn check_stream(readings: &[([u64; 8], [Option<f64>; 2])]) {
    let mut node = Node::new();
    // Of a container that was not read twice there is no sample.
    node.pass(100, [([0; 3], 100); 2]);
    node.pass(100, [([0; 3], 100); 2]);
    let mut look = |counts: &EventCounts| {
        node.rounds += 1;
        node.events[0] = counts.clone();
        let drained = node.drained();
        node.sampler.sample(&both(), None, Some(drained))
    };
    let mut stream = CounterStream::new(CounterChoice::Auto.events());
    look(stream.counts());
    for (record, expected) in readings {
        let samples = look(stream.take(record.map(|word| word * 1_000_000)));
        let sample = &samples[&ContainerId(1)];
        assert_eq!([sample.cycles_per_instruction, sample.cache_misses], *expected, "{record:?}");
    }
}

#[test]
fn a_recorded_stream_of_counters_is_in_samples_by_value() {
    check_stream(&[
        ([5000, 5000, 0, 10_000, 5000, 9000, 100, 10], [Some(2.0), Some(2.0)]),
        ([10_000, 10_000, 0, 20_000, 10_000, 18_000, 200, 20], [Some(2.0), Some(2.0)]),
        // Another tool has the counters half of the time.
        ([15_000, 12_500, 0, 25_000, 12_500, 22_500, 250, 25], [Some(2.0), Some(2.0)]),
        // And then nearly all of it: what is left is no measure of the rest.
        ([20_000, 12_700, 0, 25_400, 12_700, 22_900, 254, 26], [None, None]),
        // CPUs that change hands too often are not read each time.
        ([25_000, 15_200, 2500, 30_400, 15_200, 27_400, 304, 44], [Some(2.0), Some(7.2)]),
        ([30_000, 20_200, 2500, 45_400, 20_200, 36_400, 404, 89], [Some(3.0), Some(9.0)]),
    ]);
}

#[test]
fn what_was_not_read_anew_is_not_in_samples() {
    let mut node = Node::new();
    node.pass(100, [([7, 7, 7], 100); 2]);
    node.pass(100, [([3000, 2000, 10], 100); 2]);
    let drained = node.drained();
    let samples = node.sampler.sample(&both(), None, Some(drained));
    assert_eq!(samples[&ContainerId(1)].cycles_per_instruction, None);
    let samples = node.pass(100, [([3000, 2000, 10], 100); 2]);
    assert_eq!(samples[&ContainerId(1)].cycles_per_instruction, Some(1.5));
}

/// What is said of the server when, after so many rounds in which it needs 1 cycle per instruction, a neighbour comes to life, and from then on it needs
/// so many tenths, and so many misses per thousand instructions instead of 2.
fn findings(tenths: u64, misses: u64) -> Vec<Signal> {
    let (mut node, mut stays) = (Node::new(), Stays::default());
    let mut rebalancer = Rebalancer::new(Settings::default());
    let counts = |tenths: u64, misses: u64| {
        let instructions = CYCLES * 10 / tenths;
        [CYCLES, instructions, instructions / 1000 * misses]
    };
    for round in 0..600_u32 {
        stays.note(&both(), node.at());
        let is_loud = round >= 500;
        let server = if is_loud { counts(tenths, misses) } else { counts(10, 2) };
        let (busy, hog) = if is_loud { (100, counts(20, 50)) } else { (10, counts(10, 1)) };
        let samples = node.pass(busy, [(server, 100), (hog, 100)]);
        let round = Round { at: node.at(), period: PERIOD, samples };
        let decisions = rebalancer.look(&scene(&both(), &stays, false), &round);
        for decision in decisions {
            if let Decision::Propose(proposal) = decision {
                assert_eq!(proposal.evidence.victim, ContainerId(1));
                assert!(is_loud, "{proposal:?}");
                return proposal.evidence.findings.iter().map(|it| it.signal).collect();
            }
        }
    }
    Vec::new()
}

#[test]
fn a_container_with_more_cycles_or_misses_than_usual_suffers() {
    assert_eq!(findings(16, 2), [Signal::CyclesPerInstruction]);
    assert_eq!(findings(10, 9), [Signal::CacheMisses]);
    assert_eq!(findings(16, 9), [Signal::CyclesPerInstruction, Signal::CacheMisses]);
}

#[test]
fn a_container_that_is_as_usual_does_not() {
    assert_eq!(findings(10, 2), []);
    assert_eq!(findings(11, 3), []);
}

/// The intruder that is told of the server, with the CPUs that it keeps busy, of what each took on CPU 0 and on CPU 1 in five seconds.
#[track_caller]
fn check_intruder(taken: &[(Identity, &str, [u64; 2])], expected: Option<(&str, f64)>) {
    let mut node = Node::new();
    for seconds in [0, 1] {
        let of_cpus = |(identity, name, added): &(Identity, &str, [u64; 2])| {
            let intruder = |cpu| Intruder { cpu, identity: *identity, name: (*name).to_owned() };
            let sum = |added: u64| Intrusion { ns: 7 + added * seconds * 1_000_000, times: 1 };
            [(intruder(CpuId(0)), sum(added[0])), (intruder(CpuId(1)), sum(added[1]))]
        };
        node.rounds += 1;
        let (seen, mut drain) = node.drained();
        let list = taken.iter().flat_map(of_cpus).collect();
        drain.intrusions = BTreeMap::from([(CgroupId(1), list)]);
        node.sampler.sample(&both(), None, Some((seen, drain)));
    }
    let mut intruders = node.sampler.intruders(&both());
    let told = intruders.remove(&ContainerId(1)).map(|it| (it.name, it.cpus));
    assert_eq!(told, expected.map(|(name, cpus)| (name.to_owned(), cpus)));
    assert_eq!(intruders, BTreeMap::new());
}

#[test]
fn the_largest_intruder_that_is_no_container_is_told() {
    let process = Identity::Process(CgroupId(9));
    let container = Identity::Container(CgroupId(2));
    check_intruder(&[], None);
    check_intruder(&[(container, "stress", [5000, 0])], None);
    check_intruder(
        &[
            (Identity::KernelThread, "kswapd0", [2000, 1500]),
            (process, "kubelet", [3000, 0]),
            (container, "stress", [4000, 0]),
        ],
        Some(("kswapd0", 0.7)),
    );
    check_intruder(&[(process, "", [2500, 0])], Some(("process of cgroup 9", 0.5)));
    check_intruder(
        &[(Identity::Interrupt(45), "nvme0q1", [2500, 0])],
        Some(("irq 45 (nvme0q1)", 0.5)),
    );
}
