//! Other reserved CPUs and namespaces under running containers.

use bayplan_allocator::policy::PoolsError;
use jiff::SignedDuration;

use super::*;
use crate::reconfigure::{ChangedConfig, check_reserved};
use crate::settings::{CompactionConfig, OnNoCapacity};

impl Node {
    fn config(&self) -> Result<ChangedConfig, PoolsError> {
        let topology = self.topology();
        check_reserved(&topology, &self.reserved)?;
        Ok(ChangedConfig {
            rules: RequestRules {
                reserved_namespaces: self.namespaces.clone(),
                ..RequestRules::default()
            },
            compaction: CompactionConfig::default(),
            narrows_memory: false,
            on_no_capacity: OnNoCapacity::default(),
            groups: Arc::default(),
            doubt_grace: SignedDuration::from_secs(30),
            text: format!("{} {:?} {:?}", self.reserved, self.policy, self.namespaces),
            machine: ChangedMachine::new(&topology, self.policy, &self.reserved),
        })
    }

    /// Under the configuration as it is now, as a preview has said.
    pub(super) fn configure(&mut self) -> String {
        let changed = match self.config() {
            Ok(changed) => Box::new(changed),
            Err(error) => {
                // Nothing has changed.
                self.reserved = self.state.ledger.pools().reserved().clone();
                return format!("refused: {error}\n");
            }
        };
        let asked = self.step(Event::PreviewConfig(changed.clone()));
        assert!(asked.records.is_empty() && asked.plan.is_empty() && asked.notes.is_empty());
        let Answer::Shifts(would) = asked.answer else { panic!("{:?}", asked.answer) };
        let asked = self.step(Event::PreviewStatus(changed.clone())).answer;
        let Answer::WhatIf(shifts, status) = asked else { panic!("{asked:?}") };
        assert_eq!(shifts, would);
        let done = self.step(Event::ConfigChanged(changed.clone()));
        assert_eq!(self.state.status(), *status, "what-if and what came of it");
        let Answer::Shifts(did) = &done.answer else { panic!("{:?}", done.answer) };
        assert_eq!(would, *did);
        let again = self.step(Event::ConfigChanged(changed));
        assert!(again.records.is_empty() && again.plan.is_empty());
        assert!(matches!(again.answer, Answer::Shifts(shifts) if shifts.is_empty()));
        self.show(&done)
    }
}

#[test]
fn an_owner_leaves_cpus_that_are_reserved_now_and_others_stay() {
    check(
        TWO_NODES,
        "",
        &["a 1", "b 2", "s ~0.5", "dns !0.1", "reserve 0-1", "restart", "reserve", "restart"],
        expect![[r#"
            > reserve 0-1
            shrink s cpus 4-7 -> 5-7
            move   dns cpus 4-7 -> 0 mems 1 -> 0
            move   a cpus 1 -> 4 mems 0 -> 1
            grow   dns cpus 0 -> 0-1
            placed default/a/app in numa 1: 4
            placed kube-system/dns/app in machine: 0-1
            configured: moved 3
            a exclusive on 4 mems 1 in numa 1: lost CPUs 1; placed in numa 1
            b exclusive on 2-3 mems 0 in numa 0: placed in numa 0
            s shared on 5-7 mems 1 in numa 1: placed in numa 1
            dns reserved on 0-1 mems 0 in reserved: its place is on the reserved CPUs now; placed on the reserved CPUs
            > restart: same true
            > reserve
            move   dns cpus 0-1 -> 5-7 mems 0 -> 1
            placed kube-system/dns/app in numa 1: 5-7
            configured: moved 1
            a exclusive on 4 mems 1 in numa 1: lost CPUs 1; placed in numa 1
            b exclusive on 2-3 mems 0 in numa 0: placed in numa 0
            s shared on 5-7 mems 1 in numa 1: placed in numa 1
            dns shared on 5-7 mems 1 in numa 1: its place is no longer on the reserved CPUs; placed in numa 1
            > restart: same true
        "#]],
    );
}

#[test]
fn under_one_shared_pool_all_shared_containers_leave_their_nodes_and_owners_stay() {
    check(
        TWO_NODES,
        "0",
        &[
            "a 1", "b 2.5", "s ~0.5", "dns !0.1", "one-pool", "restart", "c 3", "t ~0.5", "tree",
            "u ~0.5", "restart",
        ],
        expect![[r#"
            > one-pool
            grow   b cpus 4-7 -> 2-7
            grow   s cpus 2-3 -> 2-7
            configured: moved 2
            a exclusive on 1 mems 0 in numa 0: placed in numa 0
            b shared on 2-7 mems 1 in machine: placed in numa 1
            s shared on 2-7 mems 0 in machine: placed in numa 0
            dns reserved on 0 mems 0 in reserved: placed on the reserved CPUs
            > restart: same true
            > tree
            configured: moved 0
            a exclusive on 1 mems 0 in numa 0: placed in numa 0
            b shared on 2-3,7 mems 1 in machine: placed in numa 1; squeezed from CPUs 2-7 to 2-3,7 because of default/c/app
            c exclusive on 4-6 mems 1 in numa 1: placed in numa 1
            s shared on 2-3,7 mems 0 in machine: placed in numa 0; squeezed from CPUs 2-7 to 2-3,7 because of default/c/app
            t shared on 2-3,7 mems 0-1 in machine: placed in machine
            dns reserved on 0 mems 0 in reserved: placed on the reserved CPUs
            > restart: same true
        "#]],
    );
}

#[test]
fn pods_move_with_their_namespace() {
    check(
        TWO_NODES,
        "0",
        &["a 1", "dns !0.1", "system default", "restart", "system kube-*", "system"],
        expect![[r#"
            > system default
            move   dns cpus 0 -> 4-7 mems 0 -> 1
            move   a cpus 1 -> 0
            placed default/a/app in machine: 0
            placed kube-system/dns/app in numa 1: 4-7
            configured: moved 2
            a reserved on 0 mems 0 in reserved: its place is on the reserved CPUs now; placed on the reserved CPUs
            dns shared on 4-7 mems 1 in numa 1: its place is no longer on the reserved CPUs; placed in numa 1
            > restart: same true
            > system kube-*
            move   a cpus 0 -> 1
            move   dns cpus 4-7 -> 0 mems 1 -> 0
            placed kube-system/dns/app in machine: 0
            placed default/a/app in numa 0: 1
            configured: moved 2
            a exclusive on 1 mems 0 in numa 0: its place is no longer on the reserved CPUs; placed in numa 0
            dns reserved on 0 mems 0 in reserved: its place is on the reserved CPUs now; placed on the reserved CPUs
            > system
            move   dns cpus 0 -> 4-7 mems 0 -> 1
            placed kube-system/dns/app in numa 1: 4-7
            configured: moved 1
            a exclusive on 1 mems 0 in numa 0: its place is no longer on the reserved CPUs; placed in numa 0
            dns shared on 4-7 mems 1 in numa 1: its place is no longer on the reserved CPUs; placed in numa 1
        "#]],
    );
}

#[test]
fn reserved_cpus_that_the_machine_does_not_have_change_nothing() {
    check(
        TWO_NODES,
        "0",
        &["a 1", "reserve 0,64", "reserve 0-7", "reserve 0"],
        expect![[r#"
        > reserve 0,64
        refused: reserved CPUs 64 are not online; this machine has 0-7
        > reserve 0-7
        refused: no CPU is left for containers: all of 0-7 are reserved (0-7) or isolated ()
        > reserve 0
        configured: moved 0
        a exclusive on 1 mems 0 in numa 0: placed in numa 0
    "#]],
    );
}

#[test]
fn reserved_cpus_may_be_offline_just_now() {
    check(
        TWO_NODES,
        "0",
        &["dns !0.1", "off 1", "reserve 0-1", "off"],
        expect![[r#"
        > off 1
        machine 0,2-7: came [] went [1], moved 0, displaced 0
        dns reserved on 0 mems 0 in reserved: placed on the reserved CPUs
        > reserve 0-1
        configured: moved 0
        dns reserved on 0 mems 0 in reserved: placed on the reserved CPUs
        > off
        grow   dns cpus 0 -> 0-1
        machine 0-7: came [1] went [], moved 0, displaced 0
        dns reserved on 0-1 mems 0 in reserved: placed on the reserved CPUs
    "#]],
    );
}

#[test]
fn an_owner_without_room_beside_the_reserved_cpus_shares() {
    check(
        "pack:1 numa:1 core:4 pu:1 mem:8",
        "",
        &["a 2", "b 1", "reserve 0-1", "reserve 3"],
        expect![[r#"
            > reserve 0-1
            shrink a cpus 1-2 -> 2
            displaced: default/a/app: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            configured: moved 1
            a shared on 2 mems 0 in machine: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            b exclusive on 3 mems 0 in machine: placed in machine
            > reserve 3
            move   b cpus 3 -> 1
            grow   a cpus 2 -> 0,2
            placed default/b/app in machine: 1
            configured: moved 2
            a shared on 0,2 mems 0 in machine: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            b exclusive on 1 mems 0 in machine: lost CPUs 3; placed in machine
        "#]],
    );
}

#[test]
fn a_creation_under_way_is_corrected_when_it_ends() {
    check(
        TWO_NODES,
        "",
        &["begin a 1", "reserve 1", "end a"],
        expect![[r#"
        > begin a: told 1
        > reserve 1
        placed default/a/app in numa 0: 2
        configured: moved 1
        a exclusive on 2 mems 0 in numa 0: lost CPUs 1; placed in numa 0
        > end a: waits true
        move   a cpus 1 -> 2
        a exclusive on 2 mems 0 in numa 0: lost CPUs 1; placed in numa 0
    "#]],
    );
}
