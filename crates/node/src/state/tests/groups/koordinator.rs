//! Koordinator's words about exclusive CPUs, by node and by pod, in our own tables: which CPUs containers of no group have.

use super::*;

const SPEC: &str = "scheduling.koordinator.sh/resource-spec";

/// Where Guaranteed containers are that request so many CPUs, each with a word of its pod, on a node with these rules.
#[track_caller]
fn check_koordinator(
    adjust: impl Fn(&mut RequestRules),
    containers: &[(&str, &str)],
    expected: Expect,
) {
    let mut node = started(N4C16, &[]);
    adjust(&mut node.state.rules);
    let mut told = String::new();
    for (at, (cpus, word)) in containers.iter().enumerate() {
        let (name, milli) = (format!("n/p{at}/c"), format!("{cpus}000"));
        let words = [&name, &milli, "Guaranteed", *word].map(str::to_owned);
        let words: Vec<&str> =
            words.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        told.push_str(&format!("{cpus} {word}: {}\n", node.create(&words)));
    }
    expected.assert_eq(&told);
}

/// Its siblings are idle, or used by others where the node says so (`lseIdleSiblings: false`). LSR leaves them to others.
#[test]
fn siblings_of_lse_are_idle_or_not() {
    let lse = "koordinator.sh/qosClass=LSE";
    let lsr = "koordinator.sh/qosClass=LSR";
    let containers = [("1", lse), ("1", ""), ("1", lsr), ("3", lse)];
    check_koordinator(
        |_| {},
        &containers,
        expect![[r#"
        1 koordinator.sh/qosClass=LSE: on 1
        1 : on 8
        1 koordinator.sh/qosClass=LSR: on 2
        3 koordinator.sh/qosClass=LSE: on 4-5,12
    "#]],
    );
    check_koordinator(
        |rules| rules.lse_uses_siblings = true,
        &containers,
        expect![[r#"
        1 koordinator.sh/qosClass=LSE: on 8
        1 : on 1
        1 koordinator.sh/qosClass=LSR: on 9
        3 koordinator.sh/qosClass=LSE: on 2-3,10
    "#]],
    );
}

/// The node's strategy holds for pods that say nothing; of a pod that names one, its own.
#[test]
fn numa_nodes_are_filled_as_the_node_or_the_pod_says() {
    let [most, least, evenly] = ["MostAllocated", "LeastAllocated", "DistributeEvenly"]
        .map(|it| format!("bayplan.dev/numa-strategy={it}"));
    let containers = [("2", ""), ("1", ""), ("1", &least), ("1", &most), ("6", ""), ("2", &evenly)];
    check_koordinator(
        |_| {},
        &containers,
        expect![[r#"
            2 : on 1,9
            1 : on 8
            1 bayplan.dev/numa-strategy=LeastAllocated: on 4
            1 bayplan.dev/numa-strategy=MostAllocated: on 12
            6 : on 5-7,13-15
            2 bayplan.dev/numa-strategy=DistributeEvenly: on 2,10
        "#]],
    );
    check_koordinator(
        |rules| rules.wishes.place.is_balanced = true,
        &containers,
        expect![[r#"
            2 : on 4,12
            1 : on 2
            1 bayplan.dev/numa-strategy=LeastAllocated: on 8
            1 bayplan.dev/numa-strategy=MostAllocated: on 10
            6 : on 5-7,13-15
            2 bayplan.dev/numa-strategy=DistributeEvenly: on 1,9
        "#]],
    );
}

/// Preferred, one thread of each core, and second ones where the cores of a package run out; required, never second ones.
#[test]
fn spread_by_cores_doubles_up_where_that_is_allowed() {
    let [preferred, required, whole] = [
        r#"{"preferredCPUBindPolicy":"SpreadByPCPUs"}"#,
        r#"{"requiredCPUBindPolicy":"SpreadByPCPUs"}"#,
        r#"{"requiredCPUBindPolicy":"FullPCPUs"}"#,
    ]
    .map(|it| format!("{SPEC}={it}"));
    check_koordinator(
        |_| {},
        &[("2", &preferred), ("6", &preferred), ("3", &whole), ("4", &whole)],
        expect![[r#"
            2 scheduling.koordinator.sh/resource-spec={"preferredCPUBindPolicy":"SpreadByPCPUs"}: on 1,8
            6 scheduling.koordinator.sh/resource-spec={"preferredCPUBindPolicy":"SpreadByPCPUs"}: on 4-7,12-13
            3 scheduling.koordinator.sh/resource-spec={"requiredCPUBindPolicy":"FullPCPUs"}: bayplan: n/p2/c refused: 3 CPUs are no whole number of cores of 2 threads (annotation `scheduling.koordinator.sh/resource-spec`)
            4 scheduling.koordinator.sh/resource-spec={"requiredCPUBindPolicy":"FullPCPUs"}: on 2-3,10-11
        "#]],
    );
    check_koordinator(
        |_| {},
        &[("6", &required), ("3", &required), ("1", &required)],
        expect![[r#"
        6 scheduling.koordinator.sh/resource-spec={"requiredCPUBindPolicy":"SpreadByPCPUs"}: on 1-5,8
        3 scheduling.koordinator.sh/resource-spec={"requiredCPUBindPolicy":"SpreadByPCPUs"}: on 9-11
        1 scheduling.koordinator.sh/resource-spec={"requiredCPUBindPolicy":"SpreadByPCPUs"}: on 12
    "#]],
    );
}

/// No other pod with the policy is on its cores, or its NUMA node.
#[test]
fn cpus_are_apart_by_core_or_numa_node() {
    let [core, node] = ["PCPULevel", "NUMANodeLevel"]
        .map(|it| format!(r#"{SPEC}={{"preferredCPUExclusivePolicy":"{it}"}}"#));
    check_koordinator(
        |_| {},
        &[("1", &core), ("1", &core), ("1", "")],
        expect![[r#"
        1 scheduling.koordinator.sh/resource-spec={"preferredCPUExclusivePolicy":"PCPULevel"}: on 8
        1 scheduling.koordinator.sh/resource-spec={"preferredCPUExclusivePolicy":"PCPULevel"}: on 1
        1 : on 9
    "#]],
    );
    check_koordinator(
        |_| {},
        &[("1", &node), ("1", &node), ("1", "")],
        expect![[r#"
        1 scheduling.koordinator.sh/resource-spec={"preferredCPUExclusivePolicy":"NUMANodeLevel"}: on 8
        1 scheduling.koordinator.sh/resource-spec={"preferredCPUExclusivePolicy":"NUMANodeLevel"}: on 2
        1 : on 10
    "#]],
    );
}
