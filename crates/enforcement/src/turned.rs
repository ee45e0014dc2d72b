//! What is changed of whole groups beside bursts, which are in `cgroup.rs`: by the rebalancer, for BestEffort pods, and `cpu.idle` also by scheduling classes. In: groups. Out: settings.
//!
//! Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"; of version 1, Documentation/scheduler/sched-bwc.rst, "Management". Only groups are
//! chosen with other files that are not written again and again: the kernel refuses to write the weight of an idle group, which the runtime does for
//! a container's group with every update, and kubelet for the group of a QoS class every minute, and when it starts, where it gives up. A pod's group
//! gets its weight when it is made, and when its requests are resized in place, which fails while it is idle.

use bayplan_types::MilliCpu;

use crate::cgroup::{CpuQuota, quota_slot};
use crate::setting::{Form, Setting, Settings, Slot};

/// Which files a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// `cpu.cfs_quota_us`, and the period in a file of its own.
    V1,
    /// `cpu.max`.
    V2,
}

/// A group, what it is changed for, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedGroup {
    /// The group below the root.
    pub dir: String,
    /// What it is for.
    pub unit: String,
    /// Why, in a few words.
    pub reason: String,
}

impl TurnedGroup {
    /// A group that is changed for itself.
    pub fn named_by_dir(dir: &str, reason: String) -> TurnedGroup {
        let unit = dir.strip_prefix("sys/fs/cgroup/").unwrap_or(dir).to_owned();
        TurnedGroup { dir: dir.to_owned(), unit, reason }
    }

    fn setting(&self, form: Form, value: impl Into<String>) -> Setting {
        Setting { form, value: value.into(), unit: self.unit.clone(), reason: self.reason.clone() }
    }

    /// The file that makes a group idle.
    pub fn idle_slot(&self) -> Slot {
        Slot::file(format!("{}/cpu.idle", self.dir))
    }

    /// The file that limits a group.
    pub fn limit_slot(&self, version: CgroupVersion) -> Slot {
        match version {
            CgroupVersion::V1 => Slot::file(format!("{}/cpu.cfs_quota_us", self.dir)),
            CgroupVersion::V2 => quota_slot(&self.dir),
        }
    }

    /// It runs where no other child of its parent wants to. The kernel gives it the default weight when that ends (`sched_group_set_idle`), so the
    /// weight that it had is kept, too.
    pub fn idle(&self) -> Settings {
        let idle = self.idle_slot();
        let weight = Slot::file(format!("{}/cpu.weight", self.dir));
        let follows = Form::Follows { file: idle.path.clone() };
        [(idle, self.setting(Form::Mode, "1")), (weight, self.setting(follows, ""))].into()
    }

    /// All in it together get at most what `cpus` CPUs have.
    pub fn limited(&self, quota: CpuQuota, version: CgroupVersion) -> Settings {
        let CpuQuota { quota_us, period_us } = quota;
        // Not as a container's limit, which its runtime knows: no other program writes this one.
        let setting = |value| self.setting(Form::Text, value);
        let limit = self.limit_slot(version);
        match version {
            CgroupVersion::V1 => {
                let period = Slot::file(format!("{}/cpu.cfs_period_us", self.dir));
                let (quota_us, period_us) = (quota_us.to_string(), period_us.to_string());
                [(period, setting(period_us)), (limit, setting(quota_us))].into()
            }
            CgroupVersion::V2 => [(limit, setting(format!("{quota_us} {period_us}")))].into(),
        }
    }
}

/// Half of the time of so many CPUs after one step, a quarter after two, and so on.
pub fn suppressed(cpus: usize, step: u32) -> CpuQuota {
    CpuQuota::of(MilliCpu(MilliCpu::from_cpus(cpus).0.checked_shr(step).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::file_plan::{plan_files, render_file_plan};
    use crate::setting::{Observed, Original};

    const POD: &str = "sys/fs/cgroup/kubepods/besteffort/pod1";

    fn group() -> TurnedGroup {
        let [dir, unit, reason] = [POD, "n/p/hog", "rebalance 1: idle"].map(str::to_owned);
        TurnedGroup { dir, unit, reason }
    }

    /// A group as the kernel has it, with what a write of its `cpu.idle` does to its weight.
    struct Group(Observed);

    impl Group {
        fn new() -> Group {
            let files = [("cpu.idle", "0\n"), ("cpu.weight", "1\n")];
            let files = files.map(|(name, text)| (format!("{POD}/{name}"), Ok(text.to_owned())));
            Group(files.into())
        }

        /// Plans and writes; the plan as text.
        fn look(&mut self, wanted: &Settings, originals: &mut BTreeMap<Slot, Original>) -> String {
            let plan = plan_files(wanted, &self.0, originals);
            originals.extend(plan.remember.clone());
            for write in &plan.writes {
                self.0.insert(write.slot.path.clone(), Ok(write.text()));
                if write.slot.file_name() == "cpu.idle" {
                    let weight = if write.new == "1" { "0" } else { "100" };
                    self.0.insert(format!("{POD}/cpu.weight"), Ok(weight.to_owned()));
                }
            }
            plan.forget.iter().for_each(|slot| drop(originals.remove(slot)));
            let returned = plan.writes.iter().filter(|write| write.gives_back);
            returned.for_each(|write| drop(originals.remove(&write.slot)));
            render_file_plan(&plan)
        }
    }

    #[test]
    fn an_idle_group_gets_back_the_weight_that_it_had() {
        let (mut group_files, mut originals) = (Group::new(), BTreeMap::new());
        let idle = group().idle();
        let before = group_files.0.clone();
        let text = group_files.look(&idle, &mut originals);
        expect_test::expect![[r#"
            set    /sys/fs/cgroup/kubepods/besteffort/pod1/cpu.idle 0 -> 1  (n/p/hog: rebalance 1: idle)
        "#]]
        .assert_eq(&text);
        assert_eq!((originals.len(), group_files.look(&idle, &mut originals)), (2, String::new()));
        for _ in 0..2 {
            group_files.look(&Settings::new(), &mut originals);
        }
        assert_eq!(group_files.look(&Settings::new(), &mut originals), "");
        let texts = |files: &Observed| -> Vec<String> {
            files.values().flatten().map(|it| it.trim().to_owned()).collect()
        };
        assert_eq!(texts(&group_files.0), texts(&before));
        assert_eq!(originals, BTreeMap::new());
    }

    #[test]
    fn a_weight_is_not_kept_while_nothing_changes_it() {
        let has = [("cpu.idle", "1"), ("cpu.weight", "0")];
        let has = has.map(|(name, text)| (format!("{POD}/{name}"), Ok(text.to_owned())));
        let plan = plan_files(&group().idle(), &has.into(), &BTreeMap::new());
        assert!(plan.is_empty() && plan.remember.is_empty());
    }

    #[test]
    fn each_step_halves_what_is_left() {
        let text = |cpus, step| {
            let settings = group().limited(suppressed(cpus, step), CgroupVersion::V2);
            settings.into_values().map(|it| it.value).collect::<String>()
        };
        assert_eq!(text(8, 1), "400000 100000");
        assert_eq!(text(8, 3), "100000 100000");
        assert_eq!(text(1, 10), "1000 100000");
        assert_eq!(text(0, 64), "1000 100000");
        assert_eq!(text(usize::MAX, 0), format!("{} 100000", u64::MAX));
    }

    #[test]
    fn a_limit_goes_through_its_steps_and_back_to_none() {
        let slot = group().limit_slot(CgroupVersion::V2);
        let (mut has, mut originals) =
            (Observed::from([(slot.path.clone(), Ok("max 100000\n".to_owned()))]), BTreeMap::new());
        let mut seen = Vec::new();
        for step in [1, 2] {
            let plan = plan_files(
                &group().limited(suppressed(4, step), CgroupVersion::V2),
                &has,
                &originals,
            );
            originals.extend(plan.remember);
            has.insert(slot.path.clone(), Ok(plan.writes[0].text()));
            seen.push(plan.writes[0].new.clone());
        }
        let back = plan_files(&Settings::new(), &has, &originals);
        seen.push(back.writes[0].new.clone());
        assert_eq!(seen, ["200000 100000", "100000 100000", "max 100000"]);
    }
}
