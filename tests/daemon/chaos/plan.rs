//! What happens in a round, as data. In: a seed. Out: the same rounds each time.

use std::time::Duration;

use bayplan_cri::embedded::Fault;
use nix::libc::{EIO, ENOSPC, EROFS};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::disk::{Trouble, Wrong};

/// Pods that kubelet knows at a time.
pub(crate) const PODS: usize = 6;

/// Groups of nodes that have some: one that grows and shrinks and shares idle CPUs, one for each namespace in which some own CPUs, one with slots. And others of the same names, to which their
/// members may have to go: of other sizes, and with other slots.
pub(crate) const GROUPS: [&str; 3] = [
    "groups:
- {name: web, instances: {max: 2}, size: {requests: {min: 1, max: 5}}, shareIdle: numa}
- {name: zone, members: {namespaces: [team-*]}, instances: {by: namespace}, size: {requests: {min: 1}}, inside: guaranteed-exclusive}
- {name: slots, size: {list: [\"3,11\", \"7,15\"]}, inside: slots}
",
    "groups:
- {name: web, size: {requests: {min: 2}}, shareIdle: numa}
- {name: zone, members: {namespaces: [team-*]}, instances: {by: namespace}, size: {requests: {min: 2}}, inside: guaranteed-exclusive}
- {name: slots, size: {list: [\"1,9\", \"7,15\"]}, inside: slots}
",
    "groups:
- {name: slots, size: {list: [\"3,11\", \"7,15\", \"6,14\"]}, inside: slots}
- {name: web, instances: {max: 3}, size: {fixed: 2}, shareIdle: numa}
- {name: zone, members: {namespaces: [team-*]}, instances: {by: namespace}, size: {requests: {min: 1, max: 8}}, inside: guaranteed-exclusive}
",
];

/// What kubelet does with a pod, as far as it can be done with it as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// Sandbox, container, start; or whatever of these is lacking, as kubelet tries again after an error.
    Launch { milli: u64, class: Class },
    /// In place.
    Resize { milli: u64 },
    /// What the pod needs as a whole.
    ResizePod { milli: u64 },
    /// A new attempt of its container, and the old one goes.
    Restart,
    /// Its process ends, without an event.
    Exit,
    /// The container is stopped.
    Stop,
    /// The container is removed.
    Remove,
    /// The pod ends.
    End,
}

/// Which pod.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Class {
    Guaranteed,
    Burstable,
    System,
    /// Of a group that grows and shrinks with its members.
    Web,
    /// Of the group of this namespace.
    Zone(&'static str),
    /// Guaranteed, of the group of this namespace, in which it owns CPUs.
    ZoneOwner(&'static str),
    /// Of a group in which each has a slot.
    Slot,
}

/// One call of a round. Those of one pod follow each other, those of several run at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    pub(crate) pod: usize,
    pub(crate) call: Call,
    /// How long the client waits.
    pub(crate) patience: Duration,
    /// It has a connection of its own, which ends with the call, whatever came of it.
    pub(crate) is_alone: bool,
    /// The daemon is killed so long after the call has begun.
    pub(crate) kill_after: Option<Duration>,
}

/// What the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Tasks of the test; what is under its files is the test's, too.
    Here,
    /// A process; killed with SIGKILL.
    Process,
}

/// What goes wrong meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    /// On the disk of the daemon.
    Disk(Trouble),
    /// In a method of the runtime, after so many calls of it.
    Runtime { method: &'static str, after: u64, fault: Fault },
    /// The daemon is killed, so long after the beginning.
    Kill { after: Duration },
    /// The runtime dies and comes back so much later.
    RuntimeDies { after: Duration, away: Duration, forgets: bool },
}

/// How the daemon fares between this round and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Nothing,
    Kill,
    Stop,
    /// It is killed, and once more while it starts: at this operation on the disk, or as a process after so many hundredths of a second.
    KillTwice {
        at: usize,
    },
    /// Its file has other types of groups, and it is told to read it. Only of a process, which is killed so long after that has begun.
    Types {
        which: usize,
        kill_after: Option<Duration>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) mishaps: Vec<Mishap>,
    pub(crate) acts: Vec<Act>,
    pub(crate) pause: Pause,
}

/// So many rounds.
pub(crate) fn rounds(seed: u64, count: usize, form: Form, has_groups: bool) -> Vec<Round> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    vec(round(form, has_groups), count).new_tree(&mut runner).unwrap().current()
}

fn round(form: Form, has_groups: bool) -> impl Strategy<Value = Round> {
    let micros = prop_oneof![3 => 0u64..3000, 2 => 3000u64..60_000];
    let types = (0..GROUPS.len(), prop::option::of(micros)).prop_map(|(which, micros)| {
        Pause::Types { which, kill_after: micros.map(Duration::from_micros) }
    });
    let has_types = form == Form::Process && has_groups;
    let pause = prop_oneof![
        4 => Just(Pause::Nothing),
        1 => Just(Pause::Kill),
        1 => Just(Pause::Stop),
        3 => (0usize..24).prop_map(|at| Pause::KillTwice { at }),
        u32::from(has_types) * 6 => types,
    ];
    let mishaps = match form {
        Form::Here => vec(mishap().boxed(), 0..4),
        Form::Process => vec(mishap_of_runtime().boxed(), 0..3),
    };
    (mishaps, vec(act(form, has_groups), 3..14), pause).prop_map(|(mishaps, acts, pause)| Round {
        mishaps,
        acts,
        pause,
    })
}

fn act(form: Form, has_groups: bool) -> impl Strategy<Value = Act> {
    let patience = prop_oneof![6 => 400u64..800, 1 => 0u64..30];
    // Most calls are over after some milliseconds.
    let micros = prop_oneof![3 => 0u64..3000, 2 => 3000u64..30_000];
    let is_killed = prop::bool::weighted(if form == Form::Process { 0.12 } else { 0.0 });
    let kill_after = (is_killed, micros)
        .prop_map(|(is_killed, micros)| is_killed.then(|| Duration::from_micros(micros)));
    (0..PODS, call(has_groups), patience, prop::bool::weighted(0.1), kill_after).prop_map(
        |(pod, call, patience, is_alone, kill_after)| {
            let patience = Duration::from_millis(patience);
            Act { pod, call, patience, is_alone, kill_after }
        },
    )
}

fn call(has_groups: bool) -> impl Strategy<Value = Call> {
    let milli = || prop::sample::select(vec![100u64, 500, 1000, 1500, 2000, 3000, 4000, 6000]);
    let class = prop_oneof![
        4 => Just(Class::Guaranteed),
        2 => Just(Class::Burstable),
        1 => Just(Class::System),
    ];
    let team = || prop::sample::select(vec!["team-a", "team-b"]);
    let grouped = prop_oneof![
        3 => Just(Class::Web),
        2 => team().prop_map(Class::Zone),
        2 => team().prop_map(Class::ZoneOwner),
        2 => Just(Class::Slot),
    ];
    let class = match has_groups {
        true => prop_oneof![1 => class, 2 => grouped].boxed(),
        false => class.boxed(),
    };
    prop_oneof![
        8 => (milli(), class).prop_map(|(milli, class)| Call::Launch { milli, class }),
        3 => milli().prop_map(|milli| Call::Resize { milli }),
        2 => milli().prop_map(|milli| Call::ResizePod { milli }),
        2 => Just(Call::Restart),
        1 => Just(Call::Exit),
        1 => Just(Call::Stop),
        1 => Just(Call::Remove),
        3 => Just(Call::End),
    ]
}

fn mishap() -> impl Strategy<Value = Mishap> {
    let wrong = prop_oneof![
        1 => prop::sample::select(vec![EIO, ENOSPC, EROFS]).prop_map(Wrong::Refuses),
        1 => prop::sample::select(vec![EIO, ENOSPC, EROFS]).prop_map(Wrong::IsBroken),
        2 => Just(Wrong::Kills),
    ];
    let trouble = (prop_oneof![0usize..6, 0usize..40], wrong, 0usize..1000)
        .prop_map(|(after, wrong, part)| Mishap::Disk(Trouble { after, wrong, part }));
    prop_oneof![
        4 => trouble,
        6 => mishap_of_runtime(),
        2 => millis(60).prop_map(|after| Mishap::Kill { after }),
    ]
}

fn mishap_of_runtime() -> impl Strategy<Value = Mishap> {
    let dies = (millis(60), millis(30), prop::bool::weighted(0.3))
        .prop_map(|(after, away, forgets)| Mishap::RuntimeDies { after, away, forgets });
    prop_oneof![
        5 => (method(), 0u64..4, fault())
            .prop_map(|(method, after, fault)| Mishap::Runtime { method, after, fault }),
        1 => dies,
    ]
}

fn millis(most: u64) -> impl Strategy<Value = Duration> {
    (0..most).prop_map(Duration::from_millis)
}

fn method() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "RunPodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
        "CreateContainer",
        "CreateContainer",
        "StartContainer",
        "StopContainer",
        "RemoveContainer",
        "UpdateContainerResources",
        "UpdateContainerResources",
        "UpdatePodSandboxResources",
        "ListContainers",
        "ContainerStatus",
        "PodSandboxStatus",
        "GetContainerEvents",
    ])
}

fn fault() -> impl Strategy<Value = Fault> {
    // UNKNOWN is containerd's ordinary error; the others say that it is not known.
    let code = prop::sample::select(vec![2u32, 4, 14]);
    prop_oneof![
        1 => Just(Fault::Hang),
        2 => Just(Fault::LoseReply),
        2 => code.prop_map(Fault::Fail),
        2 => (1u64..40).prop_map(|millis| Fault::Delay(Duration::from_millis(millis))),
        1 => Just(Fault::Garbage),
    ]
}
