//! How the daemon is reached, what it asks, and where it keeps things.

use bayplan_types::Bytes;
use bayplan_workload::annotations::Words;

use super::key::{Key, When};
use crate::config::FrontEnd;
use crate::kind::{Kind, OneOf};

const FRONT_END: &Words<FrontEnd> = &[("cri", FrontEnd::Cri), ("nri", FrontEnd::Nri)];

const MAP: &Words<bool> = &[("on", true), ("off", false)];

/// In the order of the documentation.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "frontEnd",
        when: When::Restart,
        kind: Kind::Word(&OneOf(FRONT_END, |it| &mut it.front_end)),
        text: "How Bayplan hears of pods and containers: kubelet's calls pass through it (cri), or the runtime asks it as a plugin (nri), and kubelet stays as it is.",
    },
    Key {
        name: "nri",
        when: When::Restart,
        kind: Kind::Section,
        text: "For frontEnd: nri. The runtime is still asked what runs, and told of changes, at runtimeSocket.",
    },
    Key {
        name: "nri.socket",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.nri_socket),
        text: "The runtime listens here for plugins.",
    },
    Key {
        name: "nri.index",
        when: When::Restart,
        kind: Kind::Count(0, 99, |it| &mut it.nri_index),
        text: "The place among the runtime's plugins, which are asked in ascending order; best after those that add devices.",
    },
    Key {
        name: "kubelet",
        when: When::Restart,
        kind: Kind::Section,
        text: "What kubelet knows of pods beside what it tells the runtime. A creation waits 50 ms at most for it, and nothing needs it.",
    },
    Key {
        name: "kubelet.podsSocket",
        when: When::Restart,
        kind: Kind::PathOr("off", |it| &mut it.kubelet_pods_socket),
        text: "Kubelet's PodsAPI (on by default since Kubernetes 1.37): exact requests, extended resources, and annotations that change while a pod runs.",
    },
    Key {
        name: "kubelet.podResourcesSocket",
        when: When::Restart,
        kind: Kind::PathOr("off", |it| &mut it.pod_resources_socket),
        text: "Kubelet's podresources API: the devices of containers, and the NUMA nodes that they are on.",
    },
    Key {
        name: "socket",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.socket),
        text: "Kubelet connects here (containerRuntimeEndpoint: unix:///run/bayplan/bayplan.sock).",
    },
    Key {
        name: "runtimeSocket",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.runtime_socket),
        text: "The runtime listens here; for CRI-O /run/crio/crio.sock.",
    },
    Key {
        name: "imageSocket",
        when: When::Restart,
        kind: Kind::PathOr("runtimeSocket", |it| &mut it.image_socket),
        text: "Where image calls go, if they do not go to the runtime (kubelet's imageServiceEndpoint).",
    },
    Key {
        name: "controlSocket",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.control_socket),
        text: "bayplan status and the other commands that ask the daemon connect here.",
    },
    Key {
        name: "controlGroup",
        when: When::Restart,
        kind: Kind::Group(|it| &mut it.control_group),
        text: "The group that may connect there beside root, by name or number; one of a directory service by number. It may change where containers run.",
    },
    Key {
        name: "stateDir",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.state_dir),
        text: "Holds the journal and the history. One daemon at a time.",
    },
    Key {
        name: "historySize",
        when: When::Restart,
        kind: Kind::Size(Bytes(1 << 20), Bytes::gib(64), |it| &mut it.history_max),
        text: "What the history may have on disk, for `bayplan journal` and `bayplan replay`; the oldest goes first.",
    },
    Key {
        name: "metricsAddress",
        when: When::Restart,
        kind: Kind::Address(|it| &mut it.metrics_address),
        text: "Prometheus scrapes http://ADDRESS/metrics; off turns it off. On a loopback address /api/v1/status is served, too.",
    },
    Key {
        name: "map",
        when: When::Restart,
        kind: Kind::Word(&OneOf(MAP, |it| &mut it.has_map)),
        text: "The live map of the node, a page at http://ADDRESS/map while metricsAddress is a loopback address, with what happened before: on or off.",
    },
];
