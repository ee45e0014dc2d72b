//! The older of Prometheus' two text formats, for clients that do not ask for OpenMetrics: `curl`, `promtool check metrics`, and other collectors.
//!
//! The samples are the same. The older format knows neither units nor an end, calls a counter by the name of its samples, and has no type for
//! information (prometheus.io, "Exposition formats", version 0.0.4).

/// What an answer in each format says of itself.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(crate) const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether an `Accept` header names OpenMetrics.
pub(crate) fn asks_for_open_metrics(accept: &str) -> bool {
    accept.split(',').any(|it| it.trim().starts_with("application/openmetrics-text"))
}

/// OpenMetrics text in the older format.
pub(crate) fn plain_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // The name depends on the type, which comes next.
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_samples_are_the_same_and_what_is_said_of_them_is_older() {
        let text = "# HELP a_seconds How long.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{x=\"# y\"} 1.5\n\
                    # HELP b Which.\n# TYPE b info\nb_info{version=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 2\n# EOF\n";
        expect![[r##"
            # HELP a_seconds_total How long.
            # TYPE a_seconds_total counter
            a_seconds_total{x="# y"} 1.5
            # HELP b_info Which.
            # TYPE b_info gauge
            b_info{version="1"} 1
            # HELP c Now.
            # TYPE c gauge
            c 2
        "##]]
        .assert_eq(&plain_text(text));
    }

    #[test]
    fn a_client_that_names_open_metrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1";
        for (accept, is_open) in [
            (prometheus, true),
            ("text/plain, application/openmetrics-text;q=0.1", true),
            ("*/*", false),
            ("text/plain;version=0.0.4", false),
            ("", false),
        ] {
            assert_eq!(asks_for_open_metrics(accept), is_open, "{accept}");
        }
    }
}
