//! What a segment tells already when a daemon starts. In: an opening, and the records of the segment that was written last. Out: the part of the opening that is news.
//!
//! A segment has thousands of records, and a start reads all of them: of each no more is parsed than this needs, and each is looked at once.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{ContainerNames, Entry, Kind, MachineForm};

/// A part of an [`Entry`].
#[derive(Debug, Deserialize)]
struct Told<'a> {
    kind: Kind,
    #[serde(default, borrow, rename = "who")]
    names: Option<Names<'a>>,
    /// Whether there is one.
    #[serde(default)]
    spec: Option<IgnoredAny>,
    #[serde(default)]
    machine: Option<Box<MachineForm>>,
}

/// A part of [`ContainerNames`].
#[derive(Debug, Deserialize)]
struct Names<'a> {
    #[serde(default)]
    id: Option<u64>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    pod: Cow<'a, str>,
    #[serde(borrow)]
    container: Cow<'a, str>,
    attempt: u32,
}

impl Names<'_> {
    fn is(&self, names: &ContainerNames) -> bool {
        let own = (&*self.namespace, &*self.pod, &*self.container, self.attempt);
        own == (&*names.namespace, &*names.pod, &*names.container, names.attempt)
    }
}

/// The part of an opening that a segment does not tell already, so that a daemon that is started often does not fill its history with
/// what has not changed.
pub fn news(opening: Vec<Entry>, records: &[String]) -> Vec<Entry> {
    let parsed = records.iter().filter_map(|record| serde_json::from_str(record).ok());
    let told: Vec<Told<'_>> = parsed.collect();
    let machine = told.iter().rev().find_map(|it| it.machine.as_ref());
    let mut of_ids = BTreeMap::<Option<u64>, Vec<(&Told<'_>, &Names<'_>)>>::new();
    for it in &told {
        if let Some(names) = &it.names {
            of_ids.entry(names.id).or_default().push((it, names));
        }
    }
    let is_told = |entry: &Entry| match (&entry.machine, entry.kind, &entry.who) {
        (Some(it), ..) => machine == Some(it),
        (None, Kind::Held, Some(names)) => {
            is_described(names, of_ids.get(&names.id).map(Vec::as_slice).unwrap_or_default())
        }
        _ => false,
    };
    opening.into_iter().filter(|entry| !is_told(entry)).collect()
}

/// Whether the last that is told of a container with this id is told of this one, and is not its end.
fn is_described(names: &ContainerNames, of_id: &[(&Told<'_>, &Names<'_>)]) -> bool {
    let Some((last, named)) = of_id.last() else { return false };
    let is_there = named.is(names) && !matches!(last.kind, Kind::Ended | Kind::Refused);
    is_there && of_id.iter().any(|(told, named)| told.spec.is_some() && named.is(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ContainerForm;

    /// `KIND ID NAME ATTEMPT`, and `spec` behind it where the entry describes the container.
    fn entry(text: &str) -> Entry {
        let words: Vec<&str> = text.split(' ').collect();
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == words[0]).unwrap();
        let names = ContainerNames {
            id: words[1].parse().ok(),
            namespace: "n \"of\" ü".to_owned(),
            pod: "p".to_owned(),
            container: words[2].to_owned(),
            attempt: words[3].parse().unwrap(),
            qos: None,
            runtime_id: None,
        };
        let spec = words
            .get(4)
            .map(|_| Box::new(ContainerForm::from(&bayplan_workload::NewContainer::default())));
        Entry { who: Some(names), spec, ..Entry::new(kind) }
    }

    /// Whether container `c` with id 1, attempt 0, is news after these entries.
    fn check(told: &[&str], is_news: bool) {
        let records: Vec<String> =
            told.iter().map(|text| serde_json::to_string(&entry(text)).unwrap()).collect();
        let found = news(vec![entry("held 1 c 0 spec")], &records);
        assert_eq!(!found.is_empty(), is_news, "{told:?}");
    }

    #[test]
    fn a_container_is_news_unless_the_last_entry_is_of_it_and_an_earlier_one_describes_it() {
        check(&[], true);
        for placed in ["placed 1 c 0 spec", "held 1 c 0 spec", "adopted 1 c 0 spec"] {
            check(&[placed], false);
            check(&[placed, "moved 1 c 0", "ended 2 d 0"], false);
            check(&[placed, "ended 1 c 0"], true);
            check(&[placed, "refused 1 c 0"], true);
            // The id was given anew after a restart.
            check(&[placed, "placed 1 d 0 spec"], true);
            check(&[placed, "placed 1 c 1 spec"], true);
            check(&[placed, "ended 1 c 0", "placed 1 d 0 spec", "placed 1 c 0 spec"], false);
            check(&["placed 1 d 0 spec", placed], false);
        }
        check(&["moved 1 c 0"], true);
        check(&["placed - c 0 spec", "moved 1 c 0"], true);
        check(&["placed 2 c 0 spec"], true);
    }

    #[test]
    fn a_machine_is_news_unless_it_is_the_last_that_was_told() {
        let machine = |cpus: &str| Entry {
            machine: Some(Box::new(MachineForm { cpus: cpus.to_owned(), ..Default::default() })),
            ..Entry::new(Kind::Machine)
        };
        for (told, is_news) in
            [(&[][..], true), (&["0-3"], false), (&["0-3", "0-7"], true), (&["0-7", "0-3"], false)]
        {
            let records = told.iter().map(|cpus| serde_json::to_string(&machine(cpus)).unwrap());
            let records: Vec<String> = records.collect();
            assert_eq!(
                news(vec![machine("0-3")], &records).len(),
                usize::from(is_news),
                "{told:?}"
            );
        }
    }

    #[test]
    fn what_is_no_entry_tells_nothing_and_other_entries_are_always_news() {
        let opening = || vec![Entry::new(Kind::Started), entry("held 1 c 0 spec")];
        let strange = ["", "{}", r#"{"kind":"held","who":{"id":1}}"#, "[1]"].map(str::to_owned);
        assert_eq!(news(opening(), &strange), opening());
        let told: Vec<String> =
            opening().iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        assert_eq!(news(opening(), &told), [Entry::new(Kind::Started)]);
    }
}
