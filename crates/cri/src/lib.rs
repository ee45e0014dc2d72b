//! The edge towards kubelet and the container runtime, both of which speak CRI (gRPC over a Unix socket).
//!
//! In: kubelet's calls, and the runtime's answers. Out: the same calls to the runtime, nine of them with the daemon's decisions
//! written in, and plain values for the daemon. No message type of the protocol leaves this crate except for tests.
//!
//! | Module | What it is |
//! |---|---|
//! | [`proxy`] | forwards every call; asks the [`Agent`](bayplan_workload::Agent) about the nine that create, change or end something |
//! | [`upstream`] | the one connection to the runtime, shared by the proxy and the daemon's own calls |
//! | [`translate`] | CRI messages to values; pure |
//! | [`delta`], [`frame`], [`deadline`] | the wire formats the proxy reads and edits; pure |
//! | [`kubelet`] | a client that asks as kubelet does, for the demo and for tests |
//! | [`kubelet_api`] | kubelet's local sockets: pods, and the devices of containers |
//! | [`embedded`] | a CRI runtime without processes, for the demo and for tests |

#![forbid(unsafe_code)]

mod authority;
pub mod call_observer;
mod cork;
pub mod deadline;
pub mod delta;
pub mod embedded;
pub mod frame;
mod generated;
mod intercept;
pub mod kubelet;
pub mod kubelet_api;
mod limits;
mod needed;
pub mod proxy;
mod quiet;
mod server;
mod stream;
mod tolerant;
pub mod translate;
pub mod upstream;
mod window;

pub use generated::v1;

#[cfg(test)]
mod test_support;
