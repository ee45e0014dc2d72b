//! What is asked for the map over HTTP. In: requests. Out: values as JSON, or a stream of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bayplan_drawing::outline;
use serde::{Deserialize, Serialize};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use crate::api::{Api, Named, Reach, stopping, tell_all, tell_all_by};
use crate::inbox::Look;
use crate::live_map::LiveMap;
use crate::live_map::past::{self, EntryId, PastList, Sight};
use crate::live_map::rates::rates;
use crate::live_map::view::MapView;
use crate::tasks::blocking;
use crate::why::{self, Node, WhyView, gather};
use bayplan_node::decision::Verdict;
use bayplan_node::event::fingerprint;
use bayplan_node::status::{Explanation, Status};

/// Entries of a list that is not asked for a number.
const ENTRIES_DEFAULT: usize = 200;
const ENTRIES_MAX: usize = 1000;
/// Containers that one question about a name is answered for: the beginning of a runtime's id may be that of many.
const MATCHES_MAX: usize = 16;

/// A moment.
#[derive(Deserialize)]
pub(crate) struct At {
    at: Option<String>,
}

/// Some entries.
#[derive(Deserialize)]
pub(crate) struct Entries {
    before: Option<String>,
    after: Option<String>,
    count: Option<usize>,
}

/// The machine's boxes; format `bayplan-outline/1`.
#[derive(Serialize)]
struct OutlineView {
    format: &'static str,
    fingerprint: String,
    #[serde(flatten)]
    outline: bayplan_drawing::Outline,
}

fn sight(reach: Reach) -> Sight {
    if reach >= Reach::Socket { Sight::All } else { Sight::WithoutAnnotations }
}

/// What is where: now, or after an entry of the history.
pub(crate) async fn map(State(api): State<Api>, Query(At { at }): Query<At>) -> Response {
    let Some(at) = at else { return now(&api).await };
    in_the_past(&api.map, &at, past::map_at).await
}

impl Api {
    /// The map now; `None` while the daemon is stopping.
    pub(crate) async fn map_now(&self) -> Option<MapView> {
        let (status, topology) = (self.told_status().await?, self.reloader.topology().await);
        let view = MapView::of_status(&status, fingerprint(&topology), jiff::Timestamp::now());
        let (what_if, what_if_at) = self.map.as_ref().and_then(LiveMap::kept_label).unzip();
        Some(MapView { what_if, what_if_at, ..view })
    }
}

async fn now(api: &Api) -> Response {
    let render = async {
        let view = api.map_now().await?;
        serde_json::to_vec(&view).ok().map(Into::into)
    };
    match api.shared.map.get(render).await {
        Some(json) => json_answer(json),
        None => stopping(),
    }
}

fn json_answer(json: axum::body::Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// The boxes of the machine: now, or after an entry of the history.
pub(crate) async fn machine(State(api): State<Api>, Query(At { at }): Query<At>) -> Response {
    let Some(at) = at else {
        let render = async {
            let topology = api.reloader.topology().await;
            serde_json::to_vec(&view_of(&topology)).ok().map(Into::into)
        };
        return match api.shared.outline.get(render).await {
            Some(json) => json_answer(json),
            None => stopping(),
        };
    };
    let find = |dir: &std::path::Path, id| Ok(past::machine_at(dir, id)?.map(|it| view_of(&it)));
    in_the_past(&api.map, &at, find).await
}

fn view_of(topology: &bayplan_topology::Topology) -> OutlineView {
    OutlineView {
        format: "bayplan-outline/1",
        fingerprint: fingerprint(topology),
        outline: outline(topology),
    }
}

async fn in_the_past<T: Serialize + Send + 'static>(
    map: &Option<LiveMap>,
    at: &str,
    find: impl FnOnce(&std::path::Path, EntryId) -> std::io::Result<Option<T>> + Send + 'static,
) -> Response {
    let Some(id) = EntryId::parse(at) else {
        let text = format!("`at` is `{at}`, expected an id of /api/v1/history such as 3.17\n");
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    match ask_history(map, move |dir| find(dir, id)).await {
        Some(Ok(Some(found))) => Json(found).into_response(),
        Some(Ok(None)) => {
            let text = format!("the history has no entry {at}, or not any more\n");
            (StatusCode::NOT_FOUND, text).into_response()
        }
        Some(Err(error)) => unreadable(&error),
        None => stopping(),
    }
}

/// One question at a time.
async fn ask_history<T: Send + 'static>(
    map: &Option<LiveMap>,
    find: impl FnOnce(&std::path::Path) -> std::io::Result<T> + Send + 'static,
) -> Option<std::io::Result<T>> {
    let map = map.as_ref()?;
    let _turn = map.past_questions.acquire().await.ok()?;
    let dir = map.history.clone();
    blocking(move || find(&dir)).await
}

fn unreadable(error: &std::io::Error) -> Response {
    let text = format!("the history cannot be read: {error}\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// What happened, the oldest first.
pub(crate) async fn history(
    State(api): State<Api>,
    Extension(reach): Extension<Reach>,
    Query(Entries { before, after, count }): Query<Entries>,
) -> Response {
    let (before, after) = match (entry_id("before", before), entry_id("after", after)) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(text), _) | (_, Err(text)) => return (StatusCode::BAD_REQUEST, text).into_response(),
    };
    let count = count.unwrap_or(ENTRIES_DEFAULT).clamp(1, ENTRIES_MAX);
    let found = match before {
        // What all open pages ask for after a change.
        None if count <= ENTRIES_DEFAULT => {
            let newest = listed(&api, None, ENTRIES_DEFAULT);
            api.shared.history.get(newest).await
        }
        before => listed(&api, before, count).await,
    };
    match found.as_deref() {
        Some(Ok(list)) => Json(list.told(after, count, sight(reach))).into_response(),
        Some(Err(error)) => unreadable(error),
        None => stopping(),
    }
}

async fn listed(
    api: &Api,
    before: Option<EntryId>,
    count: usize,
) -> Option<Arc<std::io::Result<PastList>>> {
    let found = ask_history(&api.map, move |dir| past::list(dir, before, count));
    found.await.map(Arc::new)
}

/// An entry's id where one is given.
///
/// # Errors
/// It is none, in words.
fn entry_id(name: &str, text: Option<String>) -> Result<Option<EntryId>, String> {
    match text.as_deref().map(EntryId::parse) {
        None => Ok(None),
        Some(Some(id)) => Ok(Some(id)),
        Some(None) => Err(format!("`{name}` is no id of /api/v1/history such as 3.17\n")),
    }
}

/// A stream of server-sent events for one page.
pub(crate) async fn events(State(api): State<Api>) -> Response {
    match api.map.as_ref().and_then(|map| map.feed.open()) {
        Some(messages) => Sse::new(messages).keep_alive(KeepAlive::default()).into_response(),
        None => {
            let text = "as many pages are open as may be; this one asks again from time to time\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

/// Why containers of this name are where they are.
pub(crate) async fn about(
    State(api): State<Api>,
    Extension(reach): Extension<Reach>,
    Query(Named { name }): Query<Named>,
) -> Response {
    let Some(map) = &api.map else { return stopping() };
    if name.is_empty() {
        return nameless();
    }
    let Ok(_turn) = map.about_questions.acquire().await else { return stopping() };
    match api.looker.look(|answer| Look::Explain(name, answer)).await {
        Some(mut found) => {
            found.truncate(MATCHES_MAX);
            let mut found = tell_all(&api, found).await;
            if sight(reach) == Sight::WithoutAnnotations {
                found.iter_mut().for_each(leave_out_annotations);
            }
            Json(found).into_response()
        }
        None => stopping(),
    }
}

/// Why containers of this name are slow.
pub(crate) async fn why(
    State(api): State<Api>,
    Extension(reach): Extension<Reach>,
    Query(Named { name }): Query<Named>,
) -> Response {
    if name.is_empty() {
        return nameless();
    }
    let Ok(_turn) = turn(reach, &api.shared.why).await else { return stopping() };
    let found = api.looker.look(|answer| Look::Explain(name, answer)).await;
    let (Some(mut found), Some(status)) = (found, api.told_status().await) else {
        return stopping();
    };
    let left_out = found.len().saturating_sub(MATCHES_MAX);
    found.truncate(MATCHES_MAX);
    let asked = api.clone();
    let worked_out = blocking(move || {
        let mut found = tell_all_by(&asked, Some(&status), found);
        if sight(reach) == Sight::WithoutAnnotations {
            found.iter_mut().for_each(leave_out_annotations);
        }
        with_left_out(whys(&asked, found, &status), left_out)
    });
    match worked_out.await {
        Some(whys) => Json(whys).into_response(),
        None => stopping(),
    }
}

/// Every runtime's id begins with it.
fn nameless() -> Response {
    let text = "`name` is empty, expected that of a container, its pod, or the beginning of the runtime's id\n";
    (StatusCode::BAD_REQUEST, text).into_response()
}

/// A turn, which questions on the control socket need not wait for: others can ask as often as they like.
async fn turn(
    reach: Reach,
    questions: &Semaphore,
) -> Result<Option<SemaphorePermit<'_>>, AcquireError> {
    match reach {
        Reach::Socket => Ok(None),
        Reach::Loopback | Reach::Network => questions.acquire().await.map(Some),
    }
}

/// The last of them says how many more there are.
fn with_left_out(mut told: Vec<WhyView>, left_out: usize) -> Vec<WhyView> {
    if let Some(last) = told.last_mut() {
        last.left_out = left_out;
    }
    told
}

fn whys(api: &Api, found: Vec<Explanation>, status: &Status) -> Vec<WhyView> {
    let named = status.containers.iter().filter_map(|it| Some((it.id.clone()?, it.full_name())));
    let names: BTreeMap<String, String> = named.collect();
    let (before, last) = (api.shown.groups_before(), api.shown.groups());
    let readings = (before.as_ref(), last.as_ref());
    let audit = api.sightings.view();
    let mode = api.reloader.rebalance_mode();
    let unhelped = api.told.view(mode, false).unhelped.into_iter();
    let now = jiff::Timestamp::now();
    let node = Node {
        at: now,
        status,
        rates: &rates(readings, &audit, &names, now),
        readings,
        audit: &audit,
        events: &api.feed.kept(),
        unhelped: &unhelped.map(|it| (it.container, it.why)).collect(),
        rebalance_mode: mode,
    };
    found.into_iter().map(|it| why::why(gather(it, &node))).collect()
}

/// Leaves out sentences that may repeat what a pod says in annotations.
fn leave_out_annotations(explanation: &mut Explanation) {
    explanation.decision.warnings.clear();
    // Why a pool was rejected ends with the annotations without which it might have won.
    let pools = explanation.decision.pools.iter_mut();
    pools.filter(|it| it.verdict == Verdict::Rejected).for_each(|it| it.why.clear());
    if explanation.now.is_none() {
        explanation.decision.outcome = "`bayplan explain` on the node says why".to_owned();
        explanation.decision.pools.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Issue 34: sixteen of seventeen were told, and nothing said so.
    #[test]
    fn the_last_of_many_says_how_many_were_left_out() {
        let of = |name: &str| {
            let decided = serde_json::json!({"at": "1970-01-01T00:00:00Z", "asked": "", "outcome": "", "pools": []});
            let gone = serde_json::json!({"container": name, "now": null, "decision": decided});
            WhyView::of_gone(serde_json::from_value(gone).unwrap())
        };
        for (left_out, expected) in [(0, ""), (1, "1 more of this name are left out")] {
            let told = with_left_out(vec![of("a"), of("b")], left_out);
            let texts: Vec<String> = told.iter().map(why::render_why).collect();
            assert!(!texts[0].contains("left out"), "{texts:?}");
            assert_eq!(texts[1].contains("left out"), left_out > 0, "{texts:?}");
            assert!(texts[1].contains(expected), "{texts:?}");
            let json = serde_json::to_value(&told).unwrap();
            assert_eq!(
                json[1].get("left_out").and_then(|it| it.as_u64()).unwrap_or(0),
                left_out as u64
            );
        }
        assert_eq!(with_left_out(Vec::new(), 0), []);
    }

    #[test]
    fn questions_on_the_socket_wait_for_none_on_loopback() {
        let questions = Semaphore::new(1);
        let taken = turn(Reach::Loopback, &questions).now_or_never();
        assert!(taken.is_some());
        assert!(turn(Reach::Loopback, &questions).now_or_never().is_none());
        assert!(turn(Reach::Socket, &questions).now_or_never().is_some());
    }
}
