//! Graphs of machines, as Graphviz gets them.

use bayplan_types::{Bytes, CpuSet, NodeId};
use expect_test::{Expect, expect};

use crate::picture::samples::*;
use bayplan_topology::*;

use crate::*;

#[track_caller]
fn check(snapshot: &Snapshot, expected: Expect) {
    expected.assert_eq(&render_dot(&derive(snapshot).unwrap()));
}

#[test]
fn one_cpu_as_a_graph() {
    check(
        &machine("one-cpu"),
        expect![[r##"
            graph bayplan {
              graph [fontname="sans-serif", fontsize=11, labeljust=l, rankdir=LR, compound=true];
              node [fontname="sans-serif", fontsize=10, shape=box, style=filled, fillcolor=white];
              edge [fontname="sans-serif", fontsize=9];
              label="1 CPU, 1 core, 1 package, 16 GiB";
              labelloc=t;
              subgraph cluster_0 {
                label="Machine\n1 CPU 0";
                style=filled; fillcolor="#fafafa";
                subgraph cluster_1 {
                  label="Package 0\n1 CPU 0";
                  style=filled; fillcolor="#eceff3";
                  subgraph cluster_3 {
                    label="NumaNode 0\n1 CPU 0";
                    style=filled; fillcolor="#eef6ea";
                    m0 [label="NumaNode 0\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                    subgraph cluster_4 {
                      label="L3 0, 32 MiB\n1 CPU 0";
                      style=filled; fillcolor="#fdf3dc";
                      n0 [label="1 core\n1 CPU 0"];
                    }
                  }
                }
              }
            }
        "##]],
    );
}

#[test]
fn equal_caches_are_one_cluster_of_the_graph() {
    check(
        &machine("pack:2 numa:1 l3:12 core:8 pu:2"),
        expect![[r##"
            graph bayplan {
              graph [fontname="sans-serif", fontsize=11, labeljust=l, rankdir=LR, compound=true];
              node [fontname="sans-serif", fontsize=10, shape=box, style=filled, fillcolor=white];
              edge [fontname="sans-serif", fontsize=9];
              label="384 CPUs, 192 cores, 2 packages, 32 GiB";
              labelloc=t;
              subgraph cluster_0 {
                label="Machine\n384 CPUs 0-383";
                style=filled; fillcolor="#fafafa";
                subgraph cluster_1 {
                  label="Package 0\n192 CPUs 0-95,192-287";
                  style=filled; fillcolor="#eceff3";
                  subgraph cluster_3 {
                    label="NumaNode 0\n192 CPUs 0-95,192-287";
                    style=filled; fillcolor="#eef6ea";
                    m0 [label="NumaNode 0\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                    subgraph cluster_4 {
                      label="12 × L3 0-11, 32 MiB each\n192 CPUs 0-95,192-287";
                      style=filled; fillcolor="#fdf3dc";
                      n0 [label="8 cores of 2 threads"];
                    }
                  }
                }
                subgraph cluster_112 {
                  label="Package 1\n192 CPUs 96-191,288-383";
                  style=filled; fillcolor="#eceff3";
                  subgraph cluster_114 {
                    label="NumaNode 1\n192 CPUs 96-191,288-383";
                    style=filled; fillcolor="#eef6ea";
                    m1 [label="NumaNode 1\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                    subgraph cluster_115 {
                      label="12 × L3 12-23, 32 MiB each\n192 CPUs 96-191,288-383";
                      style=filled; fillcolor="#fdf3dc";
                      n1 [label="8 cores of 2 threads"];
                    }
                  }
                }
              }
              m0 -- m1 [style=dashed, label="21", ltail=cluster_1, lhead=cluster_112];
            }
        "##]],
    );
}

#[test]
fn cores_of_two_kinds_are_two_nodes() {
    check(
        &hybrid(),
        expect![[r##"
            graph bayplan {
              graph [fontname="sans-serif", fontsize=11, labeljust=l, rankdir=LR, compound=true];
              node [fontname="sans-serif", fontsize=10, shape=box, style=filled, fillcolor=white];
              edge [fontname="sans-serif", fontsize=9];
              label="32 CPUs, 24 cores, 1 package";
              labelloc=t;
              subgraph cluster_0 {
                label="Machine\n32 CPUs 0-31";
                style=filled; fillcolor="#fafafa";
                subgraph cluster_1 {
                  label="Package 0\n32 CPUs 0-31";
                  style=filled; fillcolor="#eceff3";
                  subgraph cluster_3 {
                    label="L3 0, 36 MiB\n32 CPUs 0-31";
                    style=filled; fillcolor="#fdf3dc";
                    n0 [label="8 performance cores of 2 threads\n16 CPUs 0-15"];
                    subgraph cluster_12 {
                      label="4 × L2, 4 MiB each\n16 CPUs 16-31";
                      style=filled; fillcolor="none";
                      n1 [label="4 efficient cores"];
                    }
                  }
                }
              }
            }
        "##]],
    );
}

#[test]
fn memory_and_devices_hang_on_their_node() {
    let mut snapshot = machine("pack:1 numa:1 core:2 offline:1");
    snapshot.nodes.push(NodeFacts {
        cpus: Some(CpuSet::new()),
        mem_total: Some(Bytes::gib(512)),
        distances: vec![17, 10],
        ..NodeFacts::new(NodeId(1))
    });
    snapshot.nodes[0].distances = vec![10, 17];
    snapshot.online_nodes = None;
    snapshot.devices = vec![
        device("0000:16:00.0", 0x02_0000, Some(0), &["eth0"]),
        device("0000:17:00.0", 0x01_0802, None, &["nvme0n1"]),
        device("0000:18:00.0", 0x05_0210, Some(1), &[]),
    ];
    check(
        &snapshot,
        expect![[r##"
            graph bayplan {
              graph [fontname="sans-serif", fontsize=11, labeljust=l, rankdir=LR, compound=true];
              node [fontname="sans-serif", fontsize=10, shape=box, style=filled, fillcolor=white];
              edge [fontname="sans-serif", fontsize=9];
              label="1 CPU, 1 core, 1 package, 528 GiB";
              labelloc=t;
              subgraph cluster_0 {
                label="Machine\n1 CPU 0";
                style=filled; fillcolor="#fafafa";
                n0 [label="nvme0n1\nstorage", shape=component, fillcolor="#fbe6c9"];
                n1 [label="offline\n1 CPU 1", style=dashed];
                subgraph cluster_1 {
                  label="Package 0\n1 CPU 0";
                  style=filled; fillcolor="#eceff3";
                  subgraph cluster_3 {
                    label="NumaNode 0\n1 CPU 0";
                    style=filled; fillcolor="#eef6ea";
                    m0 [label="NumaNode 0\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                    n2 [label="eth0\nnetwork", shape=component, fillcolor="#d9e8fb"];
                    m0 -- n2;
                    m1 [label="NumaNode 1\n512 GiB Cxl\nnear NumaNode 0", shape=cylinder, fillcolor="#cbe3f4"];
                    n3 [label="0000:18:00.0\nmemory", shape=component, fillcolor="#cbe3f4"];
                    m1 -- n3;
                    m0 -- m1 [label="17"];
                    n4 [label="1 core\n1 CPU 0"];
                  }
                }
              }
            }
        "##]],
    );
}

#[test]
fn distances_that_differ_between_packages_or_by_direction_have_edges_of_their_own() {
    let mut snapshot = machine("pack:2 numa:2 core:1");
    snapshot.nodes[0].distances = vec![10, 12, 21, 31];
    snapshot.nodes[2].distances = vec![22, 21, 10, 12];
    check(
        &snapshot,
        expect![[r##"
        graph bayplan {
          graph [fontname="sans-serif", fontsize=11, labeljust=l, rankdir=LR, compound=true];
          node [fontname="sans-serif", fontsize=10, shape=box, style=filled, fillcolor=white];
          edge [fontname="sans-serif", fontsize=9];
          label="4 CPUs, 4 cores, 2 packages, 64 GiB";
          labelloc=t;
          subgraph cluster_0 {
            label="Machine\n4 CPUs 0-3";
            style=filled; fillcolor="#fafafa";
            subgraph cluster_1 {
              label="Package 0\n2 CPUs 0-1";
              style=filled; fillcolor="#eceff3";
              subgraph cluster_3 {
                label="NumaNode 0\n1 CPU 0";
                style=filled; fillcolor="#eef6ea";
                m0 [label="NumaNode 0\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                n0 [label="1 core\n1 CPU 0"];
              }
              subgraph cluster_5 {
                label="NumaNode 1\n1 CPU 1";
                style=filled; fillcolor="#eef6ea";
                m1 [label="NumaNode 1\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                n1 [label="1 core\n1 CPU 1"];
              }
            }
            subgraph cluster_7 {
              label="Package 1\n2 CPUs 2-3";
              style=filled; fillcolor="#eceff3";
              subgraph cluster_9 {
                label="NumaNode 2\n1 CPU 2";
                style=filled; fillcolor="#eef6ea";
                m2 [label="NumaNode 2\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                n2 [label="1 core\n1 CPU 2"];
              }
              subgraph cluster_11 {
                label="NumaNode 3\n1 CPU 3";
                style=filled; fillcolor="#eef6ea";
                m3 [label="NumaNode 3\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                n3 [label="1 core\n1 CPU 3"];
              }
            }
          }
          m0 -- m1 [style=dashed, label="12"];
          m0 -- m2 [style=dashed, label="21/22"];
          m0 -- m3 [style=dashed, label="31/21"];
          m1 -- m2 [style=dashed, label="21"];
          m1 -- m3 [style=dashed, label="21"];
          m2 -- m3 [style=dashed, label="12"];
        }
    "##]],
    );
}

#[test]
fn a_node_beside_the_tree_is_in_no_package_even_if_its_cpus_are() {
    let mut snapshot = machine("pack:2 numa:2 core:2 pu:2");
    snapshot.nodes[2].cpus = Some(set("4,13"));
    snapshot.nodes[3].cpus = Some(set("5-7"));
    let dot = render_dot(&derive(&snapshot).unwrap());
    let edges: Vec<&str> =
        dot.lines().map(str::trim).filter(|line| line.contains("dashed")).collect();
    expect![[r#"
        m2 -- m3 [style=dashed, label="12"];
        m2 -- m0 [style=dashed, label="21"];
        m2 -- m1 [style=dashed, label="21"];
        m3 -- m0 [style=dashed, label="21"];
        m3 -- m1 [style=dashed, label="21"];
        m0 -- m1 [style=dashed, label="12"];"#]]
    .assert_eq(&edges.join("\n"));
}

#[test]
fn a_node_beside_the_tree_hangs_on_the_machine_of_the_graph() {
    let mut snapshot = across();
    snapshot.cpus[2].online = Some(false);
    snapshot.online = Some(set("0-1,3-7"));
    check(
        &snapshot,
        expect![[r##"
            graph bayplan {
              graph [fontname="sans-serif", fontsize=11, labeljust=l, rankdir=LR, compound=true];
              node [fontname="sans-serif", fontsize=10, shape=box, style=filled, fillcolor=white];
              edge [fontname="sans-serif", fontsize=9];
              label="7 CPUs, 7 cores, 2 packages, 96 GiB";
              labelloc=t;
              subgraph cluster_0 {
                label="Machine\n7 CPUs 0-1,3-7";
                style=filled; fillcolor="#fafafa";
                m0 [label="NumaNode 0\n16 GiB Dram\n4 CPUs 0-1,3-4", shape=cylinder, fillcolor="#d3eac6"];
                m2 [label="NumaNode 2\n64 GiB Pmem\nnear NumaNode 0", shape=cylinder, fillcolor="#dbd2ee"];
                m0 -- m2 [label="17"];
                n0 [label="offline\n1 CPU 2", style=dashed];
                subgraph cluster_1 {
                  label="Package 0\n3 CPUs 0-1,3";
                  style=filled; fillcolor="#eceff3";
                  n1 [label="3 cores\n3 CPUs 0-1,3"];
                }
                subgraph cluster_6 {
                  label="Package 1\n4 CPUs 4-7";
                  style=filled; fillcolor="#eceff3";
                  n2 [label="1 core\n1 CPU 4"];
                  subgraph cluster_9 {
                    label="NumaNode 1\n3 CPUs 5-7";
                    style=filled; fillcolor="#eef6ea";
                    m1 [label="NumaNode 1\n16 GiB Dram", shape=cylinder, fillcolor="#d3eac6"];
                    n3 [label="3 cores\n3 CPUs 5-7"];
                  }
                }
              }
              m0 -- m1 [style=dashed, label="21"];
            }
        "##]],
    );
}
