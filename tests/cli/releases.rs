//! Files of an earlier release, read by this program.

use bayplan_tests::release::{BEFORE_NODE_CRATE, differences, json, path, text};
use serde_json::Value;

use crate::stdout;

fn file(name: &str) -> String {
    path(BEFORE_NODE_CRATE, name).to_str().unwrap().to_owned()
}

fn printed(name: &str) -> String {
    text(BEFORE_NODE_CRATE, name).unwrap()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_history_of_the_release_is_listed_as_it_was() {
    let history = file("history");
    assert_eq!(stdout(&["journal", "--state-dir", &history]), printed("journal.txt"));
    let entries = stdout(&["journal", "--state-dir", &history, "-o", "json"]);
    let entries: Vec<Value> = entries.lines().map(parsed).collect();
    let written = printed("history/00000001");
    // After the header, each line is a checksum and an entry.
    let written = written.lines().skip(1).map(|line| parsed(line.split_once(' ').unwrap().1));
    let written: Vec<Value> = written.collect();
    assert_eq!((entries.len(), written.len()), (29, 29));
    assert_eq!(differences(&written.into(), &entries.into()), [""; 0]);
}

#[test]
fn a_history_of_the_release_is_replayed_to_the_same_decisions() {
    let (history, config) = (file("history"), file("permissions.yaml"));
    let replayed = parsed(&stdout(&["--config", &config, "replay", &history, "-o", "json"]));
    let mut then = parsed(&printed("replay.json"));
    // The release's program had no permissions; it replayed its history under the configuration of the time.
    then["runs"][1]["config"] = config.into();
    assert_eq!(then["elsewhere"], Value::Array(Vec::new()));
    assert_eq!(differences(&then, &replayed), [""; 0]);
}

#[test]
fn a_snapshot_of_the_release_is_the_machine_that_it_was() {
    for machine in ["server", "synthetic"] {
        let snapshot = file(&format!("{machine}.gz"));
        let tree = stdout(&["topology", "--machine", &snapshot]);
        assert_eq!(tree, printed(&format!("{machine}.txt")));
        let then = json(BEFORE_NODE_CRATE, &format!("{machine}.json.gz")).unwrap();
        let now = parsed(&stdout(&["topology", "--machine", &snapshot, "-o", "json"]));
        assert_eq!(differences(&then, &now), [""; 0], "{machine}");
    }
}
