//! The edge towards a container runtime that offers NRI, its interface for plugins: the runtime tells of pods and containers before it creates, starts,
//! changes or ends them, and takes changes in the answers. Kubelet is not involved.
//!
//! | Module | What it is |
//! |---|---|
//! | [`frame`], [`ttrpc`] | the wire format; pure |
//! | [`session`] | one connection, from either end |
//! | [`events`] | events, their methods, and which versions know them; pure |
//! | [`plugin`] | connects, registers, and answers within the runtime's limits |
//! | [`front_end`] | events to calls of the node's `Agent`, and its answers to replies |
//! | [`other_plugins`] | which other plugins there are, and what they set; pure |
//! | [`translate`] | NRI messages to values, and back; pure |
//! | [`runtime_end`] | the runtime's end of a connection, for tests |

#![forbid(unsafe_code)]

pub mod events;
pub mod frame;
pub mod front_end;
pub mod other_plugins;
pub mod plugin;
pub mod runtime_end;
pub mod session;
pub mod translate;
pub mod ttrpc;

/// NRI messages as generated from the released protocol file.
pub mod api {
    #![allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::too_many_lines,
        rustdoc::all,
        reason = "generated code"
    )]
    include!(concat!(env!("OUT_DIR"), "/nri.pkg.api.v1alpha1.rs"));
}
