//! A daemon that is not there: it answers the agent's questions as one of a node where nothing happens, and keeps the name and generation of the configuration that it was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bayplan_cluster::{Answer, Daemon, Method};
use serde_json::{Value as Json, json};
use tokio::time::sleep;

/// As long as a daemon lets a question for events wait.
const EVENTS_WAIT: Duration = Duration::from_secs(30);
/// The same for one about zones.
const ZONES_WAIT: Duration = Duration::from_secs(15);

#[derive(Clone, Default)]
pub(crate) struct Imagined {
    /// Of the configuration; 0: none.
    generation: Arc<AtomicI64>,
}

impl Imagined {
    pub(crate) fn generation(&self) -> i64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn status(&self) -> Json {
        let cluster = match self.generation() {
            0 => Json::Null,
            generation => json!({ "name": "BayplanConfig/default", "generation": generation }),
        };
        let container = |number: usize| json!({ "namespace": "default", "pod": format!("p{number}"), "container": "c", "phase": "running", "cpus": "8-55" });
        json!({
            "version": "0.1.0", "mode": "placing",
            "cpus": { "exclusive": "1-7", "shared": "8-55", "reserved": "0,56", "isolated": "" },
            "pools": [{ "cpus": "0-111", "shared_cpus": "8-55" }, { "cpus": "0-55", "shared_cpus": "8-55" }],
            "containers": (0..8).map(container).collect::<Vec<_>>(),
            "config": { "cluster": cluster },
        })
    }
}

/// The value of a key in a query.
fn value<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    let query = path.split_once('?')?.1;
    query.split('&').find_map(|it| it.strip_prefix(key)?.strip_prefix('='))
}

impl Daemon for Imagined {
    async fn ask(&self, method: Method, path: &str, _body: String) -> Result<Answer, String> {
        let told = match (method, path.split('?').next().unwrap_or_default()) {
            (Method::Get, "/readyz") => Json::Null,
            (Method::Get, "/api/v1/status") => self.status(),
            (Method::Get, "/api/v1/zones") => {
                if value(path, "after").is_some() {
                    sleep(ZONES_WAIT).await;
                }
                json!({ "change": 1 })
            }
            (Method::Get, "/api/v1/events") => {
                sleep(EVENTS_WAIT).await;
                json!({ "run": "r", "next": 0, "missed": 0, "events": [] })
            }
            (Method::Post, "/api/v1/config/cluster/diff") => {
                json!({ "changes": [{ "key": "log", "needs_restart": false }], "moves": [] })
            }
            (Method::Post, "/api/v1/config/cluster") => {
                let generation = value(path, "generation").and_then(|it| it.parse().ok());
                self.generation.store(generation.ok_or("no generation")?, Ordering::Relaxed);
                Json::Null
            }
            _ => return Ok(Answer { status: 404, body: path.as_bytes().to_vec() }),
        };
        Ok(Answer { status: 200, body: told.to_string().into_bytes() })
    }
}
