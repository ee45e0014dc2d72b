//! Other types of groups while containers run, and after a restart.

use super::*;

#[test]
fn a_changed_size_counts_after_a_restart() {
    let mut node = started(N4C16, &[kind("pair", Size::Fixed(2))]);
    node.create(&["n/a/c", "100", "bayplan.dev/group=pair"]);
    assert_eq!(node.state.group_statuses()[0].cpus, "1,9");
    node.types = [kind("pair", Size::Fixed(4))].into();
    let mut again = empty(N4C16, &node.types);
    again.restore(replay(&node.journal), NOW);
    node.state = again;
    node.step(Event::Ping);
    assert_eq!(node.state.group_statuses()[0].cpus, "1-2,9-10");
    node.restart();
}

#[test]
fn a_preview_of_other_types_knows_what_groups_of_another_size_move() {
    let mut node = started(N4C16, &[kind("web", requests(1, 8))]);
    node.create(&["n/a/c", "2000", "bayplan.dev/group=web"]);
    node.create(&["n/x/c", "500"]);
    let shifts = node.reload(&[kind("web", requests(4, 8))]);
    assert_eq!(shifts, "n/a/c to 1-2,9-10, n/x/c to 3,11");
    node.restart();
}

#[test]
fn a_member_of_a_group_above_a_lowered_maximum_may_be_resized_down() {
    let mut node = started(N4C16, &[kind("web", requests(1, 8))]);
    node.create(&["n/a/c", "4000", "bayplan.dev/group=web"]);
    node.create(&["n/b/c", "3000", "bayplan.dev/group=web"]);
    node.reload(&[kind("web", requests(1, 4))]);
    assert_eq!(node.state.group_statuses()[0].cpus, "1-3,8-11");
    assert_eq!(node.resize("n/a/c", 3000), "resized");
    expect!["bayplan: n/a/c refused: its group web[0] cannot be fitted: 7 CPUs would be requested of at most 4"].assert_eq(&node.resize("n/a/c", 4000));
    assert_eq!(node.shown(), "  web[0] : 1-3,9-11, n/a/c on 1-3,9-11, n/b/c on 1-3,9-11\n");
}
