//! Sets of CPUs for people: short, and still in a form that the kernel and the set type read.

use crate::CpuSet;

/// From this many equal steps on, ranges are written in the kernel's grouped form.
const STEPS_FOLDED: usize = 4;

/// How much of a list stands in a message.
const LIST_BYTES: usize = 200;

/// `1 core`, `2 cores`.
pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `CPU 3`, `CPUs 0-13,112-125`; a long list ends early.
pub fn name_cpus(cpus: &CpuSet) -> String {
    format!("CPU{} {}", if cpus.len() == 1 { "" } else { "s" }, fold_short(cpus))
}

/// The members of a set, folded, as many as a message needs. A machine that contradicts itself everywhere has a message per CPU.
pub fn fold_short(cpus: &CpuSet) -> String {
    let text = fold(cpus);
    let end = text.get(..LIST_BYTES).and_then(|text| text.rfind(','));
    match end.and_then(|end| text.get(..end)) {
        Some(first) => format!("{first},... ({} in all)", cpus.len()),
        None => text,
    }
}

/// `28 CPUs 0-13,112-125`.
pub fn count_and_list(cpus: &CpuSet) -> String {
    format!("{} {}", plural(cpus.len(), "CPU"), fold(cpus))
}

/// The members of a set, folded.
pub fn fold(cpus: &CpuSet) -> String {
    fold_ranges(&cpus.ranges().map(|(first, last)| (first.0, last.0)).collect::<Vec<_>>())
}

/// Core numbers may be any numbers, so they do not go through a set.
pub fn fold_numbers(mut numbers: Vec<u32>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let ranges = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    fold_ranges(&ranges.filter_map(|run| Some((*run.first()?, *run.last()?))).collect::<Vec<_>>())
}

/// The kernel's list form, with many equal steps in its grouped form (`bitmap_parselist` in `lib/bitmap-str.c`):
/// `0,2,4,6` is `0-6:1/2`. The set type reads both.
fn fold_ranges(ranges: &[(u32, u32)]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = ranges;
    while let [head, tail @ ..] = rest {
        let (first, last) = *head;
        let step = tail.first().map_or(0, |next| next.0 - first);
        let mut end = *head;
        let run = tail.iter().take_while(|next| {
            let is_next = next.0 - end.0 == step && next.1 - next.0 == last - first;
            if is_next {
                end = **next;
            }
            is_next
        });
        let steps = 1 + run.count();
        if steps >= STEPS_FOLDED {
            parts.push(format!("{first}-{}:{}/{step}", end.1, last - first + 1));
            rest = rest.get(steps..).unwrap_or_default();
            continue;
        }
        parts.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
        rest = tail;
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use crate::CpuId;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_steps_fold_and_few_steps_do_not() {
        for (list, folded) in [
            ("", ""),
            ("0-3", "0-3"),
            ("0,56", "0,56"),
            ("0,2,4", "0,2,4"),
            ("0,2,4,6", "0-6:1/2"),
            ("1,3,5,7,100", "1-7:1/2,100"),
            ("0-1,8-9,16-17,24-25,40", "0-25:2/8,40"),
            ("0-13,112-125", "0-13,112-125"),
        ] {
            assert_eq!(fold(&list.parse().unwrap()), folded, "{list}");
        }
    }

    #[test]
    fn a_long_list_in_a_message_ends_early() {
        let cpus: CpuSet = (0..16_384_u32).filter(|n| n.count_ones() % 2 == 0).map(CpuId).collect();
        let text = name_cpus(&cpus);
        assert!(text.starts_with("CPUs 0,3,5-6,"), "{text}");
        assert!(text.ends_with(",... (8192 in all)") && text.len() < 230, "{text}");
        assert_eq!(name_cpus(&CpuSet::first_n(9000)), "CPUs 0-8999");
    }

    proptest! {
        #[test]
        fn a_folded_text_is_the_same_set(members in prop::collection::btree_set(0_u32..200, 0..60)) {
            let cpus: CpuSet = members.into_iter().map(CpuId).collect();
            prop_assert_eq!(fold(&cpus).parse::<CpuSet>().unwrap(), cpus);
        }
    }
}
