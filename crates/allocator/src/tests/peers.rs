//! What other allocators were seen to do wrong, one test for each, named for what it forbids: kubelet's static policy, CRI Resource
//! Manager, nri-plugins.

use bayplan_types::{CpuSet, MilliCpu};

use super::{machine, play, request};
use crate::*;

/// Plays the steps and returns what the last one said.
fn last(line: &str, reserved: &str, steps: &[&str]) -> String {
    let mut ledger = machine(line, reserved).unwrap();
    steps.iter().map(|step| play(&mut ledger, step)).last().unwrap()
}

fn played(line: &str, reserved: &str, steps: &[&str]) -> Ledger {
    let mut ledger = machine(line, reserved).unwrap();
    for step in steps {
        play(&mut ledger, step);
    }
    ledger
}

#[test]
fn a_request_that_fits_one_package_is_not_split_because_another_has_a_smaller_remnant() {
    // Kubelet takes the fullest package first: {0,6} and {1,7}.
    let steps = ["1 2 near:0!", "2 2 near:0!", "3 4"];
    assert_eq!(
        last("pack:2 numa:1 core:3 pu:2", "", &steps),
        "package 1, owns [3-4,9-10] of 3-4,9-10, mems 1"
    );
}

#[test]
fn spreading_does_not_depend_on_how_siblings_are_numbered() {
    // Kubelet's distribute-cpus-across-cores sorts numbers and gets both threads of a core where siblings are 0 and 1.
    let mut snapshot = bayplan_topology::parse_machine("numa:1 core:4 pu:2").unwrap();
    for (at, cpu) in (0u32..).zip(&mut snapshot.cpus) {
        let core = at / 2;
        cpu.core_id = Some(bayplan_types::CoreId(core));
        let siblings: CpuSet = format!("{}-{}", core * 2, core * 2 + 1).parse().unwrap();
        cpu.thread_siblings = Some(siblings.clone());
        for cache in &mut cpu.caches {
            if cache.level < Some(3) {
                cache.shared_cpus = Some(siblings.clone());
            }
        }
    }
    let topology = bayplan_topology::derive(&snapshot).unwrap();
    let pools = policy::pools(&topology, policy::Policy::default(), &CpuSet::new()).unwrap();
    let mut ledger = Ledger::new(std::sync::Arc::new(pools));
    assert_eq!(play(&mut ledger, "1 3 spread"), "machine, owns [2,4,6] of 2,4,6, mems 0");
}

#[test]
fn performance_cores_are_whole_cores_beside_efficient_ones() {
    // Kubelet divides CPUs by cores, gets less than two, and takes efficient cores for whole ones.
    assert_eq!(
        last("numa:1 l3:1 core:2 pu:2 ecore:4", "", &["1 2"]),
        "machine, owns [1,3] of 1,3, mems 0"
    );
}

#[test]
fn one_cache_is_enough_where_one_has_room() {
    // Two L3s with 4 and 6 CPUs: five go into the one with six. Seven need both: all of the larger, and from the smaller what is missing.
    let last_of = |step| last("numa:1 l3:2 core:8", "0-3,8-9", &[step]);
    assert_eq!(last_of("1 5"), "l3 1, owns [10-14] of 10-14, mems 0");
    assert_eq!(last_of("1 7"), "machine, owns [4,10-15] of 4,10-15, mems 0");
}

#[test]
fn a_large_container_after_many_small_ones_still_fits_one_node() {
    // nri-plugins spreads four containers of one CPU over four packages, and a container as large as a package then spans two.
    let steps = ["1 1", "2 1", "3 1", "4 1", "5 36"];
    assert!(
        last("pack:4 numa:1 core:18 pu:2", "", &steps)
            .starts_with("package 1, owns [18-35,90-107]")
    );
}

#[test]
fn a_failed_resize_leaves_the_grant_and_no_other_container_gets_it() {
    // CRI Resource Manager and nri-plugins release before they ask, and give the CPUs away twice.
    let mut ledger = played("numa:1 core:8 pu:2", "0,8", &["1 2", "2 2"]);
    let before = ledger.holdings().clone();
    let held = ledger.allocation(ContainerId(1)).unwrap().clone();
    let mut wanted = request(1, 30, None);
    wanted.previous = Some(Previous { pool: held.pool, exclusive: held.exclusive.clone() });
    let mut tried = ledger.clone();
    tried.release(ContainerId(1)).unwrap();
    assert!(offer(&tried, &wanted).is_err());
    assert_eq!(*ledger.holdings(), before);
    play(&mut ledger, "3 4");
    let third = ledger.allocation(ContainerId(3)).unwrap();
    assert!(third.exclusive.is_disjoint(&held.exclusive));
}

#[test]
fn growing_and_shrinking_keeps_the_cpus_that_were_promised() {
    // nri-plugins: 2 to 4 to 1 CPUs went from 1-2,11-12 to 10.
    let steps = ["1 2", "2 2", "1=4", "1=1"];
    let mut ledger = machine("numa:1 core:10 pu:2", "").unwrap();
    let said: Vec<String> = steps.iter().map(|step| play(&mut ledger, step)).collect();
    assert_eq!(said[0], "machine, owns [1,11] of 1,11, mems 0");
    assert_eq!(said[2], "machine, owns [1,3,11,13] of 1,3,11,13, mems 0");
    assert_eq!(said[3], "machine, owns [1] of 1, mems 0");
}

#[test]
fn best_effort_and_system_pods_start_on_a_machine_whose_shared_cpus_are_fully_requested() {
    // CRI Resource Manager and nri-plugins: 19 Burstable containers of one CPU on 20, then every BestEffort and kube-system pod fails.
    let mut ledger = machine("numa:1 core:20", "0").unwrap();
    for id in 0..19 {
        play(&mut ledger, &format!("{id} 0+1000"));
    }
    for id in 19..40 {
        let said = play(&mut ledger, &format!("{id} 0+0"));
        assert_eq!(said, "machine, owns [] of 1-19, mems 0");
    }
    assert_eq!(play(&mut ledger, "40 0+100 reserved"), "machine, owns [] of 0, mems 0");
}

#[test]
fn a_pool_that_cannot_be_carved_is_not_the_end() {
    // nri-plugins choose a pool by its score, and fail when its CPUs cannot be taken.
    let steps = ["1 0+7500", "2 4", "3 4"];
    assert_eq!(last("numa:2 core:8", "", &steps), "numa 1, owns [12-15] of 12-15, mems 1");
}

#[test]
fn a_node_without_the_memory_is_refused_to_a_bound_container() {
    // nri-plugins accepted a pod strict on one node with 250 GB of memory, on all nodes.
    let said = last("numa:4 core:4 mem:100", "", &["1 2 near:3! mem:250 bound"]);
    assert_eq!(said, "refused: is not near `device at 3`");
}

#[test]
fn memory_widens_by_one_near_node_and_not_to_all() {
    // nri-plugins: four containers of 25 GB and one of 20 GB on four nodes of 32 GB ended with all four nodes.
    let steps = ["1 1 mem:25", "2 1 mem:25", "3 1 mem:25", "4 1 mem:25", "5 1 mem:12"];
    let said = last("pack:2 numa:2 core:4 mem:32", "", &steps);
    assert!(said.ends_with("mems 0-1"), "{said}");
}

#[test]
fn a_node_holds_containers_of_one_node_and_of_several_at_once() {
    // Kubelet's memory manager: one container over two nodes blocks both for containers of one node.
    let steps = ["1 6 mem:12", "2 1 mem:2", "3 1 mem:2"];
    let ledger = played("numa:2 core:5 mem:10", "", &steps);
    assert_eq!(ledger.allocations().count(), 3);
    assert_eq!(ledger.allocation(ContainerId(1)).unwrap().mems.len(), 2);
    assert_eq!(ledger.allocation(ContainerId(2)).unwrap().mems.len(), 1);
}

#[test]
fn no_container_is_touched_whose_cpus_do_not_change() {
    // nri-plugins rewrite every shared container at every event.
    let mut ledger =
        played("pack:2 numa:2 core:8 pu:2", "", &["1 0+500", "2 0+500", "3 0+500", "4 0+500"]);
    let before: Vec<CpuSet> = ledger.allocations().map(|(_, held)| ledger.cpus_of(held)).collect();
    play(&mut ledger, "5 4");
    let after: Vec<CpuSet> =
        ledger.allocations().take(4).map(|(_, held)| ledger.cpus_of(held)).collect();
    assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 1);
}

#[test]
fn an_odd_number_of_cpus_does_not_share_a_core_that_another_container_wants_alone() {
    // nri-plugins: containers of one CPU get the sibling of another's exclusive CPU, whichever it is.
    let ledger = played("numa:1 core:8 pu:2", "", &["1 1 idle", "2 1 shared", "3 1", "4 1"]);
    let own = |id| &ledger.allocation(ContainerId(id)).unwrap().exclusive;
    let core_of = |id| own(id).first().unwrap().0 % 8;
    assert_ne!(core_of(1), core_of(3));
    assert_ne!(core_of(2), core_of(3));
    assert_eq!(core_of(3), core_of(4));
}

#[test]
fn spreading_is_over_cores_also_where_a_package_is_nearly_full() {
    // Kubelet's distribute-cpus-across-cores takes both threads of the last core of the fuller package.
    assert_eq!(
        last("pack:2 numa:1 core:3 pu:2", "", &["1 4 near:0!", "2 2 spread"]),
        "package 1, owns [3-4] of 3-4, mems 1"
    );
}

#[test]
fn cores_are_counted_and_not_computed_from_averages() {
    // Kubelet divides CPUs by cores and cores by packages: offline siblings, four threads and unequal packages go wrong.
    let cases: [(&str, &[&str], &str); 5] = [
        ("numa:1 core:3 pu:2 offline:4", &["1 2"], "machine, owns [2,5] of 2,5, mems 0"),
        ("numa:1 core:3 pu:2 offline:4", &["1 2", "2 1"], "machine, owns [1] of 1, mems 0"),
        ("numa:1 core:3 pu:4", &["1 4"], "machine, owns [1,4,7,10] of 1,4,7,10, mems 0"),
        (
            "pack:2 numa:1 core:4,2 pu:2",
            &["1 4"],
            "package 1, owns [4-5,10-11] of 4-5,10-11, mems 1",
        ),
        ("pack:2 numa:1 core:4,2 pu:2", &["1 6"], "package 0, owns [1-3,7-9] of 1-3,7-9, mems 0"),
    ];
    for (line, steps, expected) in cases {
        assert_eq!(last(line, "", steps), expected, "{line} {steps:?}");
    }
}

#[test]
fn caches_stay_whole_also_where_cpus_are_distributed_over_nodes() {
    // Kubelet's prefer-align-cpus-by-uncorecache does nothing beside distribute-cpus-across-numa.
    assert_eq!(
        last("pack:1 numa:2 l3:3 core:4", "", &["1 16 even"]),
        "machine, owns [0-7,12-19] of 0-7,12-19, mems 0-1"
    );
}

#[test]
fn more_nodes_than_a_mask_has_bits_are_no_harder() {
    // Kubelet tries every set of nodes, and gives up beyond eight; nri-plugins' memory allocator has a mask of 64.
    let line = "pack:4 numa:32 core:2 mem:1";
    assert_eq!(
        last(line, "", &["1 4 near:100 mem:3"]),
        "package 3, owns [192-195] of 192-195, mems 96-98"
    );
}

#[test]
fn a_restart_moves_no_container_in_whatever_order_they_are_found() {
    // nri-plugins place all containers anew, in the order of a hash map.
    let steps = ["1 3", "2 0+700", "3 5", "4 1+500", "-1", "5 2", "6 0+0", "7 7"];
    let ledger = played("pack:2 numa:2 core:4 pu:2 mem:8", "0", &steps);
    let mut again = Ledger::new(std::sync::Arc::new(ledger.pools().clone()));
    let held: Vec<_> = ledger.allocations().map(|(id, held)| (id, held.clone())).collect();
    for (id, held) in held.into_iter().rev() {
        again.adopt(id, held).unwrap();
    }
    assert_eq!(again.holdings(), ledger.holdings());
    let wanted = request(9, 2, Some(300));
    let places = [&ledger, &again].map(|it| offer(it, &wanted).unwrap().allocation().clone());
    assert_eq!(places[0], places[1]);
}

#[test]
fn several_devices_are_near_together() {
    // nri-plugins take one group of CPUs for each device, wherever the groups are.
    let line = "pack:2 numa:2 core:4";
    let cases = [
        ("1 2 near:2 near:3", "numa 2, owns [8-9] of 8-9, mems 2"),
        ("1 6 near:2 near:3", "package 1, owns [8-13] of 8-13, mems 2-3"),
        ("1 2 near:0 near:3 near:3", "numa 3, owns [12-13] of 12-13, mems 3"),
    ];
    for (step, expected) in cases {
        assert_eq!(last(line, "", &[step]), expected, "{step}");
    }
}

#[test]
fn distances_that_differ_by_direction_are_no_reason_to_do_nothing() {
    // nri-plugins refuse to start on such a machine.
    let mut snapshot = bayplan_topology::parse_machine("pack:2 numa:1 core:2 mem:4").unwrap();
    snapshot.nodes[0].distances = vec![10, 40];
    let topology = bayplan_topology::derive(&snapshot).unwrap();
    let pools = policy::pools(&topology, policy::Policy::default(), &CpuSet::new()).unwrap();
    let mut ledger = Ledger::new(std::sync::Arc::new(pools));
    assert_eq!(play(&mut ledger, "1 2 mem:6"), "machine, owns [0-1] of 0-1, mems 0-1");
}

#[test]
fn the_order_of_scores_is_total_and_strict() {
    // nri-plugins sort with a comparison by which a can be better than b and b better than a.
    let ledger = played("pack:2 numa:2 core:4 pu:2", "", &["1 3", "2 0+700", "3 5"]);
    let demand = Demand::new(1, Some(MilliCpu(300)));
    let offer = offer(&ledger, &Request::new(ContainerId(9), demand)).unwrap();
    let scores: Vec<&Score> =
        offer.considered().iter().filter_map(|it| it.outcome.as_ref().ok()).collect();
    for (at, one) in scores.iter().enumerate() {
        for (other_at, other) in scores.iter().enumerate() {
            assert_eq!(one.cmp(other) == std::cmp::Ordering::Equal, at == other_at);
            assert_eq!(one.cmp(other), other.cmp(one).reverse());
        }
    }
}
