//! Classes of caches and bandwidth: the daemon, a process, over a resctrl that refuses what the kernel's refuses, with real system calls and real threads.

mod machine;
mod mount;
mod process;

use std::fs;
use std::time::Duration;

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet_api::fake::FakeKubelet;
use bayplan_daemon::{FilePlanView, query_control};
use bayplan_host::fake_resctrl::{FakeResctrl, GroupMode};
use bayplan_host::kernel::Kernel as _;
use expect_test::{Expect, expect};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::time::sleep;

use self::machine::{BASE, Machine};
use self::mount::ResctrlMount;
use self::process::Process;
use crate::node::{MACHINE, Node, soon};
use crate::pods::{pod, serve};

/// `gold` has 60% of everything, others less, and a container in no class what `slow` has.
const CLASSES: &str = "
resctrl:
  options: {l2: {optional: true}, l3: {optional: true}, mb: {optional: true}}
  partitions:
    fast:
      l2Allocation: 60%
      l3Allocation: 60%
      mbAllocation: [100%]
      classes: {gold: }
    slow:
      l2Allocation: 40%
      l3Allocation: 40%
      mbAllocation: [100%]
      classes:
        besteffort: {l2Allocation: 50%, l3Allocation: 50%, mbAllocation: [20%, 2000MBps]}
        system/default: {kubernetes: {denyPodAnnotation: true}}
";

/// The kernel's words about the last change.
fn words(mount: &ResctrlMount) -> String {
    fs::read_to_string(mount.path("info/last_cmd_status")).unwrap().trim().to_owned()
}

#[test]
fn what_the_model_answers_is_what_a_process_gets() {
    let dir = tempfile::tempdir().unwrap();
    let mount = ResctrlMount::new(dir.path(), FakeResctrl::xeon());
    for name in 1..8 {
        fs::create_dir(mount.path(&format!("g{name}"))).unwrap();
    }
    let write = |name: &str, text: &str| {
        let done = fs::write(mount.path(name), text);
        (format!("{name} {text:?}"), done)
    };
    let make = |name: &str| (format!("mkdir {name}"), fs::create_dir(mount.path(name)));
    let remove = |name: &str| (format!("rmdir {name}"), fs::remove_dir(mount.path(name)));
    let mut told = String::new();
    let mut tell = |(what, done): (String, std::io::Result<()>)| {
        let end = done.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()));
        told += &format!("{what}: {end:?}, {}\n", words(&mount));
    };
    tell(write("g1/schemata", "L3CODE:0=7f\nMB:0=50\n"));
    tell(write("g1/schemata", "L3CODE:0=5\n"));
    tell(write("g1/schemata", "L3CODE:0=0\n"));
    tell(make("g8"));
    tell(make("g1"));
    tell(make("g1/inner"));
    tell(make("g1/mon_groups/m1"));
    tell(write("g1/tasks", &i32::MAX.to_string()));
    tell(write("info/L3CODE/cbm_mask", "1"));
    tell(remove("g1"));
    tell(remove("g1"));
    tell(make("g1"));
    expect![[r#"
        g1/schemata "L3CODE:0=7f\nMB:0=50\n": Ok(()), ok
        g1/schemata "L3CODE:0=5\n": Err(EINVAL), The mask 5 has non-consecutive 1-bits
        g1/schemata "L3CODE:0=0\n": Err(EINVAL), Mask out of range
        mkdir g8: Err(ENOSPC), Out of CLOSIDs
        mkdir g1: Err(EEXIST), Out of CLOSIDs
        mkdir g1/inner: Err(EPERM), ok
        mkdir g1/mon_groups/m1: Ok(()), ok
        g1/tasks "2147483647": Err(ESRCH), No task 2147483647
        info/L3CODE/cbm_mask "1": Err(EACCES), ok
        rmdir g1: Ok(()), ok
        rmdir g1: Err(ENOENT), ok
        mkdir g1: Ok(()), ok
    "#]]
    .assert_eq(&told);

    // Whatever is listed is there, and a group that is made again is a new one.
    let (mut dirs, mut texts) = (vec![mount.path("")], Vec::new());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => texts.push(fs::read_to_string(path).unwrap()),
            }
        }
    }
    assert!(texts.len() > 40, "{texts:#?}");
    let schemata = fs::read_to_string(mount.path("g1/schemata")).unwrap();
    assert!(schemata.contains("L3CODE:0=7ff;1=7ff\n"), "{schemata}");
}

/// Four processors with one configuration.
#[tokio::test(flavor = "multi_thread")]
async fn classes_become_groups_with_what_the_processor_can_divide() {
    let rows: [(fn() -> FakeResctrl, Expect); 3] = [
        (
            FakeResctrl::xeon,
            expect![[r#"
            / L3CODE:0=780;1=780 L3DATA:0=780;1=780 MB:0=100;1=100
            /bayplan.besteffort L3CODE:0=180;1=180 L3DATA:0=180;1=180 MB:0=20;1=20
            /bayplan.gold L3CODE:0=07f;1=07f L3DATA:0=07f;1=07f MB:0=100;1=100
        "#]],
        ),
        (
            FakeResctrl::epyc,
            expect![[r#"
            / L3:0=fc00;1=fc00;2=fc00;3=fc00;4=fc00;5=fc00;6=fc00;7=fc00 MB:0=2048;1=2048;2=2048;3=2048;4=2048;5=2048;6=2048;7=2048
            /bayplan.besteffort L3:0=1c00;1=1c00;2=1c00;3=1c00;4=1c00;5=1c00;6=1c00;7=1c00 MB:0=16;1=16;2=16;3=16;4=16;5=16;6=16;7=16
            /bayplan.gold L3:0=03ff;1=03ff;2=03ff;3=03ff;4=03ff;5=03ff;6=03ff;7=03ff MB:0=2048;1=2048;2=2048;3=2048;4=2048;5=2048;6=2048;7=2048
        "#]],
        ),
        (
            FakeResctrl::with_l2,
            expect![[r#"
            / L2:0=fc00;1=fc00;2=fc00;3=fc00
            /bayplan.besteffort L2:0=1c00;1=1c00;2=1c00;3=1c00
            /bayplan.gold L2:0=03ff;1=03ff;2=03ff;3=03ff
        "#]],
        ),
    ];
    for (model, expected) in rows {
        let mut machine = Machine::new(model());
        let before = machine.groups();
        machine.start_daemon(CLASSES).await;
        let gold = machine.launch("a", "gold").await;
        let plan = machine.settled().await;
        assert_eq!(plan.problems, [""; 0]);
        expected.assert_eq(&machine.groups());
        assert_eq!(machine.groups_of(&gold.threads), [Some("bayplan.gold".to_owned())]);
        machine.restore().await;
        assert_eq!(machine.groups(), before);
        assert_eq!(machine.groups_of(&gold.threads), [Some(String::new())]);
    }
    // There is nothing to mount on the fourth, and the daemon says so.
    let mut node = Node::without_daemon(MACHINE);
    node.spawn_daemon(&format!("{BASE}{CLASSES}")).await;
    let plan: FilePlanView =
        soon(query_control(&node.control_socket(), "/api/v1/plan")).await.unwrap();
    let problem = "resctrl: this processor or kernel has none; classes do nothing";
    assert_eq!((plan.problems, plan.groups), (vec![problem.to_owned()], vec![]));
}

/// Of the two processes of each container, the one that is moved first forks just before, and the other ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_starts_in_its_group_with_the_processes_it_has_made_meanwhile() {
    const ROUNDS: usize = 20;
    let mut machine = Machine::start(FakeResctrl::xeon(), CLASSES).await;
    machine.settled().await;
    let mut late_ones = Vec::new();
    for round in 0..ROUNDS {
        let late = machine.count("bayplan_failures_total", "kind=\"late_files\"").await;
        // Before the daemon can see it, which may be at once.
        machine.mount.hold("bayplan.gold/tasks");
        let mut container = machine.create(&format!("c{round}"), "gold", 2).await;
        machine.resize(&container).await;
        let (mut kubelet, id) = (machine.node.kubelet.clone(), container.id.clone());
        let started = tokio::spawn(async move { soon(kubelet.start(&id)).await });

        let held = machine.mount.held().await;
        let moved: u32 = held.text().parse().unwrap();
        let parent = container.processes.iter_mut().find(|it| it.id() == moved).unwrap();
        let child = parent.fork();
        machine.mount.model().fork_thread(child, moved);
        container.threads.push(child);
        container.list_threads();
        machine.mount.hold("bayplan.gold/tasks");
        held.carry_out();
        let held = machine.mount.held().await;
        let ended: u32 = held.text().parse().unwrap();
        container.processes.iter_mut().find(|it| it.id() == ended).unwrap().end();
        container.threads.retain(|id| *id != ended);
        container.list_threads();
        held.carry_out();
        started.await.unwrap().unwrap();
        let groups = machine.groups_of(&[moved, child, ended]);

        // A start does not wait for a machine that is too busy, and says so.
        if machine.count("bayplan_failures_total", "kind=\"late_files\"").await > late {
            machine.settled().await;
            // No thread of it is moved any more, as one that has ended would be while its list has it.
            late_ones.push(container);
            continue;
        }
        let gold = Some("bayplan.gold".to_owned());
        assert_eq!(groups, [gold.clone(), gold, None]);
        let tasks = fs::read_to_string(machine.mount.path("bayplan.gold/tasks")).unwrap();
        for id in [moved, child] {
            assert!(tasks.lines().any(|line| line == id.to_string()), "{id} in {tasks}");
        }
        assert!(!machine.log().contains("cannot write"), "{}", machine.log());
        assert!(!machine.is_in_trouble().await);
        return;
    }
    panic!("every start of {ROUNDS} was late\n{}", machine.log());
}

/// Kubelet tells that the annotation of a pod that runs is another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_class_is_changed_by_annotation_goes_into_the_other_group() {
    let mut machine = Machine::new(FakeResctrl::xeon());
    let kubelet = FakeKubelet::default();
    let annotated =
        |class: &str| vec![pod("a", &[("cpu", "100m")], &[("bayplan.dev/rdtclass", class)])];
    kubelet.set_pods(annotated("gold"));
    let _sockets = serve(&kubelet, &machine.node);
    let socket = machine.node.path("pods.sock");
    let config = format!("{CLASSES}kubelet: {{podsSocket: {}}}\n", socket.display());
    machine.start_daemon(&config).await;
    let container = machine.launch("a", "gold").await;
    machine.settled().await;
    for class in ["besteffort", "gold"] {
        kubelet.set_pods(annotated(class));
        let expected = [Some(format!("bayplan.{class}"))];
        soon(async {
            while machine.groups_of(&container.threads) != expected {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    assert!(!machine.is_in_trouble().await);
}

/// As containerd does. Nothing but the group itself makes the daemon look: no sweep, and no answer to the start.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_group_comes_while_it_is_started_is_in_its_class_before_the_answer() {
    let mut machine = Machine::new(FakeResctrl::xeon());
    machine.configure_daemon(&format!("{}{CLASSES}", BASE.replace("100ms", "10m"))).await;
    machine.settled().await;
    let (id, cgroup) = machine.create_without_group("a", "gold").await;
    machine.node.runtime.inject("StartContainer", Fault::Hang);
    let (mut kubelet, asked) = (machine.node.kubelet.clone(), id.clone());
    let started = tokio::spawn(async move { kubelet.start(&asked).await });
    soon(machine.node.runtime.called("StartContainer", 1)).await;
    let container = machine.make_group(id, &cgroup, 1);
    // The kernel makes a group with all its files; here they come after it, so another one tells that they are there.
    fs::create_dir(container.group.with_file_name("other")).unwrap();
    let reached = async {
        while machine.groups_of(&container.threads) != [Some("bayplan.gold".to_owned())] {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let moved = tokio::time::timeout(Duration::from_secs(60), reached).await;
    assert!(moved.is_ok(), "its thread is where it was\n{}", machine.log());
    assert!(!started.is_finished());
    started.abort();
}

/// So many classes of one partition.
fn classes(names: &[&str]) -> String {
    let classes: String = names.iter().map(|name| format!("{name}: , ")).collect();
    format!(
        "resctrl:\n  partitions:\n    all: {{l2Allocation: 100%, classes: {{{}}}}}\n",
        classes.trim_end_matches(", ")
    )
}

/// Of four CLOSIDs the root has one and another program has one.
#[tokio::test(flavor = "multi_thread")]
async fn closids_are_few_and_are_given_back_and_others_keep_theirs() {
    let mut model = FakeResctrl::with_l2();
    let theirs = Process::start();
    model.add_thread(theirs.id(), "elsewhere");
    let dir = "sys/fs/resctrl/theirs";
    model.make_dir(dir).unwrap();
    model.write(&format!("{dir}/schemata"), "L2:0=3;1=c\n").unwrap();
    model.write(&format!("{dir}/tasks"), &theirs.id().to_string()).unwrap();
    let mut machine = Machine::new(model);
    let told = |machine: &Machine| {
        ["schemata", "tasks", "mode"]
            .map(|name| fs::read_to_string(machine.mount.path("theirs").join(name)).unwrap())
    };
    let before = told(&machine);
    machine.mount.model().asked.clear();
    machine.start_daemon(&classes(&["a", "b", "c"])).await;
    let first = machine.launch("first", "a").await;
    let last = machine.launch("last", "c").await;
    let plan = machine.settled().await;
    let (a, c) = (machine.groups_of(&first.threads), machine.groups_of(&last.threads));
    // A class that has containers comes first.
    assert_eq!((a, c), (vec![Some("bayplan.a".to_owned())], vec![Some("bayplan.c".to_owned())]));
    expect!["resctrl: class `b` gets no group, because the processor has 4 CLOSIDs, of which the root has one and others have 1; its containers stay in the root's group"].assert_eq(&plan.problems.join("\n"));
    let full = fs::create_dir(machine.mount.path("more")).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::ENOSPC as i32));
    assert_eq!(words(&machine.mount), "Out of CLOSIDs");

    // Two of the classes are not needed any more.
    let file = machine.node.path("bayplan.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let new = machine.node.path("new.yaml");
    fs::write(&new, text.replace(&classes(&["a", "b", "c"]), &classes(&["a"]))).unwrap();
    fs::rename(new, file).unwrap();
    soon(async {
        while machine.is_group("bayplan.c") {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    fs::create_dir(machine.mount.path("more")).unwrap();
    assert_eq!(machine.groups_of(&last.threads), [Some(String::new())]);
    machine.restore().await;
    assert_eq!(told(&machine), before);
    let asked = machine.mount.model().asked.clone();
    assert!(!asked.iter().any(|(_, path)| path.contains("theirs")), "{asked:?}");
    assert!(!machine.is_group("bayplan.a"));
}

/// What another program does between the daemon's look and its change, what the kernel answers then, and how it is undone.
struct Refusal {
    change: &'static str,
    meanwhile: fn(&mut FakeResctrl),
    told: &'static str,
    undone: fn(&mut FakeResctrl),
}

const REFUSALS: [Refusal; 5] = [
    Refusal {
        change: "bayplan.gold",
        meanwhile: |model| {
            for name in 0..6 {
                model.make_dir(&format!("sys/fs/resctrl/other{name}")).unwrap();
            }
        },
        told: "make /sys/fs/resctrl/bayplan.gold (class \"gold\"): ENOSPC: No space left on device; the kernel says: Out of CLOSIDs",
        undone: |model| {
            for name in 0..6 {
                model.remove_dir(&format!("sys/fs/resctrl/other{name}")).unwrap();
            }
        },
    },
    Refusal {
        change: "bayplan.gold",
        meanwhile: |model| model.set_in_limbo(176),
        told: "make /sys/fs/resctrl/bayplan.gold (class \"gold\"): EBUSY: Device or resource busy; the kernel says: Out of RMIDs",
        undone: |model| model.set_in_limbo(0),
    },
    Refusal {
        change: "bayplan.gold/schemata",
        meanwhile: |model| {
            model.make_dir("sys/fs/resctrl/other").unwrap();
            model.set_mode("other", GroupMode::Exclusive);
        },
        told: "EINVAL: Invalid argument; the kernel says: Overlaps with exclusive group",
        undone: |model| model.remove_dir("sys/fs/resctrl/other").unwrap(),
    },
    Refusal {
        change: "bayplan.gold/schemata",
        meanwhile: |model| model.set_mode("bayplan.gold", GroupMode::PseudoLocked),
        told: "EINVAL: Invalid argument; the kernel says: Resource group is pseudo-locked",
        undone: |model| model.set_mode("bayplan.gold", GroupMode::Shareable),
    },
    Refusal {
        change: "schemata",
        meanwhile: |model| {
            model.make_dir("sys/fs/resctrl/other").unwrap();
            model.set_mode("other", GroupMode::Exclusive);
        },
        told: "EINVAL: Invalid argument; the kernel says: Overlaps with exclusive group",
        undone: |model| model.remove_dir("sys/fs/resctrl/other").unwrap(),
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_with_the_kernels_words_and_made_good() {
    let right = Machine::start(FakeResctrl::xeon(), CLASSES).await;
    right.settled().await;
    let wanted = right.groups();
    drop(right);
    for Refusal { change, meanwhile, told, undone } in REFUSALS {
        let mut machine = Machine::new(FakeResctrl::xeon());
        machine.mount.hold(change);
        machine.start_daemon(CLASSES).await;
        let held = machine.mount.held().await;
        meanwhile(&mut machine.mount.model());
        held.carry_out();
        machine.told(told).await;
        // What is known to be in vain is not tried any more, and told as a problem.
        let plan = machine.plan().await;
        let is_shown = plan.failures.iter().any(|it| it.contains(told));
        assert!(is_shown || !plan.problems.is_empty(), "{told}: {plan:#?}");
        assert!(machine.is_in_trouble().await, "{told}");
        undone(&mut machine.mount.model());
        soon(async {
            while machine.groups() != wanted {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        machine.settled().await;
        soon(async {
            while machine.is_in_trouble().await {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
}

/// The daemon is killed while the kernel works on this; then that happens or does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_sigkill_cuts_off_is_made_good_and_given_back() {
    let places = [
        "bayplan.gold",
        "bayplan.besteffort/schemata",
        "bayplan.gold/schemata",
        "schemata",
        "bayplan.gold/tasks",
    ];
    let mut model = FakeResctrl::xeon();
    model.make_dir("sys/fs/resctrl/theirs").unwrap();
    model.write("sys/fs/resctrl/schemata", "L3CODE:0=3ff\nMB:1=90\n").unwrap();
    let mut wanted: Option<String> = None;
    for (place, happens) in places.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let mut machine = Machine::new(model.clone());
        let before = machine.groups();
        machine.mount.hold(place);
        machine.start_daemon(CLASSES).await;
        let container = machine.create("a", "gold", 1).await;
        let held = machine.mount.held().await;
        machine.node.signal_daemon(Signal::SIGKILL);
        // Only now can it end.
        match happens {
            true => held.carry_out(),
            false => held.refuse(Errno::EINTR),
        }
        machine.node.kill_daemon();

        machine.start_daemon(CLASSES).await;
        let mut kubelet = machine.node.kubelet.clone();
        soon(kubelet.start(&container.id)).await.unwrap();
        machine.settled().await;
        let groups = machine.groups_of(&container.threads);
        assert_eq!(groups, [Some("bayplan.gold".to_owned())], "{place} {happens}");
        let groups = machine.groups();
        assert_eq!(wanted.get_or_insert_with(|| groups.clone()), &groups, "{place} {happens}");
        machine.restore().await;
        assert_eq!(machine.groups(), before, "{place} {happens}");
        assert_eq!(machine.groups_of(&container.threads), [Some(String::new())]);
    }
    expect![[r#"
        / L3CODE:0=780;1=780 L3DATA:0=780;1=780 MB:0=100;1=100
        /bayplan.besteffort L3CODE:0=180;1=180 L3DATA:0=180;1=180 MB:0=20;1=20
        /bayplan.gold L3CODE:0=07f;1=07f L3DATA:0=07f;1=07f MB:0=100;1=100
        /theirs L3CODE:0=7ff;1=7ff L3DATA:0=7ff;1=7ff MB:0=100;1=100
    "#]]
    .assert_eq(&wanted.unwrap());
}
