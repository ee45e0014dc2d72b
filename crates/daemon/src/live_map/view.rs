//! The map at one moment. In: a [`Status`], or what the history tells. Out: which container holds which CPUs.

use jiff::Timestamp;
use serde::Serialize;

use bayplan_node::status::{ContainerStatus, Status};

/// Names the format.
pub(crate) const FORMAT: &str = "bayplan-map/1";

/// What is where; format `bayplan-map/1`. CPU and node sets are lists in the kernel's form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MapView {
    pub(crate) format: &'static str,
    /// When it was so.
    pub(crate) at: Timestamp,
    /// The history's entry after which it was so; absent for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<String>,
    /// The configuration under which it would be so; of the map as it is now, that of which pages can see the map. Absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) what_if: Option<String>,
    /// When the map under that configuration was made; of the map as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) what_if_at: Option<Timestamp>,
    /// `placing`, `draining` or `restored`.
    pub(crate) mode: String,
    /// Names the machine's shape; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    pub(crate) reserved: String,
    pub(crate) isolated: String,
    /// Left idle for containers that hold other threads of their cores.
    pub(crate) idle: String,
    /// Shared, and closed to other exclusive containers.
    pub(crate) closed: String,
    /// Of an exclusive container that lends them to BestEffort containers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) lent: String,
    pub(crate) pools: Vec<MapPool>,
    /// By type and number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<MapGroup>,
    /// By name.
    pub(crate) containers: Vec<MapContainer>,
}

/// A group of containers with a common CPU set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MapGroup {
    /// Its type and number.
    pub(crate) name: String,
    /// All of its CPUs.
    pub(crate) cpus: String,
    /// Those that its members share.
    pub(crate) shared: String,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MapPool {
    pub(crate) name: String,
    pub(crate) cpus: String,
    /// Those that run shared containers.
    pub(crate) shared: String,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MapContainer {
    /// `namespace/pod/container`.
    pub(crate) name: String,
    pub(crate) qos: String,
    /// `exclusive`, `shared` or `reserved`.
    pub(crate) class: String,
    /// Empty in the past.
    pub(crate) phase: String,
    pub(crate) asked: String,
    /// CPUs of its own.
    pub(crate) own: String,
    /// CPUs that it runs on.
    pub(crate) cpus: String,
    pub(crate) mems: String,
    pub(crate) pool: String,
    /// Its group; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    /// Where it does not have what was asked for it, and which other containers run on its CPUs, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) problems: Vec<String>,
}

impl MapView {
    /// Now.
    pub(crate) fn of_status(status: &Status, fingerprint: String, at: Timestamp) -> MapView {
        let cpus = &status.cpus;
        let pools = status.pools.iter().map(|pool| MapPool {
            name: pool.name.clone(),
            cpus: pool.cpus.clone(),
            shared: pool.shared_cpus.clone(),
        });
        let groups = status.groups.iter().map(|group| MapGroup {
            name: group.name.clone(),
            cpus: group.cpus.clone(),
            shared: group.shared_cpus.clone(),
        });
        MapView {
            format: FORMAT,
            at,
            entry: None,
            what_if: None,
            what_if_at: None,
            mode: status.mode.name().to_owned(),
            fingerprint: Some(fingerprint),
            reserved: cpus.reserved.clone(),
            isolated: cpus.isolated.clone(),
            idle: cpus.idle.clone(),
            closed: cpus.closed.clone(),
            lent: cpus.lent.clone(),
            pools: pools.collect(),
            groups: groups.collect(),
            containers: status.containers.iter().map(MapContainer::from).collect(),
        }
    }
}

impl From<&ContainerStatus> for MapContainer {
    fn from(it: &ContainerStatus) -> MapContainer {
        let own = [&it.exclusive, &it.exclusive_of_pod].into_iter().find(|it| !it.is_empty());
        MapContainer {
            name: it.full_name(),
            qos: it.qos.clone().unwrap_or_default(),
            class: it.class.clone(),
            phase: it.phase.clone(),
            asked: it.asked.clone(),
            own: own.cloned().unwrap_or_default(),
            cpus: it.cpus_text().to_owned(),
            mems: it.mems_text().to_owned(),
            pool: it.pool.clone(),
            group: it.group.clone(),
            problems: if it.is_off() { it.holds_texts() } else { Vec::new() },
        }
    }
}
