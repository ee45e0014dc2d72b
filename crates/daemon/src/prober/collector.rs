//! What the probes have counted, for Prometheus: made at every scrape of the containers that are there, so that others are in no answer.

use std::collections::BTreeMap;
use std::fmt;

use bayplan_probes::{
    Counters, Distance, Drain, Event, EventCounts, Intrusion, Kind, Preempter, ProbeState,
    delay_bucket_ends,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::sightings::{Seen, Sightings, Told};
use super::view::seconds;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfContainer {
    namespace: String,
    pod: String,
    container: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Preempted {
    namespace: String,
    pod: String,
    container: String,
    by: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Moved {
    namespace: String,
    pod: String,
    container: String,
    within: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Intruded {
    namespace: String,
    pod: String,
    container: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Counting {
    namespace: String,
    pod: String,
    container: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProbe {
    probe: &'static str,
    state: &'static str,
}

/// Which probes count; without names of containers, and so for every client.
#[derive(Debug)]
pub(crate) struct ProbeTable(pub(crate) Sightings);

impl Collector for ProbeTable {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_table(&self.0.lock(), &mut encoder)
    }
}

impl Collector for Sightings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let told = self.lock();
        let Some(drain) = told.drains.back() else { return Ok(()) };
        let counted = |seen: &'_ Seen| drain.containers.get(&seen.cgroup);
        let containers: Vec<(&Seen, &Counters)> =
            told.containers.iter().filter_map(|seen| Some((seen, counted(seen)?))).collect();
        encode_delays(&containers, &mut encoder)?;
        encode_counts(&containers, &mut encoder)?;
        encode_events(&told.containers, drain, &mut encoder)?;
        encode_intruders(&told, &mut encoder)
    }
}

fn encode_table(told: &Told, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if told.table.is_empty() {
        return Ok(());
    }
    let help = "1 for the state that a probe is in: it counts, waits until a container owns CPUs, has nothing on this machine that it could count, or is refused by the kernel";
    let mut family = encoder.encode_descriptor("probe_state", help, None, MetricType::Gauge)?;
    for probe in &told.table {
        for state in ProbeState::NAMES {
            let is_in_it = u32::from(probe.state.name() == state);
            let labels = OfProbe { probe: probe.name, state };
            family.encode_family(&labels)?.encode_gauge(&is_in_it)?;
        }
    }
    let Some(drain) = told.drains.back() else { return Ok(()) };
    let help = "Of the time that others ran on CPUs that containers own, that for which the kernel had no room to note what ran; the containers' own sums have it, too, but for CPUs that have changed hands";
    let unit = Some(&Unit::Seconds);
    encoder
        .encode_descriptor("intrusion_unnamed", help, unit, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, f64>(&seconds(drain.unnamed.ns), None)
}

fn encode_delays(
    containers: &[(&Seen, &Counters)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let unit = Some(&Unit::Seconds);
    let help =
        "Time that a task of the container could have run and had no CPU, before each of its runs";
    let mut family =
        encoder.encode_descriptor("container_run_delay", help, unit, MetricType::Histogram)?;
    let ends = delay_bucket_ends().map(seconds).chain([f64::INFINITY]);
    for (seen, counters) in containers {
        let buckets: Vec<(f64, u64)> = ends.clone().zip(counters.delays).collect();
        let count = counters.delays.iter().sum();
        let sum = seconds(counters.delay_ns);
        let labels = of(seen);
        let mut metric = family.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

fn encode_counts(
    containers: &[(&Seen, &Counters)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "Times that a task of the container left a CPU and could have gone on, by what took the CPU; quota: nothing did";
    let mut family =
        encoder.encode_descriptor("container_preemptions", help, None, MetricType::Counter)?;
    for (seen, counters) in containers {
        let OfContainer { namespace, pod, container } = of(seen);
        for (by, count) in Preempter::ALL.iter().zip(counters.preempted_by) {
            let (namespace, pod, container) = (namespace.clone(), pod.clone(), container.clone());
            let labels = Preempted { namespace, pod, container, by: by.name() };
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
        }
    }
    let help = "Moves of the container's tasks to another CPU, by the nearest that holds both CPUs";
    let mut family =
        encoder.encode_descriptor("container_migrations", help, None, MetricType::Counter)?;
    for (seen, counters) in containers {
        let OfContainer { namespace, pod, container } = of(seen);
        for (within, count) in Distance::ALL.iter().zip(counters.migrations) {
            let (namespace, pod, container) = (namespace.clone(), pod.clone(), container.clone());
            let labels = Moved { namespace, pod, container, within: within.name() };
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
        }
    }
    Ok(())
}

/// Names and meanings of events as metrics; time on CPUs is one already.
const EVENTS: [(Event, &str, &str); 7] = [
    (Event::Cycles, "container_cycles", "Cycles of CPUs while the container ran"),
    (
        Event::Instructions,
        "container_instructions",
        "Instructions that CPUs carried out for the container",
    ),
    (
        Event::ReferenceCycles,
        "container_reference_cycles",
        "Cycles while the container ran, at the fixed frequency of the machine's time stamp counter",
    ),
    (
        Event::CacheReferences,
        "container_cache_references",
        "Accesses of the container to the last-level cache: L3 on Intel, on AMD from Zen 3 on, and on Arm cores that count it; L2 on older AMD, L1 on other Arm cores",
    ),
    (Event::CacheMisses, "container_cache_misses", "Those that found nothing there"),
    (Event::PageFaults, "container_page_faults", "Page faults while the container ran"),
    (
        Event::ContextSwitches,
        "container_context_switches",
        "Times that a CPU went to the container from another task or from idling",
    ),
];

/// Only of what the machine counts. Where counters were shared, counts are those of all the time.
fn encode_events(
    containers: &[Seen],
    drain: &Drain,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let counted = |seen: &'_ Seen| drain.events.get(&seen.cgroup);
    let containers: Vec<(&Seen, &EventCounts)> =
        containers.iter().filter_map(|seen| Some((seen, counted(seen)?))).collect();
    for (event, name, help) in EVENTS {
        let of_event = |(seen, events): &(&Seen, &EventCounts)| {
            Some((of(seen), events.counts.get(&event).copied()?))
        };
        let mut counts = containers.iter().filter_map(of_event).peekable();
        if counts.peek().is_none() {
            continue;
        }
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, count) in counts {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
        }
    }
    if containers.is_empty() {
        return Ok(());
    }
    let help = "Time that the container ran, by whether its events were counted, taken (others had the processor's counters) or unread (its CPUs changed hands too often to read them)";
    let unit = Some(&Unit::Seconds);
    let mut family =
        encoder.encode_descriptor("container_counting", help, unit, MetricType::Counter)?;
    for (seen, events) in containers {
        let states = [
            ("counted", events.running_ns),
            ("taken", events.taken_ns()),
            ("unread", events.unread_ns),
        ];
        for (state, ns) in states {
            let OfContainer { namespace, pod, container } = of(seen);
            let labels = Counting { namespace, pod, container, state };
            let value = seconds(ns);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
    }
    Ok(())
}

/// Only of containers that own CPUs: without any there is nothing to intrude on.
fn encode_intruders(told: &Told, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(drain) = told.drains.back() else { return Ok(()) };
    let mut sums: Vec<(Intruded, Intrusion)> = Vec::new();
    for seen in told.containers.iter().filter(|seen| !seen.owned.is_empty()) {
        let mut by_kind: BTreeMap<&'static str, Intrusion> =
            Kind::ALL.into_iter().map(|kind| (kind.name(), Intrusion::default())).collect();
        for (intruder, sum) in drain.intrusions.get(&seen.cgroup).into_iter().flatten() {
            let of_kind = by_kind.entry(intruder.identity.kind().name()).or_default();
            of_kind.ns += sum.ns;
            of_kind.times += sum.times;
        }
        for (kind, sum) in by_kind {
            let OfContainer { namespace, pod, container } = of(seen);
            sums.push((Intruded { namespace, pod, container, kind }, sum));
        }
    }
    let help = "Time that others ran on CPUs that the container owns, by what they are";
    let unit = Some(&Unit::Seconds);
    let mut family =
        encoder.encode_descriptor("container_intrusion", help, unit, MetricType::Counter)?;
    for (labels, sum) in &sums {
        let value = seconds(sum.ns);
        family.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
    }
    let help = "Times that others ran on CPUs that the container owns, by what they are";
    let mut family =
        encoder.encode_descriptor("container_intrusions", help, None, MetricType::Counter)?;
    for (labels, sum) in &sums {
        family.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(&sum.times, None)?;
    }
    Ok(())
}

fn of(seen: &Seen) -> OfContainer {
    OfContainer {
        namespace: seen.namespace.clone(),
        pod: seen.pod.clone(),
        container: seen.name.clone(),
    }
}
