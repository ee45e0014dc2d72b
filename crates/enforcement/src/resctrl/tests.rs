//! Configurations and machines as text, and what comes of them.

mod machines;
mod narrower;
mod peers;
mod properties;
mod refusals;
mod written;

use expect_test::Expect;

use self::machines::machine;
use self::written::config;
use super::*;

/// What every class gets, then what is told; or all problems.
fn resolved(name: &str, text: &str) -> String {
    match resolve(&config(text), &machine(name)) {
        Ok(ResolvedClasses { classes, notes, remarks }) => {
            let classes = classes.iter().map(|class| {
                let lines = class.schemata.iter().map(|(name, line)| format!(" {name}:{line}"));
                format!("{}{}\n", class.name, lines.collect::<String>())
            });
            let notes = notes.iter().chain(&remarks).map(|note| format!("note: {note}\n"));
            classes.chain(notes).collect()
        }
        Err(problems) => problems.iter().map(|problem| format!("{problem}\n")).collect(),
    }
}

fn check(machine: &str, config: &str, expected: Expect) {
    expected.assert_eq(&resolved(machine, config));
}
