//! What the load generators print, to figures. Pure; the tests have recorded outputs.

use anyhow::{Context as _, ensure};

/// What clients of redis have seen of one operation; percentiles of latency in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RedisLoad {
    pub(crate) requests_per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// What clients of a web server have seen; times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WebLoad {
    pub(crate) requests_per_second: f64,
    pub(crate) mean: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
}

/// From what `redis-benchmark` prints of one operation: lines such as `99.219% <= 2.367 milliseconds (cumulative count 99220)`. A percentile is the first
/// line that reaches it, so that it is never told too low.
pub(crate) fn parse_redis(text: &str) -> anyhow::Result<RedisLoad> {
    let rate = text.rsplit_once("throughput summary: ").map(|(_, rest)| rest);
    let rate = rate.and_then(|it| it.split_whitespace().next());
    let rate = rate.with_context(|| format!("redis-benchmark has not come to its end: {text}"))?;
    let text = text.rsplit_once("Latency by percentile distribution:");
    let (_, text) = text.context("redis-benchmark has printed no percentiles")?;
    let (text, _) = text.split_once("Cumulative distribution").unwrap_or((text, ""));
    let rows = text.lines().filter_map(|line| {
        let (percent, rest) = line.split_once("% <= ")?;
        let (milliseconds, _) = rest.split_once(" milliseconds")?;
        Some((percent.trim().parse::<f64>().ok()?, milliseconds.parse::<f64>().ok()?))
    });
    let rows: Vec<(f64, f64)> = rows.collect();
    let reach = |wanted: f64| {
        let found = rows.iter().find(|(percent, _)| *percent >= wanted).map(|(_, it)| *it);
        found.with_context(|| format!("redis-benchmark has printed no {wanted}th percentile"))
    };
    let rate = rate.parse().with_context(|| format!("redis-benchmark's rate `{rate}`"))?;
    Ok(RedisLoad {
        requests_per_second: rate,
        p50: reach(50.0)?,
        p99: reach(99.0)?,
        p999: reach(99.9)?,
    })
}

/// From `wrk --latency`.
pub(crate) fn parse_wrk(text: &str) -> anyhow::Result<WebLoad> {
    // Refusals are fast, and would count as answers.
    ensure!(!text.contains("Non-2xx or 3xx responses:"), "the web server has refused: {text}");
    let cell = |head: &str| {
        let found = text.lines().find_map(|line| line.trim().strip_prefix(head));
        let found = found.and_then(|it| it.split_whitespace().next());
        found.with_context(|| format!("wrk has printed no `{head}`: {text}"))
    };
    let rate = cell("Requests/sec:")?;
    Ok(WebLoad {
        requests_per_second: rate.parse().with_context(|| format!("wrk's rate `{rate}`"))?,
        mean: milliseconds(cell("Latency ")?)?,
        p90: milliseconds(cell("90%")?)?,
        p99: milliseconds(cell("99%")?)?,
    })
}

/// What clients of several servers have seen together; percentiles are those of the worst, so that they are never told too low.
pub(crate) fn together(loads: &[WebLoad]) -> Option<WebLoad> {
    let rate: f64 = loads.iter().map(|it| it.requests_per_second).sum();
    let weighted: f64 = loads.iter().map(|it| it.mean * it.requests_per_second).sum();
    let worst = |of: fn(&WebLoad) -> f64| loads.iter().map(of).max_by(f64::total_cmp);
    (rate > 0.0).then_some(WebLoad {
        requests_per_second: rate,
        mean: weighted / rate,
        p90: worst(|it| it.p90)?,
        p99: worst(|it| it.p99)?,
    })
}

/// `3.29ms`, `467.00us`, `1.20s` or `1.10m`.
fn milliseconds(text: &str) -> anyhow::Result<f64> {
    let units = [("us", 0.001), ("ms", 1.0), ("s", 1000.0), ("m", 60_000.0)];
    let split = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (number, factor) =
        split.with_context(|| format!("`{text}`: expected us, ms, s or m at its end"))?;
    let number: f64 = number.parse().with_context(|| format!("`{text}`: expected a time"))?;
    Ok(number * factor)
}

/// From `stress-ng --metrics-brief`: operations per second of real time of the one stressor that ran.
pub(crate) fn parse_stress_ng(text: &str) -> anyhow::Result<f64> {
    let said = || format!("stress-ng has printed no metrics: {text}");
    let mut rows = text.lines().filter_map(|line| {
        let (_, cells) = line.split_once("metrc:")?.1.split_once("] ")?;
        let numbers: Vec<&str> = cells.split_whitespace().skip(1).collect();
        let numbers: Vec<f64> = numbers.iter().map_while(|it| it.parse().ok()).collect();
        // Operations; real, user and system time; operations per second of the first, and of the two others.
        (numbers.len() == 6).then(|| numbers[4])
    });
    let rate = rows.next().with_context(said)?;
    ensure!(rate > 0.0, "stress-ng has not finished one operation: {text}");
    Ok(rate)
}

/// From `qperf -uu tcp_bw tcp_lat`: bytes per second, and nanoseconds.
pub(crate) fn parse_qperf(text: &str) -> anyhow::Result<(f64, f64)> {
    let value = |name: &str, unit: &str| {
        let found = text.lines().find_map(|line| {
            let (head, rest) = line.split_once('=')?;
            (head.trim() == name).then_some(rest.trim().strip_suffix(unit)?.trim())
        });
        let found = found.with_context(|| format!("qperf has printed no `{name}`: {text}"))?;
        let number = found.replace(',', "").parse::<f64>();
        number.with_context(|| format!("qperf's {name} is `{found}`, expected a number"))
    };
    Ok((value("bw", "bytes/sec")?, value("latency", "ns")?))
}

/// From what `dpdk-testpmd --stats-period` has printed so far: packets per second that all ports have sent, of each period. The last one may not be complete, and is
/// left out.
pub(crate) fn parse_testpmd(text: &str) -> Vec<f64> {
    let periods = text.split("Port statistics").skip(1);
    let rates = periods.map(|period| {
        let ports = period.lines().filter_map(|line| line.trim().strip_prefix("Tx-pps:"));
        let ports = ports.filter_map(|it| it.split_whitespace().next()?.parse::<f64>().ok());
        ports.sum::<f64>()
    });
    let mut rates: Vec<f64> = rates.collect();
    rates.pop();
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = include_str!("recorded/redis-benchmark.txt");
    const WRK: &str = include_str!("recorded/wrk.txt");
    const CHAIN: &str = include_str!("recorded/wrk-chain.txt");
    const REFUSED: &str = include_str!("recorded/wrk-refused.txt");
    const STRESS_NG: &str = include_str!("recorded/stress-ng.txt");
    const TESTPMD: &str = include_str!("recorded/testpmd.txt");
    const QPERF: &str = include_str!("recorded/qperf.txt");

    #[test]
    fn a_percentile_of_redis_is_the_first_line_that_reaches_it() {
        let expected =
            RedisLoad { requests_per_second: 69979.01, p50: 0.127, p99: 2.367, p999: 8.175 };
        assert_eq!(parse_redis(REDIS).unwrap(), expected);
        // Progress that is cut off, as after a kill.
        assert!(parse_redis(REDIS.split_once("99.902%").unwrap().0).is_err());
        assert!(parse_redis("").is_err());
    }

    #[test]
    fn times_of_wrk_have_any_unit() {
        let read = parse_wrk(WRK).unwrap();
        let expected = WebLoad { requests_per_second: 42904.63, mean: 1.31, p90: 3.26, p99: 9.31 };
        assert_eq!(read, expected);
        for (text, expected) in [("467.00us", 0.467), ("3.29ms", 3.29), ("1.20s", 1200.0)] {
            assert_eq!(milliseconds(text).unwrap(), expected);
        }
        assert!(milliseconds("12").is_err());
        assert!(parse_wrk("unable to connect to 127.0.0.1:8000 Connection refused").is_err());
    }

    #[test]
    fn refusals_are_no_answers() {
        let error = parse_wrk(REFUSED).unwrap_err().to_string();
        assert!(error.starts_with("the web server has refused"), "{error}");
    }

    #[test]
    fn instances_together_have_the_sum_of_rates_and_the_worst_percentiles() {
        let (one, other) = (parse_wrk(WRK).unwrap(), parse_wrk(CHAIN).unwrap());
        let both = together(&[one, other]).unwrap();
        assert_eq!(both.requests_per_second, 42904.63 + 6617.16);
        assert_eq!((both.p90, both.p99), (11.9, 18.98));
        // (42904.63 * 1.31 + 6617.16 * 6.19) / 49521.79
        assert!((both.mean - 1.962).abs() < 0.001, "{}", both.mean);
        assert_eq!(together(&[]), None);
    }

    #[test]
    fn the_rate_of_stress_ng_is_that_of_real_time() {
        assert_eq!(parse_stress_ng(STRESS_NG).unwrap(), 3215.72);
        assert!(parse_stress_ng("stress-ng: info:  [1] dispatching hogs: 1 cpu").is_err());
        let stuck = STRESS_NG.replace("3215.72", "   0.00");
        assert!(parse_stress_ng(&stuck).is_err());
    }

    #[test]
    fn packets_of_all_ports_count_once_a_period_is_complete() {
        assert_eq!(parse_testpmd(TESTPMD), [0.0, 13_101_618.0]);
        assert_eq!(parse_testpmd("EAL: Detected CPU lcores: 2"), [0.0; 0]);
    }

    #[test]
    fn qperf_tells_bytes_and_nanoseconds() {
        assert_eq!(parse_qperf(QPERF).unwrap(), (41_428_608.0, 5882.0));
        assert!(parse_qperf("qperf: unable to connect").is_err());
    }
}
