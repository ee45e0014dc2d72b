//! Memory that lies on another node.

use super::*;

#[test]
fn far_memory_comes_home() {
    check(
        "
        machine pack:2 numa:1 l3:1 core:4 pu:1
        db guaranteed 0-3 mems=0
        ",
        "
        50 rounds  db cpus=2 cpi=1 misses=10 far=0
        until a proposal  db cpus=2 cpi=2 misses=10 far=0.6
        4 rounds  db cpus=2 cpi=1 misses=10 far=0.1
        ",
        expect![[r#"
            265 s: propose 1 (act) memory on db: far-memory 60 % > 20 %, usually 2 %
                far-memory 60 % > 20 %, usually 2 %
                cycles-per-instruction 2.00 > 1.20, usually 1.00
                from no known container
            280 s: judge 1 kept: closed 100 % of the gap
        "#]],
    );
}

#[test]
fn far_memory_comes_home_by_its_share_alone_without_counters() {
    check(
        "
        machine pack:2 numa:1 l3:1 core:4 pu:1
        db guaranteed 0-3 mems=0
        ",
        "
        until a proposal  db cpus=2 far=0.6 cpi=none
        4 rounds  db cpus=2 far=0.1 cpi=none
        ",
        expect![[r#"
            30 s: propose 1 (act) memory on db: far-memory 60 % > 20 %
                far-memory 60 % > 20 %
                from no known container
            45 s: judge 1 kept: closed 100 % of the gap
        "#]],
    );
}

#[test]
fn far_memory_that_hardly_hurts_stays() {
    check(
        "
        machine pack:2 numa:1 l3:1 core:4 pu:1
        db guaranteed 0-3 mems=0
        ",
        "
        50 rounds  db cpus=2 cpi=1 misses=0.5 far=1
        ",
        expect![[r#""#]],
    );
}
