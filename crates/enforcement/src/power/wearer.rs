//! The CPUs of one class, and one setting for some of them.

use bayplan_types::CpuSet;

use super::class::PowerClass;
use super::problems::named;
use crate::setting::{Form, Setting, Settings, Slot};

/// The CPUs of one class inside a set of CPUs.
pub(super) struct Wearer<'a> {
    pub(super) name: &'a str,
    pub(super) class: &'a PowerClass,
    pub(super) cpus: CpuSet,
}

pub(super) fn asks_frequency(class: &PowerClass) -> bool {
    let PowerClass { governor, min, max, preference, turbo, .. } = class;
    governor.is_some() || min.is_some() || max.is_some() || preference.is_some() || turbo.is_some()
}

pub(super) fn put(
    settings: &mut Settings,
    path: String,
    form: Form,
    value: String,
    cpus: &CpuSet,
    reason: String,
) {
    settings.insert(Slot::file(path), Setting { form, value, unit: named(cpus), reason });
}
