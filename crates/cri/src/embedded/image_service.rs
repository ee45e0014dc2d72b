//! `ImageService`: names without content. In: CRI requests. Out: CRI responses.

use tonic::{Request, Response, Status};

use super::EmbeddedRuntime;
use super::clock::now_ns;
use super::images::{IMAGE_BYTES, full_name, image};
use crate::v1::image_service_server::ImageService;
use crate::v1::*;

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
