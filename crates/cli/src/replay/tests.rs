//! What the daemon tells of itself is what the replay makes of it: random histories through the daemon's state are written as entries and replayed.

use std::path::Path;

use bayplan_allocator::policy::Policy;
use bayplan_config::parse_config;
use bayplan_node::NodeState;
use bayplan_node::event::{Answer, Event, RuntimeView, Seen};
use bayplan_node::mode::Mode;
use bayplan_node::state::Origin;
use bayplan_topology::parse_machine;
use bayplan_types::CpuSet;
use bayplan_workload::{Admission, CreateOutcome, NewContainer, ResizeOutcome, Resources, Ticket};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use expect_test::expect;

use super::*;
use crate::explain::render;
use crate::journal::Columns;
use crate::replay::story::Fate;
use crate::simulate::replay::new_container;
use crate::simulate::tests::random_trace;
use crate::simulate::trace::{Op, Trace};

/// A daemon with a runtime that does what it is told.
struct Daemon {
    state: NodeState,
    topology: Topology,
    /// The configuration that holds, and the one before it.
    configs: [Config; 2],
    now: Timestamp,
    told: Vec<Entry>,
    live: Vec<(String, NewContainer)>,
    tickets: u64,
}

impl Daemon {
    fn new(config: &str, line: &str) -> Daemon {
        let config = parse_config(Path::new("c"), config).unwrap();
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let origin = Origin { config: config.differences().into(), machine: None };
        let state = new_state(&config, &topology).unwrap().with_origin(origin);
        let now = Timestamp::UNIX_EPOCH;
        let told = state.opening_of_start(now);
        let configs = [config.clone(), config];
        Daemon { state, topology, configs, now, told, live: Vec::new(), tickets: 0 }
    }

    /// Another configuration while it runs; whether it can be had.
    fn configure(&mut self, config: &str) -> bool {
        let config = parse_config(Path::new("c"), config).unwrap();
        let changed = Box::new(config.changed(&self.topology, &CpuSet::new()).unwrap());
        let is_had = matches!(self.step(Event::ConfigChanged(changed)), Answer::Shifts(_));
        if is_had {
            let [held, _] = &self.configs;
            self.configs = [config, held.clone()];
        }
        is_had
    }

    /// The last change is undone.
    fn take_back(&mut self) {
        let [_, before] = self.configs.clone();
        let changed = Box::new(before.changed(&self.topology, &CpuSet::new()).unwrap());
        self.step(Event::ConfigTakenBack(changed, "not moved".to_owned()));
        self.configs = [before.clone(), before];
    }

    fn step(&mut self, event: Event) -> Answer {
        let step = self.state.step(event, self.now);
        self.told.extend(step.history);
        step.answer
    }

    fn sync(&mut self) {
        let Answer::SyncBasis { basis, .. } = self.step(Event::SyncStarted) else { return };
        let seen = |(id, spec): &(String, NewContainer)| {
            let (pod_id, name) = (spec.pod.id.clone(), spec.name.clone());
            let (is_alive, is_running, attempt) = (true, true, spec.attempt);
            (id.clone(), Seen { pod_id, name, attempt, is_alive, is_running, details: None })
        };
        let containers = self.live.iter().map(seen).collect();
        self.step(Event::Synced(RuntimeView { basis, containers }));
    }

    fn create(&mut self, spec: NewContainer) {
        self.tickets += 1;
        let (ticket, container) = (Ticket(self.tickets), Box::new(spec.clone()));
        let mut answer = self.step(Event::TryAdmit(ticket, container.clone()));
        if !matches!(answer, Answer::Admission(Admission::Place(_))) {
            self.sync();
            answer = self.step(Event::Admit(ticket, container));
        }
        if matches!(answer, Answer::Admission(Admission::Place(_))) {
            let id = format!("{}-{}", spec.name, self.tickets);
            self.live.push((id.clone(), spec));
            let created = CreateOutcome::Created { id: id.clone(), pinned: true };
            self.step(Event::CreateEnded(ticket, created));
            self.step(Event::Started(id));
        }
    }

    fn resize(&mut self, which: usize, milli: i64) {
        let update = Resources {
            cpu_shares: (milli * 1024 / 1000).max(2),
            cpu_quota: milli * 100,
            cpu_period: 100_000,
            ..Resources::default()
        };
        let Some((id, _)) = self.live.get(which % self.live.len().max(1)).cloned() else { return };
        let mut answer = self.step(Event::TryResize(id.clone(), update));
        if matches!(answer, Answer::Admission(Admission::Refuse(_))) {
            answer = self.step(Event::Resize(id.clone(), update));
        }
        if matches!(answer, Answer::Admission(Admission::Place(_))) {
            self.step(Event::Resized(id, ResizeOutcome::Done));
        }
    }

    /// Every third creation is followed by a resize; now and then an operator drains the node and resumes; a pause lets the runtime be asked.
    fn play(&mut self, trace: &Trace, drains: bool) {
        self.play_under(trace, drains, &[]);
    }

    /// The same; every seventh event is followed by the next of these configurations, and some changes are undone.
    fn play_under(&mut self, trace: &Trace, drains: bool, configs: &[String]) {
        let mut configs = configs.iter().cycle();
        for (index, event) in trace.events.iter().enumerate() {
            if let Some(config) = configs.next().filter(|_| index % 7 == 6)
                && self.configure(config)
                && index % 2 == 0
            {
                self.take_back();
            }
            if drains && index % 9 == 8 {
                let mode = [Mode::Draining, Mode::Placing][index / 9 % 2];
                self.step(Event::SetMode(mode));
            }
            self.now += SignedDuration::from_millis(900);
            match &event.op {
                Op::Create(wanted) => {
                    let mut spec = new_container(&event.id, wanted);
                    spec.pod.id = format!("sandbox-{}", wanted.pod);
                    self.create(spec);
                    if index % 3 == 2 {
                        self.resize(index, i64::try_from(index % 5).unwrap() * 1000);
                    }
                }
                Op::Remove => {
                    let at = self.live.iter().position(|(_, spec)| spec.name == event.id);
                    let gone = at.map(|at| self.live.remove(at).0);
                    if let Some(id) = gone {
                        self.step(Event::Ended(id));
                    }
                }
            }
            if index % 4 == 3 {
                self.now += SignedDuration::from_secs(5);
                self.sync();
            }
        }
    }
}

/// Replays on this machine, with this configuration instead of the recorded one.
fn replayed(told: &[Entry], line: &str, config: Option<&str>) -> Report {
    let config = config.map(|text| parse_config(Path::new("c"), text).unwrap());
    let topology = Some(derive(&parse_machine(line).unwrap()).unwrap());
    replay(told, &Setting { config, policy: None, topology }, String::new()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn without_a_change_everything_is_as_it_was(
        (pack, numa, l3, pu) in (1u32..3, 1u32..3, 1u32..3, 1u32..3),
        events in prop::collection::vec((0u8..12, 0u8..12), 0..50),
        (compacts, narrows, shares) in (any::<bool>(), any::<bool>(), any::<bool>()),
        drains in any::<bool>(),
    ) {
        let line = format!("pack:{pack} numa:{numa} l3:{l3} core:4 pu:{pu} mem:8");
        let share = if shares { "share" } else { "refuse" };
        let config = format!(
            "reservedCpus: 0\nonNoCapacity: {share}\ncompaction:\n  enabled: {compacts}\nmemory:\n  narrow: {narrows}\n"
        );
        let mut daemon = Daemon::new(&config, &line);
        daemon.play(&random_trace(&events), drains);
        let report = replayed(&daemon.told, &line, None);
        for arrival in &report.played.arrivals {
            prop_assert_eq!(&arrival.was, &arrival.would, "{} at {}", arrival.name, arrival.at);
        }
        let [was, would] = &report.runs;
        prop_assert_eq!(&was.quality, &would.quality);
        let placed = daemon.told.iter().filter(|entry| entry.kind.name() == "placed").count();
        let recorded = report.played.arrivals.iter();
        let arrived = recorded.filter(|it| matches!(it.was, Fate::Placed(_))).count();
        prop_assert!(placed <= arrived, "{placed} {arrived}");
    }

    #[test]
    fn a_history_with_live_changes_of_group_types_is_as_it_was(
        (pack, numa, pu) in (1u32..3, 1u32..3, 1u32..3),
        events in prop::collection::vec((0u8..12, 0u8..12), 0..50),
        compacts in any::<bool>(),
        drains in any::<bool>(),
    ) {
        let line = format!("pack:{pack} numa:{numa} core:4 pu:{pu} mem:8");
        let config = format!("reservedCpus: 0\ncompaction:\n  enabled: {compacts}\n");
        let types = |size: &str| {
            let web = format!("{{name: web, members: {{namespaces: [default]}}, size: {size}}}");
            format!("{config}groups:\n- {web}\n")
        };
        let configs =
            [types("{requests: {min: 1, max: 4}}"), types("{fixed: 2}"), config.clone()];
        let mut daemon = Daemon::new(&config, &line);
        daemon.play_under(&random_trace(&events), drains, &configs);
        let report = replayed(&daemon.told, &line, None);
        for arrival in &report.played.arrivals {
            prop_assert_eq!(&arrival.was, &arrival.would, "{} at {}", arrival.name, arrival.at);
        }
        let [was, would] = &report.runs;
        prop_assert_eq!(&was.quality, &would.quality);
        prop_assert!(report.played.refused_changes.is_empty());
    }

    #[test]
    fn with_other_reserved_cpus_it_still_comes_to_an_end(
        events in prop::collection::vec((0u8..12, 0u8..12), 0..50),
        compacts in any::<bool>(),
    ) {
        let line = "numa:2 l3:1 core:4 pu:2 mem:8";
        let mut daemon = Daemon::new("reservedCpus: 0\n", line);
        daemon.play(&random_trace(&events), false);
        let config = format!("reservedCpus: 0-3\ncompaction:\n  enabled: {compacts}\n");
        let report = replayed(&daemon.told, line, Some(&config));
        let [_, would] = &report.runs;
        prop_assert_eq!(would.quality.overlaps, 0);
        prop_assert_eq!((&*would.reserved, report.is_as_it_was), ("0-3", false));
    }
}

#[test]
fn a_resize_that_is_refused_again_after_kubelet_has_given_it_up_is_refused_in_replay_too() {
    let line = "numa:1 core:4";
    let mut daemon = Daemon::new("", line);
    daemon.play(&crate::simulate::tests::trace(&["+a G 2000"]), false);
    for milli in [8000, 2000, 8000] {
        daemon.resize(0, milli);
    }
    let report = replayed(&daemon.told, line, None);
    let (refused, elsewhere) = (report.played.arrivals.len(), report.elsewhere().len());
    assert_eq!((refused, elsewhere), (3, 0), "{:#?}", report.played.arrivals);
}

#[test]
fn under_another_policy_sharers_are_elsewhere_and_owners_are_not() {
    let line = "numa:2 l3:1 core:4 pu:2 mem:8";
    let mut daemon = Daemon::new("reservedCpus: 0\n", line);
    daemon.play(&crate::simulate::tests::trace(&["+a G 2000", "+b B 500", "+c G 3000"]), false);
    let topology = Some(derive(&parse_machine(line).unwrap()).unwrap());
    let setting = Setting { config: None, policy: Some(Policy::OneSharedPool), topology };
    let report = replay(&daemon.told, &setting, String::new()).unwrap();
    let elsewhere: Vec<&str> = report.elsewhere().iter().map(|it| it.name.as_str()).collect();
    assert_eq!((&*elsewhere, report.is_as_it_was), (&["default/b/b"][..], false));
    let told = daemon.told.clone();
    let report = replayed(&told, line, Some("reservedCpus: 0\npolicy: one-shared-pool\n"));
    assert_eq!(report.elsewhere().len(), 1);
}

/// From any entry on that says where all containers are, the rest of a history is one, too.
#[test]
fn a_history_may_begin_in_the_middle() {
    let line = "numa:2 l3:1 core:4 pu:2 mem:8";
    let mut daemon = Daemon::new("reservedCpus: 0\n", line);
    let spec = |name: &str, milli: u32| -> NewContainer {
        let words = format!("+{name} G {milli}");
        let trace = crate::simulate::tests::trace(&[&words]);
        let Op::Create(wanted) = &trace.events[0].op else { panic!("{words}") };
        let mut spec = new_container(name, wanted);
        spec.pod.id = name.to_owned();
        spec
    };
    daemon.create(spec("a", 2000));
    daemon.create(spec("b", 500));
    let skipped = daemon.told.len();
    daemon.told.extend(daemon.state.opening_of_segment(daemon.now));
    daemon.create(spec("c", 4000));
    let gone = daemon.live.remove(0).0;
    daemon.step(Event::Ended(gone));
    daemon.create(spec("d", 4000));
    let report = replayed(&daemon.told[skipped..], line, None);
    let names: Vec<&str> = report.played.arrivals.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["default/a/a", "default/b/b", "default/c/c", "default/d/d"]);
    assert_eq!(report.elsewhere().len(), 0, "{:#?}", report.elsewhere());
    let error =
        replay(&daemon.told[skipped + 4..], &Setting::default(), String::new()).unwrap_err();
    assert!(error.to_string().starts_with("this history has no complete snapshot"), "{error}");
    let nowhere = replay(&daemon.told, &Setting::default(), String::new()).unwrap_err().to_string();
    assert!(nowhere.ends_with("name one with --machine"), "{nowhere}");
}

/// Issue 34: other types counted from the next start on. Types are changed, and changed back once because the runtime had not moved a container.
#[test]
fn a_live_change_of_group_types_is_replayed_when_it_happened() {
    let line = "numa:2 core:4 pu:1 mem:8";
    let types = |list: &str| {
        let web = format!(
            r#"{{name: web, members: {{namespaces: [default]}}, size: {{list: ["{list}"]}}}}"#
        );
        format!("groups:\n- {web}\n")
    };
    let spec = |name: &str| {
        let words = format!("+{name} B 500");
        let trace = crate::simulate::tests::trace(&[&words]);
        let Op::Create(wanted) = &trace.events[0].op else { panic!("{words}") };
        let mut spec = new_container(name, wanted);
        spec.pod.id = name.to_owned();
        spec
    };
    let mut daemon = Daemon::new(&types("1-2"), line);
    let add = |daemon: &mut Daemon, name: &str| {
        daemon.now += SignedDuration::from_secs(1);
        daemon.create(spec(name));
    };
    add(&mut daemon, "first");
    assert!(daemon.configure(&types("5-7")));
    add(&mut daemon, "second");
    assert!(daemon.configure(&types("4")));
    daemon.take_back();
    add(&mut daemon, "third");
    assert!(daemon.configure(""));
    add(&mut daemon, "fourth");
    let places = |line: &str, config: Option<&str>| {
        let report = replayed(&daemon.told, line, config);
        let mut text = String::new();
        for arrival in &report.played.arrivals {
            let [was, would] = [&arrival.was, &arrival.would].map(|fate| match fate {
                Fate::Placed(place) => place.cpus.clone(),
                Fate::Refused(why) => why.clone(),
            });
            text.push_str(&format!("{}: {was} | {would}\n", arrival.name));
        }
        for refused in &report.played.refused_changes {
            text.push_str(&format!("{}: {}\n", refused.at, refused.lacking.join("; ")));
        }
        text
    };
    // As it was; on a machine without some of the CPUs; under types that hold all the time.
    let small = "numa:1 core:4 pu:1 mem:8";
    let replays = [places(line, None), places(small, None), places(line, Some(&types("3")))];
    expect![[r#"
        default/first/first: 1-2 | 1-2
        default/second/second: 5-7 | 5-7
        default/third/third: 5-7 | 5-7
        default/fourth/fourth: 0-3 | 0-3

        default/first/first: 1-2 | 1-2
        default/second/second: 5-7 | 1-2
        default/third/third: 5-7 | refused: no group of `web` has room; a new web: CPUs 5-7 are not free
        default/fourth/fourth: 0-3 | 0-3
        1970-01-01T00:00:01Z: `web`: 0 of at least 1 groups can be had: CPUs 5-7 are not free; default/first/first: no group of `web` has room; a new web: CPUs 5-7 are not free
        1970-01-01T00:00:02Z: `web`: 0 of at least 1 groups can be had: CPUs 4 are not free; default/first/first: no group of `web` has room; a new web: CPUs 4 are not free; default/second/second: no group of `web` has room; a new web: CPUs 4 are not free

        default/first/first: 1-2 | 3
        default/second/second: 5-7 | 3
        default/third/third: 5-7 | 3
        default/fourth/fourth: 0-3 | 3
    "#]]
    .assert_eq(&replays.join("\n"));
}

/// A history that begins in the middle of a segment has no description of containers before the next opening.
#[test]
fn a_change_of_the_configuration_is_no_beginning() {
    let mut daemon = Daemon::new("", "numa:1 core:4");
    daemon.told.clear();
    daemon.configure("reservedCpus: 0\n");
    assert_eq!(daemon.told[0].kind.name(), "configured");
    let error = replay(&daemon.told, &Setting::default(), String::new()).unwrap_err().to_string();
    assert!(error.starts_with("this history has no complete snapshot"), "{error}");
}

/// A group is made, grows, shrinks and ends: what the journal tells of its members, what `explain` does of one, and where they are in a replay, as it was and with other types.
#[test]
fn the_members_of_a_group_are_told_and_replayed() {
    let line = "numa:2 l3:1 core:4 pu:2 mem:8";
    let types = |size: &str| {
        let web = format!("{{name: web, members: {{namespaces: [default]}}, size: {size}}}");
        format!("reservedCpus: 0\ngroups:\n- {web}\n")
    };
    let mut daemon = Daemon::new(&types("{requests: {min: 1, max: 8}}"), line);
    daemon.play(&crate::simulate::tests::trace(&["+a B 1000", "+b B 3000"]), false);
    let explained = daemon.state.explain("default/a/a");
    let explained: String = explained.iter().map(render).collect();
    for (id, _) in std::mem::take(&mut daemon.live).into_iter().rev() {
        daemon.now += SignedDuration::from_secs(1);
        daemon.step(Event::Ended(id));
    }
    assert_eq!(daemon.state.status().groups, []);
    let told: Vec<Entry> = daemon.told.iter().filter(|it| it.who.is_some()).cloned().collect();
    let journal = Columns::default().render(&told);
    let elsewhere = |config: Option<&str>| {
        let report = replayed(&daemon.told, line, config);
        let names: Vec<&str> = report.elsewhere().iter().map(|it| it.name.as_str()).collect();
        names.join(", ")
    };
    let list = types(r#"{list: ["4-7,12"]}"#);
    let replays = [None, Some(&*list)].map(elsewhere).join(" | ");
    expect![[r#"
        TIME (UTC)           WHAT    CONTAINER    CPUS     MEMS  WHY
        1970-01-01 00:00:00  placed  default/a/a  8        0     Burstable, 1 shared of its group; on the CPUs of its group in numa 0; group web[0]
        1970-01-01 00:00:01  placed  default/b/b  1-2,8-9  0     Burstable, 3 shared of its group; on the CPUs of its group in numa 0; group web[0]
        1970-01-01 00:00:02  ended   default/b/b  1-2,8-9  0     stopped or removed
        1970-01-01 00:00:03  ended   default/a/a  2        0     stopped or removed

        default/a/a: on the CPUs of its group in numa 0
          asked    1 shared of its group
          decided  1970-01-01T00:00:00Z
          now      running on CPUs 1-2,8-9, memory nodes 0

         | default/a/a, default/b/b
    "#]]
    .assert_eq(&format!("{journal}\n{explained}\n{replays}\n"));
}
