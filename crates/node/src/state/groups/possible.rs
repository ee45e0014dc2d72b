//! Whether types of groups can be had while these containers run. In: the state under them, and the state before. Out: what cannot be had, in words.
//!
//! Only what the change brings about counts: a container that was outside of its group before, and a group that was short of CPUs, are no reason to refuse one.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::ContainerId;
use bayplan_types::MilliCpu;

use crate::groups::{GroupType, Size};
use crate::lost::Lost;
use crate::state::NodeState;

/// So many are told; the others are counted.
const SHOWN_MAX: usize = 5;

/// A container that is in no group of the type that takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outside {
    /// A type takes it.
    Of(String),
    /// Its pod names one that it may not name, in words.
    Refused(String),
}

impl NodeState {
    /// What this state lacks of its types that it did not lack `before`, and what containers have `lost`. Nothing while no container is to be placed, and none is known.
    pub(crate) fn lacks_since(&self, before: &NodeState, lost: &[Lost]) -> Vec<String> {
        if !self.is_placing() || self.known.is_partial() {
            return Vec::new();
        }
        let were = before.outside();
        let are = self.outside();
        let new = are.into_iter().filter(|(id, it)| were.get(id) != Some(it)).collect();
        let mut lacking = self.missing_groups(before);
        lacking.extend(self.short_groups(before));
        lacking.extend(self.bounded_groups(before));
        lacking.extend(lost_places(&new, lost));
        lacking.extend(new.iter().map(|(id, outside)| self.why_outside(*id, outside)));
        let more = lacking.len().saturating_sub(SHOWN_MAX);
        lacking.truncate(SHOWN_MAX);
        lacking.extend((more > 0).then(|| format!("and {more} more")));
        lacking
    }

    /// Every container that is in no group of the type that takes it.
    fn outside(&self) -> BTreeMap<ContainerId, Outside> {
        let outside = self.containers.iter().filter_map(|(id, container)| {
            if let Err(why) = self.groups.type_of(&container.spec, &self.rules) {
                return Some((*id, Outside::Refused(why)));
            }
            let wanted = self.wanted_type(*id, &container.spec)?;
            let member = self.groups.members.get(id);
            let is = member.and_then(|it| self.groups.kind_of(it.group));
            let is_there = is.is_some_and(|it| it.name == wanted);
            (!is_there).then_some((*id, Outside::Of(wanted)))
        });
        outside.collect()
    }

    /// As its creation would be refused now.
    fn why_outside(&self, id: ContainerId, outside: &Outside) -> String {
        let name = self.containers.get(&id).map(|it| it.full_name()).unwrap_or_default();
        let kind = match outside {
            Outside::Refused(why) => return format!("{name}: {why}"),
            Outside::Of(kind) => kind,
        };
        let mut tried = self.clone();
        let held = tried.ledger.lift(id).map(|it| it.exclusive).unwrap_or_default();
        let spec = self.containers.get(&id).map(|it| Arc::clone(&it.spec));
        let refused = spec.and_then(|spec| tried.fit_newcomer(id, &spec, &held).err());
        let why = refused.unwrap_or_else(|| format!("no group of `{kind}` had room for it"));
        format!("{name}: {why}")
    }

    /// Types of which fewer groups are there than always are to be.
    fn missing_groups(&self, before: &NodeState) -> Vec<String> {
        let missing = |state: &NodeState, kind: &GroupType| {
            state.groups.of_kind(&kind.name).count() < kind.always()
        };
        let was_so = |kind: &GroupType| {
            before.groups.kind(&kind.name) == Some(kind) && missing(before, kind)
        };
        let types = self.groups.types.iter();
        let lacking = types.filter(|kind| missing(self, kind) && !was_so(kind)).map(|kind| {
            let (is, always) = (self.groups.of_kind(&kind.name).count(), kind.always());
            let made = self.clone().make_whole(kind, String::new(), MilliCpu::ZERO);
            let why = made.err().unwrap_or_else(|| "there was no room".to_owned());
            format!("`{}`: {is} of at least {always} groups can be had: {why}", kind.name)
        });
        lacking.collect()
    }

    /// Groups that have fewer CPUs than they are to have. A domain has what of it is open when it is made, so that is no reason.
    fn short_groups(&self, before: &NodeState) -> Vec<String> {
        let short = self.groups.short.difference(&before.groups.short);
        let short = short.filter_map(|id| {
            let kind = self.groups.kind_of(*id)?;
            let has = self.ledger.group_cpus(*id);
            let (needed, why) = match &kind.size {
                Size::Domain(_) => return None,
                Size::List(_) => {
                    let whole = self.whole_of(*id)?;
                    let lacking = whole.difference(&has);
                    (whole.len(), Some(format!("CPUs {lacking} are another container's")))
                }
                Size::Requests { .. } | Size::Fixed(_) => {
                    let needed = self.groups.needed(*id, Some(has.len())).ok()??;
                    // One that grows CPU by CPU has all that it could have.
                    let refused = self.clone().fit(*id).err();
                    (needed, refused.filter(|_| !kind.overloads()))
                }
            };
            Some(too_few(&self.group_name(*id), has.len(), needed, why.as_deref()))
        });
        short.collect()
    }

    /// Groups that have fewer CPUs than they are to have, and may not have more by their types. Those that had enough before keep them under a lowered maximum.
    fn bounded_groups(&self, before: &NodeState) -> Vec<String> {
        let bounded = self.groups.instances.keys().filter(|id| before.why_bounded(**id).is_none());
        bounded.filter_map(|id| self.why_bounded(*id)).collect()
    }

    /// Why a group may not grow to what its members request, or to its size; `None`: it may, or has as many.
    fn why_bounded(&self, id: ContainerId) -> Option<String> {
        let least = match self.groups.kind_of(id)?.size {
            Size::Fixed(size) => size,
            _ => self.groups.requested_cpus(id)?,
        };
        let has = self.ledger.group_cpus(id).len();
        let why = self.groups.needed(id, Some(has)).err().filter(|_| has < least)?;
        Some(too_few(&self.group_name(id), has, least, Some(&why)))
    }
}

/// What is told of a group that has `has` of the CPUs that it is to have.
fn too_few(name: &str, has: usize, needed: usize, why: Option<&str>) -> String {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    format!("{name} would have {has} CPUs and is to have {needed}{why}")
}

/// Containers that had to share instead of owning CPUs, or to be given up; those are left out of which more is said elsewhere.
fn lost_places(outside: &BTreeMap<ContainerId, Outside>, lost: &[Lost]) -> Vec<String> {
    let lost = lost.iter().filter(|it| !outside.contains_key(&it.id));
    lost.map(Lost::why_not).collect()
}
