//! Which annotations count while a container runs. In: the annotations that a pod had, and those that it has now. Out: those that count for its
//! containers that run, and what is another than before. Pure.
//!
//! Live are annotations that change kernel files and nothing about the place. All others count when a container is created, as before: they
//! stay as they were in the pod's sandbox.

use std::collections::BTreeMap;

use super::field::Field;
use super::names::parse_name;
use super::runtimes::{BLOCK_IO, RESCTRL};
use super::table::KEYS;
use super::values::shown;

/// What a change of a live annotation changes.
const LIVE: [Field; 6] = [
    Field::ResctrlClass,
    Field::BlockIoClass,
    Field::CpuClass,
    Field::CpuBurst,
    Field::ReclaimClass,
    Field::Rebalance,
];

/// What of a value is shown.
const SHOWN_MAX: usize = 40;
/// Changes that are shown.
const CHANGES_MAX: usize = 6;

/// Whether an annotation of this name counts while the container runs.
fn is_live(name: &str) -> bool {
    let of_runtime = name.split_once('/').map(|(domain, _)| domain);
    if of_runtime.is_some_and(|it| [BLOCK_IO, RESCTRL].contains(&it)) {
        return true;
    }
    let key = parse_name(name).and_then(|name| KEYS.iter().find(|key| key.name == name.key));
    key.is_some_and(|key| key.fills.iter().all(|field| LIVE.contains(field)))
}

/// The annotations that count for a container that runs: live ones as they are `now`, all others as its pod `had` them.
pub fn with_live(
    had: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let kept = had.iter().filter(|(name, _)| !is_live(name));
    let live = now.iter().filter(|(name, _)| is_live(name));
    kept.chain(live).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What is another, for people: `bayplan.dev/rdtclass is gold, was silver`. Empty: nothing.
pub fn render_changes(had: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> String {
    let names = had.keys().chain(now.keys().filter(|name| !had.contains_key(*name)));
    let differing = names.filter(|name| had.get(*name) != now.get(*name));
    let change = |name: &String| {
        let name_shown = shown(name, 4 * SHOWN_MAX);
        match (had.get(name), now.get(name)) {
            (Some(was), Some(is)) => {
                let [was, is] = [was, is].map(|it| shown(it, SHOWN_MAX));
                format!("{name_shown} is {is}, was {was}")
            }
            (None, Some(is)) => format!("{name_shown} is {}", shown(is, SHOWN_MAX)),
            (Some(was), None) => format!("{name_shown} is gone, was {}", shown(was, SHOWN_MAX)),
            (None, None) => String::new(),
        }
    };
    let changes: Vec<String> = differing.map(change).collect();
    let mut text = changes.iter().take(CHANGES_MAX).cloned().collect::<Vec<_>>().join("; ");
    if changes.len() > CHANGES_MAX {
        text.push_str(&format!("; and {} more", changes.len() - CHANGES_MAX));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn names_that_count_while_a_container_runs() {
        for (name, expected) in [
            ("bayplan.dev/rdtclass", true),
            ("rdtclass.cri-resource-manager.intel.com/pod", true),
            ("rdtclass.resource-policy.nri.io/container.c", true),
            ("rdt.resources.beta.kubernetes.io/pod", true),
            ("blockio.resources.beta.kubernetes.io/container.c", true),
            ("bayplan.dev/blockioclass", true),
            ("bayplan.dev/cpu-class", true),
            ("bayplan.dev/cpu-burst", true),
            ("bayplan.dev/memory-reclaim-class", true),
            ("bayplan.dev/rebalance", true),
            ("bayplan.dev/within", false),
            ("bayplan.dev/cpu-partition", false),
            ("bayplan.dev/cold-start", false),
            ("cpu-quota.crio.io", false),
            ("intel.com/resources", false),
            ("rdtclass", false),
            ("", false),
        ] {
            assert_eq!(is_live(name), expected, "{name}");
        }
    }

    fn check(had: &[(&str, &str)], now: &[(&str, &str)], changes: &str) {
        let (had, now) = (map(had), map(now));
        let counts = with_live(&had, &now);
        assert_eq!(render_changes(&had, &counts), changes);
        // What counts is found again, and nothing but live names has changed.
        assert_eq!(with_live(&counts, &now), counts);
        let rest = |all: &BTreeMap<String, String>| {
            all.iter()
                .filter(|(name, _)| !is_live(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(rest(&had), rest(&counts));
    }

    #[test]
    fn live_annotations_change_and_others_stay() {
        let class = "bayplan.dev/rdtclass";
        check(&[(class, "silver")], &[(class, "silver")], "");
        check(&[(class, "silver")], &[(class, "gold")], "bayplan.dev/rdtclass is gold, was silver");
        check(&[(class, "silver")], &[], "bayplan.dev/rdtclass is gone, was silver");
        check(&[], &[(class, "a\u{1b}b")], "bayplan.dev/rdtclass is a\\u{1b}b");
        check(&[("bayplan.dev/within", "numa")], &[("bayplan.dev/within", "package")], "");
        check(&[("bayplan.dev/within", "numa")], &[], "");
    }

    #[test]
    fn what_is_told_of_many_changes_is_bounded() {
        let names: Vec<String> =
            (0..20).map(|at| format!("rdtclass.bayplan.dev/container.c{at:02}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "gold")).collect();
        let told = render_changes(&map(&[]), &map(&pairs));
        assert!(told.ends_with("; and 14 more") && told.len() < 400, "{told}");
    }
}
