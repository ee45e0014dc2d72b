//! The same schemata as goresctrl's: the examples of its documentation (doc/rdt.md) and the configurations of its tests (pkg/rdt/rdt_test.go).
//!
//! The root's class is goresctrl's `system/default`; where a configuration does not have it, goresctrl gives it everything, and Bayplan leaves it
//! alone.

use expect_test::expect;

use super::*;

#[test]
fn documented_examples() {
    let first = "
        optional l2 l3 mb
        partition exclusive l2 80% l3 60% mb 100%
          class guaranteed l2 100% l3 100%
        partition shared l2 20% l3 40% mb 50%
          class burstable l2 100% l3 100%
          class besteffort l2 100% l3 50%
          class DEFAULT l2 50% l3 30%";
    check(
        "full",
        first,
        expect![[r#"
            guaranteed L3:0=fff;1=fff;2=fff;3=fff MB:0=100;1=100;2=100;3=100
            burstable L3:0=ff000;1=ff000;2=ff000;3=ff000 MB:0=50;1=50;2=50;3=50
            besteffort L3:0=f000;1=f000;2=f000;3=f000 MB:0=50;1=50;2=50;3=50
            system/default L3:0=7000;1=7000;2=7000;3=7000 MB:0=50;1=50;2=50;3=50
            note: partition `exclusive`: l2Allocation does nothing on this machine
            note: partition `shared`: l2Allocation does nothing on this machine
        "#]],
    );
    check(
        "L2 CDP",
        first,
        expect![[r#"
            guaranteed L2CODE:0=ffff;1=ffff;2=ffff;3=ffff L2DATA:0=ffff;1=ffff;2=ffff;3=ffff L3:0=ff
            burstable L2CODE:0=f0000;1=f0000;2=f0000;3=f0000 L2DATA:0=f0000;1=f0000;2=f0000;3=f0000 L3:0=f00
            besteffort L2CODE:0=f0000;1=f0000;2=f0000;3=f0000 L2DATA:0=f0000;1=f0000;2=f0000;3=f0000 L3:0=300
            system/default L2CODE:0=30000;1=30000;2=30000;3=30000 L2DATA:0=30000;1=30000;2=30000;3=30000 L3:0=300
            note: partition `exclusive`: mbAllocation does nothing on this machine
            note: partition `shared`: mbAllocation does nothing on this machine
        "#]],
    );
    check(
        "full",
        "partition exclusive l3 60% mb 100%
           class guaranteed
         partition shared l3 40% 2-3=20% mb 100%
           class burstable l3 100%/100%/80% mb 80% 2-3=50%",
        expect![[r#"
            guaranteed L3:0=fff;1=fff;2=fff;3=fff MB:0=100;1=100;2=100;3=100
            burstable L3:0=ff000;1=ff000;2=f000;3=f000 MB:0=80;1=80;2=50;3=50
        "#]],
    );
    let bits = "
        partition exclusive l3 8-19 mb 100%,100000MBps
          class guaranteed
        partition shared l3 0xff mb 50%,2000MBps
          class burstable
          class besteffort l3 50% mb 50%,1000MBps";
    check(
        "full",
        bits,
        expect![[r#"
            guaranteed L3:0=fff00;1=fff00;2=fff00;3=fff00 MB:0=100;1=100;2=100;3=100
            burstable L3:0=ff;1=ff;2=ff;3=ff MB:0=50;1=50;2=50;3=50
            besteffort L3:0=f;1=f;2=f;3=f MB:0=25;1=25;2=25;3=25
        "#]],
    );
    check(
        "without L3, MBps",
        &format!("optional l3\n{bits}"),
        expect![[r#"
            guaranteed MB:0=100000;1=100000;2=100000;3=100000
            burstable MB:0=2000;1=2000;2=2000;3=2000
            besteffort MB:0=1000;1=1000;2=1000;3=1000
            note: partition `exclusive`: l3Allocation does nothing on this machine
            note: partition `shared`: l3Allocation does nothing on this machine
        "#]],
    );
}

#[test]
fn partitions_by_percent_and_by_bits() {
    check(
        "full",
        "partition part-1 l3 60% 1=0xff000 2=9-15 mb 100%
           class class-1 l3 100%
           class class-2 l3 100% 0-1=10% 2=0x70 mb 40% 3=10%
         partition part-2 l3 39% 1=0-10 2=0-6 mb 50% 1=80% 2=100%
           class class-3 l3 100% mb 40% 0=80%
           class class-4 l3 50% mb 100%
           class system/default l3 60% mb 60%
         partition part-3 l3 1% 1=0x800 2=7,8 mb 20%
           class class-5 l3 100% mb 100% 0=1%",
        expect![[r#"
            class-1 L3:0=fff;1=ff000;2=fe00;3=fff MB:0=100;1=100;2=100;3=100
            class-2 L3:0=3;1=1000;2=e000;3=fff MB:0=40;1=40;2=40;3=10
            class-3 L3:0=7f000;1=7ff;2=7f;3=7f000 MB:0=40;1=32;2=40;3=20
            class-4 L3:0=f000;1=3f;2=f;3=f000 MB:0=50;1=80;2=100;3=50
            system/default L3:0=1f000;1=7f;2=1f;3=1f000 MB:0=30;1=48;2=60;3=30
            class-5 L3:0=80000;1=800;2=180;3=80000 MB:0=10;1=20;2=20;3=20
        "#]],
    );
    check(
        "without MB",
        "partition part-1 l3 21% 1=42% 2=63% 3=89%
           class class-1
         partition part-2 l3 29% 1=8% 2=19% 3=11%
           class class-2",
        expect![[r#"
            class-1 L3:0=f;1=ff;2=1fff;3=3ffff
            class-2 L3:0=3f0;1=300;2=e000;3=c0000
        "#]],
    );
    check(
        "without MB",
        "partition part-1 l3 100%
           class class-1 l3 100% 1=50%
           class class-2 l3 50% 1=0x7 2=1-2",
        expect![[r#"
            class-1 L3:0=fffff;1=3ff;2=fffff;3=fffff
            class-2 L3:0=3ff;1=7;2=6;3=3ff
        "#]],
    );
    check(
        "full",
        "partition priority l3 60% mb 100%
           class Guaranteed l3 100%
         partition default l3 40% mb 100%
           class Burstable l3 100% mb 66%
           class BestEffort l3 66% mb 33%",
        expect![[r#"
            Guaranteed L3:0=fff00;1=fff00;2=fff00;3=fff00 MB:0=100;1=100;2=100;3=100
            Burstable L3:0=ff;1=ff;2=ff;3=ff MB:0=66;1=66;2=66;3=66
            BestEffort L3:0=3f;1=3f;2=3f;3=3f MB:0=33;1=33;2=33;3=33
        "#]],
    );
}

#[test]
fn code_and_data() {
    let text = "
        partition part-1 l3 0,1=60%/70%/50% 2,3=40%
          class class-1
        partition part-2 l3 0,1=40%/30%/50% 2,3=60%
          class class-2
          class system/default l3 100% 3=80%/60%/90%";
    check(
        "without MB",
        text,
        expect![[r#"
            class-1 L3:0=fff;1=fff;2=ff;3=ff
            class-2 L3:0=ff000;1=ff000;2=fff00;3=fff00
            system/default L3:0=ff000;1=ff000;2=fff00;3=3ff00
        "#]],
    );
    check(
        "without MB, CDP",
        text,
        expect![[r#"
            class-1 L3CODE:0=3fff;1=3fff;2=ff;3=ff L3DATA:0=3ff;1=3ff;2=ff;3=ff
            class-2 L3CODE:0=fc000;1=fc000;2=fff00;3=fff00 L3DATA:0=ffc00;1=ffc00;2=fff00;3=fff00
            system/default L3CODE:0=fc000;1=fc000;2=fff00;3=ff00 L3DATA:0=ffc00;1=ffc00;2=fff00;3=7ff00
        "#]],
    );
    check(
        "L2 CDP",
        "partition part-1 l2 42% 2=30%/20%/50% 3=30%/40%/50% l3 30%
           class class-1
         partition part-2 l2 43% 2=70%/40%/30% 3=30%/60%/50% l3 50%
           class class-2 l2 80% 2=80%/60%/90%
           class system/default l3 60%",
        expect![[r#"
            class-1 L2CODE:0=ff;1=ff;2=f;3=ff L2DATA:0=ff;1=ff;2=3ff;3=3ff L3:0=7
            class-2 L2CODE:0=ff00;1=ff00;2=1f0;3=3ff00 L2DATA:0=ff00;1=ff00;2=fc00;3=3fc00 L3:0=1f8
            system/default L2CODE:0=1ff00;1=1ff00;2=ff0;3=fff00 L2DATA:0=1ff00;1=1ff00;2=fc00;3=ffc00 L3:0=78
        "#]],
    );
}

#[test]
fn levels_that_a_machine_lacks() {
    check(
        "without L3",
        "optional l3
         partition part-1 l3 100% mb 100%
           class class-1 l3 20% mb 50%",
        expect![[r#"
            class-1 MB:0=50;1=50;2=50;3=50
            note: partition `part-1`: l3Allocation does nothing on this machine
        "#]],
    );
    check(
        "without MB",
        "optional mb
         partition part-1 l3 100% mb 100%
           class class-1 l3 0-7 mb 50%",
        expect![[r#"
            class-1 L3:0=ff;1=ff;2=ff;3=ff
            note: partition `part-1`: mbAllocation does nothing on this machine
        "#]],
    );
    check(
        "without MB",
        "optional l2
         partition part-1 l2 50% l3 50%
           class class-1 l2 20%",
        expect![[r#"
            class-1 L3:0=3ff;1=3ff;2=3ff;3=3ff
            note: partition `part-1`: l2Allocation does nothing on this machine
        "#]],
    );
    check(
        "L2",
        "partition part-1 l2 30% 1=75%
           class class-1
         partition part-2 l2 0=30% 1=20%
           class class-2
         partition part-3 l2 0=40% 1=5%
           class system/default",
        expect![[r#"
            class-1 L2:0=3;1=3f
            class-2 L2:0=c;1=40
            system/default L2:0=f0;1=80
        "#]],
    );
}

#[test]
fn least_bits_and_least_bandwidth() {
    check(
        "without MB",
        "partition part-1 l3 100%
           class class-1 l3 1% 1-2=99-100%",
        expect![[r#"
            class-1 L3:0=3;1=c0000;2=c0000;3=3
        "#]],
    );
    check(
        "without L3",
        "partition part-1 mb 1%
           class class-1 mb 100%",
        expect![[r#"
            class-1 MB:0=10;1=10;2=10;3=10
        "#]],
    );
    check(
        "without L3, MBps",
        "partition part-1 mb 50%,1000MBps
           class class-1 mb 100%,1500MBps
         partition part-2 mb 1000MBps 0,1=50,1GBps,500MBps
           class class-2 mb 750MBps",
        expect![[r#"
            class-1 MB:0=1000;1=1000;2=1000;3=1000
            class-2 MB:0=500;1=500;2=750;3=750
            note: partition `part-2`: mbAllocation: `1GBps` is passed over, because it is neither a percentage ("50%") nor a rate ("1500MBps")
            note: partition `part-2`: mbAllocation: `50` is passed over, because it is neither a percentage ("50%") nor a rate ("1500MBps")
        "#]],
    );
}

/// Parts of single masks, as goresctrl's tests of its allocation types have them.
#[test]
fn a_class_in_its_partition() {
    let rows = [
        (1, 0xf00, "0x7", Some(0x700)),
        (1, 0x30, "0x7", None),
        (2, 0x10, "0x1", None),
        (4, 0xff00, "0-100%", Some(0xff00)),
        (4, 0xff00, "99-100%", Some(0xf000)),
        (4, 0xff00, "0-1%", Some(0xf00)),
        (4, 0x3ff00, "20-30%", Some(0xf00)),
        (4, 0xf00, "30-60%", Some(0xf00)),
        (4, 0x700, "100%", None),
        (1, 0xff00, "0%", None),
    ];
    for (bits_min, partition, share, expected) in rows {
        let machine = machines::cache(0xfffff, bits_min, 1);
        let partition = CapacityBitmask::new(partition).unwrap();
        let mask = cache::class_mask(&machine, partition, share.parse().unwrap());
        assert_eq!(mask.ok().map(CapacityBitmask::bits), expected, "{share} of 0x{partition}");
    }
}
