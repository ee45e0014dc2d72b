//! Plans by example, and what they promise over random machines and histories.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_topology::{Level, derive, parse_machine};
use bayplan_types::{Bytes, CpuSet, MilliCpu};
use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::policy::topology_aware::pools;
use crate::*;

const GENEROUS: Limits =
    Limits { moves_max: 4, cpus_max: 64, memory_max: None, gain_min_percent: 10 };

/// A ledger, and what everybody in it asked for.
struct Node {
    ledger: Ledger,
    requests: BTreeMap<ContainerId, Request>,
}

impl Node {
    fn new(line: &str, reserved: &str) -> Node {
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let pools = pools(&topology, &reserved.parse().unwrap()).unwrap();
        Node { ledger: Ledger::new(Arc::new(pools)), requests: BTreeMap::new() }
    }

    fn create(&mut self, request: Request) -> bool {
        let Ok(offered) = offer(&self.ledger, &request) else { return false };
        self.ledger.commit(offered).unwrap();
        self.requests.insert(request.id, request);
        true
    }

    fn release(&mut self, id: ContainerId) {
        self.ledger.release(id);
        self.requests.remove(&id);
    }

    /// `ID@CPUS` owns just those, `ID EXCLUSIVE[+SHARED]` is placed, `-ID` goes, `!ID` may not be moved.
    fn play(&mut self, step: &str) {
        let number = |id: &str| ContainerId(id.parse().unwrap());
        if let Some(id) = step.strip_prefix('-') {
            self.release(number(id));
        } else if let Some(id) = step.strip_prefix('!') {
            self.requests.get_mut(&number(id)).unwrap().wishes.is_immovable = true;
        } else if let Some((id, cpus)) = step.split_once('@') {
            let exclusive: CpuSet = cpus.parse().unwrap();
            let wanted = request(number(id).0, exclusive.len(), None);
            let mems = self.ledger.pools().nodes_of(&exclusive);
            let charges = mems.iter().take(1).map(|node| (node, Bytes::gib(1))).collect();
            let pool = PoolId::MACHINE;
            let held =
                Allocation { pool, is_reserved: false, exclusive, shared: None, mems, charges };
            self.ledger.adopt(wanted.id, held).unwrap();
            self.requests.insert(wanted.id, Request { memory: Bytes::gib(1), ..wanted });
        } else {
            let (id, demand) = step.split_once(' ').unwrap();
            let (exclusive, shared) = demand.split_once('+').unwrap_or((demand, ""));
            let exclusive = exclusive.parse().unwrap();
            assert!(self.create(request(number(id).0, exclusive, shared.parse().ok())), "{step}");
        }
    }
}

fn request(id: u64, exclusive: usize, shared: Option<u64>) -> Request {
    Request::new(ContainerId(id), Demand::new(exclusive, shared.map(MilliCpu)))
}

fn wish(exclusive: usize, level: Level) -> Wish {
    Wish { request: request(1000, exclusive, None), level }
}

fn render(plan: &Compaction) -> String {
    let hole = |hole: Hole| format!("{} ({} whole)", hole.cpus, hole.whole);
    let mut text = format!("hole {} -> {}\n", hole(plan.before), hole(plan.after));
    for Relocation { container, from, to, sharers, cost } in &plan.moves {
        let (from, to) = (&from.exclusive, &to.exclusive);
        text.push_str(&format!("{container} {from} -> {to}: {} CPUs, {}", cost.cpus, cost.memory));
        for made in sharers {
            text.push_str(&format!(", {} to pool {}", made.container, made.to.0));
        }
        text.push('\n');
    }
    text
}

fn check(line: &str, steps: &[&str], wanted: Option<Wish>, limits: Limits, expected: Expect) {
    let mut node = Node::new(line, "");
    steps.iter().for_each(|step| node.play(step));
    let plan = plan_compaction(&node.ledger, &node.requests, wanted.as_ref(), &limits);
    expected.assert_eq(&render(&plan));
}

/// Two NUMA nodes of four cores: CPUs 0-3 and 8-11, 4-7 and 12-15.
const TWO: &str = "pack:1 numa:2 core:4 pu:2 mem:8";

#[test]
fn a_hole_is_filled_from_the_larger_one() {
    let steps = ["1@0-1,8-9", "2@4,12"];
    check(TWO, &steps, None, GENEROUS, expect![[]]);
}

#[test]
fn nothing_is_gained_nothing_is_moved() {
    check(TWO, &[], None, GENEROUS, expect![[]]);
    check(TWO, &["1@0-1,8-9"], None, GENEROUS, expect![[]]);
    let dear = Limits { gain_min_percent: 101, ..GENEROUS };
    check(TWO, &["1@0-1,8-9", "2@4,12"], None, dear, expect![[]]);
}

#[test]
fn who_may_not_be_moved_stays() {
    check(TWO, &["1@0-1,8-9", "2@4,12", "!2"], None, GENEROUS, expect![[]]);
    check(TWO, &["1@0-1,8-9", "2@4,12", "!1", "!2"], None, GENEROUS, expect![[]]);
}

#[test]
fn the_budget_is_kept() {
    let steps = ["1@0,8", "2@1,9", "3@4,12", "4@5,13"];
    check(TWO, &steps, None, GENEROUS, expect![[]]);
    check(TWO, &steps, None, Limits { moves_max: 1, ..GENEROUS }, expect![[]]);
    check(TWO, &steps, None, Limits { cpus_max: 1, ..GENEROUS }, expect![[]]);
    let memory_max = Some(Bytes::gib(1));
    check(TWO, &steps, None, Limits { memory_max, ..GENEROUS }, expect![[]]);
}

#[test]
fn an_odd_cpu_is_paired_up() {
    check(TWO, &["1@0", "2@1", "3@2-3,10-11"], None, GENEROUS, expect![[]]);
    check("core:4 pu:2", &["1@0-1,4", "2@2"], None, GENEROUS, expect![[]]);
}

#[test]
fn a_large_one_and_a_small_one_change_places() {
    // The hole of two in the first node is too small for the four of the second, unless the two leave it.
    let steps = ["1@0,8", "2@1-2,9-10", "3@4-5,12-13"];
    check(TWO, &steps, None, GENEROUS, expect![[]]);
}

#[test]
fn room_is_made_for_a_wish_with_the_fewest_moves() {
    let steps = ["1@0,8", "2@1,9", "3@4,12", "4@5-6,13-14"];
    check(TWO, &steps, Some(wish(4, Level::NumaNode)), GENEROUS, expect![[]]);
    check(TWO, &steps, Some(wish(6, Level::NumaNode)), GENEROUS, expect![[]]);
    check(TWO, &steps, Some(wish(8, Level::NumaNode)), GENEROUS, expect![[]]);
    let chiplets = "pack:1 numa:1 l3:3 core:2 pu:2";
    let steps = ["1@0,6", "2@2,8", "3@4,10"];
    check(chiplets, &steps, Some(wish(4, Level::L3)), GENEROUS, expect![[]]);
}

#[test]
fn sharers_make_room_for_who_is_moved() {
    check(TWO, &["1@0-2,8-10", "2@4,12", "3 0+500"], None, GENEROUS, expect![[]]);
}
