//! Classes of scheduling of nri-plugins. What a class says of policies of threads and of nice values has no counterpart: in a cgroup of its own a container's threads are compared with
//! each other only.

use super::document::{entries, find, items, scalar, text_of};
use super::output::{Step, Yaml};
use super::report::Fate;
use super::walk::{Place, Walk, path};
use crate::yaml::Node;

const THREADS: &str =
    "in a cgroup of its own this compares only the container's own threads with each other";
const EMPTY: &str = "nothing of the class has a counterpart";

/// `schedulingClasses`.
pub(super) fn classes(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (idx, item) in items(node).iter().enumerate() {
        let place = place.item(idx);
        let is_idle = scalar(item, "policy") == Some("idle");
        if !is_idle && find(item, "ioClass").is_none() {
            walk.note(&place, item, Fate::lost(THREADS));
            continue;
        }
        let at = walk.list_len("schedulingClasses");
        let place = place.writing(vec![Step::Key("schedulingClasses".to_owned()), Step::Index(at)]);
        for (_, key, value) in entries(item) {
            let below = place.below(key);
            match (key.to_ascii_lowercase().as_str(), text_of(value)) {
                ("name", Some(name)) => {
                    walk.take(&below, value, place.target("name"), Yaml::text(name));
                }
                ("policy", Some("idle")) => {
                    walk.take(&below, value, place.target("policy"), Yaml::text("idle"));
                }
                ("policy", Some("other" | "")) => {
                    walk.note(&below, value, Fate::holds("threads are as their program has them"));
                }
                ("ioclass", Some(io @ ("rt" | "be" | "idle" | "none"))) => {
                    walk.take(&below, value, place.target("ioClass"), Yaml::text(io));
                }
                ("iopriority", _) => {
                    walk.note(&below, value, Fate::lost("groups have classes of I/O only"));
                }
                _ => walk.note(&below, value, Fate::lost(THREADS)),
            }
        }
    }
}

/// `namespaceSchedulingClasses`: a class by namespace.
pub(super) fn of_namespaces(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    add_to_classes(walk, place, node, "namespaces");
}

/// `podQoSSchedulingClasses`: a class by QoS class.
pub(super) fn of_qos(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    add_to_classes(walk, place, node, "qosClasses");
}

fn add_to_classes(walk: &mut Walk<'_>, place: &Place, node: &Node, key: &str) {
    for (_, name, value) in entries(node) {
        let place = place.below(name);
        match position(walk, text_of(value).unwrap_or_default()) {
            Some(at) => {
                let mut to = vec![Step::Key("schedulingClasses".to_owned()), Step::Index(at)];
                to.extend(path(key));
                let name = match key {
                    "qosClasses" => qos_name(name),
                    _ => name.clone(),
                };
                walk.add(&place, value, to, vec![Yaml::text(name)]);
            }
            None => walk.note(&place, value, Fate::lost(EMPTY)),
        }
    }
}

/// QoS classes are written in small letters, too.
fn qos_name(name: &str) -> String {
    let names = ["Guaranteed", "Burstable", "BestEffort"];
    let found = names.iter().find(|it| it.eq_ignore_ascii_case(name));
    found.map_or_else(|| name.to_owned(), |it| (*it).to_owned())
}

/// `schedulingClass` of a balloon type.
pub(super) fn of_type(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let name = text_of(node).unwrap_or_default().to_owned();
    match position(walk, &name) {
        Some(_) => walk.take(place, node, place.target("schedulingClass"), Yaml::text(name)),
        None => walk.note(place, node, Fate::lost(EMPTY)),
    }
}

/// Where a class stands among ours.
fn position(walk: &Walk<'_>, name: &str) -> Option<usize> {
    let at = |idx: usize| {
        let mut to = vec![Step::Key("schedulingClasses".to_owned()), Step::Index(idx)];
        to.extend(path("name"));
        to
    };
    let named = Yaml::text(name);
    (0..walk.list_len("schedulingClasses")).find(|idx| walk.out.get(&at(*idx)) == Some(&named))
}
