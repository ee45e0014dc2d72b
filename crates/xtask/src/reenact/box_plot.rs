//! Box plots as SVG. Pure. A drawing of rectangles and lines; a plotting library would bring fonts and rasters.

use std::fmt::Write as _;

use super::report::{Report, figure};
use super::scenario::Scenario;
use super::statistics::Spread;
use super::table::best_run;

const ROW: f64 = 22.0;
const LEFT: f64 = 330.0;
const WIDTH: f64 = 520.0;
const TOP: f64 = 34.0;

/// One row of a plot.
struct Row {
    title: String,
    spread: Spread,
}

/// All figures of a scenario, each in multiples of its best run; `None` if nothing was measured.
pub(crate) fn render(report: &Report, scenario: &Scenario) -> Option<String> {
    let mut rows = Vec::new();
    for metric in scenario.metrics() {
        let Some(best) = best_run(report, scenario, &metric) else { continue };
        for configuration in report.configurations(scenario) {
            let spread = report.spread(scenario, configuration, &metric);
            let Some(spread) = spread.and_then(|it| scaled(it, best)) else { continue };
            let title = format!("{}: {}", metric.title, configuration.title());
            rows.push(Row { title, spread });
        }
    }
    let least = rows.iter().map(|it| it.spread.min).min_by(f64::total_cmp)?;
    let most = rows.iter().map(|it| it.spread.max).max_by(f64::total_cmp)?;
    Some(draw(scenario.title, &rows, least.min(1.0), most.max(least + 0.01)))
}

/// In multiples of `unit`.
fn scaled(spread: &Spread, unit: f64) -> Option<Spread> {
    let inside = [spread.lower, spread.median, spread.upper, spread.min, spread.max];
    let inside = inside.into_iter().chain([spread.low_whisker, spread.high_whisker]);
    let scaled: Vec<f64> = inside.map(|it| it / unit).collect();
    let &[lower, median, upper, min, max, low_whisker, high_whisker] = scaled.as_slice() else {
        return None;
    };
    let outliers = spread.outliers.iter().map(|it| it / unit).collect();
    let count = spread.count;
    Some(Spread { count, median, lower, upper, low_whisker, high_whisker, outliers, min, max })
}

fn draw(title: &str, rows: &[Row], least: f64, most: f64) -> String {
    let x = |value: f64| LEFT + WIDTH * (value - least) / (most - least);
    let height = rows.iter().fold(TOP, |sum, _| sum + ROW) + 24.0;
    let mut svg = String::new();
    let width = LEFT + WIDTH + 30.0;
    let mut line = |text: String| writeln!(svg, "{text}").unwrap_or_default();
    line(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
    ));
    line(format!(r#"<rect width="{width}" height="{height}" fill="white"/>"#));
    line(format!(r#"<text x="8" y="18" font-weight="bold">{}</text>"#, escaped(title)));
    let mut top = TOP;
    for Row { title, spread } in rows {
        let middle = top + ROW / 2.0;
        let text = middle + 4.0;
        let right = LEFT - 10.0;
        line(format!(
            r#"<text x="{right}" y="{text}" text-anchor="end">{}</text>"#,
            escaped(title)
        ));
        let [low, high] = [spread.low_whisker, spread.high_whisker].map(x);
        line(stroke(low, middle, high, middle));
        for end in [low, high] {
            line(stroke(end, middle - 4.0, end, middle + 4.0));
        }
        let [from, to] = [spread.lower, spread.upper].map(x);
        let box_width = (to - from).max(1.0);
        let box_top = middle - 7.0;
        line(format!(
            r##"<rect x="{from:.1}" y="{box_top}" width="{box_width:.1}" height="14" fill="#9ecae1" stroke="black"/>"##
        ));
        let median = x(spread.median);
        line(stroke(median, middle - 7.0, median, middle + 7.0));
        for outlier in spread.outliers.iter().copied().map(x) {
            line(format!(
                r#"<circle cx="{outlier:.1}" cy="{middle}" r="2.5" fill="none" stroke="black"/>"#
            ));
        }
        top += ROW;
    }
    let foot = top + 16.0;
    for value in [least, (least + most) / 2.0, most] {
        let at = x(value);
        line(format!(
            r#"<text x="{at:.1}" y="{foot}" text-anchor="middle">{}</text>"#,
            figure(value)
        ));
    }
    line("</svg>".to_owned());
    svg
}

fn stroke(x1: f64, y1: f64, x2: f64, y2: f64) -> String {
    format!(r#"<line x1="{x1:.1}" y1="{y1}" x2="{x2:.1}" y2="{y2}" stroke="black"/>"#)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reenact::configuration::Configuration;
    use crate::reenact::test_support::report;

    #[test]
    fn there_is_a_box_for_each_configuration_and_a_circle_for_an_outlier() {
        let report = report(&[
            (Configuration::NoPinning, &[1.0, 1.1, 1.2, 1.3, 9.0]),
            (Configuration::Proxy, &[1.0, 1.1, 1.2, 1.3, 1.4]),
        ]);
        let alone = Scenario::by_name("alone").unwrap();
        let svg = render(&report, alone).unwrap();
        // Two kernels under two configurations.
        assert_eq!(svg.matches("fill=\"#9ecae1\"").count(), 4);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("matrix: Bayplan (CRI proxy)"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
        assert_eq!(render(&report, Scenario::by_name("colocated-memory").unwrap()), None);
    }
}
