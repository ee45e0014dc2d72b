//! What happens to pods, for clients that follow it. In: entries of the history as they are made. Out: the last of them after a number, at once or
//! as soon as there is one. Kept in memory only: a client that falls behind is told how many it has missed, and one that knows another start of the
//! daemon gets all from the first on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_enforcement::{Author, Notice};
use bayplan_node::NodeState;
use bayplan_node::history::{By, ContainerNames, Entry, Kind, Place};
use bayplan_node::occupancy::Occupancy;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Events that are kept.
const KEPT_MAX: usize = 512;
/// How long a question for the next event waits.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The kind of an event of which the history knows nothing: another program has written to a container's files.
pub(crate) const DRIFTED: &str = "drifted";
/// Bytes of a reason.
const WHY_MAX: usize = 1024;

/// Events after a number; format `bayplan-events/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsView {
    /// Names the format.
    pub format: String,
    /// Numbers begin anew with each start of the daemon, which this names.
    pub run: String,
    /// Ask with this number next time.
    pub next: u64,
    /// Events after the number of the question that are no longer kept.
    pub missed: u64,
    /// The oldest first.
    pub events: Vec<EventView>,
}

/// Something that happened to a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// One more than that of the event before.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// As in the history: `refused`, `moved`, `squeezed`, `judged`; `drifted` where another program has written to its files.
    pub kind: String,
    /// For what it was moved; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub pod: String,
    /// Pod uid; absent where it is not known any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Container name.
    pub container: String,
    /// CPUs of its own before, and after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<[String; 2]>,
    /// The reason in words.
    pub why: String,
}

/// The last events. Cheap to clone; clones are the same feed.
#[derive(Clone, Debug)]
pub(crate) struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: String,
    kept: Mutex<Kept>,
    /// The number of the next event.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<EventView>,
    next: u64,
}

impl Feed {
    /// For a daemon that starts now.
    pub(crate) fn starting() -> Feed {
        Feed::new(Timestamp::now())
    }

    /// Without events; `started` tells this start from others.
    fn new(started: Timestamp) -> Feed {
        let (kept, next) = (Mutex::default(), watch::Sender::new(0));
        Feed(Arc::new(Inner { run: started.to_string(), kept, next }))
    }

    /// Keeps what clients want to know of these entries.
    pub(crate) fn tell(&self, entries: &[Entry], state: &NodeState) {
        self.keep(entries.iter().filter_map(|entry| view(entry, uid_of(entry, state))));
    }

    /// Keeps what other programs have changed of containers, which is repaired.
    pub(crate) fn tell_drift(&self, notices: &[Notice], occupancy: &Occupancy, now: Timestamp) {
        self.keep(notices.iter().filter_map(|notice| drift(notice, occupancy, now)));
    }

    fn keep(&self, events: impl Iterator<Item = EventView>) {
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.next;
        for event in events {
            let number = kept.next;
            kept.events.push_back(EventView { number, ..event });
            kept.next += 1;
            if kept.events.len() > KEPT_MAX {
                kept.events.pop_front();
            }
        }
        if kept.next != before {
            self.0.next.send_replace(kept.next);
        }
    }

    /// All that are kept, the oldest first.
    pub(crate) fn kept(&self) -> Vec<EventView> {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.events.iter().cloned().collect()
    }

    /// Events from a number on; waits for the first for so long, at most half a minute.
    pub(crate) async fn since(&self, run: &str, from: u64, wait: Duration) -> EventsView {
        let from = if run == self.0.run { from } else { 0 };
        let mut next = self.0.next.subscribe();
        let came = next.wait_for(|next| *next > from);
        // Without an event in time the answer is empty.
        // What it returns holds a lock that `keep` needs while it has the other one.
        drop(tokio::time::timeout(wait.min(WAIT_MAX), came).await);
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let first = kept.events.front().map_or(kept.next, |it| it.number);
        EventsView {
            format: "bayplan-events/1".to_owned(),
            run: self.0.run.clone(),
            next: kept.next,
            missed: first.saturating_sub(from),
            events: kept.events.iter().filter(|it| it.number >= from).cloned().collect(),
        }
    }
}

/// The pod's uid, which the entry has only where it describes the container.
fn uid_of(entry: &Entry, state: &NodeState) -> Option<String> {
    let of_spec = entry.spec.as_ref().map(|it| it.pod_uid().to_owned());
    let id = entry.who.as_ref().and_then(|it| it.id);
    let of_state = || Some(state.pod_uid(ContainerId(id?))?.to_owned());
    of_spec.or_else(of_state).filter(|uid| !uid.is_empty())
}

/// `None` for what is no news to the pod's owner: that all is as it was asked for, and what shared containers hardly notice.
fn view(entry: &Entry, uid: Option<String>) -> Option<EventView> {
    let ContainerNames { namespace, pod, container, .. } = entry.who.as_ref()?;
    let own = |place: &Option<Place>| place.as_ref().map(|it| it.own.clone()).unwrap_or_default();
    let (before, after) = (own(&entry.before), own(&entry.after));
    let is_news = match entry.kind {
        Kind::Refused | Kind::Squeezed | Kind::Judged => true,
        Kind::Moved => before != after,
        _ => false,
    };
    is_news.then(|| EventView {
        number: 0,
        at: entry.at,
        kind: entry.kind.name().to_owned(),
        by: entry.by,
        namespace: namespace.clone(),
        pod: pod.clone(),
        uid,
        container: container.clone(),
        exclusive: (before != after).then_some([before, after]),
        why: cut(&entry.why),
    })
}

/// `None` for what is of no container, and what the runtime or systemd writes along with something else.
fn drift(notice: &Notice, occupancy: &Occupancy, now: Timestamp) -> Option<EventView> {
    let Notice::Drifted { write, by: Author::Others } = notice else { return None };
    let occupant = occupancy.occupants.iter().find(|it| it.name == write.unit)?;
    let pod = &occupant.spec.pod;
    let why = format!(
        "another program has written {} to {}; it is {} again",
        write.old, write.slot, write.new
    );
    Some(EventView {
        number: 0,
        at: now,
        kind: DRIFTED.to_owned(),
        by: None,
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        uid: Some(pod.uid.clone()).filter(|uid| !uid.is_empty()),
        container: occupant.spec.name.clone(),
        exclusive: None,
        why: cut(&why),
    })
}

/// At a border of characters.
fn cut(why: &str) -> String {
    let end = (0..=WHY_MAX.min(why.len())).rev().find(|it| why.is_char_boundary(*it));
    why.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, before: &str, after: &str) -> Entry {
        let place = |own: &str| Some(Place { own: own.to_owned(), ..Place::default() });
        let who = ContainerNames {
            id: Some(1),
            namespace: "n".into(),
            pod: "p".into(),
            container: "c".into(),
            attempt: 0,
            qos: None,
            runtime_id: None,
        };
        Entry { who: Some(who), before: place(before), after: place(after), ..Entry::new(kind) }
    }

    #[test]
    fn news_are_refusals_squeezes_verdicts_and_moves_of_exclusive_cpus() {
        for (kind, before, after, is_news) in [
            (Kind::Refused, "", "", true),
            (Kind::Squeezed, "", "", true),
            (Kind::Judged, "", "", true),
            (Kind::Moved, "0-1", "2-3", true),
            (Kind::Moved, "0-1", "0-1", false),
            (Kind::Moved, "", "", false),
            (Kind::Placed, "", "0-1", false),
            (Kind::Ended, "0", "", false),
        ] {
            assert_eq!(view(&entry(kind, before, after), None).is_some(), is_news, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn clients_get_what_is_new_and_are_told_what_they_missed() {
        let feed = Feed::new(Timestamp::UNIX_EPOCH);
        let ask = async |from| feed.since("1970-01-01T00:00:00Z", from, Duration::ZERO).await;
        let event = || view(&entry(Kind::Refused, "", ""), Some("u".into())).unwrap();
        assert_eq!(ask(0).await.events, []);
        feed.keep([event(), event()].into_iter());
        let answer = ask(1).await;
        assert_eq!((answer.next, answer.missed, answer.events.len()), (2, 0, 1));
        assert_eq!(ask(2).await.events, []);
        feed.keep((0..KEPT_MAX).map(|_| event()));
        let answer = ask(0).await;
        assert_eq!((answer.missed, answer.events.len()), (2, KEPT_MAX));
        // Of another start.
        assert_eq!(feed.since("", 514, Duration::ZERO).await.events.len(), KEPT_MAX);
    }

    #[tokio::test]
    async fn a_client_that_waits_is_woken() {
        let feed = Feed::new(Timestamp::UNIX_EPOCH);
        let other = feed.clone();
        let asked = tokio::spawn(async move { other.since("", 0, WAIT_MAX).await });
        feed.keep([view(&entry(Kind::Squeezed, "", ""), None).unwrap()].into_iter());
        assert_eq!(asked.await.unwrap().events.len(), 1);
    }
}
