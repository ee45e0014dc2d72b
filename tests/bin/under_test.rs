//! The daemon as the tests run it, so that testing this package always builds it; and, as `bayplan-under-test scenario`, the
//! scenario with real containerd, so that a virtual machine needs one binary.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("scenario") => match bayplan_tests::scenario::run(Path::new("/proc/self/exe"), 2) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("scenario failed: {error:#}");
                ExitCode::FAILURE
            }
        },
        _ => bayplan_cli::main(),
    }
}
