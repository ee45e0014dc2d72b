//! Evidence, proposals and verdicts in words, for logs, histories and people.

use std::fmt::Write;

use bayplan_allocator::ContainerId;

use crate::proposal::{Evidence, Finding, Proposal, SignalChange, Tie, Verdict};
use crate::sample::Signal;
use crate::scene::Mode;

/// Gives the name of a container.
pub type NameOf<'a> = &'a dyn Fn(ContainerId) -> String;

impl Tie {
    /// All of them, from far to near.
    pub const ALL: [Tie; 4] = [Tie::Node, Tie::L3, Tie::Core, Tie::Cpu];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Tie::Node => "node",
            Tie::L3 => "L3",
            Tie::Core => "core",
            Tie::Cpu => "CPU",
        }
    }
}

impl Mode {
    /// One word, as in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Observe => "observe",
            Mode::Act => "act",
        }
    }
}

impl Verdict {
    /// One word, for metrics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Kept { .. } => "kept",
            Verdict::Useless { .. } => "useless",
            Verdict::Harmful { .. } => "harmful",
            Verdict::Unknown => "unknown",
            Verdict::Covered => "covered",
            Verdict::Over => "over",
            Verdict::Withdrawn => "withdrawn",
        }
    }
}

/// A proposal in one line: what, on which container, for which, and the worst finding.
pub fn render_proposal(proposal: &Proposal, name_of: NameOf<'_>) -> String {
    let Proposal { knob, target, step, leave, evidence, .. } = proposal;
    let mut line = format!("{} on {}", knob.name(), name_of(*target));
    if *step > 1 {
        let _ = write!(line, ", step {step}");
    }
    if !leave.is_empty() {
        let _ = write!(line, ", which leaves CPUs {leave}");
    }
    if *target != evidence.victim {
        let _ = write!(line, ", for {}", name_of(evidence.victim));
    }
    let worst = evidence.findings.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)));
    if let Some(finding) = worst {
        let _ = write!(line, ": {}", render_finding(finding));
    }
    line
}

/// Evidence as a table: a line for each finding and for each culprit.
pub fn render_evidence(evidence: &Evidence, name_of: NameOf<'_>) -> String {
    let mut text = format!("{} suffers\n", name_of(evidence.victim));
    for finding in &evidence.findings {
        let _ = writeln!(text, "  {}", render_finding(finding));
    }
    for culprit in &evidence.culprits {
        let _ = writeln!(
            text,
            "  from {} by a shared {}: activity {}, correlation {:.1}",
            name_of(culprit.container),
            culprit.tie.name(),
            number(culprit.magnitude),
            culprit.correlation
        );
    }
    if evidence.culprits.is_empty() {
        text.push_str("  from no known container\n");
    }
    text
}

/// A verdict in a few words.
pub fn render_verdict(verdict: &Verdict, name_of: NameOf<'_>) -> String {
    match verdict {
        Verdict::Kept { relief } => format!("kept: closed {} of the gap", percent(*relief)),
        Verdict::Useless { relief, worse } => {
            let mut text = format!("undone: closed {} of the gap", percent(*relief));
            if let Some(SignalChange { signal, was, now }) = *worse {
                let [was, now] = [was, now].map(|it| render_value(signal, it));
                let _ = write!(text, "; {} went from {was} to {now}", signal.name());
            }
            text
        }
        Verdict::Harmful { other } => format!("undone: {} suffers instead", name_of(*other)),
        Verdict::Unknown => "undone: could not be judged".to_owned(),
        Verdict::Covered => "undone: another change helps without it".to_owned(),
        Verdict::Over => "undone: not needed any more".to_owned(),
        Verdict::Withdrawn => "undone: not allowed any more".to_owned(),
    }
}

fn render_finding(finding: &Finding) -> String {
    let Finding { signal, short, limit, usual, .. } = *finding;
    let mut line = format!(
        "{} {} > {}",
        signal.name(),
        render_value(signal, short),
        render_value(signal, limit)
    );
    if let Some(usual) = usual {
        let _ = write!(line, ", usually {}", render_value(signal, usual));
    }
    line
}

fn excess(finding: &Finding) -> f64 {
    finding.short / finding.limit
}

pub(crate) fn render_value(signal: Signal, value: f64) -> String {
    match signal {
        Signal::Delay => format!("{} ms", number(value * 1e3)),
        Signal::Migrations => format!("{}/s", number(value)),
        Signal::Throttled | Signal::CpuPressure | Signal::FarMemory => percent(value),
        Signal::Preempted => format!("{}/s", number(value)),
        Signal::Waiting | Signal::CyclesPerInstruction | Signal::CacheMisses => number(value),
        Signal::Clock => format!("{value:.1} containers"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Three digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 1e3 => format!("{value:.0}"),
        large if large < 1e6 => format!("{:.0} k", value / 1e3),
        large if large < 1e9 => format!("{:.0} M", value / 1e6),
        _ => format!("{:.1} G", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_value(signal: Signal, given: f64, expected: &str) {
        assert_eq!(render_value(signal, given), expected);
    }

    #[test]
    fn every_signal_has_its_unit() {
        check_value(Signal::Waiting, 1.234, "1.23");
        check_value(Signal::Delay, 0.012, "12 ms");
        check_value(Signal::Preempted, 1234.0, "1 k/s");
        check_value(Signal::Throttled, 0.057, "6 %");
        check_value(Signal::CpuPressure, 1.0, "100 %");
        check_value(Signal::FarMemory, 0.0, "0 %");
        check_value(Signal::CyclesPerInstruction, 0.5, "0.50");
        check_value(Signal::CacheMisses, 31.4, "31");
    }

    #[test]
    fn great_numbers_are_short() {
        let told = [-3.0, 9.99, 10.2, 999.0, 1e4, 2e6, 3.21e10].map(number);
        assert_eq!(told, ["-3.00", "9.99", "10", "999", "10 k", "2 M", "32.1 G"]);
    }

    fn check_verdict(verdict: Verdict, expected: &str) {
        assert_eq!(render_verdict(&verdict, &|id| format!("c{}", id.0)), expected);
    }

    #[test]
    fn verdicts_say_what_becomes_of_it() {
        check_verdict(Verdict::Kept { relief: 1.204 }, "kept: closed 120 % of the gap");
        let worse = SignalChange { signal: Signal::Delay, was: 0.002, now: 0.008 };
        for (worse, expected) in [
            (None, "undone: closed -10 % of the gap"),
            (Some(worse), "undone: closed -10 % of the gap; delay went from 2.00 ms to 8.00 ms"),
        ] {
            check_verdict(Verdict::Useless { relief: -0.1, worse }, expected);
        }
        check_verdict(Verdict::Harmful { other: ContainerId(7) }, "undone: c7 suffers instead");
        check_verdict(Verdict::Unknown, "undone: could not be judged");
        check_verdict(Verdict::Covered, "undone: another change helps without it");
        check_verdict(Verdict::Over, "undone: not needed any more");
        check_verdict(Verdict::Withdrawn, "undone: not allowed any more");
    }
}
