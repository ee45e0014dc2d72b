//! Policies. They differ in how pools come to be; ledger, picker and offer are the same for all.

pub mod topology_aware;
