//! The daemon as the agent sees it: questions on the control socket, and as much of the answers as is used. Fields that are not known are ignored.

use bayplan_types::CpuSet;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// How it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// For what changes nothing.
    Get,
    /// For what changes something, or takes a text.
    Post,
    /// For what gives something up.
    Delete,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Whether it did what was asked.
    pub(crate) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Its text, for people.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().to_owned()
    }
}

/// What asks the daemon of this node.
pub trait Daemon: Send + Sync + 'static {
    /// Asks once.
    ///
    /// # Errors
    /// It cannot be reached, in words.
    fn ask(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> impl Future<Output = Result<Answer, String>> + Send;
}

/// Asks for a value.
///
/// # Errors
/// The daemon cannot be reached, refuses, or answers something else, in words; `what` names the value.
pub(crate) async fn ask_json<T: DeserializeOwned>(
    daemon: &impl Daemon,
    path: &str,
    what: &str,
) -> Result<T, String> {
    let answer = daemon.ask(Method::Get, path, String::new()).await?;
    match answer.is_good() {
        true => serde_json::from_slice(&answer.body)
            .map_err(|error| format!("the daemon's {what} cannot be read: {error}")),
        false => Err(answer.text()),
    }
}

/// What another configuration changes; of `bayplan-config-diff/1`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Diff {
    changes: Vec<Change>,
    moves: Vec<Move>,
}

#[derive(Clone, Debug, Deserialize)]
struct Change {
    #[serde(default)]
    needs_restart: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Move {
    container: String,
    exclusive_from: String,
    exclusive_to: String,
}

impl Diff {
    /// Whether anything is other at once.
    pub(crate) fn changes_now(&self) -> bool {
        self.changes.iter().any(|it| !it.needs_restart) || !self.moves.is_empty()
    }

    /// Containers that would leave CPUs of their own for others.
    pub(crate) fn exclusive_moves(&self) -> Vec<String> {
        let leaves =
            |it: &&Move| !it.exclusive_from.is_empty() && it.exclusive_from != it.exclusive_to;
        self.moves.iter().filter(leaves).map(|it| it.container.clone()).collect()
    }
}

/// Of `bayplan-status/1`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonStatus {
    pub(crate) version: String,
    pub(crate) mode: String,
    pub(crate) cpus: Cpus,
    pub(crate) pools: Vec<Pool>,
    pub(crate) containers: Vec<Json>,
    pub(crate) config: Option<DaemonConfig>,
}

impl DaemonStatus {
    /// Asks for it.
    pub(crate) async fn ask(daemon: &impl Daemon) -> Result<DaemonStatus, String> {
        ask_json(daemon, "/api/v1/status", "status").await
    }

    /// Whether containers are placed, which they are not while the node is drained or restored.
    pub(crate) fn is_placing(&self) -> bool {
        self.mode == "placing"
    }
}

/// CPU lists by class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Cpus {
    pub(crate) exclusive: String,
    pub(crate) shared: String,
    pub(crate) reserved: String,
    pub(crate) isolated: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Pool {
    pub(crate) cpus: String,
    pub(crate) shared_cpus: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonConfig {
    pub(crate) cluster: Option<DaemonClusterConfig>,
}

/// The cluster's configuration that it is under.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonClusterConfig {
    pub(crate) name: Option<String>,
    pub(crate) generation: Option<i64>,
    pub(crate) amplification: Option<DaemonAmplification>,
}

/// What it has of the Node's amplification of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonAmplification {
    pub(crate) percent: usize,
    /// The configuration does not say it itself.
    pub(crate) holds: bool,
}

impl DaemonStatus {
    /// Object and generation that it is under.
    pub(crate) fn holds(&self) -> Option<(String, i64)> {
        let cluster = self.config.as_ref()?.cluster.as_ref()?;
        Some((cluster.name.clone()?, cluster.generation?))
    }

    /// What it was given of the Node's amplification of CPUs.
    pub(crate) fn amplification(&self) -> Option<DaemonAmplification> {
        self.config.as_ref()?.cluster.as_ref()?.amplification
    }

    /// Most CPUs without an exclusive container in one pool of the lowest level, which is a NUMA node.
    pub(crate) fn largest_free(&self) -> usize {
        let set = |text: &str| text.parse::<CpuSet>().unwrap_or_default();
        let pools: Vec<(CpuSet, CpuSet)> =
            self.pools.iter().map(|it| (set(&it.cpus), set(&it.shared_cpus))).collect();
        let is_lowest = |cpus: &CpuSet| {
            !pools
                .iter()
                .any(|(other, _)| other != cpus && !other.is_empty() && other.is_subset(cpus))
        };
        let lowest = pools.iter().filter(|(cpus, _)| is_lowest(cpus));
        lowest.map(|(_, shared)| shared.len()).max().unwrap_or(0)
    }
}

/// The length of a CPU list.
pub(crate) fn count(cpus: &str) -> usize {
    cpus.parse::<CpuSet>().map_or(0, |it| it.len())
}

/// Of `bayplan-events/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct DaemonEvents {
    pub(crate) run: String,
    pub(crate) next: u64,
    pub(crate) missed: u64,
    pub(crate) events: Vec<DaemonEvent>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonEvent {
    pub(crate) at: String,
    pub(crate) kind: String,
    pub(crate) by: Option<String>,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: Option<String>,
    pub(crate) container: String,
    pub(crate) exclusive: Option<[String; 2]>,
    pub(crate) why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_hole_is_of_one_numa_node() {
        let status: DaemonStatus = serde_json::from_str(
            r#"{"pools": [{"cpus": "0-15", "shared_cpus": "2-15"}, {"cpus": "0-7", "shared_cpus": "2-7"}, {"cpus": "8-15", "shared_cpus": "8-12"}]}"#,
        )
        .unwrap();
        assert_eq!(status.largest_free(), 6);
        assert_eq!(DaemonStatus::default().largest_free(), 0);
    }
}
