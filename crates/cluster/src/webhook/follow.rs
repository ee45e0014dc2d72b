//! What the API server tells of profiles, namespaces and priority classes. In: three watches. Out: [`Known`] as it is at any time.

use std::collections::BTreeMap;

use futures::Stream;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass as Class;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::watch;

use super::colocation::{Known, PriorityClass, Profile, Texts};
use crate::watching::follow;

/// Runs until the process ends.
pub(super) async fn follow_profiles(client: Client, known: &watch::Sender<Known>) {
    let config = watcher::Config::default;
    let kind =
        GroupVersionKind::gvk("config.koordinator.sh", "v1alpha1", "ClusterColocationProfile");
    let resource = ApiResource::from_gvk_with_plural(&kind, "clustercolocationprofiles");
    let profiles: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let (namespaces, classes) = (Api::<Namespace>::all(client.clone()), Api::<Class>::all(client));
    tokio::join!(
        collect(
            "ClusterColocationProfiles",
            watcher(profiles, config()).default_backoff(),
            known,
            read_profile,
            |known| &mut known.profiles,
        ),
        collect(
            "namespaces",
            watcher(namespaces, config()).default_backoff(),
            known,
            |it: &Namespace| Some::<Texts>(it.labels().clone()),
            |known| &mut known.namespaces,
        ),
        collect(
            "PriorityClasses",
            watcher(classes, config()).default_backoff(),
            known,
            |it: &Class| Some(read_class(it)),
            |known| &mut known.classes,
        ),
    );
}

/// `None`: it is left out.
fn read_profile(object: &DynamicObject) -> Option<Profile> {
    let json = serde_json::to_value(object).unwrap_or_default();
    match Profile::read(&json) {
        Ok(profile) => {
            if json["spec"].get("patch").is_some() {
                let profile = object.name_any();
                tracing::warn!(profile, "`patch` of a ClusterColocationProfile is left out");
            }
            if !profile.left_out().is_empty() {
                let (name, left_out) = (object.name_any(), profile.left_out().join(", "));
                tracing::warn!(
                    profile = name,
                    "what no pod may have is left out of a ClusterColocationProfile: {left_out}"
                );
            }
            Some(profile)
        }
        Err(error) => {
            let profile = object.name_any();
            tracing::warn!(profile, "a ClusterColocationProfile is left out: {error:#}");
            None
        }
    }
}

fn read_class(class: &Class) -> PriorityClass {
    let preemption = class.preemption_policy.clone();
    let preemption = preemption.unwrap_or_else(|| "PreemptLowerPriority".to_owned());
    PriorityClass { value: class.value, preemption }
}

/// Keeps one of the maps as the API server has its objects.
async fn collect<K: ResourceExt, V>(
    what: &'static str,
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    known: &watch::Sender<Known>,
    read: impl Fn(&K) -> Option<V>,
    map: impl Fn(&mut Known) -> &mut BTreeMap<String, V>,
) {
    let mut listed = BTreeMap::new();
    let entry = |object: &K| Some((object.name_any(), read(object)?));
    follow(what, stream, |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => listed.extend(entry(&object)),
        Event::InitDone => {
            known.send_modify(|known| {
                *map(known) = std::mem::take(&mut listed);
                known.listed.extend([what]);
            });
        }
        Event::Apply(object) => known.send_modify(|known| {
            map(known).remove(&object.name_any());
            map(known).extend(entry(&object));
        }),
        Event::Delete(object) => {
            known.send_modify(|known| drop(map(known).remove(&object.name_any())));
        }
    })
    .await;
}
