//! Reads everything that a pod says about one of its containers. In: the container, what the configuration says. Out: [`Asked`], warnings. Pure.
//!
//! A later source wins: configuration, extended resources, Katalyst, Koordinator, runtimes, our keys (and their older names) from the least specific
//! to the most.

use super::allowed::allowed;
use super::asked::Asked;
use super::field::Field;
use super::kept::warn_left_out;
use super::names::look_up;
use super::source::Sources;
use super::table::{self, KEYS};
use super::values::{Said, check_length};
use super::warnings::{Warning, WarningKind, Warnings, annotation};
use super::{extended, gas, koordinator, permissions, runtimes, webhook};
use crate::cmk::INFRA;
use crate::container::NewContainer;
use crate::rules::RequestRules;

/// Reads everything that a pod says about one of its containers.
pub fn read_annotations(container: &NewContainer, rules: &RequestRules) -> (Asked, Vec<Warning>) {
    let usual = rules.usual();
    let mut asked = usual.clone();
    let mut warnings = Warnings::default();
    warn_left_out(&container.pod, &mut warnings);
    // Without groups CMK itself may be there.
    match container.cmk.as_ref().filter(|_| rules.has_groups) {
        Some(Ok(isolate)) => {
            asked.group = Some(isolate.pool.clone());
            if isolate.pool == INFRA {
                asked.prefer_reserved_cpus = Some(true);
            }
        }
        Some(Err(why)) if !why.is_refusal() => {
            warnings.push(WarningKind::NotUnderstood, why.to_string());
        }
        _ => {}
    }
    webhook::read(container, &mut asked, &mut warnings);
    read_extended(container, rules, &mut asked);
    webhook::read_batch(container, &mut asked, &mut warnings);
    koordinator::read(&container.pod, rules.lse_uses_siblings, &mut asked, &mut warnings);
    runtimes::read(container, &mut asked, &mut warnings);
    gas::read(container, &mut asked, &mut warnings);
    read_keys(container, &mut asked, &mut warnings);
    take_back(container, rules, &usual, &mut asked, &mut warnings);
    if asked.affinity.is_empty() {
        asked.affinity = rules.affinity();
    }
    (asked, warnings.finish())
}

/// Fills `tuning.cpu_class` from a requested profile, where kubelet tells of requests instead of what an annotation says of them. CPUs that have one are the container's own, also where the configuration prefers shared ones,
/// unless its namespace may not have the class.
fn read_extended(container: &NewContainer, rules: &RequestRules, asked: &mut Asked) {
    if let Some(facts) = container.facts.as_deref() {
        let requested = extended::requested(Some(facts));
        asked.tuning.cpu_class = requested.map(|(_, profile)| profile);
    }
    let is_allowed = || {
        let wish = permissions::wish(Field::CpuClass, asked);
        allowed(&wish, &container.pod.namespace, rules)
    };
    if asked.tuning.cpu_class.is_some() && asked.prefer_shared_cpus == Some(true) && is_allowed() {
        asked.prefer_shared_cpus = None;
    }
}

/// Takes back what the namespace may not ask for.
fn take_back(
    container: &NewContainer,
    rules: &RequestRules,
    usual: &Asked,
    asked: &mut Asked,
    warnings: &mut Warnings,
) {
    if asked == usual {
        return;
    }
    let namespace = &container.pod.namespace;
    let sources = Sources::new(container);
    for wish in permissions::wishes(asked, usual) {
        let is_kept = wish.field == Field::Claimed && container.keeps_chosen;
        if !is_kept && !allowed(&wish, namespace, rules) {
            wish.field.copy(usual, asked);
            let what = sources.of_field(wish.field).unwrap_or_else(|| wish.field.path().to_owned());
            warnings.not_allowed(&what, namespace);
        }
    }
}

/// Reads the keys of [`KEYS`].
fn read_keys(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let lookup = look_up(&container.pod.annotations, &container.name, table::is_known);
    for name in lookup.unknown {
        warnings.unknown(name);
    }
    let keys = KEYS.iter().filter_map(|key| Some((key, lookup.found.get(key.name)?)));
    let mut said: Vec<_> = keys.collect();
    said.sort_by_key(|(_, found)| found.scope.specificity());
    for (key, found) in said {
        let before = asked.clone();
        let said = Said { value: found.value, container: &container.name };
        let done = check_length(found.value).and_then(|()| (key.set)(asked, &said));
        if let Err(misread) = done {
            *asked = before;
            let (name, expected) = (annotation(found.name), key.values.text());
            match key.requires(found.value) {
                true => warnings.misread_requirement(&name, found.value, &expected, &misread),
                false => warnings.misread(&name, found.value, &expected, &misread),
            }
        }
    }
}
