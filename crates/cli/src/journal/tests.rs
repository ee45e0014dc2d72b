use bayplan_daemon::history::parse_entries;
use bayplan_host::history::parse_history;
use clap::Parser as _;
use expect_test::{Expect, expect};

use super::*;
use crate::args::{Args, Command};

/// As version 0.1.0 has written it. It stays as it is: later versions read it, too.
const FIRST: &[u8] = include_bytes!("../../../../tests/cli/history/first/00000001");

fn check(arguments: &[&str], expected: Expect) {
    let recovered = parse_history(FIRST);
    assert_eq!(recovered.dropped, []);
    let (entries, strange) = parse_entries(&recovered);
    assert_eq!(strange, 0);
    let args = Args::parse_from([&["bayplan", "journal"], arguments].concat());
    let Command::Journal(options) = args.command else { panic!("{args:?}") };
    let filter = Filter::new(&options, entries.last().unwrap().at);
    let shown: Vec<Entry> = entries.into_iter().filter(|entry| filter.shows(entry)).collect();
    expected.assert_eq(&Columns::default().render(&shown));
}

#[test]
fn what_happened_is_one_line_each() {
    check(&[], expect![[""]]);
}

#[test]
fn filters_go_together() {
    check(&["--kind", "refused,ended", "--namespace", "def*"], expect![[""]]);
    check(&["--kind", "held,continued,looked"], expect![[""]]);
    check(&["--pod", "nobody", "--container", "?"], expect![[""]]);
    check(&["--since", "2s", "--kind", "ended"], expect![[""]]);
}

#[test]
fn what_comes_later_does_not_narrow_a_column_nor_steer_a_terminal() {
    let entry = |why: &str, container: &str| -> Entry {
        let text = format!(
            r#"{{"at": "2026-11-21T03:04:05Z", "kind": "failure", "why": "{why}", "who":
                {{"namespace": "n", "pod": "p", "container": "{container}", "attempt": 2}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    let mut columns = Columns::default();
    let first = columns.render(&[entry("one", "long-name")]);
    let later = columns.render(&[entry("tw\\u001bo", "c")]);
    expect![[""]].assert_eq(&(first + &later));
}

#[test]
fn times_are_absolute_or_relative() {
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    for (text, expected) in [
        ("10m", "2026-11-21T11:50:00Z"),
        ("1h30m", "2026-11-21T10:30:00Z"),
        ("2d", "2026-11-19T12:00:00Z"),
        ("2026-11-21T03:04:05+01:00", "2026-11-21T02:04:05Z"),
    ] {
        let args = Args::parse_from(["bayplan", "journal", "--since", text]);
        let Command::Journal(options) = args.command else { panic!("{args:?}") };
        assert_eq!(options.since.unwrap().before(now).to_string(), expected);
    }
    for text in ["yesterday", "-10m", "", "10"] {
        let since = format!("--since={text}");
        let error = Args::try_parse_from(["bayplan", "journal", &since]).unwrap_err().to_string();
        assert!(error.contains("expected a time such as"), "{error}");
    }
}
