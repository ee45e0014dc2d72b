//! Containers that end by themselves, of which kubelet tells nothing.

use bayplan_cri::embedded::Fault;

use crate::node::{MACHINE, Node, soon};

/// gRPC `UNIMPLEMENTED`.
const UNIMPLEMENTED: u32 = 12;

async fn check_exit_is_noticed(mut node: Node) {
    node.start_daemon().await;
    let (_, id) = node.guaranteed("owner", 2000).await;
    let mut past = node.past_daemon();
    soon(past.stop(&id)).await.unwrap();
    node.wait_until("the container is released", |status| status.containers.is_empty()).await;
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_by_itself_is_released_at_once() {
    let mut node = Node::without_daemon(MACHINE);
    // Nothing but events can tell of it.
    node.never_resyncs();
    check_exit_is_noticed(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_without_events_is_asked_now_and_then() {
    let node = Node::without_daemon(MACHINE);
    node.runtime.inject("GetContainerEvents", Fault::Fail(UNIMPLEMENTED));
    check_exit_is_noticed(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_heard_again_after_the_runtime_was_restarted() {
    let mut node = Node::without_daemon(MACHINE);
    node.start_daemon().await;
    soon(node.runtime.called("GetContainerEvents", 1)).await;
    node.stop_runtime().await;
    node.start_runtime();
    soon(node.runtime.called("GetContainerEvents", 2)).await;
    node.wait_until_in_line().await;
}
