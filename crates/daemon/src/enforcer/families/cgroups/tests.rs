use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_allocator::NoHome;
use bayplan_enforcement::{Slot, files_to_read, plan_files, render_file_plan};
use bayplan_host::disk::SoundDisk;
use bayplan_host::fake_kernel::FakeKernel;
use bayplan_host::kernel::observe;
use bayplan_node::status::HeldFile;
use bayplan_types::{CpuClass, MilliCpu};
use bayplan_workload::annotations::{BatchLimits, Rule};
use bayplan_workload::{NewContainer, Pod, RequestRules};
use expect_test::{Expect, expect};
use nix::errno::Errno;

use super::*;
use crate::config::parse_config;
use crate::enforcer::families::tests::gathered;
use crate::enforcer::{Enforcer, Originals, render_file_plan_view};

/// A pod of its own with one container: CPUs that it may run on, those that it owns, and an annotation.
pub(crate) fn occupant(
    name: &str,
    cpus: &str,
    exclusive: &str,
    annotations: &[(&str, &str)],
) -> Occupant {
    let annotations = annotations.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let resources = Resources {
        cpu_shares: 2048,
        cpu_quota: 200_000,
        cpu_period: 100_000,
        memory_limit: 64 << 20,
        ..Resources::default()
    };
    let pod = Pod {
        id: name.to_owned(),
        cgroup_parent: format!("/kubepods/pod-{name}"),
        qos: Some(QosClass::Guaranteed),
        annotations: annotations.collect(),
        resources,
        ..Pod::default()
    };
    let spec = NewContainer { pod, name: "c".to_owned(), resources, ..NewContainer::default() };
    let rules = RequestRules { permissions: vec![Rule::everything()], ..RequestRules::default() };
    let tuning = tuning_of(&spec, &rules);
    Occupant {
        id: ContainerId(0),
        name: format!("n/{name}/c"),
        runtime_id: format!("id-{name}"),
        scheduling_class: tuning.scheduling_class.clone(),
        tuning: Arc::new(tuning),
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
    }
}

/// Cgroups of a node on which these pods run.
pub(crate) fn kernel(pods: &[&str]) -> FakeKernel {
    let files = [
        ("cpu.max", "200000 100000\n"),
        ("cpu.max.burst", "0\n"),
        ("cpuset.cpus.exclusive", "\n"),
        ("cpuset.cpus.partition", "member\n"),
        ("io.max", ""),
        ("io.weight", "default 100\n"),
        ("memory.high", "max\n"),
        ("memory.low", "0\n"),
        ("memory.min", "0\n"),
    ];
    let mut kernel = FakeKernel::new(&[
        ("proc/irq/9/smp_affinity_list", "0-3\n"),
        ("proc/irq/default_smp_affinity", "f\n"),
        ("proc/meminfo", "MemTotal:      1048576 kB\n"),
        ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2\n"),
        ("sys/devices/system/cpu/isolated", "\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n"),
        ("sys/fs/cgroup/io.cost.qos", ""),
    ]);
    let pods = pods.iter().map(|pod| format!("kubepods/pod-{pod}/id-{pod}"));
    for own in pods {
        let groups = own.match_indices('/').map(|(at, _)| &own[..at]).chain([own.as_str()]);
        for group in groups {
            for (file, text) in files {
                kernel.files.insert(format!("sys/fs/cgroup/{group}/{file}"), text.to_owned());
            }
        }
    }
    kernel
}

fn check(kernel: &mut FakeKernel, config: &str, occupants: Vec<Occupant>, expected: Expect) {
    let config = parse_config(Path::new("c"), config).unwrap();
    let occupancy = Occupancy { occupants, ..Occupancy::default() };
    let originals = BTreeMap::new();
    let Gathered { settings, problems, .. } = gathered(kernel, &config, &occupancy);
    let observed = observe(kernel, files_to_read(&settings, &originals));
    let mut text = render_file_plan(&plan_files(&settings, &observed, &originals));
    text.extend(problems.iter().map(|problem| format!("! {problem}\n")));
    expected.assert_eq(&text);
}

#[test]
fn the_limit_of_a_pod_stays_where_another_of_its_containers_needs_it() {
    let mut other = occupant("own", "0-1", "", &[]);
    (other.name, other.runtime_id) = ("n/own/other".to_owned(), "id-other".to_owned());
    for (quota, expected) in [(0, false), (200_000, false), (-1, false)] {
        Arc::make_mut(&mut other.spec).resources.cpu_quota = quota;
        let own = occupant("own", "2-3", "2-3", &[]);
        let occupancy = Occupancy { occupants: vec![own, other.clone()], ..Occupancy::default() };
        assert_eq!(pod_limits(&occupancy)["own"].is_within_pod, expected, "{quota}");
    }
    Arc::make_mut(&mut other.spec).resources.cpu_quota = 100_000;
    Arc::make_mut(&mut other.spec).pod.resources.cpu_quota = 300_000;
    let mut own = occupant("own", "2-3", "2-3", &[]);
    Arc::make_mut(&mut own.spec).pod.resources.cpu_quota = 300_000;
    let occupancy = Occupancy { occupants: vec![own, other], ..Occupancy::default() };
    assert!(pod_limits(&occupancy)["own"].is_within_pod);
}

#[test]
fn a_limit_is_lifted_for_an_owner_of_all_its_cpus_unless_a_setting_says_no() {
    let keeps = [("bayplan.dev/cpu-quota", "enable")];
    let occupants = || {
        vec![
            occupant("own", "2-3", "2-3", &[]),
            occupant("keeps", "1", "1", &keeps),
            occupant("mixed", "0-1", "1", &[]),
            occupant("starts", "3", "3", &[]),
        ]
    };
    let mut node = kernel(&["own", "keeps", "mixed"]);
    check(
        &mut node,
        "",
        occupants(),
        expect![[r#"
        set    /sys/fs/cgroup/kubepods/pod-own/cpu.max 200000 100000 -> max  (n/own/c: all of its CPUs are exclusive: no limit)
        set    /sys/fs/cgroup/kubepods/pod-own/id-own/cpu.max 200000 100000 -> max  (n/own/c: all of its CPUs are exclusive: no limit)
    "#]],
    );
    check(&mut node, "cpu: {liftQuota: false}", occupants(), expect![[r#""#]]);
    // Cgroups of version 1.
    check(&mut FakeKernel::default(), "", occupants(), expect![[r#""#]]);
    check(
        &mut FakeKernel::default(),
        "memory: {lowPercent: 100}",
        occupants(),
        expect![[r#"
        ! cgroups are of version 1: their limits, memory and disks are left alone
    "#]],
    );
}

/// They did nothing, and no problem was told.
#[test]
fn what_has_no_effect_on_cgroups_of_version_1_is_told() {
    let config =
        "{bestEffort: {nodePercent: 65}, schedulingClasses: [{name: calm, ioClass: idle}]}";
    let mut version_1 = FakeKernel::default();
    check(
        &mut version_1,
        config,
        Vec::new(),
        expect![[r#"
        ! cgroups are of version 1: no effect of bestEffort, schedulingClasses
    "#]],
    );
    check(
        &mut version_1,
        "bestEffort: {idle: true}",
        Vec::new(),
        expect![[r#"
        ! cgroups are of version 1: no effect of bestEffort
    "#]],
    );
    check(&mut version_1, "bestEffort: {floorPercent: 7}", Vec::new(), expect![[""]]);
    check(&mut kernel(&[]), config, Vec::new(), expect![[""]]);
}

#[test]
fn bursts_and_memory_follow_the_configuration() {
    let eager = [("bayplan.dev/cpu-burst", "10")];
    let mut burstable = occupant("eager", "0-1", "", &eager);
    Arc::make_mut(&mut burstable.spec).pod.qos = Some(QosClass::Burstable);
    Arc::make_mut(&mut burstable.spec).resources.oom_score_adj = 969;
    check(
        &mut kernel(&["sharer", "eager"]),
        "{cpu: {burstPercent: 50}, memory: {minPercent: 50, highPercent: 90}}",
        vec![occupant("sharer", "0-1", "", &[]), burstable],
        expect![[r#"
            set    /sys/fs/cgroup/kubepods/memory.min 0 -> 50196480  (kubepods: memory QoS)
            set    /sys/fs/cgroup/kubepods/pod-eager/cpu.max.burst 0 -> 20000  (n/eager/c: CPU burst)
            set    /sys/fs/cgroup/kubepods/pod-eager/id-eager/cpu.max.burst 0 -> 20000  (n/eager/c: CPU burst)
            set    /sys/fs/cgroup/kubepods/pod-eager/id-eager/memory.high max -> 63725568  (n/eager/c: memory QoS)
            set    /sys/fs/cgroup/kubepods/pod-eager/id-eager/memory.min 0 -> 16642048  (n/eager/c: memory QoS)
            set    /sys/fs/cgroup/kubepods/pod-eager/memory.min 0 -> 16642048  (kubepods/pod-eager: memory QoS)
            set    /sys/fs/cgroup/kubepods/pod-sharer/cpu.max.burst 0 -> 100000  (n/sharer/c: CPU burst)
            set    /sys/fs/cgroup/kubepods/pod-sharer/id-sharer/cpu.max.burst 0 -> 100000  (n/sharer/c: CPU burst)
            set    /sys/fs/cgroup/kubepods/pod-sharer/id-sharer/memory.min 0 -> 33554432  (n/sharer/c: memory QoS)
            set    /sys/fs/cgroup/kubepods/pod-sharer/memory.min 0 -> 33554432  (kubepods/pod-sharer: memory QoS)
        "#]],
    );
}

#[test]
fn isolation_is_for_owners_of_all_their_cpus() {
    let isolated = [("bayplan.dev/cpu-partition", "isolated")];
    let housekeeping = [
        ("cpu-load-balancing.crio.io", "enable"),
        ("irq-load-balancing.crio.io", "housekeeping"),
        ("cpu-quota.crio.io", "enable"),
    ];
    check(
        &mut kernel(&["own", "sharer"]),
        "{cpu: {liftQuota: false}, isolation: {partition: root, interrupts: disable}}",
        vec![occupant("own", "1", "1", &[]), occupant("sharer", "0", "", &[])],
        expect![[r#"
            shrink /proc/irq/9/smp_affinity_list 0-3 -> 0,2-3  (irq 9: away from CPUs 1)
            set    /proc/irq/default_smp_affinity f -> 0000000d  (new interrupts: away from CPUs 1)
            grow   /sys/fs/cgroup/kubepods/cpuset.cpus.exclusive (none) -> 1  (kubepods: for partitions below)
            grow   /sys/fs/cgroup/kubepods/pod-own/cpuset.cpus.exclusive (none) -> 1  (pod-own: for partitions below)
            grow   /sys/fs/cgroup/kubepods/pod-own/id-own/cpuset.cpus.exclusive (none) -> 1  (n/own/c: a partition of its exclusive CPUs (root))
            enter  /sys/fs/cgroup/kubepods/pod-own/id-own/cpuset.cpus.partition member -> root  (n/own/c: a partition of its exclusive CPUs (root))
        "#]],
    );
    check(
        &mut kernel(&["keeper", "sharer"]),
        "isolation: {partition: root}",
        vec![
            occupant("keeper", "2-3", "2-3", &housekeeping),
            occupant("sharer", "0", "", &isolated),
        ],
        expect![[r#"
            shrink /proc/irq/9/smp_affinity_list 0-3 -> 0-2  (irq 9: away from CPUs 3)
            set    /proc/irq/default_smp_affinity f -> 00000007  (new interrupts: away from CPUs 3)
            ! n/sharer/c asks for a partition and shares CPUs: that needs a Guaranteed pod and whole CPUs
        "#]],
    );
}

#[test]
fn classes_of_block_io_are_chosen_or_those_of_the_qos_class() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("dev/vda", "");
    put("sys/class/block/vda/dev", "254:0\n");
    let config = format!(
        "hostRoot: {}\n\
         cpu: {{liftQuota: false}}\n\
         blockIo:\n  classes:\n    slow:\n      - Devices: [/dev/vd*]\n        ThrottleWriteBps: 10M\n    \
         Guaranteed:\n      - Weight: 200\n",
        root.path().display()
    );
    let [slow, lost] = ["slow", "lost"].map(|class| [("bayplan.dev/blockioclass", class)]);
    check(
        &mut kernel(&["usual", "slow", "lost"]),
        &config,
        vec![
            occupant("usual", "0", "", &[]),
            occupant("slow", "0", "", &slow),
            occupant("lost", "0", "", &lost),
        ],
        expect![[r#"
            set    /sys/fs/cgroup/kubepods/pod-slow/id-slow/io.max [254:0] (none) -> rbps=max wbps=10000000 riops=max wiops=max  (n/slow/c: block I/O class "slow")
            set    /sys/fs/cgroup/kubepods/pod-usual/id-usual/io.weight [default] 100 -> 200  (n/usual/c: block I/O class "Guaranteed")
            set    /sys/fs/cgroup/kubepods/pod-usual/io.weight [default] 100 -> 200  (n/usual/c: block I/O class "Guaranteed" in the pod)
            ! n/lost/c: there is no block I/O class "lost"; those of the configuration: Guaranteed, slow
        "#]],
    );
}

/// That there were no groups yet was remembered, and taken for cgroups of version 1 as long as the daemon ran; and nothing was to be looked at again.
#[test]
fn groups_that_come_after_the_first_look_are_looked_at() {
    let (mut bare, with_groups) = (kernel(&[]), kernel(&["own"]));
    let control = ("sys/fs/cgroup/cgroup.subtree_control".to_owned(), "cpu memory\n".to_owned());
    bare.files.extend([control]);
    let kernel = Arc::new(Mutex::new(bare));
    let config = parse_config(Path::new("c"), "memory: {lowPercent: 50}\n").unwrap();
    let occupants = vec![occupant("own", "0-1", "0-1", &[])];
    let occupancy = Occupancy { occupants, ..Occupancy::default() };
    let state = tempfile::tempdir().unwrap();
    let originals = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap().0;
    let mut enforcer = Enforcer::new(Box::new(Arc::clone(&kernel)), originals);
    let mut look = |secs| {
        let outcome = enforcer.enforce(&config, &occupancy, Duration::from_secs(secs));
        assert!(enforcer.has_work());
        outcome
    };
    let first = look(0);
    assert_eq!((first.problems, first.plan.writes.len()), (vec![], 0));
    kernel.lock().unwrap().files.extend(with_groups.files);
    let second = look(30);
    assert_eq!((second.problems, second.failures), (vec![], vec![]));
    assert!(second.plan.writes.len() > 1, "{}", render_file_plan(&second.plan));
}

/// A node in files, and the disk `sdb` that comes and goes.
struct DiskScene {
    root: tempfile::TempDir,
    kernel: Arc<Mutex<FakeKernel>>,
}

impl DiskScene {
    const LIMITS: &str = "sys/fs/cgroup/kubepods/pod-slow/id-slow/io.max";
    const DISK: &str = "sys/dev/block/8:16/dev";

    fn new() -> DiskScene {
        let mut kernel = kernel(&["slow"]).with_rule("/io.max", |files, path, text| {
            if !files.contains_key(DiskScene::DISK) {
                return Err(Errno::ENODEV);
            }
            files.insert(path.to_owned(), format!("{text}\n"));
            Ok(())
        });
        // Another disk that stays.
        kernel.files.insert("sys/dev/block/8:0/dev".to_owned(), "8:0\n".to_owned());
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        DiskScene { root, kernel: Arc::new(Mutex::new(kernel)) }
    }

    /// Another program limits it as soon as it is there.
    fn plug(&self) {
        for (path, text) in [("sys/class/block/sdb/dev", "8:16\n"), ("dev/sdb", "")] {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = &mut self.kernel.lock().unwrap().files;
        files.insert(Self::DISK.to_owned(), "8:16\n".to_owned());
        let line = "8:16 rbps=max wbps=5000000 riops=max wiops=max\n";
        files.insert(Self::LIMITS.to_owned(), line.to_owned());
    }

    /// With the disk the kernel forgets all limits for it.
    fn pull(&self) {
        fs::remove_file(self.root.path().join("dev/sdb")).unwrap();
        fs::remove_dir_all(self.root.path().join("sys/class/block/sdb")).unwrap();
        let files = &mut self.kernel.lock().unwrap().files;
        files.remove(Self::DISK);
        files.insert(Self::LIMITS.to_owned(), String::new());
    }

    fn limits(&self) -> String {
        self.kernel.lock().unwrap().files[Self::LIMITS].trim().to_owned()
    }
}

/// The limit that another program had set was written again and again for a disk that was gone, which counted as a fight with that program.
#[test]
fn a_disk_has_its_limit_when_it_comes_and_leaves_nothing_to_do_when_it_goes() {
    const OURS: &str = "8:16 rbps=max wbps=10000000 riops=max wiops=max";
    let scene = DiskScene::new();
    let config = format!(
        "hostRoot: {}\ncpu: {{liftQuota: false}}\n\
         blockIo: {{classes: {{slow: [{{Devices: [/dev/sd?], ThrottleWriteBps: 10M}}]}}}}\n",
        scene.root.path().display()
    );
    let config = parse_config(Path::new("c"), &config).unwrap();
    let slow = occupant("slow", "0", "", &[("bayplan.dev/blockioclass", "slow")]);
    let occupancy = Occupancy { occupants: vec![slow], ..Occupancy::default() };
    let state = tempfile::tempdir().unwrap();
    let originals = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap().0;
    let mut enforcer = Enforcer::new(Box::new(Arc::clone(&scene.kernel)), originals);
    let mut secs = 0;
    let mut look = |expected: &str, remembered: usize| {
        secs += 30;
        let done = enforcer.enforce(&config, &occupancy, Duration::from_secs(secs));
        assert_eq!((done.failures, done.notices), (vec![], vec![]), "after {secs} s");
        assert_eq!((done.failing.len(), done.contested, done.changed), (0, 0, remembered));
        assert_eq!(scene.limits(), expected, "after {secs} s");
        let none = "block I/O class \"slow\": /dev/sd?: there is no such block device";
        assert_eq!(done.problems, if expected.is_empty() { vec![none] } else { vec![] });
    };
    look("", 0);
    for _ in 0..2 {
        scene.plug();
        look(OURS, 1);
        look(OURS, 1);
        scene.pull();
        for _ in 0..10 {
            look("", 0);
        }
    }
    scene.plug();
    look(OURS, 1);
    scene.pull();
    assert_eq!(enforcer.give_back().failures, [""; 0]);
}

/// Members of two classes, of one that is not there, and of none. What `bayplan plan` shows; then all is written and given back.
fn check_reclaimed(kernel: FakeKernel, expected: Expect) -> FakeKernel {
    const CONFIG: &str = "{cpu: {liftQuota: false}, memory: {demotion: true, reclaim: {Guaranteed: {}, eager: {every: 5s, swappiness: 200}}}}";
    let [eager, lost, none] =
        ["eager", "lost", "none"].map(|class| [("bayplan.dev/memory-reclaim-class", class)]);
    let mut burstable = occupant("burstable", "0", "", &[]);
    Arc::make_mut(&mut burstable.spec).pod.qos = Some(QosClass::Burstable);
    let mut system = occupant("system", "0", "", &[]);
    Arc::make_mut(&mut system.spec).pod.namespace = "kube-system".to_owned();
    let occupants = vec![
        occupant("usual", "0", "", &[]),
        occupant("eager", "0", "", &eager),
        occupant("lost", "0", "", &lost),
        occupant("none", "0", "", &none),
        burstable,
        system,
    ];
    let kernel = Arc::new(Mutex::new(kernel));
    let config = parse_config(Path::new("c"), CONFIG).unwrap();
    let occupancy = Occupancy { occupants, ..Occupancy::default() };
    let state = tempfile::tempdir().unwrap();
    let originals = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap().0;
    let mut enforcer = Enforcer::new(Box::new(Arc::clone(&kernel)), originals);
    let shown = enforcer.preview(&config, &occupancy, Duration::ZERO);
    expected.assert_eq(&render_file_plan_view(&shown.into()));
    let done = enforcer.enforce(&config, &occupancy, Duration::ZERO);
    let (_, files) = done.held.about("n/eager/c", &BTreeMap::new());
    let explained: Vec<&str> = files.iter().map(|it| it.value.as_str()).collect();
    let is_reclaimed = !done.reclaims.is_empty();
    assert_eq!(explained, if is_reclaimed { vec!["67108864 swappiness=200"] } else { vec![] });
    enforcer.give_back();
    kernel.lock().unwrap().clone()
}

#[test]
fn what_is_reclaimed_goes_to_slower_memory_where_there_is_any() {
    let mut node = kernel(&["usual", "eager", "lost", "none", "burstable", "system"]);
    check_reclaimed(
        node.clone(),
        expect![[r#"
        Nothing is to be written.
        cannot: n/usual/c: memory.reclaim is not there, which needs Linux 5.19 and the controller `memory`: nothing is reclaimed
        cannot: n/eager/c: memory.reclaim is not there, which needs Linux 5.19 and the controller `memory`: nothing is reclaimed
        cannot: n/lost/c: there is no class `lost` in memory.reclaim
    "#]],
    );
    for file in ["memory.pressure", "memory.reclaim"] {
        node.files.insert(format!("sys/fs/cgroup/kubepods/{file}"), String::new());
    }
    check_reclaimed(
        node.clone(),
        expect![[r#"
        reclaim /sys/fs/cgroup/kubepods/pod-usual/id-usual/memory.reclaim 67108864  (n/usual/c: every 60s, unless it has stalled for more than 1 % of that: class "Guaranteed")
        reclaim /sys/fs/cgroup/kubepods/pod-eager/id-eager/memory.reclaim 67108864 swappiness=200  (n/eager/c: every 5s, unless it has stalled for more than 1 % of that: class "eager")
        cannot: n/lost/c: there is no class `lost` in memory.reclaim
    "#]],
    );
    const DEMOTION: &str = "sys/kernel/mm/numa/demotion_enabled";
    for (path, text) in [
        (DEMOTION, "false\n"),
        ("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1\n"),
        ("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "2\n"),
    ] {
        node.files.insert(path.to_owned(), text.to_owned());
    }
    let node = node.with_rule(DEMOTION, |files, path, text| {
        let word = match text {
            "1" => "true\n",
            "0" => "false\n",
            _ => return Err(Errno::EINVAL),
        };
        files.insert(path.to_owned(), word.to_owned());
        Ok(())
    });
    let node = check_reclaimed(
        node,
        expect![[r#"
        set    /sys/kernel/mm/numa/demotion_enabled false -> true  (machine: what is reclaimed goes to slower memory)
        reclaim /sys/fs/cgroup/kubepods/pod-usual/id-usual/memory.reclaim 67108864  (n/usual/c: every 60s, unless it has stalled for more than 1 % of that: class "Guaranteed")
        reclaim /sys/fs/cgroup/kubepods/pod-eager/id-eager/memory.reclaim 67108864 swappiness=200  (n/eager/c: every 5s, unless it has stalled for more than 1 % of that: class "eager")
        cannot: n/lost/c: there is no class `lost` in memory.reclaim
    "#]],
    );
    assert_eq!(node.files[DEMOTION], "false\n", "it is given back");
    let written: Vec<_> = node.written.iter().filter(|(path, _)| path == DEMOTION).collect();
    assert_eq!(written.len(), 2, "{written:?}");
}

/// What `explain` says of each after one look.
fn check_explained(kernel: FakeKernel, config: &str, occupants: Vec<Occupant>, expected: Expect) {
    let config = parse_config(Path::new("c"), config).unwrap();
    let state = tempfile::tempdir().unwrap();
    let (originals, _) = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap();
    let kernel = Arc::new(Mutex::new(kernel));
    let mut enforcer = Enforcer::new(Box::new(kernel), originals);
    let occupancy = Occupancy { occupants, ..Occupancy::default() };
    let held = enforcer.enforce(&config, &occupancy, Duration::ZERO).held;
    let mut text = String::new();
    for Occupant { name, .. } in &occupancy.occupants {
        let (isolation, files) = held.about(name, &BTreeMap::new());
        text.push_str(&format!("{name}: {}\n", isolation.as_deref().unwrap_or("-")));
        for HeldFile { slot, value, failure, .. } in files {
            let slot = slot.trim_start_matches("/sys/fs/cgroup/kubepods/");
            let failure = failure.iter().map(|why| format!(", not so: {why}")).collect::<String>();
            text.push_str(&format!("    {slot} = {value}{failure}\n"));
        }
    }
    expected.assert_eq(&text);
}

const FOUR: [&str; 4] = ["asks", "owns", "shares", "wants"];

fn four() -> Vec<Occupant> {
    let isolated = [("bayplan.dev/cpu-partition", "isolated")];
    vec![
        occupant("asks", "2-3", "2-3", &isolated),
        occupant("owns", "1", "1", &[]),
        occupant("shares", "0", "", &[]),
        occupant("wants", "0", "", &isolated),
    ]
}

#[test]
fn explain_says_which_isolation_was_given_and_why_no_further() {
    check_explained(
        kernel(&FOUR),
        "",
        four(),
        expect![[r#"
            n/asks/c: partition isolated: nothing else of the node runs on its CPUs, and its own threads are not moved among them
                pod-asks/cpu.max = max
                pod-asks/id-asks/cpu.max = max
                pod-asks/id-asks/cpuset.cpus.exclusive = 2-3
                pod-asks/id-asks/cpuset.cpus.partition = isolated
            n/owns/c: exclusive CPUs, on which nothing else runs but processes outside of all containers; no partition is asked for (isolation.partition)
                pod-owns/cpu.max = max
                pod-owns/id-owns/cpu.max = max
            n/shares/c: -
            n/wants/c: none: it shares CPUs, and a partition needs a Guaranteed pod and whole CPUs
        "#]],
    );
    let mut refusing = kernel(&FOUR);
    let partition = "sys/fs/cgroup/kubepods/pod-asks/id-asks/cpuset.cpus.partition";
    refusing.fail_next(partition, Errno::EINVAL);
    check_explained(
        refusing,
        "",
        four(),
        expect![[r#"
            n/asks/c: exclusive CPUs, on which nothing else runs but processes outside of all containers; partition isolated cannot be had: EINVAL: Invalid argument
                pod-asks/cpu.max = max
                pod-asks/id-asks/cpu.max = max
                pod-asks/id-asks/cpuset.cpus.exclusive = 2-3
                pod-asks/id-asks/cpuset.cpus.partition = isolated, not so: EINVAL: Invalid argument
            n/owns/c: exclusive CPUs, on which nothing else runs but processes outside of all containers; no partition is asked for (isolation.partition)
                pod-owns/cpu.max = max
                pod-owns/id-owns/cpu.max = max
            n/shares/c: -
            n/wants/c: none: it shares CPUs, and a partition needs a Guaranteed pod and whole CPUs
        "#]],
    );
}

#[test]
fn explain_tells_of_older_kernels_and_of_cpus_isolated_at_boot() {
    let mut old = kernel(&FOUR);
    old.files.retain(|path, _| !path.ends_with("cpuset.cpus.exclusive"));
    old.files.insert("sys/devices/system/cpu/isolated".to_owned(), "1\n".to_owned());
    check_explained(
        old,
        "cpu:\n  liftQuota: false\n",
        four(),
        expect![[r#"
            n/asks/c: exclusive CPUs, on which nothing else runs but processes outside of all containers; a partition needs cgroup v2, Linux 6.7, and no CPU that is isolated at boot
            n/owns/c: its CPUs are isolated since the machine was booted (isolcpus)
            n/shares/c: -
            n/wants/c: none: it shares CPUs, and a partition needs a Guaranteed pod and whole CPUs
        "#]],
    );
    let mut old = kernel(&FOUR);
    old.files.retain(|path, _| !path.ends_with("cpuset.cpus.exclusive"));
    assert!(!has_isolcpus_only(&mut old));
    old.files.insert("sys/devices/system/cpu/isolated".to_owned(), "2-3\n".to_owned());
    assert!(has_isolcpus_only(&mut old));
    let mut new = kernel(&FOUR);
    new.files.insert("sys/devices/system/cpu/isolated".to_owned(), "2-3\n".to_owned());
    assert!(!has_isolcpus_only(&mut new));
    check_explained(
        old,
        "cpu:\n  liftQuota: false\n",
        four(),
        expect![[r#"
        n/asks/c: its CPUs are isolated since the machine was booted (isolcpus), in place of the partition that is asked for
        n/owns/c: exclusive CPUs, on which nothing else runs but processes outside of all containers; no partition is asked for (isolation.partition)
        n/shares/c: -
        n/wants/c: none: it shares CPUs, and a partition needs a Guaranteed pod and whole CPUs
    "#]],
    );
    check_explained(
        kernel(&FOUR),
        "enforcement: off\n",
        four(),
        expect![[r#"
            n/asks/c: -
            n/owns/c: -
            n/shares/c: -
            n/wants/c: -
        "#]],
    );
}

/// Also by a daemon that was not there when it was told.
#[test]
fn irqbalance_leaves_alone_what_is_kept_free_of_interrupts_and_gets_its_list_back() {
    let socket = "run/irqbalance/irqbalance7.sock";
    let mut files = kernel(&["own"]);
    files.files.insert(socket.to_owned(), "1\n".to_owned());
    let (files, state) = (Arc::new(Mutex::new(files)), tempfile::tempdir().unwrap());
    let config = parse_config(Path::new("c"), "isolation:\n  interrupts: disable\n").unwrap();
    let look = |occupants: Vec<Occupant>| {
        let (originals, _) = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap();
        let mut enforcer = Enforcer::new(Box::new(Arc::clone(&files)), originals);
        let occupancy = Occupancy { occupants, ..Occupancy::default() };
        let done = enforcer.enforce(&config, &occupancy, Duration::ZERO);
        assert_eq!((done.failures, done.problems), (vec![], vec![]));
        files.lock().unwrap().files[socket].clone()
    };
    assert_eq!(look(vec![occupant("own", "2-3", "2-3", &[])]), "1-3");
    assert_eq!(look(vec![occupant("own", "2", "2", &[])]), "1-2");
    assert_eq!(look(Vec::new()), "1");
}

/// A BestEffort container with these limits of Koordinator's.
fn batch_container(limits: BatchLimits) -> Occupant {
    let mut batch = occupant("batch", "0-3", "", &[]);
    let spec = Arc::make_mut(&mut batch.spec);
    (spec.resources, spec.pod.qos) = (Resources::default(), Some(QosClass::BestEffort));
    Arc::make_mut(&mut batch.tuning).batch = Some(limits);
    batch
}

/// The group of [`batch_container`].
const BATCH: &str = "sys/fs/cgroup/kubepods/pod-batch/id-batch";

/// The limit of a BestEffort container that Koordinator has limited to 1 MiB, that uses so many bytes and has a limit of kubelet's, 0 for none; and how many problems are told.
/// `has` is what its file says.
fn check_batch_memory(used: &str, has: &str, kubelets: i64, expected: (Option<&str>, usize)) {
    let limits = BatchLimits { cpu: None, memory: Some(Bytes(1 << 20)) };
    let mut batch = batch_container(limits);
    Arc::make_mut(&mut batch.spec).resources.memory_limit = kubelets;
    let (mut kernel, group) = (kernel(&["batch"]), BATCH);
    kernel.files.insert(format!("{group}/memory.current"), used.to_owned());
    kernel.files.insert(format!("{group}/memory.max"), has.to_owned());
    let occupancy = Occupancy { occupants: vec![batch], ..Occupancy::default() };
    let gathered = gathered(&mut kernel, &Config::default(), &occupancy);
    let limit = gathered.settings.get(&Slot::file(format!("{group}/memory.max")));
    let found = (limit.map(|it| it.value.as_str()), gathered.problems.len());
    assert_eq!(found, expected, "{used}: {:?}", gathered.problems);
}

#[test]
fn batch_memory_is_no_limit_for_a_container_that_uses_more_already() {
    check_batch_memory("1048576\n", "max\n", 0, (Some("1048576"), 0));
    check_batch_memory("1048577\n", "max\n", 0, (None, 1));
    // That limit counts.
    check_batch_memory("4096\n", "max\n", 2 << 20, (None, 0));
}

/// It was lifted as soon as usage had passed it once. A smaller limit than before waits, and the one before stays.
#[test]
fn batch_memory_in_force_stays_when_usage_passes_it() {
    check_batch_memory("1048577\n", "1048576\n", 0, (Some("1048576"), 0));
    check_batch_memory("1048577\n", "983040\n", 0, (Some("1048576"), 0));
    check_batch_memory("1048577\n", "2097152\n", 0, (Some("2097152"), 1));
}

/// It was taken for the runtime's own, and stayed for ever.
#[test]
fn batch_limits_are_given_back_by_restore_and_without_enforcement() {
    let limits = BatchLimits { cpu: Some(MilliCpu(500)), memory: Some(Bytes(1 << 20)) };
    let occupants = vec![batch_container(limits)];
    let on = parse_config(Path::new("c"), "enforcement: on").unwrap();
    let off = parse_config(Path::new("c"), "enforcement: off").unwrap();
    let there = Occupancy { occupants, ..Occupancy::default() };
    let restored = Occupancy { is_restored: true, ..there.clone() };
    for (config, occupancy) in [(&on, &restored), (&off, &there)] {
        let mut files = kernel(&["batch"]);
        for (name, text) in [("cpu.max", "max 100000\n"), ("memory.max", "max\n")] {
            files.files.insert(format!("{BATCH}/{name}"), text.to_owned());
        }
        let (files, state) = (Arc::new(Mutex::new(files)), tempfile::tempdir().unwrap());
        let say = || ["cpu.max", "memory.max"].map(|it| text_of(&files, &format!("{BATCH}/{it}")));
        let (originals, _) = Originals::open(Arc::new(SoundDisk), state.path(), None).unwrap();
        let mut enforcer = Enforcer::new(Box::new(Arc::clone(&files)), originals);
        enforcer.enforce(&on, &there, Duration::ZERO);
        assert_eq!(say(), ["50000 100000", "1048576"]);
        for now in 1..3 {
            enforcer.enforce(config, occupancy, Duration::from_secs(now));
        }
        assert_eq!(
            (say(), enforcer.originals.count()),
            (["max 100000", "max"].map(str::to_owned), 0)
        );
    }
}

fn text_of(files: &Arc<Mutex<FakeKernel>>, path: &str) -> String {
    files.lock().unwrap().files[path].trim().to_owned()
}
