use bayplan_host::history::parse_history;
use bayplan_node::history::parse_entries;
use clap::Parser as _;
use expect_test::{Expect, expect};

use super::*;
use crate::args::{Args, Command};

/// As version 0.1.0 has written it. It stays as it is: later versions read it, too.
const FIRST: &[u8] = include_bytes!("../../../../tests/cli/history/first/00000001");

fn check(arguments: &[&str], expected: Expect) {
    let recovered = parse_history(FIRST);
    assert_eq!(recovered.dropped, []);
    let (entries, strange) = parse_entries(&recovered.records);
    assert_eq!(strange, 0);
    let args = Args::parse_from([&["bayplan", "journal"], arguments].concat());
    let Command::Journal(options) = args.command else { panic!("{args:?}") };
    let filter = Filter::new(&options, entries.last().unwrap().at);
    let shown: Vec<Entry> = entries.into_iter().filter(|entry| filter.shows(entry)).collect();
    expected.assert_eq(&Columns::default().render(&shown));
}

#[test]
fn what_happened_is_one_line_each() {
    check(
        &[],
        expect![[r#"
            TIME (UTC)           WHAT     CONTAINER                  CPUS                          MEMS  WHY
            2026-11-21 03:12:17  machine  -                          -                             -     CPUs 0-15 of a machine 914b8fc6ae3317a2
            2026-11-21 03:12:17  started  -                          -                             -     bayplan 0.1.0, 0 containers
            2026-11-21 03:12:17  placed   default/database/database  own 1,9                       0     Guaranteed, 2 exclusive, memory 1 GiB; placed in numa 0
            2026-11-21 03:12:17  placed   default/batch/batch        4-7,12-15                     1     Burstable, 500m shared; placed in numa 1
            2026-11-21 03:12:17  refused  default/big/big            -                             -     Guaranteed, 99 exclusive, memory 1 GiB; needs 99 CPUs of its own, 11 can be given; 88 more would have to be freed
            2026-11-21 03:12:17  resized  default/database/database  own 1,9 -> own 1-2,9-10       0     Guaranteed, 4 exclusive, memory 1 GiB; placed in numa 0
            2026-11-21 03:12:17  refused  default/database/database  own 1-2,9-10                  0     Guaranteed, 40 exclusive, memory 1 GiB; needs 40 CPUs of its own, 13 can be given; 27 more would have to be freed
            2026-11-21 03:12:19  machine  -                          -                             -     CPUs 0,2-15 of a machine a23193ed7fe60b3b
            2026-11-21 03:12:19  moved    default/database/database  own 1-2,9-10 -> own 2-3,9-10  0     lost CPUs 1; placed in numa 0
            2026-11-21 03:12:19  started  -                          -                             -     bayplan 0.1.0, 2 containers
            2026-11-21 03:12:19  ended    default/batch/batch        4-7,12-15                     1     it ended
            2026-11-21 03:12:19  adopted  default/stranger/stranger  4-7,11-15                     0-1   Burstable, 100m shared; found running, shares
            2026-11-21 03:12:19  ended    default/database/database  own 2-3,9-10                  0     stopped or removed
        "#]],
    );
}

#[test]
fn filters_go_together() {
    check(
        &["--kind", "refused,ended", "--namespace", "def*"],
        expect![[r#"
            TIME (UTC)           WHAT     CONTAINER                  CPUS          MEMS  WHY
            2026-11-21 03:12:17  refused  default/big/big            -             -     Guaranteed, 99 exclusive, memory 1 GiB; needs 99 CPUs of its own, 11 can be given; 88 more would have to be freed
            2026-11-21 03:12:17  refused  default/database/database  own 1-2,9-10  0     Guaranteed, 40 exclusive, memory 1 GiB; needs 40 CPUs of its own, 13 can be given; 27 more would have to be freed
            2026-11-21 03:12:19  ended    default/batch/batch        4-7,12-15     1     it ended
            2026-11-21 03:12:19  ended    default/database/database  own 2-3,9-10  0     stopped or removed
        "#]],
    );
    check(
        &["--kind", "held,continued,looked"],
        expect![[r#"
        TIME (UTC)  WHAT  CONTAINER  CPUS  MEMS  WHY
    "#]],
    );
    check(
        &["--pod", "nobody", "--container", "?"],
        expect![[r#"
        TIME (UTC)  WHAT  CONTAINER  CPUS  MEMS  WHY
    "#]],
    );
    check(
        &["--since", "2s", "--kind", "ended"],
        expect![[r#"
            TIME (UTC)           WHAT   CONTAINER                  CPUS          MEMS  WHY
            2026-11-21 03:12:19  ended  default/batch/batch        4-7,12-15     1     it ended
            2026-11-21 03:12:19  ended  default/database/database  own 2-3,9-10  0     stopped or removed
        "#]],
    );
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
    expect![[r#"
        TIME (UTC)           WHAT     CONTAINER        CPUS  MEMS  WHY
        2026-11-21 03:04:05  failure  n/p/long-name#2  -     -     one
        2026-11-21 03:04:05  failure  n/p/c#2          -     -     tw�o
    "#]]
    .assert_eq(&(first + &later));
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

/// Two lines of a victim, and of a container on which something is turned for it.
fn proposals() -> Vec<Entry> {
    let lines = [
        r#"{"at":"2026-11-22T05:00:00Z","kind":"proposed","who":{"id":2,"namespace":"batch","pod":"hog","container":"main","attempt":0},"why":"turns idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50","proposal":{"number":1,"knob":"idle","mode":"act","target":"batch/hog/main","victim":"shop/web/main","findings":[{"signal":"waiting","short":2.0,"long":1.5,"limit":0.5,"spread":0.1},{"signal":"cpu-pressure","short":0.625,"long":0.5,"usual":0.05,"limit":0.25,"spread":0.0}],"culprits":[{"container":"batch/hog/main","tie":"CPU","class":"BestEffort","correlation":0.5,"magnitude":3.25}]}}"#,
        r#"{"at":"2026-11-22T05:00:20Z","kind":"judged","who":{"id":2,"namespace":"batch","pod":"hog","container":"main","attempt":0},"why":"kept: closed 90 % of the gap (idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50)","proposal":{"number":1,"knob":"idle","mode":"act","target":"batch/hog/main","victim":"shop/web/main","verdict":{"name":"kept","relief":0.9}}}"#,
        r#"{"at":"2026-11-21T05:00:00Z","kind":"proposed","who":{"id":2,"namespace":"batch","pod":"hog","container":"main","attempt":0},"why":"would turn idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50"}"#,
    ];
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check_proposals(arguments: &[&str], expected: Expect) {
    let args = Args::parse_from([&["bayplan", "journal"], arguments].concat());
    let Command::Journal(options) = args.command else { panic!("{args:?}") };
    let filter = Filter::new(&options, Timestamp::UNIX_EPOCH);
    let shown: Vec<Entry> = proposals().into_iter().filter(|it| filter.shows(it)).collect();
    expected.assert_eq(&Columns::default().render(&shown));
}

#[test]
fn a_proposal_is_told_of_its_victim_with_its_evidence() {
    let of_victim = ["--namespace", "shop", "--pod", "web", "--container", "m*"];
    check_proposals(
        &of_victim,
        expect![[r#"
        TIME (UTC)           WHAT      CONTAINER       CPUS  MEMS  WHY
        2026-11-22 05:00:00  proposed  batch/hog/main  -     -     turns idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50; cpu-pressure 62 % > 25 %, usually 5 %; from batch/hog/main by a shared CPU: activity 3.25, correlation 0.5
        2026-11-22 05:00:20  judged    batch/hog/main  -     -     kept: closed 90 % of the gap (idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50)
    "#]],
    );
    // The last line is that of a version that kept no evidence: only the target is named.
    check_proposals(
        &["--pod", "hog"],
        expect![[r#"
        TIME (UTC)           WHAT      CONTAINER       CPUS  MEMS  WHY
        2026-11-22 05:00:00  proposed  batch/hog/main  -     -     turns idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50; cpu-pressure 62 % > 25 %, usually 5 %; from batch/hog/main by a shared CPU: activity 3.25, correlation 0.5
        2026-11-22 05:00:20  judged    batch/hog/main  -     -     kept: closed 90 % of the gap (idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50)
        2026-11-21 05:00:00  proposed  batch/hog/main  -     -     would turn idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50
    "#]],
    );
    // No mixture of the names of two.
    check_proposals(
        &["--namespace", "shop", "--pod", "hog"],
        expect![[r#"
        TIME (UTC)  WHAT  CONTAINER  CPUS  MEMS  WHY
    "#]],
    );
}
