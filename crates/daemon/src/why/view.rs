//! The answer to why a container is slow, as a value and as text.

use bayplan_node::decision::End;
use bayplan_node::proposals::ProposalView;
use bayplan_node::status::ContainerStatus;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Why one container is slow, or that nothing is known that would make it so; format `bayplan-why/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyView {
    /// Names the format.
    pub format: String,
    /// `namespace/pod/container`.
    pub container: String,
    /// Where it is now; absent for one that is gone or was refused.
    pub now: Option<ContainerStatus>,
    /// How it ended; absent for one that is there or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// What it asked for.
    pub asked: String,
    /// When its place was decided.
    pub decided_at: Timestamp,
    /// The way in which the daemon is asked for places now: `cri` or `nri`; absent for a container that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_end: Option<String>,
    /// What was decided.
    pub outcome: String,
    /// What may slow it down, the most harmful first.
    pub causes: Vec<Cause>,
    /// What the rebalancer has proposed or done for it and on it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rebalance: Vec<ProposalView>,
    /// What was measured.
    pub measured: Measured,
    /// What is not measured and why, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// How many more containers of the name there are, of which nothing is told; in the last of a list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// What it is.
    pub kind: CauseKind,
    /// How much it is likely to cost.
    pub severity: CauseSeverity,
    /// Share of the container's time that it is likely to cost, 0 to 1; null where that cannot be said.
    pub share: Option<f64>,
    /// A sentence.
    pub what: String,
    /// How it is known, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// What helps.
    pub help: String,
    /// A command for it, or one that shows more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// How much a cause is likely to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CauseSeverity {
    /// Good to know, or below a twentieth of its time.
    Low,
    /// From a twentieth.
    Medium,
    /// From a fifth, or the container does not have what was decided for it.
    High,
}

impl CauseSeverity {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            CauseSeverity::Low => "low",
            CauseSeverity::Medium => "medium",
            CauseSeverity::High => "high",
        }
    }
}

/// Kinds of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// It has ended.
    Ended,
    /// It got no place.
    Refused,
    /// Processes of it were killed for lack of memory.
    Killed,
    /// Every container may run everywhere, by an operator's command.
    Restored,
    /// It does not run where it was placed.
    Elsewhere,
    /// Other containers run on its exclusive CPUs.
    NotAlone,
    /// Its CPU limit stops it.
    Throttled,
    /// Its tasks wait for a CPU.
    Waiting,
    /// Others take time of its exclusive CPUs.
    Intruded,
    /// It lacks memory.
    MemoryStall,
    /// It waits for block devices.
    IoStall,
    /// Its memory is on other NUMA nodes than its CPUs.
    FarMemory,
    /// The rebalancer holds it back for the sake of another container.
    HeldBack,
    /// It was placed without exclusive CPUs while the node was drained.
    Drained,
    /// Other programs change its kernel files.
    Drifted,
    /// A kernel file could not be written.
    FileFailed,
    /// It shares fewer CPUs than before.
    Squeezed,
    /// It was moved.
    Moved,
    /// Its tasks go from CPU to CPU.
    Migrations,
    /// Containers that use wide vectors lower the frequency of its package.
    ClockShared,
    /// It could do with fewer memory nodes.
    Narrowing,
    /// What it asks for could not be understood.
    Warning,
}

/// What was measured of a container between two readings, or by probes in the last minute; absent: not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// CPUs that it kept busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Share of the time in which its CPU limit stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled: Option<f64>,
    /// Tasks that could have run and had no CPU, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
    /// 99 of 100 runs began after at most this, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Moves of its tasks to another CPU, a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<f64>,
    /// CPUs of its own that others kept busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_cpus: Option<f64>,
    /// Share of its memory on other NUMA nodes than it is to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<f64>,
    /// Share of the time in which some of its tasks waited for a CPU (PSI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_stall: Option<f64>,
    /// Share of the time in which some of its tasks lacked memory (PSI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_stall: Option<f64>,
    /// Share of the time in which some of its tasks waited for a block device (PSI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_stall: Option<f64>,
    /// Times that something of it was killed for lack of memory, since it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
}

/// For people.
pub fn render_why(view: &WhyView) -> String {
    let mut text = format!("{}: {}\n", view.container, summary(view));
    text.push_str(&format!("  asked    {}\n", view.asked));
    if let Some(now) = &view.now {
        text.push_str(&format!("  now      {} on CPUs {}", now.phase, now.cpus_text()));
        if !now.exclusive.is_empty() {
            text.push_str(&format!(", owns {}", now.exclusive_text()));
        }
        if !now.mems_text().is_empty() {
            text.push_str(&format!(", memory nodes {}", now.mems_text()));
        }
        text.push('\n');
    }
    text.push_str(&format!("  decided  {:.0} {}\n", view.decided_at, view.outcome));
    text.extend(view.front_end.iter().map(|it| format!("  frontend {it}\n")));
    text.push_str(&render_measured(&view.measured));
    text.push_str(&render_causes(view));
    if !view.rebalance.is_empty() {
        text.push_str("\nProposed or done by the rebalancer:\n");
        for it in view.rebalance.iter().rev().take(REBALANCE_MAX) {
            let outcome = Some(&it.outcome).filter(|it| !it.is_empty());
            let outcome = outcome.map(|it| format!("; {it}")).unwrap_or_default();
            text.push_str(&format!("  {:<9} {:.0} {}{outcome}\n", it.state.name(), it.at, it.text));
        }
    }
    if !view.absent.is_empty() {
        text.push_str("\nNot measured:\n");
        text.extend(view.absent.iter().map(|it| format!("  {it}\n")));
    }
    if view.left_out > 0 {
        text.push_str(&format!(
            "\n{} more of this name are left out; `namespace/pod/container` names one.\n",
            view.left_out
        ));
    }
    text
}

/// The causes alone; empty if there are none.
pub fn render_causes(view: &WhyView) -> String {
    let causes = view.causes.iter().enumerate();
    causes.map(|(at, cause)| render_cause(at + 1, cause)).collect()
}

/// More proposals of the rebalancer are in the journal.
const REBALANCE_MAX: usize = 4;

fn summary(view: &WhyView) -> String {
    match view.causes.first() {
        Some(cause) if cause.severity > CauseSeverity::Low || view.now.is_none() => {
            cause.what.clone()
        }
        _ if is_nothing(&view.measured) => "nothing is measured of it".to_owned(),
        _ => "nothing that is measured slows it down much".to_owned(),
    }
}

/// Kills are counted since it began, so they say nothing of how it runs now.
fn is_nothing(measured: &Measured) -> bool {
    Measured { oom_kills: None, ..measured.clone() } == Measured::default()
}

fn render_cause(number: usize, cause: &Cause) -> String {
    let Cause { severity, share, what, details, help, command, .. } = cause;
    let share = share.map(|it| format!(", about {:.0} % of its time", it * 100.0));
    let mut text =
        format!("\n{number}. {what} ({}{})\n", severity.name(), share.unwrap_or_default());
    text.extend(details.iter().map(|it| format!("   {it}\n")));
    text.push_str(&format!("   Help: {help}\n"));
    text.extend(command.iter().map(|it| format!("     {it}\n")));
    text
}

fn render_measured(it: &Measured) -> String {
    let percent = |value: Option<f64>, name: &str| {
        value.map(|value| format!("{name} {:.1} %", value * 100.0))
    };
    let parts = [
        it.cpus.map(|cpus| format!("uses {cpus:.2} CPUs")),
        percent(it.throttled, "throttled"),
        it.waiting.map(|tasks| format!("{tasks:.2} tasks waiting")),
        it.delay_ms.map(|ms| format!("delay p99 {ms:.2} ms")),
        it.migrations.map(|moves| format!("{moves:.0} moves/s")),
        it.taken_cpus.map(|cpus| format!("{cpus:.3} of its CPUs taken")),
        percent(it.far, "far memory"),
        percent(it.cpu_stall, "CPU stall"),
        percent(it.memory_stall, "memory stall"),
        percent(it.io_stall, "I/O stall"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!("  measured {}\n", parts.join(", ")) }
}
