//! What a connection of HTTP/2 may hold, to clients and to the runtime.

/// Of all streams together as much as there is: a few that are not read must not hold up the others. What each of them holds is bounded.
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 30;
/// Status details travel in trailers; this is grpc-go's limit, which kubelet and containerd use.
pub(crate) const HEADERS_LEN_MAX: u32 = 16 << 20;
