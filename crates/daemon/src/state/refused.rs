//! Resizes that are refused. Kubelet asks for the same again every second or so until there is room, the pod is changed, or it ends. So what was said
//! once is counted from then on, and told again with the tenth, the hundredth, ... refusal and at the end.

use bayplan_allocator::ContainerId;
use bayplan_cri::agent::Admission;
use bayplan_cri::translate::{NewContainer, Resources};

use crate::decision::Decision;
use crate::event::{Answer, Note, Step};
use crate::state::{NodeState, render_refusal};

/// A resize that kubelet asks for again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedResize {
    asked: Resources,
    times: u64,
}

impl NodeState {
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
        let refused = self.containers.get_mut(&id).map(|container| &mut container.refused);
        match refused {
            Some(Some(refused)) if refused.asked == asked => {
                refused.times += 1;
                let times = refused.times;
                let why = render_refusal(spec, &decision);
                let container =
                    self.containers.get(&id).map(|it| it.full_name()).unwrap_or_default();
                step.notes.push(Note::RefusedAgain { container, why: why.clone(), times });
                step.answer = Answer::Admission(Admission::Refuse(why));
                step
            }
            refused => {
                if let Some(refused) = refused {
                    *refused = Some(RefusedResize { asked, times: 1 });
                }
                step.history.push(self.refusal(Some(id), spec, &decision, Some(update)));
                self.refuse(step, spec, decision)
            }
        }
    }

    /// Kubelet no longer asks for what was refused.
    pub(super) fn refusals_over(&mut self, id: ContainerId, how: &'static str, step: &mut Step) {
        let Some(container) = self.containers.get_mut(&id) else { return };
        let Some(RefusedResize { times, .. }) = container.refused.take() else { return };
        let container = container.full_name();
        step.notes.push(Note::RefusalsOver { container, times, how });
    }
}
