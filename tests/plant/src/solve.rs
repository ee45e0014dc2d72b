//! One period: from which tenant is where and wants what to what each of them gets, and how it shows.

use std::collections::BTreeSet;
use std::time::Duration;

use super::layout::Layout;
use super::memory::{self, Effect, Memory, User};
use super::queue::{PATIENCE, Queue, Throttle, exponential_p99, throttle};
use super::share::{Ask, Table, share};
use super::tenant::{Nature, Work};
use super::truth::Truth;
use super::turned::{CLOCK_GHZ, Seat};
use bayplan_rebalance::{Migrations, Sample};

/// Seconds that a task runs before it is another's turn: the base slice of a kernel with 8 CPUs and more (`base_slice_ns`).
const SLICE_S: f64 = 0.003;
/// Seconds until a task runs where nothing is in its way.
const WAKE_S: f64 = 30e-6;
/// How much slower a thread runs while one more thread of its core does: two give 1.25 times the work of one, as Marr et al. ("Hyper-Threading Technology Architecture and
/// Microarchitecture", Intel Technology Journal, 2002) have up to 1.3 for servers.
const SMT_COST: f64 = 0.6;
/// Seconds that a task loses with misses after it went to another last-level cache: 8 MiB at 16 GB/s, as an assumption.
const COLD_S: f64 = 0.5e-3;
/// Steps towards equilibrium in a period.
const STEPS: usize = 4;

/// One container in a period.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) seat: Seat,
    /// Positions of its CPUs.
    pub(super) cpus: Vec<usize>,
    pub(super) work: Work,
    /// Times per second and busy CPU that a thread wakes up somewhere else among its CPUs.
    pub(super) hops: f64,
    pub(super) nature: Nature,
    /// CPUs wanted if nothing disturbed it.
    pub(super) demand: f64,
    /// Share of its memory, by node.
    pub(super) pages: Vec<f64>,
    /// Nanoseconds per instruction if nothing disturbed it.
    pub(super) pace_alone: f64,
}

impl Body {
    /// CPUs that it would keep busy at this pace, limits aside.
    fn offered(&self, pace: f64) -> f64 {
        match self.work {
            Work::Batch => self.demand,
            Work::Service { .. } => self.demand * pace / self.pace_alone,
        }
    }
}

/// What goes over from one period to the next.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    pub(super) memory: Memory,
    /// How threads lie on CPUs.
    pub(super) spread: Table,
    /// Nanoseconds per instruction, by container.
    pub(super) paces: Vec<f64>,
    /// Time by container and CPU.
    pub(super) times: Table,
}

impl State {
    pub(super) fn new(layout: &Layout, bodies: &[Body]) -> State {
        let mut spread = Table::new(bodies.len(), layout.cpus.len());
        for (row, body) in bodies.iter().enumerate() {
            let row = spread.row_mut(row);
            body.cpus.iter().for_each(|cpu| row[*cpu] = 1.0 / body.cpus.len() as f64);
        }
        State {
            memory: Memory {
                occupancy: vec![vec![0.0; layout.caches.len()]; bodies.len()],
                strains: vec![1.0; layout.nodes.len()],
            },
            paces: bodies.iter().map(|body| body.pace_alone).collect(),
            times: spread.clone(),
            spread,
        }
    }
}

/// Lives through one period. Returns what is true of every tenant and what could be measured of it.
pub(super) fn solve(layout: &Layout, bodies: &[Body], state: &mut State) -> Vec<(Truth, Sample)> {
    let limits = limits(bodies);
    let mut effect = Effect::default();
    for _ in 0..STEPS {
        let asks: Vec<Ask<'_>> = bodies
            .iter()
            .zip(&limits)
            .zip(&state.paces)
            .map(|((body, limit), pace)| Ask {
                cpus: &body.cpus,
                weight: body.seat.weight,
                is_idle: body.seat.is_idle,
                want: body.offered(*pace).min(*limit).min(body.cpus.len() as f64),
            })
            .collect();
        state.times = share(&asks, &state.spread, layout.cpus.len());
        spread_out(layout, bodies, state);
        let users = users(layout, bodies, state);
        effect = memory::effect(layout, &users, &mut state.memory);
        let paces = bodies.iter().enumerate().zip(&effect.paces);
        let paces = paces.map(|((index, body), pace)| {
            let moved = migrations(layout, body, state.times.row(index));
            let time: f64 = state.times.row(index).iter().sum();
            pace * (1.0 + COLD_S * moved.to_cold_caches() / time.max(1e-9))
        });
        state.paces = paces.collect();
    }
    let crowd = Crowd::new(bodies, &state.times);
    (0..bodies.len())
        .map(|index| outcome(layout, bodies, index, limits[index], &crowd, state, &effect))
        .collect()
}

/// CPUs that each may use: its own limit, and its part of what BestEffort containers have together.
fn limits(bodies: &[Body]) -> Vec<f64> {
    let suppressed = || bodies.iter().filter(|body| body.seat.suppressed.is_some());
    let wanted: f64 = suppressed().map(|body| body.demand).sum();
    let allowed: BTreeSet<usize> = suppressed().flat_map(|it| it.cpus.iter().copied()).collect();
    let cpus = allowed.len() as f64;
    let together = |share: f64, demand: f64| share * cpus * demand / wanted.max(1e-9);
    let limit = |body: &Body| {
        let own = body.seat.limit.unwrap_or(f64::INFINITY);
        own.min(body.seat.suppressed.map_or(f64::INFINITY, |share| together(share, body.demand)))
    };
    bodies.iter().map(limit).collect()
}

/// Threads go, by and by, to those of their CPUs where others run less, on idle cores first.
fn spread_out(layout: &Layout, bodies: &[Body], state: &mut State) {
    let crowd = Crowd::new(bodies, &state.times);
    for (index, body) in bodies.iter().enumerate() {
        let times = state.times.row(index);
        // A CPU that runs the idle class is free for all others.
        let loads = &crowd.loads[usize::from(body.seat.is_idle)];
        let left = |cpu: usize| (1.0 - (loads[cpu] - times[cpu])).clamp(0.0, 1.0);
        let room = |cpu: &usize| {
            let beside = layout.siblings[*cpu].iter().map(|other| left(*other));
            0.02 + left(*cpu) * beside.product::<f64>()
        };
        let total: f64 = body.cpus.iter().map(room).sum();
        let aims: Vec<(usize, f64)> =
            body.cpus.iter().map(|cpu| (*cpu, room(cpu) / total)).collect();
        let row = state.spread.row_mut(index);
        let before: Vec<f64> = aims.iter().map(|(cpu, _)| row[*cpu]).collect();
        row.fill(0.0);
        for ((cpu, aim), before) in aims.into_iter().zip(before) {
            row[cpu] = f64::midpoint(before, aim);
        }
        let total: f64 = row.iter().sum();
        row.iter_mut().for_each(|share| *share /= total.max(1e-9));
    }
}

fn users(layout: &Layout, bodies: &[Body], state: &State) -> Vec<User> {
    let loads = state.times.loads();
    let user = |(index, body): (usize, &Body)| {
        let mut times = vec![0.0; layout.caches.len()];
        let mut node_times = vec![0.0; layout.nodes.len()];
        let mut beside = 0.0;
        let row = state.times.row(index);
        for cpu in &body.cpus {
            times[layout.cache_of[*cpu]] += row[*cpu];
            node_times[layout.node_of[*cpu]] += row[*cpu];
            let busy: f64 = layout.siblings[*cpu].iter().map(|other| loads[*other]).sum();
            beside += row[*cpu] * busy;
        }
        let time: f64 = times.iter().sum();
        User {
            nature: body.nature,
            times,
            node_times,
            pages: body.pages.clone(),
            ways: body.seat.ways,
            delay: body.seat.delay,
            smt: if time > 0.0 { 1.0 + SMT_COST * beside / time } else { 1.0 },
            pace: state.paces[index],
        }
    };
    bodies.iter().enumerate().map(user).collect()
}

/// How busy CPUs are, and how heavy the tenants are that keep them busy.
struct Crowd {
    /// Of the normal class, and of all.
    loads: [Vec<f64>; 2],
    /// Time times weight, likewise.
    heavy: [Vec<f64>; 2],
}

impl Crowd {
    fn new(bodies: &[Body], times: &Table) -> Crowd {
        let cpus = times.row(0).len();
        let mut crowd = Crowd {
            loads: [vec![0.0; cpus], vec![0.0; cpus]],
            heavy: [vec![0.0; cpus], vec![0.0; cpus]],
        };
        for (index, body) in bodies.iter().enumerate() {
            for (cpu, time) in times.row(index).iter().enumerate() {
                for class in usize::from(body.seat.is_idle)..2 {
                    crowd.loads[class][cpu] += time;
                    crowd.heavy[class][cpu] += time * body.seat.weight;
                }
            }
        }
        crowd
    }
}

/// What others do to one container on its CPUs.
struct Contest {
    /// CPUs that it could get if it asked for all.
    available: f64,
    /// Probability that no CPU is free when a task of its wakes up, and that it is others that are in the way.
    in_the_way: f64,
    /// Seconds that such a task waits on average.
    delay: f64,
    /// Times per second that others take its CPUs away.
    preempted: f64,
}

fn contest(body: &Body, row: &[f64], crowd: &Crowd) -> Contest {
    // A tenant that is idle itself gives way to all others, others only to those that are not.
    let class = usize::from(body.seat.is_idle);
    let mut contest = Contest { available: 0.0, in_the_way: 0.0, delay: 0.0, preempted: 0.0 };
    let (mut weight_all, mut all_busy, mut busy_others, mut busy) = (0.0, 1.0, 0.0, 1e-9);
    for cpu in &body.cpus {
        let others = (crowd.loads[class][*cpu] - row[*cpu]).max(0.0);
        let heavy = (crowd.heavy[class][*cpu] - row[*cpu] * body.seat.weight).max(0.0);
        let weight = if others > 0.01 { heavy / others } else { 0.0 };
        let fair =
            if body.seat.is_idle { 0.0 } else { body.seat.weight / (body.seat.weight + weight) };
        contest.available += (1.0 - others).max(fair);
        all_busy *= (others + row[*cpu]).min(1.0);
        busy_others += others;
        busy += others + row[*cpu];
        contest.preempted += row[*cpu] * others * (1.0 - fair) / SLICE_S;
        weight_all += 1.0 - fair;
    }
    contest.in_the_way = all_busy * busy_others / busy;
    contest.delay = SLICE_S * weight_all / body.cpus.len().max(1) as f64;
    contest
}

fn outcome(
    layout: &Layout,
    bodies: &[Body],
    index: usize,
    limit: f64,
    crowd: &Crowd,
    state: &State,
    effect: &Effect,
) -> (Truth, Sample) {
    let (body, row) = (&bodies[index], state.times.row(index));
    let cpus: f64 = row.iter().sum();
    let contest = contest(body, row, crowd);
    let offered = body.offered(state.paces[index]);
    let served = match body.work {
        Work::Batch => batch(offered, cpus, limit, &contest),
        Work::Service { request } => {
            let request = request.as_secs_f64() * state.paces[index] / body.pace_alone;
            service(body, offered, request, limit, &contest)
        }
    };
    let far = body.cpus.iter().map(|cpu| (1.0 - body.pages[layout.node_of[*cpu]]) * row[*cpu]);
    let instructions = cpus / state.paces[index] * 1e9;
    let truth = Truth { cpus, instructions, p99: served.p99 };
    let sample = Sample {
        cpus,
        waiting: Some(served.waiting),
        delay_p99: Some(Duration::from_secs_f64(WAKE_S + served.delay)),
        preempted: Some(contest.preempted),
        migrations: Some(migrations(layout, body, row)),
        throttled: Some(served.throttled),
        cpu_pressure: Some(1.0 - (-served.waiting).exp() * (1.0 - served.throttled)),
        far_memory: (layout.nodes.len() > 1 && cpus > 0.0).then(|| far.sum::<f64>() / cpus),
        cycles_per_instruction: (cpus > 0.0).then(|| state.paces[index] * CLOCK_GHZ),
        cache_misses: (cpus > 0.0).then(|| effect.misses[index]),
        memory_bandwidth: Some(effect.bandwidths[index]),
        cache_bytes: Some(state.memory.occupancy[index].iter().sum::<f64>() * f64::from(1 << 20)),
        // No container of the plant uses wide vectors.
        clock: None,
    };
    (truth, sample)
}

/// Where the threads of a container go that wake up somewhere else, which is where its threads run, by chance.
fn migrations(layout: &Layout, body: &Body, row: &[f64]) -> Migrations {
    let time: f64 = row.iter().sum();
    let (mut caches, mut nodes) = (vec![0.0; layout.caches.len()], vec![0.0; layout.nodes.len()]);
    for cpu in &body.cpus {
        caches[layout.cache_of[*cpu]] += row[*cpu] / time.max(1e-9);
        nodes[layout.node_of[*cpu]] += row[*cpu] / time.max(1e-9);
    }
    let same = |shares: &[f64]| shares.iter().map(|share| share * share).sum::<f64>().min(1.0);
    let (cache, node) = (same(&caches), same(&nodes));
    let hops = body.hops * time;
    Migrations {
        within_cache: hops * cache,
        within_node: hops * (node - cache).max(0.0),
        across_nodes: hops * (1.0 - node),
    }
}

/// How well a tenant is served.
struct Served {
    waiting: f64,
    delay: f64,
    throttled: f64,
    p99: Option<Duration>,
}

fn batch(offered: f64, cpus: f64, limit: f64, contest: &Contest) -> Served {
    let waiting = (offered.min(limit) - cpus).max(0.0);
    let throttled = if offered > limit { 1.0 - limit / offered } else { 0.0 };
    let turns = if cpus > 0.0 { waiting / cpus } else { 0.0 };
    let delay = SLICE_S * turns + exponential_p99(contest.in_the_way, contest.delay);
    Served { waiting, delay: delay.min(PATIENCE.as_secs_f64()), throttled, p99: None }
}

fn service(body: &Body, offered: f64, request: f64, limit: f64, contest: &Contest) -> Served {
    let servers = body.cpus.len();
    let queue = Queue { servers, offered, capacity: contest.available.min(limit), request };
    let own = if limit.is_finite() {
        throttle(offered, request, limit, body.seat.banked)
    } else {
        Throttle::default()
    };
    let delay =
        queue.wait_p99() + exponential_p99(contest.in_the_way, contest.delay) + own.wait_p99;
    let delay = delay.min(PATIENCE.as_secs_f64());
    // Of exponential requests, 99 of 100 are shorter. The two tails are added, as though they came together.
    let p99 = (100_f64.ln() * request + delay).min(2.0 * PATIENCE.as_secs_f64());
    let rate = if request > 0.0 { offered / request } else { 0.0 };
    Served {
        waiting: queue.waiting() + rate * contest.in_the_way * contest.delay,
        delay,
        throttled: own.share,
        p99: Some(Duration::from_secs_f64(p99)),
    }
}

/// Nanoseconds per instruction of `nature` on these CPUs with nothing else there.
pub(super) fn pace_alone(layout: &Layout, nature: &Nature, cpus: &[usize]) -> f64 {
    let mut caches: Vec<usize> = cpus.iter().map(|cpu| layout.cache_of[*cpu]).collect();
    caches.dedup();
    memory::alone(layout, nature, &caches)
}
