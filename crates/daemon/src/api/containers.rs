//! Containers: decisions about them, what the probes counted, what is to be written, the mode, the rebalancer. In: requests. Out: answers.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bayplan_host::VectorUse;
use bayplan_node::event::{Answer, Event};
use bayplan_node::mode::{Mode, ModeReport};
use bayplan_node::status::{ContainerStatus, Explanation, Status};
use serde::Deserialize;
use tokio::time::{Duration, timeout};

use super::context::{Api, Named, stopping};

/// How long a change of the mode waits for a write that reclaims memory: one that lasts longer waits for a disk that hangs.
const RECLAIM_PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn explain(State(api): State<Api>, Query(named): Query<Named>) -> Response {
    match api.ask(Event::Explain(named.name)).await {
        Some(Answer::Explanations(found)) => Json(tell_all(&api, found).await).into_response(),
        _ => stopping(),
    }
}

/// Decisions with all that is known beside them.
pub(crate) async fn tell_all(api: &Api, found: Vec<Explanation>) -> Vec<Explanation> {
    let are_there = found.iter().any(|it| it.now.is_some());
    let status = if are_there { api.told_status().await } else { None };
    tell_all_by(api, status.as_ref(), found)
}

/// The same with a status that is there already.
pub(crate) fn tell_all_by(
    api: &Api,
    status: Option<&Status>,
    mut found: Vec<Explanation>,
) -> Vec<Explanation> {
    if let Some(status) = status {
        tell_holds(status, &mut found);
    }
    let front_end = if api.link.shown().is_some() { "nri" } else { "cri" };
    for explanation in &mut found {
        explanation.rebalance = api.told.about(&explanation.container);
        if explanation.now.is_some() {
            explanation.front_end = Some(front_end.to_owned());
            (explanation.isolation, explanation.files) =
                api.enforcement.about(&explanation.container);
            let measured = api.shown.vectors_of(&explanation.container).map(vectors_text);
            let told = measured.into_iter().chain(explanation.vectors.take());
            explanation.vectors = told.reduce(|measured, counts| format!("{measured}; {counts}"));
        }
    }
    found
}

/// `3 of 4 threads that were looked at used AVX-512 since the last reading`.
fn vectors_text(VectorUse { looked_at, using }: VectorUse) -> String {
    let threads = if looked_at == 1 { "thread" } else { "threads" };
    format!(
        "{using} of {looked_at} {threads} that were looked at used AVX-512 since the last reading"
    )
}

/// What holds of the containers that are there; for intruders on their CPUs all are looked at.
fn tell_holds(status: &Status, found: &mut [Explanation]) {
    for now in found.iter_mut().filter_map(|it| it.now.as_mut()) {
        let is_it = |it: &&ContainerStatus| it.id == now.id && it.full_name() == now.full_name();
        if let Some(told) = status.containers.iter().find(is_it) {
            (now.held, now.intruders) = (told.held.clone(), told.intruders.clone());
        }
    }
}

#[derive(Deserialize)]
pub(super) struct To {
    to: Mode,
}

pub(super) async fn plan_files(State(api): State<Api>) -> Response {
    match api.enforcement.preview().await {
        Some(mut view) => {
            if let Some(Answer::Status(mut status)) = api.syncer.inbox.ask(Event::Status).await {
                api.holdings.tell(&mut status.containers).await;
                let off = status.containers.iter().filter(|it| it.is_off());
                view.holds = off.flat_map(ContainerStatus::full_holds_texts).collect();
            }
            Json(view).into_response()
        }
        None => stopping(),
    }
}

pub(super) async fn audit(State(api): State<Api>) -> Response {
    Json(api.sightings.view()).into_response()
}

pub(super) async fn rebalance(State(api): State<Api>) -> Response {
    let mode = api.reloader.rebalance_mode();
    match api.ask(Event::Occupancy).await {
        Some(Answer::Occupancy(it)) => {
            Json(api.told.view(mode, it.is_rebalance_paused)).into_response()
        }
        _ => stopping(),
    }
}

#[derive(Deserialize)]
pub(super) struct Paused {
    paused: bool,
}

pub(super) async fn pause_rebalance(State(api): State<Api>, Query(it): Query<Paused>) -> Response {
    match api.ask(Event::PauseRebalance(it.paused)).await {
        Some(_) => rebalance(State(api)).await,
        None => stopping(),
    }
}

pub(super) async fn plan_mode(State(api): State<Api>, Query(To { to }): Query<To>) -> Response {
    match api.ask(Event::PlanMode(to)).await {
        Some(Answer::ModePlan(plan)) => Json(*plan).into_response(),
        _ => stopping(),
    }
}

/// Goes on although the caller may give up: half of a change is no change.
pub(super) async fn change_mode(State(api): State<Api>, Query(To { to }): Query<To>) -> Response {
    let changed = tokio::spawn(async move {
        let report = api.syncer.change_mode(to).await?;
        let ended = || vec!["any kernel file: what writes them has ended, see the log".to_owned()];
        let mut files_not_written = api.enforcement.enforce().await.unwrap_or_else(ended);
        if timeout(RECLAIM_PATIENCE, api.enforcement.no_reclaim()).await.is_err() {
            files_not_written.push("memory.reclaim: a write does not end".to_owned());
        }
        Some(ModeReport { files_not_written, ..report })
    });
    match changed.await {
        Ok(Some(report)) => Json(report).into_response(),
        _ => stopping(),
    }
}
