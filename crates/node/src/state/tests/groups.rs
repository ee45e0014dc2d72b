//! Groups on their way through the state: balloons, pools, slots and zones, as tables of what comes and goes; with the words of other systems for containers of no group.

use bayplan_allocator::{CpuWishes, Packing, Siblings};
use bayplan_topology::Level;
use bayplan_workload::{ContainerFacts, Facts, cmk};
use expect_test::{Expect, expect};

mod balance;
mod balloons;
mod control_plane;
mod domains;
mod dynamic_pools;
mod faults;
mod inside;
mod instances;
mod koordinator;
mod lost_cpus;
mod other_types;
mod places;
mod pod_pools;
mod scenarios;
mod sizes;
mod wishes;

use super::*;
use crate::groups::{
    Capacity, Creation, Fill, Follow, GroupPlace, GroupType, Inside, InstanceKey, Instances, Load,
    Members, Most, Priority, Size,
};
use crate::reconfigure::{ChangedConfig, fingerprint};
use crate::settings::OnNoCapacity;
use crate::status::Status;

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
    policy: Policy,
    types: Arc<[GroupType]>,
    tickets: u64,
}

pub(super) fn empty(machine: (&str, &str), types: &Arc<[GroupType]>) -> NodeState {
    empty_under(Policy::default(), machine, types)
}

fn empty_under(
    policy: Policy,
    (line, reserved): (&str, &str),
    types: &Arc<[GroupType]>,
) -> NodeState {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = pools(&topology, policy, &reserved.parse().unwrap()).unwrap();
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

    /// `NAMESPACE/POD/NAME MILLI [QOS] [KEY=VALUE]...`; what kubelet is told. `cmk=` goes before the words of a command; `memory=` is in GiB, requested and allowed.
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
                Some(("memory", gib)) => {
                    let limit = Bytes::gib(gib.parse().unwrap());
                    let all = self.state.ledger.pools().memory().unwrap();
                    spec.resources.memory_limit = i64::try_from(limit.0).unwrap();
                    let score = 1000 - 1000 * limit.0 / all.0;
                    spec.resources.oom_score_adj = i64::try_from(score).unwrap();
                }
                Some(("extended", value)) => {
                    let (name, count) = value.split_once(':').unwrap();
                    let extended = [(name.to_owned(), count.parse().unwrap())].into();
                    let own = ContainerFacts { extended, ..ContainerFacts::default() };
                    spec.facts = Some(Facts { own, ..Facts::default() }.into());
                }
                Some((key, value)) if key.contains('.') && key != "koordinator.sh/qosClass" => {
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
        let had = self.state.containers.named(id).unwrap().spec.resources;
        let (memory_limit, oom_score_adj) = (had.memory_limit, had.oom_score_adj);
        let wanted = Resources { memory_limit, oom_score_adj, ..resources(milli) };
        match self.step(Event::Resize(id.to_owned(), wanted)) {
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

    fn config(&self, types: &Arc<[GroupType]>) -> Box<ChangedConfig> {
        let topology = derive(&parse_machine(self.machine.0).unwrap()).unwrap();
        let reserved = self.machine.1.parse().unwrap();
        Box::new(ChangedConfig {
            rules: self.state.rules.clone(),
            groups: Arc::clone(types),
            compaction: CompactionConfig::default(),
            narrows_memory: false,
            on_no_capacity: OnNoCapacity::default(),
            doubt_grace: SignedDuration::ZERO,
            text: String::new(),
            machine: ChangedMachine::new(&topology, self.policy, &reserved),
        })
    }

    /// Other types hold from now on; where containers go because of that, as `config diff` says it. Or why they cannot be had: nothing is changed then.
    fn reload(&mut self, types: &[GroupType]) -> String {
        let types = types.into();
        let before = self.state.clone();
        let asked = self.step(Event::PreviewConfig(self.config(&types)));
        match (asked, self.step(Event::ConfigChanged(self.config(&types)))) {
            (Answer::Shifts(shifts), Answer::Shifts(made)) => {
                assert_eq!(shifts, made, "the preview says something else");
                self.types = types;
                let shown = shifts.iter().map(|it| format!("{} to {}", it.container, it.cpus_to));
                shown.collect::<Vec<_>>().join(", ")
            }
            (Answer::NotPossible(would), Answer::NotPossible(lacking)) => {
                assert_eq!(would, lacking, "the preview says something else");
                assert_eq!(self.state.ledger.holdings(), before.ledger.holdings());
                assert_eq!(self.state.groups.instances, before.groups.instances);
                assert_eq!(self.state.status(), before.status());
                self.restart();
                format!("refused: {}", lacking.join("; "))
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// The last change of types is undone: these hold again.
    fn take_back(&mut self, types: &[GroupType]) {
        self.types = types.into();
        let config = self.config(&self.types);
        let step = self.state.step(Event::ConfigTakenBack(config, "why".to_owned()), NOW);
        self.journal.extend(step.records.iter().map(to_line));
        assert_eq!(check_ledger(&self.state.ledger), Vec::<String>::new());
        let undone = Note::Failure { kind: "config_undone", message: "why".to_owned() };
        assert!(step.notes.contains(&undone), "{:?}", step.notes);
        let told = step.history.iter().filter(|it| it.why == "config_undone: why");
        assert_eq!(told.count(), 1);
        self.restart();
    }

    /// The daemon starts under other types, which no start can refuse.
    fn start_under(&mut self, types: &[GroupType]) {
        self.types = types.into();
        let mut again = empty_under(self.policy, self.machine, &self.types);
        again.rules.clone_from(&self.state.rules);
        again.restore(replay(&self.journal), NOW);
        self.journal = again.snapshot_records().iter().map(to_line).collect();
        self.state = again;
        self.step(Event::Ping);
    }

    /// From its journal: everything is as it was.
    fn restart(&mut self) {
        let mut again = empty_under(self.policy, self.machine, &self.types);
        again.rules.clone_from(&self.state.rules);
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
        let machine = ChangedMachine::new(&topology, self.policy, &reserved);
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
    started_under(Policy::default(), machine, groups)
}

fn started_under(
    policy: Policy,
    machine: (&'static str, &'static str),
    groups: &[GroupType],
) -> Node {
    let types: Arc<[GroupType]> = groups.into();
    let state = empty_under(policy, machine, &types);
    let journal = state.snapshot_records().iter().map(to_line).collect();
    let mut node = Node { state, journal, machine, policy, types, tickets: 0 };
    node.step(Event::Ping);
    node
}

/// The steps of [`play`] on a node of this machine.
#[track_caller]
fn check(
    machine: (&'static str, &'static str),
    groups: &[GroupType],
    steps: &[&'static str],
    expected: Expect,
) {
    play(&mut started(machine, groups), steps, expected);
}

/// One line per step: a container, `-ID`, `~ID MILLI`, `use SECOND ID=MILLI...`, `machine LINE`, `show`. After each, a restart would change nothing.
#[track_caller]
fn play(node: &mut Node, steps: &[&'static str], expected: Expect) {
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
