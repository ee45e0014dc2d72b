//! The section `cpuClasses`: classes of frequency and sleep, which CPUs have which, and from when to when. How a file says that: `trees.rs`.

use std::collections::BTreeMap;

use bayplan_enforcement::power::{PowerClass, TurboDomain, profile, profile_names};
use bayplan_enforcement::speed_select::SpeedSelectWish;
use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

pub(crate) mod speed_select;
pub(crate) mod trees;

/// What CPUs are there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuUse {
    /// Those that a container owns and that says nothing itself.
    Exclusive,
    /// Those that containers share.
    Shared,
    /// Those of system pods.
    Reserved,
    /// Those that no container may run on now; without a class they have that of shared ones.
    Idle,
}

impl CpuUse {
    pub(crate) const ALL: [CpuUse; 4] =
        [CpuUse::Exclusive, CpuUse::Shared, CpuUse::Reserved, CpuUse::Idle];

    pub(crate) fn name(self) -> &'static str {
        match self {
            CpuUse::Exclusive => "exclusive",
            CpuUse::Shared => "shared",
            CpuUse::Reserved => "reserved",
            CpuUse::Idle => "idle",
        }
    }
}

/// A line of the schedule: from a time of the day on, other classes. What it does not name is as the line before it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When, on the clock of the time zone.
    pub at: Time,
    /// The names of classes, or none.
    pub classes: BTreeMap<CpuUse, Option<String>>,
}

/// Everything about classes of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuClasses {
    /// By name.
    pub classes: BTreeMap<String, PowerClass>,
    /// Names of classes.
    pub uses: BTreeMap<CpuUse, String>,
    /// In the order of their times.
    pub schedule: Vec<Turn>,
    /// A name of the time zone database; `None`: that of the node.
    pub time_zone: Option<String>,
    /// Where classes compete for turbo.
    pub turbo_domain: TurboDomain,
    /// Of the whole machine.
    pub speed_select: SpeedSelectWish,
}

impl CpuClasses {
    /// The class of this name, configured or built in.
    pub fn class(&self, name: &str) -> Option<PowerClass> {
        self.classes.get(name).cloned().or_else(|| profile(name))
    }

    /// All names, configured ones first.
    pub fn names(&self) -> Vec<String> {
        let built_in = profile_names().filter(|it| !self.classes.contains_key(*it));
        self.classes.keys().cloned().chain(built_in.map(str::to_owned)).collect()
    }

    /// All names, for messages.
    pub fn known(&self) -> String {
        self.names().join(", ")
    }

    /// Which classes hold at a time of the day.
    pub fn uses_at(&self, time: Time) -> BTreeMap<CpuUse, String> {
        let mut uses = self.uses.clone();
        let (today, yesterday): (Vec<&Turn>, Vec<&Turn>) =
            self.schedule.iter().partition(|turn| turn.at <= time);
        // Of yesterday's lines the later ones still hold.
        for turn in yesterday.into_iter().chain(today) {
            for (cpus, class) in &turn.classes {
                match class {
                    Some(class) => uses.insert(*cpus, class.clone()),
                    None => uses.remove(cpus),
                };
            }
        }
        uses
    }

    /// What the clocks of the time zone show.
    pub fn time_of_day(&self, now: Timestamp) -> Time {
        let zone = self.time_zone.as_ref().and_then(|name| TimeZone::get(name).ok());
        now.to_zoned(zone.unwrap_or_else(TimeZone::system)).time()
    }

    /// Names that are no class, with the key that has them.
    pub(crate) fn unknown(&self) -> Vec<(String, String)> {
        let here =
            self.uses.iter().map(|(cpus, name)| (format!("cpuClasses.{}", cpus.name()), name));
        let later = self.schedule.iter().flat_map(|turn| turn.classes.values().flatten());
        let all = here.chain(later.map(|name| ("cpuClasses.schedule".to_owned(), name)));
        let unknown = all.filter(|(_, name)| self.class(name).is_none());
        unknown.map(|(key, name)| (key, name.clone())).collect()
    }
}

#[cfg(test)]
mod tests;
