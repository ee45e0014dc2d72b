//! From samples through proposal, knob and verdict, and back: with the state and its ledger, and the enforcer where the knob is a class of resctrl; without a runtime.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bayplan_allocator::ContainerId;
use bayplan_host::disk::SoundDisk;
use bayplan_host::fake_resctrl::FakeResctrl;
use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_node::proposals::ProposalState;
use bayplan_node::state::NodeState;
use bayplan_rebalance::{Knob, Mode, Round, Sample};
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::QosClass;
use jiff::Timestamp;

use super::lost::task;
use crate::config::{Config, RebalanceConfig, parse_config};
use crate::enforcer::{ClassesKnown, Enforcement, Enforcer, Originals, Questions, RuntimeCalls};
use crate::inbox::{Events, Inbox, inbox};
use crate::rebalancer::reach::Reach;
use crate::rebalancer::scene::{Bounds, Stays, scene_of};
use crate::rebalancer::task::{Looker, RebalancerTask};
use crate::rebalancer::view::Told;
use crate::test_support::{make, new_container, state};

const PERIOD: Duration = Duration::from_secs(5);
/// Until then the neighbour does little, and what is usual for the server is learned.
const CALM_ROUNDS: u32 = 400;
/// What is not judged by then never is.
const ROUNDS_MAX: u32 = 700;

/// What a container asks for.
#[derive(Clone, Copy)]
enum Asks {
    /// CPUs of its own.
    Owns(i64),
    /// Half a CPU.
    Shares,
    /// Nothing.
    Nothing,
}

/// A server that needs six times as many cycles as usual while its neighbour is in the first of two places.
struct Case {
    machine: &'static str,
    /// In the order in which they come, by name. Those that are neither `server` nor `neighbour` go before it begins.
    containers: &'static [(&'static str, Asks)],
    knob: Knob,
    /// Where the neighbour is, and where it goes: its CPUs, or its group of resctrl.
    places: [&'static str; 2],
}

/// In a machine with these classes.
const CLASSES: &str = "
resctrl:
  monitor: off
  partitions:
    all:
      l3Allocation: 100%
      mbAllocation: [100%]
      classes:
        besteffort:
        half: {l3Allocation: 50%}
        quiet: {mbAllocation: [20%]}
";
/// A thread of the neighbour.
const THREAD: u32 = 10;

/// A writer of kernel files.
struct Writer {
    kernel: Arc<Mutex<FakeResctrl>>,
    config: Config,
    enforcer: Enforcer,
    questions: Questions,
    _state: tempfile::TempDir,
}

struct Node {
    task: RebalancerTask,
    looker: Looker,
    inbox: Inbox,
    topology: Arc<Topology>,
    kernel: Arc<Mutex<FakeResctrl>>,
    stays: Stays,
    rounds: u32,
}

impl Writer {
    fn new(questions: Questions, neighbour: &str) -> Writer {
        let mut kernel = FakeResctrl::xeon();
        let cgroup = format!("sys/fs/cgroup/kubepods/pod-neighbour/{neighbour}");
        kernel.rest.files.extend(
            [
                ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
                (&*format!("{cgroup}/cgroup.stat"), "nr_descendants 0\n"),
            ]
            .map(|(path, text)| (path.to_owned(), text.to_owned())),
        );
        kernel.add_thread(THREAD, &cgroup);
        let kernel = Arc::new(Mutex::new(kernel));
        let state = tempfile::tempdir().unwrap();
        let (originals, _) = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap();
        let enforcer = Enforcer::new(Box::new(Arc::clone(&kernel)), originals);
        let config = parse_config(Path::new("f"), CLASSES).unwrap();
        Writer { kernel, config, enforcer, questions, _state: state }
    }

    fn write(&mut self, occupancy: &Occupancy) {
        let outcome = self.enforcer.enforce(&self.config, occupancy, Duration::ZERO);
        self.questions.note_written(occupancy.step, outcome.turned);
    }
}

async fn answer(mut events: Events, mut state: NodeState, mut writer: Writer) {
    writer.write(&state.occupancy());
    while let Some(envelope) = events.0.recv().await {
        let changes = matches!(envelope.event, Event::Turn(_) | Event::PauseRebalance(_));
        let step = state.step(envelope.event, Timestamp::UNIX_EPOCH);
        if changes {
            writer.write(&state.occupancy());
        }
        envelope.answer.send(step.answer).unwrap();
    }
}

/// The state, and the runtime's id of the neighbour.
fn placed(case: &Case) -> (NodeState, String) {
    let mut state = state(case.machine);
    let (mut passing, mut neighbour) = (Vec::new(), String::new());
    for (pod, (name, asks)) in (0..).zip(case.containers) {
        let own = if let Asks::Owns(own) = asks { *own } else { 0 };
        let mut container = new_container(&format!("pod-{name}"), name, 0, own);
        container.pod.name = (*name).to_owned();
        container.pod.cgroup_parent = format!("/kubepods/pod-{name}");
        let wish = ("bayplan.dev/rebalance".to_owned(), "act".to_owned());
        container.pod.annotations.extend([wish]);
        let (qos, shares) = match asks {
            Asks::Owns(own) => (QosClass::Guaranteed, own * 1024),
            Asks::Shares => (QosClass::Burstable, 512),
            Asks::Nothing => (QosClass::BestEffort, 2),
        };
        (container.pod.qos, container.resources.cpu_shares) = (Some(qos), shares);
        let id = make(&mut state, pod, container);
        match *name {
            "server" => {}
            "neighbour" => neighbour = id,
            _ => passing.push(id),
        }
    }
    for id in passing {
        state.step(Event::Ended(id), Timestamp::UNIX_EPOCH);
    }
    (state, neighbour)
}

impl Node {
    fn new(case: &Case, told: &Told) -> Node {
        let (inbox, events) = inbox(8);
        let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
        let (task, config) = task(inbox.clone(), &enforcement, told);
        let (state, neighbour) = placed(case);
        let writer = Writer::new(questions, &neighbour);
        let kernel = Arc::clone(&writer.kernel);
        tokio::spawn(answer(events, state, writer));
        let topology = Arc::new(derive(&parse_machine(case.machine).unwrap()).unwrap());
        let looker = Looker::new(&config.rebalance);
        Node { task, looker, inbox, topology, kernel, stays: Stays::default(), rounds: 0 }
    }

    async fn occupancy(&self) -> Arc<Occupancy> {
        match self.inbox.ask(Event::Occupancy).await {
            Some(Answer::Occupancy(occupancy)) => occupancy,
            other => panic!("{other:?}"),
        }
    }

    /// Where the neighbour is.
    async fn place(&self, knob: Knob) -> String {
        let occupancy = self.occupancy().await;
        match knob {
            Knob::Cache | Knob::Bandwidth => self.kernel.lock().unwrap().group_of(THREAD).unwrap(),
            _ => of(&occupancy, "neighbour").cpus.to_string(),
        }
    }

    /// A look at five seconds in which the server suffers from where its neighbour is, or whatever is done.
    async fn look(&mut self, case: &Case, helps: bool) {
        self.rounds += 1;
        let at = PERIOD * self.rounds;
        self.looker.started = Instant::now().checked_sub(at).unwrap();
        let is_beside = self.place(case.knob).await == case.places[0];
        let occupancy = self.occupancy().await;
        let occupancy = self.task.end_moves(&mut self.looker, occupancy).await.unwrap();
        self.stays.note(&occupancy, at);
        let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
        let resctrl = parse_config(Path::new("f"), CLASSES).unwrap().resctrl;
        let classes = ClassesKnown::read(&mut *self.kernel.lock().unwrap(), &resctrl);
        let reach =
            Reach { knobs: [case.knob].into(), lacking: None, classes: classes.map(Arc::new) };
        let bounds = Bounds { config: &config, reach: &reach };
        let scene = scene_of(&occupancy, Arc::clone(&self.topology), &self.stays, bounds, false);
        assert_eq!(scene.unrest, None);
        let samples = self.samples(&occupancy, is_beside || !helps);
        let round = Round { at, period: PERIOD, samples };
        let decisions = self.looker.rebalancer.look(&scene, &round);
        self.task.follow(&mut self.looker, &scene, decisions).await.unwrap();
    }

    fn samples(&self, occupancy: &Occupancy, is_hurt: bool) -> BTreeMap<ContainerId, Sample> {
        let is_loud = self.rounds > CALM_ROUNDS;
        let sample = |cpus, cycles| Sample {
            cpus,
            cycles_per_instruction: Some(cycles),
            cache_misses: Some(cycles),
            ..Sample::default()
        };
        let server = sample(0.9, if is_loud && is_hurt { 6.0 } else { 1.0 });
        let neighbour = sample(if is_loud { 0.9 } else { 0.1 }, 1.0);
        let samples = [("server", server), ("neighbour", neighbour)];
        samples.map(|(name, sample)| (of(occupancy, name).id, sample)).into()
    }
}

fn of<'a>(occupancy: &'a Occupancy, name: &str) -> &'a Occupant {
    occupancy.occupants.iter().find(|it| it.spec.name == name).unwrap()
}

async fn check(case: &Case) {
    use ProposalState::{Kept, Undone};
    for (helps, due) in [(true, Kept), (false, Undone.of_knob(case.knob.name()))] {
        let told = Told::default();
        let mut node = Node::new(case, &told);
        assert_eq!(node.place(case.knob).await, case.places[0]);
        let mut places = Vec::new();
        let is_judged = |it: &Told| {
            let proposals = it.view("act", false).proposals;
            proposals.iter().any(|it| it.knob == case.knob.name() && it.state == due)
        };
        // An owner is not moved back.
        let stays = case.knob == Knob::MoveOwner;
        while !is_judged(&told) {
            node.look(case, helps).await;
            places.push(node.place(case.knob).await);
            assert!(node.rounds < ROUNDS_MAX, "{:#?}", told.view("act", false));
        }
        places.dedup();
        let there_and_back = [case.places[0], case.places[1], case.places[0]];
        let seen = if helps || stays { &there_and_back[..2] } else { &there_and_back[..] };
        assert_eq!(places, seen, "{:?} helps: {helps}", case.knob);
        // Whatever has helped.
        node.inbox.ask(Event::PauseRebalance(true)).await.unwrap();
        assert_eq!(node.place(case.knob).await, case.places[usize::from(stays)]);
    }
}

#[tokio::test]
async fn a_container_beside_the_victims_threads_leaves_their_cores() {
    check(&Case {
        machine: "pack:1 numa:1 core:4 pu:2 mem:8",
        containers: &[("server", Asks::Owns(1)), ("neighbour", Asks::Shares)],
        knob: Knob::Siblings,
        places: ["0,2-7", "0,2-4,6-7"],
    })
    .await;
}

#[tokio::test]
async fn a_container_that_shares_a_node_with_the_victim_goes_to_another_one() {
    check(&Case {
        machine: "pack:1 numa:2 l3:1 core:4 pu:1 mem:8",
        containers: &[
            ("first", Asks::Owns(3)),
            ("neighbour", Asks::Shares),
            ("server", Asks::Owns(2)),
        ],
        knob: Knob::Move,
        places: ["6-7", "0-3"],
    })
    .await;
}

#[tokio::test]
async fn an_owner_of_cpus_under_the_victims_cache_gets_others() {
    check(&Case {
        machine: "pack:1 numa:1 l3:2 core:4 pu:1 mem:8",
        containers: &[("server", Asks::Owns(2)), ("neighbour", Asks::Owns(1))],
        knob: Knob::MoveOwner,
        places: ["3", "4"],
    })
    .await;
}

#[tokio::test]
async fn a_container_that_fills_the_victims_cache_or_its_memory_bus_gets_a_narrower_class() {
    for (knob, class) in [(Knob::Cache, "bayplan.half"), (Knob::Bandwidth, "bayplan.quiet")] {
        check(&Case {
            machine: "pack:1 numa:1 l3:1 core:4 pu:1 mem:8",
            containers: &[("server", Asks::Owns(2)), ("neighbour", Asks::Nothing)],
            knob,
            places: ["bayplan.besteffort", class],
        })
        .await;
    }
}
