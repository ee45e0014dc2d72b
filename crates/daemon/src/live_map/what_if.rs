//! The map under another configuration. In: a configuration file on the control socket. Out: what it would change there, and for pages a map that stays
//! as it was made until another one comes or it is forgotten.
//!
//! Pages can only ask for what is kept, which costs nothing, and has no more in it than the map as it is now.

use std::path::Path;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bayplan_node::event::fingerprint;

use crate::api::{Api, Named};
use crate::live_map::view::MapView;
use crate::live_map::{KeptMap, LiveMap};

/// The map that is kept.
pub(crate) async fn kept_what_if(State(api): State<Api>) -> Response {
    match api.map.as_ref().and_then(LiveMap::kept) {
        Some(KeptMap { json, .. }) => {
            ([(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        None => {
            let text = "no map under another configuration is kept; `bayplan map --what-if FILE` on the node makes one\n";
            (StatusCode::NOT_FOUND, text).into_response()
        }
    }
}

/// Works out what would be where, and keeps the map of it.
pub(crate) async fn what_if(
    State(api): State<Api>,
    Query(Named { name }): Query<Named>,
    text: String,
) -> Response {
    let found = match api.reloader.what_if(Path::new(&name), &text).await {
        Ok(found) => found,
        Err(error) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}\n")).into_response();
        }
    };
    let machine = fingerprint(&api.reloader.topology().await);
    let at = jiff::Timestamp::now();
    let view = MapView::of_status(&found.status, machine, at);
    let name = file_name(&name);
    let view = MapView { what_if: Some(name.clone()), ..view };
    if let (Some(map), Ok(json)) = (&api.map, serde_json::to_vec(&view)) {
        map.keep(Some(KeptMap { name, at, json: Bytes::from(json) }));
    }
    Json(found).into_response()
}

/// Pages are told no more of a path than its end.
fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name().map(|it| it.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "another configuration".to_owned())
}

/// Keeps none any more.
pub(crate) async fn forget_what_if(State(api): State<Api>) -> Response {
    if let Some(map) = &api.map {
        map.keep(None);
    }
    StatusCode::NO_CONTENT.into_response()
}
