//! The processes of the benchmark of the proxy: `runtime SOCKET` is a runtime without containers of its own, everything else is bayplan.

use std::process::ExitCode;

use bayplan_cri::embedded::EmbeddedRuntime;
use tokio::net::UnixListener;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1..) {
        Some([command, socket]) if command == "runtime" => match serve(socket) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{socket}: {error}");
                ExitCode::FAILURE
            }
        },
        _ => bayplan_cli::main(),
    }
}

/// Until it is killed.
fn serve(socket: &str) -> std::io::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = UnixListener::bind(socket)?;
        EmbeddedRuntime::new().serve(listener, std::future::pending()).await;
        Ok(())
    })
}
