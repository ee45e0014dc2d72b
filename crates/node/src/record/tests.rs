use bayplan_workload::NewContainer;

use super::*;

/// Lines as the first version wrote them. What it did not know yet must not be asked of it.
const FIRST: &str = include_str!("first.jsonl");

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_first_versions_records_are_read() {
    let live = replay(&lines(FIRST));
    assert_eq!((live.unreadable, live.next_id), (0, 6));
    assert_eq!(live.fingerprint.as_deref(), Some("of 2026-11-19"));
    let told: Vec<String> = live
        .containers
        .into_values()
        .map(|placed| {
            let container = NewContainer::from(placed.container);
            let AllocationForm { pool, exclusive, mems, .. } = placed.allocation;
            let (name, runtime_id) = (container.name, placed.runtime_id.unwrap_or_default());
            format!("{name} {runtime_id} {:?} {pool} {exclusive:?} {mems}", container.pod.qos)
        })
        .collect();
    let expected = [
        "owner runtime-a Some(Guaranteed) numa 0 \"1,5\" 0",
        "sharer runtime-b Some(Burstable) numa 1 \"\" 1",
    ];
    assert_eq!(told, expected);
}

#[test]
fn records_of_a_newer_version_are_counted_and_the_rest_is_used() {
    let newer = FIRST.replacen("\"version\":1", "\"version\":2", 1);
    let newer = newer + "{\"record\":\"of_tomorrow\",\"id\":3}\n";
    let live = replay(&lines(&newer));
    assert_eq!((live.unreadable, live.containers.len()), (2, 2));
    assert_eq!(live.fingerprint, None);
}

#[test]
fn a_container_is_read_the_same_wherever_its_tag_stands() {
    let damaged = FIRST.replace("\"decision\":", "\"decided\":");
    let strange = ["{\"record\":\"placed\",", "{\"record\":\"placed\",\"id\":3}"];
    let strange = strange.map(str::to_owned);
    for line in lines(FIRST).into_iter().chain(lines(&damaged)).chain(strange) {
        let found = parse_record(&line).ok();
        assert_eq!(found, serde_json::from_str::<Record>(&line).ok(), "{line}");
        let moved = line.strip_prefix(PLACED).and_then(|rest| rest.strip_suffix('}'));
        if let Some(rest) = moved {
            let last = format!("{{{rest},\"record\":\"placed\"}}");
            assert_eq!(parse_record(&last).ok(), found, "{last}");
        }
    }
    assert!(lines(FIRST).iter().any(|line| line.starts_with(PLACED)));
}
