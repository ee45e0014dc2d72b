//! CMK's pools where power is divided between cores (Speed Select Core Power, SST-CP). In: the energy performance preference of each core. Out: which cores a pool gets.
//!
//! Three preferences are the pools exclusive, shared and infra, the one that gets the most power first; of two the first is for exclusive and shared. Cores that are asked for and cores
//! of a preference must be as many, so that no core of a pool gets less power than another one (as CMK's `cmk init` has it).

use std::collections::BTreeMap;

use bayplan_topology::{FrequencyPolicy, Topology};
use bayplan_types::{CpuId, NoCorePower};

use super::cores::{Core, DivideError, Division, Parts};

/// Cores that have one preference, as the kernel names it.
type Group<'a> = (&'a str, Vec<Core>);

/// Whether preferences say which pool a core is in, and what an operator should know of that.
///
/// # Errors
/// Base frequency is on, too.
pub(super) fn chooses_pools(
    topology: &Topology,
    warnings: &mut Vec<String>,
) -> Result<bool, DivideError> {
    if let Some(why) = unknown(topology) {
        warnings.push(format!("whether core power (SST-CP) is on is not known: {why}"));
    }
    let Some(facts) = topology.kernel().told_speed_select().filter(|it| it.divides_power()) else {
        return Ok(false);
    };
    if facts.has_base_frequency_on() {
        return Err(DivideError::BaseFrequencyAndCorePower);
    }
    let has_preferences = topology.policies().iter().any(|it| it.preference.is_some());
    if !has_preferences {
        let lacks = "the kernel tells no energy performance preferences, which would say the pools of cores";
        warnings.push(format!("core power (SST-CP) is on, and {lacks}"));
    }
    Ok(has_preferences)
}

/// Why it is not known whether core power is on.
fn unknown(topology: &Topology) -> Option<String> {
    let facts = match topology.kernel().speed_select.as_ref()? {
        Ok(facts) => facts,
        Err(why) => return Some(why.clone()),
    };
    facts.domains.iter().find_map(|domain| match facts.core_power_of(domain) {
        Err(NoCorePower::Unread(why)) => Some(why),
        _ => None,
    })
}

/// Cores by package as they come.
pub(super) fn by_preference(
    topology: &Topology,
    cores: Vec<Core>,
    division: &Division,
) -> Result<Parts, DivideError> {
    let mut groups: BTreeMap<u64, Group<'_>> = BTreeMap::new();
    for core in cores {
        let (rank, preference) = preference(topology, &core)?;
        groups.entry(rank).or_insert((preference, Vec::new())).1.push(core);
    }
    let (exclusive, shared) = (division.exclusive, division.shared);
    let mut groups: Vec<Group<'_>> = groups.into_values().collect();
    match (groups.len(), groups.pop()) {
        (2 | 3, Some((_, infra))) => {
            let mut groups = groups.into_iter();
            let first = groups.next().unwrap_or_default();
            let (exclusive, shared) = match groups.next() {
                Some(second) => {
                    (counted("exclusive", first, exclusive)?, counted("shared", second, shared)?)
                }
                None => {
                    let mut both = counted("exclusive and shared", first, exclusive + shared)?;
                    let shared = both.split_off(exclusive);
                    (both, shared)
                }
            };
            Ok(Parts { exclusive, shared, infra, spare: Vec::new() })
        }
        (_, last) => {
            let names = groups.iter().chain(&last).map(|(name, _)| *name);
            Err(DivideError::Preferences(names.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// The preference of a core and its rank; its lowest CPU speaks for it.
fn preference<'a>(topology: &'a Topology, core: &Core) -> Result<(u64, &'a str), DivideError> {
    let cpu = core.cpus.first().unwrap_or(CpuId(0));
    let policy = topology.policies().iter().find(|it| it.cpus.contains(cpu));
    let ranked = |it: &'a FrequencyPolicy| Some((it.preference_rank()?, it.preference.as_deref()?));
    policy.and_then(ranked).ok_or(DivideError::Preference(cpu))
}

/// As many as are asked for.
fn counted(
    pool: &'static str,
    (preference, cores): Group<'_>,
    wanted: usize,
) -> Result<Vec<Core>, DivideError> {
    match cores.len() == wanted {
        true => Ok(cores),
        false => Err(DivideError::PreferenceCount {
            pool,
            preference: preference.to_owned(),
            found: cores.len(),
            wanted,
        }),
    }
}
