//! What the state knows of the containers that run, and what may be done with that: the one rule for the time before the first sync.
//!
//! ```text
//!          journal damaged, missing, foreign,             journal whole
//!          or left by a daemon that was Partial               │
//!                        ▼                                    ▼
//!                     Partial                             Journaled
//!   grants nothing (UNAVAILABLE), writes nothing │  asks the runtime before each grant; where that fails, grants by the journal
//!                        └───── first sync ──▶ Synced ◀── first sync ─┘
//! ```
//!
//! With [`Known::Partial`], a container that runs may own CPUs that no record names, so neither exclusive CPUs nor a shared set can be
//! given without perhaps taking that container's. With [`Known::Journaled`], the journal may still lack what was made past the daemon;
//! so a holder that the first sync finds running goes before whatever was granted meanwhile, which is placed again.
//!
//! A first view that leaves some containers undescribed keeps [`Known::Partial`] for a while; `/readyz` says so, and the runtime is asked again every few seconds.
//!
//! The journal's `machine` record says whether its writer was [`Known::Partial`], so that a second restart does not take the rewritten
//! file for a whole one.

use std::collections::BTreeSet;

use bayplan_allocator::ContainerId;
use bayplan_workload::Admission;
use jiff::{SignedDuration, Timestamp};

use crate::event::Answer;
use crate::record::Live;

/// What a call is answered with [`Known::Partial`].
pub(crate) const NOT_KNOWN: &str = "bayplan: the journal is missing or damaged, and the runtime has not told yet what runs: CPUs that are \
     given now may be a running container's; try again (see /readyz and `onFailure`)";

/// Containers that run and that the runtime fails to describe keep the state [`Known::Partial`] for this long after the first view.
pub(crate) const UNDESCRIBED_PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// The runtime has told what runs.
    #[default]
    Synced,
    /// A whole journal was read.
    Journaled {
        /// Placed or resized since.
        granted: BTreeSet<ContainerId>,
    },
    /// No whole journal of this machine was read.
    Partial {
        /// When the runtime told for the first time what runs, without describing all of it.
        first_view: Option<Timestamp>,
    },
}

/// What is done with a call that needs CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is decided.
    Decide,
    /// The runtime is asked, and then it is decided.
    AskFirst,
    /// It is answered with `UNAVAILABLE`.
    Wait,
}

impl Known {
    /// After a journal was read; `is_torn`: lines of it were dropped. A journal without a `machine` record is missing, empty or cut off.
    pub fn after_reading(is_torn: bool, live: &Live, fingerprint: &str) -> Known {
        let is_of_this_machine = live.fingerprint.as_deref() == Some(fingerprint);
        let is_whole = !is_torn && live.unreadable == 0 && !live.is_partial && is_of_this_machine;
        match is_whole {
            true => Known::Journaled { granted: BTreeSet::new() },
            false => Known::Partial { first_view: None },
        }
    }

    /// `is_final`: the runtime was asked, or could not be.
    pub(crate) fn verdict(&self, is_final: bool) -> Verdict {
        match self {
            Known::Journaled { .. } if !is_final => Verdict::AskFirst,
            Known::Synced | Known::Journaled { .. } => Verdict::Decide,
            Known::Partial { .. } => Verdict::Wait,
        }
    }

    /// The answer to a call that is not decided now.
    pub(crate) fn answer(&self, is_final: bool) -> Option<Answer> {
        match self.verdict(is_final) {
            Verdict::Decide => None,
            Verdict::AskFirst => Some(Answer::AskFirst),
            Verdict::Wait => Some(Answer::Admission(Admission::Unavailable(NOT_KNOWN.to_owned()))),
        }
    }

    /// No pinning is written: a shared set may hold CPUs of an owner that is not known.
    pub fn is_partial(&self) -> bool {
        matches!(self, Known::Partial { .. })
    }

    /// Notes a grant that the runtime's view may contradict.
    pub(crate) fn note_grant(&mut self, id: ContainerId) {
        if let Known::Journaled { granted } = self {
            granted.insert(id);
        }
    }

    /// Whether it was granted before the first sync, by the journal alone.
    pub(crate) fn is_provisional(&self, id: ContainerId) -> bool {
        matches!(self, Known::Journaled { granted } if granted.contains(&id))
    }

    /// After a view of the runtime; `has_undescribed`: it lists containers of which it says nothing else.
    pub(crate) fn after_view(&self, has_undescribed: bool, now: Timestamp) -> Known {
        let Known::Partial { first_view } = self else { return Known::Synced };
        // A clock that was put back starts the wait anew.
        let since = first_view.map_or(now, |first| first.min(now));
        match has_undescribed && now.duration_since(since) < UNDESCRIBED_PATIENCE {
            true => Known::Partial { first_view: Some(since) },
            false => Known::Synced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "here";

    fn live(fingerprint: Option<&str>, unreadable: usize, is_partial: bool) -> Live {
        let fingerprint = fingerprint.map(str::to_owned);
        Live { fingerprint, unreadable, is_partial, ..Live::default() }
    }

    #[test]
    fn only_a_whole_journal_of_this_machine_counts_before_the_first_sync() {
        for (what, is_torn, live, is_whole) in [
            ("whole", false, live(Some(HERE), 0, false), true),
            ("missing, empty or cut after its header", false, live(None, 0, false), false),
            ("a line with a wrong checksum", true, live(Some(HERE), 0, false), false),
            ("a record of a later version", false, live(Some(HERE), 1, false), false),
            ("of another machine", false, live(Some("there"), 0, false), false),
            ("written before any sync", false, live(Some(HERE), 0, true), false),
        ] {
            let known = Known::after_reading(is_torn, &live, HERE);
            assert_eq!(!known.is_partial(), is_whole, "{what}");
        }
    }

    #[test]
    fn the_rule_is_this_table() {
        let journaled = Known::Journaled { granted: BTreeSet::new() };
        let partial = Known::Partial { first_view: None };
        for (known, first, last, writes) in [
            (Known::Synced, Verdict::Decide, Verdict::Decide, true),
            (journaled, Verdict::AskFirst, Verdict::Decide, true),
            (partial, Verdict::Wait, Verdict::Wait, false),
        ] {
            assert_eq!((known.verdict(false), known.verdict(true)), (first, last), "{known:?}");
            assert_eq!(!known.is_partial(), writes, "{known:?}");
        }
    }

    #[test]
    fn a_container_that_is_never_described_does_not_hold_up_the_node_for_ever() {
        let start = Timestamp::UNIX_EPOCH;
        let at = |secs| start + SignedDuration::from_secs(secs);
        let first = Known::Partial { first_view: None }.after_view(true, at(100));
        assert!(first.is_partial());
        assert!(first.after_view(true, at(129)).is_partial());
        assert_eq!(first.after_view(true, at(130)), Known::Synced);
        assert_eq!(first.after_view(false, at(101)), Known::Synced);
        // Put back by an hour, the clock starts the wait anew.
        let again = first.after_view(true, at(-3500));
        assert_eq!(again.after_view(true, at(-3470)), Known::Synced);
        let journaled = Known::Journaled { granted: BTreeSet::new() };
        assert_eq!(journaled.after_view(true, at(0)), Known::Synced);
    }

    #[test]
    fn what_is_granted_before_the_first_sync_is_provisional() {
        let id = ContainerId(7);
        for (mut known, expected) in [
            (Known::Journaled { granted: BTreeSet::new() }, true),
            (Known::Synced, false),
            (Known::Partial { first_view: None }, false),
        ] {
            known.note_grant(id);
            assert_eq!(known.is_provisional(id), expected, "{known:?}");
        }
    }
}
