use std::collections::BTreeMap;

use bayplan_enforcement::power::{Frequency, Latency, PowerClass, Preference, settings_for_power};
use bayplan_enforcement::{
    FilePlan, Original, Settings, Slot, files_to_read, plan_files, render_file_plan,
};
use bayplan_types::{CpuId, CpuSet, Khz};
use expect_test::{Expect, expect};
use nix::errno::Errno;
use proptest::prelude::*;

use super::machine::{CPUS, DRIVERS, Start, governors, machine, preferences};
use super::*;
use crate::fake_kernel::FakeKernel;
use crate::kernel::{Report, apply, observe};

type Assigned = BTreeMap<String, CpuSet>;

fn start(driver: &'static str) -> Start {
    Start {
        driver,
        policies: vec![vec![0], vec![1], vec![2, 3]],
        governor: "powersave",
        preference: "balance_performance",
        lowest: 0,
        highest: 28,
        is_turbo_on: true,
    }
}

/// The daemon's way of one round: read, say what is wanted, plan, remember, write, read back.
fn round(
    kernel: &mut FakeKernel,
    classes: &BTreeMap<String, PowerClass>,
    assigned: &Assigned,
    originals: &mut BTreeMap<Slot, Original>,
) -> (FilePlan, Report) {
    let offer = read_power(kernel);
    let (settings, _) = settings_for_power(classes, &offer, assigned);
    carry_out(kernel, &settings, originals)
}

fn carry_out(
    kernel: &mut FakeKernel,
    settings: &Settings,
    originals: &mut BTreeMap<Slot, Original>,
) -> (FilePlan, Report) {
    let observed = observe(kernel, files_to_read(settings, originals));
    let plan = plan_files(settings, &observed, originals);
    originals.extend(plan.remember.clone());
    let report = apply(kernel, &plan);
    for slot in plan.forget.iter().chain(report.given_back()) {
        originals.remove(slot);
    }
    (plan, report)
}

fn fast() -> PowerClass {
    PowerClass {
        governor: Some("performance".to_owned()),
        min: Some(Frequency::Base),
        turbo: Some(true),
        latency: Some(Latency::AtMost(0)),
        uncore_min: Some(Frequency::Max),
        ..PowerClass::default()
    }
}

fn saving() -> PowerClass {
    PowerClass {
        max: Some(Frequency::Percent(25)),
        preference: Some(Preference::Power),
        turbo: Some(false),
        disabled_states: vec!["POLL".to_owned()],
        uncore_max: Some(Frequency::Percent(50)),
        ..PowerClass::default()
    }
}

fn two_classes() -> BTreeMap<String, PowerClass> {
    [("fast".to_owned(), fast()), ("saving".to_owned(), saving())].into()
}

fn assigned(fast: &str, saving: &str) -> Assigned {
    let rows = [("fast", fast), ("saving", saving)];
    rows.map(|(name, cpus)| (name.to_owned(), cpus.parse().unwrap())).into()
}

/// The plan for two classes, and what a driver says to it.
fn check(driver: &'static str, expected: Expect) {
    let mut kernel = machine(&start(driver));
    let mut originals = BTreeMap::new();
    let (plan, report) =
        round(&mut kernel, &two_classes(), &assigned("1", "0,2-3"), &mut originals);
    let failures = report.failures().map(|(write, why)| format!("{}: {why}\n", write.slot));
    let plan = render_file_plan(&plan).replace("/sys/devices/system/cpu/", "");
    expected.assert_eq(&(plan + &failures.collect::<String>()));
    let (plan, _) = round(&mut kernel, &two_classes(), &assigned("1", "0,2-3"), &mut originals);
    assert!(plan.is_empty(), "{}", render_file_plan(&plan));
}

#[test]
fn each_driver_takes_the_plan_as_it_is() {
    check(
        "intel_pstate",
        expect![[r#"
        set    cpufreq/policy1/scaling_governor powersave -> performance  (CPU 1: class "fast": governor)
        set    cpufreq/policy1/scaling_min_freq 800000 -> 2000000  (CPU 1: class "fast": lowest frequency)
        set    intel_uncore_frequency/package_00_die_00/min_freq_khz 800000 -> 2400000  (CPUs 0-3: class "fast", "saving": lowest uncore frequency)
        set    cpu0/cpuidle/state0/disable 0 -> 1  (CPU 0: class "saving": no POLL)
        set    cpu1/power/pm_qos_resume_latency_us 0 -> n/a  (CPU 1: class "fast": time to wake up)
        set    cpu2/cpuidle/state0/disable 0 -> 1  (CPU 2: class "saving": no POLL)
        set    cpu3/cpuidle/state0/disable 0 -> 1  (CPU 3: class "saving": no POLL)
        set    cpufreq/policy0/energy_performance_preference balance_performance -> power  (CPU 0: class "saving": preference)
        set    cpufreq/policy0/scaling_max_freq 3600000 -> 1500000  (CPU 0: class "saving": highest frequency)
        set    cpufreq/policy1/energy_performance_preference balance_performance -> performance  (CPU 1: class "fast": preference)
        set    cpufreq/policy2/energy_performance_preference balance_performance -> power  (CPUs 2-3: class "saving": preference)
        set    cpufreq/policy2/scaling_max_freq 3600000 -> 1500000  (CPUs 2-3: class "saving": highest frequency)
    "#]],
    );
    check(
        "acpi-cpufreq",
        expect![[r#"
        set    cpufreq/policy1/scaling_governor powersave -> performance  (CPU 1: class "fast": governor)
        set    cpufreq/policy1/scaling_min_freq 800000 -> 2000000  (CPU 1: class "fast": lowest frequency)
        set    intel_uncore_frequency/package_00_die_00/min_freq_khz 800000 -> 2400000  (CPUs 0-3: class "fast", "saving": lowest uncore frequency)
        set    cpu0/cpuidle/state0/disable 0 -> 1  (CPU 0: class "saving": no POLL)
        set    cpu1/power/pm_qos_resume_latency_us 0 -> n/a  (CPU 1: class "fast": time to wake up)
        set    cpu2/cpuidle/state0/disable 0 -> 1  (CPU 2: class "saving": no POLL)
        set    cpu3/cpuidle/state0/disable 0 -> 1  (CPU 3: class "saving": no POLL)
        set    cpufreq/policy0/scaling_max_freq 3600000 -> 1200000  (CPU 0: class "saving": highest frequency)
        set    cpufreq/policy2/scaling_max_freq 3600000 -> 1200000  (CPUs 2-3: class "saving": highest frequency)
    "#]],
    );
    check(
        "amd-pstate-epp",
        expect![[r#"
        set    cpufreq/policy1/scaling_governor powersave -> performance  (CPU 1: class "fast": governor)
        set    cpufreq/policy1/scaling_min_freq 800000 -> 2000000  (CPU 1: class "fast": lowest frequency)
        set    intel_uncore_frequency/package_00_die_00/min_freq_khz 800000 -> 2400000  (CPUs 0-3: class "fast", "saving": lowest uncore frequency)
        set    cpu0/cpuidle/state0/disable 0 -> 1  (CPU 0: class "saving": no POLL)
        set    cpu1/power/pm_qos_resume_latency_us 0 -> n/a  (CPU 1: class "fast": time to wake up)
        set    cpu2/cpuidle/state0/disable 0 -> 1  (CPU 2: class "saving": no POLL)
        set    cpu3/cpuidle/state0/disable 0 -> 1  (CPU 3: class "saving": no POLL)
        set    cpufreq/policy0/energy_performance_preference balance_performance -> power  (CPU 0: class "saving": preference)
        set    cpufreq/policy0/scaling_max_freq 3600000 -> 1500000  (CPU 0: class "saving": highest frequency)
        set    cpufreq/policy1/energy_performance_preference balance_performance -> performance  (CPU 1: class "fast": preference)
        set    cpufreq/policy2/energy_performance_preference balance_performance -> power  (CPUs 2-3: class "saving": preference)
        set    cpufreq/policy2/scaling_max_freq 3600000 -> 1500000  (CPUs 2-3: class "saving": highest frequency)
    "#]],
    );
}

#[test]
fn what_drivers_offer_is_read() {
    for driver in DRIVERS {
        let offer = read_power(&mut machine(&start(driver)));
        let [first, .., last] = offer.policies.as_slice() else { panic!("{offer:?}") };
        assert_eq!((first.driver.as_str(), last.cpus.to_string()), (driver, "2-3".to_owned()));
        assert_eq!((first.min, first.max), (Some(Khz(800_000)), Some(Khz(3_600_000))));
        let base = (driver != "cppc_cpufreq").then_some(Khz(2_000_000));
        assert_eq!(first.base, base, "{driver}");
        assert_eq!(first.governors, governors(driver));
        assert_eq!(first.preferences.len(), [0, 5][usize::from(!preferences(driver).is_empty())]);
        assert_eq!(first.has_boost, driver.starts_with("amd"));
        let idle = &offer.idle[&CpuId(3)];
        assert_eq!((idle.states.len(), idle.has_latency_limit), (3, true));
        assert_eq!(offer.uncores.len(), 1);
        let switch = match driver {
            "intel_pstate" | "intel_cpufreq" => Some(TurboSwitch::NoTurbo),
            "acpi-cpufreq" => Some(TurboSwitch::Boost),
            _ => None,
        };
        assert_eq!((offer.turbo, offer.has_speed_select), (switch, false));
    }
}

#[test]
fn what_is_missing_or_makes_no_sense_is_not_offered() {
    assert_eq!(read_power(&mut FakeKernel::default()), PowerOffer::default());
    let policy = |file: &str| format!("{CPUS}/cpufreq/policy0/{file}");
    let mut kernel = FakeKernel::default();
    let rows = [
        (policy("affected_cpus"), "0 x 1\n"),
        (policy("cpuinfo_min_freq"), "0\n"),
        (policy("cpuinfo_max_freq"), "<unknown>\n"),
        (format!("{CPUS}/cpufreq/policy1/affected_cpus"), "\n"),
        (format!("{CPUS}/cpufreq/policyx/affected_cpus"), "7\n"),
        (format!("{CPUS}/cpu0/cpuidle/state0/name"), "C1\n"),
        (format!("{CPUS}/cpu1/cpuidle/current_driver"), "none\n"),
        ("sys/class/misc/isst_interface/dev".to_owned(), "10:123\n"),
    ];
    kernel.files.extend(rows.map(|(path, text)| (path, text.to_owned())));
    let offer = read_power(&mut kernel);
    assert!(offer.has_speed_select && offer.idle.is_empty());
    let only = PolicyOffer {
        dir: format!("{CPUS}/cpufreq/policy0"),
        cpus: "0-1".parse().unwrap(),
        ..PolicyOffer::default()
    };
    assert_eq!(offer.policies, [only]);
}

#[test]
fn the_base_frequency_is_found_in_tables() {
    let steps = |list: &[u64]| list.iter().copied().map(Khz).collect::<Vec<_>>();
    for (table, highest, expected) in [
        (&[800_000, 2_000_000, 2_001_000][..], None, Some(2_000_000)),
        (&[800_000, 2_000_000], None, None),
        (&[800_000, 2_000_000, 3_000_000], Some(2_000_000), Some(2_000_000)),
        (&[], None, None),
    ] {
        assert_eq!(base_of(&steps(table), highest.map(Khz)), expected.map(Khz), "{table:?}");
    }
}

#[test]
fn uncores_are_domains_where_there_are_some_and_dies_elsewhere() {
    let mut kernel = FakeKernel::default();
    let mut put = |path: String, text: &str| {
        kernel.files.insert(format!("{CPUS}/{path}"), text.to_owned());
    };
    for (cpu, package, die) in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 0)] {
        put(format!("cpu{cpu}/topology/physical_package_id"), &package.to_string());
        put(format!("cpu{cpu}/topology/die_id"), &die.to_string());
    }
    for name in
        ["package_00_die_00", "package_00_die_01", "package_01_die_00", "package_07_die_00", "odd"]
    {
        put(format!("intel_uncore_frequency/{name}/initial_max_freq_khz"), "2400000\n");
    }
    for (name, package, die) in [("uncore00", "1", Some("0")), ("uncore01", "1", None)] {
        put(format!("intel_uncore_frequency/{name}/package_id"), package);
        if let Some(die) = die {
            put(format!("intel_uncore_frequency/{name}/die_id"), die);
        }
    }
    let offer = read_power(&mut kernel);
    let rows = offer.uncores.iter().map(|it| {
        let name = it.dir.rsplit('/').next().unwrap();
        format!("{name} {} {:?}", it.cpus, it.max.map(|it| it.0))
    });
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            "uncore00 2-3 None",
            "uncore01 2-3 None",
            "package_00_die_00 0 Some(2400000)",
            "package_00_die_01 1 Some(2400000)",
        ]
    );
}

/// Every write of the way there and of the way back fails once with every errno; the round after that mends it.
#[test]
fn a_write_that_fails_once_is_made_by_the_next_round() {
    let errnos = [Errno::EINVAL, Errno::EBUSY, Errno::EPERM, Errno::EIO, Errno::EAGAIN];
    for driver in DRIVERS {
        let there = assigned("1", "0,2-3");
        let begin = machine(&start(driver));
        let (plan, _) = round(&mut begin.clone(), &two_classes(), &there, &mut BTreeMap::new());
        for write in &plan.writes {
            for errno in errnos {
                let (mut kernel, mut originals) = (begin.clone(), BTreeMap::new());
                for assigned in [&there, &Assigned::new()] {
                    kernel.fail_next(&write.slot.path, errno);
                    let (_, report) = round(&mut kernel, &two_classes(), assigned, &mut originals);
                    let told: Vec<_> = report.failures().map(|(it, _)| &it.slot).collect();
                    assert!(told.contains(&&write.slot), "{driver} {} {errno}", write.slot);
                    for _ in 0..2 {
                        round(&mut kernel, &two_classes(), assigned, &mut originals);
                    }
                    let (plan, _) = round(&mut kernel, &two_classes(), assigned, &mut originals);
                    assert!(plan.is_empty(), "{driver} {errno}: {}", render_file_plan(&plan));
                }
                assert_eq!(visible(&kernel), visible(&begin), "{driver} {} {errno}", write.slot);
            }
        }
    }
}

/// What can be read, without line ends.
fn visible(kernel: &FakeKernel) -> BTreeMap<&str, &str> {
    let files = kernel.files.iter().filter(|(path, _)| !path.contains("/."));
    files.map(|(path, text)| (path.as_str(), text.trim())).collect()
}

fn any_start() -> impl Strategy<Value = Start> {
    let numbers = (0u64..29, 0u64..29, 0usize..10, 0usize..10);
    let which = (prop::sample::select(&DRIVERS[..]), any::<bool>(), any::<bool>());
    (which, numbers).prop_map(|((driver, together, is_turbo_on), (a, b, governor, preference))| {
        let governors = governors(driver);
        let governor = governors[governor % governors.len()];
        let is_active = governors.len() == 2;
        let words = preferences(driver);
        let preference = match words.len() {
            0 => "",
            _ if is_active && governor == "performance" => "performance",
            len => words[preference % len],
        };
        // In a table, on a step; with a switch of its own for turbo, the driver asks for the highest itself.
        let top = if is_turbo_on { 28 } else { 12 };
        let (lowest, highest) = match driver {
            "acpi-cpufreq" => (0, if a % 2 == 0 { 28 } else { 4 }),
            _ if driver.starts_with("amd") => (a.min(b).min(top), 28),
            _ => (a.min(b).min(top), a.max(b).min(top)),
        };
        let policies = match together {
            true => vec![vec![0, 1], vec![2, 3]],
            false => vec![vec![0], vec![1], vec![2], vec![3]],
        };
        Start { driver, policies, governor, preference, lowest, highest, is_turbo_on }
    })
}

fn any_class() -> impl Strategy<Value = PowerClass> {
    let frequency = || {
        prop::option::of(prop_oneof![
            Just(Frequency::Min),
            Just(Frequency::Base),
            Just(Frequency::Max),
            (100_000u64..9_000_000).prop_map(|khz| Frequency::Exactly(Khz(khz))),
            (0u8..=100).prop_map(Frequency::Percent),
        ])
    };
    let governor =
        prop::option::of(prop::sample::select(vec!["performance", "powersave", "schedutil"]));
    let preference = prop::option::of(prop::sample::select(&Preference::ALL[..]));
    let turbo = prop::option::of(any::<bool>());
    let latency = prop::option::of((0u32..200).prop_map(Latency::AtMost));
    let states = prop::collection::vec(prop::sample::select(vec!["C1", "C6", "C9"]), 0..2);
    let parts = (governor, preference, turbo, latency, states);
    (parts, [frequency(), frequency(), frequency(), frequency()]).prop_map(
        |(parts, frequencies)| {
            let (governor, preference, turbo, latency, states) = parts;
            let [min, max, uncore_min, uncore_max] = frequencies;
            PowerClass {
                governor: governor.map(str::to_owned),
                min,
                max,
                preference,
                turbo,
                latency,
                disabled_states: states.into_iter().map(str::to_owned).collect(),
                uncore_min,
                uncore_max,
                clos: None,
                turbo_priority: 0,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// From any start, through any classes on any CPUs: two rounds are enough (one where no switch for turbo moves), nothing is refused, and at the
    /// end everything is as it was.
    #[test]
    fn every_class_is_reached_and_everything_is_given_back(
        start in any_start(),
        classes in prop::collection::vec(any_class(), 3),
        ways in prop::collection::vec(prop::collection::vec(prop::option::of(0usize..3), 4), 1..4),
    ) {
        let begin = machine(&start);
        let classes: BTreeMap<String, PowerClass> =
            classes.into_iter().zip(0..).map(|(class, i)| (format!("c{i}"), class)).collect();
        let (mut kernel, mut originals) = (begin.clone(), BTreeMap::new());
        for way in ways.iter().chain([&vec![None; 4]]) {
            let mut assigned = Assigned::new();
            for (class, cpu) in way.iter().zip(0..) {
                if let Some(class) = class {
                    assigned.entry(format!("c{class}")).or_default().insert(CpuId(cpu));
                }
            }
            for _ in 0..3 {
                let (_, report) = round(&mut kernel, &classes, &assigned, &mut originals);
                for (write, why) in report.failures() {
                    let is_refused = !matches!(why, crate::kernel::WriteFailure::Differs { .. });
                    prop_assert!(!is_refused, "{} {}: {}", write.slot, write.new, why);
                }
            }
            let (plan, _) = round(&mut kernel, &classes, &assigned, &mut originals);
            prop_assert!(plan.is_empty(), "{}", render_file_plan(&plan));
        }
        prop_assert!(originals.is_empty(), "{:?}", originals);
        prop_assert_eq!(visible(&kernel), visible(&begin));
    }
}
