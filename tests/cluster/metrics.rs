//! Metrics of the agent over TLS, and the live map beside them. In: tokens with and without the rights of `deploy/cluster/metrics.yaml` and `map.yaml`, a real API server that judges them. Out: metrics
//! or the map, or a refusal.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt as _, StreamExt as _};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value as Json, json};
use tokio::time::{sleep, timeout};

use crate::world::World;

const RIGHTS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/metrics.yaml"));
/// The right to see the map, which is to be bound to an account.
const MAP_RIGHT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/map.yaml"));
/// The scraper's account and its right; its PodMonitor is of a kind that this API server does not have.
const SCRAPER: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/pod-monitor.yaml"));
/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// What the agent has at a path, for this token, if any. Out: status, and text.
async fn ask(world: &World, path: &str, token: Option<&str>) -> (u16, String) {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    match agent(world, token).request_text(request).await {
        Ok(text) => (200, text),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => (0, error.to_string()),
    }
}

/// A client of the agent.
fn agent(world: &World, token: Option<&str>) -> Client {
    let mut config = Config::new(format!("https://{}", world.metrics).parse().unwrap());
    config.accept_invalid_certs = true;
    // Prometheus does not ask again after 503 either.
    config.default_retry = false;
    config.auth_info.token = token.map(|it| it.to_owned().into());
    Client::try_from(config).unwrap()
}

/// The same, once it ends with this status.
async fn asked(world: &World, path: &str, token: Option<&str>, expected: u16) -> String {
    let begun = Instant::now();
    loop {
        let (status, text) = ask(world, path, token).await;
        if status == expected {
            return text;
        }
        assert!(begun.elapsed() < STUCK, "{status} {text}, and not {expected}");
        sleep(POLL).await;
    }
}

async fn scrape(world: &World, token: Option<&str>) -> (u16, String) {
    ask(world, "/metrics", token).await
}

async fn scraped(world: &World, token: Option<&str>, expected: u16) -> String {
    asked(world, "/metrics", token, expected).await
}

async fn apply(world: &World, manifest: &str) {
    for object in serde_yaml::from_multiple::<Json>(manifest).unwrap() {
        if object["kind"] != "PodMonitor" {
            world.put(&object).await;
        }
    }
}

pub(crate) async fn scrapers_have_what_the_cluster_lets_them(world: &mut World) {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "bystander", "namespace": "bayplan-system" },
    });
    world.put(&account).await;
    apply(world, SCRAPER).await;
    let [scraper, bystander] =
        [world.token_of("bayplan-scraper").await, world.token_of("bystander").await];

    assert_eq!(
        scraped(world, None, 401).await.trim(),
        "metrics are for bearer tokens of the cluster"
    );
    // The agent itself has no right to ask about tokens yet.
    scraped(world, Some(&scraper), 503).await;
    apply(world, RIGHTS).await;
    let text = scraped(world, Some(&scraper), 200).await;
    // No container has a cgroup here, so of theirs there are no values.
    for name in ["bayplan_cpus{", "# TYPE bayplan_container_", "bayplan_agent_scrapes_total{"] {
        assert!(text.contains(&format!("\n{name}")), "{name}: {text}");
    }
    let refused = scraped(world, Some(&bystander), 403).await;
    assert!(refused.contains("bayplan-system:bystander may not get /metrics"), "{refused}");
    scraped(world, Some("forged"), 401).await;

    the_map_is_for_those_that_may_see_it(world, &scraper).await;

    // What is known counts on for a while; nothing else is let in.
    world.servers.stop_api();
    let second = scrape(world, Some("forged anew")).await;
    let first = scrape(world, Some(&scraper)).await;
    world.servers.start_api().await;
    assert_eq!((first.0, second.0), (200, 503), "{first:?} {second:?}");
}

/// The agent may ask about tokens by now; the scraper has no right to the map.
async fn the_map_is_for_those_that_may_see_it(world: &World, scraper: &str) {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "on-call", "namespace": "bayplan-system" },
    });
    world.put(&account).await;
    apply(world, MAP_RIGHT).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "on-call" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bayplan-map-reader" },
        "subjects": [{ "kind": "ServiceAccount", "name": "on-call", "namespace": "bayplan-system" }],
    });
    world.put(&binding).await;
    let token = world.token_of("on-call").await;
    let seer = Some(token.as_str());
    assert!(asked(world, "/map", None, 401).await.contains("<form method=\"post\">"));
    let refused = asked(world, "/map", Some(scraper), 403).await;
    assert!(refused.contains("bayplan-system:bayplan-scraper may not get /map"), "{refused}");
    assert!(asked(world, "/map", seer, 200).await.contains("/map/app.js"));
    let map: Json = serde_json::from_str(&asked(world, "/api/v1/map", seer, 200).await).unwrap();
    assert_eq!(map["format"], "bayplan-map/1", "{map}");
    asked(world, "/api/v1/explain?name=x", seer, 404).await;
    scraped(world, seer, 403).await;

    let mut request = http::Request::get("/api/v1/map/events").body(Vec::new()).unwrap();
    let events = agent(world, seer).request_stream(request).await.unwrap();
    let mut lines = pin!(events.lines());
    let first = timeout(STUCK, lines.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(first, "event: map");

    let form = format!("token={token}");
    request = http::Request::post("/map").body(form.into_bytes()).unwrap();
    let kind = "application/x-www-form-urlencoded".parse().unwrap();
    request.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    let begun = agent(world, None).send(request.map(Body::from)).await.unwrap();
    assert_eq!(begun.status(), 303);
    let cookie = begun.headers()[http::header::SET_COOKIE].to_str().unwrap();
    let (cookie, _) = cookie.split_once(';').unwrap();
    request = http::Request::get("/api/v1/map").body(Vec::new()).unwrap();
    request.headers_mut().insert(http::header::COOKIE, cookie.parse().unwrap());
    let seen = agent(world, None).request_text(request).await.unwrap();
    assert!(seen.contains("bayplan-map/1"), "{seen}");
}
