//! What kubelet knows of pods that run: exact requests, and annotations that have changed. In: pods as they are now. Out: containers with other live
//! annotations from now on; no container moves for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::ContainerId;
use bayplan_workload::annotations::{Warning, render_changes, with_live};
use bayplan_workload::{PodFacts, RequestSource, request_source};
use jiff::{SignedDuration, Timestamp};

use crate::decision::texts;
use crate::event::{Answer, Step};
use crate::facts_form::{Annotated, FactsForm};
use crate::history::{Entry, Kind};
use crate::state::{NodeState, warning_notes};
use crate::status::KnownView;

/// A container's annotations change at most once in this time; a change that comes sooner counts when its pod is seen the next time.
const CHANGE_EVERY: SignedDuration = SignedDuration::from_secs(5);

impl NodeState {
    pub(super) fn pods_seen(&mut self, pods: &[PodFacts], now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        let by_uid: BTreeMap<&str, &PodFacts> =
            pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
        let seen = self.containers.iter().filter_map(|(id, container)| {
            let pod = by_uid.get(container.spec.pod.uid.as_str())?;
            Some((*id, *pod))
        });
        for (id, pod) in seen.collect::<Vec<_>>() {
            let is_known_anew = self.note_facts(id, pod);
            let is_annotated = self.note_annotations(id, pod, now, &mut step);
            if is_known_anew || is_annotated {
                step.records.extend(self.placed_record(id));
            }
        }
        step
    }

    /// Whether something of it is another than before.
    fn note_facts(&mut self, id: ContainerId, pod: &PodFacts) -> bool {
        let Some(container) = self.containers.get_mut(&id) else { return false };
        let Some(facts) = pod.of(&container.spec.name) else { return false };
        let has_changed = container.spec.facts.as_deref() != Some(&facts);
        if has_changed {
            Arc::make_mut(&mut container.spec).facts = Some(Box::new(facts));
        }
        has_changed
    }

    /// Whether its live annotations are others from now on.
    fn note_annotations(
        &mut self,
        id: ContainerId,
        pod: &PodFacts,
        now: Timestamp,
        step: &mut Step,
    ) -> bool {
        let Some(container) = self.containers.get(&id) else { return false };
        let had = &container.spec.pod.annotations;
        let counts = with_live(had, &pod.annotations);
        let changed_at = container.annotated.as_ref().map(|it| it.at);
        let is_too_soon = changed_at.is_some_and(|at| now.duration_since(at) < CHANGE_EVERY);
        if counts == *had || is_too_soon {
            return false;
        }
        let changes = render_changes(had, &counts);
        let before = texts(self.request(id, &container.spec).1);
        if let Some(container) = self.containers.get_mut(&id) {
            Arc::make_mut(&mut container.spec).pod.annotations = counts;
            container.annotated = Some(Annotated { at: now, changes: changes.clone() });
        }
        self.warn_anew(id, &before, step);
        step.history.extend(self.annotating(id, changes));
        true
    }

    /// Warnings of what its annotations said `before` go, and those of what they say now come.
    fn warn_anew(&mut self, id: ContainerId, before: &[String], step: &mut Step) {
        let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else { return };
        let (_, now) = self.request(id, &spec);
        let (old, new): (Vec<Warning>, Vec<Warning>) =
            now.into_iter().partition(|it| before.contains(&it.text));
        step.notes.extend(warning_notes(&spec, &new));
        let (old, new) = (texts(old), texts(new));
        if let Some(container) = self.containers.get_mut(&id) {
            let told = &mut container.decision.warnings;
            told.retain(|text| !before.contains(text) || old.contains(text));
            told.extend(new);
        }
    }

    fn annotating(&self, id: ContainerId, why: String) -> Option<Entry> {
        let warnings = self.containers.get(&id)?.decision.warnings.clone();
        Some(Entry { who: Some(self.who(id)?), why, warnings, ..Entry::new(Kind::Annotated) })
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
