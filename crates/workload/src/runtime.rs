//! What a container runtime says of its sandboxes and containers, as plain values; and why it said nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bayplan_types::{Bytes, CpuSet, NodeSet};

use crate::cmk::Isolate;

/// A sandbox in the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPod {
    /// The runtime's sandbox id.
    pub id: String,
    /// Kubernetes UID.
    pub uid: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
    /// Counts sandboxes of the same pod.
    pub attempt: u32,
    /// False once it was stopped or died.
    pub is_ready: bool,
    /// Labels of the sandbox.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the sandbox.
    pub annotations: BTreeMap<String, String>,
}

/// A sandbox in detail: what the list has, and its parent cgroup where the runtime tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDetails {
    /// As in the list.
    pub pod: ListedPod,
    /// The parent cgroup as kubelet gave it.
    pub cgroup_parent: Option<String>,
}

/// A container that has ended or was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedContainer {
    /// The runtime's id.
    pub id: String,
    /// How its process ended, where the runtime says so with the event.
    pub exit: Option<Exit>,
}

/// How the first process of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code; 128 and the number of the signal that killed it.
    pub code: i32,
    /// The runtime's word for it, such as `OOMKilled` or `Completed`; may be empty.
    pub reason: String,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exit { code, reason } = self;
        write!(f, "it exited with code {code}")?;
        if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
    }
}

/// What a container is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Started.
    Running,
    /// Ended, not removed.
    Exited,
    /// The runtime does not know, or says a state that is newer than this file.
    Unknown,
}

/// A container in the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedContainer {
    /// The runtime's container id.
    pub id: String,
    /// The runtime's sandbox id.
    pub pod_id: String,
    /// Name in the pod.
    pub name: String,
    /// Counts restarts.
    pub attempt: u32,
    /// Its image, as the runtime was told; empty where the runtime does not tell.
    pub image: String,
    /// What it is doing.
    pub state: ContainerState,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A container as the runtime will run it or runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerDetails {
    /// Its first process; `None` before it is started and after it has ended.
    pub pid: Option<u32>,
    /// `cpuset.cpus`; `None` also for "not set".
    pub cpus: Option<CpuSet>,
    /// `cpuset.mems`; `None` also for "not set".
    pub mems: Option<NodeSet>,
    /// `cpu.shares` of cgroup v1.
    pub shares: Option<i64>,
    /// Microseconds of CPU time per period; negative is no limit.
    pub quota: Option<i64>,
    /// Microseconds.
    pub period: Option<i64>,
    /// Bytes; negative is no limit.
    pub memory_limit: Option<i64>,
    /// `oom_score_adj` of its first process.
    pub oom_score_adj: Option<i64>,
    /// Huge pages: bytes by size of a page.
    pub huge_pages: BTreeMap<Bytes, Bytes>,
    /// As the runtime spells it: `/kubepods/...` or `slice:prefix:name`.
    pub cgroups_path: Option<String>,
    /// Its devices; only containerd tells their paths.
    pub devices: Vec<String>,
    /// Mounts from below `/dev`.
    pub mounts: Vec<String>,
    /// The pool of CMK that its environment names.
    pub isolate: Option<Isolate>,
}

/// Why one of bayplan's own calls brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The runtime does not know the container or sandbox (any more).
    #[error("the runtime does not know `{id}`")]
    Gone {
        /// What was asked about.
        id: String,
    },
    /// No process listens, or the connection broke.
    #[error("{call}: {message}")]
    Unavailable {
        /// The method.
        call: &'static str,
        /// Which socket, and what to do.
        message: String,
    },
    /// No answer in time.
    #[error("{call}: the runtime at {} did not answer within {limit:?}", socket.display())]
    TimedOut {
        /// The method.
        call: &'static str,
        /// The runtime's socket.
        socket: PathBuf,
        /// How long bayplan waited.
        limit: Duration,
    },
    /// The runtime answered with an error.
    #[error("{call}: the runtime refused with gRPC code {code}: {message}")]
    Failed {
        /// The method.
        call: &'static str,
        /// gRPC status code.
        code: u32,
        /// The runtime's text.
        message: String,
    },
}
