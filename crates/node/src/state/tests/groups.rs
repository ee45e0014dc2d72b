//! Groups on their way through the state: balloons, pools, slots and zones, as tables of what comes and goes.

use bayplan_allocator::{CpuWishes, Packing, Siblings};
use bayplan_topology::Level;
use bayplan_workload::{ContainerFacts, Facts, cmk};
use expect_test::{Expect, expect};

mod faults;
mod places;
mod scenarios;

use super::*;
use crate::groups::{
    Capacity, Creation, Fill, Follow, GroupPlace, GroupType, Inside, InstanceKey, Instances, Load,
    Members, Most, Priority, Size,
};
use crate::reconfigure::{ChangedConfig, fingerprint};
use crate::settings::OnNoCapacity;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A type of this name and size, with members that name it.
pub(super) fn kind(name: &str, size: Size) -> GroupType {
    GroupType { size, ..GroupType::new(name) }
}

pub(super) fn requests(min: usize, max: usize) -> Size {
    Size::Requests { min, max: (max > 0).then_some(max) }
}

fn list(lists: &[&str]) -> Size {
    Size::List(lists.iter().map(|it| it.parse().unwrap()).collect())
}

pub(super) fn of_namespaces(pattern: &str) -> Members {
    Members { namespaces: vec![pattern.to_owned()], ..Members::default() }
}

/// A node with its journal.
struct Node {
    state: NodeState,
    journal: Vec<String>,
    machine: (&'static str, &'static str),
    types: Arc<[GroupType]>,
    tickets: u64,
}

pub(super) fn empty((line, reserved): (&str, &str), types: &Arc<[GroupType]>) -> NodeState {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = pools(&topology, Policy::default(), &reserved.parse().unwrap()).unwrap();
    let rules = RequestRules {
        reserved_namespaces: vec!["kube-system".to_owned()],
        has_groups: !types.is_empty(),
        ..everything()
    };
    NodeState::new(Ledger::new(Arc::new(pools)), rules, fingerprint(&topology))
        .with_groups(Arc::clone(types))
}

impl Node {
    fn step(&mut self, event: Event) -> Answer {
        self.step_at(event, NOW)
    }

    fn step_at(&mut self, event: Event, now: Timestamp) -> Answer {
        let step = self.state.step(event, now);
        self.journal.extend(step.records.iter().map(to_line));
        assert_eq!(check_ledger(&self.state.ledger), Vec::<String>::new());
        for note in &step.notes {
            assert!(
                !matches!(note, Note::Failure { kind: "put_back" | "not_adopted", .. }),
                "{note:?}"
            );
        }
        step.answer
    }

    /// `NAMESPACE/POD/NAME MILLI [QOS] [KEY=VALUE]...`; what kubelet is told. `cmk=` goes before the words of a command.
    fn create(&mut self, words: &[&str]) -> String {
        let [name, milli, rest @ ..] = words else {
            unreachable!("a container has a name and CPUs")
        };
        let [namespace, pod, container] = name.split('/').collect::<Vec<_>>()[..] else {
            unreachable!("three parts of a name")
        };
        let mut spec = new_container(pod, container, 0, 0);
        spec.resources = resources(milli.parse().unwrap());
        spec.pod.namespace = namespace.to_owned();
        spec.pod.name = pod.to_owned();
        spec.pod.qos = Some(QosClass::Burstable);
        for word in rest {
            match word.split_once('=') {
                Some(("cmk", words)) => {
                    let words: Vec<String> =
                        words.split('+').map(|it| it.replace('_', " ")).collect();
                    spec.cmk = cmk::read(&words, []).map(|it| it.asked);
                }
                Some(("extended", value)) => {
                    let (name, count) = value.split_once(':').unwrap();
                    let extended = [(name.to_owned(), count.parse().unwrap())].into();
                    let own = ContainerFacts { extended, ..ContainerFacts::default() };
                    spec.facts = Some(Facts { own, ..Facts::default() }.into());
                }
                Some((key, value)) if key.contains('.') => {
                    spec.pod.annotations.insert(key.to_owned(), value.to_owned());
                }
                Some((key, value)) => {
                    spec.pod.labels.insert(key.to_owned(), value.to_owned());
                }
                None => {
                    let qos = QosClass::ALL.into_iter().find(|qos| qos.name() == *word);
                    spec.pod.qos = Some(qos.unwrap());
                }
            }
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let before = self.state.ledger.holdings().clone();
        let tried = self.step(Event::TryAdmit(ticket, Box::new(spec.clone())));
        let answer = match tried {
            Answer::Admission(Admission::Place(_)) => tried,
            _ => {
                assert_eq!(self.state.ledger.holdings(), &before, "asking has changed something");
                self.step(Event::Admit(ticket, Box::new(spec)))
            }
        };
        match answer {
            Answer::Admission(Admission::Place(pinning)) => {
                let made = CreateOutcome::Created { id: (*name).to_owned(), pinned: true };
                self.step(Event::CreateEnded(ticket, made));
                format!("on {}", pinning.cpus)
            }
            Answer::Admission(Admission::Refuse(why)) => {
                assert_eq!(
                    self.state.ledger.holdings(),
                    &before,
                    "a refusal has changed something"
                );
                why.split("; `bayplan").next().unwrap().to_owned()
            }
            other => format!("{other:?}"),
        }
    }

    fn resize(&mut self, id: &str, milli: i64) -> String {
        match self.step(Event::Resize(id.to_owned(), resources(milli))) {
            Answer::Admission(Admission::Refuse(why)) => {
                why.split("; `bayplan").next().unwrap().to_owned()
            }
            _ => {
                self.step(Event::Resized(id.to_owned(), ResizeOutcome::Done));
                "resized".to_owned()
            }
        }
    }

    /// `SECOND CONTAINER=MILLI...`: what containers have used when so many seconds have gone.
    fn used(&mut self, words: &[&str]) -> String {
        let [second, used @ ..] = words else { unreachable!("a second and containers") };
        let used = used.iter().map(|it| {
            let (id, milli) = it.split_once('=').unwrap();
            (id.to_owned(), MilliCpu(milli.parse().unwrap()))
        });
        let now = Timestamp::from_second(second.parse().unwrap()).unwrap();
        self.step_at(Event::Used(used.collect()), now);
        let groups = self.state.group_statuses();
        let sizes = groups.iter().map(|it| {
            let cpus: CpuSet = it.cpus.parse().unwrap();
            format!("{} has {}", it.name, cpus.len())
        });
        sizes.collect::<Vec<_>>().join(", ")
    }

    /// Other types hold from now on; where containers go because of that, as `config diff` says it.
    fn reload(&mut self, types: &[GroupType]) -> String {
        self.types = types.into();
        let topology = derive(&parse_machine(self.machine.0).unwrap()).unwrap();
        let reserved = self.machine.1.parse().unwrap();
        let config = || ChangedConfig {
            rules: self.state.rules.clone(),
            groups: Arc::clone(&self.types),
            compaction: CompactionConfig::default(),
            narrows_memory: false,
            on_no_capacity: OnNoCapacity::default(),
            doubt_grace: SignedDuration::ZERO,
            text: String::new(),
            machine: ChangedMachine::new(&topology, Policy::default(), &reserved),
        };
        let (asked, made) = (config(), config());
        let Answer::Shifts(shifts) = self.step(Event::PreviewConfig(Box::new(asked))) else {
            unreachable!("no shifts")
        };
        let Answer::Shifts(made) = self.step(Event::ConfigChanged(Box::new(made))) else {
            unreachable!("no shifts")
        };
        assert_eq!(shifts, made, "the preview says something else");
        let shown = shifts.iter().map(|it| format!("{} to {}", it.container, it.cpus_to));
        shown.collect::<Vec<_>>().join(", ")
    }

    /// From its journal: everything is as it was.
    fn restart(&mut self) {
        let mut again = empty(self.machine, &self.types);
        again.restore(replay(&self.journal), NOW);
        assert_eq!(again.ledger.holdings(), self.state.ledger.holdings());
        assert_eq!(again.groups.instances, self.state.groups.instances);
        assert_eq!(again.groups.members, self.state.groups.members);
        self.state = again;
    }

    fn machine(&mut self, line: &'static str) {
        self.machine.0 = line;
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let reserved = self.machine.1.parse().unwrap();
        let machine = ChangedMachine::new(&topology, Policy::default(), &reserved);
        self.step(Event::MachineChanged(Box::new(machine)));
    }

    /// Every group with its members, and where all others run.
    fn shown(&self) -> String {
        let mut text = String::new();
        for group in self.state.group_statuses() {
            text.push_str(&format!("  {} {}: {}", group.name, group.key, group.cpus));
            let status = self.state.status();
            for it in status.containers.iter().filter(|it| it.group == group.name) {
                text.push_str(&format!(", {} on {}", it.full_name(), it.cpus));
            }
            text.push('\n');
        }
        for it in self.state.status().containers.iter().filter(|it| it.group.is_empty()) {
            text.push_str(&format!("  {} on {}\n", it.full_name(), it.cpus));
        }
        text
    }
}

fn started(machine: (&'static str, &'static str), groups: &[GroupType]) -> Node {
    let types: Arc<[GroupType]> = groups.into();
    let state = empty(machine, &types);
    let journal = state.snapshot_records().iter().map(to_line).collect();
    let mut node = Node { state, journal, machine, types, tickets: 0 };
    node.step(Event::Ping);
    node
}

/// One line per step: a container, `-ID`, `~ID MILLI`, `use SECOND ID=MILLI...`, `machine LINE`, `show`. After each, a restart would change nothing.
#[track_caller]
fn check(
    machine: (&'static str, &'static str),
    groups: &[GroupType],
    steps: &[&'static str],
    expected: Expect,
) {
    let mut node = started(machine, groups);
    let mut text = String::new();
    for step in steps {
        let words: Vec<&str> = step.split_whitespace().collect();
        let told =
            match (step.strip_prefix('-'), step.strip_prefix('~'), step.strip_prefix("machine ")) {
                (Some(id), ..) => {
                    node.step(Event::Ended(id.to_owned()));
                    "gone".to_owned()
                }
                (_, Some(_), _) => node.resize(&words[0][1..], words[1].parse().unwrap()),
                (.., Some(line)) => {
                    node.machine(line);
                    "changed".to_owned()
                }
                _ if words[0] == "use" => node.used(&words[1..]),
                _ if *step == "show" => {
                    text.push_str(&node.shown());
                    continue;
                }
                _ => node.create(&words),
            };
        text.push_str(&format!("{step}: {told}\n"));
        node.restart();
    }
    text.push_str(&node.shown());
    expected.assert_eq(&text);
}

/// Two packages of two NUMA nodes with two cores of two threads each.
const N4C16: (&str, &str) = ("pack:2 numa:2 core:2 pu:2 mem:2", "0");

#[test]
fn a_balloon_grows_and_shrinks_with_its_members() {
    check(
        N4C16,
        &[GroupType {
            members: of_namespaces("shop"),
            instances: Instances { max: Most::Count(1), ..Instances::default() },
            ..kind("web", requests(1, 4))
        }],
        &[
            "bank/x/c 500",
            "shop/a/c 1000",
            "shop/b/c 1500",
            "show",
            "~shop/b/c 3000",
            "~shop/b/c 4000",
            "show",
            "shop/d/c 1000",
            "-shop/a/c",
            "show",
            "-shop/b/c",
        ],
        expect![[r#"
            bank/x/c 500: on 2-3,10-11
            shop/a/c 1000: on 8
            shop/b/c 1500: on 1,8-9
              web[0] : 1,8-9, shop/a/c on 1,8-9, shop/b/c on 1,8-9
              bank/x/c on 2-3,10-11
            ~shop/b/c 3000: resized
            ~shop/b/c 4000: bayplan: shop/b/c refused: its group web[0] cannot be fitted: 5 CPUs would be requested of at most 4
              web[0] : 1-2,8-9, shop/a/c on 1-2,8-9, shop/b/c on 1-2,8-9
              bank/x/c on 3,10-11
            shop/d/c 1000: bayplan: shop/d/c refused: no group of `web` has room; web[0]: 5 CPUs would be requested of at most 4
            -shop/a/c: gone
              web[0] : 1,8-9, shop/b/c on 1,8-9
              bank/x/c on 2-3,10-11
            -shop/b/c: gone
              bank/x/c on 2-3,10-11
        "#]],
    );
}

#[test]
fn a_new_balloon_is_preferred_or_the_same_pod_is_together() {
    check(
        N4C16,
        &[
            GroupType {
                instances: Instances { prefers_new: true, ..Instances::default() },
                ..kind("new", requests(2, 0))
            },
            kind("old", requests(1, 6)),
        ],
        &[
            "n/a/c 1000 bayplan.dev/group=new",
            "n/b/c 1000 bayplan.dev/group=new",
            "n/b/d 1000 bayplan.dev/group=new",
            "n/c/c 1500 balloon.balloons.resource-policy.nri.io=old",
            "n/d/c 1500 balloon.balloons.cri-resource-manager.intel.com/container.c=old",
            "n/e/c 4000 bayplan.dev/group=old",
            "n/f/c 1000 bayplan.dev/group=none",
            "n/g/c 1000 bayplan.dev/group=odd",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=new: on 1,9
            n/b/c 1000 bayplan.dev/group=new: on 2,10
            n/b/d 1000 bayplan.dev/group=new: on 2,10
            n/c/c 1500 balloon.balloons.resource-policy.nri.io=old: on 3,11
            n/d/c 1500 balloon.balloons.cri-resource-manager.intel.com/container.c=old: on 3,8,11
            n/e/c 4000 bayplan.dev/group=old: on 4-5,12-13
            n/f/c 1000 bayplan.dev/group=none: on 6-7,14-15
            n/g/c 1000 bayplan.dev/group=odd: bayplan: n/g/c refused: its pod names the group `odd`; groups that pods may name are new, old, or `none`
              new[0] : 1,9, n/a/c on 1,9
              new[1] : 2,10, n/b/c on 2,10, n/b/d on 2,10
              old[0] : 3,8,11, n/c/c on 3,8,11, n/d/c on 3,8,11
              old[1] : 4-5,12-13, n/e/c on 4-5,12-13
              n/f/c on 6-7,14-15
        "#]],
    );
}

#[test]
fn namespaces_have_a_balloon_each_until_there_can_be_no_more() {
    check(
        N4C16,
        &[GroupType {
            members: Members { all: true, ..Members::default() },
            instances: Instances {
                by: InstanceKey::Namespace,
                max: Most::Count(2),
                ..Instances::default()
            },
            ..kind("ns", requests(2, 0))
        }],
        &["a/p/c 1000", "b/p/c 1000", "b/q/c 3000", "c/p/c 500", "kube-system/dns/c 100"],
        expect![[r#"
            a/p/c 1000: on 1,9
            b/p/c 1000: on 2,10
            b/q/c 3000: on 2-3,10-11
            c/p/c 500: on 1,9
            kube-system/dns/c 100: on 0
              ns[0] a: 1,9, a/p/c on 1,9, c/p/c on 1,9
              ns[1] b: 2-3,10-11, b/p/c on 2-3,10-11, b/q/c on 2-3,10-11
              kube-system/dns/c on 0
        "#]],
    );
}

#[test]
fn pods_share_pools_of_a_fixed_size() {
    let dual = |fill| GroupType {
        instances: Instances { min: 2, max: Most::Count(2), fill, ..Instances::default() },
        capacity: Capacity { pods: Some(2), containers: None },
        ..kind("dual", Size::Fixed(2))
    };
    let steps = [
        "n/a/c 100 pool.podpools.cri-resource-manager.intel.com=dual",
        "n/b/c 100 bayplan.dev/group=dual",
        "n/b/d 100 bayplan.dev/group=dual",
        "n/c/c 100 bayplan.dev/group=dual",
        "n/d/c 100 bayplan.dev/group=dual",
        "n/e/c 100 bayplan.dev/group=dual",
        "-n/a/c",
    ];
    check(
        N4C16,
        &[dual(Fill::Balanced)],
        &steps,
        expect![[r#"
            n/a/c 100 pool.podpools.cri-resource-manager.intel.com=dual: on 1,9
            n/b/c 100 bayplan.dev/group=dual: on 2,10
            n/b/d 100 bayplan.dev/group=dual: on 2,10
            n/c/c 100 bayplan.dev/group=dual: on 1,9
            n/d/c 100 bayplan.dev/group=dual: on 2,10
            n/e/c 100 bayplan.dev/group=dual: bayplan: n/e/c refused: no group of `dual` has room; dual[1]: it has 2 pods already
            -n/a/c: gone
              dual[0] : 1,9, n/c/c on 1,9
              dual[1] : 2,10, n/b/c on 2,10, n/b/d on 2,10, n/d/c on 2,10
        "#]],
    );
    check(
        N4C16,
        &[dual(Fill::Packed)],
        &steps,
        expect![[r#"
            n/a/c 100 pool.podpools.cri-resource-manager.intel.com=dual: on 1,9
            n/b/c 100 bayplan.dev/group=dual: on 1,9
            n/b/d 100 bayplan.dev/group=dual: on 1,9
            n/c/c 100 bayplan.dev/group=dual: on 2,10
            n/d/c 100 bayplan.dev/group=dual: on 2,10
            n/e/c 100 bayplan.dev/group=dual: bayplan: n/e/c refused: no group of `dual` has room; dual[1]: it has 2 pods already
            -n/a/c: gone
              dual[0] : 1,9, n/b/c on 1,9, n/b/d on 1,9
              dual[1] : 2,10, n/c/c on 2,10, n/d/c on 2,10
        "#]],
    );
}

#[test]
fn slots_are_for_one_container_each() {
    check(
        N4C16,
        &[
            GroupType {
                inside: Inside::Slots,
                ..kind("exclusive", list(&["4,12", "5,13", "6,14"]))
            },
            kind("shared", list(&["7,15"])),
        ],
        &[
            "n/x/c 1000",
            "n/a/c 0 bayplan.dev/group=exclusive",
            "n/b/c 3000 bayplan.dev/group=exclusive",
            "n/c/c 0 bayplan.dev/group=exclusive",
            "n/d/c 100 bayplan.dev/group=shared",
            "n/e/c 100 bayplan.dev/group=shared",
            "-n/a/c",
            "n/c/c 0 bayplan.dev/group=exclusive",
        ],
        expect![[r#"
            n/x/c 1000: on 2-3,10-11
            n/a/c 0 bayplan.dev/group=exclusive: on 4,12
            n/b/c 3000 bayplan.dev/group=exclusive: on 5-6,13-14
            n/c/c 0 bayplan.dev/group=exclusive: bayplan: n/c/c refused: no group of `exclusive` has room; exclusive[0]: it has too few free slots
            n/d/c 100 bayplan.dev/group=shared: on 7,15
            n/e/c 100 bayplan.dev/group=shared: on 7,15
            -n/a/c: gone
            n/c/c 0 bayplan.dev/group=exclusive: on 4,12
              exclusive[0] : 4-6,12-14, n/b/c on 5-6,13-14, n/c/c on 4,12
              shared[0] : 7,15, n/d/c on 7,15, n/e/c on 7,15
              n/x/c on 2-3,10-11
        "#]],
    );
}

#[test]
fn a_zone_is_a_numa_node_in_which_guaranteed_containers_own_cpus() {
    check(
        N4C16,
        &[GroupType {
            members: of_namespaces("z*"),
            instances: Instances { by: InstanceKey::Namespace, ..Instances::default() },
            inside: Inside::GuaranteedExclusive,
            ..kind("zone", Size::Domain(Level::NumaNode))
        }],
        &[
            "other/p/c 1000",
            "z1/a/c 2000 Guaranteed",
            "z1/b/c 500",
            "z1/c/c 2000 Guaranteed",
            "z2/a/c 1000 Guaranteed",
            "-z1/a/c",
            "show",
            "-z1/b/c",
        ],
        expect![[r#"
            other/p/c 1000: on 2-3,10-11
            z1/a/c 2000 Guaranteed: on 4,12
            z1/b/c 500: on 5,13
            z1/c/c 2000 Guaranteed: on 6,14
            z2/a/c 1000 Guaranteed: on 8
            -z1/a/c: gone
              zone[0] z1: 4-5,12-13, z1/b/c on 4-5,12-13
              zone[1] z1: 6-7,14-15, z1/c/c on 6,14
              zone[2] z2: 1,8-9, z2/a/c on 8
              other/p/c on 2-3,10-11
            -z1/b/c: gone
              zone[1] z1: 6-7,14-15, z1/c/c on 6,14
              zone[2] z2: 1,8-9, z2/a/c on 8
              other/p/c on 2-3,10-11
        "#]],
    );
}

#[test]
fn groups_are_where_they_were_when_cpus_come_back() {
    check(
        N4C16,
        &[
            GroupType { members: of_namespaces("shop"), ..kind("web", requests(1, 4)) },
            kind("list", list(&["6-7"])),
        ],
        &[
            "shop/a/c 2000",
            "n/b/c 100 bayplan.dev/group=list",
            "show",
            "machine pack:2 numa:2 core:2 pu:2 mem:2 offline:7",
            "show",
            "machine pack:2 numa:2 core:2 pu:2 mem:2",
            "shop/d/c 2000",
        ],
        expect![[r#"
            shop/a/c 2000: on 1,9
            n/b/c 100 bayplan.dev/group=list: on 6-7
              list[0] : 6-7, n/b/c on 6-7
              web[0] : 1,9, shop/a/c on 1,9
            machine pack:2 numa:2 core:2 pu:2 mem:2 offline:7: changed
              list[0] : 6, n/b/c on 6
              web[0] : 1,9, shop/a/c on 1,9
            machine pack:2 numa:2 core:2 pu:2 mem:2: changed
            shop/d/c 2000: on 1-2,9-10
              list[0] : 6-7, n/b/c on 6-7
              web[0] : 1-2,9-10, shop/a/c on 1-2,9-10, shop/d/c on 1-2,9-10
        "#]],
    );
}

/// A core of two threads each; NUMA nodes of two cores.
#[test]
fn a_group_that_lost_a_cpu_leaves_exclusive_containers_theirs() {
    check(
        ("pack:1 numa:2 core:2 pu:2 mem:2", "0,4"),
        &[kind("two", Size::Fixed(2))],
        &[
            "n/a/c 100 bayplan.dev/group=two",
            "n/x/c 2000 Guaranteed",
            "show",
            "machine pack:1 numa:2 core:2 pu:2 mem:2 offline:5",
            "show",
            "machine pack:1 numa:2 core:2 pu:2 mem:2",
        ],
        expect![[r#"
            n/a/c 100 bayplan.dev/group=two: on 1,5
            n/x/c 2000 Guaranteed: on 2,6
              two[0] : 1,5, n/a/c on 1,5
              n/x/c on 2,6
            machine pack:1 numa:2 core:2 pu:2 mem:2 offline:5: changed
              two[0] : 1,3, n/a/c on 1,3
              n/x/c on 2,6
            machine pack:1 numa:2 core:2 pu:2 mem:2: changed
              two[0] : 1,3, n/a/c on 1,3
              n/x/c on 2,6
        "#]],
    );
}

#[test]
fn groups_of_a_fixed_size_and_of_a_domain_regain_their_cpus() {
    check(
        N4C16,
        &[
            kind("pair", Size::Fixed(2)),
            GroupType {
                members: of_namespaces("z"),
                ..kind("zone", Size::Domain(Level::NumaNode))
            },
        ],
        &[
            "n/a/c 100 bayplan.dev/group=pair",
            "z/b/c 100",
            "show",
            "machine pack:2 numa:2 core:2 pu:2 mem:2 offline:9,11",
            "show",
            "machine pack:2 numa:2 core:2 pu:2 mem:2",
        ],
        expect![[r#"
            n/a/c 100 bayplan.dev/group=pair: on 1,9
            z/b/c 100: on 2-3,10-11
              pair[0] : 1,9, n/a/c on 1,9
              zone[0] : 2-3,10-11, z/b/c on 2-3,10-11
            machine pack:2 numa:2 core:2 pu:2 mem:2 offline:9,11: changed
              pair[0] : 1,8, n/a/c on 1,8
              zone[0] : 2-3,10, z/b/c on 2-3,10
            machine pack:2 numa:2 core:2 pu:2 mem:2: changed
              pair[0] : 1,8, n/a/c on 1,8
              zone[0] : 2-3,10-11, z/b/c on 2-3,10-11
        "#]],
    );
}

/// The one of low priority was there first and has the lower id. Both have lost all of their CPUs: the other one has what is left, and the second CPU that comes back.
#[test]
fn groups_of_a_higher_priority_get_cpus_back_first() {
    let of = |name, priority| GroupType { priority, ..kind(name, Size::Fixed(2)) };
    let machine = "pack:1 numa:1 core:8 pu:1 mem:2";
    let mut node = started((machine, "0"), &[of("low", Priority::Low), of("high", Priority::High)]);
    node.create(&["n/a/c", "100", "bayplan.dev/group=low"]);
    node.create(&["n/b/c", "100", "bayplan.dev/group=high"]);
    node.create(&["n/x/c", "100"]);
    let mut told = vec![format!("{machine}\n{}", node.shown())];
    for line in [
        "pack:1 numa:1 core:8 pu:1 mem:2 offline:1-4,7",
        "pack:1 numa:1 core:8 pu:1 mem:2 offline:1-4",
        machine,
    ] {
        node.machine(line);
        told.push(format!("{line}\n{}", node.shown()));
    }
    expect![[r#"
        pack:1 numa:1 core:8 pu:1 mem:2
          high[0] : 3-4, n/b/c on 3-4
          low[0] : 1-2, n/a/c on 1-2
          n/x/c on 5-7

        pack:1 numa:1 core:8 pu:1 mem:2 offline:1-4,7
          high[0] : 5, n/b/c on 5
          n/a/c on 6
          n/x/c on 6

        pack:1 numa:1 core:8 pu:1 mem:2 offline:1-4
          high[0] : 5-6, n/b/c on 5-6
          n/a/c on 7
          n/x/c on 7

        pack:1 numa:1 core:8 pu:1 mem:2
          high[0] : 5-6, n/b/c on 5-6
          low[0] : 1-2, n/a/c on 1-2
          n/x/c on 3-4,7
    "#]]
    .assert_eq(&told.join("\n"));
}

#[test]
fn a_changed_size_counts_after_a_restart() {
    let mut node = started(N4C16, &[kind("pair", Size::Fixed(2))]);
    node.create(&["n/a/c", "100", "bayplan.dev/group=pair"]);
    assert_eq!(node.state.group_statuses()[0].cpus, "1,9");
    node.types = [kind("pair", Size::Fixed(4))].into();
    let mut again = empty(N4C16, &node.types);
    again.restore(replay(&node.journal), NOW);
    node.state = again;
    node.step(Event::Ping);
    assert_eq!(node.state.group_statuses()[0].cpus, "1-2,9-10");
    node.restart();
}

#[test]
fn idle_siblings_stay_idle_when_a_group_shrinks() {
    let packing = Packing::Spread;
    let cpus = CpuWishes { siblings: Siblings::Idle, packing, ..CpuWishes::default() };
    let inside = Inside::GuaranteedExclusive;
    let mut node = started(N4C16, &[GroupType { cpus, inside, ..kind("idle", requests(1, 4)) }]);
    let idle = |node: &Node| node.state.ledger.groups().next().unwrap().1.idle.to_string();
    node.create(&["n/a/c", "2000", "Guaranteed", "bayplan.dev/group=idle"]);
    node.create(&["n/b/c", "2000", "bayplan.dev/group=idle"]);
    assert_eq!(idle(&node), "10-11");
    node.step(Event::Ended("n/b/c".to_owned()));
    assert_eq!(idle(&node), "10-11");
    assert_eq!(node.resize("n/a/c", 1000), "resized");
    assert_eq!(idle(&node), "10");
    node.restart();
}

#[test]
fn a_resize_that_shrinks_a_group_is_answered_with_the_set_that_is_left() {
    let mut node = started(N4C16, &[kind("web", requests(1, 4))]);
    node.create(&["n/a/c", "4000", "bayplan.dev/group=web"]);
    let answer = node.step(Event::Resize("n/a/c".to_owned(), resources(2000)));
    let Answer::Admission(Admission::Place(told)) = answer else { unreachable!("{answer:?}") };
    assert_eq!(told.cpus.to_string(), node.state.group_statuses()[0].cpus);
    assert_eq!(told.cpus.len(), 2);
}

#[test]
fn a_preview_of_other_types_knows_what_groups_of_another_size_move() {
    let mut node = started(N4C16, &[kind("web", requests(1, 8))]);
    node.create(&["n/a/c", "2000", "bayplan.dev/group=web"]);
    node.create(&["n/x/c", "500"]);
    let shifts = node.reload(&[kind("web", requests(4, 8))]);
    assert_eq!(shifts, "n/a/c to 1-2,9-10, n/x/c to 3,11");
    node.restart();
}

#[test]
fn a_member_of_a_group_above_a_lowered_maximum_may_be_resized_down() {
    let mut node = started(N4C16, &[kind("web", requests(1, 8))]);
    node.create(&["n/a/c", "4000", "bayplan.dev/group=web"]);
    node.create(&["n/b/c", "3000", "bayplan.dev/group=web"]);
    node.reload(&[kind("web", requests(1, 4))]);
    assert_eq!(node.state.group_statuses()[0].cpus, "1-3,8-11");
    assert_eq!(node.resize("n/a/c", 3000), "resized");
    expect!["bayplan: n/a/c refused: its group web[0] cannot be fitted: 7 CPUs would be requested of at most 4"].assert_eq(&node.resize("n/a/c", 4000));
    assert_eq!(node.shown(), "  web[0] : 1-3,9-11, n/a/c on 1-3,9-11, n/b/c on 1-3,9-11\n");
}

#[test]
fn where_a_group_is_its_type_says_and_a_members_own_words_are_told_to_be_in_vain() {
    let mut node = started(N4C16, &[kind("web", requests(2, 8))]);
    node.create(&[
        "n/a/c",
        "2000",
        "Guaranteed",
        "bayplan.dev/group=web",
        "bayplan.dev/within=numa",
        "bayplan.dev/siblings=idle",
        "bayplan.dev/hide-hyperthreads=true",
    ]);
    assert_eq!(node.state.status().containers[0].cpus, "1");
    let container = node.state.containers.values().next().unwrap();
    expect![[r#"
        annotation `bayplan.dev/siblings` has no effect: it runs on the CPUs of the group web[0]
        annotation `bayplan.dev/within` has no effect: it runs on the CPUs of the group web[0]"#]]
    .assert_eq(&container.decision.warnings.join("\n"));
}

#[test]
fn cmk_isolate_names_a_group_slots_and_a_socket() {
    let slots = GroupType {
        inside: Inside::Slots,
        ..kind("exclusive", list(&["2,10", "3,11", "4,12", "5,13"]))
    };
    check(
        N4C16,
        &[slots, kind("shared", list(&["6,14", "7,15"]))],
        &[
            "n/a/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=1+app",
            "n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app",
            "n/c/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=2+app",
            "n/d/c 0 cmk=cmk+isolate+--pool=shared+app",
            "n/e/c 0 cmk=cmk+isolate+--pool=exclusive+--no-affinity+app",
            "n/f/c 0 cmk=cmk+isolate+--pool=odd+app",
            "n/g/c 0 cmk=cmk+isolate+app",
            "kube-system/h/c 0 cmk=cmk+isolate+--pool=infra+app",
        ],
        expect![[r#"
            n/a/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=1+app: on 4,12
            n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app: on 2,10
            n/c/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=2+app: bayplan: n/c/c refused: no group of `exclusive` has room; exclusive[0]: the machine has no socket 2
            n/d/c 0 cmk=cmk+isolate+--pool=shared+app: on 6,14
            n/e/c 0 cmk=cmk+isolate+--pool=exclusive+--no-affinity+app: on 
            n/f/c 0 cmk=cmk+isolate+--pool=odd+app: bayplan: n/f/c refused: its pod names the group `odd`; groups that pods may name are exclusive, shared, or `none`
            n/g/c 0 cmk=cmk+isolate+app: bayplan: n/g/c refused: `cmk isolate` without --pool; name exclusive, shared or infra
            kube-system/h/c 0 cmk=cmk+isolate+--pool=infra+app: on 0
              exclusive[0] : 2-5,10-13, n/a/c on 4,12, n/b/c on 2,10, n/e/c on 
              shared[0] : 6,14, n/d/c on 6,14
              shared[1] : 7,15
              kube-system/h/c on 0
        "#]],
    );
}

#[test]
fn members_share_idle_cpus_around_their_group_until_others_come() {
    let cpus = CpuWishes { shares_idle: Some(Level::NumaNode), ..CpuWishes::default() };
    check(
        N4C16,
        &[GroupType { cpus, ..kind("web", requests(1, 4)) }],
        &[
            "n/a/c 1000 bayplan.dev/group=web",
            "show",
            "n/x/c 2000 Guaranteed",
            "n/y/c 100",
            "n/z/c 100",
            "n/u/c 100",
            "n/v/c 100",
            "show",
            "-n/x/c",
        ],
        expect![[r#"
            n/a/c 1000 bayplan.dev/group=web: on 1,8-9
              web[0] : 8, n/a/c on 1,8-9
            n/x/c 2000 Guaranteed: on 1,9
            n/y/c 100: on 2-3,10-11
            n/z/c 100: on 4-5,12-13
            n/u/c 100: on 6-7,14-15
            n/v/c 100: on 2-3,10-11
              web[0] : 8, n/a/c on 8
              n/u/c on 6-7,14-15
              n/v/c on 2-3,10-11
              n/x/c on 1,9
              n/y/c on 2-3,10-11
              n/z/c on 4-5,12-13
            -n/x/c: gone
              web[0] : 8, n/a/c on 1,8-9
              n/u/c on 6-7,14-15
              n/v/c on 2-3,10-11
              n/y/c on 2-3,10-11
              n/z/c on 4-5,12-13
        "#]],
    );
}

/// Issue 34: the members stayed outside for good, until the daemon started anew.
#[test]
fn members_of_a_group_that_was_over_are_in_it_again_when_its_cpus_come_back() {
    check(
        ("pack:1 numa:1 core:4 pu:1 mem:2", ""),
        &[kind("last", list(&["3"]))],
        &[
            "n/a/c 100 bayplan.dev/group=last",
            "machine pack:1 numa:1 core:4 pu:1 mem:2 offline:3",
            "show",
            "machine pack:1 numa:1 core:4 pu:1 mem:2",
        ],
        expect![[r#"
            n/a/c 100 bayplan.dev/group=last: on 3
            machine pack:1 numa:1 core:4 pu:1 mem:2 offline:3: changed
              n/a/c on 0-2
            machine pack:1 numa:1 core:4 pu:1 mem:2: changed
              last[0] : 3, n/a/c on 3
        "#]],
    );
}
