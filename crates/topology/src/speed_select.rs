//! What classes of service make of CPUs. In: what Speed Select says. Out: which CPUs the processor treats better than others.

use std::collections::BTreeSet;

use bayplan_types::{CorePower, CpuSet, PowerCore, PowerDomain, SpeedSelect};

/// With turbo frequency on, the processor has high turbo for these (Documentation/admin-guide/pm/intel-speed-select.rst, "Intel(R) Speed Select Technology - Turbo Frequency").
const CLOS_OF_TURBO: u8 = 1;

/// CPUs among these of high and of low priority; `None`: the classes do not tell them apart.
///
/// With turbo frequency (SST-TF) on, cores of classes 0 and 1 are high and the others low. With core power (SST-CP) on, those of the best class in use are high and those of the worst low: by number
/// where classes are ordered, by weight where power is divided in proportion.
pub(crate) fn priorities_of_classes(
    facts: &SpeedSelect,
    among: &CpuSet,
) -> Option<(CpuSet, CpuSet)> {
    let cores: Vec<(&PowerDomain, &PowerCore, u8)> = facts
        .domains
        .iter()
        .flat_map(|domain| domain.cores.iter().map(move |core| (domain, core)))
        // Without core power there are no classes, whatever the registers say.
        .filter(|(domain, core)| domain.core_power.is_some() && core.cpus.intersects(among))
        .filter_map(|(domain, core)| Some((domain, core, core.clos?)))
        .collect();
    let by_turbo = cores.iter().filter(|(domain, ..)| domain.is_turbo_frequency_on);
    let by_turbo = by_turbo.map(|(_, core, clos)| (u8::from(*clos > CLOS_OF_TURBO), &core.cpus));
    ends(by_turbo, among).or_else(|| by_power(&cores, among))
}

/// Numbers and weights are not compared: domains that divide power in one way are told apart among themselves.
fn by_power(cores: &[(&PowerDomain, &PowerCore, u8)], among: &CpuSet) -> Option<(CpuSet, CpuSet)> {
    let of_way = |way: CorePower| {
        let cores = cores.iter().filter(|(domain, ..)| domain.core_power == Some(way));
        ends(
            cores.filter_map(|(domain, core, clos)| Some((rank(domain, *clos)?, &core.cpus))),
            among,
        )
    };
    let ways = CorePower::ALL.into_iter().filter_map(of_way);
    ways.reduce(|(high, low), (other, lower)| (high.union(&other), low.union(&lower)))
}

/// The lower, the better.
fn rank(domain: &PowerDomain, clos: u8) -> Option<u8> {
    match domain.core_power? {
        CorePower::Off => None,
        CorePower::Ordered => Some(clos),
        CorePower::Proportional => domain.clos.get(usize::from(clos)).map(|it| it.weight),
    }
}

/// Those of the lowest and those of the highest rank.
fn ends<'a>(
    ranked: impl Iterator<Item = (u8, &'a CpuSet)>,
    among: &CpuSet,
) -> Option<(CpuSet, CpuSet)> {
    let ranked: Vec<(u8, &CpuSet)> = ranked.collect();
    let ranks: BTreeSet<u8> = ranked.iter().map(|(rank, _)| *rank).collect();
    let (best, worst) = (ranks.first()?, ranks.last()?);
    let of = |end: u8| {
        let mut cpus = CpuSet::new();
        ranked.iter().filter(|(rank, _)| *rank == end).for_each(|(_, it)| cpus.union_with(it));
        cpus.intersection(among)
    };
    (best < worst).then(|| (of(*best), of(*worst)))
}

#[cfg(test)]
mod tests {
    use bayplan_types::ClosLimits;

    use super::*;

    /// Cores of two threads each with these classes; which CPUs among these are high and low.
    #[track_caller]
    fn check(
        power: CorePower,
        is_turbo_frequency_on: bool,
        classes: &[u8],
        among: &str,
        expected: Option<[&str; 2]>,
    ) {
        let core = |(number, clos): (u16, &u8)| {
            let first = u32::from(number) * 2;
            let cpus = format!("{first}-{}", first + 1).parse().unwrap();
            PowerCore { number, cpus, clos: Some(*clos) }
        };
        let weights = [0, 0, 9, 15];
        let limits = |weight| ClosLimits { weight, ..ClosLimits::default() };
        let domain = PowerDomain {
            core_power: Some(power),
            is_turbo_frequency_on,
            clos: weights.map(limits).to_vec(),
            cores: (0..).zip(classes).map(core).collect(),
            ..PowerDomain::default()
        };
        let facts = SpeedSelect { domains: vec![domain], ..SpeedSelect::default() };
        let found = priorities_of_classes(&facts, &among.parse().unwrap());
        let found = found.map(|(high, low)| [high.to_string(), low.to_string()]);
        assert_eq!(found, expected.map(|it| it.map(str::to_owned)));
    }

    #[test]
    fn the_best_class_in_use_is_high_and_the_worst_is_low() {
        use CorePower::{Off, Ordered, Proportional};
        check(Ordered, false, &[1, 2, 3], "0-5", Some(["0-1", "4-5"]));
        check(Ordered, false, &[1, 2, 3], "0-3", Some(["0-1", "2-3"]));
        check(Ordered, false, &[1, 2, 3], "1-3", Some(["1", "2-3"]));
        check(Ordered, false, &[0, 0, 0], "0-5", None);
        check(Off, false, &[0, 1, 3], "0-5", None);
        // By weight, classes 0 and 1 are the same here.
        check(Proportional, false, &[0, 1, 3], "0-5", Some(["0-3", "4-5"]));
        check(Proportional, false, &[0, 1, 1], "0-5", None);
        check(Ordered, true, &[0, 1, 2], "0-5", Some(["0-3", "4-5"]));
        // Turbo frequency tells nothing, so core power does.
        check(Ordered, true, &[0, 1, 1], "0-5", Some(["0-1", "2-5"]));
        check(Off, true, &[2, 3, 3], "0-5", None);
        check(Ordered, false, &[], "0-5", None);
    }

    /// Power domains, each with how it divides, whether turbo frequency is on, and the classes of its cores of one CPU each; weights are those of the numbers, times five.
    #[track_caller]
    fn check_domains(domains: &[(Option<CorePower>, bool, &[u8])], expected: Option<[&str; 2]>) {
        let mut cpus = 0..;
        let mut domain = |&(core_power, is_turbo_frequency_on, classes): &(_, bool, &[u8])| {
            let core = |(number, clos): (u16, &u8)| {
                let cpu: u32 = cpus.next().unwrap();
                PowerCore { number, cpus: cpu.to_string().parse().unwrap(), clos: Some(*clos) }
            };
            let weight = |number: u8| ClosLimits { weight: number * 5, ..ClosLimits::default() };
            PowerDomain {
                core_power,
                is_turbo_frequency_on,
                clos: (0..4).map(weight).collect(),
                cores: (0..).zip(classes).map(core).collect(),
                ..PowerDomain::default()
            }
        };
        let domains = domains.iter().map(&mut domain).collect();
        let facts = SpeedSelect { domains, ..SpeedSelect::default() };
        let found = priorities_of_classes(&facts, &"0-99".parse().unwrap());
        let found = found.map(|(high, low)| [high.to_string(), low.to_string()]);
        assert_eq!(found, expected.map(|it| it.map(str::to_owned)));
    }

    #[test]
    fn every_power_domain_counts_as_it_divides() {
        use CorePower::{Off, Ordered, Proportional};
        let ordered = (Some(Ordered), false, &[0, 3][..]);
        check_domains(&[ordered, ordered], Some(["0,2", "1,3"]));
        check_domains(&[ordered, (Some(Off), false, &[0, 3])], Some(["0", "1"]));
        check_domains(&[ordered, (None, false, &[0, 3])], Some(["0", "1"]));
        // A weight of 15 is not worse than class 3.
        check_domains(&[ordered, (Some(Proportional), false, &[0, 3])], Some(["0,2", "1,3"]));
        // Without core power there are no classes that turbo frequency could tell apart.
        check_domains(&[(None, true, &[0, 3])], None);
        check_domains(&[ordered, (None, true, &[0, 3])], Some(["0", "1"]));
    }
}
