//! How good a placement is. In: a trace, what became of its events, the machine. Out: the columns by which placements are compared.
//!
//! Only exclusive CPUs count, so that systems with different ideas of sharing can be compared. *Exclusive* containers are Guaranteed
//! ones that request whole CPUs. What was possible is judged just before each event. Means over time are over all events but refused
//! creates; fragmentation leaves out the first quarter of the trace, while the machine fills.

use std::collections::HashMap;

use bayplan_types::CpuSet;

use crate::simulate::placement::{Effect, Kind, Outcome, Placed, PlacementRow};
use crate::simulate::tally::{Domains, Tally};
use crate::simulate::trace::{Op, Trace, Wanted};

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) hits: usize,
    pub(crate) of: usize,
}

impl Share {
    fn count(&mut self, is_hit: bool) {
        self.of += 1;
        self.hits += usize::from(is_hit);
    }

    pub(crate) fn percent(self) -> Option<f64> {
        self.ratio().map(|ratio| 100.0 * ratio)
    }

    pub(crate) fn ratio(self) -> Option<f64> {
        (self.of > 0).then(|| as_f64(self.hits) / as_f64(self.of))
    }
}

/// Of a series of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    pub(crate) fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / as_f64(self.count))
    }
}

/// Exact: counts stay far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

/// Every column.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Quality {
    pub(crate) creates: usize,
    pub(crate) placed: usize,
    pub(crate) refused: usize,
    /// Refused although as many CPUs as an exclusive container asked for had no owner; they may be promised to sharers.
    pub(crate) refused_feasible: usize,
    /// Exclusive containers that were placed.
    pub(crate) exclusive: usize,
    /// Exclusive containers that got another number of CPUs of their own than they asked for.
    pub(crate) miscounted: usize,
    /// Containers that got CPUs that had an owner.
    pub(crate) overlaps: usize,
    /// Exclusive containers in one domain, of those for which one had room.
    pub(crate) in_l3: Share,
    pub(crate) in_node: Share,
    pub(crate) in_package: Share,
    /// NUMA nodes of exclusive containers, over the fewest that would have done.
    pub(crate) nodes_spanned: Share,
    /// Exclusive containers with half a core, of those that asked for whole cores while enough were free.
    pub(crate) split: Share,
    pub(crate) shared_cores: Mean,
    pub(crate) shared_cores_max: usize,
    pub(crate) half_owned_cores: Mean,
    /// The largest hole in a NUMA node over the largest that the free CPUs could make, from 0 to 1.
    pub(crate) hole: Mean,
    /// The same, counting free whole cores only.
    pub(crate) whole_hole: Mean,
    /// Other containers with a CPU set that had to be rewritten, per event that was not refused.
    pub(crate) updates: Mean,
    pub(crate) moved: usize,
    /// Containers that only share, inside one NUMA node.
    pub(crate) sharer_in_node: Share,
    pub(crate) free_at_end: usize,
    pub(crate) hole_at_end: usize,
    pub(crate) whole_hole_at_end: usize,
}

/// Judges all rows of a trace. `empty` is the machine without owners.
pub(crate) fn judge(trace: &Trace, rows: &[PlacementRow], empty: Tally) -> Quality {
    let mut judge = Judge { tally: empty, quality: Quality::default(), own: HashMap::new() };
    let first_full = trace.events.len() / 4;
    for (index, (event, row)) in trace.events.iter().zip(rows).enumerate() {
        let is_counted = match &event.op {
            Op::Create(wanted) => judge.created(index, wanted, row),
            Op::Remove => {
                judge.removed(row);
                true
            }
        };
        if is_counted {
            judge.look(index >= first_full);
        }
    }
    let Judge { tally, mut quality, .. } = judge;
    quality.free_at_end = tally.free;
    quality.hole_at_end = tally.nodes.largest_hole();
    quality.whole_hole_at_end = tally.nodes.largest_whole_hole();
    quality
}

struct Judge<'a> {
    tally: Tally,
    quality: Quality,
    /// CPUs of their own, and the event that gave them.
    own: HashMap<&'a str, (usize, CpuSet)>,
}

impl<'a> Judge<'a> {
    /// False for a refused one.
    fn created(&mut self, index: usize, wanted: &Wanted, row: &'a PlacementRow) -> bool {
        self.quality.creates += 1;
        let count = wanted.cpu_request.whole_cpus();
        let Outcome::Placed(placed) = &row.outcome else {
            self.quality.refused += 1;
            let is_feasible = wanted.is_exclusive() && self.tally.free >= count;
            self.quality.refused_feasible += usize::from(is_feasible);
            return false;
        };
        let Placed { kind, exclusive, cpus, effect, .. } = &**placed;
        self.affect(effect);
        self.quality.placed += 1;
        if wanted.is_exclusive() {
            self.quality.miscounted += usize::from(exclusive.len() != count);
        }
        if *kind == Kind::Shared {
            self.quality.sharer_in_node.count(self.tally.nodes.hold(cpus));
            return true;
        }
        if wanted.is_exclusive() {
            self.judge_exclusive(count, exclusive);
        }
        self.quality.overlaps += usize::from(self.tally.take(exclusive, index));
        self.own.insert(&row.id, (index, exclusive.clone()));
        true
    }

    fn judge_exclusive(&mut self, count: usize, cpus: &CpuSet) {
        let Judge { tally, quality, .. } = self;
        quality.exclusive += 1;
        let judge = |share: &mut Share, domains: &Domains| {
            if domains.has_room(cpus.len()) {
                share.count(domains.hold(cpus));
            }
        };
        judge(&mut quality.in_l3, &tally.l3s);
        judge(&mut quality.in_node, &tally.nodes);
        judge(&mut quality.in_package, &tally.packages);
        quality.nodes_spanned.hits += tally.nodes.spanned(cpus);
        quality.nodes_spanned.of += tally.nodes.fewest_for(count);
        if count.is_multiple_of(tally.threads) && tally.free_whole >= count {
            quality.split.count(tally.splits_core(cpus));
        }
    }

    fn removed(&mut self, row: &'a PlacementRow) {
        // It lets go first: another container may have been moved to where it was.
        if let Some((_, cpus)) = self.own.remove(row.id.as_str()) {
            self.tally.give_back(&cpus);
        }
        if let Outcome::Removed(effect) = &row.outcome {
            self.affect(effect);
        }
    }

    fn affect(&mut self, Effect { updates, moved }: &Effect) {
        let Judge { tally, quality, own } = self;
        quality.updates.add(as_f64(*updates));
        for id in moved.keys() {
            if let Some((_, old)) = own.get(id.as_str()) {
                tally.give_back(old);
            }
        }
        for (id, new) in moved {
            if let Some((owner, cpus)) = own.get_mut(id.as_str()) {
                tally.take(new, *owner);
                *cpus = new.clone();
                quality.moved += 1;
            }
        }
    }

    /// What holds between two events.
    fn look(&mut self, is_full: bool) {
        let Judge { tally, quality, .. } = self;
        quality.shared_cores.add(as_f64(tally.shared_cores));
        quality.shared_cores_max = quality.shared_cores_max.max(tally.shared_cores);
        quality.half_owned_cores.add(as_f64(tally.half_owned_cores));
        if !is_full {
            return;
        }
        let ideal = tally.free.min(tally.nodes.largest());
        if ideal > 0 {
            quality.hole.add(as_f64(tally.nodes.largest_hole()) / as_f64(ideal));
        }
        let ideal_whole = ideal / tally.threads * tally.threads;
        if ideal_whole > 0 {
            quality.whole_hole.add(as_f64(tally.nodes.largest_whole_hole()) / as_f64(ideal_whole));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bayplan_topology::{derive, parse_machine};

    use super::*;
    use crate::simulate::trace::parse_trace;

    fn set(cpus: &str) -> CpuSet {
        cpus.parse().unwrap()
    }

    /// What a container asks for and gets, and what others get because of it.
    type Row<'a> = (u32, &'a str, &'a [(&'a str, &'a str)]);

    /// Containers `a`, `b`, .. that ask for `milli` and get these CPUs, each with what it does to an earlier one.
    fn check(asked: &[Row<'_>], expected: &str) {
        let names = ["a", "b", "c", "d"];
        let mut events = Vec::new();
        let mut rows = Vec::new();
        for (i, ((milli, cpus, moved), id)) in asked.iter().zip(names).enumerate() {
            events.push(format!(
                r#"{{"i":{i},"op":"create","id":"{id}","qos":"Guaranteed","cpu_request_m":{milli},"cpu_limit_m":{milli}}}"#
            ));
            let moved = moved.iter().map(|(id, cpus)| ((*id).to_owned(), set(cpus)));
            let outcome = Outcome::Placed(Box::new(Placed {
                kind: Kind::Exclusive,
                exclusive: set(cpus),
                cpus: set(cpus),
                mems: "0".parse().unwrap(),
                effect: Effect { updates: 1, moved: moved.collect() },
            }));
            rows.push(PlacementRow { id: id.to_owned(), op: "create", outcome });
        }
        let events = events.join(",");
        let text =
            format!(r#"{{"format":"bayplan-bench-trace/1","name":"t","events":[{events}]}}"#);
        let trace = parse_trace(Path::new("t"), text.as_bytes()).unwrap();
        let topology = derive(&parse_machine("numa:2 l3:1 core:2 pu:2").unwrap()).unwrap();
        let it = judge(&trace, &rows, Tally::new(&topology, topology.cpus()));
        let Quality { overlaps, miscounted, moved, free_at_end, split, nodes_spanned, .. } = it;
        let shown = format!(
            "overlaps {overlaps}, miscounted {miscounted}, moved {moved}, free {free_at_end}, split {} of {}, nodes {} of {}",
            split.hits, split.of, nodes_spanned.hits, nodes_spanned.of
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn every_wrong_is_counted() {
        check(
            &[(2000, "0,4", &[]), (2000, "1-2", &[])],
            "overlaps 0, miscounted 0, moved 0, free 4, split 1 of 2, nodes 3 of 2",
        );
        check(
            &[(2000, "0,4", &[]), (1000, "4", &[]), (1000, "1,5", &[])],
            "overlaps 1, miscounted 1, moved 0, free 4, split 0 of 1, nodes 3 of 3",
        );
    }

    #[test]
    fn a_moved_container_is_counted_where_it_is() {
        check(
            &[(2000, "0,4", &[]), (4000, "0-1,4-5", &[("a", "2,6")]), (2000, "3,7", &[])],
            "overlaps 0, miscounted 0, moved 1, free 0, split 0 of 3, nodes 3 of 3",
        );
    }
}
