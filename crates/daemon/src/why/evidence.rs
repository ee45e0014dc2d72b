//! What is known of one container at one moment. In: an explanation, readings, what the probes have counted, events. Out: one value.

use std::collections::BTreeMap;

use bayplan_node::mode::Mode;
use bayplan_node::status::{ClockStatus, ContainerStatus, Explanation, Status};
use bayplan_rebalance::{Sample, far_cost};
use bayplan_types::CpuSet;
use jiff::{SignedDuration, Timestamp};

use crate::feed::EventView;
use crate::live_map::rates::RatesView;
use crate::observer::GroupsRead;
use crate::prober::{AuditView, ProbeView};
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
    /// Share of its time that memory on other nodes may cost, as of [`far_cost`].
    pub(crate) far_cost: Option<f64>,
    /// What happened to it in the last hour, oldest first.
    pub(crate) events: Vec<EventView>,
    /// Containers that run on its CPUs: how many, and what they use.
    pub(crate) neighbours: Neighbours,
    /// Of the clock domains that it runs in, the one with most other containers that use wide vectors.
    pub(crate) clock: Option<ClockStatus>,
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
            far_cost: None,
            events: Vec::new(),
            neighbours: Neighbours::default(),
            clock: None,
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
    let measured = measured(&now, &name, node);
    Evidence {
        mode: node.status.mode,
        absent: absent(&measured, &now, node),
        far_cost: audit.and_then(|it| {
            let recent = it.recent.as_ref()?;
            far_cost(&Sample {
                far_memory: measured.far,
                cache_misses: recent.cache_misses,
                cycles_per_instruction: recent.cycles_per_instruction,
                ..Sample::default()
            })
        }),
        measured,
        events: node.events.iter().filter(is_it).cloned().collect(),
        neighbours: neighbours(&now, node),
        clock: fullest_clock(&now, &node.status.clocks),
        intruders: intruders.collect(),
        unhelped: node.unhelped.get(&name).cloned(),
        rebalance_mode: node.rebalance_mode.to_owned(),
        explanation,
    }
}

/// What is not measured and why, a sentence for each.
fn absent(measured: &Measured, now: &ContainerStatus, node: &Node<'_>) -> Vec<String> {
    let mut absent: Vec<String> =
        node.audit.probes.iter().filter_map(ProbeView::not_counted).collect();
    absent.extend(absent_of_probes(measured, now, node.audit));
    absent.extend(absent_of_files(measured, now, node.readings));
    absent
}

/// A probe that does not count says why itself.
fn absent_of_probes(measured: &Measured, now: &ContainerStatus, audit: &AuditView) -> Vec<String> {
    if audit.probes.is_empty() {
        return vec!["waiting, delays, moves and intrusions: probes are off, or the daemon has just been started".to_owned()];
    }
    let counts =
        |probe: &str| audit.probes.iter().any(|it| it.name == probe && it.reason.is_none());
    let soon = "the probes have not watched it for long enough";
    let delay = match measured.waiting {
        Some(_) => "in the last minute it did not run, or began later than is counted",
        None => soon,
    };
    let owns = !own_text(now).is_empty();
    let fields = [
        ("scheduler", "waiting", measured.waiting.is_none(), soon),
        ("scheduler", "delays", measured.delay_ms.is_none(), delay),
        ("migrations", "moves", measured.migrations.is_none(), soon),
        ("scheduler", "intrusions", owns && measured.taken_cpus.is_none(), soon),
    ];
    let absent = fields.into_iter().filter(|(probe, _, is_absent, _)| *is_absent && counts(probe));
    absent.map(|(_, what, _, why)| format!("{what}: {why}")).collect()
}

fn absent_of_files(
    measured: &Measured,
    now: &ContainerStatus,
    (before, last): (Option<&GroupsRead>, Option<&GroupsRead>),
) -> Vec<String> {
    let has = |read: Option<&GroupsRead>| {
        now.id.as_ref().is_some_and(|id| read.is_some_and(|it| it.groups.contains_key(id)))
    };
    let soon = "its cgroup has not been read yet; ask again in a moment";
    let later = "there are no two readings of its cgroup yet; ask again in a moment";
    let by_time = |why| if has(before) && has(last) { why } else { later };
    let at_once = |why| if has(last) { why } else { soon };
    let pressure = by_time("the kernel does not count stalls (PSI, psi=1 on its command line)");
    let fields = [
        ("CPU use", measured.cpus.is_none(), by_time("its cpu.stat has none")),
        ("throttling", measured.throttled.is_none(), by_time("its cpu.stat has none")),
        ("CPU stalls", measured.cpu_stall.is_none(), pressure),
        ("memory stalls", measured.memory_stall.is_none(), pressure),
        ("I/O stalls", measured.io_stall.is_none(), pressure),
        (
            "far memory",
            measured.far.is_none(),
            at_once("the kernel tells of no memory on any node"),
        ),
        ("kills", measured.oom_kills.is_none(), at_once("its memory.events has none")),
    ];
    // What lacks for the same reason is one sentence.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (what, _, why) in fields.into_iter().filter(|(_, is_absent, _)| *is_absent) {
        match reasons.iter_mut().find(|(other, _)| *other == why) {
            Some((_, all)) => all.push(what),
            None => reasons.push((why, vec![what])),
        }
    }
    reasons.into_iter().map(|(why, all)| format!("{}: {why}", all.join(", "))).collect()
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

/// The clock domain with most containers that use wide vectors among those with CPUs of one, which does not count itself; `None` where there are no others.
pub(crate) fn fullest_clock(now: &ContainerStatus, clocks: &[ClockStatus]) -> Option<ClockStatus> {
    let cpus: CpuSet = now.cpus_text().parse().unwrap_or_default();
    let around = clocks.iter().filter(|it| {
        let domain: CpuSet = it.cpus.parse().unwrap_or_default();
        domain.intersects(&cpus)
    });
    let fullest = around.max_by_key(|it| it.containers)?;
    let others = fullest.containers.saturating_sub(usize::from(now.has_wide_vectors));
    (others > 0).then(|| ClockStatus { containers: others, ..fullest.clone() })
}
