//! Configurations: of the file, and of the cluster. In: requests, with a configuration or without. Out: what it would change, or has changed, or why not.

use std::path::Path;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::context::{Api, Named, stopping};
use crate::cluster_config::ClusterConfig;
use crate::reload::ConfigDiff;

/// Changes nothing, although it comes with a body.
pub(super) async fn diff_config(
    State(api): State<Api>,
    Query(named): Query<Named>,
    text: String,
) -> Response {
    or_why_not(api.reloader.preview(Path::new(&named.name), &text).await)
}

/// Goes on although the caller may give up.
pub(super) async fn reload_config(State(api): State<Api>) -> Response {
    match tokio::spawn(async move { api.reloader.reload().await }).await {
        Ok(done) => or_why_not(done),
        Err(_) => stopping(),
    }
}

/// What the cluster says, but for the text.
#[derive(Deserialize)]
pub(super) struct OfCluster {
    name: Option<String>,
    generation: Option<i64>,
    amplification_percent: Option<usize>,
}

impl OfCluster {
    fn with(self, text: String) -> Result<ClusterConfig, (StatusCode, String)> {
        let OfCluster { name, generation, amplification_percent } = self;
        ClusterConfig::given(name, generation, text, amplification_percent)
            .map_err(|problem| (StatusCode::BAD_REQUEST, format!("{problem}\n")))
    }
}

pub(super) async fn cluster_config(State(api): State<Api>) -> Response {
    let held = api.reloader.cluster();
    match held.is_empty() {
        true => (StatusCode::NOT_FOUND, "the cluster has no configuration for this node\n")
            .into_response(),
        false => Json(held).into_response(),
    }
}

pub(super) async fn diff_cluster_config(
    State(api): State<Api>,
    Query(it): Query<OfCluster>,
    text: String,
) -> Response {
    match it.with(text) {
        Ok(given) => or_why_not(api.reloader.preview_cluster(given).await),
        Err(refusal) => refusal.into_response(),
    }
}

pub(super) async fn diff_no_cluster_config(State(api): State<Api>) -> Response {
    or_why_not(api.reloader.preview_cluster(ClusterConfig::default()).await)
}

pub(super) async fn apply_cluster_config(
    State(api): State<Api>,
    Query(it): Query<OfCluster>,
    text: String,
) -> Response {
    match it.with(text) {
        Ok(given) => take_from_cluster(api, given).await,
        Err(refusal) => refusal.into_response(),
    }
}

pub(super) async fn drop_cluster_config(State(api): State<Api>) -> Response {
    take_from_cluster(api, ClusterConfig::default()).await
}

/// Goes on although the client may give up.
async fn take_from_cluster(api: Api, given: ClusterConfig) -> Response {
    match tokio::spawn(async move { api.reloader.apply_cluster(given).await }).await {
        Ok(done) => or_why_not(done),
        Err(_) => stopping(),
    }
}

fn or_why_not(done: anyhow::Result<ConfigDiff>) -> Response {
    match done {
        Ok(diff) => Json(diff).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}\n")).into_response(),
    }
}
