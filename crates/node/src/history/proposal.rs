//! Proposals of the rebalancer in the history. In: a proposal with its evidence, or what became of it. Out: the form that an entry keeps; and from entries the
//! proposals, as `bayplan explain` shows them, also those of earlier daemons.

use std::cmp::Reverse;

use bayplan_allocator::ContainerId;
use bayplan_rebalance::{
    Culprit, Evidence, Finding, Proposal, Signal, Tie, Verdict, render_evidence,
};
use bayplan_types::QosClass;
use serde::{Deserialize, Serialize};

use super::{Entry, Kind};
use crate::proposals::{ProposalState, ProposalView};

/// Culprits that are kept, the likeliest first, so that an entry does not grow with the node.
const CULPRITS_MAX: usize = 8;

/// What the rebalancer proposed, with how it knew, or how that was judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProposalForm {
    /// Counts proposals since the rebalancer was started; that of a verdict is that of its proposal.
    pub number: u64,
    /// What is turned: `idle`, `suppress`, ...
    pub knob: String,
    /// `observe`: it is only said; `act`: it is done.
    pub mode: String,
    /// On which container, `namespace/pod/container`.
    pub target: String,
    /// For which one.
    pub victim: String,
    /// How far, for knobs that go in steps.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub step: u32,
    /// CPUs that the target is to leave.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leave: String,
    /// By what it shows that the victim suffers; absent from verdicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<FindingForm>,
    /// From which containers it suffers, the likeliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub culprits: Vec<CulpritForm>,
    /// How it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictForm>,
}

/// One signal that is too high. Shares are 0 to 1, delays seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingForm {
    /// Which: `waiting`, `delay`, ...
    pub signal: String,
    /// Over the short window.
    pub short: f64,
    /// Over the long window.
    pub long: f64,
    /// What is usual for the workload; absent before that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<f64>,
    /// What is too much.
    pub limit: f64,
    /// How far it varies, about a standard deviation.
    pub spread: f64,
}

/// A container from which the victim may suffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CulpritForm {
    /// The container, `namespace/pod/container`.
    pub container: String,
    /// The nearest thing that both use: `CPU`, `core`, `L3` or `node`.
    pub tie: String,
    /// Its QoS class, by which the less important of two comes first; Guaranteed where it is not known.
    pub class: String,
    /// Of the victim's trouble with its activity, -1 to 1.
    pub correlation: f64,
    /// CPUs that it keeps busy, or bytes per second to and from memory.
    pub magnitude: f64,
}

/// How a proposal was judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerdictForm {
    /// `kept`, `useless`, `harmful`, `unknown`, `covered`, `over`, `withdrawn`; or `refused`, `ended`, `stuck` of what was not judged by samples.
    pub name: String,
    /// The share of the gap between trouble and limits that it closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relief: Option<f64>,
    /// The container that suffers instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
}

fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_first(step: &u32) -> bool {
    *step <= 1
}

impl ProposalForm {
    /// A proposal with its evidence.
    pub fn of(proposal: &Proposal, name_of: impl Fn(ContainerId) -> String) -> ProposalForm {
        let Evidence { victim, findings, culprits } = &proposal.evidence;
        let culprit = |it: &Culprit| CulpritForm {
            container: name_of(it.container),
            tie: it.tie.name().to_owned(),
            class: it.class.0.name().to_owned(),
            correlation: it.correlation,
            magnitude: it.magnitude,
        };
        ProposalForm {
            number: proposal.number,
            knob: proposal.knob.name().to_owned(),
            mode: proposal.mode.name().to_owned(),
            target: name_of(proposal.target),
            victim: name_of(*victim),
            step: proposal.step,
            leave: proposal.leave.to_string(),
            findings: findings.iter().map(FindingForm::of).collect(),
            culprits: culprits.iter().take(CULPRITS_MAX).map(culprit).collect(),
            verdict: None,
        }
    }

    /// The evidence in words, a line for each finding and for each culprit; empty where there is none, as in verdicts. What only a newer version knows is left
    /// out.
    pub fn render_evidence(&self) -> String {
        if self.findings.is_empty() && self.culprits.is_empty() {
            return String::new();
        }
        let numbered = (1..).map(ContainerId).zip(&self.culprits);
        let evidence = Evidence {
            victim: ContainerId(0),
            findings: self.findings.iter().filter_map(FindingForm::finding).collect(),
            culprits: numbered.filter_map(|(id, it)| it.culprit(id)).collect(),
        };
        render_evidence(&evidence, &|id| match id.0.checked_sub(1) {
            None => self.victim.clone(),
            Some(index) => {
                let at = usize::try_from(index).ok().and_then(|index| self.culprits.get(index));
                at.map(|it| it.container.clone()).unwrap_or_default()
            }
        })
    }
}

impl FindingForm {
    fn of(finding: &Finding) -> FindingForm {
        let Finding { signal, short, long, usual, limit, spread } = *finding;
        FindingForm { signal: signal.name().to_owned(), short, long, usual, limit, spread }
    }

    fn finding(&self) -> Option<Finding> {
        let FindingForm { signal, short, long, usual, limit, spread } = self;
        let signal = Signal::ALL.into_iter().find(|it| it.name() == signal)?;
        let (short, long, limit, spread) = (*short, *long, *limit, *spread);
        Some(Finding { signal, short, long, usual: *usual, limit, spread })
    }
}

impl CulpritForm {
    fn culprit(&self, container: ContainerId) -> Option<Culprit> {
        let tie = Tie::ALL.into_iter().find(|it| it.name() == self.tie)?;
        let class = QosClass::ALL.into_iter().find(|it| it.name() == self.class)?;
        let (class, correlation, magnitude) = (Reverse(class), self.correlation, self.magnitude);
        Some(Culprit { tie, correlation, class, magnitude, container })
    }
}

impl VerdictForm {
    /// What samples have said.
    pub fn of(verdict: &Verdict, name_of: impl Fn(ContainerId) -> String) -> VerdictForm {
        let (relief, other) = match verdict {
            Verdict::Kept { relief } | Verdict::Useless { relief, .. } => (Some(*relief), None),
            Verdict::Harmful { other } => (None, Some(name_of(*other))),
            Verdict::Unknown | Verdict::Covered | Verdict::Over | Verdict::Withdrawn => {
                (None, None)
            }
        };
        VerdictForm { name: verdict.name().to_owned(), relief, other }
    }

    /// What something else has said.
    pub fn named(name: &str) -> VerdictForm {
        VerdictForm { name: name.to_owned(), ..VerdictForm::default() }
    }

    fn state(&self) -> ProposalState {
        match self.name.as_str() {
            "kept" => ProposalState::Kept,
            "refused" => ProposalState::Refused,
            "stuck" => ProposalState::Stuck,
            "withdrawn" => ProposalState::Withdrawn,
            _ => ProposalState::Undone,
        }
    }
}

/// The proposals for a container of this full name and on it that entries tell of, oldest first, with what became of them. Nothing of them is in force any more:
/// a daemon that stops takes everything back, and so does the next one after a crash; only owners of CPUs stay where they were moved to.
pub fn past_proposals(entries: &[Entry], name: &str) -> Vec<ProposalView> {
    let mut found: Vec<ProposalView> = Vec::new();
    for entry in entries {
        let Some(form) = entry.proposal.as_deref() else { continue };
        if form.target != name && form.victim != name {
            continue;
        }
        match &form.verdict {
            None if entry.kind == Kind::Proposed => found.push(view(entry, form)),
            None => {}
            Some(verdict) => {
                // Numbers begin anew with every start.
                let is_it = |it: &&mut ProposalView| {
                    it.number == form.number && it.knob == form.knob && it.target == form.target
                };
                if let Some(judged) = found.iter_mut().rev().find(is_it) {
                    judged.state = verdict.state().of_knob(&judged.knob);
                    judged.outcome = outcome(&entry.why, &judged.text);
                }
            }
        }
    }
    for it in found.iter_mut().filter(|it| it.state.is_in_force()) {
        it.state = ProposalState::Withdrawn.of_knob(&it.knob);
    }
    found
}

fn view(entry: &Entry, form: &ProposalForm) -> ProposalView {
    let is_done = form.mode == "act";
    let verb = if is_done { "turns " } else { "would turn " };
    ProposalView {
        number: form.number,
        at: entry.at,
        knob: form.knob.clone(),
        target: form.target.clone(),
        victim: form.victim.clone(),
        text: entry.why.strip_prefix(verb).unwrap_or(&entry.why).to_owned(),
        evidence: form.render_evidence(),
        state: if is_done { ProposalState::Turning } else { ProposalState::Observed },
        outcome: String::new(),
    }
}

/// A verdict's reason ends with its proposal, which is told already.
fn outcome(why: &str, proposal: &str) -> String {
    why.strip_suffix(&format!(" ({proposal})")).unwrap_or(why).to_owned()
}

#[cfg(test)]
mod tests;
