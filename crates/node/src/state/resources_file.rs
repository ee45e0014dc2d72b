//! Which files of `resources.sh` have changed with a step, and which containers still have one.

use std::collections::BTreeMap;

use bayplan_allocator::ContainerId;
use bayplan_types::CpuSet;

use super::NodeState;
use crate::container::Phase;
use crate::event::{RuntimeView, Step};
use crate::resources_file::{ResourcesFile, Variables, dir_name};

impl NodeState {
    /// Containers are told of their CPUs and memory nodes from now on.
    pub fn with_tellings(mut self, is_on: bool) -> NodeState {
        self.tellings.is_on = is_on;
        self
    }

    /// What has changed since the last time.
    pub(crate) fn note_files(&mut self, step: &mut Step) {
        if !self.tellings.is_on {
            return;
        }
        let mut told = BTreeMap::new();
        for (id, container) in &self.containers {
            let spec = &container.spec;
            let Some(dir) = dir_name(&spec.pod.id, &spec.name, spec.attempt) else { continue };
            let Some(text) = self.resources_text(*id) else { continue };
            if self.tellings.told.get(id) != Some(&text) {
                let is_new = container.phase == Phase::Creating;
                let (text, container) = (text.clone(), container.runtime_id.clone());
                step.files.changed.push(ResourcesFile { dir, container, text, is_new });
            }
            told.insert(*id, text);
        }
        self.tellings.told = told;
    }

    /// A container that has ended keeps its file until the runtime has removed it: its last process may still read it.
    pub(crate) fn note_kept_files(&self, view: &RuntimeView, step: &mut Step) {
        if !self.tellings.is_on {
            return;
        }
        let seen = view.containers.values().map(|it| dir_name(&it.pod_id, &it.name, it.attempt));
        let held = self.containers.values().map(|it| &it.spec);
        let held = held.map(|spec| dir_name(&spec.pod.id, &spec.name, spec.attempt));
        step.files.kept = Some(seen.chain(held).flatten().collect());
    }

    /// `None` for a container that has its CPUs left alone, because where it runs is not known.
    fn resources_text(&self, id: ContainerId) -> Option<String> {
        let allocation = self.ledger.allocation(id)?;
        let pinning = self.pinning(id)?;
        let pools = self.ledger.pools();
        if pinning.cpus.is_empty() {
            return None;
        }
        let own = match self.is_restored() {
            true => CpuSet::new(),
            false => allocation.exclusive.clone(),
        };
        let resources = Variables {
            shared: pinning.cpus.difference(&own),
            exclusive: own.difference(pools.isolated()),
            isolated: own.intersection(pools.isolated()),
            mems: pinning.mems,
        };
        Some(resources.render(|kind| pools.memory_of_kind(kind)))
    }
}
