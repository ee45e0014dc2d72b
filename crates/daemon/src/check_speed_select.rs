//! What a node has of Intel Speed Select, and whether the configuration wants what it does not have. In: a configuration, the device. Out: a finding.

use bayplan_host::read_speed_select;
use bayplan_types::{PowerDomain, SpeedSelect};

use crate::config::Config;
use crate::finding::{Finding, Severity, finding};
use crate::node_kernel::NodeKernel;

const REMEDY: &str =
    "leave out `clos` of CPU classes and cpuClasses.speedSelect, or mend what refuses";

/// The device is asked as the daemon asks it; the daemon's own rights may be others.
pub(crate) fn check_speed_select(config: &Config) -> Option<Finding> {
    let asked =
        NodeKernel::open(&config.host_root).ok().map(|mut it| read_speed_select(&mut it))?;
    let classes = &config.cpu_classes;
    let is_wanted = !classes.speed_select.is_empty()
        || classes.classes.values().any(|class| class.clos.is_some());
    Some(found(asked.as_ref(), is_wanted))
}

fn found(asked: Option<&Result<SpeedSelect, String>>, is_wanted: bool) -> Finding {
    let why = match asked {
        Some(Ok(facts)) => return finding("speed-select", Severity::Ok, in_words(facts)),
        Some(Err(why)) => why.clone(),
        None => "there is no /dev/isst_interface: the processor has none, or the driver isst_tpmi is not loaded".to_owned(),
    };
    match is_wanted {
        true => finding("speed-select", Severity::Warning, why).with_remedy(REMEDY),
        false => finding("speed-select", Severity::Ok, why),
    }
}

fn in_words(facts: &SpeedSelect) -> String {
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
    let mut ways: Vec<&str> =
        facts.domains.iter().map(|it| it.core_power.map_or("missing", |it| it.name())).collect();
    ways.sort_unstable();
    ways.dedup();
    let domains = if count == 1 { "domain" } else { "domains" };
    format!(
        "{count} power {domains}: core power {}, base frequency {}, turbo frequency {}",
        ways.join(" and "),
        on(&|it| it.is_base_frequency_on),
        on(&|it| it.is_turbo_frequency_on)
    )
}

#[cfg(test)]
mod tests {
    use bayplan_types::CorePower;

    use super::*;

    #[test]
    fn what_is_wanted_and_missing_is_a_warning() {
        let domain = |core_power, is_turbo_frequency_on| PowerDomain {
            core_power,
            is_turbo_frequency_on,
            ..PowerDomain::default()
        };
        let domains =
            vec![domain(Some(CorePower::Ordered), true), domain(Some(CorePower::Off), false)];
        let here = Ok(SpeedSelect { domains });
        let refused = Err("it refuses".to_owned());
        for (asked, is_wanted, severity, words) in [
            (
                Some(&here),
                true,
                Severity::Ok,
                "2 power domains: core power off and ordered, base frequency off, turbo frequency on in 1",
            ),
            (Some(&refused), true, Severity::Warning, "it refuses"),
            (Some(&refused), false, Severity::Ok, "it refuses"),
            (None, true, Severity::Warning, "there is no /dev/isst_interface"),
            (None, false, Severity::Ok, "there is no /dev/isst_interface"),
        ] {
            let found = found(asked, is_wanted);
            assert_eq!(found.severity, severity, "{words}");
            assert!(found.message.starts_with(words), "{}", found.message);
        }
    }
}
