//! Generates messages, clients and servers of CRI and of kubelet's local sockets. Needs no `protoc`: protox is pure Rust.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    compile("../../proto/cri", &["api.proto"])?;
    compile("../../proto/kubelet", &["pod.proto", "pods.proto", "podresources.proto"])
}

fn compile(folder: &str, names: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    // Build scripts run in the folder of their package. An absolute path compiled in would outlive a move of the tree.
    let folder = Path::new(folder);
    let files = names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let descriptors = protox::compile(&files, [folder])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .generate_default_stubs(true)
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
