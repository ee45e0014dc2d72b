//! Containers that use wide vectors in a clock domain where their strategy does not want them. In: the scene and the last rounds. Out: evidence for each, of which a proposal is made as of any
//! other: none suffers, so it is not detected from what is usual.

use bayplan_allocator::ContainerId;

use crate::detect::{Judge, median};
use crate::proposal::{Evidence, Finding};
use crate::sample::Signal;
use crate::scene::{Mode, Scene};

/// Between none and one container, so that one by which another domain is better is twice the limit, which is worth a move.
const LIMIT: f64 = 0.5;

impl Judge<'_> {
    /// Those that were so for the short window, and not lately moved.
    pub(crate) fn badly_clocked(&self, scene: &Scene) -> Vec<Evidence> {
        scene.clocks.keys().filter_map(|id| self.bad_clock(scene, *id)).collect()
    }

    fn bad_clock(&self, scene: &Scene, id: ContainerId) -> Option<Evidence> {
        let resident = scene.residents.get(&id).filter(|it| it.mode != Mode::Off)?;
        if self.now < resident.since + self.settings.warm_up || !self.is_active(id) {
            return None;
        }
        let rounds = self.windows.of(id, resident.since).take(self.settings.short);
        let values: Vec<Option<f64>> = rounds.map(|it| Signal::Clock.of(it?)).collect();
        let is_full = values.len() >= self.settings.short;
        let short = median(values.iter()).filter(|it| is_full && *it > LIMIT)?;
        let (signal, limit) = (Signal::Clock, LIMIT);
        let finding = Finding { signal, short, long: short, usual: None, limit, spread: 0.0 };
        Some(Evidence { victim: id, findings: vec![finding], culprits: Vec::new() })
    }
}
