//! Processes on owned CPUs: which are named, and what each owner lost.

use aya::maps::{Map, MapData, SkStorage, loaded_maps};
use aya::util::nr_cpus;
use bayplan_probes::{CgroupId, Drain, Identity, Intrusion, Kind, Probes, Vector};
use bayplan_types::CpuId;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::tests::{attach, drain, held_by, until_told, watch};
use crate::work::{Cgroup, Worker};

/// What `name` did on CPU 1, and as what kind.
pub(crate) fn intrusion(
    drain: &Drain,
    owner: CgroupId,
    name: &str,
) -> Option<(Identity, Intrusion)> {
    let list = drain.intrusions.get(&owner)?;
    let found = list.iter().find(|(it, _)| it.cpu == CpuId(1) && it.name == name);
    found.map(|(intruder, sum)| (intruder.identity, *sum))
}

/// The time that `name` took on CPU 1.
fn taken_ns(drain: &Drain, owner: CgroupId, name: &str) -> u64 {
    intrusion(drain, owner, name).map_or(0, |(_, sum)| sum.ns)
}

pub(crate) fn a_hog_on_an_owners_cpu_is_named() {
    let (mut probes, owner, other, outside) =
        (attach(), Cgroup::new(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&owner, "1"), (&other, "")]);
    let cases = [
        (&other, "a-container", Identity::Container(other.id())),
        (&outside, "a-process", Identity::Process(outside.id())),
    ];
    for (cgroup, name, identity) in cases {
        assert_eq!(intrusion(&drain(&mut probes), owner.id(), name), None);
        let (found, sum) = until_told(|| {
            let mut worker = Worker::new(Some(cgroup), 1, &format!("hog {name} 1000"));
            let before = taken_ns(&drain(&mut probes), owner.id(), name);
            worker.begin();
            let counted = worker.wait();
            let (found, sum) = intrusion(&drain(&mut probes), owner.id(), name).unwrap();
            (sum.ns - before, counted.exec_ns, (found, sum))
        });
        assert_eq!(found, identity);
        assert!(sum.times > 0);
    }
}

/// Has the kernel side forget the last `ns` that a worker at rest was charged for, as if it had not been told of the switch after them.
fn leave_untold(worker: &Worker, ns: u64) {
    let held = held_by(std::process::id());
    let is_own = |id: u32| held.contains(&format!("map_id:{id}"));
    let tasks = loaded_maps()
        .filter_map(Result::ok)
        .find(|it| it.name_as_str() == Some("tasks") && is_own(it.id()));
    let tasks = MapData::from_id(tasks.unwrap().id()).unwrap();
    // Storage of tasks is reached by a descriptor, as that of sockets is, and the library has a type for that.
    let mut tasks: SkStorage<_, [u64; 8]> = Map::SkStorage(tasks).try_into().unwrap();
    let pid = Pid::from_raw(worker.pid().try_into().unwrap()).unwrap();
    let task = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    // `struct task_state`, bpf/maps.h; the first word is the CPU time that was charged.
    let mut state = tasks.get(&task, 0).unwrap();
    state[0] = state[0].wrapping_sub(ns);
    tasks.insert(&task, state, 0).unwrap();
}

/// On which CPU it was is not known: since then it may have been woken for another.
pub(crate) fn a_process_that_rests_after_an_untold_switch_is_charged_and_not_accused() {
    let (mut probes, owner, other) = (attach(), Cgroup::new(), Cgroup::new());
    watch(&mut probes, &[(&owner, "1"), (&other, "")]);
    let mut worker = Worker::new(Some(&other), 1, "hog resting 300");
    worker.begin();
    worker.wait();
    let before = drain(&mut probes);
    leave_untold(&worker, 100_000_000);
    let after = drain(&mut probes);
    let charged = |drain: &Drain| drain.containers[&other.id()].exec_ns;
    assert_eq!(charged(&after) - charged(&before), 100_000_000);
    let accused = |drain: &Drain| intrusion(drain, owner.id(), "resting");
    assert_eq!(accused(&after), accused(&before));
}

pub(crate) fn the_owner_is_no_intruder() {
    let (mut probes, owner) = (attach(), Cgroup::new());
    let mut worker = Worker::new(Some(&owner), 1, "hog owner 1000");
    watch(&mut probes, &[(&owner, "1")]);
    worker.begin();
    worker.wait();
    let drain = drain(&mut probes);
    assert_eq!(intrusion(&drain, owner.id(), "owner"), None);
    assert!(drain.containers[&owner.id()].exec_ns > 900_000_000);
    // A CPU that is busy has a tick, and its own timer tells of it where the architecture has such a tracepoint.
    let ticks = drain.intrusions[&owner.id()].iter();
    let ticks = ticks.filter(|(it, _)| it.identity == Identity::Vector(Vector::LocalTimer));
    let ticks: u64 = ticks.map(|(_, sum)| sum.times).sum();
    assert!(ticks > 0 || cfg!(not(target_arch = "x86_64")), "{drain:?}");
}

pub(crate) fn a_cpu_that_changes_hands_is_charged_to_each_owner() {
    let (mut probes, first, second) = (attach(), Cgroup::new(), Cgroup::new());
    // What a hog took by the kernel's word, and by that of the probes of each of the two.
    let hog = |probes: &mut Probes, millis: u64| {
        let mut worker = Worker::new(None, 1, &format!("hog guest {millis}"));
        let taken = |drain: Drain| [&first, &second].map(|it| taken_ns(&drain, it.id(), "guest"));
        let before = taken(drain(probes));
        worker.begin();
        let counted = worker.wait();
        let after = taken(drain(probes));
        (counted.exec_ns, [after[0] - before[0], after[1] - before[1]])
    };
    for (owned, owner, millis) in [(["1", ""], 0, 400), (["", "1"], 1, 200)] {
        watch(&mut probes, &[(&first, owned[0]), (&second, owned[1])]);
        until_told(|| {
            let (counted, taken) = hog(&mut probes, millis);
            assert_eq!(taken[1 - owner], 0, "from a container that does not own it");
            (taken[owner], counted, ())
        });
    }
    watch(&mut probes, &[(&first, ""), (&second, "")]);
    assert_eq!(hog(&mut probes, 100).1, [0, 0]);
}

/// The time that processes took of the CPUs that it owns.
fn taken_by_processes(drain: &Drain, owner: CgroupId) -> u64 {
    let list = drain.intrusions.get(&owner).into_iter().flatten();
    let processes = list.filter(|(it, _)| it.identity.kind() == Kind::Process);
    processes.map(|(_, sum)| sum.ns).sum()
}

/// A task goes by on CPU 1, under one name after the other; gives its CPU time in ns, without a millisecond for its last run, of which no task is
/// accused where the switch after it was not told.
fn go_by(first: u32, last: u32) -> u64 {
    let mut worker = Worker::new(None, 1, &format!("names {first} {last}"));
    worker.begin();
    worker.wait().exec_ns.saturating_sub(1_000_000)
}

/// More names between two readings than the kernel's map has room for.
pub(crate) fn a_process_without_room_in_the_kernel_is_in_the_owners_sum() {
    let (mut probes, owner) = (attach(), Cgroup::new());
    watch(&mut probes, &[(&owner, "1")]);
    assert_eq!(drain(&mut probes).unnamed, Intrusion::default());
    let cpus = u32::try_from(nr_cpus().unwrap()).unwrap();
    // As much as the loader makes, of which some is taken by others.
    let room = (64 * cpus).max(4096);
    let crowd = go_by(0, room + 2000);
    let found = drain(&mut probes);
    // For 2,000 of them there was none, and nearly all are alike.
    let Intrusion { ns, times } = found.unnamed;
    let share = crowd / u64::from(room + 2000) * 600;
    assert!(times > 1000 && ns > share, "{times} times, {ns} of {crowd}");
    let taken = taken_by_processes(&found, owner.id());
    assert!(taken >= crowd, "{taken} of {crowd}");
}

/// One task under more names than there is room for, and others that come when they have rested.
pub(crate) fn the_first_names_are_not_kept_for_good() {
    let (mut probes, owner) = (attach(), Cgroup::new());
    watch(&mut probes, &[(&owner, "1")]);
    let taken = |drain: &Drain| taken_by_processes(drain, owner.id());
    // On a host that has no time some go by unseen.
    let crowd = go_by(0, 1500);
    let first = drain(&mut probes);
    assert!(taken(&first) >= crowd, "{} of {crowd}", taken(&first));
    let others = |identity| matches!(identity, Identity::Others(Kind::Process));
    assert!(first.intrusions[&owner.id()].keys().any(|it| others(it.identity)), "{first:?}");
    let in_the_kernel = probes.entries().unwrap().1;
    for _ in 0..15 {
        drain(&mut probes);
    }
    let rested = probes.entries().unwrap().1;
    assert!(rested + 500 < in_the_kernel, "{rested} of {in_the_kernel} names are in the kernel");
    go_by(5000, 5003);
    let second = drain(&mut probes);
    for number in 5000..5003 {
        let name = format!("name-{number}");
        assert!(intrusion(&second, owner.id(), &name).is_some(), "{name}: {second:?}");
    }
    assert!(taken(&second) >= taken(&first), "{} of {}", taken(&second), taken(&first));
}
