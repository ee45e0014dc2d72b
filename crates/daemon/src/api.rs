//! What can be asked of a running daemon: JSON over HTTP. In: requests on the control socket and on `metricsAddress`. Out: answers.
//!
//! One table says what there is and where it can be asked. The page `docs/api.md` has the same table, and a test keeps the two equal. Everything but
//! GET is on the control socket only, which is root's and that of a group. Every process on the node, in a pod with the host's network too, can ask
//! what is on loopback: names and CPU sets, but nothing that a pod says of itself in annotations.

mod configuration;
mod containers;
mod context;
mod node;

use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Json, Router};
use serde::{Serialize, Serializer};

use crate::live_map;

pub(crate) use self::containers::{tell_all, tell_all_by};
pub(crate) use self::context::{Api, Named, Reach, stopping};
pub use self::node::MachineView;

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

/// All of them.
const ROUTES: [Route; 36] = [
    Route {
        method: "GET",
        path: "/metrics",
        parameters: "",
        reach: Reach::Network,
        answer: "[metrics](metrics.md) as Prometheus text, or as OpenMetrics where `Accept` names it; those by container only on the socket and on loopback",
        handler: || get(node::metrics),
    },
    Route {
        method: "GET",
        path: "/healthz",
        parameters: "",
        reach: Reach::Network,
        answer: "200 when the task that decides answers",
        handler: || get(node::health),
    },
    Route {
        method: "GET",
        path: "/readyz",
        parameters: "",
        reach: Reach::Network,
        answer: "200 when the runtime has told what runs, the journal is on disk, what kernel files said before is known, and no part of the daemon is missing, else 503 and what is lacking, a line each",
        handler: || get(node::readiness),
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
        handler: || get(node::status),
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
        parameters: "`before`, `after`: an entry's id; `count`: at most 1000",
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
        handler: || get(node::machine),
    },
    Route {
        method: "GET",
        path: "/api/v1/audit",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-audit/1`: what the probes have counted for each container, and what else ran on its CPUs",
        handler: || get(containers::audit),
    },
    Route {
        method: "GET",
        path: "/api/v1/explain",
        parameters: "`name`: as of `bayplan explain`",
        reach: Reach::Socket,
        answer: "a list of `bayplan-explain/1`: decisions about containers of this name",
        handler: || get(containers::explain),
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
        handler: || get(containers::plan_files),
    },
    Route {
        method: "GET",
        path: "/api/v1/mode",
        parameters: "`to`: placing, draining or restored",
        reach: Reach::Socket,
        answer: "`bayplan-mode-plan/1`: what would change with this mode",
        handler: || get(containers::plan_mode),
    },
    Route {
        method: "POST",
        path: "/api/v1/mode",
        parameters: "`to`: placing, draining or restored",
        reach: Reach::Socket,
        answer: "`bayplan-mode/1`, after the change: the mode, and which containers do not run where they should",
        handler: || post(containers::change_mode),
    },
    Route {
        method: "GET",
        path: "/api/v1/rebalance",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-rebalance/1`: whether the rebalancer looks, and its last proposals with their evidence",
        handler: || get(containers::rebalance),
    },
    Route {
        method: "POST",
        path: "/api/v1/rebalance",
        parameters: "`paused`: true or false",
        reach: Reach::Socket,
        answer: "`bayplan-rebalance/1`, after the change",
        handler: || post(containers::pause_rebalance),
    },
    Route {
        method: "POST",
        path: "/api/v1/config/diff",
        parameters: "`name`: what to call the file in messages; the body is the file",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`: what this configuration would change; 422 and its mistakes, or what of its types of groups cannot be had, where it cannot be used",
        handler: || post(configuration::diff_config),
    },
    Route {
        method: "POST",
        path: "/api/v1/config/reload",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`, after the change: what the file has changed; 422 and its mistakes, what of its types of groups cannot be had, or which container the runtime has not moved for them, where it cannot be used",
        handler: || post(configuration::reload_config),
    },
    Route {
        method: "GET",
        path: "/api/v1/config/cluster",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-cluster-config/1`: the cluster's configuration that holds on this node; 404 where none does",
        handler: || get(configuration::cluster_config),
    },
    Route {
        method: "POST",
        path: "/api/v1/config/cluster",
        parameters: "`name`: kind and name of the object; `generation`: its generation; the body is the configuration; `amplification_percent`: what the Node says of `requests.amplificationPercent`, if anything; one of both is needed",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`, after the change: what the cluster's configuration has changed; 422 and its mistakes where it cannot be used",
        handler: || post(configuration::apply_cluster_config),
    },
    Route {
        method: "DELETE",
        path: "/api/v1/config/cluster",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`, after the change: the node goes on under its file alone",
        handler: || delete(configuration::drop_cluster_config),
    },
    Route {
        method: "POST",
        path: "/api/v1/config/cluster/diff",
        parameters: "as of `POST /api/v1/config/cluster`",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`: what this configuration of the cluster would change; 422 and its mistakes where it cannot be used",
        handler: || post(configuration::diff_cluster_config),
    },
    Route {
        method: "GET",
        path: "/api/v1/config/cluster/diff",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-config-diff/1`: what going on under the file alone would change",
        handler: || get(configuration::diff_no_cluster_config),
    },
    Route {
        method: "GET",
        path: "/api/v1/events",
        parameters: "`run`, `from`: `run` and `next` of the last answer, if any; `wait`: seconds to wait for the next event, at most 30",
        reach: Reach::Socket,
        answer: "`bayplan-events/1`: refusals, moves of exclusive CPUs, squeezes, drift and the rebalancer's verdicts, by pod",
        handler: || get(node::events),
    },
    Route {
        method: "GET",
        path: "/api/v1/features",
        parameters: "",
        reach: Reach::Socket,
        answer: "`bayplan-features/1`: what this node can do, in the form of Node Feature Discovery: flags, attributes and instances by domain",
        handler: || get(node::features),
    },
    Route {
        method: "GET",
        path: "/api/v1/zones",
        parameters: "`after`: `change` of the last answer, if any; `wait`: seconds to wait for another one, at most 30",
        reach: Reach::Socket,
        answer: "`bayplan-zones/1`: what each NUMA node has for schedulers: capacity, what pods can have, what is left, devices of kubelet's plugins among it; cores, pods with exclusive CPUs, CPUs that no pod can have, groups",
        handler: || get(node::zones),
    },
    Route {
        method: "POST",
        path: "/api/v1/pods",
        parameters: "the body is `{\"pods\": [...], \"names\": [...]}`: pods of the API server in JSON, and, where others are to be forgotten, `namespace/name` of every pod",
        reach: Reach::Socket,
        answer: "nothing (204): what is told counts while kubelet's PodsAPI does not tell of pods; 400 for a body that is no such list",
        handler: || post(node::tell_pods),
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
