use std::path::Path;
use std::sync::Arc;

use bayplan_allocator::NoHome;
use bayplan_enforcement::{Setting, Slot};
use bayplan_host::fake_kernel::FakeKernel;
use bayplan_node::occupancy::{Occupant, OccupiedGroup, tuning_of};
use bayplan_types::{CORE_POWER, CpuClass};
use bayplan_workload::{NewContainer, Pod, RequestRules};
use expect_test::{Expect, expect};

use super::*;
use crate::config::parse_config;

/// A container: CPUs that it may run on, those that it owns, and annotations.
fn occupant(name: &str, cpus: &str, exclusive: &str, annotations: &[(&str, &str)]) -> Occupant {
    let annotations = annotations.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let pod = Pod { annotations: annotations.collect(), ..Pod::default() };
    let spec = NewContainer { pod, name: "c".to_owned(), ..NewContainer::default() };
    Occupant {
        id: bayplan_allocator::ContainerId(0),
        name: format!("n/{name}/c"),
        runtime_id: format!("id-{name}"),
        scheduling_class: None,
        tuning: Arc::new(tuning_of(&spec, &RequestRules::default())),
        spec: Arc::new(spec),
        class: CpuClass::Exclusive,
        cpus: cpus.parse().unwrap(),
        exclusive: exclusive.parse().unwrap(),
        mems: "0".parse().unwrap(),
        home: Err(NoHome::AtHome),
        is_left_alone: false,
        is_immovable: false,
        is_claimed: false,
        may_share_elsewhere: false,
        is_together: false,
        is_running: true,
    }
}

/// Eight CPUs, of which 0 is reserved, 1-3 are containers' own, and 4-7 are shared.
fn kernel() -> FakeKernel {
    let mut kernel = FakeKernel::new(&[("sys/devices/system/cpu/online", "0-7\n")]);
    for cpu in 0..8 {
        let rows = [
            (format!("cpufreq/policy{cpu}/affected_cpus"), cpu.to_string()),
            (format!("cpufreq/policy{cpu}/scaling_driver"), "intel_cpufreq".to_owned()),
            (format!("cpufreq/policy{cpu}/cpuinfo_min_freq"), "800000".to_owned()),
            (format!("cpufreq/policy{cpu}/cpuinfo_max_freq"), "3000000".to_owned()),
            (
                format!("cpufreq/policy{cpu}/scaling_available_governors"),
                "performance powersave schedutil".to_owned(),
            ),
            (format!("cpu{cpu}/power/pm_qos_resume_latency_us"), "0\n".to_owned()),
        ];
        let files = rows.map(|(path, text)| (format!("sys/devices/system/cpu/{path}"), text));
        kernel.files.extend(files);
    }
    kernel
}

fn occupancy(occupants: Vec<Occupant>) -> Occupancy {
    let (reserved, shared) = ("0".parse().unwrap(), "4-7".parse().unwrap());
    Occupancy { occupants, reserved, shared, ..Occupancy::default() }
}

/// Which container has which class at 12:00 and at 23:00: what it comes to for governor, range and time to wake up.
fn check(config: &str, occupants: Vec<Occupant>, expected: Expect) {
    let config = parse_config(Path::new("c"), config).unwrap();
    let (mut kernel, mut cache) = (kernel(), Power::default());
    let mut text = String::new();
    for time in ["12:00", "23:00"] {
        let mut gathered = Gathered::default();
        let occupancy = occupancy(occupants.clone());
        let at = time.parse().unwrap();
        gather_power(&mut kernel, &mut cache.0, &config, &occupancy, at, &mut gathered);
        text.push_str(&format!("{time}\n"));
        for (slot, setting) in &gathered.settings {
            let path = slot.path.replace("sys/devices/system/cpu/", "");
            text.push_str(&format!("  {path} = {} ({})\n", setting.value, setting.reason));
        }
        text.extend(gathered.problems.iter().map(|problem| format!("  ! {problem}\n")));
    }
    expected.assert_eq(&text);
}

#[test]
fn every_use_has_its_class_and_the_schedule_its_hours() {
    let config = "\
cpuClasses:
  classes:
    fast: {governor: performance}
    quiet: {governor: powersave, maxFreq: 1GHz}
  exclusive: fast
  reserved: quiet
  idle: quiet
  schedule:
    - {at: \"06:00\", exclusive: fast, shared: none}
    - {at: \"22:00\", exclusive: none, shared: fast}
";
    let occupants = vec![occupant("own", "1", "1", &[]), occupant("shares", "4-5", "", &[])];
    check(
        config,
        occupants,
        expect![[r#"
        12:00
          cpufreq/policy0/scaling_governor = powersave (class "quiet": governor)
          cpufreq/policy0/scaling_max_freq = 1000000 (class "quiet": highest frequency)
          cpufreq/policy0/scaling_min_freq = 800000 (class "quiet": lowest frequency)
          cpufreq/policy1/scaling_governor = performance (class "fast": governor)
          cpufreq/policy6/scaling_governor = powersave (class "quiet": governor)
          cpufreq/policy6/scaling_max_freq = 1000000 (class "quiet": highest frequency)
          cpufreq/policy6/scaling_min_freq = 800000 (class "quiet": lowest frequency)
          cpufreq/policy7/scaling_governor = powersave (class "quiet": governor)
          cpufreq/policy7/scaling_max_freq = 1000000 (class "quiet": highest frequency)
          cpufreq/policy7/scaling_min_freq = 800000 (class "quiet": lowest frequency)
        23:00
          cpufreq/policy0/scaling_governor = powersave (class "quiet": governor)
          cpufreq/policy0/scaling_max_freq = 1000000 (class "quiet": highest frequency)
          cpufreq/policy0/scaling_min_freq = 800000 (class "quiet": lowest frequency)
          cpufreq/policy4/scaling_governor = performance (class "fast": governor)
          cpufreq/policy5/scaling_governor = performance (class "fast": governor)
          cpufreq/policy6/scaling_governor = powersave (class "quiet": governor)
          cpufreq/policy6/scaling_max_freq = 1000000 (class "quiet": highest frequency)
          cpufreq/policy6/scaling_min_freq = 800000 (class "quiet": lowest frequency)
          cpufreq/policy7/scaling_governor = powersave (class "quiet": governor)
          cpufreq/policy7/scaling_max_freq = 1000000 (class "quiet": highest frequency)
          cpufreq/policy7/scaling_min_freq = 800000 (class "quiet": lowest frequency)
    "#]],
    );
}

/// The CPUs of each class.
#[test]
fn cpus_of_a_group_have_the_class_of_its_type() {
    let text =
        "cpuClasses: {classes: {fast: {minFreq: 2GHz}, slow: {maxFreq: 1GHz}}, exclusive: slow}\n";
    let config = parse_config(Path::new("c"), text).unwrap();
    let group = |name: &str, cpus: &str, class: Option<&str>| OccupiedGroup {
        name: name.to_owned(),
        cpus: cpus.parse().unwrap(),
        cpu_class: class.map(str::to_owned),
    };
    let occupants = vec![occupant("inside", "2", "2", &[]), occupant("alone", "7", "7", &[])];
    let groups = vec![
        group("web[0]", "1-2", Some("fast")),
        group("db[0]", "3", None),
        group("odd[0]", "4", Some("none")),
    ];
    let occupancy = Occupancy { groups, ..occupancy(occupants) };
    let mut assigned = Assigned::default();
    let noon = "12:00".parse().unwrap();
    assigned.containers(&config, &occupancy, noon);
    assigned.groups(&config, &occupancy, noon);
    let text: Vec<String> =
        assigned.cpus.iter().map(|(name, cpus)| format!("{name}: {cpus}")).collect();
    assert_eq!(text, ["fast: 1-2", "slow: 3-4,7"]);
    assert_eq!(assigned.problems.len(), 1, "{:?}", assigned.problems);
}

#[test]
fn a_container_chooses_for_its_own_cpus() {
    let class = |name| [("bayplan.dev/cpu-class", name)];
    let crio =
        [("cpu-c-states.crio.io", "max_latency:5"), ("cpu-freq-governor.crio.io", "schedutil")];
    check(
        "cpuClasses: {classes: {quiet: {maxFreq: 1GHz}}, exclusive: quiet}\n",
        vec![
            occupant("crio", "1", "1", &crio),
            occupant("named", "2", "2", &class("power")),
            occupant("wrong", "3", "3", &class("speedy")),
            occupant("shares", "4-5", "", &class("quiet")),
        ],
        expect![[r#"
            12:00
              cpu1/power/pm_qos_resume_latency_us = 5 (class "quiet for n/crio/c": time to wake up)
              cpufreq/policy1/scaling_governor = schedutil (class "quiet for n/crio/c": governor)
              cpufreq/policy1/scaling_max_freq = 1000000 (class "quiet for n/crio/c": highest frequency)
              cpufreq/policy1/scaling_min_freq = 800000 (class "quiet for n/crio/c": lowest frequency)
              cpufreq/policy2/scaling_max_freq = 1350000 (class "power": highest frequency)
              cpufreq/policy2/scaling_min_freq = 1150000 (class "power": lowest frequency)
              cpufreq/policy3/scaling_max_freq = 1000000 (class "quiet": highest frequency)
              cpufreq/policy3/scaling_min_freq = 800000 (class "quiet": lowest frequency)
              ! class "speedy" for n/wrong/c: there is none of that name; known are quiet, performance, balance-performance, balance-power, power, default
              ! frequency and sleep for n/shares/c: it has no exclusive CPUs
              ! class "power" on CPU 2: preference power: intel_cpufreq offers none
            23:00
              cpu1/power/pm_qos_resume_latency_us = 5 (class "quiet for n/crio/c": time to wake up)
              cpufreq/policy1/scaling_governor = schedutil (class "quiet for n/crio/c": governor)
              cpufreq/policy1/scaling_max_freq = 1000000 (class "quiet for n/crio/c": highest frequency)
              cpufreq/policy1/scaling_min_freq = 800000 (class "quiet for n/crio/c": lowest frequency)
              cpufreq/policy2/scaling_max_freq = 1350000 (class "power": highest frequency)
              cpufreq/policy2/scaling_min_freq = 1150000 (class "power": lowest frequency)
              cpufreq/policy3/scaling_max_freq = 1000000 (class "quiet": highest frequency)
              cpufreq/policy3/scaling_min_freq = 800000 (class "quiet": lowest frequency)
              ! class "speedy" for n/wrong/c: there is none of that name; known are quiet, performance, balance-performance, balance-power, power, default
              ! frequency and sleep for n/shares/c: it has no exclusive CPUs
              ! class "power" on CPU 2: preference power: intel_cpufreq offers none
        "#]],
    );
    check(
        "",
        vec![occupant("crio", "1", "1", &crio[..1]), occupant("b", "2", "2", &[])],
        expect![[r#"
            12:00
              cpu1/power/pm_qos_resume_latency_us = 5 (class "none for n/crio/c": time to wake up)
            23:00
              cpu1/power/pm_qos_resume_latency_us = 5 (class "none for n/crio/c": time to wake up)
        "#]],
    );
}

#[test]
fn where_no_container_has_a_class_nothing_is_read() {
    let (mut kernel, mut cache) = (FakeKernel::default(), Power::default());
    let mut gathered = Gathered::default();
    let (config, occupancy) = (Config::default(), occupancy(vec![occupant("a", "1", "1", &[])]));
    gather_power(&mut kernel, &mut cache.0, &config, &occupancy, Time::midnight(), &mut gathered);
    assert!(
        gathered.settings.is_empty() && gathered.problems.is_empty() && cache.0.offer.is_none()
    );
}

#[test]
fn what_is_offered_is_read_again_when_cpus_come_or_go() {
    let (mut kernel, mut cache) = (kernel(), Power::default());
    let mut count = |kernel: &mut FakeKernel| {
        cache.0.renew(kernel);
        cache.0.offer(kernel).policies.len()
    };
    assert_eq!(count(&mut kernel), 8);
    kernel.files.retain(|path, _| !path.contains("policy7"));
    assert_eq!(count(&mut kernel), 8);
    kernel.files.insert(SIGNS[0].to_owned(), "0-6\n".to_owned());
    assert_eq!(count(&mut kernel), 7);
}

/// CPUs 0-3 in power domain 0.0, 4-7 in 0.1, each the one of its core.
fn with_speed_select(mut kernel: FakeKernel) -> FakeKernel {
    let mut put = |path: String, text: &str| kernel.files.insert(path, format!("{text}\n"));
    for cpu in 0..8 {
        let package = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        put(package, "0");
        let core = format!("0.{}/core{}", cpu / 4, cpu % 4);
        put(format!("{SPEED_SELECT_DEVICE}/cpu{cpu}@0/core"), &core);
        put(format!("{SPEED_SELECT_DEVICE}/{core}/clos"), "0");
    }
    for domain in ["0.0", "0.1"] {
        put(format!("{SPEED_SELECT_DEVICE}/{domain}/{CORE_POWER}"), "ordered");
    }
    kernel
}

/// One domain alone was looked at for a change, and what once could not be read was not read again.
#[test]
fn speed_select_is_asked_again_where_any_domain_has_changed_and_after_a_failure() {
    let config = "cpuClasses: {classes: {slow: {clos: 3}}, shared: slow, idle: slow}\n";
    let config = parse_config(Path::new("c"), config).unwrap();
    let mut kernel = with_speed_select(kernel());
    let mut cache = Power::default();
    let mut look = |text: &str| {
        let power = format!("{SPEED_SELECT_DEVICE}/0.1/{CORE_POWER}");
        match text {
            "" => drop(kernel.files.remove(&power)),
            _ => drop(kernel.files.insert(power, format!("{text}\n"))),
        }
        let mut gathered = Gathered::default();
        let (occupancy, at) = (occupancy(Vec::new()), "12:00".parse().unwrap());
        gather_power(&mut kernel, &mut cache.0, &config, &occupancy, at, &mut gathered);
        let kept = gathered.kept_below.contains(&SPEED_SELECT_DEVICE);
        (gathered.settings.len(), kept, gathered.problems.join("\n"))
    };
    let none = String::new;
    assert_eq!(look("ordered"), (4, false, none()));
    let lost = |why: &str| format!("power domain 0.1: {why}; no class of service for CPUs 4-7");
    let missing = lost("the processor has no core power there");
    assert_eq!(look(""), (0, false, missing));
    let unread = lost("core power cannot be read: EIO");
    let unread = format!("Speed Select: cannot read 0.1/core_power: EIO\n{unread}");
    for _ in 0..2 {
        assert_eq!(look("unread: EIO"), (0, true, unread.clone()));
    }
    assert_eq!(look("ordered"), (4, false, none()));
}

/// A container owns CPU 1 of package 0; others share CPUs of package 1.
#[test]
fn where_a_container_of_a_higher_priority_runs_others_have_no_turbo() {
    let mut kernel = kernel();
    for cpu in 0..8 {
        let rows = [
            (format!("cpu{cpu}/topology/physical_package_id"), (cpu / 4).to_string()),
            (format!("cpufreq/policy{cpu}/base_frequency"), "2000000".to_owned()),
        ];
        let files = rows.map(|(path, text)| (format!("sys/devices/system/cpu/{path}"), text));
        kernel.files.extend(files);
    }
    let mut limited = |more: &str, occupants: Vec<Occupant>| {
        let text = format!(
            "cpuClasses: {{classes: {{first: {{turboPriority: 5}}, rest: {{}}}}, exclusive: first, shared: rest, reserved: rest{more}}}\n"
        );
        let config = parse_config(Path::new("c"), &text).unwrap();
        let (mut cache, mut gathered) = (Power::default(), Gathered::default());
        let (occupancy, at) = (occupancy(occupants), "12:00".parse().unwrap());
        gather_power(&mut kernel, &mut cache.0, &config, &occupancy, at, &mut gathered);
        assert!(gathered.problems.is_empty(), "{:?}", gathered.problems);
        let highest = |(slot, setting): (&Slot, &Setting)| {
            let policy = slot.path.strip_suffix("/scaling_max_freq")?.rsplit_once("policy")?.1;
            assert_eq!(setting.value, "2000000");
            assert!(setting.reason.starts_with("class \"rest without turbo\""), "{setting:?}");
            Some(policy.to_owned())
        };
        gathered.settings.iter().filter_map(highest).collect::<Vec<_>>().join(",")
    };
    let shares = || occupant("shares", "4-5", "", &[]);
    let owns = || occupant("owns", "1", "1", &[]);
    assert_eq!(limited("", vec![owns(), shares()]), "0");
    assert_eq!(limited(", turboDomain: machine", vec![owns(), shares()]), "0,4,5,6,7");
    // It has ended.
    assert_eq!(limited(", turboDomain: machine", vec![shares()]), "");
}
