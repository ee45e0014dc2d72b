//! How long guests and their tests took. In: consoles of guests. Out: a table, longest first.

use std::time::Duration;

/// A guest that has ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) name: String,
    pub(super) took: Duration,
    pub(super) tests: Vec<Test>,
    /// With the guest's name.
    pub(super) failure: Option<String>,
}

/// A guest test that has run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    name: String,
    seconds: f32,
}

/// Tests that a console tells of, from lines such as `test NAME ... ok (12.3 s)` and `test NAME ... FAILED (12.3 s): why`.
pub(super) fn parse(console: &str) -> Vec<Test> {
    console.lines().filter_map(|line| parse_line(line.trim())).collect()
}

fn parse_line(line: &str) -> Option<Test> {
    let (name, ended) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = ["ok (", "FAILED ("].into_iter().find_map(|it| ended.strip_prefix(it))?;
    let (seconds, _) = seconds.split_once(" s)")?;
    Some(Test { name: name.to_owned(), seconds: seconds.parse().ok()? })
}

/// A line for each guest, and one for each test of all guests.
pub(super) fn render(all: &[Ran]) -> String {
    let guests = all.iter().map(|ran| {
        let in_tests: f32 = ran.tests.iter().map(|it| it.seconds).sum();
        let how = if ran.failure.is_none() { "passed" } else { "FAILED" };
        format!(
            "{:6} s  {how}  {}, {} tests in {in_tests:.0} s\n",
            ran.took.as_secs(),
            ran.name,
            ran.tests.len()
        )
    });
    let mut tests: Vec<(&Test, &Ran)> =
        all.iter().flat_map(|ran| ran.tests.iter().map(move |test| (test, ran))).collect();
    tests.sort_by(|(a, _), (b, _)| b.seconds.total_cmp(&a.seconds));
    let tests = tests
        .into_iter()
        .map(|(test, ran)| format!("{:6.1} s  {}  ({})\n", test.seconds, test.name, ran.name));
    guests.chain(tests).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "lab: up after 14.2 s\r
test a_short_one ... ok (9.5 s)\r
test one_without_a_disk ... skipped: this machine has no disk\r
  moves: {}\r
test a_long_one ... FAILED (70.0 s): three (3 s) late\r
test broken ... ok (soon s)\r
guest: 1 passed, 1 failed, 1 skipped\r
";

    #[test]
    fn a_console_tells_how_long_each_test_took() {
        let test = |name: &str, seconds| Test { name: name.to_owned(), seconds };
        assert_eq!(parse(CONSOLE), [test("a_short_one", 9.5), test("a_long_one", 70.0)]);
        assert_eq!(parse("the guest ended"), []);
    }

    #[test]
    fn the_longest_test_of_all_guests_comes_first() {
        let ran = |name: &str, tests, failure: Option<&str>| Ran {
            name: name.to_owned(),
            took: Duration::from_secs(120),
            tests,
            failure: failure.map(str::to_owned),
        };
        let all = [
            ran("1cpu on 6.1", parse("test middle ... ok (20.0 s)"), None),
            ran("4s on 6.12, share 1 of 2", parse(CONSOLE), Some("4s: exit code 1")),
        ];
        let expected = "   120 s  passed  1cpu on 6.1, 1 tests in 20 s
   120 s  FAILED  4s on 6.12, share 1 of 2, 2 tests in 80 s
  70.0 s  a_long_one  (4s on 6.12, share 1 of 2)
  20.0 s  middle  (1cpu on 6.1)
   9.5 s  a_short_one  (4s on 6.12, share 1 of 2)
";
        assert_eq!(render(&all), expected);
    }
}
