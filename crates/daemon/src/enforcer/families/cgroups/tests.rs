//! Files of cgroups: what configuration and annotations make of them.

mod batch;
mod block_io;
mod explained;
mod reclaim;

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
        is_running: true,
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

fn text_of(files: &Arc<Mutex<FakeKernel>>, path: &str) -> String {
    files.lock().unwrap().files[path].trim().to_owned()
}
