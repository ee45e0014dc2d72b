//! Legends, names, and pictures in which there is very much.

use super::*;

#[test]
fn the_place_of_each_container_is_in_the_legend() {
    check(
        &pmem_and_devices(),
        &seat,
        expect![[r#"
            page: 110 CPUs, 55 cores, 2 packages, 2.3 TiB | 2 threads per core, 6 NUMA nodes, 384 GiB Dram, 1.9 TiB Pmem, 2 L3s, 13 devices
              machine
                package: Package 0
                  l3: L3 0 · 38.5 MiB
                    node
                      dram: NumaNode 0 | 96 GiB Dram | CPUs 0-12,56-68
                      pmem: NumaNode 4 | 1008 GiB Pmem | no CPUs
                      core [0 Reserved High, 56 Reserved High] [1 Reserved High, 57 Reserved High] [2 | a High, 58 | a High] [3 | a High, 59 | a High] [4 | A Isolated High, 60 | A Isolated High] [5 | A Isolated High, 61 | A Isolated High] [6 Isolated Low, 62 Isolated Low] [7 Isolated Low, 63 Isolated Low] [8 | B Low, 64 | B Low] [9 | B Low, 65 | B Low] [10 | B Low, 66 | B Low] [11 | B Low, 67 | B Low] [12 | a Low, 68 | a Low]
                      network: ens1f0np0 | network · 8 VFs
                      network: ens1f1np1 | network
                    node
                      dram: NumaNode 1 | 96 GiB Dram | CPUs 14-27,70-83
                      core [14 | C Low, 70 | C Low] [15 | C Low, 71 | C Low] [16 | C Low, 72 | C Low] [17 | C Low, 73 | C Low] [18 | C Low, 74 | C Low] [19 | C Low, 75 | C Low] [20 | b Low, 76 | b Low] [21 | b Low, 77 | b Low] [22 | b Low, 78 | b Low] [23 | b Low, 79 | b Low] [24 | b Low, 80 | b Low] [25 | b Low, 81 | b Low] [26 | b Low, 82 | b Low] [27 | b Low, 83 | b Low]
                      accelerator: 4 × 8086:0b25 | accelerator · idxd
                package: Package 1
                  l3: L3 1 · 38.5 MiB
                    node
                      dram: NumaNode 2 | 96 GiB Dram | CPUs 28-41,84-97
                      pmem: NumaNode 5 | 1008 GiB Pmem | no CPUs
                      core [28 | D, 84 | D] [29 | D, 85 | D] [30 | D, 86 | D] [31 | D, 87 | D] [32 | D, 88 | D] [33 | D, 89 | D] [34 | D, 90 | D] [35 | D, 91 | D] [36 | D, 92 | D] [37 | D, 93 | D] [38 | D, 94 | D] [39 | D, 95 | D] [40 | D, 96 | D] [41 | D, 97 | D]
                      accelerator: nvidia0, dri/card1, dri/renderD128 | accelerator
                    node
                      dram: NumaNode 3 | 96 GiB Dram | CPUs 42-55,98-111
                      core [42 | c, 98] [43 | c, 99] [44 | c, 100] [45 | c, 101] [46 | c, 102] [47 | c, 103] [48 | c, 104] [49 | c, 105] [50 | c, 106] [51, 107] [52, 108] [53, 109] [54, 110] [55, 111]
                      storage: nvme0n1 | storage
                      storage: nvme1n1 | storage
                network: eno1 | network
                other: 3 others | devices
                offline: offline: CPUs 13,69
              text: Distances between NUMA nodes
                text: from to
                text: node 0
                text: node 1
                text: node 2
                text: node 3
                text: node 4
                text: node 5
                text: node 0
                text: 10
                text: 11
                text: 21
                text: 21
                text: 17
                text: 28
                text: node 1
                text: 11
                text: 10
                text: 21
                text: 21
                text: 17
                text: 28
                text: node 2
                text: 21
                text: 21
                text: 10
                text: 11
                text: 28
                text: 17
                text: node 3
                text: 21
                text: 21
                text: 11
                text: 10
                text: 28
                text: 17
                text: node 4
                text: 17
                text: 17
                text: 28
                text: 28
                text: 10
                text: 28
                text: node 5
                text: 28
                text: 28
                text: 17
                text: 17
                text: 28
                text: 10
              legend
                text: isolated, | telco/upf-0/dataplane | 4 CPUs 4-5,60-61
                  cpu A Isolated
                text: default/web-7d4b9/app | 8 CPUs 8-11,64-67
                  cpu B
                text: shop/postgres-0/postgres | 12 CPUs 14-19,70-75
                  cpu C
                text: ml/trainer-0/train | 28 CPUs 28-41,84-97
                  cpu D
                text: reserved, system pods | 4 CPUs 0-1,56-57
                  cpu  Reserved
                text: isolated | 4 CPUs 6-7,62-63
                  cpu  Isolated
                text: shared, numa 0 | 6 CPUs 2-3,12,58-59,68 | default/web-7d4b9/sidecar
                  cpu a
                text: shared, numa 1 | 16 CPUs 20-27,76-83 | kube-system/coredns-1/coredns, | monitoring/prometheus-0/prometheus, | default/job-1/a
                  cpu b
                text: shared, numa 3 | 9 CPUs 42-50 | batch/render-1/render
                  cpu c
                text: a core and its CPUs
                  core []
                text: high priority
                  cpu  High
                text: low priority
                  cpu  Low
        "#]],
    );
}

#[test]
fn foreign_names_are_escaped_and_broken_and_do_not_become_markup() {
    let mut snapshot = machine("numa:1 core:1");
    let names = ["</text><script>", "a&b\"c'", "tab\there", &"long".repeat(15)];
    snapshot.devices = vec![device("0000:01:00.0", 0x02_0000, Some(0), &names)];
    check_bare(
        &snapshot,
        expect![[r#"
            page: 1 CPU, 1 core, 1 package, 16 GiB | 1 thread per core, 1 NUMA node, 1 device
              machine
                package: Package 0
                  node
                    dram: NumaNode 0 | 16 GiB Dram | CPU 0
                    core [0]
                    network: </text><script>, a&b"c', tab�here, | longlonglonglonglonglonglonglonglonglong | longlonglonglonglong | network
              legend
                text: a core and its CPUs
                  core []
        "#]],
    );
    let topology = derive(&snapshot).unwrap();
    let svg = render_svg(&topology, &|_| None);
    assert!(svg.contains("&lt;/text&gt;&lt;script&gt;,"), "{svg}");
    assert!(svg.contains("a&amp;b&quot;c&#39;,"), "{svg}");
}

#[test]
fn many_equal_devices_are_counted() {
    let mut snapshot = machine("numa:1 core:1");
    snapshot.devices = (0..20)
        .map(|n| {
            let mut engine = device(&format!("0000:{n:02x}:01.0"), 0x08_8000, Some(0), &[]);
            engine.driver = Some("idxd".to_owned());
            engine
        })
        .collect();
    snapshot.devices.push(device("0000:40:00.0", 0x08_8000, Some(0), &["dsa/wq0.0"]));
    snapshot.devices.push(device("0000:41:00.0", 0x0c_0330, Some(0), &[]));
    let mut lost = device("0000:42:00.1", 0x02_0000, Some(0), &["vf0"]);
    lost.physical = Some("0000:99:00.0".parse().unwrap());
    snapshot.devices.push(lost);
    check_bare(
        &snapshot,
        expect![[r#"
            page: 1 CPU, 1 core, 1 package, 16 GiB | 1 thread per core, 1 NUMA node, 23 devices
              machine
                package: Package 0
                  node
                    dram: NumaNode 0 | 16 GiB Dram | CPU 0
                    core [0]
                    network: vf0 | network
                    accelerator: 20 devices | accelerator | idxd
                    accelerator: dsa/wq0.0 | accelerator
                    other: 0000:41:00.0 | other
              legend
                text: a core and its CPUs
                  core []
        "#]],
    );
    let svg = render_svg(&derive(&snapshot).unwrap(), &|_| None);
    assert!(svg.contains("0000:0f:01.0 and 4 more</title>"), "{svg}");
}

#[test]
fn a_pool_with_very_many_containers_counts_the_last_ones() {
    let seat = |_| {
        Some(Seat {
            class: bayplan_types::CpuClass::Shared,
            label: "machine".to_owned(),
            guests: (0..20).map(|n| format!("ns/pod-{n}/c")).collect(),
        })
    };
    check(
        &machine("core:1"),
        &seat,
        expect![[r#"
            page: 1 CPU, 1 core, 1 package | 1 thread per core
              machine
                package: Package 0 | CPU 0
                  core [0 | a]
              legend
                text: shared, machine | 1 CPU 0 | ns/pod-0/c, | ns/pod-1/c, | ns/pod-2/c, | ns/pod-3/c, | ns/pod-4/c, | ns/pod-5/c, | ns/pod-6/c, | ns/pod-7/c, | ns/pod-8/c, | ns/pod-9/c, | ns/pod-10/c, | ns/pod-11/c, | and 8 more
                  cpu a
                text: a core and its CPUs
                  core []
        "#]],
    );
}

#[test]
fn a_thousand_cpus_fit_on_a_sheet_with_their_numbers_and_more_do_not() {
    let cpu_texts = |spec: &str| {
        let topology = derive(&machine(spec)).unwrap();
        let mut text = String::new();
        outline(&layout(&topology, "", &|_| None).sheet, 0, &mut text);
        text
    };
    assert!(cpu_texts("numa:1 core:1024").contains("[1023]"));
    let without = cpu_texts("pack:2 numa:1 l3:2 core:200 pu:2");
    expect![[r#"
        page: 1600 CPUs, 800 cores, 2 packages, 32 GiB | 2 threads per core, 2 NUMA nodes, 4 L3s
          machine
            package: Package 0
              node
                dram: NumaNode 0 | 16 GiB Dram | CPUs 0-399,800-1199
                l3: L3 0 · 32 MiB
                  text: CPUs 0-199,800-999
                  core [, ]
                l3: L3 1 · 32 MiB
                  text: CPUs 200-399,1000-1199
                  core [, ]
            package: Package 1
              node
                dram: NumaNode 1 | 16 GiB Dram | CPUs 400-799,1200-1599
                l3: L3 2 · 32 MiB
                  text: CPUs 400-599,1200-1399
                  core [, ]
                l3: L3 3 · 32 MiB
                  text: CPUs 600-799,1400-1599
                  core [, ]
          text: Distances between NUMA nodes
            text: from to
            text: node 0
            text: node 1
            text: node 0
            text: 10
            text: 21
            text: node 1
            text: 21
            text: 10
          legend
            text: a core and its CPUs
              core []
    "#]]
    .assert_eq(&without.replace("[, ] ", ""));
}
