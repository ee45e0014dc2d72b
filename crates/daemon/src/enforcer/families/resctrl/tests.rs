use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_host::disk::SoundDisk;
use bayplan_host::fake_resctrl::{FakeResctrl, GroupMode};
use bayplan_node::occupancy::tuning_of;
use bayplan_types::QosClass;
use bayplan_workload::{NewContainer, RequestRules};
use expect_test::{Expect, expect};
use nix::errno::Errno;

use super::*;
use crate::config::{EnforcementMode, parse_config};
use crate::enforcer::{Enforcer, FilePlanView, Originals, render_file_plan_view};

const CLASSES: &str = "
resctrl:
  monitor: off
  options: {l2: {optional: true}, mb: {optional: true}}
  partitions:
    fast:
      l3Allocation: 60%
      classes: {gold: , Guaranteed: }
    slow:
      l3Allocation: 40%
      mbAllocation: [100%]
      classes:
        besteffort: {l3Allocation: 50%, mbAllocation: [20%]}
        system/default: {kubernetes: {denyPodAnnotation: true}}
        inner: {kubernetes: {denyPodAnnotation: true}}
";

const MONITOR: &str = "resctrl:\n  monitor: auto\n";

/// A node with containers `NAME QOS ANNOTATION`, of two threads each: 10 and 11, 20 and 21.
struct Node {
    kernel: Arc<Mutex<FakeResctrl>>,
    config: Config,
    occupancy: Occupancy,
    enforcer: Enforcer,
    now: Duration,
    _state: tempfile::TempDir,
}

impl Node {
    fn new(mut kernel: FakeResctrl, config: &str, containers: &[(&str, QosClass, &str)]) -> Node {
        let files = &mut kernel.rest.files;
        files.insert("sys/fs/cgroup/cgroup.controllers".to_owned(), "cpu\n".to_owned());
        let mut occupancy = Occupancy::default();
        for ((name, qos, class), first) in containers.iter().zip((10..).step_by(10)) {
            let cgroup = format!("sys/fs/cgroup/kubepods/pod-{name}/{name}-id");
            let stat = "nr_descendants 0\n".to_owned();
            kernel.rest.files.insert(format!("{cgroup}/cgroup.stat"), stat);
            kernel.add_thread(first, &cgroup);
            kernel.add_thread(first + 1, &cgroup);
            let mut spec = NewContainer { name: (*name).to_owned(), ..NewContainer::default() };
            spec.pod.cgroup_parent = format!("/kubepods/pod-{name}");
            spec.pod.qos = Some(*qos);
            if !class.is_empty() {
                let key = "rdt.resources.beta.kubernetes.io/pod".to_owned();
                spec.pod.annotations.insert(key, (*class).to_owned());
            }
            let tuning = tuning_of(&spec, &RequestRules::default());
            occupancy.occupants.push(Occupant {
                id: bayplan_allocator::ContainerId(u64::from(first)),
                name: format!("ns/{name}/{name}"),
                runtime_id: format!("{name}-id"),
                scheduling_class: None,
                spec: Arc::new(spec),
                tuning: Arc::new(tuning),
                class: bayplan_types::CpuClass::Shared,
                cpus: Default::default(),
                mems: Default::default(),
                home: Err(bayplan_allocator::NoHome::AtHome),
                exclusive: Default::default(),
                is_left_alone: false,
                is_immovable: false,
                is_claimed: false,
                may_share_elsewhere: false,
                is_together: false,
                is_running: true,
            });
        }
        let state = tempfile::tempdir().unwrap();
        let kernel = Arc::new(Mutex::new(kernel));
        let (originals, _) = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap();
        let enforcer = Enforcer::new(Box::new(Arc::clone(&kernel)), originals);
        let config = parse_config(Path::new("f"), config).unwrap();
        Node { kernel, config, occupancy, enforcer, now: Duration::ZERO, _state: state }
    }

    /// What is shown before, and everything that is told.
    fn check_preview(&mut self, expected: Expect) {
        let view = FilePlanView::from(self.enforcer.preview(
            &self.config,
            &self.occupancy,
            Duration::ZERO,
        ));
        expected.assert_eq(&render_file_plan_view(&view));
    }

    /// A sweep later than before.
    fn enforce(&mut self) -> Vec<String> {
        self.enforce_after(self.config.sweep_interval)
    }

    fn enforce_after(&mut self, pause: Duration) -> Vec<String> {
        self.now += pause;
        let done = self.enforcer.enforce(&self.config, &self.occupancy, self.now);
        done.failures
    }

    /// Where every first thread is.
    fn groups(&self) -> Vec<String> {
        let kernel = self.kernel.lock().unwrap();
        let ids = (10..).step_by(10).take(self.occupancy.occupants.len());
        ids.map(|id| kernel.group_of(id).unwrap_or_default()).collect()
    }

    fn text(&mut self, path: &str) -> String {
        self.kernel.read(path).unwrap_or_else(|errno| format!("{errno:?}"))
    }
}

const PODS: [(&str, QosClass, &str); 6] = [
    ("a", QosClass::Burstable, "gold"),
    ("b", QosClass::Guaranteed, ""),
    ("c", QosClass::BestEffort, "silver"),
    ("d", QosClass::Burstable, ""),
    ("e", QosClass::Burstable, "inner"),
    ("f", QosClass::Guaranteed, "system/default"),
];

#[test]
fn classes_are_shown_and_then_made() {
    let mut node = Node::new(FakeResctrl::xeon(), CLASSES, &PODS);
    node.check_preview(expect![[r#"
        make   /sys/fs/resctrl/bayplan.Guaranteed  (class "Guaranteed")
        make   /sys/fs/resctrl/bayplan.besteffort  (class "besteffort")
        make   /sys/fs/resctrl/bayplan.gold  (class "gold")
        make   /sys/fs/resctrl/bayplan.inner  (class "inner")
        set    /sys/fs/resctrl/bayplan.Guaranteed/schemata [L3CODE] (none) -> 0=7f;1=7f  (class "Guaranteed": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.Guaranteed/schemata [L3DATA] (none) -> 0=7f;1=7f  (class "Guaranteed": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.Guaranteed/schemata [MB] (none) -> 0=100;1=100  (class "Guaranteed": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.besteffort/schemata [L3CODE] (none) -> 0=180;1=180  (class "besteffort": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.besteffort/schemata [L3DATA] (none) -> 0=180;1=180  (class "besteffort": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.besteffort/schemata [MB] (none) -> 0=20;1=20  (class "besteffort": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.gold/schemata [L3CODE] (none) -> 0=7f;1=7f  (class "gold": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.gold/schemata [L3DATA] (none) -> 0=7f;1=7f  (class "gold": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.gold/schemata [MB] (none) -> 0=100;1=100  (class "gold": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.inner/schemata [L3CODE] (none) -> 0=780;1=780  (class "inner": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.inner/schemata [L3DATA] (none) -> 0=780;1=780  (class "inner": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.inner/schemata [MB] (none) -> 0=100;1=100  (class "inner": resctrl.partitions)
        set    /sys/fs/resctrl/schemata [L3CODE] 0=7ff;1=7ff -> 0=780;1=780  (class "system/default": resctrl.partitions)
        set    /sys/fs/resctrl/schemata [L3DATA] 0=7ff;1=7ff -> 0=780;1=780  (class "system/default": resctrl.partitions)
        move   2 threads to /sys/fs/resctrl/bayplan.gold  (ns/a/a)
        move   2 threads to /sys/fs/resctrl/bayplan.Guaranteed  (ns/b/b)
        move   2 threads to /sys/fs/resctrl/bayplan.besteffort  (ns/c/c)
        move   2 threads to /sys/fs/resctrl/bayplan.Guaranteed  (ns/f/f)
        cannot: resctrl: ns/c/c asks for class `silver`, which the configuration lacks; it has Guaranteed, besteffort, gold, inner, system/default
        cannot: resctrl: ns/e/e asks for class `inner`, which pods cannot ask for (kubernetes.denyPodAnnotation)
        cannot: resctrl: ns/f/f asks for class `system/default`, which pods cannot ask for (kubernetes.denyPodAnnotation)
    "#]]);
    assert_eq!(node.enforce(), [""; 0]);
    expect![[r#"
        [
            "bayplan.gold",
            "bayplan.Guaranteed",
            "bayplan.besteffort",
            "",
            "",
            "bayplan.Guaranteed",
        ]
    "#]]
    .assert_debug_eq(&node.groups());
    node.check_preview(expect![[r#"
        Nothing is to be written.
        cannot: resctrl: ns/c/c asks for class `silver`, which the configuration lacks; it has Guaranteed, besteffort, gold, inner, system/default
        cannot: resctrl: ns/e/e asks for class `inner`, which pods cannot ask for (kubernetes.denyPodAnnotation)
        cannot: resctrl: ns/f/f asks for class `system/default`, which pods cannot ask for (kubernetes.denyPodAnnotation)
        11 values are changed by bayplan, and remembered as before.
    "#]]);
    expect![[r#"
        L3CODE:0=180;1=180
        L3DATA:0=180;1=180
            MB:0=  20;1=  20
    "#]]
    .assert_eq(&node.text("sys/fs/resctrl/bayplan.besteffort/schemata"));
}

#[test]
fn everything_is_given_back() {
    type Change = fn(&mut Node);
    let ways: [Change; 4] = [
        |node| node.config.enforcement = EnforcementMode::Off,
        |node| node.occupancy.is_restored = true,
        |node| node.config.resctrl = Default::default(),
        |_| {},
    ];
    for (way, change) in ways.into_iter().enumerate() {
        let mut node = Node::new(FakeResctrl::xeon(), CLASSES, &PODS);
        let before = node.text("sys/fs/resctrl/schemata");
        node.kernel.make_dir("sys/fs/resctrl/pqos").unwrap();
        assert_eq!(node.enforce(), [""; 0]);
        assert_ne!(node.text("sys/fs/resctrl/schemata"), before, "the root has a class");
        change(&mut node);
        if way == 3 {
            assert_eq!(node.enforcer.give_back().failures, [""; 0]);
        } else {
            assert_eq!(node.enforce(), [""; 0]);
        }
        assert_eq!(node.text("sys/fs/resctrl/schemata"), before);
        let names = node.kernel.list("sys/fs/resctrl").unwrap();
        assert!(names.contains(&"pqos".to_owned()), "{names:?}");
        assert!(!names.iter().any(|name| name.starts_with("bayplan.")), "{names:?}");
        assert_eq!(node.groups(), [""; 6]);
    }
}

/// The original of every file was given back, so that all caches were open to all containers.
#[test]
fn with_classes_that_cannot_be_made_everything_stays_as_it_is() {
    let more_than_all = CLASSES.replace("l3Allocation: 40%", "l3Allocation: 50%");
    type Change<'a> = &'a dyn Fn(&mut Node);
    let ways: [Change<'_>; 2] =
        [&|node| node.config = parse_config(Path::new("f"), &more_than_all).unwrap(), &|node| {
            // Another program locks some of these bits.
            node.kernel.make_dir("sys/fs/resctrl/pqos").unwrap();
            let of_others = "L3CODE:0=1;1=1\nL3DATA:0=1;1=1\n";
            node.kernel.write("sys/fs/resctrl/pqos/schemata", of_others).unwrap();
            node.kernel.lock().unwrap().set_mode("pqos", GroupMode::PseudoLocked);
        }];
    for change in ways {
        let mut node = Node::new(FakeResctrl::xeon(), CLASSES, &PODS);
        let begin = node.text("sys/fs/resctrl/schemata");
        node.enforce();
        let say = |node: &mut Node| {
            let files = ["", "/bayplan.gold", "/bayplan.besteffort"];
            (files.map(|it| node.text(&format!("sys/fs/resctrl{it}/schemata"))), node.groups())
        };
        let right = say(&mut node);
        change(&mut node);
        let known = node.enforcer.originals.count();
        let told = node.enforcer.preview(&node.config, &node.occupancy, node.now).problems;
        // No container's class is looked at any more.
        assert!(!told.is_empty() && told.iter().all(|it| !it.contains("silver")), "{told:?}");
        assert_eq!(node.enforce(), [""; 0]);
        assert_eq!((say(&mut node), node.enforcer.originals.count()), (right, known));
        node.kernel.lock().unwrap().set_mode("pqos", GroupMode::Shareable);
        node.occupancy.is_restored = true;
        assert_eq!(node.enforce(), [""; 0]);
        assert_eq!(node.text("sys/fs/resctrl/schemata"), begin);
    }
}

#[test]
fn later_containers_and_changes_of_others_are_made_right() {
    let mut node = Node::new(FakeResctrl::xeon(), CLASSES, &PODS);
    node.enforce();
    // As `kubectl exec` would: a process that no process in the container has made.
    node.kernel.lock().unwrap().add_thread(7, "sys/fs/cgroup/kubepods/pod-a/a-id");
    node.kernel.write("sys/fs/resctrl/bayplan.gold/schemata", "L3CODE:0=1\n").unwrap();
    node.kernel.remove_dir("sys/fs/resctrl/bayplan.Guaranteed").unwrap();
    assert_eq!(node.enforce(), [""; 0]);
    assert_eq!(node.kernel.lock().unwrap().group_of(7).as_deref(), Some("bayplan.gold"));
    assert_eq!(node.groups()[1], "bayplan.Guaranteed");
    assert!(node.text("sys/fs/resctrl/bayplan.gold/schemata").contains("L3CODE:0=07f;1=07f"));
}

#[test]
fn classes_in_use_come_first_and_a_failure_is_told_once() {
    let mut kernel = FakeResctrl::with_l2();
    for name in ["x", "y"] {
        kernel.make_dir(&format!("sys/fs/resctrl/{name}")).unwrap();
    }
    let config = CLASSES.replace("l3Allocation", "l2Allocation");
    let mut node = Node::new(kernel, &config, &PODS[..1]);
    node.check_preview(expect![[r#"
        make   /sys/fs/resctrl/bayplan.gold  (class "gold")
        set    /sys/fs/resctrl/bayplan.gold/schemata [L2] (none) -> 0=3ff;1=3ff;2=3ff;3=3ff  (class "gold": resctrl.partitions)
        set    /sys/fs/resctrl/schemata [L2] 0=ffff;1=ffff;2=ffff;3=ffff -> 0=fc00;1=fc00;2=fc00;3=fc00  (class "system/default": resctrl.partitions)
        move   2 threads to /sys/fs/resctrl/bayplan.gold  (ns/a/a)
        cannot: resctrl: class `Guaranteed` gets no group, because the processor has 4 CLOSIDs, of which the root has one and others have 2; its containers stay in the root's group
        cannot: resctrl: class `besteffort` gets no group, because the processor has 4 CLOSIDs, of which the root has one and others have 2; its containers stay in the root's group
        cannot: resctrl: class `inner` gets no group, because the processor has 4 CLOSIDs, of which the root has one and others have 2; its containers stay in the root's group
    "#]]);
    let path = "sys/fs/resctrl/bayplan.gold";
    for _ in 0..2 {
        node.kernel.lock().unwrap().fail_next(path, Errno::ENOSPC);
    }
    let told: Vec<Vec<String>> = (0..3).map(|_| node.enforce()).collect();
    expect![[r#"
        [
            [
                "make /sys/fs/resctrl/bayplan.gold (class \"gold\"): ENOSPC: No space left on device",
                "move threads of ns/a/a to /sys/fs/resctrl/bayplan.gold: it is gone",
            ],
            [],
            [],
        ]
    "#]].assert_debug_eq(&told);
    assert_eq!(node.groups(), ["bayplan.gold"]);
}

#[test]
fn what_cannot_be_had_here_is_told() {
    let mut absent = Node::new(FakeResctrl::nothing(), CLASSES, &PODS);
    absent.check_preview(expect![[r#"
        Nothing is to be written.
        cannot: resctrl: this processor or kernel has none; classes do nothing
    "#]]);
    let mut kernel = FakeResctrl::nothing();
    kernel.rest.files.insert("proc/filesystems".to_owned(), "nodev resctrl\n".to_owned());
    Node::new(kernel, CLASSES, &PODS).check_preview(expect![[r#"
        Nothing is to be written.
        cannot: resctrl: it is not mounted; mount -t resctrl resctrl /sys/fs/resctrl
    "#]]);
    let config = CLASSES.replace("60%", "70%").replace("l2:", "l3:");
    Node::new(FakeResctrl::epyc(), &config, &[]).check_preview(expect![[r#"
        Nothing is to be written.
        cannot: resctrl: L3 cache (unified): partitions ask for 110% together: `fast` 70%, `slow` 40% (on 0, 1, 2, 3, 4, 5, 6, 7)
        cannot: resctrl: class `besteffort`: mbAllocation: [20%] has no rate, and this machine has bounds in GB a second, not in percent; add one such as "16000MBps" (on 0, 1, 2, 3, 4, 5, 6, 7)
    "#]]);
    let mut node = Node::new(FakeResctrl::nothing(), "", &PODS);
    node.check_preview(expect![[r#"
        Nothing is to be written.
    "#]]);
}

/// Without classes, and with them: containers of classes in their groups.
#[test]
fn each_container_is_monitored_where_it_is() {
    let mut node = Node::new(FakeResctrl::xeon(), MONITOR, &PODS[..3]);
    node.check_preview(expect![[r#"
        make   /sys/fs/resctrl/mon_groups/bayplan.b-id  (ns/b/b)
        make   /sys/fs/resctrl/mon_groups/bayplan.a-id  (ns/a/a)
        make   /sys/fs/resctrl/mon_groups/bayplan.c-id  (ns/c/c)
        move   2 threads to /sys/fs/resctrl/mon_groups/bayplan.a-id  (ns/a/a)
        move   2 threads to /sys/fs/resctrl/mon_groups/bayplan.b-id  (ns/b/b)
        move   2 threads to /sys/fs/resctrl/mon_groups/bayplan.c-id  (ns/c/c)
    "#]]);
    assert_eq!(node.enforce(), [""; 0]);
    assert_eq!(node.groups(), ["/bayplan.a-id", "/bayplan.b-id", "/bayplan.c-id"]);
    node.check_preview(expect![[r#"
        Nothing is to be written.
    "#]]);
    let config = CLASSES.replace("monitor: off", "monitor: auto");
    node.config = parse_config(Path::new("f"), &config).unwrap();
    assert_eq!(node.enforce(), [""; 0]);
    let classes = ["bayplan.gold/bayplan.a-id", "bayplan.Guaranteed/bayplan.b-id"];
    assert_eq!(node.groups(), [classes[0], classes[1], "bayplan.besteffort/bayplan.c-id"]);
    // A container that goes takes its group along.
    node.occupancy.occupants.pop();
    assert_eq!(node.enforce(), [""; 0]);
    assert_eq!(node.kernel.list("sys/fs/resctrl/bayplan.besteffort/mon_groups"), Ok(vec![]));
}

/// The kernel walks over all threads of the node for each list of a group's.
#[test]
fn threads_of_groups_are_listed_for_new_containers_and_at_sweeps() {
    let mut node = Node::new(FakeResctrl::xeon(), MONITOR, &PODS[..3]);
    let newcomer = node.occupancy.occupants.pop();
    let listed = |node: &mut Node, seconds: u64| {
        assert_eq!(node.enforce_after(Duration::from_secs(seconds)), [""; 0]);
        let paths = std::mem::take(&mut node.kernel.lock().unwrap().listed);
        let groups = paths.iter().filter_map(|path| path.strip_suffix("-id/tasks")?.chars().last());
        groups.collect::<BTreeSet<char>>().into_iter().collect::<String>()
    };
    assert_eq!(listed(&mut node, 0), "ab");
    // The runtime may still be about to put threads into their cgroups.
    assert_eq!(listed(&mut node, 4), "ab");
    assert_eq!(listed(&mut node, 1), "");
    node.occupancy.occupants.extend(newcomer);
    assert_eq!(listed(&mut node, 5), "c");
    assert_eq!(listed(&mut node, 5), "");
    // Another program removes a group, and its threads are in the root's.
    node.kernel.remove_dir("sys/fs/resctrl/mon_groups/bayplan.b-id").unwrap();
    assert_eq!(listed(&mut node, 5), "b");
    assert_eq!(node.groups(), ["/bayplan.a-id", "/bayplan.b-id", "/bayplan.c-id"]);
    node.enforcer.insist();
    assert_eq!(listed(&mut node, 0), "abc");
    assert_eq!(listed(&mut node, 29), "");
    assert_eq!(listed(&mut node, 1), "abc");
}

#[test]
fn a_container_without_threads_is_looked_at_until_it_has_some() {
    let mut node = Node::new(FakeResctrl::xeon(), MONITOR, &PODS[..1]);
    let cgroup = "sys/fs/cgroup/kubepods/pod-a/a-id";
    let empty = FakeResctrl::xeon();
    let rest = std::mem::replace(&mut *node.kernel.lock().unwrap(), empty).rest;
    node.kernel.lock().unwrap().rest = rest;
    let threads = format!("{cgroup}/cgroup.threads");
    node.kernel.lock().unwrap().rest.files.insert(threads, String::new());
    assert_eq!(node.enforce_after(Duration::ZERO), [""; 0]);
    node.kernel.lock().unwrap().add_thread(10, cgroup);
    assert_eq!(node.enforce_after(Duration::ZERO), [""; 0]);
    assert_eq!(node.groups(), ["/bayplan.a-id"]);
}

#[test]
fn no_container_is_monitored_any_more() {
    type Change = fn(&mut Node);
    let ways: [Change; 4] = [
        |node| node.config.enforcement = EnforcementMode::Off,
        |node| node.occupancy.is_restored = true,
        |node| node.config.monitors_caches = false,
        |_| {},
    ];
    for (way, change) in ways.into_iter().enumerate() {
        let mut node = Node::new(FakeResctrl::epyc(), MONITOR, &PODS[..2]);
        let theirs = "sys/fs/resctrl/mon_groups/theirs";
        node.kernel.make_dir(theirs).unwrap();
        node.kernel.write(&format!("{theirs}/tasks"), "11").unwrap();
        assert_eq!(node.enforce(), [""; 0]);
        assert_eq!(node.groups(), ["/bayplan.a-id", "/bayplan.b-id"]);
        change(&mut node);
        if way == 3 {
            assert_eq!(node.enforcer.give_back().failures, [""; 0]);
        } else {
            assert_eq!(node.enforce(), [""; 0]);
        }
        assert_eq!(node.kernel.list("sys/fs/resctrl/mon_groups"), Ok(vec!["theirs".to_owned()]));
        assert_eq!(node.groups(), ["", ""]);
        assert_eq!(node.kernel.lock().unwrap().group_of(11).as_deref(), Some("/theirs"));
    }
}

#[test]
fn the_more_important_are_monitored_first() {
    let mut kernel = FakeResctrl::xeon();
    // With the root's group and one for every CLOSID, three are left.
    kernel.set_rmids(11);
    let mut node = Node::new(kernel, MONITOR, &PODS[..4]);
    node.occupancy.occupants[2].exclusive = "3".parse().unwrap();
    assert_eq!(node.enforce(), [""; 0]);
    assert_eq!(node.groups(), ["/bayplan.a-id", "/bayplan.b-id", "/bayplan.c-id", ""]);
    node.check_preview(expect![[r#"
        Nothing is to be written.
        cannot: resctrl: not monitored, because the processor has 11 RMIDs, which classes, others and more important containers have: ns/d/d
    "#]]);
    // The kernel does not give the RMID of the container that has gone to another one yet.
    node.occupancy.occupants.remove(0);
    node.kernel.lock().unwrap().set_in_limbo(9);
    let mut told = || {
        let done = node.enforcer.enforce(&node.config, &node.occupancy, Duration::ZERO);
        (done.failures, done.problems)
    };
    let problem = "resctrl: ns/d/d is not monitored, because no RMID is free now: EBUSY: Device or resource busy; the kernel says: Out of RMIDs; it is tried again";
    assert_eq!(told(), (vec![], vec![problem.to_owned()]));
    node.kernel.lock().unwrap().set_in_limbo(0);
    let mut told = || {
        let done = node.enforcer.enforce(&node.config, &node.occupancy, Duration::ZERO);
        (done.failures, done.problems)
    };
    assert_eq!(told(), (vec![], vec![]));
    assert_eq!(node.kernel.lock().unwrap().group_of(40).as_deref(), Some("/bayplan.d-id"));
}

/// Only the log said so: `bayplan_files{state="failing"}` was 0, and there was no alert.
#[test]
fn a_group_that_cannot_be_made_counts_as_failing() {
    let mut node = Node::new(FakeResctrl::xeon(), CLASSES, &PODS[..1]);
    node.kernel.lock().unwrap().fail_next("sys/fs/resctrl/bayplan.gold", Errno::EBUSY);
    let done = node.enforcer.enforce(&node.config, &node.occupancy, Duration::ZERO);
    // The group, and the container's threads.
    assert_eq!((done.failures.len(), done.failing.len()), (2, 2), "{:#?}", done.failures);
    node.check_preview(expect![[r#"
        make   /sys/fs/resctrl/bayplan.gold  (class "gold")
        set    /sys/fs/resctrl/bayplan.gold/schemata [L3CODE] (none) -> 0=7f;1=7f  (class "gold": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.gold/schemata [L3DATA] (none) -> 0=7f;1=7f  (class "gold": resctrl.partitions)
        set    /sys/fs/resctrl/bayplan.gold/schemata [MB] (none) -> 0=100;1=100  (class "gold": resctrl.partitions)
        move   2 threads to /sys/fs/resctrl/bayplan.gold  (ns/a/a)
        failed, tried again: make /sys/fs/resctrl/bayplan.gold (class "gold"): EBUSY: Device or resource busy
        failed, tried again: move threads of ns/a/a to /sys/fs/resctrl/bayplan.gold: it is gone
        9 values are changed by bayplan, and remembered as before.
    "#]]);
    assert_eq!(node.enforce(), [""; 0]);
    let done = node.enforcer.enforce(&node.config, &node.occupancy, node.now);
    assert_eq!((done.failures, done.failing), (vec![], vec![]));
}

/// 3 values of 250 caches: 2 containers.
#[test]
fn where_there_are_many_caches_fewer_are_monitored() {
    let mut node = Node::new(FakeResctrl::monitoring(250), MONITOR, &PODS[..4]);
    node.occupancy.occupants[2].exclusive = "3".parse().unwrap();
    assert_eq!(node.enforce(), [""; 0]);
    assert_eq!(node.groups(), ["", "/bayplan.b-id", "/bayplan.c-id", ""]);
    node.check_preview(expect![[r#"
        Nothing is to be written.
        cannot: resctrl: 2 containers are monitored and no more, because each cache has to be asked for each, and 1500 values are the most at a look; exclusive containers come first (resctrl.monitor)
    "#]]);
}

/// Monitoring is not promised.
#[test]
fn what_cannot_be_monitored_is_no_problem() {
    let mut not_mounted = FakeResctrl::nothing();
    not_mounted.rest.files.insert("proc/filesystems".to_owned(), "nodev resctrl\n".to_owned());
    for kernel in [FakeResctrl::nothing(), not_mounted, FakeResctrl::with_l2()] {
        Node::new(kernel, MONITOR, &PODS).check_preview(expect![[r#"
            Nothing is to be written.
        "#]]);
    }
    let mut old = Node::new(FakeResctrl::xeon(), MONITOR, &PODS);
    old.kernel.lock().unwrap().rest.files.remove("sys/fs/cgroup/cgroup.controllers");
    old.check_preview(expect![[r#"
        Nothing is to be written.
    "#]]);
}

const NARROWER: &str = "
resctrl:
  monitor: off
  partitions:
    fast:
      l3Allocation: 60%
      mbAllocation: [100%]
      classes: {gold: }
    slow:
      l3Allocation: 40%
      mbAllocation: [100%]
      classes:
        besteffort:
        half: {l3Allocation: 50%}
        quiet: {mbAllocation: [20%]}
";

impl Node {
    /// Why the first container is in no narrower class of caches.
    fn refusal_of_cache(&mut self) -> String {
        let target = self.occupancy.occupants[0].id;
        let (leave, mems) = Default::default();
        let turn = Turn { knob: Knob::Cache, target, step: 1, leave, mems };
        self.occupancy.turned = Turned::from_turns([(1, turn)]);
        let outcome = self.enforcer.enforce(&self.config, &self.occupancy, Duration::ZERO);
        outcome.turned[&1].clone().unwrap_err()
    }
}

/// Knobs and steps that are turned on the first container; where its first thread is then, and what became of each.
fn check_turned(node: &mut Node, turns: &[(Knob, u32)], group: &str, ends: &[Result<(), &str>]) {
    let target = node.occupancy.occupants[0].id;
    let turn = |(knob, step): &(Knob, u32)| Turn {
        knob: *knob,
        target,
        step: *step,
        leave: Default::default(),
        mems: Default::default(),
    };
    node.occupancy.turned = Turned::from_turns((1..).zip(turns.iter().map(turn)));
    let outcome = node.enforcer.enforce(&node.config, &node.occupancy, Duration::ZERO);
    assert_eq!(node.groups()[0], group);
    let found: Vec<Result<(), &str>> =
        outcome.turned.values().map(|it| it.as_ref().map(|_| ()).map_err(String::as_str)).collect();
    assert_eq!(found, ends);
}

#[test]
fn a_culprit_is_in_a_narrower_class_as_long_as_that_is_turned() {
    let pods = [("hog", QosClass::BestEffort, ""), ("gold", QosClass::Guaranteed, "gold")];
    let mut node = Node::new(FakeResctrl::xeon(), NARROWER, &pods);
    check_turned(&mut node, &[], "bayplan.besteffort", &[]);
    check_turned(&mut node, &[(Knob::Cache, 1)], "bayplan.half", &[Ok(())]);
    // There is no narrower one, and a second step is the same.
    check_turned(&mut node, &[(Knob::Cache, 1), (Knob::Cache, 2)], "bayplan.half", &[Ok(()); 2]);
    check_turned(&mut node, &[(Knob::Bandwidth, 3)], "bayplan.quiet", &[Ok(())]);
    check_turned(&mut node, &[], "bayplan.besteffort", &[]);
    assert_eq!(node.groups()[1], "bayplan.gold");
}

#[test]
fn a_cache_class_does_not_take_away_less_bandwidth_in_silence() {
    let mut node = Node::new(FakeResctrl::xeon(), NARROWER, &[("hog", QosClass::BestEffort, "")]);
    let why = "it is in another class by bandwidth already";
    let both = [(Knob::Bandwidth, 1), (Knob::Cache, 1)];
    check_turned(&mut node, &both, "bayplan.quiet", &[Ok(()), Err(why)]);
    let why = "it is in another class by cache already";
    let both = [(Knob::Cache, 1), (Knob::Bandwidth, 1)];
    check_turned(&mut node, &both, "bayplan.half", &[Ok(()), Err(why)]);
}

#[test]
fn a_class_that_limits_nothing_is_a_refusal() {
    let mut node = Node::new(FakeResctrl::xeon(), NARROWER, &[("hog", QosClass::BestEffort, "")]);
    let schemata = "sys/fs/resctrl/bayplan.half/schemata";
    node.kernel.lock().unwrap().fail_next(schemata, Errno::EINVAL);
    let why = node.refusal_of_cache();
    assert!(why.contains("bayplan.half/schemata"), "{why}");
}

#[test]
fn a_class_that_no_container_was_moved_into_is_a_refusal() {
    let mut node = Node::new(FakeResctrl::xeon(), NARROWER, &[("hog", QosClass::BestEffort, "")]);
    node.occupancy.occupants[0].runtime_id = "elsewhere".to_owned();
    let why = node.refusal_of_cache();
    assert_eq!(why, "its cgroup was not found, so its threads are where they were");
}

#[test]
fn after_a_crash_a_culprit_is_in_its_own_class_again() {
    let mut node = Node::new(FakeResctrl::xeon(), NARROWER, &[("hog", QosClass::BestEffort, "")]);
    check_turned(&mut node, &[(Knob::Cache, 1)], "bayplan.half", &[Ok(())]);
    let state = tempfile::tempdir().unwrap();
    let (originals, _) = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap();
    node.enforcer = Enforcer::new(Box::new(Arc::clone(&node.kernel)), originals);
    check_turned(&mut node, &[], "bayplan.besteffort", &[]);
}

#[test]
fn a_class_that_cannot_be_had_is_a_refusal() {
    let turns = [(Knob::Cache, 1)];
    let hog = [("hog", QosClass::BestEffort, "")];
    let mut node = Node::new(FakeResctrl::xeon(), MONITOR, &hog);
    let why = "no class of resctrl has less than `system/default`";
    check_turned(&mut node, &turns, "/bayplan.hog-id", &[Err(why)]);
    // The kernel has no number left for its group.
    let mut node = Node::new(FakeResctrl::xeon(), NARROWER, &hog);
    node.kernel.lock().unwrap().fail_next("sys/fs/resctrl/bayplan.half", Errno::ENOSPC);
    assert_ne!(node.refusal_of_cache(), "");
}
