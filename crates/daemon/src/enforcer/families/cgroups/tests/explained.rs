//! What `explain` says of isolation.

use super::*;

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
