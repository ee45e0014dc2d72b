//! What a step tells the log and the metrics. Values only.

use bayplan_types::{CpuClass, QosClass};

use crate::history::By;
use crate::mode::Mode;

/// Something worth a log line and a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A container was placed.
    Placed {
        /// `namespace/pod/container`.
        container: String,
        /// Its CPUs.
        cpus: String,
        /// Its pool.
        pool: String,
        /// Class of its CPUs.
        class: CpuClass,
        /// Its QoS class.
        qos: Option<QosClass>,
    },
    /// No pool can hold it.
    Refused {
        /// `namespace/pod/container`.
        container: String,
        /// Why.
        why: String,
    },
    /// A resize was refused as before.
    RefusedAgain {
        /// `namespace/pod/container`.
        container: String,
        /// Why.
        why: String,
        /// How often until now.
        times: u64,
    },
    /// A resize that was refused is not asked for any more.
    RefusalsOver {
        /// `namespace/pod/container`.
        container: String,
        /// How often it was refused.
        times: u64,
        /// What has become of it.
        how: &'static str,
    },
    /// A container that bayplan did not place was taken over.
    Adopted {
        /// `namespace/pod/container`.
        container: String,
        /// How.
        how: String,
    },
    /// A container gave everything back.
    Released {
        /// `namespace/pod/container`.
        container: String,
        /// Why.
        why: String,
    },
    /// A container that owns CPUs got others.
    Moved {
        /// `namespace/pod/container`.
        container: String,
        /// For what.
        by: By,
        /// Its CPUs until then.
        from: String,
        /// Its CPUs from then on.
        to: String,
        /// What for, and what it costs.
        why: String,
    },
    /// A container has fewer memory nodes.
    Narrowed {
        /// `namespace/pod/container`.
        container: String,
        /// Its memory nodes until then.
        from: String,
        /// Its memory nodes from then on.
        to: String,
        /// What for, and what it may cost.
        why: String,
    },
    /// A container's cold start is over.
    Warmed {
        /// `namespace/pod/container`.
        container: String,
        /// Its memory nodes until then.
        from: String,
        /// Its memory nodes from then on.
        to: String,
    },
    /// An operator has chosen another mode.
    ModeChanged {
        /// The one until then.
        from: Mode,
        /// The one from then on.
        to: Mode,
    },
    /// CPUs or memory nodes came or went, and every container that had to move has another place.
    MachineChanged {
        /// All that are online now.
        cpus: String,
        /// Those that were not before.
        came: String,
        /// Those that are no longer.
        went: String,
        /// Containers that were placed anew.
        moved: usize,
        /// Containers for which there was no place, and which share.
        displaced: usize,
    },
    /// Another configuration holds.
    ConfigChanged {
        /// Containers that are elsewhere because of it.
        moved: usize,
    },
    /// A group was made, has other CPUs, or is over.
    GroupChanged {
        /// Its type and number.
        group: String,
        /// Its CPUs from then on; empty when it is over.
        cpus: String,
    },
    /// The files that tell of a change did so, and it is the same machine.
    MachineUnchanged,
    /// Something that an operator should know. `kind` is a fixed word.
    Failure {
        /// For the metric.
        kind: &'static str,
        /// For the log.
        message: String,
    },
}
