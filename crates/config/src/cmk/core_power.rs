//! CMK's pools where power is divided between cores (Speed Select Core Power, SST-CP). In: the energy performance preference of each core. Out: which cores a pool gets.
//!
//! Three preferences are the pools exclusive, shared and infra, the one that gets the most power first; of two the first is for exclusive and shared. Cores that are asked for and cores
//! of a preference must be as many, so that no core of a pool gets less power than another one (as CMK's `cmk init` has it).

use bayplan_topology::Snapshot;
use bayplan_types::{CorePower, CpuId, PowerDomain};

use super::cores::{Core, DivideError, Division, Parts, Preferences};

/// That with the most power first (`energy_performance_available_preferences`, Documentation/admin-guide/pm/intel_pstate.rst).
const ORDER: [&str; 4] = ["performance", "balance_performance", "balance_power", "power"];

/// What a machine says of its cores; none where core power is off, or the kernel tells no preference at all.
///
/// # Errors
/// Base frequency is on, too.
pub fn preferences(snapshot: &Snapshot) -> Result<Preferences, DivideError> {
    let domains: &[PowerDomain] = match &snapshot.kernel.speed_select {
        Some(Ok(facts)) => &facts.domains,
        _ => &[],
    };
    let divides = |it: &PowerDomain| it.core_power.is_some_and(|way| way != CorePower::Off);
    if !domains.iter().any(divides) {
        return Ok(Preferences::new());
    }
    if domains.iter().any(|it| it.is_base_frequency_on) {
        return Err(DivideError::BaseFrequencyAndCorePower);
    }
    let mut preferences = Preferences::new();
    for policy in &snapshot.policies {
        let Some(preference) = &policy.preference else { continue };
        match &policy.cpus {
            Some(cpus) => preferences.extend(cpus.iter().map(|cpu| (cpu, preference.clone()))),
            None => drop(preferences.insert(CpuId(policy.id), preference.clone())),
        }
    }
    Ok(preferences)
}

/// Cores by package as they come.
pub(super) fn by_preference(cores: Vec<Core>, division: &Division) -> Result<Parts, DivideError> {
    let mut groups: [Vec<Core>; ORDER.len()] = Default::default();
    for core in cores {
        let rank = rank(&core, &division.preferences)?;
        groups[rank].push(core);
    }
    let named = ORDER.into_iter().zip(groups);
    let mut present: Vec<(&str, Vec<Core>)> = named.filter(|(_, it)| !it.is_empty()).collect();
    let names: Vec<&str> = present.iter().map(|(name, _)| *name).collect();
    if !(2..=3).contains(&present.len()) {
        return Err(DivideError::Preferences(names.join(", ")));
    }
    let free = present.pop().map(|(_, cores)| cores).unwrap_or_default();
    let (wanted, others) = (division.exclusive, division.shared);
    let mut present = present.into_iter();
    match (present.next(), present.next()) {
        (Some(exclusive), Some(shared)) => Ok(Parts {
            exclusive: counted("exclusive", exclusive, wanted)?,
            shared: counted("shared", shared, others)?,
            free,
        }),
        (both, _) => {
            let both = both.unwrap_or_default();
            let mut exclusive = counted("exclusive and shared", both, wanted + others)?;
            let shared = exclusive.split_off(wanted);
            Ok(Parts { exclusive, shared, free })
        }
    }
}

/// Where the preference of a core stands; its lowest CPU speaks for it.
fn rank(core: &Core, preferences: &Preferences) -> Result<usize, DivideError> {
    let cpu = core.cpus.first().unwrap_or(CpuId(0));
    let found = preferences.get(&cpu).map_or("not told", String::as_str);
    let rank = ORDER.iter().position(|it| *it == found);
    rank.ok_or_else(|| DivideError::Preference { cpu, found: found.to_owned() })
}

/// As many as are asked for.
fn counted(
    pool: &'static str,
    (preference, cores): (&str, Vec<Core>),
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
