//! How creations and a start grow with the containers that there are: through bayplan only, with one client.

use std::path::Path;
use std::time::Duration;

use super::load::{Call, measure};
use super::spread::Spread;
use super::ways::{Ways, populate};

const CALLS: [(Call, usize); 2] = [(Call::CreateShared, 20), (Call::CreateExclusive, 20)];
/// Until what follows the last creation is done.
const SETTLES: Duration = Duration::from_secs(3);

/// Rows by what is measured and how many containers are there.
#[derive(Default)]
pub(crate) struct Growth {
    calls: Vec<(Call, usize, [Spread; 3])>,
    starts: Vec<(usize, Spread)>,
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
            for (call, calls) in CALLS {
                let figures = measure(&ways, call, 1, calls, rounds).await;
                let Some(bayplan) = figures.iter().find(|it| it.way == "bayplan") else { continue };
                let cpu = bayplan.cpu_per_call().unwrap_or_default();
                let found = [bayplan.percentile(50), bayplan.percentile(99), cpu];
                eprintln!("  {} beside {count}: {:.0} us", call.name(), found[0]);
                self.add(call, count, found);
            }
            tokio::time::sleep(SETTLES).await;
            let took = ways.restart(program).await;
            eprintln!("  start with {count}: {took:.1} ms");
            self.add_start(count, took);
        }
    }

    fn add(&mut self, call: Call, count: usize, found: [f64; 3]) {
        let known = self.calls.iter().position(|it| (it.0, it.1) == (call, count));
        let at = known.unwrap_or_else(|| {
            self.calls.push((call, count, Default::default()));
            self.calls.len() - 1
        });
        for (spread, figure) in self.calls[at].2.iter_mut().zip(found) {
            spread.add(figure);
        }
    }

    fn add_start(&mut self, count: usize, took: f64) {
        match self.starts.iter_mut().find(|it| it.0 == count) {
            Some((_, spread)) => spread.add(took),
            None => {
                let mut spread = Spread::default();
                spread.add(took);
                self.starts.push((count, spread));
            }
        }
    }

    pub(crate) fn print(&self) {
        println!("| Call | Beside | p50, us | p99, us | CPU us a call |\n|---|---|---|---|---|");
        for (call, count, [half, most, cpu]) in &self.calls {
            println!("| {} | {count} | {half} | {most} | {cpu} |", call.name());
        }
        println!("\n| Start with | ms until the first call is answered |\n|---|---|");
        for (count, took) in &self.starts {
            println!("| {count} | {took:.1} |");
        }
    }
}
