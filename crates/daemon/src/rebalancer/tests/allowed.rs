//! What stands and could not be made any more: what it touches has changed, or the configuration. And a strategy for wide vectors that is switched off while a container is away for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_allocator::policy::Policy;
use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_node::proposals::ProposalState;
use bayplan_node::reconfigure::{ChangedConfig, ChangedMachine};
use bayplan_node::settings::{CompactionConfig, OnNoCapacity};
use bayplan_node::state::NodeState;
use bayplan_node::turned::{Turn, Turned};
use bayplan_rebalance::{Knob, Mode, Round, Sample};
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::{CpuSet, NodeSet, QosClass};
use bayplan_workload::annotations::Rule;
use bayplan_workload::{RequestRules, VectorStrategy, WideVectors};
use jiff::{SignedDuration, Timestamp};

use super::lost::task;
use super::{annotated, occupancy, occupant, scene_within};
use crate::config::RebalanceConfig;
use crate::enforcer::{Enforcement, RuntimeCalls};
use crate::inbox::{Events, Inbox, inbox};
use crate::rebalancer::reach::Reach;
use crate::rebalancer::scene::{Bounds, Stays, scene_of};
use crate::rebalancer::task::{Looker, RebalancerTask};
use crate::rebalancer::view::Told;
use crate::test_support::{make, new_container, state_by};

/// Of a knob that stands on the first of these containers, as proposal 1, on a node in mode `act`.
#[track_caller]
fn check(knob: Knob, occupants: Vec<Occupant>, clock_classes: &[QosClass], is_allowed: bool) {
    let target = occupants[0].id;
    let (leave, mems) = (CpuSet::new(), NodeSet::new());
    let turned = Turned::from_turns([(1, Turn { knob, target, step: 1, leave, mems })]);
    let clock_classes = clock_classes.iter().copied().collect();
    let occupancy = Occupancy { turned, clock_classes, ..occupancy(occupants) };
    let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
    let reach = Reach { knobs: Knob::ALL.into(), lacking: None, classes: None };
    let bounds = Bounds { config: &config, reach: &reach };
    let scene = scene_within(&occupancy, &Stays::default(), bounds, false);
    let due: BTreeSet<u64> = if is_allowed { BTreeSet::new() } else { [1].into() };
    assert_eq!(scene.disallowed, due, "{knob:?}");
}

#[test]
fn what_could_not_be_turned_now_is_not_allowed_any_more() {
    let hog = |id, name| occupant(id, name, QosClass::BestEffort, "0-1");
    let web = || occupant(3, "web", QosClass::Burstable, "0-1");
    check(Knob::Suppress, vec![hog(1, "a"), hog(2, "b"), web()], &[], true);
    check(Knob::Suppress, vec![hog(1, "a"), annotated("observe", hog(2, "b"))], &[], false);
    let mut mate = annotated("off", hog(2, "a"));
    mate.name = "n/a/mate".to_owned();
    check(Knob::Idle, vec![hog(1, "a"), hog(2, "b")], &[], true);
    check(Knob::Idle, vec![hog(1, "a"), mate], &[], false);
    let decided = |it: Occupant| {
        let mut it = it;
        Arc::make_mut(&mut it.tuning).burst_percent = Some(0);
        it
    };
    check(Knob::Burst, vec![web()], &[], true);
    check(Knob::Burst, vec![decided(web())], &[], false);
    check(Knob::Gather, vec![web(), annotated("off", hog(2, "b"))], &[], true);
    check(Knob::Clock, vec![web()], &[QosClass::Burstable], true);
    check(Knob::Clock, vec![web()], &[QosClass::BestEffort], false);
    check(Knob::Clock, vec![web()], &[], false);
}

const MACHINE: &str = "pack:2 numa:1 core:4 pu:1 mem:8";
const PERIOD: Duration = Duration::from_secs(5);
/// What is not judged by then never is.
const ROUNDS_MAX: u32 = 100;

fn rules(burstable: VectorStrategy) -> RequestRules {
    let wide_vectors = WideVectors { burstable, ..WideVectors::default() };
    let permissions = vec![Rule::everything()];
    RequestRules { permissions, wide_vectors, ..RequestRules::default() }
}

/// What a reload tells the state.
fn reloaded(topology: &Topology, burstable: VectorStrategy) -> Event {
    Event::ConfigChanged(Box::new(ChangedConfig {
        rules: rules(burstable),
        groups: Arc::from([]),
        compaction: CompactionConfig::default(),
        narrows_memory: false,
        on_no_capacity: OnNoCapacity::default(),
        doubt_grace: SignedDuration::ZERO,
        text: String::new(),
        machine: ChangedMachine::new(topology, Policy::default(), &CpuSet::new()),
    }))
}

/// Two containers with wide vectors, squeezed into one package.
fn squeezed() -> NodeState {
    let mut state = state_by(MACHINE, rules(VectorStrategy::Squeeze));
    for (ticket, name) in (0..).zip(["first", "second"]) {
        let mut container = new_container(&format!("pod-{name}"), name, 0, 0);
        let wishes = [("bayplan.dev/wide-vectors", "true")];
        let wishes = wishes.map(|(key, value)| (key.to_owned(), value.to_owned()));
        container.pod.name = name.to_owned();
        container.pod.annotations.extend(wishes);
        (container.pod.qos, container.resources.cpu_shares) = (Some(QosClass::Burstable), 512);
        make(&mut state, ticket, container);
    }
    state
}

async fn answer(mut events: Events, mut state: NodeState) {
    while let Some(envelope) = events.0.recv().await {
        let step = state.step(envelope.event, Timestamp::UNIX_EPOCH);
        envelope.answer.send(step.answer).unwrap();
    }
}

/// The state, and the task that looks at it, without a runtime.
struct Node {
    task: RebalancerTask,
    looker: Looker,
    inbox: Inbox,
    topology: Arc<Topology>,
    stays: Stays,
    rounds: u32,
}

impl Node {
    fn new(told: &Told) -> Node {
        let (inbox, events) = inbox(8);
        let (enforcement, _) = Enforcement::new(RuntimeCalls::default());
        let (task, config) = task(inbox.clone(), &enforcement, told);
        tokio::spawn(answer(events, squeezed()));
        let topology = Arc::new(derive(&parse_machine(MACHINE).unwrap()).unwrap());
        let looker = Looker::new(&config.rebalance);
        Node { task, looker, inbox, topology, stays: Stays::default(), rounds: 0 }
    }

    async fn reload(&self, burstable: VectorStrategy) {
        let answer = self.inbox.ask(reloaded(&self.topology, burstable)).await;
        assert!(matches!(answer, Some(Answer::Shifts(_))), "{answer:?}");
    }

    async fn occupancy(&self) -> Arc<Occupancy> {
        match self.inbox.ask(Event::Occupancy).await {
            Some(Answer::Occupancy(occupancy)) => occupancy,
            other => panic!("{other:?}"),
        }
    }

    async fn places(&self) -> Vec<String> {
        self.occupancy().await.occupants.iter().map(|it| it.cpus.to_string()).collect()
    }

    /// A look in which both keep a CPU busy.
    async fn look(&mut self) {
        self.rounds += 1;
        let at = PERIOD * self.rounds;
        self.looker.started = Instant::now().checked_sub(at).unwrap();
        let occupancy = self.occupancy().await;
        let occupancy = self.task.end_moves(&mut self.looker, occupancy).await.unwrap();
        self.stays.note(&occupancy, at);
        let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
        let reach = Reach { knobs: [Knob::Clock].into(), lacking: None, classes: None };
        let bounds = Bounds { config: &config, reach: &reach };
        let scene = scene_of(&occupancy, Arc::clone(&self.topology), &self.stays, bounds, false);
        let sample = |it: &Occupant| {
            let clock = occupancy.clocks.get(&it.id).map(|it| it.gain as f64);
            (it.id, Sample { cpus: 1.0, clock, ..Sample::default() })
        };
        let samples: BTreeMap<_, _> = occupancy.occupants.iter().map(sample).collect();
        let round = Round { at, period: PERIOD, samples };
        let decisions = self.looker.rebalancer.look(&scene, &round);
        self.task.follow(&mut self.looker, &scene, decisions).await.unwrap();
    }
}

#[tokio::test]
async fn a_strategy_that_a_reload_switches_off_is_taken_back_at_the_next_look() {
    let told = Told::default();
    let mut node = Node::new(&told);
    let before = node.places().await;
    assert_eq!(before[0], before[1]);
    node.reload(VectorStrategy::Spread).await;
    let state = || {
        let last = told.view("act", false).proposals.pop();
        last.map(|it| (it.knob, it.state, it.outcome))
    };
    while !state().is_some_and(|(_, state, _)| state == ProposalState::Kept) {
        node.look().await;
        assert!(node.rounds < ROUNDS_MAX, "{:#?}", told.view("act", false));
    }
    assert_ne!(node.places().await, before);
    node.reload(VectorStrategy::Off).await;
    node.look().await;
    assert_eq!(node.places().await, before);
    let outcome = "undone: not allowed any more".to_owned();
    assert_eq!(state(), Some(("clock".to_owned(), ProposalState::Withdrawn, outcome)));
}
