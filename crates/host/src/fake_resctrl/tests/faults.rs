//! Everything that is asked of the kernel fails once with everything that it can fail with.
//!
//! Afterwards the machine is as wanted, or the report names what is not, with the kernel's answer; and the next step makes it as wanted. Nothing that
//! another program has is changed by it.

use super::*;

/// What a change can be answered with.
fn errnos(text: &str, path: &str) -> &'static [Errno] {
    match (text, path.ends_with("/tasks")) {
        ("mkdir", _) => {
            &[Errno::ENOSPC, Errno::EBUSY, Errno::EPERM, Errno::EACCES, Errno::ENOMEM, Errno::EROFS]
        }
        ("rmdir", _) => &[Errno::EPERM, Errno::EBUSY, Errno::EACCES, Errno::EROFS],
        (_, true) => &[
            Errno::ESRCH,
            Errno::EINVAL,
            Errno::EPERM,
            Errno::EACCES,
            Errno::ENOMEM,
            Errno::ENOENT,
            Errno::EINTR,
        ],
        (_, false) => &[
            Errno::EINVAL,
            Errno::EBUSY,
            Errno::EPERM,
            Errno::EACCES,
            Errno::ENOMEM,
            Errno::ENOENT,
            Errno::ENODEV,
            Errno::EIO,
        ],
    }
}

/// From groups that have to go to those of the configuration, with another program's beside them.
fn before() -> FakeResctrl {
    let mut kernel = with_threads(FakeResctrl::xeon());
    for dir in ["pqos", "bayplan.old", "bayplan.web", "bayplan.web/mon_groups/bayplan.c2"] {
        kernel.make_dir(&format!("sys/fs/resctrl/{dir}")).unwrap();
    }
    kernel.write("sys/fs/resctrl/pqos/tasks", "99").unwrap();
    kernel.write("sys/fs/resctrl/bayplan.old/tasks", "21").unwrap();
    kernel.asked.clear();
    kernel
}

#[test]
fn what_fails_once_is_told_and_made_good() {
    let mut right = before();
    assert_eq!(step(&mut right, &config(), &CONTAINERS).failures(), [""; 0]);
    let wanted = state(&right);
    let (mut cases, mut told) = (0, 0);
    for (text, path) in &right.asked {
        for errno in errnos(text, path) {
            let mut kernel = before();
            kernel.fail_next(path, *errno);
            let failures = step(&mut kernel, &config(), &CONTAINERS).failures();
            let is_right = state(&kernel) == wanted;
            assert!(is_right || !failures.is_empty(), "{text} {path} {errno}: silent");
            // Where nothing is there any more there is nothing to name but that.
            let is_named = |failure: &String| {
                failure.contains(&format!("{errno:?}")) || failure.contains("it is gone")
            };
            assert!(
                is_right || failures.iter().any(is_named),
                "{text} {path} {errno}: {failures:?}"
            );
            assert!(state(&kernel).contains("pqos L3CODE:7ff,7ff L3DATA:7ff,7ff MB:64,64 | 99\n"));
            told += usize::from(!failures.is_empty());
            cases += 1;
            assert_eq!(step(&mut kernel, &config(), &CONTAINERS).failures(), [""; 0]);
            assert_eq!(state(&kernel), wanted, "{text} {path} {errno}");
        }
    }
    assert!(cases > 80 && told > 60, "{cases} cases, {told} told");
}

#[test]
fn a_step_that_is_cut_off_anywhere_is_made_good_by_the_next() {
    let mut right = before();
    step(&mut right, &config(), &CONTAINERS);
    let wanted = state(&right);
    for cut in 0..right.asked.len() {
        let mut kernel = before();
        // A process that is killed asks for nothing more.
        for (_, path) in &right.asked[cut..] {
            kernel.fail_next(path, Errno::EINTR);
        }
        step(&mut kernel, &config(), &CONTAINERS);
        kernel.faults.clear();
        assert_eq!(step(&mut kernel, &config(), &CONTAINERS).failures(), [""; 0]);
        assert_eq!(state(&kernel), wanted, "cut at {cut}");
    }
}

#[test]
fn what_is_there_or_gone_already_is_done() {
    let mut kernel = before();
    let resctrl = mounted(&mut kernel);
    let wanted = WantedGroups { classes: vec!["batch".parse().unwrap()], monitored: Vec::new() };
    let plan = plan_groups(&wanted, &resctrl.groups, &resctrl.info);
    kernel.make_dir("sys/fs/resctrl/bayplan.batch").unwrap();
    kernel.remove_dir("sys/fs/resctrl/bayplan.old").unwrap();
    let report = apply_groups(&mut kernel, &plan);
    assert_eq!(report.outcomes.len(), 3);
    assert!(report.outcomes.iter().all(|(_, end)| end.is_ok()));
}

#[test]
fn the_kernels_words_are_in_the_report() {
    let mut kernel = with_threads(FakeResctrl::with_l2());
    for name in ["x", "y"] {
        kernel.make_dir(&format!("sys/fs/resctrl/{name}")).unwrap();
    }
    // The plan was made before another program took the last CLOSID.
    let resctrl = mounted(&mut kernel);
    let classes = vec!["web".parse().unwrap()];
    let wanted = WantedGroups { classes, monitored: Vec::new() };
    let plan = plan_groups(&wanted, &resctrl.groups, &resctrl.info);
    kernel.make_dir("sys/fs/resctrl/z").unwrap();
    let report = apply_groups(&mut kernel, &plan);
    let ends: Vec<String> = report
        .outcomes
        .iter()
        .map(|(change, end)| format!("{}: {}", change.path, end.as_ref().unwrap_err()))
        .collect();
    expect!["sys/fs/resctrl/bayplan.web: ENOSPC: No space left on device; the kernel says: Out of CLOSIDs"].assert_eq(&ends.join("\n"));
}
