//! A change of group types that could not be carried out is undone. In: groups and places from before it. Out: the same groups and places under the configuration of that time.
//!
//! What has happened since counts: a container that has ended is not brought back, and one that has come or was resized is placed under the earlier configuration as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_allocator::ContainerId;
use bayplan_types::CpuSet;
use jiff::Timestamp;

use super::NodeState;
use crate::change::{Change, GroupChange};
use crate::earlier::{Earlier, EarlierPlace};
use crate::event::{Answer, Step};
use crate::history::By;
use crate::reconfigure::ChangedConfig;
use crate::record::AllocationForm;

/// Added to the decision about a container that is where it was before the change.
const BACK: &str = "; its earlier place counts again: the change of `groups` was taken back";

type Places = Vec<(ContainerId, AllocationForm)>;

impl NodeState {
    /// Groups and places as they are.
    pub(crate) fn to_earlier(&self) -> Earlier {
        let place = |(id, form): (ContainerId, AllocationForm)| {
            let container = self.containers.get(&id)?;
            let (spec, decision) = (Arc::clone(&container.spec), container.decision.clone());
            Some((id, EarlierPlace { form, spec, decision }))
        };
        let places = self.forms().into_iter().filter_map(place).collect();
        Earlier { groups: self.groups.clone(), places }
    }

    /// Goes on under the configuration that held before the last change of group types, which is undone for this reason.
    pub(crate) fn config_taken_back(
        &mut self,
        config: ChangedConfig,
        why: String,
        now: Timestamp,
    ) -> Step {
        let Some(earlier) = self.earlier.take() else { return self.go_on_under(config, now) };
        let shown = self.places();
        let mut step = Step::new(Answer::Done);
        let mut sent_away = self.take_rules(&config, &mut step);
        let places = self.take_earlier(*earlier, &mut step);
        let others = self.containers.ids().filter(|id| !places.contains_key(*id));
        let others: Vec<ContainerId> = others.copied().collect();
        sent_away.extend(self.misplaced_among(others));
        sent_away.retain(|id, _| !places.contains_key(id));
        self.take_settings(&config, true, &mut step);
        let not_alone = self.not_alone();
        let (seated, anew) = self.with_earlier(places);
        self.replan_all(&seated, config.machine, By::Config, &sent_away, now, &mut step);
        if !anew.is_empty() {
            let had = self.forms();
            self.seat_anew(&anew, "its CPUs are another container's again", now, &mut step);
            // Others may have made room for them.
            self.emit_elsewhere(&had, By::Config, &mut step);
        }
        self.note_not_alone(&not_alone, &mut step);
        self.settle_groups(&mut step);
        step.fail("config_undone", why);
        step.answer = Answer::Shifts(self.shifts(&shown));
        step.answers_after_plan = true;
        step
    }

    /// Groups, members and decisions are those of earlier; gives the places of containers that are there and the same as then.
    fn take_earlier(
        &mut self,
        earlier: Earlier,
        step: &mut Step,
    ) -> BTreeMap<ContainerId, AllocationForm> {
        let Earlier { groups, mut places } = earlier;
        places.retain(|id, was| self.containers.get(id).is_some_and(|it| it.spec == was.spec));
        let made = std::mem::replace(&mut self.groups, groups);
        let is_over = |id: &&ContainerId| !self.groups.instances.contains_key(*id);
        self.groups.ended = made.instances.keys().filter(is_over).copied().collect();
        self.groups.members.retain(|id, _| places.contains_key(id));
        self.groups.unsettled = self.groups.instances.keys().copied().collect();
        self.groups.lacks_some = !self.groups.types.is_empty();
        self.groups.lacked_at = None;
        let changed =
            self.groups.instances.iter().filter(|(id, it)| made.instances.get(id) != Some(it));
        let changed: Vec<ContainerId> = changed.map(|(id, _)| *id).collect();
        for group in changed {
            self.emit(Change::Group(GroupChange::Amended(group)), step);
        }
        for (id, was) in &places {
            let is_elsewhere = self.place(*id).as_ref() != Some(&was.form);
            let Some(container) = self.containers.get_mut(id) else { continue };
            if is_elsewhere || container.decision.at != was.decision.at {
                container.decision = was.decision.clone();
                container.decision.outcome.push_str(BACK);
                container.touched = self.steps;
            }
        }
        places.into_iter().map(|(id, was)| (id, was.form)).collect()
    }

    /// The places of all containers, earlier ones where there are such; and apart from them those of containers with exclusive CPUs that others had earlier.
    fn with_earlier(&self, mut earlier: BTreeMap<ContainerId, AllocationForm>) -> (Places, Places) {
        let mut owned = CpuSet::new();
        earlier.values().for_each(|it| owned.union_with(&it.taken()));
        let ids: BTreeSet<ContainerId> = earlier.keys().copied().collect();
        let places =
            self.forms().into_iter().map(|(id, form)| (id, earlier.remove(&id).unwrap_or(form)));
        places.partition(|(id, form)| ids.contains(id) || !form.taken().intersects(&owned))
    }
}
