//! Another configuration while containers run: the state goes on under it, or a copy does, to say which containers would have to move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_allocator::{ContainerId, Pools};
use jiff::Timestamp;

use super::NodeState;
use crate::change::{Change, NodeChange};
use crate::container::Container;
use crate::event::{Answer, Note, Step};
use crate::history::By;
use crate::reconfigure::{ChangedConfig, Shift};

/// Where a container is: its own CPUs, all, and its memory nodes.
pub(super) type Place = (String, String, String);

impl NodeState {
    /// Goes on under another configuration. One with types of groups that cannot be had changes nothing.
    pub(crate) fn config_changed(&mut self, config: ChangedConfig, now: Timestamp) -> Step {
        self.earlier = None;
        if self.groups.types == config.groups {
            return self.go_on_under(config, now);
        }
        let mut after = self.clone();
        let step = after.go_on_under(config, now);
        let lacking = after.lacks_since(self, &step.lost);
        if !lacking.is_empty() {
            return Step::new(Answer::NotPossible(lacking));
        }
        after.earlier = Some(Box::new(self.to_earlier()));
        *self = after;
        step
    }

    /// The same whatever comes of it.
    pub(super) fn go_on_under(&mut self, config: ChangedConfig, now: Timestamp) -> Step {
        let places = self.places();
        let mut step = Step::new(Answer::Done);
        let mut sent_away = self.take_rules(&config, &mut step);
        let are_regrouped = self.groups.types != config.groups;
        if are_regrouped {
            sent_away.extend(self.change_groups(Arc::clone(&config.groups)));
        }
        self.take_settings(&config, false, &mut step);
        let not_alone = self.not_alone();
        if config.machine.pools != *self.machine || !sent_away.is_empty() || are_regrouped {
            let places = self.forms();
            self.replan_all(&places, config.machine, By::Config, &sent_away, now, &mut step);
        }
        self.note_not_alone(&not_alone, &mut step);
        // Groups that the new types want more, fewer or other CPUs for move containers, too.
        self.settle_groups(&mut step);
        let shifts = self.shifts(&places);
        step.notes.push(Note::ConfigChanged { moved: shifts.len() });
        step.answer = Answer::Shifts(shifts);
        step.answers_after_plan = true;
        step
    }

    /// Takes over its rules; gives containers that come to the reserved CPUs or leave them because of that, and why.
    pub(super) fn take_rules(
        &mut self,
        config: &ChangedConfig,
        step: &mut Step,
    ) -> BTreeMap<ContainerId, String> {
        let were = self.wanting_reserved(self.ledger.pools());
        let kept = self.keeping_chosen();
        self.rules = config.rules.clone();
        self.note_kept_chosen(&kept, step);
        let are = self.wanting_reserved(&config.machine.pools);
        self.sent_away(&were, &are)
    }

    /// Takes over what moves no container by itself.
    pub(super) fn take_settings(
        &mut self,
        config: &ChangedConfig,
        is_taken_back: bool,
        step: &mut Step,
    ) {
        self.compactor.reconfigure(config.compaction);
        self.narrower.reconfigure(config.narrows_memory);
        self.on_no_capacity = config.on_no_capacity;
        self.doubt_grace = config.doubt_grace;
        if *self.origin.config != *config.text {
            self.origin.config = config.text.as_str().into();
            let reserved = config.machine.pools.reserved();
            let change = NodeChange::Configured { reserved, is_taken_back };
            self.emit(Change::Node(change), step);
        }
    }

    /// Dry run: which containers would be elsewhere under another configuration.
    pub(crate) fn preview_config(&self, config: ChangedConfig, now: Timestamp) -> Step {
        let mut copy = self.clone();
        Step::new(copy.config_changed(config, now).answer)
    }

    /// Dry run: which containers would be elsewhere under another configuration, and what would be where.
    pub(crate) fn preview_status(&self, config: ChangedConfig, now: Timestamp) -> Step {
        let mut copy = self.clone();
        Step::new(match copy.config_changed(config, now).answer {
            Answer::Shifts(shifts) => Answer::WhatIf(shifts, Box::new(copy.status())),
            other => other,
        })
    }

    /// Containers that are to run on the reserved CPUs of these pools, if there are any.
    fn wanting_reserved(&self, pools: &Pools) -> BTreeSet<ContainerId> {
        if pools.reserved().is_empty() {
            return BTreeSet::new();
        }
        let wants = |(id, container): (&ContainerId, &Container)| {
            self.request(*id, &container.spec).0.is_reserved.then_some(*id)
        };
        self.containers.iter().filter_map(wants).collect()
    }

    /// Containers that are not to be where they are, and why.
    fn sent_away(
        &self,
        were: &BTreeSet<ContainerId>,
        are: &BTreeSet<ContainerId>,
    ) -> BTreeMap<ContainerId, String> {
        let sent_away = were.symmetric_difference(are).filter_map(|id| {
            let is = are.contains(id);
            let why = match is {
                true => "its place is on the reserved CPUs now",
                false => "its place is no longer on the reserved CPUs",
            };
            let held = self.ledger.allocation(*id)?;
            (held.is_reserved != is).then(|| (*id, why.to_owned()))
        });
        sent_away.collect()
    }

    pub(super) fn places(&self) -> BTreeMap<ContainerId, Place> {
        let place = |id: &ContainerId| {
            let held = self.ledger.allocation(*id)?;
            let pinning = self.pinning(*id)?;
            let texts =
                (held.exclusive.to_string(), pinning.cpus.to_string(), pinning.mems.to_string());
            Some((*id, texts))
        };
        self.containers.ids().filter_map(place).collect()
    }

    /// Containers that are no longer where they were.
    pub(super) fn shifts(&self, before: &BTreeMap<ContainerId, Place>) -> Vec<Shift> {
        let after = self.places();
        let mut shifts = Vec::new();
        for (id, from) in before {
            let Some((to, container)) = after.get(id).zip(self.containers.get(id)) else {
                continue;
            };
            if from != to {
                shifts.push(Shift {
                    container: container.full_name(),
                    exclusive_from: from.0.clone(),
                    exclusive_to: to.0.clone(),
                    cpus_from: from.1.clone(),
                    cpus_to: to.1.clone(),
                    mems_from: from.2.clone(),
                    mems_to: to.2.clone(),
                });
            }
        }
        shifts.sort_by(|a, b| a.container.cmp(&b.container));
        shifts
    }
}
