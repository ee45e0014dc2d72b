//! What the proxy tells about calls as such, whatever they are about.

/// Hears how calls ended and which went on unread. Implemented beside [`bayplan_workload::Agent`], for the proxy only.
pub trait CallObserver: Clone + Send + Sync + 'static {
    /// A proxied call ended with this gRPC status code (`0` is OK). `method` is the path, e.g.
    /// `/runtime.v1.RuntimeService/Version`. Must not block.
    fn call_ended(&self, method: &str, code: u32);
    /// The call was forwarded unchanged although it is one that is normally decoded; `why` is a short fixed word. Must not block.
    fn passed_through(&self, method: &str, why: &'static str);
    /// The call was forwarded unread: it is one that is normally decoded, in a version of CRI that is not (`/runtime.v2.RuntimeService/CreateContainer`).
    /// Must not block.
    fn other_version(&self, method: &str);
}
