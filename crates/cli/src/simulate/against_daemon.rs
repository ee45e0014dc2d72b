//! What the simulator says of a trace is what the daemon does with it, when there is no hurry: the same containers through the state of the daemon,
//! with a sync after every event, have the same CPUs at every moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::Ledger;
use bayplan_allocator::policy::{Policy, pools};
use bayplan_node::NodeState;
use bayplan_node::event::{Answer, Event, Note, RuntimeView, Seen};
use bayplan_node::settings::CompactionConfig;
use bayplan_topology::{derive, parse_machine};
use bayplan_workload::{Admission, CreateOutcome, RequestRules, Ticket};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::simulate::replay::{Replay, new_container};
use crate::simulate::tests::{random_trace, trace};
use crate::simulate::trace::{self, Op, Trace};

/// Which container owns which CPUs, which runs on which, and with which memory, by name.
type Places = BTreeMap<String, (String, String, String)>;

/// A node with a runtime that does what it is told.
struct Node {
    state: NodeState,
    /// The runtime's containers: id and name are one.
    live: Vec<String>,
    tickets: u64,
    moved: usize,
}

impl Node {
    fn step(&mut self, event: Event) -> Answer {
        let step = self.state.step(event, Timestamp::UNIX_EPOCH);
        let is_move = |note: &&Note| matches!(note, Note::Moved { .. });
        self.moved += step.notes.iter().filter(is_move).count();
        step.answer
    }

    fn sync(&mut self) {
        let Answer::SyncBasis { basis, .. } = self.step(Event::SyncStarted) else { return };
        let seen = |name: &String| Seen {
            pod_id: String::new(),
            name: name.clone(),
            attempt: 0,
            is_alive: true,
            is_running: true,
            details: None,
        };
        let containers = self.live.iter().map(|name| (name.clone(), seen(name))).collect();
        self.step(Event::Synced(RuntimeView { basis, containers }));
    }

    fn play(&mut self, event: &trace::Event) {
        match &event.op {
            Op::Create(wanted) => {
                self.tickets += 1;
                let (ticket, spec) = (Ticket(self.tickets), new_container(&event.id, wanted));
                let first = self.step(Event::TryAdmit(ticket, Box::new(spec.clone())));
                let answer = match first {
                    Answer::Admission(Admission::Refuse(_)) => {
                        self.sync();
                        self.step(Event::Admit(ticket, Box::new(spec)))
                    }
                    placed => placed,
                };
                if matches!(answer, Answer::Admission(Admission::Place(_))) {
                    let outcome = CreateOutcome::Created { id: event.id.clone(), pinned: true };
                    self.live.push(event.id.clone());
                    self.step(Event::CreateEnded(ticket, outcome));
                }
            }
            Op::Remove => {
                self.live.retain(|name| *name != event.id);
                self.step(Event::Ended(event.id.clone()));
            }
        }
        self.sync();
    }

    fn places(&mut self) -> Places {
        let Answer::Status(status) = self.step(Event::Status) else { return Places::new() };
        let held = status.containers.into_iter();
        held.map(|it| (it.container, (it.exclusive, it.cpus, it.mems))).collect()
    }
}

fn simulated(replay: &Replay) -> Places {
    let names = replay.names().into_iter();
    let held = names.filter_map(|(id, name)| Some((name, replay.ledger().allocation(id)?)));
    let texts = held.map(|(name, held)| {
        let cpus = replay.ledger().cpus_of(held).to_string();
        (name.to_owned(), (held.exclusive.to_string(), cpus, held.mems.to_string()))
    });
    texts.collect()
}

/// Both play the trace event by event; how many the daemon has moved.
fn check(line: &str, trace: &Trace, config: CompactionConfig) -> Result<usize, TestCaseError> {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = Arc::new(pools(&topology, Policy::default(), &"0".parse().unwrap()).unwrap());
    let rules = RequestRules::default();
    let state = NodeState::new(Ledger::new(Arc::clone(&pools)), rules.clone(), String::new());
    let state = state.with_compaction(config);
    let mut node = Node { state, live: Vec::new(), tickets: 0, moved: 0 };
    let mut replay = Replay::new(Ledger::new(pools), rules, config);
    for event in &trace.events {
        let asked = replay.understand(event);
        replay.decide(asked);
        node.play(event);
        prop_assert_eq!(node.places(), simulated(&replay), "{:?}", event);
    }
    Ok(node.moved)
}

#[test]
fn both_move_the_same() {
    let config = CompactionConfig { enabled: true, ..CompactionConfig::default() };
    let line = "pack:1 numa:2 l3:1 core:4 pu:2 mem:8";
    let words = ["+a G 4000", "+c G 2000", "+d G 2000", "-c"];
    for (known, moved) in [(3, 0), (4, 1)] {
        let trace = trace(&words[..known]);
        assert_eq!(check(line, &trace, config).unwrap(), moved, "{:?}", &words[..known]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_daemon_does_what_the_simulator_says(
        (pack, numa, l3, pu) in (1u32..3, 1u32..3, 1u32..3, 1u32..3),
        events in prop::collection::vec((0u8..12, 0u8..12), 0..60),
        enabled in prop::bool::weighted(0.8),
        moves_max in 1usize..5,
    ) {
        let line = format!("pack:{pack} numa:{numa} l3:{l3} core:4 pu:{pu} mem:8");
        let mut config = CompactionConfig { enabled, ..CompactionConfig::default() };
        config.limits.moves_max = moves_max;
        check(&line, &random_trace(&events), config)?;
    }
}
