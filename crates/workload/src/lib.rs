//! What is asked for: pods, containers, the annotations of all systems, and the request that follows from them. In: plain values of a front end. Out: requests for the allocator,
//! warnings, and the words between a front end and the node. Knows no protocol. Pure.
//!
//! | Module | What it is |
//! |---|---|
//! | [`container`] | pods and containers as a front end describes them |
//! | [`request`] | the request of a container |
//! | [`rules`] | what the configuration says about requests |
//! | [`annotations`] | what a pod asks for beyond amounts |
//! | [`mates`] | what is still to come of a container's pod |
//! | [`silent`] | containers that have their settings from their pod's figure |
//! | [`cmk`] | what CMK's words in a container's command and environment ask for |
//! | [`devices`] | devices and volumes as kubelet names them |
//! | [`facts`] | what kubelet knows of a pod beside what CRI carries |
//! | [`runtime`] | what a container runtime says of its sandboxes and containers |
//! | [`agent`], [`admission`] | the seam between a front end and the node, and the values that cross it |

#![forbid(unsafe_code)]

pub mod admission;
pub mod agent;
pub mod annotations;
pub mod cmk;
pub mod container;
pub mod devices;
pub mod facts;
mod huge_pages;
pub mod mates;
mod qos;
pub mod request;
mod resources;
pub mod rules;
pub mod runtime;
mod shell;
pub mod silent;
mod vectors;

pub use bayplan_types::{IoClass, ThreadPolicy, ThreadScheduling};

pub use admission::{Admission, CreateOutcome, Mount, Pinning, ResizeOutcome, Ticket};
pub use agent::Agent;
pub use container::{NewContainer, Pod};
pub use facts::{
    AssignedDevices, ContainerFacts, Facts, Inventory, PodAbout, PodFacts, ResizeState,
};
pub use huge_pages::{huge_pages, odd_page_sizes};
pub use qos::parse_qos;
pub use request::{Hardware, RequestSource, derive_request, request_source, updated_resources};
pub use resources::{ExactRequests, Requests, Resources};
pub use rules::{Amplification, Ceilings, RequestRules};
pub use vectors::{VectorStrategy, WideVectors};
