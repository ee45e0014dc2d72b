//! The causes, a function for each kind. In: evidence. Out: causes with their likely cost, what helps, and a command.
//!
//! A share is an estimate of the container's time that is lost: what the kernel counts directly for throttling, waiting, stalls and intrusions. For far
//! memory it is what the rebalancer judges it by, or [`FAR_COST`] of the share of memory where the processor's counters are not told. Shares of different causes overlap, so they do not add up.

use bayplan_node::history::Kind;
use bayplan_node::mode::Mode;
use bayplan_node::proposals::ProposalState;
use bayplan_node::status::{ClockStatus, ContainerStatus};

use crate::feed::DRIFTED;
use crate::why::evidence::Evidence;
use crate::why::view::{Cause, CauseKind, CauseSeverity};
use CauseSeverity::{High, Low, Medium};

/// Shares below this are not told.
const SHARE_TOLD_MIN: f64 = 0.01;
const SHARE_MEDIUM: f64 = 0.05;
const SHARE_HIGH: f64 = 0.2;
/// Of the time of a container with all of its memory on other nodes: remote accesses take about half as long again, and not all of its time is
/// spent on them.
const FAR_COST: f64 = 0.3;
/// Moves a second from which they are told.
const MOVES_MIN: f64 = 500.0;
/// A throttled container is told to need at most ten times what it uses.
const THROTTLED_MAX: f64 = 0.9;
/// Events of a kind that are repeated.
const EVENTS_MAX: usize = 3;

type Find = fn(&Evidence) -> Vec<Cause>;

/// All of them.
pub(super) const ALL: [Find; 18] = [
    gone,
    killed,
    mode,
    elsewhere,
    throttled,
    waiting,
    intruded,
    stalled_for_memory,
    stalled_for_io,
    far_memory,
    held_back,
    drifted,
    files_failed,
    squeezed_and_moved,
    migrations,
    clock_shared,
    narrowing,
    warnings,
];

fn cause(kind: CauseKind, severity: CauseSeverity, what: impl Into<String>) -> Cause {
    Cause {
        kind,
        severity,
        share: None,
        what: what.into(),
        details: Vec::new(),
        help: String::new(),
        command: None,
    }
}

/// `None` below what is told.
fn with_share(kind: CauseKind, share: f64, what: impl Into<String>) -> Option<Cause> {
    let severity = match share {
        it if it >= SHARE_HIGH => High,
        it if it >= SHARE_MEDIUM => Medium,
        it if it >= SHARE_TOLD_MIN => Low,
        _ => return None,
    };
    Some(Cause { share: Some(share.min(1.0)), ..cause(kind, severity, what) })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What the commands of other programs call it; `None` where a name would have to be quoted in a shell.
fn kubectl_names(evidence: &Evidence) -> Option<(&str, &str, &str)> {
    let is_plain = |it: &str| {
        let all = it.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c));
        !it.is_empty() && !it.starts_with('-') && all
    };
    let parts: Vec<&str> = evidence.explanation.container.split('/').collect();
    let [namespace, pod, container] = parts[..] else { return None };
    [namespace, pod, container].into_iter().all(is_plain).then_some((namespace, pod, container))
}

fn own_command(evidence: &Evidence, command: &str) -> Option<String> {
    let (namespace, pod, container) = kubectl_names(evidence)?;
    Some(format!("bayplan {command} {namespace}/{pod}/{container}"))
}

fn delete_command(evidence: &Evidence) -> Option<String> {
    let (namespace, pod, _) = kubectl_names(evidence)?;
    Some(format!("kubectl -n {namespace} delete pod {pod}"))
}

fn now(evidence: &Evidence) -> Option<&ContainerStatus> {
    evidence.explanation.now.as_ref()
}

fn gone(evidence: &Evidence) -> Vec<Cause> {
    let explanation = &evidence.explanation;
    let found = match (&explanation.now, &explanation.end) {
        (Some(_), _) => return Vec::new(),
        (None, Some(end)) => {
            let help = match end.why.contains("OOMKilled") {
                true => "raise limits.memory of the container, or find what takes the memory",
                false => "the pod's events and the end of its log say more",
            };
            Cause {
                help: help.to_owned(),
                details: vec![format!("ended {:.0}", end.at)],
                ..cause(CauseKind::Ended, High, format!("it is gone: {}", end.why))
            }
        }
        (None, None) => Cause {
            help: "ask for less, make room, or read why each pool was rejected".to_owned(),
            command: own_command(evidence, "explain"),
            ..cause(
                CauseKind::Refused,
                High,
                format!("it is not there: {}", explanation.decision.outcome),
            )
        },
    };
    let command = kubectl_names(evidence);
    let command =
        command.map(|(namespace, pod, _)| format!("kubectl -n {namespace} describe pod {pod}"));
    vec![Cause { command: found.command.or(command), ..found }]
}

fn killed(evidence: &Evidence) -> Vec<Cause> {
    let Some(kills) = evidence.measured.oom_kills.filter(|it| *it > 0) else { return Vec::new() };
    let what = match kills {
        1 => "one of its processes was killed for lack of memory since it began".to_owned(),
        _ => format!("{kills} of its processes were killed for lack of memory since it began"),
    };
    let help = "raise limits.memory of the container".to_owned();
    vec![Cause { help, ..cause(CauseKind::Killed, High, what) }]
}

fn mode(evidence: &Evidence) -> Vec<Cause> {
    let resume = Some("bayplan resume".to_owned());
    let Some(now) = now(evidence) else { return Vec::new() };
    let is_without = now.class != "exclusive" && evidence.explanation.decision.is_drained();
    match evidence.mode {
        Mode::Restored => vec![Cause {
            help: "end the mode restored, when what it was for is done".to_owned(),
            command: resume,
            ..cause(
                CauseKind::Restored,
                High,
                "an operator has restored the node: every container may run on every CPU",
            )
        }],
        Mode::Draining if is_without => vec![drained(
            "because the node is drained",
            "end the mode draining, and make the container anew",
            resume,
        )],
        Mode::Placing if is_without => vec![drained(
            "because the node was drained then",
            "make the container anew",
            delete_command(evidence),
        )],
        _ => Vec::new(),
    }
}

fn drained(why: &str, help: &str, command: Option<String>) -> Cause {
    let what = format!("it was placed without exclusive CPUs, {why}");
    Cause { help: help.to_owned(), command, ..cause(CauseKind::Drained, Medium, what) }
}

fn elsewhere(evidence: &Evidence) -> Vec<Cause> {
    let Some(now) = now(evidence) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(held) = &now.held {
        let severity = if held.is_expected { Low } else { High };
        let what = format!("it runs on CPUs {} instead of {}", held.cpus, now.cpus);
        let what = match held.cpus == now.cpus {
            true => format!("its memory nodes are {} instead of {}", held.mems, now.mems),
            false => what,
        };
        found.push(Cause {
            details: vec![held.why.clone()],
            help: "what is still to be written, and what stands against it".to_owned(),
            command: Some("bayplan plan".to_owned()),
            ..cause(CauseKind::Elsewhere, severity, what)
        });
    }
    if !now.intruders.is_empty() {
        found.push(Cause {
            details: now.intruders.clone(),
            help: "an update of theirs has failed, or their CPUs are not chosen by Bayplan; what is known of it:".to_owned(),
            command: Some("bayplan check".to_owned()),
            ..cause(CauseKind::NotAlone, High, "other containers may run on its exclusive CPUs")
        });
    }
    found
}

fn throttled(evidence: &Evidence) -> Vec<Cause> {
    let measured = &evidence.measured;
    let Some(share) = measured.throttled else { return Vec::new() };
    let what = format!("its CPU limit stops it {} of the time", percent(share));
    let Some(found) = with_share(CauseKind::Throttled, share, what) else { return Vec::new() };
    let needed = measured.cpus.map(|used| used / (1.0 - share.min(THROTTLED_MAX)));
    let command = needed.and_then(|needed| resize_command(evidence, needed));
    let details =
        measured.cpus.map(|used| format!("it uses {used:.2} CPUs while it is stopped that often"));
    vec![Cause {
        details: details.into_iter().collect(),
        help: "raise limits.cpu, in place since Kubernetes 1.33, or let it burst (annotation bayplan.dev/cpu-burst)".to_owned(),
        command,
        ..found
    }]
}

/// Guaranteed containers stay so, and those with CPUs of their own keep them: their requests change, too, and stay whole; with CPUs of its own it gets at
/// least one more. `None` for one on CPUs that its pod has together: they follow from what all its containers ask for.
fn resize_command(evidence: &Evidence, cpus: f64) -> Option<String> {
    let (namespace, pod, container) = kubectl_names(evidence)?;
    let now = now(evidence)?;
    if !now.exclusive_of_pod.is_empty() {
        return None;
    }
    let is_whole = now.qos.as_deref() == Some("Guaranteed") || !now.exclusive.is_empty();
    #[allow(clippy::cast_precision_loss, reason = "a count of CPUs")]
    let more = (evidence.own().len() + 1) as f64;
    let resources = match is_whole {
        true => {
            format!(
                r#""requests":{{"cpu":"{0:.0}"}},"limits":{{"cpu":"{0:.0}"}}"#,
                cpus.ceil().max(more)
            )
        }
        false => format!(r#""limits":{{"cpu":"{:.1}"}}"#, (cpus * 10.0).ceil() / 10.0),
    };
    Some(format!(
        r#"kubectl -n {namespace} patch pod {pod} --subresource resize -p '{{"spec":{{"containers":[{{"name":"{container}","resources":{{{resources}}}}}]}}}}'"#
    ))
}

fn waiting(evidence: &Evidence) -> Vec<Cause> {
    let measured = &evidence.measured;
    let by_probes =
        measured.waiting.zip(measured.cpus).filter(|(waiting, cpus)| waiting + cpus > 0.0);
    let share = match by_probes {
        Some((waiting, cpus)) => Some(waiting / (waiting + cpus)),
        None => measured.cpu_stall,
    };
    let Some(share) = share else { return Vec::new() };
    let what =
        format!("its tasks wait for a CPU {} of the time that they could run", percent(share));
    let Some(found) = with_share(CauseKind::Waiting, share, what) else { return Vec::new() };
    let mut details = Vec::new();
    if let Some(delay) = measured.delay_ms {
        details.push(format!("99 of 100 runs begin after at most {delay:.2} ms"));
    }
    details.extend(neighbours(evidence));
    details.extend(squeezes(evidence));
    details.extend(evidence.unhelped.iter().map(|why| format!("the rebalancer: {why}")));
    let (help, command) = waiting_help(evidence);
    vec![Cause { details, help, command, ..found }]
}

fn neighbours(evidence: &Evidence) -> Option<String> {
    let now = now(evidence)?;
    let neighbours = &evidence.neighbours;
    if neighbours.count == 0 {
        return None;
    }
    let used = neighbours.cpus.map(|cpus| format!(", which use {cpus:.2} CPUs"));
    let busiest = neighbours.busiest.join(", ");
    let busiest = if busiest.is_empty() { busiest } else { format!(": {busiest}") };
    Some(format!(
        "on CPUs {} run {} other containers{}{busiest}",
        now.cpus_text(),
        neighbours.count,
        used.unwrap_or_default()
    ))
}

fn waiting_help(evidence: &Evidence) -> (String, Option<String>) {
    let own = evidence.own();
    let is_alone = !own.is_empty() && evidence.measured.taken_cpus.unwrap_or(0.0) < 0.01;
    if is_alone && evidence.neighbours.count == 0 {
        let tasks =
            evidence.measured.waiting.unwrap_or(0.0) + evidence.measured.cpus.unwrap_or(0.0);
        let help = format!(
            "its own tasks wait for each other on {} CPUs: let it run fewer threads, or ask for more CPUs",
            own.len()
        );
        return (help, resize_command(evidence, tasks));
    }
    let proposed = evidence.explanation.rebalance.iter().rev();
    let mut proposed = proposed.filter(|it| it.victim == evidence.explanation.container);
    match (proposed.next(), evidence.rebalance_mode.as_str()) {
        (Some(it), "observe") if it.state == ProposalState::Observed => {
            let help = format!("rebalance.mode: act would do this: {}", it.text);
            (help, Some("bayplan config reload".to_owned()))
        }
        (_, "off") => {
            let help = "let the rebalancer look (rebalance.mode: observe), or ask for CPUs of its own: whole CPUs, requests equal to limits";
            (help.to_owned(), Some("bayplan config reload".to_owned()))
        }
        _ => {
            let help = "higher requests, CPUs of its own (whole CPUs, requests equal to limits), or fewer neighbours";
            (help.to_owned(), Some("bayplan top --sort waiting".to_owned()))
        }
    }
}

fn intruded(evidence: &Evidence) -> Vec<Cause> {
    let own = evidence.own().len();
    let Some(taken) = evidence.measured.taken_cpus.filter(|_| own > 0) else { return Vec::new() };
    #[allow(clippy::cast_precision_loss, reason = "a count of CPUs")]
    let share = taken / own as f64;
    let what = format!("others take {} of the time of its exclusive CPUs", percent(share));
    let Some(found) = with_share(CauseKind::Intruded, share, what) else { return Vec::new() };
    let isolation = evidence.explanation.isolation.iter().cloned();
    vec![Cause {
        details: evidence.intruders.iter().cloned().chain(isolation).collect(),
        help: "keep interrupts and kernel threads away (docs: kernel files); all that ran there:"
            .to_owned(),
        command: own_command(evidence, "audit"),
        ..found
    }]
}

fn stalled_for_memory(evidence: &Evidence) -> Vec<Cause> {
    let Some(share) = evidence.measured.memory_stall else { return Vec::new() };
    let what = format!("its tasks lack memory {} of the time", percent(share));
    let found = with_share(CauseKind::MemoryStall, share, what);
    let help =
        "raise limits.memory; what is near memory.high or the limit is reclaimed again and again"
            .to_owned();
    let command = Some("bayplan top --sort stall-memory".to_owned());
    found.map(|found| Cause { help, command, ..found }).into_iter().collect()
}

fn stalled_for_io(evidence: &Evidence) -> Vec<Cause> {
    let Some(share) = evidence.measured.io_stall else { return Vec::new() };
    let what = format!("its tasks wait for block devices {} of the time", percent(share));
    let found = with_share(CauseKind::IoStall, share, what);
    let help =
        "a class of block I/O with more weight (blockIo of the configuration), or a faster disk"
            .to_owned();
    let command = Some("bayplan top --sort stall-io".to_owned());
    found.map(|found| Cause { help, command, ..found }).into_iter().collect()
}

fn far_memory(evidence: &Evidence) -> Vec<Cause> {
    let Some(far) = evidence.measured.far else { return Vec::new() };
    let what = format!("{} of its memory is on NUMA nodes far from its CPUs", percent(far));
    let share = evidence.far_cost.unwrap_or(far * FAR_COST);
    let Some(found) = with_share(CauseKind::FarMemory, share, what) else {
        return Vec::new();
    };
    let nodes = now(evidence).map(|now| format!("it is to use memory nodes {}", now.mems_text()));
    vec![Cause {
        details: nodes.into_iter().chain(recent(evidence, Kind::Moved.name())).collect(),
        help: "the rebalancer in mode act brings back what is at most 1 GiB; else its memory is near after it has been started anew".to_owned(),
        command: delete_command(evidence),
        ..found
    }]
}

fn held_back(evidence: &Evidence) -> Vec<Cause> {
    let name = &evidence.explanation.container;
    let all = evidence.explanation.rebalance.iter();
    let on_it = all.filter(|it| it.target == *name && it.victim != *name && it.state.is_in_force());
    let cause_of = |it: &bayplan_node::proposals::ProposalView| Cause {
        details: it.evidence.lines().map(str::to_owned).collect(),
        help:
            "it is given back when that container is well; at once, with all else that is turned:"
                .to_owned(),
        command: Some("bayplan rebalance pause".to_owned()),
        ..cause(
            CauseKind::HeldBack,
            Medium,
            format!("it is held back for another container: {}", it.text),
        )
    };
    on_it.map(cause_of).collect()
}

fn drifted(evidence: &Evidence) -> Vec<Cause> {
    let mut details = recent(evidence, DRIFTED);
    if details.is_empty() {
        return Vec::new();
    }
    details.reverse();
    vec![Cause {
        details,
        help: "find the program that writes there; which values are contested:".to_owned(),
        command: Some("bayplan plan".to_owned()),
        ..cause(CauseKind::Drifted, Medium, "another program changes its kernel files")
    }]
}

fn files_failed(evidence: &Evidence) -> Vec<Cause> {
    let files = evidence.explanation.files.iter();
    let failed = files.filter_map(|it| Some((it, it.failure.as_ref()?)));
    let details: Vec<String> =
        failed.map(|(it, why)| format!("{} is not {}: {why}", it.slot, it.value)).collect();
    if details.is_empty() {
        return Vec::new();
    }
    vec![Cause {
        details,
        help: "what is to be written, and the kernel's answer:".to_owned(),
        command: Some("bayplan plan".to_owned()),
        ..cause(CauseKind::FileFailed, Medium, "kernel files do not say what was asked for it")
    }]
}

/// Where neither waiting nor far memory shows that it hurts, these are only good to know.
fn squeezed_and_moved(evidence: &Evidence) -> Vec<Cause> {
    let kinds = [
        (CauseKind::Squeezed, squeezes(evidence), "it shares fewer CPUs than before"),
        (
            CauseKind::Moved,
            recent(evidence, Kind::Moved.name()),
            "its exclusive CPUs were changed; caches and memory have to follow",
        ),
    ];
    let found = kinds.into_iter().filter_map(|(kind, details, what)| {
        let help = "more of what happened to it:".to_owned();
        let (_, _, container) = kubectl_names(evidence)?;
        let command = Some(format!("bayplan journal --since 1d --container {container}"));
        (!details.is_empty()).then(|| Cause { details, help, command, ..cause(kind, Low, what) })
    });
    found.collect()
}

fn migrations(evidence: &Evidence) -> Vec<Cause> {
    let Some(moves) = evidence.measured.migrations.filter(|it| *it >= MOVES_MIN) else {
        return Vec::new();
    };
    vec![Cause {
        details: neighbours(evidence).into_iter().collect(),
        help: "CPUs of its own, or fewer of them under one cache; the rebalancer's knob gather does that".to_owned(),
        command: Some("bayplan rebalance status".to_owned()),
        ..cause(CauseKind::Migrations, Low, format!("its tasks go to another CPU {moves:.0} times a second"))
    }]
}

fn clock_shared(evidence: &Evidence) -> Vec<Cause> {
    let cause_of = |it: &ClockStatus| {
        let containers = if it.containers == 1 { "container" } else { "containers" };
        let what = format!(
            "{} other {containers} with wide vectors may lower the frequency of its package, CPUs {}",
            it.containers, it.cpus
        );
        Cause {
            help: "wideVectors in the configuration says where new ones go; how many are where:"
                .to_owned(),
            command: Some("bayplan status".to_owned()),
            ..cause(CauseKind::ClockShared, Low, what)
        }
    };
    evidence.clock.iter().map(cause_of).collect()
}

fn narrowing(evidence: &Evidence) -> Vec<Cause> {
    let text = now(evidence).and_then(ContainerStatus::narrowing_text);
    let cause_of = |text| Cause {
        help: "memory.narrow: true in the configuration does it; then:".to_owned(),
        command: Some("bayplan config reload".to_owned()),
        ..cause(CauseKind::Narrowing, Low, format!("it {text}"))
    };
    text.map(cause_of).into_iter().collect()
}

fn warnings(evidence: &Evidence) -> Vec<Cause> {
    let warnings = &evidence.explanation.decision.warnings;
    let cause_of = |text: &String| Cause {
        help: "correct the annotation; what there is:".to_owned(),
        command: Some("bayplan annotations".to_owned()),
        ..cause(CauseKind::Warning, Low, format!("what it asks for is not all done: {text}"))
    };
    warnings.iter().map(cause_of).collect()
}

/// The last ones, as long as it still has fewer CPUs than it was placed on.
fn squeezes(evidence: &Evidence) -> Vec<String> {
    match evidence.explanation.decision.is_squeezed() {
        true => recent(evidence, Kind::Squeezed.name()),
        false => Vec::new(),
    }
}

/// The last events of a kind, the newest first.
fn recent(evidence: &Evidence, kind: &str) -> Vec<String> {
    let of_kind = evidence.events.iter().rev().filter(|it| it.kind == kind);
    let shown = of_kind.take(EVENTS_MAX).map(|it| {
        let exclusive = it.exclusive.as_ref();
        let exclusive = exclusive.map(|[from, to]| format!(" from CPUs {from} to {to}"));
        format!("{} {:.0}{}: {}", it.kind, it.at, exclusive.unwrap_or_default(), it.why)
    });
    shown.collect()
}
