//! Random histories with groups of random types: what holds for containers without groups holds for members, and no container runs on the CPUs of a group that is not
//! its own.

use bayplan_topology::Level;
use bayplan_types::MemoryKind;

use super::groups::{kind, of_namespaces, requests};
use super::*;
use crate::groups::{
    Capacity, Creation, Follow, GroupPlace, Inside, InstanceKey, Instances, Load, Most, Priority,
    Size,
};

/// Types of groups, with what can be different about each.
pub(super) fn any_types() -> impl Strategy<Value = Arc<[GroupType]>> {
    let types = (any_type("a"), any_type("b"), any_composite());
    (types, any::<(bool, bool)>()).prop_map(|((a, b, whole), (has_b, has_whole))| {
        let b = shifted(b);
        let can_be_part = |it: &GroupType| {
            let is_sized = matches!(it.size, Size::Requests { .. } | Size::Fixed(_));
            is_sized && it.inside == Inside::Share
        };
        let is_whole = has_b && has_whole && can_be_part(&a) && can_be_part(&b);
        let types = [Some(a), has_b.then_some(b), is_whole.then_some(whole)];
        types.into_iter().flatten().collect()
    })
}

fn any_type(name: &'static str) -> impl Strategy<Value = GroupType> {
    let shape = (any_size(), any_instances(), any_capacity(), any::<u16>());
    let cpus =
        prop::sample::select(&[None, Some(Level::L2), Some(Level::L3), Some(Level::Machine)][..]);
    let namespace = if name == "a" { "team0" } else { "team1" };
    (shape, cpus).prop_map(move |((size, instances, capacity, bits), shares_idle)| {
        let is = |bit: u16| bits & 1 << bit != 0;
        let inside = match &size {
            Size::List(_) if is(0) => Inside::Slots,
            _ if is(0) => Inside::GuaranteedExclusive,
            _ => Inside::Share,
        };
        let follows = matches!(size, Size::Requests { .. }) && is(1) && is(2);
        let mut it = kind(name, size);
        it.cpus.shares_idle = shares_idle.filter(|_| inside == Inside::Share);
        it.cpus.hides_hyperthreads = inside == Inside::Share && is(3) && is(4);
        it.place = GroupPlace { is_balanced: is(5), ..GroupPlace::default() };
        let load = Load { name: "load".to_owned(), level: Level::Core, overloads: is(6) };
        let is_sized = matches!(it.size, Size::Requests { .. } | Size::Fixed(_));
        it.loads = (is_sized && is(7) && is(8)).then_some(load).into_iter().collect();
        it.pins_cpus = (is(9) && is(10) && is(11)).then_some(false);
        it.memory_kinds = (is(12) && is(13)).then_some(MemoryKind::Dram).into_iter().collect();
        it.priority = if is(14) { Priority::High } else { Priority::Normal };
        let follows = follows.then(Follow::default);
        let members = of_namespaces(namespace);
        GroupType { members, instances, capacity, inside, follows, ..it }
    })
}

fn any_composite() -> impl Strategy<Value = GroupType> {
    (1usize..4, any::<bool>()).prop_map(|(min, balances)| GroupType {
        members: of_namespaces("team2"),
        components: vec!["a".to_owned(), "b".to_owned()],
        creation: if balances { Creation::Balance } else { Creation::All },
        ..kind("whole", requests(min, 0))
    })
}

fn any_size() -> impl Strategy<Value = Size> {
    let domains = prop::sample::select(&[Level::L3, Level::NumaNode, Level::Package][..]);
    // Neighbours, one after the other.
    let lists = (1usize..4, 1usize..3).prop_map(|(count, len)| {
        let list = |at: usize| (1 + at * len..1 + (at + 1) * len).map(cpu).collect();
        Size::List((0..count).map(list).collect())
    });
    prop_oneof![
        4 => (0usize..3, 0usize..7).prop_map(|(min, more)| requests(min, if more == 0 { 0 } else { min + more })),
        1 => (1usize..5).prop_map(Size::Fixed),
        1 => lists,
        1 => domains.prop_map(Size::Domain),
    ]
}

fn cpu(number: usize) -> CpuId {
    CpuId(u32::try_from(number).unwrap())
}

/// Lists of two types have no CPU in common.
fn shifted(it: GroupType) -> GroupType {
    let size = match it.size {
        Size::List(lists) => {
            let shift = |list: CpuSet| list.iter().map(|it| CpuId(it.0 + 6)).collect();
            Size::List(lists.into_iter().map(shift).collect())
        }
        size => size,
    };
    GroupType { size, ..it }
}

fn any_instances() -> impl Strategy<Value = Instances> {
    let by = prop_oneof![
        3 => Just(InstanceKey::Type),
        1 => Just(InstanceKey::Pod),
        1 => Just(InstanceKey::Namespace),
    ];
    let max = prop_oneof![2 => Just(Most::Unlimited), 2 => (1usize..4).prop_map(Most::Count)];
    (by, 0usize..2, max, any::<(bool, bool, bool)>()).prop_map(|(by, min, max, flags)| Instances {
        min: if by == InstanceKey::Type { min } else { 0 },
        by,
        max,
        prefers_new: flags.0,
        spreads_pods: flags.1,
        per_namespace: flags.2,
        ..Instances::default()
    })
}

fn any_capacity() -> impl Strategy<Value = Capacity> {
    let some = || prop_oneof![2 => Just(None), 1 => (1usize..4).prop_map(Some)];
    (some(), some()).prop_map(|(pods, containers)| Capacity { pods, containers })
}

/// As without groups, with more restarts; now and then the types are others, and members have used more or less.
fn any_grouped_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => any_op(),
        2 => any_types().prop_map(Op::Regroup),
        2 => Just(Op::TakeBack),
        1 => Just(Op::Restart),
        1 => any_milli().prop_map(Op::Used),
    ]
}

/// Where all containers and groups are, with the names of groups for their ids.
pub(super) fn places(state: &NodeState) -> BTreeMap<String, String> {
    let containers = state.containers.ids().filter_map(|id| {
        let it = state.ledger.allocation(*id)?;
        let group = state.groups.name_for(*id);
        let place = (it.pool, it.is_reserved, &it.exclusive, &it.idle, it.shared, &it.mems, group);
        Some((id.to_string(), format!("{place:?}")))
    });
    let groups = state.groups.instances.iter();
    let groups = groups.map(|(id, it)| (it.name(), state.ledger.group_cpus(*id).to_string()));
    containers.chain(groups).collect()
}

impl World {
    /// A container as [`spec`] has it; where there are groups, in a namespace with others.
    pub(super) fn spec(
        &self,
        pod: u8,
        name: u8,
        attempt: u32,
        milli: i64,
        gib: i64,
    ) -> NewContainer {
        let mut made = spec(pod, name, attempt, milli, gib);
        if pod < 5 && self.is_grouped {
            made.pod.namespace = format!("team{}", pod % 3);
        }
        made
    }

    /// All containers have used so much, one more than the other.
    pub(super) fn use_cpus(&mut self, milli: i64) {
        let milli = u64::try_from(milli).unwrap_or_default();
        let used = self.real.keys().zip(1u64..);
        let used = used.map(|(id, at)| (id.clone(), MilliCpu(milli * (at % 3))));
        let used = used.collect();
        self.step(Event::Used(used));
    }

    /// The journal has every group as it is, and nothing else runs on the CPUs of one.
    pub(super) fn check_groups(&self) -> Result<(), TestCaseError> {
        let state = &self.state;
        let records = state.group_records();
        let known: Vec<String> = records.map(|it| to_line(&it)).collect();
        let journaled: Vec<String> = self.journaled_groups.values().cloned().collect();
        prop_assert_eq!(journaled, known);
        let held: Vec<ContainerId> = state.ledger.groups().map(|(id, _)| id).collect();
        let instances: Vec<ContainerId> = state.groups.instances.keys().copied().collect();
        prop_assert_eq!(&held, &instances);
        for (id, instance) in &state.groups.instances {
            let form = state.group_form(*id);
            prop_assert_eq!(Some(&instance.form), form.as_ref(), "{}", id);
        }
        for (id, member) in &state.groups.members {
            prop_assert!(state.containers.contains(id), "{} is a member and is gone", id);
            prop_assert!(held.contains(&member.group), "the group of {} is gone", id);
            let part = state.ledger.allocation(*id).unwrap().terms.part.group();
            prop_assert_eq!(part, Some(member.group), "{}", id);
        }
        if state.is_restored() {
            return Ok(());
        }
        for group in held {
            let cpus = state.ledger.group_cpus(group);
            let is_other =
                |id: &&ContainerId| state.groups.members.get(id).is_none_or(|it| it.group != group);
            for id in state.containers.ids().filter(is_other) {
                let on = state.pinning(*id).unwrap_or_default().cpus;
                prop_assert!(on.is_disjoint(&cpus), "{} runs on {} of {}", id, on, cpus);
            }
        }
        Ok(())
    }

    /// Groups that are there without members are those that are always there, once Bayplan places containers again.
    pub(super) fn check_left_groups(&mut self) -> Result<(), TestCaseError> {
        self.step(Event::SetMode(Mode::Placing));
        self.check()?;
        for kind in self.machine.types.iter() {
            let left = self.state.groups.of_kind(&kind.name).count();
            prop_assert!(left <= kind.always(), "{} of {}", left, kind.name);
        }
        prop_assert!(self.state.groups.members.is_empty());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn any_history_with_groups_keeps_the_ledger_and_the_runtime_in_line(
        machine in any_machine(),
        (compacts, narrows, shares) in any::<(bool, bool, bool)>(),
        types in any_types(),
        ops in prop::collection::vec(any_grouped_op(), 1..60),
    ) {
        let mut world = World::new(Machine { compacts, narrows, shares, types, ..machine });
        world.is_grouped = true;
        // Groups that are always there are made with the first event.
        world.step(Event::Ping);
        world.check()?;
        for op in ops {
            world.play(op)?;
            world.check()?;
        }
        world.end()?;
    }
}
