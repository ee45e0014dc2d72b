//! What is required holds on the CPUs that were picked, and nothing is refused that a search through all sets finds: a table of single cases, and
//! random machines with random CPUs taken.
//!
//! The normal run has proptest's 256 cases per property; `PROPTEST_CASES=20000` has more.

use bayplan_types::CpuId;
use proptest::prelude::*;

use super::*;
use crate::pick::ways::COMPARED;

/// The ledger of a machine in which other containers own CPUs, each of the sets one container.
fn with_taken(line: &str, reserved: &str, taken: &[CpuSet]) -> Option<Ledger> {
    let mut ledger = machine(line, reserved)?;
    for (id, cpus) in (500..).zip(taken) {
        let mut allocation =
            Allocation { exclusive: cpus.clone(), ..Allocation::new(PoolId::MACHINE) };
        allocation.terms.owner.pod = id;
        // What is reserved, or would leave no shared CPU, is not taken.
        let _ = ledger.adopt(ContainerId(id), allocation);
    }
    Some(ledger)
}

/// `COUNT [WISH]...`
fn parse_wanted(text: &str) -> Request {
    let mut words = text.split_whitespace();
    let mut wanted = request(1000, words.next().unwrap().parse().unwrap(), None);
    words.for_each(|word| wish(&mut wanted, word));
    wanted
}

/// CPUs per NUMA node, in the order of nodes.
fn per_node(pools: &Pools, cpus: &CpuSet) -> Vec<usize> {
    let nodes = pools.domains.iter().filter(|(level, _)| *level == Level::NumaNode);
    let counts = nodes.map(|(_, node)| node.intersection_len(cpus));
    counts.filter(|count| *count > 0).collect()
}

fn cores(pools: &Pools) -> impl Iterator<Item = CpuSet> {
    pools.cores.iter().map(|core| core.threads.iter().copied().collect())
}

/// Cores of which some threads are in the set and some are not.
fn split_cores(pools: &Pools, cpus: &CpuSet) -> usize {
    cores(pools).filter(|core| core.intersects(cpus) && !core.is_subset(cpus)).count()
}

/// Threads beyond the first of each core.
fn doubled(pools: &Pools, cpus: &CpuSet) -> usize {
    cores(pools).map(|core| core.intersection_len(cpus).saturating_sub(1)).sum()
}

fn render(ledger: &Ledger, wanted: &Request) -> String {
    let pools = ledger.pools();
    match offer(ledger, wanted) {
        Ok(offer) => {
            let cpus = &offer.allocation().exclusive;
            let nodes: Vec<String> = per_node(pools, cpus).iter().map(usize::to_string).collect();
            let (nodes, split) = (nodes.join("+"), split_cores(pools, cpus));
            format!("{cpus} ({nodes}, {split} split)")
        }
        Err(refusal) => refusal.considered[0].outcome.as_ref().unwrap_err().to_string(),
    }
}

/// Each line: machine | reserved | taken | request | outcome.
#[track_caller]
fn check_cases(cases: &[(&str, &str, &str, &str)], expected: Expect) {
    let mut text = String::new();
    for (line, reserved, taken, wanted) in cases {
        let ledger = with_taken(line, reserved, &[taken.parse().unwrap()]).unwrap();
        let outcome = render(&ledger, &parse_wanted(wanted));
        text.push_str(&format!("{line} | {reserved} | {taken} | {wanted} | {outcome}\n"));
    }
    expected.assert_eq(&text);
}

#[test]
fn whole_cores_are_whole_cores_or_no_place() {
    check_cases(
        &[
            // Two halves are no whole core; of four threads as well.
            ("numa:1 core:4 pu:2", "0,4", "5-7", "2 whole"),
            ("numa:1 core:4 pu:2", "0,4", "5", "4 whole"),
            ("numa:1 l3:1 core:6 pu:2", "0-1", "2-5,8-11", "2 whole"),
            (
                "pack:4 numa:1 core:18 pu:4",
                "",
                "0,4-19,21-52,54-72,75-91,93-124,126-144,146-163,165-196,198-216,218-235,237-268,270-287",
                "12 whole",
            ),
            ("numa:1 core:4 pu:4", "", "0,5,10", "4 whole"),
            ("numa:1 core:4 pu:4", "", "0,5,10,15", "4 whole"),
            ("numa:1 core:2 pu:2 ecore:2", "", "1", "3 whole"),
            ("numa:1 core:4 pu:2 offline:6", "0,4", "", "5 whole"),
            ("numa:1 core:4 pu:2", "0,4", "5-7", "2 whole spread"),
        ],
        expect![[r#"
            numa:1 core:4 pu:2 | 0,4 | 5-7 | 2 whole | needs 2 exclusive CPUs in whole cores; 0 are free
            numa:1 core:4 pu:2 | 0,4 | 5 | 4 whole | 2-3,6-7 (4, 0 split)
            numa:1 l3:1 core:6 pu:2 | 0-1 | 2-5,8-11 | 2 whole | needs 2 exclusive CPUs in whole cores; 0 are free
            pack:4 numa:1 core:18 pu:4 |  | 0,4-19,21-52,54-72,75-91,93-124,126-144,146-163,165-196,198-216,218-235,237-268,270-287 | 12 whole | 1,20,53,73,92,125,145,164,197,217,236,269 (4+4+4, 0 split)
            numa:1 core:4 pu:4 |  | 0,5,10 | 4 whole | 3,7,11,15 (4, 0 split)
            numa:1 core:4 pu:4 |  | 0,5,10,15 | 4 whole | needs 4 exclusive CPUs in whole cores; 0 are free
            numa:1 core:2 pu:2 ecore:2 |  | 1 | 3 whole | 0,2,4 (3, 0 split)
            numa:1 core:4 pu:2 offline:6 | 0,4 |  | 5 whole | 1-3,5,7 (5, 0 split)
            numa:1 core:4 pu:2 | 0,4 | 5-7 | 2 whole spread | needs 2 exclusive CPUs in whole cores; 0 are free
        "#]],
    );
}

#[test]
fn one_thread_of_each_core_as_far_as_there_are_cores_in_one_package() {
    check_cases(
        &[
            // One thread of each core, as far as there are cores; in one package.
            ("numa:1 core:4 pu:2", "0", "", "5 spread"),
            ("numa:1 core:4 pu:2", "0", "", "5 each-core"),
            ("numa:1 core:4 pu:2", "", "", "4 spread idle"),
            ("numa:1 core:4 pu:2", "", "", "7 spread idle"),
            ("numa:1 core:4 pu:2", "", "", "6 spread shared"),
            ("pack:2 numa:1 core:4 pu:2", "", "", "6 spread"),
            ("pack:2 core:4 pu:2", "", "", "6 spread"),
            ("pack:2 numa:1 core:4 pu:2", "", "", "6 spread within:Numa"),
            ("pack:2 numa:1 core:4 pu:2", "", "", "6 spread idle"),
            ("numa:1 l3:2 core:4 pu:2", "", "", "6 spread"),
            ("numa:1 l3:2 core:4 pu:2", "", "", "10 spread"),
            ("pack:2 numa:1 core:4 pu:2", "", "", "10 spread"),
        ],
        expect![[r#"
            numa:1 core:4 pu:2 | 0 |  | 5 spread | 1-5 (5, 3 split)
            numa:1 core:4 pu:2 | 0 |  | 5 each-core | needs 5 exclusive CPUs on a core each; 4 could be given if all were free
            numa:1 core:4 pu:2 |  |  | 4 spread idle | 1-3,5 (4, 2 split)
            numa:1 core:4 pu:2 |  |  | 7 spread idle | needs 8 exclusive CPUs with idle siblings; 6 could be given if all were free
            numa:1 core:4 pu:2 |  |  | 6 spread shared | 0-3,5-6 (6, 2 split)
            pack:2 numa:1 core:4 pu:2 |  |  | 6 spread | 0-3,9-10 (6, 2 split)
            pack:2 core:4 pu:2 |  |  | 6 spread | 0-3,9-10 (, 2 split)
            pack:2 numa:1 core:4 pu:2 |  |  | 6 spread within:Numa | 0-3,9-10 (6, 2 split)
            pack:2 numa:1 core:4 pu:2 |  |  | 6 spread idle | 0-3,9-10 (6, 2 split)
            numa:1 l3:2 core:4 pu:2 |  |  | 6 spread | 0-5 (6, 6 split)
            numa:1 l3:2 core:4 pu:2 |  |  | 10 spread | 0-7,9-10 (10, 6 split)
            pack:2 numa:1 core:4 pu:2 |  |  | 10 spread | 0-7,9,12 (5+5, 6 split)
        "#]],
    );
}

#[test]
fn as_many_of_each_node_and_whole_cores_before_one_l3() {
    check_cases(
        &[
            // As many of each node.
            ("numa:3 core:8 pu:2", "", "0-3,24-27", "20 even"),
            ("numa:4 core:2 pu:2", "", "", "5 even"),
            ("numa:4 core:4", "", "1-2,4,6-9,13", "6 even"),
            ("numa:1 l3:2 core:4 pu:2", "", "2,9-10,13", "10 even"),
            ("numa:2 core:4 pu:2", "", "", "12 even whole"),
            ("pack:2 numa:2 core:4", "", "0-2", "5 even"),
            // Whole cores of the same node go before one L3.
            ("numa:1 l3:2 core:4 pu:2", "", "1-3,7,9-11,13-15", "4"),
        ],
        expect![[r#"
            numa:3 core:8 pu:2 |  | 0-3,24-27 | 20 even | 8-12,16-20,32-36,40-44 (10+10, 0 split)
            numa:4 core:2 pu:2 |  |  | 5 even | 0-2,9-10 (3+2, 1 split)
            numa:4 core:4 |  | 1-2,4,6-9,13 | 6 even | 0,3,10-12,14 (2+2+2, 0 split)
            numa:1 l3:2 core:4 pu:2 |  | 2,9-10,13 | 10 even | 0,3-4,6-8,11-12,14-15 (10, 0 split)
            numa:2 core:4 pu:2 |  |  | 12 even whole | 1-6,9-14 (6+6, 0 split)
            pack:2 numa:2 core:4 |  | 0-2 | 5 even | 8-10,12-13 (3+2, 0 split)
            numa:1 l3:2 core:4 pu:2 |  | 1-3,7,9-11,13-15 | 4 | 0,4,8,12 (4, 0 split)
        "#]],
    );
}

#[test]
fn what_no_cpu_can_be_is_refused_and_the_text_says_so() {
    check_cases(
        &[
            // Nothing on this machine can be what is required.
            ("core:4", "", "", "1 priority:High!"),
            ("core:4", "", "", "1 priority:Low!"),
            ("core:4", "", "", "1 priority:Normal!"),
            ("core:4", "", "", "1 priority:High"),
            ("core:4", "", "", "1 kind:Efficient!"),
            ("core:4", "", "", "1 kind:Performance!"),
            ("core:4", "", "", "1 isolated!"),
            // Efficient cores are of low priority.
            ("numa:1 core:2 pu:2 ecore:3", "", "", "2 priority:Low"),
            ("numa:1 core:2 pu:2 ecore:3", "", "", "4 priority:Low!"),
            // Texts.
            ("numa:1 core:4 pu:2", "", "", "8"),
            ("numa:1 core:4 pu:2", "", "", "9"),
            ("numa:1 core:4 pu:2", "", "1", "7"),
            ("numa:1 core:4 pu:2", "", "1", "7 shared"),
            ("numa:1 core:4 pu:2", "", "1-2", "5 idle"),
            ("numa:1 core:4 pu:2", "", "", "3 each-core idle"),
            ("numa:1 core:4 pu:2", "", "", "4 each-core idle"),
        ],
        expect![[r#"
            core:4 |  |  | 1 priority:High! | needs 1 exclusive CPU of high priority; there are none here
            core:4 |  |  | 1 priority:Low! | needs 1 exclusive CPU of low priority; there are none here
            core:4 |  |  | 1 priority:Normal! | 1 (, 0 split)
            core:4 |  |  | 1 priority:High | 1 (, 0 split)
            core:4 |  |  | 1 kind:Efficient! | needs 1 exclusive CPU on efficient cores; there are none here
            core:4 |  |  | 1 kind:Performance! | 1 (, 0 split)
            core:4 |  |  | 1 isolated! | needs 1 exclusive CPU isolated by the kernel; there are none here
            numa:1 core:2 pu:2 ecore:3 |  |  | 2 priority:Low | 4-5 (2, 0 split)
            numa:1 core:2 pu:2 ecore:3 |  |  | 4 priority:Low! | needs 4 exclusive CPUs of low priority; 3 could be given if all were free
            numa:1 core:4 pu:2 |  |  | 8 | needs 8 exclusive CPUs; 7 could be given if all were free
            numa:1 core:4 pu:2 |  |  | 9 | needs 9 exclusive CPUs; 7 could be given if all were free
            numa:1 core:4 pu:2 |  | 1 | 7 | needs 7 exclusive CPUs; 6 are free
            numa:1 core:4 pu:2 |  | 1 | 7 shared | needs 7 exclusive CPUs on cores without other exclusive containers; 6 are free
            numa:1 core:4 pu:2 |  | 1-2 | 5 idle | needs 6 exclusive CPUs with idle siblings; 4 are free
            numa:1 core:4 pu:2 |  |  | 3 each-core idle | 1-3 (3, 3 split)
            numa:1 core:4 pu:2 |  |  | 4 each-core idle | needs 8 exclusive CPUs on a core each, with idle siblings; 6 could be given if all were free
        "#]],
    );
}

#[test]
fn fewest_counts_the_cpus_that_meet_the_requirements() {
    let smt = "numa:2 core:4 pu:2";
    check_cases(
        &[
            // One thread of each core: a node has four.
            (smt, "", "", "6 fewest:Numa each-core"),
            (smt, "", "", "4 fewest:Numa each-core"),
            (smt, "", "4", "4 fewest:Numa each-core"),
            (smt, "", "", "6 fewest:Numa idle each-core"),
            // What is reserved breaks cores.
            (smt, "0-2", "", "8 fewest:Numa whole"),
            (smt, "0-2,4", "", "8 fewest:Numa whole"),
            (smt, "0-2,4", "", "6 fewest:Numa whole"),
            (smt, "0-2,4", "", "7 fewest:Numa idle"),
            ("numa:2 core:4 isolated:2-3,6-7", "", "", "3 fewest:Numa isolated!"),
            // Without a requirement all CPUs count.
            (smt, "", "", "6 fewest:Numa"),
            (smt, "", "1-2,4", "6 fewest:Numa"),
        ],
        expect![[r#"
            numa:2 core:4 pu:2 |  |  | 6 fewest:Numa each-core | 0-5 (4+2, 6 split)
            numa:2 core:4 pu:2 |  |  | 4 fewest:Numa each-core | 0-3 (4, 4 split)
            numa:2 core:4 pu:2 |  | 4 | 4 fewest:Numa each-core | 5-7,12 (4, 4 split)
            numa:2 core:4 pu:2 |  |  | 6 fewest:Numa idle each-core | 0-5 (4+2, 6 split)
            numa:2 core:4 pu:2 | 0-2 |  | 8 fewest:Numa whole | 4-7,12-15 (8, 0 split)
            numa:2 core:4 pu:2 | 0-2,4 |  | 8 fewest:Numa whole | 3,5-7,11,13-15 (2+6, 0 split)
            numa:2 core:4 pu:2 | 0-2,4 |  | 6 fewest:Numa whole | 5-7,13-15 (6, 0 split)
            numa:2 core:4 pu:2 | 0-2,4 |  | 7 fewest:Numa idle | 3,5-7,13-15 (1+6, 1 split)
            numa:2 core:4 isolated:2-3,6-7 |  |  | 3 fewest:Numa isolated! | 2-3,6 (2+1, 0 split)
            numa:2 core:4 pu:2 |  |  | 6 fewest:Numa | 1-3,9-11 (6, 0 split)
            numa:2 core:4 pu:2 |  | 1-2,4 | 6 fewest:Numa | 5-7,13-15 (6, 0 split)
        "#]],
    );
}

#[test]
fn no_preference_refuses_what_would_fit_in_the_fewest_nodes_without_it() {
    let smt = "numa:2 core:4 pu:2";
    check_cases(
        &[
            // Two isolated CPUs in each node: three of them would be of two.
            ("numa:2 core:6 isolated:2-3,6-7", "", "", "3 fewest:Numa isolated"),
            ("numa:2 core:6 isolated:2-3,6-7", "", "", "2 fewest:Numa isolated"),
            // One thread of each core would be of two nodes.
            (smt, "", "", "6 fewest:Numa spread"),
            (smt, "", "", "4 fewest:Numa spread"),
            (smt, "", "1,5", "6 fewest:Numa apart:Core"),
            ("numa:2 core:4 fast:0-1,4-5", "", "", "3 fewest:Numa priority:High"),
        ],
        expect![[r#"
            numa:2 core:6 isolated:2-3,6-7 |  |  | 3 fewest:Numa isolated | 1,4-5 (3, 0 split)
            numa:2 core:6 isolated:2-3,6-7 |  |  | 2 fewest:Numa isolated | 2-3 (2, 0 split)
            numa:2 core:4 pu:2 |  |  | 6 fewest:Numa spread | 0-3,9-10 (6, 2 split)
            numa:2 core:4 pu:2 |  |  | 4 fewest:Numa spread | 0-3 (4, 4 split)
            numa:2 core:4 pu:2 |  | 1,5 | 6 fewest:Numa apart:Core | 0,2-3,8,10-11 (6, 0 split)
            numa:2 core:4 fast:0-1,4-5 |  |  | 3 fewest:Numa priority:High | 1-3 (3, 0 split)
        "#]],
    );
}

/// Ways that are compared for one request, beside containers that share (`0+500`) and keep some CPUs of each node.
fn ways_compared(machine: &str, sharers: usize, wanted: &str) -> (u64, String) {
    let mut ledger = with_taken(machine, "", &[]).unwrap();
    for id in 1..=sharers {
        play(&mut ledger, &format!("{id} 0+500"));
    }
    let before = COMPARED.get();
    let outcome = render(&ledger, &parse_wanted(wanted));
    (COMPARED.get() - before, outcome)
}

#[test]
fn the_search_for_one_thread_of_each_core_is_bounded_on_large_machines() {
    let many = "pack:2 numa:1 l3:12 core:16 pu:2";
    let small_nodes = "pack:2 numa:4 l3:3 core:16 pu:2";
    let mut text = String::new();
    for machine in [many, small_nodes] {
        for (sharers, wanted) in [
            (0, "150 spread"),
            (40, "150 spread"),
            (0, "300 spread"),
            (40, "300 spread"),
            (40, "250 spread idle"),
            (40, "370 spread"),
            (40, "600 spread"),
            (40, "300"),
        ] {
            let (compared, outcome) = ways_compared(machine, sharers, wanted);
            text.push_str(&format!("{machine}, {sharers}, {wanted}: {compared}, {outcome}\n"));
        }
    }
    expect![[r#"
        pack:2 numa:1 l3:12 core:16 pu:2, 0, 150 spread: 0, 0-149 (150, 150 split)
        pack:2 numa:1 l3:12 core:16 pu:2, 40, 150 spread: 0, 0-149 (150, 150 split)
        pack:2 numa:1 l3:12 core:16 pu:2, 0, 300 spread: 0, 0-191,384-491 (300, 84 split)
        pack:2 numa:1 l3:12 core:16 pu:2, 40, 300 spread: 0, 0-191,384-491 (300, 84 split)
        pack:2 numa:1 l3:12 core:16 pu:2, 40, 250 spread idle: 0, 0-186,384-446 (250, 124 split)
        pack:2 numa:1 l3:12 core:16 pu:2, 40, 370 spread: 0, 0-191,384-561 (370, 14 split)
        pack:2 numa:1 l3:12 core:16 pu:2, 40, 600 spread: 0, 0-565,576-609 (374+226, 168 split)
        pack:2 numa:1 l3:12 core:16 pu:2, 40, 300: 0, 0-149,384-533 (300, 0 split)
        pack:2 numa:4 l3:3 core:16 pu:2, 0, 150 spread: 57948, 0-149 (48+48+48+6, 150 split)
        pack:2 numa:4 l3:3 core:16 pu:2, 40, 150 spread: 56574, 0-149 (48+48+48+6, 150 split)
        pack:2 numa:4 l3:3 core:16 pu:2, 0, 300 spread: 265395, 0-191,384-410,432-458,480-506,528-554 (75+75+75+75, 84 split)
        pack:2 numa:4 l3:3 core:16 pu:2, 40, 300 spread: 257889, 0-191,384-410,432-458,480-506,528-554 (75+75+75+75, 84 split)
        pack:2 numa:4 l3:3 core:16 pu:2, 40, 250 spread idle: 90068, 0-45,48-93,96-141,384-429,432-477,480-499 (92+92+66, 26 split)
        pack:2 numa:4 l3:3 core:16 pu:2, 40, 370 spread: 0, 0-191,384-428,432-476,480-524,528-570 (93+93+93+91, 14 split)
        pack:2 numa:4 l3:3 core:16 pu:2, 40, 600 spread: 0, 0-335,384-427,432-475,480-523,528-571,576-619,624-667 (92+92+92+92+92+92+48, 72 split)
        pack:2 numa:4 l3:3 core:16 pu:2, 40, 300: 0, 0-45,48-93,96-141,144-155,384-429,432-477,480-525,528-539 (92+92+92+24, 0 split)
    "#]].assert_eq(&text);
}

#[test]
fn half_a_pod_does_not_start() {
    let taken: CpuSet = "3,7,11,15".parse().unwrap();
    for (rest, expected) in [
        (
            "4 fewest:Numa rest:4 one!",
            "leaves no room for the other 4 CPUs of the pod, which has to lie on as few NUMA nodes as possible",
        ),
        ("4 fewest:Numa rest:2 one!", "1-2,9-10 (4, 0 split)"),
        ("4 fewest:Numa rest:4 one", "1-2,9-10 (4, 0 split)"),
        // More than one node has.
        ("5 fewest:Numa rest:4 one!", "0-2,9-10 (5, 1 split)"),
    ] {
        let ledger =
            with_taken("pack:2 numa:1 core:4 pu:2", "", std::slice::from_ref(&taken)).unwrap();
        assert_eq!(render(&ledger, &parse_wanted(rest)), expected, "{rest}");
    }
}

#[test]
fn a_container_that_grows_goes_on_as_it_began() {
    check(
        "numa:1 core:6 pu:2",
        "0,6",
        &[
            "1 2 whole",
            "2 1 spread",
            "1=4 whole",
            "1=2 whole",
            "2=3 spread",
            "2=4 spread",
            "2=2 spread",
        ],
        expect![[r#"
            1 2 whole: machine, owns [1,7] of 1,7, mems 0
            2 1 spread: machine, owns [2] of 2, mems 0
            1=4 whole: machine, owns [1,3,7,9] of 1,3,7,9, mems 0
            1=2 whole: machine, owns [1,7] of 1,7, mems 0
            2=3 spread: machine, owns [2-4] of 2-4, mems 0
            2=4 spread: machine, owns [2-5] of 2-5, mems 0
            2=2 spread: machine, owns [2-3] of 2-3, mems 0
        "#]],
    );
}

/// Whether these CPUs meet one wish, by looking at them.
fn meets(ledger: &Ledger, word: &str, cpus: &CpuSet) -> bool {
    let pools = ledger.pools();
    let owned: CpuSet =
        ledger.allocations().flat_map(|(_, it)| it.exclusive.iter().collect::<Vec<_>>()).collect();
    let touched = || cores(pools).filter(|core| core.intersects(cpus));
    let level = |level| pools.domains.iter().filter(move |(it, _)| *it == level);
    match word {
        "whole" => split_cores(pools, cpus) == 0,
        "each-core" => doubled(pools, cpus) == 0,
        "shared" => touched().all(|core| core.is_disjoint(&owned.union(pools.reserved()))),
        "idle" => touched().all(|core| core.is_subset(ledger.free())),
        "within:Numa" => {
            level(Level::NumaNode).next().is_none()
                || level(Level::NumaNode).any(|(_, it)| cpus.is_subset(it))
        }
        "apart:L3!" => {
            level(Level::L3).all(|(_, it)| !it.intersects(cpus) || !it.intersects(&owned))
        }
        "apart:Core!" => touched().all(|core| core.is_disjoint(&owned)),
        "priority:High!" => cpus.is_subset(&pools.high_priority),
        "priority:Low!" => cpus.is_subset(&pools.low_priority),
        "kind:Eff!" => {
            pools.kinds.iter().any(|(kind, it)| *kind == CoreKind::Efficient && cpus.is_subset(it))
        }
        _ => true,
    }
}

/// Every set of `count` of these CPUs.
fn sets_of(cpus: &CpuSet, count: usize) -> impl Iterator<Item = CpuSet> + use<> {
    let cpus: Vec<CpuId> = cpus.iter().collect();
    let masks = (0u32..1 << cpus.len()).filter(move |mask| mask.count_ones() as usize == count);
    masks.map(move |mask| {
        (0..cpus.len()).filter(|at| mask >> at & 1 == 1).map(|at| cpus[at]).collect()
    })
}

/// Whether the sharers of every pool, and the machine, can do without these CPUs and without siblings that stay idle.
fn is_spare(ledger: &Ledger, cpus: &CpuSet, is_idle: bool) -> bool {
    let around = cores(ledger.pools()).filter(|core| is_idle && core.intersects(cpus));
    let cpus = around.fold(cpus.clone(), |all, core| all.union(&core));
    ledger.pools().iter().zip(ledger.loads()).all(|(pool, load)| {
        let taken = pool.cpus.intersection_len(&cpus);
        taken == 0 || taken + load.cpus_kept(pool) <= ledger.shared_cpus(pool.id).len()
    })
}

fn small_machine() -> impl Strategy<Value = (String, String)> {
    let line = prop::sample::select(vec![
        "numa:1 core:5 pu:2",
        "numa:1 l3:2 core:3 pu:2",
        "numa:2 core:3 pu:2",
        "numa:3 core:2 pu:2",
        "pack:2 numa:2 core:3",
        "numa:1 l3:3 core:2 pu:2",
        "pack:2 l3:2 core:3",
        "numa:2 core:4,2 pu:2",
        "numa:1 core:3 pu:2 ecore:4",
        "numa:2 core:2 pu:3",
        "numa:1 core:3 pu:4",
        "numa:4 core:3",
        "numa:4 core:1 pu:2 fast:1-2",
        "pack:2 core:3 pu:2",
    ]);
    let offline = prop::option::weighted(0.3, 1u32..6);
    (line, offline, prop::bool::weighted(0.4)).prop_map(|(line, offline, reserve)| {
        let offline = offline.map(|cpu| format!(" offline:{cpu}")).unwrap_or_default();
        (format!("{line}{offline}"), if reserve { "0".to_owned() } else { String::new() })
    })
}

fn any_taken() -> impl Strategy<Value = Vec<CpuSet>> {
    let set = (any::<u16>(), any::<u16>()).prop_map(|(one, other)| {
        (0..16).filter(|cpu| one & other & 1 << cpu != 0).map(CpuId).collect()
    });
    prop::collection::vec(set, 0..3)
}

fn any_required() -> impl Strategy<Value = Vec<&'static str>> {
    prop_oneof![
        3 => Just(vec!["whole"]),
        1 => Just(vec!["whole", "idle"]),
        1 => Just(vec!["whole", "within:Numa"]),
        1 => Just(vec!["whole", "spread"]),
        1 => Just(vec!["each-core"]),
        1 => Just(vec!["each-core", "shared"]),
        2 => Just(vec!["spread"]),
        1 => Just(vec!["spread", "idle"]),
        1 => Just(vec!["spread", "shared"]),
        1 => Just(vec!["spread", "within:Numa"]),
        1 => Just(vec!["shared"]),
        1 => Just(vec!["idle"]),
        1 => Just(vec!["even"]),
        1 => Just(vec!["apart:L3!"]),
        1 => Just(vec!["apart:Core!", "whole"]),
        1 => Just(vec!["priority:High!"]),
        1 => Just(vec!["priority:Low!"]),
        1 => Just(vec!["kind:Eff!"]),
    ]
}

/// Threads per core and the number of nodes where the CPUs have to come from.
fn fewest_nodes(ledger: &Ledger, sets: &[CpuSet]) -> Option<usize> {
    sets.iter().map(|cpus| ledger.pools().nodes_of(cpus).len()).min()
}

fn is_even(pools: &Pools, cpus: &CpuSet) -> bool {
    let counts = per_node(pools, cpus);
    counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0) <= pools.width
}

proptest! {
    #[test]
    fn what_is_required_holds_and_is_refused_only_where_it_cannot_be_had(
        (line, reserved) in small_machine(),
        taken in any_taken(),
        sharers in prop::collection::vec(0u64..1500, 0..3),
        wishes in any_required(),
        count in 1usize..9,
    ) {
        let Some(mut ledger) = with_taken(&line, &reserved, &taken) else { return Ok(()) };
        for (id, milli) in (0..).zip(sharers) {
            if let Ok(offer) = offer(&ledger, &request(id, 0, Some(milli))) {
                ledger.commit(offer).unwrap();
            }
        }
        let wanted = parse_wanted(&format!("{count} {}", wishes.join(" ")));
        let is_idle = wishes.contains(&"idle");
        let fits = |cpus: &CpuSet| {
            wishes.iter().all(|word| meets(&ledger, word, cpus)) && is_spare(&ledger, cpus, is_idle)
        };
        let found: Vec<CpuSet> = sets_of(ledger.free(), count).filter(fits).collect();
        match offer(&ledger, &wanted) {
            Ok(offer) => {
                let cpus = offer.allocation().exclusive.clone();
                let is_met = wishes.iter().all(|word| meets(&ledger, word, &cpus));
                prop_assert!(is_met && cpus.len() == count, "{line}: {cpus} for {wishes:?}");
                if wishes == ["even"] && offer.moves().is_empty() {
                    let fewest = fewest_nodes(&ledger, &found);
                    let of_fewest = |it: &&CpuSet| Some(ledger.pools().nodes_of(it).len()) == fewest;
                    let even = found.iter().filter(of_fewest).find(|it| is_even(ledger.pools(), it));
                    if let Some(even) = even {
                        prop_assert!(is_even(ledger.pools(), &cpus), "{line}: {cpus}, but {even} is even");
                    }
                }
                ledger.commit(offer).unwrap();
                prop_assert_eq!(check_ledger(&ledger), Vec::<String>::new());
            }
            Err(refusal) => {
                let why = refusal.considered[0].outcome.as_ref().unwrap_err().to_string();
                prop_assert!(found.is_empty(), "{line}: {wishes:?} {count} refused, but {:?}: {why}", found.first());
                prop_assert!(!why.contains("; 0 more"), "{why}");
            }
        }
    }

    /// In one node and one package no fewer cores are used, and no more split, than has to be.
    #[test]
    fn cores_of_one_node_are_used_as_well_as_can_be(
        line in prop::sample::select(vec![
            "numa:1 core:6 pu:2", "numa:1 l3:2 core:3 pu:2", "numa:1 l3:3 core:2 pu:2", "numa:1 l3:2 core:2 pu:3", "numa:1 l3:6 core:1 pu:2",
        ]),
        taken in any_taken(),
        is_spread in any::<bool>(),
        count in 1usize..9,
    ) {
        let ledger = with_taken(line, "", &taken).unwrap();
        let pools = ledger.pools();
        let wanted = parse_wanted(&format!("{count}{}", if is_spread { " spread" } else { "" }));
        let Ok(offer) = offer(&ledger, &wanted) else { return Ok(()) };
        let cost = |cpus: &CpuSet| if is_spread { doubled(pools, cpus) } else { split_cores(pools, cpus) };
        let spare = sets_of(ledger.free(), count).filter(|it| is_spare(&ledger, it, false));
        let best = spare.map(|cpus| (cost(&cpus), pools.count(Level::L3, &cpus))).min().unwrap();
        let cpus = &offer.allocation().exclusive;
        prop_assert_eq!((cost(cpus), if is_spread { best.1 } else { pools.count(Level::L3, cpus) }), best, "{} {} of {}", line, cpus, ledger.free());
    }
}
