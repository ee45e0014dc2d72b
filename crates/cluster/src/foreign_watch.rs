//! Follows objects of other systems. In: what is accepted, and the node with its group labels. Out: each object that could be for the node, or word that it is
//! not there.
//!
//! Every object is watched by its name, so that a node hears of no other. A kind that the API server does not have is as an object that is not there, and so is one that it has never
//! shown; both are asked for again after [`ABSENT`]. One that it has shown and may not show for a while stays as it was: rights are taken away for a moment when a role is replaced.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::api::Cluster;
use crate::foreign::{Accepted, ForeignName, ForeignObject, candidates};
use crate::said::Said;
use crate::watching::{World, spread};

/// Between questions for a kind that is not there; half as long again by the node's name.
const ABSENT: Duration = Duration::from_secs(300);

/// Runs as long as the agent does; others are followed as soon as the node has another group.
pub(crate) async fn watch_foreign(
    cluster: &Cluster,
    accepted: &[Accepted],
    world: &watch::Sender<World>,
) {
    if accepted.is_empty() {
        return;
    }
    let mut known = world.subscribe();
    loop {
        let wanted = |world: &World| world.node.as_ref().map(|node| candidates(accepted, node));
        let names = match known.wait_for(|world| world.node.is_some()).await {
            Ok(world) => wanted(&world).unwrap_or_default(),
            Err(_) => return,
        };
        world.send_modify(|world| world.foreign.retain(|name, _| names.contains(name)));
        let all = join_all(names.iter().map(|name| watch_one(cluster, name, world)));
        let regrouped = known.wait_for(|world| wanted(world).is_some_and(|it| it != names));
        tokio::select! {
            _ = all => {}
            _ = regrouped => {}
        }
    }
}

async fn watch_one(cluster: &Cluster, name: &ForeignName, world: &watch::Sender<World>) {
    let tell = |object: Option<ForeignObject>| {
        world.send_if_modified(|world| {
            let is_news = world.foreign.get(name) != Some(&object);
            world.foreign.insert(name.clone(), object);
            is_news
        });
    };
    let mut said = Said::default();
    loop {
        let mut stream = cluster.watch_foreign(name);
        let mut listed = None;
        while let Some(event) = stream.next().await {
            let read = |object: &kube::api::DynamicObject| {
                let json = serde_json::to_value(object).unwrap_or_default();
                Some(ForeignObject::read(&json, name.kind))
            };
            match event {
                Ok(Event::Init) => listed = None,
                Ok(Event::InitApply(object)) => listed = read(&object),
                Ok(Event::InitDone) => {
                    said.is_over("watch");
                    tell(listed.take());
                }
                Ok(Event::Apply(object)) => tell(read(&object)),
                Ok(Event::Delete(_)) => tell(None),
                Err(error) => {
                    let code = code_of(&error);
                    if matches!(code, Some(403 | 404)) {
                        let is_shown =
                            world.borrow().foreign.get(name).is_some_and(Option::is_some);
                        if code == Some(404) || !is_shown {
                            tell(None);
                        }
                    }
                    if code == Some(404) {
                        tracing::debug!("no {} in {}", name.kind.name(), name.namespace);
                        break;
                    }
                    if said.is_news("watch", &error.to_string()) {
                        tracing::warn!(
                            "cannot watch {} in {}: {error}",
                            name.kind.name(),
                            name.namespace
                        );
                    }
                    if code == Some(403) {
                        break;
                    }
                    continue;
                }
            }
        }
        sleep(ABSENT + spread(cluster.node(), ABSENT / 2)).await;
    }
}

/// HTTP status of the API server's answer.
fn code_of(error: &watcher::Error) -> Option<u16> {
    let of_kube = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error,
        watcher::Error::WatchError(status) => return Some(status.code),
        _ => return None,
    };
    match of_kube {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
