//! Metrics of the agent over TLS. In: tokens with and without the right of `deploy/cluster/metrics.yaml`, a real API server that judges them. Out: metrics, or a refusal.

use std::time::{Duration, Instant};

use kube::{Client, Config};
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::world::World;

const RIGHTS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/metrics.yaml"));
/// The scraper's account and its right; its PodMonitor is of a kind that this API server does not have.
const SCRAPER: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/pod-monitor.yaml"));
/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// A scrape with this token, if any. Out: status, and metrics or a message.
async fn scrape(world: &World, token: Option<&str>) -> (u16, String) {
    let mut config = Config::new(format!("https://{}", world.metrics).parse().unwrap());
    config.accept_invalid_certs = true;
    // Prometheus does not ask again after 503 either.
    config.default_retry = false;
    config.auth_info.token = token.map(|it| it.to_owned().into());
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    match client.request_text(request).await {
        Ok(text) => (200, text),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => (0, error.to_string()),
    }
}

/// The same, once it ends with this status.
async fn scraped(world: &World, token: Option<&str>, expected: u16) -> String {
    let begun = Instant::now();
    loop {
        let (status, text) = scrape(world, token).await;
        if status == expected {
            return text;
        }
        assert!(begun.elapsed() < STUCK, "{status} {text}, and not {expected}");
        sleep(POLL).await;
    }
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

    // What is known counts on for a while; nothing else is let in.
    world.servers.stop_api();
    let second = scrape(world, Some("forged anew")).await;
    let first = scrape(world, Some(&scraper)).await;
    world.servers.start_api().await;
    assert_eq!((first.0, second.0), (200, 503), "{first:?} {second:?}");
}
