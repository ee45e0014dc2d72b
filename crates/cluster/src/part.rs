//! What an agent publishes beside the BayplanNode, by choice.

use std::collections::BTreeSet;
use std::str::FromStr;

/// One thing that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The node's NodeResourceTopology.
    NodeTopology,
    /// Koordinator's annotations on it.
    Koordinator,
    /// Taints `bayplan.dev/not-ready` (taken away) and `bayplan.dev/draining`.
    Taints,
    /// CMK's label, taint and extended resources, where the configuration has its pools.
    Cmk,
    /// Power Manager's extended resources `power.intel.com/CLASS`.
    PowerClasses,
    /// Extended resources `bayplan.dev/group-TYPE`.
    Groups,
    /// A NodeFeature of Bayplan's own features.
    NodeFeature,
    /// The Node's condition `bayplan.dev/Placing`.
    Condition,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 8] = [
        Part::NodeTopology,
        Part::Koordinator,
        Part::Taints,
        Part::Cmk,
        Part::PowerClasses,
        Part::Groups,
        Part::NodeFeature,
        Part::Condition,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Part::NodeTopology => "node-topology",
            Part::Koordinator => "koordinator",
            Part::Taints => "taints",
            Part::Cmk => "cmk",
            Part::PowerClasses => "power-classes",
            Part::Groups => "groups",
            Part::NodeFeature => "node-feature",
            Part::Condition => "condition",
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let names = Part::ALL.map(Part::name).join(", ");
        let found = Part::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| format!("`{text}` cannot be published, expected {names}"))
    }
}

/// The parts that are published.
pub(crate) type Parts = BTreeSet<Part>;
