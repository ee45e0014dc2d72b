//! The daemon as the tests run it, so that testing this package always builds it; and, as `bayplan-under-test scenario`, the
//! scenario with real containerd, so that a virtual machine needs one binary. It switches CPUs off: nowhere else but there.

use std::path::Path;
use std::process::ExitCode;

use bayplan_tests::scenario::{self, Host};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("scenario") => match scenario::run(Path::new("/proc/self/exe"), 2, Host::Own) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("scenario failed: {error:#}");
                ExitCode::FAILURE
            }
        },
        _ => bayplan_cli::main(),
    }
}
