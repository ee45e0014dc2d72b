//! Arguments of the commands that read the history: `bayplan journal` and `bayplan replay`.

use std::path::PathBuf;

use bayplan_node::history::Kind;
use clap::Args as ClapArgs;
use clap::builder::PossibleValuesParser;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

use super::shared::{OutputOptions, PastOptions, machine_help};
use super::simulate::PolicyName;

#[derive(Debug, ClapArgs)]
pub(crate) struct JournalOptions {
    #[command(flatten)]
    pub(crate) past: PastOptions,
    /// Of the daemon behind this control socket, which says where its history is
    #[arg(long, value_name = "SOCKET", conflicts_with = "state_dir")]
    pub(crate) control: Option<PathBuf>,
    /// From this time on: 2026-11-21T03:10:00Z, or 10m, 2h, 3d before now
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) since: Option<Moment>,
    /// Up to this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) until: Option<Moment>,
    /// Only of this namespace; `*` and `?` stand for any text and any character, here and below
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Only of this pod
    #[arg(long, value_name = "NAME")]
    pub(crate) pod: Option<String>,
    /// Only of containers of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) container: Option<String>,
    /// Only what is of this kind; see the end of `--help`
    #[arg(long, value_name = "KIND", value_delimiter = ',', hide_possible_values = true,
          value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::name)))]
    pub(crate) kind: Vec<String>,
    /// Only so many, the last ones
    #[arg(short = 'n', long = "last", value_name = "COUNT")]
    pub(crate) last: Option<usize>,
    /// Go on with what happens from now on
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// The kinds, and what -o json prints.
pub(super) const JOURNAL_HELP: &str = "\
Kinds:
  started, machine             the daemon started; the machine as it is from then on
  placed, refused, adopted     a container came: it has a place, there is none, or it ran already
  moved                        for another reason: room for a new container, compaction, narrowing, the machine, a restart
  resized, pod_resized, ended  kubelet changed what it, or its pod, may have; it gave everything back
  annotated                    annotations that count while it runs are others
  proposed                     the rebalancer found that a container suffers, and what it would turn on this one
  judged                       what became of something that the rebalancer turned on this container: kept, undone, could not be done
  mode                         bayplan drain, restore or resume, and bayplan rebalance pause or resume
  runtime_lost, runtime_back   the runtime does not answer, and answers again
  failure                      a write failed, or something else that an operator should know
  held, continued, looked      bookkeeping for `bayplan replay`, shown only when asked for

CPUs are exclusive where it says `own`, and shared otherwise; `a -> b` is before and after.

With -o json there is one object a line: `at`, `kind`; the container: `who` (`namespace`, `pod`, `container`, `attempt`, `qos`, `id`,
`runtime_id`); `asked`, `before` and `after` (`pool`, `own`, `cpus`, `mems`), `by` (of what is moved: room, compaction, narrowing, machine,
restart), `why`, `warnings`; `spec` with all that kubelet said of the container; `resources`, `allocation`, `machine`, `node`; `proposal` with what
the rebalancer proposed (`number`, `knob`, `mode`, `target`, `victim`, `findings`, `culprits`) or how it was judged (`verdict`). What does not
apply is absent.

Examples:
  bayplan journal --since 1h
  bayplan journal --pod 'web-*' --kind refused,moved
  bayplan journal --follow -n 20
  bayplan journal --state-dir /mnt/node7/var/lib/bayplan -o json | jq .why";

/// A time as people type it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// This one.
    At(Timestamp),
    /// So long before now.
    Ago(SignedDuration),
}

impl Moment {
    /// The time, where it is `now`.
    pub(crate) fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(at) => at,
            Moment::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }
}

fn parse_moment(text: &str) -> Result<Moment, String> {
    if let Ok(at) = text.parse() {
        return Ok(Moment::At(at));
    }
    let ago =
        text.parse::<Span>().and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    match ago {
        Ok(ago) if !ago.is_negative() => Ok(Moment::Ago(ago)),
        _ => Err("expected a time such as 2026-11-21T03:10:00Z, or how long ago it was, such as 10m, 2h or 3d".to_owned()),
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReplayOptions {
    /// A state directory of the daemon, or one file of its history [default: stateDir of the configuration of this node: that
    /// of BAYPLAN_CONFIG, else that in /etc]
    #[arg(value_name = "HISTORY")]
    history: Option<PathBuf>,
    /// How the machine is divided [default: as `policy` of the configuration says]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) policy: Option<PolicyName>,
    /// On this machine instead of the recorded one
    #[arg(long, value_name = "FILE|SPEC", long_help = machine_help())]
    pub(crate) machine: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

impl ReplayOptions {
    /// Where the history is.
    pub(crate) fn history(&self) -> PastOptions {
        PastOptions { state_dir: self.history.clone() }
    }
}

/// What is replayed, and what not.
pub(super) const REPLAY_HELP: &str = "\
The history has the machine and the configuration that it was recorded with. --config FILE is the configuration to try (BAYPLAN_CONFIG
names that of this node, where the history is), --policy stands in for the policy in it; without both, and without --machine, the replay has to come to the same decisions, and says so. With --machine, that machine stays as it is.

What came to the daemon is replayed, what it did is done anew: creations with all that kubelet said, ends, resizes, changes of the machine
and of the configuration, starts. Not in any history, and so not replayed, are how long the runtime took, writes that it refused, and creations that overlapped.
A container that was refused and would have had a place keeps it to the end, because nothing says when it would have ended. With compaction or
memory.narrow, the node is looked at when the daemon did so; where it never did, two seconds after a container came or went.

Figures are those of `bayplan simulate`. A container that kubelet resized counts once more, one that it asked for again and again once.
Containers that were there at the beginning stay where they were.

Examples:
  bayplan replay                                                  # does it come to the same decisions?
  bayplan --config tomorrow.yaml replay                           # what if?
  bayplan replay --policy one-shared-pool                         # what are pools by NUMA node worth here?
  bayplan replay node7/var/lib/bayplan --machine epyc-9654 -o json";
