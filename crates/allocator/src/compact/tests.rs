//! Plans by example, and what they promise over random machines and histories.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_topology::{Level, derive, parse_machine};
use bayplan_types::{Bytes, CpuSet, MilliCpu};
use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::policy::{Policy, pools};
use crate::*;

const GENEROUS: Limits =
    Limits { moves_max: 4, cpus_max: 64, memory_max: None, gain_min_percent: 10, states_max: 4000 };

/// A ledger, and what each container in it asked for.
struct Node {
    ledger: Ledger,
    requests: BTreeMap<ContainerId, Request>,
}

impl Node {
    fn new(line: &str, reserved: &str) -> Node {
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let pools = pools(&topology, Policy::default(), &reserved.parse().unwrap()).unwrap();
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
            let held = Allocation { exclusive, mems, charges, ..Allocation::new(PoolId::MACHINE) };
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
    check(
        TWO,
        &steps,
        None,
        GENEROUS,
        expect![[r#"
        hole 6 (6 whole) -> 8 (8 whole)
        #2 4,12 -> 2,10: 2 CPUs, 1 GiB
    "#]],
    );
}

#[test]
fn nothing_is_gained_nothing_is_moved() {
    check(
        TWO,
        &[],
        None,
        GENEROUS,
        expect![[r#"
        hole 8 (8 whole) -> 8 (8 whole)
    "#]],
    );
    check(
        TWO,
        &["1@0-1,8-9"],
        None,
        GENEROUS,
        expect![[r#"
        hole 8 (8 whole) -> 8 (8 whole)
    "#]],
    );
    let dear = Limits { gain_min_percent: 101, ..GENEROUS };
    check(
        TWO,
        &["1@0-1,8-9", "2@4,12"],
        None,
        dear,
        expect![[r#"
        hole 6 (6 whole) -> 6 (6 whole)
    "#]],
    );
}

#[test]
fn a_container_that_may_not_be_moved_stays() {
    check(
        TWO,
        &["1@0-1,8-9", "2@4,12", "!2"],
        None,
        GENEROUS,
        expect![[r#"
        hole 6 (6 whole) -> 8 (8 whole)
        #1 0-1,8-9 -> 5-6,13-14: 4 CPUs, 1 GiB
    "#]],
    );
    check(
        TWO,
        &["1@0-1,8-9", "2@4,12", "!1", "!2"],
        None,
        GENEROUS,
        expect![[r#"
        hole 6 (6 whole) -> 6 (6 whole)
    "#]],
    );
}

#[test]
fn the_budget_is_kept() {
    let steps = ["1@0,8", "2@1,9", "3@4,12", "4@5,13"];
    check(
        TWO,
        &steps,
        None,
        GENEROUS,
        expect![[r#"
        hole 4 (4 whole) -> 8 (8 whole)
        #1 0,8 -> 6,14: 2 CPUs, 1 GiB
        #2 1,9 -> 7,15: 2 CPUs, 1 GiB
    "#]],
    );
    check(
        TWO,
        &steps,
        None,
        Limits { moves_max: 1, ..GENEROUS },
        expect![[r#"
        hole 4 (4 whole) -> 6 (6 whole)
        #1 0,8 -> 6,14: 2 CPUs, 1 GiB
    "#]],
    );
    check(
        TWO,
        &steps,
        None,
        Limits { cpus_max: 1, ..GENEROUS },
        expect![[r#"
        hole 4 (4 whole) -> 4 (4 whole)
    "#]],
    );
    let memory_max = Some(Bytes::gib(1));
    check(
        TWO,
        &steps,
        None,
        Limits { memory_max, ..GENEROUS },
        expect![[r#"
        hole 4 (4 whole) -> 6 (6 whole)
        #1 0,8 -> 6,14: 2 CPUs, 1 GiB
    "#]],
    );
}

#[test]
fn what_is_reached_is_not_lost_among_all_that_is_only_promised() {
    // One move makes the hole of node 0 whole. Nine odd CPUs could go to nine nodes each, after which it would still be to be made.
    let mut steps = vec!["100@0-1,80-81".to_owned()];
    for node in 1..10 {
        let (first, last) = (8 * node + 1, 8 * node + 5);
        steps.push(format!("{node}@{}", 8 * node));
        steps.push(format!("{}@{first}-{last},{}-{}", 200 + node, first + 80, last + 80));
        steps.push(format!("!{}", 200 + node));
    }
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    check(
        "pack:1 numa:10 core:8 pu:2 mem:8",
        &steps,
        None,
        GENEROUS,
        expect![[r#"
            hole 12 (12 whole) -> 16 (16 whole)
            #100 0-1,80-81 -> 14-15,94-95: 4 CPUs, 1 GiB
        "#]],
    );
}

#[test]
fn an_odd_cpu_is_paired_up() {
    check(
        TWO,
        &["1@0", "2@1", "3@2-3,10-11"],
        None,
        GENEROUS,
        expect![[r#"
        hole 8 (8 whole) -> 8 (8 whole)
    "#]],
    );
    check(
        "core:4 pu:2",
        &["1@0-1,4", "2@2"],
        None,
        GENEROUS,
        expect![[r#"
        hole 4 (2 whole) -> 4 (4 whole)
        #1 0-1,4 -> 0,4,6: 1 CPUs, 0 B
    "#]],
    );
}

#[test]
fn a_large_one_and_a_small_one_change_places() {
    // The hole of two in the first node is too small for the four of the second, unless the two leave it.
    let steps = ["1@0,8", "2@1-2,9-10", "3@4-5,12-13"];
    check(
        TWO,
        &steps,
        None,
        GENEROUS,
        expect![[r#"
        hole 4 (4 whole) -> 6 (6 whole)
        #2 1-2,9-10 -> 6-7,14-15: 4 CPUs, 1 GiB
    "#]],
    );
}

#[test]
fn room_is_made_for_a_wish_with_the_fewest_moves() {
    let steps = ["1@0,8", "2@1,9", "3@4,12"];
    check(
        TWO,
        &steps,
        Some(wish(6, Level::NumaNode)),
        GENEROUS,
        expect![[r#"
        hole 6 (6 whole) -> 6 (6 whole)
    "#]],
    );
    check(
        TWO,
        &steps,
        Some(wish(8, Level::NumaNode)),
        GENEROUS,
        expect![[r#"
        hole 6 (6 whole) -> 8 (8 whole)
        #3 4,12 -> 2,10: 2 CPUs, 1 GiB
    "#]],
    );
    let steps = ["1@0-1,8-9", "2@4,12", "3@5"];
    check(
        TWO,
        &steps,
        Some(wish(7, Level::NumaNode)),
        GENEROUS,
        expect![[r#"
        hole 5 (4 whole) -> 7 (6 whole)
        #2 4,12 -> 2,10: 2 CPUs, 1 GiB
    "#]],
    );
    let chiplets = "pack:1 numa:1 l3:3 core:2 pu:2";
    let steps = ["1@0,6", "2@2,8", "3@4,10"];
    check(
        chiplets,
        &steps,
        Some(wish(4, Level::L3)),
        GENEROUS,
        expect![[r#"
        hole 2 (2 whole) -> 4 (4 whole)
        #1 0,6 -> 3,9: 2 CPUs, 0 B
    "#]],
    );
}

#[test]
fn shared_containers_make_room_for_one_that_is_moved() {
    check(
        TWO,
        &["1@0-2,8-10", "2@4,12", "3 0+500"],
        None,
        GENEROUS,
        expect![[r#"
        hole 6 (6 whole) -> 8 (8 whole)
        #2 4,12 -> 3,11: 2 CPUs, 1 GiB
    "#]],
    );
}

/// Where container 1 goes when it is to leave CPUs, and asks for this.
#[track_caller]
fn check_departure(
    line: &str,
    steps: &[&str],
    leave: &str,
    limits: Limits,
    ask: impl Fn(&mut Request),
    expected: &str,
) {
    let mut node = Node::new(line, "");
    steps.iter().for_each(|step| node.play(step));
    let id = ContainerId(1);
    let leave: CpuSet = leave.parse().unwrap();
    let request = node.requests.get_mut(&id).unwrap();
    ask(request);
    let planned = plan_departure(&node.ledger, (id, request), &leave, &limits);
    let Some(made) = planned else { return assert_eq!("stays", expected) };
    node.ledger.relocate(std::slice::from_ref(&made)).unwrap();
    assert_eq!(check_ledger(&node.ledger), [""; 0]);
    assert!(made.to.exclusive.is_disjoint(&leave));
    assert_eq!((made.to.mems, made.cost.memory), (made.from.mems, Bytes::ZERO));
    assert_eq!(format!("{} -> {}", made.from.exclusive, made.to.exclusive), expected);
}

/// Two nodes of two caches of four CPUs.
const CACHES: &str = "pack:1 numa:2 l3:2 core:4 pu:1 mem:8";

/// Another node would mean that any amount of memory follows, of which the ledger need not know.
#[test]
fn an_owner_goes_to_another_cache_of_its_node_and_to_no_other_node() {
    let check = |steps: &[&str], leave, expected| {
        check_departure(CACHES, steps, leave, GENEROUS, |_| {}, expected);
    };
    check(&["1@0-1"], "0-3", "0-1 -> 4-5");
    check(&["1@0-1"], "0-7", "stays");
    check(&["1@0-1"], "8-15", "stays");
    check(&["1@0-1", "2@4-6"], "0-3", "stays");
    check(&["1@0-1", "2@4-5"], "0-3", "0-1 -> 6-7");
    check(&["1@0-1", "!1"], "0-3", "stays");
}

#[test]
fn an_owner_goes_nowhere_where_too_many_cpus_would_change() {
    let limits = Limits { cpus_max: 1, ..GENEROUS };
    check_departure(CACHES, &["1@0-1"], "0-3", limits, |_| {}, "stays");
}

/// As after a reload with `preferSharedCpus`, or for a container that was adopted with more than it asks for.
#[test]
fn an_owner_that_asks_for_other_cpus_than_it_has_stays() {
    for exclusive in [0, 1, 3] {
        let demand = Demand::new(exclusive, None);
        let ask = |it: &mut Request| it.demand = demand;
        check_departure(CACHES, &["1@0-1"], "0-3", GENEROUS, ask, "stays");
    }
}

#[test]
fn an_owner_does_not_lose_a_wish_that_is_only_preferred() {
    let apart = |it: &mut Request| {
        it.wishes.cpus.apart = Some((Level::L3, Strictness::Preferred));
    };
    let check = |steps: &[&str], expected| {
        check_departure(CACHES, steps, "0-3", GENEROUS, apart, expected);
    };
    check(&["1@0-1"], "0-1 -> 4-5");
    // It is alone in its cache, and would not be there.
    check(&["1@0-1", "2@4"], "stays");
    // It is not alone now, either.
    check(&["1@0-1", "2@2", "3@4"], "0-1 -> 5-6");
}

fn levels_held(ledger: &Ledger, cpus: &CpuSet) -> Vec<Level> {
    let holding = ledger.pools().iter().filter(|pool| cpus.is_subset(&pool.cpus));
    holding.flat_map(|it| it.merged.iter().map(|(level, _)| *level).chain([it.level])).collect()
}

fn splits(ledger: &Ledger, cpus: &CpuSet) -> usize {
    let leaves = ledger.pools().iter().filter(|pool| pool.children.is_empty());
    let cores = leaves.flat_map(|pool| ledger.pools().own_core_sets(pool));
    cores.filter(|core| core.intersects(cpus) && !core.is_subset(cpus)).count()
}

fn is_in_one_node(ledger: &Ledger, wish: &Wish) -> bool {
    offer(ledger, &wish.request)
        .is_ok_and(|it| ledger.pools().nodes_of(&it.allocation().exclusive).len() <= 1)
}

/// Everything that a plan promises.
fn check_plan(node: &Node, limits: &Limits, wanted: Option<&Wish>) -> Result<(), TestCaseError> {
    let Node { ledger, requests } = node;
    let plan = plan_compaction(ledger, requests, wanted, limits);
    prop_assert_eq!(&plan, &plan_compaction(ledger, requests, wanted, limits));
    let cost = plan.cost();
    prop_assert!(plan.moves.len() <= limits.moves_max && cost.cpus <= limits.cpus_max);
    prop_assert!(limits.memory_max.is_none_or(|limit| cost.memory <= limit));
    let mut after = ledger.clone();
    for made in &plan.moves {
        prop_assert_eq!(after.relocate(std::slice::from_ref(made)), Ok(()));
        prop_assert_eq!(check_ledger(&after), Vec::<String>::new());
    }
    for (id, was) in ledger.allocations() {
        let now = after.allocation(id).unwrap();
        let is_immovable = requests.get(&id).is_none_or(|it| it.wishes.is_immovable);
        prop_assert!(now == was || !is_immovable, "{} is moved", id);
        prop_assert_eq!(now.exclusive.len(), was.exclusive.len());
        if was.exclusive.is_empty() {
            continue;
        }
        let held = levels_held(&after, &now.exclusive);
        let is_worse = levels_held(ledger, &was.exclusive).iter().any(|it| !held.contains(it));
        prop_assert!(!is_worse, "{}: {} -> {}", id, was.exclusive, now.exclusive);
        prop_assert!(splits(ledger, &now.exclusive) <= splits(ledger, &was.exclusive));
    }
    let gain = plan.after.weight().saturating_sub(plan.before.weight());
    let is_worth = gain > 0 && 50 * gain >= cost.cpus * limits.gain_min_percent;
    prop_assert!(plan.moves.is_empty() || wanted.map_or(is_worth, |it| is_in_one_node(&after, it)));
    Ok(())
}

/// CPUs of its own, shared part, memory in GiB, whether it may be moved.
type Comer = (usize, Option<u64>, u64, bool);

fn any_comer() -> impl Strategy<Value = Comer> {
    let shared = prop::option::weighted(0.2, 0_u64..2000);
    (0_usize..7, shared, 0_u64..3, prop::bool::weighted(0.8))
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let memory = prop::option::of((0_u64..4).prop_map(Bytes::gib));
    (1_usize..5, 1_usize..24, memory, 0_usize..80, 0_usize..4000).prop_map(
        |(moves_max, cpus_max, memory_max, gain_min_percent, states_max)| Limits {
            moves_max,
            cpus_max,
            memory_max,
            gain_min_percent,
            states_max,
        },
    )
}

/// After all came, and some went.
fn played(line: &str, comers: &[Comer], goers: &[usize]) -> Node {
    let mut node = Node::new(line, "");
    for (id, (cpus, shared, gib, is_movable)) in (0_u64..).zip(comers) {
        let mut wanted = request(id, *cpus, *shared);
        wanted.memory = Bytes::gib(*gib);
        wanted.wishes.is_immovable = !is_movable;
        node.create(wanted);
    }
    for which in goers {
        let held: Vec<ContainerId> = node.ledger.allocations().map(|(id, _)| id).collect();
        if let Some(id) = held.get(which % held.len().max(1)) {
            node.release(*id);
        }
    }
    node
}

/// Whether so many moves make room; every container, every order and every node is tried.
fn can_make_room(ledger: &Ledger, node: &Node, wanted: &Wish, moves: usize) -> bool {
    if moves == 0 {
        return is_in_one_node(ledger, wanted);
    }
    let ids: Vec<ContainerId> = ledger.allocations().map(|(id, _)| id).collect();
    let targets = ledger.pools().iter().filter(|pool| pool.nodes.len() <= 1);
    targets.flat_map(|pool| ids.iter().map(|id| (pool.id, *id))).any(|(pool, id)| {
        let mut after = ledger.clone();
        let was = after.release(id).unwrap();
        let mut moved = node.requests[&id].clone();
        moved.previous = Some(Previous { pool, exclusive: CpuSet::new() });
        let Ok(offered) = offer(&after, &moved) else { return false };
        let span = |cpus: &CpuSet| ledger.pools().nodes_of(cpus).len();
        let is_worse = span(&offered.allocation().exclusive) > span(&was.exclusive);
        after.commit(offered).unwrap();
        !is_worse && can_make_room(&after, node, wanted, moves - 1)
    })
}

#[test]
fn a_spread_container_may_join_its_cpus_in_one_of_its_nodes() {
    let comers = [2, 1, 3, 2, 3].map(|size| (size, None, 0, true));
    let node = played("pack:1 numa:3 core:4 pu:1", &comers, &[3, 0]);
    let held: Vec<String> =
        node.ledger.allocations().map(|(_, held)| held.exclusive.to_string()).collect();
    assert_eq!(held, ["3", "4-6", "0,10-11"]);
    let limits = Limits { gain_min_percent: 0, ..GENEROUS };
    let wanted = wish(4, Level::NumaNode);
    let plan = plan_compaction(&node.ledger, &node.requests, Some(&wanted), &limits);
    let moves: Vec<String> = plan.moves.iter().map(|it| it.to.exclusive.to_string()).collect();
    assert_eq!(moves, ["0-2"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn plans_keep_what_they_promise(
        (pack, numa, l3, core, pu) in (1_u32..3, 1_u32..4, 1_u32..3, 1_u32..5, 1_u32..3),
        comers in prop::collection::vec(any_comer(), 1..16),
        goers in prop::collection::vec(any::<usize>(), 0..10),
        wanted in 2_usize..9,
        limits in any_limits(),
    ) {
        let line = format!("pack:{pack} numa:{numa} l3:{l3} core:{core} pu:{pu} mem:8");
        let node = played(&line, &comers, &goers);
        check_plan(&node, &limits, None)?;
        check_plan(&node, &limits, Some(&wish(wanted, Level::NumaNode)))?;
    }

    #[test]
    fn no_plan_with_fewer_moves_makes_room(
        (numa, core) in (2_u32..4, 2_u32..5),
        sizes in prop::collection::vec(1_usize..4, 1..7),
        goers in prop::collection::vec(any::<usize>(), 0..4),
        wanted in 2_usize..5,
    ) {
        let comers: Vec<Comer> = sizes.iter().map(|size| (*size, None, 0, true)).collect();
        let node = played(&format!("pack:1 numa:{numa} core:{core} pu:1"), &comers, &goers);
        let wanted = wish(wanted, Level::NumaNode);
        let limits = Limits { moves_max: 3, gain_min_percent: 0, ..GENEROUS };
        let plan = plan_compaction(&node.ledger, &node.requests, Some(&wanted), &limits);
        let fewer = match plan.moves.len() {
            0 if is_in_one_node(&node.ledger, &wanted) => 0,
            0 => 3,
            moves => moves,
        };
        for moves in 0..fewer {
            prop_assert!(!can_make_room(&node.ledger, &node, &wanted, moves), "{} do", moves);
        }
    }
}
