//! What the simulator says of a trace is what the daemon does with it, when there is no hurry: the same containers through the state of the daemon,
//! with a sync after every event, have the same CPUs at every moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::Ledger;
use bayplan_allocator::policy::{Policy, pools};
use bayplan_node::NodeState;
use bayplan_node::settings::CompactionConfig;
use bayplan_topology::{derive, parse_machine};
use bayplan_workload::RequestRules;
use proptest::prelude::*;

use crate::simulate::in_groups::{Node, Place};
use crate::simulate::placement::Outcome;
use crate::simulate::replay::Replay;
use crate::simulate::tests::{random_trace, trace};
use crate::simulate::trace::Trace;

/// Where each container is, by name.
type Places = BTreeMap<String, Place>;

fn simulated(replay: &Replay) -> Places {
    let names = replay.names().into_iter();
    let held = names.filter_map(|(id, name)| Some((name, replay.ledger().allocation(id)?)));
    let places = held.map(|(name, held)| {
        let (exclusive, mems) = (held.exclusive.clone(), held.mems.clone());
        (name.to_owned(), Place { exclusive, cpus: replay.ledger().cpus_of(held), mems })
    });
    places.collect()
}

/// Both play the trace event by event; how many the daemon has moved.
fn check(line: &str, trace: &Trace, config: CompactionConfig) -> Result<usize, TestCaseError> {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = Arc::new(pools(&topology, Policy::default(), &"0".parse().unwrap()).unwrap());
    let rules = RequestRules::default();
    let state = NodeState::new(Ledger::new(Arc::clone(&pools)), rules.clone(), String::new());
    let state = state.with_compaction(config);
    let mut node = Node::new(state);
    let mut moved = 0;
    let mut replay = Replay::new(Ledger::new(pools), rules, config);
    for event in &trace.events {
        let asked = replay.understand(event);
        let decided = replay.decide(asked);
        let simulated_outcome = replay.settle(decided);
        let decided = node.decide(event);
        let outcome = node.settle(event, decided);
        moved += match &outcome {
            Outcome::Placed(placed) => placed.effect.moved.len(),
            Outcome::Removed(effect) => effect.moved.len(),
            Outcome::Refused { .. } | Outcome::Skipped => 0,
        };
        // Refusals are told in other words.
        if !matches!(outcome, Outcome::Refused { .. }) {
            prop_assert_eq!(outcome, simulated_outcome, "{:?}", event);
        }
        prop_assert_eq!(node.places(), &simulated(&replay), "{:?}", event);
    }
    Ok(moved)
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
