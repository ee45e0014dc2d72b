//! What can be asked of a running daemon: JSON over HTTP. In: requests on the control socket and on `metricsAddress`. Out: answers.
//!
//! One table says what there is and where it can be asked. The page `docs/api.md` has the same table, and a test keeps the two equal. Everything but
//! GET is on the control socket only, which is root's and that of a group. Every process on the node, in a pod with the host's network too, can ask
//! what is on loopback: names and CPU sets, but nothing that a pod says of itself in annotations.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Json, Router};
use bayplan_cri::kubelet_api::{Inventory, parse_pods_json};
use bayplan_host::VectorUse;
use bayplan_node::event::{Answer, Event};
use bayplan_node::mode::{Mode, ModeReport};
use bayplan_node::status::{ContainerStatus, Explanation, Status};
use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::Semaphore;
use tokio::time::{Duration, timeout};

use crate::cluster_config::ClusterConfig;
use crate::enforcer::Enforcement;
use crate::features::read_view;
use crate::feed::Feed;
use crate::holdings::Holdings;
use crate::http_server::Rounds;
use crate::inbox::{Look, Looker};
use crate::live_map::{self, LiveMap};
use crate::metrics::{Metrics, OPEN_METRICS, PLAIN_TEXT, asks_for_open_metrics, plain_text};
use crate::nri_link::Link;
use crate::observer::Shown;
use crate::pods::PodLookup;
use crate::prober::Sightings;
use crate::rebalancer::Told;
use crate::recorded_machine::MachineView;
use crate::reload::{ConfigDiff, Reloader};
use crate::sync::Syncer;
use crate::tasks::blocking;

/// From where a listener can be reached; each has what the one before has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// By every client that can reach an address of the node.
    Network,
    /// By every process on the node.
    Loopback,
    /// By root, and the group of the control socket.
    Socket,
}

impl Reach {
    /// Of a listener at this address.
    pub(crate) fn of(address: IpAddr) -> Reach {
        if address.is_loopback() { Reach::Loopback } else { Reach::Network }
    }

    fn text(self) -> &'static str {
        match self {
            Reach::Network => "socket, `metricsAddress`",
            Reach::Loopback => "socket, `metricsAddress` on loopback",
            Reach::Socket => "socket",
        }
    }
}

/// What handlers need.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) syncer: Syncer,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reloader: Reloader,
    pub(crate) enforcement: Enforcement,
    pub(crate) sightings: Sightings,
    pub(crate) told: Told,
    pub(crate) holdings: Holdings,
    pub(crate) shown: Shown,
    pub(crate) looker: Looker,
    pub(crate) feed: Feed,
    /// Absent with `map: off`.
    pub(crate) map: Option<LiveMap>,
    pub(crate) link: Link,
    /// What kubelet knows of devices.
    pub(crate) pods: Option<PodLookup>,
    pub(crate) shared: Arc<Shared>,
}

/// Answers that are made once for all that ask at a time, and what bounds the rest.
#[derive(Debug)]
pub(crate) struct Shared {
    alive: Rounds<bool>,
    status: Rounds<Option<Bytes>>,
    pub(crate) map: Rounds<Option<Bytes>>,
    pub(crate) outline: Rounds<Option<Bytes>>,
    /// Plain and OpenMetrics, without and with metrics by container.
    metrics: [[Rounds<Bytes>; 2]; 2],
    /// Questions why a container is slow that are worked on at a time, but for those on the control socket.
    pub(crate) why: Semaphore,
    /// Places in the queue of decisions that questions over HTTP may take; all others are kubelet's.
    places: Semaphore,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            alive: Rounds::default(),
            status: Rounds::default(),
            map: Rounds::default(),
            outline: Rounds::default(),
            metrics: Default::default(),
            why: Semaphore::new(1),
            places: Semaphore::new(PLACES_MAX),
        }
    }
}

impl Api {
    /// Asks the state through the queue; for the control socket only.
    async fn ask(&self, event: Event) -> Option<Answer> {
        let _place = self.shared.places.acquire().await.ok()?;
        self.syncer.inbox.ask(event).await
    }

    /// With what holds.
    pub(crate) async fn told_status(&self) -> Option<Status> {
        let mut status = self.looker.look(Look::Status).await?;
        self.holdings.tell(&mut status.containers).await;
        Some(*status)
    }

    async fn is_alive(&self) -> bool {
        let look = async { self.looker.look(Look::Alive).await.is_some() };
        self.shared.alive.get(look).await
    }
}

/// One thing that can be asked.
#[derive(Serialize)]
struct Route {
    method: &'static str,
    path: &'static str,
    /// Those of its query.
    parameters: &'static str,
    #[serde(rename = "where", serialize_with = "serialize_reach")]
    reach: Reach,
    answer: &'static str,
    #[serde(skip)]
    handler: fn() -> MethodRouter<Api>,
}

impl Route {
    /// Whether `map: off` leaves it out.
    fn is_of_map(&self) -> bool {
        let paths = ["/map", "/api/v1/map", "/api/v1/history"];
        paths.iter().any(|path| self.path.starts_with(path))
    }
}

fn serialize_reach<S: Serializer>(reach: &Reach, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(reach.text())
}

/// How long a question for zones waits at most, in seconds.
const ZONES_WAIT_MAX: u64 = 30;
/// Questions over HTTP that wait for the state at a time.
const PLACES_MAX: usize = 4;

/// How long a change of the mode waits for a write that reclaims memory: one that lasts longer waits for a disk that hangs.
const RECLAIM_PATIENCE: Duration = Duration::from_secs(10);
const ROUTES: [Route; 36] = [
    Route {
        method: "GET",
        path: "/metrics",
        parameters: "",
        reach: Reach::Network,
        answer: "[metrics](metrics.md) as Prometheus text, or as OpenMetrics where `Accept` names it; those by container only on the socket and on loopback",
        handler: || get(metrics),
    },
    Route {
        method: "GET",
        path: "/healthz",
        parameters: "",
        reach: Reach::Network,
        answer: "200 when the task that decides answers",
        handler: || get(health),
    },
    Route {
        method: "GET",
        path: "/readyz",
        parameters: "",
        reach: Reach::Network,
        answer: "200 when the runtime has told what runs, the journal is on disk, what kernel files said before is known, and no part of the daemon is missing, else 503 and what is lacking, a line each",
        handler: || get(readiness),
    },
    Route {
        method: "GET",
        path: "/api/v1",
        parameters: "",
        reach: Reach::Loopback,
        answer: "this table",
        handler: || get(async || Json(Vec::from(ROUTES))),
    },
    Route {
        method: "GET",
        path: "/api/v1/status",
        parameters: "",
        reach: Reach::Loopback,
        answer: "`bayplan-status/1`: the mode, CPUs by class, pools, containers",
        handler: || get(status),
    },
    Route {
        method: "GET",
        path: "/map",
        parameters: "",
        reach: Reach::Loopback,
        answer: "[the live map](map.md), a page for browsers",
        handler: || get(live_map::page),
    },
    Route {
        method: "GET",
        path: "/map/{file}",
        parameters: "",
        reach: Reach::Loopback,
        answer: "a file of that page",
        handler: || get(live_map::file),
    },
    Route {
        method: "GET",
        path: "/api/v1/map",
        parameters: "`at`: an entry's id",
        reach: Reach::Loopback,
        answer: "`bayplan-map/1`: what holds each CPU, now or after that entry of the history",
        handler: || get(live_map::map),
    },
    Route {
        method: "GET",
        path: "/api/v1/map/machine",
        parameters: "`at`: an entry's id",
        reach: Reach::Loopback,
        answer: "`bayplan-outline/1`: the machine, now or then, as boxes in boxes",
        handler: || get(live_map::machine),
    },
    Route {
        method: "GET",
        path: "/api/v1/map/events",
        parameters: "",
        reach: Reach::Loopback,
        answer: "server-sent events for an open page: `map` (as `/api/v1/map`) whenever that changes, at most four times a second, and `rates` (`bayplan-rates/1`) every 2 s",
        handler: || get(live_map::events),
    },
    Route {
        method: "GET",
        path: "/api/v1/map/about",
        parameters: "`name`: as of `bayplan explain`",
        reach: Reach::Loopback,
        answer: "as `/api/v1/explain`, of at most 16 containers; on loopback without what pods say in annotations",
        handler: || get(live_map::about),
    },
    Route {
        method: "GET",
        path: "/api/v1/map/why",
        parameters: "`name`: as of `bayplan explain`",
        reach: Reach::Loopback,
        answer: "as `/api/v1/why`, on loopback without what pods say in annotations",
        handler: || get(live_map::why),
    },
    Route {
        method: "GET",
        path: "/api/v1/map/what-if",
        parameters: "",
        reach: Reach::Loopback,
        answer: "`bayplan-map/1` under the configuration that was last posted there; 404 where none is kept",
        handler: || get(live_map::kept_what_if),
    },
    Route {
        method: "POST",
        path: "/api/v1/map/what-if",
        parameters: "`name`: what to call the file in messages and on the page; the body is the file",
        reach: Reach::Socket,
        answer: "`bayplan-what-if/1`: what this configuration would change, and what would be where; the map keeps it; 422 and its mistakes where it cannot be used",
        handler: || post(live_map::what_if),
    },
    Route {
        method: "DELETE",
        path: "/api/v1/map/what-if",
        parameters: "",
        reach: Reach::Socket,
        answer: "nothing, after the map has forgotten it",
        handler: || delete(live_map::forget_what_if),
    },
    Route {
        method: "GET",
        path: "/api/v1/history",
        parameters: "`before`: an entry's id; `count`: at most 1000",
        reach: Reach::Loopback,
        answer: "`bayplan-past/1`: what happened, in short",
        handler: || get(live_map::history),
    },
    Route {
        method: "GET",
        path: "/api/v1/machine",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-machine/1`: the machine that the daemon places on, in the text form of `bayplan snapshot`",
        handler: || get(machine),
    },
    Route {
        method: "GET",
        path: "/api/v1/audit",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-audit/1`: what the probes have counted for each container, and what else ran on its CPUs",
        handler: || get(audit),
    },
    Route {
        method: "GET",
        path: "/api/v1/explain",
        parameters: "`name`: as of `bayplan explain`",
        reach: Reach::Socket,
        answer: "a list of `bayplan-explain/1`: decisions about containers of this name",
        handler: || get(explain),
    },
    Route {
        method: "GET",
        path: "/api/v1/why",
        parameters: "`name`: as of `bayplan explain`",
        reach: Reach::Socket,
        answer: "a list of `bayplan-why/1`: what slows containers of this name down, the most harmful first; of at most 16 containers, 400 for an empty name",
        handler: || get(live_map::why),
    },
    Route {
        method: "GET",
        path: "/api/v1/plan",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-plan/1`: what is to be written to kernel files now, and what cannot be",
        handler: || get(plan_files),
    },
    Route {
        method: "GET",
        path: "/api/v1/mode",
        parameters: "`to`: placing, draining or restored",
        reach: Reach::Socket,
        answer: "`bayplan-mode-plan/1`: what would change with this mode",
        handler: || get(plan_mode),
    },
    Route {
        method: "POST",
        path: "/api/v1/mode",
        parameters: "`to`: placing, draining or restored",
        reach: Reach::Socket,
        answer: "`bayplan-mode/1`, after the change: the mode, and which containers do not run where they should",
        handler: || post(change_mode),
    },
    Route {
        method: "GET",
        path: "/api/v1/rebalance",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-rebalance/1`: whether the rebalancer looks, and its last proposals with their evidence",
        handler: || get(rebalance),
    },
    Route {
        method: "POST",
        path: "/api/v1/rebalance",
        parameters: "`paused`: true or false",
        reach: Reach::Socket,
        answer: "`bayplan-rebalance/1`, after the change",
        handler: || post(pause_rebalance),
    },
    Route {
        method: "POST",
        path: "/api/v1/config/diff",
        parameters: "`name`: what to call the file in messages; the body is the file",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`: what this configuration would change; 422 and its mistakes where it cannot be used",
        handler: || post(diff_config),
    },
    Route {
        method: "POST",
        path: "/api/v1/config/reload",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`, after the change: what the file has changed; 422 and its mistakes where it cannot be used",
        handler: || post(reload_config),
    },
    Route {
        method: "GET",
        path: "/api/v1/config/cluster",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-cluster-config/1`: the cluster's configuration that holds on this node; 404 where none does",
        handler: || get(cluster_config),
    },
    Route {
        method: "POST",
        path: "/api/v1/config/cluster",
        parameters: "`name`: kind and name of the object; `generation`: its generation; the body is the configuration; without all three, the file holds; `amplification_percent`: what the Node says of `requests.amplificationPercent`, if anything",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`, after the change: what the cluster's configuration has changed; 422 and its mistakes where it cannot be used",
        handler: || post(apply_cluster_config),
    },
    Route {
        method: "DELETE",
        path: "/api/v1/config/cluster",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`, after the change: the node goes on under its file alone",
        handler: || delete(drop_cluster_config),
    },
    Route {
        method: "POST",
        path: "/api/v1/config/cluster/diff",
        parameters: "as of `POST /api/v1/config/cluster`",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`: what this configuration of the cluster would change; 422 and its mistakes where it cannot be used",
        handler: || post(diff_cluster_config),
    },
    Route {
        method: "GET",
        path: "/api/v1/config/cluster/diff",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`: what going on under the file alone would change",
        handler: || get(diff_no_cluster_config),
    },
    Route {
        method: "GET",
        path: "/api/v1/events",
        parameters: "`run`, `from`: `run` and `next` of the last answer, if any; `wait`: seconds to wait for the next event, at most 30",
        reach: Reach::Socket,
        answer: "`bayplan-events/1`: refusals, moves of exclusive CPUs, squeezes, drift and the rebalancer's verdicts, by pod",
        handler: || get(events),
    },
    Route {
        method: "GET",
        path: "/api/v1/features",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-features/1`: what this node can do, in the form of Node Feature Discovery: flags, attributes and instances by domain",
        handler: || get(features),
    },
    Route {
        method: "GET",
        path: "/api/v1/zones",
        parameters: "`after`: `change` of the last answer, if any; `wait`: seconds to wait for another one, at most 30",
        reach: Reach::Socket,
        answer: "`bayplan-zones/1`: what each NUMA node has for schedulers: capacity, what pods can have, what is left, devices of kubelet's plugins among it; cores, pods with exclusive CPUs, CPUs that no pod can have, groups",
        handler: || get(zones),
    },
    Route {
        method: "POST",
        path: "/api/v1/pods",
        parameters: "the body is `{\"pods\": [...], \"names\": [...]}`: pods of the API server in JSON, and, where others are to be forgotten, `namespace/name` of every pod",
        reach: Reach::Socket,
        answer: "nothing (204): what is told counts while kubelet's PodsAPI does not tell of pods; 400 for a body that is no such list",
        handler: || post(tell_pods),
    },
];

/// What a listener of this reach serves.
pub(crate) fn routes(reach: Reach, api: Api) -> Router {
    let has_map = api.map.is_some();
    let served = ROUTES.iter().filter(|route| route.reach <= reach);
    let served = served.filter(|route| has_map || !route.is_of_map());
    let add = |router: Router<Api>, route: &Route| router.route(route.path, (route.handler)());
    served.fold(Router::new(), add).layer(Extension(reach)).with_state(api)
}

/// Below it, the control socket has what is on loopback.
const LOOPBACK: &str = "/loopback";

/// What the control socket serves. A client that shows others what they might see on the node's loopback asks below [`LOOPBACK`], and cannot tell them more.
pub(crate) fn control_routes(api: Api) -> Router {
    routes(Reach::Socket, api.clone()).nest(LOOPBACK, routes(Reach::Loopback, api))
}

async fn metrics(
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
async fn health(State(api): State<Api>) -> Response {
    match api.is_alive().await {
        true => "ok\n".into_response(),
        false => stopping(),
    }
}

async fn readiness(State(api): State<Api>) -> Response {
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

async fn status(State(api): State<Api>) -> Response {
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

async fn machine(State(api): State<Api>) -> Response {
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

#[derive(Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

async fn explain(State(api): State<Api>, Query(named): Query<Named>) -> Response {
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
    for explanation in &mut found {
        explanation.rebalance = api.told.about(&explanation.container);
        if explanation.now.is_some() {
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
struct To {
    to: Mode,
}

async fn plan_files(State(api): State<Api>) -> Response {
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

async fn audit(State(api): State<Api>) -> Response {
    Json(api.sightings.view()).into_response()
}

async fn rebalance(State(api): State<Api>) -> Response {
    let mode = api.reloader.rebalance_mode();
    match api.ask(Event::Occupancy).await {
        Some(Answer::Occupancy(it)) => {
            Json(api.told.view(mode, it.is_rebalance_paused)).into_response()
        }
        _ => stopping(),
    }
}

#[derive(Deserialize)]
struct Paused {
    paused: bool,
}

async fn pause_rebalance(State(api): State<Api>, Query(it): Query<Paused>) -> Response {
    match api.ask(Event::PauseRebalance(it.paused)).await {
        Some(_) => rebalance(State(api)).await,
        None => stopping(),
    }
}

async fn plan_mode(State(api): State<Api>, Query(To { to }): Query<To>) -> Response {
    match api.ask(Event::PlanMode(to)).await {
        Some(Answer::ModePlan(plan)) => Json(*plan).into_response(),
        _ => stopping(),
    }
}

/// Goes on although the caller may give up: half of a change is no change.
async fn change_mode(State(api): State<Api>, Query(To { to }): Query<To>) -> Response {
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

/// Changes nothing, although it comes with a body.
async fn diff_config(State(api): State<Api>, Query(named): Query<Named>, text: String) -> Response {
    or_why_not(api.reloader.preview(Path::new(&named.name), &text).await)
}

/// Goes on although the caller may give up.
async fn reload_config(State(api): State<Api>) -> Response {
    match tokio::spawn(async move { api.reloader.reload().await }).await {
        Ok(done) => or_why_not(done),
        Err(_) => stopping(),
    }
}

/// What the cluster says, but for the text.
#[derive(Deserialize)]
struct OfCluster {
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

async fn cluster_config(State(api): State<Api>) -> Response {
    let held = api.reloader.cluster();
    match held.is_empty() {
        true => (StatusCode::NOT_FOUND, "the cluster has no configuration for this node\n")
            .into_response(),
        false => Json(held).into_response(),
    }
}

async fn diff_cluster_config(
    State(api): State<Api>,
    Query(it): Query<OfCluster>,
    text: String,
) -> Response {
    match it.with(text) {
        Ok(given) => or_why_not(api.reloader.preview_cluster(given).await),
        Err(refusal) => refusal.into_response(),
    }
}

async fn diff_no_cluster_config(State(api): State<Api>) -> Response {
    or_why_not(api.reloader.preview_cluster(ClusterConfig::default()).await)
}

async fn apply_cluster_config(
    State(api): State<Api>,
    Query(it): Query<OfCluster>,
    text: String,
) -> Response {
    match it.with(text) {
        Ok(given) => take_from_cluster(api, given).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn drop_cluster_config(State(api): State<Api>) -> Response {
    take_from_cluster(api, ClusterConfig::default()).await
}

/// Goes on although the client may give up.
async fn take_from_cluster(api: Api, given: ClusterConfig) -> Response {
    match tokio::spawn(async move { api.reloader.apply_cluster(given).await }).await {
        Ok(done) => or_why_not(done),
        Err(_) => stopping(),
    }
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    run: String,
    #[serde(default)]
    from: u64,
    #[serde(default)]
    wait: u64,
}

async fn events(State(api): State<Api>, Query(it): Query<Since>) -> Response {
    Json(api.feed.since(&it.run, it.from, Duration::from_secs(it.wait)).await).into_response()
}

#[derive(Deserialize)]
struct After {
    after: Option<u64>,
    #[serde(default)]
    wait: u64,
}

async fn zones(State(api): State<Api>, Query(it): Query<After>) -> Response {
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

async fn tell_pods(State(api): State<Api>, body: Bytes) -> Response {
    match (parse_pods_json(&body), &api.pods) {
        (Ok((pods, names)), Some(lookup)) => {
            lookup.told.tell(pods, names.as_deref());
            StatusCode::NO_CONTENT.into_response()
        }
        (Ok(_), None) => stopping(),
        (Err(why), _) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

async fn features(State(api): State<Api>) -> Response {
    let topology = api.reloader.topology().await;
    let root = api.reloader.live().host_root.clone();
    match blocking(move || read_view(&root, &topology)).await.flatten() {
        Some(view) => Json(view).into_response(),
        None => stopping(),
    }
}

fn or_why_not(done: anyhow::Result<ConfigDiff>) -> Response {
    match done {
        Ok(diff) => Json(diff).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}\n")).into_response(),
    }
}

pub(crate) fn stopping() -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "the daemon is stopping, or what answers this has ended by a bug, which /readyz tells\n",
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str =
        "<!-- made from the table in crates/daemon/src/api.rs; UPDATE_EXPECT=1 rewrites it -->\n\n";
    const END: &str = "\n<!-- end of the table -->";

    fn render_page() -> String {
        let mut page = "| Request | Parameters | Where | Answer |\n|---|---|---|---|\n".to_owned();
        for route in ROUTES {
            let Route { method, path, parameters, reach, answer, .. } = route;
            let reach = reach.text();
            page.push_str(&format!("| `{method} {path}` | {parameters} | {reach} | {answer} |\n"));
        }
        page
    }

    #[test]
    fn the_page_has_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) =
            page.split_once(BEGIN).expect("docs/api.md has the mark at the beginning");
        let (table, after) = rest.split_once(END).expect("docs/api.md has the mark at the end");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{}{END}{after}", render_page())).unwrap();
        } else {
            assert_eq!(table, render_page(), "run with UPDATE_EXPECT=1 to rewrite docs/api.md");
        }
    }

    #[test]
    fn what_changes_something_is_on_the_socket_only() {
        for route in ROUTES.iter().filter(|route| route.method != "GET") {
            assert_eq!(route.reach, Reach::Socket, "{} {}", route.method, route.path);
        }
        for (address, reach) in [
            ("127.0.0.1", Reach::Loopback),
            ("127.8.0.1", Reach::Loopback),
            ("::1", Reach::Loopback),
            ("0.0.0.0", Reach::Network),
            ("::", Reach::Network),
            ("10.0.0.7", Reach::Network),
        ] {
            assert_eq!(Reach::of(address.parse().unwrap()), reach, "{address}");
        }
    }
}
