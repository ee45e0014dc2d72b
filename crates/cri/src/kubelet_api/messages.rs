//! Messages and clients as generated from `proto/kubelet`.

/// PodsAPI as generated.
pub(crate) mod pods {
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
    tonic::include_proto!("v1alpha1");
}

/// podresources as generated.
pub(crate) mod resources {
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
    tonic::include_proto!("v1");
}

/// Those fields of a pod that are read, as generated.
pub(crate) mod core {
    #![allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::clone_on_ref_ptr,
        rustdoc::all,
        reason = "generated code"
    )]
    tonic::include_proto!("bayplan.pod");
}
