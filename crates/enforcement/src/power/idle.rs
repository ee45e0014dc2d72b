//! How one CPU may sleep. In: its idle states, and its class. Out: settings.
//!
//! A limit of the time to wake up is one file, which the kernel's idle governors obey; in it `0` is no limit, and `n/a` is no time at all
//! (`Documentation/ABI/testing/sysfs-devices-power`, "pm_qos_resume_latency_us"). Where the file is missing, the states that take longer are switched off,
//! as are those that a class names (`Documentation/admin-guide/pm/cpuidle.rst`, "Representation of Idle States in sysfs").

use bayplan_types::{CpuId, CpuSet};

use super::class::{Latency, PowerClass};
use super::offer::IdleOffer;
use super::problems::Teller;
use super::wearer::put;
use crate::setting::{Form, Settings};

/// Adds the settings of one CPU.
pub(super) fn idle_settings(
    cpu: CpuId,
    offer: Option<&IdleOffer>,
    name: &str,
    class: &PowerClass,
    settings: &mut Settings,
    teller: &mut Teller<'_>,
) {
    if class.latency.is_none() && class.disabled_states.is_empty() {
        return;
    }
    let Some(offer) = offer else {
        teller.tell("idle states: the kernel has none for these CPUs");
        return;
    };
    let cpus = CpuSet::from(cpu);
    let dir = format!("sys/devices/system/cpu/cpu{cpu}");
    let mut latency_us_max = None;
    if let Some(latency) = class.latency {
        if offer.has_latency_limit {
            let value = match latency {
                Latency::AtMost(0) => "n/a".to_owned(),
                Latency::AtMost(us) => us.to_string(),
                Latency::Any => "0".to_owned(),
            };
            let path = format!("{dir}/power/pm_qos_resume_latency_us");
            let reason = format!("class \"{name}\": time to wake up");
            put(settings, path, Form::Text, value, &cpus, reason);
        } else if let Latency::AtMost(us) = latency {
            latency_us_max = Some(us);
            if offer.states.is_empty() {
                teller.tell(format!(
                    "time to wake up {latency}: there is no file for it, and no idle states"
                ));
            }
        }
    }
    for name in &class.disabled_states {
        let is_offered = offer.states.iter().any(|state| state.name.eq_ignore_ascii_case(name));
        if !is_offered {
            let states: Vec<&str> = offer.states.iter().map(|it| it.name.as_str()).collect();
            let states = if states.is_empty() { "none".to_owned() } else { states.join(", ") };
            teller.tell(format!("idle state {name}: the kernel offers {states}"));
        }
    }
    for state in &offer.states {
        let is_named = class.disabled_states.iter().any(|it| state.name.eq_ignore_ascii_case(it));
        if is_named || latency_us_max.is_some_and(|it| state.latency_us > it) {
            let path = format!("{dir}/cpuidle/state{}/disable", state.number);
            let reason = format!("class \"{name}\": no {}", state.name);
            put(settings, path, Form::Text, "1".to_owned(), &cpus, reason);
        }
    }
}
