//! Generates the CRI messages, clients and servers from the released protocol file. Needs no `protoc`: protox is pure Rust.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/cri");
    let file = folder.join("api.proto");
    println!("cargo::rerun-if-changed={}", file.display());
    let descriptors = protox::compile([&file], [&folder])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .generate_default_stubs(true)
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
