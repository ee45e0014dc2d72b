//! Pods that say what they need as a whole, with containers that say nothing, on their way through the state.

use bayplan_allocator::Part;
use expect_test::{Expect, expect};

use super::*;

mod any_pods;
mod resizes;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// `REQUEST/LIMIT GIB`, in milli-CPU, as kubelet writes it; a limit of zero is none.
fn written(text: &str) -> Resources {
    let (cpu, gib) = text.split_once(' ').unwrap();
    let (request, limit) = cpu.split_once('/').unwrap();
    Resources {
        cpu_quota: limit.parse::<i64>().unwrap() * 100,
        memory_limit: gib.parse::<i64>().unwrap() << 30,
        oom_score_adj: 0,
        ..resources(request.parse().unwrap())
    }
}

/// Guaranteed, if the figures of the pod are equal.
fn container(pod_id: &str, name: &str, own: &str, whole: &str) -> NewContainer {
    let (request, limit) = whole.split_once(' ').unwrap().0.split_once('/').unwrap();
    let qos = if request == limit { QosClass::Guaranteed } else { QosClass::Burstable };
    let pod = Pod {
        id: pod_id.to_owned(),
        namespace: "default".to_owned(),
        name: pod_id.to_owned(),
        qos: Some(qos),
        resources: written(whole),
        ..Pod::default()
    };
    NewContainer { pod, name: name.to_owned(), resources: written(own), ..NewContainer::default() }
}

/// A node with its journal.
struct Node {
    state: NodeState,
    journal: Vec<String>,
    line: &'static str,
    tickets: u64,
}

impl Node {
    fn new(line: &'static str) -> Node {
        Node { state: state(line), journal: Vec::new(), line, tickets: 0 }
    }

    fn step(&mut self, event: Event) -> Answer {
        let step = self.state.step(event, NOW);
        self.journal.extend(step.records.iter().map(to_line));
        step.answer
    }

    /// Creates a container, as soon as the runtime was asked; `Some`: why not.
    fn create(&mut self, spec: NewContainer) -> Option<String> {
        self.tickets += 1;
        let (ticket, id) = (Ticket(self.tickets), format!("{}/{}", spec.pod.id, spec.name));
        match self.step(Event::Admit(ticket, Box::new(spec))) {
            Answer::Admission(Admission::Refuse(why)) => return Some(why),
            Answer::Admission(Admission::Place(_)) => {}
            other => panic!("{other:?}"),
        }
        self.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }));
        None
    }

    fn resize(&mut self, id: &str, to: Resources) -> Option<String> {
        match self.step(Event::Resize(id.to_owned(), to)) {
            Answer::Admission(Admission::Refuse(why)) => Some(why),
            _ => {
                self.step(Event::Resized(id.to_owned(), ResizeOutcome::Done));
                None
            }
        }
    }

    /// From its journal.
    fn restart(&mut self) {
        let mut again = state(self.line);
        again.restore(replay(&self.journal), NOW);
        assert_eq!(again.ledger.holdings(), self.state.ledger.holdings());
        self.state = again;
    }

    /// Every container: what it holds, where it runs, memory set aside.
    fn shown(&self) -> String {
        let rows = self.state.containers.iter().map(|(id, container)| {
            let held = self.state.ledger.allocation(*id).unwrap();
            let memory: Bytes = held.charges.iter().map(|(_, bytes)| *bytes).sum();
            let own = match (held.exclusive.len(), held.shared) {
                (0, None) => "joined".to_owned(),
                (own, None) => format!("owns {own}"),
                (0, Some(shared)) => format!("shares {shared}"),
                (own, Some(shared)) => format!("owns {own} and shares {shared}"),
            };
            let pinning = self.state.pinning(*id).unwrap();
            let name = container.runtime_id.clone().unwrap_or_default();
            format!("  {name} {own}, cpus {}, mems {}, {memory}\n", pinning.cpus, pinning.mems)
        });
        rows.collect()
    }
}

/// One line per step: `POD/NAME OWN of WHOLE` for a container, `-ID`, `resize ID TO`, `pod ID TO`, `machine LINE`, `restart`, and `show`.
#[track_caller]
fn check(line: &'static str, steps: &[&str], expected: Expect) {
    let mut node = Node::new(line);
    let mut shown = String::new();
    for step in steps {
        let refused = match step.split_once(' ') {
            None if *step == "restart" => {
                node.restart();
                None
            }
            None if *step == "show" => {
                shown.push_str(&node.shown());
                continue;
            }
            None => {
                node.step(Event::Ended(step.strip_prefix('-').unwrap().to_owned()));
                None
            }
            Some(("resize", rest)) => {
                let (id, to) = rest.split_once(' ').unwrap();
                node.resize(id, written(to))
            }
            Some(("machine", line)) => {
                let topology = derive(&parse_machine(line).unwrap()).unwrap();
                let machine = ChangedMachine::new(&topology, Policy::default(), &CpuSet::new());
                node.step(Event::MachineChanged(Box::new(machine)));
                None
            }
            Some(("pod", rest)) => {
                let (id, to) = rest.split_once(' ').unwrap();
                node.step(Event::PodResized(id.to_owned(), written(to)));
                None
            }
            Some((name, rest)) => {
                let (own, whole) = rest.split_once(" of ").unwrap();
                let (pod, name) = name.split_once('/').unwrap();
                node.create(container(pod, name, own, whole))
            }
        };
        let refused = refused.map(|why| format!(": {why}")).unwrap_or_default();
        shown.push_str(&format!("{step}{refused}\n"));
    }
    expected.assert_eq(&shown);
}

#[test]
fn silent_containers_share_the_cpus_of_their_pod() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "p/a 4000/4000 4 of 4000/4000 4",
            "p/b 4000/4000 4 of 4000/4000 4",
            "p/c 4000/4000 4 of 4000/4000 4",
            "show",
            "restart",
            "-p/a",
            "show",
            "restart",
            "-p/b",
            "-p/c",
            "q/a 7000/7000 4 of 7000/7000 4",
            "show",
        ],
        expect![[r#"
            p/a 4000/4000 4 of 4000/4000 4
            p/b 4000/4000 4 of 4000/4000 4
            p/c 4000/4000 4 of 4000/4000 4
              p/a owns 4, cpus 1-2,5-6, mems 0, 4 GiB
              p/b joined, cpus 1-2,5-6, mems 0, 0 B
              p/c joined, cpus 1-2,5-6, mems 0, 0 B
            restart
            -p/a
              p/b owns 4, cpus 1-2,5-6, mems 0, 4 GiB
              p/c joined, cpus 1-2,5-6, mems 0, 0 B
            restart
            -p/b
            -p/c
            q/a 7000/7000 4 of 7000/7000 4
              q/a owns 7, cpus 0-3,5-7, mems 0, 4 GiB
        "#]],
    );
}

/// Of a pod that is wrong about its sum: one of its containers gives its CPUs up for the third, and then moves for it, too.
#[test]
fn the_journal_has_the_last_of_two_places_that_an_arrival_gives_a_container_of_its_pod() {
    check(
        "pack:1 numa:2 l3:1 core:4 pu:2 mem:8",
        &[
            "o/a 3000/3000 1 of 3000/3000 1",
            "p/a 6000/6000 1 of 6000/6000 0",
            "p/b 3000/3000 1 of 6000/6000 0",
            "p/c 5000/5000 1 of 6000/6000 0",
            "show",
            "restart",
        ],
        expect![[r#"
            o/a 3000/3000 1 of 3000/3000 1
            p/a 6000/6000 1 of 6000/6000 0
            p/b 3000/3000 1 of 6000/6000 0
            p/c 5000/5000 1 of 6000/6000 0
              o/a owns 3, cpus 1-2,9, mems 0, 1 GiB
              p/a shares 0, cpus 0,3,8,10-11, mems 0-1, 1 GiB
              p/b owns 3, cpus 6,13-14, mems 1, 1 GiB
              p/c owns 5, cpus 4-5,7,12,15, mems 1, 1 GiB
            restart
        "#]],
    );
}

#[test]
fn memory_nodes_of_those_that_joined_go_with_the_place_of_the_one_that_holds_the_cpus() {
    check(
        "numa:2 core:4 pu:2 mem:64",
        &[
            "p/a 4000/4000 4 of 4000/4000 4",
            "p/b 4000/4000 4 of 4000/4000 4",
            "p/c 4000/4000 4 of 4000/4000 4",
            "show",
            "machine numa:2 core:4 pu:2 mem:64 offline:0-2,8-10",
            "show",
            "pod p 9000/9000 4",
            "show",
        ],
        expect![[r#"
            p/a 4000/4000 4 of 4000/4000 4
            p/b 4000/4000 4 of 4000/4000 4
            p/c 4000/4000 4 of 4000/4000 4
              p/a owns 4, cpus 1-2,9-10, mems 0, 4 GiB
              p/b joined, cpus 1-2,9-10, mems 0, 0 B
              p/c joined, cpus 1-2,9-10, mems 0, 0 B
            machine numa:2 core:4 pu:2 mem:64 offline:0-2,8-10
              p/a owns 4, cpus 4-5,12-13, mems 1, 4 GiB
              p/b joined, cpus 4-5,12-13, mems 1, 0 B
              p/c joined, cpus 4-5,12-13, mems 1, 0 B
            pod p 9000/9000 4
              p/a owns 9, cpus 3-7,12-15, mems 0-1, 4 GiB
              p/b joined, cpus 3-7,12-15, mems 0-1, 0 B
              p/c joined, cpus 3-7,12-15, mems 0-1, 0 B
        "#]],
    );
}

#[test]
fn one_that_lost_its_pods_cpus_leaves_a_place_to_the_next() {
    check(
        "numa:1 core:2 pu:2 mem:64",
        &[
            "p/a 3000/3000 4 of 3000/3000 4",
            "p/b 3000/3000 4 of 3000/3000 4",
            "machine numa:1 core:2 pu:2 mem:64 offline:2-3",
            "show",
            "-p/a",
            "show",
            "x/a 1000/1000 1 of 1000/1000 1",
            "show",
            "-x/a",
            "machine numa:1 core:2 pu:2 mem:64",
            "-p/b",
            "q/a 3000/3000 4 of 3000/3000 4",
            "show",
        ],
        expect![[r#"
            p/a 3000/3000 4 of 3000/3000 4
            p/b 3000/3000 4 of 3000/3000 4
            machine numa:1 core:2 pu:2 mem:64 offline:2-3
              p/a shares 3, cpus 0-1, mems 0, 4 GiB
              p/b joined, cpus 0-1, mems 0, 0 B
            -p/a
              p/b joined, cpus 0-1, mems 0, 0 B
            x/a 1000/1000 1 of 1000/1000 1
              p/b joined, cpus 0, mems 0, 0 B
              x/a owns 1, cpus 1, mems 0, 1 GiB
            -x/a
            machine numa:1 core:2 pu:2 mem:64
            -p/b
            q/a 3000/3000 4 of 3000/3000 4
              q/a owns 3, cpus 0-1,3, mems 0, 4 GiB
        "#]],
    );
}

#[test]
fn containers_that_say_their_own_have_it_out_of_the_pods() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "x/a 3000/3000 1 of 3000/3000 1",
            "p/a 4000/4000 4 of 4000/4000 4",
            "p/b 2000/2000 1 of 4000/4000 4",
            "p/c 4000/4000 4 of 4000/4000 4",
            "show",
            "-p/b",
            "show",
        ],
        expect![[r#"
            x/a 3000/3000 1 of 3000/3000 1
            p/a 4000/4000 4 of 4000/4000 4
            p/b 2000/2000 1 of 4000/4000 4
            p/c 4000/4000 4 of 4000/4000 4
              x/a owns 3, cpus 1-2,5, mems 0, 1 GiB
              p/a owns 2, cpus 3,7, mems 0, 3 GiB
              p/b owns 2, cpus 0,4, mems 0, 1 GiB
              p/c joined, cpus 3,7, mems 0, 0 B
            -p/b
              x/a owns 3, cpus 1-2,5, mems 0, 1 GiB
              p/a owns 4, cpus 0,3-4,7, mems 0, 4 GiB
              p/c joined, cpus 0,3-4,7, mems 0, 0 B
        "#]],
    );
}

/// Before the new container is refused, another of its pod is given CPUs, for which one of another pod makes room.
#[test]
fn the_history_tells_of_sharers_that_made_room_in_vain() {
    let mut node = Node::new("pack:1 numa:2 core:4 mem:8");
    node.step(Event::SetMode(Mode::Draining));
    node.create(container("p", "a", "6000/6000 0", "6000/6000 0"));
    node.step(Event::SetMode(Mode::Placing));
    node.create(container("s", "a", "3000/0 0", "3000/0 0"));
    node.create(container("t", "a", "500/0 0", "500/0 0"));
    let new = container("p", "b", "2000/2000 0", "6000/6000 0");
    let step = node.state.step(Event::Admit(Ticket(99), Box::new(new)), NOW);
    let [Record::Placed(placed)] = &step.records[..] else { panic!("{:?}", step.records) };
    let told: Vec<_> =
        step.history.iter().map(|it| (it.kind, it.names().join(" "), &it.why[..])).collect();
    let refused = "refused: needs 2 exclusive CPUs; 0 are free";
    let expected = [
        (Kind::Refused, "default/p/b".to_owned(), refused),
        (Kind::Moved, "default/s/a".to_owned(), "to make room for default/p/a"),
    ];
    assert_eq!(told, expected);
    assert_eq!(step.history[1].who.as_ref().and_then(|it| it.id), Some(placed.id));
}

#[test]
fn a_burstable_pod_counts_what_it_requests() {
    check(
        "numa:2 core:4 pu:2 mem:64",
        &[
            "p/a 8000/8000 4 of 2000/8000 4",
            "p/b 8000/8000 4 of 2000/8000 4",
            "p/c 8000/8000 4 of 2000/8000 4",
            "show",
            "x/a 12000/12000 1 of 12000/12000 1",
            "show",
            "-p/a",
            "show",
            "restart",
        ],
        expect![[r#"
            p/a 8000/8000 4 of 2000/8000 4
            p/b 8000/8000 4 of 2000/8000 4
            p/c 8000/8000 4 of 2000/8000 4
              p/a shares 2, cpus 0-3,8-11, mems 0, 0 B
              p/b shares 0, cpus 0-3,8-11, mems 0, 0 B
              p/c shares 0, cpus 0-3,8-11, mems 0, 0 B
            x/a 12000/12000 1 of 12000/12000 1
              p/a shares 2, cpus 0,3,8,11, mems 0, 0 B
              p/b shares 0, cpus 0,3,8,11, mems 0, 0 B
              p/c shares 0, cpus 0,3,8,11, mems 0, 0 B
              x/a owns 12, cpus 1-2,4-7,9-10,12-15, mems 0-1, 1 GiB
            -p/a
              p/b shares 2, cpus 0,3,8,11, mems 0, 0 B
              p/c shares 0, cpus 0,3,8,11, mems 0, 0 B
              x/a owns 12, cpus 1-2,4-7,9-10,12-15, mems 0-1, 1 GiB
            restart
        "#]],
    );
}

/// An init container that has ended, and of which the runtime could not be asked.
#[test]
fn a_pod_that_says_nothing_as_a_whole_is_as_ever() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "p/init 4000/4000 4 of 4000/4000 4",
            "-p/init",
            "p/a 1000/1000 1 of 4000/4000 4",
            "p/b 3000/3000 3 of 4000/4000 4",
            "show",
            "q/init 2000/2000 2 of 2000/2000 2",
            "q/a 2000/2000 2 of 2000/2000 2",
            "-q/init",
            "show",
        ],
        expect![[r#"
            p/init 4000/4000 4 of 4000/4000 4
            -p/init
            p/a 1000/1000 1 of 4000/4000 4
            p/b 3000/3000 3 of 4000/4000 4
              p/a owns 1, cpus 1, mems 0, 1 GiB
              p/b owns 3, cpus 2,5-6, mems 0, 3 GiB
            q/init 2000/2000 2 of 2000/2000 2
            q/a 2000/2000 2 of 2000/2000 2
            -q/init
              p/a owns 1, cpus 1, mems 0, 1 GiB
              p/b owns 3, cpus 2,5-6, mems 0, 3 GiB
              q/a owns 2, cpus 3,7, mems 0, 2 GiB
        "#]],
    );
}
