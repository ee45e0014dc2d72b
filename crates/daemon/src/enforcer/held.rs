//! What a container has in kernel files, for `explain`. In: what was wanted at the last look, and what came of it. Out: the files that are there for
//! its sake, and how far its CPUs are kept from all others.

use std::collections::BTreeMap;

use bayplan_enforcement::{FilePlan, Reclaim, Settings, Slot};
use bayplan_host::kernel::Report;
use bayplan_node::status::HeldFile;

use crate::enforcer::families::isolation::Isolations;

/// What the last look has brought about, for all containers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    settings: Settings,
    isolations: Isolations,
    /// Of values that are not as they should be, why.
    failures: BTreeMap<Slot, String>,
    /// What is written again and again, by the containers' full names, and the files.
    reclaims: BTreeMap<String, (String, HeldFile)>,
}

impl Held {
    /// `plan` is what was to be written, `report` what was.
    pub(crate) fn new(
        settings: Settings,
        isolations: Isolations,
        reclaims: &[Reclaim],
        plan: &FilePlan,
        report: &Report,
    ) -> Held {
        let reclaims = reclaims.iter();
        let reclaims = reclaims.map(|it| (it.member.unit.clone(), (it.path(), held_reclaim(it))));
        let (failures, reclaims) = (BTreeMap::new(), reclaims.collect());
        let mut held = Held { settings, isolations, failures, reclaims };
        for write in &plan.writes {
            held.failures.insert(write.slot.clone(), "it is not written now".to_owned());
        }
        // The last write of several is the one that counts.
        for (write, end) in &report.outcomes {
            match end {
                Ok(()) => held.failures.remove(&write.slot),
                Err(why) => held.failures.insert(write.slot.clone(), why.to_string()),
            };
        }
        for it in &plan.impossible {
            held.failures.insert(it.slot.clone(), it.why.clone());
        }
        held
    }

    /// Of two looks, one right after the other: what has failed is not tried a second time so soon, and the first one says why.
    pub(crate) fn after(mut self, first: &Held) -> Held {
        for (slot, why) in &mut self.failures {
            if let Some(earlier) = first.failures.get(slot) {
                why.clone_from(earlier);
            }
        }
        self
    }

    /// As it is in a dry run.
    pub(crate) fn without_reclaims(mut self) -> Held {
        for (_, file) in self.reclaims.values_mut() {
            file.failure = Some("it is not written now".to_owned());
        }
        self
    }

    /// How far the CPUs of a container are kept from others, and its files. `unreclaimed`: by files that are written again and again, why that failed.
    pub(crate) fn about(
        &self,
        container: &str,
        unreclaimed: &BTreeMap<String, String>,
    ) -> (Option<String>, Vec<HeldFile>) {
        let isolation = self.isolations.get(container).map(|it| {
            let failure = it.slot.as_ref().and_then(|slot| self.failures.get(slot));
            it.text(failure.map(String::as_str))
        });
        let own = self.settings.iter().filter(|(_, it)| it.unit == container);
        let files = own.map(|(slot, it)| HeldFile {
            slot: slot.to_string(),
            value: it.value.clone(),
            reason: it.reason.clone(),
            failure: self.failures.get(slot).cloned(),
        });
        let reclaim = self.reclaims.get(container).map(|(path, file)| HeldFile {
            failure: file.failure.clone().or_else(|| unreclaimed.get(path).cloned()),
            ..file.clone()
        });
        (isolation, files.chain(reclaim).collect())
    }
}

fn held_reclaim(reclaim: &Reclaim) -> HeldFile {
    HeldFile {
        slot: format!("/{}", reclaim.path()),
        value: reclaim.text(reclaim.class.bytes),
        reason: reclaim.reason(),
        failure: None,
    }
}
