//! What the probes have counted, for people and programs.

use std::collections::BTreeMap;

use bayplan_probes::{
    Counters, Distance, Drain, EventCounts, Identity, Intruder, Intrusion, Preempter, Probe, Rates,
    rates_between,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::sightings::{Paths, Seen, Sightings, Told};

/// Format `bayplan-audit/1`. Times are in seconds, counts since the container is watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditView {
    /// Names the format.
    pub format: String,
    /// What counts; empty while probes are off.
    pub probes: Vec<ProbeView>,
    /// When the counters were read; null until they were.
    #[serde(default)]
    pub at: Option<Timestamp>,
    /// How far back `recent` reaches, at most a minute; null until it does.
    pub recent_seconds: Option<f64>,
    /// By namespace, pod and name.
    pub containers: Vec<ContainerAudit>,
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeView {
    /// `scheduler`, `migrations`, `interrupts`, `vectors`, `counters`.
    pub name: String,
    /// What it counts.
    pub counts: String,
    /// `attached`, `waiting` (until a container owns CPUs), `unsupported` (the machine has nothing to count) or `refused`.
    pub state: String,
    /// Why it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What would mend that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerAudit {
    /// Its namespace.
    pub namespace: String,
    /// Its pod.
    pub pod: String,
    /// Its name there.
    pub container: String,
    /// CPUs that it owns, a list; may be empty.
    pub owned: String,
    /// Time on CPUs.
    pub cpu_seconds: f64,
    /// Time that its tasks could have run and had no CPU.
    pub run_delay_seconds: f64,
    /// Times that a task left a CPU.
    pub runs: u64,
    /// Times that one left it and could have gone on, by what the CPU was needed for: `itself`, `container`, `system`, `quota` (no task).
    pub preempted_by: BTreeMap<String, u64>,
    /// Moves to another CPU, by the nearest that holds both: `core`, `l3`, `numa`, `package`, `machine`.
    pub migrations: BTreeMap<String, u64>,
    /// What the processor or the kernel has counted while it ran, by event, such as `cycles`; what was shared with others is as of all the time. Empty where nothing is counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub events: BTreeMap<String, u64>,
    /// Share of the time, 0 to 1, in which they were counted; null where nothing is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_counted_share: Option<f64>,
    /// The same over the last minute; null until there are two readings.
    pub recent: Option<Recent>,
    /// What else ran on CPUs that it owns, most time first.
    pub intruders: Vec<IntruderView>,
}

/// Rates over the last minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// CPUs that it kept busy.
    pub cpus: f64,
    /// Tasks that could have run and had no CPU.
    pub waiting: f64,
    /// There were runs: a delay that is null is above 134 ms then.
    #[serde(default)]
    pub has_runs: bool,
    /// Half of the runs began after at most this; null without runs, and above 134 ms.
    pub run_delay_p50_seconds: Option<f64>,
    /// 99 of 100 did.
    pub run_delay_p99_seconds: Option<f64>,
    /// Preemptions per second.
    pub preempted: f64,
    /// Moves per second.
    pub migrations: f64,
    /// Time that others took of CPUs that it owns.
    pub taken_seconds: f64,
    /// Null where the processor's counters are not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_instruction: Option<f64>,
    /// Cache misses per thousand instructions; null likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_misses: Option<f64>,
}

/// An intruder on a CPU of another container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntruderView {
    /// Where.
    pub cpu: u32,
    /// `kernel thread`, `container NAMESPACE/POD/CONTAINER`, `process of cgroup PATH` (a number where it is gone), `irq N`, `softirq NAME`, `.. interrupt`, `other .., not named`: those of a kind that are too many to name, here or for the kernel.
    pub who: String,
    /// The task's or the interrupt's name; may be empty.
    pub name: String,
    /// Time in all.
    pub seconds: f64,
    /// How often it left the CPU again.
    pub times: u64,
    /// Time in the last minute.
    pub recent_seconds: f64,
}

impl Sightings {
    /// Everything that is known.
    pub(crate) fn view(&self) -> AuditView {
        let told = self.lock();
        let Told { table, containers, paths, drains, at } = &*told;
        let recent = match (drains.front(), drains.back()) {
            (Some(before), Some(after)) if drains.len() > 1 => Some((before, after)),
            _ => None,
        };
        let rates = recent.map(|(before, after)| rates_between(before, after)).unwrap_or_default();
        let views: Vec<ContainerAudit> = match drains.back() {
            Some(drain) => {
                let before = recent.map(|(before, _)| before);
                let of = |seen: &Seen| {
                    let name = |identity| name_of(identity, containers, paths);
                    audit_of(seen, &name, before, drain, rates.get(&seen.cgroup))
                };
                containers.iter().filter_map(of).collect()
            }
            None => Vec::new(),
        };
        let seconds = |(before, after): (&Drain, &Drain)| {
            after.at.saturating_duration_since(before.at).as_secs_f64()
        };
        AuditView {
            format: "bayplan-audit/1".to_owned(),
            probes: table.iter().map(ProbeView::from).collect(),
            at: *at,
            recent_seconds: recent.map(seconds),
            containers: views,
        }
    }
}

impl ContainerAudit {
    /// `namespace/pod/container`.
    pub fn full_name(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.pod, self.container)
    }

    /// Whether it is meant by its full name, its pod's or its own.
    pub fn is_called(&self, name: &str) -> bool {
        let Self { namespace, pod, container, .. } = self;
        let names =
            [self.full_name(), format!("{namespace}/{pod}"), pod.clone(), container.clone()];
        names.iter().any(|own| own == name)
    }
}

impl ProbeView {
    /// What it does not count, and why; `None`: it counts.
    pub(crate) fn not_counted(&self) -> Option<String> {
        Some(format!("{} not counted: {}", self.counts, self.reason.as_ref()?))
    }
}

impl From<&Probe> for ProbeView {
    fn from(Probe { name, counts, state }: &Probe) -> ProbeView {
        let refusal = state.refusal();
        ProbeView {
            name: (*name).to_owned(),
            counts: (*counts).to_owned(),
            state: state.name().to_owned(),
            reason: refusal.map(|refusal| refusal.reason.clone()),
            remedy: refusal.map(|refusal| refusal.remedy.clone()),
        }
    }
}

fn audit_of(
    seen: &Seen,
    name: &dyn Fn(Identity) -> String,
    before: Option<&Drain>,
    now: &Drain,
    rates: Option<&Rates>,
) -> Option<ContainerAudit> {
    let counters: &Counters = now.containers.get(&seen.cgroup)?;
    let intruders = intruders_of(seen, name, before, now);
    let taken_seconds = intruders.iter().fold(0.0, |sum, it| sum + it.recent_seconds);
    let by_preempter = Preempter::ALL.iter().map(|it| it.name().to_owned());
    let by_distance = Distance::ALL.iter().map(|it| it.name().to_owned());
    Some(ContainerAudit {
        namespace: seen.namespace.clone(),
        pod: seen.pod.clone(),
        container: seen.name.clone(),
        owned: seen.owned.to_string(),
        cpu_seconds: seconds(counters.exec_ns),
        run_delay_seconds: seconds(counters.delay_ns),
        runs: counters.runs,
        preempted_by: by_preempter.zip(counters.preempted_by).collect(),
        migrations: by_distance.zip(counters.migrations).collect(),
        events: now.events.get(&seen.cgroup).map(by_name).unwrap_or_default(),
        events_counted_share: now.events.get(&seen.cgroup).and_then(EventCounts::counted_share),
        recent: rates.map(|rates| Recent {
            cpus: rates.cpus,
            waiting: rates.waiting,
            has_runs: rates.has_runs,
            run_delay_p50_seconds: rates.delay_p50.map(|delay| delay.as_secs_f64()),
            run_delay_p99_seconds: rates.delay_p99.map(|delay| delay.as_secs_f64()),
            preempted: rates.preempted_by.iter().sum(),
            migrations: rates.migrations.iter().sum(),
            taken_seconds,
            cycles_per_instruction: rates.cycles_per_instruction,
            cache_misses: rates.cache_misses,
        }),
        intruders,
    })
}

fn by_name(events: &EventCounts) -> BTreeMap<String, u64> {
    events.counts.iter().map(|(event, count)| (event.name().to_owned(), *count)).collect()
}

fn intruders_of(
    seen: &Seen,
    name: &dyn Fn(Identity) -> String,
    before: Option<&Drain>,
    now: &Drain,
) -> Vec<IntruderView> {
    let Some(list) = now.intrusions.get(&seen.cgroup) else { return Vec::new() };
    let none = BTreeMap::new();
    let then = before.map(|before| before.intrusions.get(&seen.cgroup).unwrap_or(&none));
    let view = |(intruder, sum): (&Intruder, &Intrusion)| IntruderView {
        cpu: intruder.cpu.0,
        who: name(intruder.identity),
        name: intruder.name.clone(),
        seconds: seconds(sum.ns),
        times: sum.times,
        // Without an older reading nothing is known to be recent.
        recent_seconds: then.map_or(0.0, |then| seconds(recent_ns(intruder, then, list))),
    };
    let mut views: Vec<IntruderView> = list.iter().map(view).collect();
    views.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    views
}

/// What one has taken between two readings. An intruder that has lost its name in between has taken it with it to the others: what it had is nothing
/// new there.
pub(crate) fn recent_ns(
    intruder: &Intruder,
    then: &BTreeMap<Intruder, Intrusion>,
    now: &BTreeMap<Intruder, Intrusion>,
) -> u64 {
    let of = |list: &BTreeMap<Intruder, Intrusion>, it| list.get(it).map_or(0, |sum| sum.ns);
    let (had, has) = (of(then, intruder), of(now, intruder));
    if !matches!(intruder.identity, Identity::Others(_)) {
        // It may have come back under its name, and then begins at nothing.
        return has.checked_sub(had).unwrap_or(has);
    }
    let joined = then.iter().filter(|(it, _)| it.among_others() == *intruder);
    let joined = joined.filter(|(it, sum)| of(now, it) < sum.ns).map(|(_, sum)| sum.ns);
    has.saturating_sub(had).saturating_sub(joined.sum())
}

/// A container that is watched goes by its name, and a process in none by the path of its cgroup while that is there.
pub(super) fn name_of(identity: Identity, all: &[Seen], paths: &Paths) -> String {
    let found = match identity {
        Identity::Container(id) => all
            .iter()
            .find(|seen| seen.cgroup == id)
            .map(|Seen { namespace, pod, name, .. }| format!("container {namespace}/{pod}/{name}")),
        Identity::Process(id) => paths.get(&id).map(|path| format!("process of cgroup {path}")),
        _ => None,
    };
    found.unwrap_or_else(|| identity.to_string())
}

/// Nanoseconds as seconds; exact below 104 days.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
