//! From facts to the tree: odd machines by hand.

use bayplan_types::{
    Bytes, ClosLimits, CoreId, CorePower, CpuId, CpuSet, NodeId, NodeSet, PowerCore, PowerDomain,
    SpeedSelect,
};
use expect_test::{Expect, expect};

use bayplan_topology::*;

use crate::*;

fn machine(spec: &str) -> Snapshot {
    parse_machine(spec).unwrap()
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn l3(snapshot: &mut Snapshot, cpu: usize) -> &mut CacheFacts {
    let caches = &mut snapshot.cpus[cpu].caches;
    caches.iter_mut().find(|cache| cache.level == Some(3)).unwrap()
}

/// Derives a machine after `change`, and compares the tree that people see.
#[track_caller]
fn check(spec: &str, change: impl FnOnce(&mut Snapshot), expected: Expect) {
    let mut snapshot = machine(spec);
    change(&mut snapshot);
    let topology = derive(&snapshot).unwrap();
    assert_eq!(check_topology(&topology), Vec::<String>::new());
    expected.assert_eq(&render_tree(&topology));
}

#[test]
fn one_cpu_stands_on_one_line() {
    check(
        "one-cpu",
        |_| {},
        expect![[r#"
            Machine: 1 CPU 0, 1 core, 16 GiB
              Package 0 / Die 0 / NumaNode 0 / L3 0: 1 CPU 0, 16 GiB, L3 of 32 MiB
                core 0, 1 CPU 0
        "#]],
    );
}

#[test]
fn nodes_that_hold_far_less_than_the_machine_are_of_unknown_size() {
    check(
        "numa:2 core:1",
        |snapshot| snapshot.mem_total = Some(Bytes::gib(64)),
        expect![[r#"
            Machine: 2 CPUs 0-1, 2 cores
              Package 0 / Die 0: 2 CPUs 0-1
                NumaNode 0: 1 CPU 0, memory of unknown size
                  core 0, 1 CPU 0
                NumaNode 1: 1 CPU 1, memory of unknown size
                  core 1, 1 CPU 1
            Distances between NUMA nodes 0-1:
               0:  10  12
               1:  12  10
            Odd:
              /sys/devices/system/node/node*/meminfo: MemTotal of all nodes is 32 GiB, of /proc/meminfo 64 GiB;
                  assumed: memory of unknown size
        "#]],
    );
    check(
        "numa:2 core:1",
        |snapshot| snapshot.mem_total = Some(Bytes::gib(32)),
        expect![[r#"
            Machine: 2 CPUs 0-1, 2 cores, 32 GiB
              Package 0 / Die 0: 2 CPUs 0-1
                NumaNode 0: 1 CPU 0, 16 GiB
                  core 0, 1 CPU 0
                NumaNode 1: 1 CPU 1, 16 GiB
                  core 1, 1 CPU 1
            Distances between NUMA nodes 0-1:
               0:  10  12
               1:  12  10
        "#]],
    );
}

#[test]
fn a_kernel_that_shows_almost_nothing_still_gives_a_tree() {
    let forget = |snapshot: &mut Snapshot| {
        *snapshot = Snapshot {
            cpus: (0..4).map(|cpu| CpuFacts::new(CpuId(cpu))).collect(),
            ..Snapshot::default()
        };
    };
    check(
        "core:4",
        forget,
        expect![[r#"
            Machine: 4 CPUs 0-3, 4 cores
              cores 0-3, 4 CPUs 0-3
            Odd:
              /sys/devices/system/cpu/cpu*/topology/core_cpus_list: nothing about CPUs 0-3; assumed: one core
                  per core number of a package, or per CPU without one
              /sys/devices/system/cpu/cpu*/topology/physical_package_id: nothing about CPUs 0-3; assumed:
                  outside every package
        "#]],
    );
}

#[test]
fn without_sibling_lists_core_numbers_tell_the_cores() {
    let forget = |snapshot: &mut Snapshot| {
        snapshot.cpus.iter_mut().for_each(|cpu| cpu.thread_siblings = None);
    };
    check(
        "pack:2 core:2 pu:2",
        forget,
        expect![[r#"
            Machine: 8 CPUs 0-7, 4 cores
              Package 0 / Die 0: 4 CPUs 0-1,4-5
                cores 0-1 of 2 threads, 4 CPUs 0-1,4-5
              Package 1 / Die 0: 4 CPUs 2-3,6-7
                cores 0-1 of 2 threads, 4 CPUs 2-3,6-7
            Odd:
              /sys/devices/system/cpu/cpu*/topology/core_cpus_list: nothing about CPUs 0-7; assumed: one core
                  per core number of a package, or per CPU without one
        "#]],
    );
}

#[test]
fn contradicted_siblings_are_cores_of_their_own() {
    let lie = |snapshot: &mut Snapshot| snapshot.cpus[0].thread_siblings = Some(set("0-1"));
    check(
        "numa:1 core:4 pu:2",
        lie,
        expect![[r#"
            Machine: 8 CPUs 0-7, 5 cores, 16 GiB
              Package 0 / Die 0 / NumaNode 0: 8 CPUs 0-7, 16 GiB
                cores 1-3 of 2 threads, 6 CPUs 1-3,5-7
                L2 0: 2 CPUs 0,4, L2 of 2 MiB
                  cores 0, 2 CPUs 0,4
            Odd:
              /sys/devices/system/cpu/cpu*/topology/core_cpus_list: core of CPUs 0-1 according to CPU 0,
                  contradicted by others; assumed: each CPU that says so is a core of its own
              /sys/devices/system/cpu/cpu*/topology/core_cpus_list: core of CPUs 0,4 according to CPU 4,
                  contradicted by others; assumed: each CPU that says so is a core of its own
        "#]],
    );
}

#[test]
fn a_core_across_packages_has_no_place_in_the_tree_but_is_a_core() {
    let lie = |snapshot: &mut Snapshot| {
        for cpu in [1, 2] {
            snapshot.cpus[cpu].thread_siblings = Some(set("1-2"));
        }
    };
    check(
        "pack:2 core:2",
        lie,
        expect![[r#"
            Machine: 4 CPUs 0-3, 3 cores
              Package 0 / Die 0: 2 CPUs 0-1
                core 0, 1 CPU 0
              Package 1 / Die 0: 2 CPUs 2-3
                core 1, 1 CPU 3
            Odd:
              /sys/devices/system/cpu/cpu*/topology: Core 1 (1-2) and Package 0 overlap, neither inside the
                  other; assumed: Core 1 has no place in the tree
        "#]],
    );
}

#[test]
fn a_numa_node_across_packages_stands_beside_the_tree() {
    let lie = |snapshot: &mut Snapshot| {
        snapshot.nodes[0].cpus = Some(set("0-4"));
        snapshot.nodes[1].cpus = Some(set("5-7"));
        snapshot.nodes.push(NodeFacts {
            cpus: Some(CpuSet::new()),
            mem_total: Some(Bytes::gib(64)),
            distances: vec![17, 28, 10],
            ..NodeFacts::new(NodeId(2))
        });
        snapshot.online_nodes = None;
        snapshot.nodes[0].distances = vec![10, 21, 17];
        snapshot.nodes[1].distances = vec![21, 10, 28];
    };
    check(
        "pack:2 numa:1 core:4",
        lie,
        expect![[r#"
            Machine: 8 CPUs 0-7, 8 cores, 32 GiB, 64 GiB Pmem
              Package 0 / Die 0: 4 CPUs 0-3
                cores 0-3, 4 CPUs 0-3
              Package 1 / Die 0: 4 CPUs 4-7
                core 0, 1 CPU 4
                NumaNode 1: 3 CPUs 5-7, 16 GiB
                  cores 1-3, 3 CPUs 5-7
              beside the tree: NumaNode 0: 5 CPUs 0-4, 16 GiB
                NumaNode 2: no CPUs, 64 GiB Pmem
                  memory: movable memory only
            Distances between NUMA nodes 0-2:
               0:  10  21  17
               1:  21  10  28
               2:  17  28  10
            Odd:
              /sys/devices/system/node/node0/cpulist: NumaNode 0 (0-4) and Package 1 overlap, neither inside the
                  other; assumed: NumaNode 0 has no place in the tree
        "#]],
    );
}

#[test]
fn lists_of_online_cpus_that_contradict_the_directories() {
    let lie = |snapshot: &mut Snapshot| {
        snapshot.online = Some(set("0-2,9"));
        snapshot.cpus[2].online = Some(false);
    };
    check(
        "core:4",
        lie,
        expect![[r#"
            Machine: 3 CPUs 0-2, 3 cores
              offline: 1 CPU 3
              Package 0 / Die 0: 3 CPUs 0-2
                cores 0-2, 3 CPUs 0-2
            Odd:
              /sys/devices/system/cpu/online: names CPU 9 without a directory; assumed: not there
              /sys/devices/system/cpu/online: names CPU 2, contrary to cpuN/online; assumed: online
              /sys/devices/system/cpu/online: leaves out CPU 3, contrary to cpuN/online; assumed: offline
        "#]],
    );
}

#[test]
fn memory_and_distances_that_are_not_known() {
    let forget = |snapshot: &mut Snapshot| {
        snapshot.nodes[0].mem_total = None;
        snapshot.nodes[0].distances = vec![10, 3];
        snapshot.nodes[1].distances = vec![21];
        snapshot
            .nodes
            .push(NodeFacts { mem_total: Some(Bytes::ZERO), ..NodeFacts::new(NodeId(7)) });
    };
    check(
        "pack:2 numa:1 core:2",
        forget,
        expect![[r#"
            Machine: 4 CPUs 0-3, 4 cores
              Package 0 / Die 0 / NumaNode 0: 2 CPUs 0-1, memory of unknown size
                NumaNode 7: no CPUs, 0 B
                cores 0-1, 2 CPUs 0-1
              Package 1 / Die 0 / NumaNode 1: 2 CPUs 2-3, 16 GiB
                cores 0-1, 2 CPUs 2-3
            Distances between NUMA nodes 0-1,7:
               0:  10   -   -
               1:   -  10   -
               7:   -   -  10
            Odd:
              /sys/devices/system/node/online: leaves out nodes with a directory: 7; assumed: there
              /sys/devices/system/node/node0/meminfo: no MemTotal; assumed: memory of unknown size
              /sys/devices/system/node/node7/cpulist: no list of CPUs; assumed: the node has no CPUs
              /sys/devices/system/node/node0/distance: distances below 10: 3; assumed: not known
              /sys/devices/system/node/node1/distance: numbers expected: 2, found: 1; assumed: not known
              /sys/devices/system/node/node7/distance: numbers expected: 2, found: 0; assumed: not known
              /sys/devices/system/node/node7/distance: a node without CPUs and without a distance to one that
                  has some; assumed: it is near node 0
        "#]],
    );
}

#[test]
fn l3s_that_contradict_each_other() {
    let lie = |snapshot: &mut Snapshot| {
        l3(snapshot, 0).shared_cpus = Some(set("0-5"));
        l3(snapshot, 4).id = Some(77);
        l3(snapshot, 5).shared_cpus = None;
        snapshot.cpus[8].caches.clear();
    };
    check(
        "pack:1 numa:1 l3:3 core:4",
        lie,
        expect![[r#"
            Machine: 12 CPUs 0-11, 12 cores, 16 GiB
              Package 0 / Die 0 / NumaNode 0: 12 CPUs 0-11, 16 GiB
                cores 0-3, 4 CPUs 0-3
                L3 1: 4 CPUs 4-7, L3 of 32 MiB
                  cores 4-7, 4 CPUs 4-7
                L3 2: 4 CPUs 8-11, L3 of 32 MiB
                  cores 8-11, 4 CPUs 8-11
            Odd:
              /sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list: nothing for the L3 of CPU 5; assumed:
                  what the CPUs that share it say
              /sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list: L3 of CPUs 0-3 according to CPUs 1-3,
                  contradicted by others; assumed: no such L3
              /sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list: L3 of CPUs 0-5 according to CPU 0,
                  contradicted by others; assumed: no such L3
              /sys/devices/system/cpu/cpu*/cache/index3/id: several numbers for the L3 of CPUs 4-7: 1, 77;
                  assumed: 1
        "#]],
    );
}

#[test]
fn some_cpus_know_their_package_and_die_and_some_do_not() {
    let forget = |snapshot: &mut Snapshot| {
        snapshot.cpus[0].package_id = None;
        snapshot.cpus[3].die_id = None;
    };
    check(
        "pack:1 die:2 core:2",
        forget,
        expect![[r#"
            Machine: 4 CPUs 0-3, 4 cores
              core 0, 1 CPU 0
              Package 0: 3 CPUs 1-3
                core 3, 1 CPU 3
                Die 0: 1 CPU 1
                  core 1, 1 CPU 1
                Die 1: 1 CPU 2
                  core 2, 1 CPU 2
            Odd:
              /sys/devices/system/cpu/cpu*/topology/physical_package_id: nothing about CPU 0; assumed: outside
                  every package
              /sys/devices/system/cpu/cpu*/topology/die_id: nothing about CPU 3, but about others of package 0;
                  assumed: outside every die
        "#]],
    );
}

#[test]
fn numbers_beyond_belief_and_numbers_given_twice() {
    let lie = |snapshot: &mut Snapshot| {
        snapshot.cpus.push(CpuFacts::new(CpuId(u32::MAX)));
        snapshot.cpus.push(CpuFacts::new(CpuId(1)));
        snapshot.cpus[0].core_id = Some(CoreId(u32::MAX));
        snapshot.nodes.push(NodeFacts { id: NodeId(u32::MAX), ..snapshot.nodes[0].clone() });
        snapshot.nodes.push(snapshot.nodes[0].clone());
    };
    check(
        "numa:1 core:2",
        lie,
        expect![[r#"
        Machine: 2 CPUs 0-1, 2 cores, 16 GiB
          Package 0 / Die 0 / NumaNode 0: 2 CPUs 0-1, 16 GiB
            cores 1,4294967295, 2 CPUs 0-1
        Odd:
          /sys/devices/system/cpu/cpu4294967295: a number above 16383; assumed: there is no such CPU
          /sys/devices/system/cpu/cpu1: the CPU is there twice; assumed: what the first one says
          /sys/devices/system/node/node4294967295: a number above 2047; assumed: there is no such node
          /sys/devices/system/node/node0: the node is there twice; assumed: what the first one says
    "#]],
    );
}

#[test]
fn a_policy_with_a_number_beyond_belief_has_no_cpus() {
    let mut snapshot = machine("core:2");
    snapshot.policies = [0, 1, u32::MAX].map(|id| PolicyFacts { id, ..Default::default() }).into();
    let topology = derive(&snapshot).unwrap();
    let cpus: Vec<String> = topology.policies().iter().map(|it| it.cpus.to_string()).collect();
    assert_eq!(cpus, ["0", "1"]);
}

#[test]
fn many_oddities_are_counted() {
    let lie = |snapshot: &mut Snapshot| {
        let oddities = (0..25).map(|n| Oddity::new(format!("/sys/{n}"), "nothing", "something"));
        snapshot.oddities = oddities.collect();
    };
    let mut snapshot = machine("one-cpu");
    lie(&mut snapshot);
    let tree = render_tree(&derive(&snapshot).unwrap());
    assert_eq!(tree.lines().last(), Some("  and 5 more"));
}

#[test]
fn a_machine_without_an_online_cpu_is_the_only_error() {
    for (snapshot, message) in [
        (
            Snapshot::default(),
            "no CPU is online: /sys/devices/system/cpu/online holds nothing readable, and there are 0 CPU directories",
        ),
        (
            machine("core:2 offline:0-1"),
            "no CPU is online: /sys/devices/system/cpu/online holds ``, and there are 2 CPU directories",
        ),
    ] {
        assert_eq!(derive(&snapshot).unwrap_err().to_string(), message);
    }
}

#[test]
fn queries_agree_with_the_tree() {
    let topology =
        derive(&machine("pack:2 l3:1 numa:2 core:2 pu:2 offline:9 isolated:2-3,9")).unwrap();
    assert_eq!(topology.root().level, Level::Machine);
    assert_eq!(topology.isolated(), &set("2-3"));
    assert_eq!(topology.core_of(CpuId(8)), Some(&set("0,8")));
    assert_eq!(topology.core_of(CpuId(1)), Some(&set("1")));
    assert_eq!((topology.core_of(CpuId(9)), topology.core_of(CpuId(99))), (None, None));
    assert_eq!(topology.node_of(CpuId(12)), Some(NodeId(2)));
    assert_eq!((topology.node_of(CpuId(9)), topology.node(NodeId(4))), (None, None));
    assert_eq!(topology.nodes_of(&set("1-2,99")), "0-1".parse::<NodeSet>().unwrap());
    let distances = [0, 1, 2, 9].map(|to| topology.distance(NodeId(0), NodeId(to)));
    assert_eq!(distances, [Some(10), Some(12), Some(21), None]);
}

#[test]
fn json_has_a_version_and_everything_else() {
    let json = to_json(&derive(&machine("numa:2 core:1 mem:512M offline:1")).unwrap());
    expect![[r#"
        {"format":"bayplan-topology/2","fingerprint":"14b00b97c114514f","cpus":"0","isolated":"","partitioned":"","nohz_full":"","offline":"1","allowed_cpus":null,"allowed_mems":null,"objects":[{"idx":0,"level":"Machine","id":0,"parent":null,"cpus":"0","mems":"0-1"},
        {"idx":1,"level":"Package","id":0,"parent":0,"cpus":"0","mems":"0-1"},
        {"idx":2,"level":"Die","id":0,"parent":1,"cpus":"0","mems":"0-1"},
        {"idx":3,"level":"NumaNode","id":0,"parent":2,"cpus":"0","mems":"0-1"},
        {"idx":4,"level":"Core","id":0,"parent":3,"cpus":"0","mems":"0-1"}],"cores":["0"],"caches":[{"level":1,"id":0,"size_bytes":49152,"cpus":"0"},
        {"level":2,"id":0,"size_bytes":2097152,"cpus":"0"}],"core_kinds":[],"priorities":{"High":"","Normal":"0","Low":""},"frequencies":[],"nodes":[{"id":0,"cpus":"0","memory_bytes":536870912,"kind":"Dram","evidence":"cpus","movable_only":false,"near":null,"tier":null,"read_bandwidth_mbps":null,"read_latency_ns":null,"side_cache_bytes":[],"huge_pages":[],"distances":[10,12]},
        {"id":1,"cpus":"","memory_bytes":536870912,"kind":"Dram","evidence":"nothing","movable_only":false,"near":0,"tier":null,"read_bandwidth_mbps":null,"read_latency_ns":null,"side_cache_bytes":[],"huge_pages":[],"distances":[12,10]}],"devices":[],"kernel":{"release":null,"cpu_options":[],"controllers":null,"psi":false,"btf":false,"resctrl":null,"cpufreq_driver":null,"cpuidle_driver":null,"idle_states":[],"uncores":[],"speed_select":false},"oddities":[]}"#]]
    .assert_eq(&serde_json::to_string(&json).unwrap().replace("},{", "},\n{"));
}

#[test]
fn what_speed_select_says_is_told_with_the_priorities_that_follow() {
    let core = |number, cpus, clos| PowerCore { number, cpus: set(cpus), clos: Some(clos) };
    let limits = |max_mhz| ClosLimits { min_mhz: 800, max_mhz, weight: 3 };
    let domain = PowerDomain {
        name: "0.0".to_owned(),
        core_power: Some(CorePower::Ordered),
        clos: [3800, 3000, 2000, 1000].map(limits).to_vec(),
        profile: "level=3 of=0,3 locked=1 bf=1 tf=1".parse().ok(),
        is_turbo_frequency_on: false,
        is_base_frequency_on: true,
        cores: vec![core(0, "0", 0), core(2, "1", 2), core(4, "2", 2)],
    };
    let facts = SpeedSelect { domains: vec![domain], ..SpeedSelect::default() };
    let mut snapshot = machine("pack:1 core:3");
    snapshot.kernel.speed_select = Some(Ok(facts));
    let topology = derive(&snapshot).unwrap();
    let tree = render_tree(&topology);
    let lines: Vec<&str> = tree.lines().map(str::trim).collect();
    for expected in [
        "high priority: 1 CPU 0",
        "low priority: 2 CPUs 1-2",
        "Speed Select of power domain 0.0: level 3, locked, base frequency on, core power ordered",
        "class of service 0: 800 to 3800 MHz, weight 3: 1 CPU 0",
        "class of service 2: 800 to 2000 MHz, weight 3: 2 CPUs 1-2",
    ] {
        assert!(lines.contains(&expected), "{expected}: {tree}");
    }
    let json = serde_json::to_string(&to_json(&topology)).unwrap();
    let class = r#"{"min_mhz":800,"max_mhz":2000,"weight":3,"cpus":"1-2"}"#;
    assert!(json.contains(r#""power_domains":[{"name":"0.0","core_power":"ordered","level":3"#));
    assert!(json.contains(class), "{json}");
    let Some(Ok(facts)) = &mut snapshot.kernel.speed_select else { unreachable!() };
    facts.domains[0].core_power = None;
    for (unread, expected) in [(false, "no core power"), (true, "core power not known")] {
        let Some(Ok(facts)) = &mut snapshot.kernel.speed_select else { unreachable!() };
        if unread {
            facts.unread.insert("0.0/core_power".to_owned(), "EIO".to_owned());
        }
        let topology = derive(&snapshot).unwrap();
        let tree = render_tree(&topology);
        assert!(tree.contains(&format!("base frequency on, {expected}\n")), "{tree}");
        assert_eq!(
            tree.contains("Speed Select: cannot read 0.0/core_power: EIO"),
            unread,
            "{tree}"
        );
        let json = serde_json::to_string(&to_json(&topology)).unwrap();
        assert_eq!(json.contains(r#""power_domains_unread":["0.0/core_power: EIO"]"#), unread);
    }
    snapshot.kernel.speed_select = Some(Err("it refuses".to_owned()));
    let tree = render_tree(&derive(&snapshot).unwrap());
    assert!(tree.contains("Speed Select says nothing: it refuses"), "{tree}");
}
