//! The section `bestEffort`: what BestEffort containers get of CPUs that others need or own.

use bayplan_enforcement::BudgetPolicy;

/// Everything about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestEffortConfig {
    /// Share of the node's CPU time in percent from which on BestEffort containers are held back; 0: never.
    pub node_percent: usize,
    /// What they have at least, in percent of the node.
    pub floor_percent: usize,
    /// By how much more they get at once, in percent of the node.
    pub growth_percent: usize,
    /// They run only where no other of their class wants to.
    pub is_idle: bool,
    /// They run on idle CPUs of exclusive containers that agree.
    pub borrows: bool,
}

impl Default for BestEffortConfig {
    fn default() -> BestEffortConfig {
        BestEffortConfig {
            node_percent: 0,
            floor_percent: 5,
            growth_percent: 10,
            is_idle: false,
            borrows: false,
        }
    }
}

impl BestEffortConfig {
    /// What the budget follows.
    pub fn policy(&self) -> BudgetPolicy {
        let percent = |value: usize| u64::try_from(value).unwrap_or(100).min(100);
        BudgetPolicy {
            node_percent: percent(self.node_percent),
            floor_percent: percent(self.floor_percent),
            growth_percent: percent(self.growth_percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_enforcement::BudgetPolicy;
    use expect_test::{Expect, expect};

    use super::BestEffortConfig;
    use crate::test_support::{differences, read_back};

    /// The text stands below `bestEffort:`. What differs from the defaults, or every mistake.
    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let text: String = text.lines().map(|line| format!("  {line}\n")).collect();
        expected.assert_eq(&differences(&format!("bestEffort:\n{text}")));
    }

    #[test]
    fn every_key_is_read_and_shown() {
        check("", expect!["{}"]);
        check("nodePercent: 0\nfloorPercent: 5\ngrowthPercent: 10\nidle: false\n", expect!["{}"]);
        check(
            "nodePercent: 65\nfloorPercent: 1\ngrowthPercent: 100\nidle: true\nborrow: true\n",
            expect![[
                r#"{"bestEffort":{"borrow":true,"floorPercent":1,"growthPercent":100,"idle":true,"nodePercent":65}}"#
            ]],
        );
    }

    #[test]
    fn shares_out_of_range_words_and_keys_that_stand_twice_are_mistakes() {
        check(
            "nodePercent: 101\nfloorPercent: 0\ngrowthPercent: 0\nidle: maybe\nborrow: [true]\nlend: true\n",
            expect![[r#"
                f:2:16: `bestEffort.nodePercent` is `101`, expected a number from 0 to 100
                f:3:17: `bestEffort.floorPercent` is `0`, expected a number from 1 to 100
                f:4:18: `bestEffort.growthPercent` is `0`, expected a number from 1 to 100
                f:5:9: `bestEffort.idle` is `maybe`, expected one of true, false
                f:6:11: `bestEffort.borrow` is a list, expected one of true, false
                f:7:3: unknown key `bestEffort.lend`; known are nodePercent, floorPercent, growthPercent, idle, borrow"#]],
        );
        check(
            "nodePercent: -1\nfloorPercent: 5%\n",
            expect![[r#"
            f:2:16: `bestEffort.nodePercent` is `-1`, expected a number from 0 to 100
            f:3:17: `bestEffort.floorPercent` is `5%`, expected a number from 1 to 100"#]],
        );
        check(
            "nodePercent: 65\nnodePercent: 70\n",
            expect!["f:3:3: duplicate key `bestEffort.nodePercent`"],
        );
        check(
            "65",
            expect![
                "f:2:3: `bestEffort` is not a mapping, expected lines of `key: value`; known are nodePercent, floorPercent, growthPercent, idle, borrow"
            ],
        );
    }

    #[test]
    fn the_budget_follows_the_shares() {
        let policy = |text: &str| read_back(text).map(|(config, _)| config.best_effort.policy());
        let of = |node_percent, floor_percent, growth_percent| {
            Ok(BudgetPolicy { node_percent, floor_percent, growth_percent })
        };
        assert_eq!(policy(""), of(0, 5, 10));
        assert_eq!(policy("bestEffort: {nodePercent: 65, growthPercent: 3}\n"), of(65, 5, 3));
        // What no file can say.
        let beyond = BestEffortConfig { node_percent: 300, ..BestEffortConfig::default() };
        assert_eq!(beyond.policy().node_percent, 100);
    }
}
