//! What is true, whatever sensors say.

use std::time::Duration;

/// One container over one period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Truth {
    /// CPUs that it kept busy on average.
    pub cpus: f64,
    /// Instructions per second: what got done.
    pub instructions: f64,
    /// 99 of 100 requests took at most so long, waiting included; `None` for a tenant that serves none.
    pub p99: Option<Duration>,
}
