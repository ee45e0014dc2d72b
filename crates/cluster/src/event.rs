//! Kubernetes events on pods. In: events of the daemon, and the time. Out: objects of `events.k8s.io/v1`, or nothing where a pod or the node has had
//! enough of them.
//!
//! Of one reason a pod gets one event within [`QUIET`]; the next one says how many were left out. A node makes [`BURST`] events at once and one a second
//! after that; what is beyond is dropped, because events are no log.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::daemon::DaemonEvent;

/// How long a pod hears nothing more of one reason.
const QUIET: SignedDuration = SignedDuration::from_mins(10);
/// Events at once.
const BURST: i64 = 10;
/// Events older than this are left out, which only a start of the agent finds.
const OLD: SignedDuration = SignedDuration::from_mins(5);
/// Bytes of a note; the API server takes 1024.
const NOTE_MAX: usize = 1000;
/// Pods and reasons that are remembered; then all are forgotten.
const REMEMBERED_MAX: usize = 4096;

/// What says that events are of this program.
pub(crate) const CONTROLLER: &str = "bayplan.dev/agent";

/// An event to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEvent {
    /// The pod's.
    pub namespace: String,
    /// The object.
    pub object: Json,
}

/// Turns events of the daemon into those of Kubernetes.
#[derive(Debug)]
pub struct EventSink {
    node: String,
    /// When a pod heard of a reason, and what it did not hear since.
    heard: BTreeMap<(String, &'static str), (Timestamp, u32)>,
    /// Events that may be made at `counted`.
    left: i64,
    counted: Timestamp,
}

impl EventSink {
    /// For a node.
    pub fn new(node: &str, now: Timestamp) -> EventSink {
        EventSink { node: node.to_owned(), heard: BTreeMap::new(), left: BURST, counted: now }
    }

    /// `run` and `number` name the event, so that one that is made twice is the same.
    pub(crate) fn take(
        &mut self,
        event: &DaemonEvent,
        run: &str,
        number: u64,
        now: Timestamp,
    ) -> Option<PodEvent> {
        let (reason, action, kind) = meaning(event)?;
        let at: Timestamp = event.at.parse().unwrap_or(now);
        if now.duration_since(at) > OLD {
            return None;
        }
        let pod =
            format!("{}/{} {}", event.namespace, event.pod, event.uid.as_deref().unwrap_or(""));
        if self.heard.len() >= REMEMBERED_MAX {
            self.heard.clear();
        }
        let left_out = match self.heard.get_mut(&(pod.clone(), reason)) {
            Some((heard, left_out)) if now.duration_since(*heard) < QUIET => {
                *left_out += 1;
                return None;
            }
            Some((_, left_out)) => *left_out,
            None => 0,
        };
        self.has_room(now).then_some(())?;
        self.heard.insert((pod, reason), (now, 0));
        let note = note(event, left_out);
        let id: String = Sha256::digest(format!("{}\n{run}\n{number}", self.node))
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut regarding = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": event.namespace, "name": event.pod,
        });
        if let Some(uid) = &event.uid {
            regarding["uid"] = json!(uid);
        }
        Some(PodEvent {
            namespace: event.namespace.clone(),
            object: json!({
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": { "name": format!("{}.{id}", event.pod), "namespace": event.namespace },
                "eventTime": format!("{at:.6}"),
                "reportingController": CONTROLLER,
                "reportingInstance": self.node,
                "action": action,
                "reason": reason,
                "regarding": regarding,
                "note": note,
                "type": kind,
            }),
        })
    }

    /// Takes one of those that may be made.
    fn has_room(&mut self, now: Timestamp) -> bool {
        let seconds = now.duration_since(self.counted).as_secs();
        if seconds > 0 {
            self.left = (self.left + seconds).min(BURST);
            self.counted = now;
        }
        let has_room = self.left > 0;
        self.left -= i64::from(has_room);
        has_room
    }
}

/// Reason, action and type; `None` for kinds that a newer daemon has.
fn meaning(event: &DaemonEvent) -> Option<(&'static str, &'static str, &'static str)> {
    match event.kind.as_str() {
        "refused" => Some(("PlacementRefused", "Place", "Warning")),
        "moved" => Some(("ExclusiveCpusMoved", "Move", "Normal")),
        "squeezed" => Some(("SharedCpusReduced", "Squeeze", "Normal")),
        "judged" => Some(("RebalanceVerdict", "Rebalance", "Normal")),
        "drifted" => Some(("IsolationViolated", "Repair", "Warning")),
        _ => None,
    }
}

fn note(event: &DaemonEvent, left_out: u32) -> String {
    let mut note = format!("container {}: {}", event.container, event.why);
    if let Some([from, to]) = &event.exclusive {
        let shown = |cpus: &str| if cpus.is_empty() { "none".to_owned() } else { cpus.to_owned() };
        note.push_str(&format!("; exclusive CPUs {} -> {}", shown(from), shown(to)));
    }
    if let Some(by) = &event.by {
        note.push_str(&format!(" ({by})"));
    }
    let end = (0..=NOTE_MAX.min(note.len())).rev().find(|it| note.is_char_boundary(*it));
    note.truncate(end.unwrap_or(0));
    if left_out > 0 {
        note.push_str(&format!("; {left_out} before"));
    }
    note
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn event(kind: &str, pod: &str) -> DaemonEvent {
        DaemonEvent {
            at: "1970-01-01T00:00:00Z".into(),
            kind: kind.into(),
            by: None,
            namespace: "n".into(),
            pod: pod.into(),
            uid: Some("u".into()),
            container: "c".into(),
            exclusive: Some(["0-1".into(), "2-3".into()]),
            why: "w".into(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn an_event_is_on_its_pod() {
        let mut sink = EventSink::new("n1", at(0));
        let made = sink.take(&event("moved", "p"), "r", 7, at(1)).unwrap();
        assert_eq!(made.namespace, "n");
        expect![[r#"{"action":"Move","apiVersion":"events.k8s.io/v1","eventTime":"1970-01-01T00:00:00.000000Z","kind":"Event","metadata":{"name":"p.c86c2df57f6c2f44","namespace":"n"},"note":"container c: w; exclusive CPUs 0-1 -> 2-3","reason":"ExclusiveCpusMoved","regarding":{"apiVersion":"v1","kind":"Pod","name":"p","namespace":"n","uid":"u"},"reportingController":"bayplan.dev/agent","reportingInstance":"n1","type":"Normal"}"#]]
        .assert_eq(&made.object.to_string());
        assert_eq!(sink.take(&event("unheard-of", "p"), "r", 8, at(1)), None);
    }

    #[test]
    fn every_kind_of_the_daemon_has_a_reason() {
        let mut sink = EventSink::new("n1", at(0));
        for (kind, reason, is_warning) in [
            ("refused", "PlacementRefused", true),
            ("moved", "ExclusiveCpusMoved", false),
            ("squeezed", "SharedCpusReduced", false),
            ("judged", "RebalanceVerdict", false),
            ("drifted", "IsolationViolated", true),
        ] {
            let made = sink.take(&event(kind, "p"), "r", 1, at(1)).unwrap().object;
            assert_eq!((&made["reason"], made["type"] == "Warning"), (&reason.into(), is_warning));
        }
    }

    #[test]
    fn pods_hear_of_a_reason_once_in_ten_minutes() {
        let mut sink = EventSink::new("n1", at(0));
        let mut heard = |kind: &str, pod: &str, second: i64| {
            let event = DaemonEvent { at: at(second).to_string(), ..event(kind, pod) };
            let made = sink.take(&event, "r", 0, at(second))?;
            Some(made.object["note"].as_str().unwrap().rsplit("; ").next().unwrap().to_owned())
        };
        assert!(heard("refused", "p", 0).is_some());
        assert_eq!(heard("refused", "p", 1), None);
        assert!(heard("refused", "q", 2).is_some() && heard("moved", "p", 3).is_some());
        assert_eq!(heard("refused", "p", 599), None);
        assert_eq!(heard("refused", "p", 601).unwrap(), "2 before");
        assert_eq!(heard("refused", "p", 602), None);
    }

    #[test]
    fn a_node_makes_ten_events_at_once_and_one_a_second() {
        let mut sink = EventSink::new("n1", at(0));
        let mut count = |second: i64| {
            let made = (0..50).filter(|it| {
                let event = event("refused", &format!("p{second}-{it}"));
                sink.take(&event, "r", 0, at(second)).is_some()
            });
            made.count()
        };
        assert_eq!([count(0), count(0), count(1), count(4), count(100)], [10, 0, 1, 3, 10]);
        // Found at a start.
        assert_eq!(count(400), 0);
    }
}
