//! `bayplan journal` and `bayplan explain` on the history of a node without a running daemon.

use std::fs;
use std::path::Path;

use expect_test::expect;

use crate::{bayplan, check, stdout};

/// As version 0.1.0 has written it.
const HISTORY: &str = "cli/history/first";

#[test]
fn the_journal_is_read_without_the_daemon() {
    check(
        &["journal", "--state-dir", HISTORY, "--kind", "refused,moved"],
        expect![[r#"
            exit 0
            TIME (UTC)           WHAT     CONTAINER                  CPUS                          MEMS  WHY
            2026-11-21 03:12:17  refused  default/big/big            -                             -     Guaranteed, 99 exclusive, memory 1 GiB; needs 99 CPUs of its own, 11 can be given; 88 more would have to be freed
            2026-11-21 03:12:17  refused  default/database/database  own 1-2,9-10                  0     Guaranteed, 40 exclusive, memory 1 GiB; needs 40 CPUs of its own, 13 can be given; 27 more would have to be freed
            2026-11-21 03:12:19  moved    default/database/database  own 1-2,9-10 -> own 2-3,9-10  0     lost CPUs 1; placed in numa 0
        "#]],
    );
    let all = stdout(&["journal", "--state-dir", HISTORY]);
    let segment = format!("{HISTORY}/00000001");
    assert_eq!(stdout(&["journal", "--state-dir", &segment]), all);
    assert_eq!(stdout(&["journal", "--state-dir", HISTORY, "-n", "2"]).lines().count(), 3);
}

#[test]
fn programs_get_an_object_a_line() {
    let text = stdout(&["journal", "--state-dir", HISTORY, "-o", "json", "--pod", "database"]);
    let entries: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(entries.iter().all(|entry| entry["who"]["container"] == "database"));
    assert_eq!(entries[0]["after"]["own"], "1,9");
}

#[test]
fn damaged_lines_are_counted_and_said_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(Path::new(HISTORY).join("00000001")).unwrap();
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 20;
    bytes[second] ^= 1;
    bytes.truncate(bytes.len() - 7);
    fs::write(dir.path().join("00000003"), &bytes).unwrap();
    let output = bayplan(&["journal", "--state-dir", dir.path().to_str().unwrap()]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    let text = text.replace(dir.path().to_str().unwrap(), "DIR");
    expect![[r#"
        bayplan: 2 damaged lines were left out:
          DIR/00000003:2: wrong checksum
          DIR/00000003:14: torn: the daemon was stopped in the middle of a write
    "#]]
    .assert_eq(&text);
}

#[test]
fn what_holds_no_history_is_said_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let output = bayplan(&["journal", "--state-dir", path]);
    let text = String::from_utf8(output.stderr).unwrap().replace(path, "DIR");
    expect![[r#"
        bayplan: DIR holds no history; expected a state directory of the daemon, its directory `history`, or a file in that
    "#]].assert_eq(&text);
    check(
        &["journal", "--state-dir", "/nonexistent"],
        expect![[r#"
        exit 1
        bayplan: cannot read /nonexistent: No such file or directory (os error 2)
    "#]],
    );
    check(
        &["journal", "--since", "yesterday"],
        expect![[r#"
        exit 2
        error: invalid value 'yesterday' for '--since <TIME>': expected a time such as 2026-11-21T03:10:00Z, or how long ago it was, such as 10m, 2h or 3d

        For more information, try '--help'.
    "#]],
    );
}
