//! What the daemon of this node is to have. In: the object that configures the node, and what the Node says. Out: how the daemon is told.

use crate::conditions::Applied;
use crate::object::ConfigObject;

/// Name and generation of the object, if there is one, and what the Node says of amplified CPUs.
pub(crate) type Key = (Option<(String, i64)>, Option<usize>);

/// What the daemon is to have.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// `None`: nothing in the cluster is for this node, and its file holds.
    pub(crate) object: Option<&'a ConfigObject>,
    /// What the Node says of amplified CPUs, in percent.
    pub(crate) amplification: Option<usize>,
}

impl Wanted<'_> {
    pub(crate) fn is_nothing(self) -> bool {
        self.object.is_none() && self.amplification.is_none()
    }

    /// How it ends where the daemon has it.
    pub(crate) fn applied(self) -> Applied {
        if self.object.is_some() { Applied::Holds } else { Applied::File }
    }

    /// Name and generation of the object that the daemon then is under.
    pub(crate) fn holds(self) -> Option<(String, i64)> {
        self.object.map(|it| (it.full_name(), it.generation))
    }

    pub(crate) fn key(self) -> Key {
        (self.holds(), self.amplification)
    }

    /// Where it is asked about, or given.
    pub(crate) fn path(self, path: &str) -> String {
        // Names of objects need no escapes.
        let object =
            self.object.map(|it| format!("name={}&generation={}", it.full_name(), it.generation));
        let percent = self.amplification.map(|it| format!("amplification_percent={it}"));
        let query: Vec<String> = object.into_iter().chain(percent).collect();
        format!("{path}?{}", query.join("&"))
    }

    pub(crate) fn text(self) -> String {
        self.object.map(|it| it.text.clone()).unwrap_or_default()
    }
}
