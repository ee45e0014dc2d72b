//! Which annotations and labels of a pod are kept. In: all of them, untrusted. Out: those that are read or warned of, bounded in number and length. Pure.

use std::collections::BTreeMap;

use super::values::{VALUE_MAX, shown};
use super::warnings::{SHOWN_MAX, WarningKind, Warnings};
use super::{gas, koordinator, names, runtimes};
use crate::container::Pod;

/// Kubernetes allows 253 characters, a slash and 63 characters.
const NAME_MAX: usize = 317;
/// Bytes of names and values of a pod's annotations that are kept, and the same of its labels.
pub(super) const KEPT_MAX: usize = 64 << 10;
/// Kubernetes allows 63 characters.
const LABEL_MAX: usize = 256;
/// Stands among what was kept where something was left out, with the number of these. No annotation can be called so.
pub(super) const CUT: &str = "#left-out";

/// Annotations that bayplan reads or warns of. Values that are too long to be read are cut, so that they can be warned of; names that
/// Kubernetes would not take are left out, and so are the longest of those that are together over 64 KiB.
pub fn relevant<'a>(
    annotations: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let is_relevant = |name: &str| {
        name.len() <= NAME_MAX
            && (names::has_prefix(name)
                || koordinator::is_known(name)
                || runtimes::is_known(name)
                || gas::is_known(name))
    };
    let pairs = annotations.into_iter().filter(|(name, _)| is_relevant(name));
    capped(pairs.map(|(name, value)| (name.as_str(), cut(value, VALUE_MAX + 1))))
}

/// Labels of a pod, without the longest of those that are together over 64 KiB.
pub fn kept_labels<'a>(
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let pairs = labels.into_iter().filter(|(name, _)| name.len() <= NAME_MAX);
    capped(pairs.map(|(name, value)| (name.as_str(), cut(value, LABEL_MAX))))
}

/// What stands for annotations or labels that were not kept.
pub fn left_out(count: usize) -> BTreeMap<String, String> {
    [(CUT.to_owned(), count.to_string())].into()
}

/// The shortest first, until [`KEPT_MAX`] is reached; the note [`CUT`] says how many are missing.
fn capped<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    let mut pairs: Vec<_> = pairs.filter(|(name, _)| *name != CUT).collect();
    pairs.sort_by_key(|(name, value)| (name.len() + value.len(), *name));
    let mut left = KEPT_MAX;
    let fitting = pairs.iter().take_while(|(name, value)| {
        let rest = left.checked_sub(name.len() + value.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let fitting = fitting.count();
    let kept = pairs.iter().take(fitting);
    let kept = kept.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let missing = pairs.len() - fitting;
    let note = (missing > 0).then(|| (CUT.to_owned(), missing.to_string()));
    kept.chain(note).collect()
}

/// At most so many bytes of it, in whole characters, and at least one byte more than `VALUE_MAX` of what was longer.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.ceil_char_boundary(bytes_max)]
}

/// Warns of annotations and labels that were not kept.
pub(super) fn warn_left_out(pod: &Pod, warnings: &mut Warnings) {
    for (what, all) in [("annotations", &pod.annotations), ("labels", &pod.labels)] {
        if let Some(count) = all.get(CUT) {
            let kib = KEPT_MAX >> 10;
            let count = shown(count, SHOWN_MAX);
            warnings.push(
                WarningKind::NotUnderstood,
                format!(
                    "{count} {what} of the pod are left out, the longest of more than {kib} KiB"
                ),
            );
        }
    }
}
