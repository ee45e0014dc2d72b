//! Why the daemon does not start.

use bayplan_config::UnsuitableError;
use bayplan_host::journal::JournalError;

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The reserved CPUs do not fit the machine.
    #[error(transparent)]
    Pools(#[from] UnsuitableError),
    /// The state directory cannot be used.
    #[error(transparent)]
    Journal(JournalError),
    /// The directory under which `/sys` and `/proc` are cannot be opened.
    #[error("cannot open hostRoot {what}")]
    Root {
        /// The directory.
        what: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// Kubelet calls the proxy, and the front end is another one.
    #[error(
        "kubelet calls {endpoint}, where nothing answers with frontEnd: nri; set kubelet's containerRuntimeEndpoint to the runtime's socket first, or frontEnd to cri"
    )]
    KubeletAtProxy {
        /// As kubelet has it.
        endpoint: String,
    },
    /// There is no thread for connections.
    #[error("cannot start the thread that forwards calls")]
    Forwarder(#[source] std::io::Error),
    /// A socket cannot be made.
    #[error("cannot listen on {what}")]
    Listen {
        /// Path or address.
        what: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}
