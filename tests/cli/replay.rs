//! `bayplan replay` on a recorded history.

use expect_test::expect;

use crate::{check, stdout};

/// As version 0.1.0 has written it.
const HISTORY: &str = "cli/history/first";

#[test]
fn a_history_comes_to_the_same_decisions() {
    check(
        &["replay", HISTORY],
        expect![[r#"
            exit 0
            2026-11-21 03:12:17 to 2026-11-21 03:12:19 UTC: 11 entries, 16 CPUs

                                                                   as it was     as it would have been
             reserved CPUs                                         0,8           0,8
             creates                                               6             6
             . placed                                              4             4
             . refused                                             2             2
             . refused, although enough CPUs had no holder         0             0
             exclusive containers (Guaranteed, whole CPUs)         2             2
             . with another number of CPUs than requested          0             0
             . with CPUs that had a holder                         0             0
             . in one NUMA node, where one had room                100.0 % of 2  100.0 % of 2
             . in one package, where one had room                  100.0 % of 2  100.0 % of 2
             . NUMA nodes over the fewest possible                 1.000         1.000
             . with half a core, where whole ones would have done  0.0 % of 2    0.0 % of 2
             cores of two holders, mean                            0.00          0.00
             cores half owned, mean                                0.75          0.75
             largest hole in a NUMA node, over the ideal           100.0 %       100.0 %
             . in whole cores                                      100.0 %       100.0 %
             containers moved to other exclusive CPUs              1             1

            all 6 decisions are as they were

            changes of the machine: 1; figures are over that of the beginning
        "#]],
    );
}

#[test]
fn with_fewer_cpus_a_container_sits_elsewhere() {
    check(
        &["--config", "simulate/half.yaml", "replay", HISTORY],
        expect![[r#"
            exit 0
            2026-11-21 03:12:17 to 2026-11-21 03:12:19 UTC: 11 entries, 16 CPUs

                                                                   as it was     simulate/half.yaml
             reserved CPUs                                         0,8           0-3,8-11
             creates                                               6             6
             . placed                                              4             4
             . refused                                             2             2
             . refused, although enough CPUs had no holder         0             0
             exclusive containers (Guaranteed, whole CPUs)         2             2
             . with another number of CPUs than requested          0             0
             . with CPUs that had a holder                         0             0
             . in one NUMA node, where one had room                100.0 % of 2  100.0 % of 2
             . in one package, where one had room                  100.0 % of 2  100.0 % of 2
             . NUMA nodes over the fewest possible                 1.000         1.000
             . with half a core, where whole ones would have done  0.0 % of 2    0.0 % of 2
             cores of two holders, mean                            0.00          0.00
             cores half owned, mean                                0.75          0.00
             largest hole in a NUMA node, over the ideal           100.0 %       100.0 %
             . in whole cores                                      100.0 %       100.0 %
             containers moved to other exclusive CPUs              1             0

            2 of 6 decisions would have been different:

             TIME (UTC)           CONTAINER                  WAS                               WOULD HAVE BEEN
             2026-11-21 03:12:17  default/database/database  own 1,9 in numa 0, memory 0       own 4,12 in numa 1, memory 1
             2026-11-21 03:12:17  default/database/database  own 1-2,9-10 in numa 0, memory 0  own 4-5,12-13 in numa 1, memory 1

            changes of the machine: 1; figures are over that of the beginning
        "#]],
    );
}

#[test]
fn programs_get_both_sides() {
    let args = ["replay", HISTORY, "--machine", "numa:3 core:3 pu:1 mem:16", "-o", "json"];
    let report: serde_json::Value = serde_json::from_str(&stdout(&args)).unwrap();
    assert_eq!(report["format"], "bayplan-replay/1");
    let elsewhere = &report["elsewhere"][0];
    expect![[r#"
        {
          "at": "2026-11-21T03:12:17.892900636Z",
          "container": "default/database/database",
          "was": {
            "placed": {
              "cpus": "1,9",
              "mems": "0",
              "own": "1,9",
              "pool": "numa 0"
            }
          },
          "would_have_been": {
            "placed": {
              "cpus": "1-2",
              "mems": "0",
              "own": "1-2",
              "pool": "numa 0"
            }
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(elsewhere).unwrap());
    assert_eq!(report["runs"][0]["placed"], 4);
}

#[test]
fn what_cannot_be_replayed_is_explained() {
    check(
        &["replay", "simulate/trace.json"],
        expect![[r#"
        exit 1
        bayplan: warning: 11 damaged lines were left out:
          simulate/trace.json:1: not the header of a history of this version
          simulate/trace.json:2: no checksum
          simulate/trace.json:3: no checksum
          simulate/trace.json:4: no checksum
          simulate/trace.json:5: no checksum
          and 6 more
        bayplan: this history has no complete snapshot of the node; is the beginning of the file missing?
    "#]],
    );
    check(
        &["replay", HISTORY, "--machine", "sockets:2"],
        expect![[r#"
            exit 1
            bayplan: --machine: `sockets:2`: expected a level (pack, die, numa, l3, cluster, l2, core, pu) with a count, an option (ecore, cache, mem, hbm, pmem, cxl, online, huge, isolated, nohz_full, offline, fast, nic, gpu, nvme, vf), or as the first word one of the presets xeon-8480, xeon-8480-snc4, xeon-8280l-pmem, granite-rapids-6980p, epyc-9654, epyc-7763-nps4, grace, core-hybrid, one-cpu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
        "#]],
    );
}
