//! What a decision costs on this machine with what it holds now. In: the journal's records. Out: times of placing containers on copies of the state; nothing is
//! kept.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use bayplan_config::{Config, new_state_beside};
use bayplan_node::NodeState;
use bayplan_node::event::{Answer, Event};
use bayplan_node::record::replay;
use bayplan_topology::Topology;
use bayplan_types::CpuSet;
use bayplan_workload::{Admission, NewContainer, Ticket};
use jiff::Timestamp;

use crate::bench::figures::{Figure, LeftOut, Part};
use crate::simulate::pods::parse_pods;

/// The state as a daemon that starts now has it.
pub(super) struct Node {
    state: NodeState,
    pub(super) containers: usize,
}

/// From the journal's records.
///
/// # Errors
/// The configuration does not suit the machine.
pub(super) fn restore(
    config: &Config,
    topology: &Topology,
    records: &[String],
) -> anyhow::Result<Node> {
    let live = replay(records);
    let containers = live.containers.len();
    let state = new_state_beside(config, topology, &live.held());
    let mut state = state.context("the configuration does not suit this machine")?;
    state.restore(live, Timestamp::now());
    Ok(Node { state, containers })
}

/// Places each container `rounds` times, each time on a copy of the same state.
pub(super) fn measure(node: Node, topology: &Topology, rounds: usize) -> Part {
    let (mut figures, mut left_out) = (Vec::new(), Vec::new());
    for (name, resources) in wanted(largest_node(topology)) {
        match container(&resources) {
            Ok(container) => figures.extend(place(&node.state, &name, &container, rounds)),
            Err(error) => left_out.push(LeftOut::new(&name, format!("{error:#}"))),
        }
    }
    (figures, left_out)
}

/// CPUs of the NUMA node that has most.
fn largest_node(topology: &Topology) -> usize {
    let sizes = topology.nodes().iter().map(|it| topology.cpus().intersection(&it.cpus).len());
    sizes.max().filter(|it| *it > 0).unwrap_or_else(|| topology.cpus().len())
}

/// Names, and resources in YAML.
fn wanted(node_cpus: usize) -> Vec<(String, String)> {
    let exclusive = |cpus: usize| format!("{{limits: {{cpu: {cpus}, memory: 64Mi}}}}");
    let half = (node_cpus / 2).max(1);
    let mut wanted = vec![("place 1 exclusive CPU".to_owned(), exclusive(1))];
    if half > 1 {
        wanted.push((format!("place {half} exclusive CPUs"), exclusive(half)));
    }
    let shared = [
        ("place a shared container, 500m", "{requests: {cpu: 500m, memory: 64Mi}}"),
        ("place a shared container without a request", "{}"),
    ];
    wanted.extend(shared.map(|(name, resources)| (name.to_owned(), resources.to_owned())));
    wanted
}

/// A container of a pod that there is not.
fn container(resources: &str) -> anyhow::Result<NewContainer> {
    let text = format!(
        "kind: Pod\nmetadata: {{name: bench, namespace: default}}\nspec: {{containers: [{{name: main, resources: {resources}}}]}}\n"
    );
    let arrival = parse_pods(Path::new("bench"), &text)?.into_iter().next();
    Ok(arrival.context("no container")?.container)
}

fn place(state: &NodeState, name: &str, container: &NewContainer, rounds: usize) -> Option<Figure> {
    let (mut times, mut result) = (Vec::new(), String::new());
    // The first has the copied memory to get, and is not counted.
    for round in 0..=rounds {
        let mut trial = state.clone();
        let event = Event::Admit(Ticket(0), Box::new(container.clone()));
        let begun = Instant::now();
        let step = trial.step(event, Timestamp::now());
        let took = begun.elapsed();
        if round > 0 {
            times.push(took);
        }
        result = told(&step.answer);
    }
    Figure::of(name, result, &times)
}

/// What kubelet would have been answered.
fn told(answer: &Answer) -> String {
    match answer {
        Answer::Admission(Admission::Place(pinning)) => format!("CPUs {}", shown(&pinning.cpus)),
        Answer::Admission(Admission::Refuse(why) | Admission::Unavailable(why)) => {
            format!("refused: {why}")
        }
        _ => "not placed in this mode".to_owned(),
    }
}

fn shown(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "as the runtime has it".to_owned() } else { cpus.to_string() }
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};

    use super::*;

    #[test]
    fn decisions_are_of_what_the_journal_holds_and_change_nothing() {
        let topology = derive(&parse_machine("numa:2 core:4 pu:2").unwrap()).unwrap();
        let config = Config::default();
        let mut before = restore(&config, &topology, &[]).unwrap();
        // One that owns a whole NUMA node.
        let owner = container("{limits: {cpu: 8, memory: 64Mi}}").unwrap();
        let step = before.state.step(Event::Admit(Ticket(0), Box::new(owner)), Timestamp::now());
        let cpus = |result: &str| -> CpuSet {
            result.strip_prefix("CPUs ").unwrap_or_else(|| panic!("{result}")).parse().unwrap()
        };
        let owned = cpus(&told(&step.answer));
        let records = before.state.snapshot_records();
        let records: Vec<String> =
            records.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
        let node = restore(&config, &topology, &records).unwrap();
        assert_eq!(node.containers, 1);
        let state = node.state.clone();
        let held = state.ledger().version();
        let (figures, left_out) = measure(node, &topology, 3);
        assert_eq!((left_out, state.ledger().version()), (Vec::new(), held));
        let expected = [
            ("place 1 exclusive CPU", 1),
            ("place 4 exclusive CPUs", 4),
            ("place a shared container, 500m", 8),
            ("place a shared container without a request", 8),
        ];
        let shown = figures.iter().map(|it| (it.name.as_str(), cpus(&it.result).len()));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        for Figure { name, result, count, .. } in &figures {
            assert!(*count == 3 && cpus(result).is_disjoint(&owned), "{name}: {result}");
        }
    }

    #[test]
    fn what_has_no_room_is_told_as_refused() {
        let topology = derive(&parse_machine("numa:1 core:1 pu:1").unwrap()).unwrap();
        let node = restore(&Config::default(), &topology, &[]).unwrap();
        let wish = container("{limits: {cpu: 4, memory: 64Mi}}").unwrap();
        let figure = place(&node.state, "place 4", &wish, 1).unwrap();
        assert!(figure.result.starts_with("refused: "), "{}", figure.result);
    }
}
