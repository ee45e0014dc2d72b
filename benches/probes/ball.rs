//! Two processes on one CPU that throw a byte to and fro, so that each throw is a switch.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::cgroup::{Cgroup, enter};

/// Throws before the clock runs.
const WARM_UP: u32 = 1000;

/// How it went.
pub(crate) struct Game {
    throws: f64,
    elapsed: Duration,
    /// Of both players, a throw.
    pub(crate) cpu_ns: f64,
}

impl Game {
    /// Throws a second.
    pub(crate) fn rate(&self) -> f64 {
        self.throws / self.elapsed.as_secs_f64()
    }
}

/// A game of so many throws between two processes of these cgroups, on the last CPU.
pub(crate) fn play(cgroups: [&Cgroup; 2], throws: u32) -> Game {
    let (to_first, from_second) = std::io::pipe().unwrap();
    let (to_second, from_first) = std::io::pipe().unwrap();
    let [first, second] = cgroups;
    let mut second = player(second, 0, Stdio::from(to_second), Stdio::from(from_second));
    let mut first = player(first, throws, Stdio::from(to_first), Stdio::from(from_first));
    let [elapsed_ns, first_ns] = told(&mut first).try_into().unwrap();
    let [second_ns] = told(&mut second).try_into().unwrap();
    Game {
        throws: f64::from(throws),
        elapsed: Duration::from_nanos(elapsed_ns),
        cpu_ns: (first_ns + second_ns) as f64 / f64::from(throws + WARM_UP),
    }
}

fn player(cgroup: &Cgroup, throws: u32, from: Stdio, to: Stdio) -> Child {
    // So that others that want the CPU take as little of it as can be.
    Command::new("nice")
        .args(["-n", "-20"])
        .arg(std::env::current_exe().unwrap())
        .arg("--throw")
        .arg(cgroup.path())
        .arg(throws.to_string())
        .stdin(from)
        .stdout(to)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a player has to say in the end.
fn told(player: &mut Child) -> Vec<u64> {
    let mut line = String::new();
    BufReader::new(player.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(player.wait().unwrap().success(), "{line}");
    line.split_whitespace().map(|it| it.parse().unwrap()).collect()
}

/// In a player: one throws first and counts (every byte is two throws), the other (`throws` is 0) throws back until the first has gone.
pub(crate) fn throw(args: &[&str]) {
    let [cgroup, throws] = args else { panic!("{args:?}") };
    enter(cgroup);
    stay_on_last_cpu();
    let mut from = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut to = File::from(std::io::stdout().as_fd().try_clone_to_owned().unwrap());
    let mut byte = [0];
    let throws: u32 = throws.parse().unwrap();
    let before = cpu_time();
    if throws == 0 {
        while from.read(&mut byte).unwrap() == 1 {
            // The last one falls to the ground.
            let _ = to.write(&byte);
        }
        eprintln!("{}", (cpu_time() - before).as_nanos());
        return;
    }
    let mut exchange = |times: u32| {
        for _ in 0..times / 2 {
            to.write_all(&byte).unwrap();
            from.read_exact(&mut byte).unwrap();
        }
    };
    exchange(WARM_UP);
    let start = Instant::now();
    exchange(throws);
    let elapsed = start.elapsed();
    eprintln!("{} {}", elapsed.as_nanos(), (cpu_time() - before).as_nanos());
}

fn cpu_time() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap())
}

fn stay_on_last_cpu() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let mut cpu = CpuSet::new();
    cpu.set(cpus - 1).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpu).unwrap();
}
