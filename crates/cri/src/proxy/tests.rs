//! The proxy between a client and a runtime, all over real sockets.

mod clients;
mod decoded;
mod endings;
mod passthrough;
mod streams;
