//! Whether a configuration is applied now. In: what the daemon says that it would change, and the bounds of its object. Out: yes, later, or no.
//!
//! A move counts if it takes a container from CPUs of its own to others, because caches and memory stay behind. The wait is spread by the names of
//! node and object, so that the nodes of a cluster change one after the other and each of them at the same moment whenever it is worked out.

use std::fmt;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::daemon::Diff;
use crate::object::{ALLOW_MOVES, ConfigObject};

/// Containers that a refusal names.
const NAMED_MAX: usize = 5;

/// What is done with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is applied.
    Apply,
    /// It is applied when this much more time has passed.
    Wait(Duration),
    /// It is not.
    Refuse(Refusal),
}

/// A configuration would move too many exclusive containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    moves: Vec<String>,
    allowed: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { moves, allowed } = self;
        let named = moves.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = match moves.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        write!(
            f,
            "would move {} exclusive containers, and maxMoves is {allowed}: {named}{more}; drain them first, raise spec.maxMoves, or annotate the object with {ALLOW_MOVES}={}",
            moves.len(),
            moves.len(),
        )
    }
}

/// Decides about an object, or with `None` about going on under the node's file alone. `waited`: the time since the agent saw this generation;
/// `None` for a node that has no configuration of the cluster yet, which does not wait.
pub fn decide(
    object: Option<&ConfigObject>,
    diff: &Diff,
    node: &str,
    waited: Option<Duration>,
) -> Decision {
    let moves = diff.exclusive_moves();
    // Without an object there is nothing that could say how many.
    let allowed = object.map_or(0, |it| it.allowed.unwrap_or(it.max_moves));
    if moves.len() > usize::try_from(allowed).unwrap_or(usize::MAX) {
        return Decision::Refuse(Refusal { moves, allowed });
    }
    let spread = object.map_or(Duration::ZERO, |object| delay(object, node));
    match waited {
        Some(waited) if diff.changes_now() && waited < spread => Decision::Wait(spread - waited),
        _ => Decision::Apply,
    }
}

/// This node's part of the roll-out.
fn delay(object: &ConfigObject, node: &str) -> Duration {
    let digest = Sha256::digest(format!("{node}\n{}\n{}", object.name, object.generation));
    let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    match u64::from(object.rollout_seconds) * 1000 {
        0 => Duration::ZERO,
        all => Duration::from_millis(number % all),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn object(max_moves: u32, allowed: Option<u32>, rollout_seconds: u32) -> ConfigObject {
        let read = ConfigObject::read(&json!({"metadata": {"name": "default"}, "spec": {}}));
        ConfigObject { max_moves, allowed, rollout_seconds, ..read }
    }

    /// So many containers move from CPUs of their own to others, and one each stays, shares, or comes to CPUs of its own.
    fn diff(moves: usize) -> Diff {
        let shift = |name: String, from: &str, to: &str| json!({"container": name, "exclusive_from": from, "exclusive_to": to});
        let mut shifts: Vec<_> =
            (0..moves).map(|it| shift(format!("n/p{it}/c"), "0-1", "2-3")).collect();
        shifts.extend([
            shift("n/a/stays".into(), "4", "4"),
            shift("n/a/shares".into(), "", ""),
            shift("n/a/comes".into(), "", "5"),
        ]);
        let change = json!({"key": "policy", "from": 1, "to": 2, "needs_restart": false});
        serde_json::from_value(json!({"changes": [change], "moves": shifts})).unwrap()
    }

    fn check(object: Option<ConfigObject>, moves: usize, waited: Option<u64>, expected: Expect) {
        let waited = waited.map(Duration::from_secs);
        let shown = match decide(object.as_ref(), &diff(moves), "n1", waited) {
            Decision::Refuse(refusal) => format!("refused: {refusal}"),
            other => format!("{other:?}"),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn moves_of_exclusive_containers_are_bounded() {
        check(Some(object(0, None, 0)), 0, Some(0), expect!["Apply"]);
        check(Some(object(2, None, 0)), 2, Some(0), expect!["Apply"]);
        check(
            Some(object(0, None, 0)),
            1,
            Some(0),
            expect![
                "refused: would move 1 exclusive containers, and maxMoves is 0: n/p0/c; drain them first, raise spec.maxMoves, or annotate the object with bayplan.dev/allow-moves=1"
            ],
        );
        check(
            Some(object(1, None, 0)),
            7,
            None,
            expect![
                "refused: would move 7 exclusive containers, and maxMoves is 1: n/p0/c, n/p1/c, n/p2/c, n/p3/c, n/p4/c and 2 more; drain them first, raise spec.maxMoves, or annotate the object with bayplan.dev/allow-moves=7"
            ],
        );
        check(Some(object(1, Some(7), 0)), 7, None, expect!["Apply"]);
        check(
            Some(object(9, Some(0), 0)),
            1,
            None,
            expect![
                "refused: would move 1 exclusive containers, and maxMoves is 0: n/p0/c; drain them first, raise spec.maxMoves, or annotate the object with bayplan.dev/allow-moves=1"
            ],
        );
        check(None, 0, Some(0), expect!["Apply"]);
    }

    #[test]
    fn changes_are_spread_but_for_new_nodes() {
        check(Some(object(0, None, 600)), 0, None, expect!["Apply"]);
        check(Some(object(0, None, 600)), 0, Some(600), expect!["Apply"]);
        let object = object(0, None, 600);
        let mut delays: Vec<u64> =
            (0..1000).map(|it| delay(&object, &format!("n{it}")).as_secs()).collect();
        delays.sort_unstable();
        assert!(delays[0] < 10 && delays[999] > 590 && (250..350).contains(&delays[500]));
        let first = delay(&object, "n1");
        let waits = decide(Some(&object), &diff(0), "n1", Some(Duration::ZERO));
        assert_eq!(waits, Decision::Wait(first));
    }
}
