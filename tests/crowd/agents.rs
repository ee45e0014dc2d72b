//! The agents of all nodes, as tasks of this process. Each has a token bound to its Node, and connections of its own.

use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::Duration;

use bayplan_cluster::{AgentOptions, Converted, FeatureOptions, Question, run_by};
use futures::{StreamExt as _, stream};
use kube::{Client, Config};
use serde_json::Value as Json;
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio_util::sync::CancellationToken;

use crate::imagined::Imagined;
use crate::nodes::name;
use crate::world::{call, token_on, until};

const NODES: &str = "/apis/bayplan.dev/v1alpha1/bayplannodes";
const AT_ONCE: usize = 16;

/// Each runs its part of the agents, as the process of an agent does: on one thread.
const THREADS: usize = 2;

pub(crate) struct Crowd {
    daemons: Vec<Imagined>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

/// No object of another system is accepted.
fn convert(_: &Question<'_>) -> Result<Converted, String> {
    Err("nothing is accepted".to_owned())
}

/// Of this token. Certificates are not checked, as the API server's is made at each start.
pub(crate) fn client(address: &str, token: String) -> Client {
    let mut config = Config::new(address.parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(token.into());
    config.default_namespace = "bayplan-system".to_owned();
    Client::try_from(config).unwrap()
}

impl Crowd {
    /// As the manifests start an agent; `start_within` is of all together.
    pub(crate) async fn start(
        address: &str,
        admin: &Client,
        count: usize,
        start_within: Duration,
    ) -> Crowd {
        let clients = (0..count).map(async |number| {
            let node = name(number);
            let token = token_on(admin, &node).await;
            (node, client(address, token))
        });
        let clients: Vec<_> = stream::iter(clients).buffer_unordered(AT_ONCE).collect().await;
        let agents = clients.into_iter().map(|(node, client)| {
            let options = AgentOptions {
                node,
                start_within,
                parts: BTreeSet::new(),
                features: FeatureOptions::default(),
                removed: None,
                feeds_pods: false,
                accepted: Vec::new(),
                convert,
            };
            (client, options, Imagined::default())
        });
        let agents: Vec<Agent> = agents.collect();
        let daemons = agents.iter().map(|it| it.2.clone()).collect();
        let stop = CancellationToken::new();
        let mut parts: Vec<Vec<Agent>> = (0..THREADS).map(|_| Vec::new()).collect();
        for (number, agent) in agents.into_iter().enumerate() {
            parts[number % THREADS].push(agent);
        }
        let run = |part| {
            let stop = stop.clone();
            std::thread::spawn(move || run(part, stop))
        };
        Crowd { daemons, threads: parts.into_iter().map(run).collect(), stop }
    }

    /// Whether all daemons have this generation.
    pub(crate) fn all_hold(&self, generation: i64) -> bool {
        self.daemons.iter().all(|daemon| daemon.generation() == generation)
    }

    /// Waits until all BayplanNodes say so.
    pub(crate) async fn is_shown(&self, admin: &Client, generation: i64) {
        until("every BayplanNode shows the generation", async || {
            let listed = call(admin, "GET", NODES, &Json::Null).await.1;
            let nodes = listed["items"].as_array().cloned().unwrap_or_default();
            let is_so = |it: &Json| {
                it["status"]["configGeneration"] == generation
                    && it["status"]["conditions"][0]["status"] == "True"
            };
            nodes.len() == self.daemons.len() && nodes.iter().all(is_so)
        })
        .await;
    }

    pub(crate) fn end(self) {
        self.stop.cancel();
        self.threads.into_iter().for_each(|it| it.join().unwrap());
    }
}

type Agent = (Client, AgentOptions, Imagined);

/// Runs agents until they are to stop.
fn run(agents: Vec<Agent>, stop: CancellationToken) {
    let tokio = Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&tokio, async {
        for (client, options, daemon) in agents {
            spawn_local(run_by(client, options, daemon));
        }
        stop.cancelled().await;
    });
}
