//! What a node has of Intel Speed Select, and whether the configuration wants what it does not have. In: a configuration, the device. Out: a finding.

use bayplan_enforcement::speed_select::SpeedSelectWish;
use bayplan_types::{CorePower, NoCorePower, PowerDomain, SPEED_SELECT_DEVICE, SpeedSelect};

use crate::config::{Config, CpuClasses};
use crate::finding::Finding;
use crate::node_kernel::{Asked, ask_speed_select};

const REMEDY: &str =
    "leave out `clos` of CPU classes and cpuClasses.speedSelect, or mend what refuses";
const KEY: &str = "cpuClasses.speedSelect.corePower";

/// The device is asked as the daemon asks it; the daemon's own rights may be others.
pub(crate) fn check_speed_select(config: &Config) -> Finding {
    found(&ask_speed_select(&config.host_root), &config.cpu_classes)
}

fn found(asked: &Asked, classes: &CpuClasses) -> Finding {
    let wish = &classes.speed_select;
    let has_classes = classes.classes.values().any(|class| class.clos.is_some());
    let (said, lacks) = match asked {
        Some(Ok(facts)) => (in_words(facts, wish), lacks(facts, wish, has_classes)),
        Some(Err(why)) => (String::new(), vec![why.clone()]),
        None => (
            String::new(),
            vec![format!(
                "there is no /{SPEED_SELECT_DEVICE}: the processor has none, or the driver isst_tpmi is not loaded"
            )],
        ),
    };
    let is_wanted = has_classes || !wish.is_empty();
    let is_short = is_wanted && !lacks.is_empty();
    let all: Vec<String> =
        Some(said).filter(|it| !it.is_empty()).into_iter().chain(lacks).collect();
    let message = all.join("; ");
    match is_short {
        true => Finding::warning("speed-select", message, REMEDY),
        false => Finding::ok("speed-select", message),
    }
}

/// What of it could not be read, or does not do what may be wanted.
fn lacks(facts: &SpeedSelect, wish: &SpeedSelectWish, has_classes: bool) -> Vec<String> {
    let mut lacks: Vec<String> =
        facts.unread_in_words().iter().map(|it| format!("cannot read {it}")).collect();
    let names = |is_it: &dyn Fn(&PowerDomain) -> bool| {
        let names = facts.domains.iter().filter(|it| is_it(it)).map(|it| it.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let missing = names(&|it| facts.core_power_of(it) == Err(NoCorePower::Missing));
    if !missing.is_empty() {
        lacks.push(format!("no core power in power domain {missing}"));
    }
    let off = names(&|it| it.core_power == Some(CorePower::Off));
    if has_classes || !wish.clos.is_empty() {
        match wish.core_power {
            Some(CorePower::Off) => {
                lacks.push(format!("classes of service have no effect: {KEY} is off"));
            }
            None if !off.is_empty() => lacks.push(format!(
                "classes of service have no effect in power domain {off}, where core power is off; name {KEY}"
            )),
            _ => {}
        }
    }
    lacks
}

fn in_words(facts: &SpeedSelect, wish: &SpeedSelectWish) -> String {
    let count = facts.domains.len();
    let on = |is_on: &dyn Fn(&PowerDomain) -> bool| match facts
        .domains
        .iter()
        .filter(|domain| is_on(domain))
        .count()
    {
        0 => "off".to_owned(),
        all if all == count => "on".to_owned(),
        some => format!("on in {some}"),
    };
    let way = |domain| match facts.core_power_of(domain) {
        Ok(way) => way.name(),
        Err(NoCorePower::Missing) => "missing",
        Err(NoCorePower::Unread(_)) => "not known",
    };
    let mut ways: Vec<&str> = facts.domains.iter().map(way).collect();
    ways.sort_unstable();
    ways.dedup();
    let domains = if count == 1 { "domain" } else { "domains" };
    let by = match wish.core_power {
        Some(CorePower::Off) => format!(" ({KEY} is off)"),
        _ => String::new(),
    };
    format!(
        "{count} power {domains}: core power {}{by}, base frequency {}, turbo frequency {}",
        ways.join(" and "),
        on(&|it| it.is_base_frequency_on),
        on(&|it| it.is_turbo_frequency_on)
    )
}

#[cfg(test)]
mod tests {
    use bayplan_enforcement::power::PowerClass;

    use super::*;
    use crate::finding::Severity;

    /// Core power of two power domains, with turbo frequency on in the first.
    fn here(powers: [Option<CorePower>; 2]) -> SpeedSelect {
        let domain = |(name, core_power): (&str, _)| PowerDomain {
            name: name.to_owned(),
            core_power,
            is_turbo_frequency_on: name == "0.0",
            ..PowerDomain::default()
        };
        let domains = ["0.0", "0.1"].into_iter().zip(powers).map(domain).collect();
        SpeedSelect { domains, ..SpeedSelect::default() }
    }

    /// What is asked of core power, and whether a class of CPUs names a class of service.
    #[track_caller]
    fn check(
        asked: &Asked,
        core_power: Option<CorePower>,
        has_classes: bool,
        severity: Severity,
        words: &str,
    ) {
        let mut classes = CpuClasses::default();
        classes.speed_select.core_power = core_power;
        let clos = has_classes.then_some(0);
        classes.classes.insert("a".to_owned(), PowerClass { clos, ..PowerClass::default() });
        let found = found(asked, &classes);
        assert_eq!((found.severity, found.message.as_str()), (severity, words));
    }

    const ORDERED: Option<CorePower> = Some(CorePower::Ordered);
    const OFF: Option<CorePower> = Some(CorePower::Off);

    #[test]
    fn what_is_wanted_and_missing_is_a_warning() {
        let refused = Some(Err("it refuses".to_owned()));
        check(&refused, ORDERED, false, Severity::Warning, "it refuses");
        check(&refused, None, true, Severity::Warning, "it refuses");
        check(&refused, None, false, Severity::Ok, "it refuses");
        let none = "there is no /dev/isst_interface: the processor has none, or the driver isst_tpmi is not loaded";
        check(&None, ORDERED, false, Severity::Warning, none);
        check(&None, None, false, Severity::Ok, none);
        let mixed = Some(Ok(here([ORDERED, OFF])));
        let said = "2 power domains: core power off and ordered, base frequency off, turbo frequency on in 1";
        check(&mixed, ORDERED, true, Severity::Ok, said);
        check(&mixed, None, false, Severity::Ok, said);
        let idle = format!(
            "{said}; classes of service have no effect in power domain 0.1, where core power is off; name {KEY}"
        );
        check(&mixed, None, true, Severity::Warning, &idle);
    }

    #[test]
    fn core_power_that_the_configuration_switches_off_is_told() {
        let here = Some(Ok(here([ORDERED, ORDERED])));
        let said = "2 power domains: core power ordered (cpuClasses.speedSelect.corePower is off), base frequency off, turbo frequency on in 1";
        check(&here, OFF, false, Severity::Ok, said);
        let idle = format!("{said}; classes of service have no effect: {KEY} is off");
        check(&here, OFF, true, Severity::Warning, &idle);
    }

    /// It had been a processor without core power.
    #[test]
    fn what_cannot_be_read_is_not_missing() {
        let mut facts = here([ORDERED, None]);
        let rest = "base frequency off, turbo frequency on in 1";
        let missing = format!(
            "2 power domains: core power missing and ordered, {rest}; no core power in power domain 0.1"
        );
        check(&Some(Ok(facts.clone())), ORDERED, false, Severity::Warning, &missing);
        check(&Some(Ok(facts.clone())), None, false, Severity::Ok, &missing);
        facts.unread.insert("0.1/core_power".to_owned(), "EIO".to_owned());
        let unread = format!(
            "2 power domains: core power not known and ordered, {rest}; cannot read 0.1/core_power: EIO"
        );
        check(&Some(Ok(facts.clone())), ORDERED, false, Severity::Warning, &unread);
        check(&Some(Ok(facts)), None, false, Severity::Ok, &unread);
    }
}
