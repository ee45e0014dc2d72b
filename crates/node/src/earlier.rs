//! Groups and places before a change of group types. What follows from them: `state/taken_back.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::ContainerId;
use bayplan_workload::NewContainer;

use crate::decision::Decision;
use crate::groups::Groups;
use crate::record::AllocationForm;

/// Groups and places before a change.
#[derive(Clone, Debug)]
pub(crate) struct Earlier {
    pub(crate) groups: Groups,
    pub(crate) places: BTreeMap<ContainerId, EarlierPlace>,
}

/// Where a container was, and for which resources.
#[derive(Clone, Debug)]
pub(crate) struct EarlierPlace {
    pub(crate) form: AllocationForm,
    pub(crate) spec: Arc<NewContainer>,
    pub(crate) decision: Decision,
}
