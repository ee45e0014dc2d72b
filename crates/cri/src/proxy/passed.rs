//! Calls that are forwarded without being read.

use bayplan_workload::Agent;
use http::{Request, Response};
use tonic::body::Body;

use super::shared::Shared;
use super::watched::{self, CallEnd};
use crate::call_observer::CallObserver;

/// The service of images, of whatever version: the package before the dot is `runtime.v1` today.
const IMAGE_SERVICE: &str = ".ImageService";

/// Of a path such as `/runtime.v1.ImageService/ListImages`.
pub(super) fn is_about_images(path: &str) -> bool {
    path.split('/').nth(1).is_some_and(|service| service.ends_with(IMAGE_SERVICE))
}

impl<A: Agent + CallObserver> Shared<A> {
    /// Forwards a call without reading it.
    pub(crate) async fn pass(&self, request: Request<Body>, mut end: CallEnd<A>) -> Response<Body> {
        let is_about_images = is_about_images(request.uri().path());
        let images = self.images.as_ref().filter(|_| is_about_images);
        let upstream = images.unwrap_or(&self.upstream);
        match upstream.forward(request).await {
            Ok(response) => watched::watch(response, upstream.clone(), end),
            Err(error) => end.answer(error.status()),
        }
    }
}
