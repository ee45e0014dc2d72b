//! The processes of the benchmark of the proxy: `runtime SOCKET [ROOT]` is a runtime without processes, with files of their cgroups below the root, everything else is bayplan.

use std::process::ExitCode;

use bayplan_cri::embedded::EmbeddedRuntime;
use tokio::net::UnixListener;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1..) {
        Some([command, socket, root @ ..]) if command == "runtime" => {
            let runtime = match root {
                [root, ..] => EmbeddedRuntime::with_cgroups(root.into()),
                [] => EmbeddedRuntime::new(),
            };
            match serve(&runtime, socket) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{socket}: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        _ => bayplan_cli::main(),
    }
}

/// Until it is killed.
fn serve(runtime: &EmbeddedRuntime, socket: &str) -> std::io::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = UnixListener::bind(socket)?;
        runtime.serve(listener, std::future::pending()).await;
        Ok(())
    })
}
