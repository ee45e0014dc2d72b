//! The binary `bayplan`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bayplan_cli::main()
}
