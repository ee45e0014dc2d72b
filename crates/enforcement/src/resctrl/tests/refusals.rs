//! What cannot be had is told: what asks for it, what the machine has, what to do.

use expect_test::expect;

use super::*;

#[test]
fn names_and_places_are_checked_without_a_machine() {
    check(
        "nothing",
        "partition one l3 0-1=50% 1=20%
           class web
           class web l2 50% mb 10%
           class DEFAULT
         partition one
           class system/default",
        expect![[r#"
            partition `one`: l3Allocation names caches of `1` twice
            partition `one`: duplicate; classes of one name belong together
            class `web`: duplicate; names are unique across partitions
            class `web`: has l2Allocation, but its partition `one` has none; write it there, too
            class `web`: has mbAllocation, but its partition `one` has none; write it there, too
            class `system/default`: duplicate; names are unique across partitions
        "#]],
    );
    for (name, is_name) in
        [("web", true), ("", true), (".", false), ("..", false), ("a/b", false), ("a\n", false)]
    {
        assert_eq!(name.parse::<ClassName>().is_ok(), is_name, "{name:?}");
    }
    assert!("x".repeat(201).parse::<ClassName>().is_err());
}

#[test]
fn partitions_agree_on_how_they_ask() {
    check(
        "full",
        "partition part-1 l3 0xff
         partition part-2 l3 50%",
        expect![[r#"
            L3 cache (unified): partition `part-2` asks for 50%, but `part-1` for the bits 0xff; give all partitions percentages, or all of them bits (on 0, 1, 2, 3)
        "#]],
    );
    check(
        "full",
        "partition part-1 l3 50-100%",
        expect![[r#"
            L3 cache (unified): partition `part-1` asks for 50-100%, but only classes can have a range of percentages (on 0, 1, 2, 3)
        "#]],
    );
    check(
        "full",
        "partition part-1 l3 50% mb 100%
         partition part-2 mb 100%",
        expect![[r#"
            partition `part-2`: has no l3Allocation (unified), but others have; all partitions have one, or none (on 0, 1, 2, 3)
        "#]],
    );
    check(
        "without MB",
        "partition part-1 l3 50%/40%/60%
         partition part-2 l3 50%",
        expect![[r#"
            partition `part-2`: has no l3Allocation (code), but others have; all partitions have one, or none (on 0, 1, 2, 3)
            partition `part-2`: has no l3Allocation (data), but others have; all partitions have one, or none (on 0, 1, 2, 3)
        "#]],
    );
    check(
        "without MB",
        "partition part-1 l3 50%/40%/60%
         partition part-2 l3 50%/40%/60%",
        expect![[r#"
            L3 cache (data): partitions ask for 120% together: `part-1` 60%, `part-2` 60% (on 0, 1, 2, 3)
        "#]],
    );
    check(
        "without MB",
        "partition part-1 l3 0xff
         partition part-2 l3 0xff00 2=0xff80",
        expect![[r#"
            L3 cache (unified): partitions `part-1` (0xff) and `part-2` (0xff80) overlap; partitions have bits of their own (on 2)
        "#]],
    );
}

#[test]
fn masks_are_those_that_the_machine_takes() {
    let rows = "
        partition part-1 l3 100% 1=0x2f 2=0x1 3=0xf00000
          class class-1";
    check(
        "without MB",
        rows,
        expect![[r#"
            L3 cache (unified): partition `part-1`: 0x1 has fewer than the 2 bits side by side that this machine wants (on 2)
            L3 cache (unified): partition `part-1`: 0xf00000 has bits that the cache lacks, which has 0xfffff (on 3)
            L3 cache (unified): partition `part-1`: the bits of 0x2f do not stand side by side, as this machine wants (on 1)
        "#]],
    );
    check(
        "epyc",
        "partition part-1 l3 0xf0f\n class class-1 l3 50%",
        expect![[r#"
            class-1 L3:0=f;1=f;2=f;3=f;4=f;5=f;6=f;7=f MB:0=2048;1=2048;2=2048;3=2048;4=2048;5=2048;6=2048;7=2048
        "#]],
    );
    check(
        "without MB",
        "partition part-1 l3 0xff00
           class class-1 l3 0x1ff
           class class-2 l3 0%
           class class-3 l3 0x1
           class class-4 l3 0x5",
        expect![[r#"
            class `class-1`: l3Allocation (unified): 0x1ff, counted from the lowest bit of its partition, does not fit into 0xff00 (on 0, 1, 2, 3)
            class `class-2`: l3Allocation (unified): asks for 0%; a class has one bit at least (on 0, 1, 2, 3)
            class `class-3`: l3Allocation (unified): 0x100 has fewer than the 2 bits side by side that this machine wants (on 0, 1, 2, 3)
            class `class-4`: l3Allocation (unified): the bits of 0x500 do not stand side by side, as this machine wants (on 0, 1, 2, 3)
        "#]],
    );
    check(
        "L2",
        "partition a l2 1%
           class least
         partition b l2 1%
           class less
         partition c l2 98%
           class most",
        expect![[r#"
            least L2:0=1;1=1
            less L2:0=2;1=2
            most L2:0=fc;1=fc
        "#]],
    );
    check(
        "L2",
        "partition a l2 1%\n partition b l2 2%",
        expect![[r#"
            L2 cache (unified): partition `a` asks for 1%, but of 8 bits none are left for it: partitions have 1 at least (on 0, 1)
        "#]],
    );
    check(
        "pseudo-locked",
        "partition a l3 50%\n class web",
        expect![[r#"
            class `web`: l3Allocation 0x3ff: another group has 0x3 of the cache to itself (`E` or `P` in info/L3/bit_usage) (on 1)
        "#]],
    );
}

#[test]
fn what_a_machine_lacks_is_told_to_every_class_that_asks() {
    let text = "
        partition part-1 l2 50% l3 50% mb 50%
          class class-1 l2 100% l3 100% mb 50%
          class class-2 mb 100%";
    check(
        "nothing",
        text,
        expect![[r#"
            class `class-1`: has l2Allocation, which this machine cannot give; with `options.l2.optional: true` the class does without
            class `class-1`: has l3Allocation, which this machine cannot give; with `options.l3.optional: true` the class does without
            class `class-1`: has mbAllocation, which this machine cannot give; with `options.mb.optional: true` the class does without
            class `class-2`: has mbAllocation, which this machine cannot give; with `options.mb.optional: true` the class does without
        "#]],
    );
    check(
        "full",
        "optional l2\n partition a l2 5% l3 9=50%\n class b l3 4,7=0x1",
        expect![[r#"
            b L3:0=fffff;1=fffff;2=fffff;3=fffff MB:0=100;1=100;2=100;3=100
            note: class `b`: l3Allocation `4,7`: this machine has no such L3 cache, but 0, 1, 2, 3
            note: partition `a`: l3Allocation `9`: this machine has no such L3 cache, but 0, 1, 2, 3
            note: partition `a`: l2Allocation does nothing on this machine
        "#]],
    );
}

#[test]
fn bandwidth_needs_a_value_in_the_unit_of_the_machine() {
    check(
        "without L3",
        "partition a mb 100MBps\n class b\n class c mb x",
        expect![[r#"
            class `c`: mbAllocation: [x] has neither a percentage from 0% to 100% ("50%") nor a rate ("1500MBps"); add one
        "#]],
    );
    check(
        "without L3",
        "partition a mb 100MBps\n class b\n class c mb 200MBps",
        expect![[r#"
        class `b`: mbAllocation: its partition's [100MBps] has no percentage, which this machine needs; add one such as "50%" (on 0, 1, 2, 3)
        class `c`: mbAllocation: its partition's [100MBps] has no percentage, which this machine needs; add one such as "50%" (on 0, 1, 2, 3)
    "#]],
    );
    check(
        "without L3, MBps",
        "partition a mb 100%\n class b",
        expect![[r#"
            class `b`: mbAllocation: its partition's [100%] has no rate, which resctrl mounted with mba_MBps needs; add one such as "1500MBps" (on 0, 1, 2, 3)
        "#]],
    );
    check(
        "epyc",
        "partition a mb 50%\n class b",
        expect![[r#"
            class `b`: mbAllocation: its partition's [50%] has no rate, and this machine has bounds in GB a second, not in percent; add one such as "16000MBps" (on 0, 1, 2, 3, 4, 5, 6, 7)
        "#]],
    );
}

#[test]
fn bandwidth_is_rounded_as_the_kernel_does() {
    check(
        "xeon",
        "partition a l3 50% mb 95%
           class b l3 100%/50%/50% mb 33%
           class c mb 1%
           class d mb 97%",
        expect![[r#"
            b L3CODE:0=7;1=7 L3DATA:0=7;1=7 MB:0=40;1=40
            c L3CODE:0=1f;1=1f L3DATA:0=1f;1=1f MB:0=10;1=10
            d L3CODE:0=1f;1=1f L3DATA:0=1f;1=1f MB:0=100;1=100
        "#]],
    );
    check(
        "epyc",
        "partition a mb 100%
           class all
           class some mb 50%,1500MBps
           class least mb 0MBps
           class most mb 4000000000MBps",
        expect![[r#"
            all L3:0=ffff;1=ffff;2=ffff;3=ffff;4=ffff;5=ffff;6=ffff;7=ffff MB:0=2048;1=2048;2=2048;3=2048;4=2048;5=2048;6=2048;7=2048
            some L3:0=ffff;1=ffff;2=ffff;3=ffff;4=ffff;5=ffff;6=ffff;7=ffff MB:0=12;1=12;2=12;3=12;4=12;5=12;6=12;7=12
            least L3:0=ffff;1=ffff;2=ffff;3=ffff;4=ffff;5=ffff;6=ffff;7=ffff MB:0=1;1=1;2=1;3=1;4=1;5=1;6=1;7=1
            most L3:0=ffff;1=ffff;2=ffff;3=ffff;4=ffff;5=ffff;6=ffff;7=ffff MB:0=2048;1=2048;2=2048;3=2048;4=2048;5=2048;6=2048;7=2048
        "#]],
    );
}
