//! Whether the daemon can be relied on. In: what the parts report of themselves. Out: what is lacking, for `/readyz`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What the node can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Part {
    Enforcer,
    Observer,
    Prober,
    Rebalancer,
    HistoryWriter,
    Neighbours,
    Server,
    Reclaimer,
    Colocation,
    Pods,
}

impl Part {
    const ALL: [Part; 10] = [
        Part::Enforcer,
        Part::Observer,
        Part::Prober,
        Part::Rebalancer,
        Part::HistoryWriter,
        Part::Neighbours,
        Part::Server,
        Part::Reclaimer,
        Part::Colocation,
        Part::Pods,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Enforcer => "what writes kernel files",
            Part::Observer => "what reads the machine's counters",
            Part::Prober => "the probes",
            Part::Rebalancer => "the rebalancer",
            Part::HistoryWriter => "what writes the history",
            Part::Neighbours => "what looks for other programs that pin",
            Part::Server => "an HTTP server",
            Part::Reclaimer => "what reclaims idle memory",
            Part::Colocation => "what shares CPUs with BestEffort containers",
            Part::Pods => "what asks kubelet of pods",
        }
    }
}

/// What is known of the daemon's parts.
#[derive(Debug, Default)]
pub(crate) struct Health {
    has_synced: AtomicBool,
    /// It has not described some containers that run, so creations wait ([`bayplan_node::known`]).
    is_partial: AtomicBool,
    is_journal_behind: AtomicBool,
    /// It is not known what kernel files said before earlier runs changed them.
    are_originals_unread: AtomicBool,
    /// Another process has the port, or it cannot be had.
    lacks_metrics_port: AtomicBool,
    /// A bit for each [`Part`] that a bug has ended.
    lost: AtomicU32,
}

impl Health {
    /// The runtime has told what runs; `is_partial`: not enough of it for creations to be decided.
    pub(crate) fn set_synced(&self, is_partial: bool) {
        self.is_partial.store(is_partial, Ordering::Relaxed);
        self.has_synced.store(true, Ordering::Relaxed);
    }

    /// Whether creations are answered with `UNAVAILABLE` because the runtime has described only some of the containers that run.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial.load(Ordering::Relaxed)
    }

    /// Whether what has changed is not all on disk.
    pub(crate) fn set_journal_behind(&self, is_behind: bool) {
        self.is_journal_behind.store(is_behind, Ordering::Relaxed);
    }

    /// As it was told last.
    pub(crate) fn is_journal_behind(&self) -> bool {
        self.is_journal_behind.load(Ordering::Relaxed)
    }

    /// Whether the disk does not give what kernel files said before earlier runs changed them.
    pub(crate) fn set_originals_unread(&self, are_unread: bool) {
        self.are_originals_unread.store(are_unread, Ordering::Relaxed);
    }

    /// Whether `metricsAddress` cannot be listened on.
    pub(crate) fn set_metrics_port_lacking(&self, is_lacking: bool) {
        self.lacks_metrics_port.store(is_lacking, Ordering::Relaxed);
    }

    /// A bug has ended it.
    pub(crate) fn lose(&self, part: Part) {
        self.lost.fetch_or(1 << part as u32, Ordering::Relaxed);
    }

    /// Sentences for people; none when nothing is.
    pub(crate) fn lacking(&self) -> Vec<String> {
        let mut lacking = Vec::new();
        if !self.has_synced.load(Ordering::Relaxed) {
            lacking.push("the runtime has not told yet what runs".to_owned());
        }
        if self.is_partial() {
            lacking.push(
                "the runtime lists containers that it does not describe, so none is created; it is asked again, for half a minute at most"
                    .to_owned(),
            );
        }
        if self.is_journal_behind() {
            lacking.push("the journal cannot be written; see the log".to_owned());
        }
        if self.are_originals_unread.load(Ordering::Relaxed) {
            lacking.push(
                "what kernel files said before cannot be read, so few are changed; see the log"
                    .to_owned(),
            );
        }
        if self.lacks_metrics_port.load(Ordering::Relaxed) {
            lacking.push("metricsAddress cannot be listened on; see the log".to_owned());
        }
        let lost = self.lost.load(Ordering::Relaxed);
        let lost = Part::ALL.into_iter().filter(|part| lost & (1 << *part as u32) != 0);
        lacking.extend(lost.map(|part| {
            let until = match part {
                Part::Enforcer => "they stay as they are until a restart",
                _ => "it works again after a restart",
            };
            format!("a bug has ended {}; {until} (see the log)", part.name())
        }));
        lacking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_that_leaves_containers_undescribed_does_not_make_the_node_ready() {
        let health = Health::default();
        assert_eq!(health.lacking(), ["the runtime has not told yet what runs"]);
        health.set_synced(true);
        let lacking = health.lacking();
        assert!(matches!(&lacking[..], [one] if one.contains("does not describe")), "{lacking:?}");
        health.set_synced(false);
        assert_eq!(health.lacking(), Vec::<String>::new());
    }
}
