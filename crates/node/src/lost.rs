//! A container for which a plan for all containers has found no place like the one that it had. In: what the plan has found. Out: what the log is told of it, and what is told of a change that is
//! refused because of it.

use bayplan_allocator::ContainerId;

/// Ends what is told of a container that has lost the CPUs that it had.
const SHARES: &str = "; it shares from now on";

/// One such container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) id: ContainerId,
    /// `namespace/pod/container`.
    container: String,
    /// Why it has not what it had, in words.
    pub(crate) why: String,
    what: Loss,
}

/// What a container has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The CPUs that it had: it shares.
    Cpus,
    /// Any place: Bayplan has given it up.
    Place,
}

impl Lost {
    /// It shares from now on, for this reason.
    pub(crate) fn cpus(id: ContainerId, container: String, why: String) -> Lost {
        Lost { id, container, why, what: Loss::Cpus }
    }

    /// It has no place at all.
    pub(crate) fn place(id: ContainerId, container: String) -> Lost {
        let why = "it has no place on this machine".to_owned();
        Lost { id, container, why, what: Loss::Place }
    }

    /// What has become of it, for its decision.
    pub(crate) fn outcome(&self) -> String {
        match self.what {
            Loss::Cpus => format!("{}{SHARES}", self.why),
            Loss::Place => self.why.clone(),
        }
    }

    /// For the log.
    pub(crate) fn message(&self) -> String {
        format!("{}: {}", self.container, self.outcome())
    }

    /// Why a change cannot be had of which this would come: nothing has happened yet.
    pub(crate) fn why_not(&self) -> String {
        format!("{}: {}", self.container, self.why)
    }
}
