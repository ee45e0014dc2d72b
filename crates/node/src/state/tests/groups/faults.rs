//! Groups in the cases in which they were once wrong.

use super::*;

fn slots(lists: &[&str]) -> GroupType {
    GroupType { inside: Inside::Slots, ..kind("exclusive", list(lists)) }
}

fn warnings(node: &Node) -> String {
    let all = node.state.containers.values().flat_map(|it| it.decision.warnings.clone());
    all.collect::<Vec<_>>().join("\n")
}

#[test]
fn no_affinity_is_for_pods_that_may_ask_for_it() {
    let words = ["n/a/c", "0", "cmk=cmk+isolate+--pool=exclusive+--no-affinity+app"];
    let mut node = started(N4C16, &[slots(&["2,10"])]);
    node.state.rules.permissions.clear();
    assert_eq!(node.create(&words), "on 2,10");
    expect!["`cmk isolate --no-affinity` (STP_NO_AFFINITY) is not allowed in namespace `n` (`preserve` of `permissions` in the configuration); it has the CPUs of its group"]
        .assert_eq(&warnings(&node));
    let mut node = started(N4C16, &[slots(&["2,10"])]);
    assert_eq!(node.create(&words), "on ");
    assert_eq!(warnings(&node), "");
    node.restart();
}

#[test]
fn without_groups_commands_of_cmk_are_left_alone() {
    let words = ["kube-system/a/c", "0", "cmk=cmk+isolate+--pool=infra+app"];
    for (groups, is_told) in [(&[][..], false), (&[kind("web", requests(1, 2))], true)] {
        let mut node = started(N4C16, groups);
        assert_eq!(node.create(&words), "on 0");
        let id = *node.state.containers.ids().next().unwrap();
        assert_eq!(node.state.pool_environment(id).is_some(), is_told);
    }
    // The reserved CPUs are not those of an ordinary pod.
    let mut node = started(N4C16, &[]);
    assert_eq!(node.create(&["n/a/c", "0", "cmk=cmk+isolate+--pool=infra+app"]), "on 2-3,10-11");
}

#[test]
fn a_pod_of_no_group_may_say_what_it_wants_of_cmk() {
    let mut node = started(N4C16, &[kind("web", requests(1, 2))]);
    let odd = "cmk=cmk+isolate+app";
    assert_eq!(node.create(&["n/a/c", "0", odd, "bayplan.dev/group=none"]), "on 2-3,10-11");
    let script = "cmk=sh+-c+nice_cmk_isolate_--pool=web_app";
    assert_eq!(node.create(&["n/b/c", "0", script]), "on 4-5,12-13");
    expect!["the script in its command has `cmk isolate` and stays as it is, and the container belongs to no pool of CMK: it stands behind `nice`"]
        .assert_eq(&warnings(&node));
}

/// The group is full, so one that belongs to it is elsewhere; it keeps its CPUs when the daemon starts again, also where others would be free.
#[test]
fn one_that_found_its_group_full_stays_where_it_is() {
    let full = |members| GroupType {
        capacity: Capacity { containers: Some(1), pods: None },
        members,
        ..kind("web", list(&["7"]))
    };
    let mut node = started(N4C16, &[full(Members::default())]);
    node.create(&["n/z/c", "100", "bayplan.dev/group=web"]);
    node.create(&["n/x/c", "2000", "Guaranteed"]);
    node.create(&["shop/a/c", "2000", "Guaranteed"]);
    node.step(Event::Ended("n/x/c".to_owned()));
    let shown = node.shown();
    assert_eq!(shown, "  web[0] : 7, n/z/c on 7\n  shop/a/c on 6,14\n");
    let types = [full(of_namespaces("shop"))];
    assert_eq!(
        node.reload(&types),
        "refused: shop/a/c: no group of `web` has room; web[0]: it has 1 containers already"
    );
    node.start_under(&types);
    assert_eq!(node.shown(), shown);
    // It was outside before, so it is no reason to refuse types that change something else.
    let cpu_class = Some("slow".to_owned());
    let other = GroupType { cpu_class, ..full(of_namespaces("shop")) };
    assert_eq!(node.reload(&[other]), "");
    for _ in 0..2 {
        node.restart();
        assert_eq!(node.shown(), shown);
    }
}

/// Issue 34: with room in the group by then, a restart moved the container into it, which would have stayed where it was had the daemon gone on.
#[test]
fn one_that_found_its_group_full_stays_outside_when_the_daemon_starts_with_room_in_it() {
    let one = |members| GroupType {
        capacity: Capacity { containers: Some(1), pods: None },
        members,
        ..kind("web", list(&["7"]))
    };
    let mut node = started(N4C16, &[one(Members::default())]);
    node.create(&["n/z/c", "100", "bayplan.dev/group=web"]);
    node.create(&["shop/a/c", "2000", "Guaranteed"]);
    node.start_under(&[one(of_namespaces("shop"))]);
    node.step(Event::Ended("n/z/c".to_owned()));
    let shown = node.shown();
    assert_eq!(shown, "  web[0] : 7\n  shop/a/c on 1,9\n");
    node.restart();
    assert_eq!(node.shown(), shown);
    // Other types count for it.
    let larger = GroupType {
        capacity: Capacity { containers: Some(2), pods: None },
        ..one(of_namespaces("shop"))
    };
    assert_eq!(node.reload(&[larger]), "shop/a/c to 7");
}

/// Several containers of a pod count together what it asked for, and one of them is resized.
/// A container of a Guaranteed pod that has a figure of its own, in the group `web`.
fn create_in_pod(node: &mut Node, name: &str, milli: i64, pod_milli: i64) {
    let mut spec = new_container("p", name, 0, 0);
    spec.resources = resources(milli);
    spec.pod.qos = Some(QosClass::Guaranteed);
    spec.pod.resources = resources(pod_milli);
    spec.pod.annotations.insert("bayplan.dev/group".to_owned(), "web".to_owned());
    node.tickets += 1;
    let ticket = Ticket(node.tickets);
    node.step(Event::Admit(ticket, Box::new(spec)));
    let id = format!("p/{name}");
    node.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }));
}

#[test]
fn a_member_of_a_pod_that_counts_together_is_placed_for_its_new_resources() {
    let inside = Inside::GuaranteedExclusive;
    let mut node = started(N4C16, &[GroupType { inside, ..kind("web", requests(1, 8)) }]);
    // The second one says nothing, so it has the settings of its pod.
    create_in_pod(&mut node, "a", 1000, 3000);
    create_in_pod(&mut node, "b", 3000, 3000);
    assert!(node.state.containers.values().any(|it| it.spec.is_silent));
    assert_eq!(node.resize("p/a", 2000), "resized");
    let id = node.state.containers.id_of("p/a").unwrap();
    let held = node.state.ledger.allocation(id).unwrap();
    assert_eq!(held.exclusive.len(), 2, "{}", node.shown());
}

/// The share of a member that says nothing was that of its arrival until a restart, so its group stayed as large.
#[test]
fn a_group_follows_the_share_that_a_member_has_of_its_pod() {
    let mut node = started(N4C16, &[kind("web", requests(1, 12))]);
    // One that says nothing has the settings of its pod.
    create_in_pod(&mut node, "silent", 6000, 6000);
    let alone = node.shown();
    create_in_pod(&mut node, "loud", 1000, 6000);
    let together = node.shown();
    node.step(Event::Ended("p/loud".to_owned()));
    let again = node.shown();
    node.restart();
    expect![[r#"
        alone  web[0] : 1-3,9-11, //silent on 1-3,9-11
        both  web[0] : 1-3,9-11, //loud on 1-3,9-11, //silent on 1-3,9-11
        alone  web[0] : 1-3,9-11, //silent on 1-3,9-11
        restarted  web[0] : 1-3,9-11, //silent on 1-3,9-11
    "#]]
    .assert_eq(&format!("alone{alone}both{together}alone{again}restarted{}", node.shown()));
}

#[test]
fn slots_of_which_some_are_taken_are_there_as_far_as_they_can_be() {
    let mut node = started(N4C16, &[]);
    node.create(&["n/x/c", "2000", "Guaranteed"]);
    let types = [slots(&["1,9", "2,10"])];
    let told = "refused: exclusive[0] would have 2 CPUs and is to have 4: CPUs 1,9 are another container's";
    assert_eq!(node.reload(&types), told);
    node.start_under(&types);
    let words = ["n/a/c", "0", "bayplan.dev/group=exclusive"];
    assert_eq!(node.create(&words), "on 2,10");
    node.step(Event::Ended("n/x/c".to_owned()));
    assert_eq!(node.shown(), "  exclusive[0] : 1-2,9-10, n/a/c on 2,10\n");
    node.restart();
}

#[test]
fn more_slots_are_those_held_and_others_of_the_same_socket() {
    check(
        N4C16,
        &[slots(&["2,10", "3,11", "4,12", "5,13"])],
        &[
            "n/a/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=1+app",
            "n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app",
            "n/c/c 0 cmk=cmk+isolate+--pool=exclusive+app",
            "-n/b/c",
            "~n/a/c 3000",
            "~n/c/c 3000",
            "~n/a/c 5000",
        ],
        expect![[r#"
            n/a/c 0 cmk=cmk+isolate+--pool=exclusive+--socket-id=1+app: on 4,12
            n/b/c 0 cmk=cmk+isolate+--pool=exclusive+app: on 2,10
            n/c/c 0 cmk=cmk+isolate+--pool=exclusive+app: on 3,11
            -n/b/c: gone
            ~n/a/c 3000: resized
            ~n/c/c 3000: resized
            ~n/a/c 5000: bayplan: n/a/c refused: its group exclusive[0] cannot be fitted: it has too few free slots
              exclusive[0] : 2-5,10-13, n/a/c on 4-5,12-13, n/c/c on 2-3,10-11
        "#]],
    );
    let mut node = started(N4C16, &[slots(&["2,10", "3,11", "4,12"])]);
    for name in ["n/a/c", "n/b/c", "n/c/c"] {
        node.create(&[name, "0", "bayplan.dev/group=exclusive"]);
    }
    node.step(Event::Ended("n/a/c".to_owned()));
    node.step(Event::Ended("n/b/c".to_owned()));
    assert_eq!(node.resize("n/c/c", 3000), "resized");
    assert_eq!(node.shown(), "  exclusive[0] : 2-4,10-12, n/c/c on 2,4,10,12\n");
}

#[test]
fn what_members_share_beyond_their_group_changes_without_another_group() {
    let shares = |shares_idle| {
        let cpus = CpuWishes { shares_idle, ..CpuWishes::default() };
        GroupType { cpus, ..kind("web", requests(1, 4)) }
    };
    let mut node = started(N4C16, &[shares(None)]);
    assert_eq!(node.create(&["n/a/c", "1000", "bayplan.dev/group=web"]), "on 8");
    let group = *node.state.groups.instances.keys().next().unwrap();
    for (level, expected) in [(Some(Level::NumaNode), "n/a/c to 1,8-9"), (None, "n/a/c to 8")] {
        assert_eq!(node.reload(&[shares(level)]), expected);
        assert!(node.state.groups.instances.contains_key(&group));
        node.restart();
    }
}

#[test]
fn a_member_that_owns_cpus_while_the_node_is_drained_has_all_of_them() {
    let inside = Inside::GuaranteedExclusive;
    let mut node = started(N4C16, &[GroupType { inside, ..kind("web", requests(4, 8)) }]);
    node.create(&["n/a/c", "1000", "Guaranteed", "bayplan.dev/group=web"]);
    node.step(Event::SetMode(Mode::Draining));
    assert_eq!(node.resize("n/a/c", 3000), "resized");
    let id = node.state.containers.id_of("n/a/c").unwrap();
    assert_eq!(node.state.ledger.allocation(id).unwrap().exclusive.len(), 3, "{}", node.shown());
}

/// Issue 34: a member that shared had CPUs of its own by a resize, which no other container gets while the node is drained.
#[test]
fn a_member_that_shares_goes_on_sharing_while_the_node_is_drained() {
    let zone = GroupType { inside: Inside::GuaranteedExclusive, ..kind("zone", requests(1, 4)) };
    let mut node = started(N4C16, &[zone]);
    node.create(&["n/a/c", "500", "Guaranteed", "bayplan.dev/group=zone"]);
    node.step(Event::SetMode(Mode::Draining));
    assert_eq!(node.resize("n/a/c", 2000), "resized");
    for _ in 0..2 {
        let owns = node
            .state
            .ledger
            .allocations()
            .any(|(_, it)| !it.is_group() && !it.exclusive.is_empty());
        assert!(!owns, "{}", node.shown());
        assert_eq!(node.shown(), "  zone[0] : 1,8, n/a/c on 1,8\n");
        node.restart();
    }
}

/// Without a journal a container that runs says by its environment where it belongs, and its CPUs say which slots it has.
#[test]
fn without_a_journal_containers_are_in_their_slots() {
    let types: Arc<[GroupType]> = [slots(&["2,10", "3,11"])].into();
    let mut node = started(N4C16, &types);
    // The later one is found first.
    for (name, cpus) in [("n/b/c", "2,10"), ("n/a/c", "3,11")] {
        let words = [name, "0", "cmk=cmk+isolate+--pool=exclusive+--socket-id=0+app"];
        assert_eq!(node.create(&words), format!("on {cpus}"));
    }
    let seen = |(id, container): (&ContainerId, &Container)| {
        let told = node.state.pool_environment(*id).unwrap();
        let told = told.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut spec = NewContainer::clone(&container.spec);
        spec.cmk = cmk::read(&[], told).map(|it| it.asked);
        assert_eq!(spec.cmk, container.spec.cmk);
        let seen = running(spec, node.state.pinning(*id).unwrap());
        (container.runtime_id.clone().unwrap(), seen)
    };
    let containers = node.state.containers.iter().map(seen).collect();
    let mut again = started(N4C16, &types);
    let basis = again.state.steps;
    again.step(Event::Synced(RuntimeView { basis, containers }));
    assert_eq!(again.shown(), node.shown());
}
