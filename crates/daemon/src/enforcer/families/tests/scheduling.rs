//! Classes of scheduling from the configuration to the files of groups, and back.

use expect_test::expect;

use super::*;

const CLASSES: &str = "
schedulingClasses:
- {name: by-pod, ioClass: rt, policy: rr, priority: 3}
- {name: by-group, ioClass: be}
- {name: by-namespace, ioClass: idle, namespaces: [batch*]}
- {name: calm, policy: idle, qosClasses: [BestEffort]}
";

fn scene(config: &str) -> Scene {
    let root = tempfile::tempdir().unwrap();
    let config = format!("hostRoot: {}\n{config}", root.path().display());
    let config = parse_config(Path::new("c"), &config).unwrap();
    let named = [("bayplan.dev/scheduling-class", "by-pod")];
    let mut occupants = vec![occupant("named", "0-1", "", &named)];
    let mut add = |name: &str, namespace: &str, qos, group: Option<&str>| {
        let mut it = occupant(name, "0-1", "", &[]);
        it.scheduling_class = group.map(str::to_owned);
        let pod = &mut Arc::make_mut(&mut it.spec).pod;
        (pod.namespace, pod.qos) = (namespace.to_owned(), Some(qos));
        occupants.push(it);
    };
    add("grouped", "batch1", QosClass::BestEffort, Some("by-group"));
    add("batch", "batch1", QosClass::BestEffort, None);
    add("calm", "n", QosClass::BestEffort, None);
    add("none", "n", QosClass::Burstable, None);
    add("half", "n", QosClass::BestEffort, None);
    add("half", "n", QosClass::BestEffort, Some("by-group"));
    if let Some(other) = occupants.last_mut() {
        other.runtime_id = "id-other".to_owned();
    }
    let both = Occupancy { occupants, ..Occupancy::default() };
    Scene { _root: root, config, both }
}

fn groups() -> FakeResctrl {
    let mut fake = FakeResctrl::xeon();
    let mut rest = kernel(&["named", "grouped", "batch", "calm", "none", "half"]);
    let is_own = |it: &&String| it.ends_with("id-half/cpu.max");
    let own = rest.files.keys().filter(is_own).cloned().collect::<Vec<_>>();
    for path in own {
        rest.files.insert(path.replace("id-half", "id-other"), "max 100000\n".to_owned());
    }
    let of_groups = rest.files.keys().filter(|it| it.ends_with("/cpu.max")).cloned();
    for path in of_groups.collect::<Vec<_>>() {
        for (file, text) in
            [("cpu.idle", "0"), ("cpu.weight", "79"), ("io.prio.class", "no-change")]
        {
            put(&mut rest.files, &path.replace("cpu.max", file), text);
        }
    }
    fake.rest = rest.with_rule("/cpu.max", cpu_max).with_rule("", any_text);
    fake
}

/// A class is that of the pod, of the group, of the namespace, or of the QoS class, in this order. A pod of which one container is in no idle class is not idle. Without classes the files
/// say what they said before.
#[test]
fn scheduling_classes_are_written_and_given_back() {
    let (with, without) = (scene(CLASSES), scene(""));
    let (kernel, state) = (shared(groups()), tempfile::tempdir().unwrap());
    let files = || kernel.lock().unwrap().rest.files.clone();
    // With what is wanted without classes, too.
    Daemon::start(&without, &state, Box::new(Arc::clone(&kernel))).settle(&without.both);
    let begin = files();
    let mut daemon = Daemon::start(&with, &state, Box::new(Arc::clone(&kernel)));
    let done = daemon.look(&with.both);
    daemon.settle(&with.both);
    let changed = files().into_iter().filter(|(path, text)| begin.get(path) != Some(text));
    let changed = changed.map(|(path, text)| format!("{path} {}", text.trim()));
    let told: Vec<String> = changed.chain(done.failures).chain(done.problems).collect();
    expect![[r#"
        sys/fs/cgroup/kubepods/pod-batch/id-batch/io.prio.class idle
        sys/fs/cgroup/kubepods/pod-calm/cpu.idle 1
        sys/fs/cgroup/kubepods/pod-grouped/id-grouped/io.prio.class restrict-to-be
        sys/fs/cgroup/kubepods/pod-half/id-other/io.prio.class restrict-to-be
        sys/fs/cgroup/kubepods/pod-named/id-named/io.prio.class promote-to-rt
        n/named/c: of its scheduling class "by-pod" the policy, nice value and I/O priority of threads are not set: CRI cannot say them, `frontEnd: nri` can
        n/half/c: its scheduling class "calm" is idle, which only a whole pod can be: other containers of its pod are in none"#]].assert_eq(&told.join("\n"));
    daemon.scene = &without;
    daemon.settle(&without.both);
    assert_eq!(files(), begin);
}

/// A kernel that gives groups no time for real-time threads: a container with such a class says what it lacks, and has the rest of it.
#[test]
fn a_container_says_that_its_kernel_refuses_a_realtime_policy() {
    let scene = scene(&format!("frontEnd: nri{CLASSES}"));
    let mut fake = groups();
    put(&mut fake.rest.files, "sys/fs/cgroup/cpu/cpu.rt_runtime_us", "0");
    let state = tempfile::tempdir().unwrap();
    let done = Daemon::start(&scene, &state, Box::new(shared(fake))).look(&scene.both);
    let told = done.problems.iter().filter(|it| it.contains("real-time"));
    expect![[r#"n/named/c: its scheduling class "by-pod" is real-time, and this kernel gives groups no time for real-time threads (CONFIG_RT_GROUP_SCHED with cgroup v1)"#]]
        .assert_eq(&told.cloned().collect::<Vec<_>>().join("\n"));
}
