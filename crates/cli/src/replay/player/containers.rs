//! What came to single containers of a history, once more: they were there, came, were found, were resized, and ended.

use std::collections::BTreeMap;

use bayplan_node::decision::Decision;
use bayplan_node::event::{Answer, Event, SeenDetails};
use bayplan_node::history::{Entry, Place};
use bayplan_node::record::{Live, PlacedRecord};
use bayplan_types::Pinning;
use bayplan_workload::{Admission, CreateOutcome, NewContainer, ResizeOutcome, Resources, Ticket};

use super::Player;
use crate::replay::container::{Container, fate, place_then, runtime_id};
use crate::replay::played::Arrival;
use crate::replay::story::{Fate, wanted};

impl Player<'_> {
    /// Containers that were there already stay where they were, as after a restart.
    pub(super) fn take_over(&mut self) {
        let mut live = Live::default();
        let held = std::mem::take(&mut self.pending);
        for entry in &held {
            let (Some(who), Some(form), Some(allocation)) =
                (&entry.who, &entry.spec, &entry.allocation)
            else {
                continue;
            };
            let number = self.number_for(NewContainer::from((**form).clone()));
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

    pub(super) fn create(&mut self, entry: &Entry, spec: NewContainer) {
        let number = self.number_for(spec.clone());
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

    pub(super) fn adopt(&mut self, entries: &[Entry]) {
        let mut found = Vec::new();
        for entry in entries {
            let Some(form) = &entry.spec else { continue };
            let spec = NewContainer::from((**form).clone());
            let number = self.number_for(spec.clone());
            self.live.extend(entry.who.as_ref().and_then(|who| who.id).map(|id| (id, number)));
            self.tell(number, 0, fate(entry));
            let before = entry.before.clone().unwrap_or_default();
            let pinning = Pinning {
                cpus: before.cpus.parse().unwrap_or_default(),
                mems: before.mems.parse().unwrap_or_default(),
            };
            if !self.containers.get(number).is_some_and(|it| it.is_held) {
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

    pub(super) fn resize(&mut self, entry: &Entry, update: Resources) {
        let Some(number) = self.number_of(entry) else { return };
        let Some(container) = self.containers.get_mut(number) else { return };
        let mut spec = container.spec.clone();
        spec.resources = spec.resources.updated_by(update);
        let was = fate(entry);
        if matches!(was, Fate::Placed(_)) {
            container.spec = spec.clone();
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

    pub(super) fn resize_pod(&mut self, entry: &Entry) {
        let pod = self.number_of(entry).and_then(|number| self.containers.get(number));
        let pod = pod.map(|container| container.spec.pod.id.clone());
        if let (Some(pod), Some(update)) = (pod, entry.resources) {
            self.step(Event::PodResized(pod, update.into()), None);
        }
    }

    pub(super) fn end(&mut self, entry: &Entry) {
        if let Some(id) = entry.who.as_ref().and_then(|who| who.id) {
            self.leave(id);
        }
    }

    /// A container with this id in the history is gone.
    pub(super) fn leave(&mut self, id: u64) {
        let Some(number) = self.live.remove(&id) else { return };
        self.played.was.go(number);
        if let Some(container) = self.containers.get(number) {
            self.keys.remove(&container.key);
        }
        self.step(Event::Ended(runtime_id(number)), None);
    }

    pub(super) fn number_of(&self, entry: &Entry) -> Option<usize> {
        self.live.get(&entry.who.as_ref()?.id?).copied()
    }

    pub(super) fn is_known(&self, entry: &Entry) -> bool {
        let container = self.number_of(entry).and_then(|number| self.containers.get(number));
        container.zip(entry.who.as_ref()).is_some_and(|(container, who)| {
            (&container.key.1, container.key.2) == (&who.container, who.attempt)
        })
    }

    /// The number of a container that came; the one that it has already where it was refused before.
    fn number_for(&mut self, spec: NewContainer) -> usize {
        let key = (spec.pod.id.clone(), spec.name.clone(), spec.attempt);
        if let Some(number) = self.keys.get(&key) {
            return *number;
        }
        let number = self.containers.len();
        self.keys.insert(key.clone(), number);
        self.containers.push(Container { key, spec, is_held: false, is_told: [false; 2] });
        number
    }

    pub(super) fn hold(&mut self, number: usize, is_held: bool) {
        if let Some(container) = self.containers.get_mut(number) {
            container.is_held = is_held;
        }
    }

    /// Tells one side what became of a container. Kubelet asks again and again for one that was refused; only the first time counts.
    fn tell(&mut self, number: usize, side: usize, fate: Fate) {
        let Some(container) = self.containers.get_mut(number) else { return };
        let Some(is_told) = container.is_told.get_mut(side) else { return };
        let is_placed = matches!(fate, Fate::Placed(_));
        let was_told = std::mem::replace(is_told, true);
        let story = if side == 0 { &mut self.played.was } else { &mut self.played.would };
        if is_placed || !was_told {
            story.come(number, &wanted(&container.spec), &fate);
        }
    }

    fn name(&self, number: usize) -> String {
        let spec = self.containers.get(number).map(|container| &container.spec);
        spec.map_or_else(String::new, |spec| {
            format!("{}/{}/{}", spec.pod.namespace, spec.pod.name, spec.name)
        })
    }

    fn place_of(&mut self, number: usize) -> Option<Place> {
        let is_held = self.containers.get(number).is_some_and(|container| container.is_held);
        is_held.then(|| self.places().remove(&runtime_id(number))).flatten()
    }

    /// Where all containers are, by the runtime's id.
    pub(super) fn places(&mut self) -> BTreeMap<String, Place> {
        let step = self.state.step(Event::Status, self.now);
        let Answer::Status(status) = step.answer else { return BTreeMap::new() };
        let places = status.containers.into_iter().filter_map(|it| {
            let (pool, own, cpus, mems) = (it.pool, it.exclusive, it.cpus, it.mems);
            Some((it.id?, Place { pool, own, cpus, mems, group: String::new() }))
        });
        places.collect()
    }
}
