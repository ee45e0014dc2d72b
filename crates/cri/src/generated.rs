//! Messages, clients and servers as generated from `proto/cri` and `proto/kubelet`.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::too_many_lines,
    rustdoc::all,
    reason = "generated code"
)]

/// CRI v1 as generated from the released protocol file.
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// PodsAPI.
pub(crate) mod pods {
    tonic::include_proto!("v1alpha1");
}

/// podresources.
pub(crate) mod resources {
    tonic::include_proto!("v1");
}

/// Those fields of a pod that are read.
pub(crate) mod core {
    tonic::include_proto!("bayplan.pod");
}
