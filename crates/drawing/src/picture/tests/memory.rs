//! Memory, its kinds, and what is near it.

use super::*;

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
