//! Classes to schemata. In: a configuration and a machine. Out: for every class what its group's `schemata` gets, or all reasons why not.
//!
//! What a line may say: Documentation/filesystems/resctrl.rst, "Schemata files - general concepts" and the sections behind it. What a configuration means: goresctrl's doc/rdt.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::bandwidth::class_bandwidth;
use super::bitmask::CapacityBitmask;
use super::cache::{class_mask, partition_masks};
use super::config::{
    CacheShares, CdpShares, ClassName, ResctrlClass, ResctrlConfig, ResctrlPartition, check_config,
};
use super::info::{BandwidthInfo, CacheInfo, ResctrlInfo};
use super::problem::Problem;
use super::share::{Bandwidth, CacheIds, CacheShare};

/// One line of `schemata`, without its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaLine {
    /// Bits of every cache.
    Masks(BTreeMap<u32, CapacityBitmask>),
    /// The number of every domain.
    Bandwidth(BTreeMap<u32, u32>),
}

/// `0=fff;1=ff`, as the kernel takes it.
impl fmt::Display for SchemaLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = match self {
            SchemaLine::Masks(masks) => {
                masks.iter().map(|(id, mask)| format!("{id}={mask}")).collect()
            }
            SchemaLine::Bandwidth(bounds) => {
                bounds.iter().map(|(id, bound)| format!("{id}={bound}")).collect()
            }
        };
        f.write_str(&values.join(";"))
    }
}

/// Lines by their names: `L3`, `L3CODE`, `MB`.
pub type Schemata = BTreeMap<&'static str, SchemaLine>;

/// A class on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedClass {
    /// Of the configuration.
    pub name: ClassName,
    /// What its group gets.
    pub schemata: Schemata,
}

/// All classes on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedClasses {
    /// In the order of the configuration.
    pub classes: Vec<ResolvedClass>,
    /// What is asked for and does nothing here.
    pub notes: Vec<Problem>,
    /// What holds otherwise than it may seem: bits that devices use, too.
    pub remarks: Vec<Problem>,
}

/// What every class gets on this machine.
///
/// # Errors
/// Every problem of the configuration, and of it on this machine; each once, with the caches that have it.
pub fn resolve(
    config: &ResctrlConfig,
    info: &ResctrlInfo,
) -> Result<ResolvedClasses, Vec<Problem>> {
    let mut problems = check_config(config);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut resolver = Resolver { config, lines: BTreeMap::new(), found: Found::default() };
    for level in [&L2, &L3] {
        match (level.info)(info) {
            Some(cache) => resolver.level(level, cache),
            None => resolver.without_level(level),
        }
    }
    match &info.mb {
        Some(machine) => resolver.bandwidth(machine),
        None => resolver.without_bandwidth(),
    }
    let Resolver { mut lines, found, .. } = resolver;
    problems.extend(found.problems.into_iter().map(with_ids));
    if !problems.is_empty() {
        return Err(problems);
    }
    let classes = config.classes().map(|(_, class)| ResolvedClass {
        name: class.name.clone(),
        schemata: lines.remove(&class.name).unwrap_or_default(),
    });
    let notes = found.notes.into_iter().map(with_ids).collect();
    let remarks = found.remarks.into_iter().map(with_ids).collect();
    Ok(ResolvedClasses { classes: classes.collect(), notes, remarks })
}

/// What of the configuration and of the machine is about one level.
struct Level {
    name: &'static str,
    key: &'static str,
    /// Names of the lines: unified, code, data.
    lines: [&'static str; 3],
    info: fn(&ResctrlInfo) -> Option<&CacheInfo>,
    partition: fn(&ResctrlPartition) -> Option<&CacheShares>,
    class: fn(&ResctrlClass) -> Option<&CacheShares>,
    is_optional: fn(&ResctrlConfig) -> bool,
}

static L2: Level = Level {
    name: "L2",
    key: "l2Allocation",
    lines: ["L2", "L2CODE", "L2DATA"],
    info: |it| it.l2.as_ref(),
    partition: |it| it.l2.as_ref(),
    class: |it| it.l2.as_ref(),
    is_optional: |it| it.options.is_l2_optional,
};

static L3: Level = Level {
    name: "L3",
    key: "l3Allocation",
    lines: ["L3", "L3CODE", "L3DATA"],
    info: |it| it.l3.as_ref(),
    partition: |it| it.l3.as_ref(),
    class: |it| it.l3.as_ref(),
    is_optional: |it| it.options.is_l3_optional,
};

/// What a share is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Unified,
    Code,
    Data,
}

const USES: [Use; 3] = [Use::Unified, Use::Code, Use::Data];

impl Use {
    fn named(self) -> &'static str {
        match self {
            Use::Unified => "unified",
            Use::Code => "code",
            Use::Data => "data",
        }
    }

    /// What is written for it.
    fn own(self, shares: &CdpShares) -> Option<CacheShare> {
        match self {
            Use::Unified => Some(shares.unified),
            Use::Code => shares.code_and_data.map(|(code, _)| code),
            Use::Data => shares.code_and_data.map(|(_, data)| data),
        }
    }

    /// What holds for it.
    fn effective(self, shares: &CdpShares) -> CacheShare {
        self.own(shares).unwrap_or(shares.unified)
    }
}

const EVERYTHING: CdpShares = CdpShares { unified: CacheShare::Percent(100), code_and_data: None };

/// What was found wrong or odd, and on which caches.
#[derive(Default)]
struct Found {
    problems: BTreeMap<Problem, BTreeSet<u32>>,
    notes: BTreeMap<Problem, BTreeSet<u32>>,
    remarks: BTreeMap<Problem, BTreeSet<u32>>,
}

impl Found {
    fn problem(&mut self, of: &str, text: &str, id: Option<u32>) {
        self.problems.entry(Problem::new(of, text)).or_default().extend(id);
    }

    fn note(&mut self, of: &str, text: &str, id: Option<u32>) {
        self.notes.entry(Problem::new(of, text)).or_default().extend(id);
    }

    fn remark(&mut self, of: &str, text: &str, id: Option<u32>) {
        self.remarks.entry(Problem::new(of, text)).or_default().extend(id);
    }
}

fn with_ids((Problem { of, text }, ids): (Problem, BTreeSet<u32>)) -> Problem {
    match ids.is_empty() {
        true => Problem { of, text },
        false => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            Problem { of, text: format!("{text} (on {})", ids.join(", ")) }
        }
    }
}

/// Masks of the partitions on one cache for one use; none where the configuration gives this use nothing of its own.
type Granted<'a> = BTreeMap<&'a str, CapacityBitmask>;

struct Resolver<'a> {
    config: &'a ResctrlConfig,
    lines: BTreeMap<ClassName, Schemata>,
    found: Found,
}

impl<'a> Resolver<'a> {
    fn level(&mut self, level: &Level, cache: &CacheInfo) {
        for (id, taken) in &cache.caches {
            let granted = USES.map(|it| self.partitions(level, cache, *id, it));
            self.note_shared_bits(level, cache, *id, &granted[0]);
            for (line, (usage, grants)) in level.lines.iter().zip(USES.iter().zip(&granted)) {
                if cache.is_split != (*usage == Use::Unified) {
                    let grants = if grants.is_empty() { &granted[0] } else { grants };
                    self.classes(level, line, cache, (*id, *taken), (*usage, grants));
                }
            }
        }
        self.note_strangers(level, cache);
    }

    /// What the partitions have of one cache for one use.
    fn partitions(&mut self, level: &Level, cache: &CacheInfo, id: u32, usage: Use) -> Granted<'a> {
        let mut partitions: Vec<&ResctrlPartition> = self.config.partitions.iter().collect();
        partitions.sort_by(|a, b| a.name.cmp(&b.name));
        let shares = partitions.iter().map(|it| {
            let shares = (level.partition)(it)?;
            usage.own(shares.of(id).unwrap_or(&EVERYTHING))
        });
        let shares: Vec<Option<CacheShare>> = shares.collect();
        if shares.iter().all(Option::is_none) {
            return Granted::new();
        }
        let mut asked = Vec::new();
        for (partition, share) in partitions.iter().zip(&shares) {
            match share {
                Some(share) => asked.push((partition.name.as_str(), *share)),
                None => {
                    let of = format!("partition `{}`", partition.name);
                    let text = format!(
                        "has no {} ({}), but others have; all partitions have one, or none",
                        level.key,
                        usage.named()
                    );
                    self.found.problem(&of, &text, Some(id));
                }
            }
        }
        match partition_masks(cache, &asked) {
            Ok(masks) => asked.iter().map(|(name, _)| *name).zip(masks).collect(),
            Err(why) => {
                let of = format!("{} cache ({})", level.name, usage.named());
                self.found.problem(&of, &why, Some(id));
                Granted::new()
            }
        }
    }

    fn classes(
        &mut self,
        level: &Level,
        line: &'static str,
        cache: &CacheInfo,
        (id, taken): (u32, u32),
        (usage, grants): (Use, &Granted<'_>),
    ) {
        for (partition, class) in self.config.classes() {
            let of = format!("class `{}`", class.name);
            let base = grants.get(partition.name.as_str()).copied().unwrap_or(cache.mask);
            let shares = (level.class)(class);
            let share = shares.map(|it| usage.effective(it.of(id).unwrap_or(&EVERYTHING)));
            let mask = match share.map_or(Ok(base), |share| class_mask(cache, base, share)) {
                Ok(mask) => mask,
                Err(why) => {
                    let text = format!("{} ({}): {why}", level.key, usage.named());
                    self.found.problem(&of, &text, Some(id));
                    continue;
                }
            };
            if mask.bits() & taken != 0 {
                let text = format!(
                    "{} 0x{mask}: another group has 0x{:x} of the cache to itself (`E` or `P` in info/{line}/bit_usage)",
                    level.key, taken
                );
                self.found.problem(&of, &text, Some(id));
            }
            let schemata = self.lines.entry(class.name.clone()).or_default();
            let values = schemata.entry(line).or_insert(SchemaLine::Masks(BTreeMap::new()));
            if let SchemaLine::Masks(masks) = values {
                masks.insert(id, mask);
            }
        }
    }

    fn without_level(&mut self, level: &Level) {
        let is_optional = (level.is_optional)(self.config);
        for (_, class) in self.config.classes().filter(|it| (level.class)(it.1).is_some()) {
            self.lacks(&class.name, level.key, level.name, is_optional);
        }
        for partition in self.config.partitions.iter().filter(|it| (level.partition)(it).is_some())
        {
            self.ignored(partition, level.key, is_optional);
        }
    }

    fn lacks(&mut self, class: &ClassName, key: &str, what: &str, is_optional: bool) {
        let of = format!("class `{class}`");
        if !is_optional {
            let option = what.to_lowercase();
            let text = format!(
                "has {key}, which this machine cannot give; with `options.{option}.optional: true` the class does without"
            );
            self.found.problem(&of, &text, None);
        }
    }

    /// What a partition says is told as asked for in vain, unless an option says that it need not be had.
    fn ignored(&mut self, partition: &ResctrlPartition, key: &str, is_optional: bool) {
        let of = format!("partition `{}`", partition.name);
        let text = format!("{key} does nothing on this machine");
        match is_optional {
            true => self.found.remark(&of, &text, None),
            false => self.found.note(&of, &text, None),
        }
    }

    fn bandwidth(&mut self, machine: &BandwidthInfo) {
        for (partition, class) in self.config.classes() {
            let mut bounds = BTreeMap::new();
            for id in &machine.ids {
                let of_partition = partition.mb.as_ref().and_then(|it| it.of(*id));
                let of_class = class.mb.as_ref().and_then(|it| it.of(*id));
                match class_bandwidth(machine, of_partition, of_class) {
                    Ok(bound) => {
                        bounds.insert(*id, bound);
                    }
                    Err(why) => {
                        let of = format!("class `{}`", class.name);
                        self.found.problem(&of, &format!("mbAllocation: {why}"), Some(*id));
                    }
                }
            }
            let schemata = self.lines.entry(class.name.clone()).or_default();
            schemata.insert("MB", SchemaLine::Bandwidth(bounds));
        }
        self.check_partitions_bandwidth(machine);
        self.note_unknown_bandwidth();
    }

    /// What partitions say that have no class here: they would be found wrong only with their first class.
    fn check_partitions_bandwidth(&mut self, machine: &BandwidthInfo) {
        let config = self.config;
        for partition in config.partitions.iter().filter(|it| it.classes.is_empty()) {
            let of = format!("partition `{}`", partition.name);
            for id in &machine.ids {
                let bounds = partition.mb.as_ref().and_then(|it| it.of(*id));
                if let Err(why) = class_bandwidth(machine, None, bounds) {
                    self.found.problem(&of, &format!("mbAllocation: {why}"), Some(*id));
                }
            }
        }
        let known: BTreeSet<u32> = machine.ids.iter().copied().collect();
        let partitions = config.partitions.iter();
        let rows = partitions.map(|it| (format!("partition `{}`", it.name), &it.mb));
        let rows =
            rows.chain(config.classes().map(|(_, it)| (format!("class `{}`", it.name), &it.mb)));
        for (of, mb) in rows {
            let named = mb.iter().flat_map(|it| &it.some).map(|(ids, _)| ids);
            self.note_lacking(&of, "mbAllocation", "L3", &known, named);
        }
    }

    /// Caches that are named and that the machine lacks, in whole or in part.
    fn note_lacking<'i>(
        &mut self,
        of: &str,
        key: &str,
        level: &str,
        known: &BTreeSet<u32>,
        named: impl Iterator<Item = &'i CacheIds>,
    ) {
        let shown: Vec<String> = known.iter().map(ToString::to_string).collect();
        for ids in named {
            let here = known.iter().filter(|id| ids.contains(**id)).count() as u64;
            if here < ids.len() {
                let lack = if here == 0 { "no such" } else { "not all of these" };
                let text = format!(
                    "{key} `{ids}`: this machine has {lack} {level} cache{}, but {}",
                    if here == 0 { "" } else { "s" },
                    shown.join(", ")
                );
                self.found.note(of, &text, None);
            }
        }
    }

    fn without_bandwidth(&mut self) {
        let is_optional = self.config.options.is_mb_optional;
        for (_, class) in self.config.classes().filter(|it| it.1.mb.is_some()) {
            self.lacks(&class.name, "mbAllocation", "MB", is_optional);
        }
        for partition in self.config.partitions.iter().filter(|it| it.mb.is_some()) {
            self.ignored(partition, "mbAllocation", is_optional);
        }
    }

    fn note_unknown_bandwidth(&mut self) {
        let partitions = self.config.partitions.iter();
        let rows = partitions.map(|it| (format!("partition `{}`", it.name), &it.mb));
        let classes = self.config.classes();
        let rows = rows.chain(classes.map(|(_, it)| (format!("class `{}`", it.name), &it.mb)));
        for (of, mb) in rows {
            let lists =
                mb.iter().flat_map(|it| it.all.iter().chain(it.some.iter().map(|it| &it.1)));
            for value in lists.flatten() {
                if let Bandwidth::Unknown(text) = value {
                    let text = format!(
                        "mbAllocation: `{text}` is passed over, because it is neither a percentage (\"50%\") nor a rate (\"1500MBps\")"
                    );
                    self.found.note(&of, &text, None);
                }
            }
        }
    }

    fn note_shared_bits(
        &mut self,
        level: &Level,
        cache: &CacheInfo,
        id: u32,
        granted: &Granted<'_>,
    ) {
        for (name, mask) in granted {
            let shared = mask.bits() & cache.shareable;
            if shared != 0 {
                let of = format!("partition `{name}`");
                let text = format!(
                    "{}: devices use the bits 0x{shared:x} of 0x{mask}, too (info/{}/shareable_bits)",
                    level.key, level.name
                );
                self.found.remark(&of, &text, Some(id));
            }
        }
    }

    /// Caches that the configuration names and the machine lacks.
    fn note_strangers(&mut self, level: &Level, cache: &CacheInfo) {
        let known: BTreeSet<u32> = cache.caches.keys().copied().collect();
        let partitions = self.config.partitions.iter();
        let rows = partitions.map(|it| (format!("partition `{}`", it.name), (level.partition)(it)));
        let classes = self.config.classes();
        let rows =
            rows.chain(classes.map(|(_, it)| (format!("class `{}`", it.name), (level.class)(it))));
        for (of, shares) in rows {
            let named = shares.iter().flat_map(|it| &it.some).map(|(ids, _)| ids);
            self.note_lacking(&of, level.key, level.name, &known, named);
        }
    }
}
