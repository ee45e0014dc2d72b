//! Lets the daemon's own state live through a recorded history. In: entries, and what is to be different. Out: both sides of it, and for
//! each container that came where it was put and where it would have been put.
//!
//! Replayed is what came to the daemon: creations, ends, resizes, machines, configurations, starts. What it did is not, but done anew. Each creation is
//! answered and followed by the start at once, and every write succeeds; a history tells nothing else. The runtime is asked what runs where the
//! history says that the node was found at rest; where that could not be told, because nothing was to be moved, two seconds after a container came or
//! went.

mod containers;
mod node;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use bayplan_config::{Config, new_state};
use bayplan_host::parse_recorded_machine;
use bayplan_node::NodeState;
use bayplan_node::event::{Answer, Event, Step};
use bayplan_node::groups::GroupForm;
use bayplan_node::history::{Entry, Kind};
use bayplan_topology::Topology;
use bayplan_types::CpuSet;
use bayplan_workload::NewContainer;
use jiff::Timestamp;

use crate::replay::container::{Container, Key, fate, number_in};
use crate::replay::played::{Played, Setting, recorded_config, tells_looks};
use crate::replay::story::{Fate, Story};

/// Plays all of it.
///
/// # Errors
/// It has no beginning, or does not say on which machine it was; the configuration does not suit the machine.
pub(crate) fn play(entries: &[Entry], setting: &Setting) -> anyhow::Result<Played> {
    let mut begin = Beginning::default();
    let mut rest = entries;
    while let [entry, after @ ..] = rest {
        rest = after;
        if let Some(machine) = &entry.machine {
            begin.machine = machine.files.clone();
        }
        // What held from a change of the configuration on does not tell of containers.
        let is_opening = matches!(entry.kind, Kind::Started | Kind::Continued);
        if let Some(node) = entry.node.as_ref().filter(|_| is_opening) {
            let skipped = entries.len() - rest.len() - 1;
            let mut player = begin.player(entry.at, &node.config, setting)?;
            player.step(Event::SetMode(node.mode), None);
            player.played.skipped = skipped - usize::from(begin.machine.is_some());
            player.play_all(rest)?;
            return Ok(player.played);
        }
    }
    bail!(
        "this history has no complete snapshot of the node; is the beginning of the file missing?"
    )
}

/// What is known before the first opening.
#[derive(Default)]
struct Beginning {
    machine: Option<String>,
}

impl Beginning {
    fn player<'s>(
        &self,
        at: Timestamp,
        config: &str,
        setting: &'s Setting,
    ) -> anyhow::Result<Player<'s>> {
        let recorded = match &self.machine {
            Some(text) => Some(parse_recorded_machine(text).context("the machine in the history")?),
            None => None,
        };
        let Some(topology) = setting.topology.clone().or_else(|| recorded.clone()) else {
            bail!("the history does not say on which machine it was; name one with --machine");
        };
        let was = (recorded_config(config)?, recorded.unwrap_or_else(|| topology.clone()));
        let would = (setting.config(&was.0), topology);
        let state = new_state(&would.0, &would.1)?;
        Ok(Player {
            setting,
            chosen: would.0.division().chosen(&would.1, state.ledger().pools().reserved()),
            state,
            topology: would.1.clone(),
            config: would.0.clone(),
            tells_looks: tells_looks(&was.0),
            containers: Vec::new(),
            live: BTreeMap::new(),
            keys: BTreeMap::new(),
            by_id: BTreeMap::new(),
            next_id: 0,
            tickets: 0,
            due: None,
            pending: Vec::new(),
            groups: Vec::new(),
            now: at,
            played: Played {
                was: Story::new(),
                would: Story::new(),
                arrivals: Vec::new(),
                recorded: was,
                replayed: would,
                from: at,
                until: at,
                entries: 0,
                skipped: 0,
                machines: 0,
                failures: 0,
                refused_changes: Vec::new(),
            },
        })
    }
}

struct Player<'s> {
    setting: &'s Setting,
    state: NodeState,
    config: Config,
    topology: Topology,
    /// The CPUs chosen for an amount of reserved ones; empty for a list.
    chosen: CpuSet,
    tells_looks: bool,
    /// By their numbers, in the order in which they came.
    containers: Vec<Container>,
    /// Containers that have a place in the history, by the ids that they have there.
    live: BTreeMap<u64, usize>,
    /// Containers that came and have not gone, or were refused.
    keys: BTreeMap<Key, usize>,
    /// Containers that have a place in the replay, by the ids that they have there.
    by_id: BTreeMap<u64, usize>,
    /// Greater than all of these.
    next_id: u64,
    tickets: u64,
    /// Since when there is something to look for.
    due: Option<Timestamp>,
    /// Containers that were there when a segment was begun, and that the replay does not know.
    pending: Vec<Entry>,
    /// Groups that were there when the history begins.
    groups: Vec<GroupForm>,
    now: Timestamp,
    played: Played,
}

impl Player<'_> {
    fn play_all(&mut self, entries: &[Entry]) -> anyhow::Result<()> {
        let mut rest = entries;
        while let [entry, after @ ..] = rest {
            // Containers that were adopted together were seen together.
            let is_alike = |it: &Entry| it.kind == Kind::Adopted && it.at == entry.at;
            let count = match entry.kind {
                Kind::Adopted => 1 + after.iter().take_while(|it| is_alike(it)).count(),
                _ => 1,
            };
            let (now, later) = rest.split_at(count);
            rest = later;
            self.played.entries += now.len();
            self.played.until = entry.at;
            self.now = entry.at;
            self.look_if_due();
            if entry.kind != Kind::Held {
                self.take_over();
            }
            match now {
                [entry] if entry.kind != Kind::Adopted => self.play(entry)?,
                adopted => self.adopt(adopted),
            }
        }
        self.take_over();
        self.played.was.settle();
        self.played.would.settle();
        Ok(())
    }

    fn play(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let spec = || entry.spec.as_ref().map(|form| NewContainer::from((**form).clone()));
        match entry.kind {
            Kind::Started | Kind::Continued => self.reopen(entry)?,
            Kind::Machine => self.change_machine(entry)?,
            Kind::Held if self.is_known(entry) => {}
            Kind::Held => self.pending.push(entry.clone()),
            Kind::Placed | Kind::Refused => match (spec(), entry.resources) {
                (Some(spec), _) => self.create(entry, spec),
                (None, Some(update)) => self.resize(entry, update.into()),
                (None, None) => {}
            },
            Kind::Resized => {
                if let Some(update) = entry.resources {
                    self.resize(entry, update.into());
                }
            }
            Kind::PodResized => self.resize_pod(entry),
            Kind::Moved => {
                if let Some(number) = self.number_of(entry) {
                    self.played.was.moved(number, entry);
                }
            }
            Kind::Ended => self.end(entry),
            Kind::Mode => {
                if let Some(mode) = entry.mode() {
                    self.step(Event::SetMode(mode), None);
                }
            }
            Kind::Looked => self.look(Vec::new()),
            Kind::RuntimeLost | Kind::Failure => self.played.failures += 1,
            Kind::Configured => self.change_config(entry)?,
            Kind::Adopted
            | Kind::Squeezed
            | Kind::Annotated
            | Kind::RuntimeBack
            | Kind::Proposed
            | Kind::Judged
            | Kind::Unknown => {}
        }
        Ok(())
    }

    /// One step of the state, and what came of the container that it was about.
    fn step(&mut self, event: Event, subject: Option<usize>) -> (Answer, Option<Fate>) {
        let step = self.state.step(event, self.now);
        let answer = step.answer.clone();
        let fate = self.absorb(step, subject);
        (answer, fate)
    }

    fn absorb(&mut self, step: Step, subject: Option<usize>) -> Option<Fate> {
        if step.sync_soon {
            self.due.get_or_insert(self.now);
        }
        let mut came = None;
        for entry in step.history {
            let id = entry.who.as_ref().and_then(|who| who.id);
            match entry.kind {
                Kind::Placed | Kind::Refused | Kind::Resized => came = Some(fate(&entry)),
                Kind::Moved => {
                    if let Some(number) = id.and_then(|id| self.by_id.get(&id)).copied() {
                        self.played.would.moved(number, &entry);
                    }
                }
                Kind::Ended => {
                    if let Some(number) = id.and_then(|id| self.by_id.remove(&id)) {
                        self.hold(number, false);
                        self.played.would.go(number);
                    }
                }
                _ => {}
            }
            if let (Kind::Placed, Some(id), Some(number)) = (entry.kind, id, subject) {
                self.by_id.insert(id, number);
                self.next_id = self.next_id.max(id + 1);
            }
            if let (Kind::Adopted, Some(id)) = (entry.kind, id) {
                let runtime_id = entry.who.and_then(|who| who.runtime_id);
                self.by_id.extend(runtime_id.and_then(|it| number_in(&it)).map(|it| (id, it)));
                self.next_id = self.next_id.max(id + 1);
            }
        }
        came
    }
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};

    use super::*;

    /// Issue 34: while all but one of the chosen CPUs were with containers, the choice was forgotten.
    #[test]
    fn an_amount_of_reserved_cpus_is_what_the_daemon_has_chosen() {
        let machine = |offline: &str| {
            let line = format!("numa:1 core:4 pu:1{offline}");
            derive(&parse_machine(&line).unwrap()).unwrap()
        };
        let setting = Setting { topology: Some(machine(" offline:0")), ..Setting::default() };
        let config = "reservedCpus: 2 CPUs\n";
        let beginning = Beginning { machine: None };
        let mut player = beginning.player(Timestamp::UNIX_EPOCH, config, &setting).unwrap();
        let reserved = |it: &Player<'_>| it.state.ledger().pools().reserved().to_string();
        let mut told = vec![reserved(&player)];
        for offline in [" offline:0,3", " offline:3", ""] {
            player.go_on_with(machine(offline));
            told.push(reserved(&player));
        }
        assert_eq!(told, ["1-2", "1", "1-2", "1-2"]);
    }
}
