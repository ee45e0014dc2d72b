//! Generates messages, clients and servers of CRI and of kubelet's local sockets. Needs no `protoc`: protox is pure Rust.

use std::path::Path;

/// Messages of `pod.proto` that are objects in JSON; a quantity is a text there.
const POD_MESSAGES: [&str; 9] = [
    "Pod",
    "ObjectMeta",
    "OwnerReference",
    "PodSpec",
    "Container",
    "ResourceRequirements",
    "PodStatus",
    "PodCondition",
    "ContainerStatus",
];

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
    let mut builder = tonic_prost_build::configure()
        .build_transport(false)
        .generate_default_stubs(true)
        .btree_map(".");
    // Pods come from the API server, too, in JSON.
    for message in POD_MESSAGES {
        let form = "#[derive(::serde::Deserialize)] #[serde(default, rename_all = \"camelCase\")]";
        builder = builder.type_attribute(format!("bayplan.pod.{message}"), form);
    }
    let form = "#[derive(::serde::Deserialize)] #[serde(transparent)]";
    builder.type_attribute("bayplan.pod.Quantity", form).compile_fds(descriptors)?;
    Ok(())
}
