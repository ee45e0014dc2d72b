//! What the probes cost on this machine. Needs root (cgroups, BPF, `kernel.bpf_stats_enabled`): `cargo bench -p bayplan-benches --bench probes`, with
//! `-- throughput`, `-- programs` or `-- user-side` for a part.
//!
//! 1. Throughput: two tasks on one CPU throw a byte to and fro through pipes, so that every throw is a switch, with probes off and on in turns, in one
//!    container and in two. Load of others changes what a throw takes from one second to the next, so what counts is the difference within a turn.
//! 2. Nanoseconds a program takes by the kernel's own count, beside what an empty program takes.
//! 3. What the user side takes to watch 250 containers: CPU time of a look, and memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that cannot be set up should stop"
)]
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod ball;
mod cgroup;
mod containers;

use std::time::Duration;

use bayplan_probes::{Cost, CounterChoice, Meter, Probes};
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::CpuSet;

use ball::{Game, play, throw};
use cgroup::Cgroup;

/// What can be named to have nothing else measured.
const PARTS: [&str; 3] = ["throughput", "programs", "user-side"];
/// Turns of the race; each is a game with every choice.
const TURNS: usize = 41;
/// Throws of a game: some tenths of a second.
const THROWS: u32 = 20_000;
/// A container switches to itself, or to another one at each switch.
const LAYOUTS: [(&str, bool); 2] = [("one container", true), ("two containers", false)];
/// What is attached, beside nothing at all.
const CHOICES: [(&str, CounterChoice); 2] =
    [("counters: off", CounterChoice::Off), ("counters: software", CounterChoice::Software)];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["--throw", rest @ ..] => throw(rest),
        ["--rest", cgroup] => containers::rest(cgroup),
        // `cargo bench` adds words of its own.
        parts => {
            let is_wanted =
                |part| !PARTS.iter().any(|it| parts.contains(it)) || parts.contains(&part);
            PARTS.into_iter().filter(|it| is_wanted(it)).for_each(measure);
        }
    }
}

fn measure(part: &str) {
    match part {
        "throughput" => race(),
        "programs" => count(),
        _ => containers::watch_many(),
    }
}

fn machine() -> Topology {
    derive(&parse_machine("pack:1 numa:1 l3:1 core:2 pu:1").unwrap()).unwrap()
}

fn attach(choice: CounterChoice) -> Probes {
    Probes::attach(&machine(), choice)
        .unwrap_or_else(|refusal| panic!("nothing to measure: {refusal}"))
}

/// Two players' containers, and probes that watch both.
struct Court {
    cgroups: [Cgroup; 2],
    is_one: bool,
}

impl Court {
    fn new(is_one: bool) -> Court {
        Court { cgroups: [Cgroup::new(), Cgroup::new()], is_one }
    }

    fn attach(&self, choice: CounterChoice) -> Probes {
        let mut probes = attach(choice);
        let without_owners = self.cgroups.iter().map(|it| (it.id(), CpuSet::new()));
        probes.watch(&without_owners.collect()).unwrap();
        probes
    }

    fn play(&self) -> Game {
        let [first, second] = &self.cgroups;
        play([first, if self.is_one { first } else { second }], THROWS)
    }
}

/// Quarter, half and three quarters of the way through a sorted list.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn race() {
    println!(
        "Throws a second, {TURNS} turns of {THROWS}: the fastest game, and the difference within a turn as median and quartiles"
    );
    for (layout, is_one) in LAYOUTS {
        let court = Court::new(is_one);
        let mut off = Vec::new();
        let mut on = CHOICES.map(|_| Vec::new());
        for _ in 0..TURNS {
            off.push(court.play());
            for ((_, choice), games) in CHOICES.iter().zip(&mut on) {
                let _probes = court.attach(*choice);
                games.push(court.play());
            }
        }
        let fastest = |games: &[Game]| games.iter().map(Game::rate).fold(0.0, f64::max);
        let least = |games: &[Game]| games.iter().map(|it| it.cpu_ns).fold(f64::MAX, f64::min);
        let (rate, ns) = (fastest(&off), least(&off));
        println!("{layout:<16}{:<20}{rate:.0}, {ns:.0} ns of CPU time a throw", "no probes");
        for ((name, _), games) in CHOICES.iter().zip(&on) {
            let pairs = || off.iter().zip(games);
            let lost = |off: f64, on: f64| 100.0 * (1.0 - on / off);
            let [low, half, high] =
                quartiles(pairs().map(|(off, on)| lost(off.rate(), on.rate())).collect());
            let [few, more, many] =
                quartiles(pairs().map(|(off, on)| on.cpu_ns - off.cpu_ns).collect());
            let best = fastest(games);
            println!(
                "{layout:<16}{name:<20}{best:.0}, {:.1} % lost [in turns {half:.1}, {low:.1} to {high:.1}]; {:+.0} ns [in turns {more:+.0}, {few:+.0} to {many:+.0}]",
                lost(rate, best),
                least(games) - ns
            );
        }
    }
}

fn count() {
    println!(
        "\nNanoseconds a run by the kernel's count, with and without what an empty program takes"
    );
    for (layout, is_one) in LAYOUTS {
        let court = Court::new(is_one);
        for (name, choice) in CHOICES {
            let mut probes = court.attach(choice);
            probes.attach_nothing().unwrap_or_else(|refusal| panic!("{refusal}"));
            let rounds = (0..TURNS).map(|_| {
                let _meter = Meter::start().unwrap();
                let before = probes.costs().unwrap();
                court.play();
                let after = probes.costs().unwrap();
                let cost = |name: &str| {
                    let of = |costs: &[Cost]| *costs.iter().find(|it| it.program == name).unwrap();
                    of(&after).since(&of(&before)).ns_per_run().unwrap()
                };
                [cost("switched"), cost("nothing")]
            });
            let rounds: Vec<[f64; 2]> = rounds.collect();
            let of = |pick: fn(&[f64; 2]) -> f64| quartiles(rounds.iter().map(pick).collect());
            let [low, raw, high] = of(|it| it[0]);
            let [least, net, most] = of(|it| it[0] - it[1]);
            println!(
                "{layout:<16}{name:<20}raw {raw:.0} [{low:.0} to {high:.0}], net {net:.0} [{least:.0} to {most:.0}], empty {:.0}",
                of(|it| it[1])[1]
            );
        }
    }
}

/// For people.
fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
