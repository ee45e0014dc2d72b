//! What happens in a random history.

use super::*;

/// What happens next. Numbers choose among what there is.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Admit {
        pod: u8,
        name: u8,
        attempt: u32,
        milli: i64,
        gib: i64,
    },
    Retry(usize),
    Make(usize),
    CreateEnds {
        which: usize,
        is_answered: bool,
    },
    Start(usize),
    Remove(usize),
    Vanish {
        which: usize,
        is_removed: bool,
    },
    Appear {
        pod: u8,
        name: u8,
        milli: i64,
        cpus: u64,
    },
    PodEnds(u8),
    Resize {
        which: usize,
        milli: i64,
    },
    ResizeEnds {
        which: usize,
        outcome: ResizeOutcome,
    },
    WritesFail(u8),
    FailuresArrive,
    SyncStarts,
    View,
    SyncEnds,
    Sync,
    Restart,
    Hotplug {
        offline: u64,
        isolated: u64,
    },
    Reshape(String),
    Configure {
        reserved: u64,
        has_system: bool,
        has_one_pool: bool,
    },
    SetMode(Mode),
    Turn {
        which: usize,
        cpus: u64,
    },
    Pause(bool),
    Regroup(Arc<[GroupType]>),
    /// The last change of types is taken back, if it is the last change of machine and configuration.
    TakeBack,
    /// Containers have used so much.
    Used(i64),
    /// A minute goes by.
    Wait,
}

pub(super) fn any_milli() -> impl Strategy<Value = i64> {
    prop_oneof![3 => (0i64..9).prop_map(|cpus| cpus * 1000), 2 => 0i64..9000, 1 => Just(1500)]
}

pub(super) fn any_op() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    prop_oneof![
        8 => (0u8..8, 0u8..3, 0u32..2, any_milli(), 0i64..6).prop_map(
            |(pod, name, attempt, milli, gib)| Op::Admit { pod, name, attempt, milli, gib }
        ),
        2 => which().prop_map(Op::Retry),
        6 => which().prop_map(Op::Make),
        6 => (which(), prop::bool::weighted(0.7))
            .prop_map(|(which, is_answered)| Op::CreateEnds { which, is_answered }),
        4 => which().prop_map(Op::Start),
        3 => which().prop_map(Op::Remove),
        1 => (which(), any::<bool>())
            .prop_map(|(which, is_removed)| Op::Vanish { which, is_removed }),
        1 => (0u8..8, 0u8..3, any_milli(), any::<u64>())
            .prop_map(|(pod, name, milli, cpus)| Op::Appear { pod, name, milli, cpus }),
        1 => (0u8..8).prop_map(Op::PodEnds),
        3 => (which(), any_milli()).prop_map(|(which, milli)| Op::Resize { which, milli }),
        3 => (which(), resize_outcome())
            .prop_map(|(which, outcome)| Op::ResizeEnds { which, outcome }),
        1 => any::<u8>().prop_map(Op::WritesFail),
        1 => Just(Op::FailuresArrive),
        1 => Just(Op::SyncStarts),
        2 => Just(Op::View),
        2 => Just(Op::SyncEnds),
        1 => Just(Op::Sync),
        1 => Just(Op::Restart),
        2 => (any_few_cpus(), any_few_cpus())
            .prop_map(|(offline, isolated)| Op::Hotplug { offline, isolated }),
        1 => any_machine().prop_map(|machine| Op::Reshape(machine.line)),
        2 => (any_few_cpus(), any::<bool>(), any::<bool>())
            .prop_map(|(reserved, has_system, has_one_pool)| Op::Configure { reserved, has_system, has_one_pool }),
        2 => prop::sample::select(&Mode::ALL[..]).prop_map(Op::SetMode),
        2 => (which(), any_few_cpus()).prop_map(|(which, cpus)| Op::Turn { which, cpus }),
        1 => any::<bool>().prop_map(Op::Pause),
        2 => Just(Op::Wait),
    ]
}

/// How an update that kubelet was allowed ends.
fn resize_outcome() -> impl Strategy<Value = ResizeOutcome> {
    prop_oneof![
        8 => Just(ResizeOutcome::Done),
        1 => Just(ResizeOutcome::Failed),
        1 => Just(ResizeOutcome::Unknown),
    ]
}
