//! `ImageService`: names without content. In: CRI requests. Out: CRI responses.

use std::collections::BTreeMap;

use tonic::{Request, Response, Status};

use super::{EmbeddedRuntime, now_ns, render};
use crate::v1::image_service_server::ImageService;
use crate::v1::*;

/// There from the start.
const FIRST_IMAGES: [&str; 3] = [
    "registry.k8s.io/pause:3.10",
    "docker.io/library/busybox:latest",
    "docker.io/library/nginx:latest",
];

const IMAGE_BYTES: u64 = 4 << 20;

/// Pulled images: full name to id.
#[derive(Debug)]
pub(super) struct Images {
    ids: BTreeMap<String, String>,
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
    fn add(&mut self, name: &str) -> String {
        // FNV-1a.
        let number = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let id = format!("sha256:{}", render::hex_id(number));
        self.ids.insert(full_name(name), id.clone());
        id
    }

    fn find(&self, name: &str) -> Option<Image> {
        let full = full_name(name);
        self.ids.iter().find(|(known, id)| **known == full || *id == name).map(image)
    }
}

/// `nginx` is `docker.io/library/nginx:latest`, as for containerd.
fn full_name(name: &str) -> String {
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

fn image((name, id): (&String, &String)) -> Image {
    Image {
        id: id.clone(),
        repo_tags: vec![name.clone()],
        size: IMAGE_BYTES,
        uid: Some(Int64Value { value: 0 }),
        pinned: name.contains("/pause:"),
        ..Default::default()
    }
}

#[tonic::async_trait]
impl ImageService for EmbeddedRuntime {
    async fn list_images(
        &self,
        request: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        let wanted = name(request.into_inner().filter.and_then(|filter| filter.image));
        let images = self.images();
        let images = if wanted.is_empty() {
            images.ids.iter().map(image).collect()
        } else {
            images.find(&wanted).into_iter().collect()
        };
        Ok(Response::new(ListImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        let image = self.images().find(&name(request.into_inner().image));
        Ok(Response::new(ImageStatusResponse { image, ..Default::default() }))
    }

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> Result<Response<PullImageResponse>, Status> {
        let name = name(request.into_inner().image);
        if name.is_empty() {
            return Err(Status::unknown(
                "failed to parse image reference \"\": invalid reference format",
            ));
        }
        let image_ref = self.images().add(&name);
        Ok(Response::new(PullImageResponse { image_ref }))
    }

    /// Removing what is not there is a success.
    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        let name = name(request.into_inner().image);
        let full = full_name(&name);
        self.images().ids.retain(|known, id| *known != full && *id != name);
        Ok(Response::new(Default::default()))
    }

    async fn image_fs_info(
        &self,
        _: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        let count = u64::try_from(self.images().ids.len()).unwrap_or_default();
        let usage = FilesystemUsage {
            timestamp: now_ns(),
            fs_id: Some(FilesystemIdentifier { mountpoint: "/".to_owned() }),
            used_bytes: Some(UInt64Value { value: count * IMAGE_BYTES }),
            inodes_used: Some(UInt64Value { value: count }),
        };
        Ok(Response::new(ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        }))
    }
}

fn name(image: Option<ImageSpec>) -> String {
    image.unwrap_or_default().image
}
