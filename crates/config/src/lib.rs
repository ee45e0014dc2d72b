//! Text of configurations. In: bytes of files, of this system or of others. Out: trees with positions, and configurations of bayplan.
//!
//! [`import`] turns the configurations of other systems into one of bayplan, with a word on what became of each key. [`cmk`] holds the pools
//! of CMK, which both the importer and `bayplan cmk` know. [`yaml`] is the tree that configurations are read from.

pub mod cmk;
pub mod import;
pub mod yaml;
