//! Classes of scheduling: when threads and I/O of a container have their turn. In: classes, containers in them, which files groups have. Out: settings, and what cannot be had.
//!
//! A class says what cgroups can say of a container against others (Documentation/admin-guide/cgroup-v2.rst, `cpu.idle` and `io.prio.class`), and what only threads can say, which
//! a front end sets for the first process ([`ThreadScheduling`]) and no file here. `cpu.idle` is for the group of a pod, because runtimes write the weight of a container's own with
//! every update, which an idle group refuses.

use bayplan_types::{IoClass, QosClass, ThreadPolicy, ThreadScheduling};

use crate::block_io::CgroupFiles;
use crate::setting::{Form, Setting, Settings, Slot};
use crate::turned::TurnedGroup;

/// A class of scheduling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulingClass {
    /// A pod in it runs where no other of its QoS class wants to.
    pub is_idle: bool,
    /// `None`: as its threads say.
    pub io: Option<IoClass>,
    /// What its threads say.
    pub threads: ThreadScheduling,
}

impl SchedulingClass {
    /// Whether threads of all cgroups wait for those of a container in it.
    pub fn is_realtime(&self) -> bool {
        self.threads.policy.is_some_and(ThreadPolicy::is_realtime)
    }

    /// Whether it says what groups can say.
    pub fn wants_files(&self) -> bool {
        self.is_idle || self.io.is_some()
    }
}

/// A class of the configuration, and which containers have it that name none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedScheduling {
    /// Unique in the configuration.
    pub name: String,
    /// What it is.
    pub class: SchedulingClass,
    /// Those of these namespaces; `*` and `?` stand for any text and any character.
    pub namespaces: Vec<String>,
    /// Those of these QoS classes.
    pub qos: Vec<QosClass>,
}

/// A container in a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledMember {
    /// Its full name.
    pub unit: String,
    /// Its own group below the root.
    pub dir: String,
    /// The group of its pod, where all containers of the pod are in idle classes.
    pub idle_pod: Option<String>,
    /// The name of the class.
    pub name: String,
    /// What that is.
    pub class: SchedulingClass,
}

/// In the kernel's words, which are about what threads say: `promote-to-rt` and `restrict-to-be` leave a thread that is in that class its priority there.
fn word(class: IoClass) -> &'static str {
    match class {
        IoClass::Realtime => "promote-to-rt",
        IoClass::BestEffort => "restrict-to-be",
        IoClass::Idle => "idle",
    }
}

/// What their groups should say.
pub fn settings_for_scheduling(
    members: &[ScheduledMember],
    files: &CgroupFiles,
) -> (Settings, Vec<String>) {
    let (mut settings, mut problems) = (Settings::new(), Vec::new());
    for member in members {
        let ScheduledMember { unit, dir, idle_pod, name, class } = member;
        let reason = format!("scheduling class \"{name}\"");
        match class.io {
            Some(io) if files.contains(IO_CLASS) => {
                let setting = Setting {
                    form: Form::Text,
                    value: word(io).to_owned(),
                    unit: unit.clone(),
                    reason: reason.clone(),
                };
                settings.insert(Slot::file(format!("{dir}/{IO_CLASS}")), setting);
            }
            Some(_) => problems.push(format!(
                "{unit}: its {reason} is about I/O, and groups have no {IO_CLASS} here (Linux 5.18 with CONFIG_BLK_CGROUP_IOPRIO, controller io)"
            )),
            None => {}
        }
        if !class.is_idle {
            continue;
        }
        match idle_pod {
            Some(pod) if files.contains("cpu.idle") => {
                settings.extend(TurnedGroup::named_by_dir(pod, reason).idle());
            }
            Some(_) => problems.push(format!(
                "{unit}: its {reason} is idle, and groups have no cpu.idle here (Linux 5.15, controller cpu)"
            )),
            None => problems.push(format!(
                "{unit}: its {reason} is idle, which only a whole pod can be: other containers of its pod are in none"
            )),
        }
    }
    (settings, problems)
}

const IO_CLASS: &str = "io.prio.class";

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(names: &[&str], idle_pod: Option<&str>, class: SchedulingClass, expected: Expect) {
        let files: CgroupFiles = names.iter().map(|it| (*it).to_owned()).collect();
        let member = ScheduledMember {
            unit: "n/p/c".to_owned(),
            dir: "sys/fs/cgroup/pod/c".to_owned(),
            idle_pod: idle_pod.map(str::to_owned),
            name: "calm".to_owned(),
            class,
        };
        let (settings, problems) = settings_for_scheduling(&[member], &files);
        let shown = settings.iter().map(|(slot, it)| format!("{} {:?}", slot.path, it.value));
        expected.assert_eq(&shown.chain(problems).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_class_is_what_groups_can_say() {
        let calm = || SchedulingClass {
            is_idle: true,
            io: Some(IoClass::Idle),
            ..SchedulingClass::default()
        };
        let all = ["io.prio.class", "cpu.idle"];
        check(
            &all,
            Some("sys/fs/cgroup/pod"),
            calm(),
            expect![[r#"
            sys/fs/cgroup/pod/c/io.prio.class "idle"
            sys/fs/cgroup/pod/cpu.idle "1"
            sys/fs/cgroup/pod/cpu.weight """#]],
        );
        check(
            &all,
            None,
            calm(),
            expect![[r#"
            sys/fs/cgroup/pod/c/io.prio.class "idle"
            n/p/c: its scheduling class "calm" is idle, which only a whole pod can be: other containers of its pod are in none"#]],
        );
        check(
            &[],
            Some("sys/fs/cgroup/pod"),
            calm(),
            expect![[r#"
            n/p/c: its scheduling class "calm" is about I/O, and groups have no io.prio.class here (Linux 5.18 with CONFIG_BLK_CGROUP_IOPRIO, controller io)
            n/p/c: its scheduling class "calm" is idle, and groups have no cpu.idle here (Linux 5.15, controller cpu)"#]],
        );
        let first = SchedulingClass { io: Some(IoClass::Realtime), ..SchedulingClass::default() };
        check(&all, None, first, expect![[r#"sys/fs/cgroup/pod/c/io.prio.class "promote-to-rt""#]]);
    }
}
