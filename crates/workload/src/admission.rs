//! What a front end and the node tell each other about a creation. Plain values: the front end asks, the node answers, the front end tells how it ended.

pub use bayplan_types::Pinning;

/// Names one container creation from the question to its outcome; the runtime's id does not exist yet when the question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The daemon's answer before a container is created or its resources are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "one lives as long as one call")]
pub enum Admission {
    /// Run it here. All others have let go of these CPUs, unless the runtime failed to make them, which is counted and repeated.
    Place(Pinning),
    /// Forward the call as it came: the container is not bayplan's to place, or there was no answer in time.
    PassThrough,
    /// Answer kubelet with `RESOURCE_EXHAUSTED` and this text; the runtime is not called.
    Refuse(String),
    /// Answer kubelet with `UNAVAILABLE` and this text, so that it tries again; the runtime is not called.
    Unavailable(String),
}

/// A directory of the host that a container sees, and cannot change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it sees it.
    pub container_path: String,
    /// Where it is.
    pub host_path: String,
}

/// How a forwarded creation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The runtime made it under this id. `pinned` is false when the call was forwarded without bayplan's CPU set.
    Created {
        /// The runtime's container id.
        id: String,
        /// Whether the forwarded request carried the pinning.
        pinned: bool,
    },
    /// The runtime answered with an error: there is no such container.
    Failed,
    /// The call was cancelled, timed out, or the connection broke: the runtime may or may not have made it.
    Unknown,
}

/// How a forwarded change of resources ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeOutcome {
    /// The runtime has made it.
    Done,
    /// The runtime answered with an error, or never heard of it: the container has the resources of before.
    Failed,
    /// The call was cancelled, timed out, or the connection broke: the runtime may have made it, or be at work on it.
    Unknown,
}
