//! Block I/O classes to lines of `io.*` (cgroup v2). In: classes, the disks that their patterns stand for now, the class of each container. Out:
//! settings.
//!
//! The classes are those of goresctrl and CRI Resource Manager: a list of rules, of which the last that names a disk counts for it, whole: what it
//! does not limit is not limited. A weight without devices is for all other disks. Files, keys and ranges: Documentation/admin-guide/cgroup-v2.rst,
//! "IO Interface Files". Weights need something that divides: the scheduler bfq (Documentation/block/bfq-iosched.rst, `io.bfq.weight`), or the
//! kernel's model of cost (`io.weight`), which is switched on for a disk (`io.cost.qos`) as long as a class in use has a weight for it by name. A
//! weight for all other disks switches nothing on, because that changes what disks do that the configuration does not name; where nothing divides one
//! of them, that is told. Weights and latencies hold among the groups of one parent, so a pod has the largest weight and the shortest latency of its
//! containers. Limits hold by themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::setting::{Form, Setting, Settings, Slot};

/// The root of all groups.
const CGROUPS: &str = "sys/fs/cgroup";

/// The files of weights: of the kernel's model of cost, and of bfq.
const WEIGHTS: [&str; 2] = ["io.weight", "io.bfq.weight"];

/// What one rule wants of its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIoRule {
    /// Paths and patterns such as `/dev/disk/by-id/*SSD*`; none: all disks that no rule names.
    pub devices: Vec<String>,
    /// 1 to 1000, where 100 is what all others have.
    pub weight: Option<u32>,
    /// Bytes per second.
    pub read_bps: Option<u64>,
    /// Bytes per second.
    pub write_bps: Option<u64>,
    /// Operations per second.
    pub read_iops: Option<u64>,
    /// Operations per second.
    pub write_iops: Option<u64>,
    /// Others are slowed down while its requests take longer than so many microseconds.
    pub latency_us: Option<u64>,
}

/// Rules, of which the last that names a disk counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIoClass {
    /// In the order of the file.
    pub rules: Vec<BlockIoRule>,
}

/// A disk: no partition, because the kernel divides and limits whole disks only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockDevice {
    /// `8:16`, as the kernel names it in the files.
    pub number: String,
    /// `sdb`.
    pub name: String,
    /// Whether its requests are ordered by the scheduler bfq.
    pub has_bfq: bool,
}

/// What each pattern stands for now; or why it stands for nothing.
pub type ResolvedDevices = BTreeMap<String, Result<Vec<BlockDevice>, String>>;

/// The names of the files that cgroups below the root have on this machine; which of them there are depends on how the kernel was built.
pub type CgroupFiles = BTreeSet<String>;

/// A container with a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockIoMember {
    /// The container's full name.
    pub unit: String,
    /// Its group, below the root.
    pub dir: String,
    /// The group of its pod.
    pub pod: Option<String>,
    /// The class's name.
    pub class: String,
}

/// The settings of all containers with a class, and what cannot be had. `undivided` are the disks on which weights do nothing now.
pub fn settings_for_block_io(
    classes: &BTreeMap<String, BlockIoClass>,
    devices: &ResolvedDevices,
    undivided: &[BlockDevice],
    files: &CgroupFiles,
    members: &[BlockIoMember],
) -> (Settings, Vec<String>) {
    let mut settings = Settings::new();
    let mut problems = BTreeSet::new();
    for member in members {
        match classes.get(&member.class) {
            Some(class) => {
                let found = Disks::of(&member.class, class, devices, &mut problems);
                let mut writer = Writer { member, files, settings: &mut settings };
                writer.weights(&found, &mut problems);
                writer.limits(&found, &mut problems);
            }
            None => {
                let known = classes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let known = if known.is_empty() { "none" } else { &known };
                problems.insert(format!(
                    "{}: there is no block I/O class \"{}\"; those of the configuration: {known}",
                    member.unit, member.class
                ));
            }
        }
    }
    let has_weights = WEIGHTS.iter().any(|file| files.contains(*file));
    let used: BTreeSet<&String> = members.iter().map(|member| &member.class).collect();
    // Those with a weight by name are divided from now on.
    let left: Vec<BlockDevice> = undivided
        .iter()
        .filter(|disk| has_weights && !settings.contains_key(&cost_slot(disk)))
        .cloned()
        .collect();
    let used = used.into_iter().filter_map(|name| classes.get_key_value(name));
    let idle = used.filter_map(|(name, class)| idle_weight(name, class, devices, &left));
    problems.extend(idle.map(|problem| format!("{problem}; {WEIGHT_REMEDY}")));
    (settings, problems.into_iter().collect())
}

/// What mends a weight that does nothing.
pub const WEIGHT_REMEDY: &str = "choose bfq, or, where the kernel has io.cost.qos, a rule with these as Devices and a Weight, which switches it on";

/// Why the weight that a class has for all disks that none of its rules names does nothing on some of them.
pub fn idle_weight(
    name: &str,
    class: &BlockIoClass,
    devices: &ResolvedDevices,
    undivided: &[BlockDevice],
) -> Option<String> {
    let found = Disks::of(name, class, devices, &mut BTreeSet::new());
    found.weight?;
    let is_named = |disk: &&BlockDevice| found.rules.keys().any(|it| it.number == disk.number);
    let disks: Vec<&str> =
        undivided.iter().filter(|disk| !is_named(disk)).map(|disk| disk.name.as_str()).collect();
    let disks = Some(disks.join(", ")).filter(|disks| !disks.is_empty())?;
    Some(format!(
        "block I/O class \"{name}\": its weight does nothing on {disks}: neither the scheduler bfq nor io.cost.qos divides there"
    ))
}

fn cost_slot(disk: &BlockDevice) -> Slot {
    Slot::line(format!("{CGROUPS}/io.cost.qos"), &disk.number)
}

/// What a class wants of each disk.
#[derive(Default)]
struct Disks<'a> {
    weight: Option<u32>,
    rules: BTreeMap<&'a BlockDevice, &'a BlockIoRule>,
}

impl<'a> Disks<'a> {
    fn of(
        name: &str,
        class: &'a BlockIoClass,
        devices: &'a ResolvedDevices,
        problems: &mut BTreeSet<String>,
    ) -> Disks<'a> {
        let mut found = Disks::default();
        for rule in &class.rules {
            if rule.devices.is_empty() {
                found.weight = rule.weight.or(found.weight);
            }
            for pattern in &rule.devices {
                match devices.get(pattern) {
                    Some(Ok(disks)) => found.rules.extend(disks.iter().map(|disk| (disk, rule))),
                    Some(Err(why)) => {
                        problems.insert(format!("block I/O class \"{name}\": {pattern}: {why}"));
                    }
                    None => {}
                }
            }
        }
        found
    }
}

struct Writer<'a> {
    member: &'a BlockIoMember,
    files: &'a CgroupFiles,
    settings: &'a mut Settings,
}

impl Writer<'_> {
    fn weights(&mut self, disks: &Disks<'_>, problems: &mut BTreeSet<String>) {
        if let Some(weight) = disks.weight {
            let files: Vec<&str> =
                WEIGHTS.into_iter().filter(|file| self.files.contains(*file)).collect();
            if files.is_empty() {
                problems.insert(self.lacks("io.weight", "a weight"));
            }
            for file in files {
                self.set(file, "default", Form::Value, weight.to_string());
                self.set_for_pod(file, "default", weight.into());
            }
        }
        for (disk, rule) in &disks.rules {
            let Some(weight) = rule.weight else { continue };
            let file = if disk.has_bfq { "io.bfq.weight" } else { "io.weight" };
            if !self.files.contains(file) {
                problems.insert(self.lacks(file, &format!("a weight on {}", disk.name)));
                continue;
            }
            self.set(file, &disk.number, Form::Value, weight.to_string());
            self.set_for_pod(file, &disk.number, weight.into());
            if !disk.has_bfq {
                let setting = Setting {
                    form: Form::Limits,
                    value: "enable=1".to_owned(),
                    unit: disk.name.clone(),
                    reason: "weights of block I/O classes".to_owned(),
                };
                self.settings.insert(cost_slot(disk), setting);
            }
        }
    }

    fn limits(&mut self, disks: &Disks<'_>, problems: &mut BTreeSet<String>) {
        for (disk, rule) in &disks.rules {
            let limits = [
                ("rbps", rule.read_bps),
                ("wbps", rule.write_bps),
                ("riops", rule.read_iops),
                ("wiops", rule.write_iops),
            ];
            if limits.iter().any(|(_, limit)| limit.is_some()) {
                let text = |limit: Option<u64>| limit.map_or("max".to_owned(), |it| it.to_string());
                let limits = limits.map(|(name, limit)| format!("{name}={}", text(limit)));
                self.set("io.max", &disk.number, Form::Limits, limits.join(" "));
            }
            let Some(target) = rule.latency_us else { continue };
            if self.files.contains("io.latency") {
                self.set("io.latency", &disk.number, Form::Limits, format!("target={target}"));
                self.set_for_pod("io.latency", &disk.number, target);
            } else {
                problems.insert(self.lacks("io.latency", &format!("a latency on {}", disk.name)));
            }
        }
    }

    fn lacks(&self, file: &str, what: &str) -> String {
        let class = &self.member.class;
        format!("block I/O class \"{class}\" wants {what}: this kernel has no {file}")
    }

    fn set(&mut self, file: &str, key: &str, form: Form, value: String) {
        let BlockIoMember { unit, dir, class, .. } = self.member;
        let reason = format!("block I/O class \"{class}\"");
        let setting = Setting { form, value, unit: unit.clone(), reason };
        self.settings.insert(Slot::line(format!("{dir}/{file}"), key), setting);
    }

    /// The largest weight or the shortest latency of its containers.
    fn set_for_pod(&mut self, file: &str, key: &str, number: u64) {
        let BlockIoMember { unit, pod: Some(pod), class, .. } = self.member else { return };
        let slot = Slot::line(format!("{pod}/{file}"), key);
        let before = self.settings.get(&slot).map(|it| it.value.trim_start_matches("target="));
        let before = before.and_then(|it| it.parse().ok());
        let (form, value) = match file {
            "io.latency" => {
                let target = before.map_or(number, |before: u64| before.min(number));
                (Form::Limits, format!("target={target}"))
            }
            _ => (Form::Value, before.map_or(number, |before| before.max(number)).to_string()),
        };
        let reason = format!("block I/O class \"{class}\" in the pod");
        let setting = Setting { form, value, unit: unit.clone(), reason };
        self.settings.insert(slot, setting);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn rule(devices: &[&str]) -> BlockIoRule {
        let devices = devices.iter().map(|it| (*it).to_owned()).collect();
        BlockIoRule { devices, ..BlockIoRule::default() }
    }

    fn disk(number: &str, name: &str, has_bfq: bool) -> BlockDevice {
        BlockDevice { number: number.to_owned(), name: name.to_owned(), has_bfq }
    }

    /// Three disks, `sda` and `sdb` with bfq; a container `c` of the class `it`.
    fn check(files: &[&str], rules: Vec<BlockIoRule>, expected: Expect) {
        let sda = || disk("8:0", "sda", true);
        let vda = || disk("254:0", "vda", false);
        let resolved: ResolvedDevices = [
            ("/dev/sd?", Ok(vec![sda(), disk("8:16", "sdb", true)])),
            ("/dev/sda1", Ok(vec![sda()])),
            ("/dev/vda", Ok(vec![vda()])),
            ("/dev/none", Err("there is no such block device".to_owned())),
        ]
        .into_iter()
        .map(|(pattern, found)| (pattern.to_owned(), found))
        .collect();
        let classes = [("it".to_owned(), BlockIoClass { rules })].into();
        let files = files.iter().map(|it| (*it).to_owned()).collect();
        let member = |class: &str| BlockIoMember {
            unit: "n/p/c".to_owned(),
            dir: "sys/fs/cgroup/p/c".to_owned(),
            pod: None,
            class: class.to_owned(),
        };
        let (settings, problems) =
            settings_for_block_io(&classes, &resolved, &[], &files, &[member("it")]);
        let lines =
            settings.iter().map(|(slot, it)| format!("{slot} = {}  ({})\n", it.value, it.unit));
        let problems = problems.iter().map(|it| format!("! {it}\n"));
        expected.assert_eq(&lines.chain(problems).collect::<String>());
    }

    const ALL: &[&str] = &["io.max", "io.weight", "io.bfq.weight", "io.latency"];

    #[test]
    fn the_last_rule_that_names_a_disk_counts_whole() {
        let rules = || {
            vec![
                BlockIoRule { weight: Some(80), ..rule(&[]) },
                BlockIoRule {
                    weight: Some(50),
                    read_bps: Some(50_000_000),
                    write_iops: Some(5000),
                    latency_us: Some(75),
                    ..rule(&["/dev/sd?", "/dev/vda"])
                },
                BlockIoRule { write_bps: Some(40_000_000), ..rule(&["/dev/sda1", "/dev/none"]) },
            ]
        };
        check(
            ALL,
            rules(),
            expect![[r#"
            /sys/fs/cgroup/io.cost.qos [254:0] = enable=1  (vda)
            /sys/fs/cgroup/p/c/io.bfq.weight [8:16] = 50  (n/p/c)
            /sys/fs/cgroup/p/c/io.bfq.weight [default] = 80  (n/p/c)
            /sys/fs/cgroup/p/c/io.latency [254:0] = target=75  (n/p/c)
            /sys/fs/cgroup/p/c/io.latency [8:16] = target=75  (n/p/c)
            /sys/fs/cgroup/p/c/io.max [254:0] = rbps=50000000 wbps=max riops=max wiops=5000  (n/p/c)
            /sys/fs/cgroup/p/c/io.max [8:0] = rbps=max wbps=40000000 riops=max wiops=max  (n/p/c)
            /sys/fs/cgroup/p/c/io.max [8:16] = rbps=50000000 wbps=max riops=max wiops=5000  (n/p/c)
            /sys/fs/cgroup/p/c/io.weight [254:0] = 50  (n/p/c)
            /sys/fs/cgroup/p/c/io.weight [default] = 80  (n/p/c)
            ! block I/O class "it": /dev/none: there is no such block device
        "#]],
        );
        check(
            &["io.max"],
            rules(),
            expect![[r#"
            /sys/fs/cgroup/p/c/io.max [254:0] = rbps=50000000 wbps=max riops=max wiops=5000  (n/p/c)
            /sys/fs/cgroup/p/c/io.max [8:0] = rbps=max wbps=40000000 riops=max wiops=max  (n/p/c)
            /sys/fs/cgroup/p/c/io.max [8:16] = rbps=50000000 wbps=max riops=max wiops=5000  (n/p/c)
            ! block I/O class "it" wants a latency on sdb: this kernel has no io.latency
            ! block I/O class "it" wants a latency on vda: this kernel has no io.latency
            ! block I/O class "it" wants a weight on sdb: this kernel has no io.bfq.weight
            ! block I/O class "it" wants a weight on vda: this kernel has no io.weight
            ! block I/O class "it" wants a weight: this kernel has no io.weight
            ! block I/O class "it": /dev/none: there is no such block device
        "#]],
        );
        check(ALL, vec![], expect![[r#""#]]);
    }

    #[test]
    fn a_pod_has_the_most_of_what_its_containers_have() {
        let class = |weight, latency_us| {
            let all = BlockIoRule { weight: Some(weight), ..rule(&[]) };
            let vda = BlockIoRule { weight: Some(weight), latency_us, ..rule(&["/dev/vda"]) };
            BlockIoClass { rules: vec![all, vda] }
        };
        let classes =
            [("a".to_owned(), class(50, Some(70))), ("b".to_owned(), class(400, Some(90)))];
        let devices = [("/dev/vda".to_owned(), Ok(vec![disk("254:0", "vda", false)]))].into();
        let files = ["io.weight", "io.latency"].map(str::to_owned).into();
        let member = |class: &str| BlockIoMember {
            unit: class.to_owned(),
            dir: format!("p/{class}"),
            pod: Some("p".to_owned()),
            class: class.to_owned(),
        };
        for members in [[member("a"), member("b")], [member("b"), member("a")]] {
            let (settings, problems) =
                settings_for_block_io(&classes.clone().into(), &devices, &[], &files, &members);
            let of_pod = settings.iter().filter(|(slot, _)| slot.path.starts_with("p/io"));
            let lines = of_pod.map(|(slot, it)| format!("{slot} = {}", it.value));
            assert_eq!(
                lines.collect::<Vec<_>>(),
                [
                    "/p/io.latency [254:0] = target=70",
                    "/p/io.weight [254:0] = 400",
                    "/p/io.weight [default] = 400",
                ]
            );
            assert!(problems.is_empty());
        }
    }

    /// It did so in silence.
    #[test]
    fn a_weight_for_all_disks_tells_on_which_of_them_it_does_nothing() {
        let weight = |devices| BlockIoRule { weight: Some(50), ..rule(devices) };
        let limit = BlockIoRule { read_bps: Some(1), ..rule(&["/dev/vdb"]) };
        let [vda, vdb, vdc] = [("254:0", "vda"), ("254:16", "vdb"), ("254:32", "vdc")]
            .map(|(number, name)| disk(number, name, false));
        let devices: ResolvedDevices = [
            ("/dev/vda".to_owned(), Ok(vec![vda.clone()])),
            ("/dev/vdb".to_owned(), Ok(vec![vdb.clone()])),
        ]
        .into();
        let classes: BTreeMap<String, BlockIoClass> = [
            ("all", vec![weight(&[])]),
            ("limited", vec![weight(&[]), limit]),
            ("named", vec![weight(&["/dev/vda"])]),
        ]
        .map(|(name, rules)| (name.to_owned(), BlockIoClass { rules }))
        .into();
        let say = |files: &[&str], undivided: &[&BlockDevice], used: &[&str]| {
            let files = files.iter().map(|it| (*it).to_owned()).collect();
            let undivided: Vec<BlockDevice> = undivided.iter().copied().cloned().collect();
            let member = |class: &&str| BlockIoMember {
                unit: format!("n/p/{class}"),
                dir: format!("sys/fs/cgroup/p/{class}"),
                pod: None,
                class: (*class).to_owned(),
            };
            let members: Vec<BlockIoMember> = used.iter().map(member).collect();
            let (_, problems) =
                settings_for_block_io(&classes, &devices, &undivided, &files, &members);
            let what = problems.iter().filter_map(|it| it.split(": neither").next());
            what.collect::<Vec<_>>().join("\n")
        };
        let some = [&vda, &vdb, &vdc];
        let of = |class: &str, disks: &str| {
            format!("block I/O class \"{class}\": its weight does nothing on {disks}")
        };
        let both = [of("all", "vda, vdb, vdc"), of("limited", "vda, vdc")].join("\n");
        assert_eq!(say(ALL, &some, &["all", "limited"]), both);
        // A class in use has a weight for one of them by name, which switches the model of cost on for it.
        assert_eq!(say(ALL, &some, &["all", "named"]), of("all", "vdb, vdc"));
        assert_eq!(say(ALL, &some, &["named"]), "");
        assert_eq!(say(ALL, &[], &["all"]), "");
        let lacking = say(&["io.max"], &some, &["all"]);
        assert_eq!(lacking, "block I/O class \"all\" wants a weight: this kernel has no io.weight");
    }

    #[test]
    fn a_class_that_is_not_there_is_named_with_those_that_are() {
        let member = BlockIoMember {
            unit: "n/p/c".to_owned(),
            dir: "sys/fs/cgroup/c".to_owned(),
            pod: None,
            class: "fast".to_owned(),
        };
        let ask = |names: &[&str]| {
            let classes = names.iter().map(|it| ((*it).to_owned(), BlockIoClass::default()));
            let (devices, files) = (ResolvedDevices::new(), CgroupFiles::new());
            let members = std::slice::from_ref(&member);
            let (settings, problems) =
                settings_for_block_io(&classes.collect(), &devices, &[], &files, members);
            assert!(settings.is_empty());
            problems.concat()
        };
        let said = "n/p/c: there is no block I/O class \"fast\"; those of the configuration: ";
        assert_eq!(ask(&[]), format!("{said}none"));
        assert_eq!(ask(&["slow", "low"]), format!("{said}low, slow"));
    }
}
