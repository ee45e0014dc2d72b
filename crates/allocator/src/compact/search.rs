//! Looks for moves. In: a model, a goal, limits. Out: plans that reach the goal, the best first.
//!
//! Approach: a beam. All single moves are judged; the best few of them are continued by all second moves, and so on. A beginning is judged by what
//! it has reached and by the largest container that could leave the largest hole next, so that moves which only prepare others
//! (joining two small holes elsewhere, swapping a large one for a small one) are seen. Polynomial, moves_max * BEAM * seats * targets, and
//! never more than [`Limits::states_max`]: then what was found until there counts.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::model::{Hole, Model, State};
use super::wish::{Limits, Wish};

/// Beginnings that are continued.
const BEAM: usize = 48;
/// Plans handed out.
const PLANS_MAX: usize = 16;

/// What the moves are for.
pub(super) enum Goal {
    /// Make the largest hole larger.
    Hole { before: Hole },
    /// Make a hole of so many CPUs.
    Room { wanted: Hole },
}

impl Goal {
    pub(super) fn new(model: &Model, wish: Option<&Wish>, before: Hole) -> Goal {
        match wish {
            None => Goal::Hole { before },
            Some(wish) => {
                let cpus = wish.request.demand.exclusive();
                let whole = cpus / model.threads_max * model.threads_max;
                Goal::Room { wanted: Hole { cpus, whole } }
            }
        }
    }

    /// Nothing is left to do.
    pub(super) fn is_met(&self, model: &Model, state: &State) -> bool {
        match self {
            Goal::Hole { .. } => model.largest_hole(state).weight() >= model.ideal(),
            Goal::Room { wanted } => state.domains.iter().any(|hole| lacks(*wanted, *hole) == 0),
        }
    }

    /// No domain could hold it, even if it were empty.
    pub(super) fn is_out_of_reach(&self, model: &Model) -> bool {
        matches!(self, Goal::Room { wanted } if wanted.cpus > model.capacity)
    }

    /// The domain that it is about, and how far the moves have come, in half CPUs.
    fn progress(&self, state: &State) -> (usize, i64) {
        let holes = state.domains.iter().enumerate();
        let best = match self {
            Goal::Hole { before } => holes
                .map(|(at, hole)| (difference(hole.weight(), before.weight()), Reverse(at)))
                .max(),
            Goal::Room { wanted } => {
                holes.map(|(at, hole)| (-difference(lacks(*wanted, *hole), 0), Reverse(at))).max()
            }
        };
        best.map_or((0, 0), |(progress, Reverse(at))| (at, progress))
    }
}

/// How much more a hole would need, in half CPUs.
fn lacks(wanted: Hole, hole: Hole) -> usize {
    wanted.cpus.saturating_sub(hole.cpus) + wanted.whole.saturating_sub(hole.whole)
}

fn difference(a: usize, b: usize) -> i64 {
    let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    signed(a) - signed(b)
}

/// A step that could be made next.
struct Candidate {
    rank: (i64, i64),
    parent: usize,
    seat: usize,
    target: usize,
}

/// Plans, the best first: for a wish those with the fewest moves and CPUs, else those with most gain after their price.
pub(super) fn search(model: &Model, start: &State, goal: &Goal, limits: &Limits) -> Vec<State> {
    let mut plans: Vec<(i64, usize, usize, State)> = Vec::new();
    let mut beam = vec![start.clone()];
    let mut left = limits.states_max;
    for depth in 1..=limits.moves_max {
        let (mut seen, mut is_done) = (BTreeSet::new(), false);
        let mut next = Vec::new();
        for Candidate { parent, seat, target, .. } in
            candidates(model, &beam, goal, limits, &mut left)
        {
            let Some(mut state) = beam.get(parent).cloned() else { continue };
            if model.step(&mut state, seat, target).is_none() || !seen.insert(signature(&state)) {
                continue;
            }
            let net = net(goal, &state, limits);
            let is_met = goal.is_met(model, &state);
            is_done |= is_met;
            if net > 0 || is_met {
                plans.push((net, depth, state.cpus, state.clone()));
            }
            next.push(state);
            if next.len() == BEAM {
                break;
            }
        }
        if next.is_empty() || is_done {
            break;
        }
        beam = next;
    }
    plans.sort_by_key(|(net, moves, cpus, _)| (Reverse(*net), *moves, *cpus));
    plans.into_iter().take(PLANS_MAX).map(|(_, _, _, state)| state).collect()
}

/// What is gained after its price, in hundredths of a CPU. For a wish all plans gain the same.
fn net(goal: &Goal, state: &State, limits: &Limits) -> i64 {
    let price = difference(state.cpus * limits.gain_min_percent, 0);
    match goal {
        Goal::Hole { .. } => 50 * goal.progress(state).1 - price,
        Goal::Room { .. } => -difference(state.cpus, 0),
    }
}

/// Two states that are alike for whatever comes next.
fn signature(state: &State) -> (Vec<(usize, usize)>, usize) {
    (state.leaves.iter().map(|hole| (hole.cpus, hole.whole)).collect(), state.cpus)
}

/// Every step that continues one of the beginnings, the most promising first; `left` counts down how many may still be tried.
fn candidates(
    model: &Model,
    beam: &[State],
    goal: &Goal,
    limits: &Limits,
    left: &mut usize,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (parent, state) in beam.iter().enumerate() {
        let mut state = state.clone();
        let mut kinds = BTreeSet::new();
        for (seat, it) in model.seats.iter().enumerate() {
            if *left == 0 {
                break;
            }
            let is_moved = state.steps.iter().any(|step| step.seat == seat);
            if is_moved || !kinds.insert(model.kind(&state, it)) {
                continue;
            }
            let targets = model.targets(&state, it);
            // Looking for targets costs about as much as trying one.
            *left = left.saturating_sub(1 + targets.len());
            for target in targets {
                if model.step(&mut state, seat, target).is_none() {
                    continue;
                }
                let is_within = state.cpus <= limits.cpus_max
                    && limits.memory_max.is_none_or(|limit| state.memory <= limit);
                if is_within {
                    let rank = rank(model, &state, goal, limits);
                    found.push(Candidate { rank, parent, seat, target });
                }
                model.undo(&mut state);
            }
        }
    }
    found.sort_by_key(|candidate| Reverse(candidate.rank));
    found
}

/// How promising a beginning is: what it has reached, and the largest container that could leave the domain next; if equal, how much the
/// holes elsewhere lie together.
fn rank(model: &Model, state: &State, goal: &Goal, limits: &Limits) -> (i64, i64) {
    let (domain, progress) = goal.progress(state);
    let outside = |(leaf, _): &(usize, &Hole)| model.domain_of_leaf(*leaf) != Some(domain);
    let holes = || state.leaves.iter().enumerate().filter(outside).map(|(_, hole)| *hole);
    let squares: i64 = holes().map(|hole| difference(hole.weight() * hole.weight(), 0)).sum();
    let is_left = |at: &&usize| !state.steps.iter().any(|step| step.seat == **at);
    let left = model.seats_in.get(domain).into_iter().flatten().filter(is_left);
    let sizes = left.filter_map(|at| model.seats.get(*at)).map(|seat| seat.size);
    let widest = holes().map(|hole| hole.cpus).max().unwrap_or(0);
    let next = sizes.filter(|size| *size <= widest).max().unwrap_or(0);
    // What may come next has its price, too: else what is only promised would be continued before what is reached.
    let price = difference((state.cpus + next) * limits.gain_min_percent, 0);
    (50 * (progress + difference(2 * next, 0)) - price, squares)
}
