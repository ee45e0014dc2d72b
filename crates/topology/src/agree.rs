//! What several CPUs say about the group they are in. In: per CPU, the set that it claims to belong to. Out: the sets on which
//! all members agree, and the sets that are contradicted.
//!
//! On a sane machine every member of a set claims that very set. A set is refused when a claimant is not in it, when a member
//! claims another one, or when a member that claims nothing is already in an earlier set.

use std::collections::BTreeMap;

use bayplan_types::{CpuId, CpuSet};

/// The outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Disjoint sets, by lowest CPU.
    pub(crate) groups: Vec<CpuSet>,
    /// Contradicted sets, each with the CPUs that claim it.
    pub(crate) refused: Vec<Refused>,
}

/// A set that is contradicted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) cpus: CpuSet,
    pub(crate) claimants: CpuSet,
}

/// Sorts claims into sets that hold and sets that do not. No set of `claims` is empty.
pub(crate) fn agree(claims: &BTreeMap<CpuId, CpuSet>) -> Agreed {
    let mut claimed: BTreeMap<(Option<CpuId>, &CpuSet), CpuSet> = BTreeMap::new();
    for (cpu, cpus) in claims {
        claimed.entry((cpus.first(), cpus)).or_default().insert(*cpu);
    }
    let mut agreed = Agreed::default();
    let mut taken = CpuSet::new();
    for ((_, cpus), claimants) in claimed {
        let agrees = |cpu| claimants.contains(cpu) || !claims.contains_key(&cpu);
        let is_unanimous = claimants.is_subset(cpus) && cpus.iter().all(agrees);
        if is_unanimous && !cpus.intersects(&taken) {
            taken.union_with(cpus);
            agreed.groups.push(cpus.clone());
        } else {
            agreed.refused.push(Refused { cpus: cpus.clone(), claimants });
        }
    }
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(claims: &[(u32, &str)], groups: &[&str], refused: &[(&str, &str)]) {
        let claims = claims.iter().map(|(cpu, set)| (CpuId(*cpu), set.parse().unwrap())).collect();
        let agreed = agree(&claims);
        let texts: Vec<String> = agreed.groups.iter().map(ToString::to_string).collect();
        assert_eq!(texts, groups);
        let texts: Vec<(String, String)> =
            agreed.refused.iter().map(|r| (r.cpus.to_string(), r.claimants.to_string())).collect();
        let expected: Vec<(String, String)> =
            refused.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn members_that_agree_form_a_group() {
        check(&[(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")], &["0,2", "1,3"], &[]);
    }

    #[test]
    fn a_member_may_be_silent() {
        check(&[(0, "0-1")], &["0-1"], &[]);
    }

    #[test]
    fn a_silent_member_is_in_one_group_only() {
        check(&[(0, "0-1"), (2, "1-2")], &["0-1"], &[("1-2", "2")]);
    }

    #[test]
    fn contradictions_are_refused_and_the_rest_stands() {
        check(
            &[(0, "0-1"), (1, "1"), (2, "3"), (3, "3"), (4, "4-5"), (5, "4-5")],
            &["1", "4-5"],
            &[("0-1", "0"), ("3", "2-3")],
        );
    }
}
