//! What came to the node of a history as a whole, once more: starts, other machines, other configurations, looks at the runtime.

use std::collections::BTreeMap;

use anyhow::Context as _;
use bayplan_config::new_state_beside;
use bayplan_host::parse_recorded_machine;
use bayplan_node::event::{Answer, ChangedMachine, Event, RuntimeView, Seen, SeenDetails};
use bayplan_node::history::{Entry, Kind};
use bayplan_node::record::replay;
use bayplan_topology::Topology;
use bayplan_types::Pinning;
use jiff::{SignedDuration, Timestamp};

use super::Player;
use crate::replay::container::runtime_id;
use crate::replay::played::{RefusedChange, recorded_config, tells_looks};

/// As long as the daemon waits between two looks at the runtime.
const LOOK_AFTER: SignedDuration = SignedDuration::from_secs(2);

impl Player<'_> {
    /// The daemon was started again, or says anew where all containers are.
    pub(super) fn reopen(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let Some(node) = &entry.node else { return Ok(()) };
        let gone = self.live.iter().filter(|(id, _)| !node.live.contains(id));
        let gone: Vec<u64> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.leave(id);
        }
        if entry.kind == Kind::Continued {
            return Ok(());
        }
        // Later ones are those of the replay itself.
        if self.containers.is_empty() {
            self.groups.clone_from(&node.groups);
        }
        let config = recorded_config(&node.config)?;
        self.tells_looks = tells_looks(&config);
        self.config = self.setting.config(&config);
        // As the daemon does it: what is there is read from the journal.
        let records = self.state.snapshot_records();
        let lines: Vec<String> =
            records.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        let live = replay(&lines);
        self.state = new_state_beside(&self.config, &self.topology, &live.held())?;
        let reserved = self.state.ledger().pools().reserved();
        self.chosen = self.config.division().chosen(&self.topology, reserved);
        let step = self.state.restore(live, self.now);
        self.absorb(step, None);
        self.due = None;
        self.look(Vec::new());
        Ok(())
    }

    pub(super) fn change_machine(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let files = entry.machine.as_ref().and_then(|machine| machine.files.as_ref());
        let Some(files) = files.filter(|_| self.setting.topology.is_none()) else { return Ok(()) };
        let topology = parse_recorded_machine(files).context("a machine in the history")?;
        if topology != self.topology {
            self.go_on_with(topology);
        }
        Ok(())
    }

    pub(super) fn go_on_with(&mut self, topology: Topology) {
        self.played.machines += 1;
        let division = self.config.division();
        let settled = division.settled(&topology, &self.chosen);
        let machine = ChangedMachine::divided(&topology, &settled);
        self.chosen = division.chosen(&topology, &self.chosen);
        self.topology = topology;
        self.step(Event::MachineChanged(Box::new(machine)), None);
    }

    /// Another configuration held from then on. Where another one is to be tried, that one goes on to hold.
    pub(super) fn change_config(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let Some(node) = &entry.node else { return Ok(()) };
        let recorded = recorded_config(&node.config)?;
        self.tells_looks = tells_looks(&recorded);
        let config = self.setting.config(&recorded);
        if config == self.config {
            return Ok(());
        }
        let changed = config.changed(&self.topology, &self.chosen);
        let changed =
            Box::new(changed.context("a configuration in the history does not suit the machine")?);
        let event = match node.is_taken_back {
            true => Event::ConfigTakenBack(changed, "as in the history".to_owned()),
            false => Event::ConfigChanged(changed),
        };
        match self.step(event, None).0 {
            Answer::NotPossible(lacking) => {
                self.played.refused_changes.push(RefusedChange { at: entry.at, lacking });
            }
            _ => {
                self.chosen = config.division().chosen(&self.topology, &self.chosen);
                self.config = config;
                self.due.get_or_insert(self.now);
            }
        }
        Ok(())
    }

    /// Where there is something to look for, and where the history cannot say when that was done.
    pub(super) fn look_if_due(&mut self) {
        let is_over = |due: Timestamp| self.now.duration_since(due) >= LOOK_AFTER;
        if !self.tells_looks && self.due.is_some_and(is_over) {
            self.look(Vec::new());
        }
    }

    /// The runtime is asked what runs: all containers, and those that were found.
    pub(super) fn look(&mut self, found: Vec<(usize, SeenDetails)>) {
        self.due = None;
        let (answer, _) = self.step(Event::SyncStarted, None);
        let Answer::SyncBasis { basis, known, .. } = answer else { return };
        let places = self.places();
        let mut found: BTreeMap<usize, SeenDetails> = found.into_iter().collect();
        let held = self.containers.iter().enumerate().filter(|(_, container)| container.is_held);
        let containers = held.map(|(number, container)| {
            let id = runtime_id(number);
            let place = places.get(&id).filter(|_| !known.contains(&id));
            let where_it_is = place.map(|place| SeenDetails {
                container: container.spec.clone(),
                pinning: Pinning {
                    cpus: place.cpus.parse().unwrap_or_default(),
                    mems: place.mems.parse().unwrap_or_default(),
                },
            });
            let (pod_id, name, attempt) = container.key.clone();
            let details = found.remove(&number).or(where_it_is).map(Box::new);
            (id, Seen { pod_id, name, attempt, is_alive: true, is_running: true, details })
        });
        let containers = containers.collect();
        self.step(Event::Synced(RuntimeView { basis, containers }), None);
    }
}
