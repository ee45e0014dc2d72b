//! The agent's own metrics: how scrapes ended. Out: text in the format of Prometheus, to be put after the daemon's.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a scrape ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With metrics.
    Answered,
    /// The daemon did not tell its metrics.
    DaemonAway,
    /// The scraper has no right to them.
    Forbidden,
    /// There was no token of the cluster.
    Unauthenticated,
    /// The API server did not say what the token is worth.
    Unchecked,
}

impl Outcome {
    const ALL: [(Outcome, &str); 5] = [
        (Outcome::Answered, "answered"),
        (Outcome::DaemonAway, "daemon_away"),
        (Outcome::Forbidden, "forbidden"),
        (Outcome::Unauthenticated, "unauthenticated"),
        (Outcome::Unchecked, "unchecked"),
    ];
}

/// Scrapes by outcome since the agent started.
#[derive(Debug, Default)]
pub(super) struct Tally([AtomicU64; Outcome::ALL.len()]);

impl Tally {
    pub(super) fn count(&self, outcome: Outcome) {
        for ((known, _), number) in Outcome::ALL.iter().zip(&self.0) {
            if *known == outcome {
                number.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn render(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "# HELP bayplan_agent_build_info Version of the agent.\n\
             # TYPE bayplan_agent_build_info gauge\n\
             bayplan_agent_build_info{{version=\"{version}\"}} 1\n\
             # HELP bayplan_agent_scrapes_total Scrapes of the agent, by how they ended.\n\
             # TYPE bayplan_agent_scrapes_total counter\n"
        );
        for ((_, name), number) in Outcome::ALL.iter().zip(&self.0) {
            let number = number.load(Ordering::Relaxed);
            text.push_str(&format!("bayplan_agent_scrapes_total{{outcome=\"{name}\"}} {number}\n"));
        }
        text
    }
}
