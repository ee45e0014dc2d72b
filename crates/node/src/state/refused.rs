//! What is refused. Of a resize kubelet asks for the same again every second or so until there is room, the pod is changed, or it ends. So what was said
//! once is counted from then on, and told again with the tenth, the hundredth, ... refusal and at the end.

use bayplan_allocator::ContainerId;
use bayplan_workload::{Admission, NewContainer, Resources};

use super::NodeState;
use crate::change::Change;
use crate::container::{RefusedResize, full_name};
use crate::decision::{Decision, Gone};
use crate::event::{Answer, Note, Step};

impl NodeState {
    /// What kubelet is told.
    fn render_refusal(&self, spec: &NewContainer, decision: &Decision) -> String {
        let (name, why) = (full_name(spec), self.without_names(&decision.outcome, spec));
        format!("bayplan: {name} {why}; `bayplan explain {name}` lists every pool")
    }

    /// A refusal for which no pool was asked.
    pub(super) fn refuse_unasked(
        &mut self,
        mut step: Step,
        spec: &NewContainer,
        decision: Decision,
        is_final: bool,
    ) -> Step {
        if !is_final {
            let why = self.without_names(&decision.outcome, spec);
            step.answer = Answer::Admission(Admission::Refuse(why));
            return step;
        }
        self.refuse(step, spec, decision, None)
    }

    /// The last word; `resized` is a container that was to be resized, and what kubelet wanted to change.
    pub(super) fn refuse(
        &mut self,
        mut step: Step,
        spec: &NewContainer,
        decision: Decision,
        resized: Option<(ContainerId, Resources)>,
    ) -> Step {
        let why = self.render_refusal(spec, &decision);
        let refused = Change::Refused { spec, decision: &decision, resized, why: why.clone() };
        self.emit(refused, &mut step);
        self.remember(Gone { name: full_name(spec), decision, end: None });
        step.answer = Answer::Admission(Admission::Refuse(why));
        step
    }

    /// The last word about a resize for which there is no room.
    pub(super) fn refuse_resize(
        &mut self,
        id: ContainerId,
        spec: &NewContainer,
        decision: Decision,
        update: Resources,
        mut step: Step,
    ) -> Step {
        let asked = spec.resources;
        let is_other = |it: &RefusedResize| it.asked != asked;
        if self.containers.get(&id).and_then(|it| it.refused.as_ref()).is_some_and(is_other) {
            self.refusals_over(id, "is asked for otherwise", &mut step);
        }
        let Some(container) = self.containers.get_mut(&id) else { return step };
        let refused = container.refused.get_or_insert(RefusedResize { asked, times: 0 });
        refused.times += 1;
        let times = refused.times;
        if times == 1 {
            return self.refuse(step, spec, decision, Some((id, update)));
        }
        let (container, why) = (full_name(spec), self.render_refusal(spec, &decision));
        step.notes.push(Note::RefusedAgain { container, why: why.clone(), times });
        step.answer = Answer::Admission(Admission::Refuse(why));
        step
    }

    /// Kubelet no longer asks for what was refused.
    pub(super) fn refusals_over(&mut self, id: ContainerId, how: &'static str, step: &mut Step) {
        let Some(container) = self.containers.get_mut(&id) else { return };
        let Some(RefusedResize { times, .. }) = container.refused.take() else { return };
        let container = container.full_name();
        step.notes.push(Note::RefusalsOver { container, times, how });
    }
}
