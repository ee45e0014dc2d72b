//! Which source configures a node. In: the node, Bayplan's own objects, and those of other systems. Out: one of them, or the node's file.
//!
//! Bayplan's own objects go before those of other systems, and all of them before the file.

use crate::foreign::{Accepted, ForeignChoice, ForeignName, ForeignObject, Found, choose_foreign};
use crate::object::{ConfigObject, NodeObject};
use crate::precedence::{Choice, GROUP_LABEL, choose};

/// What configures a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Chosen<'a> {
    /// Not everything that decides is known yet.
    Unknown,
    /// A BayplanConfig.
    Object(&'a ConfigObject),
    /// An object of another system.
    Foreign(&'a ForeignName, &'a ForeignObject),
    /// The node's group has no object: the one that is missing, and the label with the group.
    Missing { object: String, label: &'static str },
    /// Objects of which each would count, by their full names.
    Several(String),
    /// The node's file alone.
    File,
}

/// Chooses for a node.
pub(crate) fn choose_source<'a>(
    node: &NodeObject,
    configs: &'a [ConfigObject],
    accepted: &[Accepted],
    found: &'a Found,
) -> Chosen<'a> {
    match choose(node, configs) {
        Choice::Object(object) => return Chosen::Object(object),
        Choice::Missing(name) => {
            let object = ConfigObject::empty(&name, 0).full_name();
            return Chosen::Missing { object, label: GROUP_LABEL };
        }
        Choice::File => {}
    }
    match choose_foreign(accepted, node, found) {
        ForeignChoice::Unknown => Chosen::Unknown,
        ForeignChoice::Object(name, object) => Chosen::Foreign(name, object),
        ForeignChoice::Missing(object, label) => Chosen::Missing { object, label },
        ForeignChoice::Several(names) => Chosen::Several(names),
        ForeignChoice::Nothing => Chosen::File,
    }
}
