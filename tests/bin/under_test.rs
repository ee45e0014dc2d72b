//! The daemon as the tests run it, so that testing this package always builds it; with bugs where a test wants them.

use std::process::ExitCode;

fn main() -> ExitCode {
    bayplan_cli::main_on(bayplan_tests::bug::disks())
}
