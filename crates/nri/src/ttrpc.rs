//! The bodies of ttrpc messages (`request.proto` of ttrpc, `status.proto` of googleapis), as far as unary calls need them.

use prost::Message;

/// What a call carries.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    /// Full name of the service.
    #[prost(string, tag = "1")]
    pub service: String,
    /// Its method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: bytes::Bytes,
    /// How long the caller waits; 0: for ever.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// What an answer carries: a payload, or a status that is not 0.
#[derive(Clone, PartialEq, Message)]
pub struct Response {
    /// Absent: OK.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: bytes::Bytes,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Status {
    /// As in gRPC.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The caller does not know why.
pub const UNKNOWN: i32 = 2;
/// The message cannot be read.
pub const INVALID_ARGUMENT: i32 = 3;
/// There is no such method: a newer runtime then falls back to the older way.
pub const UNIMPLEMENTED: i32 = 12;

impl Status {
    /// With this code.
    pub fn new(code: i32, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }
}
