//! What is told of a decision: to the log, the metrics, the history, and to queries.

use std::collections::BTreeMap;

use bayplan_allocator::ContainerId;
use bayplan_node::event::Event;
use bayplan_node::history::{Kind, ProposalForm, VerdictForm};
use bayplan_node::proposals::{ProposalState, ProposalView};
use bayplan_rebalance::{
    Mode, Outcome, Proposal, Scene, Verdict, render_evidence, render_proposal, render_verdict,
};
use jiff::Timestamp;

use super::task::RebalancerTask;
use super::view::{InFile, Remembered};
use crate::enforcer::LOST;

/// Those of the scene by their names; one that is gone by number.
struct Names<'a>(BTreeMap<ContainerId, &'a str>);

impl<'a> Names<'a> {
    fn of(scene: &'a Scene) -> Names<'a> {
        Names(scene.residents.iter().map(|(id, it)| (*id, it.name.as_str())).collect())
    }

    fn of_one(&self, id: ContainerId) -> String {
        self.0.get(&id).map_or_else(|| id.to_string(), |name| (*name).to_owned())
    }
}

impl RebalancerTask {
    pub(super) async fn tell_proposal(&self, proposal: &Proposal, scene: &Scene) -> Option<()> {
        let names = Names::of(scene);
        let name_of = |id: ContainerId| names.of_one(id);
        let Proposal { number, knob, target, mode, .. } = proposal;
        let text = render_proposal(proposal, &name_of);
        let evidence = render_evidence(&proposal.evidence, &name_of);
        let (verb, state) = match mode {
            Mode::Act => ("turns", ProposalState::Turning),
            Mode::Off | Mode::Observe => ("would turn", ProposalState::Observed),
        };
        tracing::info!(number, "rebalance: {verb} {text}\n{evidence}");
        self.metrics.rebalancing.proposed(*knob, *mode);
        let view = ProposalView {
            number: *number,
            at: Timestamp::now(),
            knob: knob.name().to_owned(),
            target: name_of(*target),
            victim: name_of(proposal.evidence.victim),
            text: text.clone(),
            evidence,
            state,
            outcome: String::new(),
        };
        let (target, victim, knob) = (*target, proposal.evidence.victim, *knob);
        let in_file = InFile::of(knob, *mode);
        self.told.proposed(Remembered { target, victim, knob, in_file, view });
        let form = Box::new(ProposalForm::of(proposal, name_of));
        let told = Event::Told(Kind::Proposed, target, format!("{verb} {text}"), form);
        self.inbox.ask(told).await.map(drop)
    }

    pub(super) async fn tell_outcome(&self, number: u64, outcome: &Outcome) -> Option<()> {
        match outcome {
            Outcome::Done => {
                self.told.became(number, ProposalState::Settling, "");
                Some(())
            }
            Outcome::Refused(why) => {
                let text = format!("could not be done: {why}");
                let verdict = VerdictForm::named("refused");
                self.tell_end(number, ProposalState::Refused, verdict, text).await
            }
        }
    }

    pub(super) async fn tell_verdict(
        &self,
        number: u64,
        verdict: &Verdict,
        scene: &Scene,
    ) -> Option<()> {
        let names = Names::of(scene);
        let text = render_verdict(verdict, &|id| names.of_one(id));
        let state = match verdict {
            Verdict::Kept { .. } => ProposalState::Kept,
            Verdict::Withdrawn => ProposalState::Withdrawn,
            _ => ProposalState::Undone,
        };
        let verdict = VerdictForm::of(verdict, |id| names.of_one(id));
        self.tell_end(number, state, verdict, text).await
    }

    /// Something that came later has ended a move.
    pub(super) async fn tell_ended(&self, number: u64, why: &str) -> Option<()> {
        let verdict = VerdictForm::named("ended");
        self.tell_end(number, ProposalState::Undone, verdict, format!("ended: {why}")).await
    }

    /// What is in kernel files cannot be taken back any more: each of them is told once.
    pub(super) async fn tell_stuck(&self) -> Option<()> {
        for it in self.told.stuck(LOST) {
            let why = format!("stuck: {LOST} ({})", it.view.text);
            tracing::error!(number = it.view.number, "rebalance: {why}");
            let form = judged(&it, VerdictForm::named("stuck"));
            self.inbox.ask(Event::Told(Kind::Judged, it.target, why, form)).await?;
        }
        Some(())
    }

    async fn tell_end(
        &self,
        number: u64,
        state: ProposalState,
        verdict: VerdictForm,
        text: String,
    ) -> Option<()> {
        let Some(it) = self.told.became(number, state, &text) else { return Some(()) };
        self.metrics.rebalancing.judged(it.knob, &verdict.name);
        let why = format!("{} ({})", it.view.outcome, it.view.text);
        tracing::info!(number, "rebalance: {why}");
        let form = judged(&it, verdict);
        self.inbox.ask(Event::Told(Kind::Judged, it.target, why, form)).await.map(drop)
    }
}

/// A verdict for the history, which has the evidence with the proposal.
fn judged(it: &Remembered, verdict: VerdictForm) -> Box<ProposalForm> {
    let ProposalView { number, knob, target, victim, .. } = it.view.clone();
    let mode = Mode::Act.name().to_owned();
    let verdict = Some(verdict);
    Box::new(ProposalForm {
        number,
        knob,
        mode,
        target,
        victim,
        verdict,
        ..ProposalForm::default()
    })
}
