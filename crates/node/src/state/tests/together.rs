//! Pods that say what they need as a whole, with containers that say nothing, on their way through the state.

use bayplan_allocator::Part;
use expect_test::{Expect, expect};

use super::*;

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

/// In a pod without a figure of its own, where one container then asks for as much as all had before.
#[test]
fn a_resize_alone_makes_no_container_silent() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "o/a 1000/1000 1 of 2000/2000 2",
            "o/b 1000/1000 1 of 2000/2000 2",
            "resize o/a 2000/2000 1",
            "show",
            "pod o 3000/3000 2",
            "show",
        ],
        expect![[r#"
            o/a 1000/1000 1 of 2000/2000 2
            o/b 1000/1000 1 of 2000/2000 2
            resize o/a 2000/2000 1
              o/a owns 2, cpus 1-2, mems 0, 1 GiB
              o/b owns 1, cpus 5, mems 0, 1 GiB
            pod o 3000/3000 2
              o/a owns 2, cpus 1-2, mems 0, 1 GiB
              o/b owns 1, cpus 5, mems 0, 1 GiB
        "#]],
    );
}

/// Of the memory alone, to as much as the pod had before: the pod's figure follows, or came first.
#[test]
fn a_resize_of_memory_alone_counts_in_full_before_and_after_the_pods_figure() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "o/a 1000/1000 4 of 2000/2000 6",
            "o/b 1000/1000 2 of 2000/2000 6",
            "resize o/a 1000/1000 6",
            "show",
            "restart",
            "pod o 2000/2000 8",
            "show",
            "resize o/a 1000/1000 9",
            "show",
            "pod o 2000/2000 11",
            "resize o/a 1000/1000 4",
            "pod o 2000/2000 6",
            "show",
            "pod o 2000/2000 8",
            "resize o/a 1000/1000 6",
            "show",
        ],
        expect![[r#"
            o/a 1000/1000 4 of 2000/2000 6
            o/b 1000/1000 2 of 2000/2000 6
            resize o/a 1000/1000 6
              o/a owns 1, cpus 1, mems 0, 6 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
            restart
            pod o 2000/2000 8
              o/a owns 1, cpus 1, mems 0, 6 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
            resize o/a 1000/1000 9
              o/a owns 1, cpus 1, mems 0, 9 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
            pod o 2000/2000 11
            resize o/a 1000/1000 4
            pod o 2000/2000 6
              o/a owns 1, cpus 1, mems 0, 4 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
            pod o 2000/2000 8
            resize o/a 1000/1000 6
              o/a owns 1, cpus 1, mems 0, 6 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
        "#]],
    );
}

#[test]
fn memory_that_is_filled_from_the_pod_grows_with_it_in_either_order() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "p/a 1000/1000 8 of 2000/2000 8",
            "p/b 1000/1000 2 of 2000/2000 8",
            "show",
            "resize p/a 1000/1000 12",
            "show",
            "pod p 2000/2000 12",
            "show",
            "pod p 2000/2000 16",
            "resize p/a 1000/1000 16",
            "show",
        ],
        expect![[r#"
            p/a 1000/1000 8 of 2000/2000 8
            p/b 1000/1000 2 of 2000/2000 8
              p/a owns 1, cpus 1, mems 0, 6 GiB
              p/b owns 1, cpus 5, mems 0, 2 GiB
            resize p/a 1000/1000 12
              p/a owns 1, cpus 1, mems 0, 10 GiB
              p/b owns 1, cpus 5, mems 0, 2 GiB
            pod p 2000/2000 12
              p/a owns 1, cpus 1, mems 0, 10 GiB
              p/b owns 1, cpus 5, mems 0, 2 GiB
            pod p 2000/2000 16
            resize p/a 1000/1000 16
              p/a owns 1, cpus 1, mems 0, 14 GiB
              p/b owns 1, cpus 5, mems 0, 2 GiB
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

/// As kubelet 1.37 resizes the figure of a pod: of a container that says nothing the shares become the least.
#[test]
fn a_resize_of_the_pod_gives_its_silent_containers_cpus_and_takes_them_back() {
    let whole = "500/500 4 of 500/500 4";
    let created = ["p/a", "p/b", "p/c"].map(|name| format!("{name} {whole}"));
    let mut steps: Vec<&str> = created.iter().map(String::as_str).collect();
    steps.extend(["show", "pod p 500/1000 4", "pod p 1000/1000 4"]);
    steps.extend(["resize p/a 0/1000 4", "resize p/b 0/1000 4", "resize p/c 0/1000 4"]);
    steps.extend(["show", "restart"]);
    steps.extend(["resize p/a 0/500 4", "resize p/b 0/500 4", "resize p/c 0/500 4"]);
    steps.extend(["pod p 500/1000 4", "pod p 500/500 4", "show"]);
    check(
        "numa:1 core:4 pu:2 mem:64",
        &steps,
        expect![[r#"
            p/a 500/500 4 of 500/500 4
            p/b 500/500 4 of 500/500 4
            p/c 500/500 4 of 500/500 4
              p/a shares 500m, cpus 0-7, mems 0, 4 GiB
              p/b shares 0, cpus 0-7, mems 0, 0 B
              p/c shares 0, cpus 0-7, mems 0, 0 B
            pod p 500/1000 4
            pod p 1000/1000 4
            resize p/a 0/1000 4
            resize p/b 0/1000 4
            resize p/c 0/1000 4
              p/a owns 1, cpus 1, mems 0, 4 GiB
              p/b joined, cpus 1, mems 0, 0 B
              p/c joined, cpus 1, mems 0, 0 B
            restart
            resize p/a 0/500 4
            resize p/b 0/500 4
            resize p/c 0/500 4
            pod p 500/1000 4
            pod p 500/500 4
              p/a shares 500m, cpus 0-7, mems 0, 4 GiB
              p/b shares 0, cpus 0-7, mems 0, 0 B
              p/c shares 0, cpus 0-7, mems 0, 0 B
        "#]],
    );
}

#[test]
fn a_resize_of_the_pod_resizes_the_set() {
    for first in ["pod p 4000/4000 8", "resize p/a 4000/4000 8"] {
        let mut steps = vec![
            "p/a 2000/2000 4 of 2000/2000 4",
            "p/b 2000/2000 4 of 2000/2000 4",
            first,
            "resize p/a 4000/4000 8",
            "resize p/b 4000/4000 8",
            "pod p 4000/4000 8",
            "restart",
        ];
        let mut node = Node::new("numa:1 core:4 pu:2 mem:64");
        for step in steps.drain(..2) {
            let (name, rest) = step.split_once(' ').unwrap();
            let (own, whole) = rest.split_once(" of ").unwrap();
            assert_eq!(node.create(container("p", &name[2..], own, whole)), None);
        }
        assert_eq!(
            node.state.ledger.allocations().map(|(_, it)| it.exclusive.len()).sum::<usize>(),
            2
        );
        for step in steps {
            match step.split_once(' ') {
                Some(("resize", rest)) => {
                    let (id, to) = rest.split_once(' ').unwrap();
                    assert_eq!(node.resize(id, written(to)), None);
                }
                Some((_, rest)) => {
                    let (id, to) = rest.split_once(' ').unwrap();
                    node.step(Event::PodResized(id.to_owned(), written(to)));
                }
                None => node.restart(),
            }
        }
        let owned: Vec<usize> =
            node.state.ledger.allocations().map(|(_, it)| it.exclusive.len()).collect();
        assert_eq!(owned, [4, 0], "{first}");
        let cpus: BTreeSet<String> = node
            .state
            .containers
            .keys()
            .map(|id| node.state.pinning(*id).unwrap().cpus.to_string())
            .collect();
        assert_eq!(cpus.len(), 1, "{cpus:?}");
    }
}

#[test]
fn a_resize_for_which_there_is_no_room_changes_nothing() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "x/a 4000/4000 1 of 4000/4000 1",
            "p/a 2000/2000 4 of 2000/2000 4",
            "p/b 2000/2000 4 of 2000/2000 4",
            "resize p/b 4000/4000 4",
            "show",
            "restart",
        ],
        expect![[r#"
            x/a 4000/4000 1 of 4000/4000 1
            p/a 2000/2000 4 of 2000/2000 4
            p/b 2000/2000 4 of 2000/2000 4
            resize p/b 4000/4000 4: bayplan: default/p/b refused: needs 4 exclusive CPUs; 3 are free; `bayplan explain default/p/b` lists every pool
              x/a owns 4, cpus 1-2,5-6, mems 0, 1 GiB
              p/a owns 2, cpus 3,7, mems 0, 4 GiB
              p/b joined, cpus 3,7, mems 0, 0 B
            restart
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

/// What happens to one of two pods.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create { is_own: bool, cpus: u64 },
    End(usize),
    ResizePod { cpus: u64, is_pod_first: bool },
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<(bool, Act)>> {
    let act = prop_oneof![
        4 => (any::<bool>(), 1..3_u64).prop_map(|(is_own, cpus)| Act::Create { is_own, cpus }),
        2 => (0..4_usize).prop_map(Act::End),
        2 => (2..6_u64, any::<bool>())
            .prop_map(|(cpus, is_pod_first)| Act::ResizePod { cpus, is_pod_first }),
        1 => Just(Act::Restart),
    ];
    prop::collection::vec((any::<bool>(), act), 1..24)
}

/// A pod as kubelet has it: its figure in CPUs, and its containers, each with its own CPUs or with none.
struct Told {
    id: &'static str,
    is_guaranteed: bool,
    cpus: u64,
    containers: Vec<(String, Option<u64>)>,
    made: usize,
}

impl Told {
    /// Of a Burstable pod the limit is 8 CPUs more.
    fn limit(&self) -> u64 {
        if self.is_guaranteed { self.cpus } else { self.cpus + 8 }
    }

    fn whole(&self) -> String {
        format!("{}/{} {}", self.cpus * 1000, self.limit() * 1000, self.cpus)
    }

    fn settings(&self, own: Option<u64>) -> String {
        match own {
            Some(own) => format!("{}/{} {own}", own * 1000, own * 1000),
            None => format!("{}/{} {}", self.limit() * 1000, self.limit() * 1000, self.cpus),
        }
    }

    fn own(&self) -> u64 {
        self.containers.iter().filter_map(|(_, own)| *own).sum()
    }
}

impl Node {
    fn play(&mut self, pod: &mut Told, act: Act) -> Result<(), TestCaseError> {
        let bound = pod.cpus;
        match act {
            Act::Create { is_own, cpus } => {
                let own = is_own.then_some(cpus);
                if pod.own() + own.unwrap_or(0) > pod.cpus {
                    return Ok(());
                }
                pod.made += 1;
                let name = format!("c{}", pod.made);
                let spec = container(pod.id, &name, &pod.settings(own), &pod.whole());
                prop_assert_eq!(self.create(spec), None);
                pod.containers.push((name, own));
            }
            Act::End(index) => {
                if index < pod.containers.len() {
                    let (name, _) = pod.containers.remove(index);
                    self.step(Event::Ended(format!("{}/{name}", pod.id)));
                }
            }
            Act::ResizePod { cpus, is_pod_first } => {
                if cpus < pod.own() {
                    return Ok(());
                }
                pod.cpus = cpus;
                if is_pod_first {
                    self.step(Event::PodResized(pod.id.to_owned(), written(&pod.whole())));
                    self.hold_within(pod, bound.max(cpus))?;
                }
                let silent = pod.containers.iter().filter(|(_, own)| own.is_none());
                for (name, _) in silent.clone() {
                    let to = written(&pod.settings(None));
                    prop_assert_eq!(self.resize(&format!("{}/{name}", pod.id), to), None);
                    self.hold_within(pod, bound.max(cpus))?;
                }
                self.step(Event::PodResized(pod.id.to_owned(), written(&pod.whole())));
            }
            Act::Restart => self.restart(),
        }
        self.hold_within(pod, pod.cpus)
    }

    /// The containers of the pod hold no more than this together, CPUs and GiB, and the silent ones run on the same CPUs, where nothing
    /// else runs.
    fn hold_within(&self, pod: &Told, cpus: u64) -> Result<(), TestCaseError> {
        let of_pod = |it: &&Container| it.spec.pod.id == pod.id;
        let ids: Vec<ContainerId> =
            self.state.containers.iter().filter(|(_, it)| of_pod(it)).map(|(id, _)| *id).collect();
        let held: Vec<_> =
            ids.iter().map(|id| self.state.ledger.allocation(*id).unwrap()).collect();
        let time: u64 = held
            .iter()
            .map(|it| it.exclusive.len() as u64 * 1000 + it.shared.unwrap_or_default().0)
            .sum();
        prop_assert!(time <= cpus * 1000, "{time}m of {cpus}\n{}", self.shown());
        let memory: Bytes = held.iter().flat_map(|it| &it.charges).map(|(_, bytes)| *bytes).sum();
        let is_expected = held.iter().any(|it| it.terms.memory_is_expected);
        prop_assert!(is_expected || memory <= Bytes::gib(cpus), "{}", self.shown());
        if !pod.is_guaranteed {
            return Ok(());
        }
        let cpus_of = |id: &ContainerId| self.state.pinning(*id).unwrap().cpus;
        let mine = ids.iter().fold(CpuSet::new(), |all, id| all.union(&cpus_of(id)));
        let is_all_owned = held.iter().all(|it| it.shared.is_none());
        for other in self.state.containers.keys().filter(|id| !ids.contains(id)) {
            prop_assert!(!is_all_owned || !cpus_of(other).intersects(&mine), "{}", self.shown());
        }
        let joined = ids.iter().zip(&held).filter(|(_, it)| it.terms.part != Part::Alone);
        let sets: BTreeSet<String> = joined.map(|(id, _)| cpus_of(id).to_string()).collect();
        prop_assert!(sets.len() <= 1, "{sets:?}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// The containers of a pod together never hold more than the pod asked for, nothing that fits is refused, and a restart changes nothing.
    #[test]
    fn the_containers_of_a_pod_stay_within_it(acts in acts()) {
        let mut node = Node::new("numa:2 core:8 mem:64");
        let pod = |id, is_guaranteed| Told { id, is_guaranteed, cpus: 4, containers: Vec::new(), made: 0 };
        let mut pods = [pod("g", true), pod("b", false)];
        for (is_first, act) in acts {
            node.play(&mut pods[usize::from(!is_first)], act)?;
        }
        for pod in &mut pods {
            while !pod.containers.is_empty() {
                node.play(pod, Act::End(0))?;
            }
        }
        let empty = state("numa:2 core:8 mem:64");
        prop_assert_eq!(node.state.ledger.holdings(), empty.ledger.holdings());
    }
}
