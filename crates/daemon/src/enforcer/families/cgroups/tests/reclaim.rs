//! Memory that is reclaimed little by little.

use super::*;

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
