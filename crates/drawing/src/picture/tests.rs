//! Pictures of small machines and of odd ones, by hand.
#![allow(clippy::too_many_lines, reason = "a line of a picture is a line of its test")]

use std::fmt::Write as _;

use bayplan_types::CpuId;
use expect_test::{Expect, expect};

use crate::picture::layout;
use crate::picture::layout::Area;
use crate::picture::samples::*;
use crate::picture::style::Style;
use bayplan_topology::*;

use crate::*;

/// What stands in a picture, without coordinates: a line per box, cores on one line with their CPUs in brackets.
#[track_caller]
fn check(snapshot: &Snapshot, seat_of: &dyn Fn(CpuId) -> Option<Seat>, expected: Expect) {
    let topology = derive(snapshot).unwrap();
    let mut text = String::new();
    outline(&layout(&topology, "", seat_of).sheet, 0, &mut text);
    expected.assert_eq(&text);
}

#[track_caller]
fn check_bare(snapshot: &Snapshot, expected: Expect) {
    check(snapshot, &|_| None, expected);
}

fn words(area: &Area) -> String {
    let texts: Vec<&str> = area.texts.iter().map(|text| text.text.as_str()).collect();
    texts.join(" | ")
}

fn is_cell(area: &Area) -> bool {
    matches!(area.style, Style::Core(_) | Style::Cpu(_))
}

fn cell(area: &Area) -> String {
    let marks = match area.style {
        Style::Cpu(look) => {
            [look.hatch.map(|hatch| format!("{hatch:?}")), look.bar.map(|bar| format!("{bar:?}"))]
        }
        _ => [None, None],
    };
    let marks: String = marks.into_iter().flatten().map(|mark| format!(" {mark}")).collect();
    match area.style {
        Style::Core(_) => {
            let cpus: Vec<String> = area.areas.iter().map(cell).collect();
            format!("[{}]", cpus.join(", "))
        }
        _ => format!("{}{marks}", words(area)),
    }
}

fn outline(area: &Area, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let class = match area.style {
        Style::Legend => "legend",
        Style::Invisible => "text",
        style => style.class().unwrap_or_default(),
    };
    let words = words(area);
    writeln!(text, "{indent}{class}{}{words}", if words.is_empty() { "" } else { ": " }).unwrap();
    let mut kind = None;
    for inner in &area.areas {
        match (is_cell(inner), kind == inner.style.class()) {
            (false, _) => {
                outline(inner, depth + 1, text);
                kind = None;
            }
            (true, true) => {
                text.truncate(text.trim_end().len());
                writeln!(text, " {}", cell(inner)).unwrap();
            }
            (true, false) => {
                kind = inner.style.class();
                let class = kind.unwrap_or_default();
                writeln!(text, "{indent}  {class} {}", cell(inner)).unwrap();
            }
        }
    }
}

#[test]
fn one_cpu_as_svg() {
    let topology = derive(&machine("one-cpu")).unwrap();
    expect![[r##"
        <svg xmlns="http://www.w3.org/2000/svg" class="bayplan" width="297mm" height="210mm" viewBox="0 0 340 241">
        <title>1 CPU, 1 core, 1 package, 16 GiB</title>
        <style>
        .bayplan text{font-family:sans-serif;fill:#000}
        .bayplan rect{stroke:#333;stroke-width:.6}
        .bayplan .c{text-anchor:middle}
        .bayplan .page,.bayplan .bar{stroke:none}
        .bayplan .machine,.bayplan .package{stroke:#222;stroke-width:1}
        .bayplan .frame{stroke:#666;stroke-width:.5}
        .bayplan .large{stroke:#000;stroke-width:1.3}
        .bayplan .cpu{stroke:#888;stroke-width:.4}
        .bayplan .offline{stroke:#666;stroke-dasharray:3 2}
        .bayplan .page{fill:#fff}
        .bayplan .machine{fill:#fafafa}
        .bayplan .package{fill:#eceff3}
        .bayplan .die{fill:#f6f7f9}
        .bayplan .node{fill:#eef6ea}
        .bayplan .l3{fill:#fdf3dc}
        .bayplan .frame{fill:none}
        .bayplan .core{fill:#fff}
        .bayplan .small{fill:#e4e4e4}
        .bayplan .dram{fill:#d3eac6}
        .bayplan .hbm{fill:#f7d3cd}
        .bayplan .pmem{fill:#dbd2ee}
        .bayplan .cxl{fill:#cbe3f4}
        .bayplan .network{fill:#d9e8fb}
        .bayplan .storage{fill:#fbe6c9}
        .bayplan .accelerator{fill:#e9ddf6}
        .bayplan .other{fill:#efefef}
        .bayplan .offline{fill:#fff}
        .bayplan .f1{font-size:15px;font-weight:bold}
        .bayplan .f2{font-size:9px;font-weight:bold}
        .bayplan .f3{font-size:8px}
        .bayplan .f4{font-size:7px}
        .bayplan .f5{font-size:6px}
        </style>
        <rect class="page" x="0" y="0" width="340" height="241"/><text class="f1" x="14" y="29">1 CPU, 1 core, 1 package, 16 GiB</text><text class="f3" x="14" y="41">1 thread per core, 1 NUMA node, 1 L3</text>
        <g><title>Machine: CPU 0</title><rect class="machine" x="14" y="46" width="312" height="147" rx="4"/>
        <g><title>Package 0: 1 CPU 0</title><rect class="package" x="20" y="52" width="300" height="135" rx="4"/><text class="f2" x="26" y="67">Package 0</text>
        <g><title>NumaNode 0: 1 CPU 0</title><rect class="node" x="26" y="73" width="288" height="108" rx="3"/>
        <g><title>NumaNode 0; 16 GiB Dram; CPU 0</title><rect class="dram" x="31" y="78" width="278" height="37" rx="2"/><text class="f2" x="34" y="90">NumaNode 0</text><text class="f3" x="34" y="101">16 GiB Dram</text><text class="f4" x="34" y="110">CPU 0</text></g>
        <g><title>L3 0: 1 CPU 0</title><rect class="l3" x="31" y="118" width="278" height="58" rx="3"/><text class="f3" x="36" y="131">L3 0 · 32 MiB</text>
        <g><title>Core 0: CPU 0, L1 48 KiB, L2 2 MiB</title><rect class="core" x="156" y="136" width="28" height="35" rx="1"/><rect class="cpu" x="158" y="138" width="24" height="31" fill="#fff"/><text class="f3 c" x="170" y="156">0</text></g></g></g></g></g>
        <text class="f3" x="38" y="213">a core and its CPUs</text>
        <rect class="core" x="20" y="202" width="14" height="16" rx="1"/><rect class="cpu" x="22" y="204" width="10" height="12" fill="#fff"/>
        </svg>
    "##]].assert_eq(&render_svg(&topology, &|_| None));
}

#[test]
fn what_nests_in_what_follows_the_tree() {
    check_bare(
        &machine("pack:1 numa:1 l3:2 core:2 pu:2"),
        expect![[r#"
            page: 8 CPUs, 4 cores, 1 package, 16 GiB | 2 threads per core, 1 NUMA node, 2 L3s
              machine
                package: Package 0
                  node
                    dram: NumaNode 0 | 16 GiB Dram | CPUs 0-7
                    l3: L3 0 · 32 MiB
                      core [0, 4] [1, 5]
                    l3: L3 1 · 32 MiB
                      core [2, 6] [3, 7]
              legend
                text: a core and its CPUs
                  core []
        "#]],
    );
    check_bare(
        &machine("pack:1 l3:1 numa:2 core:2"),
        expect![[r#"
            page: 4 CPUs, 4 cores, 1 package, 32 GiB | 1 thread per core, 2 NUMA nodes, 1 L3
              machine
                package: Package 0
                  l3: L3 0 · 32 MiB
                    node
                      dram: NumaNode 0 | 16 GiB Dram | CPUs 0-1
                      core [0] [1]
                    node
                      dram: NumaNode 1 | 16 GiB Dram | CPUs 2-3
                      core [2] [3]
              text: Distances between NUMA nodes
                text: from to
                text: node 0
                text: node 1
                text: node 0
                text: 10
                text: 12
                text: node 1
                text: 12
                text: 10
              legend
                text: a core and its CPUs
                  core []
        "#]],
    );
    check_bare(
        &machine("numa:2 pack:1 die:2 core:1"),
        expect![[r#"
            page: 4 CPUs, 4 cores, 2 packages, 32 GiB | 1 thread per core, 2 NUMA nodes
              machine
                package: Package 0
                  node
                    dram: NumaNode 0 | 16 GiB Dram | CPUs 0-1
                    die: Die 0
                      core [0]
                    die: Die 1
                      core [1]
                package: Package 1
                  node
                    dram: NumaNode 1 | 16 GiB Dram | CPUs 2-3
                    die: Die 0
                      core [2]
                    die: Die 1
                      core [3]
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
        "#]],
    );
}

#[test]
fn a_machine_of_which_nothing_is_known_but_its_cpus() {
    let cpus = (0..3).map(|cpu| CpuFacts::new(CpuId(cpu))).collect();
    check_bare(
        &Snapshot { cpus, ..Snapshot::default() },
        expect![[r#"
            page: 3 CPUs, 3 cores | 1 thread per core
              machine
                core [0] [1] [2]
              legend
                text: a core and its CPUs
                  core []
        "#]],
    );
}

#[test]
fn a_node_that_does_not_nest_stands_beside_the_packages_with_what_is_near_it() {
    check_bare(
        &across(),
        expect![[r#"
            page: 8 CPUs, 8 cores, 2 packages, 96 GiB | 1 thread per core, 3 NUMA nodes, 32 GiB Dram, 64 GiB Pmem
              machine
                package: Package 0
                  core [0] [1] [2] [3]
                package: Package 1
                  core [4]
                  node
                    dram: NumaNode 1 | 16 GiB Dram | CPUs 5-7
                    core [5] [6] [7]
                dram: NumaNode 0 | 16 GiB Dram | CPUs 0-4 | across other boxes
                pmem: NumaNode 2 | 64 GiB Pmem | no CPUs
              text: Distances between NUMA nodes
                text: from to
                text: node 0
                text: node 1
                text: node 2
                text: node 0
                text: 10
                text: 21
                text: 17
                text: node 1
                text: 21
                text: 10
                text: 28
                text: node 2
                text: 17
                text: 28
                text: 10
              legend
                text: a core and its CPUs
                  core []
        "#]],
    );
}

#[test]
fn large_and_small_cores_and_the_caches_they_share() {
    check_bare(
        &hybrid(),
        expect![[r#"
            page: 32 CPUs, 24 cores, 1 package | 8 performance cores, 16 efficient cores, 1 L3
              machine
                package: Package 0 | CPUs 0-31
                  l3: L3 0 · 36 MiB
                    core large [0, 1] [2, 3] [4, 5] [6, 7] [8, 9] [10, 11] [12, 13] [14 Isolated, 15 Isolated]
                    frame: L2 · 4 MiB
                      small [16] [17] [18] [19]
                    frame: L2 · 4 MiB
                      small [20] [21] [22] [23]
                    frame: L2 · 4 MiB
                      small [24] [25] [26] [27]
                    frame: L2 · 4 MiB
                      small [28] [29] [30] [31]
              legend
                text: performance core
                  core large []
                text: efficient core
                  small []
                text: isolated
                  cpu  Isolated
        "#]],
    );
}

#[test]
fn kinds_of_memory_devices_and_marks() {
    check_bare(
        &pmem_and_devices(),
        expect![[r#"
            page: 110 CPUs, 55 cores, 2 packages, 2.3 TiB | 2 threads per core, 6 NUMA nodes, 384 GiB Dram, 1.9 TiB Pmem, 2 L3s, 13 devices
              machine
                package: Package 0
                  l3: L3 0 · 38.5 MiB
                    node
                      dram: NumaNode 0 | 96 GiB Dram | CPUs 0-12,56-68
                      pmem: NumaNode 4 | 1008 GiB Pmem | no CPUs
                      core [0 High, 56 High] [1 High, 57 High] [2 High, 58 High] [3 High, 59 High] [4 Isolated High, 60 Isolated High] [5 Isolated High, 61 Isolated High] [6 Isolated Low, 62 Isolated Low] [7 Isolated Low, 63 Isolated Low] [8 Low, 64 Low] [9 Low, 65 Low] [10 Low, 66 Low] [11 Low, 67 Low] [12 Low, 68 Low]
                      network: ens1f0np0 | network · 8 VFs
                      network: ens1f1np1 | network
                    node
                      dram: NumaNode 1 | 96 GiB Dram | CPUs 14-27,70-83
                      core [14 Low, 70 Low] [15 Low, 71 Low] [16 Low, 72 Low] [17 Low, 73 Low] [18 Low, 74 Low] [19 Low, 75 Low] [20 Low, 76 Low] [21 Low, 77 Low] [22 Low, 78 Low] [23 Low, 79 Low] [24 Low, 80 Low] [25 Low, 81 Low] [26 Low, 82 Low] [27 Low, 83 Low]
                      accelerator: 4 × 8086:0b25 | accelerator · idxd
                package: Package 1
                  l3: L3 1 · 38.5 MiB
                    node
                      dram: NumaNode 2 | 96 GiB Dram | CPUs 28-41,84-97
                      pmem: NumaNode 5 | 1008 GiB Pmem | no CPUs
                      core [28, 84] [29, 85] [30, 86] [31, 87] [32, 88] [33, 89] [34, 90] [35, 91] [36, 92] [37, 93] [38, 94] [39, 95] [40, 96] [41, 97]
                      accelerator: nvidia0, dri/card1, dri/renderD128 | accelerator
                    node
                      dram: NumaNode 3 | 96 GiB Dram | CPUs 42-55,98-111
                      core [42, 98] [43, 99] [44, 100] [45, 101] [46, 102] [47, 103] [48, 104] [49, 105] [50, 106] [51, 107] [52, 108] [53, 109] [54, 110] [55, 111]
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
                text: a core and its CPUs
                  core []
                text: isolated
                  cpu  Isolated
                text: high priority
                  cpu  High
                text: low priority
                  cpu  Low
        "#]],
    );
}

#[test]
fn memory_without_cpus_stands_with_the_node_near_it() {
    check_bare(
        &hbm_and_cxl(),
        expect![[r#"
            page: 112 CPUs, 56 cores, 1 package, 576 GiB | 2 threads per core, 9 NUMA nodes, 256 GiB Dram, 64 GiB Hbm, 256 GiB Cxl, 1 L3, 1 device
              machine
                package: Package 0
                  l3: L3 0 · 32 MiB
                    node
                      dram: NumaNode 0 | 64 GiB Dram | CPUs 0-13,56-69
                      hbm: NumaNode 4 | 16 GiB Hbm | no CPUs
                      cxl: NumaNode 8 | 256 GiB Cxl | no CPUs
                        cxl: cxl/mem0 | memory
                      core [0, 56] [1, 57] [2, 58] [3, 59] [4, 60] [5, 61] [6, 62] [7, 63] [8, 64] [9, 65] [10, 66] [11, 67] [12, 68] [13, 69]
                    node
                      dram: NumaNode 1 | 64 GiB Dram | CPUs 14-27,70-83
                      hbm: NumaNode 5 | 16 GiB Hbm | no CPUs
                      core [14, 70] [15, 71] [16, 72] [17, 73] [18, 74] [19, 75] [20, 76] [21, 77] [22, 78] [23, 79] [24, 80] [25, 81] [26, 82] [27, 83]
                    node
                      dram: NumaNode 2 | 64 GiB Dram | CPUs 28-41,84-97
                      hbm: NumaNode 6 | 16 GiB Hbm | no CPUs
                      core [28, 84] [29, 85] [30, 86] [31, 87] [32, 88] [33, 89] [34, 90] [35, 91] [36, 92] [37, 93] [38, 94] [39, 95] [40, 96] [41, 97]
                    node
                      dram: NumaNode 3 | 64 GiB Dram | CPUs 42-55,98-111
                      hbm: NumaNode 7 | 16 GiB Hbm | no CPUs
                      core [42, 98] [43, 99] [44, 100] [45, 101] [46, 102] [47, 103] [48, 104] [49, 105] [50, 106] [51, 107] [52, 108] [53, 109] [54, 110] [55, 111]
              text: Distances between NUMA nodes
                text: from to
                text: node 0
                text: node 1
                text: node 2
                text: node 3
                text: node 4
                text: node 5
                text: node 6
                text: node 7
                text: node 8
                text: node 0
                text: 10
                text: 23
                text: 23
                text: 23
                text: 13
                text: 23
                text: 23
                text: 23
                text: 24
                text: node 1
                text: 23
                text: 10
                text: 23
                text: 23
                text: 23
                text: 13
                text: 23
                text: 23
                text: 24
                text: node 2
                text: 23
                text: 23
                text: 10
                text: 23
                text: 23
                text: 23
                text: 13
                text: 23
                text: 24
                text: node 3
                text: 23
                text: 23
                text: 23
                text: 10
                text: 23
                text: 23
                text: 23
                text: 13
                text: 24
                text: node 4
                text: 13
                text: 23
                text: 23
                text: 23
                text: 10
                text: 23
                text: 23
                text: 23
                text: 13
                text: node 5
                text: 23
                text: 13
                text: 23
                text: 23
                text: 23
                text: 10
                text: 23
                text: 23
                text: 24
                text: node 6
                text: 23
                text: 23
                text: 13
                text: 23
                text: 23
                text: 23
                text: 10
                text: 23
                text: 24
                text: node 7
                text: 23
                text: 23
                text: 23
                text: 13
                text: 23
                text: 23
                text: 23
                text: 10
                text: 24
                text: node 8
                text: 24
                text: 25
                text: 25
                text: 25
                text: 26
                text: 26
                text: 26
                text: 26
                text: 10
              legend
                text: a core and its CPUs
                  core []
        "#]],
    );
}

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
