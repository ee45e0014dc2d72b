//! What the kernel refuses, and its words; what is in `info/` and cannot be used.

use super::*;

#[test]
fn the_kernel_says_why_not() {
    type Machine = fn() -> FakeResctrl;
    let (xeon, l2) = (FakeResctrl::xeon, FakeResctrl::with_l2);
    let rows: [(Machine, &str, &str); 17] = [
        (xeon, "g/schemata", "L3CODE:0=f;1=f0\nMB:0=50\n"),
        (xeon, "g/schemata", "L3CODE:0=5\n"),
        (FakeResctrl::epyc, "g/schemata", "L3:0=5\n"),
        (xeon, "g/schemata", "L3CODE:0=0\n"),
        (xeon, "g/schemata", "L3CODE:0=800\n"),
        (xeon, "g/schemata", "L3CODE:0=x\n"),
        (xeon, "g/schemata", "L3CODE:7=1\n"),
        (xeon, "g/schemata", "L3CODE:0=1;0=1\n"),
        (xeon, "g/schemata", "L3:0=1\n"),
        (xeon, "g/schemata", "L3CODE 0=1\n"),
        (xeon, "g/schemata", "L3CODE:0\n"),
        (xeon, "g/schemata", "MB:0=5\n"),
        (xeon, "g/schemata", "MB:0=1.5\n"),
        (xeon, "g/schemata", "MB:0=50"),
        (xeon, "none/schemata", "MB:0=50\n"),
        (l2, "g/tasks", "4711"),
        (l2, "g/tasks", "me"),
    ];
    let mut lines = String::new();
    for (machine, path, text) in rows {
        let mut kernel = machine();
        kernel.make_dir("sys/fs/resctrl/g").unwrap();
        let end = kernel.write(&format!("sys/fs/resctrl/{path}"), text);
        let words = kernel.read("sys/fs/resctrl/info/last_cmd_status").unwrap();
        lines.push_str(&format!("{path} {text:?}: {end:?} {}\n", words.trim()));
    }
    expect![[r#"
        g/schemata "L3CODE:0=f;1=f0\nMB:0=50\n": Ok(()) ok
        g/schemata "L3CODE:0=5\n": Err(EINVAL) The mask 5 has non-consecutive 1-bits
        g/schemata "L3:0=5\n": Ok(()) ok
        g/schemata "L3CODE:0=0\n": Err(EINVAL) Mask out of range
        g/schemata "L3CODE:0=800\n": Err(EINVAL) Mask out of range
        g/schemata "L3CODE:0=x\n": Err(EINVAL) Non-hex character in the mask x
        g/schemata "L3CODE:7=1\n": Err(EINVAL) ok
        g/schemata "L3CODE:0=1;0=1\n": Err(EINVAL) Duplicate domain 0
        g/schemata "L3:0=1\n": Err(EINVAL) Unknown or unsupported resource name 'L3'
        g/schemata "L3CODE 0=1\n": Err(EINVAL) Missing ':'
        g/schemata "L3CODE:0\n": Err(EINVAL) Missing '=' or non-numeric domain
        g/schemata "MB:0=5\n": Err(EINVAL) MB value 5 out of range [10,100]
        g/schemata "MB:0=1.5\n": Err(EINVAL) Non-decimal digit in MB value 1.5
        g/schemata "MB:0=50": Err(EINVAL) ok
        none/schemata "MB:0=50\n": Err(ENOENT) ok
        g/tasks "4711": Err(ESRCH) No task 4711
        g/tasks "me": Err(EINVAL) Task list parsing error pid me
    "#]]
    .assert_eq(&lines);
}

#[test]
fn groups_end_with_their_ids() {
    let mut kernel = FakeResctrl::with_l2();
    for name in ["a", "b", "c"] {
        kernel.make_dir(&format!("sys/fs/resctrl/{name}")).unwrap();
    }
    let words =
        |kernel: &mut FakeResctrl| kernel.read("sys/fs/resctrl/info/last_cmd_status").unwrap();
    assert_eq!(kernel.make_dir("sys/fs/resctrl/d"), Err(Errno::ENOSPC));
    assert_eq!(words(&mut kernel), "Out of CLOSIDs\n");
    assert_eq!(kernel.make_dir("sys/fs/resctrl/a"), Err(Errno::EEXIST));
    assert_eq!(kernel.make_dir("sys/fs/resctrl/a/x"), Err(Errno::EPERM));
    assert_eq!(kernel.make_dir("sys/fs/resctrl/a/mon_groups/x"), Err(Errno::ENOENT));
    assert_eq!(kernel.remove_dir("sys/fs/resctrl"), Err(Errno::EPERM));
    assert_eq!(kernel.remove_dir("sys/fs/resctrl/z"), Err(Errno::ENOENT));
    kernel.set_mode("a", GroupMode::PseudoLocked);
    assert_eq!(kernel.write("sys/fs/resctrl/a/schemata", "L2:0=1\n"), Err(Errno::EINVAL));
    assert_eq!(words(&mut kernel), "Resource group is pseudo-locked\n");
    assert_eq!(kernel.write("sys/fs/resctrl/b/schemata", "L2:0=1\n"), Err(Errno::EINVAL));
    assert_eq!(words(&mut kernel), "CBM overlaps with pseudo-locked region\n");
    let mut kernel = FakeResctrl::xeon();
    kernel.info.monitor = Some(MonitorInfo { rmids: 2, features: Vec::new() });
    kernel.make_dir("sys/fs/resctrl/mon_groups/x").unwrap();
    assert_eq!(kernel.make_dir("sys/fs/resctrl/a"), Err(Errno::ENOSPC));
    assert_eq!(words(&mut kernel), "Out of RMIDs\n");
}

#[test]
fn what_says_nothing_usable_is_told_and_left_alone() {
    let files = [
        ("proc/mounts", "resctrl /sys/fs/resctrl resctrl rw,mba_MBps 0 0\n"),
        ("sys/fs/resctrl/schemata", "  L2:0=f;x\n L3:0=fff\n  MB:0= 100;1= 100\n  ??\n"),
        ("sys/fs/resctrl/tasks", ""),
        ("sys/fs/resctrl/info/L2/cbm_mask", "0\n"),
        ("sys/fs/resctrl/info/L2/num_closids", "4\n"),
        ("sys/fs/resctrl/info/L3/cbm_mask", "fff\n"),
        ("sys/fs/resctrl/info/L3/num_closids", "many\n"),
        ("sys/fs/resctrl/info/L3/bit_usage", "0=000000EEPPSX;1;2=\n"),
        ("sys/fs/resctrl/info/MB/num_closids", "8\n"),
        ("sys/fs/resctrl/info/MB/bandwidth_gran", "10\n"),
        ("sys/fs/resctrl/info/MB/min_bandwidth", "10\n"),
        ("sys/fs/resctrl/info/L3_MON/num_rmids", "-1\n"),
        ("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\n"),
        ("sys/fs/resctrl/bayplan.a/tasks", ""),
        ("sys/fs/resctrl/not_a_group/x", ""),
    ];
    let mut kernel = FakeKernel::new(&files);
    let resctrl = mounted(&mut kernel);
    expect![[r#"
        Resctrl {
            info: ResctrlInfo {
                l2: None,
                l3: None,
                mb: Some(
                    BandwidthInfo {
                        unit: Megabytes,
                        min: 10,
                        step: 10,
                        max: 4294967295,
                        ids: [
                            0,
                            1,
                        ],
                    },
                ),
                closids: 4,
                monitor: None,
            },
            groups: ObservedGroups {
                controls: {
                    "bayplan.a": {},
                },
                root: {},
            },
            odd: [
                "/sys/fs/resctrl/info/L2/cbm_mask says \"0\", so L2 is left alone",
                "/sys/fs/resctrl/info/L3/num_closids says \"many\", so L3 is left alone",
                "/sys/fs/resctrl/info/L3/min_cbm_bits cannot be read: No such file or directory",
                "/sys/fs/resctrl/info/L3_MON/num_rmids says \"-1\", so L3_MON is left alone",
            ],
        }
    "#]]
    .assert_debug_eq(&resctrl);
}
