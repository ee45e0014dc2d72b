//! The agent's own metrics: how scrapes, and requests of the map, ended. Out: text in the format of Prometheus, to be put after the daemon's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With what was asked for.
    Answered,
    /// The daemon did not answer.
    DaemonAway,
    /// Its user has no right to that.
    Forbidden,
    /// There was no token of the cluster.
    Unauthenticated,
    /// The API server did not say what the token is worth.
    Unchecked,
    /// As many of the same are under way as may be; of the map only.
    Busy,
}

impl Outcome {
    const ALL: [(Outcome, &str); 6] = [
        (Outcome::Answered, "answered"),
        (Outcome::DaemonAway, "daemon_away"),
        (Outcome::Forbidden, "forbidden"),
        (Outcome::Unauthenticated, "unauthenticated"),
        (Outcome::Unchecked, "unchecked"),
        (Outcome::Busy, "busy"),
    ];
}

/// Requests by outcome since the agent started.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; Outcome::ALL.len()]);

impl Counts {
    pub(super) fn count(&self, outcome: Outcome) {
        for ((known, _), number) in Outcome::ALL.iter().zip(&self.0) {
            if *known == outcome {
                number.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn render(&self, name: &str, help: &str, never: Option<Outcome>) -> String {
        let mut text = format!("# HELP {name} {help}\n# TYPE {name} counter\n");
        let all = Outcome::ALL.iter().zip(&self.0);
        for ((_, label), number) in all.filter(|((it, _), _)| Some(*it) != never) {
            let number = number.load(Ordering::Relaxed);
            text.push_str(&format!("{name}{{outcome=\"{label}\"}} {number}\n"));
        }
        text
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) scrapes: Arc<Counts>,
    /// Absent where the map is not served.
    pub(super) map: Option<Arc<Counts>>,
}

impl Tally {
    pub(super) fn render(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "# HELP bayplan_agent_build_info Version of the agent.\n\
             # TYPE bayplan_agent_build_info gauge\n\
             bayplan_agent_build_info{{version=\"{version}\"}} 1\n"
        );
        let help = "Scrapes of the agent, by how they ended.";
        let never = Some(Outcome::Busy);
        text.push_str(&self.scrapes.render("bayplan_agent_scrapes_total", help, never));
        if let Some(map) = &self.map {
            let help = "Requests of the map at the agent, by how they ended.";
            text.push_str(&map.render("bayplan_agent_map_requests_total", help, None));
        }
        text
    }
}
