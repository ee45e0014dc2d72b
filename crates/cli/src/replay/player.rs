//! Lets the daemon's own state live through a recorded history. In: entries, and what is to be different. Out: both sides of it, and for
//! each container that came where it was put and where it would have been put.
//!
//! Replayed is what came to the daemon: creations, ends, resizes, machines, starts. What it did is not, but done anew. Each creation is
//! answered and followed by the start at once, and every write succeeds; a history tells nothing else. The runtime is asked what runs where the
//! history says that the node was found at rest; where that could not be told, because nothing was to be moved, two seconds after a container came or
//! went.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use bayplan_config::{Config, new_state, new_state_beside, parse_config};
use bayplan_host::parse_recorded_machine;
use bayplan_node::NodeState;
use bayplan_node::decision::Decision;
use bayplan_node::event::{Answer, ChangedMachine, Event, RuntimeView, Seen, SeenDetails, Step};
use bayplan_node::groups::GroupForm;
use bayplan_node::history::{Entry, Kind, Place};
use bayplan_node::record::{Live, PlacedRecord, replay};
use bayplan_topology::Topology;
use bayplan_types::{CpuSet, Pinning};
use bayplan_workload::{Admission, CreateOutcome, NewContainer, ResizeOutcome, Resources, Ticket};
use jiff::{SignedDuration, Timestamp};

use crate::replay::played::{Arrival, Played, Setting};
use crate::replay::story::{Fate, Story, wanted};

/// As long as the daemon waits between two looks at the runtime.
const LOOK_AFTER: SignedDuration = SignedDuration::from_secs(2);

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
        if let Some(node) = &entry.node {
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
            people: Vec::new(),
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
            },
        })
    }
}

fn recorded_config(text: &str) -> anyhow::Result<Config> {
    let path = std::path::Path::new("the configuration in the history");
    Ok(parse_config(path, text)?)
}

/// Whether a daemon of this configuration tells when it finds the node at rest.
fn tells_looks(config: &Config) -> bool {
    config.compaction.enabled || config.narrows_memory
}

/// Names a container for as long as it lives: sandbox, name, attempt.
type Key = (String, String, u32);

/// A container that came.
#[derive(Debug)]
struct Person {
    key: Key,
    spec: NewContainer,
    /// It has a place in the replay.
    is_held: bool,
    /// It has had a place, or been refused one, in the history, and in the replay.
    is_told: [bool; 2],
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
    people: Vec<Person>,
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
            // Replayed is one configuration; which places changed because of another is told by the containers that were moved.
            Kind::Configured
            | Kind::Adopted
            | Kind::Squeezed
            | Kind::Annotated
            | Kind::RuntimeBack
            | Kind::Proposed
            | Kind::Judged
            | Kind::Unknown => {}
        }
        Ok(())
    }

    fn number_of(&self, entry: &Entry) -> Option<usize> {
        self.live.get(&entry.who.as_ref()?.id?).copied()
    }

    fn is_known(&self, entry: &Entry) -> bool {
        let person = self.number_of(entry).and_then(|number| self.people.get(number));
        person.zip(entry.who.as_ref()).is_some_and(|(person, who)| {
            (&person.key.1, person.key.2) == (&who.container, who.attempt)
        })
    }

    /// The daemon was started again, or says anew where all containers are.
    fn reopen(&mut self, entry: &Entry) -> anyhow::Result<()> {
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
        if self.people.is_empty() {
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

    fn change_machine(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let files = entry.machine.as_ref().and_then(|machine| machine.files.as_ref());
        let Some(files) = files.filter(|_| self.setting.topology.is_none()) else { return Ok(()) };
        let topology = parse_recorded_machine(files).context("a machine in the history")?;
        if topology != self.topology {
            self.go_on_with(topology);
        }
        Ok(())
    }

    fn go_on_with(&mut self, topology: Topology) {
        self.played.machines += 1;
        let division = self.config.division();
        let settled = division.settled(&topology, &self.chosen);
        let machine = ChangedMachine::divided(&topology, &settled);
        self.chosen = division.chosen(&topology, &self.chosen);
        self.topology = topology;
        self.step(Event::MachineChanged(Box::new(machine)), None);
    }

    /// Containers that were there already stay where they were, as after a restart.
    fn take_over(&mut self) {
        let mut live = Live::default();
        let held = std::mem::take(&mut self.pending);
        for entry in &held {
            let (Some(who), Some(form), Some(allocation)) =
                (&entry.who, &entry.spec, &entry.allocation)
            else {
                continue;
            };
            let number = self.person(NewContainer::from((**form).clone()));
            let id = who.id.filter(|id| *id >= self.next_id).unwrap_or(self.next_id);
            self.next_id = id + 1;
            self.by_id.insert(id, number);
            self.live.extend(who.id.map(|id| (id, number)));
            let decision = Decision {
                at: entry.at,
                asked: entry.asked.clone(),
                outcome: entry.why.clone(),
                pools: Vec::new(),
                warnings: entry.warnings.clone(),
            };
            let placed = PlacedRecord {
                is_unasked: false,
                id,
                runtime_id: Some(runtime_id(number)),
                container: (**form).clone(),
                allocation: (**allocation).clone(),
                decision,
                // A cold start under way goes on for as long as it is played: the history does not say when it ends.
                cold: Default::default(),
                elsewhere: None,
            };
            live.containers.insert(bayplan_allocator::ContainerId(id), placed);
            self.tell(number, 0, Fate::Placed(place_then(entry)));
        }
        if live.containers.is_empty() {
            return;
        }
        // Members are told apart by the ids that their groups had; of another configuration they may be over.
        let groups = std::mem::take(&mut self.groups).into_iter();
        live.groups = groups.map(|it| (bayplan_allocator::ContainerId(it.id), it)).collect();
        let last = live.groups.keys().next_back().map_or(0, |id| id.0 + 1);
        self.next_id = self.next_id.max(last);
        live.next_id = self.next_id;
        let ids: Vec<u64> = live.containers.keys().map(|id| id.0).collect();
        let step = self.state.restore(live, self.now);
        let places = self.places();
        for (id, entry) in ids.into_iter().zip(&held) {
            let Some(number) = self.by_id.get(&id).copied() else { continue };
            if let Some(place) = places.get(&runtime_id(number)) {
                self.hold(number, true);
                self.tell(number, 1, Fate::Placed(place.clone()));
                self.arrive(entry, number, place);
            }
        }
        // What moved did so before it was told of here.
        drop(step);
        self.look(Vec::new());
    }

    /// Compares a container that was there already.
    fn arrive(&mut self, entry: &Entry, number: usize, place: &Place) {
        let was = Fate::Placed(place_then(entry));
        let would = Fate::Placed(place.clone());
        self.played.arrivals.push(Arrival { at: entry.at, name: self.name(number), was, would });
    }

    fn create(&mut self, entry: &Entry, spec: NewContainer) {
        let number = self.person(spec.clone());
        let was = fate(entry);
        self.live.extend(entry.who.as_ref().and_then(|who| who.id).map(|id| (id, number)));
        self.tell(number, 0, was.clone());
        let would = match self.place_of(number) {
            // It was refused in the history, where kubelet asks again, and not here.
            Some(place) => Some(Fate::Placed(place)),
            None => self.admit(number, spec),
        };
        let Some(would) = would else { return };
        self.tell(number, 1, would.clone());
        self.played.arrivals.push(Arrival { at: entry.at, name: self.name(number), was, would });
    }

    /// As kubelet's call goes through the daemon. `None`: it was passed through without a decision.
    fn admit(&mut self, number: usize, spec: NewContainer) -> Option<Fate> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let spec = Box::new(spec);
        let (mut answer, mut fate) = self.step(Event::TryAdmit(ticket, spec.clone()), Some(number));
        if !matches!(answer, Answer::Admission(Admission::Place(_))) {
            (answer, fate) = self.step(Event::Admit(ticket, spec), Some(number));
        }
        if matches!(answer, Answer::Admission(Admission::Place(_))) {
            self.hold(number, true);
            let outcome = CreateOutcome::Created { id: runtime_id(number), pinned: true };
            self.step(Event::CreateEnded(ticket, outcome), None);
            self.step(Event::Started(runtime_id(number)), None);
        }
        fate
    }

    fn adopt(&mut self, entries: &[Entry]) {
        let mut found = Vec::new();
        for entry in entries {
            let Some(form) = &entry.spec else { continue };
            let spec = NewContainer::from((**form).clone());
            let number = self.person(spec.clone());
            self.live.extend(entry.who.as_ref().and_then(|who| who.id).map(|id| (id, number)));
            self.tell(number, 0, fate(entry));
            let before = entry.before.clone().unwrap_or_default();
            let pinning = Pinning {
                cpus: before.cpus.parse().unwrap_or_default(),
                mems: before.mems.parse().unwrap_or_default(),
            };
            if !self.people.get(number).is_some_and(|it| it.is_held) {
                self.hold(number, true);
                found.push((number, SeenDetails { container: spec, pinning }));
            }
        }
        self.look(found);
        for entry in entries {
            let Some(number) = self.number_of(entry) else { continue };
            match self.place_of(number) {
                Some(place) => {
                    self.tell(number, 1, Fate::Placed(place.clone()));
                    self.arrive(entry, number, &place);
                }
                None => self.hold(number, false),
            }
        }
    }

    fn resize(&mut self, entry: &Entry, update: Resources) {
        let Some(number) = self.number_of(entry) else { return };
        let Some(person) = self.people.get_mut(number) else { return };
        let mut spec = person.spec.clone();
        spec.resources = spec.resources.updated_by(update);
        let was = fate(entry);
        if matches!(was, Fate::Placed(_)) {
            person.spec = spec.clone();
        }
        self.played.was.change(number, &wanted(&spec), &was);
        if self.place_of(number).is_none() {
            return;
        }
        // Kubelet may have given up meanwhile what was refused before, or it would not be told of again.
        self.step(Event::Resize(runtime_id(number), Resources::default()), None);
        self.step(Event::Resized(runtime_id(number), ResizeOutcome::Done), None);
        let (_, would) = self.step(Event::Resize(runtime_id(number), update), Some(number));
        self.step(Event::Resized(runtime_id(number), ResizeOutcome::Done), None);
        // What would have been refused then may have been asked for already.
        let place = self.place_of(number).map(Fate::Placed);
        let Some(would) = would.or(place) else { return };
        self.played.would.change(number, &wanted(&spec), &would);
        self.played.arrivals.push(Arrival { at: entry.at, name: self.name(number), was, would });
    }

    fn resize_pod(&mut self, entry: &Entry) {
        let pod = self.number_of(entry).and_then(|number| self.people.get(number));
        let pod = pod.map(|person| person.spec.pod.id.clone());
        if let (Some(pod), Some(update)) = (pod, entry.resources) {
            self.step(Event::PodResized(pod, update.into()), None);
        }
    }

    fn end(&mut self, entry: &Entry) {
        if let Some(id) = entry.who.as_ref().and_then(|who| who.id) {
            self.leave(id);
        }
    }

    /// A container with this id in the history is gone.
    fn leave(&mut self, id: u64) {
        let Some(number) = self.live.remove(&id) else { return };
        self.played.was.go(number);
        if let Some(person) = self.people.get(number) {
            self.keys.remove(&person.key);
        }
        self.step(Event::Ended(runtime_id(number)), None);
    }

    /// Where there is something to look for, and where the history cannot say when that was done.
    fn look_if_due(&mut self) {
        let is_over = |due: Timestamp| self.now.duration_since(due) >= LOOK_AFTER;
        if !self.tells_looks && self.due.is_some_and(is_over) {
            self.look(Vec::new());
        }
    }

    /// The runtime is asked what runs: all containers, and those that were found.
    fn look(&mut self, found: Vec<(usize, SeenDetails)>) {
        self.due = None;
        let (answer, _) = self.step(Event::SyncStarted, None);
        let Answer::SyncBasis { basis, known } = answer else { return };
        let places = self.places();
        let mut found: BTreeMap<usize, SeenDetails> = found.into_iter().collect();
        let held = self.people.iter().enumerate().filter(|(_, person)| person.is_held);
        let containers = held.map(|(number, person)| {
            let id = runtime_id(number);
            let place = places.get(&id).filter(|_| !known.contains(&id));
            let where_it_is = place.map(|place| SeenDetails {
                container: person.spec.clone(),
                pinning: Pinning {
                    cpus: place.cpus.parse().unwrap_or_default(),
                    mems: place.mems.parse().unwrap_or_default(),
                },
            });
            let (pod_id, name, attempt) = person.key.clone();
            let details = found.remove(&number).or(where_it_is).map(Box::new);
            (id, Seen { pod_id, name, attempt, is_alive: true, is_running: true, details })
        });
        let containers = containers.collect();
        self.step(Event::Synced(RuntimeView { basis, containers }), None);
    }

    /// One step of the state, and what came of the person that it was about.
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

    /// The number of a container that came; the one that it has already where it was refused before.
    fn person(&mut self, spec: NewContainer) -> usize {
        let key = (spec.pod.id.clone(), spec.name.clone(), spec.attempt);
        if let Some(number) = self.keys.get(&key) {
            return *number;
        }
        let number = self.people.len();
        self.keys.insert(key.clone(), number);
        self.people.push(Person { key, spec, is_held: false, is_told: [false; 2] });
        number
    }

    fn hold(&mut self, number: usize, is_held: bool) {
        if let Some(person) = self.people.get_mut(number) {
            person.is_held = is_held;
        }
    }

    /// Tells one side what became of a container. Kubelet asks again and again for one that was refused; only the first time counts.
    fn tell(&mut self, number: usize, side: usize, fate: Fate) {
        let Some(person) = self.people.get_mut(number) else { return };
        let Some(is_told) = person.is_told.get_mut(side) else { return };
        let is_placed = matches!(fate, Fate::Placed(_));
        let was_told = std::mem::replace(is_told, true);
        let story = if side == 0 { &mut self.played.was } else { &mut self.played.would };
        if is_placed || !was_told {
            story.come(number, &wanted(&person.spec), &fate);
        }
    }

    fn name(&self, number: usize) -> String {
        let spec = self.people.get(number).map(|person| &person.spec);
        spec.map_or_else(String::new, |spec| {
            format!("{}/{}/{}", spec.pod.namespace, spec.pod.name, spec.name)
        })
    }

    fn place_of(&mut self, number: usize) -> Option<Place> {
        let is_held = self.people.get(number).is_some_and(|person| person.is_held);
        is_held.then(|| self.places().remove(&runtime_id(number))).flatten()
    }

    /// Where all containers are, by the runtime's id.
    fn places(&mut self) -> BTreeMap<String, Place> {
        let step = self.state.step(Event::Status, self.now);
        let Answer::Status(status) = step.answer else { return BTreeMap::new() };
        let places = status.containers.into_iter().filter_map(|it| {
            let (pool, own, cpus, mems) = (it.pool, it.exclusive, it.cpus, it.mems);
            Some((it.id?, Place { pool, own, cpus, mems, group: String::new() }))
        });
        places.collect()
    }
}

/// What an entry says became of a container.
fn fate(entry: &Entry) -> Fate {
    match entry.kind {
        Kind::Refused => Fate::Refused(entry.why.clone()),
        _ => Fate::Placed(place_then(entry)),
    }
}

/// What the runtime of the replay calls a container.
fn runtime_id(number: usize) -> String {
    format!("replayed-{number}")
}

fn number_in(runtime_id: &str) -> Option<usize> {
    runtime_id.strip_prefix("replayed-")?.parse().ok()
}

/// Where it was, without its group, which entries of older versions do not tell.
fn place_then(entry: &Entry) -> Place {
    let place = entry.after.clone().unwrap_or_default();
    Place { group: String::new(), ..place }
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
