//! From samples through proposal, knob and verdict, and back: with the state and its ledger, without a runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_allocator::ContainerId;
use bayplan_rebalance::{Knob, Mode, Round, Sample};
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::{CpuSet, QosClass};
use jiff::Timestamp;

use super::lost::task;
use crate::config::RebalanceConfig;
use crate::enforcer::{Enforcement, RuntimeCalls};
use crate::event::{Answer, Event};
use crate::inbox::{Events, Inbox, inbox};
use crate::occupancy::{Occupancy, Occupant};
use crate::rebalancer::reach::Reach;
use crate::rebalancer::scene::{Bounds, Stays, scene_of};
use crate::rebalancer::task::{Looker, RebalancerTask};
use crate::rebalancer::view::{ProposalState, Told};
use crate::state::NodeState;
use crate::state::tests::{make, new_container, state};

const PERIOD: Duration = Duration::from_secs(5);
/// Until then the neighbour does little, and what is usual for the server is learned.
const CALM_ROUNDS: u32 = 400;
/// What is not judged by then never is.
const ROUNDS_MAX: u32 = 700;

/// A server that needs six times as many cycles as usual while it is beside a neighbour, and where both are.
struct Case {
    machine: &'static str,
    /// Containers in the order in which they come, by name: with CPUs of their own, or none. Those that are neither `server` nor `neighbour` go before it begins.
    containers: &'static [(&'static str, i64)],
    knob: Knob,
    /// Where the neighbour is, and where it goes.
    places: [&'static str; 2],
    /// What they must not share for the server to be well.
    beside: fn(&Topology, &CpuSet) -> CpuSet,
}

struct Node {
    task: RebalancerTask,
    looker: Looker,
    inbox: Inbox,
    topology: Arc<Topology>,
    stays: Stays,
    rounds: u32,
}

async fn answer(mut events: Events, mut state: NodeState) {
    while let Some(envelope) = events.0.recv().await {
        let step = state.step(envelope.event, Timestamp::UNIX_EPOCH);
        envelope.answer.send(step.answer).unwrap();
    }
}

fn placed(case: &Case) -> NodeState {
    let mut state = state(case.machine);
    let mut passing = Vec::new();
    for (pod, (name, own)) in (0..).zip(case.containers) {
        let mut container = new_container(&format!("pod-{name}"), name, 0, *own);
        container.pod.name = (*name).to_owned();
        let wish = ("bayplan.dev/rebalance".to_owned(), "act".to_owned());
        container.pod.annotations.extend([wish]);
        if *own == 0 {
            container.pod.qos = Some(QosClass::Burstable);
            container.resources.cpu_shares = 512;
        }
        let id = make(&mut state, pod, container);
        passing.extend((!["server", "neighbour"].contains(name)).then_some(id));
    }
    for id in passing {
        state.step(Event::Ended(id), Timestamp::UNIX_EPOCH);
    }
    state
}

impl Node {
    fn new(case: &Case, told: &Told) -> Node {
        let (inbox, events) = inbox(8);
        let (enforcement, _) = Enforcement::new(RuntimeCalls::default());
        let (task, config) = task(inbox.clone(), &enforcement, told);
        tokio::spawn(answer(events, placed(case)));
        let topology = Arc::new(derive(&parse_machine(case.machine).unwrap()).unwrap());
        let looker = Looker::new(&config.rebalance);
        Node { task, looker, inbox, topology, stays: Stays::default(), rounds: 0 }
    }

    async fn occupancy(&self) -> Box<Occupancy> {
        match self.inbox.ask(Event::Occupancy).await {
            Some(Answer::Occupancy(occupancy)) => occupancy,
            other => panic!("{other:?}"),
        }
    }

    async fn neighbour(&self) -> String {
        let occupancy = self.occupancy().await;
        occupancy.occupants.iter().find(|it| is(it, "neighbour")).unwrap().cpus.to_string()
    }

    /// A look at five seconds in which the server suffers beside its neighbour, or whatever is done.
    async fn look(&mut self, case: &Case, helps: bool) {
        self.rounds += 1;
        let at = PERIOD * self.rounds;
        self.looker.started = Instant::now().checked_sub(at).unwrap();
        let occupancy = self.occupancy().await;
        let occupancy = self.task.end_moves(&mut self.looker, occupancy).await.unwrap();
        self.stays.note(&occupancy, at);
        let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
        let knobs = [Knob::Siblings, Knob::Move, Knob::MoveOwner].into();
        let reach = Reach { knobs, lacking: None, classes: None };
        let bounds = Bounds { config: &config, reach: &reach };
        let scene = scene_of(&occupancy, Arc::clone(&self.topology), &self.stays, bounds, false);
        assert_eq!(scene.unrest, None);
        let samples = self.samples(case, &occupancy, helps);
        let round = Round { at, period: PERIOD, samples };
        let decisions = self.looker.rebalancer.look(&scene, &round);
        self.task.follow(&mut self.looker, &scene, decisions).await.unwrap();
    }

    fn samples(
        &self,
        case: &Case,
        occupancy: &Occupancy,
        helps: bool,
    ) -> BTreeMap<ContainerId, Sample> {
        let find = |name| occupancy.occupants.iter().find(|it| is(it, name)).unwrap();
        let (server, neighbour) = (find("server"), find("neighbour"));
        let is_loud = self.rounds > CALM_ROUNDS;
        let is_beside = (case.beside)(&self.topology, &server.cpus).intersects(&neighbour.cpus);
        let suffers = is_loud && (is_beside || !helps);
        let sample = |cpus, cycles| Sample {
            cpus,
            cycles_per_instruction: Some(cycles),
            cache_misses: Some(cycles),
            ..Sample::default()
        };
        let server = (server.id, sample(0.9, if suffers { 6.0 } else { 1.0 }));
        let neighbour = (neighbour.id, sample(if is_loud { 0.9 } else { 0.1 }, 1.0));
        [server, neighbour].into()
    }
}

fn is(occupant: &Occupant, name: &str) -> bool {
    occupant.spec.name == name
}

async fn check(case: &Case) {
    use ProposalState::{Kept, Undone};
    for (helps, due) in [(true, Kept), (false, Undone)] {
        let told = Told::default();
        let mut node = Node::new(case, &told);
        assert_eq!(node.neighbour().await, case.places[0]);
        let mut places = Vec::new();
        let is_judged = |it: &Told| {
            let proposals = it.view("act", false).proposals;
            proposals.iter().any(|it| it.knob == case.knob.name() && it.state == due)
        };
        while !is_judged(&told) {
            node.look(case, helps).await;
            places.push(node.neighbour().await);
            assert!(node.rounds < ROUNDS_MAX, "{:#?}", told.view("act", false));
        }
        places.dedup();
        let there_and_back = [case.places[0], case.places[1], case.places[0]];
        let seen = if helps { &there_and_back[..2] } else { &there_and_back[..] };
        assert_eq!(places, seen, "helps: {helps}");
        // Whatever has helped.
        node.inbox.ask(Event::PauseRebalance(true)).await.unwrap();
        assert_eq!(node.neighbour().await, case.places[0]);
    }
}

#[tokio::test]
async fn who_runs_beside_the_victims_threads_leaves_their_cores() {
    check(&Case {
        machine: "pack:1 numa:1 core:4 pu:2 mem:8",
        containers: &[("server", 1), ("neighbour", 0)],
        knob: Knob::Siblings,
        places: ["0,2-7", "0,2-4,6-7"],
        beside: |topology, cpus| topology.core_of(cpus.first().unwrap()).unwrap().clone(),
    })
    .await;
}

#[tokio::test]
async fn who_shares_a_node_with_the_victim_goes_to_another_one() {
    check(&Case {
        machine: "pack:1 numa:2 l3:1 core:4 pu:1 mem:8",
        containers: &[("first", 3), ("neighbour", 0), ("server", 2)],
        knob: Knob::Move,
        places: ["6-7", "0-3"],
        beside: |topology, cpus| {
            let mut nodes = topology.nodes().iter();
            nodes.find(|it| it.cpus.intersects(cpus)).unwrap().cpus.clone()
        },
    })
    .await;
}

#[tokio::test]
async fn who_owns_cpus_under_the_victims_cache_gets_others() {
    check(&Case {
        machine: "pack:1 numa:1 l3:2 core:4 pu:1 mem:8",
        containers: &[("server", 2), ("neighbour", 1)],
        knob: Knob::MoveOwner,
        places: ["3", "4"],
        beside: |topology, cpus| {
            let mut caches = topology.caches().iter().filter(|it| it.level == 3);
            caches.find(|it| it.cpus.intersects(cpus)).unwrap().cpus.clone()
        },
    })
    .await;
}
