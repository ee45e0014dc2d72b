//! Cuts a machine into CMK's pools. In: the cores, which CPUs are isolated (`isolcpus`), how many cores each pool gets. Out: [`Pools`], and warnings.
//!
//! Where whole cores are isolated, the exclusive and the shared pool are cut from these and all others are `infra`. Where none is, all three are cut from the whole machine.
//! An exclusive pool has a list per core, the others one per package. The exclusive pool has cores with a higher base frequency (SST-BF) before others; where power is divided
//! between cores (SST-CP), `core_power.rs` says which cores a pool gets.

use std::collections::BTreeMap;

use bayplan_topology::Topology;
use bayplan_types::CpuSet;

use super::core_power::{by_preference, chooses_pools};
use super::cores::{Core, DivideError, Division, Mode, Parts, cores};
use super::{Pool, Pools, Slot};

/// The pools, and what an operator should know.
///
/// # Errors
/// There are too few cores.
pub fn divide(
    topology: &Topology,
    isolated: &CpuSet,
    division: &Division,
) -> Result<(Pools, Vec<String>), DivideError> {
    let cores = cores(topology, isolated);
    let mut warnings = Vec::new();
    for core in cores.iter().filter(|core| core.cpus.intersects(isolated) && !core.is_isolated) {
        warnings
            .push(format!("core {} is partially isolated, and counts as not isolated", core.cpus));
    }
    let isolated_count = cores.iter().filter(|core| core.is_isolated).count();
    let wanted = division.exclusive + division.shared;
    if isolated_count > 0 && isolated_count < wanted {
        return Err(DivideError::NotEnoughIsolated { isolated: isolated_count, wanted });
    }
    let has_isolated = isolated_count > 0;
    let by_power = has_isolated && chooses_pools(topology, &mut warnings)?;
    let Parts { exclusive, shared, mut infra, spare } = match by_power {
        true => by_preference(topology, cores, division)?,
        false => by_isolation(cores, has_isolated, division)?,
    };
    if !spare.is_empty() {
        warnings.push(format!("{} isolated cores are in no pool", spare.len()));
    }
    let not_their_own =
        exclusive.iter().chain(&shared).filter(|it| has_isolated && !it.is_isolated);
    warnings.extend(not_their_own.map(|core| {
        format!(
            "core {} is not isolated, and its pool is for isolated cores; see isolcpus",
            core.cpus
        )
    }));
    let mut pools = Pools::default();
    if let (Some(cpus), true) = (&division.not_isolated, has_isolated) {
        let chosen = not_isolated(&mut infra, &spare, topology, cpus)?;
        pools.pools.insert("exclusive-non-isolcpus".to_owned(), per_core(&chosen));
    }
    if infra.is_empty() {
        return Err(DivideError::NoInfra);
    }
    pools.pools.insert("exclusive".to_owned(), per_core(&exclusive));
    pools.pools.insert("shared".to_owned(), per_socket(&shared));
    pools.pools.insert("infra".to_owned(), per_socket(&infra));
    Ok((pools, warnings))
}

/// Isolated cores for both pools, or any where none is isolated.
fn by_isolation(
    cores: Vec<Core>,
    has_isolated: bool,
    division: &Division,
) -> Result<Parts, DivideError> {
    let mut free = cores;
    let usable = |core: &Core| !has_isolated || core.is_isolated;
    let any = |_: &Core| false;
    let slow = |core: &Core| !core.is_fast;
    let (wanted, mode) = (division.exclusive, division.exclusive_mode);
    let exclusive = take(&mut free, "exclusive", (wanted, mode), usable, slow)?;
    let (wanted, mode) = (division.shared, division.shared_mode);
    let shared = take(&mut free, "shared", (wanted, mode), usable, any)?;
    let (spare, infra) = free.into_iter().partition(|core| core.is_isolated);
    Ok(Parts { exclusive, shared, infra, spare })
}

/// Takes cores out of those that are free, the `late` ones when there are no others.
fn take(
    free: &mut Vec<Core>,
    pool: &'static str,
    (wanted, mode): (usize, Mode),
    usable: impl Fn(&Core) -> bool,
    late: impl Fn(&Core) -> bool,
) -> Result<Vec<Core>, DivideError> {
    let (mut open, rest): (Vec<Core>, Vec<Core>) = free.drain(..).partition(|core| usable(core));
    open.sort_by_key(&late);
    if mode == Mode::Spread {
        let mut rank: BTreeMap<u32, usize> = BTreeMap::new();
        let ranked = open.into_iter().map(|core| {
            let next = rank.entry(core.socket).or_default();
            *next += 1;
            (*next, core)
        });
        let mut ranked: Vec<(usize, Core)> = ranked.collect();
        ranked.sort_by_key(|(rank, core)| (late(core), *rank, core.socket));
        open = ranked.into_iter().map(|(_, core)| core).collect();
    }
    if open.len() < wanted {
        return Err(DivideError::NotEnough { pool, wanted, free: open.len() });
    }
    let left = open.split_off(wanted);
    *free = left.into_iter().chain(rest).collect();
    free.sort_by_key(|core| (core.socket, core.cpus.first()));
    Ok(open)
}

/// Takes the cores of these CPUs, which must be in no other pool and not isolated.
fn not_isolated(
    infra: &mut Vec<Core>,
    spare: &[Core],
    topology: &Topology,
    cpus: &CpuSet,
) -> Result<Vec<Core>, DivideError> {
    let refuse = |cpus: &CpuSet, why| Err(DivideError::NotThere { cpus: cpus.to_string(), why });
    let missing = cpus.difference(topology.cpus());
    if !missing.is_empty() {
        return refuse(&missing, "they are not on this machine");
    }
    let (chosen, rest): (Vec<Core>, Vec<Core>) =
        infra.drain(..).partition(|core| core.cpus.intersects(cpus));
    *infra = rest;
    let mut taken = cpus.clone();
    chosen.iter().chain(spare).for_each(|core| taken = taken.difference(&core.cpus));
    if !taken.is_empty() {
        return refuse(&taken, "another pool has them");
    }
    let wanted = chosen.iter().chain(spare).filter(|core| core.cpus.intersects(cpus));
    if let Some(core) = wanted.into_iter().find(|core| core.is_isolated) {
        return refuse(&core.cpus, "they are isolated");
    }
    Ok(chosen)
}

fn per_core(cores: &[Core]) -> Pool {
    let slot = |core: &Core| Slot {
        socket: Some(core.socket),
        cpus: core.cpus.clone(),
        tasks: Vec::new(),
    };
    let mut pool = Pool { is_exclusive: true, slots: cores.iter().map(slot).collect() };
    pool.sort();
    pool
}

fn per_socket(cores: &[Core]) -> Pool {
    let mut sockets: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for core in cores {
        sockets.entry(core.socket).or_default().union_with(&core.cpus);
    }
    let slots = sockets.into_iter().map(|(socket, cpus)| Slot {
        socket: Some(socket),
        cpus,
        tasks: Vec::new(),
    });
    Pool { is_exclusive: false, slots: slots.collect() }
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{PolicyFacts, derive, parse_machine};
    use bayplan_types::{CorePower, PowerDomain, SpeedSelect};
    use expect_test::{Expect, expect};

    use super::super::{directory, render_cpu_list};
    use super::*;

    /// Cores of pools as `SOCKET:LIST`, or why not.
    fn check(machine: &str, isolated: &str, division: &Division, expected: Expect) {
        let topology = derive(&parse_machine(machine).unwrap()).unwrap();
        check_topology(&topology, isolated, division, expected);
    }

    fn check_topology(topology: &Topology, isolated: &str, division: &Division, expected: Expect) {
        let isolated: CpuSet =
            if isolated.is_empty() { CpuSet::new() } else { isolated.parse().unwrap() };
        let text = match divide(topology, &isolated, division) {
            Ok((pools, warnings)) => {
                assert!(!directory(&pools).is_empty());
                let mut text = String::new();
                for (name, pool) in &pools.pools {
                    let slots = pool.slots.iter().map(|slot| {
                        format!(
                            " {}:{}",
                            slot.socket.unwrap_or_default(),
                            render_cpu_list(&slot.cpus)
                        )
                    });
                    text.push_str(&format!("{name}{}\n", slots.collect::<String>()));
                }
                text + &warnings.iter().map(|it| format!("warning: {it}\n")).collect::<String>()
            }
            Err(error) => format!("{error}\n"),
        };
        expected.assert_eq(&text);
    }

    fn cut(exclusive: usize, shared: usize, mode: Mode) -> Division {
        Division {
            exclusive,
            shared,
            exclusive_mode: mode,
            shared_mode: Mode::Packed,
            not_isolated: None,
        }
    }

    const TWO_SOCKETS: &str = "pack:2 numa:1 core:4 pu:2";

    #[test]
    fn without_isolated_cores_all_pools_come_from_the_whole_machine() {
        check(
            TWO_SOCKETS,
            "",
            &cut(3, 1, Mode::Packed),
            expect![[r#"
                exclusive 0:0,8 0:1,9 0:2,10
                infra 1:4,5,6,7,12,13,14,15
                shared 0:3,11
            "#]],
        );
        check(
            TWO_SOCKETS,
            "",
            &cut(3, 2, Mode::Spread),
            expect![[r#"
                exclusive 0:0,8 0:1,9 1:4,12
                infra 1:5,6,7,13,14,15
                shared 0:2,3,10,11
            "#]],
        );
    }

    #[test]
    fn isolated_cores_are_for_the_exclusive_and_the_shared_pool() {
        check(
            TWO_SOCKETS,
            "2-3,10-11,6,14,7",
            &cut(2, 1, Mode::Spread),
            expect![[r#"
                exclusive 0:2,10 1:6,14
                infra 0:0,1,8,9 1:4,5,7,12,13,15
                shared 0:3,11
                warning: core 7,15 is partially isolated, and counts as not isolated
            "#]],
        );
        let mut with_others = cut(1, 1, Mode::Packed);
        with_others.not_isolated = Some("0".parse().unwrap());
        check(
            TWO_SOCKETS,
            "2-3,10-11,6,14",
            &with_others,
            expect![[r#"
                exclusive 0:2,10
                exclusive-non-isolcpus 0:0,8
                infra 0:1,9 1:4,5,7,12,13,15
                shared 0:3,11
                warning: 1 isolated cores are in no pool
            "#]],
        );
    }

    #[test]
    fn cores_with_a_higher_base_frequency_are_the_first_of_the_exclusive_pool() {
        let machine = "pack:2 numa:1 core:4 pu:2 fast:2-3,10-11,6,14";
        check(
            machine,
            "",
            &cut(4, 1, Mode::Packed),
            expect![[r#"
            exclusive 0:0,8 0:2,10 0:3,11 1:6,14
            infra 1:4,5,7,12,13,15
            shared 0:1,9
        "#]],
        );
        check(
            machine,
            "",
            &cut(2, 1, Mode::Spread),
            expect![[r#"
            exclusive 0:2,10 1:6,14
            infra 0:1,3,9,11 1:4,5,7,12,13,15
            shared 0:0,8
        "#]],
        );
        check(
            machine,
            "1-2,9-10",
            &cut(1, 1, Mode::Packed),
            expect![[r#"
            exclusive 0:2,10
            infra 0:0,3,8,11 1:4,5,6,7,12,13,14,15
            shared 0:1,9
        "#]],
        );
    }

    const ISOLATED: &str = "2-3,10-11,6,14";

    /// With core power on, and preferences of cores by their lowest CPU, as `performance:1-2`.
    fn check_with_core_power(
        isolated: &str,
        (exclusive, shared): (usize, usize),
        preferences: &[&str],
        expected: Expect,
    ) {
        let domain = PowerDomain { core_power: Some(CorePower::Ordered), ..PowerDomain::default() };
        let facts = SpeedSelect { domains: vec![domain], ..SpeedSelect::default() };
        check_with_speed_select(isolated, (exclusive, shared), preferences, Ok(facts), expected);
    }

    fn check_with_speed_select(
        isolated: &str,
        (exclusive, shared): (usize, usize),
        preferences: &[&str],
        speed_select: Result<SpeedSelect, String>,
        expected: Expect,
    ) {
        let mut snapshot = parse_machine(TWO_SOCKETS).unwrap();
        snapshot.kernel.speed_select = Some(speed_select);
        snapshot.policies = preferences
            .iter()
            .zip(0..)
            .map(|(text, id)| {
                let (preference, cpus) = text.split_once(':').unwrap();
                PolicyFacts {
                    id,
                    cpus: Some(cpus.parse().unwrap()),
                    preference: Some(preference.to_owned()),
                    ..PolicyFacts::default()
                }
            })
            .collect();
        let topology = derive(&snapshot).unwrap();
        check_topology(&topology, isolated, &cut(exclusive, shared, Mode::Packed), expected);
    }

    #[test]
    fn with_core_power_three_preferences_are_the_pools() {
        check_with_core_power(
            ISOLATED,
            (2, 1),
            &["performance:2,6", "balance_performance:3", "balance_power:0-1,4-5,7"],
            expect![[r#"
                exclusive 0:2,10 1:6,14
                infra 0:0,1,8,9 1:4,5,7,12,13,15
                shared 0:3,11
            "#]],
        );
        check_with_core_power(
            "1-3,9-11,6,14",
            (2, 1),
            &["performance:2,6", "64:3", "power:0-1,4-5,7"],
            expect![[r#"
                exclusive 0:2,10 1:6,14
                infra 0:0,1,8,9 1:4,5,7,12,13,15
                shared 0:3,11
            "#]],
        );
        check_with_core_power(
            ISOLATED,
            (2, 1),
            &["performance:0,6", "balance_performance:3", "power:1-2,4-5,7"],
            expect![[r#"
                exclusive 0:0,8 1:6,14
                infra 0:1,2,9,10 1:4,5,7,12,13,15
                shared 0:3,11
                warning: core 0,8 is not isolated, and its pool is for isolated cores; see isolcpus
            "#]],
        );
    }

    #[test]
    fn with_core_power_the_first_of_two_preferences_is_for_exclusive_and_shared() {
        check_with_core_power(
            ISOLATED,
            (2, 1),
            &["balance_performance:2-3,6", "power:0-1,4-5,7"],
            expect![[r#"
                exclusive 0:2,10 0:3,11
                infra 0:0,1,8,9 1:4,5,7,12,13,15
                shared 1:6,14
            "#]],
        );
    }

    #[test]
    fn preferences_do_not_count_without_isolated_cores_or_core_power() {
        check_with_core_power(
            "",
            (3, 1),
            &["performance:0-7"],
            expect![[r#"
                exclusive 0:0,8 0:1,9 0:2,10
                infra 1:4,5,6,7,12,13,14,15
                shared 0:3,11
            "#]],
        );
        check_with_core_power(
            ISOLATED,
            (2, 1),
            &[],
            expect![[r#"
                exclusive 0:2,10 0:3,11
                infra 0:0,1,8,9 1:4,5,7,12,13,15
                shared 1:6,14
                warning: core power (SST-CP) is on, and the kernel tells no energy performance preferences, which would say the pools of cores
            "#]],
        );
        let off = PowerDomain { core_power: Some(CorePower::Off), ..PowerDomain::default() };
        let off = SpeedSelect { domains: vec![off], ..SpeedSelect::default() };
        check_with_speed_select(
            ISOLATED,
            (2, 1),
            &["performance:0-7"],
            Ok(off),
            expect![[r#"
                exclusive 0:2,10 0:3,11
                infra 0:0,1,8,9 1:4,5,7,12,13,15
                shared 1:6,14
            "#]],
        );
    }

    #[test]
    fn core_power_that_cannot_be_read_is_told() {
        let domain = PowerDomain { name: "0.0".to_owned(), ..PowerDomain::default() };
        let unread = [("0.0/core_power".to_owned(), "EIO".to_owned())].into();
        for facts in [Ok(SpeedSelect { domains: vec![domain], unread }), Err("EIO".to_owned())] {
            check_with_speed_select(
                ISOLATED,
                (2, 1),
                &["performance:0-7"],
                facts,
                expect![[r#"
                    exclusive 0:2,10 0:3,11
                    infra 0:0,1,8,9 1:4,5,7,12,13,15
                    shared 1:6,14
                    warning: whether core power (SST-CP) is on is not known: EIO
                "#]],
            );
        }
    }

    #[test]
    fn core_power_and_base_frequency_are_refused() {
        let domain = PowerDomain {
            core_power: Some(CorePower::Proportional),
            is_base_frequency_on: true,
            ..PowerDomain::default()
        };
        let facts = SpeedSelect { domains: vec![domain], ..SpeedSelect::default() };
        check_with_speed_select(
            ISOLATED,
            (2, 1),
            &["performance:2-3,6", "power:0-1,4-5,7"],
            Ok(facts),
            expect![[r#"
                base frequency (SST-BF) and core power (SST-CP) are both on, and both say which cores are for exclusive; turn one of them off
            "#]],
        );
    }

    #[test]
    fn preferences_that_make_no_pools_are_refused() {
        let rest = "balance_power:0-1,4-5,7";
        for (preferences, expected) in [
            (
                &["performance:2-3,6,0-1,4-5,7"][..],
                expect![[r#"
                    with core power (SST-CP) there must be two or three energy performance preferences among cores, one for each pool; there are: performance
                "#]],
            ),
            (
                &["performance:2", "balance_performance:3", rest, "power:6"],
                expect![[r#"
                    with core power (SST-CP) there must be two or three energy performance preferences among cores, one for each pool; there are: performance, balance_performance, balance_power, power
                "#]],
            ),
            (
                &["performance:2-3", "balance_performance:6", rest],
                expect![[r#"
                    with core power (SST-CP) cores of exclusive are all those with the energy performance preference performance: 2 have it, 1 are requested; ask for as many, or change preferences
                "#]],
            ),
            (
                &["performance:2", "balance_performance:6", "balance_power:0-1,3-5,7"],
                expect![[r#"
                    with core power (SST-CP) cores of shared are all those with the energy performance preference balance_performance: 1 have it, 2 are requested; ask for as many, or change preferences
                "#]],
            ),
            (
                &["performance:2,6", "balance_power:0-1,3-5,7"],
                expect![[r#"
                    with core power (SST-CP) cores of exclusive and shared are all those with the energy performance preference performance: 2 have it, 3 are requested; ask for as many, or change preferences
                "#]],
            ),
            (
                &["performance:2", "balance_performance:3,6", "fast:0-1,4-5,7"],
                expect![[r#"
                    with core power (SST-CP) the energy performance preference of a core says its pool, and that of CPU 0 is not known; set one that the kernel takes, such as balance_performance
                "#]],
            ),
            (
                &["performance:2", "balance_performance:3,6", "balance_power:0-1,5,7"],
                expect![[r#"
                    with core power (SST-CP) the energy performance preference of a core says its pool, and that of CPU 4 is not known; set one that the kernel takes, such as balance_performance
                "#]],
            ),
        ] {
            check_with_core_power(ISOLATED, (1, 2), preferences, expected);
        }
    }

    #[test]
    fn a_machine_that_is_too_small_is_refused() {
        for (isolated, division, expected) in [
            (
                "2,10",
                cut(2, 1, Mode::Packed),
                expect![[r#"
                    1 cores are isolated, 3 are needed for exclusive and shared; change isolcpus, or ask for fewer
                "#]],
            ),
            (
                "",
                cut(8, 1, Mode::Packed),
                expect![[r#"
                    1 cores requested for shared, only 0 available
                "#]],
            ),
            (
                "",
                cut(7, 1, Mode::Packed),
                expect![[r#"
                    no core is left for infra; ask for fewer exclusive or shared cores
                "#]],
            ),
        ] {
            check(TWO_SOCKETS, isolated, &division, expected);
        }
    }
}
