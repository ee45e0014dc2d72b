//! The proxy between a client and a runtime, all over real sockets.

mod decoded;
mod endings;
mod passthrough;
mod streams;
