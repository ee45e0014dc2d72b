//! Times of many repetitions, and how they are shown. Pure.

use std::time::Duration;

use serde::Serialize;

use crate::text::{render_table, table};
use crate::time_summary::{TimeSummary, micros};

/// The form of `-o json`.
const FORMAT: &str = "bayplan-bench-times/1";

/// Times of one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) name: String,
    /// What came of it, where that tells something.
    pub(super) result: String,
    pub(super) count: usize,
    /// Microseconds.
    pub(super) median_us: f64,
    /// The time that 99 of 100 do not exceed.
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
}

impl Figure {
    /// `None` without a time.
    pub(super) fn of(name: &str, result: String, times: &[Duration]) -> Option<Figure> {
        let TimeSummary { median, p99, max, .. } = TimeSummary::of(times)?;
        let [median_us, p99_us, max_us] = [median, p99, max].map(micros);
        Some(Figure {
            name: name.to_owned(),
            result,
            count: times.len(),
            median_us,
            p99_us,
            max_us,
        })
    }
}

/// What was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LeftOut {
    pub(super) name: String,
    pub(super) reason: String,
}

impl LeftOut {
    pub(super) fn new(name: &str, reason: impl ToString) -> LeftOut {
        LeftOut { name: name.to_owned(), reason: reason.to_string() }
    }
}

/// A part of the measurements: what it gave, and why it gave no more.
pub(super) type Part = (Vec<Figure>, Vec<LeftOut>);

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) format: &'static str,
    pub(super) cpus: usize,
    /// Containers that hold a place by the journal.
    pub(super) containers: usize,
    /// Load average of the last minute.
    pub(super) load: String,
    pub(super) figures: Vec<Figure>,
    pub(super) left_out: Vec<LeftOut>,
}

impl Default for Report {
    fn default() -> Report {
        let (figures, left_out) = (Vec::new(), Vec::new());
        Report { format: FORMAT, cpus: 0, containers: 0, load: String::new(), figures, left_out }
    }
}

impl Report {
    pub(super) fn add(&mut self, (figures, left_out): Part) {
        self.figures.extend(figures);
        self.left_out.extend(left_out);
    }
}

/// For people.
pub(super) fn render(report: &Report) -> String {
    let Report { cpus, containers, load, .. } = report;
    let mut text = format!("{cpus} CPUs, {containers} containers by the journal, load {load}\n");
    let mut rows = table(&["WHAT", "TIMES", "MEDIAN", "99 %", "MOST", "RESULT"]);
    for it in &report.figures {
        let [median, p99, max] = [it.median_us, it.p99_us, it.max_us].map(shown);
        rows.add_row([it.name.clone(), it.count.to_string(), median, p99, max, it.result.clone()]);
    }
    text.push_str(&render_table(&rows));
    for LeftOut { name, reason } in &report.left_out {
        text.push_str(&format!("left out: {name}: {reason}\n"));
    }
    text
}

/// `4.2 µs`, `812 µs`, `3.41 ms`.
fn shown(value: f64) -> String {
    match value {
        _ if value < 100.0 => format!("{value:.1} \u{b5}s"),
        _ if value < 1000.0 => format!("{value:.0} \u{b5}s"),
        _ => format!("{:.2} ms", value / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn times_are_ranked_and_shown_in_the_unit_that_suits_them() {
        let times = (1..=200).rev().map(|it| Duration::from_micros(it * 20)).collect::<Vec<_>>();
        let figure = Figure::of("place", "CPUs 1".to_owned(), &times).unwrap();
        assert_eq!((figure.median_us, figure.p99_us, figure.max_us), (2000.0, 3960.0, 4000.0));
        assert_eq!(Figure::of("nothing", String::new(), &[]), None);
        let quick = vec![Duration::from_nanos(4240), Duration::from_micros(812)];
        let quick = Figure::of("read", String::new(), &quick).unwrap();
        let mut report =
            Report { cpus: 16, containers: 3, load: "0.41".into(), ..Report::default() };
        report.add((vec![figure, quick], vec![LeftOut::new("write", "root may")]));
        expect![[r#"
            16 CPUs, 3 containers by the journal, load 0.41
             WHAT   TIMES  MEDIAN   99 %     MOST     RESULT
             place  200    2.00 ms  3.96 ms  4.00 ms  CPUs 1
             read   2      4.2 µs   812 µs   812 µs
            left out: write: root may
        "#]]
        .assert_eq(&render(&report));
    }
}
