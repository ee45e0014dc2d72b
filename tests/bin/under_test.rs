//! The daemon as the tests run it, so that testing this package always builds it.

use std::process::ExitCode;

fn main() -> ExitCode {
    bayplan_cli::main()
}
