//! Figures of several runs: the median, and how far apart they are.

use std::fmt;

/// One figure, by run.
#[derive(Default)]
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn add(&mut self, figure: f64) {
        self.0.push(figure);
        self.0.sort_unstable_by(f64::total_cmp);
    }
}

/// `median (lowest-highest)`, with as many decimals as are asked for.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return f.write_str("-");
        };
        let (decimals, middle) = (f.precision().unwrap_or(0), self.0[self.0.len() / 2]);
        write!(f, "{middle:.decimals$} ({first:.decimals$}-{last:.decimals$})")
    }
}
