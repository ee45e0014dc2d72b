//! What the cluster sees of a node. In: the daemon's answers, and how far its configuration is. Out: the status of the node's BayplanNode.

use jiff::Timestamp;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::amplification::amplification_condition;
use crate::conditions::{Applied, Condition, seconds, with_times};
use crate::daemon::{DaemonStatus, count};
use crate::mistake::bounded;
use crate::object::{ConfigObject, NodeObject};
use crate::{GROUP, VERSION};

/// Everything that the status is made of.
#[derive(Debug)]
pub struct NodeReport<'a> {
    pub(crate) node: &'a NodeObject,
    /// What was chosen for it.
    pub(crate) chosen: Option<&'a ConfigObject>,
    pub(crate) applied: &'a Applied,
    /// What the Node says of amplified CPUs, in percent, or why it cannot be understood.
    pub(crate) amplification: &'a Result<Option<usize>, String>,
    /// `None`: it does not answer.
    pub(crate) daemon: Option<&'a DaemonStatus>,
    /// What `/readyz` lacks; `None` where nothing is.
    pub(crate) lacking: Option<&'a str>,
}

impl NodeReport<'_> {
    /// The object without its status; the node is its owner.
    pub(crate) fn object(&self) -> Json {
        let NodeObject { name, uid, .. } = self.node;
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "BayplanNode",
            "metadata": {
                "name": name,
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid }],
            },
        })
    }

    /// The status; `before` are the conditions of the last one.
    pub(crate) fn status(&self, before: &[Condition], now: Timestamp) -> (Json, Vec<Condition>) {
        let conditions = with_times(self.conditions(), before, now);
        let mut status = json!({ "lastSync": seconds(now), "conditions": conditions });
        let mut say = |key: &str, value: Json| status[key] = value;
        if let Some(daemon) = self.daemon {
            let holds = daemon.holds();
            say("configName", json!(holds.as_ref().map(|it| it.0.as_str()).unwrap_or_default()));
            if let Some((_, generation)) = &holds {
                say("configGeneration", json!(generation));
            }
            if let Some(object) = self.chosen.filter(|_| *self.applied == Applied::Holds) {
                say("configHash", json!(hash(&object.text)));
            }
            say("daemonVersion", json!(daemon.version));
            say("mode", json!(daemon.mode));
            say("exclusiveCpus", json!(count(&daemon.cpus.exclusive)));
            say("sharedCpus", json!(count(&daemon.cpus.shared)));
            say("reservedCpus", json!(count(&daemon.cpus.reserved)));
            say("isolatedCpus", json!(count(&daemon.cpus.isolated)));
            say("largestFree", json!(daemon.largest_free()));
            say("containers", json!(daemon.containers.len()));
        }
        (status, conditions)
    }

    fn conditions(&self) -> Vec<Condition> {
        let object = self.chosen.map(ConfigObject::full_name).unwrap_or_default();
        let generation = self.chosen.map(|it| it.generation);
        let ready = match (self.daemon, self.lacking) {
            (None, _) => Condition::new(
                "DaemonReady",
                "False",
                "NoAnswer",
                "the daemon does not answer on its control socket",
            ),
            (Some(_), Some(lacking)) => Condition::new("DaemonReady", "False", "NotReady", lacking),
            (Some(_), None) => {
                Condition::new("DaemonReady", "True", "Ready", "the daemon is ready")
            }
        };
        let always = [
            with_note(self.applied.condition(&object, generation), self.chosen),
            ready,
            self.placement(),
            Condition::new(
                "ApiSynced",
                "True",
                "Synced",
                "the agent reads and writes; lastSync says since when it has not",
            ),
        ];
        let amplification = amplification_condition(self.amplification, self.daemon);
        always.into_iter().chain(amplification).collect()
    }

    /// Whether containers run where they should.
    fn placement(&self) -> Condition {
        let Some(daemon) = self.daemon else {
            return Condition::new(
                "PlacementHealthy",
                "Unknown",
                "NoAnswer",
                "the daemon does not answer",
            );
        };
        if !daemon.is_placing() {
            let message = format!("the mode is {}, so containers are not placed", daemon.mode);
            return Condition::new("PlacementHealthy", "False", "NotPlacing", &message);
        }
        let off: Vec<String> = daemon.containers.iter().filter_map(off).collect();
        match off.as_slice() {
            [] => Condition::new(
                "PlacementHealthy",
                "True",
                "AsPlaced",
                "containers run where they were placed",
            ),
            _ => Condition::new(
                "PlacementHealthy",
                "False",
                "ElsewhereThanPlaced",
                &format!(
                    "{} containers run elsewhere than placed, see bayplan status: {}",
                    off.len(),
                    off.join(", ")
                ),
            ),
        }
    }
}

/// Says of an object that holds what of it does not count.
fn with_note(mut condition: Condition, object: Option<&ConfigObject>) -> Condition {
    if condition.status == "True"
        && let Some(note) = object.and_then(|it| it.note.as_ref())
    {
        condition.message = bounded(&format!("{}; {note}", condition.message));
    }
    condition
}

/// The name of a container that runs elsewhere than it was placed, or shares its own CPUs with a process that should not be there.
fn off(container: &Json) -> Option<String> {
    let text = |key: &str| container.get(key).and_then(Json::as_str).unwrap_or_default();
    let is_expected = |held: &Json| held.get("is_expected").and_then(Json::as_bool) == Some(true);
    let is_elsewhere =
        container.get("held").is_some_and(|held| held.is_object() && !is_expected(held));
    let intruders = container.get("intruders").and_then(Json::as_array);
    (is_elsewhere || intruders.is_some_and(|all| !all.is_empty()))
        .then(|| format!("{}/{}/{}", text("namespace"), text("pod"), text("container")))
}

/// Of a configuration: 64 bits of its SHA-256.
fn hash(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_status_says_what_holds_and_how_the_node_is() {
        let daemon: DaemonStatus = serde_json::from_value(json!({
            "version": "1.2.3", "mode": "placing",
            "cpus": {"exclusive": "0-3", "shared": "4-15", "reserved": "", "isolated": ""},
            "pools": [{"cpus": "0-15", "shared_cpus": "4-15"}],
            "containers": [
                {"namespace": "n", "pod": "p", "container": "c", "phase": "running", "cpus": "0-3", "held": {"cpus": "0-15", "why": "w"}},
                {"namespace": "n", "pod": "q", "container": "c", "phase": "running", "cpus": "4-15", "held": {"cpus": "4-7", "is_expected": true}}],
            "config": {"cluster": {"name": "BayplanConfig/default", "generation": 3}}}))
        .unwrap();
        let object = ConfigObject::read(
            &json!({"metadata": {"name": "default", "generation": 3}, "spec": {"config": {"log": "info"}}}),
        );
        let node = NodeObject { name: "n1".into(), uid: "u".into(), ..NodeObject::default() };
        let report = NodeReport {
            node: &node,
            chosen: Some(&object),
            applied: &Applied::Holds,
            amplification: &Ok(None),
            daemon: Some(&daemon),
            lacking: None,
        };
        let (status, _) = report.status(&[], Timestamp::UNIX_EPOCH);
        expect![[r#"
            {
              "conditions": [
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": "BayplanConfig/default holds",
                  "observedGeneration": 3,
                  "reason": "Applied",
                  "status": "True",
                  "type": "ConfigApplied"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": "the daemon is ready",
                  "reason": "Ready",
                  "status": "True",
                  "type": "DaemonReady"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": "1 containers run elsewhere than placed, see bayplan status: n/p/c",
                  "reason": "ElsewhereThanPlaced",
                  "status": "False",
                  "type": "PlacementHealthy"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": "the agent reads and writes; lastSync says since when it has not",
                  "reason": "Synced",
                  "status": "True",
                  "type": "ApiSynced"
                }
              ],
              "configGeneration": 3,
              "configHash": "f9897a4e664e39ee",
              "configName": "BayplanConfig/default",
              "containers": 2,
              "daemonVersion": "1.2.3",
              "exclusiveCpus": 4,
              "isolatedCpus": 0,
              "largestFree": 12,
              "lastSync": "1970-01-01T00:00:00Z",
              "mode": "placing",
              "reservedCpus": 0,
              "sharedCpus": 12
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&status).unwrap());
    }

    #[test]
    fn without_the_daemon_nothing_is_said_of_cpus() {
        let node = NodeObject::default();
        let applied = Applied::DaemonAway("no socket".into());
        let report = NodeReport {
            node: &node,
            chosen: None,
            applied: &applied,
            amplification: &Ok(Some(150)),
            daemon: None,
            lacking: None,
        };
        let (status, conditions) = report.status(&[], Timestamp::UNIX_EPOCH);
        let shown: Vec<String> =
            conditions.iter().map(|it| format!("{} {}", it.kind, it.status)).collect();
        assert_eq!(
            shown,
            [
                "ConfigApplied Unknown",
                "DaemonReady False",
                "PlacementHealthy Unknown",
                "ApiSynced True",
                "AmplificationApplied Unknown"
            ]
        );
        assert_eq!(status.get("exclusiveCpus"), None);
    }
}
