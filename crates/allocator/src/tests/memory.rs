//! Memory nodes: which a container gets, and which containers could do with fewer.

use std::collections::BTreeMap;

use bayplan_types::{NodeId, NodeSet};

use bayplan_topology::{DeviceFacts, Snapshot};

use super::*;

/// Plays steps, and then narrows until no container can do with fewer nodes: one line per plan.
fn check_narrowing(line: &str, reserved: &str, steps: &[&str], expected: Expect) {
    let mut ledger = machine(line, reserved).unwrap();
    let mut requests = BTreeMap::new();
    let mut text = String::new();
    for step in steps {
        text.push_str(&format!("{step}: {}\n", play(&mut ledger, step)));
        if !step.starts_with('-') {
            let (wanted, _) = parse_step(step);
            requests.insert(wanted.id, wanted);
        }
    }
    loop {
        let plan = plan_narrowing(&ledger, |id| requests.get(&id).cloned());
        let said: Vec<String> = plan.iter().map(render).collect();
        text.push_str(&format!("narrow: {}\n", said.join("; ")));
        let Some(first) = plan.first() else { break };
        ledger.narrow(first).unwrap();
    }
    expected.assert_eq(&text);
}

fn render(narrowing: &Narrowing) -> String {
    let Narrowing { container, from, to, moves_memory, .. } = narrowing;
    let memory = moves_memory.map_or("any amount".to_owned(), |bytes| bytes.to_string());
    format!("{} {from} -> {to} of {memory}", container.0)
}

#[test]
fn memory_widens_by_one_node_the_nearest() {
    check(
        "pack:2 numa:2 core:4 pu:1 mem:10",
        "",
        &[
            "1 1 mem:8 near:1!",
            "2 1 mem:9 near:1!",
            "3 1 mem:4 near:1!",
            "4 0+100 limit:11 near:1!",
        ],
        expect![[r#"
            1 1 mem:8 near:1!: numa 1, owns [4] of 4, mems 1
            2 1 mem:9 near:1!: numa 1, owns [5] of 5, mems 0-1
            3 1 mem:4 near:1!: numa 1, owns [6] of 6, mems 0-2
            4 0+100 limit:11 near:1!: numa 1, owns [] of 7, mems 0-1
        "#]],
    );
}

#[test]
fn expected_memory_leads_to_where_room_is_and_refuses_no_container() {
    check(
        "pack:2 numa:1 core:4 pu:1 mem:10",
        "",
        &[
            "1 0+100 expects:6",
            "2 0+100 expects:6",
            // A container that is sure of its memory prefers nodes where none is expected to use it, and has all of the machine in the end.
            "3 1 mem:4",
            "4 1 mem:9",
            "5 1 mem:7",
            "6 1 mem:1",
            // More than there is.
            "7 0+100 expects:40",
            "8 0+100 expects:4 bound",
            "-1",
            "-4",
            "9 0+100 expects:3",
        ],
        expect![[r#"
            1 0+100 expects:6: package 0, owns [] of 0-3, mems 0
            2 0+100 expects:6: package 1, owns [] of 4-7, mems 1
            3 1 mem:4: package 0, owns [1] of 1, mems 0
            4 1 mem:9: package 1, owns [4] of 4, mems 1
            5 1 mem:7: machine, owns [2] of 2, mems 0-1
            6 1 mem:1: refused: needs 1 GiB, the machine has 0 B free
            7 0+100 expects:40: package 1, owns [] of 5-7, mems 1
            8 0+100 expects:4 bound: package 1, owns [] of 5-7, mems 1
            -1: shared 0,3,5-7
            -4: shared 0,3-7
            9 0+100 expects:3: package 1, owns [] of 4-7, mems 1
        "#]],
    );
}

#[test]
fn an_adopted_container_keeps_its_expected_memory_beside_what_is_set_aside() {
    let mut ledger = machine("pack:2 numa:1 core:4 pu:1 mem:10", "").unwrap();
    play(&mut ledger, "1 1 mem:8 near:0!");
    let near = ledger.allocation(ContainerId(1)).unwrap().charges[0].0;
    for (memory_is_expected, kept) in [(true, 6), (false, 2)] {
        let held = Allocation {
            shared: Some(MilliCpu(100)),
            mems: NodeSet::from_iter([near]),
            charges: vec![(near, Bytes::gib(6))],
            terms: Terms { memory_is_expected, ..Terms::default() },
            ..Allocation::new(PoolId::MACHINE)
        };
        ledger.adopt(ContainerId(2), held).unwrap();
        let held = ledger.release(ContainerId(2)).unwrap();
        assert_eq!(held.charges, [(near, Bytes::gib(kept))], "{memory_is_expected}");
    }
}

#[test]
fn of_equally_near_nodes_one_that_holds_all_that_is_missing() {
    check(
        "pack:4 numa:1 core:2 pu:1 mem:10",
        "",
        &["1 1 mem:8 near:1!", "2 1 mem:10 near:0!", "3 1 mem:8 near:0!"],
        expect![[r#"
            1 1 mem:8 near:1!: package 1, owns [2] of 2, mems 1
            2 1 mem:10 near:0!: package 0, owns [1] of 1, mems 0
            3 1 mem:8 near:0!: package 0, owns [0] of 0, mems 0,2
        "#]],
    );
}

#[test]
fn a_node_is_in_single_and_multi_node_sets_at_once() {
    check(
        "pack:2 numa:1 core:4 mem:10",
        "",
        &[
            "1 1 mem:6 near:0!",
            "2 1 mem:8 near:0!",
            "3 1 mem:4 near:1!",
            "4 1 mem:3",
            "-1",
            "5 1 mem:5 near:0!",
        ],
        expect![[r#"
            1 1 mem:6 near:0!: package 0, owns [1] of 1, mems 0
            2 1 mem:8 near:0!: package 0, owns [2] of 2, mems 0-1
            3 1 mem:4 near:1!: package 1, owns [4] of 4, mems 1
            4 1 mem:3: refused: needs 3 GiB, the machine has 2 GiB free
            -1: shared 0-1,3,5-7
            5 1 mem:5 near:0!: package 0, owns [1] of 1, mems 0
        "#]],
    );
}

#[test]
fn a_bound_container_is_refused_cleanly_and_never_widened() {
    let mut ledger = machine("pack:2 numa:1 core:4 mem:10", "0").unwrap();
    for step in [
        "1 1 mem:8 near:0!",
        "2 1 mem:8 bound near:0!",
        "3 0+100 mem:8 bound near:0!",
        "4 0+100 mem:8 bound reserved",
    ] {
        let before = (ledger.holdings().clone(), ledger.version());
        let said = play(&mut ledger, step);
        if step.contains("bound") {
            assert!(said.starts_with("refused: "), "{step}: {said}");
            assert_eq!((ledger.holdings().clone(), ledger.version()), before, "{step}");
        }
    }
}

#[test]
fn a_container_bound_to_its_memory_does_not_make_room() {
    check(
        "pack:2 numa:1 core:4 mem:10",
        "",
        &["1 0+1000 mem:4 bound", "2 4 near:0", "-1", "-2", "1 0+1000 mem:4", "2 4 near:0"],
        expect![[r#"
            1 0+1000 mem:4 bound: package 0, owns [] of 0-3, mems 0
            2 4 near:0: package 1, owns [4-7] of 4-7, mems 1
            -1: shared 0-3
            -2: shared 0-7
            1 0+1000 mem:4: package 0, owns [] of 0-3, mems 0
            2 4 near:0: package 0, owns [0-3] of 0-3, mems 0
        "#]],
    );
}

#[test]
fn a_widened_container_is_narrowed_when_room_comes_back() {
    check_narrowing(
        "pack:2 numa:2 core:4 pu:1 mem:10",
        "",
        &["1 1 mem:8 near:0!", "2 1 mem:9 near:0!", "3 1 mem:8 near:0!", "-1"],
        expect![[r#"
            1 1 mem:8 near:0!: numa 0, owns [1] of 1, mems 0
            2 1 mem:9 near:0!: numa 0, owns [2] of 2, mems 0-1
            3 1 mem:8 near:0!: numa 0, owns [3] of 3, mems 0-2
            -1: shared 0-1,4-15
            narrow: 3 0-2 -> 0 of 8 GiB; 2 0-1 -> 0 of 9 GiB
            narrow: 
        "#]],
    );
    // Nothing has left, so there is no room.
    check_narrowing(
        "pack:2 numa:1 core:4 pu:1 mem:10",
        "",
        &["1 1 mem:8 near:0!", "2 1 mem:9 near:0!"],
        expect![[r#"
            1 1 mem:8 near:0!: package 0, owns [1] of 1, mems 0
            2 1 mem:9 near:0!: package 0, owns [2] of 2, mems 0-1
            narrow: 
        "#]],
    );
}

#[test]
fn memory_of_a_shared_container_follows_it_and_a_smaller_request_gives_nodes_up() {
    check_narrowing(
        "pack:2 numa:1 core:4 pu:1 mem:10",
        "",
        &["1 0+1000 mem:4", "2 4 near:0!"],
        expect![[r#"
            1 0+1000 mem:4: package 0, owns [] of 0-3, mems 0
            2 4 near:0!: package 0, owns [0-3] of 0-3, mems 0
            narrow: 1 0-1 -> 1 of 4 GiB
            narrow: 
        "#]],
    );
    check_narrowing(
        "pack:2 numa:1 core:4 pu:1 mem:10",
        "",
        &["1 0+1000 mem:12 near:0!", "1=0+1000 mem:3 near:0!"],
        expect![[r#"
            1 0+1000 mem:12 near:0!: package 0, owns [] of 0-3, mems 0-1
            1=0+1000 mem:3 near:0!: package 0, owns [] of 0-3, mems 0
            narrow: 
        "#]],
    );
}

#[test]
fn a_limit_keeps_the_nodes_that_it_needs() {
    check_narrowing(
        "pack:2 numa:1 core:4 pu:1 mem:10",
        "",
        &["1 0+1000 limit:12", "2 0+1000 limit:9", "3 0+1000", "4 4 near:0!"],
        expect![[r#"
            1 0+1000 limit:12: package 0, owns [] of 0-3, mems 0-1
            2 0+1000 limit:9: package 1, owns [] of 4-7, mems 1
            3 0+1000: package 0, owns [] of 0-3, mems 0
            4 4 near:0!: package 0, owns [0-3] of 0-3, mems 0
            narrow: 3 0-1 -> 1 of 10 GiB
            narrow: 
        "#]],
    );
}

#[test]
fn a_container_that_is_immovable_or_whose_memory_is_left_alone_is_not_narrowed() {
    check_narrowing(
        "pack:2 numa:1 core:4 pu:1 mem:10",
        "",
        &["1 1 mem:8 near:0!", "2 1 mem:3 near:0! immovable", "3 1 mem:1 near:0! keep-mems", "-1"],
        expect![[r#"
            1 1 mem:8 near:0!: package 0, owns [1] of 1, mems 0
            2 1 mem:3 near:0! immovable: package 0, owns [2] of 2, mems 0-1
            3 1 mem:1 near:0! keep-mems: package 0, owns [3] of 3, mems 0-1
            -1: shared 0-1,4-7
            narrow: 
        "#]],
    );
}

#[test]
fn most_nodes_first_then_least_memory() {
    check_narrowing(
        "pack:4 numa:1 core:4 pu:1 mem:10",
        "",
        &[
            "1 1 mem:9 near:0!",
            "2 1 mem:4 near:0!",
            "3 1 mem:3 near:0!",
            "5 1 mem:10 near:3!",
            "6 1 mem:9 near:2!",
            "4 1 mem:5 near:3!",
            "-1",
            "-5",
        ],
        expect![[r#"
            1 1 mem:9 near:0!: package 0, owns [1] of 1, mems 0
            2 1 mem:4 near:0!: package 0, owns [2] of 2, mems 0-1
            3 1 mem:3 near:0!: package 0, owns [3] of 3, mems 0-1
            5 1 mem:10 near:3!: package 3, owns [12] of 12, mems 3
            6 1 mem:9 near:2!: package 2, owns [8] of 8, mems 2
            4 1 mem:5 near:3!: package 3, owns [13] of 13, mems 1-3
            -1: shared 0-1,4-7,9-11,14-15
            -5: shared 0-1,4-7,9-12,14-15
            narrow: 4 1-3 -> 3 of 5 GiB; 3 0-1 -> 0 of 3 GiB; 2 0-1 -> 0 of 4 GiB
            narrow: 3 0-1 -> 0 of 3 GiB; 2 0-1 -> 0 of 4 GiB
            narrow: 2 0-1 -> 0 of 4 GiB
            narrow: 
        "#]],
    );
}

#[test]
fn a_stale_narrowing_is_refused() {
    let mut ledger = machine("pack:2 numa:1 core:4 pu:1 mem:10", "").unwrap();
    let steps = ["1 1 mem:8 near:0!", "2 1 mem:9 near:0!", "-1"];
    steps.iter().for_each(|step| drop(play(&mut ledger, step)));
    let wanted = parse_step(steps[1]).0;
    let plan = plan_narrowing(&ledger, |_| Some(wanted.clone()));
    let late = play(&mut ledger, "3 1 mem:9 near:0!");
    assert!(late.contains("mems 0-1"), "{late}");
    let before = ledger.holdings().clone();
    let stale = ledger.narrow(&plan[0]).unwrap_err();
    assert_eq!(stale.current, ledger.version());
    assert_eq!(*ledger.holdings(), before);
}

#[test]
fn huge_pages_come_from_the_nearest_nodes_that_have_them() {
    // Every node has 4 GiB in huge pages of 2 MiB and 6 GiB of other memory.
    check(
        "pack:2 numa:2 core:4 pu:1 mem:10 huge:2M=2048",
        "",
        &[
            "1 1 huge2M:3 near:1!",
            "2 1 huge2M:2 near:1!",
            "3 1 huge2M:4",
            "4 0+100 mem:6 huge2M:4",
            "5 1 mem:7",
            "6 1 huge2M:4",
            "-3",
            "7 1 huge2M:4",
        ],
        expect![[r#"
            1 1 huge2M:3 near:1!: numa 1, owns [4] of 4, mems 1
            2 1 huge2M:2 near:1!: numa 1, owns [5] of 5, mems 0-1
            3 1 huge2M:4: numa 2, owns [8] of 8, mems 2
            4 0+100 mem:6 huge2M:4: numa 3, owns [] of 12-15, mems 3
            5 1 mem:7: package 0, owns [6] of 6, mems 0-1
            6 1 huge2M:4: numa 1, owns [7] of 7, mems 0-1
            -3: shared 0-3,8-15
            7 1 huge2M:4: numa 2, owns [8] of 8, mems 2
        "#]],
    );
}

#[test]
fn a_bound_container_needs_huge_pages_on_its_own_nodes() {
    check(
        "pack:2 numa:1 core:4 pu:1 mem:10 huge:2M=2048",
        "0",
        &[
            "1 1 huge2M:3 near:0!",
            "2 1 huge2M:2 near:0! bound",
            "3 1 huge2M:2 bound",
            "4 1 huge2M:5 bound",
            "5 0+100 huge2M:2 reserved bound",
            "6 1 huge1G:1 bound",
        ],
        expect![[r#"
            1 1 huge2M:3 near:0!: package 0, owns [1] of 1, mems 0
            2 1 huge2M:2 near:0! bound: refused: is not near `device at 0`
            3 1 huge2M:2 bound: package 1, owns [4] of 4, mems 1
            4 1 huge2M:5 bound: refused: needs 5 GiB in huge pages of 2 MiB on its own NUMA nodes, 3 GiB are free
            5 0+100 huge2M:2 reserved bound: refused: needs 2 GiB in huge pages of 2 MiB on its own NUMA nodes, 1 GiB are free
            6 1 huge1G:1 bound: refused: needs 1 GiB in huge pages of 1 GiB on its own NUMA nodes, 0 B are free
        "#]],
    );
}

/// A ledger of a machine that was changed after its line was read.
fn changed(line: &str, reserved: &str, change: impl FnOnce(&mut Snapshot)) -> Ledger {
    let mut snapshot = parse_machine(line).unwrap();
    change(&mut snapshot);
    let pools = pools(&derive(&snapshot).unwrap(), Policy::default(), &reserved.parse().unwrap());
    Ledger::new(Arc::new(pools.unwrap()))
}

/// Found as numactl#165: CPUs of a node without memory got the lowest node that has some.
#[test]
fn cpus_without_memory_get_the_nearest() {
    let mut ledger = changed("pack:2 numa:2 core:4 mem:16", "", |snapshot| {
        for node in [1, 3] {
            snapshot.nodes[node].mem_total = Some(Bytes::ZERO);
        }
    });
    for (step, expected) in [
        ("1 4 near:3!", "mems 2"),
        ("2 4 near:1! bound mem:2", "mems 0"),
        ("3 4 mem:30", "mems 0,2"),
    ] {
        let found = play(&mut ledger, step);
        assert!(found.contains(expected), "{step}: {found}");
    }
}

/// Kubernetes#104147: exclusive CPUs that the groups around pods do not allow were not those that the container ran on.
#[test]
fn what_is_not_allowed_to_containers_is_given_to_none() {
    for (allowed, reserved, shared) in [
        ("2-5", "", "2-5"),
        ("2-5", "0", "2-5"),
        ("2-5", "2", "3-5"),
        ("0-7", "0", "1-7"),
        // One CPU is all that there is.
        ("3", "", "3"),
        // None of them is online: a kernel that says so is not believed.
        ("9", "", "0-7"),
    ] {
        let limit = |snapshot: &mut Snapshot| snapshot.pods_cpus = Some(allowed.parse().unwrap());
        let ledger = changed("numa:2 core:4 mem:16", reserved, limit);
        assert_eq!(ledger.free().to_string(), shared, "{allowed}, {reserved} reserved");
    }
    let limit = |snapshot: &mut Snapshot| snapshot.pods_mems = Some("1".parse().unwrap());
    let mut ledger = changed("numa:2 core:4 mem:16", "", limit);
    assert!(play(&mut ledger, "1 2 near:0! mem:8").ends_with("mems 1"));
    assert!(play(&mut ledger, "2 2 mem:9").starts_with("refused"));
}

/// GH200, GB200, POWER9: the driver shows the memory of GPUs as NUMA nodes.
#[test]
fn memory_of_a_gpu_is_given_only_where_it_is_asked_for() {
    let gpu = |snapshot: &mut Snapshot| {
        let mut device = DeviceFacts::new("01:00.0".parse().unwrap(), 0x03_0200);
        device.memory_node = Some(NodeId(1));
        snapshot.devices.push(device);
    };
    for (step, expected) in [
        ("1 2 mem:8", "mems 0"),
        // Kinds that the machine does not have leave it all of its own.
        ("1 2 mem:30", "refused"),
        ("1 2 mem:8 memory:Gpu", "mems 1"),
    ] {
        let mut ledger = changed("numa:1 core:4 mem:16 pmem:64", "", gpu);
        assert_eq!(ledger.pools().memory_of_kind(MemoryKind::Gpu).to_string(), "1");
        assert_eq!(ledger.pools().memory_nodes().to_string(), "0");
        assert_eq!(ledger.pools().memory(), Some(Bytes::gib(16)));
        let found = play(&mut ledger, step);
        assert!(found.contains(expected), "{step}: {found}");
    }
}

/// Found with kubelet's memory manager (kubernetes#134395), which counts pages that others use as free.
#[test]
fn huge_pages_that_others_use_are_not_free() {
    let size = Bytes(2 << 20);
    for (left, step, expected) in [
        ([0, 2], "1 1 huge2M:1", "owns [4] of 4, mems 1"),
        ([0, 2], "1 1 huge2M:1 bound", "owns [4] of 4, mems 1"),
        ([2, 0], "1 1 huge2M:1 bound", "owns [1] of 1, mems 0"),
        ([1, 1], "1 1 huge2M:2", "mems 0-1"),
        ([1, 1], "1 1 huge2M:2 bound", "1 GiB are free"),
        // More than there were when the machine was read.
        ([9, 9], "1 1 huge2M:3 bound", "2 GiB are free"),
    ] {
        let mut ledger = machine("pack:2 numa:1 core:4 pu:1 mem:10 huge:2M=1024", "").unwrap();
        let left = (0..).zip(left).map(|(node, gib)| ((NodeId(node), size), Bytes::gib(gib)));
        ledger.limit_huge_pages(&left.collect());
        let found = play(&mut ledger, step);
        assert!(found.contains(expected), "{step}: {found}");
        ledger.release(parse_step(step).0.id);
        assert_eq!(check_ledger(&ledger), [""; 0]);
    }
}

#[test]
fn too_few_huge_pages_on_the_machine_are_no_refusal() {
    let mut ledger = machine("pack:2 numa:1 core:4 pu:1 mem:10 huge:2M=1024", "").unwrap();
    let mut text = String::new();
    for step in ["1 1 huge2M:3", "2 1 huge2M:3 near:1!", "3 1 huge2M:1", "4 1 huge1G:1 mem:2"] {
        text.push_str(&format!("{step}: {}", play(&mut ledger, step)));
        let wanted = parse_step(step).0;
        let held = ledger.allocation(wanted.id).unwrap();
        for (size, bytes) in held.huge_pages_lacking(&wanted) {
            text.push_str(&format!(", lacks {bytes} of {size}"));
        }
        text.push('\n');
    }
    expect![[r#"
        1 1 huge2M:3: machine, owns [1] of 1, mems 0-1
        2 1 huge2M:3 near:1!: package 1, owns [4] of 4, mems 1, lacks 2 GiB of 2 MiB
        3 1 huge2M:1: package 0, owns [2] of 2, mems 0, lacks 1 GiB of 2 MiB
        4 1 huge1G:1 mem:2: package 0, owns [3] of 3, mems 0, lacks 1 GiB of 1 GiB
    "#]]
    .assert_eq(&text);
}

#[test]
fn huge_pages_are_narrowed_with_the_rest() {
    check_narrowing(
        "pack:2 numa:1 core:4 pu:1 mem:10 huge:2M=2048",
        "",
        &["1 1 huge2M:3 near:0!", "2 1 mem:1 huge2M:2 near:0!", "-1"],
        expect![[r#"
            1 1 huge2M:3 near:0!: package 0, owns [1] of 1, mems 0
            2 1 mem:1 huge2M:2 near:0!: package 0, owns [2] of 2, mems 0-1
            -1: shared 0-1,3-7
            narrow: 2 0-1 -> 0 of 3 GiB
            narrow: 
        "#]],
    );
}

/// Each line: whether a request may start cold, and what it gets if it does; then what it has when that is over.
fn check_cold(line: &str, steps: &[&str], expected: Expect) {
    let mut ledger = machine(line, "").unwrap();
    let mut text = String::new();
    for step in steps {
        let (wanted, _) = parse_step(step);
        let said = match ledger.can_start_cold(&wanted) {
            Err(why) => format!("no: {why}"),
            Ok(()) => {
                let cold = play(&mut ledger, &format!("{step} cold"));
                let warm = ledger.end_cold_start(wanted.id, &wanted.wishes.memory).unwrap();
                format!("{cold}; then mems {warm}")
            }
        };
        text.push_str(&format!("{step}: {said}\n"));
    }
    assert_eq!(check_ledger(&ledger), Vec::<String>::new());
    let again = plan_narrowing(&ledger, |id| {
        let step = steps.iter().find(|it| parse_step(it).0.id == id)?;
        Some(parse_step(&format!("{step} warm")).0)
    });
    assert_eq!(again, [], "what was given after a cold start is not taken away again");
    expected.assert_eq(&text);
}

#[test]
fn a_cold_start_is_on_slow_memory_near_its_cpus_and_ends_with_theirs() {
    check_cold(
        "pack:2 numa:1 core:4 mem:10 pmem:40 online:kernel",
        &[
            "1 1 mem:8 near:1",
            "2 0+100 mem:20",
            "3 2 mem:50",
            "4 1 mem:4 limit:60",
            "5 1 mem:4 memory:Dram",
            "6 1 mem:40",
        ],
        expect![[r#"
            1 1 mem:8 near:1: package 1, owns [4] of 4, mems 3; then mems 1,3
            2 0+100 mem:20: package 0, owns [] of 0-3, mems 2; then mems 0,2
            3 2 mem:50: machine, owns [1-2] of 1-2, mems 2-3; then mems 0,2-3
            4 1 mem:4 limit:60: no: needs 60 GiB of slow memory, 2 GiB are free
            5 1 mem:4 memory:Dram: no: the machine has no slow memory of its kinds
            6 1 mem:40: no: needs 40 GiB of slow memory, 2 GiB are free
        "#]],
    );
}

#[test]
fn there_is_no_cold_start_where_the_kernel_could_not_live() {
    for (line, why) in [
        ("pack:1 numa:1 core:4 mem:10", "the machine has no slow memory of its kinds"),
        ("core:4", "the machine has no slow memory of its kinds"),
        (
            "pack:1 numa:1 core:4 mem:10 cxl:40",
            "the kernel keeps the slow memory movable, and needs other memory too",
        ),
    ] {
        let ledger = machine(line, "").unwrap();
        let refused = ledger.can_start_cold(&parse_step("1 1 mem:4").0).unwrap_err();
        assert_eq!(refused.to_string(), why, "{line}");
    }
}

/// Plays steps; then, for a container and the CPUs that it runs on, the nodes of its home, or why its memory stays.
#[track_caller]
fn check_home(line: &str, steps: &[&str], rows: &[(u64, &str, &str)]) {
    let mut ledger = machine(line, "").unwrap();
    let mut requests = BTreeMap::new();
    for step in steps {
        play(&mut ledger, step);
        if !step.starts_with('-') {
            let (wanted, _) = parse_step(step);
            requests.insert(wanted.id, wanted);
        }
    }
    let before = ledger.clone();
    for (id, cpus, expected) in rows {
        let id = ContainerId(*id);
        let home = ledger.home_of(id, &cpus.parse().unwrap(), || requests.get(&id).cloned());
        let said = home.map_or_else(|why| why.to_string(), |home| home.to_string());
        assert_eq!(said, *expected, "{id} on {cpus}");
    }
    assert_eq!(ledger.holdings(), before.holdings());
}

#[test]
fn memory_goes_home_to_the_nearest_nodes_that_have_room() {
    let steps = ["1 1 mem:8 near:0!", "2 1 mem:28 near:0!", "-1", "3 0+100 near:0!"];
    check_home(
        "pack:2 numa:2 core:4 pu:1 mem:10",
        &steps,
        &[
            // Of 28 GiB ten are near, as many again on each of the nearest nodes.
            (2, "1", "0-2"),
            (3, "0-3", "its memory nodes are those of its CPUs, or as near as they can be"),
            // It runs elsewhere than where its place is.
            (3, "4-7", "1"),
            (3, "0-7", "its memory nodes are those of its CPUs, or as near as they can be"),
        ],
    );
}

#[test]
fn memory_goes_home_where_others_have_left() {
    let steps = ["1 1 mem:9 near:0!", "2 1 mem:9 near:1!", "3 1 mem:8 near:2!"];
    let machine = "pack:2 numa:2 core:4 pu:1 mem:10";
    let wide = [&steps[..], &["4 1 mem:5 near:0!", "-1"]].concat();
    check_home(machine, &wide, &[(4, "2", "0")]);
    let taken = [&wide[..], &["5 1 mem:10 near:0!"]].concat();
    check_home(machine, &taken, &[(4, "2", "too little memory is free nearer to its CPUs")]);
}

#[test]
fn memory_that_is_left_alone_stays() {
    let steps = ["1 0+100 near:0! immovable", "2 0+100 near:0!"];
    let fixed = "its memory nodes are not to be changed";
    let rows = [(1, "4-7", fixed), (2, "4-7", "1"), (9, "4-7", fixed)];
    check_home("pack:2 numa:1 core:4 pu:1 mem:10", &steps, &rows);
}
