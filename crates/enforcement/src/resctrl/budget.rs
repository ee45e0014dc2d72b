//! Which classes get a group when the processor has too few CLOSIDs. In: classes, the most important one first. Out: those that get one, and those
//! that do not (`num_closids`: Documentation/filesystems/resctrl.rst, "Info directory").

use super::config::ClassName;

/// Which classes get a control group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupBudget {
    /// They have one, in the order given; the root's class has one anyway.
    pub with_group: Vec<ClassName>,
    /// No CLOSID is left for these: their containers stay in the root's group.
    pub without_group: Vec<ClassName>,
}

/// The first get what is left of `closids` after the root's and those of `foreign` groups, which another program has made.
pub fn fit_groups<'a>(
    classes: impl IntoIterator<Item = &'a ClassName>,
    closids: u32,
    foreign: usize,
) -> GroupBudget {
    let closids = usize::try_from(closids).unwrap_or(usize::MAX);
    let mut left = closids.saturating_sub(1).saturating_sub(foreign);
    let mut budget = GroupBudget::default();
    for class in classes {
        if class.is_root() {
            budget.with_group.push(class.clone());
        } else if left > 0 {
            left -= 1;
            budget.with_group.push(class.clone());
        } else {
            budget.without_group.push(class.clone());
        }
    }
    budget
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_get_what_the_processor_has() {
        let classes = ["web", "batch", "", "idle"].map(|name| name.parse::<ClassName>().unwrap());
        let names = |classes: &[ClassName]| {
            classes.iter().map(ClassName::as_str).collect::<Vec<_>>().join(" ")
        };
        let rows = [
            (16, 0, "web batch system/default idle", ""),
            (4, 1, "web batch system/default", "idle"),
            (4, 2, "web system/default", "batch idle"),
            (1, 0, "system/default", "web batch idle"),
            (0, 9, "system/default", "web batch idle"),
        ];
        for (closids, foreign, with, without) in rows {
            let budget = fit_groups(&classes, closids, foreign);
            assert_eq!(names(&budget.with_group), with, "{closids} {foreign}");
            assert_eq!(names(&budget.without_group), without, "{closids} {foreign}");
        }
    }
}
