//! How creations and a start grow with the containers that there are: through bayplan only, with one client.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::load::{Call, measure};
use super::spread::Spread;
use super::ways::{Ways, populate};

const CALLS: [Call; 2] = [Call::CreateShared, Call::CreateExclusive];
/// Of one call in a round.
const TIMES: usize = 20;
/// Until what follows the last creation is done.
const SETTLES: Duration = Duration::from_secs(3);

/// What the runs have found so far.
#[derive(Default)]
pub(crate) struct Growth {
    /// By call, an index of [`CALLS`], and how many containers were there: p50 and p99, CPU time of a call; microseconds.
    calls: BTreeMap<(usize, usize), [Spread; 3]>,
    /// By how many containers were there; milliseconds.
    starts: BTreeMap<usize, Spread>,
}

impl Growth {
    pub(crate) async fn run(&mut self, program: &Path, beside: &[usize], rounds: u64) {
        let mut ways = Ways::start(program, None).await;
        let mut filled = 0;
        for count in beside.iter().copied() {
            // The direct way's runtime is filled, too, since its calls take turns with the others.
            for way in ways.all() {
                populate(way, filled..count).await;
            }
            filled = filled.max(count);
            tokio::time::sleep(SETTLES).await;
            for (idx, call) in CALLS.into_iter().enumerate() {
                let figures = measure(&ways, call, 1, TIMES, rounds).await;
                let Some(bayplan) = figures.iter().find(|it| it.way == "bayplan") else { continue };
                let cpu = bayplan.cpu_per_call().unwrap_or_default();
                let found = [bayplan.percentile(50), bayplan.percentile(99), cpu];
                eprintln!("  {} beside {count}: {:.0} us", call.name(), found[0]);
                let row = self.calls.entry((idx, count)).or_default();
                row.iter_mut().zip(found).for_each(|(spread, figure)| spread.add(figure));
            }
            tokio::time::sleep(SETTLES).await;
            let took = ways.restart(program).await;
            eprintln!("  start with {count}: {took:.1} ms");
            self.starts.entry(count).or_default().add(took);
        }
    }

    pub(crate) fn print(&self) {
        println!("| Call | Beside | p50, us | p99, us | CPU us a call |\n|---|---|---|---|---|");
        for ((idx, count), [half, most, cpu]) in &self.calls {
            println!("| {} | {count} | {half} | {most} | {cpu} |", CALLS[*idx].name());
        }
        println!("\n| Start with | ms until the first call is answered |\n|---|---|");
        for (count, took) in &self.starts {
            println!("| {count} | {took:.1} |");
        }
    }
}
