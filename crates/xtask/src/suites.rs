//! Runs `cargo test` and tells how long each test program took, because libtest alone knows when cargo builds and when tests run.
//! In: a command. Out: all that it prints, as it comes, and seconds of each program.

use std::io::{self, BufRead as _, BufReader, PipeReader, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// How often it is looked whether the command has ended.
const LOOK: Duration = Duration::from_millis(200);

/// A test program that has run, or the examples of a crate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) seconds: f32,
}

/// Runs it; what is found is added to `suites`, also when the command fails.
pub(crate) fn run(command: &mut Command, suites: &mut Vec<Suite>) -> anyhow::Result<()> {
    let words: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    let line = format!("{} {}", command.get_program().to_string_lossy(), words.join(" "));
    println!("xtask: {line}");
    let (reader, writer) = io::pipe()?;
    // Both in one pipe, so that they stay in order.
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn().with_context(|| format!("cannot run {line}"))?;
    // Our ends of the pipe would keep it open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, lines) = channel();
    thread::spawn(move || send_lines(reader, &sender));
    let status = follow(child, &lines, suites)?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

fn send_lines(reader: PipeReader, to: &Sender<Vec<u8>>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        if to.send(std::mem::take(&mut line)).is_err() {
            return;
        }
    }
}

/// Until the command has ended; a process that it has left behind may hold the pipe open.
fn follow(
    mut child: Child,
    lines: &Receiver<Vec<u8>>,
    suites: &mut Vec<Suite>,
) -> anyhow::Result<ExitStatus> {
    let mut finder = Finder::default();
    let mut ended = None;
    loop {
        match (lines.recv_timeout(LOOK), ended) {
            (Ok(line), _) => {
                io::stdout().write_all(&line)?;
                io::stdout().flush()?;
                suites.extend(finder.find(&String::from_utf8_lossy(&line)));
            }
            (Err(RecvTimeoutError::Disconnected), _) => return Ok(child.wait()?),
            (Err(RecvTimeoutError::Timeout), Some(status)) => return Ok(status),
            (Err(RecvTimeoutError::Timeout), None) => ended = child.try_wait()?,
        }
    }
}

/// Finds programs and their time in what cargo and libtest print.
#[derive(Debug, Default)]
struct Finder {
    /// What runs now.
    name: String,
}

impl Finder {
    fn find(&mut self, line: &str) -> Option<Suite> {
        let line = line.trim();
        if let Some(name) = program(line).or_else(|| line.strip_prefix("Doc-tests ")) {
            self.name = name.to_owned();
        }
        let (_, took) = line.strip_prefix("test result: ")?.split_once("finished in ")?;
        let seconds = took.strip_suffix('s')?.parse().ok()?;
        Some(Suite { name: self.name.clone(), seconds })
    }
}

/// From a line such as `Running unittests src/lib.rs (target/debug/deps/bayplan_types-0f1e2d3c4b5a6978)`.
fn program(line: &str) -> Option<&str> {
    let (_, path) = line.strip_prefix("Running ")?.rsplit_once(" (")?;
    let (_, file) = path.strip_suffix(')')?.rsplit_once('/')?;
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const PRINTED: &str = "   Compiling bayplan-types v0.1.0
    Finished `test` profile [unoptimized] target(s) in 1m 02s
     Running unittests src/lib.rs (target/debug/deps/bayplan_types-0f1e2d3c4b5a6978)

running 1 test
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s

     Running daemon/main.rs (/elsewhere/debug/deps/daemon-00112233)
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 61.50s

   Doc-tests bayplan_types
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    fn suite(name: &str, seconds: f32) -> Suite {
        Suite { name: name.to_owned(), seconds }
    }

    #[test]
    fn each_program_has_its_own_time() {
        let mut finder = Finder::default();
        let found: Vec<Suite> = PRINTED.lines().filter_map(|line| finder.find(line)).collect();
        let expected =
            [suite("bayplan_types", 0.25), suite("daemon", 61.5), suite("bayplan_types", 1.0)];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_has_another_form_is_no_program() {
        for line in ["Running", "Running (x)", "test result: ok. finished in soon", ""] {
            assert_eq!((Finder::default().find(line), program(line)), (None, None), "{line}");
        }
    }

    /// A shell in place of cargo.
    fn check(script: &str, expected: &[Suite], is_well: bool) {
        let mut suites = Vec::new();
        let ran = run(Command::new("sh").args(["-c", script]), &mut suites);
        assert_eq!((suites.as_slice(), ran.is_ok()), (expected, is_well), "{script}");
    }

    #[test]
    fn a_failure_is_one_also_after_suites_that_were_found() {
        let one = "echo 'Running a.rs (deps/a-1)' >&2; echo 'test result: ok. finished in 2.50s'";
        check(one, &[suite("a", 2.5)], true);
        check(&format!("{one}; exit 3"), &[suite("a", 2.5)], false);
        check("exit 3", &[], false);
    }

    #[test]
    fn a_process_that_is_left_behind_holds_nothing_up() {
        let begun = Instant::now();
        check("sleep 20 & echo 'test result: ok. finished in 1.00s'", &[suite("", 1.0)], true);
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    }
}
