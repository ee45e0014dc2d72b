//! What the history is told of the state. Nothing here changes anything.

use bayplan_allocator::{Allocation, ContainerId};
use bayplan_types::{CpuSet, Pinning};
use bayplan_workload::{NewContainer, Resources};
use jiff::Timestamp;

use crate::container::Container;
use crate::decision::Decision;
use crate::event::{Note, Step};
use crate::groups::GroupForm;
use crate::history::{By, ContainerNames, Entry, Kind, MachineForm, NodeForm, Place};
use crate::record::ContainerForm;
use crate::state::NodeState;

/// Failures that the entry of the container tells of as warnings.
const OF_CONTAINER: [&str; 8] = [
    "not_understood",
    "no_effect",
    "not_allowed",
    "unknown_class",
    "over_ceiling",
    "reserved_full",
    "no_capacity",
    "huge_pages",
];

impl NodeState {
    /// Names a container that is there.
    pub(crate) fn names_of(&self, id: ContainerId) -> Option<ContainerNames> {
        let Container { spec, runtime_id, .. } = self.containers.get(&id)?;
        Some(ContainerNames { id: Some(id.0), runtime_id: runtime_id.clone(), ..names(spec) })
    }

    /// Where it is.
    pub(super) fn place_now(&self, id: ContainerId) -> Option<Place> {
        let held = self.ledger.allocation(id)?;
        let group = self.groups.name_for(id).unwrap_or_default();
        Some(Place { group, ..self.place_of(held, self.pinning(id).unwrap_or_default()) })
    }

    /// Where it was, with CPUs and memory nodes as far as it was told of any.
    pub(crate) fn place_before(&self, id: ContainerId, held: &Allocation) -> Place {
        let runtime_id = self.containers.get(&id).and_then(|it| it.runtime_id.as_ref());
        let told = runtime_id.and_then(|it| self.told.get(it)).cloned();
        self.place_of(held, told.unwrap_or_default())
    }

    pub(crate) fn place_of(&self, held: &Allocation, Pinning { cpus, mems }: Pinning) -> Place {
        let pool = self.ledger.pools().get(held.pool);
        Place {
            pool: match held.is_reserved {
                true => "reserved".to_owned(),
                false => pool.map(|pool| pool.name.clone()).unwrap_or_default(),
            },
            own: held.exclusive.to_string(),
            cpus: cpus.to_string(),
            mems: mems.to_string(),
            group: String::new(),
        }
    }

    /// A container came: it was placed, or adopted from where it ran.
    pub(super) fn arrival(&self, id: ContainerId, found: Option<&Pinning>) -> Option<Entry> {
        let Container { spec, decision, .. } = self.containers.get(&id)?;
        let before = found.map(|Pinning { cpus, mems }| Place {
            cpus: cpus.to_string(),
            mems: mems.to_string(),
            ..Place::default()
        });
        Some(Entry {
            who: self.names_of(id),
            before,
            after: self.place_now(id),
            spec: Some(Box::new(ContainerForm::from(&**spec))),
            ..decided(if found.is_some() { Kind::Adopted } else { Kind::Placed }, decision)
        })
    }

    /// There is no place for what it asks for, or for what it was to be `resized` to.
    pub(super) fn refusal(
        &self,
        spec: &NewContainer,
        decision: &Decision,
        resized: Option<(ContainerId, Resources)>,
    ) -> Entry {
        let (id, update) = resized.unzip();
        Entry {
            who: id.and_then(|id| self.names_of(id)).or_else(|| Some(names(spec))),
            before: id.and_then(|id| self.place_now(id)),
            spec: id.is_none().then(|| Box::new(ContainerForm::from(spec))),
            resources: update.map(Into::into),
            ..decided(Kind::Refused, decision)
        }
    }

    /// The runtime has not made a resize, and what the container had before is `lacking`. Where it goes back, that was a resize.
    pub(super) fn undoing(&self, id: ContainerId, lacking: Option<Resources>) -> Option<Entry> {
        let Container { spec, decision, .. } = self.containers.get(&id)?;
        Some(self.refusal(spec, decision, Some((id, lacking?))))
    }

    /// Kubelet has changed what it may have; it was at `before`.
    pub(super) fn resizing(
        &self,
        id: ContainerId,
        before: Place,
        update: Resources,
    ) -> Option<Entry> {
        Some(Entry {
            who: self.names_of(id),
            before: Some(before),
            after: self.place_now(id),
            resources: Some(update.into()),
            ..decided(Kind::Resized, &self.containers.get(&id)?.decision)
        })
    }

    /// Kubelet has changed what the pod of this container needs as a whole.
    pub(super) fn pod_resizing(&self, id: ContainerId, needs: Resources) -> Option<Entry> {
        let resources = Some(needs.into());
        Some(Entry { who: Some(self.names_of(id)?), resources, ..Entry::new(Kind::PodResized) })
    }

    /// Annotations that count while it runs have changed.
    pub(super) fn annotating(&self, id: ContainerId, why: String) -> Option<Entry> {
        let warnings = self.containers.get(&id)?.decision.warnings.clone();
        Some(Entry { who: Some(self.names_of(id)?), why, warnings, ..Entry::new(Kind::Annotated) })
    }

    /// It is somewhere else.
    pub(super) fn relocation(&self, id: ContainerId, by: By, before: Place, why: &str) -> Entry {
        Entry {
            who: self.names_of(id),
            by: Some(by),
            before: Some(before),
            after: self.place_now(id),
            why: why.to_owned(),
            ..Entry::new(Kind::Moved)
        }
    }

    /// Its CPUs and memory nodes could not be written, or were not, because another container has not left CPUs of it.
    pub(super) fn failed_write(&self, id: ContainerId, is_withheld: bool) -> Option<Entry> {
        let why = match is_withheld {
            true => {
                "it was not given CPUs that another container has not let go of; the runtime is asked, and it is tried again"
            }
            false => "its CPUs could not be written; the runtime is asked, and it is tried again",
        };
        let after = self.place_now(id);
        Some(Entry { who: Some(self.names_of(id)?), after, ..Entry::failure(why.to_owned()) })
    }

    /// Its sets are not those that it was told.
    pub(super) fn changed_by_others(&self, id: ContainerId, why: &str) -> Option<Entry> {
        let why = format!("{why}: another program has changed that; the runtime is told again");
        let after = self.place_now(id);
        Some(Entry { who: Some(self.names_of(id)?), after, ..Entry::failure(why) })
    }

    /// It shares fewer CPUs than before.
    pub(super) fn squeezing(&self, id: ContainerId, before: Place, why: &str) -> Entry {
        let (who, after) = (self.names_of(id), self.place_now(id));
        let before = Some(before);
        Entry { who, before, after, why: why.to_owned(), ..Entry::new(Kind::Squeezed) }
    }

    /// The machine as it is now.
    pub(super) fn machine_entry(&self) -> Entry {
        let machine = MachineForm {
            fingerprint: self.fingerprint.clone(),
            cpus: self.ledger.pools().cpus().to_string(),
            files: self.origin.machine.as_ref().map(|files| files.as_ref().to_owned()),
            reserved: Some(self.machine.reserved().to_string()),
        };
        Entry { machine: Some(Box::new(machine)), ..Entry::new(Kind::Machine) }
    }

    /// What a history begins with.
    pub fn opening_of_start(&self, now: Timestamp) -> Vec<Entry> {
        self.opening(Kind::Started, now)
    }

    /// What a segment begins with while the daemon runs.
    pub fn opening_of_segment(&self, now: Timestamp) -> Vec<Entry> {
        self.opening(Kind::Continued, now)
    }

    /// Another configuration holds, with these CPUs reserved; or the earlier one again.
    pub(super) fn configuring(&self, reserved: &CpuSet, is_taken_back: bool) -> Entry {
        let mut entry = self.node_entry(Kind::Configured);
        if let Some(node) = &mut entry.node {
            node.reserved = Some(reserved.to_string());
            node.is_taken_back = is_taken_back;
        }
        entry
    }

    /// The configuration as it is now, and the containers that are there.
    fn node_entry(&self, kind: Kind) -> Entry {
        let node = NodeForm {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: self.origin.config.as_ref().to_owned(),
            mode: self.mode(),
            reserved: Some(self.machine.reserved().to_string()),
            live: self.containers.ids().map(|id| id.0).collect(),
            groups: self.groups.instances.iter().map(|(id, it)| GroupForm::new(*id, it)).collect(),
            is_taken_back: false,
        };
        Entry { node: Some(Box::new(node)), ..Entry::new(kind) }
    }

    /// Everything that has to be known to understand what is told from now on.
    fn opening(&self, kind: Kind, now: Timestamp) -> Vec<Entry> {
        let node = self.node_entry(kind);
        let held = self.containers.iter().filter_map(|(id, container)| {
            Some(Entry {
                who: self.names_of(*id),
                after: self.place_now(*id),
                spec: Some(Box::new(ContainerForm::from(&*container.spec))),
                allocation: Some(Box::new(self.place(*id)?)),
                ..decided(Kind::Held, &container.decision)
            })
        });
        let mut opening: Vec<Entry> =
            [self.machine_entry(), node].into_iter().chain(held).collect();
        stamp(&mut opening, now);
        opening
    }

    /// Failures are told last, and everything gets its time.
    pub(crate) fn finish_entries(step: &mut Step, now: Timestamp) {
        let failures = step.notes.iter().filter_map(|note| match note {
            Note::Failure { kind, message } if !OF_CONTAINER.contains(kind) => {
                Some(Entry::failure(format!("{kind}: {message}")))
            }
            _ => None,
        });
        step.history.extend(failures);
        stamp(&mut step.history, now);
    }
}

/// It has given everything back.
pub(super) fn departure(names: ContainerNames, before: Option<Place>, why: String) -> Entry {
    Entry { who: Some(names), before, why, ..Entry::new(Kind::Ended) }
}

fn stamp(entries: &mut [Entry], now: Timestamp) {
    for entry in entries {
        entry.at = now;
    }
}

/// A container that has no id yet.
fn names(spec: &NewContainer) -> ContainerNames {
    ContainerNames {
        id: None,
        namespace: spec.pod.namespace.clone(),
        pod: spec.pod.name.clone(),
        container: spec.name.clone(),
        attempt: spec.attempt,
        qos: spec.pod.qos.map(|qos| qos.name().to_owned()),
        runtime_id: None,
    }
}

fn decided(kind: Kind, decision: &Decision) -> Entry {
    Entry {
        asked: decision.asked.clone(),
        why: decision.outcome.clone(),
        warnings: decision.warnings.clone(),
        ..Entry::new(kind)
    }
}
