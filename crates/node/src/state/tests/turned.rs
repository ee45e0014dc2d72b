//! What the rebalancer has turned, through the door of the state.

use bayplan_enforcement::render_plan;
use bayplan_types::NodeSet;
use expect_test::{Expect, expect};

use super::*;

/// Plays on four CPUs: `N-CPUS` lets the container in pod N leave CPUs and takes back all else, `end` takes back all, `own` creates an owner of two CPUs;
/// `pause`, `restore` and `resume` are what they say. Shows what is written.
fn check(steps: &[&str], expected: Expect) {
    let mut state = state("numa:1 core:4 pu:1 mem:4");
    let ids: Vec<String> = (0..2)
        .map(|pod| make(&mut state, pod, new_container(&pod.to_string(), "c", 0, 0)))
        .collect();
    let mut text = String::new();
    for step in steps {
        let event = match *step {
            "end" => Event::Turn(Turned::default()),
            "pause" => Event::PauseRebalance(true),
            "restore" => Event::SetMode(Mode::Restored),
            "resume" => Event::SetMode(Mode::Placing),
            "own" => Event::TryAdmit(Ticket(9), Box::new(new_container("9", "own", 0, 2))),
            other => {
                let (pod, cpus) = other.split_once('-').unwrap();
                let target = state.containers.id_of(&ids[pod.parse::<usize>().unwrap()]).unwrap();
                let leave = cpus.parse().unwrap();
                let turn = Turn { knob: Knob::Move, target, step: 1, leave, mems: NodeSet::new() };
                Event::Turn(Turned::from_turns([(1, turn)]))
            }
        };
        let step_made = state.step(event, Timestamp::UNIX_EPOCH);
        text.push_str(&format!("{step}:\n{}", render_plan(&step_made.plan)));
    }
    expected.assert_eq(&text);
}

#[test]
fn a_shared_container_leaves_cpus_and_gets_them_back() {
    check(
        &["0-0,1", "1-3", "end"],
        expect![[r#"
        0-0,1:
        shrink id0 cpus 0-3 -> 2-3
        1-3:
        shrink id1 cpus 0-3 -> 0-2
        grow   id0 cpus 2-3 -> 0-3
        end:
        grow   id1 cpus 0-2 -> 0-3
    "#]],
    );
}

#[test]
fn no_container_leaves_all_of_its_cpus() {
    check(
        &["0-0,1,2,3", "0-0,1,2", "own", "end"],
        expect![[r#"
        0-0,1,2,3:
        0-0,1,2:
        shrink id0 cpus 0-3 -> 3
        own:
        shrink id1 cpus 0-3 -> 0,3
        end:
        grow   id0 cpus 3 -> 0,3
    "#]],
    );
}

/// Each of them asks for one and a half of the two CPUs that are left.
#[test]
fn of_two_that_are_to_leave_the_same_cpus_only_those_go_that_fit_beside_each_other() {
    let mut state = state("numa:1 core:4 pu:1 mem:4");
    let ids = [0, 1].map(|pod: u64| {
        let mut container = new_container(&pod.to_string(), "c", 0, 0);
        container.pod.qos = Some(QosClass::Burstable);
        container.resources.cpu_shares = 1536;
        make(&mut state, pod, container)
    });
    let turn = |id: &String| {
        let (target, leave) = (state.containers.id_of(id).unwrap(), "2-3".parse().unwrap());
        Turn { knob: Knob::Move, target, step: 1, leave, mems: NodeSet::new() }
    };
    let turns: Vec<Turn> = ids.iter().map(turn).collect();
    let both = Turned::from_turns((1..).zip(turns.clone()));
    let step = state.step(Event::Turn(both), Timestamp::UNIX_EPOCH);
    expect![[r#"
        shrink id0 cpus 0-3 -> 0-1
    "#]]
    .assert_eq(&render_plan(&step.plan));
    let second = Turned::from_turns([(2, turns[1].clone())]);
    let step = state.step(Event::Turn(second), Timestamp::UNIX_EPOCH);
    expect![[r#"
        shrink id1 cpus 0-3 -> 0-1
        grow   id0 cpus 0-1 -> 0-3
    "#]]
    .assert_eq(&render_plan(&step.plan));
}

#[test]
fn a_pause_and_a_restore_give_everything_back() {
    check(
        &["0-0,1", "pause", "end"],
        expect![[r#"
        0-0,1:
        shrink id0 cpus 0-3 -> 2-3
        pause:
        grow   id0 cpus 2-3 -> 0-3
        end:
    "#]],
    );
    check(
        &["0-0,1", "restore", "resume", "end"],
        expect![[r#"
            0-0,1:
            shrink id0 cpus 0-3 -> 2-3
            restore:
            grow   id0 cpus 2-3 -> 0-3
            resume:
            end:
        "#]],
    );
}

#[test]
fn an_exclusive_container_keeps_its_cpus() {
    let mut state = state("numa:1 core:4 pu:1 mem:4");
    let id = make(&mut state, 0, new_container("0", "own", 0, 2));
    let target = state.containers.id_of(&id).unwrap();
    let before = state.pinning(target);
    let leave = "0-3".parse().unwrap();
    let turn = Turn { knob: Knob::Move, target, step: 1, leave, mems: NodeSet::new() };
    let step = state.step(Event::Turn(Turned::from_turns([(1, turn)])), Timestamp::UNIX_EPOCH);
    assert!(step.plan.is_empty());
    assert_eq!(state.pinning(target), before);
}

#[test]
fn what_is_turned_already_is_not_waited_for() {
    let mut state = state("numa:1 core:4 pu:1 mem:4");
    let id = make(&mut state, 0, new_container("0", "c", 0, 0));
    let turn = Turn {
        knob: Knob::Idle,
        target: state.containers.id_of(&id).unwrap(),
        step: 1,
        leave: CpuSet::new(),
        mems: NodeSet::new(),
    };
    let turned = Turned::from_turns([(1, turn)]);
    let mut since = |turned: &Turned| match state
        .step(Event::Turn(turned.clone()), Timestamp::UNIX_EPOCH)
        .answer
    {
        Answer::Since(step) => step.is_some(),
        other => panic!("{other:?}"),
    };
    assert_eq!([since(&turned), since(&turned), since(&Turned::default())], [true, false, true]);
}

/// A pod on four nodes, of 8 GiB each, that came when one GiB was left on each, with two CPUs of its own. Then the others go. Each line: what is written when
/// these were found to be its home. Without room, or where it belongs on others now, it has the nodes of its place.
#[test]
fn memory_comes_home_and_does_not_follow_when_that_is_elsewhere() {
    let mut state = state("numa:4 core:4 pu:1 mem:8");
    let sized = |pod: u64, cpus, gib: i64| {
        let mut container = new_container(&pod.to_string(), "c", 0, cpus);
        container.resources.memory_limit = gib << 30;
        container
    };
    let others: Vec<String> = (0..4).map(|pod| make(&mut state, pod, sized(pod, 1, 7))).collect();
    let id = make(&mut state, 4, sized(4, 2, 4));
    for other in others {
        state.step(Event::Ended(other), Timestamp::UNIX_EPOCH);
    }
    let target = state.containers.id_of(&id).unwrap();
    let mut text = String::new();
    for home in ["", "0", "1", "0", "0-1", ""] {
        let (knob, leave, mems) = (Knob::Memory, CpuSet::new(), home.parse().unwrap());
        let turn = Turn { knob, target, step: 1, leave, mems };
        let made = state.step(Event::Turn(Turned::from_turns([(1, turn)])), Timestamp::UNIX_EPOCH);
        text.push_str(&format!("{home}:\n{}", render_plan(&made.plan)));
    }
    expect![[r#"
        :
        0:
        shrink id4 cpus 2-3 -> 2-3 mems 0-3 -> 0
        1:
        shrink id4 cpus 2-3 -> 2-3 mems 0 -> 0-3
        0:
        shrink id4 cpus 2-3 -> 2-3 mems 0-3 -> 0
        0-1:
        shrink id4 cpus 2-3 -> 2-3 mems 0 -> 0-3
        :
    "#]]
    .assert_eq(&text);
}

/// Plays on two nodes of two caches of four CPUs each. `CONTAINER leaves CPUS` turns `move` or `move-owner` beside what is turned already, `end`
/// takes back all; `share NAME MILLI` and `own NAME CPUS` create containers, after which it is shown where all are, `-NAME` ends one; `pause`,
/// `drain` and `restore` are what they say. Else shows what is written.
struct Stage {
    state: NodeState,
    ids: BTreeMap<String, String>,
    turns: Vec<(u64, Turn)>,
}

impl Stage {
    fn new() -> Stage {
        let state = state("pack:1 numa:2 l3:2 core:4 pu:1 mem:8");
        Stage { state, ids: BTreeMap::new(), turns: Vec::new() }
    }

    fn create(&mut self, name: &str, milli: i64, own: i64) {
        let pod = self.ids.len() as u64;
        let mut container = new_container(&pod.to_string(), name, 0, own);
        if own == 0 {
            container.pod.qos = Some(QosClass::Burstable);
            container.resources.cpu_shares = milli * 1024 / 1000;
        }
        let id = make(&mut self.state, pod, container);
        self.ids.insert(name.to_owned(), id);
    }

    fn turn(&mut self, name: &str, leave: &str) -> Event {
        let target = self.state.containers.id_of(&self.ids[name]).unwrap();
        let held = self.state.ledger.allocation(target).unwrap();
        let knob = if held.exclusive.is_empty() { Knob::Move } else { Knob::MoveOwner };
        let (leave, mems) = (leave.parse().unwrap(), NodeSet::new());
        let turn = Turn { knob, target, step: 1, leave, mems };
        self.turns.push((1 + self.turns.len() as u64, turn));
        Event::Turn(Turned::from_turns(self.turns.clone()))
    }

    fn places(&self) -> String {
        let place = |id: &String| self.state.pinning(self.state.containers.id_of(id)?);
        let places = self.ids.iter().filter_map(|(name, id)| Some((name, place(id)?.cpus)));
        places.map(|(name, cpus)| format!(" {name} {cpus}")).collect()
    }

    fn play(&mut self, said: &str) -> String {
        let words: Vec<&str> = said.split(' ').collect();
        let event = match words[..] {
            ["share", name, milli] => {
                self.create(name, milli.parse().unwrap(), 0);
                return format!("{said}:{}\n", self.places());
            }
            ["own", name, cpus] => {
                self.create(name, 0, cpus.parse().unwrap());
                return format!("{said}:{}\n", self.places());
            }
            ["end"] => {
                self.turns.clear();
                Event::Turn(Turned::default())
            }
            ["pause"] => Event::PauseRebalance(true),
            ["drain"] => Event::SetMode(Mode::Draining),
            ["restore"] => Event::SetMode(Mode::Restored),
            [name, "leaves", cpus] => self.turn(name, cpus),
            [gone] => Event::Ended(self.ids[gone.trim_start_matches('-')].clone()),
            _ => panic!("{said}"),
        };
        let step = self.state.step(event, Timestamp::UNIX_EPOCH);
        assert_eq!(check_ledger(&self.state.ledger), Vec::<String>::new());
        let mut text = render_plan(&step.plan);
        for (name, id) in &self.ids {
            text = text.replace(&format!("{id} "), &format!("{name} "));
        }
        format!("{said}:\n{text}")
    }
}

fn check_stage(steps: &[&str], expected: Expect) {
    let mut stage = Stage::new();
    expected.assert_eq(&steps.iter().map(|step| stage.play(step)).collect::<String>());
}

#[test]
fn a_shared_container_goes_to_another_cache_or_another_node_and_comes_back() {
    check_stage(
        &["share web 1000", "web leaves 0-3", "end", "web leaves 0-7", "end"],
        expect![[r#"
            share web 1000: web 0-7
            web leaves 0-3:
            shrink web cpus 0-7 -> 4-7
            end:
            grow   web cpus 4-7 -> 0-7
            web leaves 0-7:
            move   web cpus 0-7 -> 8-15
            end:
            move   web cpus 8-15 -> 0-7
        "#]],
    );
    check_stage(
        &["share web 1000", "web leaves 0-7", "pause"],
        expect![[r#"
        share web 1000: web 0-7
        web leaves 0-7:
        move   web cpus 0-7 -> 8-15
        pause:
        move   web cpus 8-15 -> 0-7
    "#]],
    );
}

/// Its own place is set aside for it all the time.
#[test]
fn a_moved_shared_container_goes_home_when_its_request_does_not_fit_there_any_more() {
    check_stage(
        &["share web 3000", "web leaves 0-7", "own db 5", "-db", "end"],
        expect![[r#"
        share web 3000: web 0-7
        web leaves 0-7:
        move   web cpus 0-7 -> 8-15
        own db 5: db 8-12 web 13-15
        -db:
        grow   web cpus 13-15 -> 8-15
        end:
        move   web cpus 8-15 -> 0-7
    "#]],
    );
}

#[test]
fn a_container_that_is_to_leave_all_cpus_with_room_stays() {
    check_stage(
        &["share web 3000", "share job 7000", "web leaves 0-7", "web leaves 0-15"],
        expect![[r#"
            share web 3000: web 0-7
            share job 7000: job 8-15 web 0-7
            web leaves 0-7:
            web leaves 0-15:
        "#]],
    );
}

/// Also where two moves of two owners end: an owner that comes back in the wrong order would not find its place again.
#[test]
fn an_owner_gets_other_cpus_of_its_node_and_stays_there() {
    for end in ["end", "pause", "restore"] {
        let mut stage = Stage::new();
        let steps = ["own db 2", "db leaves 0-3", "own job 2", "job leaves 0-3", end];
        steps.iter().for_each(|step| drop(stage.play(step)));
        let own = |name: &str| {
            let id = stage.state.containers.id_of(&stage.ids[name]).unwrap();
            stage.state.ledger.allocation(id).unwrap().exclusive.to_string()
        };
        assert_eq!([own("db"), own("job")], ["4-5", "6-7"], "{end}");
    }
    check_stage(
        &["own db 2", "db leaves 0-3", "end", "db leaves 4-7", "db leaves 0-3"],
        expect![[r#"
            own db 2: db 1-2
            db leaves 0-3:
            move   db cpus 1-2 -> 4-5
            end:
            db leaves 4-7:
            move   db cpus 4-5 -> 1-2
            db leaves 0-3:
        "#]],
    );
    check_stage(
        &["own db 2", "db leaves 0-7", "end"],
        expect![[r#"
        own db 2: db 1-2
        db leaves 0-7:
        end:
    "#]],
    );
}

#[test]
fn an_owner_is_not_moved_while_the_node_is_drained() {
    check_stage(
        &["own db 2", "drain", "db leaves 0-3"],
        expect![[r#"
        own db 2: db 1-2
        drain:
        db leaves 0-3:
    "#]],
    );
}

/// A call of kubelet that is under way may still say the CPUs that it had.
#[test]
fn an_owner_that_is_not_known_to_be_in_its_place_is_not_moved() {
    let mut stage = Stage::new();
    stage.create("db", 0, 2);
    let id = stage.state.containers.id_of(&stage.ids["db"]).unwrap();
    stage.state.told = Told::default();
    stage.play("db leaves 0-3");
    let own = stage.state.ledger.allocation(id).unwrap().exclusive.to_string();
    assert_eq!(own, "1-2");
}

#[test]
fn a_second_guest_goes_where_the_first_has_left_room() {
    check_stage(
        &["share web 3000", "share job 3000", "web leaves 0-7", "job leaves 8-15", "end"],
        expect![[r#"
            share web 3000: web 0-7
            share job 3000: job 8-15 web 0-7
            web leaves 0-7:
            move   web cpus 0-7 -> 8-15
            job leaves 8-15:
            move   job cpus 8-15 -> 0-7
            end:
            move   web cpus 8-15 -> 0-7
            move   job cpus 0-7 -> 8-15
        "#]],
    );
}

#[test]
fn an_owner_that_went_elsewhere_is_there_after_a_restart() {
    let mut stage = Stage::new();
    let mut records = stage.state.snapshot_records();
    stage.create("db", 0, 2);
    records.extend(stage.state.snapshot_records());
    let event = stage.turn("db", "0-3");
    let step = stage.state.step(event, Timestamp::UNIX_EPOCH);
    assert!(step.notes.iter().any(|it| matches!(it, Note::Moved { .. })), "{:?}", step.notes);
    records.extend(step.records);
    let target = stage.state.containers.id_of(&stage.ids["db"]).unwrap();
    let mut next = state("pack:1 numa:2 l3:2 core:4 pu:1 mem:8");
    let lines: Vec<String> = records.iter().map(to_line).collect();
    next.restore(replay(&lines), Timestamp::UNIX_EPOCH);
    let own = |state: &NodeState| state.ledger.allocation(target).unwrap().exclusive.clone();
    assert_eq!(own(&next), own(&stage.state));
    assert_eq!(own(&next).to_string(), "4-5");
}
