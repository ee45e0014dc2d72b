use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn setting(form: Form, value: &str) -> Setting {
    let (unit, reason) = ("u".to_owned(), "r".to_owned());
    Setting { form, value: value.to_owned(), unit, reason }
}

fn range(low: &str, high: &str) -> Settings {
    let lowest = Form::Lowest { highest: "c/max".to_owned() };
    [
        (Slot::file("c/min"), setting(lowest, low)),
        (Slot::file("c/max"), setting(Form::Highest, high)),
    ]
    .into()
}

fn observed(rows: &[(&str, &str)]) -> Observed {
    rows.iter().map(|(path, text)| ((*path).to_owned(), Ok((*text).to_owned()))).collect()
}

fn check(settings: &Settings, has: &Observed, expected: Expect) -> FilePlan {
    let plan = plan_files(settings, has, &BTreeMap::new());
    expected.assert_eq(&render_file_plan(&plan));
    plan
}

#[test]
fn a_range_moves_its_leading_end_first() {
    let has = observed(&[("c/min", "800\n"), ("c/max", "2000\n")]);
    check(
        &range("2500", "3000"),
        &has,
        expect![[r#"
            set    /c/max 2000 -> 3000  (u: r)
            set    /c/min 800 -> 2500  (u: r)
        "#]],
    );
    check(
        &range("400", "600"),
        &has,
        expect![[r#"
            set    /c/min 800 -> 400  (u: r)
            set    /c/max 2000 -> 600  (u: r)
        "#]],
    );
    check(&range("800", "2000"), &has, expect![[""]]);
}

#[test]
fn what_others_depend_on_is_written_first() {
    let settings = [
        (Slot::file("a/preference"), setting(Form::Text, "power")),
        (Slot::file("b/governor"), setting(Form::Mode, "powersave")),
        (Slot::file("c/max"), setting(Form::Highest, "1000")),
    ];
    let has = [("a/preference", "0"), ("b/governor", "performance"), ("c/max", "2000")];
    check(
        &settings.into(),
        &observed(&has),
        expect![[r#"
            set    /b/governor performance -> powersave  (u: r)
            set    /a/preference 0 -> power  (u: r)
            set    /c/max 2000 -> 1000  (u: r)
        "#]],
    );
}

/// By name alone it came before a lowest frequency above what was the highest.
#[test]
fn what_gives_others_their_effect_is_written_last() {
    let lowest = |highest: &str| Form::Lowest { highest: highest.to_owned() };
    let settings = [
        (Slot::file("0.0/clos0/max_mhz"), setting(Form::Highest, "3000")),
        (Slot::file("0.0/clos0/min_mhz"), setting(lowest("0.0/clos0/max_mhz"), "2400")),
        (Slot::file("0.0/core1/clos"), setting(Form::Text, "3")),
        (Slot::file("0.0/core_power"), setting(Form::Gate, "ordered")),
        (Slot::file("0.1/core0/clos"), setting(Form::Text, "3")),
    ];
    let has = [
        ("0.0/clos0/max_mhz", "2000"),
        ("0.0/clos0/min_mhz", "800"),
        ("0.0/core1/clos", "0"),
        ("0.0/core_power", "off"),
        ("0.1/core0/clos", "0"),
    ];
    check(
        &settings.into(),
        &observed(&has),
        expect![[r#"
        set    /0.0/clos0/max_mhz 2000 -> 3000  (u: r)
        set    /0.0/core1/clos 0 -> 3  (u: r)
        set    /0.1/core0/clos 0 -> 3  (u: r)
        set    /0.0/clos0/min_mhz 800 -> 2400  (u: r)
        set    /0.0/core_power off -> ordered  (u: r)
    "#]],
    );
}

#[test]
fn a_preference_comes_back_with_its_governor() {
    let preference = || Form::Preference { governor: "governor".to_owned() };
    let original = |form, value: &str| Original { form, value: value.to_owned() };
    let back = |governor: &str, expected: Expect| {
        let originals = BTreeMap::from([
            (Slot::file("governor"), original(Form::Mode, governor)),
            (Slot::file("preference"), original(preference(), "balance_power")),
        ]);
        let has = observed(&[("governor", "schedutil"), ("preference", "power")]);
        let plan = plan_files(&Settings::new(), &has, &originals);
        expected.assert_eq(&render_file_plan(&plan));
        plan.forget.len()
    };
    let forgotten = back(
        "powersave",
        expect![[r#"
            set    /governor schedutil -> powersave  (restore: as it was before)
            set    /preference power -> balance_power  (restore: as it was before)
        "#]],
    );
    assert_eq!(forgotten, 0);
    let forgotten = back(
        "performance",
        expect![[r#"
            set    /governor schedutil -> performance  (restore: as it was before)
        "#]],
    );
    assert_eq!(forgotten, 1);
}

#[test]
fn a_range_that_is_given_back_may_be_seen_in_part() {
    let originals = BTreeMap::from([(
        Slot::file("max"),
        Original { form: Form::Highest, value: "3600".to_owned() },
    )]);
    let plan = plan_files(&Settings::new(), &observed(&[("max", "1000")]), &originals);
    assert!(plan.writes.iter().all(|write| write.gives_back && write.is_done("2000")));
    let plan =
        plan_files(&range("800", "3600"), &observed(&[("c/min", "1"), ("c/max", "1")]), &originals);
    assert!(plan.writes.iter().filter(|write| write.is_done("2000")).count() == 0);
}

#[test]
fn sets_shrink_from_below_and_grow_from_above() {
    let rows = [("a", "0-3"), ("a/b", "0-3"), ("d", "0-7"), ("d/e", "0-3")];
    let settings = rows.map(|(path, cpus)| (Slot::file(path), setting(Form::Cpus, cpus)));
    check(
        &settings.into(),
        &observed(&[("a", "0-7"), ("a/b", "0-7"), ("d", "0-3"), ("d/e", "0-1")]),
        expect![[r#"
            shrink /a/b 0-7 -> 0-3  (u: r)
            shrink /a 0-7 -> 0-3  (u: r)
            grow   /d 0-3 -> 0-7  (u: r)
            grow   /d/e 0-1 -> 0-3  (u: r)
        "#]],
    );
}

#[test]
fn partitions_are_left_while_their_cpus_change() {
    let partition = |group: &str, kind: &str, cpus: &str| {
        let file = format!("{group}/cpus");
        let form = Form::Partition { cpus: file.clone() };
        [
            (Slot::file(format!("{group}/partition")), setting(form, kind)),
            (Slot::file(file), setting(Form::OwnCpus, cpus)),
        ]
    };
    let has = observed(&[
        ("p/cpus", "0-7"),
        ("p/moves/cpus", "0-1"),
        ("p/moves/partition", "isolated"),
        ("p/new/cpus", ""),
        ("p/new/partition", "member"),
        ("p/broken/cpus", "4"),
        ("p/broken/partition", "isolated invalid (CPUs not available)"),
        ("p/stays/cpus", "6-7"),
        ("p/stays/partition", "root"),
    ]);
    let mut settings: Settings = [
        partition("p/moves", "isolated", "2-3"),
        partition("p/new", "isolated", "0-1"),
        partition("p/broken", "isolated", "4"),
        partition("p/stays", "root", "6,7"),
    ]
    .concat()
    .into_iter()
    .collect();
    settings.insert(Slot::file("p/cpus"), setting(Form::OwnCpus, "0-4,6-7"));
    let plan = check(
        &settings,
        &has,
        expect![[r#"
        leave  /p/broken/partition isolated invalid (CPUs not available) -> member  (u: r)
        leave  /p/moves/partition isolated -> member  (u: r)
        shrink /p/moves/cpus 0-1 -> (none)  (u: r)
        shrink /p/cpus 0-7 -> 0-4,6-7  (u: r)
        grow   /p/moves/cpus (none) -> 2-3  (u: r)
        grow   /p/new/cpus (none) -> 0-1  (u: r)
        enter  /p/broken/partition member -> isolated  (u: r)
        enter  /p/moves/partition member -> isolated  (u: r)
        enter  /p/new/partition member -> isolated  (u: r)
    "#]],
    );
    let after = observed(&[
        ("p/cpus", "0-4,6-7"),
        ("p/moves/cpus", "2-3"),
        ("p/moves/partition", "isolated"),
        ("p/new/cpus", "0-1"),
        ("p/new/partition", "isolated"),
        ("p/broken/cpus", "4"),
        ("p/broken/partition", "isolated"),
    ]);
    let back = plan_files(&Settings::new(), &after, &plan.remember);
    expect![[r#"
        leave  /p/new/partition isolated -> member  (restore: as it was before)
        shrink /p/moves/cpus 2-3 -> (none)  (restore: as it was before)
        shrink /p/new/cpus 0-1 -> (none)  (restore: as it was before)
        grow   /p/cpus 0-4,6-7 -> 0-7  (restore: as it was before)
        grow   /p/moves/cpus (none) -> 0-1  (restore: as it was before)
    "#]]
    .assert_eq(&render_file_plan(&back));
}

#[test]
fn what_cannot_be_read_is_told_and_stops_nothing_else() {
    let settings: Settings = [
        (Slot::file("gone"), setting(Form::Text, "1")),
        (Slot::file("here"), setting(Form::Text, "1")),
        (Slot::line("schemata", "L2"), setting(Form::Schemata, "0=f")),
        (Slot::file("unread"), setting(Form::Text, "1")),
    ]
    .into();
    let mut has = observed(&[("here", "0"), ("schemata", "L3:0=f\n")]);
    has.insert("gone".to_owned(), Err(GONE.to_owned()));
    let plan = check(
        &settings,
        &has,
        expect![[r#"
            set    /here 0 -> 1  (u: r)
            cannot /gone: no such file  (u)
            cannot /schemata [L2]: no such line  (u)
            cannot /unread: not read  (u)
        "#]],
    );
    assert_eq!(plan.remember.keys().collect::<Vec<_>>(), [&Slot::file("here")]);
}

#[test]
fn a_limit_that_was_not_there_is_given_back_as_none() {
    let limits = |value| [(Slot::line("io.max", "8:16"), setting(Form::Limits, value))].into();
    let has = observed(&[("io.max", "8:0 rbps=5\n")]);
    let plan = check(
        &limits("rbps=100 wiops=7"),
        &has,
        expect![[r#"
            set    /io.max [8:16] (none) -> rbps=100 wiops=7  (u: r)
        "#]],
    );
    let has = observed(&[("io.max", "8:16 rbps=100 wbps=max riops=max wiops=7\n")]);
    let back = plan_files(&Settings::new(), &has, &plan.remember);
    expect![[r#"
        set    /io.max [8:16] rbps=100 wbps=max riops=max wiops=7 -> rbps=max wiops=max  (restore: as it was before)
    "#]]
    .assert_eq(&render_file_plan(&back));
}

#[test]
fn a_limit_that_the_runtime_has_changed_is_given_back_as_it_is_now() {
    let settings: Settings = [(Slot::file("cpu.max"), setting(Form::CpuMax, "max"))].into();
    let mut originals = BTreeMap::new();
    for written in ["200000 100000", "300000 100000"] {
        let plan = plan_files(&settings, &observed(&[("cpu.max", written)]), &originals);
        originals.extend(plan.remember);
    }
    let right = observed(&[("cpu.max", "max 100000")]);
    assert_eq!(plan_files(&settings, &right, &originals), FilePlan::default());
    let back = plan_files(&Settings::new(), &right, &originals);
    expect![[r#"
        set    /cpu.max max 100000 -> 300000 100000  (restore: as it was before)
    "#]]
    .assert_eq(&render_file_plan(&back));
}

#[test]
fn a_limit_that_the_runtime_has_written_anew_is_not_overwritten() {
    let value = "200000 100000".to_owned();
    let originals =
        BTreeMap::from([(Slot::file("cpu.max"), Original { form: Form::CpuMax, value })]);
    let has = observed(&[("cpu.max", "250000 100000\n")]);
    let plan = plan_files(&Settings::new(), &has, &originals);
    assert_eq!((plan.writes.len(), plan.forget), (0, vec![Slot::file("cpu.max")]));
}

/// It was taken for the runtime's, and its original was deleted.
#[test]
fn a_limit_where_the_runtime_has_none_is_given_back() {
    let file = || Slot::file("cpu.max");
    let (mut has, mut originals) = (observed(&[("cpu.max", "max 100000\n")]), BTreeMap::new());
    for limit in ["50000 100000", "60000 100000"] {
        let settings: Settings = [(file(), setting(Form::CpuMax, limit))].into();
        carry_out(&plan_files(&settings, &has, &originals), &mut has, &mut originals);
        assert_eq!(originals[&file()].value, "max 100000");
    }
    let back = plan_files(&Settings::new(), &has, &originals);
    expect![[r#"
        set    /cpu.max 60000 100000 -> max 100000  (restore: as it was before)
    "#]]
    .assert_eq(&render_file_plan(&back));
    carry_out(&back, &mut has, &mut originals);
    carry_out(&plan_files(&Settings::new(), &has, &originals), &mut has, &mut originals);
    assert!(originals.is_empty());
}

/// The kernel refuses them, which kept `restore` from its end.
#[test]
fn interrupts_are_not_given_back_to_offline_cpus_only() {
    let look = |path: &str, form: Form, [before, now, online]: [&str; 3]| {
        let value = before.to_owned();
        let originals = BTreeMap::from([(Slot::file(path), Original { form, value })]);
        assert!(files_to_read(&Settings::new(), &originals).any(|it| it == ONLINE));
        let has = observed(&[(path, now), (ONLINE, online)]);
        let FilePlan { writes, forget, .. } = plan_files(&Settings::new(), &has, &originals);
        (writes.iter().map(FileWrite::text).collect::<String>(), forget.len())
    };
    let irq = "proc/irq/9/smp_affinity_list";
    assert_eq!(look(irq, Form::Cpus, ["2-3", "0", "0-1"]), (String::new(), 1));
    assert_eq!(look(irq, Form::Cpus, ["1-3", "0", "0-1"]), ("1-3".to_owned(), 0));
    assert_eq!(look(irq, Form::Cpus, ["2-3", "0", ""]), ("2-3".to_owned(), 0));
    let default = "proc/irq/default_smp_affinity";
    assert_eq!(look(default, Form::CpuMask, ["c", "3", "0-1\n"]), (String::new(), 1));
    assert_eq!(look(default, Form::CpuMask, ["e", "1", "0-1\n"]), ("e".to_owned(), 0));
    // Where the kernel does not say which are online, and of what is no interrupt.
    let original = Original { form: Form::Cpus, value: "2-3".to_owned() };
    let originals = BTreeMap::from([(Slot::file(irq), original.clone())]);
    assert_eq!(plan_files(&Settings::new(), &observed(&[(irq, "0")]), &originals).forget, []);
    assert!(!has_offline_cpus_only(&observed(&[(ONLINE, "0")]), &Slot::file("c"), &original));
}

#[test]
fn a_line_is_given_back_as_long_as_its_disk_is_there() {
    let (form, value) = (Form::Limits, "wbps=5".to_owned());
    let originals = BTreeMap::from([(Slot::line("io.max", "8:16"), Original { form, value })]);
    let disks = disks_to_look_for(&Settings::new(), &originals);
    let disk = "sys/dev/block/8:16/dev";
    assert_eq!(disks, [DISKS.to_owned(), disk.to_owned()].into());
    let mut has = observed(&[("io.max", ""), (disk, "8:16\n")]);
    let mut look = |rows: &[(&str, &str)]| {
        has.extend(rows.iter().map(|(it, why)| ((*it).to_owned(), Err((*why).to_owned()))));
        let plan = plan_files(&Settings::new(), &has, &originals);
        (plan.writes.len(), plan.forget.len())
    };
    assert_eq!(look(&[(DISKS, "Is a directory")]), (1, 0));
    assert_eq!(look(&[(disk, GONE)]), (0, 1));
    // Not the disk is gone, but the directory of all.
    assert_eq!(look(&[(DISKS, GONE)]), (1, 0));
}

#[test]
fn originals_of_files_that_cannot_be_read_for_a_moment_are_kept() {
    let original = Original { form: Form::Text, value: "1".to_owned() };
    let originals = BTreeMap::from([(Slot::file("busy"), original)]);
    let has = [("busy".to_owned(), Err("Device or resource busy".to_owned()))].into();
    assert_eq!(plan_files(&Settings::new(), &has, &originals), FilePlan::default());
}

#[test]
fn originals_of_files_that_are_gone_or_as_they_were_are_forgotten() {
    let original = |value: &str| Original { form: Form::Text, value: value.to_owned() };
    let originals = BTreeMap::from([
        (Slot::file("gone"), original("1")),
        (Slot::file("right"), original("1")),
        (Slot::file("wrong"), original("1")),
    ]);
    let mut has = observed(&[("right", "1"), ("wrong", "2")]);
    has.insert("gone".to_owned(), Err(GONE.to_owned()));
    let plan = plan_files(&Settings::new(), &has, &originals);
    assert_eq!(plan.forget, [Slot::file("gone"), Slot::file("right")]);
    assert_eq!(plan.writes.len(), 1);
}

/// Carries a plan out on texts that are whole files.
fn carry_out(plan: &FilePlan, has: &mut Observed, originals: &mut BTreeMap<Slot, Original>) {
    originals.extend(plan.remember.clone());
    for write in &plan.writes {
        has.insert(write.slot.path.clone(), Ok(write.text()));
    }
    for slot in &plan.forget {
        originals.remove(slot);
    }
}

proptest! {
    #[test]
    fn a_plan_is_enough_and_leads_back(
        before in prop::collection::vec(0u32..4, 6),
        wishes in prop::collection::vec(prop::collection::vec(prop::option::of(0u32..4), 6), 1..5),
    ) {
        let path = |i: usize| format!("f{i}");
        let texts = before.iter().enumerate().map(|(i, it)| (path(i), Ok(it.to_string())));
        let first: Observed = texts.collect();
        let (mut has, mut originals) = (first.clone(), BTreeMap::new());
        for wish in wishes.iter().chain([&vec![None; 6]]) {
            let settings: Settings = wish.iter().enumerate().filter_map(|(i, it)| {
                let value = (*it)?.to_string();
                let form = if i % 2 == 0 { Form::Text } else { Form::Cpus };
                Some((Slot::file(path(i)), setting(form, &value)))
            }).collect();
            let plan = plan_files(&settings, &has, &originals);
            carry_out(&plan, &mut has, &mut originals);
            let again = plan_files(&settings, &has, &originals);
            prop_assert!(again.is_empty() && again.remember.is_empty());
            carry_out(&again, &mut has, &mut originals);
            for slot in originals.keys() {
                prop_assert!(settings.contains_key(slot));
            }
        }
        prop_assert_eq!(has, first);
    }
}
