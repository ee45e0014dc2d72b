//! The topology for programs. A format of its own with a version, so that the types inside may change.

use serde::Serialize;

use crate::topology::{NumaNode, Object, Topology};

/// Value of `format`; a change that breaks readers gets a new number.
pub const JSON_FORMAT: &str = "bayplan-topology/1";

/// A machine. Sets are texts in the kernel's list form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopologyJson {
    /// [`JSON_FORMAT`].
    pub format: &'static str,
    /// [`Topology::fingerprint`], 16 hexadecimal digits.
    pub fingerprint: String,
    /// Online CPUs.
    pub cpus: String,
    /// Isolated CPUs.
    pub isolated: String,
    /// Offline CPUs.
    pub offline: String,
    /// The tree: parents before children.
    pub objects: Vec<ObjectJson>,
    /// CPUs of each core.
    pub cores: Vec<String>,
    /// NUMA nodes, by number.
    pub nodes: Vec<NodeJson>,
    /// What was odd.
    pub oddities: Vec<OddityJson>,
}

/// One object of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectJson {
    /// Position in the list.
    pub idx: u32,
    /// `Machine`, `Package`, `Die`, `NumaNode`, `L3` or `Core`.
    pub level: &'static str,
    /// The kernel's number.
    pub id: u32,
    /// Position of the parent; `null` for the machine.
    pub parent: Option<u32>,
    /// Its online CPUs.
    pub cpus: String,
    /// Its memory nodes.
    pub mems: String,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeJson {
    /// The kernel's number.
    pub id: u32,
    /// Its online CPUs.
    pub cpus: String,
    /// `null` when the kernel does not say.
    pub memory_bytes: Option<u64>,
    /// For a node without CPUs: the nearest one that has some.
    pub near: Option<u32>,
    /// To every node in the order of `nodes`; `null` when the kernel does not say.
    pub distances: Vec<Option<u32>>,
}

/// Something odd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OddityJson {
    /// The kernel file.
    pub path: String,
    /// What it holds.
    pub found: String,
    /// What was assumed.
    pub assumed: String,
}

/// The machine as a value that serializes to JSON.
pub fn to_json(topology: &Topology) -> TopologyJson {
    let oddities = topology.oddities().iter().map(|oddity| OddityJson {
        path: oddity.path.clone(),
        found: oddity.found.clone(),
        assumed: oddity.assumed.clone(),
    });
    TopologyJson {
        format: JSON_FORMAT,
        fingerprint: format!("{:016x}", topology.fingerprint()),
        cpus: topology.cpus().to_string(),
        isolated: topology.isolated().to_string(),
        offline: topology.offline().to_string(),
        objects: topology.objects().iter().map(object).collect(),
        cores: topology.cores().iter().map(ToString::to_string).collect(),
        nodes: topology.nodes().iter().map(|from| node(topology, from)).collect(),
        oddities: oddities.collect(),
    }
}

fn object(object: &Object) -> ObjectJson {
    ObjectJson {
        idx: object.idx.0,
        level: object.level.name(),
        id: object.id,
        parent: object.parent.map(|parent| parent.0),
        cpus: object.cpus.to_string(),
        mems: object.mems.to_string(),
    }
}

fn node(topology: &Topology, node: &NumaNode) -> NodeJson {
    let distances = topology.nodes().iter().map(|to| topology.distance(node.id, to.id));
    NodeJson {
        id: node.id.0,
        cpus: node.cpus.to_string(),
        memory_bytes: node.memory.map(|memory| memory.0),
        near: node.near.map(|near| near.0),
        distances: distances.collect(),
    }
}
