//! What annotations for container runtimes ask for. In: the annotations of a pod. Out: [`Asked::tuning`] of one container.
//!
//! CRI-O's performance annotations stand for all containers of the pod, or behind a slash for one; classes of block I/O, and those of caches and memory
//! bandwidth, have the names that goresctrl has given them for containerd and CRI-O.

use super::asked::Asked;
use super::tuning::{CpuPartition, INTERRUPTS, QUOTA, WakeUp};
use super::values::{Misread, Words, check_length, class_name, word};
use super::warnings::{Warnings, annotation};
use crate::container::NewContainer;

/// CRI-O disables load balancing in this way.
const BALANCING: &Words<CpuPartition> =
    &[("enable", CpuPartition::None), ("disable", CpuPartition::Isolated)];

pub(super) const CRIO_QUOTA: &str = "cpu-quota.crio.io";
pub(super) const CRIO_INTERRUPTS: &str = "irq-load-balancing.crio.io";
pub(super) const CRIO_BALANCING: &str = "cpu-load-balancing.crio.io";
pub(super) const CRIO_C_STATES: &str = "cpu-c-states.crio.io";
pub(super) const CRIO_GOVERNOR: &str = "cpu-freq-governor.crio.io";
pub(super) const BLOCK_IO: &str = "blockio.resources.beta.kubernetes.io";
pub(super) const RESCTRL: &str = "rdt.resources.beta.kubernetes.io";

/// Whether it is an annotation that is read here.
pub(super) fn is_known(name: &str) -> bool {
    let name = name.split('/').next().unwrap_or(name);
    [CRIO_QUOTA, CRIO_INTERRUPTS, CRIO_BALANCING, CRIO_C_STATES, CRIO_GOVERNOR, BLOCK_IO, RESCTRL]
        .contains(&name)
}

/// Fills `tuning` with what runtimes understand.
pub(super) fn read(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let said = |name: &str, own: String| {
        let annotations = &container.pod.annotations;
        annotations.get_key_value(&format!("{name}/{own}"))
    };
    let of_crio = |name: &str| {
        said(name, container.name.clone()).or(container.pod.annotations.get_key_value(name))
    };
    let tuning = &mut asked.tuning;
    read_word(of_crio(CRIO_QUOTA), QUOTA, &mut tuning.is_quota_lifted, warnings);
    read_word(of_crio(CRIO_INTERRUPTS), INTERRUPTS, &mut tuning.interrupts, warnings);
    read_word(of_crio(CRIO_BALANCING), BALANCING, &mut tuning.partition, warnings);
    let expected = "enable, disable or max_latency:MICROSECONDS";
    read_text(of_crio(CRIO_C_STATES), parse_wake_up, &mut tuning.wake_up, expected, warnings);
    let expected = "the name of a governor";
    read_text(of_crio(CRIO_GOVERNOR), governor, &mut tuning.cpu_governor, expected, warnings);
    let classes = [(BLOCK_IO, &mut tuning.block_io_class), (RESCTRL, &mut tuning.resctrl_class)];
    for (annotated, place) in classes {
        let own = said(annotated, format!("container.{}", container.name));
        let class = own.or_else(|| said(annotated, "pod".to_owned()));
        let Some((name, value)) = class else { continue };
        match check_length(value).and_then(|()| class_name(value)) {
            Ok(name) => *place = Some(name),
            Err(misread) => {
                warnings.misread(&annotation(name), value, "the name of a class", &misread);
            }
        }
    }
}

fn read_word<T: Clone>(
    said: Option<(&String, &String)>,
    words: &Words<T>,
    place: &mut Option<T>,
    warnings: &mut Warnings,
) {
    let Some((name, value)) = said else { return };
    match word(value, words) {
        Ok(meaning) => *place = Some(meaning),
        Err(misread) => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            warnings.misread(&annotation(name), value, &known.join(" or "), &misread);
        }
    }
}

fn read_text<T>(
    said: Option<(&String, &String)>,
    parse: fn(&str) -> Result<T, Misread>,
    place: &mut Option<T>,
    expected: &str,
    warnings: &mut Warnings,
) {
    let Some((name, value)) = said else { return };
    match check_length(value).and_then(|()| parse(value)) {
        Ok(meaning) => *place = Some(meaning),
        Err(misread) => warnings.misread(&annotation(name), value, expected, &misread),
    }
}

/// CRI-O's words: `disable` is no sleep at all.
fn parse_wake_up(value: &str) -> Result<WakeUp, Misread> {
    match value.trim() {
        "enable" => Ok(WakeUp::Any),
        "disable" => Ok(WakeUp::AtMostUs(0)),
        other => {
            let us = other.strip_prefix("max_latency:").and_then(|it| it.trim().parse().ok());
            // The kernel keeps it signed, and takes the largest value for "no limit".
            let us = us.filter(|us: &u32| *us < i32::MAX.unsigned_abs());
            us.map(WakeUp::AtMostUs).ok_or_else(Misread::default)
        }
    }
}

/// Whether there is one of that name is the driver's to say.
fn governor(value: &str) -> Result<String, Misread> {
    let name = value.trim();
    let is_name = !name.is_empty() && name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    is_name.then(|| name.to_owned()).ok_or_else(Misread::default)
}
