//! Pictures of small machines and of odd ones, by hand.
#![allow(clippy::too_many_lines, reason = "a line of a picture is a line of its test")]

mod legend;
mod memory;

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
