//! The fake, the reader and the groups together: what comes of a configuration on four machines, with others there, and when something fails.

mod faults;
mod refusals;

use bayplan_enforcement::resctrl::*;
use bayplan_enforcement::{files_to_read, plan_files};
use expect_test::{Expect, expect};

use super::*;
use crate::kernel::{Report, apply, observe};
use crate::{
    AssignReport, Assignment, GroupReport, Resctrl, ResctrlState, apply_groups, assign_threads,
    count_outside, read_resctrl,
};

fn mounted(kernel: &mut dyn Kernel) -> Resctrl {
    match read_resctrl(kernel).unwrap() {
        ResctrlState::Mounted(resctrl) => *resctrl,
        state => panic!("{state:?}"),
    }
}

fn percent(percent: u8) -> Option<CacheShares> {
    let unified = CacheShare::Percent(percent);
    Some(PerCache::all(CdpShares { unified, code_and_data: None }))
}

/// `web` has 60% of the caches and all bandwidth, `batch` the rest and `10%` (or 1000 MB a second) of it.
fn config() -> ResctrlConfig {
    let class = |name: &str| ResctrlClass::new(name.parse().unwrap());
    let partition = |name: &str, share: u8, classes: Vec<ResctrlClass>| {
        let (l2, l3) = (percent(share), percent(share));
        let mb = Some(PerCache::all(vec![Bandwidth::Percent(100)]));
        ResctrlPartition { name: name.to_owned(), l2, l3, mb, classes }
    };
    let bound = vec![Bandwidth::Percent(10), Bandwidth::MegabytesPerSecond(1000)];
    let batch = ResctrlClass { mb: Some(PerCache::all(bound)), ..class("batch") };
    let partitions =
        vec![partition("fast", 60, vec![class("web")]), partition("slow", 40, vec![batch])];
    let options =
        ResctrlOptions { is_l2_optional: true, is_l3_optional: true, is_mb_optional: true };
    ResctrlConfig { options, partitions }
}

/// Everything that one step reports.
struct Step {
    groups: GroupReport,
    files: Report,
    threads: AssignReport,
}

impl Step {
    /// What went wrong, in words.
    fn failures(&self) -> Vec<String> {
        let groups = self.groups.outcomes.iter().filter_map(|(change, end)| {
            end.as_ref().err().map(|failure| format!("/{}: {failure}", change.path))
        });
        let files =
            self.files.failures().map(|(write, failure)| format!("{}: {failure}", write.slot));
        let threads = self.threads.failures.iter();
        let threads =
            threads.map(|(it, failure)| format!("{} in /{}: {failure}", it.unit, it.control));
        let unsettled = self.threads.unsettled.iter().map(|it| format!("{}: unsettled", it.unit));
        groups.chain(files).chain(threads).chain(unsettled).collect()
    }
}

fn container(id: &str, class: ClassName) -> MonitoredContainer {
    MonitoredContainer { id: id.to_owned(), unit: id.to_owned(), class }
}

/// Groups, their schemata, then the threads: `CONTAINER CLASS`, of which the cgroup is `cg/CONTAINER`.
fn step(kernel: &mut FakeResctrl, config: &ResctrlConfig, containers: &[(&str, &str)]) -> Step {
    let resctrl = mounted(kernel);
    let resolved = resolve(config, &resctrl.info).unwrap();
    let class = |name: &str| name.parse::<ClassName>().unwrap();
    let wanted = WantedGroups {
        classes: resolved.classes.iter().map(|it| it.name.clone()).collect(),
        monitored: containers.iter().map(|(it, name)| container(it, class(name))).collect(),
    };
    let plan = plan_groups(&wanted, &resctrl.groups, &resctrl.info);
    let groups = apply_groups(kernel, &plan);
    let settings = schemata_settings(&resolved.classes, &plan.budget);
    let originals = BTreeMap::new();
    let observed = observe(kernel, files_to_read(&settings, &originals));
    let files = apply(kernel, &plan_files(&settings, &observed, &originals));
    let assignments = containers.iter().map(|(container, name)| {
        let (class, unit) = (class(name), (*container).to_owned());
        let monitor = plan.monitors.get(*container).cloned();
        let others = groups_of_others(&resctrl.groups, &class);
        let (cgroup, control) = (format!("cg/{unit}"), control_dir(&class));
        // A container in no class leaves our groups, and no other.
        let ours = || resolved.classes.iter().map(|it| control_dir(&it.name)).collect();
        let out_of = class.is_root().then(ours);
        Assignment { unit, cgroup, control, monitor, out_of, others }
    });
    let threads = assign_threads(kernel, &assignments.collect::<Vec<_>>());
    Step { groups, files, threads }
}

/// All groups with their schemata and threads.
fn state(kernel: &FakeResctrl) -> String {
    let groups = kernel.groups.iter().map(|(name, group)| {
        let lines = group.lines.iter().map(|(line, values)| {
            let values = values.values().map(|value| format!("{value:x}"));
            format!(" {line}:{}", values.collect::<Vec<_>>().join(","))
        });
        let threads = kernel.threads.iter().filter(|(_, thread)| thread.control == *name);
        let threads = threads.map(|(id, thread)| match &thread.monitor {
            Some(monitor) => format!(" {id}@{monitor}"),
            None => format!(" {id}"),
        });
        let name = if name.is_empty() { "/" } else { name };
        format!("{name}{} |{}\n", lines.collect::<String>(), threads.collect::<String>())
    });
    groups.collect()
}

fn check(kernel: &FakeResctrl, expected: Expect) {
    expected.assert_eq(&state(kernel));
}

const CONTAINERS: [(&str, &str); 2] = [("c1", "web"), ("c2", "batch")];

fn with_threads(mut kernel: FakeResctrl) -> FakeResctrl {
    for (id, cgroup) in [(11, "cg/c1"), (12, "cg/c1"), (21, "cg/c2"), (99, "cg/other")] {
        kernel.add_thread(id, cgroup);
    }
    kernel
}

#[test]
fn what_the_files_say_is_what_the_machine_is() {
    for mut kernel in [FakeResctrl::xeon(), FakeResctrl::epyc(), FakeResctrl::with_l2()] {
        let resctrl = mounted(&mut kernel);
        assert_eq!(resctrl.info, kernel.info);
        assert_eq!(resctrl.groups, ObservedGroups::default());
        assert_eq!(resctrl.odd, [""; 0]);
    }
    assert_eq!(read_resctrl(&mut FakeResctrl::nothing()), Ok(ResctrlState::Absent));
    let mut kernel = FakeResctrl::nothing();
    let filesystems = "nodev\tsysfs\nnodev\tresctrl\n".to_owned();
    kernel.rest.files.insert("proc/filesystems".to_owned(), filesystems);
    assert_eq!(read_resctrl(&mut kernel), Ok(ResctrlState::NotMounted));
}

#[test]
fn a_configuration_on_a_xeon_and_away_again() {
    let mut kernel = with_threads(FakeResctrl::xeon());
    let before = state(&kernel);
    let done = step(&mut kernel, &config(), &CONTAINERS);
    assert_eq!((done.failures(), done.threads.moved), (vec![], 6));
    check(
        &kernel,
        expect![[r#"
            / L3CODE:7ff,7ff L3DATA:7ff,7ff MB:64,64 | 99
            bayplan.batch L3CODE:780,780 L3DATA:780,780 MB:a,a | 21@bayplan.c2
            bayplan.web L3CODE:7f,7f L3DATA:7f,7f MB:64,64 | 11@bayplan.c1 12@bayplan.c1
        "#]],
    );
    let asked = kernel.asked.len();
    let done = step(&mut kernel, &config(), &CONTAINERS);
    assert_eq!((done.failures(), done.threads.moved), (vec![], 0));
    assert_eq!(kernel.asked.len(), asked, "what is right is not written again");
    step(&mut kernel, &ResctrlConfig::default(), &[]);
    assert_eq!(state(&kernel), before);
}

#[test]
fn the_same_on_an_epyc_and_with_l2_caches() {
    let mut kernel = with_threads(FakeResctrl::epyc());
    assert_eq!(step(&mut kernel, &config(), &CONTAINERS).failures(), [""; 0]);
    check(
        &kernel,
        expect![[r#"
            / L3:ffff,ffff,ffff,ffff,ffff,ffff,ffff,ffff MB:800,800,800,800,800,800,800,800 | 99
            bayplan.batch L3:fc00,fc00,fc00,fc00,fc00,fc00,fc00,fc00 MB:8,8,8,8,8,8,8,8 | 21@bayplan.c2
            bayplan.web L3:3ff,3ff,3ff,3ff,3ff,3ff,3ff,3ff MB:800,800,800,800,800,800,800,800 | 11@bayplan.c1 12@bayplan.c1
        "#]],
    );
    let mut kernel = with_threads(FakeResctrl::with_l2());
    assert_eq!(step(&mut kernel, &config(), &CONTAINERS).failures(), [""; 0]);
    check(
        &kernel,
        expect![[r#"
            / L2:ffff,ffff,ffff,ffff | 99
            bayplan.batch L2:fc00,fc00,fc00,fc00 | 21
            bayplan.web L2:3ff,3ff,3ff,3ff | 11 12
        "#]],
    );
}

#[test]
fn groups_of_others_are_left_alone_and_counted() {
    let mut kernel = with_threads(FakeResctrl::with_l2());
    kernel.make_dir("sys/fs/resctrl/pqos").unwrap();
    kernel.write("sys/fs/resctrl/schemata", "L2:0=fffc\n").unwrap();
    kernel.write("sys/fs/resctrl/pqos/schemata", "L2:0=3\n").unwrap();
    kernel.set_mode("pqos", GroupMode::Exclusive);
    kernel.write("sys/fs/resctrl/pqos/tasks", "99").unwrap();
    let resctrl = mounted(&mut kernel);
    let problems = resolve(&config(), &resctrl.info).unwrap_err();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    expect!["class `web`: l2Allocation 0x3ff: another group has 0x3 of the cache to itself (`E` or `P` in info/L2/bit_usage) (on 0)"].assert_eq(&problems.join("\n"));
    kernel.set_mode("pqos", GroupMode::Shareable);
    kernel.make_dir("sys/fs/resctrl/other").unwrap();
    let done = step(&mut kernel, &config(), &CONTAINERS[..1]);
    assert_eq!(done.failures(), [""; 0]);
    check(
        &kernel,
        expect![[r#"
            / L2:fffc,ffff,ffff,ffff | 21
            bayplan.web L2:3ff,3ff,3ff,3ff | 11 12
            other L2:ffff,ffff,ffff,ffff |
            pqos L2:3,ffff,ffff,ffff | 99
        "#]],
    );
}

#[test]
fn threads_that_come_and_go_while_they_are_moved_are_caught() {
    let mut kernel = with_threads(FakeResctrl::xeon());
    kernel.at_move(11, ThreadEvent::Makes(13));
    kernel.at_move(12, ThreadEvent::Ends);
    kernel.at_move(13, ThreadEvent::Makes(14));
    let done = step(&mut kernel, &config(), &CONTAINERS);
    assert_eq!(done.failures(), [""; 0]);
    let groups = [11, 12, 13, 14, 21, 99].map(|id| kernel.group_of(id).unwrap_or_default());
    let (web, batch) = ("bayplan.web/bayplan.c1", "bayplan.batch/bayplan.c2");
    assert_eq!(groups, [web, "", web, web, batch, ""]);
}

#[test]
fn a_container_whose_threads_never_end_to_come_is_told() {
    let mut kernel = FakeResctrl::with_l2();
    kernel.add_thread(100, "cg/c1");
    for id in 100..200 {
        kernel.at_move(id, ThreadEvent::Makes(id + 1));
    }
    let done = step(&mut kernel, &config(), &CONTAINERS[..1]);
    assert_eq!(done.failures(), ["c1: unsettled"]);
    assert_eq!(done.threads.moved, 8);
}

#[test]
fn threads_below_the_cgroup_are_the_containers_too() {
    let mut kernel = FakeResctrl::with_l2();
    let rest = &mut kernel.rest.files;
    let stat = "nr_descendants 1\nnr_dying_descendants 0\n".to_owned();
    rest.insert("cg/c1/cgroup.stat".to_owned(), stat);
    rest.insert("cg/c1/memory.stat".to_owned(), String::new());
    // 0 is a thread of another PID namespace, and would be the writer itself.
    rest.insert("cg/c1/cgroup.threads".to_owned(), "0\n".to_owned());
    rest.insert("cg/c1/init.scope/cgroup.threads".to_owned(), String::new());
    kernel.add_thread(5, "cg/c1/init.scope");
    let done = step(&mut kernel, &config(), &CONTAINERS[..1]);
    assert_eq!((done.failures(), done.threads.moved), (vec![], 1));
    assert_eq!(kernel.group_of(5).as_deref(), Some("bayplan.web"));
}

#[test]
fn a_class_that_changes_takes_its_threads_along() {
    let mut kernel = with_threads(FakeResctrl::xeon());
    step(&mut kernel, &config(), &CONTAINERS);
    let done = step(&mut kernel, &config(), &[("c1", "batch"), ("c2", "DEFAULT")]);
    assert_eq!(done.failures(), [""; 0]);
    let groups = [11, 12, 21, 99].map(|id| kernel.group_of(id).unwrap_or_default());
    let batch = "bayplan.batch/bayplan.c1";
    assert_eq!(groups, [batch, batch, "/bayplan.c2", ""]);
}

#[test]
fn a_container_in_no_class_stays_where_others_have_put_it() {
    let mut kernel = with_threads(FakeResctrl::with_l2());
    kernel.make_dir("sys/fs/resctrl/pqos").unwrap();
    for id in ["11", "99"] {
        kernel.write("sys/fs/resctrl/pqos/tasks", id).unwrap();
    }
    step(&mut kernel, &config(), &CONTAINERS[1..]);
    let of_c1 = Assignment {
        unit: "c1".to_owned(),
        cgroup: "cg/c1".to_owned(),
        control: RESCTRL.to_owned(),
        monitor: None,
        out_of: Some(vec!["sys/fs/resctrl/bayplan.web".to_owned()]),
        others: Vec::new(),
    };
    kernel.write("sys/fs/resctrl/bayplan.web/tasks", "12").unwrap();
    assert_eq!(count_outside(&mut kernel, std::slice::from_ref(&of_c1)), [1]);
    let report = assign_threads(&mut kernel, &[of_c1]);
    assert_eq!((report.moved, report.failures, report.unsettled), (1, vec![], vec![]));
    let groups = [11, 12, 21, 99].map(|id| kernel.group_of(id).unwrap_or_default());
    assert_eq!(groups, ["pqos", "", "bayplan.batch", "pqos"]);
}

/// `c1` is in a class, `c2` in none; others monitor a thread of each, and have one for themselves.
#[test]
fn a_container_in_no_class_is_monitored_where_it_is() {
    let mut kernel = with_threads(FakeResctrl::xeon());
    for id in [13, 22, 23] {
        kernel.add_thread(id, if id == 13 { "cg/c1" } else { "cg/c2" });
    }
    let containers = [("c1", "web"), ("c2", "DEFAULT")];
    step(&mut kernel, &config(), &containers);
    for (group, id) in
        [("bayplan.web/mon_groups/theirs", 13), ("mon_groups/theirs", 22), ("pqos", 23)]
    {
        let dir = format!("sys/fs/resctrl/{group}");
        kernel.make_dir(&dir).unwrap();
        kernel.write(&format!("{dir}/tasks"), &id.to_string()).unwrap();
    }
    kernel.add_thread(24, "cg/c2");
    kernel.write("sys/fs/resctrl/bayplan.batch/tasks", "21").unwrap();
    let done = step(&mut kernel, &config(), &containers);
    assert_eq!((done.failures(), done.threads.moved), (vec![], 3));
    let groups = [11, 13, 21, 22, 23, 24, 99].map(|id| kernel.group_of(id).unwrap_or_default());
    let (web, root) = ("bayplan.web/bayplan.c1", "/bayplan.c2");
    assert_eq!(groups, [web, "bayplan.web/theirs", root, "/theirs", "pqos", root, ""]);
    let done = step(&mut kernel, &config(), &containers);
    assert_eq!((done.failures(), done.threads.moved), (vec![], 0));
}

#[test]
fn an_id_that_has_not_cooled_down_is_no_id_yet() {
    let mut kernel = with_threads(FakeResctrl::xeon());
    kernel.set_in_limbo(174);
    let containers = [("c1", "DEFAULT"), ("c2", "DEFAULT")];
    let done = step(&mut kernel, &ResctrlConfig::default(), &containers);
    assert_eq!(
        done.failures(),
        [
            "/sys/fs/resctrl/mon_groups/bayplan.c2: EBUSY: Device or resource busy; the kernel says: Out of RMIDs",
            "c2 in /sys/fs/resctrl: it is gone",
        ]
    );
    kernel.set_in_limbo(0);
    assert_eq!(step(&mut kernel, &ResctrlConfig::default(), &containers).failures(), [""; 0]);
    assert_eq!(kernel.group_of(21).as_deref(), Some("/bayplan.c2"));
}
