//! Caches and memory: how long an instruction takes, given which tenant runs how much where.
//!
//! Cache: in equilibrium a container's share of a cache is its share of what is brought in (Chandra et al., HPCA 2005; Xu et al., ISPASS 2010), and misses fall as a power of that
//! share (Hartstein et al., "Cache Miss Behavior: Is It √2?", CF 2006, with exponents from 0.3 to 0.7).
//!
//! Bandwidth: latency is constant up to 40 % of what a node sustains, rises in a line up to 80 %, then steeply (Jacob 2009). Past 100 % it rises
//! until every tenant is slow enough.

use super::layout::Layout;
use super::tenant::Nature;
use super::turned::CLOCK_GHZ;

/// Nanoseconds to memory of one's own node without any load: 80 to 100 on servers of two packages.
const LATENCY_NS: f64 = 90.0;
/// Bytes of a cache line.
const LINE: f64 = 64.0;

/// One container, as memory sees it.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) nature: Nature,
    /// CPUs busy, by cache.
    pub(super) times: Vec<f64>,
    /// CPUs busy, by node.
    pub(super) node_times: Vec<f64>,
    /// Share of its memory, by node.
    pub(super) pages: Vec<f64>,
    /// Share of a cache that it may fill (resctrl CAT).
    pub(super) ways: f64,
    /// How much its requests to memory are slowed down (resctrl MBA); 1 is not at all.
    pub(super) delay: f64,
    /// How much slower it runs because other threads of its cores run, 1 or more.
    pub(super) smt: f64,
    /// Nanoseconds per instruction, as it was.
    pub(super) pace: f64,
}

impl User {
    fn time(&self) -> f64 {
        self.times.iter().sum()
    }

    /// Instructions per nanosecond.
    pub(super) fn speed(&self) -> f64 {
        self.time() / self.pace
    }
}

/// What has to settle.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Memory {
    /// MiB, by container and cache.
    pub(super) occupancy: Vec<Vec<f64>>,
    /// How much longer memory takes because of the load of all tenants, by node.
    pub(super) strains: Vec<f64>,
}

/// What memory does to each tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct Effect {
    /// Nanoseconds per instruction, by container.
    pub(super) paces: Vec<f64>,
    /// Misses per 1000 instructions, by container.
    pub(super) misses: Vec<f64>,
    /// Bytes per second, by container.
    pub(super) bandwidths: Vec<f64>,
}

/// Moves `memory` towards equilibrium and tells how long instructions take with it.
pub(super) fn effect(layout: &Layout, users: &[User], memory: &mut Memory) -> Effect {
    for cache in 0..layout.caches.len() {
        settle(layout, users, cache, &mut memory.occupancy);
    }
    let held = &memory.occupancy;
    let misses: Vec<f64> =
        users.iter().zip(held).map(|(user, held)| misses_of(user, held)).collect();
    let bandwidths: Vec<f64> = users
        .iter()
        .zip(&misses)
        .map(|(user, misses)| user.speed() * 1e9 * misses / 1000.0 * LINE)
        .collect();
    for (node, strained) in memory.strains.iter_mut().enumerate() {
        let wanted = users.iter().zip(&bandwidths).map(|(user, bytes)| bytes * user.pages[node]);
        let aim = strain(wanted.sum::<f64>() / layout.bandwidths[node].max(1.0));
        // Steps are small because a tenant that waits longer asks for less: full ones would swing.
        *strained *= (aim / *strained).powf(0.25);
    }
    let paces = users.iter().zip(&misses);
    let paces = paces.map(|(user, misses)| pace(layout, user, *misses, &memory.strains)).collect();
    Effect { paces, misses, bandwidths }
}

/// Nanoseconds per instruction of a tenant that has the caches that `cpus` are under and the near memory for itself.
pub(super) fn alone(layout: &Layout, nature: &Nature, caches: &[usize]) -> f64 {
    let most = caches.iter().map(|cache| layout.caches[*cache]).fold(0.0, f64::max);
    nature.cycles / CLOCK_GHZ + nature.misses_with(most) / 1000.0 * LATENCY_NS / nature.overlap
}

/// Misses per 1000 instructions over all caches that it runs under.
fn misses_of(user: &User, held: &[f64]) -> f64 {
    let time = user.time();
    if time <= 0.0 {
        return user.nature.misses_with(held.iter().copied().fold(0.0, f64::max));
    }
    let parts = user.times.iter().zip(held);
    parts.map(|(part, held)| part / time * user.nature.misses_with(*held)).sum()
}

fn pace(layout: &Layout, user: &User, misses: f64, strains: &[f64]) -> f64 {
    let time = user.node_times.iter().sum::<f64>().max(1e-9);
    let mut latency = 0.0;
    for (from, part) in user.node_times.iter().enumerate() {
        for (to, strain) in strains.iter().enumerate() {
            latency += part / time * user.pages[to] * layout.farness[from][to] * strain;
        }
    }
    if user.node_times.iter().sum::<f64>() <= 0.0 {
        latency = 1.0;
    }
    let memory = misses / 1000.0 * LATENCY_NS * latency * user.delay / user.nature.overlap;
    (user.nature.cycles / CLOCK_GHZ + memory) * user.smt
}

/// How much longer memory takes at this share of what the node sustains.
fn strain(load: f64) -> f64 {
    match load {
        load if load <= 0.4 => 1.0,
        load if load <= 0.8 => 1.0 + 0.25 * (load - 0.4) / 0.4,
        // Twice the latency of an idle node at 100 %.
        load if load <= 1.0 => 1.25 + 0.75 * ((load - 0.8) / 0.2).powi(2),
        load => 2.0 * (4.0 * (load - 1.0)).min(5.0).exp(),
    }
}

/// Half a step of every tenant's share of one cache towards its share of what is brought in.
fn settle(layout: &Layout, users: &[User], cache: usize, occupancy: &mut [Vec<f64>]) {
    let size = layout.caches[cache];
    let most: Vec<f64> = users
        .iter()
        .map(|user| {
            if user.times[cache] > 0.0 {
                user.nature.working_set.min(size * user.ways)
            } else {
                0.0
            }
        })
        .collect();
    let brought: Vec<f64> = users
        .iter()
        .zip(&*occupancy)
        .map(|(user, held)| user.times[cache] / user.pace * user.nature.misses_with(held[cache]))
        .collect();
    let mut aims = vec![0.0; users.len()];
    let mut room = size;
    let mut open: Vec<usize> = (0..users.len()).filter(|user| most[*user] > 0.0).collect();
    loop {
        let total: f64 = open.iter().map(|user| brought[*user]).sum();
        let part = |user: usize| room * brought[user] / total.max(1e-12);
        let full: Vec<usize> = open.iter().copied().filter(|u| part(*u) >= most[*u]).collect();
        if full.is_empty() {
            open.iter().for_each(|user| aims[*user] = part(*user));
            break;
        }
        open.retain(|user| !full.contains(user));
        for user in full {
            aims[user] = most[user];
            room = (room - most[user]).max(0.0);
        }
    }
    for (held, aim) in occupancy.iter_mut().zip(aims) {
        held[cache] = f64::midpoint(held[cache], aim);
    }
}
