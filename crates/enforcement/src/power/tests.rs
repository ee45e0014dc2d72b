use std::fmt::Write as _;

use bayplan_types::{CpuId, Khz};
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const DIR: &str = "sys/devices/system/cpu/cpufreq";

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// One policy per set of CPUs, with what the driver offers on a machine of its kind.
fn policies(driver: &str, sets: &[&str]) -> Vec<PolicyOffer> {
    let policy = |cpus: &&str| {
        let cpus: CpuSet = cpus.parse().unwrap();
        let mut offer = PolicyOffer {
            dir: format!("{DIR}/policy{}", cpus.first().unwrap()),
            cpus,
            driver: driver.to_owned(),
            min: Some(Khz(800_000)),
            max: Some(Khz(3_600_000)),
            base: Some(Khz(2_000_000)),
            ..PolicyOffer::default()
        };
        let hints = "default performance balance_performance balance_power power";
        let (governors, preferences) = match driver {
            "intel_pstate" | "amd-pstate-epp" => ("performance powersave", hints),
            "intel_cpufreq" => ("conservative ondemand performance schedutil powersave", hints),
            _ => ("conservative ondemand performance schedutil powersave", ""),
        };
        (offer.governors, offer.preferences) = (words(governors), words(preferences));
        if driver == "acpi-cpufreq" {
            offer.steps = [800_000, 1_200_000, 1_700_000, 2_000_000, 2_001_000].map(Khz).to_vec();
            offer.max = Some(Khz(2_001_000));
        }
        offer.has_boost = driver == "amd-pstate-epp";
        offer
    };
    sets.iter().map(policy).collect()
}

fn idle(cpus: &str, has_latency_limit: bool) -> BTreeMap<CpuId, IdleOffer> {
    let states = [("POLL", 0), ("C1", 2), ("C1E", 10), ("C6", 133)];
    let states = states.iter().zip(0..).map(|((name, latency_us), number)| IdleState {
        number,
        name: (*name).to_owned(),
        latency_us: *latency_us,
    });
    let offer = IdleOffer { states: states.collect(), has_latency_limit };
    cpus.parse::<CpuSet>().unwrap().iter().map(|cpu| (cpu, offer.clone())).collect()
}

fn uncore(name: &str, cpus: &str) -> UncoreOffer {
    UncoreOffer {
        dir: format!("sys/devices/system/cpu/intel_uncore_frequency/{name}"),
        cpus: cpus.parse().unwrap(),
        min: Some(Khz(800_000)),
        max: Some(Khz(2_400_000)),
    }
}

/// `governor=powersave min=base cstates=C6,C1E`.
fn class(text: &str) -> PowerClass {
    let mut class = PowerClass::default();
    for (key, value) in text.split_whitespace().map(|it| it.split_once('=').unwrap()) {
        let frequency = || Some(value.parse().unwrap());
        match key {
            "governor" => class.governor = Some(value.to_owned()),
            "min" => class.min = frequency(),
            "max" => class.max = frequency(),
            "preference" => class.preference = Some(value.parse().unwrap()),
            "turbo" => class.turbo = Some(value == "on"),
            "latency" => class.latency = Some(value.parse().unwrap()),
            "cstates" => class.disabled_states = value.split(',').map(str::to_owned).collect(),
            "uncore_min" => class.uncore_min = frequency(),
            "uncore_max" => class.uncore_max = frequency(),
            _ => panic!("{key}"),
        }
    }
    class
}

/// Rows: name, what the class asks, its CPUs.
fn check(offer: &PowerOffer, rows: &[(&str, &str, &str)], expected: Expect) {
    let named = rows.iter().map(|(name, text, _)| ((*name).to_owned(), class(text)));
    let assigned = rows.iter().map(|(name, _, cpus)| ((*name).to_owned(), cpus.parse().unwrap()));
    let (settings, problems) =
        settings_for_power(&named.collect(), offer, &assigned.collect::<BTreeMap<_, _>>());
    let mut text = String::new();
    for (slot, Setting { value, unit, reason, .. }) in settings {
        let path = slot.path.replace("sys/devices/system/cpu/", "");
        writeln!(text, "{path} = {value}  ({unit}: {reason})").unwrap();
    }
    for problem in problems {
        writeln!(text, "! {problem}").unwrap();
    }
    expected.assert_eq(&text);
}

fn machine(driver: &str, sets: &[&str]) -> PowerOffer {
    PowerOffer { policies: policies(driver, sets), ..PowerOffer::default() }
}

#[test]
fn a_class_becomes_what_the_driver_takes() {
    let asks = "governor=performance min=base max=turbo";
    check(
        &machine("intel_pstate", &["0", "1"]),
        &[("fast", asks, "1")],
        expect![[r#"
        cpufreq/policy1/energy_performance_preference = performance  (CPU 1: class "fast": preference)
        cpufreq/policy1/scaling_governor = performance  (CPU 1: class "fast": governor)
        cpufreq/policy1/scaling_max_freq = 3600000  (CPU 1: class "fast": highest frequency)
        cpufreq/policy1/scaling_min_freq = 2000000  (CPU 1: class "fast": lowest frequency)
    "#]],
    );
    let asks = "governor=schedutil min=1GHz max=50% preference=power";
    check(
        &machine("intel_cpufreq", &["0"]),
        &[("slow", asks, "0")],
        expect![[r#"
        cpufreq/policy0/energy_performance_preference = power  (CPU 0: class "slow": preference)
        cpufreq/policy0/scaling_governor = schedutil  (CPU 0: class "slow": governor)
        cpufreq/policy0/scaling_max_freq = 2200000  (CPU 0: class "slow": highest frequency)
        cpufreq/policy0/scaling_min_freq = 1000000  (CPU 0: class "slow": lowest frequency)
    "#]],
    );
    // Between steps.
    check(
        &machine("acpi-cpufreq", &["0"]),
        &[("mid", "min=1GHz max=1.9GHz turbo=off", "0")],
        expect![[r#"
            cpufreq/policy0/scaling_max_freq = 1700000  (CPU 0: class "mid": highest frequency)
            cpufreq/policy0/scaling_min_freq = 1200000  (CPU 0: class "mid": lowest frequency)
        "#]],
    );
}

#[test]
fn an_active_driver_wants_governor_and_preference_to_agree() {
    let offer = machine("intel_pstate", &["0", "1", "2", "3"]);
    let rows = [
        ("a", "preference=balance_power", "0"),
        ("b", "governor=performance preference=balance_power", "1"),
        ("c", "governor=powersave preference=performance", "2"),
        ("d", "preference=performance", "3"),
    ];
    check(
        &offer,
        &rows,
        expect![[r#"
        cpufreq/policy0/energy_performance_preference = balance_power  (CPU 0: class "a": preference)
        cpufreq/policy0/scaling_governor = powersave  (CPU 0: class "a": governor)
        cpufreq/policy1/energy_performance_preference = performance  (CPU 1: class "b": preference)
        cpufreq/policy1/scaling_governor = performance  (CPU 1: class "b": governor)
        cpufreq/policy2/energy_performance_preference = performance  (CPU 2: class "c": preference)
        cpufreq/policy2/scaling_governor = powersave  (CPU 2: class "c": governor)
        cpufreq/policy3/energy_performance_preference = performance  (CPU 3: class "d": preference)
        ! class "b" on CPU 1: preference balance_power: intel_pstate takes none but performance under the governor performance
    "#]],
    );
}

#[test]
fn what_the_driver_does_not_offer_is_told_once_with_what_it_offers() {
    let rows = [
        ("a", "governor=ondemand max=5GHz min=100MHz", "0-1"),
        ("b", "min=3GHz max=1GHz", "2"),
        ("gone", "governor=performance", "7"),
    ];
    check(
        &machine("intel_pstate", &["0", "1", "2"]),
        &rows,
        expect![[r#"
        cpufreq/policy0/scaling_max_freq = 3600000  (CPU 0: class "a": highest frequency)
        cpufreq/policy0/scaling_min_freq = 800000  (CPU 0: class "a": lowest frequency)
        cpufreq/policy1/scaling_max_freq = 3600000  (CPU 1: class "a": highest frequency)
        cpufreq/policy1/scaling_min_freq = 800000  (CPU 1: class "a": lowest frequency)
        cpufreq/policy2/scaling_max_freq = 1000000  (CPU 2: class "b": highest frequency)
        cpufreq/policy2/scaling_min_freq = 1000000  (CPU 2: class "b": lowest frequency)
        ! class "a" on CPUs 0-1: governor ondemand: intel_pstate offers performance, powersave
        ! class "a" on CPUs 0-1: highest frequency 5000MHz: intel_pstate offers 800 MHz to 3.6 GHz, so it is 3.6 GHz
        ! class "a" on CPUs 0-1: lowest frequency 100MHz: intel_pstate offers 800 MHz to 3.6 GHz, so it is 800 MHz
        ! class "b" on CPU 2: the lowest frequency, 3.0 GHz, is above the highest, 1.0 GHz, which it gets
        ! class "gone" on CPU 7: frequency: the kernel has no frequency driver for them
    "#]],
    );
    let rows = [("a", "preference=power governor=userspace", "0")];
    check(
        &machine("acpi-cpufreq", &["0"]),
        &rows,
        expect![[r#"
        ! class "a" on CPU 0: governor userspace: acpi-cpufreq offers conservative, ondemand, performance, schedutil, powersave
        ! class "a" on CPU 0: preference power: acpi-cpufreq offers none
    "#]],
    );
    let mut bare = machine("cppc_cpufreq", &["0"]);
    for policy in &mut bare.policies {
        (policy.min, policy.max, policy.base, policy.governors) = (None, None, None, Vec::new());
    }
    check(
        &bare,
        &[("a", "min=base max=1GHz turbo=off governor=powersave", "0")],
        expect![[r#"
        cpufreq/policy0/scaling_governor = powersave  (CPU 0: class "a": governor)
        cpufreq/policy0/scaling_max_freq = 1000000  (CPU 0: class "a": highest frequency)
        ! class "a" on CPU 0: lowest frequency base: cppc_cpufreq does not say it
        ! class "a" on CPU 0: no turbo: cppc_cpufreq has no switch for it and does not say which frequency is the highest without
    "#]],
    );
}

#[test]
fn cpus_that_share_a_policy_get_the_faster_wish() {
    let offer = machine("acpi-cpufreq", &["0-3"]);
    let slow = "governor=powersave max=1.2GHz min=800MHz";
    check(
        &offer,
        &[("slow", slow, "0-3")],
        expect![[r#"
        cpufreq/policy0/scaling_governor = powersave  (CPUs 0-3: class "slow": governor)
        cpufreq/policy0/scaling_max_freq = 1200000  (CPUs 0-3: class "slow": highest frequency)
        cpufreq/policy0/scaling_min_freq = 800000  (CPUs 0-3: class "slow": lowest frequency)
    "#]],
    );
    check(
        &offer,
        &[("slow", slow, "0-1")],
        expect![[r#"
            cpufreq/policy0/scaling_max_freq = 2001000  (CPUs 0-3: class "slow": highest frequency)
            cpufreq/policy0/scaling_min_freq = 800000  (CPUs 0-3: class "slow": lowest frequency)
            ! class "slow" on CPUs 0-1: the frequency is set together with CPUs 2-3 without a class: the faster request counts
        "#]],
    );
    let fast = "governor=performance max=turbo min=base";
    check(
        &offer,
        &[("fast", fast, "2-3"), ("slow", slow, "0-1")],
        expect![[r#"
        cpufreq/policy0/scaling_governor = performance  (CPUs 0-3: class "fast", "slow": governor)
        cpufreq/policy0/scaling_max_freq = 2001000  (CPUs 0-3: class "fast", "slow": highest frequency)
        cpufreq/policy0/scaling_min_freq = 2000000  (CPUs 0-3: class "fast", "slow": lowest frequency)
        ! class "fast" on CPUs 2-3: the frequency is set together with CPUs 0-1 of class "slow": the faster request counts
        ! class "slow" on CPUs 0-1: the frequency is set together with CPUs 2-3 of class "fast": the faster request counts
    "#]],
    );
    check(
        &offer,
        &[("lazy", "latency=any", "2-3"), ("slow", slow, "0-1")],
        expect![[r#"
            cpufreq/policy0/scaling_max_freq = 2001000  (CPUs 0-3: class "lazy", "slow": highest frequency)
            cpufreq/policy0/scaling_min_freq = 800000  (CPUs 0-3: class "lazy", "slow": lowest frequency)
            ! class "lazy" on CPUs 2-3: idle states: the kernel has none for these CPUs
            ! class "slow" on CPUs 0-1: the frequency is set together with CPUs 2-3 of class "lazy": the faster request counts
        "#]],
    );
}

#[test]
fn no_turbo_is_a_limit_where_the_base_is_known() {
    check(
        &machine("intel_pstate", &["0"]),
        &[("a", "turbo=off", "0")],
        expect![[r#"
            cpufreq/policy0/scaling_max_freq = 2000000  (CPU 0: class "a": highest frequency)
            cpufreq/policy0/scaling_min_freq = 800000  (CPU 0: class "a": lowest frequency)
        "#]],
    );
    check(
        &machine("intel_pstate", &["0"]),
        &[("a", "turbo=off max=3GHz", "0")],
        expect![[r#"
            cpufreq/policy0/scaling_max_freq = 2000000  (CPU 0: class "a": highest frequency)
            cpufreq/policy0/scaling_min_freq = 800000  (CPU 0: class "a": lowest frequency)
        "#]],
    );
    let offer = machine("amd-pstate-epp", &["0", "1"]);
    let rows = [("a", "turbo=off", "0"), ("b", "turbo=on", "1")];
    check(
        &offer,
        &rows,
        expect![[r#"
            cpufreq/policy0/scaling_max_freq = 2000000  (CPU 0: class "a": highest frequency)
            cpufreq/policy0/scaling_min_freq = 800000  (CPU 0: class "a": lowest frequency)
            cpufreq/policy1/boost = 1  (CPU 1: class "b": turbo)
            cpufreq/policy1/scaling_max_freq = 3600000  (CPU 1: class "b": highest frequency)
            cpufreq/policy1/scaling_min_freq = 800000  (CPU 1: class "b": lowest frequency)
        "#]],
    );
}

#[test]
fn where_the_base_is_not_known_turbo_is_switched() {
    let mut offer = machine("amd-pstate-epp", &["0", "1"]);
    let rows = [("a", "turbo=off", "0"), ("b", "turbo=on", "1")];
    for policy in &mut offer.policies {
        policy.base = None;
    }
    check(
        &offer,
        &rows,
        expect![[r#"
            cpufreq/policy0/boost = 0  (CPU 0: class "a": turbo)
            cpufreq/policy1/boost = 1  (CPU 1: class "b": turbo)
            cpufreq/policy1/scaling_max_freq = 3600000  (CPU 1: class "b": highest frequency)
            cpufreq/policy1/scaling_min_freq = 800000  (CPU 1: class "b": lowest frequency)
        "#]],
    );
    for policy in &mut offer.policies {
        policy.has_boost = false;
    }
    check(
        &offer,
        &rows,
        expect![[r#"
            cpufreq/policy1/scaling_max_freq = 3600000  (CPU 1: class "b": highest frequency)
            cpufreq/policy1/scaling_min_freq = 800000  (CPU 1: class "b": lowest frequency)
            ! class "a" on CPU 0: no turbo: amd-pstate-epp has no switch for it and does not say which frequency is the highest without
        "#]],
    );
    offer.turbo = Some(TurboSwitch::Boost);
    check(
        &offer,
        &rows,
        expect![[r#"
            cpufreq/boost = 1  (machine: class "b": turbo)
            cpufreq/policy1/scaling_max_freq = 3600000  (CPU 1: class "b": highest frequency)
            cpufreq/policy1/scaling_min_freq = 800000  (CPU 1: class "b": lowest frequency)
        "#]],
    );
    check(
        &offer,
        &[("a", "turbo=off", "0-1")],
        expect![[r#"
        cpufreq/boost = 0  (machine: class "a": turbo)
    "#]],
    );
    check(
        &offer,
        &[("a", "turbo=off", "0")],
        expect![[r#"
        ! class "a" on CPU 0: no turbo: the only switch is the machine's, and not all CPUs want it off
    "#]],
    );
    offer.turbo = Some(TurboSwitch::NoTurbo);
    check(
        &offer,
        &[("a", "turbo=on max=1GHz", "0")],
        expect![[r#"
            cpufreq/policy0/scaling_max_freq = 1000000  (CPU 0: class "a": highest frequency)
            cpufreq/policy0/scaling_min_freq = 800000  (CPU 0: class "a": lowest frequency)
            intel_pstate/no_turbo = 0  (machine: class "a": turbo)
        "#]],
    );
}

#[test]
fn sleep_is_limited_by_time_or_by_name() {
    let offer = |has_limit| PowerOffer { idle: idle("0-1", has_limit), ..PowerOffer::default() };
    let rows = [("a", "latency=10us", "0"), ("b", "latency=0 cstates=c6,C9", "1")];
    check(
        &offer(true),
        &rows,
        expect![[r#"
        cpu0/power/pm_qos_resume_latency_us = 10  (CPU 0: class "a": time to wake up)
        cpu1/cpuidle/state3/disable = 1  (CPU 1: class "b": no C6)
        cpu1/power/pm_qos_resume_latency_us = n/a  (CPU 1: class "b": time to wake up)
        ! class "b" on CPU 1: idle state C9: the kernel offers POLL, C1, C1E, C6
    "#]],
    );
    check(
        &offer(false),
        &rows,
        expect![[r#"
        cpu0/cpuidle/state3/disable = 1  (CPU 0: class "a": no C6)
        cpu1/cpuidle/state1/disable = 1  (CPU 1: class "b": no C1)
        cpu1/cpuidle/state2/disable = 1  (CPU 1: class "b": no C1E)
        cpu1/cpuidle/state3/disable = 1  (CPU 1: class "b": no C6)
        ! class "b" on CPU 1: idle state C9: the kernel offers POLL, C1, C1E, C6
    "#]],
    );
    check(
        &offer(true),
        &[("a", "latency=any", "0-1")],
        expect![[r#"
        cpu0/power/pm_qos_resume_latency_us = 0  (CPU 0: class "a": time to wake up)
        cpu1/power/pm_qos_resume_latency_us = 0  (CPU 1: class "a": time to wake up)
    "#]],
    );
    check(
        &PowerOffer::default(),
        &rows,
        expect![[r#"
        ! class "a" on CPU 0: idle states: the kernel has none for these CPUs
        ! class "b" on CPU 1: idle states: the kernel has none for these CPUs
    "#]],
    );
}

#[test]
fn a_die_runs_as_fast_as_its_fastest_class() {
    let offer = PowerOffer {
        uncores: vec![uncore("package_00_die_00", "0-3"), uncore("uncore01", "4-7")],
        ..PowerOffer::default()
    };
    let rows =
        [("fast", "uncore_min=2GHz uncore_max=max", "0-1"), ("slow", "uncore_max=1.25GHz", "2-7")];
    check(
        &offer,
        &rows,
        expect![[r#"
        intel_uncore_frequency/package_00_die_00/max_freq_khz = 2400000  (CPUs 0-3: class "fast", "slow": highest uncore frequency)
        intel_uncore_frequency/package_00_die_00/min_freq_khz = 2000000  (CPUs 0-3: class "fast", "slow": lowest uncore frequency)
        intel_uncore_frequency/uncore01/max_freq_khz = 1200000  (CPUs 4-7: class "slow": highest uncore frequency)
    "#]],
    );
    check(
        &offer,
        &[("slow", "uncore_max=1.25GHz uncore_min=9GHz", "2-5")],
        expect![[r#"
        intel_uncore_frequency/package_00_die_00/min_freq_khz = 2400000  (CPUs 0-3: class "slow": lowest uncore frequency)
        intel_uncore_frequency/uncore01/min_freq_khz = 2400000  (CPUs 4-7: class "slow": lowest uncore frequency)
        ! class "slow" on CPUs 2-3: highest uncore frequency: CPUs 0-1 use the same uncore and name none, so it stays as it was
        ! class "slow" on CPUs 4-5: highest uncore frequency: CPUs 6-7 use the same uncore and name none, so it stays as it was
        ! class "slow" on CPUs 2-5: lowest uncore frequency 9000MHz: the driver offers 800 MHz to 2.4 GHz, so it is 2.4 GHz
    "#]],
    );
    let rows = [("a", "uncore_min=base", "0"), ("b", "uncore_min=50% uncore_max=1GHz", "4-7")];
    check(
        &offer,
        &rows,
        expect![[r#"
        intel_uncore_frequency/uncore01/max_freq_khz = 1000000  (CPUs 4-7: class "b": highest uncore frequency)
        intel_uncore_frequency/uncore01/min_freq_khz = 1000000  (CPUs 4-7: class "b": lowest uncore frequency)
        ! class "a" on CPU 0: lowest uncore frequency base: there is none; name a number, min, max or a percentage
        ! class "b" on CPUs 4-7: lowest uncore frequency: 1.6 GHz is above the highest, 1.0 GHz, which it gets
    "#]],
    );
    check(
        &PowerOffer::default(),
        &[("a", "uncore_min=1GHz", "0")],
        expect![[r#"
        ! class "a" on CPU 0: uncore frequency: the kernel has no driver for it
    "#]],
    );
}

#[test]
fn profiles_are_those_of_power_manager() {
    let rows: Vec<String> = profile_names()
        .map(|name| {
            let classes = [(name.to_owned(), profile(name).unwrap())].into();
            let assigned = [(name.to_owned(), CpuSet::first_n(1))].into();
            let offer = machine("intel_pstate", &["0"]);
            let (settings, problems) = settings_for_power(&classes, &offer, &assigned);
            assert_eq!(problems, [""; 0]);
            let values: Vec<&str> = settings.values().map(|it| it.value.as_str()).collect();
            format!("{name}: {}", values.join(" "))
        })
        .collect();
    expect![[r#"
        performance: performance 3600000 3400000
        balance-performance: balance_performance powersave 2900000 2700000
        balance-power: balance_power powersave 2200000 2000000
        power: power powersave 1500000 1300000
        default: power powersave 1500000 1300000"#]]
    .assert_eq(&rows.join("\n"));
    assert_eq!(profile("balance_power"), profile("balance-power"));
    assert_eq!(profile("turbo"), None);
}

fn any_class() -> impl Strategy<Value = PowerClass> {
    let frequency = || {
        prop::option::of(prop_oneof![
            Just(Frequency::Min),
            Just(Frequency::Base),
            Just(Frequency::Max),
            (100_000u64..9_000_000).prop_map(|khz| Frequency::Exactly(Khz(khz))),
            (0u8..=100).prop_map(Frequency::Percent),
            (0u64..5_000_000).prop_map(|khz| Frequency::BelowMax(Khz(khz))),
        ])
    };
    let word = |words: &'static [&'static str]| {
        prop::option::of(prop::sample::select(words)).prop_map(|it| it.map(str::to_owned))
    };
    let cpu = (
        word(&["performance", "powersave", "schedutil", "none"]),
        frequency(),
        frequency(),
        prop::option::of(prop::sample::select(&Preference::ALL[..])),
        prop::option::of(any::<bool>()),
    );
    let sleep =
        prop::option::of(prop_oneof![Just(Latency::Any), (0u32..200).prop_map(Latency::AtMost)]);
    let states = prop::collection::vec(prop::sample::select(vec!["C1", "c6", "C9"]), 0..3);
    (cpu, sleep, states, frequency(), frequency()).prop_map(
        |((governor, min, max, preference, turbo), latency, states, uncore_min, uncore_max)| {
            let disabled_states = states.into_iter().map(str::to_owned).collect();
            PowerClass {
                governor,
                min,
                max,
                preference,
                turbo,
                latency,
                disabled_states,
                uncore_min,
                uncore_max,
                clos: None,
                turbo_priority: 0,
            }
        },
    )
}

proptest! {
    /// What the doc comments promise: nothing is named that is not offered, and no range is upside down.
    #[test]
    fn settings_are_within_what_is_offered(
        driver in prop::sample::select(vec!["intel_pstate", "intel_cpufreq", "acpi-cpufreq", "amd-pstate-epp"]),
        together in any::<bool>(),
        classes in prop::collection::vec(any_class(), 3),
        dressed in prop::collection::vec(prop::option::of(0usize..3), 4),
    ) {
        let sets: &[&str] = if together { &["0-1", "2-3"] } else { &["0", "1", "2", "3"] };
        let offer = PowerOffer {
            idle: idle("0-3", together),
            uncores: vec![uncore("uncore00", "0-3")],
            turbo: Some(TurboSwitch::Boost),
            ..machine(driver, sets)
        };
        let classes: BTreeMap<String, PowerClass> =
            classes.into_iter().zip(0..).map(|(class, i)| (format!("c{i}"), class)).collect();
        let mut assigned: BTreeMap<String, CpuSet> = BTreeMap::new();
        for (class, cpu) in dressed.iter().zip(0..) {
            if let Some(class) = class {
                assigned.entry(format!("c{class}")).or_default().insert(CpuId(cpu));
            }
        }
        let (settings, _) = settings_for_power(&classes, &offer, &assigned);
        let number = |dir: &str, file: &str| {
            let setting = settings.get(&Slot::file(format!("{dir}/{file}")))?;
            setting.value.parse::<u64>().ok().map(Khz)
        };
        let word = |dir: &str, file: &str| {
            settings.get(&Slot::file(format!("{dir}/{file}"))).map(|it| it.value.clone())
        };
        for policy in &offer.policies {
            let (min, max) =
                (number(&policy.dir, "scaling_min_freq"), number(&policy.dir, "scaling_max_freq"));
            for khz in min.iter().chain(&max) {
                prop_assert!(policy.min <= Some(*khz) && Some(*khz) <= policy.max);
                prop_assert!(policy.steps.is_empty() || policy.steps.contains(khz));
            }
            if let Some((min, max)) = min.zip(max) {
                prop_assert!(min <= max);
            }
            let governor = word(&policy.dir, "scaling_governor");
            prop_assert!(governor.as_ref().is_none_or(|it| policy.governors.contains(it)));
            let preference = word(&policy.dir, "energy_performance_preference");
            prop_assert!(preference.as_ref().is_none_or(|it| policy.preferences.contains(it)));
            if policy.is_active() && preference.as_ref().is_some_and(|it| it != "performance") {
                prop_assert_eq!(governor, Some("powersave".to_owned()));
            }
        }
        for uncore in &offer.uncores {
            let (min, max) =
                (number(&uncore.dir, "min_freq_khz"), number(&uncore.dir, "max_freq_khz"));
            if let Some((min, max)) = min.zip(max) {
                prop_assert!(min <= max);
            }
            for khz in min.iter().chain(&max) {
                prop_assert!(uncore.min <= Some(*khz) && Some(*khz) <= uncore.max);
            }
        }
        let (nothing, problems) = settings_for_power(&classes, &offer, &BTreeMap::new());
        prop_assert!(nothing.is_empty() && problems.is_empty());
    }
}
