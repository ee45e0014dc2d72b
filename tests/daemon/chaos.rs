//! Random rounds of everything at once: kubelet's calls, clients that give up, a disk that fails, a daemon that is killed at any
//! moment and at any of its writes, a runtime that hangs, lies, dies and forgets. After each round things come to rest, and then
//! kubelet, the daemon, its journal and the runtime must agree about which containers are there and where.
//!
//! The same seed gives the same rounds, though not the same order of what happens at the same time. `BAYPLAN_CHAOS_ROUNDS` asks for
//! more of them, and `BAYPLAN_CHAOS_SEED` for others; what fails says how to have it again.
//!
//! A second test has the same with a daemon that is a process, and SIGKILL some microseconds after one call or another has begun.
//! `BAYPLAN_CHAOS_KILLED_ROUNDS` asks for more rounds of that.

mod disk;
mod plan;
mod play;
mod pod;
mod quiet;

use std::env;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use bayplan_daemon::config::{Config, parse_config};

use self::plan::{Form, GROUPS, Pause, Round, rounds};
use self::play::Stage;
use self::quiet::{check_panics, check_quiet, seats};
use crate::node::{MACHINE, Node};

/// Rounds that one node lives through.
const ROUNDS_PER_NODE: usize = 20;
/// Rounds in an ordinary run.
const ROUNDS: u64 = 300;
/// The same with a process, which takes longer to start.
const KILLED_ROUNDS: u64 = 40;
/// Nodes at a time; they wait more than they work.
const NODES_AT_ONCE: usize = 6;

/// Short, so that a call that hangs holds up neither the daemon nor the test for long.
fn impatient(config: &mut Config) {
    config.resync_interval = Duration::from_millis(25);
    config.runtime_timeout = Duration::from_millis(250);
    config.decision_timeout = Duration::from_secs(1);
    config.metrics_address = None;
}

/// One that joins holes, too.
fn compacting(config: &mut Config) {
    impatient(config);
    config.compaction.enabled = true;
    config.narrows_memory = true;
}

/// With one of the sets of types of groups beside.
fn grouped<const WHICH: usize>(config: &mut Config) {
    impatient(config);
    config.groups = parse_config(Path::new("f"), GROUPS[WHICH]).unwrap().groups;
}

/// With one after the other.
const GROUPED: [fn(&mut Config); GROUPS.len()] = [grouped::<0>, grouped::<1>, grouped::<2>];

/// Both.
fn grouped_and_compacting(config: &mut Config) {
    compacting(config);
    grouped::<0>(config);
}

fn number(name: &str, default: u64) -> u64 {
    let said = env::var(name).ok();
    said.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

#[test]
fn after_every_round_of_chaos_all_agree_and_nothing_has_leaked() {
    check_nodes(number("BAYPLAN_CHAOS_ROUNDS", ROUNDS), Form::Here);
}

#[test]
fn after_sigkill_at_any_moment_of_a_call_all_agree_and_nothing_has_leaked() {
    check_nodes(number("BAYPLAN_CHAOS_KILLED_ROUNDS", KILLED_ROUNDS), Form::Process);
}

fn check_nodes(count: u64, form: Form) {
    let first = number("BAYPLAN_CHAOS_SEED", 1);
    let seeds = Mutex::new(first..first + count.div_ceil(ROUNDS_PER_NODE as u64));
    let live = || {
        let mut lived = Vec::new();
        loop {
            let next = seeds.lock().unwrap().next();
            let Some(seed) = next else { return lived };
            let tokio = tokio::runtime::Runtime::new().unwrap();
            lived.push(catch_unwind(|| tokio.block_on(check_node(seed, form))).ok());
        }
    };
    let lived: Vec<Option<Lived>> = std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..NODES_AT_ONCE).map(|_| scope.spawn(live)).collect();
        nodes.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    let failed = lived.iter().filter(|it| it.is_none()).count();
    assert_eq!(failed, 0, "nodes; each has said why, with its seed");
    // Or else the test tests nothing.
    let answered_min = match form {
        Form::Here => ROUNDS_PER_NODE,
        // A process is away for longer.
        Form::Process => ROUNDS_PER_NODE / 4,
    };
    for it in lived.iter().flatten() {
        assert!(it.answered >= answered_min, "{} calls went well", it.answered);
        assert!(it.deaths > 0, "no daemon was killed");
    }
    let changed: usize = lived.iter().flatten().map(|it| it.changed).sum();
    let may_be_none = form == Form::Here || lived.len() < NODES_AT_ONCE;
    assert!(changed > 0 || may_be_none, "no types of groups were changed");
}

/// What a node has gone through.
struct Lived {
    /// Calls that went well.
    answered: usize,
    /// Daemons that were killed.
    deaths: usize,
    /// Changes of the types of groups.
    changed: usize,
}

/// Says the seed and what had happened, should it panic.
struct Teller<'a> {
    seed: u64,
    form: Form,
    played: &'a [Round],
    begun: usize,
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Teller { seed, begun, form, .. } = self;
            let rounds = match form {
                Form::Here => "BAYPLAN_CHAOS_ROUNDS",
                Form::Process => "BAYPLAN_CHAOS_KILLED_ROUNDS",
            };
            eprintln!(
                "seed {seed}, round {begun}; once more: BAYPLAN_CHAOS_SEED={seed} {rounds}={ROUNDS_PER_NODE}"
            );
            for (index, round) in self.played.iter().take(*begun).enumerate() {
                eprintln!("round {}, then {:?}", index + 1, round.pause);
                round.mishaps.iter().for_each(|it| eprintln!("    {it:?}"));
                round.acts.iter().for_each(|it| eprintln!("  {it:?}"));
            }
        }
    }
}

async fn check_node(seed: u64, form: Form) -> Lived {
    let has_groups = seed.is_multiple_of(2);
    let rounds = rounds(seed, ROUNDS_PER_NODE, form, has_groups);
    let mut teller = Teller { seed, form, played: &rounds, begun: 0 };
    let mut node = Node::without_daemon(MACHINE);
    if (seed / 2).is_multiple_of(2) {
        node.make_cgroups().await;
    }
    let compacts = form == Form::Here && seed.is_multiple_of(3);
    node.adjust = match (compacts, has_groups) {
        (false, false) => impatient,
        (true, false) => compacting,
        (false, true) => grouped::<0>,
        (true, true) => grouped_and_compacting,
    };
    check_panics(&node);
    let mut stage = Stage::new(node, form).await;
    let empty = check_quiet(&mut stage).await;
    for round in &rounds {
        teller.begun += 1;
        stage.play(round).await;
        let before = check_quiet(&mut stage).await;
        stage.pause(round.pause).await;
        let after = check_quiet(&mut stage).await;
        if !compacts && !matches!(round.pause, Pause::Types { .. }) {
            assert_eq!(seats(&after), seats(&before), "a restart has moved a container");
        }
    }
    stage.end().await;
    check_quiet(&mut stage).await;
    stage.restore_types().await;
    let end = check_quiet(&mut stage).await;
    assert_eq!((end.cpus, end.containers), (empty.cpus, empty.containers));
    assert_eq!(end.groups, empty.groups);
    Lived {
        answered: stage.pods.iter().map(|pod| pod.answered).sum(),
        deaths: stage.deaths,
        changed: stage.changed,
    }
}
