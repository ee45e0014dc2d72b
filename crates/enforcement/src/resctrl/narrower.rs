//! Classes that give less of the caches, or of memory bandwidth, than the one that a container is in. In: classes on this machine. Out: those that it
//! can be put into for a while, the next narrower one first.
//!
//! Less of the one, and not more of the other. Partitions are disjoint so that a container that is in one has it for itself; so it stays in its own.
//! A container that is in the root's group, which has a part of all, can be put into partitions of which no class is named like a QoS class above its
//! own. A thread is in one group only (Documentation/filesystems/resctrl.rst, "Resource alloc and monitor groups").

use bayplan_types::QosClass;

use super::config::{ClassName, ResctrlConfig, ResctrlPartition};
use super::info::ResctrlInfo;
use super::resolve::{ResolvedClasses, SchemaLine, Schemata};

/// What a container is to have less of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scarce {
    /// Ways of caches.
    Cache,
    /// Memory bandwidth.
    Bandwidth,
}

impl Scarce {
    fn other(self) -> Scarce {
        match self {
            Scarce::Cache => Scarce::Bandwidth,
            Scarce::Bandwidth => Scarce::Cache,
        }
    }

    fn lines(self) -> &'static [&'static str] {
        match self {
            Scarce::Cache => &["L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA"],
            Scarce::Bandwidth => &["MB"],
        }
    }
}

/// Classes on one machine.
#[derive(Clone, Copy, Debug)]
pub struct ClassesHere<'a> {
    /// As they are written.
    pub config: &'a ResctrlConfig,
    /// What they get.
    pub resolved: &'a ResolvedClasses,
    /// Of the machine.
    pub info: &'a ResctrlInfo,
}

impl<'a> ClassesHere<'a> {
    /// Classes with less for a container of this QoS class that is in `current`.
    pub fn narrower(
        &self,
        current: &ClassName,
        qos: Option<QosClass>,
        scarce: Scarce,
    ) -> Vec<&'a ClassName> {
        let own = self.partition_of(current);
        let here = self.schemata_of(current);
        let mut found: Vec<(u64, &'a ClassName)> = Vec::new();
        for (partition, class) in self.config.classes() {
            let may = match own {
                Some(own) => own.name == partition.name,
                None => is_open_to(partition, qos),
            };
            let there = self.schemata_of(&class.name);
            let (is_less, is_more) = self.compare(there, here, scarce);
            let (_, has_more_else) = self.compare(there, here, scarce.other());
            if may && !class.name.is_root() && is_less && !is_more && !has_more_else {
                found.push((self.sum(there, scarce), &class.name));
            }
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        found.into_iter().map(|(_, name)| name).collect()
    }

    fn partition_of(&self, class: &ClassName) -> Option<&'a ResctrlPartition> {
        self.config.classes().find(|(_, it)| it.name == *class).map(|(partition, _)| partition)
    }

    fn schemata_of(&self, class: &ClassName) -> Option<&'a Schemata> {
        self.resolved.classes.iter().find(|it| it.name == *class).map(|it| &it.schemata)
    }

    /// Whether the first has less than the second anywhere, and whether it has more.
    fn compare(&self, a: Option<&Schemata>, b: Option<&Schemata>, of: Scarce) -> (bool, bool) {
        let (mut is_less, mut is_more) = (false, false);
        for line in of.lines() {
            for id in self.ids(line) {
                let (a, b) = (self.amount(a, line, id), self.amount(b, line, id));
                is_less |= a < b;
                is_more |= a > b;
            }
        }
        (is_less, is_more)
    }

    fn sum(&self, schemata: Option<&Schemata>, of: Scarce) -> u64 {
        let lines = of.lines().iter();
        let amounts = lines.flat_map(|line| {
            self.ids(line).into_iter().map(|id| u64::from(self.amount(schemata, line, id)))
        });
        amounts.sum()
    }

    /// The caches or domains that a line has.
    fn ids(&self, line: &str) -> Vec<u32> {
        match line.get(..2) {
            Some("L2") => self.info.l2.iter().flat_map(|it| it.caches.keys().copied()).collect(),
            Some("L3") => self.info.l3.iter().flat_map(|it| it.caches.keys().copied()).collect(),
            _ => self.info.mb.iter().flat_map(|it| it.ids.iter().copied()).collect(),
        }
    }

    /// How many ways, or how much bandwidth; all that there is where nothing is said.
    fn amount(&self, schemata: Option<&Schemata>, line: &str, id: u32) -> u32 {
        let said = match schemata.and_then(|it| it.get(line)) {
            Some(SchemaLine::Masks(masks)) => masks.get(&id).map(|mask| mask.count()),
            Some(SchemaLine::Bandwidth(bounds)) => bounds.get(&id).copied(),
            None => None,
        };
        let ResctrlInfo { l2, l3, mb, .. } = self.info;
        let all = match line.get(..2) {
            Some("L2") => l2.as_ref().map(|it| it.mask.count()),
            Some("L3") => l3.as_ref().map(|it| it.mask.count()),
            _ => mb.as_ref().map(|it| it.max),
        };
        said.or(all).unwrap_or(u32::MAX)
    }
}

/// None of its classes is named like a QoS class above this one.
fn is_open_to(partition: &ResctrlPartition, qos: Option<QosClass>) -> bool {
    let above = QosClass::ALL.into_iter().filter(|it| Some(*it) > qos);
    let named = |qos: QosClass| {
        let mut names = partition.classes.iter().map(|it| it.name.as_str());
        names.any(|name| name.eq_ignore_ascii_case(qos.name()))
    };
    !above.into_iter().any(named)
}
