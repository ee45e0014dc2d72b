//! Why a container is where it is, in words that outlive the ledger. In: an offer or a refusal. Out: a row per pool.

use bayplan_allocator::{Considered, Pools, Score};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One decision with everything that was considered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When.
    pub at: Timestamp,
    /// What was asked, for example `2 exclusive, memory 4 GiB`.
    pub asked: String,
    /// What came of it, for example `placed in numa 0`.
    pub outcome: String,
    /// Every pool, in the order of the tree; empty where there was no choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolVerdict>,
    /// What about the pod could not be understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What became of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolVerdict {
    /// The pool.
    pub pool: String,
    /// Its CPUs.
    pub cpus: String,
    /// Won, lost or rejected.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// The score, criterion by criterion; empty for a rejected pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<(String, String)>,
}

/// The three ways it can go for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It was chosen.
    Won,
    /// It would have done, but another was better.
    Lost,
    /// It cannot hold the request.
    Rejected,
}

impl Verdict {
    /// The word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Won => "won",
            Verdict::Lost => "lost",
            Verdict::Rejected => "rejected",
        }
    }
}

/// A row per pool.
pub(crate) fn render_considered(pools: &Pools, considered: &[Considered]) -> Vec<PoolVerdict> {
    let winner = considered.iter().filter_map(|row| row.outcome.as_ref().ok()).max();
    considered.iter().map(|row| render_row(pools, row, winner)).collect()
}

fn render_row(pools: &Pools, row: &Considered, winner: Option<&Score>) -> PoolVerdict {
    let (verdict, why, criteria) = match &row.outcome {
        Err(rejection) => (Verdict::Rejected, rejection.to_string(), Vec::new()),
        Ok(score) => {
            let criteria = score.criteria().map(|(name, value)| (name.to_owned(), value)).to_vec();
            match winner.and_then(|winner| score.loses_to(winner)) {
                Some(why) => (Verdict::Lost, why, criteria),
                None => (Verdict::Won, "best score".to_owned(), criteria),
            }
        }
    };
    let pool = pools.get(row.pool);
    PoolVerdict {
        pool: pool.map(|pool| pool.name.clone()).unwrap_or_default(),
        cpus: pool.map(|pool| pool.cpus.to_string()).unwrap_or_default(),
        verdict,
        why,
        criteria,
    }
}
