//! A trace where the configuration has groups. In: a trace, the state of an empty node. Out: one [`PlacementRow`] per event, as `replay` has them.
//!
//! The state is the daemon's own, which makes groups, fits them to their members and ends them. Nothing is in a hurry: the runtime does what it is told, and is asked
//! after each event what runs. A container that is exclusive and alone in its group owns the CPUs of the group, as one in a balloon of its own does with nri-plugins.

use std::collections::BTreeMap;

use bayplan_node::NodeState;
use bayplan_node::event::{Answer, Event, RuntimeView, Seen};
use bayplan_node::status::{ContainerStatus, Status};
use bayplan_types::{CpuSet, NodeSet};
use bayplan_workload::{Admission, CreateOutcome, Ticket};
use jiff::Timestamp;

use crate::simulate::placement::{Effect, Kind, Outcome, Placed, PlacementRow};
use crate::simulate::replay::{Moment, new_container};
use crate::simulate::trace::{self, Op, Trace, Wanted};

/// Plays all of it, and tells `watch` how far it is. What reading a request costs is a part of the decision here.
pub(crate) fn play(
    trace: &Trace,
    state: NodeState,
    watch: &mut dyn FnMut(Moment),
) -> (Vec<PlacementRow>, Node) {
    let mut node = Node::new(state);
    let rows = trace.events.iter().map(|event| {
        watch(Moment::Begun);
        let decided = node.decide(event);
        watch(match &event.op {
            Op::Create(wanted) => Moment::Decided { is_exclusive: wanted.is_exclusive() },
            Op::Remove => Moment::Released,
        });
        let outcome = node.settle(event, decided);
        watch(Moment::Settled);
        PlacementRow { id: event.id.clone(), op: event.op.name(), outcome }
    });
    let rows = rows.collect();
    (rows, node)
}

/// A node with a runtime that does what it is told.
#[derive(Debug)]
pub(crate) struct Node {
    state: NodeState,
    tickets: u64,
    /// What the runtime's containers asked for; id and name are one.
    live: BTreeMap<String, Wanted>,
    places: BTreeMap<String, Place>,
}

/// Where a container is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) exclusive: CpuSet,
    pub(crate) cpus: CpuSet,
    pub(crate) mems: NodeSet,
}

/// What became of an event, before others were told.
#[derive(Debug)]
pub(crate) enum Decided {
    Placed,
    Refused(String),
    Released,
    /// The remove of a container that was refused.
    Skipped,
}

impl Node {
    pub(crate) fn new(state: NodeState) -> Node {
        let (live, places) = (BTreeMap::new(), BTreeMap::new());
        let mut node = Node { state, tickets: 0, live, places };
        node.sync();
        node
    }

    #[cfg(test)]
    pub(crate) fn places(&self) -> &BTreeMap<String, Place> {
        &self.places
    }

    pub(crate) fn status(&self) -> Status {
        self.state.status()
    }

    fn step(&mut self, event: Event) -> Answer {
        self.state.step(event, Timestamp::UNIX_EPOCH).answer
    }

    /// The container is created, or has ended.
    pub(crate) fn decide(&mut self, event: &trace::Event) -> Decided {
        let Op::Create(wanted) = &event.op else {
            return match self.live.remove(&event.id) {
                Some(_) => {
                    self.step(Event::Ended(event.id.clone()));
                    Decided::Released
                }
                None => Decided::Skipped,
            };
        };
        self.tickets += 1;
        let (ticket, spec) = (Ticket(self.tickets), new_container(&event.id, wanted));
        let answer = match self.step(Event::TryAdmit(ticket, Box::new(spec.clone()))) {
            Answer::Admission(Admission::Refuse(_)) | Answer::AskFirst => {
                self.sync();
                self.step(Event::Admit(ticket, Box::new(spec)))
            }
            placed => placed,
        };
        match answer {
            Answer::Admission(Admission::Refuse(why) | Admission::Unavailable(why)) => {
                Decided::Refused(why)
            }
            _ => {
                self.live.insert(event.id.clone(), wanted.clone());
                let outcome = CreateOutcome::Created { id: event.id.clone(), pinned: true };
                self.step(Event::CreateEnded(ticket, outcome));
                self.step(Event::Started(event.id.clone()));
                Decided::Placed
            }
        }
    }

    /// The runtime is asked what runs; what the event has done to others is what they have now and had not.
    pub(crate) fn settle(&mut self, event: &trace::Event, decided: Decided) -> Outcome {
        self.sync();
        let before = std::mem::take(&mut self.places);
        self.places = self.look();
        let effect = self.effect(&before, &event.id);
        match decided {
            Decided::Placed => self.placed(&event.id, effect).unwrap_or(Outcome::Skipped),
            Decided::Refused(why) => Outcome::Refused { why },
            Decided::Released => Outcome::Removed(effect),
            Decided::Skipped => Outcome::Skipped,
        }
    }

    fn placed(&self, id: &str, effect: Effect) -> Option<Outcome> {
        let Place { exclusive, cpus, mems } = self.places.get(id)?.clone();
        let is_exclusive = self.live.get(id).is_some_and(Wanted::is_exclusive);
        let kind = match (exclusive.is_empty(), exclusive == cpus || is_exclusive) {
            (true, _) => Kind::Shared,
            (false, true) => Kind::Exclusive,
            (false, false) => Kind::Mixed,
        };
        Some(Outcome::Placed(Box::new(Placed { kind, exclusive, cpus, mems, effect })))
    }

    fn effect(&self, before: &BTreeMap<String, Place>, of: &str) -> Effect {
        let mut effect = Effect::default();
        for (name, now) in self.places.iter().filter(|(name, _)| *name != of) {
            let Some(was) = before.get(name) else { continue };
            effect.updates += usize::from((&was.cpus, &was.mems) != (&now.cpus, &now.mems));
            if was.exclusive != now.exclusive {
                effect.moved.insert(name.clone(), now.exclusive.clone());
            }
        }
        effect
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
        let containers = self.live.keys().map(|name| (name.clone(), seen(name))).collect();
        self.step(Event::Synced(RuntimeView { basis, containers }));
    }

    fn look(&self) -> BTreeMap<String, Place> {
        let status = self.state.status();
        let alone = status.groups.iter().filter(|it| it.members == 1);
        let alone: BTreeMap<&str, &str> =
            alone.map(|it| (it.name.as_str(), it.cpus.as_str())).collect();
        let place = |it: &ContainerStatus| {
            let is_exclusive = self.live.get(&it.container).is_some_and(Wanted::is_exclusive);
            let whole = alone.get(it.group.as_str()).filter(|_| is_exclusive);
            Place {
                exclusive: set(whole.copied().unwrap_or(&it.exclusive)),
                cpus: set(&it.cpus),
                mems: it.mems.parse().unwrap_or_default(),
            }
        };
        status.containers.iter().map(|it| (it.container.clone(), place(it))).collect()
    }
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bayplan_config::{new_state, parse_config};
    use bayplan_topology::{derive, parse_machine};
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::simulate::placement::render_placement;
    use crate::simulate::quality::{Quality, judge};
    use crate::simulate::tally::Tally;
    use crate::simulate::tests::{events, random_trace_with, trace};

    /// A balloon for each container that names the type, and one for all others.
    const BALLOONS: &str = "
reservedCpus: \"0,8\"
groups:
- name: own
  instances: {preferNew: true, spreadPods: true}
- name: default
  members: {all: true}
  instances: {max: 1}
  shareIdle: machine
";

    fn play_in(config: &str, trace: &Trace) -> (Vec<PlacementRow>, Quality) {
        let topology = derive(&parse_machine("numa:2 l3:1 core:4 pu:2").unwrap()).unwrap();
        let config = parse_config(Path::new("f"), config).unwrap();
        let state = new_state(&config, &topology).unwrap();
        let empty = Tally::new(&topology, &state.ledger().pools().allocatable());
        let (rows, _) = play(trace, state, &mut |_| {});
        let quality = judge(trace, &rows, empty);
        (rows, quality)
    }

    fn check(config: &str, words: &[&str], expected: Expect) {
        let trace = trace(words);
        let (rows, quality) = play_in(config, &trace);
        let mut text = render_placement(&trace.name, &rows).unwrap();
        let Quality { exclusive, overlaps, miscounted, moved, .. } = quality;
        text.push_str(&format!(
            "exclusive {exclusive}, overlaps {overlaps}, miscounted {miscounted}, moved {moved}\n"
        ));
        expected.assert_eq(&text);
    }

    #[test]
    fn a_container_alone_in_its_balloon_owns_its_cpus() {
        check(
            BALLOONS,
            &[
                "+a G 2000 @own",
                "+b B 500",
                "+c B 1600",
                "+d G 4000 @own",
                "-b",
                "-a",
                "+e G 16000 @own",
                "-e",
            ],
            expect![[r#"
                {"format":"bayplan-bench-placement/1","system":"bayplan","trace":"tiny","events":[
                {"i":0,"op":"create","id":"a","ok":true,"kind":"exclusive","excl":"1,9","cpus":"1,9","mems":"0","updates":0},
                {"i":1,"op":"create","id":"b","ok":true,"kind":"shared","excl":"","cpus":"2-7,10-15","mems":"0","updates":0},
                {"i":2,"op":"create","id":"c","ok":true,"kind":"shared","excl":"","cpus":"2-7,10-15","mems":"0","updates":0},
                {"i":3,"op":"create","id":"d","ok":true,"kind":"exclusive","excl":"4-5,12-13","cpus":"4-5,12-13","mems":"1","updates":2},
                {"i":4,"op":"remove","id":"b","ok":true,"updates":0},
                {"i":5,"op":"remove","id":"a","ok":true,"updates":1},
                {"i":6,"op":"create","id":"e","ok":false,"err":"bayplan: default/e/e refused: no group of `own` has room; own[1]: needs 20 exclusive CPUs; 14 could be given if all were free; `bayplan explain default/e/e` lists every pool"},
                {"i":7,"op":"remove","id":"e","ok":false,"err":"its create was refused"}
                ]}
                exclusive 2, overlaps 0, miscounted 0, moved 0
            "#]],
        );
    }

    #[test]
    fn cpus_of_a_group_with_two_members_have_no_holder() {
        check(
            "groups: [{name: web, size: {fixed: 4}}]",
            &["+a G 2000 @web", "+b G 1000 @web", "-b", "+c G 2000"],
            expect![[r#"
                {"format":"bayplan-bench-placement/1","system":"bayplan","trace":"tiny","events":[
                {"i":0,"op":"create","id":"a","ok":true,"kind":"exclusive","excl":"1-2,9-10","cpus":"1-2,9-10","mems":"0","updates":0},
                {"i":1,"op":"create","id":"b","ok":true,"kind":"shared","excl":"","cpus":"1-2,9-10","mems":"0","updates":0,"moved":{"a":""}},
                {"i":2,"op":"remove","id":"b","ok":true,"updates":0,"moved":{"a":"1-2,9-10"}},
                {"i":3,"op":"create","id":"c","ok":true,"kind":"exclusive","excl":"3,11","cpus":"3,11","mems":"0","updates":0}
                ]}
                exclusive 2, overlaps 0, miscounted 2, moved 2
            "#]],
        );
    }

    proptest! {
        #[test]
        fn no_balloon_has_cpus_of_another_and_the_same_trace_gives_the_same_rows(events in events()) {
            let named = |came: &str| if came.starts_with("G ") && came.ends_with("000") { " @own" } else { "" };
            let trace = random_trace_with(&events, named);
            let (rows, quality) = play_in(BALLOONS, &trace);
            prop_assert_eq!((quality.overlaps, quality.miscounted, quality.moved), (0, 0, 0));
            prop_assert_eq!(play_in(BALLOONS, &trace).0, rows);
        }
    }
}
