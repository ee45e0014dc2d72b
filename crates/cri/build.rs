//! Generates the CRI messages, clients and servers from the released protocol file. Needs no `protoc`: protox is pure Rust.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Build scripts run in the folder of their package. An absolute path compiled in would outlive a move of the tree.
    let folder = Path::new("../../proto/cri");
    let file = folder.join("api.proto");
    println!("cargo::rerun-if-changed={}", file.display());
    let descriptors = protox::compile([&file], [folder])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .generate_default_stubs(true)
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
