//! What Prometheus scrapes. Labels have few values; no label holds a name that users choose, but those of what probes and kernel files tell of containers
//! that are there (`prober/collector.rs`, `observer/table.rs`).

mod failures;
mod gauge;
mod groups;
mod nri;
mod plain_text;
mod process;
mod rebalancing;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use bayplan_enforcement::{Author, Notice};
use bayplan_host::kernel::WriteFailure;
use bayplan_node::event::Note;
use bayplan_node::history::By;
use bayplan_node::mode::Mode;
use bayplan_node::state::NodeState;
use bayplan_types::{CpuClass, QosClass};
use bayplan_workload::runtime::RuntimeError;
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use self::gauge::gauge;
use crate::enforcer;
use crate::finding::{Finding, Severity};
use crate::health::Health;
use crate::observer;
use crate::prober::{ProbeTable, Sightings};

use failures::FAILURES;
use groups::GroupGauges;
use nri::Nri;
use process::Process;
use rebalancing::Rebalancing;

pub(crate) use plain_text::{OPEN_METRICS, PLAIN_TEXT, asks_for_open_metrics, plain_text};

/// Calls of CRI v1 as of Kubernetes 1.37; any other is counted under `other`, so that a client cannot fill the memory with names.
const METHODS: [&str; 43] = [
    "Version",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "StreamPodSandboxes",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ListContainers",
    "StreamContainers",
    "ContainerStatus",
    "UpdateContainerResources",
    "ReopenContainerLog",
    "ExecSync",
    "Exec",
    "Attach",
    "PortForward",
    "ContainerStats",
    "ListContainerStats",
    "StreamContainerStats",
    "PodSandboxStats",
    "ListPodSandboxStats",
    "StreamPodSandboxStats",
    "UpdateRuntimeConfig",
    "Status",
    "CheckpointContainer",
    "CheckpointPod",
    "RestorePod",
    "GetContainerEvents",
    "ListMetricDescriptors",
    "ListPodSandboxMetrics",
    "StreamPodSandboxMetrics",
    "RuntimeConfig",
    "UpdatePodSandboxResources",
    "ListImages",
    "StreamImages",
    "ImageStatus",
    "PullImage",
    "RemoveImage",
    "ImageFsInfo",
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    method: &'static str,
    code: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Containers {
    class: &'static str,
    qos: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cpus {
    class: &'static str,
}

const KEPT_HELP: &str = "CPUs that containers keep from others beside their own: idle, or closed to other exclusive containers";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kept {
    how: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InMode {
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFile {
    file: String,
    by: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCheck {
    check: &'static str,
}

/// Every metric of the daemon.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// With names of containers, which not every client is told.
    by_container: Registry,
    /// Without a prefix.
    process: Registry,
    last_sync: Gauge<i64, AtomicI64>,
    decisions: Family<Outcome, Counter>,
    decision_duration: Histogram,
    failures: Family<Kind, Counter>,
    calls: Family<Call, Counter>,
    updates: Family<Outcome, Counter>,
    machine_changes: Family<Outcome, Counter>,
    config_reloads: Family<Outcome, Counter>,
    config_is_good: Gauge<i64, AtomicI64>,
    compaction_moves: Counter,
    memory_narrowings: Counter,
    memory_narrowable: Gauge<i64, AtomicI64>,
    containers_elsewhere: Gauge<i64, AtomicI64>,
    containers: Family<Containers, Gauge<i64, AtomicI64>>,
    cpus: Family<Cpus, Gauge<i64, AtomicI64>>,
    kept: Family<Kept, Gauge<i64, AtomicI64>>,
    groups: GroupGauges,
    findings: Family<OfCheck, Gauge<i64, AtomicI64>>,
    modes: Family<InMode, Gauge<i64, AtomicI64>>,
    journal: Gauge<u64, AtomicU64>,
    file_writes: Family<Outcome, Counter>,
    file_drifts: Family<OfFile, Counter>,
    files: Family<InState, Gauge<i64, AtomicI64>>,
    reclaims: Family<Outcome, Counter>,
    pub(crate) nri: Nri,
    pub(crate) rebalancing: Rebalancing,
}

#[cfg(test)]
impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new(Sightings::default())
    }
}

const ELSEWHERE: &str = "Containers that run where they were before the last update, because the runtime has not taken it";

impl Metrics {
    /// `sightings` is what the probes tell.
    pub(crate) fn new(sightings: Sightings) -> Metrics {
        // From a microsecond to half a second, times two.
        let buckets = (0..20).map(|power| 1e-6 * f64::from(1u32 << power));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("bayplan"),
            by_container: Registry::with_prefix("bayplan"),
            process: Registry::default(),
            last_sync: Gauge::default(),
            decisions: Family::default(),
            decision_duration: Histogram::new(buckets),
            failures: Family::default(),
            calls: Family::default(),
            updates: Family::default(),
            machine_changes: Family::default(),
            config_reloads: Family::default(),
            config_is_good: Gauge::default(),
            compaction_moves: Counter::default(),
            memory_narrowings: Counter::default(),
            memory_narrowable: Gauge::default(),
            containers_elsewhere: Gauge::default(),
            containers: Family::default(),
            cpus: Family::default(),
            kept: Family::default(),
            groups: GroupGauges::default(),
            findings: Family::default(),
            modes: Family::default(),
            journal: Gauge::default(),
            file_writes: Family::default(),
            file_drifts: Family::default(),
            files: Family::default(),
            reclaims: Family::default(),
            nri: Nri::default(),
            rebalancing: Rebalancing::default(),
        };
        metrics.register();
        metrics.registry.register_collector(Box::new(ProbeTable(sightings.clone())));
        metrics.by_container.register_collector(Box::new(sightings));
        metrics.process.register_collector(Box::new(Process::now()));
        metrics.start_at_zero();
        metrics.config_is_good.set(1);
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the daemon", version);
        registry.register(
            "decisions",
            "Containers placed, refused, adopted and released",
            self.decisions.clone(),
        );
        registry.register_with_unit(
            "decision_duration",
            "Time from a create or resize to its decision, without journal and runtime",
            Unit::Seconds,
            self.decision_duration.clone(),
        );
        registry.register("failures", "What went wrong, by kind", self.failures.clone());
        registry.register(
            "proxy_calls",
            "Calls of kubelet, by method and gRPC status code",
            self.calls.clone(),
        );
        registry.register(
            "container_updates",
            "CPU sets written through the runtime for other containers' sake",
            self.updates.clone(),
        );
        registry.register(
            "machine_changes",
            "Times that CPUs or memory nodes came or went; failed: it could not be read, and is tried again",
            self.machine_changes.clone(),
        );
        registry.register(
            "compaction_moves",
            "Containers that were moved so that free CPUs lie together",
            self.compaction_moves.clone(),
        );
        registry.register(
            "memory_narrowings",
            "Containers from which memory nodes were taken away because fewer will do",
            self.memory_narrowings.clone(),
        );
        registry.register(
            "memory_narrowable",
            "Containers that could do with fewer memory nodes",
            self.memory_narrowable.clone(),
        );
        registry.register("containers_elsewhere", ELSEWHERE, self.containers_elsewhere.clone());
        registry.register(
            "containers",
            "Containers in the ledger, by class of their CPUs and QoS class; with exclusive CPUs: exclusive",
            self.containers.clone(),
        );
        registry.register(
            "neighbours",
            "Whether others on the node are in the way, by what was looked at: 0 no, 1 perhaps, 2 yes",
            self.findings.clone(),
        );
        registry.register("cpus", "CPUs by class", self.cpus.clone());
        registry.register("cpus_kept", KEPT_HELP, self.kept.clone());
        self.groups.register(registry);
        registry.register_with_unit(
            "journal_size",
            "Size of the journal on disk",
            Unit::Bytes,
            self.journal.clone(),
        );
        self.register_runtime();
        self.register_config();
        self.register_files();
        self.register_wishes();
    }

    /// What containers want.
    fn register_wishes(&mut self) {
        self.registry.register(
            "mode",
            "1 for the mode that an operator has chosen, 0 for the others",
            self.modes.clone(),
        );
        self.nri.register(&mut self.registry);
        self.rebalancing.register(&mut self.registry);
    }

    fn register_files(&mut self) {
        self.registry.register(
            "file_writes",
            "Writes to kernel files, by how they ended; differs: the file does not say what was written",
            self.file_writes.clone(),
        );
        self.registry.register(
            "file_drifts",
            "Kernel files that another program has changed, by the file's name and the program; runtime, systemd: along with something else",
            self.file_drifts.clone(),
        );
        self.registry.register(
            "files",
            "Values in kernel files: changed by bayplan, failing to be written (with groups of resctrl that could not be made, removed or filled), contested (left to the other program that changes them), and lacking (problems that the plan names: what is wanted and cannot be had here)",
            self.files.clone(),
        );
        self.registry.register(
            "memory_reclaims",
            "Turns of containers of which idle memory is reclaimed, by how they ended; less: there was not as much as was asked for; stalled: no more was asked for, because the container lacked memory",
            self.reclaims.clone(),
        );
    }

    fn register_runtime(&mut self) {
        self.registry.register_with_unit(
            "runtime_last_sync_timestamp",
            "When the runtime has last told what runs, since 1970; 0: not yet",
            Unit::Seconds,
            self.last_sync.clone(),
        );
    }

    fn register_config(&mut self) {
        self.registry.register(
            "config_reloads",
            "Times that the configuration file was read again; unchanged: in all that needs no restart",
            self.config_reloads.clone(),
        );
        self.registry.register(
            "config_is_good",
            "1 if the configuration file could be used when it was last read, else 0",
            self.config_is_good.clone(),
        );
    }

    /// Counters that are expected to stay at zero must be there to be alerted on.
    fn start_at_zero(&self) {
        for (kind, _) in FAILURES {
            self.failures.get_or_create(&Kind { kind }).inc_by(0);
        }
        for outcome in ["placed", "refused", "adopted", "released"] {
            self.decisions.get_or_create(&Outcome { outcome }).inc_by(0);
        }
        for outcome in ["ok", "gone", "failed"] {
            self.updates.get_or_create(&Outcome { outcome }).inc_by(0);
        }
        for outcome in ["ok", "gone", "refused", "differs"] {
            self.file_writes.get_or_create(&Outcome { outcome }).inc_by(0);
        }
        for outcome in ["done", "less", "stalled", "failed"] {
            self.reclaims.get_or_create(&Outcome { outcome }).inc_by(0);
        }
        for state in ["changed", "failing", "contested", "lacking"] {
            self.files.get_or_create(&InState { state }).set(0);
        }
        for outcome in ["applied", "unchanged", "failed"] {
            self.machine_changes.get_or_create(&Outcome { outcome }).inc_by(0);
            self.config_reloads.get_or_create(&Outcome { outcome }).inc_by(0);
        }
    }

    /// From now on, with what is kept there.
    pub(crate) fn with_readings(mut self, shown: observer::Shown) -> Metrics {
        self.by_container.register_collector(Box::new(shown.of_containers()));
        self.registry.register_collector(Box::new(shown));
        self
    }

    /// From now on, whether the daemon can be relied on, too.
    pub(crate) fn with_health(mut self, health: &Arc<Health>) -> Metrics {
        self.registry.register_collector(Box::new(Readiness(Arc::clone(health))));
        self
    }

    /// The text that Prometheus reads, in the OpenMetrics format.
    pub(crate) fn render(&self, is_by_container: bool) -> String {
        let mut text = String::new();
        let by_container = is_by_container.then_some(&self.by_container);
        let mut registries = by_container.into_iter().chain([&self.registry, &self.process]);
        let encoded = registries
            .try_for_each(|registry| encode_registry(&mut text, registry))
            .and_then(|()| encode_eof(&mut text));
        match encoded {
            Ok(()) => text,
            // Writing to a String does not fail.
            Err(error) => format!("# {error}\n"),
        }
    }

    pub(crate) fn decision_took(&self, duration: Duration) {
        self.decision_duration.observe(duration.as_secs_f64());
    }

    pub(crate) fn count(&self, note: &Note) {
        let outcome = match note {
            Note::Placed { .. } => "placed",
            Note::Refused { .. } | Note::RefusedAgain { .. } => "refused",
            Note::Adopted { .. } => "adopted",
            Note::Released { .. } => "released",
            Note::Moved { by, .. } => {
                // Its own are proposals.
                self.compaction_moves.inc_by(u64::from(*by != By::Rebalancer));
                return;
            }
            Note::Narrowed { .. } => {
                self.memory_narrowings.inc();
                return;
            }
            Note::Warmed { .. }
            | Note::ModeChanged { .. }
            | Note::RefusalsOver { .. }
            | Note::GroupChanged { .. } => return,
            Note::MachineChanged { .. } => return self.machine_change("applied"),
            Note::ConfigChanged { .. } => return self.config_read("applied"),
            Note::MachineUnchanged => return self.machine_change("unchanged"),
            Note::Failure { kind, .. } => return self.failed(kind),
        };
        self.decisions.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn failed(&self, kind: &'static str) {
        let is_known = FAILURES.iter().any(|(known, _)| *known == kind);
        debug_assert!(is_known, "`{kind}` is missing in metrics/failures.rs");
        self.failures.get_or_create(&Kind { kind }).inc();
    }

    /// The runtime has told what runs.
    pub(crate) fn synced(&self) {
        self.last_sync.set(Timestamp::now().as_second());
    }

    /// `failed`: the file cannot be used, and what held before goes on to hold.
    pub(crate) fn config_read(&self, outcome: &'static str) {
        self.config_reloads.get_or_create(&Outcome { outcome }).inc();
        self.config_is_good.set(i64::from(outcome != "failed"));
    }

    /// Whether the file could be used when it was last read, after something else was applied.
    pub(crate) fn set_config_file_good(&self, is_good: bool) {
        self.config_is_good.set(i64::from(is_good));
    }

    /// `failed`: it could not be read, and is tried again.
    pub(crate) fn machine_change(&self, outcome: &'static str) {
        self.machine_changes.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn call_ended(&self, method: &str, code: u32) {
        let name = method.rsplit('/').next().unwrap_or_default();
        let method = METHODS.iter().find(|known| **known == name).copied().unwrap_or("other");
        self.calls.get_or_create(&Call { method, code: code.min(17) }).inc();
    }

    pub(crate) fn update_ended(&self, error: Option<&RuntimeError>) {
        let outcome = match error {
            None => "ok",
            Some(RuntimeError::Gone { .. }) => "gone",
            Some(_) => "failed",
        };
        self.updates.get_or_create(&Outcome { outcome }).inc();
    }

    /// How one container's turn of reclaiming ended.
    pub(crate) fn reclaimed(&self, outcome: &'static str) {
        self.reclaims.get_or_create(&Outcome { outcome }).inc();
    }

    /// What came of looking at kernel files once.
    pub(crate) fn enforced(&self, outcome: &enforcer::Outcome) {
        for (_, end) in &outcome.report.outcomes {
            let outcome = match end {
                Ok(()) => "ok",
                Err(WriteFailure::Gone) => "gone",
                Err(WriteFailure::Refused { .. }) => "refused",
                Err(WriteFailure::Differs { .. }) => "differs",
            };
            self.file_writes.get_or_create(&Outcome { outcome }).inc();
        }
        for (state, count) in [
            ("changed", outcome.changed),
            ("failing", outcome.failing.len()),
            ("contested", outcome.contested),
            ("lacking", outcome.problems.len()),
        ] {
            self.files.get_or_create(&InState { state }).set(gauge(count));
        }
        if outcome.unkept.is_some() {
            self.failed("originals");
        }
    }

    /// What others have done to files.
    pub(crate) fn noticed(&self, notices: &[Notice]) {
        for notice in notices {
            let (write, by) = match notice {
                Notice::Drifted { write, by } => (write, *by),
                Notice::Contested { write } => (write, Author::Others),
            };
            let file = write.slot.file_name().to_owned();
            self.file_drifts.get_or_create(&OfFile { file, by: by.name() }).inc();
        }
    }

    /// Sets the gauge of containers that are not where they were told to be.
    pub(crate) fn show_elsewhere(&self, count: usize) {
        self.containers_elsewhere.set(gauge(count));
    }

    /// Sets the gauge of containers that could do with fewer memory nodes.
    pub(crate) fn show_narrowable(&self, count: usize) {
        self.memory_narrowable.set(gauge(count));
    }

    /// The worst that was found by each check. What was not looked at this time is not shown: how it is now is not known.
    pub(crate) fn show_findings(&self, findings: &[Finding]) {
        self.findings.clear();
        for Finding { check, .. } in findings {
            let of_check = findings.iter().filter(|it| it.check == *check);
            let worst = match of_check.map(|it| it.severity).max() {
                None | Some(Severity::Ok) => 0,
                Some(Severity::Warning) => 1,
                Some(Severity::Failure) => 2,
            };
            self.findings.get_or_create(&OfCheck { check }).set(worst);
        }
    }

    /// Sets the other gauges to what the state holds.
    pub(crate) fn show(&self, state: &NodeState, journal_bytes: u64) {
        let counts = state.container_counts();
        for class in [CpuClass::Exclusive, CpuClass::Shared, CpuClass::Reserved] {
            for qos in QosClass::ALL.map(Some).into_iter().chain([None]) {
                let labels =
                    Containers { class: class.name(), qos: qos.map_or("unknown", QosClass::name) };
                let count = counts.get(&(class, qos)).copied().unwrap_or(0);
                self.containers.get_or_create(&labels).set(gauge(count));
            }
        }
        for class in CpuClass::ALL {
            let count = state.ledger().cpus_in_class(class);
            self.cpus.get_or_create(&Cpus { class: class.name() }).set(gauge(count));
        }
        let (idle, closed) = state.kept_by_all();
        for (how, cpus) in [("idle", idle), ("closed", closed)] {
            self.kept.get_or_create(&Kept { how }).set(gauge(cpus.len()));
        }
        self.groups.show(state);
        for mode in Mode::ALL {
            let is_it = i64::from(mode == state.mode());
            self.modes.get_or_create(&InMode { mode: mode.name() }).set(is_it);
        }
        self.rebalancing.show_paused(state.is_rebalance_paused());
        self.journal.set(journal_bytes);
    }
}

/// Whether `/readyz` says that nothing is lacking.
#[derive(Debug)]
struct Readiness(Arc<Health>);

impl Collector for Readiness {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "1 when `/readyz` says that nothing is lacking (what runs is known, the journal is on disk ...), else 0";
        let is_ready = u32::from(self.0.lacking().is_empty());
        encoder.encode_descriptor("ready", help, None, MetricType::Gauge)?.encode_gauge(&is_ready)
    }
}

#[cfg(test)]
mod tests;
