//! Generates the NRI messages from the released protocol file. Needs no `protoc`: protox is pure Rust.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Build scripts run in the folder of their package. An absolute path compiled in would outlive a move of the tree.
    let folder = Path::new("../../proto/nri");
    let file = folder.join("api.proto");
    println!("cargo::rerun-if-changed={}", file.display());
    let descriptors = protox::compile([&file], [folder])?;
    prost_build::Config::new().btree_map(["."]).compile_fds(descriptors)?;
    Ok(())
}
