//! Limits of batch containers.

use super::*;

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
