//! Caches. In: what each CPU says of its caches. Out: the caches on which all agree that share them.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::{Bytes, CpuId, CpuSet};

use crate::agree::{Agreed, Refused, agree};
use crate::snapshot::{CacheFacts, CacheKind, CpuFacts, Oddity};
use crate::topology::Cache;
use bayplan_types::fold::name_cpus;

const CPU_DIR: &str = "/sys/devices/system/cpu";
/// No processor has more levels.
const LEVEL_MAX: u32 = 4;

/// Facts of the online CPUs, by number.
pub(crate) type Facts<'a> = BTreeMap<CpuId, &'a CpuFacts>;

/// The caches that hold data, by level and lowest CPU. CPUs without one of a level are ordinary: small cores beside big ones, virtual
/// machines, old parts.
pub(crate) fn derive_caches(
    facts: &Facts<'_>,
    online: &CpuSet,
    oddities: &mut Vec<Oddity>,
) -> Vec<Cache> {
    let levels = 1..=LEVEL_MAX;
    levels.flat_map(|level| derive_level(level, facts, online, oddities)).collect()
}

fn cache_of(facts: &CpuFacts, level: u32) -> Option<&CacheFacts> {
    let holds_data = |cache: &&CacheFacts| cache.kind != Some(CacheKind::Instruction);
    facts.caches.iter().filter(holds_data).find(|cache| cache.level == Some(level))
}

fn derive_level(
    level: u32,
    facts: &Facts<'_>,
    online: &CpuSet,
    oddities: &mut Vec<Oddity>,
) -> Vec<Cache> {
    let mut claims = BTreeMap::new();
    let mut unknown = CpuSet::new();
    for (cpu, facts) in facts {
        let Some(cache) = cache_of(facts, level) else { continue };
        match cache.shared_cpus.as_ref().map(|shared| shared.intersection(online)) {
            Some(shared) if !shared.is_empty() => {
                claims.insert(*cpu, shared);
            }
            _ => {
                unknown.insert(*cpu);
            }
        }
    }
    if !unknown.is_empty() {
        let found = format!("nothing for the L{level} of {}", name_cpus(&unknown));
        let assumed = "what the CPUs that share it say";
        oddities.push(Oddity::new(file(level, "shared_cpu_list"), found, assumed));
    }
    let Agreed { groups, refused } = agree(&claims);
    oddities.extend(refused.iter().map(|refused| {
        let found = contradiction(&format!("L{level} of"), refused);
        Oddity::new(file(level, "shared_cpu_list"), found, format!("no such L{level}"))
    }));
    let caches = groups.into_iter().map(|cpus| {
        let lowest = cpus.first().map_or(0, |cpu| cpu.0);
        let said = cpus.iter().filter_map(|cpu| cache_of(facts.get(&cpu)?, level));
        let said: Vec<&CacheFacts> = said.collect();
        let ids = said.iter().filter_map(|cache| cache.id).collect();
        let id = the_lowest(level, "number", &cpus, ids, oddities).unwrap_or(lowest);
        let sizes = said.iter().filter_map(|cache| cache.size).collect();
        let size: Option<Bytes> = the_lowest(level, "size", &cpus, sizes, oddities);
        Cache { level, id, size, cpus }
    });
    caches.collect()
}

/// What the CPUs that share a cache say of it; the lowest, where they do not agree.
fn the_lowest<T: Ord + Copy + ToString>(
    level: u32,
    what: &str,
    cpus: &CpuSet,
    said: BTreeSet<T>,
    oddities: &mut Vec<Oddity>,
) -> Option<T> {
    let lowest = said.first().copied()?;
    if said.len() > 1 {
        let texts: Vec<String> = said.iter().map(ToString::to_string).collect();
        let name = if what == "size" { "size" } else { "id" };
        let found = format!(
            "several {what}s for the L{level} of {}: {}",
            name_cpus(cpus),
            texts.join(", ")
        );
        oddities.push(Oddity::new(file(level, name), found, lowest.to_string()));
    }
    Some(lowest)
}

/// Where Linux shows a cache of this level: the data half of a divided level 1 stands before the instruction half.
fn file(level: u32, name: &str) -> String {
    let index = if level == 1 { 0 } else { level };
    format!("{CPU_DIR}/cpu*/cache/index{index}/{name}")
}

/// `core of CPUs 0-1 according to CPU 0, contradicted by others`.
pub(crate) fn contradiction(what: &str, refused: &Refused) -> String {
    let (cpus, claimants) = (name_cpus(&refused.cpus), name_cpus(&refused.claimants));
    format!("{what} {cpus} according to {claimants}, contradicted by others")
}
