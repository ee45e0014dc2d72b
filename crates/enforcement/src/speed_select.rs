//! Classes of service of Intel Speed Select. In: classes of CPUs, what is wanted of classes of service, what the processor has, and which CPUs have which class. Out: settings, and what of
//! it cannot be had here, in words.
//!
//! Threads of a core have one class of service: the lowest number that any of them asks counts, so that no container is slowed down by the class of another. Limits are those of the whole machine;
//! they are set wherever they are configured, whether a class of CPUs asks for them or not, because other cores may have them. What is not asked stays as it was.
//! Guarantees: only domains and cores that were found are named, and of these only such as have core power; core power is written after all classes and cores ([`Form::Gate`]).
//! The settings, by name, are those of the crate `isst`; what they mean: Documentation/admin-guide/pm/intel-speed-select.rst, "Intel(R) Speed Select Technology - Core Power".

use std::collections::BTreeMap;

use bayplan_types::fold::name_cpus;
use bayplan_types::{
    CLOS_MHZ_STEP, CORE_POWER, CorePower, CpuSet, NoCorePower, PowerCore, PowerDomain,
    SPEED_SELECT_DEVICE, SpeedSelect,
};

use crate::power::PowerClass;
use crate::setting::{Form, Setting, Settings, Slot};

/// Where the configuration says how power is divided.
const KEY: &str = "cpuClasses.speedSelect.corePower";

/// What is wanted of a class of service. What is `None` stays as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosWish {
    /// The lowest frequency, in MHz.
    pub min_mhz: Option<u32>,
    /// The highest frequency, in MHz.
    pub max_mhz: Option<u32>,
    /// 0 to 15; the lower, the more it gets where power is divided in proportion.
    pub weight: Option<u8>,
}

/// What is wanted of Speed Select on the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeedSelectWish {
    /// How power that is short is divided between classes of service.
    pub core_power: Option<CorePower>,
    /// By number.
    pub clos: BTreeMap<u8, ClosWish>,
}

impl SpeedSelectWish {
    /// Nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == SpeedSelectWish::default()
    }
}

/// Settings for all cores with a CPU of a class that names a class of service, and for all domains. `assigned` says for classes by name which CPUs these are; they must not overlap. `offer` is
/// what the processor has; `None`: there is no device; or why it cannot be asked.
pub fn settings_for_speed_select(
    classes: &BTreeMap<String, PowerClass>,
    wish: &SpeedSelectWish,
    offer: Option<&Result<SpeedSelect, String>>,
    assigned: &BTreeMap<String, CpuSet>,
) -> (Settings, Vec<String>) {
    let asked = Asked::of(classes, assigned);
    if wish.is_empty() && asked.0.is_empty() {
        return (Settings::new(), Vec::new());
    }
    let facts = match offer {
        Some(Ok(facts)) => facts,
        Some(Err(why)) => return (Settings::new(), vec![format!("Speed Select: {why}")]),
        None => {
            let why = format!(
                "Speed Select: there is no /{SPEED_SELECT_DEVICE}; the processor has none, or the driver isst_tpmi is not loaded"
            );
            return (Settings::new(), vec![why]);
        }
    };
    let (mut settings, mut problems) = (Settings::new(), Vec::new());
    let unread = facts.unread_in_words();
    problems.extend(unread.iter().map(|it| format!("Speed Select: cannot read {it}")));
    let mut reached = CpuSet::new();
    for domain in &facts.domains {
        domain.cores.iter().for_each(|core| reached.union_with(&core.cpus));
        let here = Here { domain, asked: &asked, wish };
        match facts.core_power_of(domain) {
            Ok(now) => {
                let cores = domain.cores.iter();
                cores.for_each(|core| asked.core(domain, core, &mut settings, &mut problems));
                here.limits(&mut settings);
                problems.extend(here.without_effect(now));
            }
            Err(why) => problems.extend(here.lost(&why)),
        }
    }
    for (name, clos, cpus) in &asked.0 {
        let missed = cpus.difference(&reached);
        if !missed.is_empty() {
            let cpus = name_cpus(&missed);
            problems.push(format!(
                "class \"{name}\" on {cpus}: class of service {clos}: Speed Select does not know them"
            ));
        }
    }
    (settings, problems)
}

/// Classes of CPUs that name a class of service: name, number, CPUs.
struct Asked<'a>(Vec<(&'a str, u8, &'a CpuSet)>);

impl<'a> Asked<'a> {
    fn of(
        classes: &'a BTreeMap<String, PowerClass>,
        assigned: &'a BTreeMap<String, CpuSet>,
    ) -> Asked<'a> {
        let asked = assigned.iter().filter(|(_, cpus)| !cpus.is_empty());
        let asked = asked.filter_map(|(name, cpus)| {
            Some((name.as_str(), classes.get(name).and_then(|it| it.clos)?, cpus))
        });
        Asked(asked.collect())
    }

    fn cpus_in(&self, domain: &PowerDomain) -> CpuSet {
        let mut cpus = CpuSet::new();
        for core in &domain.cores {
            self.0.iter().for_each(|(.., it)| cpus.union_with(&it.intersection(&core.cpus)));
        }
        cpus
    }

    fn core(
        &self,
        domain: &PowerDomain,
        core: &PowerCore,
        settings: &mut Settings,
        problems: &mut Vec<String>,
    ) {
        let here = || self.0.iter().filter(|(.., cpus)| cpus.intersects(&core.cpus));
        let Some((best, clos, _)) = here().min_by_key(|(_, clos, _)| *clos) else { return };
        for (name, other, cpus) in here().filter(|(_, other, _)| other != clos) {
            let cpus = name_cpus(&cpus.intersection(&core.cpus));
            problems.push(format!(
                "class \"{name}\" on {cpus}: class of service {other}: class \"{best}\" has {clos} on the same core, which counts"
            ));
        }
        let path = format!("{SPEED_SELECT_DEVICE}/{}/core{}/clos", domain.name, core.number);
        let reason = format!("class \"{best}\": class of service");
        put(settings, path, Form::Text, clos.to_string(), name_cpus(&core.cpus), reason);
    }
}

/// A power domain, and what is wanted there.
struct Here<'a> {
    domain: &'a PowerDomain,
    asked: &'a Asked<'a>,
    wish: &'a SpeedSelectWish,
}

impl Here<'_> {
    /// Of classes of service, and how power is divided.
    fn limits(&self, settings: &mut Settings) {
        let Here { domain, wish, .. } = self;
        let dir = format!("{SPEED_SELECT_DEVICE}/{}", domain.name);
        let unit = || format!("power domain {}", domain.name);
        for (number, ClosWish { min_mhz, max_mhz, weight }) in &wish.clos {
            let dir = format!("{dir}/clos{number}");
            let reason = |what: &str| format!("class of service {number}: {what}");
            let whole = |mhz: &u32| (mhz / CLOS_MHZ_STEP * CLOS_MHZ_STEP).to_string();
            if let Some(mhz) = min_mhz {
                let form = Form::Lowest { highest: format!("{dir}/max_mhz") };
                let path = format!("{dir}/min_mhz");
                put(settings, path, form, whole(mhz), unit(), reason("lowest frequency"));
            }
            if let Some(mhz) = max_mhz {
                let path = format!("{dir}/max_mhz");
                put(settings, path, Form::Highest, whole(mhz), unit(), reason("highest frequency"));
            }
            if let Some(weight) = weight {
                let path = format!("{dir}/weight");
                put(settings, path, Form::Text, weight.to_string(), unit(), reason("weight"));
            }
        }
        if let Some(power) = wish.core_power {
            let path = format!("{dir}/{CORE_POWER}");
            let reason = "how power is divided".to_owned();
            put(settings, path, Form::Gate, power.to_string(), unit(), reason);
        }
    }

    /// What is wanted of a domain that has no core power, or of which that is not known.
    fn lost(&self, why: &NoCorePower) -> Option<String> {
        let cpus = self.asked.cpus_in(self.domain);
        let name = &self.domain.name;
        match cpus.is_empty() {
            true if self.wish.is_empty() => None,
            true => Some(format!("power domain {name}: {why}")),
            false => Some(format!(
                "power domain {name}: {why}; no class of service for {}",
                name_cpus(&cpus)
            )),
        }
    }

    /// What core power that is off, or is being switched off, leaves without effect.
    fn without_effect(&self, now: CorePower) -> Vec<String> {
        let Here { domain, asked, wish } = self;
        let mut told = Vec::new();
        if wish.core_power.unwrap_or(now) != CorePower::Off {
            return told;
        }
        let name = &domain.name;
        let (why, is_wish) = match wish.core_power {
            Some(_) => (format!("in power domain {name}: {KEY} is off"), true),
            None => (format!("core power is off in power domain {name}; name {KEY}"), false),
        };
        let link = if is_wish { " " } else { ": " };
        if is_wish && now != CorePower::Off {
            told.push(format!("core power, which was {now}, is switched off {why}"));
        }
        if is_wish && domain.is_turbo_frequency_on {
            told.push(format!(
                "turbo frequency, which is on and needs core power, is without it {why}"
            ));
        }
        let cpus = asked.cpus_in(domain);
        if !cpus.is_empty() {
            let cpus = name_cpus(&cpus);
            told.push(format!("classes of service of {cpus} have no effect{link}{why}"));
        }
        if !wish.clos.is_empty() {
            told.push(format!("limits of classes of service have no effect{link}{why}"));
        }
        told
    }
}

fn put(
    settings: &mut Settings,
    path: String,
    form: Form,
    value: String,
    unit: String,
    reason: String,
) {
    settings.insert(Slot::file(path), Setting { form, value, unit, reason });
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Two domains of two cores with two threads each; the second has core power off.
    fn facts() -> SpeedSelect {
        let core =
            |number, cpus: &str| PowerCore { number, cpus: cpus.parse().unwrap(), clos: Some(0) };
        let domain = |name: &str, core_power, cores| PowerDomain {
            name: name.to_owned(),
            core_power,
            cores,
            ..PowerDomain::default()
        };
        let first = vec![core(0, "0,4"), core(3, "1,5")];
        let second = vec![core(0, "2,6"), core(1, "3,7")];
        let on = domain("0.0", Some(CorePower::Ordered), first);
        let domains = vec![on, domain("0.1", Some(CorePower::Off), second)];
        SpeedSelect { domains, ..SpeedSelect::default() }
    }

    /// Classes with a class of service, or without one, and their CPUs; what is wanted; the settings and the problems.
    #[track_caller]
    fn check(
        classes: &[(&str, Option<u8>, &str)],
        wish: &SpeedSelectWish,
        offer: Option<&Result<SpeedSelect, String>>,
        expected: Expect,
    ) {
        let of = |clos| PowerClass { clos, ..PowerClass::default() };
        let known = classes.iter().map(|(name, clos, _)| ((*name).to_owned(), of(*clos))).collect();
        let assigned = classes.iter();
        let assigned = assigned.map(|(name, _, cpus)| ((*name).to_owned(), cpus.parse().unwrap()));
        let assigned = assigned.collect();
        let (settings, problems) = settings_for_speed_select(&known, wish, offer, &assigned);
        let lines = settings.iter().map(|(slot, Setting { value, unit, reason, .. })| {
            let path = slot.path.strip_prefix(SPEED_SELECT_DEVICE).unwrap();
            format!("{path} {value} ({unit}: {reason})\n")
        });
        let problems = problems.iter().map(|it| format!("! {it}\n"));
        expected.assert_eq(&lines.chain(problems).collect::<String>());
    }

    #[test]
    fn cores_have_the_class_of_service_of_their_cpus() {
        let ordered =
            SpeedSelectWish { core_power: Some(CorePower::Ordered), ..SpeedSelectWish::default() };
        check(
            &[("fast", Some(0), "0"), ("none", None, "1"), ("slow", Some(3), "2-5")],
            &ordered,
            Some(&Ok(facts())),
            expect![[r#"
                /0.0/core0/clos 0 (CPUs 0,4: class "fast": class of service)
                /0.0/core3/clos 3 (CPUs 1,5: class "slow": class of service)
                /0.0/core_power ordered (power domain 0.0: how power is divided)
                /0.1/core0/clos 3 (CPUs 2,6: class "slow": class of service)
                /0.1/core1/clos 3 (CPUs 3,7: class "slow": class of service)
                /0.1/core_power ordered (power domain 0.1: how power is divided)
                ! class "slow" on CPU 4: class of service 3: class "fast" has 0 on the same core, which counts
            "#]],
        );
        check(&[("fast", Some(0), "")], &SpeedSelectWish::default(), None, expect![[r#""#]]);
        check(&[("none", None, "0-7")], &SpeedSelectWish::default(), None, expect![[r#""#]]);
    }

    #[test]
    fn limits_are_set_in_every_domain() {
        let slow = ClosWish { min_mhz: Some(850), max_mhz: Some(2000), weight: Some(15) };
        let fast = ClosWish { min_mhz: Some(2400), ..ClosWish::default() };
        let clos = [(0, fast), (3, slow)].into();
        let wish = SpeedSelectWish { core_power: Some(CorePower::Proportional), clos };
        check(
            &[],
            &wish,
            Some(&Ok(facts())),
            expect![[r#"
            /0.0/clos0/min_mhz 2400 (power domain 0.0: class of service 0: lowest frequency)
            /0.0/clos3/max_mhz 2000 (power domain 0.0: class of service 3: highest frequency)
            /0.0/clos3/min_mhz 800 (power domain 0.0: class of service 3: lowest frequency)
            /0.0/clos3/weight 15 (power domain 0.0: class of service 3: weight)
            /0.0/core_power proportional (power domain 0.0: how power is divided)
            /0.1/clos0/min_mhz 2400 (power domain 0.1: class of service 0: lowest frequency)
            /0.1/clos3/max_mhz 2000 (power domain 0.1: class of service 3: highest frequency)
            /0.1/clos3/min_mhz 800 (power domain 0.1: class of service 3: lowest frequency)
            /0.1/clos3/weight 15 (power domain 0.1: class of service 3: weight)
            /0.1/core_power proportional (power domain 0.1: how power is divided)
        "#]],
        );
    }

    #[test]
    fn what_cannot_be_had_is_told() {
        let nothing = SpeedSelectWish::default();
        let asked = [("fast", Some(0), "0,2,9")];
        check(
            &asked,
            &nothing,
            Some(&Ok(facts())),
            expect![[r#"
            /0.0/core0/clos 0 (CPUs 0,4: class "fast": class of service)
            /0.1/core0/clos 0 (CPUs 2,6: class "fast": class of service)
            ! classes of service of CPU 2 have no effect: core power is off in power domain 0.1; name cpuClasses.speedSelect.corePower
            ! class "fast" on CPU 9: class of service 0: Speed Select does not know them
        "#]],
        );
        check(
            &asked,
            &nothing,
            Some(&Err("it refuses".to_owned())),
            expect![[r#"
            ! Speed Select: it refuses
        "#]],
        );
        check(
            &asked,
            &nothing,
            None,
            expect![[r#"
            ! Speed Select: there is no /dev/isst_interface; the processor has none, or the driver isst_tpmi is not loaded
        "#]],
        );
    }

    /// Cores of a domain without core power had a class of service set; a read that failed was told as a processor that has none.
    #[test]
    fn a_domain_without_core_power_is_left_alone_and_the_other_is_not() {
        let wish =
            SpeedSelectWish { core_power: Some(CorePower::Ordered), ..SpeedSelectWish::default() };
        let asked = [("fast", Some(0), "0,2")];
        let mut facts = facts();
        facts.domains[1].core_power = None;
        check(
            &asked,
            &wish,
            Some(&Ok(facts.clone())),
            expect![[r#"
            /0.0/core0/clos 0 (CPUs 0,4: class "fast": class of service)
            /0.0/core_power ordered (power domain 0.0: how power is divided)
            ! power domain 0.1: the processor has no core power there; no class of service for CPU 2
        "#]],
        );
        check(
            &[],
            &wish,
            Some(&Ok(facts.clone())),
            expect![[r#"
            /0.0/core_power ordered (power domain 0.0: how power is divided)
            ! power domain 0.1: the processor has no core power there
        "#]],
        );
        // Nothing is wanted there.
        let other = [("fast", Some(0), "0")];
        check(
            &other,
            &SpeedSelectWish::default(),
            Some(&Ok(facts.clone())),
            expect![[r#"
            /0.0/core0/clos 0 (CPUs 0,4: class "fast": class of service)
        "#]],
        );
        facts.unread.insert("0.1/core_power".to_owned(), "EIO".to_owned());
        check(
            &asked,
            &wish,
            Some(&Ok(facts)),
            expect![[r#"
            /0.0/core0/clos 0 (CPUs 0,4: class "fast": class of service)
            /0.0/core_power ordered (power domain 0.0: how power is divided)
            ! Speed Select: cannot read 0.1/core_power: EIO
            ! power domain 0.1: core power cannot be read: EIO; no class of service for CPU 2
        "#]],
        );
    }

    #[test]
    fn core_power_that_is_switched_off_is_told() {
        let off =
            SpeedSelectWish { core_power: Some(CorePower::Off), ..SpeedSelectWish::default() };
        let mut facts = facts();
        check(
            &[],
            &off,
            Some(&Ok(facts.clone())),
            expect![[r#"
            /0.0/core_power off (power domain 0.0: how power is divided)
            /0.1/core_power off (power domain 0.1: how power is divided)
            ! core power, which was ordered, is switched off in power domain 0.0: cpuClasses.speedSelect.corePower is off
        "#]],
        );
        facts.domains[0].is_turbo_frequency_on = true;
        let clos = [(3, ClosWish { weight: Some(15), ..ClosWish::default() })].into();
        let limited = SpeedSelectWish { clos, ..off };
        check(
            &[("fast", Some(0), "0,2")],
            &limited,
            Some(&Ok(facts.clone())),
            expect![[r#"
            /0.0/clos3/weight 15 (power domain 0.0: class of service 3: weight)
            /0.0/core0/clos 0 (CPUs 0,4: class "fast": class of service)
            /0.0/core_power off (power domain 0.0: how power is divided)
            /0.1/clos3/weight 15 (power domain 0.1: class of service 3: weight)
            /0.1/core0/clos 0 (CPUs 2,6: class "fast": class of service)
            /0.1/core_power off (power domain 0.1: how power is divided)
            ! core power, which was ordered, is switched off in power domain 0.0: cpuClasses.speedSelect.corePower is off
            ! turbo frequency, which is on and needs core power, is without it in power domain 0.0: cpuClasses.speedSelect.corePower is off
            ! classes of service of CPU 0 have no effect in power domain 0.0: cpuClasses.speedSelect.corePower is off
            ! limits of classes of service have no effect in power domain 0.0: cpuClasses.speedSelect.corePower is off
            ! classes of service of CPU 2 have no effect in power domain 0.1: cpuClasses.speedSelect.corePower is off
            ! limits of classes of service have no effect in power domain 0.1: cpuClasses.speedSelect.corePower is off
        "#]],
        );
        let nothing_said = SpeedSelectWish { core_power: None, ..limited };
        check(
            &[],
            &nothing_said,
            Some(&Ok(facts)),
            expect![[r#"
            /0.0/clos3/weight 15 (power domain 0.0: class of service 3: weight)
            /0.1/clos3/weight 15 (power domain 0.1: class of service 3: weight)
            ! limits of classes of service have no effect: core power is off in power domain 0.1; name cpuClasses.speedSelect.corePower
        "#]],
        );
    }
}
