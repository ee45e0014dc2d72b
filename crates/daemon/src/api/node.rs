//! The node itself: whether the daemon works, metrics, the machine, features, zones, events, and what the agent tells of pods. In: requests. Out: answers.

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bayplan_cri::kubelet_api::parse_pods_json;
use bayplan_node::status::Status;
use bayplan_workload::Inventory;
use serde::{Deserialize, Serialize};
use tokio::time::{Duration, timeout};

use super::context::{Api, Reach, stopping};
use crate::features::read_view;
use crate::inbox::Look;
use crate::metrics::{OPEN_METRICS, PLAIN_TEXT, asks_for_open_metrics, plain_text};
use crate::tasks::blocking;

/// How long a question for zones waits at most, in seconds.
const ZONES_WAIT_MAX: u64 = 30;

/// The machine that a daemon runs on; format `bayplan-machine/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    /// Names the format.
    pub format: String,
    /// What placement depends on, in the text form of `bayplan snapshot`; [`bayplan_host::parse_recorded_machine`] reads it.
    pub files: String,
}

pub(super) async fn metrics(
    State(api): State<Api>,
    Extension(reach): Extension<Reach>,
    headers: HeaderMap,
) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
    let is_open = accepted.into_iter().any(asks_for_open_metrics);
    let is_by_container = reach >= Reach::Loopback;
    let render = async {
        let text = api.metrics.render(is_by_container);
        Bytes::from(if is_open { text } else { plain_text(&text) })
    };
    let rounds = &api.shared.metrics[usize::from(is_open)][usize::from(is_by_container)];
    let form = if is_open { OPEN_METRICS } else { PLAIN_TEXT };
    ([(header::CONTENT_TYPE, form)], rounds.get(render).await).into_response()
}

/// The state answers, so the daemon decides.
pub(super) async fn health(State(api): State<Api>) -> Response {
    match api.is_alive().await {
        true => "ok\n".into_response(),
        false => stopping(),
    }
}

pub(super) async fn readiness(State(api): State<Api>) -> Response {
    if !api.is_alive().await {
        return stopping();
    }
    let lacking = api.syncer.health.lacking();
    match lacking.is_empty() {
        true => "ok\n".into_response(),
        false => {
            let text: String = lacking.iter().map(|lacking| format!("{lacking}\n")).collect();
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

pub(super) async fn status(State(api): State<Api>) -> Response {
    let render = async {
        let (config, front_end) = (Some(api.reloader.status()), api.link.shown());
        let status = Status { config, front_end, ..api.told_status().await? };
        serde_json::to_vec(&status).ok().map(Bytes::from)
    };
    match api.shared.status.get(render).await {
        Some(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        None => stopping(),
    }
}

pub(super) async fn machine(State(api): State<Api>) -> Response {
    match api.reloader.machine_files().await {
        Some(files) => {
            let (format, files) = ("bayplan-machine/1".to_owned(), files.to_string());
            Json(MachineView { format, files }).into_response()
        }
        None => {
            (StatusCode::NOT_FOUND, "nothing was read of this daemon's machine\n").into_response()
        }
    }
}

pub(super) async fn features(State(api): State<Api>) -> Response {
    let topology = api.reloader.topology().await;
    let root = api.reloader.live().host_root.clone();
    match blocking(move || read_view(&root, &topology)).await.flatten() {
        Some(view) => Json(view).into_response(),
        None => stopping(),
    }
}

#[derive(Deserialize)]
pub(super) struct Since {
    #[serde(default)]
    run: String,
    #[serde(default)]
    from: u64,
    #[serde(default)]
    wait: u64,
}

pub(super) async fn events(State(api): State<Api>, Query(it): Query<Since>) -> Response {
    Json(api.feed.since(&it.run, it.from, Duration::from_secs(it.wait)).await).into_response()
}

#[derive(Deserialize)]
pub(super) struct After {
    after: Option<u64>,
    #[serde(default)]
    wait: u64,
}

pub(super) async fn zones(State(api): State<Api>, Query(it): Query<After>) -> Response {
    let mut changes = api.looker.changes();
    let wait = Duration::from_secs(it.wait.min(ZONES_WAIT_MAX));
    // Ends by a change, or by time.
    timeout(wait, changes.wait_for(|change| Some(*change) != it.after)).await.map(drop).ok();
    let change = *changes.borrow();
    let topology = api.reloader.topology().await;
    let nodes = crate::zones::nodes_of(&topology);
    let config = api.reloader.live();
    // Older than the state, and later than the pods of the agent's fingerprint, which have their devices by then.
    let devices = match &api.pods {
        Some(pods) => pods.inventory().await,
        None => Inventory::default(),
    };
    match api.looker.look(|answer| Look::Zones(nodes, answer)).await {
        Some(state) => {
            let view = crate::zones::zones_view(&topology, &config, &state, &devices, change);
            Json(view).into_response()
        }
        None => stopping(),
    }
}

pub(super) async fn tell_pods(State(api): State<Api>, body: Bytes) -> Response {
    match (parse_pods_json(&body), &api.pods) {
        (Ok((pods, names)), Some(lookup)) => {
            lookup.told.tell(pods, names.as_deref());
            StatusCode::NO_CONTENT.into_response()
        }
        (Ok(_), None) => stopping(),
        (Err(why), _) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}
