//! The past on the screen of `bayplan top`. In: events and maps of the daemon's history. Out: which moment is shown, and what is to be asked for it.
//!
//! Pure. The last place is now, as on the slider of the page; events are asked for when the first is wanted, and older ones when those are all passed.

use bayplan_node::mode::Mode;
use bayplan_node::status::{ClassedCpus, ContainerStatus, GroupStatus, PoolStatus, Status};
use jiff::Timestamp;
use serde::Deserialize;

use super::reader::Row;
use crate::seats::Seats;

/// Some events, the oldest first, of format `bayplan-past/1`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PastList {
    has_more: bool,
    entries: Vec<PastEvent>,
}

#[derive(Clone, Debug, Deserialize)]
struct PastEvent {
    id: String,
    at: Timestamp,
    kind: String,
    name: String,
    why: String,
}

/// What was where after an event, of format `bayplan-map/1`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PastMap {
    reserved: String,
    isolated: String,
    pools: Vec<PastPool>,
    #[serde(default)]
    groups: Vec<PastPool>,
    containers: Vec<PastContainer>,
}

#[derive(Clone, Debug, Deserialize)]
struct PastPool {
    name: String,
    cpus: String,
    shared: String,
}

#[derive(Clone, Debug, Deserialize)]
struct PastContainer {
    name: String,
    class: String,
    own: String,
    cpus: String,
    mems: String,
    pool: String,
}

/// What the daemon is to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The last events, or those before this one.
    Events(Option<String>),
    /// The map after this event.
    Map(String),
}

/// A moment as it is shown.
pub(super) struct Moment {
    pub(super) seats: Seats,
    pub(super) rows: Vec<Row>,
}

/// Where in the past the screen is.
#[derive(Default)]
pub(super) struct Past {
    events: Vec<PastEvent>,
    has_more: bool,
    /// Events that were asked for and have not come: the last, or those before this one.
    asked: Option<Option<String>>,
    /// The event after which is shown; `None`: now.
    at: Option<usize>,
    /// `None` until the daemon has told.
    pub(super) moment: Option<Moment>,
}

impl Past {
    /// An event back.
    pub(super) fn back(&mut self) -> Option<Question> {
        match self.at.unwrap_or(self.events.len()).checked_sub(1) {
            Some(at) => self.go(at),
            None if self.asked.is_some() => None,
            None if self.events.is_empty() => Some(self.ask_events(None)),
            None => {
                let first = self.events.first().filter(|_| self.has_more)?.id.clone();
                Some(self.ask_events(Some(first)))
            }
        }
    }

    fn ask_events(&mut self, before: Option<String>) -> Question {
        self.asked = Some(before.clone());
        Question::Events(before)
    }

    /// An event forward; after the last one comes now.
    pub(super) fn forward(&mut self) -> Option<Question> {
        let next = self.at? + 1;
        if next < self.events.len() {
            return self.go(next);
        }
        self.live();
        None
    }

    /// Back to now. Events that have come meanwhile are asked for next time.
    pub(super) fn live(&mut self) {
        *self = Past::default();
    }

    fn go(&mut self, at: usize) -> Option<Question> {
        self.at = Some(at);
        self.events.get(at).map(|it| Question::Map(it.id.clone()))
    }

    /// Events before one, in front of those that are known; not taken if they are no longer wanted.
    pub(super) fn learn_events(
        &mut self,
        before: Option<String>,
        list: PastList,
    ) -> Option<Question> {
        if self.asked != Some(before) {
            return None;
        }
        self.asked = None;
        let is_wanted_at_once = self.at.is_none_or(|at| at == 0);
        let PastList { has_more, mut entries } = list;
        let count = entries.len();
        entries.append(&mut self.events);
        (self.events, self.has_more) = (entries, has_more);
        self.at = self.at.map(|at| at + count);
        if count > 0 && is_wanted_at_once { self.back() } else { None }
    }

    /// The question has no answer, and may be asked again.
    pub(super) fn learn_no_answer(&mut self, question: &Question) {
        if let Question::Events(before) = question
            && self.asked.as_ref() == Some(before)
        {
            self.asked = None;
        }
    }

    /// The map after an event, if that is still the one that is shown.
    pub(super) fn learn_map(&mut self, id: &str, map: PastMap) {
        if self.event().is_some_and(|it| it.id == id) {
            self.moment = Some(Moment::from(map));
        }
    }

    fn event(&self) -> Option<&PastEvent> {
        self.events.get(self.at?)
    }

    /// Which moment is shown, and why it came; `None`: now.
    pub(super) fn title(&self) -> Option<[String; 2]> {
        let PastEvent { at, kind, name, why, .. } = self.event()?;
        let number = self.at? + 1;
        let all = self.events.len();
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        let moment = format!("THE PAST, after event {number} of {all}, {at:.0}: {kind}{name}");
        Some([moment, why.clone()])
    }
}

impl From<PastMap> for Moment {
    fn from(map: PastMap) -> Moment {
        let rows = map.containers.iter().map(|it| Row {
            container: it.name.clone(),
            class: it.class.clone(),
            cpus: it.cpus.clone(),
            ..Row::default()
        });
        Moment { rows: rows.collect(), seats: Seats::new(&Status::from(map)) }
    }
}

/// As far as seats are derived from it.
impl From<PastMap> for Status {
    fn from(map: PastMap) -> Status {
        let pool = |it: PastPool| PoolStatus {
            name: it.name,
            cpus: it.cpus,
            shared_cpus: it.shared,
            shared_requests_milli: 0,
        };
        let group = |it: PastPool| GroupStatus {
            name: it.name,
            key: String::new(),
            cpus: it.cpus,
            shared_cpus: it.shared,
            requests_milli: 0,
            members: 0,
        };
        let cpus = ClassedCpus {
            exclusive: String::new(),
            shared: String::new(),
            reserved: map.reserved,
            isolated: map.isolated,
            idle: String::new(),
            closed: String::new(),
            lent: String::new(),
        };
        Status {
            format: String::new(),
            version: String::new(),
            mode: Mode::Placing,
            mode_since: None,
            cpus,
            pools: map.pools.into_iter().map(pool).collect(),
            containers: map.containers.into_iter().map(ContainerStatus::from).collect(),
            front_end: None,
            groups: map.groups.into_iter().map(group).collect(),
            clocks: Vec::new(),
            config: None,
        }
    }
}

impl From<PastContainer> for ContainerStatus {
    fn from(it: PastContainer) -> ContainerStatus {
        let mut parts = it.name.splitn(3, '/').map(str::to_owned);
        let mut part = || parts.next().unwrap_or_default();
        ContainerStatus {
            id: None,
            namespace: part(),
            pod: part(),
            container: part(),
            qos: None,
            cgroup_parent: String::new(),
            class: it.class,
            phase: String::new(),
            resize: String::new(),
            asked: String::new(),
            exclusive: it.own,
            cpus: it.cpus,
            exclusive_of_pod: String::new(),
            mems: it.mems,
            cpus_left_alone: false,
            mems_left_alone: false,
            pool: it.pool,
            group: String::new(),
            held: None,
            intruders: Vec::new(),
            has_wide_vectors: false,
            narrowing: None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Events with these ids.
    pub(in crate::top) fn list(ids: &[&str], has_more: bool) -> PastList {
        let event = |id: &&str| PastEvent {
            id: (*id).to_owned(),
            at: Timestamp::UNIX_EPOCH,
            kind: "placed".to_owned(),
            name: "n/old/c".to_owned(),
            why: "placed in numa 0".to_owned(),
        };
        PastList { has_more, entries: ids.iter().map(event).collect() }
    }

    /// A map with one exclusive container.
    pub(in crate::top) fn map() -> PastMap {
        serde_json::from_value(serde_json::json!({
            "reserved": "0", "isolated": "", "pools": [{"name": "numa 0", "cpus": "0-3", "shared": "1-3"}],
            "containers": [{"name": "n/old/c", "class": "exclusive", "own": "5-6", "cpus": "5-6", "mems": "1", "pool": "numa 1"}],
        }))
        .unwrap()
    }

    #[test]
    fn events_are_passed_one_by_one_and_older_ones_are_asked_for() {
        let map = |id: &str| Some(Question::Map(id.to_owned()));
        let mut past = Past::default();
        assert_eq!(past.forward(), None);
        assert_eq!(past.back(), Some(Question::Events(None)));
        assert_eq!(past.learn_events(None, list(&["1.3", "1.4"], true)), map("1.4"));
        assert_eq!(past.back(), map("1.3"));
        assert_eq!(past.back(), Some(Question::Events(Some("1.3".to_owned()))));
        let older = past.learn_events(Some("1.3".to_owned()), list(&["1.1", "1.2"], false));
        assert_eq!(older, map("1.2"));
        assert_eq!(past.back(), map("1.1"));
        assert_eq!(past.back(), None);
        for id in ["1.2", "1.3", "1.4"] {
            assert_eq!(past.forward(), map(id));
        }
        assert_eq!(past.forward(), None);
        assert_eq!(past.title(), None);
        // None has come, and there is nothing to go back to.
        assert_eq!(past.back(), Some(Question::Events(None)));
        assert_eq!(past.learn_events(None, list(&[], false)), None);
    }

    #[test]
    fn events_that_are_no_longer_wanted_are_not_taken() {
        let question = Some(Question::Events(None));
        let mut past = Past::default();
        assert_eq!(past.back(), question);
        assert_eq!(past.back(), None, "asked already");
        past.live();
        assert_eq!(past.learn_events(None, list(&["1.3"], true)), None);
        assert_eq!(past.title(), None);
        assert_eq!(past.back(), question);
        assert!(past.learn_events(None, list(&["1.3", "1.4"], true)).is_some());
        assert_eq!(past.learn_events(None, list(&["1.3", "1.4"], true)), None, "a second time");
        // Older ones that come after the key went forward stay in front.
        past.back();
        past.back();
        past.forward();
        assert_eq!(past.learn_events(Some("1.3".to_owned()), list(&["1.2"], false)), None);
        assert!(past.title().unwrap()[0].starts_with("THE PAST, after event 3 of 3"));
    }

    #[test]
    fn a_question_without_an_answer_is_asked_again() {
        let mut past = Past::default();
        let question = past.back().unwrap();
        past.learn_no_answer(&Question::Map("1.3".to_owned()));
        assert_eq!(past.back(), None);
        past.learn_no_answer(&question);
        assert_eq!(past.back(), Some(question));
    }

    #[test]
    fn only_the_map_of_the_moment_that_is_shown_is_taken() {
        let mut past = Past::default();
        past.back();
        past.learn_events(None, list(&["1.3", "1.4"], false));
        past.learn_map("1.3", map());
        assert!(past.moment.is_none());
        past.learn_map("1.4", map());
        assert_eq!(past.moment.as_ref().unwrap().rows[0].container, "n/old/c");
        assert_eq!(past.moment.unwrap().seats.mark_of("n/old/c").unwrap().0, 'A');
    }
}
