//! What kubelet knows of pods that run: exact requests, and annotations that have changed. In: pods as they are now. Out: containers with other live
//! annotations from now on; no container moves for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::ContainerId;
use bayplan_workload::annotations::{Warning, WarningKind, render_changes, with_live};
use bayplan_workload::{NewContainer, PodFacts, RequestSource, request_source};
use jiff::{SignedDuration, Timestamp};

use crate::change::Change;
use crate::container::warning_notes;
use crate::decision::texts;
use crate::event::{Answer, Step};
use crate::facts_form::{Annotated, FactsForm};
use crate::state::NodeState;
use crate::status::KnownView;

/// A container's annotations change at most once in this time; a change that comes sooner counts when its pod is seen the next time.
const CHANGE_EVERY: SignedDuration = SignedDuration::from_secs(5);
/// No answer of kubelet is older than this; what seems to be has seen the clock put back.
const ANSWER_AGE_MAX: SignedDuration = SignedDuration::from_secs(60);

impl NodeState {
    /// Pods as they were when kubelet was `asked`, or later.
    pub(super) fn pods_seen(
        &mut self,
        pods: &[PodFacts],
        asked: Timestamp,
        now: Timestamp,
    ) -> Step {
        let mut step = Step::new(Answer::Done);
        let by_uid: BTreeMap<&str, &PodFacts> =
            pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
        let seen = self.containers.iter().filter_map(|(id, container)| {
            let pod = by_uid.get(container.spec.pod.uid.as_str())?;
            let pod = Some(pod).filter(|pod| container.spec.pod.is_told_by(pod))?;
            // Kubelet was asked again when it was created.
            let is_newer = container.spec.facts.is_some()
                && is_within(container.decision.at.duration_since(asked), ANSWER_AGE_MAX);
            (!is_newer).then_some((*id, *pod))
        });
        for (id, pod) in seen.collect::<Vec<_>>() {
            let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else {
                continue;
            };
            let is_known_anew = self.note_facts(id, pod, asked);
            let changes = self.note_annotations(id, pod, now);
            if is_known_anew || changes.is_some() {
                self.warn_anew(id, &spec, &mut step);
                let change = match changes {
                    Some(changes) => Change::Annotated { id, changes },
                    None => Change::Amended(id),
                };
                self.emit(change, &mut step);
            }
        }
        step
    }

    /// Whether something of it is another than before.
    fn note_facts(&mut self, id: ContainerId, pod: &PodFacts, asked: Timestamp) -> bool {
        let Some(container) = self.containers.get_mut(&id) else { return false };
        let Some(facts) = pod.of(&container.spec.name) else { return false };
        if let Some(resize) = container.asked.as_mut().filter(|it| it.at <= asked) {
            resize.is_told = true;
        }
        let has_changed = container.spec.facts.as_deref() != Some(&facts);
        if has_changed {
            Arc::make_mut(&mut container.spec).facts = Some(Box::new(facts));
        }
        has_changed
    }

    /// What has changed of its live annotations, which are others from now on; `None`: nothing.
    fn note_annotations(
        &mut self,
        id: ContainerId,
        pod: &PodFacts,
        now: Timestamp,
    ) -> Option<String> {
        let container = self.containers.get_mut(&id)?;
        let had = &container.spec.pod.annotations;
        let counts = with_live(had, &pod.annotations);
        let changed_at = container.annotated.as_ref().map(|it| it.at);
        // A clock that was put back stops nothing.
        let is_too_soon =
            changed_at.is_some_and(|at| is_within(now.duration_since(at), CHANGE_EVERY));
        if counts == *had || is_too_soon {
            return None;
        }
        let changes = render_changes(had, &counts);
        Arc::make_mut(&mut container.spec).pod.annotations = counts;
        container.annotated = Some(Annotated { at: now, changes: changes.clone() });
        Some(changes)
    }

    /// Warnings of what was known when it was as `before` go, and those of what is known now come.
    fn warn_anew(&mut self, id: ContainerId, before: &NewContainer, step: &mut Step) {
        let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else { return };
        let ((was, before), (is, now)) = (self.request(id, before), self.request(id, &spec));
        let before = texts(before);
        let (old, mut new): (Vec<Warning>, Vec<Warning>) =
            now.into_iter().partition(|it| before.contains(&it.text));
        if is.demand.exclusive() > was.demand.exclusive() {
            let text = format!(
                "created before kubelet told what it requests ({}): it stays where it is until it is created anew",
                is.demand
            );
            new.push(Warning { kind: WarningKind::NoEffect, text });
        }
        step.notes.extend(warning_notes(&spec, &new));
        let (old, new) = (texts(old), texts(new));
        if let Some(container) = self.containers.get_mut(&id) {
            let told = &mut container.decision.warnings;
            told.retain(|text| !before.contains(text) || old.contains(text));
            told.extend(new);
        }
    }

    /// For `explain`; `None`: nothing beside what cgroup settings tell.
    pub(crate) fn known_view(&self, id: ContainerId) -> Option<KnownView> {
        let container = self.containers.get(&id)?;
        let source = request_source(&container.spec, &self.rules, self.ledger.pools().memory());
        let facts = container.spec.facts.as_deref().map(FactsForm::from);
        let changed = container.annotated.as_ref();
        if facts.is_none() && changed.is_none() && source == RequestSource::Settings {
            return None;
        }
        Some(KnownView {
            requests_from: match source {
                RequestSource::Kubelet => "kubelet's PodsAPI".to_owned(),
                RequestSource::Annotation(name) => format!("annotation {name}"),
                RequestSource::Settings => "cgroup settings".to_owned(),
            },
            facts,
            changed_at: changed.map(|it| it.at),
            changes: changed.map(|it| it.changes.clone()).unwrap_or_default(),
        })
    }
}

/// Whether so much time has passed, and less than `limit`.
fn is_within(passed: SignedDuration, limit: SignedDuration) -> bool {
    (SignedDuration::ZERO..limit).contains(&passed)
}
