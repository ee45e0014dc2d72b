//! The probes on this machine's kernel: known work, known counts. Needs root (or CAP_BPF, CAP_PERFMON and the right to make cgroups); without
//! it every test fails and says what is lacking.
//!
//! The machine may be busy with other things, so nothing is compared with the clock: the kernel's own counters of the same tasks
//! (`/proc/PID/schedstat`, `cpu.stat`, `cpuacct.usage`) are the measure. Tests run one after the other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and a worker that cannot go on stops"
)]
#![allow(clippy::print_stdout, reason = "tests tell what they do, and workers what was counted")]

mod events;
mod intruders;
mod owners;
mod preempters;
mod refused;
mod tests;
mod times;
mod work;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["--work", rest @ ..] = args.as_slice() {
        work::perform(rest);
        return ExitCode::SUCCESS;
    }
    if args.contains(&"--list") {
        tests::ALL.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&&str> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let is_chosen = |name: &str| filters.is_empty() || filters.iter().any(|it| name.contains(**it));
    let mut failed = 0;
    for (name, test) in tests::ALL.iter().filter(|(name, _)| is_chosen(name)) {
        print!("test {name} ... ");
        match std::panic::catch_unwind(test) {
            Ok(()) => println!("ok"),
            Err(_) => {
                println!("FAILED");
                failed += 1;
            }
        }
    }
    println!("\ntest result: {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
