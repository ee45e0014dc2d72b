//! The condition `bayplan.dev/Placing` of the own Node, by choice. In: how the daemon is, and the Node as it is. Out: a write where the two differ, and none
//! else; where it is not chosen, one that takes it back.
//!
//! Others read it to keep a scheduler away, or to repair a node; kubelet and the scheduler do nothing about it.

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use crate::conditions::seconds;
use crate::node_writes::NodeWrite;
use crate::object::{NodeCondition, NodeObject, PLACING};

/// How the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DaemonState {
    Placing,
    /// Drained or restored.
    NotPlacing,
    NotReady,
    NoAnswer,
}

impl DaemonState {
    /// Status, reason and message.
    fn texts(self) -> [&'static str; 3] {
        match self {
            DaemonState::Placing => ["True", "Placing", "containers are placed"],
            DaemonState::NotPlacing => {
                ["False", "NotPlacing", "the node is drained or restored, see `bayplan status`"]
            }
            DaemonState::NotReady => {
                ["False", "NotReady", "the daemon is not ready; its BayplanNode says why"]
            }
            DaemonState::NoAnswer => {
                ["Unknown", "NoAnswer", "the daemon does not answer on its control socket"]
            }
        }
    }
}

/// What brings the Node to what is wanted; `None` is a wish for no condition.
pub(crate) fn condition_write(
    node: &NodeObject,
    wanted: Option<DaemonState>,
    now: Timestamp,
) -> Option<NodeWrite> {
    let write = |status: Json| {
        let metadata = json!({ "name": node.name });
        NodeWrite::Condition(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status,
        }))
    };
    let Some(state) = wanted else {
        return node.owned.has_condition.then(|| write(json!({})));
    };
    let [status, reason, message] = state.texts();
    let is_so = |it: &NodeCondition| it.status == status && it.reason == reason;
    if node.placing.as_ref().is_some_and(is_so) {
        return None;
    }
    let condition = json!({
        "type": PLACING, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": seconds(now), "lastHeartbeatTime": seconds(now),
    });
    Some(write(json!({ "conditions": [condition] })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(status: Option<[&str; 2]>, has_condition: bool) -> NodeObject {
        let mut node = NodeObject { name: "n1".to_owned(), ..NodeObject::default() };
        let of = |[status, reason]: [&str; 2]| NodeCondition {
            status: status.to_owned(),
            reason: reason.to_owned(),
        };
        (node.placing, node.owned.has_condition) = (status.map(of), has_condition);
        node
    }

    #[test]
    fn a_write_is_made_where_the_node_differs() {
        let told = |write: NodeWrite| match write {
            NodeWrite::Condition(object) => {
                let condition = object.pointer("/status/conditions/0");
                condition.map_or("nothing".to_owned(), |it| it["reason"].to_string())
            }
            other => panic!("{other:?}"),
        };
        let (placing, unknown) = (Some(["True", "Placing"]), Some(["Unknown", "NoAnswer"]));
        for (found, is_owned, wanted, expected) in [
            (None, false, None, None),
            (None, false, Some(DaemonState::Placing), Some("\"Placing\"")),
            (placing, true, Some(DaemonState::Placing), None),
            (placing, true, Some(DaemonState::NoAnswer), Some("\"NoAnswer\"")),
            (unknown, true, Some(DaemonState::NotReady), Some("\"NotReady\"")),
            (placing, true, Some(DaemonState::NotPlacing), Some("\"NotPlacing\"")),
            (placing, true, None, Some("nothing")),
            // Of another program.
            (placing, false, None, None),
        ] {
            let write = condition_write(&node(found, is_owned), wanted, Timestamp::UNIX_EPOCH);
            assert_eq!(write.map(told).as_deref(), expected, "{found:?} {wanted:?}");
        }
    }
}
