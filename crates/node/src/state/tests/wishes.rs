//! Wishes on their way through the state: from annotations and devices to what kubelet's message carries.

use bayplan_enforcement::render_plan;
use expect_test::{Expect, expect};

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A container; `cpus` with `~` is Burstable and has no limit.
#[derive(Clone, Copy)]
struct Ask<'a> {
    name: &'a str,
    cpus: &'a str,
    gib: i64,
    /// Keys without prefix, and annotations of GPU Aware Scheduling.
    says: &'a [(&'a str, &'a str)],
    devices: &'a [&'a str],
    /// A path, and a disk below it.
    volumes: &'a [(&'a str, &'a str)],
}

fn ask<'a>(name: &'a str, cpus: &'a str, says: &'a [(&'a str, &'a str)]) -> Ask<'a> {
    Ask { name, cpus, gib: 1, says, devices: &[], volumes: &[] }
}

impl Ask<'_> {
    fn container(&self) -> NewContainer {
        let is_burstable = self.cpus.starts_with('~');
        let milli: i64 = self.cpus.trim_start_matches('~').parse::<i64>().unwrap() * 1000;
        let quota = if is_burstable { -1 } else { milli * 100 };
        let own = spec(if is_burstable { 3 } else { 0 }, 0, 0, milli, self.gib);
        let says = self.says.iter();
        NewContainer {
            pod: Pod {
                id: self.name.to_owned(),
                name: self.name.to_owned(),
                annotations: says
                    .map(|(key, value)| match key.starts_with("gas-") {
                        true => ((*key).to_owned(), (*value).to_owned()),
                        false => (format!("bayplan.dev/{key}"), (*value).to_owned()),
                    })
                    .collect(),
                ..own.pod
            },
            name: "c".to_owned(),
            resources: Resources { cpu_quota: quota, ..own.resources },
            devices: self.devices.iter().map(|name| (*name).to_owned()).collect(),
            volumes: {
                let on_disk =
                    |(path, disk): &(&str, &str)| (path.to_string(), vec![disk.to_string()]);
                self.volumes.iter().map(on_disk).collect()
            },
            ..own
        }
    }
}

fn on(line: &str) -> NodeState {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    state(line).with_devices(topology.devices().into())
}

fn told(pinning: &Pinning) -> String {
    let shown = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    format!("cpus {} mems {}", shown(pinning.cpus.to_string()), shown(pinning.mems.to_string()))
}

/// Admits and creates; what kubelet's call carries or is answered, and which containers are moved for it.
fn create(state: &mut NodeState, ticket: u64, ask: &Ask<'_>) -> String {
    let event = Event::Admit(Ticket(ticket), Box::new(ask.container()));
    let step = state.step(event, NOW);
    let answer = match step.answer {
        Answer::Admission(Admission::Place(pinning)) => told(&pinning),
        Answer::Admission(Admission::Refuse(why)) => {
            return format!("{}: {why}\n", ask.name);
        }
        other => format!("{other:?}"),
    };
    let created = CreateOutcome::Created { id: ask.name.to_owned(), pinned: true };
    state.step(Event::CreateEnded(Ticket(ticket), created), NOW);
    let moved: String =
        render_plan(&step.plan).lines().map(|write| format!("  {write}\n")).collect();
    format!("{}: {answer}\n{moved}", ask.name)
}

#[track_caller]
fn check(line: &str, asks: &[Ask<'_>], expected: Expect) {
    let mut state = on(line);
    let shown: String =
        asks.iter().zip(0..).map(|(ask, ticket)| create(&mut state, ticket, ask)).collect();
    expected.assert_eq(&shown);
}

#[test]
fn siblings_are_paired_shared_or_idle() {
    let all = ask("all", "~0", &[]);
    for (siblings, expected) in [
        (
            "pair",
            expect![[r#"
            all: cpus 0-7 mems -
            odd: cpus 1 mems -
              shrink all cpus 0-7 -> 0,2-7
            other: cpus 5 mems -
              shrink all cpus 0,2-7 -> 0,2-4,6-7
        "#]],
        ),
        (
            "shared",
            expect![[r#"
            all: cpus 0-7 mems -
            odd: cpus 1 mems -
              shrink all cpus 0-7 -> 0,2-7
            other: cpus 2 mems -
              shrink all cpus 0,2-7 -> 0,3-7
        "#]],
        ),
        (
            "idle",
            expect![[r#"
            all: cpus 0-7 mems -
            odd: cpus 1 mems -
              shrink all cpus 0-7 -> 0,2-4,6-7
            other: cpus 2 mems -
              shrink all cpus 0,2-4,6-7 -> 0,3-4,6-7
        "#]],
        ),
    ] {
        let says = [("siblings", siblings)];
        check("core:4 pu:2", &[all, ask("odd", "1", &says), ask("other", "1", &[])], expected);
    }
}

#[test]
fn cpus_stay_within_a_node_or_lie_evenly_on_both() {
    let line = "pack:2 numa:1 core:4";
    check(
        line,
        &[ask("a", "5", &[])],
        expect![[r#"
        a: cpus 0-4 mems 0-1
    "#]],
    );
    check(
        line,
        &[ask("a", "6", &[("even-across-numa", "true")])],
        expect![[r#"
        a: cpus 1-6 mems 0-1
    "#]],
    );
    check(
        line,
        &[ask("a", "5", &[("within", "numa")])],
        expect![[r#"
            a: bayplan: default/a/c refused: needs 5 exclusive CPUs; 4 could be given if all were free; the machine is wider than one NumaNode (annotation `bayplan.dev/within`); `bayplan explain default/a/c` lists every pool
        "#]],
    );
    check(
        line,
        &[ask("a", "3", &[("whole-cores-only", "true"), ("within", "package")])],
        expect![[r#"
        a: cpus 1-3 mems 0
    "#]],
    );
    check(
        "core:4 pu:2",
        &[ask("a", "3", &[("whole-cores-only", "true")])],
        expect![[r#"
        a: bayplan: default/a/c refused: 3 CPUs are no whole number of cores of 2 threads (annotation `bayplan.dev/whole-cores-only`); `bayplan explain default/a/c` lists every pool
    "#]],
    );
}

#[test]
fn a_machine_without_numa_nodes_is_one() {
    check(
        "core:8",
        &[ask("a", "5", &[("within", "numa")])],
        expect![[r#"
        a: cpus 1-5 mems -
    "#]],
    );
}

#[test]
fn memory_is_of_the_kind_and_near_that_was_asked_for() {
    let line = "pack:2 numa:1 core:4 mem:4 hbm:2";
    check(
        line,
        &[ask("a", "2", &[])],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    check(
        line,
        &[ask("a", "2", &[("memory-type", "hbm")])],
        expect![[r#"
        a: cpus 1-2 mems 2
    "#]],
    );
    check(
        line,
        &[ask("a", "2", &[("memory-type", "mixed")])],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    let bound = Ask { gib: 5, ..ask("a", "2", &[("memory-bound", "true")]) };
    check(
        line,
        &[Ask { says: &[], ..bound }],
        expect![[r#"
        a: cpus 1-2 mems 0-1
    "#]],
    );
    check(
        line,
        &[bound],
        expect![[r#"
            a: bayplan: default/a/c refused: needs 5 GiB on its own NUMA nodes, 4 GiB are free (annotation `bayplan.dev/memory-bound`); `bayplan explain default/a/c` lists every pool
        "#]],
    );
    check(
        line,
        &[Ask { gib: 6, says: &[("memory-bound", "true"), ("memory-type", "mixed")], ..bound }],
        expect![[r#"
            a: cpus 1-2 mems 0,2
        "#]],
    );
}

#[test]
fn an_immovable_container_makes_no_room() {
    let line = "pack:2 numa:1 core:4";
    for (immovable, expected) in [
        (
            "false",
            expect![[r#"
                a: cpus 1-2 mems 0
                b: cpus 4-7 mems 1
                c: cpus 4-6 mems 1
                  move   b cpus 4-7 -> 0,3 mems 1 -> 0-1
                d: cpus 7 mems 1
            "#]],
        ),
        (
            "true",
            expect![[r#"
        a: cpus 1-2 mems 0
        b: cpus 4-7 mems 1
        c: cpus 0,3-4 mems 0-1
          shrink b cpus 4-7 -> 5-7
        d: cpus 5 mems 1
          shrink b cpus 5-7 -> 6-7
    "#]],
        ),
    ] {
        let says = [("immovable", immovable)];
        let asks =
            [ask("a", "2", &[]), ask("b", "~2", &says), ask("c", "3", &[]), ask("d", "1", &[])];
        check(line, &asks, expected);
    }
}

#[test]
fn priorities_and_core_kinds_can_be_required() {
    let line = "core:8 fast:4-5";
    check(
        line,
        &[ask("a", "2", &[("require-cpu-priority", "high")])],
        expect![[r#"
        a: cpus 4-5 mems -
    "#]],
    );
    check(
        line,
        &[ask("a", "3", &[("require-cpu-priority", "high")])],
        expect![[r#"
            a: bayplan: default/a/c refused: needs 3 exclusive CPUs of high priority; 2 could be given if all were free (annotation `bayplan.dev/require-cpu-priority`); `bayplan explain default/a/c` lists every pool
        "#]],
    );
    check(
        line,
        &[ask("a", "3", &[("prefer-cpu-priority", "high")])],
        expect![[r#"
        a: cpus 1-3 mems -
    "#]],
    );
    let line = "core:2 ecore:4";
    check(
        line,
        &[ask("a", "1", &[])],
        expect![[r#"
        a: cpus 1 mems -
    "#]],
    );
    check(
        line,
        &[ask("a", "1", &[("prefer-core-kind", "efficient")])],
        expect![[r#"
        a: cpus 2 mems -
    "#]],
    );
    check(
        line,
        &[ask("a", "5", &[("require-core-kind", "efficient")])],
        expect![[r#"
            a: bayplan: default/a/c refused: needs 5 exclusive CPUs on efficient cores; 4 could be given if all were free (annotation `bayplan.dev/require-core-kind`); `bayplan explain default/a/c` lists every pool
        "#]],
    );
}

#[test]
fn a_container_without_limit_bursts_as_far_as_it_says() {
    let line = "pack:2 numa:2 core:2";
    check(
        line,
        &[ask("a", "~1", &[])],
        expect![[r#"
        a: cpus 0-1 mems 0
    "#]],
    );
    check(
        line,
        &[ask("a", "~1", &[("unlimited-burstable", "package")])],
        expect![[r#"
        a: cpus 0-3 mems 0-1
    "#]],
    );
    check(
        line,
        &[ask("a", "~1", &[("unlimited-burstable", "system")])],
        expect![[r#"
        a: cpus 0-7 mems 0-3
    "#]],
    );
}

#[test]
fn containers_are_placed_near_their_devices() {
    let line = "pack:2 numa:1 core:4 nvme:1 gpu:1";
    let second = "/dev/nvme1n1";
    let near = Ask { devices: &["/dev/null", second], ..ask("a", "2", &[]) };
    check(
        line,
        &[ask("a", "2", &[])],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    check(
        line,
        &[near],
        expect![[r#"
        a: cpus 4-5 mems 1
    "#]],
    );
    check(
        line,
        &[Ask { cpus: "~1", ..near }],
        expect![[r#"
        a: cpus 4-7 mems 1
    "#]],
    );
    check(
        line,
        &[Ask { devices: &["0000:13:00.0"], ..near }],
        expect![[r#"
        a: cpus 4-5 mems 1
    "#]],
    );
    check(
        line,
        &[Ask { says: &[("topologyhints", "false")], ..near }],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    let denied = "{type: prefix, paths: [/dev/nvme]}";
    check(
        line,
        &[Ask { says: &[("deny.topologyhints", denied)], ..near }],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    let strict = [("strict.topologyhints", "true")];
    check(
        line,
        &[Ask { cpus: "5", ..near }],
        expect![[r#"
        a: cpus 0-4 mems 0-1
    "#]],
    );
    check(
        line,
        &[Ask { cpus: "5", says: &strict, ..near }],
        expect![[r#"
            a: bayplan: default/a/c refused: needs 5 exclusive CPUs; 4 could be given if all were free; the machine is not near `/dev/nvme1n1` (annotation `bayplan.dev/strict.topologyhints`); `bayplan explain default/a/c` lists every pool
        "#]],
    );
    check(
        line,
        &[Ask { devices: &["/dev/nvme0n1", second], says: &strict, ..near }],
        expect![[r#"
        a: bayplan: default/a/c refused: is not near `/dev/nvme0n1` (annotation `bayplan.dev/strict.topologyhints`); `bayplan explain default/a/c` lists every pool
    "#]],
    );
}

/// Devices that come by CDI are no devices of the container when it is placed.
#[test]
fn containers_are_placed_near_the_cards_that_gas_has_chosen() {
    let placed = |says: &'static [(&'static str, &'static str)], expected| {
        check("pack:2 numa:1 core:4 gpu:1", &[ask("a", "2", says)], expected);
    };
    placed(
        &[("gas-container-cards", "card1")],
        expect![[r#"
        a: cpus 4-5 mems 1
    "#]],
    );
    placed(
        &[("gas-container-cards", "card0|card1")],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    placed(
        &[("gas-container-cards", "card1"), ("topologyhints", "mounts")],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    placed(
        &[("gas-container-cards", "card0|card1|card1"), ("gas-same-gpu", "b,c")],
        expect![[r#"
        a: cpus 4-5 mems 1
    "#]],
    );
}

#[test]
fn with_gpus_of_one_node_only_that_node_will_do() {
    const LINE: &str = "pack:2 numa:1 core:4 gpu:1";
    const CARD: (&str, &str) = ("gas-container-cards", "card1");
    const SINGLE: &[(&str, &str)] = &[CARD, ("gas-allocate-single-numa", "true")];
    let first = || ask("a", "3", &[CARD]);
    check(
        LINE,
        &[first(), ask("b", "2", &[CARD])],
        expect![[r#"
            a: cpus 4-6 mems 1
            b: cpus 1-2 mems 0
        "#]],
    );
    check(
        LINE,
        &[first(), ask("b", "2", SINGLE)],
        expect![[r#"
            a: cpus 4-6 mems 1
            b: bayplan: default/b/c refused: needs 2 exclusive CPUs; 1 is free; the machine is not near `/dev/dri/card1` (annotation `gas-allocate-single-numa`); `bayplan explain default/b/c` lists every pool
        "#]],
    );
}

#[test]
fn containers_are_placed_near_the_disks_of_their_volumes() {
    let line = "pack:2 numa:1 core:4 nvme:1";
    let near = Ask { volumes: &[("/data/db", "/dev/nvme1n1")], ..ask("a", "2", &[]) };
    let placed = |says: &'static [(&'static str, &'static str)], expected| {
        check(line, &[Ask { says, ..near }], expected);
    };
    placed(
        &[],
        expect![[r#"
        a: cpus 4-5 mems 1
    "#]],
    );
    placed(
        &[("topologyhints", "devices")],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    placed(
        &[("deny.topologyhints", "{type: prefix, paths: [/data/]}")],
        expect![[r#"
        a: cpus 1-2 mems 0
    "#]],
    );
    check(
        line,
        &[Ask { cpus: "5", says: &[("strict.topologyhints", "true")], ..near }],
        expect![[r#"
            a: cpus 0-4 mems 0-1
        "#]],
    );
}

#[test]
fn devices_survive_a_restart_and_a_changed_machine() {
    let line = "pack:2 numa:1 core:4 nvme:1";
    let mut before = on(line);
    let near = Ask { devices: &["/dev/nvme1n1", "/dev/null"], ..ask("a", "2", &[]) };
    create(&mut before, 0, &near);
    let nears = |state: &NodeState| {
        let (id, container) = state.containers.iter().next().unwrap();
        state.request(*id, &container.spec).0.wishes.place.near
    };
    let asked = nears(&before);
    assert_eq!((asked.len(), asked[0].nodes.to_string().as_str()), (1, "1"));

    let records = before.snapshot_records();
    let lines: Vec<String> =
        records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    let mut after = on(line);
    after.restore(replay(&lines), NOW);
    assert_eq!(nears(&after), asked);

    let without = Machine::new("pack:2 numa:1 core:4", "").changed().unwrap();
    before.step(Event::MachineChanged(Box::new(without)), NOW);
    assert_eq!(nears(&before), []);
}

/// Kubelet's calls, the plans that follow and what people see, for a container that keeps these.
fn check_preserved(says: &[(&str, &str)], expected: Expect) {
    let mut state = on("pack:2 numa:1 core:4");
    let mut shown = create(&mut state, 0, &ask("kept", "2", says));
    let id = "kept".to_owned();
    let plan = |what: &str, step: &Step| format!("{what}:\n{}", render_plan(&step.plan));
    shown.push_str(&create(&mut state, 1, &ask("owner", "3", &[])));
    let larger = ask("kept", "3", says).container().resources;
    let resized = state.step(Event::Resize(id.clone(), larger), NOW);
    let Answer::Admission(Admission::Place(pinning)) = &resized.answer else {
        panic!("{resized:?}")
    };
    shown.push_str(&format!("resize: {}\n", told(pinning)));
    shown.push_str(&plan(
        "resized",
        &state.step(Event::Resized(id.clone(), ResizeOutcome::Unknown), NOW),
    ));
    let failed = FailedWrite { container: id.clone(), is_gone: false, withheld: None };
    state.step(Event::WritesFailed(vec![failed]), NOW);
    let seen = |ask: Ask<'_>| {
        let pinning = Pinning { cpus: "0,5-6".parse().unwrap(), mems: "0-1".parse().unwrap() };
        running(ask.container(), pinning)
    };
    let asks = [ask("kept", "3", says), ask("found", "3", says), ask("owner", "3", &[])];
    let containers = asks.into_iter().map(|ask| (ask.name.to_owned(), seen(ask))).collect();
    let view = RuntimeView { basis: state.steps, containers };
    shown.push_str(&plan("synced", &state.step(Event::Synced(view), NOW)));
    state.step(Event::WritesLanded(vec![id.clone()]), NOW);
    let smaller = Machine::new("pack:2 numa:1 core:4 offline:7", "").changed().unwrap();
    let changed = state.step(Event::MachineChanged(Box::new(smaller)), NOW);
    shown.push_str(&plan("CPU 7 offline", &changed));
    for name in ["kept", "found"] {
        let explained = state.step(Event::Explain(name.to_owned()), NOW);
        let Answer::Explanations(explained) = explained.answer else { panic!("{explained:?}") };
        let now = explained[0].now.as_ref().unwrap();
        let outcome = &explained[0].decision.outcome;
        shown.push_str(&format!(
            "{name}: {outcome}; cpus {}, mems {}, owns `{}`\n",
            now.cpus_text(),
            now.mems_text(),
            now.exclusive
        ));
    }
    expected.assert_eq(&shown);
}

#[test]
fn what_is_preserved_is_never_written() {
    check_preserved(
        &[("cpu.preserve", "true"), ("memory.preserve", "true")],
        expect![[r#"
            kept: cpus - mems -
            owner: cpus 1-3 mems 0
            resize: cpus - mems -
            resized:
            synced:
            CPU 7 offline:
            kept: CPUs left alone, memory nodes left alone; cpus left alone, mems left alone, owns ``
            found: found running, CPUs left alone; cpus left alone, mems left alone, owns ``
        "#]],
    );
}

#[test]
fn memory_nodes_are_written_where_only_cpus_are_preserved() {
    check_preserved(
        &[("cpu.preserve", "true")],
        expect![[r#"
            kept: cpus - mems 0-1
            owner: cpus 1-3 mems 0
            resize: cpus - mems 0-1
            resized:
            grow   kept mems all -> 0-1
            synced:
            CPU 7 offline:
            kept: CPUs left alone; cpus left alone, mems 0-1, owns ``
            found: found running, CPUs left alone; cpus left alone, mems 0-1, owns ``
        "#]],
    );
}

#[test]
fn cpus_are_written_where_only_memory_nodes_are_preserved() {
    check_preserved(
        &[("memory.preserve", "true")],
        expect![[r#"
            kept: cpus 1-2 mems -
            owner: cpus 4-6 mems 1
            resize: cpus 1-3 mems -
            resized:
            shrink kept cpus all -> 1-3
            synced:
            shrink found cpus 0,5-6 -> 0
            move   kept cpus 0,5-6 -> 1-3
            grow   found cpus 0 -> 0,7
            CPU 7 offline:
            shrink found cpus 0,7 -> 0
            kept: placed in package 0, memory nodes left alone; cpus 1-3, mems left alone, owns `1-3`
            found: found running, shares; cpus 0, mems left alone, owns ``
        "#]],
    );
}
