//! What the API server counts of itself, and what its processes have used. In: `/metrics` and `/proc`. Out: what was asked for, sent to watches, and used in a time.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use kube::Client;

use crate::servers::Servers;
use crate::world::until;

/// The resources that agents ask for. Kubelets' reports, to the status of Nodes, are counted apart.
const ASKED: [&str; 5] =
    ["nodes", "bayplanconfigs", "bayplannodes", "noderesourcetopologies", "nodefeatures"];
/// Those that agents watch.
const WATCHED: [&str; 2] = ["nodes", "bayplanconfigs"];
const HEAD: &str = "| Phase | s | Requests | a second | at most | 429 | Kubelets' reports | Node events, KiB | BayplanConfig events, KiB | CPUs used by API server, etcd, agents | MiB of the same |\n|---|---|---|---|---|---|---|---|---|---|---|\n";

/// What there was at a moment, since the API server's start.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    at: Instant,
    /// Requests of agents by verb and resource. A watch is counted when it ends.
    requests: BTreeMap<String, f64>,
    /// Refused with 429.
    held_off: f64,
    reports: f64,
    /// Events sent to watches, by resource: number and bytes.
    sent: BTreeMap<String, [f64; 2]>,
    /// Watches that are open, by [`WATCHED`].
    pub(crate) watches: [u64; 2],
    /// CPU seconds of API server, etcd, and this process.
    cpu: [f64; 3],
    /// MiB of the same.
    resident: [f64; 3],
}

/// Name and labels of a line of metrics, and its value.
fn parse(line: &str) -> Option<(&str, BTreeMap<&str, &str>, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{')?;
    let labels = labels.trim_end_matches('}').split("\",");
    let labels =
        labels.filter_map(|it| it.split_once("=\"")).map(|(k, v)| (k, v.trim_matches('"')));
    Some((name, labels.collect(), value.parse().ok()?))
}

impl Figures {
    /// Of an API server that has just been started.
    pub(crate) fn none(servers: &Servers) -> Figures {
        let [cpu, resident] = [processes(servers, cpu_seconds), [0.0; 3]];
        Figures {
            at: Instant::now(),
            requests: BTreeMap::new(),
            held_off: 0.0,
            reports: 0.0,
            sent: BTreeMap::new(),
            watches: [0; 2],
            cpu,
            resident,
        }
    }

    /// As soon as the API server answers.
    pub(crate) async fn read_soon(servers: &Servers, admin: &Client) -> Figures {
        let mut found = None;
        until("the API server tells its figures", async || {
            found = Figures::read(servers, admin).await;
            found.is_some()
        })
        .await;
        found.expect("waited for")
    }

    /// `None`: the API server does not answer yet.
    async fn read(servers: &Servers, admin: &Client) -> Option<Figures> {
        let mut figures = Figures::none(servers);
        figures.resident = processes(servers, resident);
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = admin.request_text(request).await.ok()?;
        for (name, labels, value) in text.lines().filter_map(parse) {
            let label = |key: &str| labels.get(key).copied().unwrap_or_default();
            let resource = label("resource");
            match name {
                "apiserver_request_total" => figures.count(&labels, value),
                "apiserver_watch_events_sizes_count" => {
                    figures.sent.entry(resource.to_owned()).or_default()[0] += value;
                }
                "apiserver_watch_events_sizes_sum" => {
                    figures.sent.entry(resource.to_owned()).or_default()[1] += value;
                }
                "apiserver_longrunning_requests" if label("verb") == "WATCH" => {
                    if let Some(at) = WATCHED.iter().position(|it| *it == resource) {
                        #[allow(
                            clippy::cast_possible_truncation,
                            clippy::cast_sign_loss,
                            reason = "a count"
                        )]
                        let open = value as u64;
                        figures.watches[at] += open;
                    }
                }
                _ => {}
            }
        }
        Some(figures)
    }

    fn count(&mut self, labels: &BTreeMap<&str, &str>, value: f64) {
        let label = |key: &str| labels.get(key).copied().unwrap_or_default();
        let (verb, resource, part) = (label("verb"), label("resource"), label("subresource"));
        if resource == "nodes" && part == "status" {
            self.reports += value;
        } else if ASKED.contains(&resource) {
            let part = if part.is_empty() { String::new() } else { format!("/{part}") };
            *self.requests.entry(format!("{verb} {resource}{part}")).or_default() += value;
            if label("code") == "429" {
                self.held_off += value;
            }
        }
    }

    fn all_requests(&self) -> f64 {
        self.requests.values().sum()
    }

    /// Requests a second.
    pub(crate) fn rate_since(&self, before: &Figures) -> f64 {
        (self.all_requests() - before.all_requests()) / (self.at - before.at).as_secs_f64()
    }

    /// Events and bytes sent to watches of a resource.
    pub(crate) fn sent_of(&self, resource: &str) -> [f64; 2] {
        self.sent.get(resource).copied().unwrap_or_default()
    }

    /// CPU seconds of API server, etcd, and this process since then.
    pub(crate) fn cpu_since(&self, before: &Figures) -> [f64; 3] {
        // A process that was started anew has used less.
        [0, 1, 2].map(|it| (self.cpu[it] - before.cpu[it]).max(0.0))
    }

    /// MiB of the same.
    pub(crate) fn resident(&self) -> [f64; 3] {
        self.resident
    }

    pub(crate) fn seconds_since(&self, before: &Figures) -> f64 {
        (self.at - before.at).as_secs_f64()
    }
}

/// A value of API server, etcd, and this process; 0 of one that does not run.
fn processes(servers: &Servers, value: impl Fn(u32) -> Option<f64>) -> [f64; 3] {
    let [api, etcd] = servers.pids();
    [api, etcd, Some(std::process::id())].map(|it| it.and_then(&value).unwrap_or_default())
}

/// User and system time, which `proc_pid_stat(5)` has in hundredths of a second.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // The first of these is the third of all.
    let [user, system] = [11, 12].map(|it| fields.get(it).and_then(|it| it.parse::<f64>().ok()));
    Some((user? + system?) / 100.0)
}

/// MiB.
pub(crate) fn resident(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
}

/// What happened in a time.
pub(crate) struct Phase {
    name: String,
    seconds: f64,
    requests: BTreeMap<String, f64>,
    /// Requests a second, at the busiest.
    peak: f64,
    held_off: f64,
    reports: f64,
    /// Events and bytes sent to watches of [`WATCHED`].
    sent: [[f64; 2]; 2],
    cpu: [f64; 3],
    resident: [f64; 3],
}

impl Phase {
    pub(crate) fn between(name: &str, before: &Figures, now: &Figures, peak: f64) -> Phase {
        let less = |now: f64, before: f64| now - before;
        let of = |key: &str| before.requests.get(key).copied().unwrap_or_default();
        let requests = now.requests.iter().map(|(key, value)| (key.clone(), value - of(key)));
        let sent = WATCHED.map(|it| {
            let (now, before) = (now.sent_of(it), before.sent_of(it));
            [less(now[0], before[0]), less(now[1], before[1])]
        });
        Phase {
            name: name.to_owned(),
            seconds: now.seconds_since(before),
            requests: requests.filter(|it| it.1 > 0.0).collect(),
            peak,
            held_off: less(now.held_off, before.held_off),
            reports: less(now.reports, before.reports),
            sent,
            cpu: now.cpu_since(before),
            resident: now.resident(),
        }
    }

    /// Of the table.
    pub(crate) fn row(&self) -> String {
        let all: f64 = self.requests.values().sum();
        let [nodes, configs] =
            self.sent.map(|[events, bytes]| format!("{events:.0}, {:.0}", bytes / 1024.0));
        let cpu = self.cpu.map(|cpu| format!("{:.2}", cpu / self.seconds)).join(", ");
        let resident = self.resident.map(|it| format!("{it:.0}")).join(", ");
        let (name, seconds) = (&self.name, self.seconds);
        let (rate, peak) = (all / seconds, self.peak);
        let (held_off, reports) = (self.held_off, self.reports);
        format!(
            "| {name} | {seconds:.0} | {all:.0} | {rate:.1} | {peak:.0} | {held_off:.0} | {reports:.0} | {nodes} | {configs} | {cpu} | {resident} |"
        )
    }

    /// What was asked for, by verb and resource.
    pub(crate) fn all(&self) -> String {
        format!("{}: {:.0} s, {:?}", self.name, self.seconds, self.requests)
    }
}

/// A table in Markdown.
pub(crate) fn render(phases: &[Phase]) -> String {
    let rows: Vec<String> = phases.iter().map(Phase::row).collect();
    format!("{HEAD}{}", rows.join("\n"))
}
