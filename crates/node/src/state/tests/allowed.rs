//! What pods may ask for, and what they are told.

use bayplan_types::QosClass::{BestEffort, Burstable, Guaranteed};
use bayplan_workload::Ceilings;
use expect_test::{Expect, expect};

use super::*;

/// A container of a pod of its own: namespace/pod, QoS class, CPUs in thousandths, annotations and labels.
type Asks<'a> = (&'a str, QosClass, i64, &'a [(&'a str, &'a str)]);

fn container((pod, qos, milli, pairs): Asks<'_>) -> NewContainer {
    let (namespace, name) = pod.split_once('/').unwrap();
    let mut container = new_container(name, "c", 0, 0);
    container.resources.cpu_shares = milli * 1024 / 1000;
    container.pod.qos = Some(qos);
    container.pod.namespace = namespace.to_owned();
    container.pod.name = name.to_owned();
    for (key, value) in pairs {
        let map = match key.starts_with("koordinator.sh/") {
            true => &mut container.pod.labels,
            false => &mut container.pod.annotations,
        };
        map.insert((*key).to_owned(), (*value).to_owned());
    }
    container
}

/// Under the rules of a fresh installation: where each of these comes to run, or what kubelet is told; then what is logged and counted, and which are squeezed.
fn check(line: &str, reserved: &str, all: &[Asks<'_>], expected: Expect) {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = pools(&topology, Policy::default(), &reserved.parse().unwrap()).unwrap();
    let rules = RequestRules {
        reserved_namespaces: vec!["kube-system".to_owned()],
        ceilings: Ceilings::default(),
        ..RequestRules::default()
    };
    let mut state = NodeState::new(Ledger::new(Arc::new(pools)), rules, String::new());
    let mut text = String::new();
    for (ticket, asks) in (0..).zip(all) {
        let now = Timestamp::UNIX_EPOCH;
        let step = state.step(Event::Admit(Ticket(ticket), Box::new(container(*asks))), now);
        let came = match &step.answer {
            Answer::Admission(Admission::Place(pinning)) => format!("on {}", pinning.cpus),
            Answer::Admission(Admission::Refuse(why)) => why.clone(),
            other => format!("{other:?}"),
        };
        text.push_str(&format!("{}: {came}\n", asks.0));
        for note in &step.notes {
            if let Note::Failure { kind, message } = note {
                text.push_str(&format!("  {kind}: {message}\n"));
            }
        }
        for entry in step.history.iter().filter(|it| it.kind == Kind::Squeezed) {
            let pod = &entry.who.as_ref().unwrap().pod;
            let [from, to] =
                [&entry.before, &entry.after].map(|it| it.as_ref().unwrap().cpus.clone());
            text.push_str(&format!("  {pod} squeezed from {from} to {to} {}\n", entry.why));
        }
        let outcome = CreateOutcome::Created { id: format!("id{ticket}"), pinned: true };
        state.step(Event::CreateEnded(Ticket(ticket), outcome), now);
        assert!(check_ledger(state.ledger()).is_empty());
    }
    expected.assert_eq(&text);
}

const APART: &[(&str, &str)] = &[("bayplan.dev/apart", "numa required")];
const IDLE: &[(&str, &str)] = &[("bayplan.dev/siblings", "idle")];

#[test]
fn a_pod_without_permission_runs_on_neither_owned_nor_reserved_cpus() {
    check(
        "pack:1 numa:1 core:8 pu:1",
        "0",
        &[
            ("shop/owner", Guaranteed, 2000, &[]),
            ("shop/preserve", BestEffort, 0, &[("bayplan.dev/cpu.preserve", "true")]),
            ("shop/reserved", BestEffort, 0, &[("bayplan.dev/prefer-reserved-cpus", "true")]),
            ("shop/system", Burstable, 100, &[("koordinator.sh/qosClass", "SYSTEM")]),
            ("kube-system/dns", Burstable, 100, &[("bayplan.dev/prefer-reserved-cpus", "true")]),
        ],
        expect![[r#"
            shop/owner: on 1-2
            shop/preserve: on 3-7
              not_allowed: shop/preserve/c: annotation `bayplan.dev/cpu.preserve` is not allowed in namespace `shop` (`permissions` in the configuration); ignored
            shop/reserved: on 3-7
              not_allowed: shop/reserved/c: annotation `bayplan.dev/prefer-reserved-cpus` is not allowed in namespace `shop` (`permissions` in the configuration); ignored
            shop/system: on 3-7
              not_allowed: shop/system/c: label `koordinator.sh/qosClass` is not allowed in namespace `shop` (`permissions` in the configuration); ignored
            kube-system/dns: on 0
        "#]],
    );
}

#[test]
fn cpus_kept_from_others_have_a_ceiling() {
    check(
        "pack:1 numa:2 core:8 pu:1",
        "",
        &[
            ("shop/a", Guaranteed, 1000, APART),
            ("shop/b", Guaranteed, 1000, APART),
            ("bank/large", Guaranteed, 8000, &[]),
            ("bank/rest", Guaranteed, 4000, APART),
        ],
        expect![[r#"
            shop/a: bayplan: shop/a/c refused: it requires to be apart from other exclusive containers, and its pod, which owns 1 CPUs, would keep 7 more from others (at most 2, closedCpus.podPercent); `bayplan explain shop/a/c` lists every pool
            shop/b: bayplan: shop/b/c refused: it requires to be apart from other exclusive containers, and its pod, which owns 1 CPUs, would keep 7 more from others (at most 2, closedCpus.podPercent); `bayplan explain shop/b/c` lists every pool
            bank/large: on 0-7
            bank/rest: on 8-11
        "#]],
    );
    let lse: Vec<String> = (0..6).map(|it| format!("shop/{it}")).collect();
    let lse: Vec<Asks<'_>> = lse.iter().map(|pod| (pod.as_str(), Guaranteed, 1000, IDLE)).collect();
    check(
        "pack:1 numa:1 core:8 pu:2",
        "",
        &lse,
        expect![[r#"
        shop/0: on 1
        shop/1: on 2
        shop/2: on 3
        shop/3: on 4
        shop/4: on 5
          over_ceiling: shop/4/c: its preference for idle siblings has no effect: its namespace would keep 5 CPUs from others beside those that it owns (at most 4, closedCpus.namespacePercent)
        shop/5: on 13
          over_ceiling: shop/5/c: its preference for idle siblings has no effect: its namespace would keep 5 CPUs from others beside those that it owns (at most 4, closedCpus.namespacePercent)
    "#]],
    );
}

#[test]
fn a_refusal_names_no_container_of_another_pod() {
    check(
        "pack:1 numa:1 core:4 pu:1",
        "",
        &[
            ("bank/secret", Guaranteed, 2000, &[]),
            ("shop/many", Guaranteed, 4000, &[]),
            (
                "shop/shared",
                Burstable,
                500,
                &[("bayplan.dev/rdtclass", "gold"), ("bayplan.dev/within", "numa")],
            ),
        ],
        expect![[r#"
            bank/secret: on 1-2
            shop/many: bayplan: shop/many/c refused: needs 4 exclusive CPUs; 3 could be given if all were free; `bayplan explain shop/many/c` lists every pool
            shop/shared: on 0,3
              no_effect: shop/shared/c: annotation `bayplan.dev/within` has no effect: its pod is Burstable, so it shares CPUs
              unknown_class: shop/shared/c: annotation `bayplan.dev/rdtclass` names class `gold`, which resctrl.partitions lacks (it has none); ignored
        "#]],
    );
}

#[test]
fn a_shared_container_learns_that_a_neighbour_came_and_reserved_cpus_can_be_too_few() {
    check(
        "pack:1 numa:1 core:4 pu:1",
        "0",
        &[
            ("shop/web", Burstable, 500, &[]),
            ("bank/owner", Guaranteed, 1000, &[]),
            ("kube-system/one", Burstable, 800, &[]),
            ("kube-system/two", Burstable, 800, &[]),
        ],
        expect![[r#"
            shop/web: on 1-3
            bank/owner: on 1
              web squeezed from 1-3 to 2-3 because of bank/owner/c
            kube-system/one: on 0
            kube-system/two: on 0
              reserved_full: kube-system/two/c: containers on the reserved CPUs 0 request 1600m together, more than the 1000m that these are
        "#]],
    );
}

#[test]
fn what_a_node_has_for_no_container_is_told() {
    const STATUS: &str = "scheduling.koordinator.sh/resource-status";
    check(
        "pack:1 numa:2 core:8 pu:1 mem:16",
        "",
        &[
            ("a/hbm", Guaranteed, 1000, &[("bayplan.dev/memory-type", "hbm,gpu")]),
            ("a/dram", Guaranteed, 1000, &[("bayplan.dev/memory-type", "hbm,dram")]),
            ("a/any", Guaranteed, 1000, &[("bayplan.dev/memory-type", "mixed")]),
            ("a/isolated", Guaranteed, 1000, &[("bayplan.dev/prefer-isolated-cpus", "true")]),
            ("a/high", Guaranteed, 1000, &[("bayplan.dev/prefer-cpu-priority", "high")]),
            ("a/normal", Guaranteed, 1000, &[("bayplan.dev/prefer-cpu-priority", "normal")]),
            ("a/small", Guaranteed, 1000, &[("bayplan.dev/prefer-core-kind", "efficient")]),
            ("a/large", Guaranteed, 1000, &[("bayplan.dev/prefer-core-kind", "performance")]),
            ("a/group", Burstable, 100, &[("bayplan.dev/group", "batch")]),
            ("a/none", Burstable, 100, &[("bayplan.dev/group", "none")]),
            ("a/balloon", Burstable, 100, &[("balloon.balloons.resource-policy.nri.io", "batch")]),
            ("a/node", Guaranteed, 1000, &[(STATUS, r#"{"numaNodeResources":[{"node":9}]}"#)]),
            ("a/there", Guaranteed, 1000, &[(STATUS, r#"{"numaNodeResources":[{"node":1}]}"#)]),
            ("a/required", Guaranteed, 1000, &[("bayplan.dev/require-cpu-priority", "high")]),
        ],
        expect![[r#"
            a/hbm: on 1
              no_effect: a/hbm/c: annotation `bayplan.dev/memory-type` has no effect: the machine has no memory of kind Hbm or Gpu
            a/dram: on 2
            a/any: on 3
            a/isolated: on 4
              no_effect: a/isolated/c: annotation `bayplan.dev/prefer-isolated-cpus` has no effect: the machine has no isolated CPUs
            a/high: on 5
              no_effect: a/high/c: annotation `bayplan.dev/prefer-cpu-priority` has no effect: the machine has no CPUs of high priority
            a/normal: on 6
            a/small: on 7
              no_effect: a/small/c: annotation `bayplan.dev/prefer-core-kind` has no effect: the machine has no efficient cores
            a/large: on 0
            a/group: on 8-15
              no_effect: a/group/c: annotation `bayplan.dev/group` has no effect: the configuration has no `groups`
            a/none: on 8-15
            a/balloon: on 8-15
              no_effect: a/balloon/c: annotation `balloon.balloons.resource-policy.nri.io` has no effect: the configuration has no `groups`
            a/node: on 8
              no_effect: a/node/c: annotation `scheduling.koordinator.sh/resource-status` has no effect: the machine has no CPUs in NUMA nodes 9
              balloon squeezed from 8-15 to 9-15 because of a/node/c
              group squeezed from 8-15 to 9-15 because of a/node/c
              none squeezed from 8-15 to 9-15 because of a/node/c
            a/there: on 9
              balloon squeezed from 9-15 to 10-15 because of a/there/c
              group squeezed from 9-15 to 10-15 because of a/there/c
              none squeezed from 9-15 to 10-15 because of a/there/c
            a/required: bayplan: a/required/c refused: needs 1 exclusive CPU of high priority; there are none here (annotation `bayplan.dev/require-cpu-priority`); `bayplan explain a/required/c` lists every pool
        "#]],
    );
}
