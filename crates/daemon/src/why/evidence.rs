//! What is known of one container at one moment. In: an explanation, readings, what the probes have counted, events. Out: one value.

use std::collections::BTreeMap;

use bayplan_node::mode::Mode;
use bayplan_node::status::{ContainerStatus, Explanation, Status};
use bayplan_types::CpuSet;
use jiff::{SignedDuration, Timestamp};

use crate::feed::EventView;
use crate::live_map::rates::RatesView;
use crate::observer::GroupsRead;
use crate::prober::AuditView;
use crate::why::view::Measured;

/// Intruders and neighbours that are named.
const NAMED_MAX: usize = 3;
/// Older events are in the journal: they are not why a container is slow now.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// Everything that causes are derived from.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    pub(crate) explanation: Explanation,
    pub(crate) mode: Mode,
    pub(crate) measured: Measured,
    /// What happened to it in the last hour, oldest first.
    pub(crate) events: Vec<EventView>,
    /// Containers that run on its CPUs: how many, and what they use.
    pub(crate) neighbours: Neighbours,
    /// What took most time of its exclusive CPUs in the last minute, in words.
    pub(crate) intruders: Vec<String>,
    /// Why the rebalancer proposes nothing for it, though it shows signs of suffering.
    pub(crate) unhelped: Option<String>,
    /// `off`, `observe` or `act`.
    pub(crate) rebalance_mode: String,
    pub(crate) absent: Vec<String>,
}

/// Containers that share CPUs with one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Neighbours {
    pub(crate) count: usize,
    /// CPUs that all of them keep busy; `None`: not measured.
    pub(crate) cpus: Option<f64>,
    /// Those that use most, in words.
    pub(crate) busiest: Vec<String>,
}

/// What is known of the node, for evidence of any container.
pub(crate) struct Node<'a> {
    /// When it is asked.
    pub(crate) at: Timestamp,
    pub(crate) status: &'a Status,
    pub(crate) rates: &'a RatesView,
    pub(crate) readings: (Option<&'a GroupsRead>, Option<&'a GroupsRead>),
    pub(crate) audit: &'a AuditView,
    pub(crate) events: &'a [EventView],
    /// Containers for which nothing is proposed, with the reason.
    pub(crate) unhelped: &'a BTreeMap<String, String>,
    pub(crate) rebalance_mode: &'a str,
}

impl Evidence {
    /// Without any measurement.
    pub(crate) fn of(explanation: Explanation) -> Evidence {
        Evidence {
            explanation,
            mode: Mode::Placing,
            measured: Measured::default(),
            events: Vec::new(),
            neighbours: Neighbours::default(),
            intruders: Vec::new(),
            unhelped: None,
            rebalance_mode: String::new(),
            absent: Vec::new(),
        }
    }

    /// CPUs of its own, also those that it has together with its pod.
    pub(crate) fn own(&self) -> CpuSet {
        let own = self.explanation.now.as_ref().map(own_text).unwrap_or_default();
        own.parse().unwrap_or_default()
    }
}

fn own_text(now: &ContainerStatus) -> &str {
    match now.exclusive_of_pod.as_str() {
        "" => &now.exclusive,
        of_pod => of_pod,
    }
}

/// What is known of the container of this explanation.
pub(crate) fn gather(explanation: Explanation, node: &Node<'_>) -> Evidence {
    let name = explanation.container.clone();
    let Some(now) = explanation.now.clone() else { return Evidence::of(explanation) };
    let is_it = |it: &&EventView| {
        format!("{}/{}/{}", it.namespace, it.pod, it.container) == name
            && node.at.duration_since(it.at) < RECENT
    };
    let audit = node.audit.containers.iter().find(|it| it.full_name() == name);
    let mut intruders: Vec<_> = audit.into_iter().flat_map(|it| &it.intruders).collect();
    intruders.retain(|it| it.recent_seconds > 0.0);
    intruders.sort_by(|a, b| b.recent_seconds.total_cmp(&a.recent_seconds));
    let intruders = intruders.iter().take(NAMED_MAX).map(|it| {
        let name = if it.name.is_empty() { String::new() } else { format!(" {}", it.name) };
        format!(
            "{}{name} on CPU {}: {:.1} ms in the last minute",
            it.who,
            it.cpu,
            it.recent_seconds * 1e3
        )
    });
    Evidence {
        mode: node.status.mode,
        measured: measured(&now, &name, node),
        events: node.events.iter().filter(is_it).cloned().collect(),
        neighbours: neighbours(&now, node),
        intruders: intruders.collect(),
        unhelped: node.unhelped.get(&name).cloned(),
        rebalance_mode: node.rebalance_mode.to_owned(),
        absent: absent(node),
        explanation,
    }
}

fn absent(node: &Node<'_>) -> Vec<String> {
    let mut absent = node.rates.absent.clone();
    if node.audit.probes.is_empty() {
        absent.push("waiting, delays, moves and intrusions: probes are off, or the daemon has just been started".to_owned());
    }
    if node.readings.0.is_none() {
        absent.push(
            "throttling and stalls: there are no two readings yet; ask again in a moment"
                .to_owned(),
        );
    }
    absent
}

fn measured(now: &ContainerStatus, name: &str, node: &Node<'_>) -> Measured {
    let rates = node.rates.containers.get(name).cloned().unwrap_or_default();
    let last = now.id.as_ref().and_then(|id| node.readings.1?.groups.get(id));
    Measured {
        cpus: rates.cpu,
        throttled: rates.throttled,
        waiting: rates.waiting,
        delay_ms: rates.delay_ms,
        migrations: rates.migrations,
        taken_cpus: rates.taken,
        far: rates.far,
        cpu_stall: rates.cpu_stall,
        memory_stall: rates.memory_stall,
        io_stall: rates.io_stall,
        oom_kills: last.and_then(|(counters, _)| counters.memory.oom_kills),
    }
}

/// Those that may run on its CPUs, whatever other CPUs they have.
fn neighbours(now: &ContainerStatus, node: &Node<'_>) -> Neighbours {
    let cpus: CpuSet = now.cpus_text().parse().unwrap_or_default();
    let is_beside = |it: &&ContainerStatus| {
        let other: CpuSet = it.cpus_text().parse().unwrap_or_default();
        it.full_name() != now.full_name() && other.intersects(&cpus)
    };
    let beside = node.status.containers.iter().filter(is_beside);
    let names: Vec<String> = beside.map(ContainerStatus::full_name).collect();
    let used = |name: &String| Some((node.rates.containers.get(name)?.cpu?, name.clone()));
    let mut busy: Vec<(f64, String)> = names.iter().filter_map(used).collect();
    busy.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all = busy.iter().map(|(cpus, _)| cpus).sum();
    let busiest = busy.iter().filter(|(cpus, _)| *cpus >= 0.01).take(NAMED_MAX);
    Neighbours {
        count: names.len(),
        cpus: (!busy.is_empty()).then_some(all),
        busiest: busiest.map(|(cpus, name)| format!("{name} {cpus:.2}")).collect(),
    }
}
