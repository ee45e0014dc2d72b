//! What is asked for: pods, containers, the annotations of all systems, and the request that follows from them. In: plain values of a front end. Out: requests for the allocator,
//! warnings, and the words between a front end and the node. Knows no protocol. Pure.
//!
//! | Module | What it is |
//! |---|---|
//! | [`request`] | pods, containers, and the request of a container |
//! | [`annotations`] | what a pod asks for beyond amounts |
//! | [`mates`] | what is still to come of a container's pod |
//! | [`silent`] | containers that have their settings from their pod's figure |
//! | [`cmk`] | what CMK's words in a container's command and environment ask for |
//! | [`devices`] | devices and volumes as kubelet names them |
//! | [`facts`] | what kubelet knows of a pod beside what CRI carries |
//! | [`agent`], [`admission`] | the seam between a front end and the node, and the values that cross it |

#![forbid(unsafe_code)]

pub mod admission;
pub mod agent;
pub mod annotations;
pub mod cmk;
pub mod devices;
pub mod facts;
pub mod mates;
pub mod request;
mod resources;
mod shell;
pub mod silent;

pub use admission::{Admission, CreateOutcome, Mount, Pinning, Ticket};
pub use agent::Agent;
pub use facts::{AssignedDevices, ContainerFacts, Facts, PodAbout, PodFacts, ResizeState};
pub use request::{
    Ceilings, ExactRequests, Hardware, NewContainer, Pod, RequestRules, RequestSource, Requests,
    Resources, derive_request, huge_pages, odd_page_sizes, parse_qos, request_source,
    updated_resources,
};
