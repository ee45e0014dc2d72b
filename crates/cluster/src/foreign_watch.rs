//! Follows objects of other systems. In: what is accepted, and the node with its group labels. Out: each object that could be for the node, or word that it is
//! not there.
//!
//! Every object is watched by its name, so that a node hears of no other. A kind that the API server does not have, or may not show, is as an object that
//! is not there; it is asked for again after [`ABSENT`].

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::api::Cluster;
use crate::foreign::{Accepted, ForeignName, ForeignObject, candidates};
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
                Ok(Event::InitDone) => tell(listed.take()),
                Ok(Event::Apply(object)) => tell(read(&object)),
                Ok(Event::Delete(_)) => tell(None),
                Err(error) if is_absent(&error) => {
                    tracing::debug!("no {} in {}: {error}", name.kind.name(), name.namespace);
                    tell(None);
                    break;
                }
                Err(error) => tracing::debug!("cannot watch {name:?}: {error}"),
            }
        }
        sleep(ABSENT + spread(cluster.node(), ABSENT / 2)).await;
    }
}

/// The API server does not have the kind, or the agent may not read it.
fn is_absent(error: &watcher::Error) -> bool {
    let of_kube = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error,
        watcher::Error::WatchError(status) => return matches!(status.code, 403 | 404),
        _ => return false,
    };
    matches!(of_kube, kube::Error::Api(status) if matches!(status.code, 403 | 404))
}
