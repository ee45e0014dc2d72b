//! Exit codes beside success and failure.

/// Exit code for a command line or configuration that cannot be used (`EX_USAGE` of sysexits.h).
pub(crate) const EXIT_USAGE: u8 = 64;
