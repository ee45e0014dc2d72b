use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::test_support::read_back;

/// The section as it is shown, which reads back as the same; or the mistakes.
fn check(text: &str, expected: Expect) {
    let shown = match read_back(text) {
        Ok((_, shown)) => {
            let section = shown.lines().skip_while(|line| !line.starts_with("cpuClasses:"));
            let section = section.skip(1).take_while(|line| line.starts_with(' '));
            let lines = section.filter(|line| !line.trim_start().starts_with('#'));
            lines.map(|line| format!("{}\n", line.trim())).collect()
        }
        Err(errors) => errors,
    };
    expected.assert_eq(&shown);
}

#[test]
fn classes_have_the_fields_of_older_systems() {
    let ours = "\
cpuClasses:
  classes:
    latency: {governor: performance, minFreq: base, maxFreq: turbo, turbo: true, turboPriority: 10, maxLatency: 10us}
    quiet:
      maxFreq: 1500MHz
      energyPerformancePreference: balance-power
      disabledCstates: [C6, C1E]
      uncoreMaxFreq: 50%
    plain:
  exclusive: latency
  shared: balance-power
  idle: quiet
  timeZone: UTC
  schedule:
    - {at: \"22:00\", exclusive: power, shared: none}
    - {at: \"06:30:00\", exclusive: latency}
";
    check(
        ours,
        expect![[r#"
            classes: {"latency":{"governor":"performance","maxFreq":"max","maxLatency":"10us","minFreq":"base","turbo":true,"turboPriority":10},"plain":{},"quiet":{"disabledCstates":["C6","C1E"],"energyPerformancePreference":"balance_power","maxFreq":"1500MHz","uncoreMaxFreq":"50%"}}  # line 3 of the file
            turboDomain: package
            speedSelect: {}
            exclusive: latency  # line 10 of the file
            shared: balance-power  # line 11 of the file
            reserved: none
            idle: quiet  # line 12 of the file
            schedule: [{"at":"06:30:00","exclusive":"latency"}, {"at":"22:00:00","exclusive":"power","shared":"none"}]  # line 15 of the file
            timeZone: UTC  # line 13 of the file
        "#]],
    );
    // nri-plugins' list, CRI Resource Manager's kHz.
    let theirs = "\
cpuClasses:
  classes:
    - name: normal
      minFreq: 800000
      maxFreq: 2800000
      freqGovernor: schedutil
      energyPerformancePreference: 128
      uncoreMinFreq: 1000000
    - {name: default, energyPerformancePreference: default}
";
    check(
        theirs,
        expect![[r#"
            classes: {"default":{},"normal":{"energyPerformancePreference":"balance_performance","governor":"schedutil","maxFreq":"2800MHz","minFreq":"800MHz","uncoreMinFreq":"1000MHz"}}  # line 3 of the file
            turboDomain: package
            speedSelect: {}
            exclusive: none
            shared: none
            reserved: none
            idle: none
            schedule: []
            timeZone: local
        "#]],
    );
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let text = "\
cpuClasses:
  classes:
    none: {}
    a: fast
    b:
      minFreq: soon
      maxFreq: maxFreq-1MHz
      turbo: yes
      turboPriority: high
      maxLatency: 1s
      disabledCstates: C6
      pctPriority: high
      speed: 3
      governor: [a]
    b: {}
  exclusive: nothing
  shared: [b]
  timeZone: Atlantis
  schedule:
    - {at: \"25:00\"}
    - {at: \"22\"}
    - {exclusive: b}
    - {at: \"22:00\", exclusive: gone, owned: b}
    - {at: \"22:00\"}
    - 7
";
    check(
        text,
        expect![[r#"
            f:3:5: `cpuClasses.classes`: a class cannot be called `none`
            f:4:8: `cpuClasses.classes.a`: expected lines of `key: value`
            f:6:16: `cpuClasses.classes.b`: `minFreq`: `soon` is not a frequency: a number of kHz, a number with MHz or GHz, a percentage from 0% to 100%, or one of min, base, turbo, max
            f:7:16: `cpuClasses.classes.b`: `maxFreq`: `maxFreq-1MHz` is for lowest frequencies only
            f:9:22: `cpuClasses.classes.b`: `turboPriority` is `high`, expected a whole number from 0 on
            f:10:19: `cpuClasses.classes.b`: `maxLatency`: `1s` is not a time to wake up: a number of microseconds, also with us or ms, or any
            f:11:24: `cpuClasses.classes.b`: `disabledCstates` is no list, expected one such as [C6]
            f:12:7: `cpuClasses.classes.b`: `pctPriority`: name a class of service with `clos`, and its limits in `cpuClasses.speedSelect`
            f:13:7: `cpuClasses.classes.b`: unknown key `speed`; known are governor, minFreq, maxFreq, energyPerformancePreference, turbo, turboPriority, maxLatency, disabledCstates, uncoreMinFreq, uncoreMaxFreq, clos
            f:14:17: `cpuClasses.classes.b`: `governor` is no text
            f:15:5: `cpuClasses.classes`: duplicate class `b`
            f:16:14: `cpuClasses.exclusive` has `nothing`, which is no class; known are a, b, performance, balance-performance, balance-power, power, default
            f:17:11: `cpuClasses.shared` is a list, expected the name of a class, or none
            f:18:13: `cpuClasses.timeZone` is `Atlantis`, expected a time zone such as Europe/Berlin or UTC, or local
            f:20:5: `cpuClasses.schedule` has `gone`, which is no class; known are a, b, performance, balance-performance, balance-power, power, default
            f:20:12: `cpuClasses.schedule`: `at` is `25:00`, expected a time such as "22:00"
            f:21:12: `cpuClasses.schedule`: `at` is `22`, expected a time such as "22:00"
            f:22:7: `cpuClasses.schedule`: a line without a time: at: "22:00"
            f:23:38: `cpuClasses.schedule`: unknown key `owned`; known are at, exclusive, shared, reserved, idle
            f:24:7: `cpuClasses.schedule`: duplicate time
            f:25:7: `cpuClasses.schedule`: expected a list of lines such as {at: "22:00", exclusive: power}"#]],
    );
    check(
        "cpuClasses: {classes: [{minFreq: min}], schedule: 7}\n",
        expect![[r#"
        f:1:24: `cpuClasses.classes`: expected a class with a `name`
        f:1:51: `cpuClasses.schedule`: expected a list of lines such as {at: "22:00", exclusive: power}"#]],
    );
}

fn turns(rows: &[(&str, &[(CpuUse, &str)])]) -> CpuClasses {
    let class = |name: &str| (name != "none").then(|| name.to_owned());
    let turn = |(at, classes): &(&str, &[(CpuUse, &str)])| Turn {
        at: at.parse().unwrap(),
        classes: classes.iter().map(|(cpus, name)| (*cpus, class(name))).collect(),
    };
    CpuClasses {
        uses: [(CpuUse::Exclusive, "day".to_owned()), (CpuUse::Shared, "all".to_owned())].into(),
        schedule: rows.iter().map(turn).collect(),
        ..CpuClasses::default()
    }
}

#[test]
fn a_line_holds_until_the_next_one_that_says_otherwise() {
    use CpuUse::{Exclusive, Idle, Shared};
    let classes = turns(&[
        ("06:00", &[(Exclusive, "day"), (Idle, "none")]),
        ("18:00", &[(Shared, "none")]),
        ("22:00", &[(Exclusive, "night"), (Idle, "sleep"), (Shared, "all")]),
    ]);
    let at = |time: &str| {
        let uses = classes.uses_at(time.parse().unwrap());
        let uses: Vec<String> =
            uses.iter().map(|(it, class)| format!("{}={class}", it.name())).collect();
        format!("{time} {}", uses.join(" "))
    };
    let rows = ["00:00", "05:59:59", "06:00", "12:00", "18:00", "21:59", "22:00", "23:59:59"];
    expect![[r#"
        00:00 exclusive=night shared=all idle=sleep
        05:59:59 exclusive=night shared=all idle=sleep
        06:00 exclusive=day shared=all
        12:00 exclusive=day shared=all
        18:00 exclusive=day
        21:59 exclusive=day
        22:00 exclusive=night shared=all idle=sleep
        23:59:59 exclusive=night shared=all idle=sleep"#]]
    .assert_eq(&rows.map(at).join("\n"));
    assert_eq!(turns(&[]).uses_at(Time::midnight()), turns(&[]).uses);
}

#[test]
fn clocks_are_those_of_the_zone() {
    let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
    let zone =
        |name: &str| CpuClasses { time_zone: Some(name.to_owned()), ..CpuClasses::default() };
    assert_eq!(zone("UTC").time_of_day(now).to_string(), "12:00:00");
    // Where there is a database of time zones.
    if TimeZone::get("Asia/Tokyo").is_ok() {
        assert_eq!(zone("Asia/Tokyo").time_of_day(now).to_string(), "21:00:00");
    }
}

proptest! {
    #[test]
    fn between_two_lines_nothing_changes(
        hours in prop::collection::btree_set(0i8..24, 1..5),
        names in prop::collection::vec(0u8..4, 5),
        time in 0i8..24,
    ) {
        let names: Vec<String> = names.iter().map(|it| format!("c{it}")).collect();
        let turn = |(hour, name): (&i8, &String)| Turn {
            at: Time::constant(*hour, 0, 0, 0),
            classes: [(CpuUse::Exclusive, Some(name.clone()))].into(),
        };
        let schedule: Vec<Turn> = hours.iter().zip(&names).map(turn).collect();
        // The last one before, on the clock.
        let before = schedule.iter().rev().find(|turn| turn.at.hour() <= time);
        let expected = before.or(schedule.last()).unwrap().classes[&CpuUse::Exclusive].clone();
        let classes = CpuClasses { schedule, ..CpuClasses::default() };
        let found = classes.uses_at(Time::constant(time, 30, 0, 0));
        prop_assert_eq!(found.get(&CpuUse::Exclusive).cloned(), expected);
    }
}

#[test]
fn speed_select_is_of_the_whole_machine_and_classes_name_a_class_of_service() {
    let ours = "\
cpuClasses:
  classes:
    fast: {clos: 0}
    slow: {sstClosID: \"3\"}
  speedSelect:
    corePower: ordered
    clos:
      0: {minFreq: 2.4GHz}
      3: {minFreq: 800MHz, maxFreq: 2GHz, weight: 15}
";
    check(
        ours,
        expect![[r#"
            classes: {"fast":{"clos":0},"slow":{"clos":3}}  # line 3 of the file
            turboDomain: package
            speedSelect: {"clos":{"0":{"minFreq":"2400MHz"},"3":{"maxFreq":"2000MHz","minFreq":"800MHz","weight":15}},"corePower":"ordered"}  # line 6 of the file
            exclusive: none
            shared: none
            reserved: none
            idle: none
            schedule: []
            timeZone: local
        "#]],
    );
    let wrong = "\
cpuClasses:
  classes:
    fast: {clos: 4}
    slow: {clos: high}
  speedSelect:
    corePower: on
    power: ordered
    clos:
      0: {minFreq: 3GHz, maxFreq: 2GHz}
      1: {minFreq: base, maxFreq: 30GHz, weight: 16, max: 2GHz}
      2: fast
      4: {weight: 1}
";
    let (_, shown) = read_back("cpuClasses: {speedSelect: {corePower: off}}\n").unwrap();
    assert!(shown.contains(r#"speedSelect: {"corePower":"off"}"#), "{shown}");
    check(
        wrong,
        expect![[r#"
            f:3:18: `cpuClasses.classes.fast`: `clos` is `4`, expected a class of service of Speed Select, 0 to 3
            f:4:18: `cpuClasses.classes.slow`: `clos` is `high`, expected a class of service of Speed Select, 0 to 3
            f:6:16: `cpuClasses.speedSelect`: `corePower` is `true`, expected off, proportional, ordered
            f:7:5: `cpuClasses.speedSelect`: unknown key `power`; known are corePower, clos
            f:9:10: `cpuClasses.speedSelect.clos.0`: `minFreq` is 3000 MHz, above `maxFreq`, 2000 MHz; expected at most that
            f:10:20: `cpuClasses.speedSelect.clos.1`: `minFreq` is `base`, expected a frequency from 100MHz to 25.5GHz
            f:10:35: `cpuClasses.speedSelect.clos.1`: `maxFreq` is `30GHz`, expected a frequency from 100MHz to 25.5GHz
            f:10:50: `cpuClasses.speedSelect.clos.1`: `weight` is `16`, expected a number from 0 to 15
            f:10:54: `cpuClasses.speedSelect.clos.1`: unknown key `max`; known are minFreq, maxFreq, weight
            f:11:10: `cpuClasses.speedSelect.clos.2`: expected lines of `key: value`
            f:12:7: `cpuClasses.speedSelect.clos`: unknown key `4`; known are 0, 1, 2, 3"#]],
    );
    check(
        "cpuClasses:\n  speedSelect: ordered\n",
        expect!["f:2:16: `cpuClasses.speedSelect`: expected lines of `key: value`"],
    );
}

/// The last of two had counted, and nothing was told.
#[test]
fn a_key_of_speed_select_or_of_a_class_that_stands_twice_is_a_mistake() {
    check(
        "\
cpuClasses:
  classes:
    fast: {clos: 0, sstClosID: 1, minFreq: base, minFreq: min}
  speedSelect:
    corePower: ordered
    corePower: off
    clos:
      0: {weight: 1, weight: 2}
      \"00\": {minFreq: 2GHz}
",
        expect![[r#"
            f:3:21: `cpuClasses.classes.fast`: duplicate key `sstClosID`
            f:3:50: `cpuClasses.classes.fast`: duplicate key `minFreq`
            f:6:5: `cpuClasses.speedSelect`: duplicate key `corePower`
            f:8:22: `cpuClasses.speedSelect.clos.0`: duplicate key `weight`
            f:9:7: `cpuClasses.speedSelect.clos`: unknown key `00`; known are 0, 1, 2, 3"#]],
    );
    check(
        "cpuClasses: {speedSelect: {clos: {0: {weight: 1}, 1: , 0: {minFreq: 2GHz}}}}\n",
        expect!["f:1:56: not YAML: duplicate key `0`"],
    );
}
