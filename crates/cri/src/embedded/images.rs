//! The images that were pulled: names without content.

use std::collections::BTreeMap;

use super::render;
use crate::v1::{Image, Int64Value};

/// There from the start.
const FIRST_IMAGES: [&str; 3] = [
    "registry.k8s.io/pause:3.10",
    "docker.io/library/busybox:latest",
    "docker.io/library/nginx:latest",
];

pub(super) const IMAGE_BYTES: u64 = 4 << 20;

/// Pulled images: full name to id.
#[derive(Debug)]
pub(super) struct Images {
    pub(super) ids: BTreeMap<String, String>,
}

impl Default for Images {
    fn default() -> Images {
        let mut images = Images { ids: BTreeMap::new() };
        for name in FIRST_IMAGES {
            images.add(name);
        }
        images
    }
}

impl Images {
    /// The id follows from the name, so pulling again changes nothing.
    pub(super) fn add(&mut self, name: &str) -> String {
        // FNV-1a.
        let number = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let id = format!("sha256:{}", render::hex_id(number));
        self.ids.insert(full_name(name), id.clone());
        id
    }

    pub(super) fn find(&self, name: &str) -> Option<Image> {
        let full = full_name(name);
        self.ids.iter().find(|(known, id)| **known == full || *id == name).map(image)
    }
}

/// `nginx` is `docker.io/library/nginx:latest`, as for containerd.
pub(super) fn full_name(name: &str) -> String {
    let has_registry = name
        .split_once('/')
        .is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost");
    let mut full = match (has_registry, name.contains('/')) {
        (true, _) => name.to_owned(),
        (false, true) => format!("docker.io/{name}"),
        (false, false) => format!("docker.io/library/{name}"),
    };
    let last = full.rsplit('/').next().unwrap_or_default();
    if !last.contains([':', '@']) {
        full.push_str(":latest");
    }
    full
}

pub(super) fn image((name, id): (&String, &String)) -> Image {
    Image {
        id: id.clone(),
        repo_tags: vec![name.clone()],
        size: IMAGE_BYTES,
        uid: Some(Int64Value { value: 0 }),
        pinned: name.contains("/pause:"),
        ..Default::default()
    }
}
